//! The state of one end of a stream that the network opens by itself.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use unipgas_base::Error;

/// Whether a stream is open or has ended, and the waits for its peer.
#[derive(Default)]
pub struct StreamState {
    open: AtomicBool,
    reachable: AtomicBool,
    ended: AtomicBool,
    why: OnceLock<Error>,
    wants_room: AtomicBool,
    watched: AtomicBool,
    heard: AtomicU32,
}

impl StreamState {
    /// Both sides are connected: bytes may leave now.
    pub fn mark_open(&self) {
        self.open.store(true, Ordering::Release);
    }

    /// Whether both sides have been connected.
    pub fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    /// The peer's host answers. The process may be stopped.
    pub fn mark_reachable(&self) {
        self.reachable.store(true, Ordering::Relaxed);
    }

    /// Whether the peer's host has answered.
    pub fn is_reachable(&self) -> bool {
        self.reachable.load(Ordering::Relaxed)
    }

    /// Ends the stream. False: it had ended before.
    pub fn end(&self) -> bool {
        !self.ended.swap(true, Ordering::AcqRel)
    }

    /// Whether the stream has ended.
    #[inline]
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Keeps the reason of a refusal, or of a failed contact. The first one counts.
    pub fn refuse(&self, why: Error) {
        let _ = self.why.set(why);
    }

    /// The reason, if there is one.
    pub fn refusal(&self) -> Option<Error> {
        self.why.get().cloned()
    }

    /// Notes whether a caller waits for room. False: this is known already.
    pub fn want_room(&self, wanted: bool) -> bool {
        self.wants_room.swap(wanted, Ordering::AcqRel) != wanted
    }

    /// Whether a caller waits for room.
    #[inline]
    pub fn wants_room(&self) -> bool {
        self.wants_room.load(Ordering::Relaxed)
    }

    /// A caller asks whether the peer lives.
    pub fn watch(&self) {
        self.watched.store(true, Ordering::Relaxed);
    }

    /// Notes a message of the peer, or a completion. Only one thread at a time calls it.
    #[inline]
    pub fn hear(&self) {
        let heard = self.heard.load(Ordering::Relaxed);
        self.heard.store(heard.wrapping_add(1), Ordering::Relaxed);
    }

    /// Whether the peer was heard since the previous look, and whether a caller waits for it. `heard`: the count of that look.
    pub fn look(&self, heard: &mut u32) -> (bool, bool) {
        let now = self.heard.load(Ordering::Relaxed);
        let news = std::mem::replace(heard, now) != now;
        let watched = self.watched.swap(false, Ordering::Relaxed);
        (news, watched || self.wants_room())
    }
}

//! Work requests that wait for others, to leave with them by one doorbell.

use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use unipgas_verbs_sys::*;

use crate::connection::INLINE;
use crate::queues::Pair;

/// No more wait.
const MOST: usize = 32;

struct One {
    request: ibv_send_wr,
    place: ibv_sge,
    /// Bytes that were to be taken in the call.
    inline: [u8; INLINE],
}

/// Connections of a process on which some wait.
pub type Staging = Arc<AtomicUsize>;

/// Those of one connection, in order.
pub struct Staged {
    all: Vec<One>,
    /// So many callers have more to post.
    held: u32,
    staging: Staging,
}

impl Drop for Staged {
    fn drop(&mut self) {
        self.are_none();
    }
}

// SAFETY:
// - the addresses in it lead into itself, and to memory that is valid until the operations have ended.
unsafe impl Send for Staged {}

impl Staged {
    /// Of a connection of the process that counts in `staging` which have some.
    pub fn new(staging: Staging) -> Self {
        Staged {
            all: Vec::new(),
            held: 0,
            staging,
        }
    }

    /// None wait any more.
    fn are_none(&mut self) {
        if !self.all.is_empty() {
            self.all.clear();
            self.staging.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Whether what is posted has to come here.
    #[inline(always)]
    pub fn takes_all(&self) -> bool {
        self.held > 0 || self.has_some()
    }

    /// Whether any waits.
    pub fn has_some(&self) -> bool {
        !self.all.is_empty()
    }

    /// Somebody has more to post.
    pub fn hold(&mut self) {
        self.held += 1;
    }

    /// It has been posted. Others may come still.
    pub fn let_go(&mut self) {
        self.held -= 1;
    }

    /// Whether it is time.
    pub fn is_due(&self) -> bool {
        self.all.len() >= MOST || self.held == 0 && self.has_some()
    }

    /// Keeps one.
    ///
    /// # Safety
    /// What the request leads to is valid, and, unless it is inline, stays so until the operation has ended.
    pub unsafe fn keep(&mut self, request: &ibv_send_wr) {
        let mut place = ibv_sge {
            addr: 0,
            length: 0,
            lkey: 0,
        };
        if request.num_sge > 0 {
            // SAFETY:
            // - one place is there (the caller's word).
            place = unsafe { *request.sg_list };
        }
        let mut inline = [0; INLINE];
        if request.send_flags & IBV_SEND_INLINE != 0 {
            let from: *const u8 = std::ptr::with_exposed_provenance(place.addr as usize);
            let len = (place.length as usize).min(INLINE);
            // SAFETY:
            // - so many bytes are there (the caller's word), and have room.
            unsafe { inline.as_mut_ptr().copy_from_nonoverlapping(from, len) };
        }
        if self.all.is_empty() {
            self.staging.fetch_add(1, Ordering::AcqRel);
        }
        self.all.push(One {
            request: *request,
            place,
            inline,
        });
    }

    /// All leave. False: the device takes none.
    pub fn ring(&mut self, pair: &Pair) -> bool {
        let mut next: *mut ibv_send_wr = null_mut();
        for one in self.all.iter_mut().rev() {
            if one.request.send_flags & IBV_SEND_INLINE != 0 {
                one.place.addr = one.inline.as_ptr().expose_provenance() as u64;
            }
            one.request.sg_list = &raw mut one.place;
            one.request.next = next;
            next = &raw mut one.request;
        }
        let Some(first) = self.all.first_mut() else {
            return true;
        };
        // SAFETY:
        // - the chain lives through the call; the rest is the word of who has kept them.
        let posted = unsafe { pair.post(&mut first.request) };
        self.are_none();
        posted
    }
}

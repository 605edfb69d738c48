//! The receiving side of a mailbox's memory: who has begun to send, and the next line of each. Looking needs no lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use super::layout::{LINE, Line, Shape};
use super::outgoing::Bytes;
use crate::bundle::RegionKey;
use crate::engine::Engine;
use crate::region::{Region, Rights};
use crate::transport::Handler;
use crate::{Result, announced, prefetch};

/// The memory that peers write to, and how far it has been read.
pub(super) struct Window {
    region: Region,
    base: *mut u8,
    shape: Shape,
    /// Lines taken from each peer, and from all.
    taken: Box<[AtomicU64]>,
    taken_from_all: AtomicU64,
    /// Peers that have begun to send, as far as that has been noticed.
    active: Box<[AtomicU32]>,
    actives: AtomicUsize,
    known: Box<[AtomicBool]>,
    greetings: AtomicU64,
    /// Parts of streams that have been sent or have come.
    parts: AtomicU64,
    /// Something waits that only progress can move on.
    pub restless: AtomicBool,
}

// SAFETY:
// - `base` leads to memory of the region, which is shared by purpose: atomics, and data that lines announce.
unsafe impl Send for Window {}
// SAFETY:
// - as for Send.
unsafe impl Sync for Window {}

impl Window {
    pub fn new(engine: &Engine, shape: Shape) -> Result<Self> {
        let region = engine.allocate(shape.size(), Rights::FULL)?;
        Ok(Window {
            base: region.base(),
            region,
            shape,
            taken: (0..shape.peers).map(|_| AtomicU64::new(0)).collect(),
            taken_from_all: AtomicU64::new(0),
            active: (0..shape.peers).map(|_| AtomicU32::new(0)).collect(),
            actives: AtomicUsize::new(0),
            known: (0..shape.peers).map(|_| AtomicBool::new(false)).collect(),
            greetings: AtomicU64::new(0),
            parts: AtomicU64::new(0),
            restless: AtomicBool::new(false),
        })
    }

    pub fn key(&self) -> RegionKey {
        self.region.key()
    }

    pub fn handle_by(&self, handler: Arc<dyn Handler>) -> Result<()> {
        self.region.handle_by(handler)
    }

    /// How many parts of streams have been sent or have come.
    #[inline(always)]
    pub fn parts(&self) -> u64 {
        self.parts.load(Ordering::Relaxed)
    }

    /// One more. For the one thread that has the mailbox.
    pub fn count_part(&self) {
        self.parts.store(self.parts() + 1, Ordering::Relaxed);
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        debug_assert!(offset + 4 <= self.region.len());
        // SAFETY:
        // - within the region (the shape's arithmetic), aligned; peers change it by notices, which are atomic.
        unsafe { AtomicU32::from_ptr(self.base.add(offset).cast()) }
    }

    /// How many of our lines `peer` says that it has taken.
    #[inline(always)]
    pub fn credit(&self, peer: u32) -> u32 {
        self.word(self.shape.credit_of(peer as usize))
            .load(Ordering::Acquire)
    }

    #[inline(always)]
    fn has_greeted(&self, peer: usize) -> bool {
        self.word(self.shape.hello_of(peer)).load(Ordering::Acquire) != 0
    }

    /// Takes note of peers that have begun to send. For the one thread that takes lines.
    #[inline(always)]
    pub fn notice(&self) {
        if self.has_greeting() {
            self.notice_all();
        }
    }

    #[cold]
    fn notice_all(&self) {
        // Before the words of the peers are looked at: who comes meanwhile sets it again. Of several peers' stores the swap reads the last one, and has
        // what came before the others, too: stores to one word are seen in their order, also on processors that reorder (where other
        // processors see a store, all do).
        self.word(self.shape.news()).swap(0, Ordering::AcqRel);
        let greetings = self.greetings.load(Ordering::Relaxed);
        self.greetings.store(greetings + 1, Ordering::Relaxed);
        let mut number = self.actives.load(Ordering::Relaxed);
        for peer in 0..self.shape.peers {
            if !self.known[peer].load(Ordering::Relaxed) && self.has_greeted(peer) {
                self.known[peer].store(true, Ordering::Relaxed);
                self.active[number].store(peer as u32, Ordering::Relaxed);
                number += 1;
                self.actives.store(number, Ordering::Release);
            }
        }
    }

    /// The peers that have begun to send.
    #[inline(always)]
    pub fn active(&self) -> impl Iterator<Item = u32> + '_ {
        let number = self.actives.load(Ordering::Acquire);
        self.active[..number]
            .iter()
            .map(|peer| peer.load(Ordering::Relaxed))
    }

    /// How often somebody has begun to send, as far as that has been noticed.
    #[inline(always)]
    pub fn greetings(&self) -> u64 {
        self.greetings.load(Ordering::Relaxed)
    }

    /// Makes the lane of a peer that writes here no more as it was in the beginning. For the one thread that takes lines, where no other
    /// one looks.
    #[cold]
    pub fn reset(&self, peer: u32) {
        let place = peer as usize;
        for position in 0..self.shape.lines as u64 {
            self.line(peer, position)[LINE / 8 - 1].store(0, Ordering::Relaxed);
        }
        self.word(self.shape.credit_of(place))
            .store(0, Ordering::Relaxed);
        self.word(self.shape.hello_of(place))
            .store(0, Ordering::Relaxed);
        self.taken[place].store(0, Ordering::Relaxed);
        self.known[place].store(false, Ordering::Relaxed);
        let number = self.actives.load(Ordering::Relaxed);
        let at = self.active().position(|known| known == peer);
        if let Some(at) = at {
            let last = self.active[number - 1].load(Ordering::Relaxed);
            self.active[at].store(last, Ordering::Relaxed);
            self.actives.store(number - 1, Ordering::Release);
        }
    }

    /// Whether `peer` has been noticed.
    #[inline(always)]
    pub fn is_active(&self, peer: u32) -> bool {
        self.known
            .get(peer as usize)
            .is_some_and(|known| known.load(Ordering::Relaxed))
    }

    /// Whether a line is there.
    #[inline(always)]
    pub fn has_lines(&self) -> bool {
        self.active().any(|peer| self.last_word(peer).is_some())
    }

    /// Whether progress would find anything to do.
    #[inline(always)]
    pub fn has_news(&self) -> bool {
        self.has_lines() || self.restless.load(Ordering::Relaxed) || self.has_greeting()
    }

    #[inline(always)]
    fn has_greeting(&self) -> bool {
        self.word(self.shape.news()).load(Ordering::Acquire) != 0
    }

    #[inline(always)]
    fn line(&self, peer: u32, position: u64) -> &[AtomicU64; LINE / 8] {
        let offset = self.shape.line(peer as usize, position);
        debug_assert!(offset + LINE <= self.region.len());
        // SAFETY:
        // - within the region (the shape's arithmetic), aligned; whoever writes it uses atomic stores or is done when the mark is there.
        unsafe { &*self.base.add(offset).cast() }
    }

    /// The last word of `peer`'s next line, if it is there.
    #[inline(always)]
    fn last_word(&self, peer: u32) -> Option<u64> {
        let position = self.taken[peer as usize].load(Ordering::Relaxed);
        let last = announced::end(self.line(peer, position));
        (Line::mark_of(last) == self.shape.mark(position)).then_some(last)
    }

    /// `peer`'s next line, if it is there.
    #[inline(always)]
    pub fn next_line(&self, peer: u32) -> Option<Line> {
        let last = self.last_word(peer)?;
        let position = self.taken[peer as usize].load(Ordering::Relaxed);
        Some(Line(announced::read(self.line(peer, position), last)))
    }

    /// Asks for `peer`'s line after the next one, so that it comes while the next one is dealt with.
    #[inline(always)]
    pub fn prefetch_second(&self, peer: u32) {
        let position = self.taken[peer as usize].load(Ordering::Relaxed) + 1;
        prefetch::for_load(self.line(peer, position).as_ptr().cast());
    }

    /// The line and its data are not needed any more. Gives the number of lines taken from this peer.
    #[inline(always)]
    pub fn took(&self, peer: u32) -> u64 {
        let taken = &self.taken[peer as usize];
        let number = taken.load(Ordering::Relaxed) + 1;
        taken.store(number, Ordering::Relaxed);
        let all = self.taken_from_all.load(Ordering::Relaxed);
        self.taken_from_all.store(all + 1, Ordering::Relaxed);
        number
    }

    /// How many lines have been taken. Under the mailbox's lock, what they said has been done.
    #[inline(always)]
    pub fn lines_taken(&self) -> u64 {
        self.taken_from_all.load(Ordering::Relaxed)
    }

    /// `len` bytes of `peer`'s data ring that a line points to. What leaves the ring comes from no peer that keeps to the rules, and is
    /// cut off.
    #[inline(always)]
    pub fn data(&self, peer: u32, line: &Line, len: usize) -> Bytes {
        let position = line.pointed();
        let len = len.min(self.shape.data - (position as usize & (self.shape.data - 1)));
        Bytes {
            ptr: self
                .base
                .wrapping_add(self.shape.data(peer as usize, position)),
            len,
        }
    }
}

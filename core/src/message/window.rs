//! The receiving side of a mailbox's memory: who has begun to send, and the next line of each. Looking needs no lock.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use super::layout::{LINE, Line, Shape};
use super::outgoing::Bytes;
use crate::bundle::{BUNDLE_LEN, RegionKey};
use crate::engine::Engine;
use crate::region::{Region, Rights};
use crate::transport::Handler;
use crate::{Result, announced, prefetch};

/// As many lanes as a shape has peers.
struct Block {
    region: Region,
    base: *mut u8,
}

/// Addresses of the parts of a peer's lane, and the number of lines taken. Null: the peer's block does not exist yet.
struct Lane {
    lines: AtomicPtr<u8>,
    data: AtomicPtr<u8>,
    credit: AtomicPtr<u32>,
    taken: AtomicU64,
}

impl Default for Lane {
    fn default() -> Self {
        Lane {
            lines: AtomicPtr::new(null_mut()),
            data: AtomicPtr::new(null_mut()),
            credit: AtomicPtr::new(null_mut()),
            taken: AtomicU64::new(0),
        }
    }
}

/// The memory that peers write to, and how far it has been read.
pub(super) struct Window {
    blocks: Box<[OnceLock<Block>]>,
    /// That of the first block.
    base: *mut u8,
    shape: Shape,
    /// Indexed by peer; set for existing blocks.
    lanes: Box<[Lane]>,
    made: AtomicUsize,
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
// - the pointers lead to memory of the regions, which is shared by purpose: atomics, and data that lines announce.
unsafe impl Send for Window {}
// SAFETY:
// - as for Send.
unsafe impl Sync for Window {}

impl Window {
    pub fn new(engine: &Engine, shape: Shape) -> Result<Self> {
        let numbers = shape.numbers();
        let mut window = Window {
            blocks: (0..=shape.more).map(|_| OnceLock::new()).collect(),
            base: null_mut(),
            shape,
            lanes: (0..numbers).map(|_| Lane::default()).collect(),
            made: AtomicUsize::new(0),
            taken_from_all: AtomicU64::new(0),
            active: (0..numbers).map(|_| AtomicU32::new(0)).collect(),
            actives: AtomicUsize::new(0),
            known: (0..numbers).map(|_| AtomicBool::new(false)).collect(),
            greetings: AtomicU64::new(0),
            parts: AtomicU64::new(0),
            restless: AtomicBool::new(false),
        };
        window.grow(engine)?;
        window.base = window.first().base;
        Ok(window)
    }

    /// Makes another block. For the one thread that takes lines. Errors: [`Error::Exhausted`], also if there are all.
    pub fn grow(&self, engine: &Engine) -> Result<()> {
        let (shape, nth) = (self.shape, self.lanes() / self.shape.peers);
        let place = self.blocks.get(nth).ok_or_else(|| shape.no_lane())?;
        let region = engine.allocate(shape.size(), Rights::FULL)?;
        let base = region.base();
        for (number, lane) in self.lanes[nth * shape.peers..]
            .iter()
            .take(shape.peers)
            .enumerate()
        {
            let at = |offset| base.wrapping_add(offset);
            lane.lines
                .store(at(shape.line(number, 0)), Ordering::Relaxed);
            lane.data
                .store(at(shape.data(number, 0)), Ordering::Relaxed);
            let credit = at(shape.credit_of(number)).cast();
            lane.credit.store(credit, Ordering::Relaxed);
        }
        let block = place.get_or_init(|| Block { region, base });
        self.made.store((nth + 1) * shape.peers, Ordering::Release);
        if nth > 0 {
            let (key, first) = (block.region.key(), self.first());
            // SAFETY:
            // - room for it in the first block, which peers read only when the word behind says so.
            unsafe {
                let place = first.base.add(shape.key_of(nth));
                crate::copy(key.as_bytes().as_ptr(), place, BUNDLE_LEN);
                AtomicU64::from_ptr(first.base.add(shape.made()).cast())
                    .store(nth as u64, Ordering::Release);
            }
        }
        Ok(())
    }

    /// Lanes that have been made.
    pub fn lanes(&self) -> usize {
        self.made.load(Ordering::Acquire)
    }

    fn first(&self) -> &Block {
        self.blocks[0].get().expect("made with the window")
    }

    pub fn key(&self) -> RegionKey {
        self.first().region.key()
    }

    pub fn handle_by(&self, handler: Arc<dyn Handler>) -> Result<()> {
        self.first().region.handle_by(handler)
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

    /// The word by which peers announce that one of them has begun to send.
    #[inline(always)]
    fn news(&self) -> &AtomicU32 {
        // SAFETY:
        // - within the first block (the shape's arithmetic), aligned; peers change it by notices, which are atomic.
        unsafe { AtomicU32::from_ptr(self.base.add(self.shape.news()).cast()) }
    }

    #[inline(always)]
    fn credit_word(&self, peer: u32) -> &AtomicU32 {
        let place = self.lanes[peer as usize].credit.load(Ordering::Relaxed);
        debug_assert!(!place.is_null());
        // SAFETY:
        // - a word of the peer's lane, which has been made; peers change it by notices, which are atomic.
        unsafe { AtomicU32::from_ptr(place) }
    }

    /// How many of our lines `peer`, whose lane has been made, says that it has taken.
    #[inline(always)]
    pub fn credit(&self, peer: u32) -> u32 {
        self.credit_word(peer).load(Ordering::Acquire)
    }

    /// The word by which a peer says that it sends. Its lane exists.
    fn hello(&self, peer: usize) -> &AtomicU32 {
        let block = self.blocks[peer / self.shape.peers].get();
        let block = block.expect("the lane has been made");
        let offset = self.shape.hello_of(peer % self.shape.peers);
        // SAFETY:
        // - within the block (the shape's arithmetic), aligned; peers change it by notices, which are atomic.
        unsafe { AtomicU32::from_ptr(block.base.add(offset).cast()) }
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
        self.news().swap(0, Ordering::AcqRel);
        let greetings = self.greetings.load(Ordering::Relaxed);
        self.greetings.store(greetings + 1, Ordering::Relaxed);
        let mut number = self.actives.load(Ordering::Relaxed);
        for peer in 0..self.lanes() {
            let greeted = || self.hello(peer).load(Ordering::Acquire) != 0;
            if !self.known[peer].load(Ordering::Relaxed) && greeted() {
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
        self.credit_word(peer).store(0, Ordering::Relaxed);
        self.hello(place).store(0, Ordering::Relaxed);
        self.lanes[place].taken.store(0, Ordering::Relaxed);
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
        self.news().load(Ordering::Acquire) != 0
    }

    #[inline(always)]
    fn line(&self, peer: u32, position: u64) -> &[AtomicU64; LINE / 8] {
        let lines = self.lanes[peer as usize].lines.load(Ordering::Relaxed);
        debug_assert!(!lines.is_null());
        // SAFETY:
        // - a line of the peer's lane, which has been made; aligned. Its writer uses atomic stores, or is done when the mark is there.
        unsafe {
            &*lines
                .add((position as usize & (self.shape.lines - 1)) * LINE)
                .cast()
        }
    }

    /// The last word of `peer`'s next line, if it is there.
    #[inline(always)]
    fn last_word(&self, peer: u32) -> Option<u64> {
        let position = self.lanes[peer as usize].taken.load(Ordering::Relaxed);
        let last = announced::end(self.line(peer, position));
        (Line::mark_of(last) == self.shape.mark(position)).then_some(last)
    }

    /// `peer`'s next line, if it is there.
    #[inline(always)]
    pub fn next_line(&self, peer: u32) -> Option<Line> {
        let last = self.last_word(peer)?;
        let position = self.lanes[peer as usize].taken.load(Ordering::Relaxed);
        Some(Line(announced::read(self.line(peer, position), last)))
    }

    /// Asks for `peer`'s line after the next one, so that it comes while the next one is dealt with.
    #[inline(always)]
    pub fn prefetch_second(&self, peer: u32) {
        let position = self.lanes[peer as usize].taken.load(Ordering::Relaxed) + 1;
        prefetch::for_load(self.line(peer, position).as_ptr().cast());
    }

    /// The line and its data are not needed any more. Gives the number of lines taken from this peer.
    #[inline(always)]
    pub fn took(&self, peer: u32) -> u64 {
        let taken = &self.lanes[peer as usize].taken;
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
        let data = self.lanes[peer as usize].data.load(Ordering::Relaxed);
        let len = len.min(self.shape.data - (position as usize & (self.shape.data - 1)));
        Bytes {
            ptr: data.wrapping_add(position as usize & (self.shape.data - 1)),
            len,
        }
    }
}

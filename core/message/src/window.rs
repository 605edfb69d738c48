//! The receiving side of a mailbox's memory: the peers that have begun to send, and the next line of each. A look takes no lock.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use super::layout::{LINE, Line, Shape};
use super::outgoing::Bytes;
use unipgas_base::{Result, Rights, polled_line, prefetch};
use unipgas_engine::Region;
use unipgas_engine::bundle::{BUNDLE_LEN, RegionKey};
use unipgas_engine::engine::Engine;
use unipgas_engine::transport::Handler;

/// Memory of one lane for each peer of the shape.
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

/// The memory that peers write to, and the number of lines read.
pub struct Window {
    blocks: Box<[OnceLock<Block>]>,
    /// Base of the first block.
    base: *mut u8,
    shape: Shape,
    /// Indexed by peer; set for existing blocks.
    lanes: Box<[Lane]>,
    made: AtomicUsize,
    taken_from_all: AtomicU64,
    /// Known peers that have begun to send.
    active: Box<[AtomicU32]>,
    actives: AtomicUsize,
    known: Box<[AtomicBool]>,
    greetings: AtomicU64,
    /// Parts of streams that were sent or received.
    parts: AtomicU64,
    /// An operation waits that only progress can continue.
    pub restless: AtomicBool,
}

// SAFETY:
// - the pointers lead to memory of the regions. Peers share it: it holds atomics, and data that is read only after its line has announced it.
unsafe impl Send for Window {}
// SAFETY:
// - as for Send.
unsafe impl Sync for Window {}

impl Window {
    pub(crate) fn new(engine: &Engine, shape: Shape) -> Result<Self> {
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

    /// Makes another block. Only the thread that takes lines may call. Errors: [`Error::Exhausted`], also if all blocks exist.
    pub(crate) fn grow(&self, engine: &Engine) -> Result<()> {
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
            // - the first block has room for it (arithmetic of the shape). Peers read it only after the word, which is stored last.
            unsafe {
                let place = first.base.add(shape.key_of(nth));
                unipgas_base::copy::copy(key.as_bytes().as_ptr(), place, BUNDLE_LEN);
                AtomicU64::from_ptr(first.base.add(shape.made()).cast())
                    .store(nth as u64, Ordering::Release);
            }
        }
        Ok(())
    }

    /// Number of lanes that exist.
    pub(crate) fn lanes(&self) -> usize {
        self.made.load(Ordering::Acquire)
    }

    fn first(&self) -> &Block {
        self.blocks[0].get().expect("made with the window")
    }

    pub(crate) fn key(&self) -> RegionKey {
        self.first().region.key()
    }

    pub(crate) fn handle_by(&self, handler: Arc<dyn Handler>) -> Result<()> {
        self.first().region.handle_by(handler)
    }

    /// Number of parts of streams that were sent or received.
    #[inline(always)]
    pub fn parts(&self) -> u64 {
        self.parts.load(Ordering::Relaxed)
    }

    /// Counts a part. Only the thread that holds the mailbox may call.
    pub(crate) fn count_part(&self) {
        self.parts.store(self.parts() + 1, Ordering::Relaxed);
    }

    /// The word that a peer sets when it begins to send.
    #[inline(always)]
    fn news(&self) -> &AtomicU32 {
        // SAFETY:
        // - within the first block (arithmetic of the shape) and aligned. Peers change it by notices, which are atomic.
        unsafe { AtomicU32::from_ptr(self.base.add(self.shape.news()).cast()) }
    }

    #[inline(always)]
    fn credit_word(&self, peer: u32) -> &AtomicU32 {
        let place = self.lanes[peer as usize].credit.load(Ordering::Relaxed);
        debug_assert!(!place.is_null());
        // SAFETY:
        // - a word of the peer's lane, which exists. Peers change it by notices, which are atomic.
        unsafe { AtomicU32::from_ptr(place) }
    }

    /// Credit of `peer`: the number of lines of this process that it has taken. Its lane must exist.
    #[inline(always)]
    pub(crate) fn credit(&self, peer: u32) -> u32 {
        self.credit_word(peer).load(Ordering::Acquire)
    }

    /// The word that a peer sets when it begins to send. Its lane must exist.
    fn hello(&self, peer: usize) -> &AtomicU32 {
        let block = self.blocks[peer / self.shape.peers].get();
        let block = block.expect("the lane has been made");
        let offset = self.shape.hello_of(peer % self.shape.peers);
        // SAFETY:
        // - within the block (arithmetic of the shape) and aligned. Peers change it by notices, which are atomic.
        unsafe { AtomicU32::from_ptr(block.base.add(offset).cast()) }
    }

    /// Notes the peers that have begun to send. Only the thread that takes lines may call.
    #[inline(always)]
    pub(crate) fn notice(&self) {
        if self.has_greeting() {
            self.notice_all();
        }
    }

    #[cold]
    fn notice_all(&self) {
        // First, since a peer that comes meanwhile sets it again. The swap reads the last store of several peers. It also acquires the stores before it: all
        // processors see the stores to one word in one order, and a store that another processor sees is visible to all.
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

    /// The known peers that have begun to send.
    #[inline(always)]
    pub(crate) fn active(&self) -> impl Iterator<Item = u32> + '_ {
        let number = self.actives.load(Ordering::Acquire);
        self.active[..number]
            .iter()
            .map(|peer| peer.load(Ordering::Relaxed))
    }

    /// Number of greetings that were noted.
    #[inline(always)]
    pub(crate) fn greetings(&self) -> u64 {
        self.greetings.load(Ordering::Relaxed)
    }

    /// Resets the lane of a peer that no longer writes here. Only the thread that takes lines may call, while no other thread looks.
    #[cold]
    pub(crate) fn reset(&self, peer: u32) {
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

    /// Whether `peer` is known to send.
    #[inline(always)]
    pub(crate) fn is_active(&self, peer: u32) -> bool {
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
        // - an aligned line of the peer's lane, which exists. Its writer uses atomic stores, or has ended when the mark is there.
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
        let last = polled_line::end(self.line(peer, position));
        (Line::mark_of(last) == self.shape.mark(position)).then_some(last)
    }

    /// `peer`'s next line, if it is there.
    #[inline(always)]
    pub(crate) fn next_line(&self, peer: u32) -> Option<Line> {
        let last = self.last_word(peer)?;
        let position = self.lanes[peer as usize].taken.load(Ordering::Relaxed);
        Some(Line(polled_line::read(self.line(peer, position), last)))
    }

    /// Prefetches the second line of `peer`, while the caller handles the next one.
    #[inline(always)]
    pub(crate) fn prefetch_second(&self, peer: u32) {
        let position = self.lanes[peer as usize].taken.load(Ordering::Relaxed) + 1;
        prefetch::for_load(self.line(peer, position).as_ptr().cast());
    }

    /// Ends the next line and its data. Returns the number of lines taken from this peer.
    #[inline(always)]
    pub(crate) fn took(&self, peer: u32) -> u64 {
        let taken = &self.lanes[peer as usize].taken;
        let number = taken.load(Ordering::Relaxed) + 1;
        taken.store(number, Ordering::Relaxed);
        let all = self.taken_from_all.load(Ordering::Relaxed);
        self.taken_from_all.store(all + 1, Ordering::Relaxed);
        number
    }

    /// Number of lines taken. Under the lock of the mailbox, all of them have been carried out.
    #[inline(always)]
    pub fn lines_taken(&self) -> u64 {
        self.taken_from_all.load(Ordering::Relaxed)
    }

    /// `len` bytes of `peer`'s data ring that a line points to. A length that leaves the ring is wrong, and is cut off.
    #[inline(always)]
    pub(crate) fn data(&self, peer: u32, line: &Line, len: usize) -> Bytes {
        let position = line.pointed();
        let data = self.lanes[peer as usize].data.load(Ordering::Relaxed);
        let len = len.min(self.shape.data - (position as usize & (self.shape.data - 1)));
        Bytes {
            ptr: data.wrapping_add(position as usize & (self.shape.data - 1)),
            len,
        }
    }
}

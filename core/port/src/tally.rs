//! Words that peers increment. Peers count their own operations, so the owner need not make calls.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use unipgas_base::atomic::{AtomicOp, AtomicType};
use unipgas_base::{Result, Rights, cache};
use unipgas_engine::bundle::RegionKey;
use unipgas_engine::engine::Engine;
use unipgas_engine::op::{AtomicRequest, Flags, Outcome, Remote};
use unipgas_engine::{Endpoint, Region, RemoteRegion};

/// Words of a process. Number 0 is never used.
const COUNT: u32 = 1024;
/// Distance of words in bytes: each has its own cache line.
const SPACING: usize = cache::LINE;

/// The words of a process that peers increment.
pub struct Tallies {
    region: Region,
    /// First in, first out: a late increment of a peer should not reach the word's next user.
    free: Mutex<VecDeque<NonZeroU32>>,
}

impl Tallies {
    /// Words of which none is in use.
    pub fn new(engine: &Engine) -> Result<Arc<Tallies>> {
        Ok(Arc::new(Tallies {
            region: engine.allocate(COUNT as usize * SPACING, Rights::FULL)?,
            free: Mutex::new((1..COUNT).filter_map(NonZeroU32::new).collect()),
        }))
    }

    /// The key for peers.
    pub fn key(&self) -> RegionKey {
        self.region.key()
    }

    /// A free word. `None`: all are in use.
    pub fn take(self: &Arc<Self>) -> Option<Tally> {
        let number = self.free.lock().pop_front()?;
        Some(Tally {
            all: self.clone(),
            number,
        })
    }
}

/// A word in use.
pub struct Tally {
    all: Arc<Tallies>,
    number: NonZeroU32,
}

impl Tally {
    /// Its number for peers.
    pub fn number(&self) -> NonZeroU32 {
        self.number
    }

    /// Its value: all increments, including increments before this use.
    pub fn read(&self) -> u64 {
        let at = self.all.region.local(offset(self.number), 8);
        let Ok(at) = at else {
            return 0;
        };
        // SAFETY:
        // - 8 aligned bytes of memory that lives as long as the region. All accesses are atomic.
        unsafe { AtomicU64::from_ptr(at.ptr.cast()) }.load(Ordering::Acquire)
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        let mut free = self.all.free.lock();
        free.push_back(self.number);
    }
}

fn offset(number: NonZeroU32) -> usize {
    number.get() as usize * SPACING
}

/// Adds 1 to a peer's word, and wakes waiting threads there.
pub fn raise(
    channel: &Endpoint,
    tallies: &RemoteRegion,
    number: NonZeroU32,
    context: u64,
) -> Result<Outcome> {
    static ONE: u64 = 1;
    let request = AtomicRequest {
        op: AtomicOp::Sum,
        ty: AtomicType::U64,
        count: 1,
        operand: (&raw const ONE).cast(),
        compare: std::ptr::null(),
        result: std::ptr::null_mut(),
    };
    let at = Remote {
        region: tallies,
        offset: offset(number),
    };
    // SAFETY:
    // - the operand is a static. The operation uses no other pointer.
    unsafe { channel.atomic(at, &request, Flags::WAKE, context) }
}

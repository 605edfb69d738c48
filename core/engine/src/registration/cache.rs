//! The registration cache: private memory of the program stays registered with a network after the operation that needed it.

use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

use super::watch::{Watch, Watched};
use crate::Result;
use crate::region::Memory;

/// Limits of the cache: registrations, and bytes of all together. Registered memory cannot be swapped out.
pub(super) const ENTRIES: usize = 64;
const BYTES: usize = 1 << 30;

/// Registrations by address. The least recently used registration goes first.
pub(super) struct Cache {
    watch: Arc<Watch>,
    entries: Mutex<Entries>,
}

#[derive(Default)]
struct Entries {
    /// The most recently used registration is the last.
    all: Vec<Arc<Cached>>,
    bytes: usize,
}

/// A registration, and the watch over its memory. Operations keep it alive, also outside of the cache.
pub(crate) struct Cached {
    range: Range<usize>,
    /// The network may also write the memory.
    writable: bool,
    /// Dropped before the watch.
    memory: Box<dyn Memory>,
    watched: Watched,
}

impl Cached {
    /// The network's descriptor of the memory.
    pub(crate) fn desc(&self) -> u64 {
        self.memory.desc()
    }

    fn covers(&self, range: &Range<usize>, write: bool) -> bool {
        self.range.start <= range.start && range.end <= self.range.end && (self.writable || !write)
    }
}

impl Cache {
    /// `None`: the kernel does not report unmapped memory.
    pub(crate) fn new() -> Option<Self> {
        Some(Cache {
            watch: Watch::of_this_process()?,
            entries: Mutex::default(),
        })
    }

    /// The registration of `range`: a cached registration, or a new registration of whole pages by `register`. `None`: it cannot be cached, since it is too
    /// long or the kernel would not report its end. Errors: as `register`.
    pub fn find(
        &self,
        range: Range<usize>,
        write: bool,
        register: impl Fn(&Range<usize>) -> Result<Box<dyn Memory>>,
    ) -> Result<Option<Arc<Cached>>> {
        let mut entries = self.entries.lock();
        // The order matters: only after `is_settled` does `is_whole` cover all unmapped ranges.
        let is_whole = |found: &Arc<Cached>| self.watch.is_settled() && found.watched.is_whole();
        if let Some(found) = entries.find(&range, write).filter(is_whole) {
            return Ok(Some(found));
        }
        entries.drop_broken();
        let page = rustix::param::page_size();
        let whole = range.start & !(page - 1)..range.end.next_multiple_of(page);
        if whole.len() > BYTES {
            return Ok(None);
        }
        // The watch begins before the registration, so it misses no change.
        let Some(watched) = self.watch.over(&whole) else {
            return Ok(None);
        };
        entries.make_room(whole.len());
        let memory = match register(&whole) {
            Ok(memory) => memory,
            Err(_) if !entries.all.is_empty() => {
                // The network or the system may have no room for more.
                entries.make_room(BYTES);
                register(&whole)?
            }
            Err(error) => return Err(error),
        };
        let cached = Arc::new(Cached {
            range: whole,
            writable: write,
            memory,
            watched,
        });
        entries.keep(cached.clone());
        Ok(Some(cached))
    }

    /// Drops the registrations that overlap `range`. Operations keep those in use alive.
    pub(crate) fn forget(&self, range: &Range<usize>) {
        let mut entries = self.entries.lock();
        entries.drop_those(|entry| entry.range.start < range.end && range.start < entry.range.end);
    }
}

impl Entries {
    fn find(&mut self, range: &Range<usize>, write: bool) -> Option<Arc<Cached>> {
        let at = self
            .all
            .iter()
            .rposition(|entry| entry.covers(range, write))?;
        let last = self.all.len() - 1;
        if at != last {
            self.all[at..].rotate_left(1);
        }
        Some(self.all[last].clone())
    }

    fn keep(&mut self, cached: Arc<Cached>) {
        self.bytes += cached.range.len();
        self.all.push(cached);
    }

    fn drop_those(&mut self, go: impl Fn(&Cached) -> bool) {
        self.all.retain(|entry| !go(entry));
        self.bytes = self.all.iter().map(|entry| entry.range.len()).sum();
    }

    fn drop_broken(&mut self) {
        self.drop_those(|entry| !entry.watched.is_whole());
    }

    /// Makes room for one more registration of `len` bytes.
    fn make_room(&mut self, len: usize) {
        while !self.all.is_empty() && (self.all.len() >= ENTRIES || self.bytes + len > BYTES) {
            let oldest = self.all.remove(0);
            self.bytes -= oldest.range.len();
        }
    }
}

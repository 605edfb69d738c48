//! Registrations of private memory, for networks that reach only registered memory: buffers of the engine, the stack, a user's buffer, the result of an
//! atomic operation.
//!
//! Short bytes go through [bounce buffers](bounce), which are registered once. Longer bytes are registered in place. A [cache] keeps these registrations, if
//! the kernel [reports](watch) the end of their memory. Otherwise they last as long as the operation.

mod bounce;
mod cache;
#[cfg(all(test, not(loom), not(miri)))]
mod tests;
mod watch;

use std::ops::Range;
use std::sync::Arc;

pub(crate) use bounce::Block;
use bounce::Bounces;
use cache::{Cache, Cached};
use once_cell::sync::OnceCell;
pub use watch::LISTENER;

use crate::region::Memory;
use crate::transport::Transport;
use crate::{Result, user_memory};

/// Up to this length, in bytes, a copy takes less time than a search for a registration.
pub(crate) const COPIED: usize = 16384;

/// The registrations of one network.
pub(crate) struct Registrations {
    bounces: Arc<Bounces>,
    cache: OnceCell<Option<Cache>>,
    /// Dropped after the registrations, which need it.
    transport: Arc<dyn Transport>,
}

/// A registration that an operation uses.
pub(crate) enum Held {
    Cached(Arc<Cached>),
    /// Registration for this operation alone.
    Own(Box<dyn Memory>),
}

impl Held {
    /// The network's descriptor of the memory.
    pub(crate) fn desc(&self) -> u64 {
        match self {
            Held::Cached(cached) => cached.desc(),
            Held::Own(memory) => memory.desc(),
        }
    }
}

impl Registrations {
    pub(crate) fn new(transport: Arc<dyn Transport>) -> Self {
        Registrations {
            bounces: Bounces::new(),
            cache: OnceCell::new(),
            transport,
        }
    }

    /// A buffer for `len` bytes. Errors: [`Error::Exhausted`], [`Error::Os`].
    pub fn block(&self, len: usize) -> Result<Block> {
        self.bounces.block(&*self.transport, len)
    }

    /// Registers `len` bytes at `ptr` in place. `write`: the operation writes them. Errors: [`Error::InvalidArgument`] if they are not mapped, or not for
    /// this access, [`Error::Exhausted`], [`Error::Os`].
    ///
    /// # Safety
    /// The bytes are valid as long as the result is used.
    pub(crate) unsafe fn hold(&self, ptr: *mut u8, len: usize, write: bool) -> Result<Held> {
        let register = |range: &Range<usize>| {
            let base = ptr.with_addr(range.start);
            user_memory::check(base, range.len(), "of an operation")?;
            // SAFETY:
            // - `user_memory::check` has shown that all pages are mapped.
            // - contract of this call: the bytes are valid. The watch reports the end of cached memory.
            unsafe { self.transport.register_local(base, range.len(), write) }
        };
        let range = ptr.addr()..ptr.addr() + len;
        let cache = self.cache.get_or_init(Cache::new);
        if let Some(cache) = cache
            && let Some(cached) = cache.find(range.clone(), write, register)?
        {
            return Ok(Held::Cached(cached));
        }
        register(&range).map(Held::Own)
    }

    /// Drops registrations that overlap these bytes: the caller registers them in another way.
    pub(crate) fn forget(&self, ptr: *const u8, len: usize) {
        if let Some(Some(cache)) = self.cache.get() {
            cache.forget(&(ptr.addr()..ptr.addr().saturating_add(len)));
        }
    }
}

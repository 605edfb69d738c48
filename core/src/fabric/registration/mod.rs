//! Registrations of private memory with a network that reaches no other: what the engine sends from and receives into, the stack, a user's
//! buffer, the result of an atomic operation.
//!
//! Short bytes go through [bounce buffers](bounce), which are registered once. Longer ones are registered where they are, and stay so in
//! a [cache], as long as the kernel [tells](watch) when their memory goes; where it does not, for the time of the operation.

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

/// Up to so many bytes are copied: it takes less time than to find a registration.
pub(crate) const COPIED: usize = 16384;

/// Those of one network.
pub(crate) struct Registrations {
    bounces: Arc<Bounces>,
    cache: OnceCell<Option<Cache>>,
    /// After what is registered with it.
    transport: Arc<dyn Transport>,
}

/// A registration that an operation uses.
pub(crate) enum Held {
    Cached(Arc<Cached>),
    /// Of this operation alone.
    Own(Box<dyn Memory>),
}

impl Held {
    /// What the network calls it.
    pub fn desc(&self) -> u64 {
        match self {
            Held::Cached(cached) => cached.desc(),
            Held::Own(memory) => memory.desc(),
        }
    }
}

impl Registrations {
    pub fn new(transport: Arc<dyn Transport>) -> Self {
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

    /// Registers `len` bytes at `ptr` where they are; `write`: something goes there. Errors: [`Error::InvalidArgument`] for what is not
    /// mapped so, [`Error::Exhausted`], [`Error::Os`].
    ///
    /// # Safety
    /// They are valid as long as what this gives is used.
    pub unsafe fn hold(&self, ptr: *mut u8, len: usize, write: bool) -> Result<Held> {
        let register = |range: &Range<usize>| {
            let base = ptr.with_addr(range.start);
            user_memory::check(base, range.len(), "of an operation")?;
            // SAFETY:
            // - mapped throughout, as just checked for the pages that the bytes are on, and valid by the caller's word; of what is
            //   cached the watch tells when that ends.
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

    /// Drops registrations that touch these bytes: somebody registers them otherwise.
    pub fn forget(&self, ptr: *const u8, len: usize) {
        if let Some(Some(cache)) = self.cache.get() {
            cache.forget(&(ptr.addr()..ptr.addr().saturating_add(len)));
        }
    }
}

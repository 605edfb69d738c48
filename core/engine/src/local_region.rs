//! Registered memory, seen by its owner.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use crate::agent::Serving;
use crate::bundle::RegionKey;
use crate::op::Local;
use crate::operands::Operands;
use crate::region::{Memory, check_range};
use crate::transport::Handler;
use crate::{Error, Result};

/// Registered memory of this process. Its drop ends the registration: later operations of peers give [`Error::StaleRegion`].
pub struct Region {
    /// Address and descriptor of the memory. A query of the memory would be an indirect call.
    first: Local,
    len: usize,
    key: RegionKey,
    /// The registrations with the engine's other transports. They end before the first one.
    others: Box<[Box<dyn Memory>]>,
    memory: Box<dyn Memory>,
    /// Handlers of atomic operations, by transport; `None` for networks that carry them out.
    serving: Box<[Option<Arc<Serving>>]>,
    /// Table in which each transport finds its own descriptor.
    operands: Option<Arc<Operands>>,
}

// SAFETY:
// - `first` is an address as in `Memory`, which is Send. Each use of it is unsafe, and needs its own reason.
unsafe impl Send for Region {}
// SAFETY:
// - as for Send. Nothing changes in a region.
unsafe impl Sync for Region {}

impl Region {
    pub(crate) fn new(
        memory: Box<dyn Memory>,
        others: Box<[Box<dyn Memory>]>,
        key: RegionKey,
        serving: Box<[Option<Arc<Serving>>]>,
        operands: &Arc<Operands>,
    ) -> Self {
        let all = || {
            std::iter::once(&memory)
                .chain(&others)
                .map(|one| one.desc())
        };
        let several = !others.is_empty() && all().any(|desc| desc != 0);
        Region {
            first: Local {
                ptr: memory.base(),
                desc: match several {
                    true => operands.enter(all().collect()),
                    false => memory.desc(),
                },
            },
            operands: several.then(|| operands.clone()),
            len: memory.len(),
            key,
            others,
            memory,
            serving,
        }
    }

    /// First byte.
    #[inline]
    pub fn base(&self) -> *mut u8 {
        self.first.ptr
    }

    /// Length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the length is zero.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The key by which peers import the region.
    pub fn key(&self) -> RegionKey {
        self.key
    }

    /// Makes `handler` take the active messages that peers send there. Errors: [`Error::Os`].
    pub fn handle_by(&self, handler: Arc<dyn Handler>) -> Result<()> {
        self.handle_from(0, &handler)
    }

    /// As [`handle_by`](Self::handle_by), but only for peers that the first transport does not reach. With a single transport: for all peers.
    pub fn handle_from_afar(&self, handler: Arc<dyn Handler>) -> Result<()> {
        self.handle_from(usize::from(!self.others.is_empty()), &handler)
    }

    /// Sets the handler with transport number `first` and the later ones.
    fn handle_from(&self, first: usize, handler: &Arc<dyn Handler>) -> Result<()> {
        let memories = std::iter::once(&self.memory).chain(&self.others);
        for (memory, serving) in memories.zip(&self.serving).skip(first) {
            match serving {
                None => memory.handle_by(handler.clone())?,
                Some(serving) => {
                    serving.set_programs(handler.clone());
                    memory.handle_by(serving.clone())?;
                }
            }
        }
        Ok(())
    }

    /// `len` bytes at `offset` as an operand. Errors: [`Error::OutOfBounds`].
    #[inline]
    pub fn local(&self, offset: usize, len: usize) -> Result<Local> {
        check_range(offset, len, self.len)?;
        Ok(Local {
            ptr: self.first.ptr.wrapping_add(offset),
            desc: self.first.desc,
        })
    }

    /// The word of 4 bytes at `offset`, which peers change by notices and atomics. Errors: [`Error::OutOfBounds`], [`Error::Misaligned`].
    #[inline]
    pub fn word(&self, offset: usize) -> Result<&AtomicU32> {
        check_range(offset, 4, self.len)?;
        let ptr = self.first.ptr.wrapping_add(offset);
        if !(ptr as usize).is_multiple_of(4) {
            return Err(Error::Misaligned(4));
        }
        // SAFETY:
        // - in bounds and aligned (just checked). The memory lives as long as self.
        // - contract of notices: peers and other threads change it by atomic operations only.
        Ok(unsafe { AtomicU32::from_ptr(ptr.cast()) })
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if let Some(operands) = &self.operands {
            operands.leave(self.first.desc);
        }
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Region({:p}, {} bytes)", self.base(), self.len())
    }
}

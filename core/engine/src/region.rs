//! Memory that peers may access: its registration by a backend, and the view of a peer.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::atomic::ElementLocks;
use crate::bell::Bell;
use crate::executor::{Executor, not_reached};
use crate::op::Remote;
use crate::transport::{Capabilities, Handler};
use crate::{Deadline, Error, Result, Rights};

/// A backend's registration of memory. Its drop ends the registration, and frees memory that it has allocated.
pub trait Memory: Send + Sync {
    /// First byte, in this process.
    fn base(&self) -> *mut u8;
    /// Length in bytes.
    fn len(&self) -> usize;
    /// Whether the length is zero.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The backend's part of the region's key. Peers import the region by it.
    fn key(&self) -> Vec<u8>;
    /// The backend's descriptor for local use; 0 if it needs none.
    fn desc(&self) -> u64 {
        0
    }
    /// Makes `handler` take the active messages that peers send there, until the registration ends. Errors: [`Error::Os`].
    fn handle_by(&self, handler: Arc<dyn Handler>) -> Result<()>;
}

/// Checks that `len` bytes at `offset` are within a region of `region_len` bytes. Errors: [`Error::OutOfBounds`].
#[inline(always)]
pub fn check_range(offset: usize, len: usize, region_len: usize) -> Result<()> {
    if offset > region_len || len > region_len - offset {
        return Err(out_of_bounds(offset, len, region_len));
    }
    Ok(())
}

#[cold]
fn out_of_bounds(offset: usize, len: usize, region_len: usize) -> Error {
    Error::OutOfBounds {
        offset,
        len,
        region_len,
    }
}

/// A peer's region, resolved once. It is plain data that the fast path reads.
#[derive(Clone)]
pub struct RemoteRegion {
    parts: RemoteParts,
    /// For each right: length + 1 if the right is given and the region is direct, else 0. See [`is_open`](RemoteRegion::is_open).
    open: [usize; 3],
    route: u8,
    direct: bool,
    asynchronous: bool,
    /// The route leads to the owner's device.
    by_device: bool,
    /// The route to the owner's device, if the device carries out atomic operations and `route` leads elsewhere.
    executor: Option<Arc<Executor>>,
    alive: Arc<dyn Any + Send + Sync>,
}

/// A backend's description of a remote region that it has imported.
#[derive(Debug, Clone, Copy)]
pub struct RemoteParts {
    /// Address of the region's first byte in this process; null if the region is not mapped here.
    pub base: *mut u8,
    /// Length in bytes.
    pub len: usize,
    /// The word that changes when the owner releases the region, or dies; null if the backend has none.
    pub generation: *const AtomicU32,
    /// The value of that word while the region lives.
    pub expected: u32,
    /// The owner's grants.
    pub rights: Rights,
    /// The bell of the owner; null if this process cannot ring one.
    pub bell: *const Bell,
    /// The locks of the owner for elements that no CPU changes atomically. Not null if `base` is not.
    pub locks: *const ElementLocks,
    /// The backend's own index of the peer.
    pub peer: u32,
    /// The backend's own data (a remote virtual address, an rkey, …).
    pub detail: [u64; 4],
}

impl RemoteParts {
    /// Memory of this process, for requests of peers.
    pub(crate) fn here(
        base: *mut u8,
        len: usize,
        rights: Rights,
        bell: *const Bell,
        locks: *const ElementLocks,
    ) -> Self {
        RemoteParts {
            base: match rights.contains(Rights::BY_ADDRESS) {
                true => std::ptr::null_mut(),
                false => base,
            },
            len,
            generation: std::ptr::null(),
            expected: 0,
            rights,
            bell,
            locks,
            peer: 0,
            detail: [base.addr() as u64, 0, 0, 0],
        }
    }
}

// SAFETY:
// - the pointers lead to memory that processes share. Accesses are atomics, and copies; the application answers for races of copies.
// - contract of `new`: the pointers are valid on each thread while `alive` lives.
unsafe impl Send for RemoteRegion {}
// SAFETY:
// - as for Send. It has no thread-bound state, and no interior mutability outside shared memory.
unsafe impl Sync for RemoteRegion {}

impl RemoteRegion {
    /// The place with this offset in it.
    #[inline(always)]
    pub fn at(&self, offset: usize) -> Remote<'_> {
        Remote {
            region: self,
            offset,
        }
    }

    /// For backends.
    ///
    /// # Safety
    /// While `alive` exists: `base`, unless null, leads to `len` bytes mapped readable and writable; `generation`, `bell` and `locks`, unless null, lead to a
    /// valid word, bell and set of locks.
    pub unsafe fn new(mut parts: RemoteParts, alive: Arc<dyn Any + Send + Sync>) -> Self {
        if parts.generation.is_null() {
            // A null pointer would cost a branch in each check.
            static ALWAYS: AtomicU32 = AtomicU32::new(0);
            (parts.generation, parts.expected) = (&ALWAYS, 0);
        }
        let by_device = parts.rights.contains(Rights::DEVICE);
        let open = |right| {
            let closed = parts.base.is_null() || by_device && right == Rights::ATOMIC;
            match parts.rights.contains(right) && !closed {
                true => parts.len + 1,
                false => 0,
            }
        };
        RemoteRegion {
            parts,
            open: [Rights::READ, Rights::WRITE, Rights::ATOMIC].map(open),
            route: 0,
            direct: !parts.base.is_null(),
            asynchronous: false,
            by_device: false,
            executor: None,
            alive,
        }
    }

    /// Sets the route: the engine's transport number `route` leads to the region.
    pub(crate) fn by(mut self, route: u8, capabilities: Capabilities) -> Self {
        self.route = route;
        self.direct &= capabilities.direct;
        self.asynchronous = capabilities.asynchronous;
        self.by_device = capabilities.device_atomics_only;
        if !self.direct {
            self.open = [0; 3];
        }
        self
    }

    /// Adds the route to the device that carries out its atomic operations.
    pub(crate) fn executed_by(mut self, executor: Executor) -> Self {
        self.executor = Some(Arc::new(executor));
        self
    }

    /// Whether the owner's device carries out atomic operations, and this route does not lead there.
    #[inline(always)]
    fn needs_detour(&self) -> bool {
        self.parts.rights.contains(Rights::DEVICE) && !self.by_device
    }

    /// The region on the route that carries out its atomic operations. This is `self`, unless only the owner's device carries them out and `self` has another
    /// route. The first call connects, and waits for the owner's reply. Errors: [`Error::Timeout`], after which the next call continues; [`Error::PeerDead`],
    /// [`Error::Unreachable`], [`Error::StaleRegion`].
    #[inline]
    pub fn executor(&self, deadline: Deadline) -> Result<&RemoteRegion> {
        if !self.needs_detour() {
            return Ok(self);
        }
        let executor = self.executor.as_ref().ok_or_else(not_reached)?;
        executor.reach(deadline)
    }

    /// Whether the engine carries out operations itself, by loads and stores. They are complete when they return.
    #[inline(always)]
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// Whether operations may be pending after their calls.
    #[inline(always)]
    pub fn is_asynchronous(&self) -> bool {
        self.asynchronous
    }

    /// Number of the engine's transport that leads to the region.
    #[inline(always)]
    pub(crate) fn route(&self) -> usize {
        self.route as usize
    }

    /// Length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.parts.len
    }

    /// Whether the length is zero.
    pub fn is_empty(&self) -> bool {
        self.parts.len == 0
    }

    /// The backend's description of it.
    #[inline(always)]
    pub fn parts(&self) -> &RemoteParts {
        &self.parts
    }

    /// For backends: the `alive` object of [`RemoteRegion::new`].
    pub fn kept(&self) -> &(dyn Any + Send + Sync) {
        &*self.alive
    }

    /// Checks bounds, rights and liveness of an access. Errors: [`Error::OutOfBounds`], [`Error::AccessDenied`], [`Error::StaleRegion`].
    #[inline(always)]
    pub fn check(&self, offset: usize, len: usize, need: Rights) -> Result<()> {
        if offset > self.parts.len || len > self.parts.len - offset {
            return Err(self.refuse(offset, len));
        }
        if !self.parts.rights.contains(need) {
            return Err(Error::AccessDenied);
        }
        if !self.is_current() {
            return Err(Error::StaleRegion);
        }
        Ok(())
    }

    /// As [`check`](RemoteRegion::check), without the reason.
    #[inline(always)]
    pub fn allows(&self, offset: usize, len: usize, need: Rights) -> bool {
        offset <= self.parts.len
            && len <= self.parts.len - offset
            && self.parts.rights.contains(need)
            && self.is_current()
    }

    /// The bounds of a stale region mean nothing: the owner may have made a larger region since.
    #[cold]
    fn refuse(&self, offset: usize, len: usize) -> Error {
        if self.is_current() {
            out_of_bounds(offset, len, self.parts.len)
        } else {
            Error::StaleRegion
        }
    }

    /// Whether the owner still offers the region.
    #[inline(always)]
    pub fn is_current(&self) -> bool {
        // SAFETY:
        // - contract of `new`: valid while `alive` lives; or the static of `new`.
        unsafe { (*self.parts.generation).load(Ordering::Relaxed) == self.parts.expected }
    }

    /// Whether an access with one right needs only loads and stores: direct, within bounds, allowed, current. The test has no branches.
    /// [`RemoteRegion::check`] gives the reason of a refusal.
    #[inline(always)]
    pub fn is_open(&self, offset: usize, len: usize, need: Rights) -> bool {
        debug_assert!([Rights::READ, Rights::WRITE, Rights::ATOMIC].contains(&need));
        let open = self.open[need.bits().trailing_zeros() as usize];
        (offset < open) & (len < open.wrapping_sub(offset)) & self.is_current()
    }

    /// Whether accesses use the owner's page tables ([`Rights::BY_ADDRESS`]).
    #[inline(always)]
    pub fn is_by_address(&self) -> bool {
        self.parts.rights.contains(Rights::BY_ADDRESS)
    }

    /// The owner's locks for elements, if this process can reach them.
    #[inline(always)]
    pub(crate) fn locks(&self) -> Option<&ElementLocks> {
        // SAFETY:
        // - contract of `new`: null, or valid while `alive` lives.
        unsafe { self.parts.locks.as_ref() }
    }

    /// Whether atomic operations exclude each other by locks alone.
    #[inline(always)]
    pub(crate) fn is_exclusive(&self) -> bool {
        self.parts.rights.contains(Rights::EXCLUSIVE)
    }

    /// Whether locks or a device carry out atomic operations, which are then not atomic with CPU atomics.
    #[inline(always)]
    pub(crate) fn excludes_processors(&self) -> bool {
        let others = Rights::EXCLUSIVE | Rights::DEVICE;
        self.parts.rights.intersects(others)
    }

    /// Whether atomic operations are limited to words.
    #[inline(always)]
    pub(crate) fn has_words_only(&self) -> bool {
        self.parts.rights.contains(Rights::WORDS)
    }

    /// The owner's bell, if this process can ring it.
    #[inline(always)]
    pub fn bell(&self) -> Option<&Bell> {
        // SAFETY:
        // - contract of `new`: null, or valid while `alive` lives.
        unsafe { self.parts.bell.as_ref() }
    }
}

impl fmt::Debug for RemoteRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "RemoteRegion(peer {}, {} bytes)",
            self.parts.peer, self.parts.len
        )
    }
}

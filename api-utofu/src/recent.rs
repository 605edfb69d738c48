//! Remote VCQs that a VCQ has used lately, found by their ids as programs write them.

use std::cell::UnsafeCell;
use std::sync::Arc;

use unipgas_core::port::RemotePort;

/// VCQs that are kept.
const KNOWN: usize = 16;

/// Belongs to whoever holds the queues of the VCQ's port.
#[derive(Default)]
pub(crate) struct RecentPorts([UnsafeCell<Known>; KNOWN]);

#[derive(Default)]
struct Known {
    /// As programs name it, with a path.
    bits: u64,
    /// As notices name it.
    plain: u64,
    /// It stays as long as it is here, whatever becomes of it meanwhile.
    port: Option<Arc<RemotePort>>,
}

// SAFETY:
// - the entries are reached by one thread at a time: `get` and `keep` ask for that.
unsafe impl Sync for RecentPorts {}

/// Neighbours in the network get different places.
#[inline(always)]
fn place(bits: u64) -> usize {
    (bits ^ bits >> 10 ^ bits >> 34) as usize % KNOWN
}

impl RecentPorts {
    /// The port of a remote VCQ that is still there, and what notices call it.
    ///
    /// # Safety
    /// The caller holds the queues of the VCQ's port for as long as the result is used, and does not [`RecentPorts::keep`] anything meanwhile.
    #[inline(always)]
    pub unsafe fn get(&self, bits: u64) -> Option<(&RemotePort, u64)> {
        // SAFETY:
        // - the caller's word: nobody changes it meanwhile.
        let known = unsafe { &*self.0[place(bits)].get() };
        let port = known.port.as_deref()?;
        ((known.bits == bits) & port.is_current()).then_some((port, known.plain))
    }

    /// Keeps one in place of another.
    ///
    /// # Safety
    /// The caller holds the queues of the VCQ's port, and has nothing of [`RecentPorts::get`] left.
    pub unsafe fn keep(&self, bits: u64, plain: u64, port: Arc<RemotePort>) {
        let port = Some(port);
        // SAFETY:
        // - the caller's word: it is this thread's alone.
        unsafe { *self.0[place(bits)].get() = Known { bits, plain, port } };
    }
}

//! Cache of remote VCQs that a VCQ has used, by VCQ id.

use std::cell::UnsafeCell;
use std::sync::Arc;

use unipgas_core::port::RemotePort;

/// Entries of the cache.
const KNOWN: usize = 16;

/// The thread that holds the queues of the VCQ's port owns it.
#[derive(Default)]
pub(crate) struct RecentPorts([UnsafeCell<Known>; KNOWN]);

#[derive(Default)]
struct Known {
    /// The id that [`RecentPorts::get`] compares.
    bits: u64,
    /// The id in notices.
    plain: u64,
    /// The entry keeps the port's memory valid, even after the peer has closed the port.
    port: Option<Arc<RemotePort>>,
}

// SAFETY:
// - contract of `get` and `keep`: one thread at a time uses the entries.
unsafe impl Sync for RecentPorts {}

/// The entry of an id. Neighbours in the network get different entries.
#[inline(always)]
fn place(bits: u64) -> usize {
    (bits ^ bits >> 10 ^ bits >> 34) as usize % KNOWN
}

impl RecentPorts {
    /// The port of a remote VCQ, and its id in notices. `None`: unknown or closed.
    ///
    /// # Safety
    /// The caller holds the queues of the VCQ's port as long as it uses the result. It does not call [`RecentPorts::keep`] meanwhile.
    #[inline(always)]
    pub unsafe fn get(&self, bits: u64) -> Option<(&RemotePort, u64)> {
        // SAFETY:
        // - contract of this call: the caller holds the queues, and no thread changes the entry meanwhile.
        let known = unsafe { &*self.0[place(bits)].get() };
        let port = known.port.as_deref()?;
        ((known.bits == bits) & port.is_current()).then_some((port, known.plain))
    }

    /// Stores a port, in place of another one.
    ///
    /// # Safety
    /// The caller holds the queues of the VCQ's port, and uses no result of [`RecentPorts::get`] any more.
    pub unsafe fn keep(&self, bits: u64, plain: u64, port: Arc<RemotePort>) {
        let port = Some(port);
        // SAFETY:
        // - contract of this call: the caller holds the queues, and uses no reference to the entry.
        unsafe { *self.0[place(bits)].get() = Known { bits, plain, port } };
    }
}

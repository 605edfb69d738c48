//! What is under way in the issue contexts of this process, written down where others read it while a long wait goes on.

use std::ptr::NonNull;

use parking_lot::Mutex;

use crate::sync::tally::Tally;
use crate::transport::Channel;

/// The channels of an issue context, and where it is listed.
struct Known {
    channels: NonNull<[Box<dyn Channel>]>,
    tally: &'static Tally,
}

// SAFETY:
// - channels may be asked from any thread, and are there as long as they are known.
unsafe impl Send for Known {}

static KNOWN: Mutex<Vec<Known>> = Mutex::new(Vec::new());

/// Has the channels asked until it is dropped.
pub(super) struct Watched(NonNull<[Box<dyn Channel>]>);

// SAFETY:
// - an address, which is only compared.
unsafe impl Send for Watched {}
// SAFETY:
// - as for Send.
unsafe impl Sync for Watched {}

impl Watched {
    /// # Safety
    /// The channels stay where they are until this is dropped.
    pub unsafe fn new(channels: &[Box<dyn Channel>], tally: &'static Tally) -> Self {
        let channels = NonNull::from(channels);
        KNOWN.lock().push(Known { channels, tally });
        Watched(channels)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let mut known = KNOWN.lock();
        known.retain(|one| !std::ptr::addr_eq(one.channels.as_ptr(), self.0.as_ptr()));
    }
}

/// Writes down what is under way, unless another thread does.
#[cold]
pub(crate) fn look() {
    let Some(known) = KNOWN.try_lock() else {
        return;
    };
    for one in &*known {
        // SAFETY:
        // - they are there as long as they are known, which ends under this lock.
        let channels = unsafe { one.channels.as_ref() };
        one.tally.set_pending(pending(channels));
    }
}

/// Operations under way; of quick ones only to how many peers there are some.
pub(super) fn pending(channels: &[Box<dyn Channel>]) -> usize {
    let of_one = |channel: &dyn Channel| channel.pending() + channel.quick_pending();
    channels.iter().map(|channel| of_one(&**channel)).sum()
}

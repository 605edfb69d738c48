//! What the completion queue tells, and when it can be slept at.

use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

use unipgas_libfabric_sys::*;

use super::{Fabric, call};

/// fi_errno(3): there is an error to be read.
const FI_EAVAIL: isize = 259;
/// Completions that are read at once.
const AT_ONCE: usize = 16;

/// What the completion queue tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The operation with this context has ended well; so many bytes, if it has received.
    Ended {
        /// As it was posted.
        context: usize,
        /// Bytes.
        len: usize,
    },
    /// Somebody has written here, with this data; a receive buffer has been used up for it where there is a context.
    Written {
        /// The data.
        data: u64,
        /// Of the buffer, or 0.
        context: usize,
    },
    /// The operation with this context has ended badly.
    Failed {
        /// As it was posted; 0 if the provider does not know.
        context: usize,
        /// Of fi_errno(3).
        error: i32,
    },
}

impl Fabric {
    /// Can be read when the queue has something to tell, if [`may_sleep`](Fabric::may_sleep) has said so before. `None`: the provider has no such
    /// thing, and must be asked from time to time.
    pub fn events(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY:
        // - the queue's, which lives as long as `self`.
        self.events.map(|fd| unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// Whether nothing is left to be read, so that whoever sleeps on the descriptor is woken by what comes.
    pub fn may_sleep(&self) -> bool {
        if self.events.is_none() {
            // Some crash where there is nothing to sleep on.
            return true;
        }
        let mut queues = [self.cq.cast::<fid>()];
        // SAFETY:
        // - an array of one object, which is open.
        let status = unsafe {
            call!(
                (*self.fabric).ops,
                trywait,
                self.fabric,
                queues.as_mut_ptr(),
                1
            )
        };
        status != -(libc::EAGAIN as isize)
    }

    /// What has happened since, in order; whether there may be more.
    pub fn read(&self, mut tell: impl FnMut(Event)) -> bool {
        let mut entries = [const { MaybeUninit::<fi_cq_data_entry>::uninit() }; AT_ONCE];
        // SAFETY:
        // - room for so many entries of the queue's format.
        let read = unsafe {
            call!(
                (*self.cq).ops,
                read,
                self.cq,
                entries.as_mut_ptr().cast(),
                AT_ONCE
            )
        };
        if read == -FI_EAVAIL {
            return self.read_error(tell);
        }
        let read = usize::try_from(read).unwrap_or(0);
        for entry in &entries[..read] {
            // SAFETY:
            // - the provider has filled so many.
            let entry = unsafe { entry.assume_init_ref() };
            let context = entry.op_context.addr();
            // Some say at both ends that there was data.
            let with_data = entry.flags & FI_REMOTE_CQ_DATA != 0;
            let by_peer = entry.flags & FI_RMA != 0 && entry.flags & FI_WRITE == 0;
            tell(
                match with_data && (by_peer || entry.flags & FI_REMOTE_WRITE != 0) {
                    true => Event::Written {
                        data: entry.data,
                        context: if self.traits.data_takes_buffer {
                            context
                        } else {
                            0
                        },
                    },
                    false => Event::Ended {
                        context,
                        len: entry.len,
                    },
                },
            );
        }
        read == AT_ONCE
    }

    #[cold]
    fn read_error(&self, mut tell: impl FnMut(Event)) -> bool {
        // SAFETY:
        // - an entry of zeros is one: no room for more to be told.
        let mut entry: fi_cq_err_entry = unsafe { std::mem::zeroed() };
        // SAFETY:
        // - the entry lives through the call.
        let read = unsafe { call!((*self.cq).ops, readerr, self.cq, &raw mut entry, 0) };
        if read != 1 {
            return false;
        }
        tracing::debug!(
            "ofi: an operation has failed: {} (the provider's own number: {})",
            self.text(entry.err),
            entry.prov_errno
        );
        tell(Event::Failed {
            context: entry.op_context.addr(),
            error: entry.err,
        });
        true
    }
}

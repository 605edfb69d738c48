//! The completion queue: its events, and the descriptor to sleep on.

use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

use unipgas_libfabric_sys::*;

use super::{Fabric, call};

/// fi_errno(3): the queue has an error entry.
const FI_EAVAIL: isize = 259;
/// Completions per read.
const AT_ONCE: usize = 16;

/// An event of the completion queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// The operation with this context has succeeded. `len`: bytes received, for a receive.
    Ended {
        /// Context of the operation.
        context: usize,
        /// Bytes.
        len: usize,
    },
    /// A peer has written here, with this data. With a context, the write has used up a receive buffer.
    Written {
        /// The data.
        data: u64,
        /// Context of the buffer, or 0.
        context: usize,
    },
    /// The operation with this context has failed.
    Failed {
        /// Context of the operation; 0 if the provider does not know it.
        context: usize,
        /// Error number of fi_errno(3).
        error: i32,
    },
}

impl Fabric {
    /// Readable when the queue has an entry, if [`may_sleep`](Fabric::may_sleep) was true before. `None`: the provider has no descriptor, and the
    /// caller must poll from time to time.
    pub fn events(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY:
        // - the descriptor of the queue, which lives as long as `self`.
        self.events.map(|fd| unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// Whether the queue is empty, so that a new entry makes the descriptor readable.
    pub fn may_sleep(&self) -> bool {
        if self.events.is_none() {
            // Some providers crash in fi_trywait without a descriptor.
            return true;
        }
        let mut queues = [self.cq.cast::<fid>()];
        // SAFETY:
        // - an array of one open object.
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

    /// Reports a bounded number of entries, in order. Returns whether there may be more.
    pub fn read(&self, mut tell: impl FnMut(Event)) -> bool {
        let mut entries = [const { MaybeUninit::<fi_cq_data_entry>::uninit() }; AT_ONCE];
        // SAFETY:
        // - the array has room for `AT_ONCE` entries in the format of the queue.
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
            // - the provider has filled in `read` entries.
            let entry = unsafe { entry.assume_init_ref() };
            let context = entry.op_context.addr();
            // Some providers set the flag at both ends of a write.
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
        // - zeros are a valid entry: it has no room for error data.
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

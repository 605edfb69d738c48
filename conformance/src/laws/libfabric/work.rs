//! Deferred work and triggered operations (fi_trigger(3)), and the structures that describe operations on one word.

use super::kit::*;

/// Deferred work that waits until `trigger` reaches `threshold`.
pub(super) fn work(
    (trigger, threshold): (*mut fid_cntr, u64),
    completion: *mut fid_cntr,
    kind: c_int,
    op: *mut c_void,
) -> fi_deferred_work {
    fi_deferred_work {
        context: [null_mut(); 8],
        threshold,
        triggering_cntr: trigger,
        completion_cntr: completion,
        op_type: kind,
        op,
    }
}

/// Local memory and remote place of an operation on one word of a peer.
pub(super) struct Word {
    iov: libc::iovec,
    ioc: fi_ioc,
    pub(super) remote: fi_rma_iov,
    elements: fi_rma_ioc,
    to: u64,
}

impl Word {
    pub(super) fn new(job: &Job<'_>, rank: u32, at: usize, local: *mut u64) -> Word {
        let (to, addr, key) = job.place(rank, at);
        Word {
            iov: libc::iovec {
                iov_base: local.cast(),
                iov_len: 8,
            },
            ioc: fi_ioc {
                addr: local.cast(),
                count: 1,
            },
            remote: fi_rma_iov { addr, len: 8, key },
            elements: fi_rma_ioc {
                addr,
                count: 1,
                key,
            },
            to,
        }
    }

    pub(super) fn message(&self, context: *mut c_void) -> fi_msg {
        fi_msg {
            msg_iov: &self.iov,
            desc: null_mut(),
            iov_count: 1,
            addr: self.to,
            context,
            data: 0,
        }
    }

    pub(super) fn tagged(&self, tag: u64, context: *mut c_void) -> fi_msg_tagged {
        fi_msg_tagged {
            msg_iov: &self.iov,
            desc: null_mut(),
            iov_count: 1,
            addr: self.to,
            tag,
            ignore: 0,
            context,
            data: 0,
        }
    }

    pub(super) fn rma(&self, context: *mut c_void) -> fi_msg_rma {
        fi_msg_rma {
            msg_iov: &self.iov,
            desc: null_mut(),
            iov_count: 1,
            addr: self.to,
            rma_iov: &self.remote,
            rma_iov_count: 1,
            context,
            data: 0,
        }
    }

    pub(super) fn atomic(&self, op: c_int, context: *mut c_void) -> fi_msg_atomic {
        fi_msg_atomic {
            msg_iov: &self.ioc,
            desc: null_mut(),
            iov_count: 1,
            addr: self.to,
            rma_iov: &self.elements,
            rma_iov_count: 1,
            datatype: UINT64,
            op,
            context,
            data: 0,
        }
    }

    pub(super) fn fetch(&mut self) -> fi_msg_fetch {
        fi_msg_fetch {
            msg_iov: &raw mut self.ioc,
            desc: null_mut(),
            iov_count: 1,
        }
    }

    pub(super) fn compare(&self) -> fi_msg_compare {
        fi_msg_compare {
            msg_iov: &self.ioc,
            desc: null_mut(),
            iov_count: 1,
        }
    }
}

/// The context of a triggered operation.
pub(super) fn context(trigger: *mut fid_cntr, threshold: usize) -> fi_triggered_context {
    fi_triggered_context {
        event_type: FI_TRIGGER_THRESHOLD,
        trigger: [trigger.addr(), threshold, 0],
    }
}

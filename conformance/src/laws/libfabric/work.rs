//! Deferred work and triggered operations (fi_trigger(3)), and the structures that describe operations on one word.

use super::kit::*;

/// Deferred work that waits until `trigger` reaches `threshold`.
pub(super) fn work<T>(
    (trigger, threshold): (*mut fid_cntr, u64),
    completion: *mut fid_cntr,
    kind: c_int,
    op: *mut T,
) -> fi_deferred_work {
    fi_deferred_work {
        context: [null_mut(); 8],
        threshold,
        triggering_cntr: trigger,
        completion_cntr: completion,
        op_type: kind,
        op: op.cast(),
    }
}

/// Runs the body with a counter that triggers, and one of completions.
pub(super) fn triggered_by(
    ctx: &Ctx,
    plan: &Plan<'_>,
    body: impl FnOnce(&Job<'_>, *mut fid_cntr, *mut fid_cntr) -> Verdict,
) -> Verdict {
    with(ctx, plan, 256, |job| {
        let (trigger, completion) = (job.station.counter()?, job.station.counter()?);
        body(job, trigger, completion)?;
        close(completion)?;
        close(trigger)
    })
}

/// Queues all work. It must stay in place until it has completed.
pub(super) fn queue<'a>(
    job: &Job<'_>,
    works: impl IntoIterator<Item = &'a mut fi_deferred_work>,
) -> Verdict {
    for_all(works, |one| {
        ok!(fid job.station.domain, control(FI_QUEUE_WORK, std::ptr::from_mut(one).cast()));
        Ok(())
    })
}

pub(super) fn rma_op(ep: *mut fid_ep, msg: fi_msg_rma, flags: u64) -> fi_op_rma {
    fi_op_rma { ep, msg, flags }
}

pub(super) fn atomic_op(ep: *mut fid_ep, msg: fi_msg_atomic, flags: u64) -> fi_op_atomic {
    fi_op_atomic { ep, msg, flags }
}

pub(super) fn message_op(ep: *mut fid_ep, msg: fi_msg, flags: u64) -> fi_op_msg {
    fi_op_msg { ep, msg, flags }
}

pub(super) fn tagged_op(ep: *mut fid_ep, msg: fi_msg_tagged, flags: u64) -> fi_op_tagged {
    fi_op_tagged { ep, msg, flags }
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
            iov: iovec(local, 8),
            ioc: ioc(local, 1),
            remote: fi_rma_iov { addr, len: 8, key },
            elements: rma_ioc(addr, 1, key),
            to,
        }
    }

    pub(super) fn message(&self, context: *mut c_void) -> fi_msg {
        plain_msg(&self.iov, self.to, context)
    }

    pub(super) fn tagged(&self, tag: u64, context: *mut c_void) -> fi_msg_tagged {
        tagged_msg(&self.iov, self.to, tag, context)
    }

    /// A receive from any sender.
    pub(super) fn any_message(&self, context: *mut c_void) -> fi_msg {
        plain_msg(&self.iov, FI_ADDR_UNSPEC, context)
    }

    /// A tagged receive from any sender.
    pub(super) fn any_tagged(&self, tag: u64, context: *mut c_void) -> fi_msg_tagged {
        tagged_msg(&self.iov, FI_ADDR_UNSPEC, tag, context)
    }

    pub(super) fn rma(&self, context: *mut c_void) -> fi_msg_rma {
        rma_msg(&self.iov, self.to, &self.remote, context)
    }

    pub(super) fn atomic(&self, op: c_int, context: *mut c_void) -> fi_msg_atomic {
        atomic_msg(&self.ioc, self.to, &self.elements, op, context)
    }

    /// The structure of a fetching atomic.
    pub(super) fn fetch_op(
        &self,
        ep: *mut fid_ep,
        result: &mut Word,
        flags: u64,
    ) -> fi_op_fetch_atomic {
        fi_op_fetch_atomic {
            ep,
            msg: self.atomic(SUM, null_mut()),
            fetch: result.fetch(),
            flags,
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

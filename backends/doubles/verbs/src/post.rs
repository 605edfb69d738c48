//! Accepts posted work requests.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use unipgas_verbs_sys::*;

use crate::counters::{self, Count};
use crate::pairs;
use crate::qp::{Qp, QpState};
use crate::recv::list;

/// A work request that is not completed.
pub(crate) struct WorkRequest {
    pub wr_id: u64,
    pub opcode: u32,
    pub is_signaled: bool,
    pub is_solicited: bool,
    pub is_fenced: bool,
    pub immediate: u32,
    pub remote: u64,
    pub rkey: u32,
    pub operand: u64,
    pub swap: u64,
    /// Copy of inline data. Without it, the list is read when the request is sent.
    pub inline: Option<Box<[u8]>>,
    pub list: Vec<ibv_sge>,
    pub len: u32,
    /// Polling its completion frees all slots up to this one.
    pub slot: u64,
    /// Status with which the request fails when it is to be sent.
    pub error: Option<u32>,
}

impl WorkRequest {
    pub fn is_atomic(&self) -> bool {
        matches!(
            self.opcode,
            IBV_WR_ATOMIC_CMP_AND_SWP | IBV_WR_ATOMIC_FETCH_AND_ADD
        )
    }

    /// Whether the answer contains data.
    pub fn is_reading(&self) -> bool {
        self.is_atomic() || self.opcode == IBV_WR_RDMA_READ
    }

    pub fn has_immediate(&self) -> bool {
        matches!(
            self.opcode,
            IBV_WR_RDMA_WRITE_WITH_IMM | IBV_WR_SEND_WITH_IMM
        )
    }

    /// The opcode of its completion.
    pub fn completes_as(&self) -> u32 {
        match self.opcode {
            IBV_WR_RDMA_WRITE | IBV_WR_RDMA_WRITE_WITH_IMM => IBV_WC_RDMA_WRITE,
            IBV_WR_RDMA_READ => IBV_WC_RDMA_READ,
            IBV_WR_ATOMIC_CMP_AND_SWP => IBV_WC_COMP_SWAP,
            IBV_WR_ATOMIC_FETCH_AND_ADD => IBV_WC_FETCH_ADD,
            _ => IBV_WC_SEND,
        }
    }
}

fn kind(opcode: u32) -> Option<Count> {
    Some(match opcode {
        IBV_WR_RDMA_WRITE => Count::Write,
        IBV_WR_RDMA_WRITE_WITH_IMM => Count::WriteImm,
        IBV_WR_SEND => Count::Send,
        IBV_WR_SEND_WITH_IMM => Count::SendImm,
        IBV_WR_RDMA_READ => Count::Read,
        IBV_WR_ATOMIC_CMP_AND_SWP => Count::CmpSwap,
        IBV_WR_ATOMIC_FETCH_AND_ADD => Count::FetchAdd,
        _ => return None,
    })
}

/// Errors: the request is refused at once.
///
/// # Safety
/// The request meets the contract of `ibv_post_send`.
unsafe fn take(qp: &Qp, state: &mut QpState, wr: &ibv_send_wr) -> Result<WorkRequest, c_int> {
    let config = qp.nic.device.config;
    let count = kind(wr.opcode).ok_or(libc::EINVAL)?;
    let parts = u32::try_from(wr.num_sge).map_err(|_| libc::EINVAL)?;
    let used = state.sender.posted.saturating_sub(qp.freed.load(SeqCst));
    if used >= u64::from(qp.cap.max_send_wr) {
        return Err(libc::ENOMEM);
    }
    if parts > qp.cap.max_send_sge {
        return Err(libc::EINVAL);
    }
    // SAFETY:
    // - the list has the length that the work request states.
    let list = unsafe { list(wr.sg_list, parts) };
    let len: u64 = list.iter().map(|sge| u64::from(sge.length)).sum();
    let has = |flag: u32| wr.send_flags & flag != 0;
    let is_signaled = qp.all_signaled || has(IBV_SEND_SIGNALED);
    let mut request = WorkRequest {
        wr_id: wr.wr_id,
        opcode: wr.opcode,
        is_signaled,
        is_solicited: has(IBV_SEND_SOLICITED),
        is_fenced: has(IBV_SEND_FENCE),
        immediate: wr.imm_data,
        remote: wr.wr.remote_addr,
        rkey: wr.wr.rkey_or_compare_add as u32,
        operand: wr.wr.rkey_or_compare_add,
        swap: wr.wr.swap,
        inline: None,
        list,
        len: len.min(config.max_msg_sz.into()) as u32,
        slot: state.sender.posted + 1,
        error: (len > config.max_msg_sz.into()).then_some(IBV_WC_LOC_LEN_ERR),
    };
    if request.is_atomic() {
        if config.atomics == IBV_ATOMIC_NONE || len != 8 {
            return Err(libc::EINVAL);
        }
        request.rkey = wr.wr.atomic_rkey;
    }
    if has(IBV_SEND_INLINE) {
        if request.is_reading() || len > qp.cap.max_inline_data.into() {
            return Err(libc::EINVAL);
        }
        let mut data = Vec::with_capacity(len as usize);
        for sge in &request.list {
            let from = std::ptr::with_exposed_provenance::<u8>(sge.addr as usize);
            // SAFETY:
            // - inline data are valid during the call, by the contract of `ibv_post_send`;
            // - the part is not empty: an empty part may have any address.
            unsafe {
                if sge.length > 0 {
                    data.extend_from_slice(std::slice::from_raw_parts(from, sge.length as usize));
                }
            }
        }
        request.inline = Some(data.into());
        counters::count(Count::Inline);
    }
    counters::count(count);
    if is_signaled {
        counters::count(Count::Signaled);
    }
    state.sender.posted += 1;
    Ok(request)
}

/// Returns the number of accepted requests, and the error of the next one (0: all are accepted).
///
/// # Safety
/// The contract of [`post_send`].
unsafe fn take_all(qp: &Arc<Qp>, at: &mut *mut ibv_send_wr) -> (u64, c_int) {
    if !qp.nic.is_usable() {
        return (0, libc::EIO);
    }
    let mut state = qp.state.lock();
    let mut taken = 0;
    while !at.is_null() {
        if !matches!(
            state.state,
            IBV_QPS_RTS | IBV_QPS_SQD | IBV_QPS_SQE | IBV_QPS_ERR
        ) {
            return (taken, libc::EINVAL);
        }
        // SAFETY:
        // - the caller gives a list of work requests.
        let wr = unsafe { &**at };
        // SAFETY:
        // - contract of `ibv_post_send` for each request.
        let request = match unsafe { take(qp, &mut state, wr) } {
            Ok(request) => request,
            Err(error) => return (taken, error),
        };
        if state.state == IBV_QPS_ERR {
            let wc = qp.completion(request.wr_id, IBV_WC_WR_FLUSH_ERR, 0);
            qp.push_sent(wc, request.slot);
        } else {
            state.sender.queue.push_back(request);
        }
        taken += 1;
        *at = wr.next;
    }
    (taken, 0)
}

pub unsafe extern "C" fn post_send(
    pointer: *mut ibv_qp,
    first: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    counters::count(Count::Doorbells);
    // SAFETY:
    // - the caller gives a queue pair that is not destroyed.
    let qp = unsafe { pairs::of(pointer) };
    let mut at = first;
    // SAFETY:
    // - the caller gives a list of work requests.
    let (taken, error) = unsafe { take_all(qp, &mut at) };
    if error != 0 {
        // SAFETY:
        // - the caller gives a valid pointer for the result.
        unsafe { *bad = at };
    }
    if taken > 0 {
        qp.nic.ring(qp);
    }
    error
}

//! Queue pairs and their state.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering::SeqCst};
use std::time::Instant;

use parking_lot::Mutex;
use unipgas_verbs_sys::*;

use crate::cq::{Cq, Frees, QueuedCompletion};
use crate::device::global_route;
use crate::events::Taken;
use crate::nic::{Nic, Subject};
use crate::pd::Pd;
use crate::post::WorkRequest;
use crate::recv::{PostedRecv, RecvQueue};
use crate::responder::PendingResponse;

/// Value of the undefined fields of a completion with an error. Only status, request and queue pair are defined.
const MEANINGLESS: u32 = 0xa5a5_a5a5;

pub(crate) struct Qp {
    pub nic: Arc<Nic>,
    pub number: u32,
    pub pd: Arc<Pd>,
    pub all_signaled: bool,
    pub cap: ibv_qp_cap,
    pub send_cq: Arc<Cq>,
    pub recv_cq: Arc<Cq>,
    pub recv: Arc<RecvQueue>,
    pub is_shared: bool,
    /// Number of slots of the send queue that became free since the last reset.
    pub freed: AtomicU64,
    /// It is in the list of queue pairs with work.
    pub is_dirty: AtomicBool,
    pub state: Mutex<QpState>,
    pub object: AtomicPtr<ibv_qp>,
    pub taken: Taken,
}

pub(crate) struct QpState {
    /// IBV_QPS_...
    pub state: u32,
    pub attr: ibv_qp_attr,
    /// The queue pair is destroyed.
    pub is_over: bool,
    pub sender: Requester,
    pub receiver: Receiver,
}

/// The reason that the requester makes no progress, and its begin.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) enum Trouble {
    #[default]
    None,
    /// The local port is down.
    Cut(Instant),
    /// The peer does not accept packets.
    Lost(Instant),
    /// The peer's process has ended.
    Dead(Instant),
}

/// State of the requester.
#[derive(Default)]
pub(crate) struct Requester {
    /// Requests that are not completed, the oldest first.
    pub queue: VecDeque<WorkRequest>,
    /// Number of requests posted since the last reset.
    pub posted: u64,
    /// Message number of the oldest request.
    pub first: u32,
    /// Index of the request to be sent next, and the number of its bytes that are sent.
    pub next: usize,
    pub offset: u32,
    /// Number of restarts at the oldest request.
    pub epoch: u32,
    /// Number of outstanding reads and atomic operations.
    pub reading: u32,
    /// Number of times that the peer had no buffer for the oldest request.
    pub rnr: u32,
    pub wait: Option<Instant>,
    pub trouble: Trouble,
    pub link: Option<u64>,
}

/// State of the responder.
#[derive(Default)]
pub(crate) struct Receiver {
    /// Number of the next message, and the number of its bytes that have arrived.
    pub expected: u32,
    pub at: u32,
    pub epoch: u32,
    /// The receive buffer of the message, if it needs one.
    pub buffer: Option<PostedRecv>,
    /// Answers in order. A delayed answer delays all later ones.
    pub answers: VecDeque<PendingResponse>,
    pub is_established: bool,
}

impl QpState {
    /// The LID or the hash of the GID of the peer.
    pub fn route(&self) -> u32 {
        route(&self.attr.ah_attr)
    }
}

pub fn route(to: &ibv_ah_attr) -> u32 {
    match to.is_global {
        0 => to.dlid.into(),
        _ => global_route(&to.grh.dgid),
    }
}

impl Qp {
    pub fn completion(&self, wr_id: u64, status: u32, opcode: u32) -> ibv_wc {
        let failed = status != IBV_WC_SUCCESS;
        ibv_wc {
            wr_id,
            status,
            opcode: if failed { MEANINGLESS } else { opcode },
            vendor_err: if failed { 0x77 } else { 0 },
            byte_len: if failed { MEANINGLESS } else { 0 },
            imm_data: 0,
            qp_num: self.number,
            src_qp: 0,
            wc_flags: 0,
            pkey_index: 0,
            slid: 0,
            sl: 0,
            dlid_path_bits: 0,
        }
    }

    pub fn push_sent(self: &Arc<Self>, wc: ibv_wc, slot: u64) {
        self.send_cq.push(QueuedCompletion {
            wc,
            qp: self.clone(),
            frees: Frees::Send(slot),
            solicited: false,
        });
    }

    pub fn push_received(self: &Arc<Self>, wc: ibv_wc, solicited: bool) {
        self.recv_cq.push(QueuedCompletion {
            wc,
            qp: self.clone(),
            frees: Frees::Recv(self.recv.clone()),
            solicited,
        });
    }

    /// Enters the error state. The oldest request completes with `status`, and all others are flushed.
    pub fn break_down(self: &Arc<Self>, state: &mut QpState, status: u32) {
        if matches!(state.state, IBV_QPS_RESET | IBV_QPS_ERR) {
            return;
        }
        state.state = IBV_QPS_ERR;
        let mut status = status;
        for request in std::mem::take(&mut state.sender.queue) {
            self.push_sent(self.completion(request.wr_id, status, 0), request.slot);
            status = IBV_WC_WR_FLUSH_ERR;
        }
        state.sender.next = 0;
        state.sender.offset = 0;
        let begun = state.receiver.buffer.take();
        self.flush(begun);
        if self.is_shared {
            self.nic
                .raise(IBV_EVENT_QP_LAST_WQE_REACHED, Subject::Qp(self.clone()));
        } else {
            self.flush(self.recv.take_all());
        }
    }

    pub fn flush(self: &Arc<Self>, buffers: impl IntoIterator<Item = PostedRecv>) {
        for buffer in buffers {
            let wc = self.completion(buffer.wr_id, IBV_WC_WR_FLUSH_ERR, 0);
            self.push_received(wc, false);
        }
    }

    pub fn fail(self: &Arc<Self>) {
        self.break_down(&mut self.state.lock(), IBV_WC_WR_FLUSH_ERR);
    }

    /// Resets the queue pair to its initial state.
    pub fn reset(self: &Arc<Self>, state: &mut QpState) {
        state.state = IBV_QPS_RESET;
        state.sender = Requester::default();
        if std::mem::take(&mut state.receiver).buffer.is_some() {
            self.recv.free();
        }
        self.send_cq.forget(self);
        self.recv_cq.forget(self);
        if !self.is_shared {
            self.recv.clear();
        }
        self.freed.store(0, SeqCst);
    }
}

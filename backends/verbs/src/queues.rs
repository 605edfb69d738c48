//! Completion queues, their event channel, and queue pairs.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use unipgas_core::{Error, Result, process};
use unipgas_verbs_sys::*;

use crate::choice::DevicePort;
use crate::device::{Device, errno, lacks, never_wait};
use crate::receive::SharedQueue;
use crate::wire::QpParameters;

/// Completions per poll.
pub const AT_ONCE: usize = 16;

/// Retries of an unanswered request. With the default timeout, a peer without an answer for about four seconds is dead. Not 7, which means no limit
/// with rdma_rxe.
const RETRIES: u8 = 6;
/// Retries if the peer has no receive buffer: no limit. Credits prevent this case.
const RNR_RETRIES: u8 = 7;
/// Code of the delay before such a retry: 0.64 ms.
const RNR_TIMER: u8 = 12;
const HOPS: u8 = 64;

/// Reports completions by a descriptor.
pub(crate) struct Channel {
    raw: NonNull<ibv_comp_channel>,
    device: Arc<Device>,
}

// SAFETY:
// - contract of verbs: calls are valid on any thread.
unsafe impl Send for Channel {}
// SAFETY:
// - as for Send.
unsafe impl Sync for Channel {}

impl Channel {
    /// Creates a channel. Errors: [`Error::Os`].
    pub fn open(device: &Arc<Device>) -> Result<Arc<Self>> {
        let library = device.library();
        // SAFETY:
        // - the context is open.
        let raw = unsafe { (library.create_comp_channel)(device.context.raw.as_ptr()) };
        let raw = NonNull::new(raw).ok_or_else(|| errno("ibv_create_comp_channel"))?;
        let channel = Channel {
            raw,
            device: device.clone(),
        };
        // SAFETY:
        // - the channel owns the descriptor.
        unsafe { never_wait((*raw.as_ptr()).fd) }?;
        Ok(Arc::new(channel))
    }

    /// Takes and acknowledges all events.
    pub fn hear(&self) {
        let library = self.device.library();
        let (mut cq, mut context) = (null_mut(), null_mut());
        // SAFETY:
        // - an event names a completion queue, and a queue is destroyed only after the acknowledgement.
        unsafe {
            while (library.get_cq_event)(self.raw.as_ptr(), &raw mut cq, &raw mut context) == 0 {
                (library.ack_cq_events)(cq, 1);
            }
        }
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY:
        // - the descriptor belongs to the channel, which lives as long as `self`.
        unsafe { BorrowedFd::borrow_raw((*self.raw.as_ptr()).fd) }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY:
        // - created once. Its queues keep the channel, so they are gone.
        let failed = unsafe { (self.device.library().destroy_comp_channel)(self.raw.as_ptr()) };
        debug_assert_eq!(failed, 0, "a completion channel is in use");
    }
}

/// A completion queue.
pub(crate) struct Cq {
    pub raw: NonNull<ibv_cq>,
    poll: poll_cq,
    arm: req_notify_cq,
    /// Free places for work requests.
    room: AtomicU32,
    channel: Arc<Channel>,
}

// SAFETY:
// - contract of verbs: calls are valid on any thread.
unsafe impl Send for Cq {}
// SAFETY:
// - as for Send.
unsafe impl Sync for Cq {}

impl Cq {
    /// Creates a queue with `room` places. Errors: [`Error::Exhausted`], [`Error::Os`], [`Error::Unreachable`].
    pub fn open(channel: &Arc<Channel>, room: u32) -> Result<Arc<Self>> {
        let context = channel.device.context.raw.as_ptr();
        let entries = c_int::try_from(room).unwrap_or(c_int::MAX);
        // SAFETY:
        // - the context and the channel are open. A context holds its device's function table.
        unsafe {
            let ops = &(*context).ops;
            let (Some(poll), Some(arm)) = (ops.poll_cq, ops.req_notify_cq) else {
                return Err(Error::Unreachable("the device cannot be polled".into()));
            };
            let create = channel.device.library().create_cq;
            let raw = create(context, entries, null_mut(), channel.raw.as_ptr(), 0);
            let raw =
                NonNull::new(raw).ok_or_else(|| lacks("completion queues", "ibv_create_cq"))?;
            Ok(Arc::new(Cq {
                raw,
                poll,
                arm,
                room: AtomicU32::new(room),
                channel: channel.clone(),
            }))
        }
    }

    /// Reserves places for `count` work requests. False: there is no room.
    pub fn claim(&self, count: u32) -> bool {
        let less = |room: u32| room.checked_sub(count);
        self.room
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, less)
            .is_ok()
    }

    /// Returns places from [`claim`](Cq::claim).
    pub fn give_back(&self, count: u32) {
        self.room.fetch_add(count, Ordering::AcqRel);
    }

    /// Polls up to [`AT_ONCE`] completions. True: there may be more.
    #[inline]
    pub fn poll(&self, mut tell: impl FnMut(&ibv_wc)) -> bool {
        let mut found = [const { MaybeUninit::<ibv_wc>::uninit() }; AT_ONCE];
        // SAFETY:
        // - `found` has `AT_ONCE` elements.
        let count = unsafe {
            (self.poll)(
                self.raw.as_ptr(),
                AT_ONCE as c_int,
                found.as_mut_ptr().cast(),
            )
        };
        let count = usize::try_from(count).unwrap_or(0).min(AT_ONCE);
        for one in &found[..count] {
            // SAFETY:
            // - the call has filled `count` elements.
            tell(unsafe { one.assume_init_ref() });
        }
        count == AT_ONCE
    }

    /// The channel reports the next completion.
    pub fn arm(&self) {
        // SAFETY:
        // - the queue is open.
        unsafe { (self.arm)(self.raw.as_ptr(), 0) };
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        // SAFETY:
        // - created once. Its queue pairs keep the queue, so they are gone. `Channel::hear` has acknowledged its events.
        let failed = unsafe { (self.channel.device.library().destroy_cq)(self.raw.as_ptr()) };
        debug_assert_eq!(failed, 0, "a completion queue is in use");
    }
}

/// Parts of a queue pair.
pub(crate) struct QueuePairParts<'a> {
    pub device: &'a Arc<Device>,
    pub port: &'a DevicePort,
    /// Queue for completions of sends, with `depth` claimed places.
    pub sends: Arc<Cq>,
    pub receives: &'a Arc<Cq>,
    pub shared: &'a Arc<SharedQueue>,
    /// Maximum work requests in flight.
    pub depth: u32,
    /// Maximum inline bytes of a work request.
    pub inline: u32,
}

/// One end of a reliable connection.
pub(crate) struct Pair {
    raw: NonNull<ibv_qp>,
    post: post_send,
    /// Its number for the peer.
    pub number: u32,
    depth: u32,
    process: u32,
    sends: Arc<Cq>,
    // Kept until the queue pair is destroyed.
    _receives: Arc<Cq>,
    _shared: Arc<SharedQueue>,
    device: Arc<Device>,
}

// SAFETY:
// - contract of verbs: calls are valid on any thread.
unsafe impl Send for Pair {}
// SAFETY:
// - as for Send.
unsafe impl Sync for Pair {}

impl Pair {
    /// Creates a queue pair that is not connected. After a failure, the claimed places are free again. Errors: [`Error::Exhausted`], [`Error::Os`].
    pub fn open(parts: QueuePairParts<'_>) -> Result<Self> {
        let (device, depth) = (parts.device.clone(), parts.depth);
        let mut attributes = ibv_qp_init_attr {
            qp_context: null_mut(),
            send_cq: parts.sends.raw.as_ptr(),
            recv_cq: parts.receives.raw.as_ptr(),
            srq: parts.shared.raw.as_ptr(),
            cap: ibv_qp_cap {
                max_send_wr: depth,
                max_recv_wr: 0,
                max_send_sge: 1,
                max_recv_sge: 0,
                max_inline_data: parts.inline,
            },
            qp_type: IBV_QPT_RC,
            sq_sig_all: 0,
        };
        let create = device.library().create_qp;
        // SAFETY:
        // - all objects in the attributes are open, and `Pair` keeps them.
        let raw = unsafe { create(device.pd.as_ptr(), &raw mut attributes) };
        let Some(raw) = NonNull::new(raw) else {
            parts.sends.give_back(depth);
            return Err(lacks("queue pairs", "ibv_create_qp"));
        };
        // SAFETY:
        // - a context holds its device's function table.
        let (post, number) = unsafe {
            (
                (*device.context.raw.as_ptr()).ops.post_send,
                (*raw.as_ptr()).qp_num,
            )
        };
        let pair = Pair {
            raw,
            post: post.expect("a device that makes queue pairs sends"),
            number,
            depth,
            process: process::id(),
            sends: parts.sends,
            _receives: parts.receives.clone(),
            _shared: parts.shared.clone(),
            device,
        };
        let mut begin = attr(IBV_QPS_INIT);
        begin.port_num = parts.port.number;
        begin.qp_access_flags =
            IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
        pair.modify(
            begin,
            IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
        )?;
        Ok(pair)
    }

    /// Connects it with the peer's queue pair. Errors: [`Error::Os`].
    pub fn connect(
        &self,
        port: &DevicePort,
        own: &QpParameters,
        theirs: &QpParameters,
    ) -> Result<()> {
        let [ready, sends] = connected(port, own, theirs);
        self.modify(
            ready,
            IBV_QP_STATE
                | IBV_QP_AV
                | IBV_QP_PATH_MTU
                | IBV_QP_DEST_QPN
                | IBV_QP_RQ_PSN
                | IBV_QP_MAX_DEST_RD_ATOMIC
                | IBV_QP_MIN_RNR_TIMER,
        )?;
        self.modify(
            sends,
            IBV_QP_STATE
                | IBV_QP_TIMEOUT
                | IBV_QP_RETRY_CNT
                | IBV_QP_RNR_RETRY
                | IBV_QP_SQ_PSN
                | IBV_QP_MAX_QP_RD_ATOMIC,
        )
    }

    /// Stops the queue pair: afterwards, neither side accesses memory by it.
    pub fn stop(&self) {
        if let Err(error) = self.modify(attr(IBV_QPS_ERR), IBV_QP_STATE) {
            tracing::debug!("verbs: {error}");
        }
    }

    fn modify(&self, mut to: ibv_qp_attr, mask: u32) -> Result<()> {
        // SAFETY:
        // - the queue pair is open. The attributes live through the call.
        let failed = unsafe {
            (self.device.library().modify_qp)(self.raw.as_ptr(), &raw mut to, mask as c_int)
        };
        match failed {
            0 => Ok(()),
            error => Err(Error::os(
                &format!(
                    "cannot bring a queue pair to state {} (ibv_modify_qp)",
                    to.qp_state
                ),
                std::io::Error::from_raw_os_error(error),
            )),
        }
    }

    /// Posts a chain of work requests by one doorbell. False: the queue pair accepts none, and none is posted.
    ///
    /// # Safety
    /// The requests, and all that they point to, are valid in the call. Memory that they name by keys is valid until completion.
    #[inline]
    pub unsafe fn post(&self, first: &mut ibv_send_wr) -> bool {
        let mut bad = null_mut();
        // SAFETY:
        // - contract of this call: the chain is valid.
        unsafe { (self.post)(self.raw.as_ptr(), first, &raw mut bad) == 0 }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        if self.process != process::id() {
            // The queue pair belongs to the parent process.
            return;
        }
        // SAFETY:
        // - created once.
        let failed = unsafe { (self.device.library().destroy_qp)(self.raw.as_ptr()) };
        if failed != 0 {
            tracing::debug!("verbs: ibv_destroy_qp: error {failed}");
        }
        self.sends.give_back(self.depth);
    }
}

fn attr(state: u32) -> ibv_qp_attr {
    // SAFETY:
    // - zeros are valid attributes.
    let mut attributes: ibv_qp_attr = unsafe { std::mem::zeroed() };
    attributes.qp_state = state;
    attributes
}

/// Attributes for the transition to ready-to-receive, and then to ready-to-send.
pub(crate) fn connected(
    port: &DevicePort,
    own: &QpParameters,
    theirs: &QpParameters,
) -> [ibv_qp_attr; 2] {
    let mut ready = attr(IBV_QPS_RTR);
    ready.path_mtu = port.mtu.min(theirs.mtu.into());
    ready.dest_qp_num = theirs.pair;
    ready.rq_psn = theirs.first;
    ready.max_dest_rd_atomic = own.serves.min(theirs.reads);
    ready.min_rnr_timer = RNR_TIMER;
    ready.ah_attr.port_num = port.number;
    ready.ah_attr.dlid = theirs.lid;
    ready.ah_attr.is_global = u8::from(port.ethernet || port.gid[..8] != theirs.gid[..8]);
    ready.ah_attr.grh.dgid = ibv_gid(theirs.gid);
    ready.ah_attr.grh.sgid_index = port.gid_index;
    ready.ah_attr.grh.hop_limit = HOPS;
    let mut sends = attr(IBV_QPS_RTS);
    sends.timeout = port.timeout;
    sends.retry_cnt = RETRIES;
    sends.rnr_retry = RNR_RETRIES;
    sends.sq_psn = own.first;
    sends.max_rd_atomic = own.reads.min(theirs.serves);
    [ready, sends]
}

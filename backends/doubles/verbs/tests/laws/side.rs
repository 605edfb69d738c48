//! One side of a connection: a context (new or shared), a queue pair and memory.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use unipgas_verbs_sys::*;

use crate::api::{api, zeroed};
use crate::process::ProcessPipe;

pub const ALL: u32 = IBV_ACCESS_LOCAL_WRITE
    | IBV_ACCESS_REMOTE_WRITE
    | IBV_ACCESS_REMOTE_READ
    | IBV_ACCESS_REMOTE_ATOMIC;

/// Options of a side.
#[derive(Clone, Copy)]
pub(crate) struct PairOptions {
    pub send_wr: u32,
    pub recv_wr: u32,
    pub cqe: c_int,
    pub inline: u32,
    pub shared: bool,
    pub words: usize,
    pub access: u32,
    pub qp_access: u32,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub rd_atomic: u8,
    pub dest_rd_atomic: u8,
    pub psn: u32,
}

impl PairOptions {
    pub const DEFAULT: PairOptions = PairOptions {
        send_wr: 64,
        recv_wr: 64,
        cqe: 256,
        inline: 64,
        shared: false,
        words: 1024,
        access: ALL,
        qp_access: ALL,
        timeout: 10,
        retry_cnt: 3,
        rnr_retry: 7,
        rd_atomic: 4,
        dest_rd_atomic: 4,
        psn: 0xff_fffe,
    };

    /// The default options with a change.
    pub fn with(change: impl FnOnce(&mut PairOptions)) -> Self {
        let mut options = PairOptions::DEFAULT;
        change(&mut options);
        options
    }
}

/// The data that a peer needs to connect to this side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SideAddress {
    pub qp: u32,
    pub psn: u32,
    pub lid: u16,
    pub rkey: u32,
    pub base: u64,
}

pub(crate) struct Side {
    pub options: PairOptions,
    pub context: *mut ibv_context,
    pub pd: *mut ibv_pd,
    pub channel: *mut ibv_comp_channel,
    pub cq: *mut ibv_cq,
    pub srq: *mut ibv_srq,
    pub qp: *mut ibv_qp,
    pub mr: *mut ibv_mr,
    pub memory: &'static [AtomicU64],
}

pub fn open() -> *mut ibv_context {
    // SAFETY:
    // - the list has a device, and is freed once.
    unsafe {
        let mut count = 0;
        let list = (api().ibv_get_device_list)(&raw mut count);
        assert!(count > 0 && !list.is_null());
        let context = (api().ibv_open_device)(*list);
        (api().ibv_free_device_list)(list);
        assert!(!context.is_null());
        context
    }
}

impl Side {
    pub fn new(options: PairOptions) -> Self {
        Side::on(open(), options)
    }

    /// Another side with the same context.
    pub fn beside(&self, options: PairOptions) -> Self {
        Side::on(self.context, options)
    }

    /// Two connected sides with separate contexts.
    pub fn pair(one: PairOptions, other: PairOptions) -> (Side, Side) {
        let (one, other) = (Side::new(one), Side::new(other));
        one.connect(&other.address());
        other.connect(&one.address());
        (one, other)
    }

    /// Two sides with default options that are not connected.
    pub fn apart() -> (Side, Side) {
        (
            Side::new(PairOptions::DEFAULT),
            Side::new(PairOptions::DEFAULT),
        )
    }

    /// Two connected sides with default options.
    pub fn plain_pair() -> (Side, Side) {
        Side::pair(PairOptions::DEFAULT, PairOptions::DEFAULT)
    }

    pub fn on(context: *mut ibv_context, options: PairOptions) -> Self {
        let api = api();
        let memory = Vec::leak((0..options.words).map(|_| AtomicU64::new(0)).collect());
        // SAFETY:
        // - each object is made from earlier objects, and none of them is destroyed.
        unsafe {
            let pd = (api.ibv_alloc_pd)(context);
            let at = memory.as_mut_ptr().expose_provenance() as *mut c_void;
            let mr = (api.ibv_reg_mr)(pd, at, 8 * options.words, options.access as c_int);
            assert!(!mr.is_null());
            let channel = (api.ibv_create_comp_channel)(context);
            let cq = (api.ibv_create_cq)(context, options.cqe, null_mut(), channel, 0);
            assert!(!cq.is_null());
            let mut srq_init: ibv_srq_init_attr = zeroed();
            srq_init.attr.max_wr = options.recv_wr;
            srq_init.attr.max_sge = 4;
            let srq = match options.shared {
                true => (api.ibv_create_srq)(pd, &raw mut srq_init),
                false => null_mut(),
            };
            assert_eq!(srq.is_null(), !options.shared);
            let mut side = Side {
                options,
                context,
                pd,
                channel,
                cq,
                srq,
                qp: null_mut(),
                mr,
                memory,
            };
            side.qp = side.make_qp();
            assert!(!side.qp.is_null());
            side
        }
    }

    pub fn make_qp(&self) -> *mut ibv_qp {
        let mut init: ibv_qp_init_attr = zeroed();
        init.send_cq = self.cq;
        init.recv_cq = self.cq;
        init.srq = self.srq;
        init.qp_type = IBV_QPT_RC;
        init.cap = ibv_qp_cap {
            max_send_wr: self.options.send_wr,
            max_recv_wr: self.options.recv_wr,
            max_send_sge: 4,
            max_recv_sge: 4,
            max_inline_data: self.options.inline,
        };
        // SAFETY:
        // - domain and queues are not destroyed.
        unsafe { (api().ibv_create_qp)(self.pd, &raw mut init) }
    }

    /// Another handle of the same side.
    pub fn copy(&self) -> Side {
        Side { ..*self }
    }

    pub fn lid(&self) -> u16 {
        let mut port: ibv_port_attr = zeroed();
        // SAFETY:
        // - the context is open.
        let error = unsafe { (api().ibv_query_port)(self.context, 1, &raw mut port) };
        assert_eq!(error, 0);
        port.lid
    }

    pub fn address(&self) -> SideAddress {
        // SAFETY:
        // - neither queue pair nor region is destroyed.
        let (qp, rkey) = unsafe { ((*self.qp).qp_num, (*self.mr).rkey) };
        SideAddress {
            qp,
            psn: self.options.psn,
            lid: self.lid(),
            rkey,
            base: self.memory.as_ptr().expose_provenance() as u64,
        }
    }

    pub fn exchange(&self, stream: &mut ProcessPipe) -> SideAddress {
        let own = self.address();
        let told: [u64; 5] = [
            own.qp.into(),
            own.psn.into(),
            own.lid.into(),
            own.rkey.into(),
            own.base,
        ];
        told.iter().for_each(|word| stream.say_number(*word));
        let [qp, psn, lid, rkey, base] = told.map(|_| stream.hear_number());
        SideAddress {
            qp: qp as u32,
            psn: psn as u32,
            lid: lid as u16,
            rkey: rkey as u32,
            base,
        }
    }

    pub fn modify(&self, attr: &ibv_qp_attr, mask: u32) -> c_int {
        let mut attr = *attr;
        // SAFETY:
        // - the queue pair is not destroyed.
        unsafe { (api().ibv_modify_qp)(self.qp, &raw mut attr, mask as c_int) }
    }

    pub fn init(&self) -> c_int {
        let mut attr: ibv_qp_attr = zeroed();
        attr.qp_state = IBV_QPS_INIT;
        attr.port_num = 1;
        attr.qp_access_flags = self.options.qp_access;
        let mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
        self.modify(&attr, mask)
    }

    pub fn ready_to_receive(&self, peer: &SideAddress) -> c_int {
        let mut attr: ibv_qp_attr = zeroed();
        attr.qp_state = IBV_QPS_RTR;
        attr.ah_attr.dlid = peer.lid;
        attr.ah_attr.port_num = 1;
        attr.path_mtu = IBV_MTU_1024;
        attr.dest_qp_num = peer.qp;
        attr.rq_psn = peer.psn;
        attr.max_dest_rd_atomic = self.options.dest_rd_atomic;
        attr.min_rnr_timer = 1;
        let mask = IBV_QP_STATE
            | IBV_QP_AV
            | IBV_QP_PATH_MTU
            | IBV_QP_DEST_QPN
            | IBV_QP_RQ_PSN
            | IBV_QP_MAX_DEST_RD_ATOMIC
            | IBV_QP_MIN_RNR_TIMER;
        self.modify(&attr, mask)
    }

    pub fn ready_to_send(&self) -> c_int {
        let mut attr: ibv_qp_attr = zeroed();
        attr.qp_state = IBV_QPS_RTS;
        attr.timeout = self.options.timeout;
        attr.retry_cnt = self.options.retry_cnt;
        attr.rnr_retry = self.options.rnr_retry;
        attr.sq_psn = self.options.psn;
        attr.max_rd_atomic = self.options.rd_atomic;
        let mask = IBV_QP_STATE
            | IBV_QP_TIMEOUT
            | IBV_QP_RETRY_CNT
            | IBV_QP_RNR_RETRY
            | IBV_QP_SQ_PSN
            | IBV_QP_MAX_QP_RD_ATOMIC;
        self.modify(&attr, mask)
    }

    pub fn connect(&self, peer: &SideAddress) {
        assert_eq!(self.init(), 0);
        assert_eq!(self.ready_to_receive(peer), 0);
        assert_eq!(self.ready_to_send(), 0);
    }

    pub fn state(&self) -> u32 {
        let mut attr: ibv_qp_attr = zeroed();
        let mut init: ibv_qp_init_attr = zeroed();
        // SAFETY:
        // - the queue pair is not destroyed.
        let error = unsafe {
            let mask = IBV_QP_STATE as c_int;
            (api().ibv_query_qp)(self.qp, &raw mut attr, mask, &raw mut init)
        };
        assert_eq!(error, 0);
        attr.qp_state
    }

    pub fn arm(&self, solicited: bool) {
        // SAFETY:
        // - the queue is not destroyed.
        let error = unsafe {
            let arm = (*self.context).ops.req_notify_cq.unwrap();
            arm(self.cq, solicited.into())
        };
        assert_eq!(error, 0);
    }

    /// Waits for an asynchronous event other than IBV_EVENT_COMM_EST.
    pub fn event(&self) -> ibv_async_event {
        loop {
            let mut event: ibv_async_event = zeroed();
            // SAFETY:
            // - the context is open; each event is acknowledged once.
            unsafe {
                assert_eq!((api().ibv_get_async_event)(self.context, &raw mut event), 0);
                (api().ibv_ack_async_event)(&raw mut event);
            }
            if event.event_type != IBV_EVENT_COMM_EST {
                return event;
            }
        }
    }

    pub fn put(&self, at: usize, words: &[u64]) {
        for (place, word) in self.memory[at..].iter().zip(words) {
            place.store(*word, SeqCst);
        }
    }

    pub fn word(&self, at: usize) -> u64 {
        self.memory[at].load(SeqCst)
    }

    /// Waits until a peer has written this word.
    pub fn wait_for(&self, at: usize, word: u64) {
        while self.word(at) != word {
            std::thread::yield_now();
        }
    }

    /// Destroys all objects except the context.
    pub fn destroy(self) {
        let api = api();
        // SAFETY:
        // - each object is destroyed once, after the objects that depend on it.
        unsafe {
            assert_eq!((api.ibv_destroy_qp)(self.qp), 0);
            if !self.srq.is_null() {
                assert_eq!((api.ibv_destroy_srq)(self.srq), 0);
            }
            assert_eq!((api.ibv_destroy_cq)(self.cq), 0);
            assert_eq!((api.ibv_destroy_comp_channel)(self.channel), 0);
            assert_eq!((api.ibv_dereg_mr)(self.mr), 0);
            assert_eq!((api.ibv_dealloc_pd)(self.pd), 0);
        }
    }
}

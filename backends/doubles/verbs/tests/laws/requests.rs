//! Work requests and their completions.

use std::ffi::c_int;
use std::ptr::null_mut;

use unipgas_verbs_sys::*;

use crate::api::zeroed;
use crate::side::{Side, SideAddress};

/// A work request. Its local ranges are offsets in the side's memory, in bytes.
#[derive(Clone)]
pub(crate) struct Wr {
    pub id: u64,
    pub opcode: u32,
    pub flags: u32,
    pub local: Vec<(u64, u32)>,
    pub lkey: Option<u32>,
    pub remote: u64,
    pub rkey: u32,
    pub imm: u32,
    pub operand: u64,
    pub swap: u64,
}

pub fn wr(id: u64, opcode: u32, local: u64, len: u32) -> Wr {
    Wr {
        id,
        opcode,
        flags: IBV_SEND_SIGNALED,
        local: vec![(local, len)],
        lkey: None,
        remote: 0,
        rkey: 0,
        imm: 0,
        operand: 0,
        swap: 0,
    }
}

impl Wr {
    /// Sets the target: an offset in the peer's memory, in bytes.
    pub fn to(mut self, peer: &SideAddress, offset: u64) -> Self {
        self.remote = peer.base + offset;
        self.rkey = peer.rkey;
        self
    }

    pub fn flags(mut self, flags: u32) -> Self {
        self.flags = flags;
        self
    }
}

impl Side {
    fn list(&self, parts: &[(u64, u32)], lkey: Option<u32>) -> Vec<ibv_sge> {
        let base = self.memory.as_ptr().expose_provenance() as u64;
        // SAFETY:
        // - the region is not deregistered.
        let own = unsafe { (*self.mr).lkey };
        let sge = |(offset, length): &(u64, u32)| ibv_sge {
            addr: base + offset,
            length: *length,
            lkey: lkey.unwrap_or(own),
        };
        parts.iter().map(sge).collect()
    }

    /// Posts a request, and returns the error.
    pub fn post(&self, wr: &Wr) -> c_int {
        let mut list = self.list(&wr.local, wr.lkey);
        let mut raw: ibv_send_wr = zeroed();
        raw.wr_id = wr.id;
        raw.sg_list = list.as_mut_ptr();
        raw.num_sge = list.len() as c_int;
        raw.opcode = wr.opcode;
        raw.send_flags = wr.flags;
        raw.imm_data = wr.imm;
        raw.wr.remote_addr = wr.remote;
        raw.wr.rkey_or_compare_add = wr.rkey.into();
        if matches!(
            wr.opcode,
            IBV_WR_ATOMIC_CMP_AND_SWP | IBV_WR_ATOMIC_FETCH_AND_ADD
        ) {
            raw.wr.rkey_or_compare_add = wr.operand;
            raw.wr.swap = wr.swap;
            raw.wr.atomic_rkey = wr.rkey;
        }
        self.post_raw(&mut raw)
    }

    /// Posts a request, which must succeed.
    pub fn start(&self, wr: &Wr) {
        assert_eq!(self.post(wr), 0);
    }

    /// Posts a request, and waits for its completion, which must be the next one.
    pub fn run(&self, wr: &Wr) {
        self.start(wr);
        assert_eq!(self.ends(), (wr.id, IBV_WC_SUCCESS));
    }

    pub fn post_raw(&self, raw: &mut ibv_send_wr) -> c_int {
        let mut bad = null_mut();
        // SAFETY:
        // - the queue pair is not destroyed, and the list has one request.
        unsafe {
            let post = (*self.context).ops.post_send.unwrap();
            let error = post(self.qp, raw, &raw mut bad);
            assert_eq!(error != 0, std::ptr::eq(bad, raw));
            error
        }
    }

    pub fn recv(&self, id: u64, offset: u64, len: u32) -> c_int {
        let mut list = self.list(&[(offset, len)], None);
        let mut raw = ibv_recv_wr {
            wr_id: id,
            next: null_mut(),
            sg_list: list.as_mut_ptr(),
            num_sge: 1,
        };
        let mut bad = null_mut();
        // SAFETY:
        // - neither queue is destroyed, and the list has one request.
        unsafe {
            let ops = &(*self.context).ops;
            match self.srq.is_null() {
                true => ops.post_recv.unwrap()(self.qp, &raw mut raw, &raw mut bad),
                false => ops.post_srq_recv.unwrap()(self.srq, &raw mut raw, &raw mut bad),
            }
        }
    }

    pub fn poll(&self) -> Option<ibv_wc> {
        let mut wc: ibv_wc = zeroed();
        // SAFETY:
        // - the queue is not destroyed.
        let count = unsafe {
            let poll = (*self.context).ops.poll_cq.unwrap();
            poll(self.cq, 1, &raw mut wc)
        };
        assert!(count >= 0);
        (count == 1).then_some(wc)
    }

    /// Waits for a completion.
    pub fn wait(&self) -> ibv_wc {
        loop {
            match self.poll() {
                Some(wc) => return wc,
                None => std::thread::yield_now(),
            }
        }
    }

    /// Waits for a completion, and returns its request and status.
    pub fn ends(&self) -> (u64, u32) {
        let wc = self.wait();
        (wc.wr_id, wc.status)
    }
}

//! Datagrams: they go to whomever an address handle names, and are lost where nobody waits for them.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use unipgas_verbs_sys::*;

use crate::context::nic_of;
use crate::engine::NicEngine;
use crate::names::fail;
use crate::packet::*;
use crate::pd;
use crate::qp::{Qp, QpState, route};

/// A datagram's data begin behind this, whether there is a routing header or not.
const ROUTING: u32 = 40;
/// Such a queue key is the sender's own.
const PRIVILEGED: u32 = 1 << 31;

/// Where a datagram goes.
pub(crate) struct DatagramAddress {
    qp: u32,
    qkey: u32,
    route: u32,
}

/// The first field is what users see.
#[repr(C)]
struct Object {
    ibv: ibv_ah,
    to: ibv_ah_attr,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_ah(domain: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah {
    // SAFETY:
    // - the caller gives a domain of an open context, and attributes.
    let (context, pd, to) = unsafe { ((*domain).context, pd::of(domain), *attr) };
    // SAFETY:
    // - as above.
    let nic = unsafe { nic_of(context) };
    if !nic.is_usable() {
        return fail(libc::EIO);
    }
    if nic.device.port(to.port_num).is_none() || (nic.device.config.ethernet && to.is_global == 0) {
        return fail(libc::EINVAL);
    }
    pd.users.fetch_add(1, SeqCst);
    let ibv = ibv_ah {
        context,
        pd: domain,
        handle: nic.handle(),
    };
    Box::into_raw(Box::new(Object { ibv, to })).cast()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_ah(handle: *mut ibv_ah) -> c_int {
    // SAFETY:
    // - the caller gives a handle of an open context, which was made by `ibv_create_ah`, and nobody uses it any more.
    unsafe {
        if !nic_of((*handle).context).is_parents() {
            pd::of((*handle).pd).users.fetch_sub(1, SeqCst);
            drop(Box::from_raw(handle.cast::<Object>()));
        }
    }
    0
}

/// Errors: the request is refused.
///
/// # Safety
/// The request is one for a queue pair of datagrams.
pub unsafe fn address(wr: &ibv_send_wr, len: u64) -> Result<DatagramAddress, c_int> {
    let handle = std::ptr::with_exposed_provenance::<Object>(wr.wr.remote_addr as usize);
    let is_sent = matches!(wr.opcode, IBV_WR_SEND | IBV_WR_SEND_WITH_IMM);
    if handle.is_null() || !is_sent || len > 4096 {
        return Err(libc::EINVAL);
    }
    // SAFETY:
    // - the request names a handle that is not destroyed.
    let to = unsafe { &(*handle).to };
    Ok(DatagramAddress {
        qp: wr.wr.rkey_or_compare_add as u32,
        qkey: (wr.wr.rkey_or_compare_add >> 32) as u32,
        route: route(to),
    })
}

impl NicEngine {
    /// They are completed when they are on their way.
    pub fn send_datagrams(&mut self, qp: &Arc<Qp>, state: &mut QpState) {
        let cut = qp.nic.device.is_cut(state.attr.port_num);
        while let Some(request) = state.sender.queue.front() {
            let Some(to) = &request.datagram else {
                return;
            };
            let own = to.qkey & PRIVILEGED != 0;
            let header = Header {
                dest: to.qp,
                source: qp.number,
                kind: DATAGRAM,
                flags: (if request.is_solicited { SOLICITED } else { 0 })
                    | if request.has_immediate() {
                        IMMEDIATE
                    } else {
                        0
                    },
                route: to.route,
                len: request.len,
                total: request.len,
                rkey: if own { state.attr.qkey } else { to.qkey },
                immediate: request.immediate,
                slid: qp.nic.device.lid(state.attr.port_num).into(),
                ..Header::default()
            };
            let mut data = Vec::new();
            match &request.inline {
                Some(inline) => data.extend_from_slice(inline),
                None => {
                    let memory = qp.nic.memory.hold();
                    let list = &request.list;
                    if memory
                        .gather(list, qp.pd.number, 0, request.len, &mut data)
                        .is_none()
                    {
                        drop(memory);
                        return qp.break_down(state, IBV_WC_LOC_PROT_ERR);
                    }
                }
            }
            match self.link_to(&qp.nic, nic_number(header.dest)) {
                Ok(link) if self.wait_if_full(link, qp) => return,
                Ok(link) if !cut => self.begin(link, &header).extend_from_slice(&data),
                _ => {}
            }
            if let Some(request) = state.sender.queue.pop_front()
                && request.is_signaled
            {
                let wc = qp.completion(request.wr_id, IBV_WC_SUCCESS, IBV_WC_SEND);
                qp.push_sent(wc, request.slot);
            }
        }
    }

    pub fn datagram(&mut self, header: &Header, data: &[u8]) {
        let Some(qp) = self.nic.qp(header.dest) else {
            return;
        };
        let state = qp.state.lock();
        let port = state.attr.port_num;
        let device = qp.nic.device;
        let is_taken = qp.kind == IBV_QPT_UD
            && matches!(state.state, IBV_QPS_RTR | IBV_QPS_RTS)
            && state.attr.qkey == header.rkey
            && !device.is_cut(port)
            && device.is_at(port, header.route);
        let Some(buffer) = is_taken.then(|| qp.recv.take()).flatten() else {
            return;
        };
        let memory = qp.nic.memory.hold();
        let fits = buffer.len >= u64::from(header.total + ROUTING);
        let written = match fits {
            true => memory.scatter(&buffer.list, qp.recv.pd.number, ROUTING, data),
            false => None,
        };
        drop(memory);
        let status = match (fits, written) {
            (false, _) => IBV_WC_LOC_LEN_ERR,
            (true, None) => IBV_WC_LOC_PROT_ERR,
            (true, Some(())) => IBV_WC_SUCCESS,
        };
        let mut wc = qp.completion(buffer.wr_id, status, IBV_WC_RECV);
        wc.byte_len = header.total + ROUTING;
        wc.src_qp = header.source;
        wc.slid = header.slid as u16;
        if header.flags & IMMEDIATE != 0 {
            wc.wc_flags = IBV_WC_WITH_IMM;
            wc.imm_data = header.immediate;
        }
        qp.push_received(wc, header.flags & SOLICITED != 0);
    }
}

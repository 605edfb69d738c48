//! Structures that cross the interface.

use std::ffi::{c_char, c_int, c_void};

use super::ops::*;

macro_rules! structures {
    ($($name:ident { $($field:ident: $ty:ty,)* })*) => {$(
        #[repr(C)]
        #[derive(Debug, Clone, Copy)]
        pub struct $name { $(pub $field: $ty,)* }

        impl $name {
            /// Name, size, and each field with its offset, for the comparison with the headers.
            pub const LAYOUT: (&'static str, usize, &'static [(&'static str, usize)]) = (
                stringify!($name),
                size_of::<$name>(),
                &[$((stringify!($field), std::mem::offset_of!($name, $field)),)*],
            );
        }
    )*
        /// The layouts of all structures.
        pub const STRUCTURES: &[(&str, usize, &[(&str, usize)])] = &[$($name::LAYOUT,)*];
    };
}

structures! {
    fid { fclass: usize, context: *mut c_void, ops: *const fi_ops, }
    fid_fabric { fid: fid, ops: *const fi_ops_fabric, api_version: u32, }
    fid_domain { fid: fid, ops: *const fi_ops_domain, mr: *const fi_ops_mr, }
    fid_av { fid: fid, ops: *const fi_ops_av, }
    fid_mr { fid: fid, mem_desc: *mut c_void, key: u64, }
    fid_eq { fid: fid, ops: *const fi_ops_eq, }
    fid_wait { fid: fid, ops: *const fi_ops_wait, }
    fi_wait_attr { wait_obj: c_int, flags: u64, }
    fid_poll { fid: fid, ops: *const fi_ops_poll, }
    fi_poll_attr { flags: u64, }
    fid_cq { fid: fid, ops: *const fi_ops_cq, }
    fid_cntr { fid: fid, ops: *const fi_ops_cntr, }
    fid_ep {
        fid: fid, ops: *const fi_ops_ep, cm: *const fi_ops_cm, msg: *const fi_ops_msg, rma: *const fi_ops_rma,
        tagged: *const fi_ops_tagged, atomic: *const fi_ops_atomic, collective: *const fi_ops_collective,
    }
    fid_stx { fid: fid, ops: *const fi_ops_ep, }
    fid_mc { fid: fid, fi_addr: u64, }
    fid_av_set { fid: fid, ops: *const fi_ops_av_set, }
    fi_av_set_attr {
        count: usize, start_addr: u64, end_addr: u64, stride: u64, comm_key_size: usize, comm_key: *mut u8, flags: u64,
    }
    fi_collective_attr { op: c_int, datatype: c_int, datatype_attr: fi_atomic_attr, max_members: usize, mode: u64, }
    fi_collective_addr { set: *const fid_av_set, coll_addr: u64, }
    fi_context { internal: [*mut c_void; 4], }
    fi_provider {
        version: u32, fi_version: u32, context: fi_context, name: *const c_char,
        getinfo: unsafe extern "C" fn(u32, *const c_char, *const c_char, u64, *const fi_info, *mut *mut fi_info) -> c_int,
        fabric: unsafe extern "C" fn(*mut fi_fabric_attr, *mut *mut fid_fabric, *mut c_void) -> c_int,
        cleanup: unsafe extern "C" fn(),
    }
    fi_tx_attr {
        caps: u64, mode: u64, op_flags: u64, msg_order: u64, comp_order: u64, inject_size: usize, size: usize, iov_limit: usize,
        rma_iov_limit: usize, tclass: u32,
    }
    fi_rx_attr {
        caps: u64, mode: u64, op_flags: u64, msg_order: u64, comp_order: u64, total_buffered_recv: usize, size: usize,
        iov_limit: usize,
    }
    fi_ep_attr {
        r#type: c_int, protocol: u32, protocol_version: u32, max_msg_size: usize, msg_prefix_size: usize, max_order_raw_size: usize,
        max_order_war_size: usize, max_order_waw_size: usize, mem_tag_format: u64, tx_ctx_cnt: usize, rx_ctx_cnt: usize,
        auth_key_size: usize, auth_key: *mut u8,
    }
    fi_domain_attr {
        domain: *mut fid_domain, name: *mut c_char, threading: c_int, control_progress: c_int, data_progress: c_int,
        resource_mgmt: c_int, av_type: c_int, mr_mode: c_int, mr_key_size: usize, cq_data_size: usize, cq_cnt: usize, ep_cnt: usize,
        tx_ctx_cnt: usize, rx_ctx_cnt: usize, max_ep_tx_ctx: usize, max_ep_rx_ctx: usize, max_ep_stx_ctx: usize,
        max_ep_srx_ctx: usize, cntr_cnt: usize, mr_iov_limit: usize, caps: u64, mode: u64, auth_key: *mut u8, auth_key_size: usize,
        max_err_data: usize, mr_cnt: usize, tclass: u32,
    }
    fi_fabric_attr {
        fabric: *mut fid_fabric, name: *mut c_char, prov_name: *mut c_char, prov_version: u32, api_version: u32,
    }
    fi_info {
        next: *mut fi_info, caps: u64, mode: u64, addr_format: u32, src_addrlen: usize, dest_addrlen: usize, src_addr: *mut c_void,
        dest_addr: *mut c_void, handle: *mut fid, tx_attr: *mut fi_tx_attr, rx_attr: *mut fi_rx_attr, ep_attr: *mut fi_ep_attr,
        domain_attr: *mut fi_domain_attr, fabric_attr: *mut fi_fabric_attr, nic: *mut c_void,
    }
    fi_av_attr {
        r#type: c_int, rx_ctx_bits: c_int, count: usize, ep_per_node: usize, name: *const c_char, map_addr: *mut c_void, flags: u64,
    }
    fi_mr_attr {
        mr_iov: *const libc::iovec, iov_count: usize, access: u64, offset: u64, requested_key: u64, context: *mut c_void,
        auth_key_size: usize, auth_key: *mut u8, iface: c_int, device: u64,
    }
    fi_eq_attr { size: usize, flags: u64, wait_obj: c_int, signaling_vector: c_int, wait_set: *mut c_void, }
    fi_eq_entry { fid: *mut fid, context: *mut c_void, data: u64, }
    fi_eq_err_entry {
        fid: *mut fid, context: *mut c_void, data: u64, err: c_int, prov_errno: c_int, err_data: *mut c_void, err_data_size: usize,
    }
    fi_cq_attr {
        size: usize, flags: u64, format: c_int, wait_obj: c_int, signaling_vector: c_int, wait_cond: c_int, wait_set: *mut c_void,
    }
    fi_cq_data_entry { op_context: *mut c_void, flags: u64, len: usize, buf: *mut c_void, data: u64, }
    fi_cq_tagged_entry { op_context: *mut c_void, flags: u64, len: usize, buf: *mut c_void, data: u64, tag: u64, }
    fi_cq_err_entry {
        op_context: *mut c_void, flags: u64, len: usize, buf: *mut c_void, data: u64, tag: u64, olen: usize, err: c_int,
        prov_errno: c_int, err_data: *mut c_void, err_data_size: usize,
    }
    fi_cntr_attr { events: c_int, wait_obj: c_int, wait_set: *mut c_void, flags: u64, }
    fi_atomic_attr { count: usize, size: usize, }
    fi_ioc { addr: *mut c_void, count: usize, }
    fi_rma_ioc { addr: u64, count: usize, key: u64, }
    fi_rma_iov { addr: u64, len: usize, key: u64, }
    fi_msg {
        msg_iov: *const libc::iovec, desc: *mut *mut c_void, iov_count: usize, addr: u64, context: *mut c_void, data: u64,
    }
    fi_msg_tagged {
        msg_iov: *const libc::iovec, desc: *mut *mut c_void, iov_count: usize, addr: u64, tag: u64, ignore: u64,
        context: *mut c_void, data: u64,
    }
    fi_msg_rma {
        msg_iov: *const libc::iovec, desc: *mut *mut c_void, iov_count: usize, addr: u64, rma_iov: *const fi_rma_iov,
        rma_iov_count: usize, context: *mut c_void, data: u64,
    }
    fi_msg_atomic {
        msg_iov: *const fi_ioc, desc: *mut *mut c_void, iov_count: usize, addr: u64, rma_iov: *const fi_rma_ioc,
        rma_iov_count: usize, datatype: c_int, op: c_int, context: *mut c_void, data: u64,
    }
    fi_msg_fetch { msg_iov: *mut fi_ioc, desc: *mut *mut c_void, iov_count: usize, }
    fi_msg_compare { msg_iov: *const fi_ioc, desc: *mut *mut c_void, iov_count: usize, }
    fi_triggered_context { event_type: c_int, trigger: [usize; 3], }
    fi_op_msg { ep: *mut fid_ep, msg: fi_msg, flags: u64, }
    fi_op_tagged { ep: *mut fid_ep, msg: fi_msg_tagged, flags: u64, }
    fi_op_rma { ep: *mut fid_ep, msg: fi_msg_rma, flags: u64, }
    fi_op_atomic { ep: *mut fid_ep, msg: fi_msg_atomic, flags: u64, }
    fi_op_fetch_atomic { ep: *mut fid_ep, msg: fi_msg_atomic, fetch: fi_msg_fetch, flags: u64, }
    fi_op_compare_atomic {
        ep: *mut fid_ep, msg: fi_msg_atomic, fetch: fi_msg_fetch, compare: fi_msg_compare, flags: u64,
    }
    fi_op_cntr { cntr: *mut fid_cntr, value: u64, }
    fi_deferred_work {
        context: [*mut c_void; 8], threshold: u64, triggering_cntr: *mut fid_cntr, completion_cntr: *mut fid_cntr, op_type: c_int,
        op: *mut c_void,
    }
    fi_alias { fid: *mut *mut fid, flags: u64, }
}

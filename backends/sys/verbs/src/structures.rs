//! Structures that cross the interface.

use std::ffi::{c_char, c_int, c_void};

macro_rules! structures {
    ($($name:ident { $($field:ident: $ty:ty,)* })*) => {$(
        #[repr(C)]
        #[derive(Debug, Clone, Copy)]
        pub struct $name { $(pub $field: $ty,)* }

        impl $name {
            /// Name, size, and each field with its offset, for the comparison with the header.
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

/// A member that unipgas does not use.
pub type Unused = Option<unsafe extern "C" fn()>;
pub type poll_cq = unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int;
pub type req_notify_cq = unsafe extern "C" fn(*mut ibv_cq, c_int) -> c_int;
pub type post_srq_recv =
    unsafe extern "C" fn(*mut ibv_srq, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int;
pub type post_send =
    unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int;
pub type post_recv =
    unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int;
/// Gets a context, an input or null, the attributes and their size.
pub type query_device_ex =
    unsafe extern "C" fn(*mut ibv_context, *const c_void, *mut ibv_device_attr_ex, usize) -> c_int;

/// 16 bytes in network order; the header's union is aligned to 8.
#[repr(C, align(8))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ibv_gid(pub [u8; 16]);

structures! {
    ibv_device {
        _ops: [Unused; 2], node_type: c_int, transport_type: c_int, name: [c_char; 64], dev_name: [c_char; 64], dev_path: [c_char; 256],
        ibdev_path: [c_char; 256],
    }
    ibv_context_ops {
        _compat_query_device: Unused, _compat_query_port: Unused, _compat_alloc_pd: Unused, _compat_dealloc_pd: Unused, _compat_reg_mr: Unused,
        _compat_rereg_mr: Unused, _compat_dereg_mr: Unused, alloc_mw: Unused, bind_mw: Unused, dealloc_mw: Unused, _compat_create_cq: Unused,
        poll_cq: Option<poll_cq>, req_notify_cq: Option<req_notify_cq>, _compat_cq_event: Unused, _compat_resize_cq: Unused,
        _compat_destroy_cq: Unused, _compat_create_srq: Unused, _compat_modify_srq: Unused, _compat_query_srq: Unused,
        _compat_destroy_srq: Unused, post_srq_recv: Option<post_srq_recv>, _compat_create_qp: Unused, _compat_query_qp: Unused,
        _compat_modify_qp: Unused, _compat_destroy_qp: Unused, post_send: Option<post_send>, post_recv: Option<post_recv>,
        _compat_create_ah: Unused, _compat_destroy_ah: Unused, _compat_attach_mcast: Unused, _compat_detach_mcast: Unused,
        _compat_async_event: Unused,
    }
    ibv_context {
        device: *mut ibv_device, ops: ibv_context_ops, cmd_fd: c_int, async_fd: c_int, num_comp_vectors: c_int, mutex: libc::pthread_mutex_t,
        abi_compat: *mut c_void,
    }
    ibv_device_attr {
        fw_ver: [c_char; 64], node_guid: u64, sys_image_guid: u64, max_mr_size: u64, page_size_cap: u64, vendor_id: u32, vendor_part_id: u32,
        hw_ver: u32, max_qp: c_int, max_qp_wr: c_int, device_cap_flags: u32, max_sge: c_int, max_sge_rd: c_int, max_cq: c_int, max_cqe: c_int,
        max_mr: c_int, max_pd: c_int, max_qp_rd_atom: c_int, max_ee_rd_atom: c_int, max_res_rd_atom: c_int, max_qp_init_rd_atom: c_int,
        max_ee_init_rd_atom: c_int, atomic_cap: u32, max_ee: c_int, max_rdd: c_int, max_mw: c_int, max_raw_ipv6_qp: c_int,
        max_raw_ethy_qp: c_int, max_mcast_grp: c_int, max_mcast_qp_attach: c_int, max_total_mcast_qp_attach: c_int, max_ah: c_int,
        max_fmr: c_int, max_map_per_fmr: c_int, max_srq: c_int, max_srq_wr: c_int, max_srq_sge: c_int, max_pkeys: u16,
        local_ca_ack_delay: u8, phys_port_cnt: u8,
    }
    ibv_port_attr {
        state: u32, max_mtu: u32, active_mtu: u32, gid_tbl_len: c_int, port_cap_flags: u32, max_msg_sz: u32, bad_pkey_cntr: u32,
        qkey_viol_cntr: u32, pkey_tbl_len: u16, lid: u16, sm_lid: u16, lmc: u8, max_vl_num: u8, sm_sl: u8, subnet_timeout: u8,
        init_type_reply: u8, active_width: u8, active_speed: u8, phys_state: u8, link_layer: u8, flags: u8, port_cap_flags2: u16,
    }
    ibv_gid_entry { gid: ibv_gid, gid_index: u32, port_num: u32, gid_type: u32, ndev_ifindex: u32, }
    ibv_pd { context: *mut ibv_context, handle: u32, }
    ibv_mr { context: *mut ibv_context, pd: *mut ibv_pd, addr: *mut c_void, length: usize, handle: u32, lkey: u32, rkey: u32, }
    ibv_comp_channel { context: *mut ibv_context, fd: c_int, refcnt: c_int, }
    ibv_cq {
        context: *mut ibv_context, channel: *mut ibv_comp_channel, cq_context: *mut c_void, handle: u32, cqe: c_int,
        mutex: libc::pthread_mutex_t, cond: libc::pthread_cond_t, comp_events_completed: u32, async_events_completed: u32,
    }
    ibv_srq {
        context: *mut ibv_context, srq_context: *mut c_void, pd: *mut ibv_pd, handle: u32, mutex: libc::pthread_mutex_t,
        cond: libc::pthread_cond_t, events_completed: u32,
    }
    ibv_qp {
        context: *mut ibv_context, qp_context: *mut c_void, pd: *mut ibv_pd, send_cq: *mut ibv_cq, recv_cq: *mut ibv_cq, srq: *mut ibv_srq,
        handle: u32, qp_num: u32, state: u32, qp_type: u32, mutex: libc::pthread_mutex_t, cond: libc::pthread_cond_t, events_completed: u32,
    }
    ibv_wc {
        wr_id: u64, status: u32, opcode: u32, vendor_err: u32, byte_len: u32, imm_data: u32, qp_num: u32, src_qp: u32, wc_flags: u32,
        pkey_index: u16, slid: u16, sl: u8, dlid_path_bits: u8,
    }
    ibv_global_route { dgid: ibv_gid, flow_label: u32, sgid_index: u8, hop_limit: u8, traffic_class: u8, }
    ibv_ah_attr {
        grh: ibv_global_route, dlid: u16, sl: u8, src_path_bits: u8, static_rate: u8, is_global: u8, port_num: u8,
    }
    ibv_srq_attr { max_wr: u32, max_sge: u32, srq_limit: u32, }
    ibv_srq_init_attr { srq_context: *mut c_void, attr: ibv_srq_attr, }
    ibv_qp_cap { max_send_wr: u32, max_recv_wr: u32, max_send_sge: u32, max_recv_sge: u32, max_inline_data: u32, }
    ibv_qp_init_attr {
        qp_context: *mut c_void, send_cq: *mut ibv_cq, recv_cq: *mut ibv_cq, srq: *mut ibv_srq, cap: ibv_qp_cap, qp_type: u32,
        sq_sig_all: c_int,
    }
    ibv_qp_attr {
        qp_state: u32, cur_qp_state: u32, path_mtu: u32, path_mig_state: u32, qkey: u32, rq_psn: u32, sq_psn: u32, dest_qp_num: u32,
        qp_access_flags: u32, cap: ibv_qp_cap, ah_attr: ibv_ah_attr, alt_ah_attr: ibv_ah_attr, pkey_index: u16, alt_pkey_index: u16,
        en_sqd_async_notify: u8, sq_draining: u8, max_rd_atomic: u8, max_dest_rd_atomic: u8, min_rnr_timer: u8, port_num: u8, timeout: u8,
        retry_cnt: u8, rnr_retry: u8, alt_port_num: u8, alt_timeout: u8, rate_limit: u32,
    }
    ibv_sge { addr: u64, length: u32, lkey: u32, }
    ibv_send_wr {
        wr_id: u64, next: *mut ibv_send_wr, sg_list: *mut ibv_sge, num_sge: c_int, opcode: u32, send_flags: u32, imm_data: u32, wr: wr_union,
        qp_type: u32, bind_mw: [u64; 6],
    }
    ibv_recv_wr { wr_id: u64, next: *mut ibv_recv_wr, sg_list: *mut ibv_sge, num_sge: c_int, }
    ibv_odp_caps { general_caps: u64, per_transport_caps: [u32; 3], }
    ibv_device_attr_ex {
        orig_attr: ibv_device_attr, comp_mask: u32, odp_caps: ibv_odp_caps, completion_timestamp_mask: u64, hca_core_clock: u64,
        device_cap_flags_ex: u64, tso_caps: [u32; 2], rss_caps: [u64; 4], max_wq_type_rq: u32, packet_pacing_caps: [u32; 3],
        raw_packet_caps: u32, tm_caps: [u32; 5], cq_mod_caps: [u16; 2], max_dm_size: u64, pci_atomic_caps: [u16; 3], xrc_odp_caps: u32,
        phys_port_cnt_ex: u32,
    }
    verbs_context {
        query_port: Unused, advise_mr: Unused, alloc_null_mr: Unused, read_counters: Unused, attach_counters_point_flow: Unused,
        create_counters: Unused, destroy_counters: Unused, reg_dm_mr: Unused, alloc_dm: Unused, free_dm: Unused,
        modify_flow_action_esp: Unused, destroy_flow_action: Unused, create_flow_action_esp: Unused, modify_qp_rate_limit: Unused,
        alloc_parent_domain: Unused, dealloc_td: Unused, alloc_td: Unused, modify_cq: Unused, post_srq_ops: Unused,
        destroy_rwq_ind_table: Unused, create_rwq_ind_table: Unused, destroy_wq: Unused, modify_wq: Unused, create_wq: Unused,
        query_rt_values: Unused, create_cq_ex: Unused, r#priv: *mut c_void, query_device_ex: Option<query_device_ex>, ibv_destroy_flow: Unused,
        ABI_placeholder2: Unused, ibv_create_flow: Unused, ABI_placeholder1: Unused, open_qp: Unused, create_qp_ex: Unused,
        get_srq_num: Unused, create_srq_ex: Unused, open_xrcd: Unused, close_xrcd: Unused, _ABI_placeholder3: u64, sz: usize,
        context: ibv_context,
    }
    ibv_async_event { element: *mut c_void, event_type: u32, }
}

/// The remote part of a work request. RDMA uses the first two words.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct wr_union {
    pub remote_addr: u64,
    /// The key of RDMA in its low 4 bytes; the operand of FETCH_AND_ADD, the comparand of CMP_AND_SWP.
    pub rkey_or_compare_add: u64,
    pub swap: u64,
    /// The key of atomic operations.
    pub atomic_rkey: u32,
}

//! Functions that programs are linked with but do not use with this device. For example, a program may load driver libraries, which register themselves; no
//! device here is theirs.

use std::ffi::{c_char, c_int};

macro_rules! absent {
    ($gives:expr => $ty:ty: $($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> $ty {
            $gives
        }
    )*};
}

absent! { libc::EOPNOTSUPP => c_int:
    __ioctl_final_num_attrs _ibv_query_gid_ex execute_ioctl ibv_attach_mcast ibv_cmd_advise_mr
    ibv_cmd_alloc_dm ibv_cmd_alloc_mw ibv_cmd_alloc_pd ibv_cmd_attach_mcast ibv_cmd_close_xrcd
    ibv_cmd_create_ah ibv_cmd_create_counters ibv_cmd_create_cq ibv_cmd_create_cq_ex
    ibv_cmd_create_flow ibv_cmd_create_flow_action_esp ibv_cmd_create_qp ibv_cmd_create_qp_ex
    ibv_cmd_create_qp_ex2 ibv_cmd_create_rwq_ind_table ibv_cmd_create_srq ibv_cmd_create_srq_ex
    ibv_cmd_create_wq ibv_cmd_dealloc_mw ibv_cmd_dealloc_pd ibv_cmd_dereg_mr ibv_cmd_destroy_ah
    ibv_cmd_destroy_counters ibv_cmd_destroy_cq ibv_cmd_destroy_flow ibv_cmd_destroy_flow_action
    ibv_cmd_destroy_qp ibv_cmd_destroy_rwq_ind_table ibv_cmd_destroy_srq ibv_cmd_destroy_wq
    ibv_cmd_detach_mcast ibv_cmd_free_dm ibv_cmd_get_context ibv_cmd_modify_cq
    ibv_cmd_modify_flow_action_esp ibv_cmd_modify_qp ibv_cmd_modify_qp_ex ibv_cmd_modify_srq
    ibv_cmd_modify_wq ibv_cmd_open_qp ibv_cmd_open_xrcd ibv_cmd_poll_cq ibv_cmd_post_recv
    ibv_cmd_post_send ibv_cmd_post_srq_recv ibv_cmd_query_context ibv_cmd_query_device_any
    ibv_cmd_query_mr ibv_cmd_query_port ibv_cmd_query_qp ibv_cmd_query_srq ibv_cmd_read_counters
    ibv_cmd_reg_dm_mr ibv_cmd_reg_dmabuf_mr ibv_cmd_reg_mr ibv_cmd_req_notify_cq ibv_cmd_rereg_mr
    ibv_cmd_resize_cq ibv_destroy_ah ibv_detach_mcast ibv_init_ah_from_wc ibv_modify_srq
    ibv_query_ece ibv_query_gid ibv_query_gid_type ibv_query_pkey ibv_query_qp_data_in_order
    ibv_query_srq ibv_rate_to_mbps ibv_rate_to_mult ibv_read_ibdev_sysfs_file ibv_register_driver
    ibv_rereg_mr ibv_resize_cq ibv_resolve_eth_l2_from_gid ibv_set_ece mbps_to_ibv_rate
    mult_to_ibv_rate
}

absent! { 0 => c_int:
    __verbs_log ibv_copy_ah_attr_from_kern ibv_copy_path_rec_from_kern ibv_copy_path_rec_to_kern
    ibv_copy_qp_attr_from_kern ibv_dofork_range ibv_dontfork_range ibv_get_pkey_index
    ibv_is_fork_initialized ibv_unimport_dm ibv_unimport_mr ibv_unimport_pd verbs_init_cq
    verbs_register_driver_34 verbs_set_ops verbs_uninit_context
}

absent! { std::ptr::null_mut() => *mut u8:
    _verbs_init_and_alloc_context ibv_create_ah ibv_create_ah_from_wc ibv_import_device
    ibv_import_dm ibv_import_mr ibv_import_pd ibv_qp_to_qp_ex ibv_reg_dmabuf_mr ibv_reg_mr_iova
    ibv_reg_mr_iova2 verbs_open_device
}

absent! { c"unknown".as_ptr() => *const c_char:
    ibv_node_type_str ibv_port_state_str
}

/// A path that does not exist: this device has no files there.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_get_sysfs_path() -> *const c_char {
    c"/nonexistent".as_ptr()
}

/// Always fails: the files do not exist.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_read_sysfs_file() -> c_int {
    -1
}

/// Drivers read it.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "that is its name")]
pub static verbs_allow_disassociate_destroy: bool = false;

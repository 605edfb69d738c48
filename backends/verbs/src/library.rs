//! Loads libibverbs.so.1 when the backend opens. Posts and polls use the function tables of a device's context.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use unipgas_core::dynamic::{self, SymbolVisibility};
use unipgas_core::functions_of_library;
use unipgas_verbs_sys::*;

const NAME: &CStr = c"libibverbs.so.1";

functions_of_library! {
    /// The library's functions.
    pub struct VerbsLibrary {
        fork_init = c"ibv_fork_init": fn() -> c_int;
        get_device_list = c"ibv_get_device_list": fn(*mut c_int) -> *mut *mut ibv_device;
        free_device_list = c"ibv_free_device_list": fn(*mut *mut ibv_device) -> ();
        open_device = c"ibv_open_device": fn(*mut ibv_device) -> *mut ibv_context;
        close_device = c"ibv_close_device": fn(*mut ibv_context) -> c_int;
        query_device = c"ibv_query_device": fn(*mut ibv_context, *mut ibv_device_attr) -> c_int;
        query_port = c"ibv_query_port": fn(*mut ibv_context, u8, *mut ibv_port_attr) -> c_int;
        query_gid_table = c"_ibv_query_gid_table": fn(*mut ibv_context, *mut ibv_gid_entry, usize, u32, usize) -> isize;
        alloc_pd = c"ibv_alloc_pd": fn(*mut ibv_context) -> *mut ibv_pd;
        dealloc_pd = c"ibv_dealloc_pd": fn(*mut ibv_pd) -> c_int;
        reg_mr = c"ibv_reg_mr": fn(*mut ibv_pd, *mut c_void, usize, c_int) -> *mut ibv_mr;
        dereg_mr = c"ibv_dereg_mr": fn(*mut ibv_mr) -> c_int;
        create_comp_channel = c"ibv_create_comp_channel": fn(*mut ibv_context) -> *mut ibv_comp_channel;
        destroy_comp_channel = c"ibv_destroy_comp_channel": fn(*mut ibv_comp_channel) -> c_int;
        create_cq = c"ibv_create_cq": fn(*mut ibv_context, c_int, *mut c_void, *mut ibv_comp_channel, c_int) -> *mut ibv_cq;
        destroy_cq = c"ibv_destroy_cq": fn(*mut ibv_cq) -> c_int;
        get_cq_event = c"ibv_get_cq_event": fn(*mut ibv_comp_channel, *mut *mut ibv_cq, *mut *mut c_void) -> c_int;
        ack_cq_events = c"ibv_ack_cq_events": fn(*mut ibv_cq, u32) -> ();
        create_srq = c"ibv_create_srq": fn(*mut ibv_pd, *mut ibv_srq_init_attr) -> *mut ibv_srq;
        destroy_srq = c"ibv_destroy_srq": fn(*mut ibv_srq) -> c_int;
        create_qp = c"ibv_create_qp": fn(*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp;
        modify_qp = c"ibv_modify_qp": fn(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int;
        destroy_qp = c"ibv_destroy_qp": fn(*mut ibv_qp) -> c_int;
        get_async_event = c"ibv_get_async_event": fn(*mut ibv_context, *mut ibv_async_event) -> c_int;
        ack_async_event = c"ibv_ack_async_event": fn(*mut ibv_async_event) -> ();
        wc_status_str = c"ibv_wc_status_str": fn(u32) -> *const c_char;
        event_type_str = c"ibv_event_type_str": fn(u32) -> *const c_char;
    }
}

impl VerbsLibrary {
    /// The library of this process. Errors: the reason why it is not usable.
    pub fn get() -> Result<&'static VerbsLibrary, String> {
        static LOADED: OnceLock<Result<VerbsLibrary, String>> = OnceLock::new();
        LOADED
            .get_or_init(|| {
                let library = VerbsLibrary::find(&dynamic::DynamicLibrary::load(
                    NAME,
                    SymbolVisibility::Private,
                )?)?;
                // Before registrations: a kernel that does not copy pinned pages at a fork then keeps them from the child. It fails if the program has
                // registered
                // memory before, and so has made its own choice.
                // SAFETY:
                // - it has no arguments, and is valid at any time.
                let refused = unsafe { (library.fork_init)() };
                if refused != 0 {
                    tracing::debug!("verbs: ibv_fork_init: error {refused}");
                }
                Ok(library)
            })
            .as_ref()
            .map_err(String::clone)
    }

    /// Text for the status of a completion.
    pub fn status(&self, status: u32) -> String {
        // SAFETY:
        // - for any number, the result is null or a C string that is never freed.
        unsafe { text((self.wc_status_str)(status), status) }
    }

    /// Name of an asynchronous event.
    pub fn event(&self, event: u32) -> String {
        // SAFETY:
        // - as above.
        unsafe { text((self.event_type_str)(event), event) }
    }
}

/// # Safety
/// `text` is null, or a C string that is never freed.
unsafe fn text(text: *const c_char, number: u32) -> String {
    if text.is_null() {
        return format!("number {number}");
    }
    // SAFETY:
    // - contract of this call: `text` is a C string.
    unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned()
}

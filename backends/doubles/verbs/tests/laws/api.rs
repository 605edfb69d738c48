//! The functions of the library, loaded by dlopen as in a program.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::OnceLock;

use unipgas_verbs_sys::*;

macro_rules! functions {
    ($($name:ident($($arg:ty),*) -> $gives:ty;)*) => {
        pub(crate) struct VerbsFunctions { $(pub $name: unsafe extern "C" fn($($arg),*) -> $gives,)* }

        fn load(library: *mut c_void) -> VerbsFunctions {
            VerbsFunctions {$(
                $name: {
                    let name = CString::new(stringify!($name)).unwrap();
                    // SAFETY:
                    // - the library is loaded, and stays loaded;
                    // - the function has this type.
                    unsafe {
                        let address = libc::dlsym(library, name.as_ptr());
                        assert!(!address.is_null(), "{name:?} is not there");
                        std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($arg),*) -> $gives>(address)
                    }
                },
            )*}
        }
    };
}

functions! {
    ibv_get_device_list(*mut c_int) -> *mut *mut ibv_device;
    ibv_free_device_list(*mut *mut ibv_device) -> ();
    ibv_open_device(*mut ibv_device) -> *mut ibv_context;
    ibv_close_device(*mut ibv_context) -> c_int;
    ibv_query_device(*mut ibv_context, *mut ibv_device_attr) -> c_int;
    ibv_query_port(*mut ibv_context, u8, *mut ibv_port_attr) -> c_int;
    _ibv_query_gid_table(*mut ibv_context, *mut ibv_gid_entry, usize, u32, usize) -> isize;
    ibv_alloc_pd(*mut ibv_context) -> *mut ibv_pd;
    ibv_dealloc_pd(*mut ibv_pd) -> c_int;
    ibv_reg_mr(*mut ibv_pd, *mut c_void, usize, c_int) -> *mut ibv_mr;
    ibv_dereg_mr(*mut ibv_mr) -> c_int;
    ibv_create_comp_channel(*mut ibv_context) -> *mut ibv_comp_channel;
    ibv_destroy_comp_channel(*mut ibv_comp_channel) -> c_int;
    ibv_create_cq(*mut ibv_context, c_int, *mut c_void, *mut ibv_comp_channel, c_int) -> *mut ibv_cq;
    ibv_destroy_cq(*mut ibv_cq) -> c_int;
    ibv_get_cq_event(*mut ibv_comp_channel, *mut *mut ibv_cq, *mut *mut c_void) -> c_int;
    ibv_ack_cq_events(*mut ibv_cq, u32) -> ();
    ibv_create_srq(*mut ibv_pd, *mut ibv_srq_init_attr) -> *mut ibv_srq;
    ibv_destroy_srq(*mut ibv_srq) -> c_int;
    ibv_create_qp(*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp;
    ibv_modify_qp(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int;
    ibv_query_qp(*mut ibv_qp, *mut ibv_qp_attr, c_int, *mut ibv_qp_init_attr) -> c_int;
    ibv_destroy_qp(*mut ibv_qp) -> c_int;
    ibv_get_async_event(*mut ibv_context, *mut ibv_async_event) -> c_int;
    ibv_ack_async_event(*mut ibv_async_event) -> ();
    verbs_double_count(*const c_char) -> u64;
    verbs_double_inject(*const c_char) -> c_int;
}

pub fn api() -> &'static VerbsFunctions {
    static API: OnceLock<VerbsFunctions> = OnceLock::new();
    API.get_or_init(|| {
        let own = std::env::current_exe().unwrap();
        let beside = own.with_file_name("libverbs_double.so");
        let path = CString::new(beside.into_os_string().into_encoded_bytes()).unwrap();
        // SAFETY:
        // - its constructors do nothing.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!library.is_null(), "{path:?} cannot be loaded");
        load(library)
    })
}

pub fn count(name: &CStr) -> u64 {
    // SAFETY:
    // - the argument is a C string.
    let count = unsafe { (api().verbs_double_count)(name.as_ptr()) };
    assert_ne!(count, u64::MAX, "{name:?}");
    count
}

pub fn inject(what: &CStr) {
    // SAFETY:
    // - the argument is a C string.
    let error = unsafe { (api().verbs_double_inject)(what.as_ptr()) };
    assert_eq!(error, 0, "{what:?}");
}

pub fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap()
}

/// A structure with all fields 0.
pub fn zeroed<T: Copy>() -> T {
    // SAFETY:
    // - `T` is a structure of the interface, and zero is valid in all its fields.
    unsafe { std::mem::zeroed() }
}

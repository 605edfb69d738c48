//! The list of all functions, and the table of them that a program fills from a library.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::NonNull;

use crate::constants::RCCE_MAXNP;
use crate::types::*;

/// Passes to `$callback!` the declarations of all 120 functions: `fn name(parameter: type, ...) -> result;`. A function without a result
/// has `()`. The caller needs the types, by `use unipgas_ircce_sys::*`.
#[macro_export]
macro_rules! ircce_functions {
    ($callback:ident) => {
        $callback! {
            fn RCCE_bcast(data: *mut c_char, size: usize, root: c_int, comm: RCCE_COMM) -> i32;
            fn iRCCE_bcast(data: *mut c_char, size: usize, root: c_int, comm: RCCE_COMM) -> i32;
            fn iRCCE_mcast(data: *mut c_char, size: usize, root: c_int) -> i32;
            fn iRCCE_msend(data: *mut c_char, len: isize) -> i32;
            fn iRCCE_mrecv_within(buffer: *mut c_char, len: isize, from: c_int, capacity: usize) -> i32;
            fn iRCCE_mrecv(buffer: *mut c_char, len: isize, from: c_int) -> i32;
            fn RCCE_reduce(
                data: *mut c_char, result: *mut c_char, num: c_int, ty: c_int, op: c_int, root: c_int, comm: RCCE_COMM,
            ) -> i32;
            fn RCCE_allreduce(data: *mut c_char, result: *mut c_char, num: c_int, ty: c_int, op: c_int, comm: RCCE_COMM) -> i32;
            fn RCCE_comm_split(colour: Option<RCCE_COLOUR>, aux: *mut c_void, comm: *mut RCCE_COMM) -> i32;
            fn RCCE_comm_free(comm: *mut RCCE_COMM) -> i32;
            fn RCCE_comm_size(comm: RCCE_COMM, size: *mut c_int) -> i32;
            fn RCCE_comm_rank(comm: RCCE_COMM, rank: *mut c_int) -> i32;
            fn RCCE_barrier(comm: *mut RCCE_COMM) -> i32;
            fn iRCCE_barrier(comm: *mut RCCE_COMM) -> i32;
            fn RCCE_flag_alloc(flag: *mut RCCE_FLAG) -> i32;
            fn iRCCE_flag_alloc(flag: *mut RCCE_FLAG) -> i32;
            fn iRCCE_flag_alloc_tagged(flag: *mut RCCE_FLAG) -> i32;
            fn RCCE_flag_free(flag: *mut RCCE_FLAG) -> i32;
            fn RCCE_flag_write(flag: *mut RCCE_FLAG, value: c_int, id: c_int) -> i32;
            fn RCCE_flag_write_gory(flag: *mut RCCE_FLAG, value: c_int, id: c_int) -> i32;
            fn iRCCE_flag_write(flag: *mut RCCE_FLAG, value: c_int, id: c_int) -> i32;
            fn RCCE_flag_read(flag: RCCE_FLAG, value: *mut c_int, id: c_int) -> i32;
            fn iRCCE_flag_read(flag: RCCE_FLAG, value: *mut c_int, id: c_int) -> i32;
            fn RCCE_wait_until(flag: RCCE_FLAG, value: c_int) -> i32;
            fn RCCE_wait_until_gory(flag: RCCE_FLAG, value: c_int) -> i32;
            fn iRCCE_wait_until(flag: RCCE_FLAG, value: c_int) -> i32;
            fn RCCE_test_flag(flag: RCCE_FLAG, value: c_int, result: *mut c_int) -> i32;
            fn iRCCE_test_flag(flag: RCCE_FLAG, value: c_int, result: *mut c_int) -> i32;
            fn iRCCE_flag_write_tagged(flag: *mut RCCE_FLAG, value: c_int, id: c_int, tag: *mut c_void, len: c_int) -> i32;
            fn iRCCE_flag_read_tagged(address: RCCE_FLAG, value: *mut c_int, id: c_int, tag: *mut c_void, len: c_int) -> i32;
            fn iRCCE_wait_tagged(address: RCCE_FLAG, value: c_int, tag: *mut c_void, len: c_int) -> i32;
            fn iRCCE_test_tagged(address: RCCE_FLAG, value: c_int, result: *mut c_int, tag: *mut c_void, len: c_int) -> i32;
            fn RCCE_probe(flag: RCCE_FLAG) -> c_int;
            fn iRCCE_get_max_tagged_len() -> c_int;
            fn RCCE_acquire_lock(id: c_int) -> i32;
            fn RCCE_release_lock(id: c_int) -> i32;
            fn iRCCE_atomic_alloc(register: *mut *const iRCCE_AIR) -> i32;
            fn iRCCE_atomic_inc(register: *const iRCCE_AIR, value: *mut c_int) -> i32;
            fn iRCCE_atomic_read(register: *const iRCCE_AIR, value: *mut c_int) -> i32;
            fn iRCCE_atomic_write(register: *const iRCCE_AIR, value: c_int) -> i32;
            fn iRCCE_isend(data: *mut c_char, len: isize, dest: c_int, request: *mut iRCCE_SEND_REQUEST) -> i32;
            fn iRCCE_issend(data: *mut c_char, len: isize, dest: c_int, request: *mut iRCCE_SEND_REQUEST) -> i32;
            fn iRCCE_isend_test(request: *mut iRCCE_SEND_REQUEST, flag: *mut c_int) -> i32;
            fn iRCCE_isend_wait(request: *mut iRCCE_SEND_REQUEST) -> i32;
            fn iRCCE_isend_push() -> i32;
            fn iRCCE_isend_cancel(request: *mut iRCCE_SEND_REQUEST, flag: *mut c_int) -> i32;
            fn iRCCE_irecv_within(
                buffer: *mut c_char, len: isize, from: c_int, request: *mut iRCCE_RECV_REQUEST, capacity: usize,
            ) -> i32;
            fn iRCCE_isrecv_within(
                buffer: *mut c_char, len: isize, from: c_int, request: *mut iRCCE_RECV_REQUEST, capacity: usize,
            ) -> i32;
            fn iRCCE_irecv(buffer: *mut c_char, len: isize, from: c_int, request: *mut iRCCE_RECV_REQUEST) -> i32;
            fn iRCCE_isrecv(buffer: *mut c_char, len: isize, from: c_int, request: *mut iRCCE_RECV_REQUEST) -> i32;
            fn iRCCE_irecv_test(request: *mut iRCCE_RECV_REQUEST, flag: *mut c_int) -> i32;
            fn iRCCE_irecv_wait(request: *mut iRCCE_RECV_REQUEST) -> i32;
            fn iRCCE_irecv_push() -> i32;
            fn iRCCE_irecv_cancel(request: *mut iRCCE_RECV_REQUEST, flag: *mut c_int) -> i32;
            fn iRCCE_ssend(data: *mut c_char, len: isize, dest: c_int) -> i32;
            fn iRCCE_srecv_within(buffer: *mut c_char, len: isize, from: c_int, capacity: usize) -> i32;
            fn iRCCE_srecv(buffer: *mut c_char, len: isize, from: c_int) -> i32;
            fn iRCCE_send(data: *mut c_char, len: isize, dest: c_int) -> i32;
            fn iRCCE_recv(buffer: *mut c_char, len: isize, from: c_int) -> i32;
            fn iRCCE_recv_test(buffer: *mut c_char, len: isize, from: c_int, test: *mut c_int) -> i32;
            fn iRCCE_srecv_test(buffer: *mut c_char, len: isize, from: c_int, test: *mut c_int) -> i32;
            fn iRCCE_probe(from: c_int, rank: *mut c_int) -> i32;
            fn iRCCE_iprobe(from: c_int, rank: *mut c_int, flag: *mut c_int) -> i32;
            fn RCCE_send(data: *mut c_char, size: usize, dest: c_int) -> i32;
            fn RCCE_recv(buffer: *mut c_char, size: usize, from: c_int) -> i32;
            fn RCCE_recv_test(buffer: *mut c_char, size: usize, from: c_int, test: *mut c_int) -> i32;
            fn RCCE_send_gory(
                data: *mut c_char, window: *mut u8, chunk: usize, ready: *mut *mut c_int, sent: *mut *mut c_int, size:
                usize, dest: c_int,
            ) -> i32;
            fn RCCE_recv_gory(
                buffer: *mut c_char, window: *mut u8, chunk: usize, ready: *mut *mut c_int, sent: *mut *mut c_int, size:
                usize, from: c_int,
            ) -> i32;
            fn RCCE_recv_test_gory(
                buffer: *mut c_char, window: *mut u8, chunk: usize, ready: *mut *mut c_int, sent: *mut *mut c_int, size:
                usize, from: c_int, test: *mut c_int,
            ) -> i32;
            fn iRCCE_get_dest(request: *mut iRCCE_SEND_REQUEST) -> c_int;
            fn iRCCE_get_source(request: *mut iRCCE_RECV_REQUEST) -> c_int;
            fn iRCCE_get_size(send: *mut iRCCE_SEND_REQUEST, receive: *mut iRCCE_RECV_REQUEST) -> c_int;
            fn iRCCE_get_length() -> c_int;
            fn iRCCE_get_status(send: *mut iRCCE_SEND_REQUEST, receive: *mut iRCCE_RECV_REQUEST) -> c_int;
            fn RCCE_malloc(size: usize) -> *mut u8;
            fn RCCE_malloc_gory(size: usize) -> *mut u8;
            fn iRCCE_malloc(size: usize) -> *mut u8;
            fn RCCE_malloc_request(size: usize, chunk: *mut usize) -> *mut u8;
            fn RCCE_malloc_request_gory(size: usize, chunk: *mut usize) -> *mut u8;
            fn RCCE_free(address: *mut u8) -> ();
            fn RCCE_fence() -> ();
            fn iRCCE_memcpy_put(dest: *mut c_void, src: *const c_void, num: usize) -> *mut c_void;
            fn iRCCE_memcpy_get(dest: *mut c_void, src: *const c_void, num: usize) -> *mut c_void;
            fn RCCE_put(target: *mut u8, source: *mut u8, size: c_int, id: c_int) -> i32;
            fn RCCE_get(target: *mut u8, source: *mut u8, size: c_int, id: c_int) -> i32;
            fn RCCE_put_gory(target: *mut u8, source: *mut u8, size: c_int, id: c_int) -> i32;
            fn RCCE_get_gory(target: *mut u8, source: *mut u8, size: c_int, id: c_int) -> i32;
            fn iRCCE_put(target: *mut u8, source: *mut u8, size: c_int, rank: c_int) -> i32;
            fn iRCCE_get(target: *mut u8, source: *mut u8, size: c_int, rank: c_int) -> i32;
            fn RCCE_iset_power(divider: c_int, request: *mut RCCE_REQUEST, new_divider: *mut c_int, new_level: *mut c_int) -> i32;
            fn RCCE_wait_power(request: *mut RCCE_REQUEST) -> i32;
            fn RCCE_set_frequency_divider(divider: c_int, new_divider: *mut c_int) -> i32;
            fn print_dividers() -> ();
            fn RCCE_power_domain() -> c_int;
            fn RCCE_power_domain_master() -> c_int;
            fn RCCE_power_domain_size() -> c_int;
            fn RCCE_init(argc: *mut c_int, argv: *mut *mut *mut c_char) -> i32;
            fn RCCE_finalize() -> i32;
            fn iRCCE_init() -> i32;
            fn RCCE_debug_set(flag: c_int) -> i32;
            fn RCCE_debug_unset(flag: c_int) -> i32;
            fn RCCE_error_string(code: c_int, string: *mut c_char, length: *mut c_int) -> i32;
            fn RCCE_ue() -> c_int;
            fn RCCE_num_ues() -> c_int;
            fn RCCE_wtime() -> f64;
            fn RCCE_shmalloc(size: usize) -> *mut u8;
            fn RCCE_shmalloc_init(memory: *mut u8, size: usize) -> ();
            fn RCCE_malloc_init(memory: *mut u8, size: usize) -> ();
            fn RCCE_error_return(debug: c_int, error: c_int) -> c_int;
            fn RC_cache_invalidate() -> ();
            fn RCCE_global_color(id: c_int, aux: *mut c_void) -> c_int;
            fn RC_COMM_BUFFER_START(id: c_int) -> *mut u8;
            fn RCCE_shmalloc_request(size: usize, chunk: *mut usize) -> *mut u8;
            fn RCCE_shfree(address: *mut u8) -> ();
            fn RCCE_shflush() -> ();
            fn RCCE_DCMflush() -> i32;
            fn RCCE_qsort(base: *mut c_char, num: usize, size: usize, compare: Option<RCCE_COMPARE>) -> c_int;
            fn id_compare(one: *const c_void, other: *const c_void) -> c_int;
            fn iRCCE_test_all(wait_list: *mut iRCCE_WAIT_LIST, flag: *mut c_int) -> i32;
            fn iRCCE_wait_all(wait_list: *mut iRCCE_WAIT_LIST) -> i32;
            fn iRCCE_test_any(
                wait_list: *mut iRCCE_WAIT_LIST, send: *mut *mut iRCCE_SEND_REQUEST, receive: *mut *mut
                iRCCE_RECV_REQUEST,
            ) -> i32;
            fn iRCCE_wait_any(
                wait_list: *mut iRCCE_WAIT_LIST, send: *mut *mut iRCCE_SEND_REQUEST, receive: *mut *mut
                iRCCE_RECV_REQUEST,
            ) -> i32;
            fn iRCCE_init_wait_list(wait_list: *mut iRCCE_WAIT_LIST) -> ();
            fn iRCCE_add_to_wait_list(
                wait_list: *mut iRCCE_WAIT_LIST, send: *mut iRCCE_SEND_REQUEST, receive: *mut iRCCE_RECV_REQUEST,
            ) -> ();
            fn iRCCE_add_send_to_wait_list(wait_list: *mut iRCCE_WAIT_LIST, request: *mut iRCCE_SEND_REQUEST) -> ();
            fn iRCCE_add_recv_to_wait_list(wait_list: *mut iRCCE_WAIT_LIST, request: *mut iRCCE_RECV_REQUEST) -> ();
        }
    };
}

macro_rules! table {
    ($(fn $name:ident($($parameter:ident: $ty:ty),* $(,)?) -> $result:ty;)*) => {
        /// The functions of a loaded library; `None` for a function that the library lacks.
        #[derive(Debug, Clone, Copy)]
        pub struct RcceFunctions {
            $(pub $name: Option<unsafe extern "C" fn($($parameter: $ty),*) -> $result>,)*
        }

        impl RcceFunctions {
            /// The names, in the order of the list.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($name)),*];

            /// The table of the functions that `symbol` finds; `symbol` returns null for a name that the library lacks.
            ///
            /// # Safety
            /// `symbol` returns null, or the address of the function of that name. The function stays loaded.
            pub unsafe fn load(symbol: impl Fn(&CStr) -> *mut c_void) -> Self {
                RcceFunctions {
                    $($name: {
                        let found = symbol(const { c_name(concat!(stringify!($name), "\0")) });
                        // SAFETY:
                        // - null becomes `None`; any other address is the function of this name (contract of this call). The header declares this type.
                        unsafe { std::mem::transmute::<*mut c_void, Option<unsafe extern "C" fn($($ty),*) -> $result>>(found) }
                    },)*
                }
            }

            /// The names that the library lacks.
            pub fn missing(&self) -> impl Iterator<Item = &'static str> {
                [$((stringify!($name), self.$name.is_none())),*]
                    .into_iter()
                    .filter_map(|(name, is_missing)| is_missing.then_some(name))
            }
        }
    };
}

const fn c_name(name: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(name.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!("a name has no zero in it"),
    }
}

ircce_functions!(table);

/// The variables of a loaded library, which `RCCE_init` writes; `None` for a variable that the library lacks.
#[derive(Debug, Clone, Copy)]
pub struct Variables {
    pub RCCE_IAM: Option<NonNull<c_int>>,
    pub RCCE_NP: Option<NonNull<c_int>>,
    pub RC_COREID: Option<NonNull<[c_int; RCCE_MAXNP]>>,
    pub RCCE_COMM_WORLD: Option<NonNull<RCCE_COMM>>,
    pub iRCCE_ANY_SOURCE: Option<NonNull<c_int>>,
    pub iRCCE_ANY_LENGTH: Option<NonNull<c_int>>,
}

// SAFETY:
// - addresses of variables, which any thread may hold; code that dereferences one must ensure a valid access.
unsafe impl Send for Variables {}
// SAFETY:
// - as for Send.
unsafe impl Sync for Variables {}

impl Variables {
    /// The variables that `symbol` finds; `symbol` returns null for a name that the library lacks.
    pub fn load(symbol: impl Fn(&CStr) -> *mut c_void) -> Self {
        Variables {
            RCCE_IAM: NonNull::new(symbol(c"RCCE_IAM").cast()),
            RCCE_NP: NonNull::new(symbol(c"RCCE_NP").cast()),
            RC_COREID: NonNull::new(symbol(c"RC_COREID").cast()),
            RCCE_COMM_WORLD: NonNull::new(symbol(c"RCCE_COMM_WORLD").cast()),
            iRCCE_ANY_SOURCE: NonNull::new(symbol(c"iRCCE_ANY_SOURCE").cast()),
            iRCCE_ANY_LENGTH: NonNull::new(symbol(c"iRCCE_ANY_LENGTH").cast()),
        }
    }
}

//! The part of libpmix.so.2 that this crate needs. It is loaded if a PMIx server has started this process.
//!
//! Layouts and numbers follow the PMIx standard's C binding, release 4. A C program in the tests compares them with the headers.

use std::ffi::{CStr, c_char, c_int, c_void};

use unipgas_base::dynamic::{self, SymbolVisibility};
use unipgas_base::{Error, Result, functions_of_library};

pub(super) const NAMESPACE_LEN: usize = 256;
pub(super) const KEY_LEN: usize = 512;

pub(super) const SUCCESS: c_int = 0;
pub(super) const ERR_NOT_FOUND: c_int = -46;
/// The rank that means the whole job.
pub(super) const WILDCARD: u32 = u32::MAX - 1;
pub(super) const SCOPE_GLOBAL: u8 = 3;

pub(super) const TYPE_BOOL: u16 = 1;
pub(super) const TYPE_STRING: u16 = 3;
pub(super) const TYPE_UINT32: u16 = 14;
pub(super) const TYPE_PROC: u16 = 22;
pub(super) const TYPE_BYTES: u16 = 27;

/// pmix_proc_t.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Proc {
    pub namespace: [u8; NAMESPACE_LEN],
    pub rank: u32,
}

/// pmix_byte_object_t.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Bytes {
    pub bytes: *mut c_char,
    pub len: usize,
}

/// The union in pmix_value_t. Its longest member has three words.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) union Data {
    pub flag: bool,
    pub number: u32,
    pub signed: c_int,
    pub text: *mut c_char,
    pub bytes: Bytes,
    pub process: *const Proc,
    pub words: [u64; 3],
}

/// pmix_value_t.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Value {
    pub kind: u16,
    pub data: Data,
}

/// pmix_info_t.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Info {
    pub key: [u8; KEY_LEN],
    pub flags: u32,
    pub value: Value,
}

impl Info {
    pub(crate) fn new(key: &CStr, kind: u16, data: Data) -> Self {
        let mut info = Info {
            key: [0; KEY_LEN],
            flags: 0,
            value: Value { kind, data },
        };
        info.key[..key.count_bytes()].copy_from_slice(key.to_bytes());
        info
    }
}

pub(super) type Done = unsafe extern "C" fn(c_int, *mut c_void);
pub(super) type Answered = unsafe extern "C" fn(c_int, *mut Value, *mut c_void);
pub(super) type Handled =
    unsafe extern "C" fn(c_int, *mut Info, usize, Option<Done>, *mut c_void, *mut c_void);
pub(super) type Handler = unsafe extern "C" fn(
    usize,
    c_int,
    *const Proc,
    *const Info,
    usize,
    *mut Info,
    usize,
    Option<Handled>,
    *mut c_void,
);
pub(super) type Registered = unsafe extern "C" fn(c_int, usize, *mut c_void);

functions_of_library! {
    /// The functions.
    pub(super) struct Library {
        init = c"PMIx_Init": fn(*mut Proc, *const Info, usize) -> c_int;
        finalize = c"PMIx_Finalize": fn(*const Info, usize) -> c_int;
        get = c"PMIx_Get": fn(*const Proc, *const c_char, *const Info, usize, *mut *mut Value) -> c_int;
        ask = c"PMIx_Get_nb": fn(*const Proc, *const c_char, *const Info, usize, Answered, *mut c_void) -> c_int;
        put = c"PMIx_Put": fn(u8, *const c_char, *const Value) -> c_int;
        commit = c"PMIx_Commit": fn() -> c_int;
        fence = c"PMIx_Fence_nb": fn(*const Proc, usize, *const Info, usize, Done, *mut c_void) -> c_int;
        watch = c"PMIx_Register_event_handler": fn(*const c_int, usize, *const Info, usize, Handler, Option<Registered>, *mut c_void) -> ();
        text = c"PMIx_Error_string": fn(c_int) -> *const c_char;
    }
}

impl Library {
    /// Loads the library, for the rest of the process. Errors: [`Error::Unreachable`] with the reason.
    pub fn load() -> Result<Self> {
        let loaded = dynamic::DynamicLibrary::load(c"libpmix.so.2", SymbolVisibility::ToAll);
        loaded
            .and_then(|loaded| Library::find(&loaded))
            .map_err(|why| {
                Error::Unreachable(format!("a PMIx server has started this process, but {why}"))
            })
    }
}

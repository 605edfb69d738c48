//! Common code of the tests: the functions of the double, and two VCQs of one process.

use std::alloc::{Layout, alloc_zeroed};
use std::ffi::{CStr, CString, c_char, c_int, c_ulong, c_void};
use std::os::unix::ffi::OsStringExt;
use std::sync::OnceLock;

use unipgas_utofu_sys::*;

pub const TCQ: c_ulong = UTOFU_ONESIDED_FLAG_TCQ_NOTICE;
pub const LOCAL: c_ulong = UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE;
pub const REMOTE: c_ulong = UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE;
pub const SIZE: usize = 1 << 16;

/// A symbol of the double, or null.
fn symbol(name: &CStr) -> *mut c_void {
    static LIBRARY: OnceLock<usize> = OnceLock::new();
    let library = LIBRARY.get_or_init(|| {
        let path = std::env::current_exe()
            .unwrap()
            .with_file_name("libtofu_double.so");
        let path = CString::new(path.into_os_string().into_vec()).unwrap();
        // SAFETY:
        // - the path is a C string.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(
            !library.is_null(),
            "cargo has not built libtofu_double.so beside this test"
        );
        library.expose_provenance()
    });
    // SAFETY:
    // - the library is never closed, and the name is a C string.
    unsafe {
        libc::dlsym(
            std::ptr::with_exposed_provenance_mut(*library),
            name.as_ptr(),
        )
    }
}

/// The functions of the double.
pub fn tofu() -> &'static UtofuFunctions {
    static FUNCTIONS: OnceLock<UtofuFunctions> = OnceLock::new();
    FUNCTIONS.get_or_init(|| {
        // SAFETY:
        // - the symbols are from a libtofucom, which stays loaded.
        unsafe { UtofuFunctions::load(symbol) }.unwrap()
    })
}

/// Calls a function: `call!(utofu_nop(handle, 0, cbdata))`.
macro_rules! call {
    ($name:ident($($argument:expr),* $(,)?)) => {{
        let function = crate::kit::tofu().$name;
        #[allow(unused_unsafe, reason = "where an argument is a separate expression")]
        // SAFETY:
        // - the pointers of a test are valid, and the double refuses other wrong arguments.
        unsafe { function($($argument),*) }
    }};
}
pub(crate) use call;

/// Calls a function that must succeed: `ok!(utofu_nop(handle, 0, cbdata))`.
macro_rules! ok {
    ($($call:tt)*) => { assert_eq!(crate::kit::call!($($call)*), UTOFU_SUCCESS) };
}
pub(crate) use ok;

/// The counts from `tofu_double_counts`.
pub fn counts() -> serde_json::Value {
    // SAFETY:
    // - the function has this type.
    let function = unsafe {
        std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_char, usize) -> usize>(
            symbol(c"tofu_double_counts"),
        )
    };
    let mut text = vec![0u8; 1 << 16];
    // SAFETY:
    // - `text` has the stated number of bytes.
    let used = unsafe { function(text.as_mut_ptr().cast(), text.len()) };
    serde_json::from_slice(&text[..used - 1]).unwrap()
}

/// A number as cbdata.
pub fn cbdata(number: usize) -> *mut c_void {
    std::ptr::without_provenance_mut(number)
}

#[derive(Clone, Copy)]
pub(crate) struct TestVcq {
    pub handle: utofu_vcq_hdl_t,
    pub id: utofu_vcq_id_t,
    pub memory: *mut u8,
    pub stadd: utofu_stadd_t,
}

/// Memory that is never freed.
pub fn memory() -> *mut u8 {
    let layout = Layout::from_size_align(SIZE, 4096).unwrap();
    // SAFETY:
    // - the size is not 0.
    let memory = unsafe { alloc_zeroed(layout) };
    assert!(!memory.is_null());
    memory
}

pub fn create(tni: utofu_tni_id_t, flags: c_ulong) -> Result<utofu_vcq_hdl_t, c_int> {
    let mut handle = 0;
    match call!(utofu_create_vcq(tni, flags, &mut handle)) {
        UTOFU_SUCCESS => Ok(handle),
        code => Err(code),
    }
}

impl TestVcq {
    pub fn new(tni: utofu_tni_id_t, flags: c_ulong) -> Self {
        let handle = create(tni, flags).unwrap();
        let (mut id, mut stadd, memory) = (0, 0, memory());
        ok!(utofu_query_vcq_id(handle, &mut id));
        ok!(utofu_reg_mem(handle, memory.cast(), SIZE, 0, &mut stadd));
        TestVcq {
            handle,
            id,
            memory,
            stadd,
        }
    }

    pub fn set(&self, offset: usize, value: u64) {
        // SAFETY:
        // - the word is inside the memory, and aligned.
        unsafe { self.memory.add(offset).cast::<u64>().write_volatile(value) }
    }

    pub fn word(&self, offset: usize) -> u64 {
        // SAFETY:
        // - the word is inside the memory, and aligned.
        unsafe { self.memory.add(offset).cast::<u64>().read_volatile() }
    }

    /// Puts a word from the beginning of its memory to that of `other`.
    pub fn put(&self, other: &TestVcq, flags: c_ulong, number: usize) -> c_int {
        self.put_from(self.stadd, other, (8, 7), flags, number)
    }

    /// Puts from a local STADD, with this length and edata.
    pub fn put_from(
        &self,
        from: utofu_stadd_t,
        other: &TestVcq,
        (length, edata): (usize, u64),
        flags: c_ulong,
        number: usize,
    ) -> c_int {
        let (own, id, to, context) = (self.handle, other.id, other.stadd, cbdata(number));
        call!(utofu_put(own, id, from, to, length, edata, flags, context))
    }

    /// Puts up to 8 bytes of a word to this offset of `other`'s memory.
    pub fn put_word(
        &self,
        other: &TestVcq,
        at: u64,
        (word, length): (u64, usize),
        flags: c_ulong,
        number: usize,
    ) -> c_int {
        let (own, id, to, context) = (self.handle, other.id, other.stadd + at, cbdata(number));
        call!(utofu_put_piggyback8(
            own, id, word, to, length, 0, flags, context
        ))
    }

    /// Puts blocks with this length, distance and number.
    pub fn put_stride(
        &self,
        other: &TestVcq,
        (length, stride, blocks): (usize, usize, usize),
        flags: c_ulong,
        number: usize,
    ) -> c_int {
        call!(utofu_put_stride(
            self.handle,
            other.id,
            self.stadd,
            other.stadd,
            length,
            stride,
            blocks,
            7,
            flags,
            cbdata(number)
        ))
    }

    pub fn get(&self, other: &TestVcq, flags: c_ulong, number: usize) -> c_int {
        self.get_bytes(other, 8, flags, number)
    }

    pub fn get_bytes(
        &self,
        other: &TestVcq,
        length: usize,
        flags: c_ulong,
        number: usize,
    ) -> c_int {
        let (own, id, context) = (self.handle, other.id, cbdata(number));
        let (to, from) = (self.stadd, other.stadd);
        call!(utofu_get(own, id, to, from, length, 7, flags, context))
    }

    /// Adds to the first word of `other`'s memory.
    pub fn add(&self, other: &TestVcq, value: u64, edata: u64, flags: c_ulong) -> c_int {
        let (own, id, to, add) = (self.handle, other.id, other.stadd, UTOFU_ARMW_OP_ADD);
        call!(utofu_armw8(
            own,
            id,
            add,
            value,
            to,
            edata,
            flags,
            cbdata(0)
        ))
    }

    /// Polls the TCQ once. Returns the code, and the number that was the cbdata.
    pub fn poll_tcq(&self) -> (c_int, usize) {
        let mut told = cbdata(0);
        let code = call!(utofu_poll_tcq(self.handle, 0, &mut told));
        (code, told.addr())
    }

    pub fn unread_tcq(&self) -> usize {
        let mut unread = usize::MAX;
        ok!(utofu_query_num_unread_tcq(self.handle, &mut unread));
        unread
    }

    pub fn unread_mrq(&self) -> usize {
        let mut unread = usize::MAX;
        ok!(utofu_query_num_unread_mrq(self.handle, &mut unread));
        unread
    }

    pub fn poll_mrq(&self) -> (c_int, utofu_mrq_notice) {
        let mut notice = utofu_mrq_notice::default();
        let code = call!(utofu_poll_mrq(self.handle, 0, &mut notice));
        (code, notice)
    }

    /// Waits for the next TCQ descriptor.
    pub fn next_tcq(&self) -> (c_int, usize) {
        soon(|| self.poll_tcq())
    }

    pub fn next_mrq(&self) -> (c_int, utofu_mrq_notice) {
        soon(|| self.poll_mrq())
    }

    /// Waits for the next notice, which must be of this kind.
    pub fn notice(&self, kind: u8) -> utofu_mrq_notice {
        let (code, notice) = self.next_mrq();
        assert_eq!((code, notice.notice_type), (UTOFU_SUCCESS, kind));
        notice
    }

    pub fn deregister(&self) -> c_int {
        call!(utofu_dereg_mem(self.handle, self.stadd, 0))
    }

    pub fn free(&self) -> c_int {
        call!(utofu_free_vcq(self.handle))
    }
}

/// Repeats a poll until it finds an entry. The library executes operations within a limited number of polls.
fn soon<T>(poll: impl Fn() -> (c_int, T)) -> (c_int, T) {
    let polls = std::iter::repeat_with(poll).take(1 << 20);
    let mut found = polls.filter(|(code, _)| *code != UTOFU_ERR_NOT_FOUND);
    found.next().expect("something comes")
}

/// The coordinates of this process.
pub fn coordinates() -> [u8; 6] {
    let mut coords = [0; 6];
    ok!(utofu_query_my_coords(coords.as_mut_ptr()));
    coords
}

/// Two VCQs on two TNIs.
pub fn two() -> (TestVcq, TestVcq) {
    (TestVcq::new(0, 0), TestVcq::new(1, 0))
}

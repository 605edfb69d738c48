//! The software device: loading it in place of libibverbs, injecting failures, and reading its counts.

use std::ffi::{CString, c_char, c_int};
use std::path::PathBuf;
use std::sync::OnceLock;

struct Double {
    inject: unsafe extern "C" fn(*const c_char) -> c_int,
    count: unsafe extern "C" fn(*const c_char) -> u64,
}

/// The path of the double. Cargo builds it beside the tests that depend on it.
fn path() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let found = own
        .ancestors()
        .skip(1)
        .take(2)
        .map(|folder| folder.join("libverbs_double.so"))
        .find(|file| file.exists());
    found.expect("cargo has built libverbs_double.so beside the tests")
}

fn double() -> &'static Double {
    static DOUBLE: OnceLock<Double> = OnceLock::new();
    DOUBLE.get_or_init(|| {
        let path = CString::new(path().into_os_string().into_encoded_bytes()).unwrap();
        // SAFETY:
        // - the library's constructors have no requirements; it is never unloaded, and has these functions with these types.
        unsafe {
            let library = libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL);
            assert!(!library.is_null(), "{path:?} cannot be loaded");
            let find = |name: &std::ffi::CStr| {
                let found = libc::dlsym(library, name.as_ptr());
                assert!(!found.is_null(), "{name:?}");
                found
            };
            Double {
                inject: std::mem::transmute::<
                    *mut libc::c_void,
                    unsafe extern "C" fn(*const c_char) -> c_int,
                >(find(c"verbs_double_inject")),
                count: std::mem::transmute::<
                    *mut libc::c_void,
                    unsafe extern "C" fn(*const c_char) -> u64,
                >(find(c"verbs_double_count")),
            }
        }
    })
}

/// Loads the double. Later loads of libibverbs find it.
pub fn load() {
    double();
}

/// Injects a fault into the devices of this process.
pub fn inject(what: &str) {
    let text = CString::new(what).unwrap();
    // SAFETY:
    // - the argument is a C string.
    let unknown = unsafe { (double().inject)(text.as_ptr()) };
    assert_eq!(unknown, 0, "{what}");
}

/// The count of this name in this process.
pub fn count(what: &str) -> u64 {
    let text = CString::new(what).unwrap();
    // SAFETY:
    // - the argument is a C string.
    let count = unsafe { (double().count)(text.as_ptr()) };
    assert_ne!(count, u64::MAX, "{what}");
    count
}

/// Number of work requests that write, read or send.
pub fn requests() -> u64 {
    [
        "write",
        "write_imm",
        "send",
        "send_imm",
        "read",
        "cmp_swap",
        "fetch_add",
    ]
    .iter()
    .map(|kind| count(&format!("wr.{kind}")))
    .sum()
}

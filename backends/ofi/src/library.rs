//! libfabric.so.1, loaded when this backend is opened. All other functions are in tables of its objects.

use std::cell::Cell;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

use unipgas_core::dynamic::{self, Enter, SymbolVisibility};
use unipgas_core::functions_of_library;
use unipgas_core::rendezvous::JobName;
use unipgas_libfabric_sys::{fi_fabric_attr, fi_info, fid_fabric, version};

use crate::buffers::MESSAGE;

/// Signal handlers of the program. Libraries below some providers (psm) install their own handlers when they are loaded. These end the process while
/// this thread holds libfabric's lock, so the thread blocks signals meanwhile.
struct Handlers(Vec<(c_int, libc::sigaction)>, libc::sigset_t);

impl Handlers {
    fn save() -> Self {
        let get = |signal| {
            // SAFETY:
            // - zeros are a valid sigaction, which lives through the call.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                let failed = libc::sigaction(signal, std::ptr::null(), &raw mut action);
                (failed == 0).then_some((signal, action))
            }
        };
        // SAFETY:
        // - zeros are a valid set, which the call fills in. Both sets live through their calls.
        let mask = unsafe {
            let (mut all, mut mask): (libc::sigset_t, libc::sigset_t) = std::mem::zeroed();
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut mask);
            mask
        };
        Handlers((1..=libc::SIGSYS).filter_map(get).collect(), mask)
    }

    fn restore(self) {
        for (signal, action) in self.0 {
            // SAFETY:
            // - the previous handler. The kernel refuses SIGKILL and SIGSTOP.
            unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
        }
        // SAFETY:
        // - the previous mask of this thread.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.1, std::ptr::null_mut())
        };
    }
}

/// Newest libfabric interface that this backend supports.
pub const KNOWN: u32 = version(1, 17);
/// Oldest supported release.
const OLDEST: u32 = version(1, 8);

const NAME: &CStr = c"libfabric.so.1";

/// Set if libfabric is loaded with its own libc.
static APART: OnceLock<Enter> = OnceLock::new();

/// Called before each call of libfabric.
#[inline(always)]
pub fn enter() {
    if let Some(apart) = APART.get() {
        enter_apart(*apart);
    }
}

#[inline(never)]
fn enter_apart(apart: Enter) {
    thread_local! {
        static ENTERED: Cell<bool> = const { Cell::new(false) };
    }
    if !ENTERED.replace(true) {
        apart.enter();
    }
}

/// Messages from all peers that `ofi_rxm` has room for.
const RECEIVES: &str = "128";
/// Minimum number of processes to have room for.
const PROCESSES: u32 = 64;

/// Values of libfabric's own variables that the user has not set. Providers allocate memory and queues for their maximum:
///
/// - `ofi_rxm` allocates 16 KiB for each of thousands of messages.
/// - Over verbs it opens a completion queue for 1,024 processes, which some adapters lack.
/// - Over verbs it has buffers for each peer. If a message is unread when its connection closes, `ofi_rxm` puts its buffer back for the freed
///   connection. It crashes then, on a close by either side (libfabric#11828). Buffers for all peers outlive connections; over tcp they are
///   the default.
fn defaults() -> [(&'static str, String); 4] {
    let job = JobName::from_env().ok().and_then(|job| job.size());
    [
        ("FI_OFI_RXM_BUFFER_SIZE", MESSAGE.to_string()),
        ("FI_OFI_RXM_MSG_RX_SIZE", RECEIVES.to_owned()),
        ("FI_OFI_RXM_USE_SRX", "1".to_owned()),
        (
            "FI_UNIVERSE_SIZE",
            job.unwrap_or_default().max(PROCESSES).to_string(),
        ),
    ]
}

/// The environment of this process with the [`defaults`]. `apart`: the library finds all its providers except this one.
fn environment(apart: bool) -> Vec<CString> {
    let wanted = |name: &OsStr| !apart || name != "FI_PROVIDER" && name != "FI_PROVIDER_PATH";
    let variable = |name: &OsStr, value: &OsStr| {
        let text = [name.as_bytes(), b"=", value.as_bytes()].concat();
        CString::new(text).expect("variables are C strings")
    };
    let unset = |name: &str| std::env::var_os(name).is_none();
    let own = apart.then(|| c"FI_PROVIDER=^unipgas".to_owned());
    std::env::vars_os()
        .filter(|(name, _)| wanted(name))
        .map(|(name, value)| variable(&name, &value))
        .chain(
            defaults()
                .iter()
                .filter(|(name, _)| unset(name))
                .map(|(name, value)| variable(name.as_ref(), value.as_ref())),
        )
        .chain(own)
        .collect()
}

functions_of_library! {
    /// Functions of libfabric, and `strdup` of the C library that libfabric uses: `fi_freeinfo` frees texts there.
    pub struct LibfabricLibrary {
        version = c"fi_version": fn() -> u32;
        getinfo = c"fi_getinfo": fn(u32, *const c_char, *const c_char, u64, *const fi_info, *mut *mut fi_info) -> c_int;
        dupinfo = c"fi_dupinfo": fn(*const fi_info) -> *mut fi_info;
        freeinfo = c"fi_freeinfo": fn(*mut fi_info) -> ();
        fabric = c"fi_fabric": fn(*mut fi_fabric_attr, *mut *mut fid_fabric, *mut c_void) -> c_int;
        getparams = c"fi_getparams": fn(*mut *mut c_void, *mut c_int) -> c_int;
        freeparams = c"fi_freeparams": fn(*mut c_void) -> ();
        strerror = c"fi_strerror": fn(c_int) -> *const c_char;
        strdup = c"strdup": fn(*const c_char) -> *mut c_char;
    }
}

impl LibfabricLibrary {
    /// The library of this process. Errors: the reason why there is none.
    pub fn get() -> Result<&'static LibfabricLibrary, String> {
        static LOADED: OnceLock<Result<LibfabricLibrary, String>> = OnceLock::new();
        enter();
        LOADED
            .get_or_init(LibfabricLibrary::load)
            .as_ref()
            .map_err(String::clone)
    }

    fn load() -> Result<LibfabricLibrary, String> {
        let handlers = Handlers::save();
        // In a program that calls libfabric itself, FI_PROVIDER selects providers, perhaps unipgas alone.
        let loaded = match dynamic::DynamicLibrary::is_loaded(NAME) {
            true => dynamic::DynamicLibrary::load_apart(NAME, environment(true)).map(
                |(library, enter)| {
                    let _ = APART.set(enter);
                    library
                },
            ),
            false => dynamic::DynamicLibrary::load(NAME, SymbolVisibility::Private),
        };
        let library = loaded.and_then(|loaded| LibfabricLibrary::find(&loaded));
        if let (Ok(library), None) = (&library, APART.get()) {
            dynamic::with_environment(environment(false), || library.begin());
        }
        handlers.restore();
        let library = library?;
        let (major, minor) = library.release();
        match version(major, minor) < OLDEST {
            true => Err(format!("libfabric {major}.{minor} is older than 1.8")),
            false => Ok(library),
        }
    }

    /// Makes the providers read their variables, which they do once.
    fn begin(&self) {
        let (mut all, mut count) = (std::ptr::null_mut(), 0);
        // SAFETY:
        // - gives null, or a list that is freed once.
        unsafe {
            if (self.getparams)(&raw mut all, &raw mut count) == 0 && !all.is_null() {
                (self.freeparams)(all);
            }
        }
    }

    /// Calls `what` with the `defaults` in the environment: libfabric reads some variables whenever it opens an object.
    pub fn with_defaults<T>(&self, what: impl FnOnce() -> T) -> T {
        match APART.get() {
            // It has its own environment.
            Some(_) => what(),
            None => dynamic::with_environment(environment(false), what),
        }
    }

    /// Release of libfabric.
    pub fn release(&self) -> (u32, u32) {
        // SAFETY:
        // - no arguments, and no effects.
        let release = unsafe { (self.version)() };
        (release >> 16, release & 0xffff)
    }

    /// The interface version to request.
    pub fn api(&self) -> u32 {
        let (major, minor) = self.release();
        version(major, minor).min(KNOWN)
    }

    /// Text of an error number, negative or not.
    pub fn text(&self, error: c_int) -> String {
        // SAFETY:
        // - for each number the call gives null, or a C string that is never freed.
        unsafe {
            let text = (self.strerror)(error.wrapping_abs());
            match text.is_null() {
                true => format!("error {error}"),
                false => CStr::from_ptr(text).to_string_lossy().into_owned(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_that_nobody_has_set_have_defaults() {
        for apart in [false, true] {
            let environment = environment(apart);
            let has = |name: &str, value: &OsStr| {
                let text = [name.as_bytes(), b"=", value.as_bytes()].concat();
                let of = |one: &&CString| one.to_bytes().starts_with(&text[..=name.len()]);
                let all: Vec<_> = environment.iter().filter(of).collect();
                assert!(
                    matches!(all[..], [one] if one.to_bytes() == text),
                    "{all:?}"
                );
            };
            for (name, value) in defaults() {
                let set = std::env::var_os(name);
                has(name, set.as_deref().unwrap_or(value.as_ref()));
            }
            has("PATH", &std::env::var_os("PATH").unwrap());
        }
    }

    #[test]
    fn they_are_found_while_something_is_opened_and_gone_afterwards() {
        let Ok(library) = LibfabricLibrary::get() else {
            return;
        };
        for (name, value) in defaults() {
            let set = std::env::var_os(name);
            let found = library.with_defaults(|| std::env::var_os(name));
            assert_eq!(found, Some(set.clone().unwrap_or(value.into())), "{name}");
            assert_eq!(std::env::var_os(name), set, "{name}");
        }
    }
}

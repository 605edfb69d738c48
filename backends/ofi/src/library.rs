//! libfabric.so.1, loaded when this backend is opened; everything but these functions goes by the tables of its objects.

use std::cell::Cell;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

use unipgas_core::dynamic::{self, Enter, Shown};
use unipgas_core::functions_of_library;
use unipgas_core::rendezvous::JobName;
use unipgas_libfabric_sys::{fi_fabric_attr, fi_info, fid_fabric, version};

use crate::buffers::MESSAGE;

/// What the program does at signals. Libraries below some providers (psm's) put handlers of their own there when they are loaded, which end the process while
/// this thread has libfabric's lock: so long it takes no signals.
struct Handlers(Vec<(c_int, libc::sigaction)>, libc::sigset_t);

impl Handlers {
    fn save() -> Self {
        let get = |signal| {
            // SAFETY:
            // - zeros are a sigaction, which lives through the call.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                let failed = libc::sigaction(signal, std::ptr::null(), &raw mut action);
                (failed == 0).then_some((signal, action))
            }
        };
        // SAFETY:
        // - zeros are a set, which the call fills; both sets live through their calls.
        let mask = unsafe {
            let (mut all, mut mask): (libc::sigset_t, libc::sigset_t) = std::mem::zeroed();
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut mask);
            mask
        };
        Handlers((1..libc::SIGSYS).filter_map(get).collect(), mask)
    }

    fn restore(self) {
        for (signal, action) in self.0 {
            // SAFETY:
            // - what was there before. SIGKILL and SIGSTOP are refused.
            unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
        }
        // SAFETY:
        // - the mask that this thread had.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.1, std::ptr::null_mut())
        };
    }
}

/// The release whose interface this backend knows.
pub const KNOWN: u32 = version(1, 17);
/// The oldest one that it makes do with.
const OLDEST: u32 = version(1, 8);

const NAME: &CStr = c"libfabric.so.1";

/// Where it has a libc of its own.
static APART: OnceLock<Enter> = OnceLock::new();

/// Before any call.
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

/// Messages that `ofi_rxm` has room for, from whomever.
const RECEIVES: &str = "128";
/// Processes for which there is room at least.
const PROCESSES: u32 = 64;

/// What the library finds of its own variables that nobody has set. Providers keep memory and queues for the most that they could have: without these
/// `ofi_rxm` has 16 KiB for each of thousands of messages, and over verbs a completion queue for 1,024 processes, which not all adapters have, and
/// buffers for each peer: of those it puts one back for a connection that it has just freed, where a message has come before that and was not read
/// yet, and crashes, here when it closes and when the peer does (libfabric#11828). Buffers for all peers outlive connections; over tcp they are the default.
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

/// The process's, with the [`defaults`]; `apart` has all providers that the library finds, without this one.
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
    /// The functions.
    pub struct Library {
        version = c"fi_version": fn() -> u32;
        getinfo = c"fi_getinfo": fn(u32, *const c_char, *const c_char, u64, *const fi_info, *mut *mut fi_info) -> c_int;
        dupinfo = c"fi_dupinfo": fn(*const fi_info) -> *mut fi_info;
        freeinfo = c"fi_freeinfo": fn(*mut fi_info) -> ();
        fabric = c"fi_fabric": fn(*mut fi_fabric_attr, *mut *mut fid_fabric, *mut c_void) -> c_int;
        getparams = c"fi_getparams": fn(*mut *mut c_void, *mut c_int) -> c_int;
        freeparams = c"fi_freeparams": fn(*mut c_void) -> ();
        strerror = c"fi_strerror": fn(c_int) -> *const c_char;
    }
}

impl Library {
    /// The one of this process. Errors: why there is none.
    pub fn get() -> Result<&'static Library, String> {
        static LOADED: OnceLock<Result<Library, String>> = OnceLock::new();
        enter();
        LOADED
            .get_or_init(Library::load)
            .as_ref()
            .map_err(String::clone)
    }

    fn load() -> Result<Library, String> {
        let handlers = Handlers::save();
        // Of a program that calls libfabric itself, FI_PROVIDER says which providers there are, perhaps unipgas alone.
        let loaded = match dynamic::Library::is_loaded(NAME) {
            true => {
                dynamic::Library::load_apart(NAME, environment(true)).map(|(library, enter)| {
                    let _ = APART.set(enter);
                    library
                })
            }
            false => dynamic::Library::load(NAME, Shown::ToNobody),
        };
        let library = loaded.and_then(|loaded| Library::find(&loaded));
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

    /// Lets the providers read their variables, which they do once.
    fn begin(&self) {
        let (mut all, mut count) = (std::ptr::null_mut(), 0);
        // SAFETY:
        // - gives a list that is freed once, or null.
        unsafe {
            if (self.getparams)(&raw mut all, &raw mut count) == 0 && !all.is_null() {
                (self.freeparams)(all);
            }
        }
    }

    /// Calls `what`, which finds the `defaults`: some variables are read whenever something is opened.
    pub fn with_defaults<T>(&self, what: impl FnOnce() -> T) -> T {
        match APART.get() {
            // It has an environment of its own.
            Some(_) => what(),
            None => dynamic::with_environment(environment(false), what),
        }
    }

    /// Its release.
    pub fn release(&self) -> (u32, u32) {
        // SAFETY:
        // - takes nothing, and changes nothing.
        let release = unsafe { (self.version)() };
        (release >> 16, release & 0xffff)
    }

    /// The version of the interface that is asked for.
    pub fn api(&self) -> u32 {
        let (major, minor) = self.release();
        version(major, minor).min(KNOWN)
    }

    /// What an error number, negative or not, means.
    pub fn text(&self, error: c_int) -> String {
        // SAFETY:
        // - gives a C string that is never freed, whatever the number.
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
        let Ok(library) = Library::get() else {
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

//! Log lines through libfabric (FI_LOG_LEVEL), and the parameters that `fi_info -e` lists.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fmt::{self, Display, Formatter};
use std::sync::OnceLock;

use unipgas_core::log::{self, Level, Sink};
use unipgas_core::variables;

use super::library::function;
use crate::sys::fi_provider;

type LogEnabled = unsafe extern "C" fn(*const fi_provider, c_int, c_int) -> c_int;
type Log = unsafe extern "C" fn(
    *const fi_provider,
    c_int,
    c_int,
    *const c_char,
    c_int,
    *const c_char,
    ...
);
type ParamDefine =
    unsafe extern "C" fn(*const fi_provider, *const c_char, c_int, *const c_char, ...) -> c_int;
type ToStr = unsafe extern "C" fn(*mut c_char, usize, *const c_void, c_int) -> *mut c_char;
type ParamGet = unsafe extern "C" fn(*mut fi_provider, *const c_char, *mut c_void) -> c_int;

/// enum fi_log_level.
const LEVELS: [(Level, c_int); 3] = [(Level::DEBUG, 3), (Level::INFO, 2), (Level::WARN, 0)];
/// enum fi_log_subsys: core, endpoints, registration.
const CORE: c_int = 0;
const EP_CTRL: c_int = 3;
const MR: c_int = 8;
/// enum fi_param_type.
const STRING: c_int = 0;

/// FI_UNIPGAS_BACKEND gives the value if UNIPGAS_BACKEND is unset, and so on.
const PARAMETERS: [(&CStr, &str); 8] = [
    (c"backend", "UNIPGAS_BACKEND"),
    (c"networks", "UNIPGAS_NETWORKS"),
    (c"seed", "UNIPGAS_SEED"),
    (c"shm_adopt", "UNIPGAS_SHM_ADOPT"),
    (c"mr_allocated", "UNIPGAS_MR_ALLOCATED"),
    (c"verbs_device", "UNIPGAS_VERBS_DEVICE"),
    (c"verbs_gid", "UNIPGAS_VERBS_GID"),
    (c"verbs_timeout", "UNIPGAS_VERBS_TIMEOUT"),
];

/// The provider's structure, and libfabric's functions for its log lines.
struct Told {
    provider: *mut fi_provider,
    enabled: LogEnabled,
    log: Log,
}

// SAFETY:
// - any thread may call libfabric's functions. The provider's structure is never freed.
unsafe impl Send for Told {}
// SAFETY:
// - as above.
unsafe impl Sync for Told {}

static TOLD: OnceLock<Told> = OnceLock::new();

/// Defines the provider's parameters in libfabric, reads their values, and sends log lines to libfabric.
///
/// # Safety
/// `provider` is valid until the process exits.
pub(super) unsafe fn begin(provider: *mut fi_provider) {
    // SAFETY:
    // - the functions of these names have these types.
    let (define, get, enabled, log) = unsafe {
        (
            function::<ParamDefine>(c"fi_param_define"),
            function::<ParamGet>(c"fi_param_get"),
            function::<LogEnabled>(c"fi_log_enabled"),
            function::<Log>(c"fi_log"),
        )
    };
    if let (Ok(define), Ok(get)) = (define, get) {
        for (name, variable) in PARAMETERS {
            // SAFETY:
            // - contract of this call: `provider` is valid. The functions are libfabric's.
            unsafe { parameter(provider, (define, get), name, variable) };
        }
    }
    if let (Ok(enabled), Ok(log)) = (enabled, log) {
        let _ = TOLD.set(Told {
            provider,
            enabled,
            log,
        });
        log::tell_also(Sink { level, write });
    }
}

/// # Safety
/// `provider` is valid, and the functions are libfabric's.
unsafe fn parameter(
    provider: *mut fi_provider,
    (define, get): (ParamDefine, ParamGet),
    name: &CStr,
    variable: &'static str,
) {
    let meaning = variables::all()
        .iter()
        .find(|one| one.name == variable)
        .map_or("", |one| one.meaning);
    // libfabric takes the help as a format.
    let Ok(help) = CString::new(format!("{meaning}; also {variable}").replace('%', "%%")) else {
        return;
    };
    let mut value: *mut c_char = std::ptr::null_mut();
    // SAFETY:
    // - C strings. The format has no arguments.
    // - the value of a text parameter is a pointer to a string that libfabric keeps.
    let text = unsafe {
        define(provider, name.as_ptr(), STRING, help.as_ptr());
        match get(provider, name.as_ptr(), (&raw mut value).cast()) {
            0 if !value.is_null() => CStr::from_ptr(value),
            _ => return,
        }
    };
    variables::set_otherwise(variable, &text.to_string_lossy());
}

/// enum fi_type of values in hints.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    EpType = 1,
    Caps = 2,
    OpFlags = 3,
    MsgOrder = 13,
}

/// A value as libfabric's text, or as a number if libfabric is not present.
pub(super) struct Shown(pub Kind, pub u64);

impl Display for Shown {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut text = [0_u8; 512];
        // SAFETY:
        // - the function of this name has this type, and ends its text within the length.
        // - the function reads enumerations and bit sets from the first bytes of a little-endian word.
        unsafe {
            if let Ok(tostr) = function::<ToStr>(c"fi_tostr_r") {
                let (place, value) = (text.as_mut_ptr().cast(), (&raw const self.1).cast());
                tostr(place, text.len(), value, self.0 as c_int);
            }
        }
        match CStr::from_bytes_until_nul(&text) {
            Ok(text) if !text.is_empty() => f.write_str(&text.to_string_lossy()),
            _ => write!(f, "{:#x}", self.1),
        }
    }
}

/// Logs a hint that the provider cannot meet, at level debug, as libfabric's own providers do. Returns `None`.
pub(super) fn unmet<T>(hint: &str, supported: impl Display, requested: impl Display) -> Option<T> {
    if level() == Some(Level::DEBUG) {
        for line in [
            format!("Unsupported {hint}"),
            format!("Supported: {supported}"),
            format!("Requested: {requested}"),
        ] {
            write(Level::DEBUG, "getinfo", &line);
        }
    }
    None
}

fn level() -> Option<Level> {
    let told = TOLD.get()?;
    // SAFETY:
    // - the provider's structure is never freed.
    let wanted = |level: c_int| unsafe { (told.enabled)(told.provider, level, CORE) } != 0;
    LEVELS
        .into_iter()
        .find(|(_, level)| wanted(*level))
        .map(|(level, _)| level)
}

fn write(level: Level, target: &str, line: &str) {
    let Some(told) = TOLD.get() else { return };
    let level = LEVELS.into_iter().rev().find(|(most, _)| level <= *most);
    let (Some((_, level)), Ok(place), Ok(line)) = (level, CString::new(target), CString::new(line))
    else {
        return;
    };
    let part = match target {
        log::ROUTE => EP_CTRL,
        log::MEMORY => MR,
        _ => CORE,
    };
    // SAFETY:
    // - the provider's structure is never freed. The texts are C strings, and the format takes one.
    unsafe {
        (told.log)(
            told.provider,
            level,
            part,
            place.as_ptr(),
            0,
            c"%s\n".as_ptr(),
            line.as_ptr(),
        )
    };
}

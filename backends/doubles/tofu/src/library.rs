//! The library behind this one. The first call of the process loads it and reads the settings.

use std::env;
use std::ffi::{CStr, CString, c_int, c_void};
use std::os::unix::ffi::OsStringExt;
use std::sync::OnceLock;

use unipgas_utofu_sys::{UTOFU_ERR_FATAL, UTOFU_SUCCESS, UtofuFunctions, utofu_vcq_id_t};

use crate::config::Config;
use crate::counts;
use crate::faults;

const NAME: &str = "TOFU_DOUBLE_LIBRARY";

/// Success, or one of `UTOFU_ERR_*`.
pub(crate) type UtofuResult = Result<(), c_int>;

pub fn outcome(code: c_int) -> UtofuResult {
    match code {
        UTOFU_SUCCESS => Ok(()),
        code => Err(code),
    }
}

pub(crate) struct Double {
    pub real: UtofuFunctions,
    pub config: Config,
}

impl Double {
    fn start() -> Result<Self, String> {
        let config = Config::from_env()?;
        let path = env::var_os(NAME)
            .filter(|path| !path.is_empty())
            .ok_or_else(|| {
                format!(
                    "{NAME}: not set: give the path of the libtofucom.so that is to do the work"
                )
            })?;
        let shown = path.display().to_string();
        let path =
            CString::new(path.into_vec()).map_err(|_| format!("{NAME}: {shown}: no path"))?;
        let flags = libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_DEEPBIND;
        // SAFETY:
        // - the path is a C string; the test trusts the constructors of the library.
        let library = unsafe { libc::dlopen(path.as_ptr(), flags) };
        if library.is_null() {
            // SAFETY:
            // - dlopen failed in this thread, so dlerror returns a C string.
            let why = unsafe { CStr::from_ptr(libc::dlerror()) }.to_string_lossy();
            return Err(format!("{NAME}: {why}"));
        }
        let symbol = |name: &CStr| -> *mut c_void {
            // SAFETY:
            // - the library is open and never closed, and the name is a C string.
            unsafe { libc::dlsym(library, name.as_ptr()) }
        };
        // SAFETY:
        // - the symbols are from a libtofucom, which stays loaded.
        let real = unsafe { UtofuFunctions::load(symbol) }
            .map_err(|name| format!("{NAME}: {shown} has no {name}: it is no libtofucom.so"))?;
        counts::begin();
        Ok(Double { real, config })
    }

    /// The injected failure of this call, if any.
    pub fn injected(&self, call: usize) -> UtofuResult {
        let of_call = self.config.calls.iter().filter(|(of, _)| *of == call);
        let code = faults::next(of_call.map(|(_, fault)| fault));
        match code {
            None => Ok(()),
            Some(code) => {
                counts::injected(call);
                Err(code)
            }
        }
    }

    /// A VCQ id without its path: equal for equal VCQs.
    pub fn plain(&self, id: utofu_vcq_id_t) -> utofu_vcq_id_t {
        let mut plain = id;
        // SAFETY:
        // - the id is valid for a write, and null coordinates are allowed.
        let code = unsafe { (self.real.utofu_set_vcq_id_path)(&mut plain, std::ptr::null_mut()) };
        if code == UTOFU_SUCCESS { plain } else { id }
    }
}

/// Begins a call. Errors: `UTOFU_ERR_FATAL` without a library or with a wrong setting, after a line with the reason at the first call; the code of an injected
/// failure.
pub fn begin(call: usize) -> Result<&'static Double, c_int> {
    static DOUBLE: OnceLock<Option<Double>> = OnceLock::new();
    let double = DOUBLE.get_or_init(|| Double::start().inspect_err(|why| eprintln!("{why}")).ok());
    let double = double.as_ref().ok_or(UTOFU_ERR_FATAL)?;
    counts::call(call);
    double.injected(call)?;
    Ok(double)
}

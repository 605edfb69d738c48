//! Loads the machine's libtofucom.so when the backend opens. The library of unipgas has the same name, and is refused: it would call itself.

use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStringExt;
use std::sync::OnceLock;

use unipgas_core::dynamic::{self, SymbolVisibility, with_environment};
use unipgas_core::rendezvous::NETWORK;
use unipgas_core::variables;
use unipgas_utofu_sys::UtofuFunctions;

/// Name of Fujitsu's library.
const NAME: &CStr = c"libtofucom.so";
/// A symbol of unipgas's library that the machine's library lacks.
const OURS: &CStr = c"gaspi_proc_init";
/// For tests: another copy of unipgas plays the machine's library. The value is its environment: `NAME=VALUE`, separated by blanks.
const PLAYED: &str = "UNIPGAS_TEST_TOFU";

/// The loaded library.
pub(crate) struct UtofuLibrary {
    /// Functions of utofu.h.
    pub functions: UtofuFunctions,
    played: Option<Vec<CString>>,
}

impl UtofuLibrary {
    /// The library of this process. Errors: the reason why it is not usable.
    pub fn get() -> Result<&'static UtofuLibrary, String> {
        static LOADED: OnceLock<Result<UtofuLibrary, String>> = OnceLock::new();
        LOADED
            .get_or_init(UtofuLibrary::load)
            .as_ref()
            .map_err(String::clone)
    }

    fn load() -> Result<Self, String> {
        let told = |error: unipgas_core::Error| error.to_string();
        let played = variables::get(PLAYED).map_err(told)?;
        let named = variables::get("UNIPGAS_TOFU_LIBRARY").map_err(told)?;
        let name = match &named {
            None => NAME.to_owned(),
            Some(path) => CString::new(path.as_str()).map_err(|error| error.to_string())?,
        };
        let shown = match played {
            None => SymbolVisibility::Private,
            Some(_) => SymbolVisibility::ToItselfFirst,
        };
        let library = dynamic::DynamicLibrary::load(&name, shown)?;
        if library.find(OURS).is_ok() && played.is_none() {
            return Err(format!(
                "{} is unipgas's own: name the machine's in UNIPGAS_TOFU_LIBRARY",
                name.to_string_lossy()
            ));
        }
        // SAFETY:
        // - a library with all these names is libtofucom, and stays loaded.
        let functions = unsafe {
            UtofuFunctions::load(|name| library.find(name).unwrap_or(std::ptr::null_mut()))
        };
        Ok(UtofuLibrary {
            functions: functions
                .map_err(|missing| format!("{} has no {missing}", name.to_string_lossy()))?,
            played: played.map(|text| played_environment(&text)),
        })
    }

    /// Makes the library's first call, in which it reads its environment.
    pub fn begin<T>(&self, first: impl FnOnce() -> T) -> T {
        match &self.played {
            None => first(),
            Some(environment) => with_environment(environment.clone(), first),
        }
    }
}

/// Environment of the played library: this process's, without the variables that select its network, and with `text`.
fn played_environment(text: &str) -> Vec<CString> {
    const OURS: [&str; 6] = [
        "UNIPGAS_BACKEND",
        "UNIPGAS_NETWORKS",
        "UNIPGAS_CHAOS",
        "UNIPGAS_TOFU_LIBRARY",
        "UNIPGAS_TEST_TOFU",
        "UNIPGAS_TEST_HOSTS",
    ];
    let kept = std::env::vars_os().filter(|(name, _)| OURS.iter().all(|ours| name != ours));
    let mut all: Vec<_> = kept
        .map(|(mut name, value)| {
            name.push("=");
            name.push(value);
            name.into_vec()
        })
        .collect();
    // Its processes find each other, but not the processes of this job.
    all.push(format!("{NETWORK}=tofu").into_bytes());
    all.extend(text.split_whitespace().map(|one| one.as_bytes().to_vec()));
    all.into_iter()
        .filter_map(|bytes| CString::new(bytes).ok())
        .collect()
}

//! libtofucom.so, loaded when this backend is opened: the machine's own. Ours has the same name, and is refused: it would be this library again, over itself.

use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStringExt;
use std::sync::OnceLock;

use unipgas_core::dynamic::{self, Shown, with_environment};
use unipgas_core::rendezvous::NETWORK;
use unipgas_core::variables;
use unipgas_utofu_sys::Functions;

/// As Fujitsu's is called.
const NAME: &CStr = c"libtofucom.so";
/// What ours has, and the machine's does not.
const OURS: &CStr = c"gaspi_proc_init";
/// For tests of the library: what another copy of ours, which stands for the machine's, has in its environment: `NAME=VALUE`, with blanks between.
const PLAYED: &str = "UNIPGAS_TEST_TOFU";

/// The functions.
pub struct Library {
    /// As in utofu.h.
    pub functions: Functions,
    played: Option<Vec<CString>>,
}

impl Library {
    /// The one of this process. Errors: why there is none.
    pub fn get() -> Result<&'static Library, String> {
        static LOADED: OnceLock<Result<Library, String>> = OnceLock::new();
        LOADED
            .get_or_init(Library::load)
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
            None => Shown::ToNobody,
            Some(_) => Shown::ToItselfFirst,
        };
        let library = dynamic::Library::load(&name, shown)?;
        if library.find(OURS).is_ok() && played.is_none() {
            return Err(format!(
                "{} is unipgas's own: name the machine's in UNIPGAS_TOFU_LIBRARY",
                name.to_string_lossy()
            ));
        }
        // SAFETY:
        // - a library that has all these names is libtofucom, which stays loaded.
        let functions =
            unsafe { Functions::load(|name| library.find(name).unwrap_or(std::ptr::null_mut())) };
        Ok(Library {
            functions: functions
                .map_err(|missing| format!("{} has no {missing}", name.to_string_lossy()))?,
            played: played.map(|text| played_environment(&text)),
        })
    }

    /// Makes the library's first call, at which it reads its environment.
    pub fn begin<T>(&self, first: impl FnOnce() -> T) -> T {
        match &self.played {
            None => first(),
            Some(environment) => with_environment(environment.clone(), first),
        }
    }
}

/// That of this process, but for what says how its library reaches others.
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
    // Its processes find each other, and not those of ours.
    all.push(format!("{NETWORK}=tofu").into_bytes());
    all.extend(text.split_whitespace().map(|one| one.as_bytes().to_vec()));
    all.into_iter()
        .filter_map(|bytes| CString::new(bytes).ok())
        .collect()
}

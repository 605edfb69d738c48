//! The library under test. A worker of an interface opens it by its full path, and calls it through tables of functions; it links no interface.

use std::ffi::c_char;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use unipgas_core::wait::Watch;
use unipgas_libfabric_sys::{fi_info, fi_provider};

use crate::law::{Law, NOT_OFFERED};
use crate::{Api, Verdict};

type FiProvIni = unsafe extern "C" fn() -> *mut fi_provider;
type DupInfo = unsafe extern "C" fn(*const fi_info) -> *mut fi_info;
type FreeInfo = unsafe extern "C" fn(*mut fi_info);

/// The functions of a loaded library.
pub(crate) struct Library {
    pub(crate) path: PathBuf,
    pub(crate) gaspi: unipgas_gaspi_sys::GaspiFunctions,
    pub(crate) rcce: unipgas_ircce_sys::RcceFunctions,
    pub(crate) rcce_variables: unipgas_ircce_sys::Variables,
    /// `Err`: a function that the library lacks.
    pub(crate) utofu: Result<unipgas_utofu_sys::UtofuFunctions, &'static str>,
    /// No guide contains it, so it is not in the list.
    pub(crate) utofu_get_last_error: Option<unsafe extern "C" fn(*mut c_char)>,
    pub(crate) fi_prov_ini: Option<FiProvIni>,
    pub(crate) unipgas_fi_stand_in: Option<unsafe extern "C" fn(DupInfo, FreeInfo)>,
}

static LIBRARY: OnceLock<Library> = OnceLock::new();

/// Opens the library for the laws of its interfaces, at most once in a process. The library counts waits at `watch`. Errors: a text.
pub(crate) fn open(path: &Path, watch: Option<&'static Watch>) -> Result<(), String> {
    let handle = unipgas_launcher::library::InstalledLibrary::open(path)?;
    // SAFETY:
    // - the names are functions of the C interfaces and of src/c, and have these types; the library stays loaded.
    let (library, count_waits) = unsafe {
        (
            Library {
                gaspi: unipgas_gaspi_sys::GaspiFunctions::load(|name| handle.symbol(name)),
                rcce: unipgas_ircce_sys::RcceFunctions::load(|name| handle.symbol(name)),
                rcce_variables: unipgas_ircce_sys::Variables::load(|name| handle.symbol(name)),
                utofu: unipgas_utofu_sys::UtofuFunctions::load(|name| handle.symbol(name)),
                utofu_get_last_error: handle.function(c"utofu_get_last_error"),
                fi_prov_ini: handle.function(c"fi_prov_ini"),
                unipgas_fi_stand_in: handle.function(c"unipgas_fi_stand_in"),
                path: handle.path().to_owned(),
            },
            handle.function::<unsafe extern "C" fn(*const Watch)>(c"unipgas_count_waits"),
        )
    };
    // Another library does not count waits: then only the loops of the laws do.
    if let (Some(count), Some(watch)) = (count_waits, watch) {
        // SAFETY:
        // - `watch` lives as long as the process.
        unsafe { count(watch) };
    }
    LIBRARY
        .set(library)
        .map_err(|_| "the library is loaded already".into())
}

/// The open library, in a worker of an interface.
pub(crate) fn library() -> &'static Library {
    LIBRARY
        .get()
        .expect("the worker of an interface has opened the library")
}

/// The panic payload that ends a law if the library lacks a function.
pub(crate) struct Lacks(&'static str);

impl Lacks {
    /// The verdict of the law.
    pub(crate) fn verdict(&self) -> Verdict {
        Err(format!("{NOT_OFFERED}the library has no {}", self.0))
    }
}

/// The function, for a call of a law.
#[inline]
pub(crate) fn offered<F>(found: Option<F>, name: &'static str) -> F {
    found.unwrap_or_else(|| std::panic::resume_unwind(Box::new(Lacks(name))))
}

/// uTofu's functions, for a call of a law.
#[inline]
pub(crate) fn utofu() -> &'static unipgas_utofu_sys::UtofuFunctions {
    match &library().utofu {
        Ok(all) => all,
        Err(name) => std::panic::resume_unwind(Box::new(Lacks(name))),
    }
}

/// A procedure of the law that the library lacks.
pub(crate) fn lacks(law: &Law) -> Option<Lacks> {
    let of_the_law = |name: &&'static str| law.procedures.contains(name);
    let missing = match law.api {
        Api::Gaspi => library().gaspi.missing().find(of_the_law),
        Api::Rcce => library().rcce.missing().find(of_the_law),
        Api::Utofu => library().utofu.as_ref().err().copied(),
        Api::Core | Api::Libfabric => None,
    };
    missing.map(Lacks)
}

#[cfg(test)]
mod tests {

    #[test]
    fn cargo_has_built_the_library_beside_this_test() {
        let found = unipgas_launcher::library::find(None).unwrap();
        assert!(found.is_absolute() && found.is_file(), "{found:?}");
    }
}

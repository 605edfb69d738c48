//! The library under test: a worker of an interface opens it by its full path, and calls it through tables of functions. Nothing of an interface is linked.

use std::ffi::{CStr, CString, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use unipgas_core::wait::Watch;
use unipgas_libfabric_sys::{fi_info, fi_provider};

use crate::law::{Law, NOT_OFFERED};
use crate::{Api, Verdict};

/// Names the library in the environment.
const VARIABLE: &str = "UNIPGAS_LIB";
/// Folders of libraries, as seen from that of the programs.
const FOLDERS: [&str; 3] = [
    "lib",
    "lib64",
    if cfg!(target_arch = "aarch64") {
        "lib/aarch64-linux-gnu"
    } else {
        "lib/x86_64-linux-gnu"
    },
];
/// The library as installed.
const INSTALLED: &str = "libunipgas.so.0";
/// The library as cargo builds it.
const BUILT: &str = "libunipgas_c.so";
/// Cargo's folder of dependencies, beside the programs. What lies beside the programs may be older.
const DEPENDENCIES: &str = "deps";

/// The full path of the library: `wish`, or what UNIPGAS_LIB names, or the one that lies where this program does: as both are installed, or as cargo builds both.
/// Errors: a text.
pub(crate) fn find(wish: Option<&Path>) -> Result<PathBuf, String> {
    let named = std::env::var_os(VARIABLE).filter(|path| !path.is_empty());
    let named = match wish {
        Some(path) => Some(("--library ", path.to_owned())),
        None => named.map(|path| ("UNIPGAS_LIB=", path.into())),
    };
    if let Some((how, path)) = named {
        return match path.canonicalize() {
            Ok(full) if full.is_file() => Ok(full),
            _ => Err(format!(
                "{how}{}: there is no such file; name a libunipgas.so",
                path.display()
            )),
        };
    }
    let myself = std::env::current_exe().map_err(|e| format!("cannot find myself: {e}"))?;
    let own = myself.parent().unwrap_or(Path::new("/"));
    let above = own.parent().unwrap_or(own);
    let installed = FOLDERS.map(|folder| above.join(folder).join(INSTALLED));
    let built = [own.join(DEPENDENCIES).join(BUILT), own.join(BUILT)];
    let mut places = installed.into_iter().chain(built);
    places.find(|place| place.is_file()).ok_or_else(|| {
        format!(
            "there is no {INSTALLED} in {}/lib, and no {BUILT} beside this program: install the library, build it by cargo build -p unipgas-c, or name it with --library",
            above.display()
        )
    })
}

type FiProvIni = unsafe extern "C" fn() -> *mut fi_provider;
type DupInfo = unsafe extern "C" fn(*const fi_info) -> *mut fi_info;
type FreeInfo = unsafe extern "C" fn(*mut fi_info);

/// What a loaded library has.
pub(crate) struct Library {
    pub(crate) path: PathBuf,
    pub(crate) gaspi: unipgas_gaspi_sys::Functions,
    pub(crate) rcce: unipgas_ircce_sys::Functions,
    pub(crate) rcce_variables: unipgas_ircce_sys::Variables,
    /// `Err`: a function that the library lacks.
    pub(crate) utofu: Result<unipgas_utofu_sys::Functions, &'static str>,
    /// In no guide, so not in the list.
    pub(crate) utofu_get_last_error: Option<unsafe extern "C" fn(*mut c_char)>,
    pub(crate) fi_prov_ini: Option<FiProvIni>,
    pub(crate) unipgas_fi_stand_in: Option<unsafe extern "C" fn(DupInfo, FreeInfo)>,
}

/// A handle of the loader's; it stays for good.
struct Handle(*mut c_void);

impl Handle {
    fn symbol(&self, name: &CStr) -> *mut c_void {
        // SAFETY:
        // - a handle that stays, and a C string.
        unsafe { libc::dlsym(self.0, name.as_ptr()) }
    }

    /// The function of this name.
    ///
    /// # Safety
    /// `F` is its type, a pointer to a function.
    unsafe fn function<F: Copy>(&self, name: &CStr) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        let found = self.symbol(name);
        // SAFETY:
        // - the address of a function of this type by the caller's word.
        (!found.is_null()).then(|| unsafe { std::mem::transmute_copy(&found) })
    }
}

static LIBRARY: OnceLock<Library> = OnceLock::new();

/// Opens the library, once in a process, for the laws of its interfaces; it counts waits at `watch`. Errors: a text.
pub(crate) fn open(path: &Path, watch: Option<&'static Watch>) -> Result<(), String> {
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|e| e.to_string())?;
    // SAFETY:
    // - a C string; the library's initialisers may run in a thread that has loaded nothing else.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() {
        // SAFETY:
        // - this thread's last error, a C string, read before any other call of the loader.
        let why = unsafe { CStr::from_ptr(libc::dlerror()) };
        return Err(format!(
            "the library cannot be loaded: {}",
            why.to_string_lossy()
        ));
    }
    let handle = Handle(handle);
    // SAFETY:
    // - names of the C interfaces, whose functions have these types, and of the two functions of src/c, likewise; the library stays.
    let (library, count_waits) = unsafe {
        (
            Library {
                gaspi: unipgas_gaspi_sys::Functions::load(|name| handle.symbol(name)),
                rcce: unipgas_ircce_sys::Functions::load(|name| handle.symbol(name)),
                rcce_variables: unipgas_ircce_sys::Variables::load(|name| handle.symbol(name)),
                utofu: unipgas_utofu_sys::Functions::load(|name| handle.symbol(name)),
                utofu_get_last_error: handle.function(c"utofu_get_last_error"),
                fi_prov_ini: handle.function(c"fi_prov_ini"),
                unipgas_fi_stand_in: handle.function(c"unipgas_fi_stand_in"),
                path: path.to_owned(),
            },
            handle.function::<unsafe extern "C" fn(*const Watch)>(c"unipgas_count_waits"),
        )
    };
    // Another library counts none: there the loops of the laws count alone.
    if let (Some(count), Some(watch)) = (count_waits, watch) {
        // SAFETY:
        // - stays as long as the process.
        unsafe { count(watch) };
    }
    LIBRARY
        .set(library)
        .map_err(|_| "the library is loaded already".into())
}

/// The one that is open, in a worker of an interface.
pub(crate) fn library() -> &'static Library {
    LIBRARY
        .get()
        .expect("the worker of an interface has opened the library")
}

/// What a law ends with by a panic where the library lacks a function.
pub(crate) struct Lacks(&'static str);

impl Lacks {
    /// As a verdict.
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
pub(crate) fn utofu() -> &'static unipgas_utofu_sys::Functions {
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
    use super::*;

    #[test]
    fn what_is_not_there_is_named() {
        let error = find(Some(Path::new("/nowhere/libunipgas.so"))).unwrap_err();
        assert!(
            error.contains("--library /nowhere/libunipgas.so"),
            "{error}"
        );
        let error = open(Path::new("/proc/self/maps"), None).unwrap_err();
        assert!(error.contains("/proc/self/maps"), "{error}");
    }

    #[test]
    fn cargo_has_built_the_library_beside_this_test() {
        let found = find(None).unwrap();
        assert!(found.is_absolute() && found.is_file(), "{found:?}");
    }
}

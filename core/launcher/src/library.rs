//! The installed C library: its path, and its functions by name. The laws and the benchmark call the same code as programs do.

use std::ffi::{CStr, CString, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

/// The environment variable that names the library.
pub const VARIABLE: &str = "UNIPGAS_LIB";
/// Folders of libraries beside the folder of the programs.
const FOLDERS: [&str; 3] = [
    "lib",
    "lib64",
    if cfg!(target_arch = "aarch64") {
        "lib/aarch64-linux-gnu"
    } else {
        "lib/x86_64-linux-gnu"
    },
];
/// The library's name where it is installed.
const INSTALLED: &str = "libunipgas.so.0";
/// The library's name in the target directory of cargo.
const BUILT: &str = "libunipgas_c.so";
/// Cargo's folder of dependencies, beside the programs. A build of tests updates the library here only, so a library beside the programs may be older.
const DEPENDENCIES: &str = "deps";

/// The full path of the library. The first of these decides:
/// - `wish`, the value of the option `--library`
/// - the environment variable UNIPGAS_LIB
/// - the places to which `make install` and cargo put the library of this program
///
/// # Errors
/// A text with the missing file and the remedy.
pub fn find(wish: Option<&Path>) -> Result<PathBuf, String> {
    if let Some(path) = wish {
        return named(path, "--library ");
    }
    if let Some(path) = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        return named(path.as_ref(), "UNIPGAS_LIB=");
    }
    let program = std::env::current_exe()
        .map_err(|e| format!("the path of this program cannot be read: {e}"))?;
    let folder = program.parent().unwrap_or(Path::new("/"));
    beside(folder).ok_or_else(|| {
        format!(
            "there is no {INSTALLED} in {} and no {BUILT} in {}: install unipgas, build the library by `cargo build -p unipgas-c`, or name its file by --library",
            folder.with_file_name("lib").display(),
            folder.display()
        )
    })
}

fn named(path: &Path, by: &str) -> Result<PathBuf, String> {
    match path.canonicalize() {
        Ok(full) if full.is_file() => Ok(full),
        _ => Err(format!(
            "{by}{}: there is no such file; name the file of a {INSTALLED}",
            path.display()
        )),
    }
}

/// The library for the programs in `folder`, or for tests in cargo's folder of dependencies.
fn beside(folder: &Path) -> Option<PathBuf> {
    let above = folder.parent().unwrap_or(folder);
    let installed = FOLDERS.map(|name| above.join(name).join(INSTALLED));
    let built = [folder.join(DEPENDENCIES).join(BUILT), folder.join(BUILT)];
    let mut places = installed.into_iter().chain(built);
    places.find(|place| place.is_file())
}

/// An open library. It stays in the process until the process ends.
#[derive(Debug)]
pub struct InstalledLibrary {
    handle: NonNull<c_void>,
    path: PathBuf,
}

// SAFETY:
// - any thread may call `dlsym` with any handle. The handle has no other use.
unsafe impl Send for InstalledLibrary {}
// SAFETY:
// - as for Send.
unsafe impl Sync for InstalledLibrary {}

impl InstalledLibrary {
    /// Loads the library at `path`. Its symbols are not visible to other libraries.
    ///
    /// # Errors
    /// The loader's text.
    pub fn open(path: &Path) -> Result<InstalledLibrary, String> {
        let name = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| format!("{}: a path has no zero byte", path.display()))?;
        // SAFETY:
        // - `name` is a C string. The library's initialisers run: `path` must be a library of unipgas.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        let Some(handle) = NonNull::new(handle) else {
            // SAFETY:
            // - dlerror returns null or a C string that is valid until this thread's next call of the loader. It is copied before.
            let why = unsafe {
                let text = libc::dlerror();
                match text.is_null() {
                    true => path.display().to_string(),
                    false => CStr::from_ptr(text).to_string_lossy().into_owned(),
                }
            };
            return Err(format!("the library cannot be loaded: {why}"));
        };
        Ok(InstalledLibrary {
            handle,
            path: path.into(),
        })
    }

    /// Path of its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Address of a function or a variable, or null if the library has none of this name. It stays valid.
    pub fn symbol(&self, name: &CStr) -> *mut c_void {
        // SAFETY:
        // - the handle is open, since no code closes it. `name` is a C string.
        unsafe { libc::dlsym(self.handle.as_ptr(), name.as_ptr()) }
    }

    /// The function of this name, or `None` if the library lacks it.
    ///
    /// # Safety
    /// `F` must be the type of a pointer to the function.
    pub unsafe fn function<F: Copy>(&self, name: &CStr) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        let found = self.symbol(name);
        // SAFETY:
        // - contract of this call: `F` is the pointer type of the function. Both types have the same size.
        (!found.is_null()).then(|| unsafe { std::mem::transmute_copy(&found) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_named_must_be_there() {
        let error = find(Some(Path::new("/nowhere/libunipgas.so"))).unwrap_err();
        assert!(
            error.starts_with("--library /nowhere/libunipgas.so: "),
            "{error}"
        );
        let error = named(Path::new("/proc"), "UNIPGAS_LIB=").unwrap_err();
        assert!(error.starts_with("UNIPGAS_LIB=/proc: "), "{error}");
        let error = InstalledLibrary::open(Path::new("/proc/self/maps")).unwrap_err();
        assert!(error.contains("/proc/self/maps"), "{error}");
    }

    #[test]
    fn the_installed_library_comes_before_a_built_one() {
        let top = std::env::temp_dir().join(format!("unipgas-library-{}", std::process::id()));
        let folder = top.join("bin");
        let place = |path: PathBuf| {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, []).unwrap();
            path
        };
        std::fs::create_dir_all(&folder).unwrap();
        assert_eq!(beside(&folder), None);
        let built = place(folder.join(BUILT));
        assert_eq!(beside(&folder), Some(built));
        let newer = place(folder.join(DEPENDENCIES).join(BUILT));
        assert_eq!(beside(&folder), Some(newer));
        for name in FOLDERS.iter().rev() {
            let installed = place(top.join(name).join(INSTALLED));
            assert_eq!(beside(&folder), Some(installed));
        }
        std::fs::remove_dir_all(top).unwrap();
    }

    #[test]
    fn functions_are_found_by_their_names() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let of_c = maps
            .lines()
            .filter_map(|line| line.split_whitespace().nth(5));
        let path = of_c
            .into_iter()
            .find(|path| path.contains("/libc.so"))
            .expect("the C library");
        let library = InstalledLibrary::open(Path::new(path)).unwrap();
        assert_eq!(library.path(), Path::new(path));
        // SAFETY:
        // - `int abs(int)`.
        let abs = unsafe { library.function::<unsafe extern "C" fn(i32) -> i32>(c"abs") };
        // SAFETY:
        // - abs takes each number but the smallest.
        assert_eq!(abs.map(|abs| unsafe { abs(-7) }), Some(7));
        assert!(library.symbol(c"unipgas_no_such_function").is_null());
    }
}

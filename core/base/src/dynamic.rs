//! Libraries that are loaded at their first use, so the program has no load-time dependency on them.

use std::ffi::{CStr, CString, c_char, c_int, c_long, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use parking_lot::Mutex;

/// A loaded library. It is never unloaded.
#[derive(Debug, Clone, Copy)]
pub struct DynamicLibrary(*mut c_void);

// SAFETY:
// - a handle of the loader, which any thread may use for lookups.
unsafe impl Send for DynamicLibrary {}
// SAFETY:
// - as for Send.
unsafe impl Sync for DynamicLibrary {}

/// Visibility of the library's functions to libraries that are loaded later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SymbolVisibility {
    /// Visible (`RTLD_GLOBAL`).
    ToAll,
    /// Visible through this handle only (`RTLD_LOCAL`).
    Private,
    /// As `Private`; the library prefers its own functions to the program's of the same name (`RTLD_DEEPBIND`). For a second copy of
    /// a library that the program contains.
    ToItselfFirst,
}

/// Prepares threads for a library that is loaded [apart](DynamicLibrary::load_apart). Its libc has not started the thread, so the thread lacks
/// that libc's tables of character classes.
#[derive(Debug, Clone, Copy)]
pub struct Enter(unsafe extern "C" fn());

impl Enter {
    /// Required once in each thread before it calls the library. Further calls do no harm.
    pub fn enter(self) {
        // SAFETY:
        // - the function only sets thread-local pointers of this thread.
        unsafe { (self.0)() };
    }
}

type Load = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
type LoadInto = unsafe extern "C" fn(c_long, *const c_char, c_int) -> *mut c_void;
/// Asks dlmopen for a new namespace.
const LM_ID_NEWLM: c_long = -1;

/// A function of the loader, by lookup: linkers warn about a direct reference in static programs, which have no loader. Errors: the
/// program is static.
fn loader(function: &CStr, library: &CStr) -> Result<*mut c_void, String> {
    // SAFETY:
    // - the argument is a C string.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, function.as_ptr()) };
    match found.is_null() {
        true => Err(format!(
            "a static program cannot load {}",
            library.to_string_lossy()
        )),
        false => Ok(found),
    }
}

/// An environment in libc's form. It is never freed.
struct Environment {
    strings: Vec<CString>,
    array: AtomicPtr<*mut c_char>,
}

/// Returns a permanent array. Equal environments share one array, since a process may initialise the library many times.
fn for_good(environment: Vec<CString>) -> *mut *mut c_char {
    static KEPT: Mutex<Vec<Environment>> = Mutex::new(Vec::new());
    let mut kept = KEPT.lock();
    if let Some(same) = kept.iter().find(|kept| kept.strings == environment) {
        return same.array.load(Ordering::Relaxed);
    }
    let strings = environment.iter().map(|one| one.clone().into_raw());
    let all: Vec<_> = strings.chain([std::ptr::null_mut()]).collect();
    let array = Box::leak(all.into_boxed_slice()).as_mut_ptr();
    kept.push(Environment {
        strings: environment,
        array: AtomicPtr::new(array),
    });
    array
}

/// Calls `what` with `environment` (`NAME=value` each) as the process's environment. Other threads may read variables at the same time,
/// and see this environment. If a thread sets a variable during the call, this environment stays in place.
pub fn with_environment<T>(environment: Vec<CString>, what: impl FnOnce() -> T) -> T {
    unsafe extern "C" {
        static mut environ: *mut *mut c_char;
    }
    // SAFETY:
    // - libc's variable is aligned and permanent; libc reads the pointer as a whole.
    let place = unsafe { AtomicPtr::from_ptr(&raw mut environ) };
    // The array is permanent: threads may read it after the call.
    let ours = for_good(environment);
    let before = place.swap(ours, Ordering::AcqRel);
    let result = what();
    let _ = place.compare_exchange(ours, before, Ordering::AcqRel, Ordering::Relaxed);
    result
}

impl DynamicLibrary {
    /// Loads a library. Errors: the reason, as part of a sentence.
    pub fn load(name: &CStr, shown: SymbolVisibility) -> Result<Self, String> {
        let shown = match shown {
            SymbolVisibility::ToAll => libc::RTLD_GLOBAL,
            SymbolVisibility::Private => libc::RTLD_LOCAL,
            SymbolVisibility::ToItselfFirst => libc::RTLD_LOCAL | libc::RTLD_DEEPBIND,
        };
        let loader = loader(c"dlopen", name)?;
        // SAFETY:
        // - the name is a C string; the type is that of the loader's function.
        let handle = unsafe {
            std::mem::transmute::<*mut c_void, Load>(loader)(name.as_ptr(), libc::RTLD_NOW | shown)
        };
        DynamicLibrary::of(handle, name)
    }

    /// Loads a further copy of a library and its dependencies, down to libc, in a new namespace. The copy sees `environment` (`NAME=value`
    /// each) and no other variables, and shares no state with the program's copy. Errors: the reason, as part of a sentence.
    pub fn load_apart(name: &CStr, environment: Vec<CString>) -> Result<(Self, Enter), String> {
        let loader = loader(c"dlmopen", name)?;
        // SAFETY:
        // - as for `load`.
        let handle = unsafe {
            std::mem::transmute::<*mut c_void, LoadInto>(loader)(
                LM_ID_NEWLM,
                name.as_ptr(),
                libc::RTLD_NOW,
            )
        };
        let library = DynamicLibrary::of(handle, name)?;
        let theirs = library.find(c"environ")?.cast::<*mut *mut c_char>();
        // SAFETY:
        // - this libc has no other users yet; the array and its strings are permanent.
        unsafe { theirs.write(for_good(environment)) };
        let begin = library.find(c"__ctype_init")?;
        // SAFETY:
        // - the type is that of libc's function.
        let begin = unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn()>(begin) };
        Ok((library, Enter(begin)))
    }

    /// Whether this process has loaded the library.
    pub fn is_loaded(name: &CStr) -> bool {
        let Ok(loader) = loader(c"dlopen", name) else {
            return false;
        };
        // SAFETY:
        // - as for `load`; the call increments the reference count of a loaded library, which then stays loaded.
        let handle = unsafe {
            std::mem::transmute::<*mut c_void, Load>(loader)(
                name.as_ptr(),
                libc::RTLD_LAZY | libc::RTLD_NOLOAD,
            )
        };
        !handle.is_null()
    }

    fn of(handle: *mut c_void, name: &CStr) -> Result<Self, String> {
        match handle.is_null() {
            true => Err(format!(
                "there is no {}: install it, or name its folder in LD_LIBRARY_PATH",
                name.to_string_lossy()
            )),
            false => Ok(DynamicLibrary(handle)),
        }
    }

    /// Address of a function or a variable. Errors: the library has none of this name, as part of a sentence.
    pub fn find(&self, name: &CStr) -> Result<*mut c_void, String> {
        // SAFETY:
        // - the handle is permanent, and the name is a C string.
        let found = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        match found.is_null() {
            true => Err(format!("the library has no {}", name.to_string_lossy())),
            false => Ok(found),
        }
    }
}

/// Defines a structure of library functions with a method `find` that looks up all of them. Its error names the missing function.
#[macro_export]
macro_rules! functions_of_library {
    ($(#[$meta:meta])* $vis:vis struct $name:ident {
        $($field:ident = $symbol:literal: fn($($argument:ty),* $(,)?) -> $result:ty;)+
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy)]
        $vis struct $name {
            $($vis $field: unsafe extern "C" fn($($argument),*) -> $result,)+
        }

        impl $name {
            $vis fn find(library: &$crate::dynamic::DynamicLibrary) -> Result<Self, String> {
                Ok($name {
                    $($field: {
                        let found = library.find($symbol)?;
                        // SAFETY:
                        // - contract of this macro: the list has the type of the library's function.
                        unsafe {
                            std::mem::transmute::<*mut std::ffi::c_void, unsafe extern "C" fn($($argument),*) -> $result>(found)
                        }
                    },)+
                })
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "there is no loader")]
    fn what_is_missing_is_named() {
        let none = DynamicLibrary::load(c"libnobody-has-this.so.1", SymbolVisibility::Private)
            .unwrap_err();
        assert!(none.contains("libnobody-has-this.so.1") && !none.contains('\n'));
        let own = DynamicLibrary::load(c"libc.so.6", SymbolVisibility::Private).unwrap();
        assert!(own.find(c"getpid").is_ok());
        assert!(
            own.find(c"no_such_function")
                .unwrap_err()
                .contains("no_such_function")
        );
        functions_of_library! {
            struct Some {
                pid = c"getpid": fn() -> libc::pid_t;
            }
        }
        let some = Some::find(&own).unwrap();
        // SAFETY:
        // - the function takes no arguments and has no side effects.
        assert_eq!(unsafe { (some.pid)() } as u32, std::process::id());
    }

    #[test]
    fn equal_environments_are_kept_once() {
        let of = |value: &CStr| for_good(vec![c"A=1".to_owned(), value.to_owned()]);
        assert_eq!(of(c"B=2"), of(c"B=2"));
        assert_ne!(of(c"B=2"), of(c"B=3"));
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has other variables")]
    fn variables_are_others_for_the_time_of_a_call() {
        use std::os::unix::ffi::OsStrExt;
        const NAME: &str = "UNIPGAS_TEST_OF_THE_ENVIRONMENT";
        // Includes all variables, since other tests read some at the same time.
        let same = std::env::vars_os().map(|(name, value)| {
            CString::new([name.as_bytes(), b"=", value.as_bytes()].concat()).unwrap()
        });
        let own = CString::new(format!("{NAME}=this")).unwrap();
        let path = std::env::var_os("PATH");
        let seen = with_environment(same.chain([own]).collect(), || {
            (std::env::var(NAME).ok(), std::env::var_os("PATH"))
        });
        assert_eq!(seen, (Some("this".to_owned()), path.clone()));
        assert_eq!(
            (std::env::var_os("PATH"), std::env::var_os(NAME)),
            (path, None)
        );
    }

    #[test]
    #[cfg_attr(miri, ignore = "there is no loader")]
    fn a_library_apart_has_an_environment_of_its_own() {
        assert!(DynamicLibrary::is_loaded(c"libc.so.6"));
        assert!(!DynamicLibrary::is_loaded(c"libnobody-has-this.so.1"));
        let environment = vec![c"ONLY=this".to_owned()];
        let (apart, enter) = DynamicLibrary::load_apart(c"libc.so.6", environment).unwrap();
        functions_of_library! {
            struct Some {
                getenv = c"getenv": fn(*const c_char) -> *const c_char;
            }
        }
        let theirs = Some::find(&apart).unwrap();
        let ours =
            Some::find(&DynamicLibrary::load(c"libc.so.6", SymbolVisibility::Private).unwrap())
                .unwrap();
        // SAFETY:
        // - names and values are C strings; no thread changes a variable at the same time.
        unsafe {
            assert_eq!(CStr::from_ptr((theirs.getenv)(c"ONLY".as_ptr())), c"this");
            assert!((theirs.getenv)(c"PATH".as_ptr()).is_null());
            assert!((ours.getenv)(c"ONLY".as_ptr()).is_null());
            assert!(!(ours.getenv)(c"PATH".as_ptr()).is_null());
        }
        // The other libc has not started this thread.
        let tables = move || {
            enter.enter();
            functions_of_library! {
                struct Some {
                    lower = c"tolower": fn(c_int) -> c_int;
                    table = c"__ctype_b_loc": fn() -> *const *const u16;
                }
            }
            let theirs = Some::find(&apart).unwrap();
            // SAFETY:
            // - tolower takes any letter; the table pointer is thread-local.
            unsafe {
                (
                    (theirs.lower)(i32::from(b'A')),
                    (*(theirs.table)()).is_null(),
                )
            }
        };
        let seen = std::thread::spawn(tables).join().unwrap();
        assert_eq!(seen, (i32::from(b'a'), false));
    }
}

//! Libraries that are loaded when they are first needed, so that nothing depends on them before.

use std::ffi::{CStr, c_char, c_int, c_void};

/// A library; it stays for good.
#[derive(Debug, Clone, Copy)]
pub struct Library(*mut c_void);

// SAFETY:
// - a handle of the loader's, which any thread may ask for names.
unsafe impl Send for Library {}
// SAFETY:
// - as for Send.
unsafe impl Sync for Library {}

/// Whether others that are loaded later find its functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// Yes.
    ToAll,
    /// To nobody but who asks this handle.
    ToNobody,
}

type Load = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;

impl Library {
    /// Loads it. Errors: why not, as part of a sentence.
    pub fn load(name: &CStr, shown: Shown) -> Result<Self, String> {
        let shown = match shown {
            Shown::ToAll => libc::RTLD_GLOBAL,
            Shown::ToNobody => libc::RTLD_LOCAL,
        };
        let text = name.to_string_lossy();
        // SAFETY:
        // - names are C strings; the function of the loader's name has the loader's type. It is looked up, since linkers warn of it in
        //   static programs, which have none.
        let handle = unsafe {
            let loader = libc::dlsym(libc::RTLD_DEFAULT, c"dlopen".as_ptr());
            if loader.is_null() {
                return Err(format!("a static program cannot load {text}"));
            }
            std::mem::transmute::<*mut c_void, Load>(loader)(name.as_ptr(), libc::RTLD_NOW | shown)
        };
        match handle.is_null() {
            true => Err(format!(
                "there is no {text}: install it, or name its folder in LD_LIBRARY_PATH"
            )),
            false => Ok(Library(handle)),
        }
    }

    /// A function, or a variable. Errors: it has none of this name, as part of a sentence.
    pub fn find(&self, name: &CStr) -> Result<*mut c_void, String> {
        // SAFETY:
        // - a handle that stays, and a C string.
        let found = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        match found.is_null() {
            true => Err(format!("the library has no {}", name.to_string_lossy())),
            false => Ok(found),
        }
    }
}

/// A structure with functions of a library, and `find`, which looks all of them up; its error says which is missing.
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
            $vis fn find(library: &$crate::dynamic::Library) -> Result<Self, String> {
                Ok($name {
                    $($field: {
                        let found = library.find($symbol)?;
                        // SAFETY:
                        // - the function of this name has this type: the word of who wrote the list.
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
        let none = Library::load(c"libnobody-has-this.so.1", Shown::ToNobody).unwrap_err();
        assert!(none.contains("libnobody-has-this.so.1") && !none.contains('\n'));
        let own = Library::load(c"libc.so.6", Shown::ToNobody).unwrap();
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
        // - takes nothing, and changes nothing.
        assert_eq!(unsafe { (some.pid)() } as u32, std::process::id());
    }
}

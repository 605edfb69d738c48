//! The functions of libfabric that the provider needs. Each use looks them up at run time, so the library does not depend on libfabric.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::OnceLock;

use crate::status::{Errno, Result};
use crate::sys::fi_info;

/// `fi_dupinfo`.
pub type DupInfo = unsafe extern "C" fn(*const fi_info) -> *mut fi_info;
type Load = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
/// `fi_freeinfo`.
pub type FreeInfo = unsafe extern "C" fn(*mut fi_info);

// Defined in linked.c.
unsafe extern "C" {
    static unipgas_fi_dupinfo: *mut c_void;
    static unipgas_fi_freeinfo: *mut c_void;
}

static STAND_IN: OnceLock<(DupInfo, FreeInfo)> = OnceLock::new();

/// Sets the provider's `fi_dupinfo` and `fi_freeinfo`, for programs that call its tables without libfabric. Only the first call has an effect.
pub fn stand_in(dupinfo: DupInfo, freeinfo: FreeInfo) {
    let _ = STAND_IN.set((dupinfo, freeinfo));
}

/// A function of a statically linked libfabric.
fn linked(name: &CStr) -> Option<*mut c_void> {
    // SAFETY:
    // - constants of linked.c, which the linker sets.
    let found = unsafe {
        match name {
            name if name == c"fi_dupinfo" => unipgas_fi_dupinfo,
            name if name == c"fi_freeinfo" => unipgas_fi_freeinfo,
            _ => return None,
        }
    };
    (!found.is_null()).then_some(found)
}

fn find(name: &CStr) -> Result<*mut c_void> {
    // SAFETY:
    // - the names are C strings. The handle belongs to libfabric, which is loaded and stays so during its calls.
    // - `dlopen` has the type `Load`.
    unsafe {
        let found = libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
        if !found.is_null() {
            return Ok(found);
        }
        // A program may have loaded libfabric with RTLD_LOCAL, which hides its symbols. `dlopen` is looked up, too. Static programs lack it, and
        // their linkers warn about direct calls.
        let loader = libc::dlsym(libc::RTLD_DEFAULT, c"dlopen".as_ptr());
        if loader.is_null() {
            return linked(name).ok_or(Errno::NOSYS);
        }
        let library = std::mem::transmute::<*mut c_void, Load>(loader)(
            c"libfabric.so.1".as_ptr(),
            libc::RTLD_LAZY | libc::RTLD_NOLOAD,
        );
        if library.is_null() {
            return Err(Errno::NOSYS);
        }
        let found = libc::dlsym(library, name.as_ptr());
        libc::dlclose(library);
        if found.is_null() {
            Err(Errno::NOSYS)
        } else {
            Ok(found)
        }
    }
}

/// The function with this name, as a pointer of type `F`.
///
/// # Safety
/// `F` is the type of the function.
pub(super) unsafe fn function<F: Copy>(name: &CStr) -> Result<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    let found = find(name)?;
    // SAFETY:
    // - contract of this call: a pointer to a function of type `F`.
    Ok(unsafe { std::mem::transmute_copy::<*mut c_void, F>(&found) })
}

fn functions() -> Result<(DupInfo, FreeInfo)> {
    if let Some(functions) = STAND_IN.get() {
        return Ok(*functions);
    }
    // SAFETY:
    // - the functions of these names have these types.
    unsafe { Ok((function(c"fi_dupinfo")?, function(c"fi_freeinfo")?)) }
}

/// Whether the functions exist, in libfabric or by [`stand_in`].
pub fn is_there() -> bool {
    functions().is_ok()
}

/// An empty `fi_info` with its attributes, of the size in the libfabric that is loaded.
pub fn allocate_info() -> Result<*mut fi_info> {
    let (dupinfo, _) = functions()?;
    // SAFETY:
    // - null requests an empty `fi_info`.
    let info = unsafe { dupinfo(std::ptr::null()) };
    if info.is_null() {
        Err(Errno::NOMEM)
    } else {
        Ok(info)
    }
}

/// Frees a result of [`allocate_info`].
///
/// # Safety
/// `info` is a result of [`allocate_info`], and no other reference to it exists.
pub unsafe fn free_info(info: *mut fi_info) {
    if let Ok((_, freeinfo)) = functions() {
        // SAFETY:
        // - contract of this call: a result of `allocate_info`.
        unsafe { freeinfo(info) };
    }
}

/// A copy that free(3) frees.
pub fn duplicate(text: &str) -> Result<*mut c_char> {
    let text = CString::new(text).map_err(|_| Errno::INVAL)?;
    // SAFETY:
    // - a C string.
    let copy = unsafe { libc::strdup(text.as_ptr()) };
    if copy.is_null() {
        Err(Errno::NOMEM)
    } else {
        Ok(copy)
    }
}

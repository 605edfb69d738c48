//! The few functions of libfabric itself that a provider needs. They are found when they are first used, so that the library does not
//! depend on libfabric.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::OnceLock;

use crate::status::{Errno, Result};
use crate::sys::fi_info;

/// `fi_dupinfo`.
pub type DupInfo = unsafe extern "C" fn(*const fi_info) -> *mut fi_info;
type Load = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
/// `fi_freeinfo`.
pub type FreeInfo = unsafe extern "C" fn(*mut fi_info);

// Of linked.c.
unsafe extern "C" {
    static unipgas_fi_dupinfo: *mut c_void;
    static unipgas_fi_freeinfo: *mut c_void;
}

static STAND_IN: OnceLock<(DupInfo, FreeInfo)> = OnceLock::new();

/// Has the provider use these functions as `fi_dupinfo` and `fi_freeinfo`: for who calls its tables without libfabric. The first call counts.
pub fn stand_in(dupinfo: DupInfo, freeinfo: FreeInfo) {
    let _ = STAND_IN.set((dupinfo, freeinfo));
}

/// A function of a libfabric that is linked statically.
fn linked(name: &CStr) -> Option<*mut c_void> {
    // SAFETY:
    // - words that the linker fills, and that nobody writes later.
    let found = unsafe {
        match name {
            name if name == c"fi_dupinfo" => unipgas_fi_dupinfo,
            name if name == c"fi_freeinfo" => unipgas_fi_freeinfo,
            _ => return None,
        }
    };
    (!found.is_null()).then_some(found)
}

pub(super) fn find(name: &CStr) -> Result<*mut c_void> {
    // SAFETY:
    // - names are C strings; the handle, if any, is that of a library which is loaded already and stays so while it calls us.
    // - the function of the loader's name has the loader's type.
    unsafe {
        let found = libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
        if !found.is_null() {
            return Ok(found);
        }
        // Programs may have loaded it without showing its symbols to others. The loader itself is looked up, too: linkers warn of it
        // in static programs, which have none.
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

fn functions() -> Result<(DupInfo, FreeInfo)> {
    if let Some(functions) = STAND_IN.get() {
        return Ok(*functions);
    }
    let (dupinfo, freeinfo) = (find(c"fi_dupinfo")?, find(c"fi_freeinfo")?);
    // SAFETY:
    // - the functions of these names have these types.
    Ok(unsafe {
        (
            std::mem::transmute::<*mut c_void, DupInfo>(dupinfo),
            std::mem::transmute::<*mut c_void, FreeInfo>(freeinfo),
        )
    })
}

/// Whether there is a libfabric, or what stands in for it.
pub fn is_there() -> bool {
    functions().is_ok()
}

/// An empty `fi_info` of the loading library's size, with its attributes.
pub fn allocate_info() -> Result<*mut fi_info> {
    let (dupinfo, _) = functions()?;
    // SAFETY:
    // - null asks for an empty one.
    let info = unsafe { dupinfo(std::ptr::null()) };
    if info.is_null() {
        Err(Errno::NOMEM)
    } else {
        Ok(info)
    }
}

/// Frees what [`allocate_info`] gave.
///
/// # Safety
/// It came from there and is nobody else's.
pub unsafe fn free_info(info: *mut fi_info) {
    if let Ok((_, freeinfo)) = functions() {
        // SAFETY:
        // - the caller's word.
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

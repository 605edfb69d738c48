//! Stand-ins for libfabric's core: the two functions that a provider needs, and fi_getinfo(3) with hints.
//!
//! Guard bytes follow each structure. The provider must not touch them: structures of other versions have further members there.

use std::ffi::{CStr, c_int};
use std::ptr::{null, null_mut};

use unipgas_libfabric_sys::*;

use crate::library::{self, library};

/// Guard bytes after each structure.
const GUARD: usize = 64;
const UNTOUCHED: u8 = 0xa5;

fn allocate<T>() -> *mut T {
    // SAFETY:
    // - room for the zeroed structure and the guard after it.
    unsafe {
        let place = libc::calloc(1, size_of::<T>() + GUARD).cast::<u8>();
        assert!(!place.is_null(), "no memory");
        place.add(size_of::<T>()).write_bytes(UNTOUCHED, GUARD);
        place.cast()
    }
}

/// # Safety
/// `place` is from [`allocate`].
unsafe fn is_whole<T>(place: *const T) -> bool {
    // SAFETY:
    // - contract of this function: `place` is from `allocate`, which writes the guard.
    let guard = unsafe { std::slice::from_raw_parts(place.add(1).cast::<u8>(), GUARD) };
    guard.iter().all(|byte| *byte == UNTOUCHED)
}

/// Providers call this with null to get an empty `fi_info` that fi_freeinfo(3) can free.
extern "C" fn fi_dupinfo(info: *const fi_info) -> *mut fi_info {
    if !info.is_null() {
        return null_mut();
    }
    let info = allocate::<fi_info>();
    // SAFETY:
    // - just allocated.
    unsafe {
        (*info).tx_attr = allocate();
        (*info).rx_attr = allocate();
        (*info).ep_attr = allocate();
        (*info).domain_attr = allocate();
        (*info).fabric_attr = allocate();
    }
    info
}

/// # Safety
/// `info` is null, or a list with parts from [`fi_dupinfo`] and malloc. The list has no other user.
unsafe extern "C" fn fi_freeinfo(mut info: *mut fi_info) {
    while !info.is_null() {
        // SAFETY:
        // - contract of this function: the parts are from `fi_dupinfo` and malloc, without another user; free accepts null.
        unsafe {
            let this = *info;
            for name in [(*this.domain_attr).name, (*this.fabric_attr).name] {
                libc::free(name.cast());
            }
            libc::free((*this.fabric_attr).prov_name.cast());
            libc::free(this.src_addr);
            libc::free(this.dest_addr);
            libc::free(this.tx_attr.cast());
            libc::free(this.rx_attr.cast());
            libc::free(this.ep_attr.cast());
            libc::free(this.domain_attr.cast());
            libc::free(this.fabric_attr.cast());
            libc::free(info.cast());
            info = this.next;
        }
    }
}

/// For each attribute of a `fi_info` a method that gives it.
macro_rules! attributes {
    ($($name:ident: $field:ident, $type:ty;)+) => {$(
        pub(super) fn $name(&mut self) -> &mut $type {
            // SAFETY:
            // - as in `info`.
            unsafe { &mut *(*self.0).$field }
        }
    )+};
}

/// A `fi_info` with its attributes: hints, or an offer of the provider.
pub(crate) struct Info(*mut fi_info);

impl Info {
    /// Hints without any request.
    pub(super) fn hints() -> Info {
        Info(fi_dupinfo(null()))
    }

    pub(super) fn raw(&self) -> *mut fi_info {
        self.0
    }

    pub(super) fn info(&mut self) -> &mut fi_info {
        // SAFETY:
        // - allocated, with its attributes, until this is dropped; likewise below.
        unsafe { &mut *self.0 }
    }

    attributes! {
        transmit: tx_attr, fi_tx_attr;
        receive: rx_attr, fi_rx_attr;
        endpoint: ep_attr, fi_ep_attr;
        domain: domain_attr, fi_domain_attr;
        fabric: fabric_attr, fi_fabric_attr;
    }

    /// The bytes of `src_addr`, or of `dest_addr`.
    pub(super) fn end(&mut self, source: bool) -> Vec<u8> {
        let (place, len) = match source {
            true => (self.info().src_addr, self.info().src_addrlen),
            false => (self.info().dest_addr, self.info().dest_addrlen),
        };
        if place.is_null() {
            return Vec::new();
        }
        // SAFETY:
        // - the info's length field gives the number of bytes.
        unsafe { std::slice::from_raw_parts(place.cast::<u8>(), len) }.to_vec()
    }

    /// Whether all guard bytes are unchanged.
    pub(super) fn is_whole(&self) -> bool {
        // SAFETY:
        // - all from `allocate`.
        unsafe {
            let info = &*self.0;
            is_whole(self.0)
                && is_whole(info.tx_attr)
                && is_whole(info.rx_attr)
                && is_whole(info.ep_attr)
                && is_whole(info.domain_attr)
                && is_whole(info.fabric_attr)
        }
    }
}

impl Drop for Info {
    fn drop(&mut self) {
        // SAFETY:
        // - `self` owns the info; strings in it are from strdup.
        unsafe { fi_freeinfo(self.0) };
    }
}

/// fi_getinfo(3) of the provider alone, for a program of API `version`. Errors: the negative error number.
pub(super) fn getinfo(version: u32, flags: u64, hints: Option<&Info>) -> Result<Info, c_int> {
    getinfo_at(version, [None; 2], flags, hints)
}

/// What the latest version of the interface is offered for these hints.
pub(super) fn offered(hints: &Info) -> Result<Info, String> {
    getinfo(version(1, 17), 0, Some(hints)).map_err(|code| format!("fi_getinfo gave {code}"))
}

/// The provider, with these stand-ins installed.
pub(super) fn provider() -> *mut fi_provider {
    let library = library();
    if let Some(stand_in) = library.unipgas_fi_stand_in {
        // SAFETY:
        // - both functions behave as libfabric's functions of the same names.
        unsafe { stand_in(fi_dupinfo, fi_freeinfo) };
    }
    // SAFETY:
    // - no arguments.
    unsafe { library::offered(library.fi_prov_ini, "fi_prov_ini")() }
}

/// As [`getinfo`], with node and service.
pub(super) fn getinfo_at(
    version: u32,
    at: [Option<&CStr>; 2],
    flags: u64,
    hints: Option<&Info>,
) -> Result<Info, c_int> {
    let mut found = null_mut();
    let [node, service] = at.map(|text| text.map_or(null(), CStr::as_ptr));
    // SAFETY:
    // - the provider lives as long as the process; hints have their attributes; node and service are C strings or null.
    let code = unsafe {
        let provider = &*provider();
        let hints = hints.map_or(null(), |hints| hints.raw().cast_const());
        (provider.getinfo)(version, node, service, flags, hints, &mut found)
    };
    match code {
        0 => Ok(Info(found)),
        code => Err(code),
    }
}

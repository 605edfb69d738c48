//! The shared and the static library for programs in C, C++ and Fortran: all C functions of [`unipgas`], whose table of backends is
//! filled when the library is loaded.

use unipgas::core::wait::Watch;
#[cfg(feature = "libfabric")]
use unipgas::libfabric::ffi::{DupInfo, FreeInfo};

extern "C" fn at_load() {
    unipgas::init();
}

// SAFETY:
// - contract of `.init_array`: pointers to functions that the loader calls once, after the C library is ready. `at_load` needs no more.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

/// Has the library count at `watch` how long this process means to sleep in vain, and how often such a wait ends. A test driver that loads the library sees there
/// without a clock that a job stands still; programs need no such thing, and no header declares it.
///
/// # Safety
/// Null, or aligned and in memory that stays mapped as long as the process lives. The library adds to it atomically.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unipgas_count_waits(watch: *const Watch) {
    // SAFETY:
    // - null or valid, by the caller's word.
    if let Some(watch) = unsafe { watch.as_ref() } {
        Watch::begin(watch);
    }
}

/// Has the provider use these functions as `fi_dupinfo` and `fi_freeinfo` of libfabric: for a program that calls the tables of `fi_prov_ini` itself, without libfabric.
/// The first call counts.
#[cfg(feature = "libfabric")]
#[unsafe(no_mangle)]
pub extern "C" fn unipgas_fi_stand_in(dupinfo: DupInfo, freeinfo: FreeInfo) {
    unipgas::libfabric::ffi::stand_in(dupinfo, freeinfo);
}

//! The shared and the static library for programs in C, C++ and Fortran. It exports all C functions of [`unipgas`], and fills the table of backends
//! when it is loaded.

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

/// Makes the library count in `watch`: the intended length of sleeps that end without a ring, and the number of waits that end after a sleep. A test driver
/// reads both to detect a job without progress; it needs no clock. Other programs do not need this function, and no header declares it.
///
/// # Safety
/// `watch` is null, or aligned and in memory that stays mapped until the process ends. The library adds to it atomically.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unipgas_count_waits(watch: *const Watch) {
    // SAFETY:
    // - contract of this function: `watch` is null, or valid until the process ends.
    if let Some(watch) = unsafe { watch.as_ref() } {
        Watch::begin(watch);
    }
}

/// Sets the functions that the provider uses as `fi_dupinfo` and `fi_freeinfo` of libfabric. A program that calls the tables of `fi_prov_ini` itself, without
/// libfabric, needs this. Calls after the first have no effect.
#[cfg(feature = "libfabric")]
#[unsafe(no_mangle)]
pub extern "C" fn unipgas_fi_stand_in(dupinfo: DupInfo, freeinfo: FreeInfo) {
    unipgas::libfabric::ffi::stand_in(dupinfo, freeinfo);
}

//! The shared and the static library for programs in C, C++ and Fortran: all C functions of [`unipgas`], whose table of backends is
//! filled when the library is loaded.

extern "C" fn at_load() {
    unipgas::init();
}

// SAFETY:
// - contract of `.init_array`: pointers to functions that the loader calls once, after the C library is ready. `at_load` needs no more.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

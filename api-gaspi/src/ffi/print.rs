//! `gaspi_printf` and `gaspi_printf_to` write the rank and a text in one piece. The variadic part is C (`src/ffi/print.c`), since stable
//! Rust cannot define variadic functions.

use std::ffi::{CStr, c_char, c_int, c_ushort};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::environment::process;
use crate::links::put_out;

/// Prints a text that the C part has formatted, on process `rank`. A negative `rank` stands for this process.
///
/// # Safety
/// `text` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unipgas_gaspi_print(rank: c_int, text: *const c_char) {
    if text.is_null() {
        return;
    }
    // SAFETY:
    // - contract of this function: `text` is a C string.
    let text = unsafe { CStr::from_ptr(text) }.to_bytes();
    let print = || match process() {
        Ok(process) => {
            let rank = u16::try_from(rank).unwrap_or(process.rank());
            process.print_to(rank, text);
        }
        Err(_) => put_out(text),
    };
    let _ = catch_unwind(AssertUnwindSafe(print));
}

unsafe extern "C" {
    fn unipgas_gaspi_vprintf(format: *const c_char, ...);
    fn unipgas_gaspi_vprintf_to(rank: c_ushort, format: *const c_char, ...);
}

macro_rules! jump {
    ($($name:ident to $target:ident)*) => {$(
        /// Jumps to the C part. The variable arguments stay in their places.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            #[cfg(target_arch = "x86_64")]
            core::arch::naked_asm!("jmp {target}", target = sym $target);
            #[cfg(target_arch = "aarch64")]
            core::arch::naked_asm!("b {target}", target = sym $target);
        }
    )*};
}

jump! {
    gaspi_printf to unipgas_gaspi_vprintf
    pgaspi_printf to unipgas_gaspi_vprintf
    gaspi_printf_to to unipgas_gaspi_vprintf_to
    pgaspi_printf_to to unipgas_gaspi_vprintf_to
}

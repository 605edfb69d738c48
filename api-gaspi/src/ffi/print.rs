//! `gaspi_printf`: a text with the rank in front, written in one piece. The variadic part is a few lines of C
//! (`src/ffi/print.c`), since stable Rust cannot define variadic functions.

use std::ffi::{CStr, c_char};
use std::io::Write;

use crate::environment::process;

/// Writes what the C part has formatted.
///
/// # Safety
/// `text` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unipgas_gaspi_print(text: *const c_char) {
    if text.is_null() {
        return;
    }
    // SAFETY:
    // - a C string by the caller's word.
    let text = unsafe { CStr::from_ptr(text) };
    let mut line = match process() {
        Ok(process) => format!("[{:4}] ", process.rank()).into_bytes(),
        Err(_) => Vec::new(),
    };
    line.extend_from_slice(text.to_bytes());
    let mut out = std::io::stdout().lock();
    // A closed stdout is the program's business.
    let _ = out.write_all(&line).and_then(|()| out.flush());
}

unsafe extern "C" {
    fn unipgas_gaspi_vprintf(format: *const c_char, ...);
}

macro_rules! jump {
    ($($name:ident)*) => {$(
        /// Takes C's variable arguments, where they lie, to the C part.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            #[cfg(target_arch = "x86_64")]
            core::arch::naked_asm!("jmp {target}", target = sym unipgas_gaspi_vprintf);
            #[cfg(target_arch = "aarch64")]
            core::arch::naked_asm!("b {target}", target = sym unipgas_gaspi_vprintf);
        }
    )*};
}

jump! { gaspi_printf pgaspi_printf }

//! `utofu_get_last_error`: the guide does not describe it, but the systems' library has it and programs use it.

use std::cell::Cell;
use std::fmt::Write as _;

use libc::c_char;

use unipgas_core::refused::{self, Prototype};

use crate::status::ReturnCode;

thread_local! {
    static LAST: Cell<Option<(&'static Prototype<'static>, ReturnCode)>> = const { Cell::new(None) };
}

/// Keeps the error of a function, and explains it if the user has enabled this. Calls that succeed or need a retry do not come here.
#[cold]
#[inline(never)]
pub(crate) fn remember(call: &'static Prototype<'static>, code: ReturnCode) {
    // Fails while the thread ends: its thread-local storage is gone.
    let _ = LAST.try_with(|last| last.set(Some((call, code))));
    refused::explain(call, code.c_name(), code.meaning(), code.reason());
}

/// Size of the caller's buffer in bytes, with the final zero. The header states it.
const ROOM: usize = 256;

fn text() -> String {
    let mut text = String::new();
    let last = LAST.try_with(Cell::get).ok().flatten();
    let _ = match last {
        None => write!(text, "no error"),
        Some((call, code)) => {
            let function = call.name;
            let meaning = code.meaning().trim_end_matches('.');
            write!(
                text,
                "{function}: {} ({}): {meaning}",
                code.c_name(),
                code as i32
            )
        }
    };
    text.truncate(ROOM - 1);
    text
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn utofu_get_last_error(message: *mut c_char) {
    if message.is_null() {
        return;
    }
    let text = text();
    // SAFETY:
    // - the C contract gives room for `ROOM` bytes. The text with its zero has at most `ROOM` bytes.
    unsafe {
        message
            .cast::<u8>()
            .copy_from_nonoverlapping(text.as_ptr(), text.len());
        message.add(text.len()).write(0);
    }
}

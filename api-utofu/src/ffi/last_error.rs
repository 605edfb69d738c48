//! `utofu_get_last_error`: in no guide, but in the systems' library, and used by programs.

use std::cell::Cell;
use std::fmt::Write as _;

use libc::c_char;

use unipgas_core::refused::{self, Prototype};

use crate::status::Code;

thread_local! {
    static LAST: Cell<Option<(&'static Prototype<'static>, Code)>> = const { Cell::new(None) };
}

/// Keeps what a function has returned, and explains it where that is asked for. Not on the way of calls that succeed or have to be repeated.
#[cold]
#[inline(never)]
pub(crate) fn remember(call: &'static Prototype<'static>, code: Code) {
    // While the thread ends there is no place for it.
    let _ = LAST.try_with(|last| last.set(Some((call, code))));
    refused::explain(call, code.c_name(), code.meaning(), code.reason());
}

/// Bytes that programs have room for at least, with the zero at the end; the header tells them.
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
    // - room for `ROOM` bytes by the C contract, and the text with its zero is no longer.
    unsafe {
        message
            .cast::<u8>()
            .copy_from_nonoverlapping(text.as_ptr(), text.len());
        message.add(text.len()).write(0);
    }
}

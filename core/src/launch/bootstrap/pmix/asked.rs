//! What a rank of another host is asked for. The servers answer when it has published that, which may be never: no time-out of theirs can be relied
//! on, so the question stays, and whoever wants the answer waits for some time only.

use std::ffi::{CString, c_int, c_void};
use std::ptr::null;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::library::{Library, Proc, SUCCESS, TYPE_BYTES, Value};
use crate::Deadline;

/// After so long a value is given up for now: its rank has not begun, or its host has gone.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks whether an answer can still come.
const LOOK: Duration = Duration::from_millis(50);

/// A question on its way.
pub(super) struct Asked {
    /// The library keeps where it is, until it answers.
    key: CString,
    answer: Mutex<Option<Answer>>,
    answered: Condvar,
    given_up: AtomicBool,
}

struct Answer {
    code: c_int,
    value: Option<Vec<u8>>,
}

impl Asked {
    /// Asks for what `process` has published under `key`. Errors: the library's.
    pub fn begin(
        library: &Library,
        process: &Proc,
        key: CString,
    ) -> std::result::Result<Arc<Self>, c_int> {
        let asked = Arc::new(Asked {
            key,
            answer: Mutex::default(),
            answered: Condvar::new(),
            given_up: AtomicBool::new(false),
        });
        let told = Arc::into_raw(asked.clone());
        // SAFETY:
        // - the process is copied, there are no wishes, and the key stays until the callback, which gets a reference of its own.
        let code = unsafe {
            (library.ask)(
                process,
                asked.key.as_ptr(),
                null(),
                0,
                on_answer,
                told.cast_mut().cast(),
            )
        };
        if code == SUCCESS {
            return Ok(asked);
        }
        // SAFETY:
        // - the callback is not called where the call fails.
        drop(unsafe { Arc::from_raw(told) });
        Err(code)
    }

    /// Waits for the answer's code; `None` if it has not come after some time, which is short once it has been given up, or `never` will.
    pub fn wait(&self, never: impl Fn() -> bool) -> Option<c_int> {
        let given_up = self.given_up.load(Ordering::Relaxed);
        let deadline = Deadline::after(if given_up { LOOK } else { PATIENCE });
        let mut answer = self.answer.lock();
        loop {
            if let Some(answer) = &*answer {
                return Some(answer.code);
            }
            if deadline.expired() || never() {
                self.given_up.store(true, Ordering::Relaxed);
                return None;
            }
            self.answered.wait_for(&mut answer, LOOK);
        }
    }

    /// The bytes that were told; `None` if there are none.
    pub fn value(&self) -> Option<Vec<u8>> {
        self.answer.lock().as_ref()?.value.clone()
    }
}

/// Called by a thread of the library, or within the call that asks.
unsafe extern "C" fn on_answer(code: c_int, value: *mut Value, asked: *mut c_void) {
    // SAFETY:
    // - the reference that the question was given, once.
    let asked = unsafe { Arc::from_raw(asked.cast_const().cast::<Asked>()) };
    // SAFETY:
    // - null, or a value that stays until this returns; its member is the one that the type says.
    let value = unsafe {
        let value = value.as_ref().filter(|value| value.kind == TYPE_BYTES);
        let bytes = value.map(|value| value.data.bytes);
        let bytes = bytes.filter(|bytes| !bytes.bytes.is_null());
        bytes.map(|told| std::slice::from_raw_parts(told.bytes.cast::<u8>(), told.len).to_vec())
    };
    *asked.answer.lock() = Some(Answer { code, value });
    asked.answered.notify_all();
}

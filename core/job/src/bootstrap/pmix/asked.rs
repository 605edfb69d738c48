//! Requests for values of ranks on other hosts. A server answers when the rank has published the value, which may be never. Its timeouts are not reliable.
//! So a request stays in progress, and each wait for it has a limit.

use std::ffi::{CString, c_int, c_void};
use std::ptr::null;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::library::{Library, Proc, SUCCESS, TYPE_BYTES, Value};
use unipgas_base::Deadline;

/// Limit of the first wait. After it, the rank has probably not begun, or its host has failed.
const PATIENCE: Duration = Duration::from_secs(10);
/// Interval between checks whether an answer can still come. Also the limit of later waits.
const LOOK: Duration = Duration::from_millis(50);

/// A request in progress.
pub(super) struct Asked {
    /// The library keeps the address until it answers.
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
    /// Requests the value that `process` has published under `key`. Errors: the library's code.
    pub(crate) fn begin(
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
        // - the process is copied, and there are no options. The key stays valid until the callback, which owns a reference.
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
        // - the library does not call the callback of a failed call.
        drop(unsafe { Arc::from_raw(told) });
        Err(code)
    }

    /// Waits for the code of the answer. `None`: `never` is true, or the limit has passed. After the first `None`, later waits are short.
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

    /// The value, if the answer has one.
    pub fn value(&self) -> Option<Vec<u8>> {
        self.answer.lock().as_ref()?.value.clone()
    }
}

/// The callback. A thread of the library runs it, or the call that asks.
unsafe extern "C" fn on_answer(code: c_int, value: *mut Value, asked: *mut c_void) {
    // SAFETY:
    // - `asked` is the reference that the request passed. The library passes it once.
    let asked = unsafe { Arc::from_raw(asked.cast_const().cast::<Asked>()) };
    // SAFETY:
    // - contract of the library: `value` is null, or valid until this returns, and its type selects the member.
    let value = unsafe {
        let value = value.as_ref().filter(|value| value.kind == TYPE_BYTES);
        let bytes = value.map(|value| value.data.bytes);
        let bytes = bytes.filter(|bytes| !bytes.bytes.is_null());
        bytes.map(|told| std::slice::from_raw_parts(told.bytes.cast::<u8>(), told.len).to_vec())
    };
    *asked.answer.lock() = Some(Answer { code, value });
    asked.answered.notify_all();
}

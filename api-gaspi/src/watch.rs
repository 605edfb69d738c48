//! Whether anybody watches the calls of the C interface: its [statistics], and [explanations](crate::explain) of what is refused. Calls of a process that nobody watches pay
//! nothing: the look whether it is initialised tells that, too.

use std::sync::atomic::{AtomicU8, Ordering};

use parking_lot::Once;
use unipgas_core::calls::Call;
use unipgas_core::variables;

use crate::ffi::code;
use crate::status::{Result, Status};
use crate::{environment, statistics};

/// Calls are counted.
const COUNTED: u8 = 1;
/// What is refused is explained.
const EXPLAINED: u8 = 2;

static WATCHED: AtomicU8 = AtomicU8::new(0);

/// Whether calls are to be [`watched`].
pub fn is_on() -> bool {
    looked() != 0
}

/// What is watched; the environment is looked at before anything else.
fn looked() -> u8 {
    static LOOKED: Once = Once::new();
    LOOKED.call_once(|| {
        if variables::switch("UNIPGAS_CHECK", false).unwrap_or(false) {
            WATCHED.fetch_or(EXPLAINED, Ordering::Relaxed);
        }
    });
    WATCHED.load(Ordering::Relaxed)
}

/// Calls are counted from now on, or are not.
pub fn count(counted: bool) {
    match counted {
        true => WATCHED.fetch_or(COUNTED, Ordering::Relaxed),
        false => WATCHED.fetch_and(!COUNTED, Ordering::Relaxed),
    };
    environment::watch(is_on());
}

/// Runs a procedure as [`code`] does, the one with this number if it is counted; after a success also `moved`. What is refused is told to `explained`, where that is wanted.
#[cold]
#[inline(never)]
pub fn watched(
    number: Option<usize>,
    run: impl FnOnce() -> Result<()>,
    moved: impl FnOnce(),
    explained: impl FnOnce(Status),
) -> i32 {
    let watched = looked();
    if Call::is_left() {
        drop(Call::begun(environment::look_around));
    }
    code(|| {
        let result = match number.filter(|_| watched & COUNTED != 0) {
            Some(number) => statistics::counted(number, run).inspect(|()| moved()),
            None => run(),
        };
        result.inspect_err(|status| {
            if watched & EXPLAINED != 0 {
                explained(*status);
            }
        })
    })
}

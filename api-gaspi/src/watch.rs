//! Watching of the calls of the C interface: [statistics], and [explanations](crate::explain) of refused calls. Unwatched calls pay nothing:
//! the check for an initialised process also checks whether calls are watched.

use std::sync::atomic::{AtomicU8, Ordering};

use parking_lot::Once;
use unipgas_core::calls::Call;
use unipgas_core::variables;

use crate::status::{Result, Status, code};
use crate::{environment, statistics};

/// Bit of [`WATCHED`]: calls are counted.
const COUNTED: u8 = 1;
/// Bit of [`WATCHED`]: refused calls are explained.
const EXPLAINED: u8 = 2;

static WATCHED: AtomicU8 = AtomicU8::new(0);

/// Whether calls must run in [`watched`].
pub fn is_on() -> bool {
    looked() != 0
}

/// The bits of [`WATCHED`]. The first call reads the environment.
fn looked() -> u8 {
    static LOOKED: Once = Once::new();
    LOOKED.call_once(|| {
        if variables::switch("UNIPGAS_CHECK", false).unwrap_or(false) {
            WATCHED.fetch_or(EXPLAINED, Ordering::Relaxed);
        }
    });
    WATCHED.load(Ordering::Relaxed)
}

/// Switches the counting of calls.
pub fn count(counted: bool) {
    match counted {
        true => WATCHED.fetch_or(COUNTED, Ordering::Relaxed),
        false => WATCHED.fetch_and(!COUNTED, Ordering::Relaxed),
    };
    environment::watch(is_on());
}

/// Runs a procedure as [`code`]. If calls are counted: counts the procedure with this number, and runs `moved` after a success. If refused
/// calls are explained: runs `explained` after an error.
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

//! The functions of the library, made from the list of all: each is counted, and fails on demand, before it does anything.

use unipgas_utofu_sys::*;

use crate::calls;
use crate::library::{UtofuResult, begin};

/// What a function returns, if anything.
trait Answer {
    fn of(outcome: UtofuResult) -> Self;
}

impl Answer for c_int {
    fn of(outcome: UtofuResult) -> Self {
        outcome.err().unwrap_or(UTOFU_SUCCESS)
    }
}

impl Answer for () {
    fn of(_: UtofuResult) {}
}

macro_rules! exports {
    ($(fn $name:ident($($parameter:ident: $ty:ty),* $(,)?) -> $result:ty;)*) => {
        /// The place of each function in the list.
        #[allow(non_camel_case_types, reason = "the names are those of C")]
        enum Call { $($name,)* }

        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($parameter: $ty),*) -> $result {
                let outcome = begin(Call::$name as usize).and_then(|double| {
                    // SAFETY:
                    // - the caller's arguments.
                    unsafe { calls::$name(double, $($parameter),*) }
                });
                Answer::of(outcome)
            }
        )*
    };
}

utofu_functions!(exports);

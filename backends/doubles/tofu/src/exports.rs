//! The exported functions, generated from the list of all. Each call is counted first; then it may fail on demand.

use unipgas_utofu_sys::*;

use crate::calls;
use crate::library::{UtofuResult, begin};

/// The return type of a function, possibly none.
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
        /// The index of each function in the list.
        #[allow(non_camel_case_types, reason = "the names are those of C")]
        enum Call { $($name,)* }

        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($parameter: $ty),*) -> $result {
                let outcome = begin(Call::$name as usize).and_then(|double| {
                    // SAFETY:
                    // - the arguments of the caller, by the contract of this function.
                    unsafe { calls::$name(double, $($parameter),*) }
                });
                Answer::of(outcome)
            }
        )*
    };
}

utofu_functions!(exports);

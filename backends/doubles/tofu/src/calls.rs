//! The functions, each with its rules, before the library's own.

mod barrier;
mod completion;
mod management;
mod memory;
mod onesided;

pub use barrier::*;
pub use completion::*;
pub use management::*;
pub use memory::*;
pub use onesided::*;

/// Functions that the library carries out, some of them after a check of their arguments. `$double` is the first parameter's name in the checks.
macro_rules! forwarded {
    ($double:ident: $(fn $name:ident($($parameter:ident: $ty:ty),* $(,)?) $(if $check:expr)?;)*) => {$(
        pub unsafe fn $name($double: &'static Double, $($parameter: $ty),*) -> UtofuResult {
            $($check?;)?
            // SAFETY:
            // - the caller's arguments.
            outcome(unsafe { ($double.real.$name)($($parameter),*) })
        }
    )*};
}
use forwarded;

//! The functions: each checks its rules before it calls the library.

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

/// Functions that the library executes, some of them after a check of their arguments. `$double` is the name of the first parameter in the checks.
macro_rules! forwarded {
    ($double:ident: $(fn $name:ident($($parameter:ident: $ty:ty),* $(,)?) $(if $check:expr)?;)*) => {$(
        pub unsafe fn $name($double: &'static Double, $($parameter: $ty),*) -> UtofuResult {
            $($check?;)?
            // SAFETY:
            // - the arguments of the caller, by the contract of this function.
            outcome(unsafe { ($double.real.$name)($($parameter),*) })
        }
    )*};
}
use forwarded;

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

/// Functions that have no rule of their own.
macro_rules! forwarded {
    ($(fn $name:ident($($parameter:ident: $ty:ty),* $(,)?);)*) => {$(
        pub unsafe fn $name(mock: &'static Mock, $($parameter: $ty),*) -> UtofuResult {
            // SAFETY:
            // - the caller's arguments.
            outcome(unsafe { (mock.real.$name)($($parameter),*) })
        }
    )*};
}
use forwarded;

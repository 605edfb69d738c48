//! Stand-in for C's `long double` on machines without an implementation here. Operations on it are refused before they start.

use std::cmp::Ordering;

pub(super) const AVAILABLE: bool = false;

/// 16 bytes without arithmetic.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub(super) struct LongDouble(pub(super) u128);

macro_rules! arithmetic {
    ($($name:ident)*) => {$(
        pub(super) fn $name(self, _other: Self) -> Self {
            unreachable!("long double is refused here before it starts")
        }
    )*};
}

impl LongDouble {
    pub(super) const ZERO: LongDouble = LongDouble(0);
    pub(super) const ONE: LongDouble = LongDouble(1);

    arithmetic! { add subtract multiply }
}

impl PartialEq for LongDouble {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl PartialOrd for LongDouble {
    fn partial_cmp(&self, _other: &Self) -> Option<Ordering> {
        None
    }
}

//! The 128-bit floating-point number (IEEE 754 binary128): C's `long double` on aarch64. The compiler's library does the arithmetic,
//! as in C programs, so results equal the program's bit for bit.

use std::arch::aarch64::uint64x2_t;
use std::arch::asm;
use std::cmp::Ordering;

pub(super) const AVAILABLE: bool = true;

/// A `long double` as in memory.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub(super) struct LongDouble(pub(super) u128);

unsafe extern "C" {
    // Arguments are in vector registers. Rust has no stable type to declare them.
    safe fn __addtf3();
    safe fn __subtf3();
    safe fn __multf3();
    safe fn __unordtf2();
    safe fn __letf2();
}

fn in_register(number: LongDouble) -> uint64x2_t {
    // SAFETY:
    // - both types have 16 bytes, and every bit pattern is valid.
    unsafe { std::mem::transmute(number.0) }
}

macro_rules! arithmetic {
    ($($name:ident: $function:path;)*) => {$(
        pub(super) fn $name(self, other: Self) -> Self {
            let result: uint64x2_t;
            // SAFETY:
            // - the function takes v0 and v1, returns in v0, and preserves the registers of the C ABI.
            unsafe {
                asm!(
                    "bl {function}",
                    function = sym $function,
                    inlateout("v0") in_register(self) => result,
                    in("v1") in_register(other),
                    clobber_abi("C"),
                );
                LongDouble(std::mem::transmute::<uint64x2_t, u128>(result))
            }
        }
    )*};
}

macro_rules! comparisons {
    ($($name:ident: $function:path;)*) => {$(
        fn $name(self, other: Self) -> i32 {
            let result: i32;
            // SAFETY:
            // - as for arithmetic, with a C int as the result.
            unsafe {
                asm!(
                    "bl {function}",
                    function = sym $function,
                    in("v0") in_register(self),
                    in("v1") in_register(other),
                    lateout("w0") result,
                    clobber_abi("C"),
                );
            }
            result
        }
    )*};
}

impl LongDouble {
    pub(super) const ZERO: LongDouble = LongDouble(0);
    pub(super) const ONE: LongDouble = LongDouble(0x3fff << 112);

    arithmetic! {
        add: __addtf3;
        subtract: __subtf3;
        multiply: __multf3;
    }

    comparisons! {
        is_unordered: __unordtf2;
        less_or_equal: __letf2;
    }
}

impl PartialEq for LongDouble {
    fn eq(&self, other: &Self) -> bool {
        self.partial_cmp(other) == Some(Ordering::Equal)
    }
}

impl PartialOrd for LongDouble {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        match self.is_unordered(*other) {
            0 => Some(self.less_or_equal(*other).cmp(&0)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Converts a double to the format by its definition.
    fn quad(x: f64) -> LongDouble {
        let bits = x.to_bits();
        let (sign, exponent, fraction) = (bits >> 63, (bits >> 52) & 0x7ff, bits << 12 >> 12);
        let exponent = match exponent {
            0 => 0,
            0x7ff => 0x7fff,
            normal => normal + 16383 - 1023,
        };
        LongDouble(u128::from(sign << 15 | exponent) << 112 | u128::from(fraction) << 60)
    }

    #[test]
    fn small_numbers_are_exact() {
        let values = [0.0, -0.0, 1.0, -1.5, 3.25, 1e15, -7e-9];
        for a in values {
            for b in values {
                assert_eq!(quad(a).partial_cmp(&quad(b)), a.partial_cmp(&b), "{a} {b}");
            }
        }
        assert_eq!(quad(-1.5).multiply(quad(3.25)).0, quad(-4.875).0);
        assert_eq!(quad(1.5).add(quad(2.25)).0, quad(3.75).0);
        assert_eq!(quad(1.5).subtract(quad(2.25)).0, quad(-0.75).0);
        assert_eq!(LongDouble::ONE.0, quad(1.0).0);
    }

    #[test]
    fn a_hundred_and_thirteen_bits_of_precision() {
        // 1 + 2^-112 does not fit in a double.
        let tiny = LongDouble((0x3fff - 112) << 112);
        let sum = LongDouble::ONE.add(tiny);
        assert_eq!(sum.0, LongDouble::ONE.0 | 1);
        assert!(sum > LongDouble::ONE && sum != LongDouble::ONE);
    }

    #[test]
    fn a_nan_equals_nothing() {
        let nan = quad(f64::NAN);
        assert!(nan != nan && nan.partial_cmp(&LongDouble::ZERO).is_none());
        assert!(quad(f64::INFINITY).add(quad(f64::NEG_INFINITY)) != LongDouble::ZERO);
        assert_eq!(quad(0.0), quad(-0.0));
    }
}

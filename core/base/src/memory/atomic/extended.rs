//! The 80-bit extended floating-point number: C's `long double` on x86-64. It uses the low 10 of 16 bytes: a 64-bit significand with an
//! explicit leading bit, then exponent and sign. The x87 unit does the arithmetic, so results equal the program's bit for bit.

use std::cmp::Ordering;

pub(super) const AVAILABLE: bool = true;

/// A `long double` as in memory. The upper 6 bytes are padding; results of arithmetic have zeros there.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub(super) struct LongDouble(pub(super) u128);

macro_rules! arithmetic {
    ($($name:ident: $instruction:literal;)*) => {$(
        pub(super) fn $name(self, other: Self) -> Self {
            let mut result = 0u128;
            // SAFETY:
            // - the code reads 10 of the 16 bytes of each operand and writes 10 of the 16 bytes of the result;
            // - all x87 registers are declared clobbered, so the register stack is empty before; it is empty after.
            unsafe {
                std::arch::asm!(
                    "fld tbyte ptr [{a}]",
                    "fld tbyte ptr [{b}]",
                    $instruction,
                    "fstp tbyte ptr [{r}]",
                    a = in(reg) &raw const self.0,
                    b = in(reg) &raw const other.0,
                    r = in(reg) &raw mut result,
                    out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
                    out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
                    options(nostack),
                );
            }
            LongDouble(result)
        }
    )*};
}

impl LongDouble {
    pub(super) const ZERO: LongDouble = LongDouble(0);
    pub(super) const ONE: LongDouble = LongDouble((0x3fff << 64) | (1 << 63));

    arithmetic! {
        add: "faddp st(1), st";
        subtract: "fsubp st(1), st";
        multiply: "fmulp st(1), st";
    }
}

impl PartialEq for LongDouble {
    fn eq(&self, other: &Self) -> bool {
        self.partial_cmp(other) == Some(Ordering::Equal)
    }
}

impl PartialOrd for LongDouble {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        let (unordered, equal, below): (u8, u8, u8);
        // SAFETY:
        // - the code reads 10 of the 16 bytes of each operand;
        // - all x87 registers are declared clobbered, so the register stack is empty before; it is empty after.
        unsafe {
            std::arch::asm!(
                "fld tbyte ptr [{b}]",
                "fld tbyte ptr [{a}]",
                "fucomip st, st(1)",
                "setp {unordered}",
                "sete {equal}",
                "setb {below}",
                "fstp st(0)",
                a = in(reg) &raw const self.0,
                b = in(reg) &raw const other.0,
                unordered = out(reg_byte) unordered,
                equal = out(reg_byte) equal,
                below = out(reg_byte) below,
                out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
                out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
                options(nostack),
            );
        }
        match (unordered, equal, below) {
            (1, ..) => None,
            (_, 1, _) => Some(Ordering::Equal),
            (.., 1) => Some(Ordering::Less),
            _ => Some(Ordering::Greater),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Converts a double to the format by its definition.
    fn f80(x: f64) -> LongDouble {
        let bits = x.to_bits();
        let (sign, exponent, fraction) = (bits >> 63, (bits >> 52) & 0x7ff, bits << 12 >> 1);
        let exponent = match exponent {
            0 => 0,
            0x7ff => 0x7fff,
            normal => normal + 16383 - 1023,
        };
        let significand = if x == 0.0 { 0 } else { (1 << 63) | fraction };
        LongDouble((u128::from(sign << 15 | exponent) << 64) | u128::from(significand))
    }

    #[test]
    fn small_numbers_are_exact() {
        let values = [0.0, -0.0, 1.0, -1.5, 3.25, 1e15, -7e-9];
        for a in values {
            for b in values {
                assert_eq!(f80(a).partial_cmp(&f80(b)), a.partial_cmp(&b), "{a} {b}");
            }
        }
        assert_eq!(f80(-1.5).multiply(f80(3.25)).0, f80(-4.875).0);
        assert_eq!(f80(1.5).add(f80(2.25)).0, f80(3.75).0);
        assert_eq!(f80(1.5).subtract(f80(2.25)).0, f80(-0.75).0);
        assert_eq!(LongDouble::ONE.0, f80(1.0).0);
    }

    #[test]
    fn sixty_four_bits_of_precision() {
        // 1 + 2^-63 does not fit in a double.
        let tiny = LongDouble(u128::from(0x3fff_u64 - 63) << 64 | 1 << 63);
        let sum = LongDouble::ONE.add(tiny);
        assert_eq!(sum.0, (0x3fff << 64) | (1 << 63) | 1);
        assert!(sum > LongDouble::ONE && sum != LongDouble::ONE);
    }

    #[test]
    fn a_nan_equals_nothing_and_padding_means_nothing() {
        let nan = f80(f64::NAN);
        assert!(nan != nan && nan.partial_cmp(&LongDouble::ZERO).is_none());
        assert!(f80(f64::INFINITY).add(f80(f64::NEG_INFINITY)) != LongDouble::ZERO);
        assert_eq!(
            LongDouble(LongDouble::ONE.0 | 0xabcd << 112),
            LongDouble::ONE
        );
        assert_eq!(f80(0.0), f80(-0.0));
    }
}

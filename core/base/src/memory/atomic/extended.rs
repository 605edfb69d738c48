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

    /// `tests/atomic_long_double.rs` compares the arithmetic with the C compiler's.
    #[test]
    fn padding_means_nothing() {
        let padded = LongDouble(LongDouble::ONE.0 | 0xabcd << 112);
        assert_eq!(padded, LongDouble::ONE);
    }
}

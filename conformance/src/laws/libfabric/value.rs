//! The datatypes and the formulas of fi_atomic(3).

use std::ffi::c_int;

/// `enum fi_datatype`, and the two that later versions add.
pub(super) const TYPES: [Type; 16] = [
    Type(Class::Signed, 1),
    Type(Class::Unsigned, 1),
    Type(Class::Signed, 2),
    Type(Class::Unsigned, 2),
    Type(Class::Signed, 4),
    Type(Class::Unsigned, 4),
    Type(Class::Signed, 8),
    Type(Class::Unsigned, 8),
    Type(Class::Real, 4),
    Type(Class::Real, 8),
    Type(Class::Complex, 4),
    Type(Class::Complex, 8),
    Type(Class::Real, 16),
    Type(Class::Complex, 16),
    Type(Class::Signed, 16),
    Type(Class::Unsigned, 16),
];

/// Names of `enum fi_op`, for messages.
pub(super) const OPS: [&str; 19] = [
    "MIN", "MAX", "SUM", "PROD", "LOR", "LAND", "BOR", "BAND", "LXOR", "BXOR", "READ", "WRITE",
    "CSWAP", "CSWAP_NE", "CSWAP_LE", "CSWAP_LT", "CSWAP_GE", "CSWAP_GT", "MSWAP",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Signed,
    Unsigned,
    Real,
    Complex,
}

/// A class, and the bytes of a number (of one part of a complex number). A real number of 16 bytes is a `long double`, with
/// [`LONG_DOUBLE`] significant bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Type(pub(super) Class, pub(super) usize);

/// Bytes of a `long double` without padding. The format is x87 on x86-64, IEEE binary128 elsewhere.
pub(super) const LONG_DOUBLE: usize = if cfg!(target_arch = "x86_64") { 10 } else { 16 };

/// The families of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    Base,
    Fetch,
    Compare,
}

pub(super) const FAMILIES: [Family; 3] = [Family::Base, Family::Fetch, Family::Compare];

/// A value: the bits of an integer, or real and imaginary part that all real types can represent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Value {
    Bits(u128),
    Number(f64, f64),
}

impl Type {
    /// `enum fi_datatype`.
    pub(super) fn of(datatype: c_int) -> Type {
        TYPES[datatype as usize]
    }

    pub(super) fn is_integer(self) -> bool {
        matches!(self.0, Class::Signed | Class::Unsigned)
    }

    /// Bytes of an element.
    pub(super) fn size(self) -> usize {
        match self.0 {
            Class::Complex => 2 * self.1,
            _ => self.1,
        }
    }

    /// Whether the formula of fi_atomic(3) is defined for this type.
    pub(super) fn has(self, op: c_int) -> bool {
        match (self.0, OPS[op as usize]) {
            (Class::Signed | Class::Unsigned, _) => true,
            (_, "BOR" | "BAND" | "BXOR" | "MSWAP") => false,
            (Class::Real, _) => true,
            // Complex numbers have no order.
            (_, op) => !matches!(
                op,
                "MIN" | "MAX" | "CSWAP_LE" | "CSWAP_LT" | "CSWAP_GE" | "CSWAP_GT"
            ),
        }
    }

    /// The bytes in memory.
    pub(super) fn encode(self, value: Value) -> Vec<u8> {
        match value {
            Value::Bits(bits) => bits.to_le_bytes()[..self.1].to_vec(),
            Value::Number(real, imaginary) => {
                let mut bytes = encode_real(self.1, real);
                if self.0 == Class::Complex {
                    bytes.extend(encode_real(self.1, imaginary));
                }
                bytes
            }
        }
    }

    /// Whether two elements have the same value. Padding is ignored.
    pub(super) fn same(self, a: &[u8], b: &[u8]) -> bool {
        let meant = match self.is_integer() {
            true => self.1,
            false => self.1.min(LONG_DOUBLE),
        };
        let parts = a.chunks(self.1).zip(b.chunks(self.1));
        a.len() == b.len() && parts.into_iter().all(|(a, b)| a[..meant] == b[..meant])
    }

    fn less(self, a: Value, b: Value) -> bool {
        match (a, b) {
            (Value::Bits(a), Value::Bits(b)) if self.0 == Class::Unsigned => a < b,
            (Value::Bits(a), Value::Bits(b)) => self.signed(a) < self.signed(b),
            (Value::Number(a, _), Value::Number(b, _)) => a < b,
            _ => false,
        }
    }

    fn signed(self, bits: u128) -> i128 {
        let spare = 128 - 8 * self.1;
        ((bits << spare) as i128) >> spare
    }

    fn truth(self, holds: bool) -> Value {
        if self.is_integer() {
            Value::Bits(u128::from(holds))
        } else {
            Value::Number(f64::from(u8::from(holds)), 0.0)
        }
    }

    fn is_true(self, value: Value) -> bool {
        match value {
            Value::Bits(bits) => bits != 0,
            Value::Number(a, b) => a != 0.0 || self.0 == Class::Complex && b != 0.0,
        }
    }

    fn equal(self, a: Value, b: Value) -> bool {
        match (a, b) {
            (Value::Number(a, _), Value::Number(b, _)) if self.0 == Class::Real => a == b,
            _ => a == b,
        }
    }

    fn sum(self, a: Value, b: Value) -> Value {
        match (a, b) {
            (Value::Bits(a), Value::Bits(b)) => self.cut(a.wrapping_add(b)),
            (Value::Number(a, ai), Value::Number(b, bi)) => Value::Number(a + b, ai + bi),
            _ => a,
        }
    }

    fn product(self, a: Value, b: Value) -> Value {
        match (a, b) {
            (Value::Bits(a), Value::Bits(b)) => self.cut(a.wrapping_mul(b)),
            (Value::Number(a, _), Value::Number(b, _)) if self.0 == Class::Real => {
                Value::Number(a * b, 0.0)
            }
            (Value::Number(a, ai), Value::Number(b, bi)) => {
                Value::Number(a * b - ai * bi, a * bi + ai * b)
            }
            _ => a,
        }
    }

    fn bits(self, a: Value, b: Value, with: impl Fn(u128, u128) -> u128) -> Value {
        match (a, b) {
            (Value::Bits(a), Value::Bits(b)) => self.cut(with(a, b)),
            _ => a,
        }
    }

    fn cut(self, bits: u128) -> Value {
        Value::Bits(bits & (u128::MAX >> (128 - 8 * self.1)))
    }

    /// `addr[i]` after the operation.
    pub(super) fn apply(self, op: c_int, addr: Value, buf: Value, compare: Value) -> Value {
        let swap_if = |holds| if holds { buf } else { addr };
        let (a, b) = (self.is_true(addr), self.is_true(buf));
        match OPS[op as usize] {
            "MIN" => swap_if(self.less(buf, addr)),
            "MAX" => swap_if(self.less(addr, buf)),
            "SUM" => self.sum(addr, buf),
            "PROD" => self.product(addr, buf),
            "LOR" => self.truth(a || b),
            "LAND" => self.truth(a && b),
            "LXOR" => self.truth(a && !b || !a && b),
            "BOR" => self.bits(addr, buf, |a, b| a | b),
            "BAND" => self.bits(addr, buf, |a, b| a & b),
            "BXOR" => self.bits(addr, buf, |a, b| a ^ b),
            "WRITE" => buf,
            "CSWAP" => swap_if(self.equal(compare, addr)),
            "CSWAP_NE" => swap_if(!self.equal(compare, addr)),
            "CSWAP_LE" => swap_if(self.less(compare, addr) || self.equal(compare, addr)),
            "CSWAP_LT" => swap_if(self.less(compare, addr)),
            "CSWAP_GE" => swap_if(self.less(addr, compare) || self.equal(compare, addr)),
            "CSWAP_GT" => swap_if(self.less(addr, compare)),
            "MSWAP" => {
                let mask = |value, mask| self.bits(value, mask, |a, m| a & m);
                let kept = self.bits(addr, compare, |a, m| a & !m);
                self.bits(mask(buf, compare), kept, |a, b| a | b)
            }
            _ => addr,
        }
    }

    /// A random value. Integers are arbitrary, but often close to each other. Other numbers are small: their sums and products are exact.
    pub(super) fn random(self, random: &mut crate::law::Random) -> Value {
        let mut small = || random.below(9) as f64 - 4.0;
        match self.0 {
            Class::Complex => return Value::Number(small(), small()),
            Class::Real => return Value::Number(small(), 0.0),
            Class::Signed | Class::Unsigned => {}
        }
        match random.below(3) {
            0 => self.cut(u128::from(random.below(3)).wrapping_sub(1)),
            1 => self.cut(u128::from(random.below(3)) << (8 * self.1 - 2)),
            _ => self.cut(u128::from(random.next()) << 64 | u128::from(random.next())),
        }
    }
}

/// Whether calls of this family support this operation.
pub(super) fn takes(family: Family, op: c_int) -> bool {
    match (family, OPS[op as usize]) {
        (Family::Compare, op) => op == "MSWAP" || op.starts_with("CSWAP"),
        (_, op) if op == "MSWAP" || op.starts_with("CSWAP") => false,
        (Family::Base, op) => op != "READ",
        (Family::Fetch, _) => true,
    }
}

fn encode_real(bytes: usize, value: f64) -> Vec<u8> {
    match bytes {
        4 => (value as f32).to_le_bytes().to_vec(),
        8 => value.to_le_bytes().to_vec(),
        _ => {
            let bits = u128::from(value.to_bits());
            let (sign, exponent) = (bits >> 63 << 15, bits >> 52 & 0x7ff);
            let fraction = bits & ((1 << 52) - 1);
            // Each value here is zero, normal, infinite, or not a number.
            let exponent = match exponent {
                0 => 0,
                0x7ff => 0x7fff,
                exponent => exponent + 16383 - 1023,
            };
            let long = match LONG_DOUBLE {
                // The format stores the bit before the binary point.
                10 => (sign | exponent) << 64 | u128::from(exponent != 0) << 63 | fraction << 11,
                _ => (sign | exponent) << 112 | fraction << 60,
            };
            long.to_le_bytes().to_vec()
        }
    }
}

/// A list of values in memory.
pub(super) fn encoded(ty: Type, values: &[Value]) -> Vec<u8> {
    values.iter().flat_map(|value| ty.encode(*value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_pairs_as_the_page_defines() {
        let count = |family, types: std::ops::Range<c_int>| {
            let pairs = types.flat_map(|ty| (0..19).map(move |op| (ty, op)));
            pairs
                .filter(|(ty, op)| takes(family, *op) && Type::of(*ty).has(*op))
                .count()
        };
        assert_eq!(FAMILIES.map(|family| count(family, 0..14)), [130, 144, 80]);
        assert_eq!(FAMILIES.map(|family| count(family, 14..16)), [22, 24, 14]);
    }

    #[test]
    fn a_long_double_is_the_machine_s() {
        let ends = |value| encode_real(16, value)[LONG_DOUBLE - 4..LONG_DOUBLE].to_vec();
        if cfg!(target_arch = "x86_64") {
            assert_eq!(ends(1.0), [0, 0x80, 0xff, 0x3f]);
            assert_eq!(ends(-2.5), [0, 0xa0, 0x00, 0xc0]);
        } else {
            assert_eq!(ends(1.0), [0, 0, 0xff, 0x3f]);
            assert_eq!(ends(-2.5), [0, 0x40, 0x00, 0xc0]);
        }
    }
}

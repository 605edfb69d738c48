//! Encodes elements as words that gates combine.

use unipgas_base::combine::{Combination, ElementType};
use unipgas_engine::circuit::GateOp;

/// An encoding of elements as words: gates combine the words as the combination would combine the elements.
#[derive(Debug, Clone, Copy)]
pub(super) struct Encoding {
    pub by: GateOp,
    element: ElementType,
    /// The smallest element wins: words are complemented.
    smallest: bool,
}

const SIGN: u64 = 1 << 63;
/// Loses against all numbers.
const NAN: u64 = 0;

impl Encoding {
    /// `None`: gates do not support the combination.
    pub(crate) fn of(how: Combination, element: ElementType) -> Option<Self> {
        let by = match (how, element) {
            (Combination::Min | Combination::Max, _) => GateOp::Max,
            (Combination::Sum, ElementType::F64) => GateOp::SumF64,
            // Gates would sum in `f64` and round once. The result would differ.
            (Combination::Sum, ElementType::F32) | (Combination::Product, _) => return None,
            (Combination::Sum, _) => GateOp::Sum,
        };
        Some(Encoding {
            by,
            element,
            smallest: how == Combination::Min,
        })
    }

    /// Number of words for `len` bytes.
    pub(crate) fn words(self, len: usize) -> usize {
        len / self.element.size()
    }

    pub(crate) fn encode(self, elements: &[u8], words: &mut [u64]) {
        let each = elements.chunks_exact(self.element.size());
        for (word, element) in words.iter_mut().zip(each) {
            *word = self.word(element);
        }
    }

    pub(crate) fn decode(self, words: &[u64], elements: &mut [u8]) {
        let each = elements.chunks_exact_mut(self.element.size());
        for (word, element) in words.iter().zip(each) {
            self.element(*word, element);
        }
    }

    fn word(self, element: &[u8]) -> u64 {
        let mut whole = [0; 8];
        let (low, _) = whole.split_at_mut(element.len());
        low.copy_from_slice(element);
        let bits = match element.len() {
            4 => u64::from(u32::from_ne_bytes([whole[0], whole[1], whole[2], whole[3]])),
            _ => u64::from_ne_bytes(whole),
        };
        if self.by != GateOp::Max {
            return bits;
        }
        let key = match self.element {
            ElementType::U32 | ElementType::U64 => bits,
            ElementType::I32 => i64::from(bits as i32) as u64 ^ SIGN,
            ElementType::I64 => bits ^ SIGN,
            ElementType::F32 => return self.ordered(f64::from(f32::from_bits(bits as u32))),
            ElementType::F64 => return self.ordered(f64::from_bits(bits)),
        };
        if self.smallest { !key } else { key }
    }

    /// Words that compare as unsigned as the numbers do.
    fn ordered(self, number: f64) -> u64 {
        if number.is_nan() {
            return NAN;
        }
        let bits = number.to_bits();
        let key = if bits & SIGN == 0 { bits | SIGN } else { !bits };
        if self.smallest { !key } else { key }
    }

    fn element(self, word: u64, into: &mut [u8]) {
        let plain = |word: u64, into: &mut [u8]| match into.len() {
            4 => into.copy_from_slice(&(word as u32).to_ne_bytes()),
            _ => into.copy_from_slice(&word.to_ne_bytes()),
        };
        if self.by != GateOp::Max {
            return plain(word, into);
        }
        let key = if self.smallest { !word } else { word };
        let number = || match word {
            NAN => f64::NAN,
            _ if key & SIGN != 0 => f64::from_bits(key ^ SIGN),
            _ => f64::from_bits(!key),
        };
        match self.element {
            ElementType::U32 | ElementType::U64 => plain(key, into),
            ElementType::I32 | ElementType::I64 => plain(key ^ SIGN, into),
            ElementType::F32 => plain(u64::from((number() as f32).to_bits()), into),
            ElementType::F64 => plain(number().to_bits(), into),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unipgas_base::combine::combine;

    fn by_gates(encoding: Encoding, one: u64, other: u64) -> u64 {
        match encoding.by {
            GateOp::Max => one.max(other),
            GateOp::Sum => one.wrapping_add(other),
            GateOp::SumF64 => (f64::from_bits(one) + f64::from_bits(other)).to_bits(),
        }
    }

    fn bytes(element: ElementType) -> Vec<Vec<u8>> {
        let floats = [
            0.0,
            -0.0,
            1.5,
            -1.5,
            f64::MAX,
            f64::MIN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::NAN,
        ];
        let words = [
            0,
            1,
            2,
            u64::MAX,
            SIGN,
            SIGN - 1,
            SIGN >> 32,
            (SIGN >> 32) - 1,
            77,
        ];
        let small = |word: u64| (word as u32).to_ne_bytes().to_vec();
        match element {
            ElementType::F64 => floats.map(|one| one.to_ne_bytes().to_vec()).to_vec(),
            ElementType::F32 => floats
                .map(|one| (one as f32).to_ne_bytes().to_vec())
                .to_vec(),
            ElementType::I32 | ElementType::U32 => words.map(small).to_vec(),
            ElementType::I64 | ElementType::U64 => {
                words.map(|one| one.to_ne_bytes().to_vec()).to_vec()
            }
        }
    }

    #[test]
    fn gates_make_what_the_combination_makes() {
        use Combination::{Max, Min, Product, Sum};
        use ElementType::{F32, F64, I32, I64, U32, U64};
        for how in [Min, Max, Sum, Product] {
            for element in [I32, U32, I64, U64, F32, F64] {
                let Some(encoding) = Encoding::of(how, element) else {
                    assert!(how == Product || (how, element) == (Sum, F32));
                    continue;
                };
                for one in bytes(element) {
                    for other in bytes(element) {
                        let mut expected = one.clone();
                        combine(how, element, &mut expected, &other);
                        let words = by_gates(encoding, encoding.word(&one), encoding.word(&other));
                        let mut found = vec![0; one.len()];
                        encoding.decode(&[words], &mut found);
                        let same = same(element, &expected, &found);
                        assert!(
                            same,
                            "{how:?} of {element:?}: {one:?}, {other:?}: {found:?}"
                        );
                    }
                }
            }
        }
    }

    /// Zeros of both signs are equal. All NaNs are equal.
    fn same(element: ElementType, expected: &[u8], found: &[u8]) -> bool {
        let number = |bytes: &[u8]| match element {
            ElementType::F32 => f32::from_ne_bytes(bytes.try_into().unwrap()).into(),
            ElementType::F64 => f64::from_ne_bytes(bytes.try_into().unwrap()),
            _ => f64::NAN,
        };
        let numbers = (number(expected), number(found));
        match element {
            ElementType::F32 | ElementType::F64 => {
                numbers.0 == numbers.1 || numbers.0.is_nan() && numbers.1.is_nan()
            }
            _ => expected == found,
        }
    }
}

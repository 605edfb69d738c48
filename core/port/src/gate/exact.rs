//! Sums of doubles that round only at the end. The result does not depend on the order or grouping of the terms.
//!
//! A [`Sum`] is an integer in units of the smallest subnormal, 2^-1074, in two's complement. It stores only the 64-bit words between the lowest and the highest
//! significant word. One double needs two words, and so do many doubles of similar size. All doubles fit in [`WORDS`], with room for more terms than a program
//! can count. An integer has one shortest form, so equal sums have equal words. Infinities and NaN are flags of their own.

/// Words of the longest sum: bits 2^-1074 to 2^1023, and 78 more for carries and the sign.
pub const WORDS: usize = 34;

/// An addend was not a number.
const NAN: u16 = 1;
const POSITIVE_INFINITY: u16 = 2;
const NEGATIVE_INFINITY: u16 = 4;
/// At least one addend was not a negative zero. Clear in the empty sum, so the empty sum is neutral.
const NOT_NEGATIVE_ZERO: u16 = 8;

const SPECIAL_BITS: u32 = 4;
const INDEX_BITS: u32 = 6;
const INDEX_MASK: u16 = (1 << INDEX_BITS) - 1;

/// Position of a sum's words, and its flags, in 16 bits. Any value can be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    special: u16,
    low: u8,
    len: u8,
}

impl Head {
    pub(crate) fn encode(self) -> u16 {
        (u16::from(self.len) << INDEX_BITS | u16::from(self.low)) << SPECIAL_BITS | self.special
    }

    /// Inverse of [`Self::encode`]. A value that `encode` does not produce comes from corrupt memory; the head is still in bounds.
    pub(crate) fn decode(head: u16) -> Self {
        let low = usize::from(head >> SPECIAL_BITS & INDEX_MASK).min(WORDS);
        let len = usize::from(head >> (SPECIAL_BITS + INDEX_BITS)).min(WORDS - low);
        Self {
            special: head & ((1 << SPECIAL_BITS) - 1),
            low: low as u8,
            len: len as u8,
        }
    }

    /// Number of words that belong to this head.
    pub(crate) fn len(self) -> usize {
        usize::from(self.len)
    }
}

/// A sum, borrowed.
#[derive(Clone, Copy)]
pub(crate) struct Term<'a> {
    pub(crate) head: Head,
    /// Exactly `head.len()` words.
    pub(crate) words: &'a [u64],
}

impl Term<'_> {
    fn low(&self) -> usize {
        usize::from(self.head.low)
    }

    fn high(&self) -> usize {
        self.low() + self.words.len()
    }

    /// All ones for a negative number, otherwise zero.
    fn sign(&self) -> u64 {
        self.words.last().map_or(0, |&top| sign(top))
    }

    fn word(&self, index: usize) -> u64 {
        if index < self.low() {
            0
        } else {
            let kept = self.words.get(index - self.low());
            kept.copied().unwrap_or_else(|| self.sign())
        }
    }
}

fn sign(word: u64) -> u64 {
    ((word as i64) >> 63) as u64
}

/// The exact sum of any number of doubles, in any order.
///
/// ```
/// use unipgas_port::gate::exact::Sum;
/// let sum: Sum = [1e308, 1e308, -1e308].into_iter().collect();
/// assert_eq!(sum.value(), 1e308);
/// ```
#[derive(Clone)]
pub struct Sum {
    head: Head,
    /// The first `head.len()` words are valid.
    words: [u64; WORDS],
}

impl Sum {
    /// The empty sum: neutral in additions, with the value -0.
    pub(crate) const fn new() -> Self {
        Self {
            head: Head {
                special: 0,
                low: 0,
                len: 0,
            },
            words: [0; WORDS],
        }
    }

    /// The sum of the two.
    pub(crate) fn of(a: Term<'_>, b: Term<'_>) -> Self {
        let mut sum = Self::new();
        sum.head.special = a.head.special | b.head.special;
        if a.words.is_empty() || b.words.is_empty() {
            let one = if a.words.is_empty() { b } else { a };
            sum.words[..one.words.len()].copy_from_slice(one.words);
            sum.shorten(one.low(), one.words.len());
            return sum;
        }
        let low = a.low().min(b.low());
        let high = (a.high().max(b.high()) + 1).min(WORDS);
        let mut carry = false;
        for (index, word) in (low..high).zip(&mut sum.words) {
            let (partial, first) = a.word(index).overflowing_add(b.word(index));
            let (total, second) = partial.overflowing_add(u64::from(carry));
            *word = total;
            carry = first | second;
        }
        sum.shorten(low, high - low);
        sum
    }

    /// Brings the first `len` words into the shortest form. The first word has index `low`.
    fn shorten(&mut self, low: usize, mut len: usize) {
        while len > 0 {
            let below = if len > 1 { self.words[len - 2] } else { 0 };
            if self.words[len - 1] != sign(below) {
                break;
            }
            len -= 1;
        }
        let zeros = self.words[..len].iter().take_while(|&&w| w == 0).count();
        self.words.copy_within(zeros..len, 0);
        len -= zeros;
        self.head.low = if len == 0 { 0 } else { (low + zeros) as u8 };
        self.head.len = len as u8;
    }

    /// Adds the other sum.
    pub fn add(&mut self, other: &Sum) {
        *self = Self::of(self.term(), other.term());
    }

    /// Borrows this sum.
    pub(crate) fn term(&self) -> Term<'_> {
        Term {
            head: self.head,
            words: &self.words[..self.head.len()],
        }
    }

    /// The sum, rounded once: to nearest, ties to even. Beyond the greatest double it is infinity.
    ///
    /// A zero sum is -0 if all addends were -0, otherwise +0. NaN results from a NaN addend, or from infinities of both signs. It is always the same NaN.
    pub fn value(&self) -> f64 {
        value(self.term())
    }
}

impl Default for Sum {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Sum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sum({:?} + {:x?})", self.head, self.term().words)
    }
}

impl PartialEq for Sum {
    fn eq(&self, other: &Self) -> bool {
        self.head == other.head && self.term().words == other.term().words
    }
}

impl Eq for Sum {}

impl From<f64> for Sum {
    fn from(addend: f64) -> Self {
        const FRACTION: u64 = (1 << 52) - 1;
        let mut sum = Self::new();
        let bits = addend.to_bits();
        sum.head.special = match addend {
            _ if addend.is_nan() => NAN | NOT_NEGATIVE_ZERO,
            f64::INFINITY => POSITIVE_INFINITY | NOT_NEGATIVE_ZERO,
            f64::NEG_INFINITY => NEGATIVE_INFINITY | NOT_NEGATIVE_ZERO,
            _ if bits == (-0.0f64).to_bits() => 0,
            _ => NOT_NEGATIVE_ZERO,
        };
        if !addend.is_finite() || addend == 0.0 {
            return sum;
        }
        let exponent = bits >> 52 & 0x7ff;
        let significand = (bits & FRACTION) | u64::from(exponent != 0) << 52;
        let shift = exponent.max(1) as usize - 1;
        let magnitude = i128::from(significand) << (shift % 64);
        let integer = if addend < 0.0 { -magnitude } else { magnitude };
        (sum.words[0], sum.words[1]) = (integer as u64, (integer >> 64) as u64);
        sum.shorten(shift / 64, 2);
        sum
    }
}

impl FromIterator<f64> for Sum {
    fn from_iter<T: IntoIterator<Item = f64>>(addends: T) -> Self {
        let mut sum = Self::new();
        for addend in addends {
            sum.add(&addend.into());
        }
        sum
    }
}

/// [`Sum::value`] of a borrowed sum.
pub(crate) fn value(term: Term<'_>) -> f64 {
    let special = term.head.special;
    if special & NAN != 0 || special & (POSITIVE_INFINITY | NEGATIVE_INFINITY) == 6 {
        return f64::from_bits(0x7ff8 << 48);
    }
    if special & POSITIVE_INFINITY != 0 {
        return f64::INFINITY;
    }
    if special & NEGATIVE_INFINITY != 0 {
        return f64::NEG_INFINITY;
    }
    let mut magnitude = [0; WORDS];
    let magnitude = &mut magnitude[..term.words.len()];
    magnitude.copy_from_slice(term.words);
    let negative = term.sign() != 0;
    if negative {
        let mut carry = true;
        for word in magnitude.iter_mut() {
            (*word, carry) = (!*word).overflowing_add(u64::from(carry));
        }
    }
    let Some(top) = magnitude.iter().rposition(|&word| word != 0) else {
        let negative = special & NOT_NEGATIVE_ZERO == 0;
        return if negative { -0.0 } else { 0.0 };
    };
    // Bits are numbered from 2^-1074 below.
    let word = |index: usize| {
        let kept = index.checked_sub(term.low());
        kept.and_then(|kept| magnitude.get(kept))
            .copied()
            .unwrap_or(0)
    };
    let top_bit = (term.low() + top) * 64 + magnitude[top].ilog2() as usize;
    let bits = if top_bit <= 52 {
        // Subnormal, or the first binade of the normal numbers: the integer is the bit pattern.
        word(0)
    } else {
        let shift = top_bit - 52;
        let (index, bit) = (shift / 64, shift % 64);
        let pair = u128::from(word(index + 1)) << 64 | u128::from(word(index));
        let significand = (pair >> bit) as u64 & ((1 << 53) - 1);
        let half = shift - 1;
        let rounds_up = word(half / 64) >> (half % 64) & 1 != 0;
        let sticky = word(half / 64) & ((1 << (half % 64)) - 1) != 0
            || (term.low()..half / 64).any(|below| word(below) != 0);
        let up = rounds_up && (sticky || significand & 1 != 0);
        // The significand's leading bit adds one to the exponent field; a carry out of it adds another.
        let bits = ((shift as u64) << 52) + significand + u64::from(up);
        bits.min(f64::INFINITY.to_bits())
    };
    f64::from_bits(bits | u64::from(negative) << 63)
}

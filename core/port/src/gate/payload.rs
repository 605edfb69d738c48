//! Payload between gates: an operation, and the elements reduced so far.

use super::exact::{Head as SumHead, Sum, Term, WORDS, value};
use super::inline::Inline;
use super::{Error, Result};

/// Reduction of a barrier (uTofu guide §2.3.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Operation {
    /// No reduction; no elements.
    Barrier = 1,
    /// Bitwise and of integers.
    Band,
    /// Bitwise or of integers.
    Bor,
    /// Bitwise exclusive or of integers.
    Bxor,
    /// Maximum of unsigned integers.
    Max,
    /// Pairs (value, location): the greatest value, and the smallest location among equal values.
    Maxloc,
    /// Sum of integers, modulo 2^64.
    Sum,
    /// Sum of doubles, rounded once ([`Sum`]).
    Bfpsum,
}

impl Operation {
    const ALL: [Self; 8] = {
        use Operation::*;
        [Barrier, Band, Bor, Bxor, Max, Maxloc, Sum, Bfpsum]
    };
}

/// Maximum number of integers in a reduction.
pub(crate) const MAX_INTEGERS: usize = 6;
/// Maximum number of doubles in a reduction.
pub(crate) const MAX_DOUBLES: usize = 3;
/// Words of the longest payload: flags, the heads of the sums, and the sums.
pub(super) const MAX_WORDS: usize = 2 + MAX_DOUBLES * WORDS;

const _: () = assert!(MAX_DOUBLES * 16 <= 64 && MAX_INTEGERS < 16 && MAX_WORDS < 256);

/// Operation, number of elements and length of a payload. A barrier without flags has no further words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head(pub(super) u32);

const MISMATCH: u32 = 1 << 8;
const HAS_FLAGS: u32 = 1 << 9;
const WORDS_SHIFT: u32 = 16;
/// Bits that must be equal at all participants.
const KIND_MASK: u32 = 0xff | HAS_FLAGS;

impl Head {
    /// A barrier without flags: the most frequent payload. It has no words.
    pub(super) const BARRIER: Self = Self(Operation::Barrier as u32);

    #[inline(always)]
    fn new(operation: Operation, count: usize, flags: u64) -> Self {
        let has_flags = if flags == 0 { 0 } else { HAS_FLAGS };
        Self(operation as u32 | (count as u32) << 4 | has_flags)
    }

    pub(super) fn operation(self) -> Option<Operation> {
        let index = (self.0 as usize & 15).checked_sub(1)?;
        Operation::ALL.get(index).copied()
    }

    #[inline(always)]
    fn count(self) -> usize {
        self.0 as usize >> 4 & 15
    }

    #[inline(always)]
    pub(super) fn words(self) -> usize {
        (self.0 >> WORDS_SHIFT) as usize
    }

    #[inline(always)]
    fn has_flags(self) -> bool {
        self.0 & HAS_FLAGS != 0
    }
}

/// Input or result of a barrier or reduction. The type has the size of the longest payload, but the cost depends on the contents. A barrier copies no words;
/// six integers or three ordinary doubles fill one cache line.
#[derive(Clone, Copy)]
pub struct Payload {
    head: Head,
    /// Flags if the head has them; then integers, or one word with the heads of the sums and then their words.
    words: Inline<u64, MAX_WORDS>,
}

impl Payload {
    #[inline(always)]
    fn new(head: Head, flags: u64) -> Self {
        let mut payload = Self {
            head,
            words: Inline::new(),
        };
        if flags != 0 {
            payload.push(flags);
        }
        payload
    }

    /// A barrier without a reduction.
    #[inline(always)]
    pub fn barrier(flags: u64) -> Self {
        let mut payload = Self::new(Head::new(Operation::Barrier, 0, flags), flags);
        payload.seal();
        payload
    }

    /// The input of a reduction of integers.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the operation is not for integers, the number of elements is 0 or above `MAX_INTEGERS`, or [`Operation::Maxloc`] gets an odd
    /// number.
    pub fn integers(operation: Operation, elements: &[u64], flags: u64) -> Result<Self> {
        if matches!(operation, Operation::Barrier | Operation::Bfpsum) {
            return Err(Error::Invalid("the operation is not one of integers"));
        }
        if elements.is_empty() || elements.len() > MAX_INTEGERS {
            return Err(Error::Invalid("a reduction takes 1 to 6 integers"));
        }
        if operation == Operation::Maxloc && !elements.len().is_multiple_of(2) {
            return Err(Error::Invalid("MAXLOC takes pairs of value and location"));
        }
        let mut payload = Self::new(Head::new(operation, elements.len(), flags), flags);
        for &element in elements {
            payload.push(element);
        }
        payload.seal();
        Ok(payload)
    }

    /// The input of a reduction of doubles.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the operation is not [`Operation::Bfpsum`], or the number of elements is 0 or above `MAX_DOUBLES`.
    pub fn doubles(operation: Operation, elements: &[f64], flags: u64) -> Result<Self> {
        if operation != Operation::Bfpsum {
            return Err(Error::Invalid("the operation is not one of doubles"));
        }
        if elements.is_empty() || elements.len() > MAX_DOUBLES {
            return Err(Error::Invalid("a reduction takes 1 to 3 doubles"));
        }
        let mut payload = Self::new(Head::new(operation, elements.len(), flags), flags);
        payload.push_sums(elements.iter().map(|&element| Sum::from(element)));
        Ok(payload)
    }

    #[inline(always)]
    fn push(&mut self, word: u64) {
        let pushed = self.words.push(word);
        debug_assert!(pushed.is_ok(), "MAX_WORDS holds every payload");
    }

    fn push_sums(&mut self, sums: impl Iterator<Item = Sum>) {
        let (at, mut heads) = (self.words.as_slice().len(), 0);
        self.push(0);
        for (index, sum) in sums.enumerate() {
            let term = sum.term();
            heads |= u64::from(term.head.encode()) << (16 * index);
            for &word in term.words {
                self.push(word);
            }
        }
        self.words.as_mut_slice()[at] = heads;
        self.seal();
    }

    /// Writes the number of words to the head.
    #[inline(always)]
    fn seal(&mut self) {
        let words = self.words.as_slice().len() as u32;
        self.head.0 = (self.head.0 & ((1 << WORDS_SHIFT) - 1)) | words << WORDS_SHIFT;
    }

    /// The operation. `None`: a mismatch.
    pub fn operation(&self) -> Option<Operation> {
        (!self.is_mismatch()).then(|| self.head.operation())?
    }

    /// Number of elements.
    pub fn count(&self) -> usize {
        self.head.count()
    }

    /// The flags that all participants gave.
    pub fn flags(&self) -> u64 {
        if self.head.has_flags() {
            self.words.as_slice().first().copied().unwrap_or(0)
        } else {
            0
        }
    }

    /// The elements of a reduction of integers. Empty for other operations.
    pub fn as_integers(&self) -> &[u64] {
        match self.operation() {
            None | Some(Operation::Barrier | Operation::Bfpsum) => &[],
            Some(_) => &self.words.as_slice()[usize::from(self.head.has_flags())..],
        }
    }

    /// Element `index` of a reduction of doubles, rounded. `None` for other operations, or if there is no such element.
    pub fn double(&self, index: usize) -> Option<f64> {
        (self.operation() == Some(Operation::Bfpsum))
            .then(|| self.terms().nth(index).map(value))
            .flatten()
    }

    /// The sums of a reduction of doubles.
    fn terms(&self) -> impl Iterator<Item = Term<'_>> {
        let words = &self.words.as_slice()[usize::from(self.head.has_flags())..];
        let (heads, mut rest) = words.split_first().map_or((0, words), |(&h, r)| (h, r));
        (0..self.count()).map_while(move |index| {
            let head = SumHead::decode((heads >> (16 * index)) as u16);
            let (words, others) = rest.split_at_checked(head.len())?;
            rest = others;
            Some(Term { head, words })
        })
    }

    /// Whether inputs of different kinds were combined.
    #[inline(always)]
    pub(crate) fn is_mismatch(&self) -> bool {
        self.head.0 & MISMATCH != 0
    }

    #[inline(always)]
    fn set_mismatch(&mut self) {
        self.head = Head(MISMATCH);
        self.words.clear();
    }

    /// Becomes a barrier without flags.
    #[inline(always)]
    pub(super) fn set_barrier(&mut self) {
        self.head = Head::BARRIER;
        self.words.clear();
    }

    #[inline(always)]
    pub(super) fn head(&self) -> Head {
        self.head
    }

    #[inline(always)]
    pub(super) fn words(&self) -> &[u64] {
        self.words.as_slice()
    }

    /// Replaces this payload by `head` and its words. An invalid payload becomes a mismatch.
    #[inline(always)]
    pub(super) fn read(&mut self, head: Head, word: impl Fn(usize) -> u64) {
        self.head = head;
        self.words.clear();
        if head != Head::BARRIER {
            self.read_words(word);
        }
    }

    fn read_words(&mut self, word: impl Fn(usize) -> u64) {
        for index in 0..self.head.words().min(MAX_WORDS) {
            self.push(word(index));
        }
        if !self.is_valid() {
            self.set_mismatch();
        }
    }

    fn is_valid(&self) -> bool {
        let (head, flags) = (self.head, usize::from(self.head.has_flags()));
        let elements = match head.operation() {
            _ if self.is_mismatch() => return false,
            None => return false,
            Some(Operation::Barrier) => (head.count() == 0).then_some(0),
            Some(Operation::Bfpsum) => {
                let fits = (1..=MAX_DOUBLES).contains(&head.count()) && head.words() > flags;
                fits.then(|| 1 + self.terms().map(|term| term.words.len()).sum::<usize>())
            }
            Some(Operation::Maxloc) if !head.count().is_multiple_of(2) => None,
            Some(_) => (1..=MAX_INTEGERS)
                .contains(&head.count())
                .then(|| head.count()),
        };
        elements.is_some_and(|elements| elements + flags == head.words())
    }

    /// Whether operation, number of elements and flags are equal.
    #[inline(always)]
    pub(super) fn is_like(&self, head: Head, flags: u64) -> bool {
        (self.head.0 ^ head.0) & KIND_MASK == 0 && self.flags() == flags
    }

    /// Reduces the elements with the elements of `other`.
    pub(super) fn combine(&mut self, other: &Payload) {
        if self.is_mismatch() || other.is_mismatch() || !self.is_like(other.head, other.flags()) {
            return self.set_mismatch();
        }
        let first = usize::from(self.head.has_flags());
        let Some(operation) = self.head.operation() else {
            return self.set_mismatch();
        };
        let reduce: fn(u64, u64) -> u64 = match operation {
            Operation::Barrier => return,
            Operation::Bfpsum => {
                let mut sums = Self::new(self.head, self.flags());
                let pairs = self.terms().zip(other.terms());
                sums.push_sums(pairs.map(|(a, b)| Sum::of(a, b)));
                *self = sums;
                return;
            }
            Operation::Maxloc => {
                let ours = self.words.as_mut_slice()[first..].chunks_exact_mut(2);
                for (a, b) in ours.zip(other.words()[first..].chunks_exact(2)) {
                    if (b[0], !b[1]) > (a[0], !a[1]) {
                        a.copy_from_slice(b);
                    }
                }
                return;
            }
            Operation::Band => |a, b| a & b,
            Operation::Bor => |a, b| a | b,
            Operation::Bxor => |a, b| a ^ b,
            Operation::Max => u64::max,
            Operation::Sum => u64::wrapping_add,
        };
        let ours = &mut self.words.as_mut_slice()[first..];
        for (a, &b) in ours.iter_mut().zip(&other.words()[first..]) {
            *a = reduce(*a, b);
        }
    }
}

impl Default for Payload {
    /// A barrier without flags.
    #[inline(always)]
    fn default() -> Self {
        Self {
            head: Head::BARRIER,
            words: Inline::new(),
        }
    }
}

impl std::fmt::Debug for Payload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = f.debug_struct("Payload");
        out.field("operation", &self.operation());
        match self.operation() {
            Some(Operation::Bfpsum) => {
                let elements: Vec<_> = self.terms().map(value).collect();
                out.field("elements", &elements)
            }
            _ => out.field("elements", &self.as_integers()),
        };
        out.field("flags", &self.flags()).finish()
    }
}

//! The functions that fill the cells of the table.
//!
//! Each performs one operation on the element at `args.target` and writes the value before to `args.result`, unless
//! that is null. With `ALONE`, nobody else changes the element meanwhile, and it may have any alignment: loads and stores do.

use super::element::{Element, Integer};
use super::word::{Bits, Word};

/// Where an operation works; see [`super::apply`] for what the pointers must be.
#[derive(Clone, Copy)]
pub(super) struct Args {
    pub(super) target: *mut u8,
    pub(super) operand: *const u8,
    pub(super) compare: *const u8,
    pub(super) result: *mut u8,
}

impl Args {
    /// The element with this number in arrays of elements of `size` bytes.
    #[inline(always)]
    pub(super) fn nth(&self, index: usize, size: usize) -> Args {
        // Arguments that the operation ignores may be dangling; null stays null, as it has a meaning.
        let result = if self.result.is_null() {
            self.result
        } else {
            self.result.wrapping_add(index * size)
        };
        Args {
            target: self.target.wrapping_add(index * size),
            operand: self.operand.wrapping_add(index * size),
            compare: self.compare.wrapping_add(index * size),
            result,
        }
    }

    /// # Safety
    /// `operand` is valid for reading a `T`, at any alignment.
    #[inline(always)]
    unsafe fn operand<T: Element>(&self) -> T {
        // SAFETY:
        // - readable, by the caller's promise; alignment is not needed; every bit pattern is a word.
        T::from_word(unsafe { self.operand.cast::<T::Word>().read_unaligned() })
    }

    /// # Safety
    /// `compare` is valid for reading a `T`, at any alignment.
    #[inline(always)]
    unsafe fn compare<T: Element>(&self) -> T {
        // SAFETY:
        // - readable, by the caller's promise; alignment is not needed; every bit pattern is a word.
        T::from_word(unsafe { self.compare.cast::<T::Word>().read_unaligned() })
    }

    /// # Safety
    /// `result` is null, or valid for writing a `W`, at any alignment.
    #[inline(always)]
    unsafe fn give<W: Word>(&self, before: W) {
        if !self.result.is_null() {
            // SAFETY:
            // - writable, by the caller's promise; alignment is not needed.
            unsafe { self.result.cast::<W>().write_unaligned(before) }
        }
    }
}

/// Runs a kernel on `count` elements.
#[inline(always)]
pub(super) fn each<T, const ALONE: bool>(args: Args, count: usize, kernel: impl Fn(Args)) {
    if ALONE && args.result.is_null() {
        // A loop of its own: it becomes vector instructions.
        for index in 0..count {
            let result = std::ptr::null_mut();
            kernel(Args {
                result,
                ..args.nth(index, size_of::<T>())
            });
        }
    } else {
        for index in 0..count {
            kernel(args.nth(index, size_of::<T>()));
        }
    }
}

/// Replaces the element by `new(element)`; leaves it alone when that gives `None`.
///
/// # Safety
/// As for the kernels, and `args.operand` is not looked at.
#[inline(always)]
unsafe fn update<T: Element, const ALONE: bool>(args: Args, new: impl Fn(T) -> Option<T>) {
    let target = args.target.cast::<T::Word>();
    if ALONE {
        // SAFETY:
        // - valid for reads and writes, by the promise of `super::dispatch`, which also says that nobody else is here.
        unsafe {
            let old = target.read_unaligned();
            let word = new(T::from_word(old)).map_or(old, Element::to_word);
            target.write_unaligned(word);
            return args.give(old);
        }
    }
    // SAFETY:
    // - target and machine are as `Word` asks for, by the promise of `super::dispatch`.
    let mut old = unsafe { T::Word::load(target) };
    while let Some(new) = new(T::from_word(old)) {
        // SAFETY:
        // - as above.
        match unsafe { T::Word::compare_exchange(target, old, new.to_word()) } {
            Ok(_) => break,
            Err(found) => old = found,
        }
    }
    // SAFETY:
    // - `result` is null or writable, by the promise of `super::apply`.
    unsafe { args.give(old) }
}

/// Kernels that compute the new element from the old one `t` and the operand `b`.
macro_rules! updates {
    ($($(#[$doc:meta])* $name:ident<$bound:ident $(+ $more:ident)*>($t:ident, $b:ident) = $new:expr;)*) => {$(
        $(#[$doc])*
        #[inline(always)]
        pub(super) unsafe fn $name<T: $bound $(+ $more)*, const ALONE: bool>(args: Args) {
            // SAFETY:
            // - the operand is readable and the rest is as `update` needs it, by the promise of `super::dispatch`.
            unsafe {
                let $b: T = args.operand();
                update::<T, ALONE>(args, |$t: T| $new)
            }
        }
    )*};
}

updates! {
    min<Element + PartialOrd>(t, b) = (b < t).then_some(b);
    max<Element + PartialOrd>(t, b) = (b > t).then_some(b);
    sum<Element>(t, b) = Some(t.plus(b));
    product<Element>(t, b) = Some(t.times(b));
    logical_or<Element>(t, b) = Some(T::from_truth(t.truth() || b.truth()));
    logical_and<Element>(t, b) = Some(T::from_truth(t.truth() && b.truth()));
    logical_xor<Element>(t, b) = Some(T::from_truth(t.truth() != b.truth()));
}

/// Kernels that replace the element by the operand if the compare value `c` and the element `t` say so.
macro_rules! compares {
    ($($name:ident<$bound:ident $(+ $more:ident)*>($c:ident, $t:ident) = $condition:expr;)*) => {$(
        #[inline(always)]
        pub(super) unsafe fn $name<T: $bound $(+ $more)*, const ALONE: bool>(args: Args) {
            // SAFETY:
            // - operand and compare value are readable and the rest is as `update` needs it, by the promise of
            //   `super::dispatch`.
            unsafe {
                let (b, $c): (T, T) = (args.operand(), args.compare());
                update::<T, ALONE>(args, |$t: T| $condition.then_some(b))
            }
        }
    )*};
}

compares! {
    cswap<Element>(c, t) = (c == t);
    cswap_ne<Element>(c, t) = (c != t);
    cswap_le<Element + PartialOrd>(c, t) = (c <= t);
    cswap_lt<Element + PartialOrd>(c, t) = (c < t);
    cswap_ge<Element + PartialOrd>(c, t) = (c >= t);
    cswap_gt<Element + PartialOrd>(c, t) = (c > t);
}

/// Kernels that are one instruction of the CPU, on the word.
macro_rules! natives {
    ($($name:ident => $method:ident, $plain:ident, $pure:ident;)*) => {$(
        #[inline(always)]
        pub(super) unsafe fn $name<T: Integer, const ALONE: bool>(args: Args) {
            // SAFETY:
            // - the operand is readable, target and machine are as `Word` asks for, `result` is null or writable, by the
            //   promise of `super::dispatch`.
            unsafe {
                let (target, operand) = (args.target.cast::<T::Word>(), args.operand::<T>().to_word());
                if ALONE {
                    return update::<T, ALONE>(args, |old| {
                        Some(T::from_word(T::Word::$pure(old.to_word(), operand)))
                    });
                }
                // Two calls, since the CPU has shorter instructions when the value before is not wanted.
                if args.result.is_null() {
                    T::Word::$plain(target, operand);
                } else {
                    args.give(T::Word::$method(target, operand));
                }
            }
        }
    )*};
}

natives! {
    integer_sum => fetch_add, add, sum;
    bit_or => fetch_or, or, either;
    bit_and => fetch_and, and, both;
    bit_xor => fetch_xor, xor, one;
}

/// Compare-exchange by one instruction: for integers, equal values are equal words.
#[inline(always)]
pub(super) unsafe fn integer_cswap<T: Integer, const ALONE: bool>(args: Args) {
    if ALONE {
        // SAFETY:
        // - the same promise.
        return unsafe { cswap::<T, ALONE>(args) };
    }
    // SAFETY:
    // - operand and compare value are readable, target and machine are as `Word` asks for, `result` is null or writable,
    //   by the promise of `super::dispatch`.
    unsafe {
        let (new, current) = (args.operand::<T>().to_word(), args.compare::<T>().to_word());
        let (Ok(before) | Err(before)) =
            T::Word::compare_exchange(args.target.cast(), current, new);
        args.give(before);
    }
}

/// The bits of the operand that the compare value selects.
#[inline(always)]
pub(super) unsafe fn masked_swap<T: Integer, const ALONE: bool>(args: Args) {
    // SAFETY:
    // - operand and compare value are readable and the rest is as `update` needs it, by the promise of `super::dispatch`.
    unsafe {
        let (new, mask) = (args.operand::<T>().to_word(), args.compare::<T>().to_word());
        update::<T, ALONE>(args, |old: T| {
            Some(T::from_word(T::Word::masked(old.to_word(), new, mask)))
        });
    }
}

/// Fetches the element; the operand is not looked at.
#[inline(always)]
pub(super) unsafe fn read<T: Element, const ALONE: bool>(args: Args) {
    let target = args.target.cast::<T::Word>();
    // SAFETY:
    // - target and machine are as `Word` asks for (or nobody else is here), `result` is writable, by the promise of
    //   `super::dispatch`.
    unsafe {
        if ALONE {
            args.give(target.read_unaligned());
        } else {
            args.give(T::Word::load(target));
        }
    }
}

/// Stores the operand, or swaps it with the element.
#[inline(always)]
pub(super) unsafe fn write<T: Element, const ALONE: bool>(args: Args) {
    let target = args.target.cast::<T::Word>();
    // SAFETY:
    // - the operand is readable, target and machine are as `Word` asks for (or nobody else is here), `result` is null or writable,
    //   by the promise of `super::dispatch`.
    unsafe {
        // The word, not the value: converting a signalling NaN through a float could change it.
        let word = args.operand.cast::<T::Word>().read_unaligned();
        if ALONE {
            let before = target.read_unaligned();
            target.write_unaligned(word);
            args.give(before);
        } else if args.result.is_null() {
            T::Word::store(target, word);
        } else {
            args.give(T::Word::swap(target, word));
        }
    }
}

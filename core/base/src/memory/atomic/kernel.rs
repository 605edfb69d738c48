//! The functions in the cells of the operation table.
//!
//! Each performs one operation on the element at `args.target`. It writes the previous value to `args.result` unless that is null.
//! With `ALONE` no other thread or process accesses the element: plain loads and stores suffice, at any alignment.

use super::element::{Element, Integer};
use super::word::{Bits, Word};

/// The pointers of an operation; [`super::apply`] has their contract.
#[derive(Clone, Copy)]
pub(super) struct Args {
    pub(super) target: *mut u8,
    pub(super) operand: *const u8,
    pub(super) compare: *const u8,
    pub(super) result: *mut u8,
}

impl Args {
    /// Element `index` of arrays with elements of `size` bytes.
    #[inline(always)]
    pub(super) fn nth(&self, index: usize, size: usize) -> Args {
        // Unused arguments may dangle, hence `wrapping_add`. A null result stays null: it means no fetch.
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
        // - contract of this call: readable; unaligned reads are allowed; every bit pattern is a word.
        T::from_word(unsafe { self.operand.cast::<T::Word>().read_unaligned() })
    }

    /// # Safety
    /// `compare` is valid for reading a `T`, at any alignment.
    #[inline(always)]
    unsafe fn compare<T: Element>(&self) -> T {
        // SAFETY:
        // - contract of this call: readable; unaligned reads are allowed; every bit pattern is a word.
        T::from_word(unsafe { self.compare.cast::<T::Word>().read_unaligned() })
    }

    /// # Safety
    /// `result` is null, or valid for writing a `W`, at any alignment.
    #[inline(always)]
    unsafe fn give<W: Word>(&self, before: W) {
        if !self.result.is_null() {
            // SAFETY:
            // - contract of this call: writable; unaligned writes are allowed.
            unsafe { self.result.cast::<W>().write_unaligned(before) }
        }
    }
}

/// Runs a kernel on `count` elements.
#[inline(always)]
pub(super) fn each<T, const ALONE: bool>(args: Args, count: usize, kernel: impl Fn(Args)) {
    if ALONE && args.result.is_null() {
        // A separate loop: the compiler vectorises it.
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

/// Replaces the element by `new(element)`. `None` leaves the element unchanged.
///
/// # Safety
/// As for the kernels, except that `args.operand` is not read.
#[inline(always)]
unsafe fn update<T: Element, const ALONE: bool>(args: Args, new: impl Fn(T) -> Option<T>) {
    let target = args.target.cast::<T::Word>();
    if ALONE {
        // SAFETY:
        // - contract of `super::dispatch`: valid for reads and writes; no other thread or process accesses the element.
        unsafe {
            let old = target.read_unaligned();
            let word = new(T::from_word(old)).map_or(old, Element::to_word);
            target.write_unaligned(word);
            return args.give(old);
        }
    }
    // SAFETY:
    // - contract of `super::dispatch`: target and machine satisfy `Word`.
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
    // - contract of `super::apply`: `result` is null or writable.
    unsafe { args.give(old) }
}

/// Kernels that compute the new element from the old one `t` and the operand `b`.
macro_rules! updates {
    ($($(#[$doc:meta])* $name:ident<$bound:ident $(+ $more:ident)*>($t:ident, $b:ident) = $new:expr;)*) => {$(
        $(#[$doc])*
        #[inline(always)]
        pub(super) unsafe fn $name<T: $bound $(+ $more)*, const ALONE: bool>(args: Args) {
            // SAFETY:
            // - contract of `super::dispatch`: the operand is readable and the rest satisfies `update`.
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

/// Kernels that replace the element by the operand if a condition on the compare value `c` and the element `t` holds.
macro_rules! compares {
    ($($name:ident<$bound:ident $(+ $more:ident)*>($c:ident, $t:ident) = $condition:expr;)*) => {$(
        #[inline(always)]
        pub(super) unsafe fn $name<T: $bound $(+ $more)*, const ALONE: bool>(args: Args) {
            // SAFETY:
            // - contract of `super::dispatch`: operand and compare value are readable and the rest satisfies `update`.
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

/// Kernels that are a single CPU instruction on the word.
macro_rules! natives {
    ($($name:ident => $method:ident, $plain:ident, $pure:ident;)*) => {$(
        #[inline(always)]
        pub(super) unsafe fn $name<T: Integer, const ALONE: bool>(args: Args) {
            // SAFETY:
            // - contract of `super::dispatch`: the operand is readable, target and machine satisfy `Word`, `result` is null or
            //   writable.
            unsafe {
                let (target, operand) = (args.target.cast::<T::Word>(), args.operand::<T>().to_word());
                if ALONE {
                    return update::<T, ALONE>(args, |old| {
                        Some(T::from_word(T::Word::$pure(old.to_word(), operand)))
                    });
                }
                // Two cases: the CPU has shorter instructions that do not return the previous value.
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

/// Compare-exchange by one instruction. This is correct for integers only: equal values have equal words.
#[inline(always)]
pub(super) unsafe fn integer_cswap<T: Integer, const ALONE: bool>(args: Args) {
    if ALONE {
        // SAFETY:
        // - contract of this call, which is that of `cswap`.
        return unsafe { cswap::<T, ALONE>(args) };
    }
    // SAFETY:
    // - contract of `super::dispatch`: operand and compare value are readable, target and machine satisfy `Word`, `result` is
    //   null or writable.
    unsafe {
        let (new, current) = (args.operand::<T>().to_word(), args.compare::<T>().to_word());
        let (Ok(before) | Err(before)) =
            T::Word::compare_exchange(args.target.cast(), current, new);
        args.give(before);
    }
}

/// Replaces the bits of the element that the compare value selects by the operand's bits.
#[inline(always)]
pub(super) unsafe fn masked_swap<T: Integer, const ALONE: bool>(args: Args) {
    // SAFETY:
    // - contract of `super::dispatch`: operand and compare value are readable and the rest satisfies `update`.
    unsafe {
        let (new, mask) = (args.operand::<T>().to_word(), args.compare::<T>().to_word());
        update::<T, ALONE>(args, |old: T| {
            Some(T::from_word(T::Word::masked(old.to_word(), new, mask)))
        });
    }
}

/// Fetches the element. The operand is not read.
#[inline(always)]
pub(super) unsafe fn read<T: Element, const ALONE: bool>(args: Args) {
    let target = args.target.cast::<T::Word>();
    // SAFETY:
    // - contract of `super::dispatch`: `result` is writable; target and machine satisfy `Word`, or with `ALONE` no other thread
    //   or process accesses the element.
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
    // - contract of `super::dispatch`: the operand is readable and `result` is null or writable; target and machine satisfy
    //   `Word`, or with `ALONE` no other thread or process accesses the element.
    unsafe {
        // Copies the word, not the value: a conversion through a float could change a signalling NaN.
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

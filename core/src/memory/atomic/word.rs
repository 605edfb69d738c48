//! Atomic access to memory by words of 1, 2, 4, 8 and 16 bytes, and the look of a word for elements that have none.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::*};

/// An unsigned integer that memory is accessed as.
///
/// # Safety
/// Of every method: `target` is aligned to the word's size and valid for reads and writes of it, by atomics of this
/// width as far as others access it at the same time; and a 16-byte word needs [`wide_available`].
pub(super) trait Word: Copy + Eq {
    /// Acquire load.
    unsafe fn load(target: *mut Self) -> Self;
    /// Release store.
    unsafe fn store(target: *mut Self, value: Self);
    /// Exchange; the value before.
    unsafe fn swap(target: *mut Self, value: Self) -> Self;
    /// `Ok` if `current` was there and `new` has replaced it, else `Err` with what is there.
    unsafe fn compare_exchange(target: *mut Self, current: Self, new: Self) -> Result<Self, Self>;
}

/// A word that integers are kept in, with the CPU's instructions for them.
///
/// # Safety
/// As for [`Word`].
pub(super) trait Bits: Word {
    /// Wrapping addition; the value before.
    unsafe fn fetch_add(target: *mut Self, value: Self) -> Self;
    /// The value before.
    unsafe fn fetch_and(target: *mut Self, value: Self) -> Self;
    /// The value before.
    unsafe fn fetch_or(target: *mut Self, value: Self) -> Self;
    /// The value before.
    unsafe fn fetch_xor(target: *mut Self, value: Self) -> Self;
    /// Bitwise and. The methods that fetch nothing have an ordering of their own (stronger, at no cost where we run), lest
    /// the optimiser merges them with those that do: the CPU's shorter instructions do not give the value before.
    unsafe fn and(target: *mut Self, value: Self);
    /// Bitwise or.
    unsafe fn or(target: *mut Self, value: Self);
    /// Bitwise exclusive or.
    unsafe fn xor(target: *mut Self, value: Self);
    /// Wrapping addition.
    unsafe fn add(target: *mut Self, value: Self);
    /// `(value & mask)` in the bits of `mask`, the old value elsewhere.
    fn masked(old: Self, value: Self, mask: Self) -> Self;
    /// `old + value`, wrapping.
    fn sum(old: Self, value: Self) -> Self;
    /// `old | value`.
    fn either(old: Self, value: Self) -> Self;
    /// `old & value`.
    fn both(old: Self, value: Self) -> Self;
    /// `old ^ value`.
    fn one(old: Self, value: Self) -> Self;
}

/// The methods of [`Bits`] that touch no memory.
macro_rules! pure {
    () => {
        #[inline(always)]
        fn masked(old: Self, value: Self, mask: Self) -> Self {
            (value & mask) | (old & !mask)
        }
        #[inline(always)]
        fn sum(old: Self, value: Self) -> Self {
            old.wrapping_add(value)
        }
        #[inline(always)]
        fn either(old: Self, value: Self) -> Self {
            old | value
        }
        #[inline(always)]
        fn both(old: Self, value: Self) -> Self {
            old & value
        }
        #[inline(always)]
        fn one(old: Self, value: Self) -> Self {
            old ^ value
        }
    };
}

macro_rules! native {
    (@method $atomic:ident, $name:ident($target:ident: $word:ty $(, $arg:ident)*) -> $out:ty = $call:expr) => {
        #[inline(always)]
        unsafe fn $name($target: *mut $word $(, $arg: $word)*) -> $out {
            // SAFETY:
            // - `target` is aligned and valid, and accessed by others through atomics of this width only, as the trait
            //   asks for; the reference ends with the call.
            let $target = unsafe { $atomic::from_ptr($target) };
            $call
        }
    };
    ($($word:ty => $atomic:ident),*) => {$(
        impl Word for $word {
            native!(@method $atomic, load(target: $word) -> $word = target.load(Acquire));
            native!(@method $atomic, store(target: $word, value) -> () = target.store(value, Release));
            native!(@method $atomic, swap(target: $word, value) -> $word = target.swap(value, AcqRel));
            native!(@method $atomic, compare_exchange(target: $word, current, new) -> Result<$word, $word> =
                target.compare_exchange(current, new, AcqRel, Acquire));
        }

        impl Bits for $word {
            native!(@method $atomic, fetch_add(target: $word, value) -> $word = target.fetch_add(value, AcqRel));
            native!(@method $atomic, fetch_and(target: $word, value) -> $word = target.fetch_and(value, AcqRel));
            native!(@method $atomic, fetch_or(target: $word, value) -> $word = target.fetch_or(value, AcqRel));
            native!(@method $atomic, fetch_xor(target: $word, value) -> $word = target.fetch_xor(value, AcqRel));
            native!(@method $atomic, and(target: $word, value) -> () = { target.fetch_and(value, SeqCst); });
            native!(@method $atomic, or(target: $word, value) -> () = { target.fetch_or(value, SeqCst); });
            native!(@method $atomic, xor(target: $word, value) -> () = { target.fetch_xor(value, SeqCst); });
            native!(@method $atomic, add(target: $word, value) -> () = { target.fetch_add(value, SeqCst); });
            pure!();
        }
    )*};
}

native!(u8 => AtomicU8, u16 => AtomicU16, u32 => AtomicU32, u64 => AtomicU64);

/// Whether 16-byte words can be accessed atomically.
#[inline]
pub(super) fn wide_available() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("cmpxchg16b");
    #[cfg(not(target_arch = "x86_64"))]
    return cfg!(all(target_arch = "aarch64", not(miri)));
}

/// Replaces `current` by `new`; the value before.
///
/// Assembly, because `core::arch::x86_64::cmpxchg16b` becomes a call into libatomic wherever it is not inlined into code
/// that is compiled for the feature, as in builds with little optimisation.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn exchange_wide(target: *mut u128, current: u128, new: u128) -> u128 {
    let (low, high): (u64, u64);
    // SAFETY:
    // - `target` is valid and aligned to 16 bytes, and the instruction exists, as `Word` asks for;
    // - rbx, which the compiler keeps for itself, is put back before the end; all other registers are named ones, so that
    //   none of them is rbx.
    unsafe {
        std::arch::asm!(
            "xchg rbx, rsi",
            "lock cmpxchg16b xmmword ptr [rdi]",
            "mov rbx, rsi",
            in("rdi") target,
            inout("rsi") new as u64 => _,
            in("rcx") (new >> 64) as u64,
            inout("rax") current as u64 => low,
            inout("rdx") (current >> 64) as u64 => high,
            options(nostack),
        );
    }
    u128::from(high) << 64 | u128::from(low)
}

/// Replaces `current` by `new`; the value before: with acquire and release, by one instruction where the processor has it (FEAT_LSE).
#[cfg(all(target_arch = "aarch64", not(miri)))]
#[inline(always)]
unsafe fn exchange_wide(target: *mut u128, current: u128, new: u128) -> u128 {
    let (mut low, mut high) = (current as u64, (current >> 64) as u64);
    let (new_low, new_high) = (new as u64, (new >> 64) as u64);
    if std::arch::is_aarch64_feature_detected!("lse") {
        // SAFETY:
        // - `target` is valid and aligned to 16 bytes, as `Word` asks for; the instruction exists, as just seen, and takes pairs of registers that begin
        //   with an even one.
        unsafe {
            std::arch::asm!(
                ".arch_extension lse",
                "caspal x4, x5, x6, x7, [{target}]",
                target = in(reg) target,
                inout("x4") low, inout("x5") high,
                in("x6") new_low, in("x7") new_high,
                options(nostack),
            );
        }
    } else {
        // Where they differ what was read is written again: two words that were loaded are one value only when the store succeeds.
        let (expected_low, expected_high) = (low, high);
        // SAFETY:
        // - `target` is valid and aligned to 16 bytes, as `Word` asks for; there is no other access between the exclusive ones.
        unsafe {
            std::arch::asm!(
                "2:",
                "ldaxp {low}, {high}, [{target}]",
                "cmp {low}, {expected_low}",
                "ccmp {high}, {expected_high}, #0, eq",
                "csel {store_low}, {new_low}, {low}, eq",
                "csel {store_high}, {new_high}, {high}, eq",
                "stlxp {failed:w}, {store_low}, {store_high}, [{target}]",
                "cbnz {failed:w}, 2b",
                target = in(reg) target,
                expected_low = in(reg) expected_low,
                expected_high = in(reg) expected_high,
                new_low = in(reg) new_low,
                new_high = in(reg) new_high,
                low = out(reg) low,
                high = out(reg) high,
                store_low = out(reg) _,
                store_high = out(reg) _,
                failed = out(reg) _,
                options(nostack),
            );
        }
    }
    u128::from(high) << 64 | u128::from(low)
}

/// `wide_available` is false on this architecture, so that nothing gets here.
#[cfg(not(any(target_arch = "x86_64", all(target_arch = "aarch64", not(miri)))))]
unsafe fn exchange_wide(_target: *mut u128, _current: u128, _new: u128) -> u128 {
    unreachable!("16-byte atomics are refused on this architecture before they start")
}

/// Replaces the word by a function of it; the value before.
#[inline(always)]
unsafe fn update_wide(target: *mut u128, new: impl Fn(u128) -> u128) -> u128 {
    let mut old = 0;
    loop {
        // SAFETY:
        // - `target` and the machine are as `Word` asks for.
        let found = unsafe { exchange_wide(target, old, new(old)) };
        if found == old {
            return old;
        }
        old = found;
    }
}

macro_rules! wide {
    ($($name:ident($target:ident $(, $arg:ident)*) -> $out:ty = $body:expr;)*) => {$(
        #[inline(always)]
        unsafe fn $name($target: *mut u128 $(, $arg: u128)*) -> $out {
            // SAFETY:
            // - `target` and the machine are as the trait asks for.
            unsafe { $body }
        }
    )*};
}

impl Word for u128 {
    wide! {
        // There is no plain 16-byte load to rely on; this writes 0 over 0, or nothing.
        load(target) -> u128 = exchange_wide(target, 0, 0);
        store(target, value) -> () = { update_wide(target, |_| value); };
        swap(target, value) -> u128 = update_wide(target, |_| value);
        compare_exchange(target, current, new) -> Result<u128, u128> = {
            let found = exchange_wide(target, current, new);
            if found == current { Ok(found) } else { Err(found) }
        };
    }
}

impl Bits for u128 {
    wide! {
        fetch_add(target, value) -> u128 = update_wide(target, |old| old.wrapping_add(value));
        fetch_and(target, value) -> u128 = update_wide(target, |old| old & value);
        fetch_or(target, value) -> u128 = update_wide(target, |old| old | value);
        fetch_xor(target, value) -> u128 = update_wide(target, |old| old ^ value);
        and(target, value) -> () = { Self::fetch_and(target, value); };
        or(target, value) -> () = { Self::fetch_or(target, value); };
        xor(target, value) -> () = { Self::fetch_xor(target, value); };
        add(target, value) -> () = { Self::fetch_add(target, value); };
    }
    pure!();
}

/// An element of up to 32 bytes in this thread's own copy, which no CPU changes atomically: whoever works on it holds the
/// element's lock.
#[repr(C, align(32))]
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Copied(pub(super) [u64; 4]);

impl Word for Copied {
    unsafe fn load(target: *mut Self) -> Self {
        // SAFETY:
        // - valid by the trait's contract; and this thread's own.
        unsafe { target.read() }
    }
    unsafe fn store(target: *mut Self, value: Self) {
        // SAFETY:
        // - as for `load`.
        unsafe { target.write(value) }
    }
    unsafe fn swap(target: *mut Self, value: Self) -> Self {
        // SAFETY:
        // - as for `load`.
        unsafe { target.replace(value) }
    }
    unsafe fn compare_exchange(target: *mut Self, current: Self, new: Self) -> Result<Self, Self> {
        // SAFETY:
        // - as for `load`.
        unsafe {
            let found = target.read();
            if found != current {
                return Err(found);
            }
            target.write(new);
            Ok(found)
        }
    }
}

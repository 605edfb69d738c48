//! Atomic access to memory by words of 1, 2, 4, 8 and 16 bytes, and the same interface for wider elements under a lock.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::*};

/// An unsigned integer type for memory accesses.
///
/// # Safety
/// For each method: `target` is aligned to the word's size and valid for reads and writes. Concurrent accesses are
/// atomics of this width. A 16-byte word needs [`wide_available`].
pub(super) trait Word: Copy + Eq {
    /// Acquire load.
    unsafe fn load(target: *mut Self) -> Self;
    /// Release store.
    unsafe fn store(target: *mut Self, value: Self);
    /// Exchange; returns the previous value.
    unsafe fn swap(target: *mut Self, value: Self) -> Self;
    /// `Ok` if the word was `current` and is now `new`, else `Err` with the word.
    unsafe fn compare_exchange(target: *mut Self, current: Self, new: Self) -> Result<Self, Self>;
}

/// A word for integers, with the CPU's instructions for them.
///
/// # Safety
/// As for [`Word`].
pub(super) trait Bits: Word {
    /// Wrapping addition; returns the previous value.
    unsafe fn fetch_add(target: *mut Self, value: Self) -> Self;
    /// Returns the previous value.
    unsafe fn fetch_and(target: *mut Self, value: Self) -> Self;
    /// Returns the previous value.
    unsafe fn fetch_or(target: *mut Self, value: Self) -> Self;
    /// Returns the previous value.
    unsafe fn fetch_xor(target: *mut Self, value: Self) -> Self;
    /// Bitwise and. The methods without fetch use a stronger ordering, which costs nothing on x86-64 and aarch64. With the same
    /// ordering the optimiser would merge them with the fetching methods and lose the CPU's shorter instructions.
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
            // - contract of the trait: `target` is aligned and valid, and concurrent accesses are atomics of this width; the
            //   reference ends with the call.
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

/// Replaces `current` by `new`; returns the previous value.
///
/// Assembly, because `core::arch::x86_64::cmpxchg16b` is a call into libatomic unless it is inlined into code compiled for the
/// feature, which builds with little optimisation do not do.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn exchange_wide(target: *mut u128, current: u128, new: u128) -> u128 {
    let (low, high): (u64, u64);
    // SAFETY:
    // - contract of `Word`: `target` is valid and aligned to 16 bytes, and the CPU has the instruction;
    // - rbx is reserved by the compiler: the code restores it before the end, and names all other registers, so none of them is
    //   rbx.
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

/// Replaces `current` by `new`; returns the previous value. Acquire-release; one instruction on processors with FEAT_LSE.
#[cfg(all(target_arch = "aarch64", not(miri)))]
#[inline(always)]
unsafe fn exchange_wide(target: *mut u128, current: u128, new: u128) -> u128 {
    let (mut low, mut high) = (current as u64, (current >> 64) as u64);
    let (new_low, new_high) = (new as u64, (new >> 64) as u64);
    if std::arch::is_aarch64_feature_detected!("lse") {
        // SAFETY:
        // - contract of `Word`: `target` is valid and aligned to 16 bytes;
        // - the test above found the instruction; each pair of registers begins with an even one, as it requires.
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
        // On a mismatch the loop writes the found words back: only a successful store proves that both loads saw one value.
        let (expected_low, expected_high) = (low, high);
        // SAFETY:
        // - contract of `Word`: `target` is valid and aligned to 16 bytes; no other access lies between the exclusive ones.
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

/// Unreachable: `wide_available` is false on this architecture.
#[cfg(not(any(target_arch = "x86_64", all(target_arch = "aarch64", not(miri)))))]
unsafe fn exchange_wide(_target: *mut u128, _current: u128, _new: u128) -> u128 {
    unreachable!("16-byte atomics are refused on this architecture before they start")
}

/// Replaces the word by a function of it; returns the previous value.
#[inline(always)]
unsafe fn update_wide(target: *mut u128, new: impl Fn(u128) -> u128) -> u128 {
    let mut old = 0;
    loop {
        // SAFETY:
        // - contract of `Word`: `target` and the machine are suitable.
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
            // - contract of the trait: `target` and the machine are suitable.
            unsafe { $body }
        }
    )*};
}

impl Word for u128 {
    wide! {
        // No plain 16-byte load is guaranteed to be atomic. This writes 0 over 0, or nothing.
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

/// A 32-byte element. No CPU changes it atomically: the caller holds the element's lock.
#[repr(C, align(32))]
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Copied(pub(super) [u64; 4]);

impl Word for Copied {
    unsafe fn load(target: *mut Self) -> Self {
        // SAFETY:
        // - contract of `Word`: valid and aligned; the caller holds the element's lock, so no other thread accesses it.
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

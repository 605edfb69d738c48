//! Atomic operations on one element of registered memory, done by the CPU of the initiator.
//!
//! The operations are those of libfabric 1.8 `fi_atomic(3)`; GASPI 17.1 §10 (fetch-and-add, compare-and-swap)
//! and uTofu's ARMW operations are cells of the same table. [`supported`] and [`apply`] are made from one list, so
//! that what a validity query promises is what runs.
//!
//! Every operation is a single atomic access, or a compare-exchange loop, of the element's full width with
//! acquire-release ordering (a read is an acquire load, a write that fetches nothing a release store). They are
//! therefore atomic with each other and with the program's own atomics of the same width, in any process that maps
//! the memory. Elements that no CPU changes atomically (`long double complex`, and complex numbers that are aligned as C asks for
//! only) are atomic with each other under a [lock](ElementLocks) that all processes agree on.

mod element;
mod kernel;
mod lock;
#[cfg_attr(target_arch = "x86_64", path = "extended.rs")]
#[cfg_attr(all(target_arch = "aarch64", not(miri)), path = "quad.rs")]
#[cfg_attr(
    not(any(target_arch = "x86_64", all(target_arch = "aarch64", not(miri)))),
    path = "no_long_double.rs"
)]
mod long_double;
mod word;

pub use lock::ElementLocks;

use crate::sync::statics;
use crate::{Error, Result};
use kernel::Args;

/// Which calls an operation may be used with; see "Base", "Fetch-" and "Compare-Atomic Functions" in `fi_atomic(3)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AtomicForm {
    /// With or without fetching the initial value.
    Update,
    /// Only meaningful when the initial value is fetched.
    FetchOnly,
    /// Takes a compare value beside the operand; the initial value may be fetched.
    Compare,
}

/// Makes the enums, the validity query and the dispatch from one list. A cell names the function in `kernel` that
/// performs the operation on a class of types; `-` means that the combination is not defined.
macro_rules! table {
    (
        types { $($(#[$type_doc:meta])* $ty:ident: $rust:ty, $alignment:literal, $class:ident;)* }
        operations { $($(#[$op_doc:meta])* $op:ident: $form:ident, $integer:tt $real:tt $complex:tt;)* }
    ) => {
        /// The type of the element that an atomic operation works on (`fi_atomic(3)`, "Atomic Data Types").
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum AtomicType { $($(#[$type_doc])* $ty,)* }

        impl AtomicType {
            /// Every type, in the order of the discriminants.
            pub const ALL: &'static [AtomicType] = &[$(AtomicType::$ty),*];

            /// Size of one element in bytes.
            #[inline(always)]
            pub const fn size(self) -> usize {
                match self { $(AtomicType::$ty => size_of::<$rust>(),)* }
            }

            /// The alignment that a target must have: that of the type in C.
            #[inline(always)]
            pub const fn alignment(self) -> usize {
                match self { $(AtomicType::$ty => $alignment,)* }
            }
        }

        /// An atomic operation (`fi_atomic(3)`, "Atomic Operations"). In the formulas `t` is the target, `b` the
        /// operand and `c` the compare value.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum AtomicOp { $($(#[$op_doc])* $op,)* }

        impl AtomicOp {
            /// Every operation, in the order of the discriminants.
            pub const ALL: &'static [AtomicOp] = &[$(AtomicOp::$op),*];

            /// The calls that the operation may be used with.
            #[inline]
            pub const fn form(self) -> AtomicForm {
                match self { $(AtomicOp::$op => AtomicForm::$form,)* }
            }
        }

        mod defined {
            use super::AtomicOp;
            pub(super) const fn integer(op: AtomicOp) -> bool { match op { $(AtomicOp::$op => defined!($integer),)* } }
            pub(super) const fn real(op: AtomicOp) -> bool { match op { $(AtomicOp::$op => defined!($real),)* } }
            pub(super) const fn complex(op: AtomicOp) -> bool { match op { $(AtomicOp::$op => defined!($complex),)* } }
        }

        /// Whether the cell of the table is filled, whatever this machine can do.
        #[inline]
        pub const fn defined(op: AtomicOp, ty: AtomicType) -> bool {
            match ty { $(AtomicType::$ty => defined::$class(op),)* }
        }

        mod cells {
            use super::{AtomicOp, element::{Complex, Integer, Real}, kernel::{self, Args}};
            use crate::{Error, Result};

            #[inline(always)]
            pub(super) unsafe fn integer<T: Integer, const ALONE: bool>(op: AtomicOp, args: Args, count: usize) -> Result<()> {
                match op { $(AtomicOp::$op => cell!($integer, T, ALONE, args, count),)* }
            }

            #[inline(always)]
            pub(super) unsafe fn real<T: Real, const ALONE: bool>(op: AtomicOp, args: Args, count: usize) -> Result<()> {
                match op { $(AtomicOp::$op => cell!($real, T, ALONE, args, count),)* }
            }

            #[inline(always)]
            pub(super) unsafe fn complex<T: Complex, const ALONE: bool>(op: AtomicOp, args: Args, count: usize) -> Result<()> {
                match op { $(AtomicOp::$op => cell!($complex, T, ALONE, args, count),)* }
            }
        }

        /// Performs the operation on `count` elements; a combination that is not defined touches nothing.
        ///
        /// # Safety
        /// As for [`apply`], for each element. Either nobody else changes them meanwhile (`ALONE`), or `args.target` is aligned to the
        /// type's size, which the machine can access atomically.
        #[inline(never)]
        unsafe fn dispatch<const ALONE: bool>(op: AtomicOp, ty: AtomicType, args: Args, count: usize) -> Result<()> {
            match ty {
                $(AtomicType::$ty => {
                    // SAFETY:
                    // - the pointers and the alignment are the caller's promise, in terms of `ty`;
                    // - the Rust type in this arm is the one that belongs to `ty`.
                    unsafe { cells::$class::<$rust, ALONE>(op, args, count) }
                })*
            }
        }
    };
}

macro_rules! defined {
    (-) => {
        false
    };
    ($kernel:ident) => {
        true
    };
}

macro_rules! cell {
    (-, $t:ty, $alone:ident, $args:ident, $count:ident) => {{
        let _ = ($args, $count);
        Err(Error::Unsupported)
    }};
    ($kernel:ident, $t:ty, $alone:ident, $args:ident, $count:ident) => {{
        kernel::each::<$t, $alone>($args, $count, |args| {
            // SAFETY:
            // - `cells::*` pass on the promise of `dispatch`, of which they are part.
            unsafe { kernel::$kernel::<$t, $alone>(args) }
        });
        Ok(())
    }};
}

table! {
    types {
        /// `FI_INT8`.
        I8: i8, 1, integer;
        /// `FI_UINT8`.
        U8: u8, 1, integer;
        /// `FI_INT16`.
        I16: i16, 2, integer;
        /// `FI_UINT16`.
        U16: u16, 2, integer;
        /// `FI_INT32`.
        I32: i32, 4, integer;
        /// `FI_UINT32`.
        U32: u32, 4, integer;
        /// `FI_INT64`.
        I64: i64, 8, integer;
        /// `FI_UINT64`; `gaspi_atomic_value_t`.
        U64: u64, 8, integer;
        /// `FI_INT128`; 16-byte alignment.
        I128: i128, 16, integer;
        /// `FI_UINT128`; 16-byte alignment.
        U128: u128, 16, integer;
        /// `FI_FLOAT`.
        F32: f32, 4, real;
        /// `FI_DOUBLE`.
        F64: f64, 8, real;
        /// `FI_FLOAT_COMPLEX`: real part, then imaginary part.
        ComplexF32: [f32; 2], 4, complex;
        /// `FI_DOUBLE_COMPLEX`: real part, then imaginary part.
        ComplexF64: [f64; 2], 8, complex;
        /// `FI_LONG_DOUBLE`, C's `long double`: 80 bits in 16 bytes on x86-64, 128 (IEEE binary128) on aarch64.
        LongDouble: long_double::LongDouble, 16, real;
        /// `FI_LONG_DOUBLE_COMPLEX`: real part, then imaginary part.
        ComplexLongDouble: [long_double::LongDouble; 2], 16, complex;
    }
    operations {
        // Operation: form, integer real complex
        /// `if b < t { t = b }`. A NaN on either side compares false: a NaN operand never replaces, a NaN target stays.
        Min: Update, min min -;
        /// `if b > t { t = b }`. A NaN on either side compares false: a NaN operand never replaces, a NaN target stays.
        Max: Update, max max -;
        /// `t = t + b`; integers wrap.
        Sum: Update, integer_sum sum sum;
        /// `t = t * b`; integers wrap. The complex product is the plain formula, without C's recovery of infinities.
        Prod: Update, product product product;
        /// `t = t || b`, giving 1 or 0; a NaN counts as true, a complex number is true unless both parts are zero.
        Lor: Update, logical_or logical_or logical_or;
        /// `t = t && b`, giving 1 or 0.
        Land: Update, logical_and logical_and logical_and;
        /// `t = t | b`.
        Bor: Update, bit_or - -;
        /// `t = t & b`.
        Band: Update, bit_and - -;
        /// `t = (t && !b) || (!t && b)`, giving 1 or 0.
        Lxor: Update, logical_xor logical_xor logical_xor;
        /// `t = t ^ b`.
        Bxor: Update, bit_xor - -;
        /// `result = t`; the operand is ignored and may be null.
        Read: FetchOnly, read read read;
        /// `t = b`; with a result, a swap.
        Write: Update, write write write;
        /// `if c == t { t = b }`. Floating point compares by value: -0 equals 0, and a NaN equals nothing.
        Cswap: Compare, integer_cswap cswap cswap;
        /// `if c != t { t = b }`.
        CswapNe: Compare, cswap_ne cswap_ne cswap_ne;
        /// `if c <= t { t = b }`.
        CswapLe: Compare, cswap_le cswap_le -;
        /// `if c < t { t = b }`.
        CswapLt: Compare, cswap_lt cswap_lt -;
        /// `if c >= t { t = b }`.
        CswapGe: Compare, cswap_ge cswap_ge -;
        /// `if c > t { t = b }`.
        CswapGt: Compare, cswap_gt cswap_gt -;
        /// `t = (b & c) | (t & !c)`.
        Mswap: Compare, masked_swap - -;
    }
}

/// Whether [`apply`] performs this operation on this type, on this machine: the table has the cell and the CPU has an
/// atomic access of the width (16-byte types need x86-64 with `cmpxchg16b`, or aarch64).
#[inline]
pub fn supported(op: AtomicOp, ty: AtomicType) -> bool {
    let long_double = matches!(ty, AtomicType::LongDouble | AtomicType::ComplexLongDouble);
    defined(op, ty)
        && (ty.size() <= 8 || word::wide_available())
        && (long_double::AVAILABLE || !long_double)
}

/// Checks everything about an operation that does not depend on the memory's contents.
#[inline]
fn check(op: AtomicOp, ty: AtomicType, target: *mut u8, result: *mut u8) -> Result<()> {
    if !supported(op, ty) || (op.form() == AtomicForm::FetchOnly && result.is_null()) {
        return Err(Error::Unsupported);
    }
    if !target.addr().is_multiple_of(ty.alignment()) {
        return Err(Error::Misaligned(ty.alignment()));
    }
    Ok(())
}

/// Whether the CPU changes elements of this type at `target` atomically; its neighbours in an array are like it.
#[inline(always)]
fn is_word(ty: AtomicType, target: *mut u8) -> bool {
    ty.size() == ty.alignment() || ty.size() <= 16 && target.addr().is_multiple_of(ty.size())
}

statics! {
    /// For whoever does not share its locks: no other process knows these.
    static OWN: ElementLocks = ElementLocks::new();
}

/// Performs `op` atomically on the one element of type `ty` at `target`.
///
/// `operand` and `compare` are read, `result` receives the value that the target had immediately before; these three
/// may be unaligned. `result` is null to fetch nothing. `compare` is read by operations of
/// [`AtomicForm::Compare`] only, `operand` by all but [`AtomicOp::Read`]; what is not read may be null.
///
/// # Errors
/// - [`Error::Unsupported`]: [`supported`] is false, or a read has no result to go to;
/// - [`Error::Misaligned`]: `target` is not a multiple of [`AtomicType::alignment`] bytes;
/// - [`Error::Timeout`]: the element needs a lock, and its holder does not give it back.
///
/// Nothing has been read or written then. Elements that need a lock are atomic among the threads of this process only: see
/// [`apply_in`].
///
/// # Safety
/// - `target` is valid for reads and writes of `ty.size()` bytes, in memory that other threads and processes access by
///   atomics of the same width only as long as anybody may be changing it (a page mapped read-only is not valid even for
///   [`AtomicOp::Read`] of 16-byte types, which `cmpxchg16b` performs);
/// - `operand` and `compare`, where the operation reads them, are valid for reads of `ty.size()` bytes, and `result`,
///   unless null, for writes; nobody else changes them during the call and none of them overlaps the target.
#[inline]
pub unsafe fn apply(
    op: AtomicOp,
    ty: AtomicType,
    target: *mut u8,
    operand: *const u8,
    compare: *const u8,
    result: *mut u8,
) -> Result<()> {
    let args = Args {
        target,
        operand,
        compare,
        result,
    };
    // The two operations that every interface has and that programs live on come before the table.
    if ty == AtomicType::U64 && target.addr().is_multiple_of(size_of::<u64>()) {
        if op == AtomicOp::Sum {
            // SAFETY:
            // - the pointers are the caller's promise, the alignment has been tested.
            unsafe { kernel::integer_sum::<u64, false>(args) };
            return Ok(());
        }
        if op == AtomicOp::Cswap {
            // SAFETY:
            // - the pointers are the caller's promise, the alignment has been tested.
            unsafe { kernel::integer_cswap::<u64, false>(args) };
            return Ok(());
        }
    }
    check(op, ty, target, result)?;
    if !is_word(ty, target) {
        // SAFETY:
        // - the caller's promise; and just checked.
        return unsafe { in_turn(&OWN, lock::ELEMENT, op, ty, args, 1) };
    }
    // SAFETY:
    // - the pointers are the caller's promise;
    // - `check` has tested the alignment and that the machine can access the width.
    unsafe { dispatch::<false>(op, ty, args, 1) }
}

/// Performs `op` on each of `count` consecutive elements, in order of their addresses. Each element is updated
/// atomically, the array as a whole is not (`fi_atomic(3)`, NOTES). `operand`, `compare` and `result` are arrays of
/// `count` elements with the rules of [`apply`].
///
/// # Errors
/// As for [`apply`]; nothing has been read or written then, of any element (but after [`Error::Timeout`], of the elements before).
///
/// # Safety
/// The obligations of [`apply`] hold for every element of the arrays.
pub unsafe fn apply_vector(
    op: AtomicOp,
    ty: AtomicType,
    target: *mut u8,
    count: usize,
    operand: *const u8,
    compare: *const u8,
    result: *mut u8,
) -> Result<()> {
    // SAFETY:
    // - the caller's promise.
    unsafe {
        apply_in(
            Exclusion::Words(&OWN),
            op,
            ty,
            target,
            count,
            operand,
            compare,
            result,
        )
    }
}

/// Combines `operand` into `target`, element by element, by plain loads and stores.
///
/// # Errors
/// As for [`apply_vector`].
///
/// # Safety
/// Both arrays have `count` elements, do not overlap, and no other thread or process accesses the target during the call.
pub unsafe fn combine_alone(
    op: AtomicOp,
    ty: AtomicType,
    target: *mut u8,
    count: usize,
    operand: *const u8,
) -> Result<()> {
    let args = Args {
        target,
        operand,
        compare: std::ptr::null(),
        result: std::ptr::null_mut(),
    };
    check(op, ty, target, std::ptr::null_mut())?;
    if op.form() != AtomicForm::Update {
        return Err(Error::Unsupported);
    }
    // SAFETY:
    // - the contract of this call: the elements are valid, and no other thread changes them;
    // - `check` has tested the alignment and the type; an update reads no compare value.
    unsafe { dispatch::<true>(op, ty, args, count) }
}

/// What keeps two from changing one element at once.
#[derive(Debug, Clone, Copy)]
pub enum Exclusion<'a> {
    /// The CPU's atomics, where it has them; elsewhere these locks. Atomic with the program's own atomics, too.
    Words(&'a ElementLocks),
    /// These locks alone: arrays are changed by plain loads and stores, many elements at a time. Atomic only with others who use the
    /// same locks in this way.
    Locks(&'a ElementLocks),
}

/// [`apply_vector`] on memory that is shared with processes that use the same exclusion.
///
/// # Errors
/// As for [`apply_vector`].
///
/// # Safety
/// As for [`apply_vector`].
#[allow(clippy::too_many_arguments, reason = "the parts of one operation")]
pub unsafe fn apply_in(
    exclusion: Exclusion<'_>,
    op: AtomicOp,
    ty: AtomicType,
    target: *mut u8,
    count: usize,
    operand: *const u8,
    compare: *const u8,
    result: *mut u8,
) -> Result<()> {
    let args = Args {
        target,
        operand,
        compare,
        result,
    };
    check(op, ty, target, result)?;
    // SAFETY:
    // - the pointers are the caller's promise;
    // - `check` has tested the alignment of the first element, which that of the others follows from, and the width.
    unsafe {
        match exclusion {
            Exclusion::Words(_) if is_word(ty, target) => dispatch::<false>(op, ty, args, count),
            Exclusion::Words(locks) => in_turn(locks, lock::ELEMENT, op, ty, args, count),
            Exclusion::Locks(locks) => in_turn(locks, lock::STRIPE, op, ty, args, count),
        }
    }
}

/// [`apply_in`] under [`Exclusion::Locks`] on elements that loads and stores do not reach. `copy` takes a buffer, an address, a length, and whether
/// it writes to the address.
///
/// # Errors
/// As for [`apply_in`]; those of `copy`, after which the elements before have been changed.
///
/// # Safety
/// As for [`apply_in`], but for the target.
#[allow(clippy::too_many_arguments, reason = "the parts of one operation")]
pub(crate) unsafe fn apply_by_copies(
    locks: &ElementLocks,
    op: AtomicOp,
    ty: AtomicType,
    target: *mut u8,
    count: usize,
    operand: *const u8,
    compare: *const u8,
    result: *mut u8,
    copy: impl Fn(&mut [u8], usize, bool) -> Result<()>,
) -> Result<()> {
    let args = Args {
        target,
        operand,
        compare,
        result,
    };
    check(op, ty, target, result)?;
    in_turns(locks, lock::STRIPE, ty, args, count, |now, many| {
        let mut staged = Staged([0; STAGED]);
        let there = now.target.addr();
        let elements = &mut staged.0[there % ALIGNED..][..many * ty.size()];
        copy(elements, there, false)?;
        let target = elements.as_mut_ptr();
        // SAFETY:
        // - the buffer has as many elements, and is aligned as they are; the rest is the contract of this call.
        unsafe { dispatch::<true>(op, ty, Args { target, ..now }, many) }?;
        match op {
            AtomicOp::Read => Ok(()),
            _ => copy(elements, there, true),
        }
    })
}

/// Alignment of the buffer; a multiple of that of each type.
const ALIGNED: usize = 64;
/// The longest stretch, with an element that ends behind it.
const STAGED: usize = ALIGNED + lock::STRIPE.bytes + 32;

#[repr(align(64))]
struct Staged([u8; STAGED]);

/// One element under [`Exclusion::Locks`], as [`apply`]. The operations that programs live on come before the table.
///
/// # Errors
/// As for [`apply`].
///
/// # Safety
/// As for [`apply_in`].
#[inline(always)]
pub unsafe fn apply_locked(
    locks: &ElementLocks,
    op: AtomicOp,
    ty: AtomicType,
    target: *mut u8,
    operand: *const u8,
    compare: *const u8,
    result: *mut u8,
) -> Result<()> {
    let common = (op == AtomicOp::Sum) | (op == AtomicOp::Cswap);
    if common & (ty == AtomicType::U64) & target.addr().is_multiple_of(size_of::<u64>()) {
        let args = Args {
            target,
            operand,
            compare,
            result,
        };
        let _held = locks.hold(target.addr(), lock::STRIPE)?;
        // SAFETY:
        // - the pointers are the caller's promise; whoever else works on the element waits for the lock.
        unsafe {
            if op == AtomicOp::Sum {
                kernel::integer_sum::<u64, true>(args);
            } else {
                kernel::integer_cswap::<u64, true>(args);
            }
        }
        return Ok(());
    }
    let exclusion = Exclusion::Locks(locks);
    // SAFETY:
    // - the caller's promise.
    unsafe { apply_in(exclusion, op, ty, target, 1, operand, compare, result) }
}

/// [`dispatch`] under locks, as many elements at a time as begin in one stretch of memory.
///
/// # Safety
/// As for [`apply_in`]; [`check`] has been passed.
#[cold]
unsafe fn in_turn(
    locks: &ElementLocks,
    stretch: lock::Stretch,
    op: AtomicOp,
    ty: AtomicType,
    args: Args,
    count: usize,
) -> Result<()> {
    // SAFETY:
    // - contract of this call; whoever else works on these elements waits for a lock.
    in_turns(locks, stretch, ty, args, count, |now, many| unsafe {
        dispatch::<true>(op, ty, now, many)
    })
}

/// Calls `apply` for as many elements at a time as begin in one stretch of memory, under their locks.
#[inline(always)]
fn in_turns(
    locks: &ElementLocks,
    stretch: lock::Stretch,
    ty: AtomicType,
    args: Args,
    count: usize,
    apply: impl Fn(Args, usize) -> Result<()>,
) -> Result<()> {
    let size = ty.size();
    let mut done = 0;
    while done < count {
        let now = args.nth(done, size);
        let room = stretch.bytes - now.target.addr() % stretch.bytes;
        let many = room.div_ceil(size).min(count - done);
        // The last of them may end in the next stretch.
        let _held = locks.hold_both(now.target.addr(), many * size, stretch)?;
        apply(now, many)?;
        done += many;
    }
    Ok(())
}

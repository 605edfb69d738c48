//! Atomic operations on one element of registered memory, by the CPU of the initiator.
//!
//! The table has the operations of libfabric 1.8 `fi_atomic(3)`. Its cells include the operations of GASPI 17.1 §10
//! (fetch-and-add, compare-and-swap) and uTofu's ARMW operations. One list generates [`supported`] and [`apply`], so a validity query
//! always agrees with the operation.
//!
//! Each operation is one atomic access, or one compare-exchange loop, of the element's full width. It has acquire-release
//! ordering; a read is an acquire load, a write without fetch a release store. The operations are therefore atomic with each
//! other and with the program's own atomics of the same width, in each process that maps the memory. No CPU changes
//! `long double complex` atomically, nor complex numbers with only C's alignment. Such elements are atomic with each other
//! under a shared [lock](ElementLocks).

mod element;
mod kernel;
mod lock;
#[cfg_attr(target_arch = "x86_64", path = "atomic/extended.rs")]
#[cfg_attr(all(target_arch = "aarch64", not(miri)), path = "atomic/quad.rs")]
#[cfg_attr(
    not(any(target_arch = "x86_64", all(target_arch = "aarch64", not(miri)))),
    path = "atomic/no_long_double.rs"
)]
mod long_double;
mod word;

pub use lock::ElementLocks;

use crate::sync::statics;
use crate::{Error, Result};
use kernel::Args;

/// The calls that an operation allows; see "Base", "Fetch-" and "Compare-Atomic Functions" in `fi_atomic(3)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AtomicForm {
    /// With or without fetching the initial value.
    Update,
    /// Requires a fetch of the initial value.
    FetchOnly,
    /// Takes a compare value and an operand; the fetch of the initial value is optional.
    Compare,
}

/// Generates the enums, the validity query and the dispatch from one list. A cell names the function in `kernel` for the
/// operation on a class of types; `-` marks an undefined combination.
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

            /// Required alignment of a target: that of the type in C.
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

            /// The calls that the operation allows.
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

        /// Whether the table defines the combination. Machine support is not considered.
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

        /// Performs the operation on `count` elements. An undefined combination touches no memory.
        ///
        /// # Safety
        /// As for [`apply`], for each element. With `ALONE` no other thread or process accesses the elements during the call. Otherwise
        /// `args.target` is aligned to the type's size, and the machine has atomics of that size.
        #[inline(never)]
        unsafe fn dispatch<const ALONE: bool>(op: AtomicOp, ty: AtomicType, args: Args, count: usize) -> Result<()> {
            match ty {
                $(AtomicType::$ty => {
                    // SAFETY:
                    // - contract of this call: pointers and alignment are right for `ty`;
                    // - the Rust type in this arm belongs to `ty`.
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
            // - contract of `dispatch`, which `cells::*` share.
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

/// Whether [`apply`] performs this operation on this type, on this machine. The table must define it and the CPU must have
/// an atomic access of the width (16-byte types need x86-64 with `cmpxchg16b`, or aarch64).
#[inline]
pub fn supported(op: AtomicOp, ty: AtomicType) -> bool {
    let long_double = matches!(ty, AtomicType::LongDouble | AtomicType::ComplexLongDouble);
    defined(op, ty)
        && (ty.size() <= 8 || word::wide_available())
        && (long_double::AVAILABLE || !long_double)
}

/// Checks the parts of an operation that do not depend on the contents of memory.
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

/// Whether the CPU changes elements of this type at `target` atomically. The answer holds for the whole array.
#[inline(always)]
fn is_word(ty: AtomicType, target: *mut u8) -> bool {
    ty.size() == ty.alignment() || ty.size() <= 16 && target.addr().is_multiple_of(ty.size())
}

statics! {
    /// Locks for callers without shared locks. Other processes do not use them.
    static OWN: ElementLocks = ElementLocks::new();
}

/// Performs `op` atomically on the one element of type `ty` at `target`.
///
/// The call reads `operand` and `compare`, and writes the target's previous value to `result`. All three may be unaligned. A
/// null `result` means no fetch. Operations of [`AtomicForm::Compare`] alone read `compare`; all operations except
/// [`AtomicOp::Read`] read `operand`. An argument that is not read may be null.
///
/// # Errors
/// - [`Error::Unsupported`]: [`supported`] is false, or `result` is null for a read;
/// - [`Error::Misaligned`]: `target` is not a multiple of [`AtomicType::alignment`] bytes;
/// - [`Error::Timeout`]: the element needs a lock, and a live holder does not release it.
///
/// After an error no memory has been accessed. Elements that need a lock are atomic only among the threads of this process:
/// see [`apply_in`].
///
/// # Safety
/// - `target` is valid for reads and writes of `ty.size()` bytes. While other threads or processes may change the element,
///   all of them use atomics of the same width. A page mapped read-only is not valid even for [`AtomicOp::Read`] of 16-byte
///   types, which `cmpxchg16b` performs;
/// - `operand` and `compare`, if the operation reads them, are valid for reads of `ty.size()` bytes, and `result`, unless
///   null, for writes. No other thread changes them during the call, and none of them overlaps the target.
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
    // Fast path for the two most common operations: no table lookup.
    if ty == AtomicType::U64 && target.addr().is_multiple_of(size_of::<u64>()) {
        if op == AtomicOp::Sum {
            // SAFETY:
            // - contract of this call: the pointers are valid; the alignment was tested above.
            unsafe { kernel::integer_sum::<u64, false>(args) };
            return Ok(());
        }
        if op == AtomicOp::Cswap {
            // SAFETY:
            // - contract of this call: the pointers are valid; the alignment was tested above.
            unsafe { kernel::integer_cswap::<u64, false>(args) };
            return Ok(());
        }
    }
    check(op, ty, target, result)?;
    if !is_word(ty, target) {
        // SAFETY:
        // - contract of this call; `check` has passed.
        return unsafe { in_turn(&OWN, lock::ELEMENT, op, ty, args, 1) };
    }
    // SAFETY:
    // - contract of this call: the pointers are valid;
    // - `check` has tested the alignment, and that the machine can access the width.
    unsafe { dispatch::<false>(op, ty, args, 1) }
}

/// Performs `op` on each of `count` consecutive elements, in order of their addresses. The update of each element is
/// atomic, that of the array is not (`fi_atomic(3)`, NOTES). `operand`, `compare` and `result` are arrays of `count`
/// elements with the rules of [`apply`].
///
/// # Errors
/// As for [`apply`]. No element has been accessed then, except after [`Error::Timeout`]: earlier elements are done.
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
    // - contract of this call.
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
    // - contract of this call: the elements are valid, and no other thread changes them;
    // - `check` has tested the alignment and the type; an update reads no compare value.
    unsafe { dispatch::<true>(op, ty, args, count) }
}

/// How concurrent operations on one element exclude each other.
#[derive(Debug, Clone, Copy)]
pub enum Exclusion<'a> {
    /// CPU atomics, or these locks for elements without any. CPU atomics are also atomic with the program's own.
    Words(&'a ElementLocks),
    /// These locks only: plain loads and stores change many elements at a time. Atomic only with other operations that use the
    /// same locks in this way.
    Locks(&'a ElementLocks),
}

/// [`apply_vector`] on memory shared with processes that use the same exclusion.
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
    // - contract of this call: the pointers are valid;
    // - `check` has tested the alignment, and that the machine can access the width.
    unsafe {
        match exclusion {
            Exclusion::Words(_) if is_word(ty, target) => dispatch::<false>(op, ty, args, count),
            Exclusion::Words(locks) => in_turn(locks, lock::ELEMENT, op, ty, args, count),
            Exclusion::Locks(locks) => in_turn(locks, lock::STRIPE, op, ty, args, count),
        }
    }
}

/// [`apply_in`] under [`Exclusion::Locks`], on elements that loads and stores cannot reach. `copy` takes a buffer, an address, and
/// whether it writes to the address. It copies as many bytes as the buffer has.
///
/// # Errors
/// As for [`apply_in`], or an error of `copy`. Earlier elements have been changed then.
///
/// # Safety
/// As for [`apply_in`], except for the target.
#[allow(clippy::too_many_arguments, reason = "the parts of one operation")]
pub unsafe fn apply_by_copies(
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
        // - the buffer has `many` elements and the alignment of the target; contract of this call: the other pointers are valid.
        unsafe { dispatch::<true>(op, ty, Args { target, ..now }, many) }?;
        match op {
            AtomicOp::Read => Ok(()),
            _ => copy(elements, there, true),
        }
    })
}

/// Alignment of the buffer: a multiple of each type's alignment.
const ALIGNED: usize = 64;
/// Size of the buffer: the misalignment, a whole stretch, and the rest of an element that crosses its end.
const STAGED: usize = ALIGNED + lock::STRIPE.bytes + 32;

#[repr(align(64))]
struct Staged([u8; STAGED]);

/// [`apply`] to one element under [`Exclusion::Locks`]. The most common operations bypass the table.
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
        // - contract of this call: the pointers are valid; the lock excludes other operations on the element.
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
    // - contract of this call.
    unsafe { apply_in(exclusion, op, ty, target, 1, operand, compare, result) }
}

/// [`dispatch`] under locks, one stretch of memory at a time.
///
/// # Safety
/// As for [`apply_in`]; [`check`] has passed.
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
    // - contract of this call; the locks exclude other operations on these elements.
    in_turns(locks, stretch, ty, args, count, |now, many| unsafe {
        dispatch::<true>(op, ty, now, many)
    })
}

/// Calls `apply` for all elements that begin in one stretch of memory at a time, under their locks.
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
        // The last element may end in the next stretch.
        let _held = locks.hold_both(now.target.addr(), many * size, stretch)?;
        apply(now, many)?;
        done += many;
    }
    Ok(())
}

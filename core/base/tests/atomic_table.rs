//! Every cell of the atomic table against a plain computation of the formulas of `fi_atomic(3)`.

use proptest::prelude::*;
use unipgas_base::Error;
use unipgas_base::atomic::{
    AtomicForm, AtomicOp, AtomicOp::*, AtomicType, AtomicType::*, apply, apply_vector, supported,
};

/// The expected table, written independently of it.
fn expected(op: AtomicOp, ty: AtomicType) -> bool {
    match ty {
        ComplexF32 | ComplexF64 | ComplexLongDouble => matches!(
            op,
            Sum | Prod | Lor | Land | Lxor | Read | Write | Cswap | CswapNe
        ),
        F32 | F64 | LongDouble => !matches!(op, Bor | Band | Bxor | Mswap),
        _ => true,
    }
}

/// Whether the machine that runs the test has 16-byte atomics.
fn wide() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("cmpxchg16b");
    #[cfg(not(target_arch = "x86_64"))]
    return cfg!(all(target_arch = "aarch64", not(miri)));
}

const GUARD: u8 = 0xA5;

/// Types that Rust computes with; the others are compared with C in `atomic_long_double.rs`.
fn rust_types() -> Vec<AtomicType> {
    let known = |ty: &AtomicType| !matches!(ty, LongDouble | ComplexLongDouble);
    AtomicType::ALL.iter().copied().filter(known).collect()
}

/// Room for three elements of the greatest size, of which an operation may touch the middle one only.
#[repr(C, align(32))]
#[derive(Clone, Copy, PartialEq, Debug)]
struct Cell([u8; 96]);

impl Cell {
    fn holding(value: &[u8]) -> Self {
        let mut cell = Cell([GUARD; 96]);
        cell.0[32..32 + value.len()].copy_from_slice(value);
        cell
    }

    fn value(&self, size: usize) -> Vec<u8> {
        self.0[32..32 + size].to_vec()
    }

    fn assert_guards(&self, size: usize) {
        let mut around = self.0.iter().take(32).chain(&self.0[32 + size..]);
        assert!(
            around.all(|&byte| byte == GUARD),
            "wrote beside the element"
        );
    }
}

/// Calls `apply` with operands and result at odd addresses. Returns its result and the fetched value.
fn run(
    op: AtomicOp,
    ty: AtomicType,
    target: &mut Cell,
    b: &[u8],
    c: &[u8],
    fetch: bool,
) -> Result<Vec<u8>, Error> {
    let (mut operand, mut compare, mut result) = ([0u8; 64], [0u8; 64], [GUARD; 64]);
    // The byte after an even address is odd, for any address of the allocator.
    let odd = |base: &[u8]| 1 + (base.as_ptr().addr() & 1);
    let (at_b, at_c, at_r) = (odd(&operand), odd(&compare), odd(&result));
    operand[at_b..at_b + b.len()].copy_from_slice(b);
    compare[at_c..at_c + c.len()].copy_from_slice(c);
    let (reads_b, reads_c) = match op.form() {
        AtomicForm::FetchOnly => (false, false),
        AtomicForm::Update => (true, false),
        AtomicForm::Compare => (true, true),
    };
    let null = std::ptr::null_mut();
    let b = if reads_b {
        &raw const operand[at_b]
    } else {
        null
    };
    let c = if reads_c {
        &raw const compare[at_c]
    } else {
        null
    };
    let r = if fetch { &raw mut result[at_r] } else { null };
    // SAFETY:
    // - the target is inside of a cell, aligned to 32 bytes, and everything is longer than the greatest element;
    // - arguments that the operation does not read are null.
    let outcome = unsafe { apply(op, ty, target.0.as_mut_ptr().add(32), b, c, r) };
    let is_there = fetch && outcome.is_ok();
    let fetched = &mut result[at_r..][..ty.size() * usize::from(is_there)];
    let found = fetched.to_vec();
    fetched.fill(GUARD);
    assert_eq!(result, [GUARD; 64], "wrote beside the result");
    outcome.map(|()| found)
}

/// The element after an operation that keeps or replaces it.
fn chosen<T: PartialOrd>(op: AtomicOp, t: T, b: T, c: T) -> T {
    let replaces = match op {
        Min => b < t,
        Max => b > t,
        Read => false,
        Write => true,
        Cswap => c == t,
        CswapNe => c != t,
        CswapLe => c <= t,
        CswapLt => c < t,
        CswapGe => c >= t,
        CswapGt => c > t,
        _ => unreachable!("not in the table"),
    };
    if replaces { b } else { t }
}

macro_rules! mirrors {
    (integers: $($i:ident $ity:ident),*; reals: $($r:ident $rty:ident),*; complex: $($z:ident $zty:ident $part:ident),*) => {
        /// The element after the operation.
        fn mirror(op: AtomicOp, ty: AtomicType, t: &[u8], b: &[u8], c: &[u8]) -> Vec<u8> {
            match ty {
                $($ity => {
                    let of = |bytes: &[u8]| $i::from_ne_bytes(bytes.try_into().unwrap());
                    let (t, b, c) = (of(t), of(b), of(c));
                    let new = match op {
                        Sum => t.wrapping_add(b),
                        Prod => t.wrapping_mul(b),
                        Lor => (t != 0 || b != 0) as $i,
                        Land => (t != 0 && b != 0) as $i,
                        Bor => t | b,
                        Band => t & b,
                        Lxor => ((t != 0 && b == 0) || (t == 0 && b != 0)) as $i,
                        Bxor => t ^ b,
                        Mswap => (b & c) | (t & !c),
                        _ => chosen(op, t, b, c),
                    };
                    new.to_ne_bytes().to_vec()
                })*
                $($rty => {
                    let of = |bytes: &[u8]| $r::from_ne_bytes(bytes.try_into().unwrap());
                    let (t, b, c) = (of(t), of(b), of(c));
                    let new = match op {
                        Sum => t + b,
                        Prod => t * b,
                        Lor => (t != 0.0 || b != 0.0) as u8 as $r,
                        Land => (t != 0.0 && b != 0.0) as u8 as $r,
                        Lxor => ((t != 0.0 && b == 0.0) || (t == 0.0 && b != 0.0)) as u8 as $r,
                        _ => chosen(op, t, b, c),
                    };
                    new.to_ne_bytes().to_vec()
                })*
                LongDouble | ComplexLongDouble => unreachable!("not a type of Rust"),
                $($zty => {
                    let half = size_of::<$part>();
                    let of = |bytes: &[u8]| (
                        $part::from_ne_bytes(bytes[..half].try_into().unwrap()),
                        $part::from_ne_bytes(bytes[half..].try_into().unwrap()),
                    );
                    let truth = |z: ($part, $part)| z != (0.0, 0.0);
                    let number = |truth: bool| (truth as u8 as $part, 0.0);
                    let (t, b, c) = (of(t), of(b), of(c));
                    let new = match op {
                        Sum => (t.0 + b.0, t.1 + b.1),
                        Prod => (t.0 * b.0 - t.1 * b.1, t.0 * b.1 + t.1 * b.0),
                        Lor => number(truth(t) || truth(b)),
                        Land => number(truth(t) && truth(b)),
                        Lxor => number(truth(t) != truth(b)),
                        _ => chosen(op, t, b, c),
                    };
                    [new.0.to_ne_bytes(), new.1.to_ne_bytes()].concat()
                })*
            }
        }
    };
}

mirrors! {
    integers: i8 I8, u8 U8, i16 I16, u16 U16, i32 I32, u32 U32, i64 I64, u64 U64, i128 I128, u128 U128;
    reals: f32 F32, f64 F64;
    complex: c32 ComplexF32 f32, c64 ComplexF64 f64
}

/// Equal bytes, except that any NaN is as good as another where arithmetic has made it.
fn same(ty: AtomicType, a: &[u8], b: &[u8]) -> bool {
    fn parts<const N: usize>(a: &[u8], b: &[u8], nan: impl Fn([u8; N]) -> bool) -> bool {
        a.chunks(N)
            .zip(b.chunks(N))
            .all(|(a, b)| a == b || (nan(a.try_into().unwrap()) && nan(b.try_into().unwrap())))
    }
    match ty {
        F32 | ComplexF32 => parts::<4>(a, b, |bytes| f32::from_ne_bytes(bytes).is_nan()),
        F64 | ComplexF64 => parts::<8>(a, b, |bytes| f64::from_ne_bytes(bytes).is_nan()),
        _ => a == b,
    }
}

/// Values of the type: few enough to meet each other, and the ones at which something happens.
fn value(ty: AtomicType) -> BoxedStrategy<Vec<u8>> {
    const REALS: [f64; 12] = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        1.5,
        2.0,
        -3.25,
        1e30,
        f64::MIN_POSITIVE,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
    ];
    let single = prop::sample::select(&REALS[..]).prop_map(|x| (x as f32).to_ne_bytes().to_vec());
    let double = prop::sample::select(&REALS[..]).prop_map(|x| x.to_ne_bytes().to_vec());
    let size = ty.size();
    match ty {
        F32 => single.boxed(),
        F64 => double.boxed(),
        ComplexF32 => (single.clone(), single)
            .prop_map(|(re, im)| [re, im].concat())
            .boxed(),
        ComplexF64 => (double.clone(), double)
            .prop_map(|(re, im)| [re, im].concat())
            .boxed(),
        _ => prop_oneof![
            3 => (-2i128..=2).prop_map(move |x| low_bytes(x, size)),
            1 => (0..8 * size as u32).prop_map(move |bit| low_bytes(1i128.wrapping_shl(bit), size)),
            1 => any::<i128>().prop_map(move |x| low_bytes(x, size)),
        ]
        .boxed(),
    }
}

fn low_bytes(x: i128, size: usize) -> Vec<u8> {
    let mut bytes = x.to_le_bytes()[..size].to_vec();
    if cfg!(target_endian = "big") {
        bytes.reverse();
    }
    bytes
}

/// Target, operand and compare value of one element.
type Element = (Vec<u8>, Vec<u8>, Vec<u8>);

type Step = (AtomicOp, Vec<u8>, Vec<u8>, bool);

fn walk() -> impl Strategy<Value = (AtomicType, Vec<u8>, Vec<Step>)> {
    prop::sample::select(rust_types()).prop_flat_map(|ty| {
        let step = (
            prop::sample::select(AtomicOp::ALL),
            value(ty),
            value(ty),
            any::<bool>(),
        );
        (Just(ty), value(ty), prop::collection::vec(step, 1..60))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 20 } else { 1500 }, ..ProptestConfig::default() })]

    #[test]
    fn random_walk_agrees_with_the_formulas((ty, start, steps) in walk()) {
        let mut target = Cell::holding(&start);
        for (op, b, c, fetch) in steps {
            let before = target.value(ty.size());
            let outcome = run(op, ty, &mut target, &b, &c, fetch);
            target.assert_guards(ty.size());
            let after = target.value(ty.size());
            if !(expected(op, ty) && (ty.size() <= 8 || wide())) || (op == Read && !fetch) {
                prop_assert_eq!(outcome, Err(Error::Unsupported), "{:?} {:?}", op, ty);
                prop_assert_eq!(after, before);
                continue;
            }
            let fetched = outcome.unwrap();
            if fetch {
                prop_assert_eq!(&fetched, &before, "{:?} {:?} fetched", op, ty);
            }
            let wanted = mirror(op, ty, &before, &b, &c);
            prop_assert!(same(ty, &after, &wanted), "{op:?} {ty:?}: {before:?}, {b:?}, {c:?} gave {after:?}, not {wanted:?}");
        }
    }

    #[test]
    fn vectors_are_their_elements(
        (ty, elements) in prop::sample::select(rust_types()).prop_flat_map(|ty| {
            (Just(ty), prop::collection::vec((value(ty), value(ty), value(ty)), 0..9))
        }),
        op in prop::sample::select(AtomicOp::ALL),
    ) {
        prop_assume!(supported(op, ty));
        let size = ty.size();
        let join = |pick: fn(&Element) -> &[u8]| elements.iter().flat_map(pick).copied().collect::<Vec<u8>>();
        let (before, b, c) = (join(|e| &e.0), join(|e| &e.1), join(|e| &e.2));
        let mut target = vec![Cell([GUARD; 96]); 4];
        let target = target.as_mut_ptr().cast::<u8>();
        let mut result = vec![GUARD; before.len() + 1];
        // SAFETY:
        // - four cells are 384 bytes, aligned to 32, of which at most 9 * 16 are used; the other arrays have the length too.
        let (outcome, after) = unsafe {
            target.copy_from(before.as_ptr(), before.len());
            let outcome = apply_vector(op, ty, target, elements.len(), b.as_ptr(), c.as_ptr(), result.as_mut_ptr());
            (outcome, std::slice::from_raw_parts(target, 384).to_vec())
        };
        prop_assert_eq!(outcome, Ok(()));
        prop_assert_eq!(&result[..before.len()], &before[..]);
        prop_assert_eq!(result[before.len()], GUARD);
        prop_assert!(after[before.len()..].iter().all(|&byte| byte == GUARD));
        for (index, (t, b, c)) in elements.iter().enumerate() {
            prop_assert!(same(ty, &after[index * size..][..size], &mirror(op, ty, t, b, c)), "element {index}");
        }
    }
}

#[test]
fn the_table_holds_what_the_page_defines() {
    assert_eq!((AtomicOp::ALL.len(), AtomicType::ALL.len()), (19, 16));
    for &op in AtomicOp::ALL {
        for &ty in AtomicType::ALL {
            let wanted = expected(op, ty) && (ty.size() <= 8 || wide());
            assert_eq!(supported(op, ty), wanted, "{op:?} {ty:?}");
        }
    }
}

#[test]
fn unsupported_cells_touch_nothing() {
    let mut seen = 0;
    for &op in AtomicOp::ALL {
        for &ty in AtomicType::ALL.iter().filter(|&&ty| !supported(op, ty)) {
            let (start, b, c) = ([0x11; 32], [0x22; 32], [0x11; 32]);
            let before = Cell::holding(&start[..ty.size()]);
            for fetch in [false, true] {
                let mut target = before;
                let outcome = run(op, ty, &mut target, &b, &c, fetch);
                assert_eq!(outcome, Err(Error::Unsupported), "{op:?} {ty:?}");
                assert_eq!(target, before);
            }
            let (mut target, mut result) = (before, [GUARD; 32]);
            // SAFETY:
            // - one element at an aligned address, and arguments of the greatest size.
            let outcome = unsafe {
                let (b, c, r) = (b.as_ptr(), c.as_ptr(), result.as_mut_ptr());
                apply_vector(op, ty, target.0.as_mut_ptr().add(32), 1, b, c, r)
            };
            assert_eq!(outcome, Err(Error::Unsupported));
            assert_eq!((target, result), (before, [GUARD; 32]));
            seen += 1;
        }
    }
    assert!(
        seen >= 2 * 4 + 2 * 10,
        "the table has at least {seen} empty cells"
    );
}

#[test]
fn misaligned_targets_are_refused() {
    for &op in AtomicOp::ALL {
        for &ty in AtomicType::ALL.iter().filter(|&&ty| supported(op, ty)) {
            for shift in 1..ty.alignment() {
                let mut target = Cell([GUARD; 96]);
                let (operand, mut result) = ([1u8; 64], [GUARD; 64]);
                // SAFETY:
                // - target, operands and results have room for two elements at any shift.
                let outcomes = unsafe {
                    let target = target.0.as_mut_ptr().add(32 + shift);
                    let (b, r) = (operand.as_ptr(), result.as_mut_ptr());
                    [
                        apply(op, ty, target, b, b, r),
                        apply_vector(op, ty, target, 1, b, b, r),
                    ]
                };
                let misaligned = || Err(Error::Misaligned(ty.alignment()));
                assert_eq!(outcomes, [misaligned(), misaligned()]);
                let untouched = (Cell([GUARD; 96]), [GUARD; 64]);
                assert_eq!((target, result), untouched, "{op:?} {ty:?}");
            }
        }
    }
}

#[test]
fn floats_compare_by_value() {
    let one = |op, t: f64, b: f64, c: f64| {
        let mut target = Cell::holding(&t.to_ne_bytes());
        let (b, c) = (b.to_ne_bytes(), c.to_ne_bytes());
        run(op, F64, &mut target, &b, &c, true).unwrap();
        f64::from_ne_bytes(target.value(8).try_into().unwrap())
    };
    assert_eq!(
        one(Cswap, 0.0, 7.0, -0.0),
        7.0,
        "zeros of either sign are equal"
    );
    assert!(
        one(Cswap, f64::NAN, 7.0, f64::NAN).is_nan(),
        "a NaN equals nothing"
    );
    assert_eq!(one(CswapNe, f64::NAN, 7.0, f64::NAN), 7.0);
    assert_eq!(
        one(Min, 3.0, f64::NAN, 0.0),
        3.0,
        "a NaN operand never replaces"
    );
    assert!(one(Max, f64::NAN, 3.0, 0.0).is_nan(), "a NaN target stays");
    assert_eq!(one(Land, f64::NAN, 3.0, 0.0), 1.0, "a NaN is true");
}

#[test]
fn signalling_nans_pass_unchanged() {
    let quiet_bit_clear = 0x7FF0_0000_0000_0001u64.to_ne_bytes();
    let mut target = Cell::holding(&0f64.to_ne_bytes());
    run(Write, F64, &mut target, &quiet_bit_clear, &[], true).unwrap();
    assert_eq!(target.value(8), quiet_bit_clear);
    assert_eq!(
        run(Read, F64, &mut target, &[], &[], true).unwrap(),
        quiet_bit_clear
    );
}

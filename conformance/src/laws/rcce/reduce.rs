//! Reductions: RCCE_reduce and RCCE_allreduce.

use super::kit::*;

laws! {
    integers: "reduce.integers", "RCCE RCCE_reduce", 4, [RCCE_reduce, RCCE_allreduce],
        "sum, minimum, maximum and product of ints and longs, to every root and to all";
    floats: "reduce.floats", "RCCE RCCE_reduce", 4, [RCCE_reduce, RCCE_allreduce],
        "floats and doubles are combined in one order: the root's first, then the others' by number; all UEs have the same bits";
    wraps: "reduce.wraps", "RCCE RCCE_reduce", 2, [RCCE_allreduce],
        "ints and longs that overflow wrap";
    parts: "reduce.parts", "RCCE RCCE_reduce", 4, [RCCE_reduce, RCCE_allreduce, RCCE_comm_split] + ordering,
        "reductions of parts are theirs alone, and in the order of their members";
    many: "reduce.many-elements", "RCCE RCCE_allreduce", 3, [RCCE_allreduce, RCCE_reduce],
        "any number of elements, none too";
    in_place: "reduce.in-place", "RCCE RCCE_allreduce", 3, [RCCE_allreduce, RCCE_reduce],
        "data and result may be the same place";
    result_at_root: "reduce.result-at-root", "RCCE RCCE_reduce", 3, [RCCE_reduce],
        "the result is written at the root only; elsewhere it may be null";
    wrong: "reduce.wrong", "RCCE RCCE_reduce", 2, [RCCE_reduce, RCCE_allreduce],
        "operations are looked at before types; wrong ones give ERROR_ILLEGAL_OP and ERROR_ILLEGAL_TYPE";
}

const LONG_TYPE: i32 = INT + 1;
const FLOAT: i32 = INT + 2;
const DOUBLE: i32 = INT + 3;
const MIN: i32 = SUM + 1;
const MAX: i32 = SUM + 2;
const PROD: i32 = SUM + 3;

/// An element type.
trait Element: Copy + PartialEq + std::fmt::Debug {
    const TYPE: i32;
    fn bytes(of: &[Self]) -> Vec<u8>;
    fn of(bytes: &[u8]) -> Vec<Self>;
    fn combine(op: i32, a: Self, b: Self) -> Self;
}

macro_rules! element {
    ($($ty:ty = $code:expr, $sum:expr, $product:expr, $min:expr, $max:expr;)*) => {$(
        impl Element for $ty {
            const TYPE: i32 = $code;
            fn bytes(of: &[Self]) -> Vec<u8> {
                of.iter().flat_map(|element| element.to_ne_bytes()).collect()
            }
            fn of(bytes: &[u8]) -> Vec<Self> {
                let element = |bytes: &[u8]| <$ty>::from_ne_bytes(bytes.try_into().expect("whole"));
                bytes.chunks_exact(size_of::<$ty>()).map(element).collect()
            }
            fn combine(op: i32, a: Self, b: Self) -> Self {
                match op {
                    SUM => $sum(a, b),
                    PROD => $product(a, b),
                    MIN => $min(a, b),
                    _ => $max(a, b),
                }
            }
        }
    )*};
}

element! {
    i32 = INT, i32::wrapping_add, i32::wrapping_mul, Ord::min, Ord::max;
    i64 = LONG_TYPE, i64::wrapping_add, i64::wrapping_mul, Ord::min, Ord::max;
    f32 = FLOAT, |a, b| a + b, |a, b| a * b, f32::min, f32::max;
    f64 = DOUBLE, |a, b| a + b, |a, b| a * b, f64::min, f64::max;
}

/// The expected result: the root's element, combined with the others' in order.
fn expected<T: Element>(op: i32, root: usize, of: &[Vec<T>]) -> Vec<T> {
    let mut result = of[root].clone();
    for (_, other) in of.iter().enumerate().filter(|(id, _)| *id != root) {
        for (element, other) in result.iter_mut().zip(other) {
            *element = T::combine(op, *element, *other);
        }
    }
    result
}

/// Checks a reduction to a root, or with `None` to all. `of` has the values of each member.
fn check<T: Element>(op: i32, root: Option<usize>, of: &[Vec<T>], comm: RCCE_COMM) -> Verdict {
    let me = comm.my_rank as usize;
    let data = Bytes::of(&T::bytes(&of[me]));
    let result = Bytes::filled(data.len + 16, 0x3f);
    let num = of[me].len() as i32;
    match root {
        Some(root) => reduce(&data, &result, num, (T::TYPE, op), root as i32, comm)?,
        None => allreduce(&data, &result, num, (T::TYPE, op), comm)?,
    }
    let what = format!("operation {op} of type {} to {root:?}", T::TYPE);
    if root.is_none_or(|root| root == me) {
        let right = expected(op, root.unwrap_or(0), of);
        let seen = T::of(&result.get()[..data.len]);
        // Compares bits, not values.
        let same = T::bytes(&seen) == T::bytes(&right);
        ensure!(same, "{what}: {seen:?} instead of {right:?}");
        result.holds(&T::bytes(&right), 0x3f, &what)?;
    } else {
        result.holds(&[], 0x3f, &format!("{what}: the result elsewhere"))?;
    }
    data.free();
    result.free();
    Ok(())
}

fn each<T: Element>(
    ctx: &Ctx,
    ops: &[i32],
    num: usize,
    draw: impl Fn(&mut crate::Random) -> T,
) -> Verdict {
    let mut random = ctx.random(70);
    let mut values = || (0..num).map(|_| draw(&mut random)).collect();
    let of: Vec<Vec<T>> = (0..ctx.size).map(|_| values()).collect();
    for op in ops {
        for root in 0..ctx.size as usize {
            check(*op, Some(root), &of, world())?;
        }
        check(*op, None, &of, world())?;
    }
    Ok(())
}

const OPS: [i32; 4] = [SUM, MIN, MAX, PROD];

fn integers(ctx: &Ctx) -> Verdict {
    each::<i32>(ctx, &OPS, 5, |random| random.below(2000) as i32 - 1000)?;
    each::<i64>(ctx, &OPS, 5, |random| {
        random.below(2_000_000) as i64 - 1_000_000
    })
}

/// Values of very different sizes: another order gives other bits.
fn uneven(random: &mut crate::Random) -> f64 {
    let sign = if random.below(2) == 0 { 1.0 } else { -1.0 };
    sign * (1.0 + random.below(1000) as f64 / 997.0) * 10f64.powi(random.below(12) as i32)
}

fn floats(ctx: &Ctx) -> Verdict {
    each::<f32>(ctx, &OPS, 40, |random| uneven(random) as f32)?;
    each::<f64>(ctx, &OPS, 40, uneven)
}

fn wraps(_: &Ctx) -> Verdict {
    let ints = [vec![i32::MAX, i32::MIN, -1], vec![1, -1, i32::MIN]];
    check(SUM, None, &ints, world())?;
    let longs = [vec![i64::MAX, i64::MIN, 3], vec![2, -1, i64::MAX]];
    check(PROD, None, &longs, world())
}

fn parts(ctx: &Ctx) -> Verdict {
    let comm = split(parity)?;
    let mut random = ctx.random(71 + u64::from(ctx.rank % 2));
    for round in 0..10 {
        let mut values = || (0..round * 10).map(|_| uneven(&mut random)).collect();
        let of: [Vec<f64>; 2] = [values(), values()];
        for op in OPS {
            for_all([Some(0), Some(1), None], |root| check(op, root, &of, comm))?;
        }
    }
    // One more reduction of all UEs.
    each::<i32>(ctx, &[SUM], 3, |random| random.below(100) as i32)
}

fn many(ctx: &Ctx) -> Verdict {
    for num in [0, 1, 7, 8, 1000, 1025, 20_000] {
        each::<i32>(ctx, &[SUM], num, |random| random.next() as i32)?;
        each::<f64>(ctx, &[MAX], num, uneven)?;
    }
    Ok(())
}

fn in_place(ctx: &Ctx) -> Verdict {
    let n = ctx.size as i32;
    for root in [None, Some(1)] {
        let data = Bytes::of(&i32::bytes(&[ctx.rank as i32 + 1, 10]));
        match root {
            None => ok!(RCCE_allreduce(data.ptr(), data.ptr(), 2, INT, SUM, world())),
            Some(root) => reduce(&data, &data, 2, (INT, SUM), root, world())?,
        }
        if root.is_none_or(|root| root == ctx.rank as i32) {
            ensure_eq!(i32::of(&data.get()), [n * (n + 1) / 2, 10 * n], "the sums");
        }
    }
    Ok(())
}

fn result_at_root(ctx: &Ctx) -> Verdict {
    for root in 0..3 {
        let data = Bytes::of(&2i32.to_ne_bytes());
        if ctx.rank as i32 == root {
            let result = Bytes::filled(4, 0);
            reduce(&data, &result, 1, (INT, PROD), root, world())?;
            ensure_eq!(i32::of(&result.get()), [8], "the product");
        } else {
            let (from, into) = (data.ptr(), null_mut());
            ok!(RCCE_reduce(from, into, 1, INT, PROD, root, world()));
        }
    }
    Ok(())
}

fn wrong(_: &Ctx) -> Verdict {
    let (data, result) = (Bytes::filled(16, 0), Bytes::filled(16, 0x21));
    let (data, place) = (data.ptr(), result.ptr());
    let (op, ty) = (RCCE_ERROR_ILLEGAL_OP, RCCE_ERROR_ILLEGAL_TYPE);
    for wrong in [0, 1, -1, SUM - 1, PROD + 1, i32::MIN, i32::MAX] {
        gives!(op, RCCE_reduce(data, place, 1, wrong, wrong, 0, world()));
        gives!(op, RCCE_allreduce(data, place, 1, INT, wrong, world()));
        gives!(ty, RCCE_reduce(data, place, 1, wrong, SUM, 0, world()));
        gives!(ty, RCCE_allreduce(data, place, 1, wrong, SUM, world()));
    }
    for wrong in [-1, 2, 48, i32::MIN] {
        gives!(
            RCCE_ERROR_ID,
            RCCE_reduce(data, place, 1, INT, SUM, wrong, world())
        );
    }
    let mut sized = RCCE_COMM::UNDEFINED;
    sized.size = 7;
    for wrong in [RCCE_COMM::UNDEFINED, sized] {
        gives! { RCCE_ERROR_COMM_UNDEFINED:
            RCCE_reduce(data, place, 1, INT, SUM, 0, wrong);
            RCCE_allreduce(data, place, 1, INT, SUM, wrong);
        }
    }
    result.holds(&[], 0x21, "the result")
}

//! Exact sums, compared with sums of integers of arbitrary length.

use num_bigint::{BigInt, Sign};
use proptest::prelude::*;
use unipgas_port::gate::exact::Sum;

/// The double as an integer in units of 2^-1074.
fn integer(x: f64) -> BigInt {
    let bits = x.to_bits();
    let (exponent, fraction) = (bits >> 52 & 0x7ff, bits & ((1 << 52) - 1));
    let magnitude = if exponent == 0 {
        BigInt::from(fraction)
    } else {
        BigInt::from(fraction + (1 << 52)) << (exponent - 1)
    };
    if x.is_sign_negative() {
        -magnitude
    } else {
        magnitude
    }
}

/// The double nearest to an integer in units of 2^-1074: the candidate with the smallest distance.
fn nearest(exact: &BigInt) -> f64 {
    let magnitude = exact.magnitude().clone();
    // The greatest double that is not above the integer, by bisection over the bit patterns of finite doubles.
    let (mut low, mut high) = (0u64, f64::MAX.to_bits());
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if *integer(f64::from_bits(middle)).magnitude() <= magnitude {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    let magnitude = BigInt::from(magnitude);
    let below = &magnitude - integer(f64::from_bits(low));
    let next = if low == f64::MAX.to_bits() {
        BigInt::from(1) << 2098
    } else {
        integer(f64::from_bits(low + 1))
    };
    let above = next - &magnitude;
    let bits = match below.cmp(&above) {
        std::cmp::Ordering::Less => low,
        std::cmp::Ordering::Greater => low + 1,
        std::cmp::Ordering::Equal => low + (low & 1),
    };
    let value = f64::from_bits(bits);
    if exact.sign() == Sign::Minus {
        -value
    } else {
        value
    }
}

/// The expected bit pattern of the sum.
fn reference(addends: &[f64]) -> f64 {
    let plus = addends.contains(&f64::INFINITY);
    let minus = addends.contains(&f64::NEG_INFINITY);
    if addends.iter().any(|x| x.is_nan()) || (plus && minus) {
        return f64::from_bits(0x7ff8_0000_0000_0000);
    }
    if plus || minus {
        return if plus {
            f64::INFINITY
        } else {
            f64::NEG_INFINITY
        };
    }
    let exact: BigInt = addends.iter().copied().map(integer).sum();
    if exact == BigInt::ZERO {
        let negative = addends.iter().all(|&x| x == 0.0 && x.is_sign_negative());
        return if negative { -0.0 } else { 0.0 };
    }
    nearest(&exact)
}

#[track_caller]
fn check(addends: &[f64]) {
    let forward: Sum = addends.iter().copied().collect();
    let backward: Sum = addends.iter().rev().copied().collect();
    assert_eq!(forward, backward, "{addends:?}");
    let expected = reference(addends);
    assert_eq!(
        forward.value().to_bits(),
        expected.to_bits(),
        "{addends:?}: {} instead of {expected}",
        forward.value()
    );
}

#[test]
fn the_reference_rounds_as_the_processor_does() {
    for x in [
        0.0,
        1.0,
        0.1,
        f64::MAX,
        f64::MIN_POSITIVE,
        5e-324,
        -3.5,
        1e300,
        -2.2e-310,
    ] {
        for y in [
            0.0,
            1.0,
            0.1,
            f64::MAX,
            f64::MIN_POSITIVE,
            5e-324,
            -3.5,
            1e284,
            1e-308,
            -1e300,
        ] {
            assert_eq!(reference(&[x, y]).to_bits(), (x + y).to_bits(), "{x} + {y}");
        }
    }
}

#[test]
fn single_doubles_come_back() {
    let tiny = 5e-324;
    for x in [
        0.0,
        -0.0,
        tiny,
        -tiny,
        1.0,
        -1.0,
        0.1,
        1e308,
        f64::MAX,
        f64::MIN,
        f64::MIN_POSITIVE,
        f64::MIN_POSITIVE - tiny,
        2.0 * f64::MIN_POSITIVE,
        f64::INFINITY,
        f64::NEG_INFINITY,
    ] {
        assert_eq!(Sum::from(x).value().to_bits(), x.to_bits());
        check(&[x]);
    }
}

#[test]
fn known_hard_cases() {
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    check(&[1e308, 1e308, -1e308]);
    check(&[1e308, 1e308]);
    check(&[-1e308, -1e308, 1e308, -1e308]);
    check(&[f64::MAX, f64::MAX, f64::MIN, f64::MIN, 5e-324]);
    check(&[1e16, 1.0, -1e16]);
    check(&[1.0, 1e100, 1.0, -1e100]);
    check(&[0.1; 10]);
    // Just below, at and above the threshold of overflow.
    let half_ulp = 2f64.powi(970);
    check(&[f64::MAX, half_ulp]);
    check(&[f64::MAX, half_ulp, -5e-324]);
    check(&[f64::MAX, half_ulp, 5e-324]);
    check(&[-f64::MAX, -half_ulp]);
    // Ties, broken by something far below.
    check(&[1.0, 2f64.powi(-53)]);
    check(&[1.0, 2f64.powi(-53), 5e-324]);
    check(&[1.0, 2f64.powi(-53), -5e-324]);
    check(&[1.0 + f64::EPSILON, 2f64.powi(-53)]);
    check(&[-1.0, -2f64.powi(-53), -5e-324]);
    // Across the border of the subnormal numbers, and words of all ones.
    check(&[f64::MIN_POSITIVE, -5e-324]);
    check(&[2.2e-308, 2.2e-308, -4.4e-308]);
    check(&[-5e-324, 2f64.powi(-1074 + 64)]);
    check(&[-5e-324, -5e-324, -5e-324]);
    check(&[1e300, -5e-324]);
    check(&[5e-324, -1e308, 1e308]);
    check(&[0.0, -0.0]);
    check(&[-0.0, -0.0]);
    check(&[1.0, -1.0, -0.0]);
    check(&[1.0, -1.0]);
    check(&[]);
    check(&[inf, 1.0]);
    check(&[-inf, 1e308, 1e308]);
    check(&[inf, -inf]);
    check(&[nan, 1.0]);
    check(&[-nan, inf]);
    check(&[inf, inf]);
}

#[test]
fn very_many_of_the_greatest_do_not_wrap() {
    let mut sum = Sum::from(f64::MAX);
    // The sum is doubled seventy times: more terms than any job has.
    for _ in 0..70 {
        let same = sum.clone();
        sum.add(&same);
    }
    assert_eq!(sum.value(), f64::INFINITY);
    let mut negative = Sum::from(f64::MIN);
    for _ in 0..70 {
        let same = negative.clone();
        negative.add(&same);
    }
    assert_eq!(negative.value(), f64::NEG_INFINITY);
    sum.add(&negative);
    sum.add(&1.5.into());
    assert_eq!(sum.value(), 1.5);
}

/// Any bit pattern, and patterns from small ranges, so that cancellation, ties and carries are frequent.
fn double() -> impl Strategy<Value = f64> {
    let near = |exponent: std::ops::Range<i32>| {
        (any::<i16>(), exponent).prop_map(|(n, e)| f64::from(n) * 2f64.powi(e))
    };
    prop_oneof![
        8 => any::<u64>().prop_map(f64::from_bits).prop_filter("finite", |x| x.is_finite()),
        8 => near(-60..60),
        4 => near(-1074..-1000),
        4 => near(950..1008),
        2 => (0u64..1 << 53).prop_map(f64::from_bits),
        1 => prop::sample::select(vec![0.0, -0.0, f64::MAX, f64::MIN, 5e-324, -5e-324]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 20 } else { 4000 }))]

    #[test]
    fn sums_are_correctly_rounded(addends in prop::collection::vec(double(), 0..24)) {
        check(&addends);
    }

    #[test]
    fn cancellation_leaves_what_is_left(
        addends in prop::collection::vec(double(), 0..12), rest in prop::collection::vec(double(), 0..3),
    ) {
        let mut all = addends.clone();
        all.extend(&rest);
        all.extend(addends.iter().map(|x| -x));
        check(&all);
    }

    #[test]
    fn the_grouping_does_not_matter(
        addends in prop::collection::vec(any::<u64>().prop_map(f64::from_bits), 1..16), cuts in any::<u64>(),
    ) {
        let straight: Sum = addends.iter().copied().collect();
        // A random tree: neighbours are merged as the bits say until one is left.
        let mut parts: Vec<Sum> = addends.iter().map(|&x| x.into()).collect();
        let mut bits = cuts;
        while parts.len() > 1 {
            let at = bits as usize % (parts.len() - 1);
            bits = bits.rotate_left(7).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let right = parts.remove(at + 1);
            parts[at].add(&right);
        }
        prop_assert_eq!(&parts[0], &straight);
        prop_assert_eq!(straight.value().to_bits(), reference(&addends).to_bits());
    }
}

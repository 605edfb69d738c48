//! Atomic operations under locks give the same results as the CPU's atomics.

use unipgas_base::atomic::{
    AtomicForm, AtomicOp, AtomicType, ElementLocks, Exclusion, apply_in, apply_locked, supported,
};

const LEN: usize = if cfg!(miri) { 2048 } else { 8192 };
/// Elements of an array.
const MANY: usize = if cfg!(miri) { 5 } else { 150 };

#[repr(C, align(4096))]
#[derive(Clone, PartialEq)]
struct Pages([u8; LEN]);

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Small numbers of either sign in every type, so that comparisons go both ways and no NaN comes about.
    fn fill(&mut self, ty: AtomicType, bytes: &mut [u8]) {
        use AtomicType::*;
        let number = match ty {
            ComplexF32 | ComplexF64 | ComplexLongDouble => ty.size() / 2,
            _ => ty.size(),
        };
        for place in bytes.chunks_exact_mut(number) {
            let value = self.next() as i8 % 4;
            match ty {
                F32 | ComplexF32 => place.copy_from_slice(&f32::from(value).to_le_bytes()),
                F64 | ComplexF64 => place.copy_from_slice(&f64::from(value).to_le_bytes()),
                LongDouble | ComplexLongDouble => {
                    // 1 or -1.
                    let (exponent, integer) = match cfg!(target_arch = "x86_64") {
                        true => (64, 1 << 63),
                        false => (112, 0),
                    };
                    let sign = u128::from(value < 0) << (exponent + 15);
                    let one = (0x3fffu128 << exponent) | integer | sign;
                    place.copy_from_slice(&one.to_le_bytes());
                }
                _ => {
                    let wide = i128::from(value).to_le_bytes();
                    place.copy_from_slice(&wide[..place.len()]);
                }
            }
        }
    }
}

#[test]
fn vectors_are_the_same_by_either_exclusion() {
    let (locks, others) = (ElementLocks::new(), ElementLocks::new());
    let mut random = Random(7);
    for &op in AtomicOp::ALL {
        for &ty in AtomicType::ALL.iter().filter(|ty| supported(op, **ty)) {
            for (count, fetches) in [
                (1, true),
                (1, false),
                (2, true),
                (MANY, true),
                (MANY, false),
            ] {
                if op.form() == AtomicForm::FetchOnly && !fetches {
                    continue;
                }
                let size = ty.size();
                let room = (LEN - count * size) / ty.alignment();
                let at = random.next() as usize % room * ty.alignment();
                let mut pages = Pages([0; LEN]);
                random.fill(ty, &mut pages.0[at..at + count * size]);
                let mut mirror = pages.clone();
                let (mut b, mut c) = (vec![0; count * size], vec![0; count * size]);
                random.fill(ty, &mut b);
                random.fill(ty, &mut c);
                let mut results = [vec![0xaa; count * size], vec![0xaa; count * size]];
                let [one, two] = &mut results;
                let place = |bytes: &mut Vec<u8>| match fetches {
                    true => bytes.as_mut_ptr(),
                    false => std::ptr::null_mut(),
                };
                let (b, c) = (b.as_ptr(), c.as_ptr());
                // SAFETY:
                // - `count` elements in all arrays, aligned in the pages, which no other code uses.
                unsafe {
                    let target = pages.0.as_mut_ptr().add(at);
                    if count == 1 {
                        apply_locked(&locks, op, ty, target, b, c, place(one)).unwrap();
                    } else {
                        let by = Exclusion::Locks(&locks);
                        apply_in(by, op, ty, target, count, b, c, place(one)).unwrap();
                    }
                    let (by, target) = (Exclusion::Words(&others), mirror.0.as_mut_ptr().add(at));
                    apply_in(by, op, ty, target, count, b, c, place(two)).unwrap();
                }
                let what = format!("{op:?} on {count} {ty:?} at {at}, fetching: {fetches}");
                assert!(pages == mirror, "{what}");
                assert_eq!(results[0], results[1], "{what}");
            }
        }
    }
}

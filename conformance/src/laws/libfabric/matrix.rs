//! Each datatype with each operation, in each family of calls.

use super::kit::*;
use super::value::*;

laws! {
    whole given(Family::Base): "atomic.matrix.base", "fi_atomic(3) §4.2, §4.3", 2, [atomic],
        "each of the 11 operations of fi_atomic leaves at the target what its formula says, for every datatype";
    whole given(Family::Fetch): "atomic.matrix.fetch", "fi_atomic(3) §4.2, §4.4", 2, [fetch_atomic],
        "each of the 12 operations of fi_fetch_atomic leaves what its formula says and gives the initial value";
    whole given(Family::Compare): "atomic.matrix.compare", "fi_atomic(3) §4.2, §4.5", 2, [compare_atomic],
        "each of the 7 operations of fi_compare_atomic leaves what its formula says and gives the initial value";
    neighbours in_modes(1024): "atomic.neighbours", "fi_atomic(3) §4", 2, [atomic, fetch_atomic],
        "bytes beside the elements stay as they are, at the target and in the buffers";
    not_a_number in_modes(256): "atomic.nan", "fi_atomic(3) §4.2", 2, [atomic, compare_atomic],
        "comparisons follow C: no value compares with NaN, and -0 equals 0";
    padding in_modes(256): "atomic.padding", "fi_atomic(3) §4.1", 2, [compare_atomic],
        "the padding of a long double, where it has any, takes no part in comparisons";
}

/// Offset of the elements in the peer's memory, with unrelated bytes on both sides.
const AT: usize = 256;
const COUNT: usize = 5;

/// One call of a family on consecutive elements.
pub(super) struct Call<'a> {
    pub(super) family: Family,
    pub(super) what: (c_int, c_int),
    pub(super) to: (u64, u64, u64),
    pub(super) operand: &'a [u8],
    pub(super) compare: &'a [u8],
    pub(super) result: &'a mut [u8],
    pub(super) count: usize,
}

impl<'a> Call<'a> {
    /// A base operation on one element.
    pub(super) fn base(what: (c_int, c_int), to: (u64, u64, u64), operand: &'a [u8]) -> Call<'a> {
        Call {
            family: Family::Base,
            what,
            to,
            operand,
            compare: &[],
            result: &mut [],
            count: 1,
        }
    }

    /// A fetching operation on one element.
    pub(super) fn fetch(
        what: (c_int, c_int),
        to: (u64, u64, u64),
        operand: &'a [u8],
        result: &'a mut [u8],
    ) -> Call<'a> {
        Call {
            family: Family::Fetch,
            result,
            ..Call::base(what, to, operand)
        }
    }

    /// A comparing operation on one element.
    pub(super) fn compare(
        what: (c_int, c_int),
        to: (u64, u64, u64),
        [operand, compare]: [&'a [u8]; 2],
        result: &'a mut [u8],
    ) -> Call<'a> {
        Call {
            family: Family::Compare,
            compare,
            ..Call::fetch(what, to, operand, result)
        }
    }

    pub(super) fn post(&mut self, ep: *mut fid_ep) -> isize {
        let (address, at, key) = self.to;
        let (ty, op) = self.what;
        let (operand, compare) = (self.operand.as_ptr().cast(), self.compare.as_ptr().cast());
        let result = self.result.as_mut_ptr().cast();
        let none = null_mut();
        match self.family {
            Family::Base => {
                call!(atomic ep, write(operand, self.count, none, address, at, key, ty, op, none))
            }
            Family::Fetch => {
                call!(atomic ep, readwrite(operand, self.count, none, result, none, address, at, key, ty, op, none))
            }
            Family::Compare => {
                call!(atomic ep, compwrite(operand, self.count, none, compare, none, result, none, address, at, key, ty, op, none))
            }
        }
    }
}

fn whole(ctx: &Ctx, family: Family) -> Verdict {
    in_modes(ctx, 1024, |job| {
        let to = job.right();
        let mut random = ctx.random(u64::from(job.rank));
        for (datatype, ty) in (0..).zip(TYPES) {
            for op in (0..19).filter(|op| takes(family, *op) && ty.has(*op)) {
                for _ in 0..4 {
                    let mut values =
                        || -> Vec<Value> { (0..COUNT).map(|_| ty.random(&mut random)).collect() };
                    let (start, operand) = (values(), values());
                    let compare: Vec<Value> = values()
                        .into_iter()
                        .zip(&start)
                        .enumerate()
                        .map(|(i, (other, same))| if i % 2 == 0 { *same } else { other })
                        .collect();
                    job.write(to, AT, &encoded(ty, &start))?;
                    let (operands, compares) = (encoded(ty, &operand), encoded(ty, &compare));
                    let mut result = vec![0x5a; COUNT * ty.size()];
                    let (what, place) = ((datatype, op), job.place(to, AT));
                    let call = Call::compare(what, place, [&operands, &compares], &mut result);
                    let mut call = Call {
                        family,
                        count: COUNT,
                        ..call
                    };
                    job.done(|| call.post(job.ep))?;
                    let after = job.read(to, AT, COUNT * ty.size())?;
                    for i in 0..COUNT {
                        let element = |bytes: &[u8]| bytes[i * ty.size()..][..ty.size()].to_vec();
                        let name = OPS[op as usize];
                        let expected = ty.apply(op, start[i], operand[i], compare[i]);
                        ensure!(
                            ty.same(&element(&after), &ty.encode(expected)),
                            "{name} on datatype {datatype}: {:?} with {:?} and {:?} gives the bytes {:x?} instead of {expected:?}",
                            start[i],
                            operand[i],
                            compare[i],
                            element(&after)
                        );
                        if family != Family::Base {
                            ensure!(
                                ty.same(&element(&result), &ty.encode(start[i])),
                                "{name} on datatype {datatype} fetches {:x?} where there was {:?}",
                                element(&result),
                                start[i]
                            );
                        } else {
                            ensure_eq!(element(&result), vec![0x5a; ty.size()], "an unused buffer");
                        }
                    }
                }
            }
        }
        job.tx.is_empty()
    })
}

fn neighbours(job: &Job<'_>) -> Verdict {
    let to = job.right();
    let (peer, mut random) = (job.peer(to), job.ctx.random(u64::from(job.rank)));
    job.memory.fill(0x77);
    job.meet();
    for (datatype, ty) in (0..).zip(TYPES) {
        for count in [1, 2, 3] {
            let len = count * ty.size();
            let at = AT + ty.size() * (random.below(3) as usize);
            let operand = vec![0u8; len];
            let mut result = vec![0x11u8; len + 64];
            let mut call = Call {
                count,
                ..Call::fetch(
                    (datatype, WRITE),
                    (peer.address, peer.base + at as u64, peer.key),
                    &operand,
                    &mut result[32..],
                )
            };
            job.done(|| call.post(job.ep))?;
            let mut expected = vec![0x77; 512];
            expected[at - 128..][..len].fill(0);
            same(&job.read(to, 128, 512)?, &expected, "around the target")?;
            same(&result[..32], &[0x11; 32], "before the result")?;
            same(&result[32..32 + len], &vec![0x77; len], "the result")?;
            same(&result[32 + len..], &[0x11; 32], "behind the result")?;
            job.write(to, at, &vec![0x77; len])?;
        }
    }
    Ok(())
}

/// NaN and -0 with each real datatype. Rows: `(op, target, operand, comparand, after)`.
fn not_a_number(job: &Job<'_>) -> Verdict {
    let to = job.right();
    let nan = f64::NAN;
    for (op, target, operand, compare, after) in [
        ("MIN", 1.0, nan, 0.0, 1.0),
        ("MAX", 1.0, nan, 0.0, 1.0),
        ("CSWAP", 1.0, 2.0, nan, 1.0),
        ("CSWAP_NE", 1.0, 2.0, nan, 2.0),
        ("CSWAP_LE", 1.0, 2.0, nan, 1.0),
        ("CSWAP_GE", 1.0, 2.0, nan, 1.0),
        ("CSWAP", -0.0, 2.0, 0.0, 2.0),
        ("CSWAP_NE", -0.0, 2.0, 0.0, -0.0),
        ("CSWAP_LT", -0.0, 2.0, 0.0, -0.0),
        ("MIN", 0.0, -0.0, 0.0, 0.0),
    ] {
        for datatype in [8, 9, 12] {
            let ty = Type::of(datatype);
            let number = |value| ty.encode(Value::Number(value, 0.0));
            job.write(to, 64, &number(target))?;
            let index = OPS.iter().position(|name| *name == op);
            let op_number = index.expect("an operation") as c_int;
            let (what, place, mut result) = ((datatype, op_number), job.place(to, 64), vec![0; 16]);
            let operands = [&number(operand)[..], &number(compare)];
            let mut call = match op.starts_with("CSWAP") {
                true => Call::compare(what, place, operands, &mut result),
                false => Call::base(what, place, operands[0]),
            };
            job.done(|| call.post(job.ep))?;
            let seen = job.read(to, 64, ty.size())?;
            ensure!(
                ty.same(&seen, &number(after)),
                "{op} of {operand} on {target} (compare {compare}), datatype {datatype}: {seen:x?} instead of {after}"
            );
        }
    }
    Ok(())
}

fn padding(job: &Job<'_>) -> Verdict {
    let to = job.right();
    let ty = Type::of(12);
    for (op, swaps) in [(CSWAP, true), (CSWAP + 1, false)] {
        let number = |value, padding| {
            let mut bytes = ty.encode(Value::Number(value, 0.0));
            bytes[LONG_DOUBLE..].fill(padding);
            bytes
        };
        job.write(to, 64, &number(3.0, 0xaa))?;
        let mut result = vec![0; 16];
        let (operand, compare) = (number(5.0, 0x11), number(3.0, 0x55));
        let operands = [&operand[..], &compare];
        let mut call = Call::compare((12, op), job.place(to, 64), operands, &mut result);
        job.done(|| call.post(job.ep))?;
        let expected = number(if swaps { 5.0 } else { 3.0 }, 0);
        let seen = job.read(to, 64, 16)?;
        ensure!(ty.same(&seen, &expected), "operation {op} gives {seen:x?}");
    }
    Ok(())
}

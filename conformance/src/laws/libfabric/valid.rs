//! Supported datatypes and operations, and the maximum counts.

use super::kit::*;
use super::matrix::Call;
use super::value::*;
use crate::law::not_offered;

laws! {
    undefined with(&Plan::DEFAULT, 1024): "atomic.undefined", "fi_atomic(3) §7", 1,
        [atomic, atomicv, atomicmsg, inject_atomic, fetch_atomic, fetch_atomicv, fetch_atomicmsg, compare_atomic, compare_atomicv,
         compare_atomicmsg],
        "operations undefined for a datatype or a family, and invalid datatypes or operations, give -FI_EOPNOTSUPP in every call";
    validity with(&Plan::DEFAULT, 256): "atomic.valid", "fi_atomic(3) §4.6", 1, [atomicvalid, fetch_atomicvalid, compare_atomicvalid],
        "the valid calls give 0 and a count for what is defined, -FI_EOPNOTSUPP for all else";
    query with(&Plan::DEFAULT, 256): "atomic.query", "fi_atomic(3) §4.7", 1, [query_atomic],
        "fi_query_atomic agrees with the valid calls by its flags, and tells the size; both flags, or unknown ones, are refused";
    counts with(&Plan::DEFAULT, 8 << 20): "atomic.count", "fi_atomic(3) §8", 2, [atomic, fetch_atomic, compare_atomic, atomicvalid],
        "a call operates on 1 to the maximum of elements; one more is -FI_EMSGSIZE, none is refused, and nothing is changed";
    every_element with(&Plan::DEFAULT, 8 << 20):
        "atomic.count.maximum", "fi_atomic(3) §4.6, §8", 2, [fetch_atomic, compare_atomic, fetch_atomicvalid],
        "at the maximum count every element is operated on, the first and the last included";
}

/// All pairs of existing datatypes and operations, and some with numbers that do not exist. The flag: both numbers exist.
fn pairs() -> impl Iterator<Item = (c_int, c_int, bool)> {
    let all = (0..16).flat_map(|ty| (0..19).map(move |op| (ty, op, true)));
    let none = [
        (-1, SUM),
        (16, SUM),
        (256, SUM),
        (UINT64, -1),
        (UINT64, 19),
        (c_int::MAX, c_int::MIN),
    ];
    all.chain(none.map(|(ty, op)| (ty, op, false)))
}

fn is_valid(family: Family, (ty, op, exists): (c_int, c_int, bool)) -> bool {
    exists && takes(family, op) && Type::of(ty).has(op)
}

fn undefined(job: &Job<'_>) -> Verdict {
    let (to, at, key) = job.place(0, 0);
    job.memory.fill(0x3c);
    let mut room = [[0u8; 64]; 3];
    let [a, b, c] = &mut room;
    let (a, b, c) = (a.as_mut_ptr(), b.as_mut_ptr(), c.as_mut_ptr());
    let ioc = |addr: *mut u8| ioc(addr, 1);
    let (av, bv, mut cv) = (ioc(a), ioc(b), ioc(c));
    let remote = rma_ioc(at, 1, key);
    let none = null_mut();
    let nones = null_mut();
    for (ty, op, exists) in pairs() {
        let msg = fi_msg_atomic {
            desc: nones,
            datatype: ty,
            ..atomic_msg(&av, to, &remote, op, none)
        };
        if !is_valid(Family::Base, (ty, op, exists)) {
            gives!(FI_EOPNOTSUPP, atomic job.ep, write(a.cast(), 1, none, to, at, key, ty, op, none));
            gives!(FI_EOPNOTSUPP, atomic job.ep, writev(&av, nones, 1, to, at, key, ty, op, none));
            gives!(FI_EOPNOTSUPP, atomic job.ep, writemsg(&msg, 0));
            gives!(FI_EOPNOTSUPP, atomic job.ep, inject(a.cast(), 1, to, at, key, ty, op));
        }
        if !is_valid(Family::Fetch, (ty, op, exists)) {
            gives!(FI_EOPNOTSUPP, atomic job.ep, readwrite(a.cast(), 1, none, c.cast(), none, to, at, key, ty, op, none));
            gives!(FI_EOPNOTSUPP, atomic job.ep, readwritev(&av, nones, 1, &mut cv, nones, 1, to, at, key, ty, op, none));
            gives!(FI_EOPNOTSUPP, atomic job.ep, readwritemsg(&msg, &mut cv, nones, 1, 0));
        }
        if !is_valid(Family::Compare, (ty, op, exists)) {
            gives!(FI_EOPNOTSUPP, atomic job.ep, compwrite(a.cast(), 1, none, b.cast(), none, c.cast(), none, to, at, key, ty, op, none));
            gives!(FI_EOPNOTSUPP, atomic job.ep, compwritev(&av, nones, 1, &bv, nones, 1, &mut cv, nones, 1, to, at, key, ty, op, none));
            gives!(FI_EOPNOTSUPP, atomic job.ep, compwritemsg(&msg, &bv, nones, 1, &mut cv, nones, 1, 0));
        }
    }
    job.tx.is_empty()?;
    job.memory.holds(0, &[0x3c; 1024], "the memory")
}

fn ask(ep: *mut fid_ep, family: Family, ty: c_int, op: c_int, count: &mut usize) -> c_int {
    match family {
        Family::Base => call!(atomic ep, writevalid(ty, op, count)),
        Family::Fetch => call!(atomic ep, readwritevalid(ty, op, count)),
        Family::Compare => call!(atomic ep, compwritevalid(ty, op, count)),
    }
}

fn validity(job: &Job<'_>) -> Verdict {
    for (ty, op, exists) in pairs() {
        for family in FAMILIES {
            let mut count = 12345;
            let code = ask(job.ep, family, ty, op, &mut count);
            let valid = is_valid(family, (ty, op, exists));
            let expected = -FI_EOPNOTSUPP * i32::from(!valid);
            ensure_eq!(code, expected, "datatype {ty}, operation {op}, {family:?}");
            ensure!(code != 0 || count > 0 && count != 12345, "no count");
            ensure!(code == 0 || count == 12345, "a count with an error");
        }
    }
    gives!(FI_EINVAL, atomic job.ep, writevalid(UINT64, SUM, null_mut()));
    Ok(())
}

fn query(job: &Job<'_>) -> Verdict {
    let domain = job.station.domain;
    for (ty, op, _) in pairs() {
        let flags = [0, FI_FETCH_ATOMIC, FI_COMPARE_ATOMIC];
        for (family, flags) in FAMILIES.into_iter().zip(flags) {
            let (mut count, mut attr) = (0, fi_atomic_attr { count: 0, size: 0 });
            let code = ask(job.ep, family, ty, op, &mut count);
            let seen = call!(obj domain, query_atomic(ty, op, &mut attr, flags));
            ensure_eq!(seen, code, "datatype {ty}, operation {op}, {family:?}");
            if code == 0 {
                let expected = (count, Type::of(ty).size());
                ensure_eq!((attr.count, attr.size), expected, "count and size of {ty}");
            }
            // Tagged buffers support the same pairs, with a smaller maximum count.
            let tagged = flags | FI_TAGGED;
            let seen = call!(obj domain, query_atomic(ty, op, &mut attr, tagged));
            ensure_eq!(seen, code, "tagged {ty}, operation {op}, {family:?}");
            if code == 0 {
                ensure_eq!(attr.size, Type::of(ty).size(), "size of {ty}, tagged");
                let fits = (1..=count).contains(&attr.count);
                ensure!(fits, "{} of {ty}, tagged", attr.count);
            }
        }
    }
    let mut attr = fi_atomic_attr { count: 0, size: 0 };
    gives!(FI_EBADFLAGS, obj domain, query_atomic(UINT64, SUM, &mut attr, FI_FETCH_ATOMIC | FI_COMPARE_ATOMIC));
    gives!(FI_EBADFLAGS, obj domain, query_atomic(UINT64, SUM, &mut attr, FI_MORE));
    gives!(FI_EINVAL, obj domain, query_atomic(UINT64, SUM, null_mut(), 0));
    Ok(())
}

/// The maximum count of a family for u32, and the operation for it.
fn at_most(job: &Job<'_>, family: Family) -> Result<(usize, c_int), String> {
    let op = super::vector::op(family);
    let mut count = 0;
    let code = ask(job.ep, family, UINT32, op, &mut count);
    ensure_eq!(code, 0, "the valid call");
    Ok((count, op))
}

fn counts(job: &Job<'_>) -> Verdict {
    for family in FAMILIES {
        let (most, op) = at_most(job, family)?;
        if (most + 1) * 4 > job.memory.len {
            return not_offered("the maximum count is larger than the law's memory");
        }
        let operand = vec![1u8; (most + 1) * 4];
        let mut result = vec![0u8; (most + 1) * 4];
        for (count, expected) in [
            (most + 1, FI_EMSGSIZE),
            (usize::MAX / 2, FI_EMSGSIZE),
            (0, FI_EINVAL),
        ] {
            let what = (UINT32, op);
            let to = job.place(job.right(), 0);
            let call = Call::compare(what, to, [&operand, &operand], &mut result);
            let mut call = Call {
                family,
                count,
                ..call
            };
            let what = format!("{family:?}: {count} elements");
            denied(expected, call.post(job.ep), &what)?;
        }
        job.tx.is_empty()?;
    }
    job.meet();
    job.memory.all(0, job.memory.len, 0, "the memory")
}

fn every_element(job: &Job<'_>) -> Verdict {
    for family in [Family::Fetch, Family::Compare] {
        let (most, op) = at_most(job, family)?;
        job.meet();
        job.memory.fill(0);
        let numbers: Vec<u8> = (0..most as u32).flat_map(u32::to_le_bytes).collect();
        job.memory.store(0, &numbers);
        job.meet();
        let doubles = (0..most as u32).flat_map(|i| (2 * i).to_le_bytes());
        let doubles: Vec<u8> = doubles.collect();
        let mut result = vec![0xffu8; 4 * most];
        let operand = [&doubles, &numbers][usize::from(family == Family::Fetch)];
        let to = job.place(job.right(), 0);
        let call = Call::compare((UINT32, op), to, [operand, &numbers], &mut result);
        let mut call = Call {
            family,
            count: most,
            ..call
        };
        job.done(|| call.post(job.ep))?;
        same(&result, &numbers, "what was fetched")?;
        job.meet();
        job.memory.holds(0, &doubles, "the target")?;
        job.memory.holds(4 * most, &[0; 64], "what is behind it")?;
    }
    Ok(())
}

//! Vectors that are too long, unequal or partly refused, and reads without an operand.

use super::kit::*;

laws! {
    most with(&Plan::DEFAULT, 1024): "atomic.vector.limit", "fi_atomic(3) §3", 2, [atomicv, atomicmsg, fetch_atomicmsg],
        "vectors may have as many entries as iov_limit and rma_iov_limit say; more are refused";
    unequal with(&Plan::DEFAULT, 256): "atomic.vector.unequal", "fi_atomic(3) §3", 2, [atomicv, fetch_atomicv, compare_atomicv, fetch_atomicmsg],
        "vectors of different numbers of elements are refused, and change nothing";
    reads with(&Plan::DEFAULT, 256): "atomic.read", "fi_atomic(3) §4.4", 2, [fetch_atomic, fetch_atomicv, fetch_atomicmsg],
        "FI_ATOMIC_READ ignores the operand, which may be NULL";
    all_or_nothing with(&Plan::DEFAULT, 256): "atomic.msg.partial", "fi_atomic(3) §7", 2, [atomicmsg, fetch_atomicmsg],
        "an operation of which one piece of remote memory is refused changes none of the others";
}

fn most(job: &Job<'_>) -> Verdict {
    // SAFETY:
    // - fi_getinfo(3) has returned the info with its attributes.
    let (limit, remote_limit) = unsafe {
        let transmit = &*(*job.station.info.raw()).tx_attr;
        (transmit.iov_limit, transmit.rma_iov_limit)
    };
    let (to, at, key) = job.place(job.right(), 0);
    let mut one = 1u64;
    let piece = ioc(&raw mut one, 1);
    let (list, none) = (vec![piece; limit.max(remote_limit) + 1], null_mut());
    job.done(|| call!(atomic job.ep, writev(list.as_ptr(), none, limit, to, at, key, UINT64, SUM, null_mut())))?;
    gives!(FI_EINVAL, atomic job.ep, writev(list.as_ptr(), none, limit + 1, to, at, key, UINT64, SUM, null_mut()));
    let remote: Vec<fi_rma_ioc> = (0..=remote_limit as u64)
        .map(|i| rma_ioc(at + 8 * i, 1, key))
        .collect();
    let msg = |count| fi_msg_atomic {
        iov_count: count,
        rma_iov_count: count,
        ..atomic_list(&list, to, &remote, SUM, null_mut())
    };
    let fits = msg(limit.min(remote_limit));
    let over = msg(limit.max(remote_limit) + 1);
    job.done(|| call!(atomic job.ep, writemsg(&fits, 0)))?;
    gives!(FI_EINVAL, atomic job.ep, writemsg(&over, 0));
    let mut results = vec![0u64; limit + 1];
    let mut result: Vec<fi_ioc> = results.iter_mut().map(|w| ioc(&raw mut *w, 1)).collect();
    gives!(FI_EINVAL, atomic job.ep, readwritemsg(&over, result.as_mut_ptr(), none, limit + 1, 0));
    job.meet();
    ensure_eq!(job.memory.get(0), 2, "the first element");
    ensure_eq!(job.memory.get(8 * limit), 0, "the element behind the limit");
    job.tx.is_empty()
}

fn unequal(job: &Job<'_>) -> Verdict {
    let (to, at, key) = job.place(job.right(), 0);
    let mut words = [1u64; 4];
    let base = words.as_mut_ptr();
    let list = |count| ioc(base, count);
    let (one, mut two, none) = (list(1), list(2), null_mut());
    gives!(FI_EINVAL, atomic job.ep, readwritev(&one, none, 1, &mut two, none, 1, to, at, key, UINT64, SUM, null_mut()));
    gives!(FI_EINVAL, atomic job.ep, compwritev(&one, none, 1, &two, none, 1, &mut { list(1) }, none, 1, to, at, key, UINT64, CSWAP, null_mut()));
    gives!(FI_EINVAL, atomic job.ep, compwritev(&two, none, 1, &two, none, 1, &mut { list(1) }, none, 1, to, at, key, UINT64, CSWAP, null_mut()));
    gives!(FI_EINVAL, atomic job.ep, writev(&list(0), none, 1, to, at, key, UINT64, SUM, null_mut()));
    gives!(FI_EINVAL, atomic job.ep, writev(null(), none, 0, to, at, key, UINT64, SUM, null_mut()));
    let remote = rma_ioc(at, 3, key);
    let msg = fi_msg_atomic {
        desc: none,
        ..atomic_msg(&two, to, &remote, SUM, null_mut())
    };
    gives!(FI_EINVAL, atomic job.ep, writemsg(&msg, 0));
    gives!(FI_EINVAL, atomic job.ep, readwritemsg(&msg, &mut { list(3) }, none, 1, 0));
    job.meet();
    job.memory.holds(0, &[0; 64], "the memory")?;
    job.tx.is_empty()
}

fn reads(job: &Job<'_>) -> Verdict {
    job.memory.set(8, 40 + u64::from(job.rank));
    job.meet();
    let (to, at, key) = job.place(job.right(), 8);
    let expected = 40 + u64::from(job.right());
    let none = null_mut();
    let nones = null_mut();
    let mut seen = [0u64; 3];
    let place = |nth: usize, seen: &mut [u64; 3]| ioc(&raw mut seen[nth], 1);
    let first = (&raw mut seen[0]).cast();
    let [mut second, mut third] = [1, 2].map(|nth| place(nth, &mut seen));
    job.done(|| call!(atomic job.ep, readwrite(null(), 1, none, first, none, to, at, key, UINT64, READ, none)))?;
    job.done(|| call!(atomic job.ep, readwritev(null(), nones, 0, &mut second, nones, 1, to, at, key, UINT64, READ, none)))?;
    let remote = rma_ioc(at, 1, key);
    let msg = fi_msg_atomic {
        msg_iov: null(),
        desc: nones,
        iov_count: 0,
        ..atomic_msg(&third, to, &remote, READ, none)
    };
    job.done(|| call!(atomic job.ep, readwritemsg(&msg, &mut third, nones, 1, 0)))?;
    ensure_eq!(seen, [expected; 3], "what was read");
    job.meet();
    equal!(job.memory.get(8), 40 + u64::from(job.rank), "the target")
}

fn all_or_nothing(job: &Job<'_>) -> Verdict {
    let (to, at, key) = job.place(job.right(), 0);
    let mut words = [5u64; 3];
    let operand = ioc(words.as_mut_ptr(), 3);
    for (bad_at, bad_key) in [(at, key + 999), (at + 256, key), (at + 4, key)] {
        let places = [(at, key), (at + 8, key), (bad_at, bad_key)];
        let remote = places.map(|(at, key)| rma_ioc(at, 1, key));
        let msg = atomic_list(&[operand], to, &remote, SUM, cx(3));
        let mut results = [0u64; 3];
        let mut result = ioc(results.as_mut_ptr(), 3);
        job.post(|| call!(atomic job.ep, writemsg(&msg, 0)))?;
        ensure_eq!(job.tx.error()?.context(), 3, "the context");
        job.post(|| call!(atomic job.ep, readwritemsg(&msg, &mut result, null_mut(), 1, 0)))?;
        ensure_eq!(job.tx.error()?.context(), 3, "the context");
        ensure_eq!(results, [0; 3], "the results");
    }
    job.meet();
    job.memory.holds(0, &[0; 256], "the memory")
}

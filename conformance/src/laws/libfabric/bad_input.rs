//! Wrong arguments of the atomic calls.

use super::kit::*;

laws! {
    nulls with(&Plan::DEFAULT, 256): "atomic.null", "fi_atomic(3) §3", 1,
        [atomic, atomicv, atomicmsg, inject_atomic, fetch_atomic, fetch_atomicv, fetch_atomicmsg, compare_atomic, compare_atomicv,
         compare_atomicmsg],
        "null where a buffer, a vector or a message is needed is -FI_EINVAL, and nothing is done or told";
    objects with(&Plan::DEFAULT, 256): "bad.objects", "fi_fabric(3)", 1, [atomic, cq_read, cntr_read, av_insert, mr_reg, query_atomic],
        "null for the object itself is refused where the call can say so";
    lengths with(&Plan::DEFAULT, 256): "bad.counts", "fi_atomic(3) §3", 1, [atomicv, atomicmsg, fetch_atomicv, compare_atomicv],
        "counts of vectors that no memory could hold are refused";
}

fn nulls(job: &Job<'_>) -> Verdict {
    let (to, at, key) = job.place(0, 8);
    let (mut word, none) = (1u64, null_mut());
    let nones = null_mut();
    let (o, r) = ((&raw const word).cast(), (&raw mut word).cast());
    let (sum, swap, ty) = (SUM, CSWAP, UINT64);
    let list = ioc(r, 1);
    let (hole, mut result) = (ioc(null_mut::<c_void>(), 1), list);
    let missing = null();
    gives!(FI_EINVAL, atomic job.ep, write(missing, 1, none, to, at, key, ty, sum, none));
    gives!(FI_EINVAL, atomic job.ep, inject(missing, 1, to, at, key, ty, sum));
    gives!(FI_EINVAL, atomic job.ep, writev(null(), nones, 1, to, at, key, ty, sum, none));
    gives!(FI_EINVAL, atomic job.ep, writev(&hole, nones, 1, to, at, key, ty, sum, none));
    gives!(FI_EINVAL, atomic job.ep, readwrite(missing, 1, none, r, none, to, at, key, ty, sum, none));
    gives!(FI_EINVAL, atomic job.ep, readwrite(o, 1, none, null_mut(), none, to, at, key, ty, sum, none));
    gives!(FI_EINVAL, atomic job.ep, readwrite(missing, 1, none, null_mut(), none, to, at, key, ty, READ, none));
    gives!(FI_EINVAL, atomic job.ep, readwritev(&list, nones, 1, null_mut(), nones, 1, to, at, key, ty, sum, none));
    gives!(FI_EINVAL, atomic job.ep, readwritev(&list, nones, 1, &mut { hole }, nones, 1, to, at, key, ty, sum, none));
    gives!(FI_EINVAL, atomic job.ep, compwrite(missing, 1, none, o, none, r, none, to, at, key, ty, swap, none));
    gives!(FI_EINVAL, atomic job.ep, compwrite(o, 1, none, missing, none, r, none, to, at, key, ty, swap, none));
    gives!(FI_EINVAL, atomic job.ep, compwrite(o, 1, none, o, none, null_mut(), none, to, at, key, ty, swap, none));
    gives!(FI_EINVAL, atomic job.ep, compwritev(&list, nones, 1, null(), nones, 1, &mut result, nones, 1, to, at, key, ty, swap, none));
    gives!(FI_EINVAL, atomic job.ep, compwritev(&list, nones, 1, &hole, nones, 1, &mut result, nones, 1, to, at, key, ty, swap, none));
    gives!(FI_EINVAL, atomic job.ep, writemsg(null(), 0));
    gives!(FI_EINVAL, atomic job.ep, readwritemsg(null(), &mut result, nones, 1, 0));
    gives!(FI_EINVAL, atomic job.ep, compwritemsg(null(), &list, nones, 1, &mut result, nones, 1, 0));
    let remote = rma_ioc(at, 1, key);
    let msg = fi_msg_atomic {
        desc: nones,
        datatype: ty,
        ..atomic_msg(&list, to, &remote, sum, none)
    };
    gives!(FI_EINVAL, atomic job.ep, writemsg(&fi_msg_atomic { msg_iov: null(), ..msg }, 0));
    gives!(FI_EINVAL, atomic job.ep, writemsg(&fi_msg_atomic { rma_iov: null(), ..msg }, 0));
    gives!(FI_EINVAL, atomic job.ep, writemsg(&fi_msg_atomic { rma_iov_count: 0, ..msg }, 0));
    gives!(FI_EINVAL, atomic job.ep, readwritemsg(&msg, null_mut(), nones, 1, 0));
    job.tx.is_empty()?;
    let seen = (job.memory.get(8), word);
    equal!(seen, (0, 1), "the memory and the buffer")
}

fn objects(job: &Job<'_>) -> Verdict {
    let (to, at, key) = job.place(0, 8);
    let invalid = -(libc::EINVAL as isize);
    let (none, one) = (null_mut(), 1u64);
    let o = (&raw const one).cast();
    let mut entry = blank();
    let (mut address, mut mr, name) = (0, null_mut(), job.station.name()?);
    // SAFETY:
    // - the calls must refuse null; all other arguments are valid.
    let codes = unsafe {
        let atomics = &*(*job.ep).atomic;
        let (queue, vector) = (&*(*job.tx.0).ops, &*(*job.station.av).ops);
        let memory = &*(*job.station.domain).mr;
        [
            (atomics.write)(null_mut(), o, 1, none, to, at, key, UINT64, SUM, none),
            (atomics.inject)(null_mut(), o, 1, to, at, key, UINT64, SUM),
            (queue.read)(null_mut(), (&raw mut entry).cast(), 1),
            (vector.insert)(null_mut(), name.as_ptr().cast(), 1, &mut address, 0, none) as isize,
            (memory.reg)(null_mut(), o, 8, FI_REMOTE_READ, 0, 9, 0, &mut mr, none) as isize,
        ]
    };
    equal!(codes, [invalid; 5], "calls on no object")
}

fn lengths(job: &Job<'_>) -> Verdict {
    let (to, at, key) = job.place(0, 8);
    let (mut word, none) = (1u64, null_mut());
    let nones = null_mut();
    let list = ioc(&raw mut word, 1);
    for count in [usize::MAX, usize::MAX / 16, 1 << 40] {
        gives!(FI_EINVAL, atomic job.ep, writev(&list, nones, count, to, at, key, UINT64, SUM, none));
        gives!(FI_EINVAL, atomic job.ep, readwritev(&list, nones, 1, &mut { list }, nones, count, to, at, key, UINT64, SUM, none));
        gives!(FI_EINVAL, atomic job.ep, compwritev(&list, nones, 1, &list, nones, count, &mut { list }, nones, 1, to, at, key, UINT64, CSWAP, none));
    }
    // Sums of lengths that overflow.
    let huge = [fi_ioc {
        count: usize::MAX / 2 + 1,
        ..list
    }; 2];
    gives!(FI_EMSGSIZE, atomic job.ep, writev(huge.as_ptr(), nones, 2, to, at, key, UINT64, SUM, none));
    job.tx.is_empty()?;
    equal!(job.memory.get(8), 0, "the memory")
}

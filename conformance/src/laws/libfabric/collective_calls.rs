//! Available collective operations, and calls that are refused (fi_collective(3)).

use super::collective::{COLLECTIVE, Club, EMPTY, address_of, set_of, united};
use super::collective_data::{Deed, KINDS, NAMES, deed, one};
use super::kit::*;
use super::value::{OPS, Type};

laws! {
    queries with(&COLLECTIVE, 256): "collective.query", "fi_collective(3)", 1, [query_collective],
        "fi_query_collective tells count, size and members of what there is, and gives -FI_EOPNOTSUPP for what there is not";
    lengths united(&COLLECTIVE): "collective.count", "fi_collective(3)", 2, [allreduce, broadcast, query_collective],
        "an operation takes any count up to the maximum; above it is -FI_EMSGSIZE";
    told united(&COLLECTIVE.selective(true).counters(&[FI_WRITE, FI_SEND | FI_RECV | FI_READ])): "collective.told", "fi_collective(3); fi_cq(3); fi_cntr(3)", 2, [barrier, barrier2, allreduce, cntr_read],
        "completions come to the transmit queue with FI_COLLECTIVE, where the binding is selective with FI_COMPLETION alone, and count as writes";
    arguments united(&COLLECTIVE): "collective.arguments", "fi_collective(3)", 2,
        [barrier, broadcast, alltoall, allreduce, allgather, reduce_scatter, reduce, scatter, gather],
        "wrong groups, roots, types, operations, flags, counts and buffers are refused, and what follows goes on";
}

const NO_ATTR: fi_atomic_attr = fi_atomic_attr {
    count: 77,
    size: 77,
};

/// The attributes from fi_query_collective(3); `None` if the operation is not offered.
fn query(
    domain: *mut fid_domain,
    kind: c_int,
    (datatype, op): (c_int, c_int),
) -> Result<Option<fi_collective_attr>, String> {
    let mut attr = fi_collective_attr {
        op,
        datatype,
        datatype_attr: NO_ATTR,
        max_members: 77,
        mode: 0,
    };
    match call!(obj domain, query_collective(kind, &mut attr, 0)) {
        0 => Ok(Some(attr)),
        code => {
            let text = format!("{kind} of {datatype}, {op}: -FI_EOPNOTSUPP");
            ensure_eq!(code, -FI_EOPNOTSUPP, "{text}");
            Ok(None)
        }
    }
}

fn is_reduction(kind: c_int) -> bool {
    matches!(kind, FI_ALLREDUCE | FI_REDUCE_SCATTER | FI_REDUCE)
}

fn queries(job: &Job<'_>) -> Verdict {
    let domain = job.station.domain;
    for kind in KINDS {
        for datatype in 0..16 {
            let ty = Type::of(datatype);
            for op in 0..19 {
                let expected =
                    kind == FI_BARRIER || !is_reduction(kind) || op <= BXOR && ty.has(op);
                let text = format!("{}, {ty:?}, {}", NAMES[kind as usize], OPS[op as usize]);
                let found = query(domain, kind, (datatype, op))?;
                ensure_eq!(found.is_some(), expected, "{text}");
                let Some(attr) = found.filter(|_| kind != FI_BARRIER) else {
                    continue;
                };
                ensure_eq!(attr.datatype_attr.size, ty.size(), "{text}: the size");
                ensure!(attr.datatype_attr.count >= 1 << 16, "{text}: the count");
                ensure!(attr.max_members >= 1024, "{text}: the members");
            }
            let moved = query(domain, kind, (datatype, FI_NOOP))?.is_some();
            let wanted = !is_reduction(kind);
            ensure_eq!(moved, wanted, "{kind} of {ty:?} without operation");
        }
        let void = query(domain, kind, (FI_VOID, FI_NOOP))?.is_some();
        ensure_eq!(void, kind == FI_BARRIER, "{kind} of nothing");
    }
    for kind in [-1, 9, c_int::MAX] {
        let found = query(domain, kind, (UINT64, SUM))?;
        ensure!(found.is_none(), "an operation {kind}");
    }
    gives!(FI_EINVAL, obj domain, query_collective(FI_BARRIER, null_mut(), 0));
    // SAFETY:
    // - plain data, of which zeros are a value.
    let mut attr: fi_collective_attr = unsafe { std::mem::zeroed() };
    gives!(FI_EBADFLAGS, obj domain, query_collective(FI_BARRIER, &mut attr, 1));
    attr.mode = 1;
    gives!(FI_EINVAL, obj domain, query_collective(FI_BARRIER, &mut attr, 0));
    Ok(())
}

fn lengths(club: &Club<'_>) -> Verdict {
    let job = club.job;
    let group = club.all()?;
    let Some(attr) = query(job.station.domain, FI_ALLREDUCE, (UINT64, SUM))? else {
        return Err("there is no sum".into());
    };
    let most = attr.datatype_attr.count;
    let members = club.ranks();
    let longest = if job.ctx.is_quick() { most } else { most / 8 };
    for count in [1, 4, 5, 255, 257, 4096, 4097, 1 << 16, longest] {
        let (operand, mut result) = (vec![u64::from(job.rank) + 1; count], vec![0u64; count]);
        let buffers = (operand.as_ptr(), result.as_mut_ptr());
        let deed = deed(FI_ALLREDUCE, group, (UINT64, SUM), count).with(0, buffers, 3);
        job.post(|| deed.post(club.ep))?;
        job.tx.of(3)?;
        let right = result.iter().all(|sum| *sum == 3);
        ensure!(right, "a sum of {count} elements");
        let broadcast = self::deed(FI_BROADCAST, group, (UINT64, FI_NOOP), count.min(1 << 16));
        one(club, broadcast, &members, 1, 5)?;
    }
    let mut word = 0u64;
    let buffers = (&raw const word, &raw mut word);
    let mut deed = deed(FI_ALLREDUCE, group, (UINT64, SUM), most + 1).with(0, buffers, 0);
    for count in [most + 1, usize::MAX / 8 + 2, usize::MAX] {
        deed.count = count;
        denied(FI_EMSGSIZE, deed.post(club.ep), "too many elements")?;
    }
    (deed.count, deed.flags) = (513, FI_INJECT);
    denied(FI_EMSGSIZE, deed.post(club.ep), "4104 bytes injected")?;
    close(group)
}

fn told(club: &Club<'_>) -> Verdict {
    let job = club.job;
    let group = club.all()?;
    let counted = |nth: usize| value_of(job.station.counters[nth]);
    let before = counted(0);
    let at = address_of(group);
    for turn in 0..6u64 {
        let flags = if turn < 3 { 0 } else { FI_COMPLETION };
        job.post(|| call!(collective club.ep, barrier2(at, flags, cx(4))))?;
        if flags != 0 {
            let entry = job.tx.of(4)?;
            ensure_eq!(entry.flags, FI_COLLECTIVE, "the flags");
        }
        until("a count", || counted(0) == before + turn + 1)?;
        job.tx.is_empty()?;
    }
    let (word, mut sum) = (3u32, 0u32);
    let buffers = (&raw const word, &raw mut sum);
    let mut deed = deed(FI_ALLREDUCE, group, (5, SUM), 1).with(0, buffers, 5);
    deed.flags = FI_COMPLETION | FI_INJECT | FI_FENCE | FI_DELIVERY_COMPLETE;
    job.post(|| deed.post(club.ep))?;
    job.tx.of(5)?;
    ensure_eq!(sum, 6, "the sum");
    ensure_eq!(counted(0), before + 7, "the counter of writes");
    ensure_eq!(counted(1), 0, "the counter of all else");
    job.rx.is_empty()?;
    close(group)
}

/// A name, whether it applies, the error, and the change to a good operation.
type Wrong<'a> = (&'a str, bool, c_int, &'a dyn Fn(&mut Deed));

fn arguments(club: &Club<'_>) -> Verdict {
    let job = club.job;
    let group = club.all()?;
    let members = [0, 1];
    let mut words = [1u64; 4];
    for kind in KINDS {
        let (root, buffers) = (
            club.addresses[job.rank as usize],
            (words.as_ptr(), words.as_mut_ptr()),
        );
        let good = deed(kind, group, (UINT64, SUM), 1).with(root, buffers, 0);
        let data = kind != FI_BARRIER;
        let rooted = matches!(kind, FI_BROADCAST | FI_REDUCE | FI_SCATTER | FI_GATHER);
        let reduction = is_reduction(kind);
        let wrong: [Wrong<'_>; 17] = rows! {
            "no group": true, FI_EINVAL, &|d| d.group = 0;
            "no group": true, FI_EINVAL, &|d| d.group = FI_ADDR_NOTAVAIL;
            "an endpoint": true, FI_EINVAL, &|d| d.group = club.addresses[0];
            "a flag": true, FI_EBADFLAGS, &|d| d.flags = FI_REMOTE_CQ_DATA;
            "a flag": true, FI_EBADFLAGS, &|d| d.flags = FI_TRIGGER;
            "no member": rooted, FI_EINVAL, &|d| d.root = job.peer(0).address;
            "no address": rooted, FI_EINVAL, &|d| d.root = FI_ADDR_NOTAVAIL;
            "no type": data, FI_EOPNOTSUPP, &|d| d.what = (FI_VOID, SUM);
            "no type": data, FI_EOPNOTSUPP, &|d| d.what = (-1, SUM);
            "no elements": data, FI_EINVAL, &|d| d.count = 0;
            "no operand": data && kind != FI_BROADCAST, FI_EINVAL, &|d| d.operand = null();
            "no result": data, FI_EINVAL, &|d| d.result = null_mut();
            "a write": reduction, FI_EOPNOTSUPP, &|d| d.what = (UINT64, WRITE);
            "a read": reduction, FI_EOPNOTSUPP, &|d| d.what = (UINT64, READ);
            "a swap": reduction, FI_EOPNOTSUPP, &|d| d.what = (UINT64, CSWAP);
            "no operation": reduction, FI_EOPNOTSUPP, &|d| d.what = (UINT64, FI_NOOP);
            "bits of numbers": reduction, FI_EOPNOTSUPP, &|d| d.what = (9, BOR);
        };
        for (what, _, errno, change) in wrong.iter().filter(|wrong| wrong.1) {
            let mut deed = good;
            change(&mut deed);
            let text = format!("{} with {what}", NAMES[kind as usize]);
            denied(*errno, deed.post(club.ep), &text)?;
        }
        if data {
            one(club, deed(kind, group, (UINT64, SUM), 2), &members, 1, 3)?;
        } else {
            club.barrier(group)?;
        }
    }
    close(group)?;
    restricted(club)
}

/// A set with flags permits only the operations of these flags.
fn restricted(club: &Club<'_>) -> Verdict {
    let attr = fi_av_set_attr {
        flags: FI_BARRIER_SET | FI_ALLREDUCE_SET,
        ..EMPTY
    };
    let set = set_of(&club.job.station, attr)?;
    club.fill(set, &club.ranks())?;
    let group = club.begin_own(set, 2)?;
    club.joined(group, 2)?;
    club.barrier(group)?;
    let mut words = [1u64; 4];
    for kind in KINDS.filter(|kind| ![FI_BARRIER, FI_ALLREDUCE].contains(kind)) {
        let buffers = (words.as_ptr(), words.as_mut_ptr());
        let deed = deed(kind, group, (UINT64, SUM), 1).with(club.addresses[0], buffers, 0);
        denied(FI_EOPNOTSUPP, deed.post(club.ep), NAMES[kind as usize])?;
    }
    let sum = deed(FI_ALLREDUCE, group, (UINT64, SUM), 1);
    one(club, sum, &[0, 1], 0, 4)?;
    close(group)?;
    close(set)
}

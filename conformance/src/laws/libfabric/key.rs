//! Wrong keys and addresses, and refused registrations.

use super::kit::*;
use super::matrix::Call;
use super::value::TYPES;
use crate::laws::no_memory;

laws! {
    misaligned with(&Plan::DEFAULT, 512): "mr.misaligned", "fi_atomic(3) §8", 2, [atomic, fetch_atomic],
        "an element that is not aligned as its type in C ends with FI_EINVAL, and is left alone";
    unknown_keys with(&Plan::DEFAULT, 256): "mr.unknown", "fi_atomic(3) §3", 2, [atomic, fetch_atomic, compare_atomic, inject_atomic],
        "a key that was never given out ends with FI_ENOKEY";
    taken with(&Plan::DEFAULT.mr_mode(0), 256): "mr.taken", "fi_mr(3)", 1, [mr_reg, close],
        "a key in use cannot be had a second time (-FI_ENOKEY), and can after it was closed";
    other_domains: "mr.domains", "fi_mr(3)", 1, [mr_reg, domain, atomic],
        "keys belong to a domain: another one of the process has its own under the same number";
    bad_registrations with(&Plan::DEFAULT, 256): "mr.bad", "fi_mr(3)", 1, [mr_reg, mr_regv, mr_regattr],
        "no memory, no length, unknown rights and flags, several pieces, an offset and no place for the region are refused";
    own_rank with(&Plan::DEFAULT, 256): "mr.self", "fi_atomic(3) §4", 1, [fetch_atomic, write, read],
        "a process reaches its own memory as peers do";
}

fn misaligned(job: &Job<'_>) -> Verdict {
    let bytes = [0u8; 64];
    for (datatype, ty) in (0..).zip(TYPES) {
        // A complex number needs the alignment of one part.
        for at in 1..ty.1 as u64 {
            let mut result = [1u8; 64];
            let place = job.place(job.right(), 64 + at as usize);
            let mut call = Call::fetch((datatype, WRITE), place, &bytes, &mut result);
            job.post(|| call.post(job.ep))?;
            let what = format!("datatype {datatype} at {at}");
            job.tx.fails(FI_EINVAL, &what)?;
            ensure_eq!(result, [1; 64], "the result");
        }
    }
    job.meet();
    job.memory.holds(0, &[0; 512], "the memory")
}

fn unknown_keys(job: &Job<'_>) -> Verdict {
    let mut result = 9u64;
    let words = job.words(job.right(), 8).into(&mut result);
    let (key, mut random) = (words.place.2, job.ctx.random(job.rank.into()));
    for wrong in [0, key + 1, key ^ 1 << 63, u64::MAX, random.next() | 1 << 40] {
        for (what, operation, context, kind) in [
            ("fi_atomic", Words::add as Operation, 3, FI_WRITE),
            ("fi_inject_atomic", Words::inject_add, 0, FI_WRITE),
            ("fi_fetch_atomic", Words::fetch_add, 4, FI_READ),
            ("fi_compare_atomic", Words::swap, 5, FI_READ),
        ] {
            let words = words.under(wrong).told(context);
            let error = job.fails(FI_ENOKEY, what, || operation(&words))?;
            let seen = (error.context(), error.flags);
            ensure_eq!(
                seen,
                (context, FI_ATOMIC | kind),
                "{what}: context and flags"
            );
        }
    }
    ensure_eq!(current(&result), 9, "the result");
    job.tx.is_empty()
}

fn taken(job: &Job<'_>) -> Verdict {
    let (domain, memory, mut mr) = (job.station.domain, Buffer::new(256), null_mut());
    let rights = FI_REMOTE_READ;
    for key in [0, 55, u64::MAX - 1] {
        let first = job.station.register(*memory, key)?;
        ensure_eq!(first.key, key, "the key");
        gives!(FI_ENOKEY, mr domain, reg(memory.base.cast(), 256, rights, 0, key, 0, &mut mr, null_mut()));
        close(first.mr)?;
        let second = job.station.register(*memory, key)?;
        close(second.mr)?;
    }
    Ok(())
}

fn other_domains(_: &Ctx) -> Verdict {
    let plan = Plan::DEFAULT.mr_mode(0);
    let (one, two) = (Station::open(&plan)?, Station::open(&plan)?);
    let memory = [Buffer::new(256), Buffer::new(256)];
    let regions = [one.register(*memory[0], 5)?, two.register(*memory[1], 5)?];
    let addresses = [one.insert(&one.name()?)?, one.insert(&two.name()?)?];
    for (nth, to) in addresses.into_iter().enumerate() {
        let word = nth as u64 + 10;
        let words = Words::new(one.ep, (to, 8, 5)).from(&word);
        ensure_eq!(words.atomic(UINT64, WRITE), 0, "fi_atomic");
        one.tx.next()?;
    }
    let seen = (memory[0].get(8), memory[1].get(8));
    ensure_eq!(seen, (10, 11), "the memories");
    for_all(regions, |region| close(region.mr))?;
    one.close()?;
    two.close()?;
    Ok(())
}

fn bad_registrations(job: &Job<'_>) -> Verdict {
    let (domain, memory) = (job.station.domain, Buffer::new(256));
    let rights = FI_REMOTE_READ | FI_REMOTE_WRITE;
    let (base, mut mr, none) = (memory.base.cast(), null_mut(), null_mut());
    let (base_of_none, place) = (null(), &raw mut mr);
    gives!(FI_EINVAL, mr domain, reg(base_of_none, 256, rights, 0, 1, 0, place, none));
    gives!(FI_EINVAL, mr domain, reg(base, 0, rights, 0, 1, 0, place, none));
    gives!(FI_EINVAL, mr domain, reg(base, 256, rights, 8, 1, 0, place, none));
    gives!(FI_EINVAL, mr domain, reg(base, 256, rights | 1 << 40, 0, 1, 0, place, none));
    gives!(FI_EBADFLAGS, mr domain, reg(base, 256, rights, 0, 1, 1 << 40, place, none));
    gives!(FI_EINVAL, mr domain, reg(base, 256, rights, 0, 1, 0, null_mut(), none));
    let part = iovec(memory.base, 128);
    let parts = [part; 2];
    gives!(FI_EINVAL, mr domain, regv(parts.as_ptr(), 2, rights, 0, 1, 0, place, none));
    gives!(FI_EINVAL, mr domain, regv(parts.as_ptr(), 0, rights, 0, 1, 0, place, none));
    gives!(FI_EINVAL, mr domain, regv(null(), 1, rights, 0, 1, 0, place, none));
    gives!(FI_EINVAL, mr domain, regattr(null(), 0, place));
    for (base, len) in no_memory() {
        for rights in [rights, FI_REMOTE_READ, FI_SEND | FI_RECV] {
            let base = base.cast_const().cast();
            gives!(FI_EINVAL, mr domain, reg(base, len, rights, 0, 1, 0, place, none));
        }
    }
    ensure_eq!(mr, null_mut(), "a region");
    let registered = job.station.register_for(*memory, rights, 1)?;
    close(registered.mr)
}

fn own_rank(job: &Job<'_>) -> Verdict {
    ensure_eq!(job.fetch(0, 8, SUM, 6)?, 0, "before");
    ensure_eq!(job.compare((0, 8), CSWAP, 9, 6)?, 6, "in between");
    job.memory.shows(8, 9, "the memory")?;
    job.write(0, 16, &[3; 8])?;
    let expected = [&9u64.to_le_bytes()[..], &[3; 8]].concat();
    equal!(job.read(0, 8, 16)?, expected, "what is read")
}

//! Permissions and lifetime of memory regions.

use super::kit::*;
use super::memory::{add, exchanged, register};
use super::station::{Plan, Registered, close};

laws! {
    rights with(&Plan::DEFAULT, 256): "mr.rights", "fi_atomic(3) §4.3, §4.4", 2, [mr_reg, atomic, fetch_atomic, compare_atomic, write, read],
        "writing needs the right of remote write, reading that of remote read, fetching operations both; without it FI_EACCES, and nothing is changed";
    nothing_allowed with(&Plan::DEFAULT, 256): "mr.rights.none", "fi_mr(3)", 2, [mr_reg, atomic, fetch_atomic],
        "memory without rights of peers can be registered, and no peer reaches it";
    closed in_modes(256): "mr.closed", "fi_mr(3)", 2, [close, atomic, fetch_atomic, write, read],
        "the key of a region that has been closed is refused (FI_ENOKEY), and its memory left alone";
    again with(&Plan::DEFAULT.mr_mode(0), 256): "mr.again", "fi_mr(3)", 2, [mr_reg, close, fetch_atomic, write],
        "under a key that is used again, peers reach the new memory, even if they knew the old";
}

fn rights(job: &Job<'_>) -> Verdict {
    let to = job.peer(job.right()).address;
    for (access, reads, writes) in [
        (FI_REMOTE_READ, true, false),
        (FI_REMOTE_WRITE, false, true),
        (FI_REMOTE_READ | FI_REMOTE_WRITE, true, true),
        (FI_READ | FI_WRITE | FI_SEND | FI_RECV, false, false),
    ] {
        let memory = Memory::new(256);
        memory.set(8, 11);
        let region = register(job, memory, access, 500 + access, 0)?;
        let (key, base) = exchanged(job, region);
        let (at, none) = (base + 8, null_mut());
        let (operand, mut result) = (5u64, 77u64);
        let (o, r) = ((&raw const operand).cast(), (&raw mut result).cast());
        for (what, allowed) in [
            ("fi_atomic", writes),
            ("reading atomically", reads),
            ("fi_fetch_atomic", reads && writes),
            ("fi_compare_atomic", reads && writes),
            ("fi_read", reads),
            ("fi_write", writes),
        ] {
            job.post(|| match what {
                "fi_atomic" => call!(atomic job.ep, write(o, 1, none, to, at, key, UINT64, SUM, none)),
                "reading atomically" => {
                    call!(atomic job.ep, readwrite(o, 1, none, r, none, to, at, key, UINT64, READ, none))
                }
                "fi_fetch_atomic" => {
                    call!(atomic job.ep, readwrite(o, 1, none, r, none, to, at, key, UINT64, SUM, none))
                }
                "fi_compare_atomic" => {
                    call!(atomic job.ep, compwrite(o, 1, none, o, none, r, none, to, at, key, UINT64, CSWAP, none))
                }
                "fi_read" => call!(rma job.ep, read(r, 8, none, to, at, key, none)),
                _ => call!(rma job.ep, write(o, 8, none, to, at + 8, key, none)),
            })?;
            match allowed {
                true => drop(job.tx.next().map_err(|text| format!("{what}: {text}"))?),
                false => drop(job.tx.fails(FI_EACCES, what)?),
            }
            let before = match (reads, writes) {
                (true, true) => 16,
                (true, false) => 11,
                _ => 77,
            };
            // SAFETY:
            // - the local word, which the provider writes through a pointer.
            let seen = unsafe { r.cast::<u64>().read_volatile() };
            let right = what != "reading atomically" || seen == before;
            ensure!(right, "rights {access:#x}: {seen} is read");
        }
        job.meet();
        let expected = match (reads, writes) {
            (true, true) => 21,
            (false, true) => 16,
            _ => 11,
        };
        ensure_eq!(memory.get(8), expected, "rights {access:#x}: the memory");
        let left = if writes { 5 } else { 0 };
        memory.shows(
            16,
            left,
            format!("rights {access:#x}: what fi_write leaves"),
        )?;
        close(region.mr)?;
        memory.free();
    }
    job.tx.is_empty()
}

fn nothing_allowed(job: &Job<'_>) -> Verdict {
    let memory = Memory::new(256);
    let region = register(job, memory, 0, 3, 0)?;
    let (key, base) = exchanged(job, region);
    let (to, one, none) = (job.peer(job.right()).address, 1u64, null_mut());
    let mut result = 0u64;
    job.fails(FI_EACCES, "fi_atomic", || call!(atomic job.ep, write((&raw const one).cast(), 1, none, to, base, key, UINT64, SUM, none)))?;
    job.fails(FI_EACCES, "fi_fetch_atomic", || call!(atomic job.ep, readwrite(null_mut(), 1, none, (&raw mut result).cast(), none, to, base, key, UINT64, READ, none)))?;
    job.meet();
    memory.holds(0, &[0; 256], "the memory")?;
    close(region.mr)?;
    memory.free();
    Ok(())
}

fn closed(job: &Job<'_>) -> Verdict {
    let memory = Memory::new(256);
    let region = register(job, memory, FI_REMOTE_READ | FI_REMOTE_WRITE, 900, 0)?;
    let (key, base) = exchanged(job, region);
    add(job, base + 8, key, 4)?;
    job.meet();
    close(region.mr)?;
    job.meet();
    let (to, one, mut result, none) = (job.peer(job.right()).address, 1u64, 5u64, null_mut());
    let (o, r) = ((&raw const one).cast(), (&raw mut result).cast());
    job.fails(
        FI_ENOKEY,
        "fi_atomic",
        || call!(atomic job.ep, write(o, 1, none, to, base + 8, key, UINT64, SUM, none)),
    )?;
    job.fails(FI_ENOKEY, "fi_fetch_atomic", || call!(atomic job.ep, readwrite(o, 1, none, r, none, to, base + 8, key, UINT64, SUM, none)))?;
    job.fails(
        FI_ENOKEY,
        "fi_write",
        || call!(rma job.ep, write(o, 8, none, to, base + 8, key, none)),
    )?;
    job.fails(
        FI_ENOKEY,
        "fi_read",
        || call!(rma job.ep, read(r, 8, none, to, base + 8, key, none)),
    )?;
    job.meet();
    ensure_eq!((memory.get(8), result), (4, 5), "the memory and the result");
    memory.free();
    // Other regions are unaffected.
    job.fetch(job.right(), 8, SUM, 1).map(drop)
}

fn again(job: &Job<'_>) -> Verdict {
    let memory = [Memory::new(256), Memory::new(512)];
    let mut last: Option<(Registered, Memory)> = None;
    for round in 0..20usize {
        let now = memory[round % 2];
        if let Some((region, _)) = last {
            close(region.mr)?;
        }
        let region = register(job, now, FI_REMOTE_READ | FI_REMOTE_WRITE, 77, round % 3)?;
        last = Some((region, now));
        job.meet();
        let before = add(job, 16, 77, 1)?;
        ensure_eq!(before, round as u64 / 2, "the memory of round {round}");
        job.meet();
    }
    if let Some((region, _)) = last {
        close(region.mr)?;
    }
    let seen = (memory[0].get(16), memory[1].get(16));
    ensure_eq!(seen, (10, 10), "both memories");
    job.meet();
    memory.into_iter().for_each(Memory::free);
    Ok(())
}

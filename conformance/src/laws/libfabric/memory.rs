//! Memory regions: addressing, permitted accesses, and lifetime.

use super::kit::*;
use super::library::getinfo;

laws! {
    modes: "mr.modes", "fi_mr(3), fi_domain(3)", 2, [mr_reg, getinfo, fetch_atomic, write, read],
        "in every mode of registration memory is reached by virtual address or offset, by the provider's key or the program's";
    offered: "mr.modes.offered", "fi_mr(3)", 1, [getinfo],
        "no mode is offered that was not asked for, and none is required";
    many_regions in_modes(256): "mr.many", "fi_mr(3)", 2, [mr_reg, mr_regv, mr_regattr, close, fetch_atomic],
        "hundreds of regions, by all three calls of registration, are each reached by their own key";
    read_only with(&Plan::DEFAULT, 256): "mr.read-only", "fi_mr(3)", 2, [mr_reg, read, write, fetch_atomic],
        "memory that its owner cannot write is registered for FI_REMOTE_READ and read; for FI_REMOTE_WRITE it is refused (FI_EINVAL)";
    ranges in_modes(256): "mr.range", "fi_atomic(3) §3", 2, [atomic, fetch_atomic, write, read],
        "an access not wholly in the region is refused (FI_EACCES), at both ends and with overflowing addresses; nothing is changed";
}

fn modes(ctx: &Ctx) -> Verdict {
    for (api, mr_mode) in [
        (version(1, 4), FI_MR_UNSPEC),
        (version(1, 4), FI_MR_SCALABLE),
        (version(1, 4), FI_MR_BASIC),
        (version(1, 17), 0),
        (version(1, 17), FI_MR_SCALABLE),
        (version(1, 17), FI_MR_BASIC),
        (version(1, 17), FI_MR_VIRT_ADDR),
        (version(1, 17), FI_MR_PROV_KEY),
        (version(1, 17), FI_MR_ALLOCATED),
        (version(1, 17), FI_MR_VIRT_ADDR | FI_MR_PROV_KEY),
        (version(1, 17), BASIC),
        (version(1, 17), BASIC | FI_MR_LOCAL),
    ] {
        let plan = Plan::DEFAULT.version(api).mr_mode(mr_mode);
        with(ctx, &plan, 256, |job| {
            // SAFETY:
            // - fi_getinfo(3) has returned the info with its attributes.
            let given = unsafe { (*(*job.station.info.raw()).domain_attr).mr_mode };
            let basic = given & FI_MR_BASIC != 0;
            if !basic && given & FI_MR_PROV_KEY == 0 {
                let asked = 7 + u64::from(job.rank);
                ensure_eq!(job.registered.key, asked, "mode {mr_mode:#x}: the key");
            }
            let rank = job.right();
            ensure_eq!(job.fetch(rank, 8, SUM, 5)?, 0, "mode {mr_mode:#x}");
            job.write(rank, 248, &9u64.to_le_bytes())?;
            let seen = job.read(rank, 8, 8)?;
            ensure_eq!(seen, 5u64.to_le_bytes(), "mode {mr_mode:#x}");
            job.meet();
            let seen = job.memory.words([8, 248]);
            equal!(seen, [5, 9], "mode {mr_mode:#x}: the memory")
        })?;
    }
    Ok(())
}

fn offered(_: &Ctx) -> Verdict {
    for mr_mode in (0..7)
        .map(|bit| 1 << bit)
        .chain([0, BASIC, FI_MR_VIRT_ADDR | FI_MR_LOCAL])
    {
        let plan = Plan::DEFAULT.mr_mode(mr_mode);
        let mut info = getinfo(plan.version, 0, Some(&plan.hints()))
            .map_err(|code| format!("mode {mr_mode:#x}: {code}"))?;
        let given = info.domain().mr_mode;
        ensure_eq!(given & !mr_mode, 0, "modes that were not requested");
    }
    Ok(())
}

/// Registers with one of the three calls.
pub(super) fn register(
    job: &Job<'_>,
    memory: Memory,
    access: u64,
    key: u64,
    how: usize,
) -> Result<Registered, String> {
    let part = iovec(memory.base, memory.len);
    let attr = fi_mr_attr {
        mr_iov: &part,
        iov_count: 1,
        access,
        offset: 0,
        requested_key: key,
        context: null_mut(),
        auth_key_size: 0,
        auth_key: null_mut(),
        iface: 0,
        device: 0,
    };
    let (domain, mut mr) = (job.station.domain, null_mut());
    match how {
        0 => {
            ok!(mr domain, reg(memory.base.cast(), memory.len, access, 0, key, 0, &mut mr, null_mut()))
        }
        1 => ok!(mr domain, regv(&part, 1, access, 0, key, 0, &mut mr, null_mut())),
        _ => ok!(mr domain, regattr(&attr, 0, &mut mr)),
    }
    Ok(job.station.registered(mr, memory))
}

/// Publishes key and base. Returns both values of the right neighbour.
pub(super) fn exchanged(job: &Job<'_>, region: Registered) -> (u64, u64) {
    let mut told = region.key.to_le_bytes().to_vec();
    told.extend(region.base.to_le_bytes());
    job.meet();
    job.ctx.tell(&told);
    job.meet();
    let heard = job.heard(job.right());
    (u64_of(&heard), u64_of(&heard[8..]))
}

pub(super) fn add(job: &Job<'_>, at: u64, key: u64, value: u64) -> Result<u64, String> {
    let (mut before, to) = (0u64, job.peer(job.right()).address);
    let words = Words::new(job.ep, (to, at, key)).from(&value);
    job.done(|| words.into(&mut before).fetch_add())?;
    Ok(current(&before))
}

fn many_regions(job: &Job<'_>) -> Verdict {
    const COUNT: usize = 300;
    let memory = Buffer::new(16 * COUNT);
    let rights = FI_REMOTE_READ | FI_REMOTE_WRITE;
    let mut regions = Vec::new();
    for nth in 0..COUNT {
        let one = Memory {
            base: memory.at(16 * nth),
            len: 16,
        };
        regions.push(register(job, one, rights, 1000 + nth as u64, nth % 3)?);
    }
    let (key, base) = exchanged(job, regions[0]);
    // Keys are consecutive, and the regions are adjacent in memory.
    for nth in 0..COUNT as u64 {
        let at = if base == 0 { 8 } else { base + 16 * nth + 8 };
        ensure_eq!(add(job, at, key + nth, nth + 1)?, 0, "region {nth}");
    }
    job.meet();
    for (nth, region) in regions.iter().enumerate() {
        ensure_eq!(memory.get(16 * nth + 8), nth as u64 + 1, "region {nth}");
        ensure_eq!(region.key, regions[0].key + nth as u64, "key {nth}");
        close(region.mr)?;
    }
    Ok(())
}

static TABLE: [u64; 512] = [0x7ab1e; 512];

fn read_only(job: &Job<'_>) -> Verdict {
    let table = Memory {
        base: (&raw const TABLE).cast_mut().cast(),
        len: 4096,
    };
    let mut refused = null_mut();
    let access = FI_REMOTE_READ | FI_REMOTE_WRITE;
    let code = call!(mr job.station.domain, reg(table.base.cast(), table.len, access, 0, 90, 0, &mut refused, null_mut()));
    ensure_eq!(code, -FI_EINVAL, "fi_mr_reg for writing");
    let registered = job.station.register_for(table, FI_REMOTE_READ, 91)?;
    let (key, base) = exchanged(job, registered);
    let (to, mut seen) = (job.peer(job.right()).address, [0u64; 64]);
    let words = Words {
        count: 64,
        ..Words::new(job.ep, (to, base + 64, key))
    };
    job.done(|| words.into(seen.as_mut_ptr()).read())?;
    ensure_eq!(current(&seen), [0x7ab1e; 64], "what was read");
    job.fails(FI_EACCES, "a write", || words.write())?;
    job.meet();
    ensure_eq!(TABLE[0], 0x7ab1e, "the table");
    close(registered.mr)
}

fn ranges(job: &Job<'_>) -> Verdict {
    job.memory.fill(0x21);
    job.meet();
    let (ones, mut results) = ([1u64; 64], [0u64; 64]);
    let words = job.words(job.right(), 0).from(ones.as_ptr());
    let words = words.into(results.as_mut_ptr());
    let (to, base, key) = words.place;
    for (at, count) in [
        (base + 256, 1),
        (base + 248, 2),
        (base, 33),
        (base.wrapping_sub(8), 1),
        (base.wrapping_sub(8), 2),
        (base + (1 << 40), 1),
        (u64::MAX - 7, 1),
        (u64::MAX - 7, 2),
    ] {
        let words = Words {
            place: (to, at, key),
            count,
            ..words
        };
        for (what, operation) in [
            ("fi_atomic", Words::add as Operation),
            ("fi_fetch_atomic", Words::fetch_add),
            ("fi_compare_atomic", |words| {
                words.compare(words.operand, CSWAP + 1)
            }),
            ("fi_write", Words::write),
            ("fi_read", Words::read),
        ] {
            job.fails(FI_EACCES, what, || operation(&words))?;
        }
    }
    ensure_eq!(current(&results), [0; 64], "what was read");
    job.meet();
    job.memory.holds(0, &[0x21; 256], "the memory")?;
    job.meet();
    // The last element is in the region.
    let whole = Words { count: 32, ..words };
    job.done(|| whole.add()).map(drop)
}

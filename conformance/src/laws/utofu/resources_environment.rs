//! §4.3.2: effects of the environment.

use std::collections::BTreeSet;

use super::circuit::free_gate;
use super::kit::*;
use super::resources::{exhaust, whereabouts};
use crate::kit::{child, program};

laws! {
    environment: "resources.environment", "§4.3.2.1", 1, [create_vcq] + bare,
        "UTOFU_NUM_EXCLUSIVE_CQS and UTOFU_NUM_SESSION_MODE_CQS keep CQs, the first one with priority";
    mrq_entries: "resources.mrq-entries", "§4.3.2.3", 1, [poll_mrq] + bare,
        "UTOFU_NUM_MRQ_ENTRIES takes the nearest of the allowed numbers, and the numbers' names in any case; that number of notices fits";
    swap_protect: "resources.swap-protect", "§4.3.2.5", 1, [reg_mem, dereg_mem] + bare,
        "with UTOFU_SWAP_PROTECT memory is locked while a registration covers it; by default, or with 0, it is not";
    own_locks: "resources.own-locks", "§4.3.2.5", 1, [reg_mem, dereg_mem] + bare,
        "with UTOFU_SWAP_PROTECT, what the program has locked before stays locked when its registrations have ended";
    no_locks: "resources.no-locks", "§4.3.2.5", 1, [reg_mem, put_piggyback8] + bare,
        "without the right to lock memory, registrations succeed with UTOFU_SWAP_PROTECT, and one line reports it";
    wrong_environment: "resources.wrong-environment", "§4.3.2", 1, [create_vcq, query_my_coords] + bare,
        "a variable that means nothing is named in one line, and every function that needs the network gives an error";
    shape: "resources.shape", "§2.4", 4, [query_my_coords, construct_vcq_id, put_piggyback8] + bare,
        "UNIPGAS_TOFU_SHAPE gives the lengths of the axes: coordinates are within, differ, and lead to their processes";
    shared_node: "resources.shared-node", "table 6.2", 4,
        [query_my_coords, create_vcq, get_onesided_tnis, query_vcq_info, alloc_vbg, put_piggyback8, barrier, poll_barrier] + bare,
        "with UNIPGAS_TOFU_PPN processes share a node: its coordinates, CQs and VBGs, no id twice; they reach each other";
}

/// The free mode, session mode and exclusive VCQs of TNI 2.
fn kinds() -> Result<[usize; 3], String> {
    let session = exhaust(2, SESSION_MODE)?.len();
    let free = exhaust(2, 0)?.len();
    Ok([free, session, exhaust(2, EXCLUSIVE)?.len()])
}

fn environment(_ctx: &Ctx) -> Verdict {
    for (exclusive, session, expected) in [
        ("0", "3", [48, 24, 0]),
        ("2", "3", [32, 24, 2]),
        ("0", "0", [72, 0, 0]),
        ("1", "1", [56, 8, 1]),
        ("100", "100", [8, 0, 8]),
        ("6", "100", [8, 16, 6]),
        ("", "", [48, 24, 0]),
    ] {
        let variables = [
            ("UTOFU_NUM_EXCLUSIVE_CQS", exclusive),
            ("UTOFU_NUM_SESSION_MODE_CQS", session),
        ];
        program(&variables, &format!("{variables:?}"), || {
            equal!(kinds()?, expected, "free, session, exclusive VCQs")
        })?;
    }
    Ok(())
}

/// The number of notices that an MRQ holds. The overflow ends the child.
fn mrq_entries(ctx: &Ctx) -> Verdict {
    let values = [
        ("2048", 2048u64),
        ("2ki", 2048),
        ("0", 2048),
        ("5119", 2048),
        ("5120", 8192),
        ("8Ki", 8192),
        ("20000", 8192),
        ("20480", 32768),
        ("32KI", 32768),
    ];
    // If it takes long to fill an MRQ, one value of each size except the largest.
    let slow = |value: &str| !ctx.is_quick() && !["2048", "8Ki"].contains(&value);
    for (value, entries) in values.into_iter().filter(|(value, _)| !slow(value)) {
        // There may be room for a few more, but not for the next size.
        for (posted, fits) in [(entries, true), (entries + entries / 2 + 1, false)] {
            let (status, text) = child(&[("UTOFU_NUM_MRQ_ENTRIES", value)], || {
                Queue::with_component(TNI, 0, 0)?.fill_mrq(posted, REMOTE)
            })?;
            let overflowed = text.contains("MRQ Overflow on TNI 0 CQ 0");
            ensure!(
                overflowed != fits && (status == 0) == fits,
                "{posted} notices with UTOFU_NUM_MRQ_ENTRIES={value}: status {status:#x}, {text:?}"
            );
        }
    }
    Ok(())
}

/// KiB of memory that the process has locked.
fn locked() -> Result<u64, String> {
    let text = std::fs::read_to_string("/proc/self/status").map_err(|e| e.to_string())?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmLck:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok())
        .ok_or_else(|| "/proc/self/status without VmLck".into())
}

fn swap_protect(_ctx: &Ctx) -> Verdict {
    for (value, protects) in [
        ("", false),
        ("0", false),
        ("1", true),
        ("17", true),
        ("-3", true),
    ] {
        program(&[("UTOFU_SWAP_PROTECT", value)], value, || {
            let queue = Queue::create(0, 0)?;
            let other = Queue::create(0, 0)?;
            let before = locked()?;
            let more = |expected: u64, what: &str| -> Verdict {
                let expected = if protects { expected } else { 0 };
                let more = locked()?.saturating_sub(before);
                // Locks cover whole pages, hence the tolerance. The library locks no other mappings.
                ensure!(
                    (expected..expected + 64).contains(&more),
                    "{more} KiB locked after {what}, not {expected}"
                );
                Ok(())
            };
            let memory = Memory::new(1 << 20);
            let part = memory.part(0, 1 << 18);
            let stadd = queue.register(memory)?;
            more(1024, "the registration")?;
            queue.register(memory)?;
            let theirs = other.register(part)?;
            queue.deregister(stadd)?;
            more(1024, "one of two deregistrations")?;
            queue.deregister(stadd)?;
            more(256, "the deregistration of all but a part")?;
            other.deregister(theirs)?;
            more(0, "the last deregistration")?;
            queue.register_as(memory, STAG)?;
            more(1024, "a registration with a STag")?;
            queue.free()?;
            more(0, "the end of the VCQ")?;
            other.free()
        })?;
    }
    Ok(())
}

fn own_locks(_ctx: &Ctx) -> Verdict {
    program(&[("UTOFU_SWAP_PROTECT", "1")], "own locks", || {
        let queue = Queue::create(0, 0)?;
        let before = locked()?;
        let memory = Memory::pages(64 << 12)?;
        // The program locks the second of four parts, and half of the third.
        let part = |from: usize, pages: usize| memory.part(from << 12, pages << 12);
        let own = part(16, 24);
        // SAFETY:
        // - mapped memory of this process.
        let code = unsafe { libc::mlock(own.base.cast(), own.len) };
        ensure_eq!(code, 0, "mlock of what the program may lock");
        let more = |expected: u64, what: &str| -> Verdict {
            let seen = locked()?.saturating_sub(before) / 4;
            ensure!(seen == expected, "{seen} locked {what}, not {expected}");
            Ok(())
        };
        more(24, "by the program")?;
        let all = queue.register(memory)?;
        more(64, "by the program and a registration around it")?;
        let third = queue.register(part(32, 16))?;
        queue.deregister(all)?;
        let middle = "by the program and a registration that begins in the middle of it";
        more(32, middle)?;
        queue.deregister(third)?;
        more(24, "after the last deregistration")?;
        let all = queue.register(memory)?;
        queue.deregister(all)?;
        more(24, "after another registration")?;
        // SAFETY:
        // - as above.
        let code = unsafe { libc::munlock(own.base.cast(), own.len) };
        ensure_eq!(code, 0, "munlock");
        let all = queue.register(memory)?;
        more(
            64,
            "by a registration of memory that the program has unlocked",
        )?;
        queue.deregister(all)?;
        more(0, "after that")?;
        queue.free()
    })
}

/// Removes this process's right to lock memory.
fn forbid_locks() -> Verdict {
    const CAP_IPC_LOCK: u32 = 14;
    #[repr(C)]
    struct Header(u32, i32);
    let none = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    let mut header = Header(0x2008_0522, 0);
    let mut sets = [[0u32; 3]; 2];
    // SAFETY:
    // - the structures have the layout of capget(2) and setrlimit(2); version 3 of capget has two sets.
    unsafe {
        ensure_eq!(libc::setrlimit(libc::RLIMIT_MEMLOCK, &none), 0, "setrlimit");
        let (get, set) = (libc::SYS_capget, libc::SYS_capset);
        ensure_eq!(libc::syscall(get, &mut header, &mut sets), 0, "capget");
        sets[0]
            .iter_mut()
            .for_each(|set| *set &= !(1 << CAP_IPC_LOCK));
        ensure_eq!(libc::syscall(set, &mut header, &sets), 0, "capset");
        let page = Memory::pages(4096)?;
        ensure!(
            libc::mlock(page.base.cast(), 4096) != 0,
            "memory can be locked all the same"
        );
    }
    Ok(())
}

fn no_locks(_ctx: &Ctx) -> Verdict {
    let (status, text) = child(&[("UTOFU_SWAP_PROTECT", "1")], || {
        forbid_locks()?;
        let before = locked()?;
        let queue = Queue::with_component(TNI, 0, 0)?;
        let memory = Memory::pages(4096)?;
        let stadd = queue.register(memory)?;
        let other = queue.register(Memory::pages(8192)?)?;
        ensure_eq!(locked()?, before, "KiB locked without the right to");
        post::put_piggyback8(queue.hdl, queue.id, 5, stadd, 8).noticed(0, 0)?;
        ensure_eq!(memory.get(0), 5, "the word");
        queue.deregister(other)?;
        queue.close(stadd)
    })?;
    ensure!(
        status == 0
            && text.lines().count() == 1
            && text.contains("UTOFU_SWAP_PROTECT")
            && text.contains("RLIMIT_MEMLOCK"),
        "status {status:#x}, {text:?}"
    );
    Ok(())
}

fn wrong_environment(_ctx: &Ctx) -> Verdict {
    for (name, value) in [
        ("UTOFU_NUM_EXCLUSIVE_CQS", "-1"),
        ("UTOFU_NUM_SESSION_MODE_CQS", "three"),
        ("UTOFU_NUM_MRQ_ENTRIES", "4Ki"),
        ("UTOFU_NUM_MRQ_ENTRIES_SESSION", "0x800"),
        ("UTOFU_SWAP_PROTECT", "yes"),
        ("UNIPGAS_TOFU_SHAPE", "1x1x1x3x3x2"),
        ("UNIPGAS_TOFU_SHAPE", "0x1x1x2x3x2"),
        ("UNIPGAS_TOFU_PPN", "0"),
        ("UNIPGAS_TOFU_PPN", "100000"),
    ] {
        let (status, text) = child(&[(name, value)], || {
            let (mut hdl, mut at) = (0, [0; 6]);
            for _ in 0..3 {
                gives!(UTOFU_ERR_FATAL, utofu_create_vcq(0, 0, &mut hdl));
                gives!(UTOFU_ERR_FATAL, utofu_query_my_coords(at.as_mut_ptr()));
            }
            Ok(())
        })?;
        ensure!(
            status == 0 && text.lines().count() == 1 && text.contains(name),
            "{name}={value}: status {status:#x}, {text:?}"
        );
    }
    Ok(())
}

fn set(name: &str, value: &str) {
    // SAFETY:
    // - a process of a bare law has one thread.
    unsafe { std::env::set_var(name, value) };
}

fn shape(ctx: &Ctx) -> Verdict {
    set("UNIPGAS_TOFU_SHAPE", "2x1x3x1x3x2");
    let queue = Queue::with_component(0, 0, 0)?;
    let memory = Memory::new(256);
    queue.register_as(memory, STAG)?;
    let at = my_coords()?;
    for (axis, length) in [2, 1, 3, 1, 3, 2].into_iter().enumerate() {
        ensure!(at[axis] < length, "{at:?} is outside of the shape");
    }
    ensure_eq!(at, coords(ctx.rank)?, "coordinates of the rank");
    ctx.sync();
    // Tries all coordinates: each process has the coordinates that it reports.
    let mut found = 0;
    for node in 0..36u8 {
        let at = [node / 18, 0, node / 6 % 3, 0, node / 2 % 3, node % 2];
        let id = vcq_id(&at, 0, 0, 0)?;
        let to = stadd_of(id, STAG)? + 8 * u64::from(ctx.rank);
        post::put_piggyback8(queue.hdl, id, 1, to, 8).ok(0, LOCAL, 0)?;
        match queue.next_mrq()?.0 {
            SUCCESS => found += 1,
            code => ensure_eq!(code, UTOFU_ERR_MRQ_PEER, "a put to an empty node"),
        }
    }
    ensure_eq!(found, 4, "processes found");
    ctx.sync();
    for rank in 0..4 {
        ensure_eq!(memory.get(8 * rank), 1, "the word of rank {rank}");
    }
    for outside in [
        [2, 0, 0, 0, 0, 0],
        [0, 1, 0, 0, 0, 0],
        [0, 0, 0, 1, 0, 0],
        [0, 0, 255, 0, 0, 0],
    ] {
        let mut id = 7;
        gives! { UTOFU_ERR_INVALID_COORDS:
            utofu_construct_vcq_id(outside.as_ptr().cast_mut(), 0, 0, 0, &mut id);
        }
        ensure_eq!(id, 7, "the id after an error");
    }
    ctx.sync();
    Ok(())
}

/// TNI, CQ and component of all VCQs that two TNIs of a node may have.
fn places() -> impl Iterator<Item = (u16, u16, u16)> {
    (0..2 * 9 * 8).map(|place| (place / 72, place / 8 % 9, place % 8))
}

fn shared_node(ctx: &Ctx) -> Verdict {
    set("UNIPGAS_TOFU_PPN", "2");
    let at = my_coords()?;
    ensure_eq!(at, coords(ctx.rank)?, "coordinates of the node");
    let partner = coords(ctx.rank ^ 1)?;
    ensure_eq!(at, partner, "coordinates of the other process of the node");
    ensure!(coords((ctx.rank + 2) % 4)? != at, "both are at {at:?}");
    // The processes of a node share its CQs.
    let memory = Memory::new(4096);
    let mut mine = BTreeSet::new();
    let mut all = Vec::new();
    // Two TNIs are enough.
    for tni in 0..2 {
        let queues = exhaust(tni, 0)?;
        for queue in &queues {
            mine.insert(whereabouts(queue.id)?);
        }
        all.extend(queues);
    }
    ensure!(!all.is_empty(), "no VCQ for this process");
    let queue = all[0];
    for queue in &all {
        queue.register_as(memory, STAG)?;
    }
    ctx.sync();
    // A peer finds each VCQ by its coordinates; a node has only the VCQs of its two processes.
    for node in 0..2 {
        let at = coords(2 * node)?;
        let mut reached = 0;
        for (tni, cq, component) in places() {
            let id = vcq_id(&at, tni, cq, component)?;
            let to = stadd_of(id, STAG)? + 8 * u64::from(ctx.rank);
            post::armw8(queue.hdl, id, ADD, 1, to).ok(0, LOCAL | TCQ, 0)?;
            queue.tcq()?;
            match queue.next_mrq()?.0 {
                SUCCESS => reached += 1,
                code => {
                    ensure_eq!(code, UTOFU_ERR_MRQ_PEER, "an add to a missing VCQ");
                    let own = at == coords(ctx.rank)? && mine.contains(&(tni, cq, component));
                    ensure!(!own, "an own VCQ is not found: {tni}, {cq}, {component}");
                }
            }
        }
        let own = all.len();
        ensure!(
            reached > own,
            "{reached} VCQs at node {node}, {own} are own"
        );
    }
    ctx.sync();
    // Each VCQ of this process got one addition from each rank, so no ID leads to two processes.
    for rank in 0..4 {
        memory.shows(8 * rank, all.len() as u64, format!("adds of rank {rank}"))?;
    }
    ctx.sync();
    // The two processes share the 16 VBGs of a TNI, first come, first served.
    let mut ids = Vec::new();
    loop {
        let mut id = 0;
        match c!(utofu_alloc_vbg(3, 1, 0, &mut id)) {
            SUCCESS => ids.push(id),
            code => {
                ensure_eq!(code, UTOFU_ERR_FULL, "after the last VBG");
                break;
            }
        }
        ensure!(ids.len() <= 16, "more than 16 VBGs start");
    }
    ctx.sync();
    // Sends the number of own VBGs to the other process of the node.
    let count = ids.len() as u64;
    ctx.sync();
    memory.set(1024, count);
    ctx.sync();
    let stadd = stadd_of(queue.id, STAG)?;
    // A VCQ of the other process: the first that answers and is not own.
    let mut theirs = None;
    for (tni, cq, component) in places().filter(|place| !mine.contains(place)) {
        let id = vcq_id(&at, tni, cq, component)?;
        post::get(queue.hdl, id, stadd + 2048, stadd_of(id, STAG)? + 1024, 8).ok(0, LOCAL, 0)?;
        if queue.next_mrq()?.0 == SUCCESS {
            theirs = Some(memory.get(2048));
            break;
        }
    }
    let both = theirs.map(|theirs| theirs + count);
    ensure_eq!(both, Some(16), "VBGs that start, of both processes");
    ctx.sync();
    for_all(ids, free_gate)?;
    ctx.sync();
    Ok(())
}

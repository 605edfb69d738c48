//! §4.3.2 and tables 6.2 and 6.3: how much there is of everything, and what changes it.

use std::collections::BTreeSet;

use std::ptr::null_mut;

use unipgas::utofu::status::Code;

use super::kit::*;
use super::processes::{Child, child};
use crate::law::{Ctx, Verdict};
use crate::{ensure, ensure_eq};

laws! {
    vcqs_end: "resources.vcqs", "table 6.3", 1, [create_vcq, free_vcq, query_vcq_info],
        "6 TNIs have 6 free mode CQs of 8 VCQs each; the next VCQ gives FULL, and one that was freed can be created again";
    components_are_used: "resources.components", "§3.3.1.2", 1, [create_vcq_with_cmp_id, create_vcq, free_vcq],
        "a component id that is in use gives USED, on its TNI alone, until its VCQ is freed";
    exclusive_ends: "resources.exclusive", "§3.3.4.1", 1, [create_vcq, query_vcq_info],
        "CQ-exclusive VCQs share their CQ with nobody; when no CQ is left NOT_AVAILABLE is given";
    session_ends: "resources.session", "§4.3.2.2", 1, [create_vcq, query_vcq_info],
        "session mode VCQs have 3 CQs a TNI; then NOT_AVAILABLE is given";
    vbgs_end: "resources.vbgs", "table 6.3", 1, [alloc_vbg, free_vbg],
        "a TNI has 48 VBGs of which 16 start; then FULL is given, nothing is kept of it, and freed ones can be allocated again";
    stags_are_used: "resources.stags", "§3.6.1.2", 1, [reg_mem_with_stag, dereg_mem],
        "256 STags a VCQ; one in use gives USED until it is deregistered";
    stadds_end: "resources.stadds", "§3.6.1.1", 1, [reg_mem, dereg_mem],
        "registering without end gives FULL, and works again after a deregistration";
    environment: "resources.environment", "§4.3.2.1", 1, [create_vcq] + bare,
        "UTOFU_NUM_EXCLUSIVE_CQS and UTOFU_NUM_SESSION_MODE_CQS keep CQs, the first one with priority";
    mrq_entries: "resources.mrq-entries", "§4.3.2.3", 1, [poll_mrq] + bare,
        "UTOFU_NUM_MRQ_ENTRIES takes the nearest of the allowed numbers, and the numbers' names in any case; so many notices fit";
    swap_protect: "resources.swap-protect", "§4.3.2.5", 1, [reg_mem, dereg_mem] + bare,
        "with UTOFU_SWAP_PROTECT memory is locked as long as a registration covers it; by default, or with 0, it is not";
    own_locks: "resources.own-locks", "§4.3.2.5", 1, [reg_mem, dereg_mem] + bare,
        "with UTOFU_SWAP_PROTECT, what the program has locked before stays locked when its registrations have ended";
    no_locks: "resources.no-locks", "§4.3.2.5", 1, [reg_mem, put_piggyback8] + bare,
        "where memory may not be locked, registrations succeed with UTOFU_SWAP_PROTECT, and one line says so";
    wrong_environment: "resources.wrong-environment", "§4.3.2", 1, [create_vcq, query_my_coords] + bare,
        "a variable that means nothing is named in one line, and every function that needs the network gives an error";
    shape: "resources.shape", "§2.4", 4, [query_my_coords, construct_vcq_id, put_piggyback8] + bare,
        "UNIPGAS_TOFU_SHAPE gives the lengths of the axes: coordinates are within, differ, and lead to their processes";
    shared_node: "resources.shared-node", "table 6.2", 4,
        [query_my_coords, create_vcq, get_onesided_tnis, query_vcq_info, alloc_vbg, put_piggyback8, barrier, poll_barrier] + bare,
        "with UNIPGAS_TOFU_PPN processes share a node: its coordinates, CQs and VBGs, no id twice; they reach each other";
}

/// A child that must succeed without a word.
fn succeeds(environment: &[(&str, &str)], body: impl FnOnce() -> Verdict) -> Verdict {
    Child::start(environment, body)?.succeeds(&format!("with {environment:?}"))
}

/// TNI, CQ and component.
fn whereabouts(id: u64) -> Result<(u16, u16, u16), String> {
    let (mut at, mut tni, mut cq, mut component) = ([0; 6], 0, 0, 0);
    ok!(utofu_query_vcq_info(
        id,
        at.as_mut_ptr(),
        &mut tni,
        &mut cq,
        &mut component
    ));
    Ok((tni, cq, component))
}

/// Creates VCQs until there are no more; the code that ends it.
fn exhaust(tni: u16, flags: u64) -> Result<(Vec<Queue>, i32), String> {
    let mut all = Vec::new();
    loop {
        let mut hdl = UNTOUCHED;
        match c!(utofu_create_vcq(tni, flags, &mut hdl)) {
            SUCCESS => {
                let mut id = 0;
                ok!(utofu_query_vcq_id(hdl, &mut id));
                all.push(Queue { hdl, id });
            }
            code => {
                ensure_eq!(hdl, UNTOUCHED, "the handle after an error");
                return Ok((all, code));
            }
        }
        ensure!(all.len() < 1000, "VCQs without end");
    }
}

const UNTOUCHED: usize = 0x5a5a;

fn free_all(queues: Vec<Queue>) -> Verdict {
    queues.into_iter().try_for_each(Queue::free)
}

/// Of the default: 9 CQs, of which 3 are for session mode.
fn vcqs_end(_ctx: &Ctx) -> Verdict {
    for round in 0..2 {
        let mut all = Vec::new();
        for tni in 0..6 {
            let (mut queues, code) = exhaust(tni, 0)?;
            ensure_eq!(
                code,
                Code::Full as i32,
                "the VCQ after the last of TNI {tni}"
            );
            ensure_eq!(
                queues.len(),
                6 * 8,
                "free mode VCQs of TNI {tni}, round {round}"
            );
            // One is freed and created again, with its place.
            let again = queues.swap_remove(round * 17 + usize::from(tni));
            again.free()?;
            gives!(InvalidVcqHdl, utofu_free_vcq(again.hdl));
            let fresh = Queue::create(tni, 0)?;
            ensure_eq!(fresh.id, again.id, "the only VCQ that is left");
            ensure!(fresh.hdl != again.hdl, "a freed handle names a new VCQ");
            queues.push(fresh);
            let mut hdl = UNTOUCHED;
            gives!(Full, utofu_create_vcq(tni, 0, &mut hdl));
            gives!(Full, utofu_create_vcq(tni, THREAD_SAFE, &mut hdl));
            gives!(NotAvailable, utofu_create_vcq(tni, EXCLUSIVE, &mut hdl));
            gives!(Used, utofu_create_vcq_with_cmp_id(tni, 0, 0, &mut hdl));
            all.extend(queues);
        }
        let ids: BTreeSet<u64> = all.iter().map(|queue| queue.id).collect();
        ensure_eq!(ids.len(), all.len(), "different VCQ ids");
        let places: Result<BTreeSet<_>, String> = ids.iter().map(|id| whereabouts(*id)).collect();
        ensure_eq!(places?.len(), all.len(), "different places of VCQs");
        free_all(all)?;
    }
    Ok(())
}

fn components_are_used(_ctx: &Ctx) -> Verdict {
    for component in 0..8 {
        let mut all = Vec::new();
        for tni in 0..6 {
            let queue = Queue::with_component(tni, component, 0)?;
            let place = whereabouts(queue.id)?;
            ensure_eq!(place, (tni, 0, component), "where a component is");
            let mut hdl = UNTOUCHED;
            gives!(
                Used,
                utofu_create_vcq_with_cmp_id(tni, component, 0, &mut hdl)
            );
            ensure_eq!(hdl, UNTOUCHED, "the handle after an error");
            all.push(queue);
        }
        free_all(all)?;
        let mut hdl = 0;
        for flags in [EXCLUSIVE, SESSION_MODE, EXCLUSIVE | SESSION_MODE] {
            let code = c!(utofu_create_vcq_with_cmp_id(0, component, flags, &mut hdl));
            ensure!(
                code < 0,
                "flags {flags} with a component gave {}",
                code_name(code)
            );
        }
        Queue::with_component(0, component, THREAD_SAFE)?.free()?;
    }
    // A VCQ that was created without a component id has one: never that of another.
    let mut all: Vec<Queue> = (0..4)
        .map(|component| Queue::with_component(0, component, 0))
        .collect::<Result<_, _>>()?;
    let (more, _) = exhaust(0, 0)?;
    all.extend(more);
    let ids: BTreeSet<u64> = all.iter().map(|queue| queue.id).collect();
    ensure_eq!(
        ids.len(),
        48,
        "different VCQs with and without component ids"
    );
    free_all(all)
}

fn exclusive_ends(_ctx: &Ctx) -> Verdict {
    let shared = Queue::create(0, 0)?;
    let (exclusive, code) = exhaust(0, EXCLUSIVE)?;
    ensure_eq!(
        code,
        Code::NotAvailable as i32,
        "after the last CQ-exclusive VCQ"
    );
    ensure!(!exclusive.is_empty(), "no CQ-exclusive VCQ at all");
    let (others, code) = exhaust(0, 0)?;
    ensure_eq!(code, Code::Full as i32, "after the last VCQ");
    let mut cqs = BTreeSet::new();
    for queue in &exclusive {
        ensure!(
            cqs.insert(whereabouts(queue.id)?.1),
            "two exclusive VCQs on a CQ"
        );
    }
    for queue in others.iter().chain([&shared]) {
        ensure!(
            !cqs.contains(&whereabouts(queue.id)?.1),
            "an exclusive VCQ shares its CQ"
        );
    }
    // A freed one can be shared again.
    let count = exclusive.len();
    free_all(exclusive)?;
    let (more, _) = exhaust(0, 0)?;
    ensure_eq!(more.len(), count * 8, "VCQs on CQs that were exclusive");
    free_all(more)?;
    free_all(others)?;
    let (again, _) = exhaust(0, EXCLUSIVE | THREAD_SAFE)?;
    ensure_eq!(again.len(), count, "exclusive VCQs once more");
    free_all(again)?;
    shared.free()
}

fn session_ends(_ctx: &Ctx) -> Verdict {
    for tni in 0..6 {
        let (queues, code) = exhaust(tni, SESSION_MODE)?;
        ensure_eq!(
            code,
            Code::NotAvailable as i32,
            "after the last session mode VCQ"
        );
        ensure_eq!(queues.len(), 3 * 8, "session mode VCQs of TNI {tni}");
        let free = Queue::create(tni, 0)?;
        for queue in &queues {
            ensure!(
                whereabouts(queue.id)?.1 != whereabouts(free.id)?.1,
                "a session mode VCQ on a free mode CQ"
            );
        }
        free.free()?;
        free_all(queues)?;
    }
    let mut hdl = 0;
    let both = c!(utofu_create_vcq(0, SESSION_MODE | EXCLUSIVE, &mut hdl));
    ensure!(
        both < 0,
        "session mode and exclusive gave {}",
        code_name(both)
    );
    Ok(())
}

fn vbgs_end(_ctx: &Ctx) -> Verdict {
    for round in 0..2 {
        for tni in 0..6 {
            let mut ids = [u64::MAX; 64];
            // One by one: those that start.
            for id in &mut ids[..16] {
                ok!(utofu_alloc_vbg(tni, 1, 0, id));
            }
            let mut more = [7u64; 2];
            gives!(Full, utofu_alloc_vbg(tni, 1, 0, more.as_mut_ptr()));
            gives!(Full, utofu_alloc_vbg(tni, 2, 0, more.as_mut_ptr()));
            ensure_eq!(more, [7; 2], "ids after FULL");
            ok!(utofu_free_vbg(&ids[5], 1));
            ok!(utofu_alloc_vbg(tni, 33, round, ids[16..].as_mut_ptr()));
            ok!(utofu_free_vbg(&ids[6], 1));
            // A start is left, but no relay; nothing is kept of an allocation that fails.
            for _ in 0..20 {
                gives!(Full, utofu_alloc_vbg(tni, 2, 0, more.as_mut_ptr()));
            }
            ensure_eq!(more, [7; 2], "ids after FULL");
            ok!(utofu_alloc_vbg(tni, 1, 0, &mut ids[6]));
            gives!(Full, utofu_alloc_vbg(tni, 1, 0, more.as_mut_ptr()));
            let mut all: Vec<u64> = ids[..49].to_vec();
            all.remove(5);
            let different: BTreeSet<u64> = all.iter().copied().collect();
            ensure_eq!(different.len(), 48, "different VBG ids of TNI {tni}");
            ok!(utofu_free_vbg(ids[16..].as_ptr(), 33));
            for nth in (0..16).filter(|nth| *nth != 5) {
                ok!(utofu_free_vbg(&ids[nth], 1));
                gives!(InvalidVbgId, utofu_free_vbg(&ids[nth], 1));
            }
            let mut whole = [0u64; 64];
            gives!(Full, utofu_alloc_vbg(tni, 34, 0, whole.as_mut_ptr()));
            gives!(Full, utofu_alloc_vbg(tni, 48, 0, whole.as_mut_ptr()));
            gives!(
                Full,
                utofu_alloc_vbg(tni, usize::MAX, 0, whole.as_mut_ptr())
            );
            ok!(utofu_alloc_vbg(tni, 33, 0, whole.as_mut_ptr()));
            ok!(utofu_free_vbg(whole.as_ptr(), 33));
        }
    }
    Ok(())
}

fn stags_are_used(_ctx: &Ctx) -> Verdict {
    let one = Queue::with_component(0, 1, 0)?;
    let other = Queue::with_component(0, 2, 0)?;
    let memory = Memory::new(512);
    for _ in 0..3 {
        for stag in 0..256 {
            let stadd = one.register_as(memory, stag)?;
            ensure_eq!(stadd, stadd_of(one.id, stag)?, "the STADD of STag {stag}");
            let mut again = 7;
            gives!(
                Used,
                utofu_reg_mem_with_stag(one.hdl, memory.base, 256, stag, 0, &mut again)
            );
            ensure_eq!(again, 7, "the STADD after USED");
            // Another VCQ has its own.
            let theirs = other.register_as(memory, stag)?;
            other.deregister(theirs)?;
        }
        for stag in 0..256 {
            one.deregister(stadd_of(one.id, stag)?)?;
            let twice = c!(utofu_dereg_mem(one.hdl, stadd_of(one.id, stag)?, 0));
            ensure_eq!(twice, Code::InvalidStadd as i32, "deregistering twice");
        }
    }
    one.free()?;
    other.free()?;
    memory.free();
    Ok(())
}

fn stadds_end(_ctx: &Ctx) -> Verdict {
    let queue = Queue::with_component(0, 3, 0)?;
    let memory = Memory::new(1 << 16);
    let mut stadds = Vec::new();
    let code = loop {
        let mut stadd = 7;
        let nth = stadds.len();
        let at = memory.base.wrapping_add(nth % (1 << 16));
        match c!(utofu_reg_mem(
            queue.hdl,
            at,
            1,
            (nth >> 16) as u64 & 1,
            &mut stadd
        )) {
            SUCCESS => stadds.push(stadd),
            code => {
                ensure_eq!(stadd, 7, "the STADD after an error");
                break code;
            }
        }
        ensure!(stadds.len() < 1 << 17, "STADDs without end");
    };
    ensure_eq!(
        code,
        Code::Full as i32,
        "after {} registrations",
        stadds.len()
    );
    ensure!(stadds.len() >= 1000, "only {} STADDs", stadds.len());
    let different: BTreeSet<u64> = stadds.iter().copied().collect();
    ensure_eq!(different.len(), stadds.len(), "different STADDs");
    let last = stadds.pop().unwrap_or_default();
    queue.deregister(last)?;
    let mut again = 0;
    ok!(utofu_reg_mem(
        queue.hdl,
        memory.base.wrapping_add((1 << 16) - 1),
        1,
        0,
        &mut again
    ));
    queue.deregister(again)?;
    for stadd in stadds {
        queue.deregister(stadd)?;
    }
    queue.free()?;
    memory.free();
    Ok(())
}

/// Free mode, session mode and exclusive VCQs that TNI 2 has.
fn kinds() -> Result<[usize; 3], String> {
    let (session, code) = exhaust(2, SESSION_MODE)?;
    ensure_eq!(
        code,
        Code::NotAvailable as i32,
        "after the session mode VCQs"
    );
    let (free, code) = exhaust(2, 0)?;
    ensure_eq!(code, Code::Full as i32, "after the free mode VCQs");
    let (exclusive, code) = exhaust(2, EXCLUSIVE)?;
    ensure_eq!(code, Code::NotAvailable as i32, "after the exclusive VCQs");
    Ok([free.len(), session.len(), exclusive.len()])
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
        succeeds(&variables, || {
            ensure_eq!(
                kinds()?,
                expected,
                "free mode, session mode, exclusive VCQs"
            );
            Ok(())
        })?;
    }
    Ok(())
}

/// How many notices an MRQ takes before it overflows: the child ends there.
fn mrq_entries(_ctx: &Ctx) -> Verdict {
    for (value, entries) in [
        ("2048", 2048u64),
        ("2ki", 2048),
        ("0", 2048),
        ("5119", 2048),
        ("5120", 8192),
        ("8Ki", 8192),
        ("20000", 8192),
        ("20480", 32768),
        ("32KI", 32768),
    ] {
        // There may be room for some more, but not for as many as the next number would give.
        for (posted, fits) in [(entries, true), (entries + entries / 2 + 1, false)] {
            let (status, text) = child(&[("UTOFU_NUM_MRQ_ENTRIES", value)], || {
                let queue = Queue::with_component(TNI, 0, 0)?;
                let stadd = queue.register_as(Memory::new(256), STAG)?;
                let mut sent = 0;
                for nth in 0..posted {
                    queue.post_seen(
                        |_| sent += 1,
                        || {
                            c!(utofu_put_piggyback8(
                                queue.hdl,
                                queue.id,
                                nth,
                                stadd,
                                8,
                                0,
                                REMOTE | TCQ,
                                cb(0)
                            ))
                        },
                    )?;
                }
                // All have been sent before the first notice is taken out.
                while sent < posted {
                    queue.tcq()?;
                    sent += 1;
                }
                for _ in 0..posted {
                    queue.mrq()?;
                }
                Ok(())
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
        succeeds(&[("UTOFU_SWAP_PROTECT", value)], || {
            let queue = Queue::create(0, 0)?;
            let other = Queue::create(0, 0)?;
            let before = locked()?;
            let more = |expected: u64, what: &str| -> Verdict {
                let expected = if protects { expected } else { 0 };
                let more = locked()?.saturating_sub(before);
                // What is locked are pages; other mappings are none of this.
                ensure!(
                    (expected..expected + 64).contains(&more),
                    "{more} KiB locked after {what}, not {expected}"
                );
                Ok(())
            };
            let memory = Memory::new(1 << 20);
            let part = Memory {
                len: 1 << 18,
                ..memory
            };
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
    succeeds(&[("UTOFU_SWAP_PROTECT", "1")], || {
        let queue = Queue::create(0, 0)?;
        let before = locked()?;
        let memory = Memory::pages(64 << 12)?;
        // The program's: the second of four parts, and half of the third.
        let part = |from: usize, pages: usize| Memory {
            // In bounds.
            base: memory.base.wrapping_add(from << 12),
            len: pages << 12,
        };
        let own = part(16, 24);
        // SAFETY:
        // - mapped memory of this process.
        let code = unsafe { libc::mlock(own.base.cast(), own.len) };
        ensure_eq!(
            code,
            0,
            "mlock of what a program without privileges may lock"
        );
        let more = |expected: u64, what: &str| -> Verdict {
            let seen = locked()?.saturating_sub(before) / 4;
            ensure!(
                seen == expected,
                "{seen} pages locked {what}, not {expected}"
            );
            Ok(())
        };
        more(24, "by the program")?;
        let all = queue.register(memory)?;
        more(64, "by the program and a registration around that")?;
        let third = queue.register(part(32, 16))?;
        queue.deregister(all)?;
        more(
            32,
            "by the program and a registration that begins in the middle of that",
        )?;
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
        more(64, "by a registration of what the program has unlocked")?;
        queue.deregister(all)?;
        more(0, "after that")?;
        queue.free()
    })
}

/// Takes from this process the right to lock memory.
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
    // - the structures are those of capget(2) and setrlimit(2), version 3 of the former with two sets.
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
        let data = null_mut();
        ok!(utofu_put_piggyback8(
            queue.hdl, queue.id, 5, stadd, 8, 0, LOCAL, data
        ));
        queue.notice(LCL_PUT)?;
        ensure_eq!(memory.get(0), 5, "the word");
        queue.deregister(other)?;
        queue.deregister(stadd)?;
        queue.free()
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
                gives!(Fatal, utofu_create_vcq(0, 0, &mut hdl));
                gives!(Fatal, utofu_query_my_coords(at.as_mut_ptr()));
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
    let mut at = [9u8; 7];
    ok!(utofu_query_my_coords(at.as_mut_ptr()));
    ensure_eq!(at[6], 9, "the byte behind the coordinates");
    for (axis, length) in [2, 1, 3, 1, 3, 2].into_iter().enumerate() {
        ensure!(
            at[axis] < length,
            "coordinates {at:?} are outside of the shape"
        );
    }
    ensure_eq!(at[..6], coords(ctx.rank)?, "coordinates of the rank");
    ctx.sync();
    // By trying all coordinates there are, everybody is found where he says he is.
    let mut found = 0;
    for node in 0..36u8 {
        let at = [node / 18, 0, node / 6 % 3, 0, node / 2 % 3, node % 2];
        let mut id = 0;
        ok!(utofu_construct_vcq_id(at.as_ptr(), 0, 0, 0, &mut id));
        let to = stadd_of(id, STAG)? + 8 * u64::from(ctx.rank);
        ok!(utofu_put_piggyback8(
            queue.hdl,
            id,
            1,
            to,
            8,
            0,
            LOCAL,
            cb(0)
        ));
        match queue.next_mrq()?.0 {
            SUCCESS => found += 1,
            code => ensure_eq!(
                code,
                Code::MrqPeer as i32,
                "a put to a node without a process"
            ),
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
        gives!(
            InvalidCoords,
            utofu_construct_vcq_id(outside.as_ptr(), 0, 0, 0, &mut id)
        );
        ensure_eq!(id, 7, "the id after an error");
    }
    ctx.sync();
    Ok(())
}

fn shared_node(ctx: &Ctx) -> Verdict {
    set("UNIPGAS_TOFU_PPN", "2");
    let mut at = [0u8; 6];
    ok!(utofu_query_my_coords(at.as_mut_ptr()));
    ensure_eq!(at, coords(ctx.rank)?, "coordinates of the node");
    let partner = coords(ctx.rank ^ 1)?;
    ensure_eq!(at, partner, "coordinates of the other process of the node");
    ensure!(
        coords((ctx.rank + 2) % 4)? != at,
        "both nodes are at {at:?}"
    );
    // CQs are dealt to the processes of a node.
    let memory = Memory::new(4096);
    let mut mine = BTreeSet::new();
    let mut all = Vec::new();
    // Two TNIs are enough to see it.
    for tni in 0..2 {
        let (queues, code) = exhaust(tni, 0)?;
        ensure_eq!(code, Code::Full as i32, "after the last VCQ");
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
    // Every VCQ of every process is found by its coordinates; a node's are those of its two processes, and no more.
    for node in 0..2 {
        let at = coords(2 * node)?;
        let mut reached = 0;
        for place in 0..2 * 9 * 8u16 {
            let (tni, cq, component) = (place / 72, place / 8 % 9, place % 8);
            let mut id = 0;
            ok!(utofu_construct_vcq_id(
                at.as_ptr(),
                tni,
                cq,
                component,
                &mut id
            ));
            let to = stadd_of(id, STAG)? + 8 * u64::from(ctx.rank);
            ok!(utofu_armw8(
                queue.hdl,
                id,
                ADD,
                1,
                to,
                0,
                LOCAL | TCQ,
                cb(0)
            ));
            queue.tcq()?;
            match queue.next_mrq()?.0 {
                SUCCESS => reached += 1,
                code => {
                    ensure_eq!(
                        code,
                        Code::MrqPeer as i32,
                        "an add to a VCQ that is not there"
                    );
                    let own = at == coords(ctx.rank)? && mine.contains(&(tni, cq, component));
                    ensure!(!own, "an own VCQ is not found: {tni}, {cq}, {component}");
                }
            }
        }
        ensure!(
            reached > all.len(),
            "{reached} VCQs at node {node}, {} are own",
            all.len()
        );
    }
    ctx.sync();
    // Each VCQ of this process has taken one from everybody, so no id leads to two processes.
    for rank in 0..4 {
        ensure_eq!(
            memory.get(8 * rank),
            all.len() as u64,
            "adds of rank {rank}"
        );
    }
    ctx.sync();
    // The VBGs of a TNI go to whoever comes first: 16 for both processes.
    let mut ids = Vec::new();
    loop {
        let mut id = 0;
        match c!(utofu_alloc_vbg(3, 1, 0, &mut id)) {
            SUCCESS => ids.push(id),
            code => {
                ensure_eq!(code, Code::Full as i32, "after the last VBG");
                break;
            }
        }
        ensure!(ids.len() <= 16, "more than 16 VBGs start");
    }
    ctx.sync();
    // How many each one has: to the other one of the node.
    let peer = ctx.rank ^ 1;
    let count = ids.len() as u64;
    ensure!(count <= 16, "{count} VBGs of one process");
    ctx.sync();
    memory.set(1024, count);
    ctx.sync();
    let stadd = stadd_of(queue.id, STAG)?;
    // Any VCQ of the other one: the first that answers and is not own.
    let mut theirs = None;
    for place in 0..2 * 9 * 8u16 {
        let (tni, cq, component) = (place / 72, place / 8 % 9, place % 8);
        if mine.contains(&(tni, cq, component)) {
            continue;
        }
        let mut id = 0;
        ok!(utofu_construct_vcq_id(
            at.as_ptr(),
            tni,
            cq,
            component,
            &mut id
        ));
        ok!(utofu_get(
            queue.hdl,
            id,
            stadd + 2048,
            stadd_of(id, STAG)? + 1024,
            8,
            0,
            LOCAL,
            cb(0)
        ));
        if queue.next_mrq()?.0 == SUCCESS {
            theirs = Some(memory.get(2048));
            break;
        }
    }
    ensure_eq!(
        theirs.map(|theirs| theirs + count),
        Some(16),
        "VBGs that start, of ranks {} and {peer}",
        ctx.rank
    );
    ctx.sync();
    for id in &ids {
        ok!(utofu_free_vbg(id, 1));
    }
    ctx.sync();
    Ok(())
}

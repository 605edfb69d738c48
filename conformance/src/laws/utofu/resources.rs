//! §4.3.2 and tables 6.2 and 6.3: the number of each resource.

use std::collections::BTreeSet;

use super::circuit::{free_gate, free_gates};
use super::kit::*;

laws! {
    vcqs_end: "resources.vcqs", "table 6.3", 1, [create_vcq, free_vcq, query_vcq_info],
        "6 TNIs have 6 free mode CQs of 8 VCQs each; the next VCQ gives FULL, and a freed VCQ can be created again";
    components_are_used: "resources.components", "§3.3.1.2", 1, [create_vcq_with_cmp_id, create_vcq, free_vcq],
        "a component id that is in use gives USED, on its TNI alone, until its VCQ is freed";
    exclusive_ends: "resources.exclusive", "§3.3.4.1", 1, [create_vcq, query_vcq_info],
        "CQ-exclusive VCQs share their CQ with no other VCQ; without a free CQ the call gives NOT_AVAILABLE";
    session_ends: "resources.session", "§4.3.2.2", 1, [create_vcq, query_vcq_info],
        "session mode VCQs have 3 CQs a TNI; then NOT_AVAILABLE is given";
    vbgs_end: "resources.vbgs", "table 6.3", 1, [alloc_vbg, free_vbg],
        "a TNI has 48 VBGs of which 16 start; then FULL is given, nothing is kept of it, and freed ones can be allocated again";
    stags_are_used: "resources.stags", "§3.6.1.2", 1, [reg_mem_with_stag, dereg_mem],
        "256 STags a VCQ; one in use gives USED until it is deregistered";
    stadds_end: "resources.stadds", "§3.6.1.1", 1, [reg_mem, dereg_mem],
        "registering without end gives FULL, and works again after a deregistration";
}

/// TNI, CQ and component.
pub(super) fn whereabouts(id: u64) -> Result<(u16, u16, u16), String> {
    let (_, tni, cq, component) = vcq_info(id)?;
    Ok((tni, cq, component))
}

/// Creates VCQs until no more are available, for which the code is the one of these flags.
pub(super) fn exhaust(tni: u16, flags: u64) -> Result<Vec<Queue>, String> {
    let mut all = Vec::new();
    loop {
        let mut hdl = UNTOUCHED;
        match c!(utofu_create_vcq(tni, flags, &mut hdl)) {
            SUCCESS => {
                let id = got!(utofu_query_vcq_id(hdl));
                all.push(Queue { hdl, id });
            }
            code => {
                ensure_eq!(hdl, UNTOUCHED, "the handle after an error");
                let expected = match flags & (EXCLUSIVE | SESSION_MODE) {
                    0 => UTOFU_ERR_FULL,
                    _ => UTOFU_ERR_NOT_AVAILABLE,
                };
                code_is(
                    code,
                    expected,
                    format!("the VCQ after the last of TNI {tni}"),
                )?;
                return Ok(all);
            }
        }
        ensure!(all.len() < 1000, "VCQs without end");
    }
}

const UNTOUCHED: usize = 0x5a5a;

fn free_all(queues: Vec<Queue>) -> Verdict {
    queues.into_iter().try_for_each(Queue::free)
}

/// Default: 9 CQs, of which 3 are for session mode.
fn vcqs_end(_ctx: &Ctx) -> Verdict {
    for round in 0..2 {
        let mut all = Vec::new();
        for tni in 0..6 {
            let mut queues = exhaust(tni, 0)?;
            ensure_eq!(queues.len(), 6 * 8, "VCQs of TNI {tni}, round {round}");
            // Frees one and creates it again, with its component.
            let again = queues.swap_remove(round * 17 + usize::from(tni));
            again.free()?;
            gives!(UTOFU_ERR_INVALID_VCQ_HDL, utofu_free_vcq(again.hdl));
            let fresh = Queue::create(tni, 0)?;
            ensure_eq!(fresh.id, again.id, "the only VCQ that is left");
            ensure!(fresh.hdl != again.hdl, "a freed handle names a new VCQ");
            queues.push(fresh);
            let mut hdl = UNTOUCHED;
            gives! {
                UTOFU_ERR_FULL: utofu_create_vcq(tni, 0, &mut hdl);
                UTOFU_ERR_FULL: utofu_create_vcq(tni, THREAD_SAFE, &mut hdl);
                UTOFU_ERR_NOT_AVAILABLE: utofu_create_vcq(tni, EXCLUSIVE, &mut hdl);
                UTOFU_ERR_USED: utofu_create_vcq_with_cmp_id(tni, 0, 0, &mut hdl);
            }
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
            gives! { UTOFU_ERR_USED: utofu_create_vcq_with_cmp_id(tni, component, 0, &mut hdl); }
            ensure_eq!(hdl, UNTOUCHED, "the handle after an error");
            all.push(queue);
        }
        free_all(all)?;
        let mut hdl = 0;
        for flags in [EXCLUSIVE, SESSION_MODE, EXCLUSIVE | SESSION_MODE] {
            let code = c!(utofu_create_vcq_with_cmp_id(0, component, flags, &mut hdl));
            ensure!(code < 0, "{flags} with a component: {}", code_name(code));
        }
        Queue::with_component(0, component, THREAD_SAFE)?.free()?;
    }
    // A VCQ created without a component ID gets an ID that no other VCQ has.
    let mut all: Vec<Queue> = (0..4)
        .map(|component| Queue::with_component(0, component, 0))
        .collect::<Result<_, _>>()?;
    all.extend(exhaust(0, 0)?);
    let ids: BTreeSet<u64> = all.iter().map(|queue| queue.id).collect();
    ensure_eq!(ids.len(), 48, "VCQs with and without component ids");
    free_all(all)
}

fn exclusive_ends(_ctx: &Ctx) -> Verdict {
    let shared = Queue::create(0, 0)?;
    let exclusive = exhaust(0, EXCLUSIVE)?;
    ensure!(!exclusive.is_empty(), "no CQ-exclusive VCQ at all");
    let others = exhaust(0, 0)?;
    let mut cqs = BTreeSet::new();
    for queue in &exclusive {
        ensure!(cqs.insert(whereabouts(queue.id)?.1), "two VCQs on a CQ");
    }
    for queue in others.iter().chain([&shared]) {
        ensure!(!cqs.contains(&whereabouts(queue.id)?.1), "a shared CQ");
    }
    // A freed VCQ can be shared again.
    let count = exclusive.len();
    free_all(exclusive)?;
    let more = exhaust(0, 0)?;
    ensure_eq!(more.len(), count * 8, "VCQs on CQs that were exclusive");
    free_all(more)?;
    free_all(others)?;
    let again = exhaust(0, EXCLUSIVE | THREAD_SAFE)?;
    ensure_eq!(again.len(), count, "exclusive VCQs once more");
    free_all(again)?;
    shared.free()
}

fn session_ends(_ctx: &Ctx) -> Verdict {
    for tni in 0..6 {
        let queues = exhaust(tni, SESSION_MODE)?;
        ensure_eq!(queues.len(), 3 * 8, "session mode VCQs of TNI {tni}");
        let free = Queue::create(tni, 0)?;
        let cq = whereabouts(free.id)?.1;
        for queue in &queues {
            ensure!(whereabouts(queue.id)?.1 != cq, "both modes on CQ {cq}");
        }
        free.free()?;
        free_all(queues)?;
    }
    let mut hdl = 0;
    let both = c!(utofu_create_vcq(0, SESSION_MODE | EXCLUSIVE, &mut hdl));
    ensure!(both < 0, "both modes at once gave {}", code_name(both));
    Ok(())
}

fn vbgs_end(_ctx: &Ctx) -> Verdict {
    for round in 0..2 {
        for tni in 0..6 {
            let mut ids = [u64::MAX; 64];
            // One by one: start/end VBGs.
            for id in &mut ids[..16] {
                ok!(utofu_alloc_vbg(tni, 1, 0, id));
            }
            let mut more = [7u64; 2];
            gives! { UTOFU_ERR_FULL:
                utofu_alloc_vbg(tni, 1, 0, more.as_mut_ptr());
                utofu_alloc_vbg(tni, 2, 0, more.as_mut_ptr());
            }
            ensure_eq!(more, [7; 2], "ids after FULL");
            free_gate(ids[5])?;
            ok!(utofu_alloc_vbg(tni, 33, round, ids[16..].as_mut_ptr()));
            free_gate(ids[6])?;
            // A start/end VBG is left, but no relay; a failed allocation keeps no VBG.
            for _ in 0..20 {
                gives! { UTOFU_ERR_FULL: utofu_alloc_vbg(tni, 2, 0, more.as_mut_ptr()); }
            }
            ensure_eq!(more, [7; 2], "ids after FULL");
            ok!(utofu_alloc_vbg(tni, 1, 0, &mut ids[6]));
            gives! { UTOFU_ERR_FULL: utofu_alloc_vbg(tni, 1, 0, more.as_mut_ptr()); }
            let mut all: Vec<u64> = ids[..49].to_vec();
            all.remove(5);
            let different: BTreeSet<u64> = all.iter().copied().collect();
            ensure_eq!(different.len(), 48, "different VBG ids of TNI {tni}");
            ok!(utofu_free_vbg(ids[16..].as_ptr().cast_mut(), 33));
            for nth in (0..16).filter(|nth| *nth != 5) {
                free_gate(ids[nth])?;
                gives! { UTOFU_ERR_INVALID_VBG_ID:
                    utofu_free_vbg(std::ptr::from_ref(&ids[nth]).cast_mut(), 1);
                }
            }
            let mut whole = [0u64; 64];
            gives! { UTOFU_ERR_FULL:
                utofu_alloc_vbg(tni, 34, 0, whole.as_mut_ptr());
                utofu_alloc_vbg(tni, 48, 0, whole.as_mut_ptr());
                utofu_alloc_vbg(tni, usize::MAX, 0, whole.as_mut_ptr());
            }
            ok!(utofu_alloc_vbg(tni, 33, 0, whole.as_mut_ptr()));
            free_gates(&whole[..33])?;
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
            gives! { UTOFU_ERR_USED:
                utofu_reg_mem_with_stag(one.hdl, memory.base.cast(), 256, stag, 0, &mut again);
            }
            ensure_eq!(again, 7, "the STADD after USED");
            // Another VCQ has separate ones.
            let theirs = other.register_as(memory, stag)?;
            other.deregister(theirs)?;
        }
        for stag in 0..256 {
            one.deregister(stadd_of(one.id, stag)?)?;
            let twice = c!(utofu_dereg_mem(one.hdl, stadd_of(one.id, stag)?, 0));
            ensure_eq!(twice, UTOFU_ERR_INVALID_STADD, "deregistering twice");
        }
    }
    one.free()?;
    other.free()
}

fn stadds_end(_ctx: &Ctx) -> Verdict {
    let queue = Queue::with_component(0, 3, 0)?;
    let memory = Memory::new(1 << 16);
    let mut stadds = Vec::new();
    let code = loop {
        let mut stadd = 7;
        let nth = stadds.len();
        let at = memory.base.wrapping_add(nth % (1 << 16));
        let flags = (nth >> 16) as u64 & 1;
        match c!(utofu_reg_mem(queue.hdl, at.cast(), 1, flags, &mut stadd)) {
            SUCCESS => stadds.push(stadd),
            code => {
                ensure_eq!(stadd, 7, "the STADD after an error");
                break code;
            }
        }
        ensure!(stadds.len() < 1 << 17, "STADDs without end");
    };
    ensure_eq!(code, UTOFU_ERR_FULL, "after {} registrations", stadds.len());
    ensure!(stadds.len() >= 1000, "only {} STADDs", stadds.len());
    let different: BTreeSet<u64> = stadds.iter().copied().collect();
    ensure_eq!(different.len(), stadds.len(), "different STADDs");
    let last = stadds.pop().unwrap_or_default();
    queue.deregister(last)?;
    let end = memory.at((1 << 16) - 1);
    let again = got!(utofu_reg_mem(queue.hdl, end.cast(), 1, 0));
    queue.deregister(again)?;
    for_all(stadds, |stadd| queue.deregister(stadd))?;
    queue.free()
}

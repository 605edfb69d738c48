//! §3.1.1.1, §3.2, §3.3 and §3.5: the names and properties of TNIs, VCQs and paths.

use std::collections::BTreeSet;
use std::ptr::null;

use super::kit::*;
use super::tni::tnis;
use crate::kit::Child;

laws! {
    shares: "tni.shares", "§3.2.1.1, §3.2.1.3", 1,
        [get_onesided_tnis, query_onesided_caps, create_vcq, create_vcq_with_cmp_id, get_barrier_tnis, alloc_vbg] + bare,
        "a process that shares its node gets the TNIs on which it can create VCQs; on others it has neither VCQs nor capabilities";
    handles: "vcq.handles", "§3.1.1.1, §3.3.3.1", 1, [create_vcq, create_vcq_with_cmp_id, query_vcq_id, query_vcq_info],
        "VCQs of all kinds that live at the same time have handles, ids and queues of their own, on the TNI that was asked for";
    all_different: "vcq.path.embedded", "§3.3.2.1 to §3.3.2.3", 2, [set_vcq_id_path, query_vcq_id, construct_vcq_id],
        "an id contains its path: twelve paths give twelve ids, and the path's A, B, C construct the same id";
    two_paths with(256): "path.of-embedded", "§3.5.1.1, §3.7", 2, [get_path_id, get_path_coords, set_vcq_id_path, put],
        "a path id can be made for an id with any embedded path, and both together lead to the VCQ";
}

const TNIS: u16 = 6;

/// The resources of one of 48 processes of a node.
fn is_a_share() -> Verdict {
    let mine = tnis(false)?;
    ensure!((1..TNIS as usize).contains(&mine.len()), "{mine:?} of 54");
    for tni in 0..TNIS {
        let (mut caps, mut hdl) = (null_mut(), 77);
        if mine.contains(&tni) {
            ok!(utofu_query_onesided_caps(tni, &mut caps));
            Queue::create(tni, 0)?.free()?;
            Queue::with_component(tni, 0, 0)?.free()?;
            continue;
        }
        gives! {
            UTOFU_ERR_INVALID_TNI_ID: utofu_query_onesided_caps(tni, &mut caps);
            UTOFU_ERR_FULL: utofu_create_vcq(tni, 0, &mut hdl);
            UTOFU_ERR_FULL: utofu_create_vcq_with_cmp_id(tni, 0, 0, &mut hdl);
        }
        for flags in [EXCLUSIVE, SESSION_MODE] {
            gives! { UTOFU_ERR_NOT_AVAILABLE: utofu_create_vcq(tni, flags, &mut hdl); }
        }
        ensure!(caps.is_null() && hdl == 77, "something was written");
    }
    // All TNIs have VBGs: processes take them first come, first served.
    equal!(tnis(true)?.len(), usize::from(TNIS), "TNIs with VBGs")
}

fn shares(ctx: &Ctx) -> Verdict {
    let job = format!("law-{}-{}", std::process::id(), ctx.seed);
    for rank in ["0", "5", "7", "47"] {
        let environment = [
            ("UNIPGAS_TOFU_PPN", "48"),
            ("UNIPGAS_JOB", job.as_str()),
            ("UNIPGAS_RANK", rank),
            ("UNIPGAS_SIZE", "48"),
        ];
        Child::start(&environment, is_a_share)?.succeeds(&format!("rank {rank} of 48"))?;
    }
    Ok(())
}

fn handles(_: &Ctx) -> Verdict {
    let own = my_coords()?;
    let mut all = Vec::new();
    for tni in 0..TNIS {
        for flags in [
            0,
            THREAD_SAFE,
            EXCLUSIVE,
            SESSION_MODE,
            EXCLUSIVE | THREAD_SAFE,
            0,
        ] {
            all.push((tni, Queue::create(tni, flags)?));
        }
        all.push((tni, Queue::with_component(tni, 2, 0)?));
    }
    let hdls: BTreeSet<usize> = all.iter().map(|(_, queue)| queue.hdl).collect();
    ensure_eq!(hdls.len(), all.len(), "different handles");
    let ids: BTreeSet<u64> = all.iter().map(|(_, queue)| queue.id).collect();
    ensure_eq!(ids.len(), all.len(), "different ids");
    for (nth, (tni, queue)) in all.iter().enumerate() {
        let id = got!(utofu_query_vcq_id(queue.hdl));
        ensure_eq!(id, queue.id, "the id behind a handle");
        let (at, on, cq, _) = vcq_info(id)?;
        ensure_eq!((at, on), (own, *tni), "place of {id:#x}");
        ensure!(cq < 9, "CQ {cq} of {id:#x}");
        // A session mode VCQ starts commands only on an arrival, so only the others get this command.
        if nth % 7 != 3 {
            ok!(utofu_nop(queue.hdl, TCQ, cb(nth + 1)));
        }
    }
    for (nth, (_, queue)) in all.iter().enumerate() {
        if nth % 7 != 3 {
            ensure_eq!(queue.tcq()?, nth + 1, "cbdata");
        }
        queue.tcq_is_empty()?;
    }
    all.into_iter().try_for_each(|(_, queue)| queue.free())
}

/// Every path of the network: A is 0 or 1, B 0 to 2, C 0 or 1.
pub(super) fn every_path() -> impl Iterator<Item = [u8; 3]> {
    (0..12).map(|nth| [nth / 6, nth / 2 % 3, nth % 2])
}

fn all_different(ctx: &Ctx) -> Verdict {
    let queue = Queue::with_component(TNI, 0, 0)?;
    for (id, rank) in [
        (queue.id, ctx.rank),
        (vcq_of(ctx.rank ^ 1, TNI, 0)?, ctx.rank ^ 1),
    ] {
        let own: [u8; 3] = coords(rank)?[3..].try_into().expect("three");
        let mut seen = BTreeSet::new();
        for path in every_path() {
            let mut with = id;
            set_path(&mut with, &path)?;
            ensure_eq!(with == id, path == own, "if {path:?} is in {id:#x}");
            ensure!(seen.insert(with), "{path:?} gives the id of another path");
        }
        // The path that the library chooses is one of them.
        let mut chosen = id;
        ok!(utofu_set_vcq_id_path(&mut chosen, null_mut()));
        ensure!(seen.contains(&chosen), "{chosen:#x} has a strange path");
    }
    queue.free()
}

fn two_paths(job: &Job<'_>) -> Verdict {
    let peer = job.right();
    let mut value = 0;
    for embedded in every_path() {
        let mut vcq = job.vcq(peer);
        set_path(&mut vcq, &embedded)?;
        for asked in every_path().map(Some).chain([None]) {
            let coords = asked.as_ref().map_or(null(), |path| path.as_ptr());
            let (mut id, mut seen) = (0, [0xee; 4]);
            ok!(utofu_get_path_id(vcq, coords.cast_mut(), &mut id));
            ok!(utofu_get_path_coords(vcq, id, seen.as_mut_ptr()));
            ensure_eq!(seen[3], 0xee, "the byte behind the coordinates");
            if let Some(path) = asked {
                ensure_eq!(seen[..3], path, "coordinates of path id {id}");
            }
            value += 1;
            let put = post::put_piggyback8(job.hdl, vcq, value, job.at(peer, 8), 8);
            put.ok(0, LOCAL | path(id), 0)?;
            let (code, notice) = job.queue.next_mrq()?;
            let what = format!("a put over {asked:?} to an id with {embedded:?}");
            code_is(code, SUCCESS, &what)?;
            ensure_eq!(notice.vcq_id, job.vcq(peer), "the VCQ of {what}");
        }
        job.meet();
        ensure_eq!(job.memory.get(8), value, "the last put");
        job.meet();
    }
    Ok(())
}

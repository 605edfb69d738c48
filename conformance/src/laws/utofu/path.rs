//! §2.4, §3.5 communication paths.

use std::collections::BTreeSet;

use super::interface_management::every_path;
use super::kit::*;

laws! {
    round_trip: "path", "§3.5.1.1, §3.5.1.2", 2, [get_path_id, get_path_coords],
        "a path id contains the coordinates that it was made from, for each remote VCQ";
    at_most_twelve: "path.twelve", "§2.4", 2, [get_path_id],
        "there are at most 12 paths: every coordinate is refused or gives one of 12 ids";
    chosen: "path.null", "§3.5.1.1", 2, [get_path_id, get_path_coords],
        "without coordinates a path of the network is chosen";
    any_path_delivers with(256): "path.put", "§3.7.9.2", 2, [put, get, armw8, get_path_id],
        "communication works over every path, and notices name the peer with its own default path";
    flags_before_id with(256): "path.flags", "§3.7", 2, [put, set_vcq_id_path, get_path_id],
        "a path in the flags and one in the id may be given together";
}

/// All paths to a VCQ that the library accepts.
fn paths(vcq: u64) -> Vec<([u8; 3], u8)> {
    let mut paths = Vec::new();
    for coords in every_path() {
        let mut id = u8::MAX;
        if c!(utofu_get_path_id(vcq, coords.as_ptr().cast_mut(), &mut id)) == SUCCESS {
            paths.push((coords, id));
        }
    }
    paths
}

fn round_trip(ctx: &Ctx) -> Verdict {
    for rank in 0..ctx.size {
        let vcq = vcq_of(rank, TNI, 0)?;
        let paths = paths(vcq);
        let own: [u8; 3] = coords(rank)?[3..].try_into().expect("three");
        let is_own = paths.iter().any(|(coords, _)| *coords == own);
        ensure!(
            is_own,
            "no path over the coordinates {own:?} of rank {rank}"
        );
        for (coords, id) in paths {
            let mut seen = [u8::MAX; 3];
            ok!(utofu_get_path_coords(vcq, id, seen.as_mut_ptr()));
            ensure_eq!(seen, coords, "coordinates of path id {id}");
        }
    }
    Ok(())
}

fn at_most_twelve(ctx: &Ctx) -> Verdict {
    let vcq = vcq_of((ctx.rank + 1) % ctx.size, TNI, 0)?;
    let mut ids = BTreeSet::new();
    for a in (0..8).chain([254, 255]) {
        for b in (0..8).chain([254, 255]) {
            for c in (0..8).chain([254, 255]) {
                let mut id = 0;
                let coords = [a, b, c];
                let code = c!(utofu_get_path_id(vcq, coords.as_ptr().cast_mut(), &mut id));
                match code {
                    SUCCESS => drop(ids.insert(id)),
                    code => ensure_eq!(code, UTOFU_ERR_INVALID_PATH, "for path {a}, {b}, {c}"),
                }
            }
        }
    }
    ensure!((1..=12).contains(&ids.len()), "{} paths", ids.len());
    Ok(())
}

fn chosen(ctx: &Ctx) -> Verdict {
    for rank in 0..ctx.size {
        let vcq = vcq_of(rank, TNI, 0)?;
        let mut id = u8::MAX;
        ok!(utofu_get_path_id(vcq, null_mut(), &mut id));
        let mut coords = [u8::MAX; 3];
        ok!(utofu_get_path_coords(vcq, id, coords.as_mut_ptr()));
        let known = paths(vcq).contains(&(coords, id));
        ensure!(known, "path {id} over {coords:?} is none of the network's");
    }
    Ok(())
}

fn any_path_delivers(job: &Job<'_>) -> Verdict {
    let peer = job.right();
    let vcq = job.vcq(peer);
    for (nth, (coords, id)) in paths(vcq).into_iter().enumerate() {
        let flags = LOCAL | REMOTE | path(id);
        let value = nth as u64 + 1;
        job.memory.set(0, value);
        job.put(peer, 0, 8, 8).ok(0, flags, 0)?;
        job.armw8(peer, 16, ADD, 1).ok(0, flags, 0)?;
        job.get(peer, 24, 32, 8).ok(0, flags, 0)?;
        let mut named = vcq;
        set_path(&mut named, &coords)?;
        post::put(job.hdl, named, job.stadd, job.at(peer, 40), 8).ok(0, LOCAL | REMOTE, 0)?;
        for _ in 0..8 {
            let notice = job.queue.mrq()?;
            let local = notice.notice_type % 2 == 0;
            let expected = if local { vcq } else { job.vcq(job.left()) };
            ensure_eq!(notice.vcq_id, expected, "the peer in a notice");
        }
        job.meet();
        let seen = job.memory.words([8, 16, 40]);
        let what = format!("put, sum, and put to an id, over {coords:?}");
        ensure_eq!(seen, [value; 3], "{what}");
        job.meet();
    }
    Ok(())
}

fn flags_before_id(job: &Job<'_>) -> Verdict {
    let peer = job.right();
    let mut vcq = job.vcq(peer);
    set_path(&mut vcq, &[0u8, 1, 1])?;
    let id = got!(utofu_get_path_id(vcq, [0u8, 2, 0].as_ptr().cast_mut()));
    job.memory.set(0, 5);
    let notice = post::put(job.hdl, vcq, job.stadd, job.at(peer, 8), 8).noticed(0, path(id))?;
    ensure_eq!(notice.vcq_id, job.vcq(peer), "the peer in the notice");
    job.meet();
    equal!(job.memory.get(8), 5, "what was put")
}

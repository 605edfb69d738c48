//! §2.2.1, §3.3 VCQ management.

use super::kit::*;

laws! {
    first_is_computable: "vcq.construct", "§3.3.2.2", 3, [construct_vcq_id, query_vcq_id, create_vcq_with_cmp_id],
        "the id of a VCQ with a component id equals the computed one, on every TNI, here and for peers";
    taken_apart: "vcq.info", "§3.3.3.1", 3, [query_vcq_info, construct_vcq_id],
        "an id is taken apart to the coordinates, TNI and CQ, whether or not there is such a VCQ, here or remote";
    unique with(8192): "vcq.unique", "§3.3.2.1", 4, [create_vcq, query_vcq_id],
        "ids of VCQs that live at the same time differ, in the process and in the job";
    components: "vcq.component", "§3.3.1.2", 2, [create_vcq_with_cmp_id, create_vcq, free_vcq],
        "a component id is USED until its VCQ is freed, and create_vcq takes a free one";
    path_is_local: "vcq.path.local", "§3.3.2.3", 2, [set_vcq_id_path, query_vcq_id, construct_vcq_id],
        "a default path changes in the variable alone; the last call counts; coordinates, TNI and CQ stay";
    path_chosen with(256): "vcq.path.null", "§3.3.2.3", 2, [set_vcq_id_path, put],
        "without coordinates a path is chosen, and communication over it works";
    contexts with(256): "vcq.contexts", "§3.3", 2, [create_vcq, poll_mrq, poll_tcq],
        "VCQs of one TNI have completions of their own";
    again: "vcq.again", "§3.3.1.3", 2, [free_vcq, create_vcq_with_cmp_id, put_piggyback8],
        "a VCQ that is made again under its id begins empty, and peers reach it";
    freed_handle: "vcq.freed", "§3.3.1.3", 1, [free_vcq, query_vcq_id],
        "a handle that was freed is wrong, also when its id is in use again";
}

fn first_is_computable(ctx: &Ctx) -> Verdict {
    for tni in 0..6 {
        for component in [0, 3, 7] {
            let queue = Queue::with_component(tni, component, 0)?;
            ensure_eq!(queue.id, vcq_of(ctx.rank, tni, component)?, "id on {tni}");
            ctx.sync();
            // The peers' VCQs exist at the same time; this rank computes their IDs.
            for rank in 0..ctx.size {
                let id = vcq_of(rank, tni, component)?;
                ensure!((id == queue.id) == (rank == ctx.rank), "{rank}: {id:#x}");
                let put = post::put_piggyback8(queue.hdl, id, 0, stadd_of(id, 0)?, 0);
                put.ok(7, LOCAL | REMOTE, 0)?;
            }
            // No memory is registered: the error codes show that the VCQs exist.
            for _ in 0..ctx.size {
                let (code, notice) = queue.next_mrq()?;
                let what = format!("a notice from {:#x}", notice.vcq_id);
                one_of(code, &[UTOFU_ERR_MRQ_RMT_STADD, SUCCESS], what)?;
            }
            ctx.sync();
            queue.free()?;
        }
    }
    Ok(())
}

/// Coordinates, TNI and CQ.
fn info(id: u64) -> Result<([u8; 6], u16, u16), String> {
    vcq_info(id).map(|(coords, tni, cq, _)| (coords, tni, cq))
}

fn taken_apart(ctx: &Ctx) -> Verdict {
    let queue = Queue::with_component(TNI, 0, 0)?;
    for rank in 0..ctx.size {
        let at = coords(rank)?;
        for tni in 0..6 {
            for cq in 0..9 {
                for component in 0..8 {
                    let id = vcq_id(&at, tni, cq, component)?;
                    ensure_eq!(info(id)?, (at, tni, cq), "parts of {id:#x}");
                }
            }
        }
    }
    queue.free()
}

fn unique(job: &Job<'_>) -> Verdict {
    let queues = (0..24).map(|i| Queue::create(i % 6, 0));
    let queues = queues.collect::<Result<Vec<_>, _>>()?;
    for (i, queue) in queues.iter().enumerate() {
        for rank in 0..job.size {
            job.write(rank, 1024 * job.rank as usize + 8 * i, queue.id)?;
        }
    }
    job.meet();
    let mut ids = vec![job.queue.id];
    for rank in 0..job.size as usize {
        ids.extend((0..queues.len()).map(|i| job.memory.get(1024 * rank + 8 * i)));
    }
    let all = ids.len();
    ids.sort();
    ids.dedup();
    ensure_eq!(ids.len(), all, "different ids");
    queues.into_iter().try_for_each(Queue::free)
}

fn components(_: &Ctx) -> Verdict {
    let free = Queue::create(TNI, 0)?;
    let mut hdl = 0;
    for component in [0u16, 1, 5] {
        let queue = Queue::with_component(TNI, component, 0)?;
        gives! { UTOFU_ERR_USED: utofu_create_vcq_with_cmp_id(TNI, component, 0, &mut hdl); }
        // The same component on another TNI is another VCQ.
        Queue::with_component(TNI + 1, component, 0)?.free()?;
        let other = Queue::create(TNI, 0)?;
        ensure!(other.id != queue.id, "create_vcq gave a taken component");
        other.free()?;
        queue.free()?;
        Queue::with_component(TNI, component, 0)?.free()?;
    }
    free.free()
}

fn path_is_local(ctx: &Ctx) -> Verdict {
    let queue = Queue::with_component(TNI, 0, 0)?;
    let peer = vcq_of((ctx.rank + 1) % ctx.size, TNI, 0)?;
    for id in [queue.id, peer] {
        let (one, mut two) = (id, id);
        for path in [[0u8, 0, 0], [0, 1, 0], [0, 1, 1], [0, 2, 1]] {
            set_path(&mut two, &path)?;
            ensure_eq!(info(two)?, info(one)?, "parts with path {path:?}");
        }
        let mut last = id;
        set_path(&mut last, &[0u8, 2, 1])?;
        ensure_eq!(two, last, "an id with its path set four times");
        ensure_eq!(one, id, "the other variable");
        // The node's own coordinates are the ID's original path.
        let at = info(id)?.0;
        set_path(&mut two, &at[3..])?;
        ensure_eq!(two, id, "the id with the path that it was made with");
    }
    let again = got!(utofu_query_vcq_id(queue.hdl));
    ensure_eq!(again, queue.id, "the id that is asked for again");
    queue.free()
}

fn path_chosen(job: &Job<'_>) -> Verdict {
    let mut peer = job.vcq(job.right());
    ok!(utofu_set_vcq_id_path(&mut peer, null_mut()));
    job.memory.set(0, 0x77);
    post::put(job.hdl, peer, job.stadd, job.at(job.right(), 8), 8).noticed(0, 0)?;
    job.meet();
    equal!(job.memory.get(8), 0x77, "what was put")
}

fn contexts(job: &Job<'_>) -> Verdict {
    let second = Queue::with_component(TNI, 1, 0)?;
    let memory = second.register_as(job.memory, 0)?;
    job.meet();
    // Both ways between the first VCQ and the peer's second one.
    let to = vcq_of(job.right(), TNI, 1)?;
    post::put_piggyback8(job.hdl, to, 0, stadd_of(to, 0)?, 0).ok(1, TCQ, 0)?;
    let (first, there) = (job.vcq(job.right()), job.at(job.right(), 0));
    let notice = post::put_piggyback8(second.hdl, first, 5, there, 8).noticed(2, REMOTE)?;
    ensure_eq!(notice.vcq_id, first, "the local peer");
    let notice = job.queue.notice(RMT_PUT)?;
    let from = vcq_of(job.left(), TNI, 1)?;
    ensure_eq!(notice.vcq_id, from, "the peer of the remote notice");
    ensure_eq!(notice.edata, 2, "edata");
    let (_, cbdata) = job.queue.next_tcq()?;
    ensure_eq!(cbdata, 0, "cbdata");
    second.tcq_is_empty()?;
    job.meet();
    second.mrq_is_empty()?;
    second.close(memory)
}

fn again(ctx: &Ctx) -> Verdict {
    let memory = Memory::new(256);
    for round in 1..=20u64 {
        let queue = Queue::with_component(TNI, 2, 0)?;
        queue.has_nothing()?;
        ensure_eq!(queue.unread_tcq()?, 0, "unread entries of a new VCQ");
        let stadd = queue.register_as(memory, 5)?;
        ctx.sync();
        let peer = vcq_of((ctx.rank + 1) % ctx.size, TNI, 2)?;
        // Two puts: the notices of the second one stay unread.
        for cbdata in 1..=2 {
            let to = stadd_of(peer, 5)? + 8;
            let put = post::put_piggyback8(queue.hdl, peer, round, to, 8);
            put.ok(round, LOCAL | REMOTE | TCQ, cbdata)?;
        }
        ensure_eq!(queue.tcq()?, 1, "cbdata");
        queue.mrq()?;
        queue.mrq()?;
        until("the put", || memory.get(8) == round)?;
        let mut got = 0;
        post::get(queue.hdl, peer, stadd, stadd_of(peer, 5)? + 8, 8).ok(99, LOCAL, 0)?;
        until("the notice of the get", || {
            while let (SUCCESS, notice) = queue.poll_mrq() {
                if notice.notice_type == LCL_GET {
                    got = memory.get(0);
                }
            }
            got != 0
        })?;
        ensure_eq!(got, round, "the data of the get");
        ctx.sync();
        queue.close(stadd)?;
        ctx.sync();
    }
    Ok(())
}

fn freed_handle(_: &Ctx) -> Verdict {
    let queue = Queue::with_component(TNI, 4, 0)?;
    let mut id = 0;
    queue.free()?;
    gives! { UTOFU_ERR_INVALID_VCQ_HDL:
        utofu_query_vcq_id(queue.hdl, &mut id);
        utofu_free_vcq(queue.hdl);
    }
    let again = Queue::with_component(TNI, 4, 0)?;
    ensure_eq!(again.id, queue.id, "the id");
    gives! { UTOFU_ERR_INVALID_VCQ_HDL: utofu_query_vcq_id(queue.hdl, &mut id); }
    again.free()
}

//! Invalid names and null pointers: the code that refuses them, without an effect at any rank.

use std::ptr::null;

use super::kit::*;

laws! {
    null_results: "bad.null-results", "§5.7", 1,
        [gaspi_proc_rank, gaspi_proc_num, gaspi_config_get, gaspi_state_vec_get, gaspi_group_create, gaspi_group_num,
         gaspi_group_size, gaspi_group_ranks, gaspi_segment_num, gaspi_segment_list, gaspi_segment_ptr, gaspi_notify_waitsome,
         gaspi_notify_reset, gaspi_queue_create, gaspi_queue_size, gaspi_atomic_fetch_add, gaspi_atomic_compare_swap,
         gaspi_version, gaspi_time_get, gaspi_time_ticks, gaspi_print_error, gaspi_group_max, gaspi_segment_max,
         gaspi_queue_num, gaspi_queue_size_max, gaspi_queue_max, gaspi_transfer_size_max, gaspi_notification_num,
         gaspi_passive_transfer_size_max, gaspi_atomic_max, gaspi_allreduce_buf_size, gaspi_allreduce_elem_max,
         gaspi_network_type, gaspi_build_infrastructure],
        "a null pointer for a result gives GASPI_ERR_NULLPTR, and the call has no other effect";
    null_inputs: "bad.null-inputs", "§5.7", 1,
        [gaspi_write_list, gaspi_read_list, gaspi_write_list_notify, gaspi_read_list_notify, gaspi_allreduce,
         gaspi_allreduce_user, gaspi_segment_bind, gaspi_segment_use],
        "a null pointer for data, lists or operations gives GASPI_ERR_NULLPTR";
    unknown_segments: "bad.segments", "§5.7", 2,
        [gaspi_write, gaspi_read, gaspi_notify, gaspi_write_notify, gaspi_read_notify, gaspi_segment_register, gaspi_segment_delete,
         gaspi_segment_ptr, gaspi_notify_waitsome, gaspi_notify_reset, gaspi_atomic_fetch_add, gaspi_atomic_compare_swap],
        "segments that do not exist are refused by GASPI_ERR_INV_SEG";
    unknown_queues: "bad.queues", "§5.7", 2,
        [gaspi_write, gaspi_read, gaspi_notify, gaspi_wait, gaspi_queue_size, gaspi_queue_delete, gaspi_queue_purge],
        "queues that do not exist are refused by GASPI_ERR_INV_QUEUE";
    unknown_ranks: "bad.ranks", "§5.7", 2,
        [gaspi_write, gaspi_read, gaspi_notify, gaspi_group_add, gaspi_connect, gaspi_segment_register, gaspi_proc_kill,
         gaspi_atomic_fetch_add, gaspi_atomic_compare_swap],
        "ranks that do not exist are refused by GASPI_ERR_INV_RANK";
    unknown_groups: "bad.groups", "§5.7", 2,
        [gaspi_barrier, gaspi_allreduce, gaspi_group_add, gaspi_group_commit, gaspi_group_delete, gaspi_group_size,
         gaspi_group_ranks, gaspi_segment_create],
        "groups that do not exist are refused by GASPI_ERR_INV_GROUP";
    group_misuse: "bad.group-misuse", "§6.3", 3, [gaspi_group_add, gaspi_group_commit, gaspi_group_delete],
        "empty groups, strangers' groups, ranks added twice or after the commit: refused, and the group stays as it was";
    reductions: "bad.reductions", "§11.3.1", 2, [gaspi_allreduce, gaspi_allreduce_user],
        "reductions of no element, of unknown operations and types are refused, and the result is left alone";
    alive_afterwards: "bad.random", "§5.7", 2,
        [gaspi_write, gaspi_read, gaspi_write_notify, gaspi_read_notify, gaspi_notify, gaspi_atomic_fetch_add] + ordering,
        "calls with random arguments do exactly what a model of the checks says, and never more";
}

fn null_results(_: &Ctx) -> Verdict {
    segment(0, 64)?;
    let (groups, queues) = (got!(gaspi_group_num()), got!(gaspi_queue_num()));
    gives! { GASPI_ERR_NULLPTR:
        gaspi_proc_rank(null_mut());
        gaspi_proc_num(null_mut());
        gaspi_proc_local_rank(null_mut());
        gaspi_proc_local_num(null_mut());
        gaspi_proc_incarnation(null_mut());
        gaspi_initialized(null_mut());
        gaspi_config_get(null_mut());
        gaspi_state_vec_get(null_mut());
        gaspi_state_vec_get_17(null_mut());
        gaspi_group_create(null_mut());
        gaspi_group_num(null_mut());
        gaspi_group_size(ALL, null_mut());
        gaspi_group_ranks(ALL, null_mut());
        gaspi_segment_num(null_mut());
        gaspi_segment_list(1, null_mut());
        gaspi_segment_ptr(0, null_mut());
        gaspi_segment_size(0, 0, null_mut());
        gaspi_segment_avail_local(null_mut());
        gaspi_notify_waitsome(0, 0, 1, null_mut(), TEST);
        gaspi_notify_waitsome(0, 0, 1, null_mut(), BLOCK);
        gaspi_queue_create(null_mut(), LONG);
        gaspi_queue_size(0, null_mut());
        gaspi_version(null_mut());
        gaspi_time_get(null_mut());
        gaspi_time_ticks(null_mut());
        gaspi_time_resolution(null_mut());
        gaspi_cpu_frequency(null_mut());
        gaspi_numa_socket(null_mut());
        gaspi_print_error(0, null_mut());
        gaspi_error_message(0, null_mut());
    }
    macro_rules! getters {
        ($($name:ident)*) => {$( gives!(GASPI_ERR_NULLPTR, $name(null_mut())); )*};
    }
    getters! {
        gaspi_group_max gaspi_segment_max gaspi_queue_num gaspi_queue_size_max gaspi_queue_max gaspi_transfer_size_max
        gaspi_transfer_size_min gaspi_notification_num gaspi_passive_transfer_size_max gaspi_atomic_max
        gaspi_allreduce_buf_size gaspi_allreduce_elem_max gaspi_rw_list_elem_max gaspi_network_type
        gaspi_build_infrastructure
    }
    // No effect: no new group, no new queue, no addition.
    let (mut seen, mut old, mut value) = (0, 0, 0);
    ok!(gaspi_group_num(&mut seen));
    ensure_eq!(seen, groups, "groups after create with a null place");
    ok!(gaspi_queue_num(&mut seen));
    ensure_eq!(seen, queues, "queues after create with a null place");
    ok!(gaspi_notify(0, 0, 4, 9, 0, LONG));
    ok!(gaspi_notify_waitsome(0, 4, 1, &mut seen, LONG));
    // A null pointer is valid here: the program does not want the value.
    ok!(gaspi_notify_reset(0, 4, null_mut()));
    ok!(gaspi_notify_reset(0, 4, &mut value));
    ensure_eq!(value, 0, "the notification after a reset without a place");
    gives! { GASPI_ERR_NULLPTR:
        gaspi_atomic_fetch_add(0, 0, 0, 1, null_mut(), LONG);
        gaspi_atomic_compare_swap(0, 0, 0, 0, 1, null_mut(), LONG);
    }
    ok!(gaspi_atomic_fetch_add(0, 0, 0, 0, &mut old, LONG));
    equal!(old, 0, "the value after atomics with a null place")
}

fn null_inputs(_: &Ctx) -> Verdict {
    let memory = segment(0, 64)?;
    memory.fill(3);
    let (ids, at, size) = ([0u8], [8u64], [8u64]);
    let (ids, at, size) = (ids.as_ptr(), at.as_ptr(), size.as_ptr());
    for missing in 0..5 {
        let mine = if missing == 0 { null() } else { ids };
        let from = if missing == 1 { null() } else { at };
        let theirs = if missing == 2 { null() } else { ids };
        let to = if missing == 3 { null() } else { at };
        let size = if missing == 4 { null() } else { size };
        gives! { GASPI_ERR_NULLPTR:
            gaspi_write_list(1, mine, from, 0, theirs, to, size, 0, LONG);
            gaspi_read_list(1, mine, from, 0, theirs, to, size, 0, LONG);
            gaspi_write_list_notify(1, mine, from, 0, theirs, to, size, 0, 0, 1, 0, LONG);
            gaspi_read_list_notify(1, mine, from, 0, theirs, to, size, 0, 0, 0, LONG);
        }
    }
    none_notified(0, 0, 10)?;
    ensure_eq!(queue_size(0)?, 0, "the queue's size after refusals");
    let (send, mut receive) = ([1u8; 8], [9u8; 8]);
    let (from, into, no, add) = (
        send.as_ptr(),
        receive.as_mut_ptr(),
        null_mut(),
        Some(add as _),
    );
    gives! { GASPI_ERR_NULLPTR:
        gaspi_allreduce(null(), into, 1, 2, 5, ALL, LONG);
        gaspi_allreduce(from, null_mut(), 1, 2, 5, ALL, LONG);
        gaspi_allreduce(null(), null_mut(), 1, 2, 5, ALL, LONG);
        gaspi_allreduce_user(from, into, 1, 8, None, no, ALL, LONG);
        gaspi_allreduce_user_17(from, into, 1, 8, None, no, ALL, LONG);
        gaspi_allreduce_user(null(), into, 1, 8, add, no, ALL, LONG);
        gaspi_allreduce_user(from, null_mut(), 1, 8, add, no, ALL, LONG);
    }
    ensure_eq!(receive, [9; 8], "the result of refused reductions");
    gives! { GASPI_ERR_NULLPTR:
        gaspi_segment_bind(1, null_mut(), 64, 0);
        gaspi_segment_use(1, null_mut(), 64, ALL, LONG, 0);
    }
    ensure_eq!(got!(gaspi_segment_num()), 1, "segments after refusals");
    memory.all(0, 64, 3, "the segment")
}

operation! { add(_, _, _, _, _, _) { SUCCESS } }

/// Runs `calls` beside two segments with a pattern at every rank. Fails if a call changes a segment or sets a notification.
pub(super) fn untouched(ctx: &Ctx, calls: impl FnOnce(u16) -> Verdict) -> Verdict {
    let (one, two) = (segment(0, 256)?, segment(1, 256)?);
    one.fill(0xa5);
    two.fill(0x5a);
    barrier()?;
    calls(right(ctx))?;
    for queue in 0..8 {
        ensure_eq!(queue_size(queue)?, 0, "size of queue {queue}, refused");
        flush(queue)?;
    }
    barrier()?;
    one.all(0, 256, 0xa5, "after refused calls")?;
    two.all(0, 256, 0x5a, "after refused calls")?;
    none_notified(0, 0, 65_536)?;
    none_notified(1, 0, 65_536)?;
    barrier()?;
    // A valid call still works.
    ok!(gaspi_write_notify(0, 0, right(ctx), 1, 8, 8, 3, 1, 0, LONG));
    notified(1, 3)?;
    two.all(8, 8, 0xa5, "the valid write after refused ones")?;
    two.all(16, 240, 0x5a, "behind the valid write")?;
    flush(0)?;
    barrier()
}

fn unknown_segments(ctx: &Ctx) -> Verdict {
    untouched(ctx, |peer| {
        for id in [2u8, 100, 254, 255] {
            let (mut pointer, mut size, mut number, mut old) = (null_mut(), 0, 0, 7);
            gives! { GASPI_ERR_INV_SEG:
                gaspi_write(id, 0, peer, 0, 0, 8, 0, LONG);
                gaspi_write(0, 0, peer, id, 0, 8, 0, LONG);
                gaspi_read(id, 0, peer, 0, 0, 8, 0, LONG);
                gaspi_read(0, 0, peer, id, 0, 8, 0, LONG);
                gaspi_notify(id, peer, 0, 1, 0, LONG);
                gaspi_write_notify(id, 0, peer, 0, 0, 8, 0, 1, 0, LONG);
                gaspi_write_notify(0, 0, peer, id, 0, 8, 0, 1, 0, LONG);
                gaspi_read_notify(id, 0, peer, 0, 0, 8, 0, 0, LONG);
                gaspi_read_notify(0, 0, peer, id, 0, 8, 0, 0, LONG);
                gaspi_segment_register(id, peer, LONG);
                gaspi_segment_delete(id);
                gaspi_segment_ptr(id, &mut pointer);
                gaspi_segment_size(id, 0, &mut size);
                gaspi_segment_size(id, 1, &mut size);
                gaspi_notify_waitsome(id, 0, 1, &mut number, TEST);
                gaspi_notify_waitsome(id, 0, 1, &mut number, BLOCK);
                gaspi_notify_reset(id, 0, &mut number);
                gaspi_atomic_fetch_add(id, 0, peer, 1, &mut old, LONG);
                gaspi_atomic_compare_swap(id, 0, peer, 0, 1, &mut old, LONG);
            }
            ensure_eq!(old, 7, "the old value of refused atomics");
        }
        Ok(())
    })
}

fn unknown_queues(ctx: &Ctx) -> Verdict {
    untouched(ctx, |peer| {
        let (ids, at, size) = ([0u8], [8u64], [8u64]);
        let (ids, at, size) = (ids.as_ptr(), at.as_ptr(), size.as_ptr());
        for queue in [8u8, 15, 16, 17, 255] {
            gives! { GASPI_ERR_INV_QUEUE:
                gaspi_write(0, 0, peer, 0, 0, 8, queue, LONG);
                gaspi_read(0, 0, peer, 0, 0, 8, queue, LONG);
                gaspi_notify(0, peer, 0, 1, queue, LONG);
                gaspi_write_notify(0, 0, peer, 0, 0, 8, 0, 1, queue, LONG);
                gaspi_read_notify(0, 0, peer, 0, 0, 8, 0, queue, LONG);
                gaspi_write_list(1, ids, at, peer, ids, at, size, queue, LONG);
                gaspi_read_list(1, ids, at, peer, ids, at, size, queue, LONG);
                gaspi_write_list_notify(1, ids, at, peer, ids, at, size, 0, 0, 1, queue, LONG);
                gaspi_read_list_notify(1, ids, at, peer, ids, at, size, 0, 0, queue, LONG);
                gaspi_wait(queue, BLOCK);
                gaspi_queue_delete(queue);
                gaspi_queue_purge(queue, LONG);
            }
            let mut size = 7;
            gives!(GASPI_ERR_INV_QUEUE, gaspi_queue_size(queue, &mut size));
            ensure_eq!(size, 7, "the size of a queue that does not exist");
        }
        Ok(())
    })
}

fn unknown_ranks(ctx: &Ctx) -> Verdict {
    untouched(ctx, |_| {
        let group = got!(gaspi_group_create());
        let (ids, at, size) = ([0u8], [8u64], [8u64]);
        let (ids, at, size) = (ids.as_ptr(), at.as_ptr(), size.as_ptr());
        for rank in [ctx.size as u16, 100, 65_534, 65_535] {
            let mut old = 7;
            gives! { GASPI_ERR_INV_RANK:
                gaspi_write(0, 0, rank, 0, 0, 8, 0, LONG);
                gaspi_read(0, 0, rank, 0, 0, 8, 0, LONG);
                gaspi_notify(0, rank, 0, 1, 0, LONG);
                gaspi_write_notify(0, 0, rank, 0, 0, 8, 0, 1, 0, LONG);
                gaspi_read_notify(0, 0, rank, 0, 0, 8, 0, 0, LONG);
                gaspi_write_list(1, ids, at, rank, ids, at, size, 0, LONG);
                gaspi_read_list(1, ids, at, rank, ids, at, size, 0, LONG);
                gaspi_write_list_notify(1, ids, at, rank, ids, at, size, 0, 0, 1, 0, LONG);
                gaspi_read_list_notify(1, ids, at, rank, ids, at, size, 0, 0, 0, LONG);
                gaspi_atomic_fetch_add(0, 0, rank, 1, &mut old, LONG);
                gaspi_atomic_compare_swap(0, 0, rank, 0, 1, &mut old, LONG);
                gaspi_group_add(group, rank);
                gaspi_connect(rank, LONG);
                gaspi_segment_register(0, rank, LONG);
                gaspi_proc_ping(rank, LONG);
                gaspi_proc_kill(rank, LONG);
            }
            let mut bytes = 7;
            gives!(GASPI_ERR_INV_RANK, gaspi_segment_size(0, rank, &mut bytes));
        }
        let members = got!(gaspi_group_size(group));
        ensure_eq!(members, 0, "members after refused additions");
        done!(gaspi_group_delete(group))
    })
}

fn unknown_groups(_: &Ctx) -> Verdict {
    for group in [1u8, 31, 32, 33, 255] {
        let (send, mut receive) = ([1u8; 8], [9u8; 8]);
        let (from, into, no) = (send.as_ptr(), receive.as_mut_ptr(), null_mut());
        let (mut size, mut rank) = (7, 7);
        for timeout in [TEST, BLOCK] {
            gives! { GASPI_ERR_INV_GROUP:
                gaspi_barrier(group, timeout);
                gaspi_allreduce(from, into, 1, 2, 5, group, timeout);
                gaspi_allreduce_user(from, into, 1, 8, Some(add), no, group, timeout);
                gaspi_group_commit(group, timeout);
                gaspi_segment_create(0, 64, group, timeout, 0);
                gaspi_segment_use(0, into, 8, group, timeout, 0);
            }
        }
        gives! { GASPI_ERR_INV_GROUP:
            gaspi_group_add(group, 0);
            gaspi_group_delete(group);
            gaspi_group_size(group, &mut size);
            gaspi_group_ranks(group, &mut rank);
        }
        ensure_eq!((size, rank, receive), (7, 7, [9; 8]), "results of refusals");
    }
    ensure_eq!(got!(gaspi_segment_num()), 0, "segments after refusals");
    barrier()
}

fn group_misuse(ctx: &Ctx) -> Verdict {
    let me = ctx.rank as u16;
    let (mut empty, mut strange) = (0, 0);
    ok!(gaspi_group_create(&mut empty));
    let code = c!(gaspi_group_commit(empty, LONG));
    must_fail(code, "committing an empty group")?;
    ok!(gaspi_group_create(&mut strange));
    for_all(others(ctx), |rank| done!(gaspi_group_add(strange, rank)))?;
    let code = c!(gaspi_group_commit(strange, LONG));
    must_fail(code, "committing a group of others")?;
    // The group can still be completed.
    ok!(gaspi_group_add(strange, me));
    must_fail(c!(gaspi_group_add(strange, me)), "adding a rank twice")?;
    let size = got!(gaspi_group_size(strange));
    ensure_eq!(size, ctx.size, "members after a rank was added twice");
    ok!(gaspi_group_commit(strange, LONG));
    ok!(gaspi_barrier(strange, LONG));
    let code = c!(gaspi_group_add(strange, 0));
    must_fail(code, "adding to a committed group")?;
    ok!(gaspi_barrier(strange, LONG));
    gives!(GASPI_ERR_INV_GROUP, gaspi_group_delete(ALL));
    barrier()
}

fn reductions(_: &Ctx) -> Verdict {
    let (send, mut receive) = ([1u8; 4096], [9u8; 4096]);
    let (from, to) = (send.as_ptr(), receive.as_mut_ptr());
    for num in [0, 256, 1 << 20, u32::MAX] {
        for datatype in 0..6 {
            post::allreduce(from, to, num, 2, datatype).gives(GASPI_ERR_INV_NUM, ALL, BLOCK)?;
        }
    }
    for wrong in [3, 100, u32::MAX] {
        let code = c!(gaspi_allreduce(from, to, 1, wrong, 5, ALL, BLOCK));
        must_fail(code, format!("operation {wrong}"))?;
        let code = c!(gaspi_allreduce(from, to, 1, 2, wrong.max(6), ALL, BLOCK));
        must_fail(code, format!("type {}", wrong.max(6)))?;
    }
    for (num, bytes) in [
        (0, 8),
        (8, 0),
        (0, 0),
        (1, 2041),
        (u32::MAX, u64::MAX),
        (1 << 31, 1 << 33),
    ] {
        let reduction = post::allreduce_user(from, to, num, bytes, Some(add), null_mut());
        must_fail(
            reduction.code(ALL, BLOCK),
            format!("{num} of {bytes} bytes"),
        )?;
    }
    ensure!(receive.iter().all(|b| *b == 9), "a refused call wrote");
    barrier()?;
    equal!(sum_of_all(1)?, 2, "a reduction after refused ones")
}

fn alive_afterwards(ctx: &Ctx) -> Verdict {
    let len = 512u64;
    let source = segment(0, len as usize)?;
    let target = segment(1, len as usize)?;
    source.fill(0x33);
    barrier()?;
    let mut random = ctx.random(u64::from(ctx.rank));
    let peer = right(ctx);
    let odd = |random: &mut crate::law::Random, most: u64| match random.below(6) {
        0 => random.next(),
        1 => u64::MAX - random.below(64),
        2 => most + random.below(3),
        _ => random.below(most),
    };
    let seldom = |random: &mut crate::law::Random, n: u64, usual: u64| match random.below(n) {
        0 => random.next(),
        _ => usual,
    };
    // Bytes of the peer's target that valid calls have written.
    let mut written = vec![false; len as usize];
    for _ in 0..300 {
        let local = seldom(&mut random, 8, 0) as u8;
        let remote = seldom(&mut random, 8, 1) as u8;
        let rank = seldom(&mut random, 10, u64::from(peer)) as u16;
        let one = random.below(8);
        let queue = seldom(&mut random, 10, one) as u8;
        let (from, to) = (odd(&mut random, len), odd(&mut random, len));
        let size = odd(&mut random, 40);
        let fits = |offset: u64| offset <= len && size <= len - offset;
        let known = local <= 1 && remote <= 1 && u32::from(rank) < ctx.size && queue < 8;
        let valid = known && fits(from) && fits(to);
        // The model covers only writes from the source to the peer's target.
        if valid && (local != 0 || remote != 1 || rank != peer) {
            continue;
        }
        let code = post::write(local, from, rank, remote, to, size).code(queue, LONG);
        ensure_eq!(
            code == SUCCESS,
            valid,
            "gaspi_write({local}, {from}, {rank}, {remote}, {to}, {size}, {queue}) gave {}, success",
            code_name(code)
        );
        if valid {
            written[to as usize..(to + size) as usize].fill(true);
        }
        let id = odd(&mut random, 65_536) as u32 | 65_536;
        let code = c!(gaspi_notify(remote, rank, id, 1, queue, LONG));
        must_fail(code, format!("notification {id}"))?;
        let (mut old, at) = (0, odd(&mut random, len) | 1);
        let code = c!(gaspi_atomic_fetch_add(remote, at, rank, 1, &mut old, LONG));
        must_fail(code, format!("an atomic at {at}"))?;
    }
    for queue in 0..8 {
        flush(queue)?;
        ok!(gaspi_notify(0, peer, u32::from(queue), 1, queue, LONG));
    }
    for_all(0..8, |queue| notified(0, queue))?;
    (0..8).try_for_each(flush)?;
    source.all(0, len as usize, 0x33, "the source")?;
    barrier()?;
    let back = written.iter().map(|written| u8::from(*written) * 0x33);
    let back: Vec<u8> = back.collect();
    let check = segment(2, len as usize)?;
    ok!(gaspi_read(2, 0, peer, 1, 0, len, 0, LONG));
    flush(0)?;
    check.holds(0, &back, "the peer's target against the model")?;
    ensure_eq!(target.len as u64, len, "the target's length");
    barrier()
}

//! §8.5, §8.2.3: queues.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::kit::*;

laws! {
    waiting_for_nothing: "queue.wait-empty", "§8.2.3", 1, [gaspi_wait, gaspi_queue_size],
        "gaspi_wait on a queue without requests succeeds at once";
    size_counts_requests: "queue.size", "§8.5.3", 2, [gaspi_queue_size, gaspi_wait, gaspi_write, gaspi_read],
        "each request is one more entry of its queue; gaspi_wait sets the size to zero";
    full_queue configured(|config| config.queue_size_max = DEPTH): "queue.full", "§8.2.1", 2,
        [gaspi_write, gaspi_read, gaspi_notify, gaspi_write_notify, gaspi_read_notify, gaspi_write_list, gaspi_write_list_notify,
         gaspi_read_list, gaspi_wait, gaspi_queue_size_max] + bare,
        "a full queue refuses requests by GASPI_QUEUE_FULL and issues nothing; another queue, or gaspi_wait, helps";
    wait_if_full configured(|config| config.queue_size_max = 4): "queue.full-wait-again", "§8.2.1", 2, [gaspi_write_notify, gaspi_wait] + bare + ordering,
        "many more requests than the queue holds, with gaspi_wait when it is full: all arrive";
    queues_are_separate: "queue.separate", "§8.1", 2, [gaspi_wait, gaspi_queue_size],
        "waiting on one queue says nothing about the others";
    create_and_delete: "queue.create", "§8.5.1", 2, [gaspi_queue_create, gaspi_queue_delete, gaspi_queue_num, gaspi_queue_max],
        "queues can be made up to gaspi_queue_max, used, deleted, and made again";
    deleted_is_gone: "queue.delete", "§8.5.2", 2, [gaspi_queue_delete],
        "a deleted queue takes no request; requests in it are carried out";
    purged_is_empty: "queue.purge", "§8.5.4", 2, [gaspi_queue_purge, gaspi_queue_size],
        "a purged queue has no requests, and is usable";
    wait_continues: "queue.wait.timeout", "§8.2.3", 2, [gaspi_wait] + ordering,
        "gaspi_wait that ran into its timeout can be called again until all requests are complete";
    threads_on_one_queue: "queue.threads.one", "§8.2.1", 2, [gaspi_write_notify, gaspi_wait] + ordering,
        "several threads post to one queue while another waits on it: nothing is lost";
    threads_on_many_queues: "queue.threads.many", "§8.2.1", 2, [gaspi_write, gaspi_notify, gaspi_wait] + ordering,
        "several threads post to queues of their own, each with its own waits";
    patience_while_waiting: "queue.threads.timeout", "§8.2.1", 2, [gaspi_write_notify, gaspi_notify, gaspi_wait] + ordering,
        "a request that is posted with GASPI_TEST while another thread waits is posted, or a timeout: never half, never twice";
    one_wait_for_all_threads: "queue.threads.wait", "§8.1", 2, [gaspi_read, gaspi_wait] + ordering,
        "one gaspi_wait completes what several threads have posted";
    waits_side_by_side: "queue.threads.waits", "§8.2.3", 2, [gaspi_wait, gaspi_write] + ordering,
        "several threads may wait on one queue";
}

fn waiting_for_nothing(_: &Ctx) -> Verdict {
    for queue in 0..8 {
        ok!(gaspi_wait(queue, TEST));
        ok!(gaspi_wait(queue, BLOCK));
        ensure_eq!(queue_size(queue)?, 0, "size of queue {queue}");
    }
    Ok(())
}

fn size_counts_requests(ctx: &Ctx) -> Verdict {
    segment(0, 64)?;
    let peer = right(ctx);
    for i in 1..=5 {
        ok!(gaspi_write(0, 0, peer, 0, 8, 8, 2, LONG));
        ok!(gaspi_read(0, 16, peer, 0, 8, 8, 2, LONG));
        ensure_eq!(queue_size(2)?, 2 * i, "size after {i} writes and reads");
    }
    let list = post::Parts::new(0, 0, &[24, 32, 40].map(|at| (at, at, 8)));
    list.write(peer).ok(2, LONG)?;
    ensure_eq!(queue_size(2)?, 13, "size after a list of 3 (§8.4.2)");
    ok!(gaspi_notify(0, peer, 0, 1, 2, LONG));
    let size = queue_size(2)?;
    ensure!((13..=14).contains(&size), "{size} after a notification");
    ensure_eq!(queue_size(1)?, 0, "size of another queue");
    flush(2)?;
    ensure_eq!(queue_size(2)?, 0, "size after gaspi_wait");
    notified(0, 0)?;
    barrier()
}

const DEPTH: u32 = 6;

fn full_queue(ctx: &Ctx) -> Verdict {
    let memory = segment(0, 1024)?;
    ensure_eq!(got!(gaspi_queue_size_max()), DEPTH, "gaspi_queue_size_max");
    memory.fill(1 + ctx.rank as u8);
    barrier()?;
    let peer = right(ctx);
    for round in 0..3u64 {
        for _ in 0..DEPTH {
            ok!(gaspi_write(0, 0, peer, 0, 512, 8, 0, LONG));
        }
        ensure_eq!(queue_size(0)?, DEPTH, "size of a full queue");
        // Refused: the bytes at 600 and the notifications from 100 on stay unchanged.
        let (ids, at, eight) = ([0u8], [600u64], [8u64]);
        let (ids, at, eight) = (ids.as_ptr(), at.as_ptr(), eight.as_ptr());
        gives! { GASPI_QUEUE_FULL:
            gaspi_write(0, 0, peer, 0, 600, 8, 0, LONG);
            gaspi_write(0, 0, peer, 0, 600, 8, 0, TEST);
            gaspi_read(0, 600, peer, 0, 0, 8, 0, LONG);
            gaspi_notify(0, peer, 100, 1, 0, LONG);
            gaspi_write_notify(0, 0, peer, 0, 600, 8, 101, 1, 0, LONG);
            gaspi_read_notify(0, 600, peer, 0, 0, 8, 102, 0, LONG);
            gaspi_write_list(1, ids, at, peer, ids, at, eight, 0, LONG);
            gaspi_read_list(1, ids, at, peer, ids, at, eight, 0, LONG);
            gaspi_write_list_notify(1, ids, at, peer, ids, at, eight, 0, 103, 1, 0, LONG);
        }
        ensure_eq!(queue_size(0)?, DEPTH, "size after refusals");
        // Another queue accepts requests.
        ok!(gaspi_write(0, 0, peer, 0, 520, 8, 1, LONG));
        // After a wait the queue accepts requests again.
        flush(0)?;
        ensure_eq!(queue_size(0)?, 0, "size after gaspi_wait");
        post::write_notify(0, 0, peer, 0, 528 + 8 * round, 8, 5, 1).ok(0, LONG)?;
        flush(0)?;
        flush(1)?;
        notified(0, 5)?;
        let at = 528 + 8 * round as usize;
        memory.all(at, 8, 1 + left(ctx) as u8, "the write after gaspi_wait")?;
        barrier()?;
    }
    let own = 1 + ctx.rank as u8;
    memory.all(600, 8, own, "the place of refused requests")?;
    none_notified(0, 100, 10)?;
    // A list without room for all its elements is refused as a whole.
    for _ in 0..DEPTH - 2 {
        ok!(gaspi_write(0, 0, peer, 0, 512, 8, 0, LONG));
    }
    let list = post::Parts::new(0, 0, &[700, 708, 716].map(|at| (0, at, 8)));
    list.write(peer).gives(GASPI_QUEUE_FULL, 0, LONG)?;
    flush(0)?;
    ok!(gaspi_notify(0, peer, 6, 1, 0, LONG));
    flush(0)?;
    notified(0, 6)?;
    barrier()?;
    memory.all(700, 24, own, "the place of the refused list")?;
    barrier()
}

fn wait_if_full(ctx: &Ctx) -> Verdict {
    let n = 200u32;
    let source = segment(0, 8 * n as usize)?;
    let target = segment(1, 8 * n as usize)?;
    let mut full = 0;
    for i in 0..n {
        source.set(8 * i as usize, u64::from(i) << 8 | u64::from(ctx.rank));
        let at = 8 * u64::from(i);
        loop {
            match post::write_notify(0, at, right(ctx), 1, at, 8, i, i + 1).code(0, LONG) {
                SUCCESS => break,
                QUEUE_FULL => full += 1,
                code => return Err(format!("gaspi_write_notify gave {}", code_name(code))),
            }
            flush(0)?;
        }
    }
    ensure!(full >= n / 4 - 1, "full {full} times in {n} requests");
    for i in 0..n {
        ensure_eq!(notified(1, i)?, i + 1, "the value of notification {i}");
        let expected = u64::from(i) << 8 | u64::from(left(ctx));
        target.shows(8 * i as usize, expected, "a word")?;
    }
    flush(0)?;
    barrier()
}

fn queues_are_separate(ctx: &Ctx) -> Verdict {
    segment(0, 64)?;
    for queue in 0..8u8 {
        for _ in 0..=queue {
            ok!(gaspi_write(0, 0, right(ctx), 0, 8, 8, queue, LONG));
        }
    }
    for queue in (0..8u8).rev() {
        ensure_eq!(queue_size(queue)?, u32::from(queue) + 1, "size of {queue}");
        flush(queue)?;
        ensure_eq!(queue_size(queue)?, 0, "size of queue {queue}, waited");
    }
    barrier()
}

fn create_and_delete(ctx: &Ctx) -> Verdict {
    let (max, start) = (got!(gaspi_queue_max()), got!(gaspi_queue_num()));
    let memory = segment(0, 64)?;
    memory.set(0, 100 + u64::from(ctx.rank));
    for round in 0..3 {
        let mut made = Vec::new();
        let mut num = 0;
        for i in start..max {
            let queue = new_queue()?;
            let new = !made.contains(&queue) && u32::from(queue) < max;
            ensure!(new, "queue {queue} was made, beside {made:?}");
            ok!(gaspi_queue_num(&mut num));
            ensure_eq!(num, i + 1, "gaspi_queue_num in round {round}");
            ensure_eq!(queue_size(queue)?, 0, "size of a new queue");
            made.push(queue);
            memory.set(8, 0);
            barrier()?;
            post::write_notify(0, 0, right(ctx), 0, 8, 8, u32::from(queue), 1).ok(queue, LONG)?;
            notified(0, u32::from(queue))?;
            memory.shows(8, 100 + u64::from(left(ctx)), "data by the new queue")?;
            flush(queue)?;
            barrier()?;
        }
        let code = c!(gaspi_queue_create(&mut 0, LONG));
        must_fail(code, "queue gaspi_queue_max")?;
        for (i, queue) in made.iter().enumerate() {
            ok!(gaspi_queue_delete(*queue));
            ok!(gaspi_queue_num(&mut num));
            ensure_eq!(num, max - 1 - i as u32, "gaspi_queue_num after a deletion");
        }
        barrier()?;
    }
    Ok(())
}

fn deleted_is_gone(ctx: &Ctx) -> Verdict {
    let memory = segment(0, 64)?;
    memory.set(0, 7 + u64::from(ctx.rank));
    barrier()?;
    let queue = new_queue()?;
    post::write_notify(0, 0, right(ctx), 0, 8, 8, 0, 1).ok(queue, LONG)?;
    ok!(gaspi_queue_delete(queue));
    notified(0, 0)?;
    ensure_eq!(memory.get(8), 7 + u64::from(left(ctx)), "before deletion");
    gives! { GASPI_ERR_INV_QUEUE:
        gaspi_write(0, 0, right(ctx), 0, 16, 8, queue, LONG);
        gaspi_notify(0, right(ctx), 1, 1, queue, LONG);
        gaspi_wait(queue, LONG);
        gaspi_queue_size(queue, &mut 0);
        gaspi_queue_purge(queue, LONG);
        gaspi_queue_delete(queue);
    }
    barrier()
}

fn purged_is_empty(ctx: &Ctx) -> Verdict {
    let memory = segment(0, 64)?;
    memory.set(0, 9);
    barrier()?;
    for _ in 0..5 {
        ok!(gaspi_write(0, 0, right(ctx), 0, 8, 8, 3, LONG));
    }
    repeat("gaspi_queue_purge", || c!(gaspi_queue_purge(3, 10)))?;
    ensure_eq!(queue_size(3)?, 0, "size after gaspi_queue_purge");
    ok!(gaspi_wait(3, LONG));
    post::write_notify(0, 0, right(ctx), 0, 16, 8, 0, 1).ok(3, LONG)?;
    notified(0, 0)?;
    ensure_eq!(memory.get(16), 9, "data by the purged queue");
    flush(3)?;
    ok!(gaspi_queue_purge(3, LONG));
    barrier()
}

fn wait_continues(ctx: &Ctx) -> Verdict {
    let size = 40_000usize;
    let source = segment(0, size)?;
    let target = segment(1, size)?;
    for round in 1..=4u8 {
        source.fill(round);
        barrier()?;
        for _ in 0..10 {
            ok!(gaspi_read(1, 0, right(ctx), 0, 0, size as u64, 6, LONG));
        }
        let patience = u64::from(round % 2);
        repeat("gaspi_wait", || c!(gaspi_wait(6, patience)))?;
        target.all(0, size, round, "what was read")?;
        ensure_eq!(queue_size(6)?, 0, "size after gaspi_wait");
        barrier()?;
    }
    Ok(())
}

const THREADS: usize = 4;
const EACH: u32 = 100;

/// The receiving end of the thread laws: each slot's word, and its notification with the slot's number + 1 as value.
fn collect(target: &Memory, from: u16) -> Verdict {
    for slot in 0..THREADS as u32 * EACH {
        ensure_eq!(notified(1, slot)?, slot + 1, "value of notification {slot}");
        let expected = u64::from(slot) * 1000 + u64::from(from);
        target.shows(8 * slot as usize, expected, "the word of a slot")?;
    }
    Ok(())
}

fn slots(ctx: &Ctx) -> Result<(Memory, Memory), String> {
    let len = 8 * THREADS * EACH as usize;
    let (source, target) = (segment(0, len)?, segment(1, len)?);
    for slot in 0..len / 8 {
        source.set(8 * slot, slot as u64 * 1000 + u64::from(ctx.rank));
    }
    barrier()?;
    Ok((source, target))
}

/// So many threads write the slots, each its share in order, while another one waits on the queue.
fn beside_waits(ctx: &Ctx, posters: u32, write: impl Fn(u32) -> Verdict + Sync) -> Verdict {
    let posting = AtomicU32::new(posters);
    let each = THREADS as u32 * EACH / posters;
    let target = slots(ctx)?.1;
    threads(posters as usize + 1, |i| {
        if i == posters as usize {
            while posting.load(Ordering::Acquire) > 0 {
                flush(0)?;
                std::thread::yield_now();
            }
            return flush(0);
        }
        let first = i as u32 * each;
        let verdict = for_all(first..first + each, &write);
        posting.fetch_sub(1, Ordering::AcqRel);
        verdict
    })?;
    collect(&target, left(ctx))
}

fn threads_on_one_queue(ctx: &Ctx) -> Verdict {
    beside_waits(ctx, THREADS as u32, |slot| {
        let at = 8 * u64::from(slot);
        post::write_notify(0, at, right(ctx), 1, at, 8, slot, slot + 1).ok(0, BLOCK)
    })?;
    ensure_eq!(queue_size(0)?, 0, "size of the queue after the last wait");
    barrier()
}

fn threads_on_many_queues(ctx: &Ctx) -> Verdict {
    let (_, target) = slots(ctx)?;
    threads(THREADS, |i| {
        let queue = 2 * i as u8;
        for k in 0..EACH {
            let slot = i as u32 * EACH + k;
            let at = 8 * u64::from(slot);
            ok!(gaspi_write(0, at, right(ctx), 1, at, 8, queue, LONG));
            ok!(gaspi_notify(1, right(ctx), slot, slot + 1, queue, LONG));
            if k % 7 == 0 {
                flush(queue)?;
            }
        }
        flush(queue)
    })?;
    collect(&target, left(ctx))?;
    barrier()
}

fn patience_while_waiting(ctx: &Ctx) -> Verdict {
    let counter = segment(2, 8)?;
    beside_waits(ctx, 2, |slot| {
        let (at, patience) = (8 * u64::from(slot), u64::from(slot % 2));
        let write = post::write_notify(0, at, right(ctx), 1, at, 8, slot, slot + 1);
        repeat("gaspi_write_notify", || write.code(0, patience)).map(drop)
    })?;
    ensure_eq!(counter.get(0), 0, "a segment without writes");
    barrier()?;
    // Each notification came once: after the resets above none is left.
    none_notified(1, 0, 65_536)?;
    barrier()
}

fn one_wait_for_all_threads(ctx: &Ctx) -> Verdict {
    let size = 200usize;
    let source = segment(0, size)?;
    let target = segment(1, size * 40)?;
    source.fill(ctx.rank as u8 + 5);
    barrier()?;
    for _ in 0..4 {
        target.fill(0);
        threads(4, |i| {
            for k in 0..10 {
                let at = (i * 10 + k) * size;
                post::read(1, at as u64, right(ctx), 0, 0, size as u64).ok(1, LONG)?;
            }
            Ok(())
        })?;
        ensure_eq!(queue_size(1)?, 40, "requests of all threads");
        flush(1)?;
        let theirs = right(ctx) as u8 + 5;
        target.all(0, 40 * size, theirs, "data that the threads have read")?;
    }
    barrier()
}

fn waits_side_by_side(ctx: &Ctx) -> Verdict {
    segment(0, 64)?;
    let done = AtomicBool::new(false);
    threads(4, |i| {
        for _ in 0..60 {
            if i == 0 {
                ok!(gaspi_write(0, 0, right(ctx), 0, 8, 8, 0, BLOCK));
            }
            ok!(gaspi_wait(0, BLOCK));
        }
        done.store(true, Ordering::Release);
        Ok(())
    })?;
    ensure!(done.load(Ordering::Acquire), "no thread has ended");
    flush(0)?;
    ensure_eq!(queue_size(0)?, 0, "size of the queue after all waits");
    barrier()
}

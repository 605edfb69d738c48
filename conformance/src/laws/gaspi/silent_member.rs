//! §3.9: timeouts beside a live process that does not answer: groups, segments, queues, threads, the end of a process.

use std::cell::Cell;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use super::kit::*;
use crate::kit::Stopped;

laws! {
    collectives: "stopped.collectives", "§3.9, §6.3.3, §7.2.3, §11", 3,
        [gaspi_group_commit, gaspi_segment_create, gaspi_barrier, gaspi_allreduce] + bare + one_host,
        "collective procedures time out while a member is stopped, and are completed by later calls when it goes on";
    long_reduction: "stopped.allreduce.long", "§11.3.1, §3.9, §3.10", 3, [gaspi_allreduce, gaspi_config_set] + bare + one_host,
        "a long reduction that has timed out goes on with the elements that it has begun with; another reduction is refused until it has ended";
    threads_meet: "stopped.threads", "§3.9, §11.2", 3, [gaspi_threads_sync_all] + bare + one_host,
        "each thread's time-out of gaspi_threads_sync_all is kept, while a process is stopped and while a thread is late; all go on, and meet";
    queues: "stopped.queues", "§8.5, §8.2.3, §3.9", 3,
        [gaspi_queue_create, gaspi_queue_delete, gaspi_queue_purge, gaspi_wait] + bare + one_host,
        "with requests to a stopped process under way, queues are made, deleted and purged within their time, and what was posted is done in the end";
    segments: "stopped.segments", "§7.3.1, §3.9", 3, [gaspi_segment_delete, gaspi_segment_alloc, gaspi_segment_bind] + bare + one_host,
        "a segment with requests in flight to a stopped process is deleted; a bound segment is refused until no request uses it";
    the_end: "stopped.term", "§5.3.4, §6.4.1, §3.9", 3, [gaspi_proc_term, gaspi_disconnect, gaspi_group_delete] + bare + one_host,
        "gaspi_proc_term and gaspi_disconnect time out while requests to a stopped process are under way, and are completed by later calls";
    idle_end: "stopped.term.idle", "§5.3.4, §3.9", 3, [gaspi_proc_term] + bare + one_host,
        "gaspi_proc_term keeps its time-out also where a stopped process has nothing under way, and knows the segments that are freed";
    ended: "stopped.kill", "§5.3.5, §3.9", 3, [gaspi_proc_kill, gaspi_proc_ping] + needs_kill + one_host,
        "gaspi_proc_kill of a process that is stopped times out, and ends another one meanwhile; it ends the first when that goes on; what was posted to it \
         fails, or was done";
}

const PID: usize = 4088;
const LEN: usize = 4096;
const SHORT: u64 = 20;
/// Calls without an answer before the peer goes on.
pub(super) const TRIES: u64 = 10;

/// Runs `work` on rank 0 while rank 2 is stopped, after a contact of the two. Rank 2 runs `then` when it goes on; rank 1 runs `beside`.
fn beside_a_member(
    ctx: &Ctx,
    work: impl FnOnce(&Stopped, &Memory) -> Verdict,
    beside: impl FnOnce(&Memory) -> Verdict,
    then: impl FnOnce(&Memory) -> Verdict,
) -> Verdict {
    let memory = segment(0, LEN)?;
    barrier()?;
    if ctx.rank == 2 {
        memory.set(PID, std::process::id().into());
        let at = PID as u64;
        ok!(gaspi_write_notify(0, at, 0, 0, at, 8, 0, 1, 0, LONG));
        flush(0)?;
    }
    if ctx.rank == 0 {
        notified(0, 0)?;
        ok!(gaspi_notify(0, 2, 63, 1, 0, LONG));
        flush(0)?;
    }
    ctx.sync();
    match ctx.rank {
        0 => {
            let last = Stopped::of(memory.get(PID))?;
            let worked = work(&last, &memory);
            if worked.is_err() {
                let _ = last.wake();
            }
            worked
        }
        1 => beside(&memory),
        _ => {
            Stopped::stop()?;
            then(&memory)
        }
    }
}

/// Waits for all ranks, then terminates.
fn leave(ctx: &Ctx) -> Verdict {
    ctx.sync();
    barrier()?;
    done!(gaspi_proc_term(LONG))
}

/// Calls [`TRIES`] times, or until success. Gives true on success. Fails if the calls exceed their timeouts.
pub(super) fn tried(
    what: &str,
    timeout: u64,
    mut call: impl FnMut() -> i32,
) -> Result<bool, String> {
    let before = in_vain();
    let mut done = false;
    for _ in 0..TRIES {
        match call() {
            TIMEOUT => {}
            SUCCESS => {
                done = true;
                break;
            }
            code => return Err(format!("{what} gave {}", code_name(code))),
        }
    }
    let waited = (in_vain() - before).as_millis() as u64;
    ensure!(
        waited <= TRIES * timeout + 500,
        "{what} has waited for {waited} ms in {TRIES} calls with a time-out of {timeout} ms"
    );
    Ok(done)
}

/// As [`tried`]; the call must not succeed while the process is stopped.
fn times_out(what: &str, timeout: u64, call: impl FnMut() -> i32) -> Verdict {
    let done = tried(what, timeout, call)?;
    ensure!(!done, "{what} needs a stopped process; it succeeded");
    Ok(())
}

fn collectives(ctx: &Ctx) -> Verdict {
    ok!(gaspi_proc_init(LONG));
    let (one, sum) = (1u64 << (8 * ctx.rank), Cell::new(0u64));
    let commit = |group, timeout| c!(gaspi_group_commit(group, timeout));
    let create = |timeout| c!(gaspi_segment_create(1, 64, ALL, timeout, 0));
    let reduce = post::allreduce(&raw const one, sum.as_ptr(), 1, SUM, 5);
    let reduce = |timeout| reduce.code(ALL, timeout);
    let finish = |group| {
        repeat("gaspi_group_commit", || commit(group, SHORT))?;
        repeat("gaspi_segment_create", || create(SHORT))?;
        repeat("gaspi_allreduce", || reduce(SHORT))?;
        repeat("gaspi_barrier", || c!(gaspi_barrier(group, SHORT))).map(drop)
    };
    let all = |_: &Memory| finish(uncommitted(0..3)?);
    beside_a_member(
        ctx,
        |last, _| {
            let group = uncommitted(0..3)?;
            for timeout in [TEST, SHORT] {
                times_out("gaspi_group_commit", timeout, || commit(group, timeout))?;
                times_out("gaspi_segment_create", timeout, || create(timeout))?;
                times_out("gaspi_allreduce", timeout, || reduce(timeout))?;
            }
            last.wake()?;
            finish(group)
        },
        all,
        all,
    )?;
    ensure_eq!(sum.get(), 0x01_0101, "the sum");
    leave(ctx)
}

/// Elements of a reduction in several parts.
const MANY: usize = 1000;

fn long_reduction(ctx: &Ctx) -> Verdict {
    let before = config()?;
    let mut changed = before;
    changed.allreduce_elem_max = MANY as u32;
    ok!(gaspi_config_set(changed));
    ok!(gaspi_proc_init(LONG));
    let numbers = |scale: u64| -> Vec<u64> { (0..MANY as u64).map(|nth| nth * scale).collect() };
    let mine = numbers(1 << (8 * ctx.rank));
    let mut result = vec![0u64; MANY];
    let reduce = |from: &[u64], into: &mut [u64], operation, timeout| {
        let (num, into) = (from.len() as u32, into.as_mut_ptr());
        post::allreduce(from.as_ptr(), into, num, operation, 5).code(ALL, timeout)
    };
    let whole = |result: &mut Vec<u64>| {
        repeat("gaspi_allreduce", || reduce(&mine, result, SUM, SHORT)).map(drop)
    };
    let mut results = [vec![0u64; MANY], vec![0u64; MANY]];
    let [first, second] = &mut results;
    beside_a_member(
        ctx,
        |last, _| {
            times_out("gaspi_allreduce", SHORT, || {
                reduce(&mine, first, SUM, SHORT)
            })?;
            // Another reduction must not take the place of the one in progress.
            let other = reduce(&mine[..1], &mut second[..1], SUM, TEST);
            must_fail(other, "a short one")?;
            let other = reduce(&mine, second, MIN, TEST);
            must_fail(other, "another operation")?;
            last.wake()?;
            // The repeated call passes other elements and another place. The elements are not read; the place gets the whole result.
            let none = vec![u64::MAX; MANY];
            repeat("gaspi_allreduce", || reduce(&none, second, SUM, SHORT))?;
            result.copy_from_slice(second);
            Ok(())
        },
        |_| whole(&mut vec![0; MANY]),
        |_| whole(&mut vec![0; MANY]),
    )?;
    if ctx.rank == 0 {
        ensure_eq!(result, numbers(0x01_0101), "the sums");
    }
    // The finished reduction leaves no state.
    whole(&mut result)?;
    ensure_eq!(result, numbers(0x01_0101), "the sums of the next one");
    ensure_eq!(sum_of_all(1)?, 3, "a short reduction");
    leave(ctx)?;
    done!(gaspi_config_set(before))
}

fn threads_meet(ctx: &Ctx) -> Verdict {
    ok!(gaspi_proc_init(LONG));
    const ROUNDS: u64 = 20;
    let (late, both) = (AtomicBool::new(false), Barrier::new(2));
    let meet = |timeout| c!(gaspi_threads_sync_all(ALL, timeout));
    let rounds = || {
        for round in 0..ROUNDS {
            let at = 8 * round;
            add(0, at, 1, 1)?;
            repeat("gaspi_threads_sync_all", || meet(SHORT * (round % 2)))?;
            let come = add(0, at, 1, 0)?;
            ensure_eq!(come, 6, "threads that have come to meeting {round}");
        }
        Ok::<_, String>(())
    };
    let meets = || {
        threads(2, |_| {
            got!(gaspi_threads_register());
            repeat("gaspi_threads_sync_all", || meet(SHORT))?;
            rounds()
        })
    };
    let begin = |work: &dyn Fn() -> Verdict| {
        ok!(gaspi_threads_init_user(2));
        work()?;
        done!(gaspi_threads_term())
    };
    beside_a_member(
        ctx,
        |last, _| {
            begin(&|| {
                threads(2, |thread| {
                    got!(gaspi_threads_register());
                    if thread == 1 {
                        // The other thread waits for this thread first, and then for the stopped process.
                        let mut looks = Looks::for_the("the other thread");
                        while !late.load(Ordering::Acquire) {
                            looks.again();
                        }
                    }
                    let mut tried = Ok(());
                    for timeout in [TEST, SHORT] {
                        let all = times_out("gaspi_threads_sync_all", timeout, || meet(timeout));
                        tried = tried.and(all);
                        late.store(true, Ordering::Release);
                    }
                    both.wait();
                    if thread == 0 {
                        last.wake()?;
                    }
                    tried?;
                    repeat("gaspi_threads_sync_all", || meet(SHORT))?;
                    rounds()
                })
            })
        },
        |_| begin(&meets),
        |_| begin(&meets),
    )?;
    leave(ctx)
}

fn queues(ctx: &Ctx) -> Verdict {
    ok!(gaspi_proc_init(LONG));
    beside_a_member(
        ctx,
        |last, memory| {
            memory.set(0, 71);
            memory.set(8, 72);
            let mut queue = 0;
            for (at, post) in [(0u64, 0u64), (8, 8)] {
                ok!(gaspi_queue_create(&mut queue, TEST));
                post::write_notify(0, at, 2, 0, 512 + post, 8, 1 + at as u32, 1).ok(queue, TEST)?;
                let purged = tried("gaspi_queue_purge", SHORT, || {
                    c!(gaspi_queue_purge(queue, SHORT))
                })?;
                tried("gaspi_queue_purge", TEST, || {
                    c!(gaspi_queue_purge(queue, TEST))
                })?;
                let waited = tried("gaspi_wait", SHORT, || c!(gaspi_wait(queue, SHORT)))?;
                ensure!(!purged || waited, "purged, and not over");
                ok!(gaspi_queue_delete(queue));
                gives!(GASPI_ERR_INV_QUEUE, gaspi_wait(queue, TEST));
            }
            // The new queue must be without the requests in flight of a deleted one.
            ok!(gaspi_queue_create(&mut queue, TEST));
            ensure_eq!(queue_size(queue)?, 0, "the size of a new queue");
            ok!(gaspi_write(0, 0, 1, 0, 0, 8, queue, LONG));
            ok!(gaspi_wait(queue, LONG));
            last.wake()?;
            ok!(gaspi_notify(0, 2, 20, 1, queue, LONG));
            ok!(gaspi_wait(queue, LONG));
            done!(gaspi_queue_delete(queue))
        },
        |_| Ok(()),
        |memory| {
            for_all([1, 9, 20], |id| notified(0, id))?;
            equal!((memory.get(512), memory.get(520)), (71, 72), "data")
        },
    )?;
    leave(ctx)
}

fn segments(ctx: &Ctx) -> Verdict {
    ok!(gaspi_proc_init(LONG));
    let mut user = vec![5u64; 512];
    let base = user.as_mut_ptr();
    beside_a_member(
        ctx,
        |last, _| {
            ok!(gaspi_segment_alloc(5, 4096, 0));
            ok!(gaspi_segment_bind(6, base.cast(), 4096, 0));
            let own = memory(5, 4096)?;
            own.set(0, 71);
            ok!(gaspi_write_notify(5, 0, 2, 0, 512, 8, 1, 1, 1, LONG));
            ok!(gaspi_read(5, 8, 2, 0, 0, 8, 1, LONG));
            ok!(gaspi_write_notify(6, 0, 2, 0, 520, 8, 2, 1, 1, LONG));
            ok!(gaspi_read(6, 8, 2, 0, 0, 8, 1, LONG));
            let over = c!(gaspi_wait(1, SHORT)) == SUCCESS;
            ok!(gaspi_segment_delete(5));
            gives!(GASPI_ERR_INV_SEG, gaspi_write(5, 0, 1, 0, 0, 8, 1, LONG));
            let deleted = c!(gaspi_segment_delete(6));
            ensure_eq!(deleted == SUCCESS, over, "whether memory was returned");
            gives!(GASPI_ERR_INV_SEG, gaspi_write(6, 0, 1, 0, 0, 8, 1, LONG));
            last.wake()?;
            let wait = || c!(gaspi_wait(1, LONG));
            repeat("gaspi_wait", wait)?;
            if !over {
                ok!(gaspi_segment_delete(6));
            }
            gives!(GASPI_ERR_INV_SEG, gaspi_segment_delete(6));
            ok!(gaspi_segment_alloc(5, 64, 0));
            done!(gaspi_segment_delete(5))
        },
        |_| Ok(()),
        |memory| {
            notified(0, 1)?;
            notified(0, 2)?;
            equal!((memory.get(512), memory.get(520)), (71, 5), "data")
        },
    )?;
    if ctx.rank == 0 {
        ensure_eq!(user[1], 0, "data read into the program's memory");
    }
    leave(ctx)
}

fn the_end(ctx: &Ctx) -> Verdict {
    ok!(gaspi_proc_init(LONG));
    beside_a_member(
        ctx,
        |last, memory| {
            memory.set(0, 71);
            ok!(gaspi_write_notify(0, 0, 2, 0, 512, 8, 1, 1, 1, LONG));
            let closed = tried("gaspi_disconnect", SHORT, || c!(gaspi_disconnect(2, SHORT)))?;
            tried("gaspi_disconnect", TEST, || c!(gaspi_disconnect(2, TEST)))?;
            ensure!(!closed, "a stopped process closed its connection too");
            let over = c!(gaspi_wait(1, TEST)) == SUCCESS;
            if !over {
                // Without a pending request gaspi_proc_term would succeed at once.
                times_out("gaspi_proc_term", TEST, || c!(gaspi_proc_term(TEST)))?;
                times_out("gaspi_proc_term", SHORT, || c!(gaspi_proc_term(SHORT)))?;
            }
            last.wake()?;
            repeat("gaspi_proc_term", || c!(gaspi_proc_term(SHORT))).map(drop)
        },
        |_| done!(gaspi_proc_term(LONG)),
        |memory| {
            notified(0, 1)?;
            ensure_eq!(memory.get(512), 71, "what was written");
            done!(gaspi_proc_term(LONG))
        },
    )
}

fn idle_end(ctx: &Ctx) -> Verdict {
    ok!(gaspi_proc_init(LONG));
    let leaves = |_: &Memory| done!(gaspi_proc_term(LONG));
    beside_a_member(
        ctx,
        |last, _| {
            let done = tried("gaspi_proc_term", SHORT, || c!(gaspi_proc_term(SHORT)))?;
            last.wake()?;
            ensure!(done, "gaspi_proc_term with nothing under way timed out");
            Ok(())
        },
        leaves,
        leaves,
    )
}

fn ended(ctx: &Ctx) -> Verdict {
    if ctx.rank != 0 {
        ctx.may_die();
    }
    beside_a_member(
        ctx,
        |last, memory| {
            memory.set(0, 71);
            ok!(gaspi_write(0, 0, 2, 0, 512, 8, 1, LONG));
            ok!(gaspi_proc_ping(2, TEST));
            // The stopped process takes no signal before it goes on.
            for timeout in [TEST, SHORT] {
                times_out("gaspi_proc_kill", timeout, || {
                    c!(gaspi_proc_kill(2, timeout))
                })?;
            }
            for rank in [1, 2] {
                ok!(gaspi_proc_ping(rank, TEST));
            }
            repeat("gaspi_proc_kill", || c!(gaspi_proc_kill(1, SHORT)))?;
            gives!(GASPI_ERROR, gaspi_proc_ping(1, TEST));
            ok!(gaspi_proc_ping(2, TEST));
            times_out("gaspi_proc_kill", TEST, || c!(gaspi_proc_kill(2, TEST)))?;
            last.wake()?;
            repeat("gaspi_proc_kill", || c!(gaspi_proc_kill(2, SHORT)))?;
            let code = c!(gaspi_wait(1, LONG));
            // The write may complete before the process ends.
            let ended = code == SUCCESS || is_error(code);
            ensure!(ended, "the wait gave {}", code_name(code));
            let posted = c!(gaspi_write(0, 0, 2, 0, 512, 8, 1, LONG));
            let waited = c!(gaspi_wait(1, LONG));
            ensure!(
                is_error(posted) || is_error(waited),
                "a write to the dead gave {}, the wait {}",
                code_name(posted),
                code_name(waited)
            );
            done!(gaspi_queue_purge(1, LONG))
        },
        |_| {
            // The signal ends the process in this pause.
            pause(LONG);
            Err("still alive long after gaspi_proc_kill".into())
        },
        |_| Ok(()),
    )?;
    ctx.sync();
    Ok(())
}

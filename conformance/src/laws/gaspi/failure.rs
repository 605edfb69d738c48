//! §5.5, and what waits do when a process dies.

use std::time::{Duration, Instant};

use super::kit::*;

laws! {
    healthy_at_start: "state.healthy", "§5.5.2", 4, [gaspi_state_vec_get, gaspi_state_vec_get_17],
        "at start every process is healthy to every other one";
    corrupt_after_death: "failure.state", "§5.5.2", 3, [gaspi_state_vec_get] + needs_kill,
        "a process that was killed becomes GASPI_STATE_CORRUPT within two seconds; the others stay healthy";
    barrier_ends: "failure.barrier", "§11.2.1", 4, [gaspi_barrier, gaspi_state_vec_get] + needs_kill,
        "a barrier with GASPI_BLOCK ends with an error within two seconds when a member is killed";
    barrier_never_comes: "failure.barrier.timeout", "§11.2.1", 3, [gaspi_barrier] + needs_kill,
        "a barrier with a timeout never succeeds without the member that was killed";
    waitsome_ends: "failure.waitsome", "§8.3.3", 3, [gaspi_notify_waitsome] + needs_kill,
        "gaspi_notify_waitsome with GASPI_BLOCK ends when the process that would notify is killed";
    allreduce_ends: "failure.allreduce", "§11.3.1", 4, [gaspi_allreduce] + needs_kill,
        "a reduction with GASPI_BLOCK ends with an error within two seconds when a member is killed";
    commit_ends: "failure.group_commit", "§6.3.3", 3, [gaspi_group_commit] + needs_kill,
        "a group commit with GASPI_BLOCK ends with an error within two seconds when a member is killed";
    create_ends: "failure.segment_create", "§7.2.3", 3, [gaspi_segment_create] + needs_kill,
        "a collective creation with GASPI_BLOCK ends with an error when a member is killed, and leaves no segment";
    wait_ends: "failure.wait", "§8.2.3", 3, [gaspi_wait, gaspi_write, gaspi_read, gaspi_queue_purge] + needs_kill,
        "requests to a killed process, and the wait for them, end; the queue is usable after a purge";
    wait_of_others: "failure.wait.others", "§3.6, §8.2.3", 3, [gaspi_wait, gaspi_write, gaspi_read, gaspi_notify, gaspi_proc_ping] + needs_kill,
        "gaspi_wait on a queue with requests only to living processes succeeds though another one was killed, also before gaspi_state_vec_get";
    atomics_end: "failure.atomic", "§10.2.1", 3, [gaspi_atomic_fetch_add, gaspi_atomic_compare_swap] + needs_kill,
        "an atomic on memory of a killed process ends";
    survivors_go_on: "failure.survivors", "§6.1", 4,
        [gaspi_state_vec_get, gaspi_group_create, gaspi_group_commit, gaspi_barrier, gaspi_allreduce, gaspi_segment_create,
         gaspi_write_notify, gaspi_notify_waitsome, gaspi_wait] + needs_kill,
        "after gaspi_state_vec_get the survivors form a group and go on: collectives, segments, notifications, waits";
    other_groups_go_on: "failure.other-groups", "§6.1", 4, [gaspi_barrier, gaspi_allreduce] + needs_kill,
        "a group that the killed process was not in goes on after gaspi_state_vec_get";
    killed_in_the_middle: "failure.any-moment", "§5.5.1", 4, [gaspi_write_notify, gaspi_barrier, gaspi_allreduce, gaspi_atomic_fetch_add] + needs_kill + ordering,
        "a process is killed at a moment of the seed's choice, in the middle of anything: no survivor hangs, all learn who it was";
    ping_the_dead: "failure.ping", "§5.4.1", 2, [gaspi_proc_ping, gaspi_connect] + needs_kill,
        "pinging a killed process, or connecting to it, gives an error";
    term_without_the_dead: "failure.term", "§5.3.4", 3, [gaspi_proc_term] + needs_kill + bare,
        "gaspi_proc_term of the survivors does not wait for the killed process";
    init_without_the_dead: "failure.init", "§5.3.1", 3, [gaspi_proc_init] + needs_kill + bare,
        "gaspi_proc_init ends with an error, or never says success, when a process dies before it has come";
    kill_one given(1): "proc_kill.neighbour", "§5.3.5", 3, [gaspi_proc_kill, gaspi_state_vec_get] + needs_kill,
        "gaspi_proc_kill ends a process of another host as it ends one of this host";
    kill_one given(2): "proc_kill", "§5.3.5", 3, [gaspi_proc_kill, gaspi_state_vec_get] + needs_kill,
        "after success of gaspi_proc_kill the other process has been terminated";
}

/// Milliseconds. A wait for a dead process that takes longer never ends, even on a slow machine.
const FOREVER: u64 = LONG;
/// Milliseconds that a rank waits before it dies, so that the others are in their calls.
const NAP: u64 = 120;

/// Waits until the state vector shows `dead` as corrupt, and no other rank.
fn learn(ctx: &Ctx, dead: u32) -> Verdict {
    let mut looks = Looks::new();
    loop {
        let states = states(ctx)?;
        for (rank, state) in states.iter().enumerate() {
            ensure!(matches!(state, 0 | 1), "state {state} of rank {rank}");
            ensure!(
                *state == 0 || rank as u32 == dead,
                "rank {rank} is said to be corrupt, rank {dead} was killed"
            );
        }
        if states[dead as usize] == 1 {
            return Ok(());
        }
        looks.pause(Duration::from_millis(2));
    }
}

/// A barrier that all ranks have left. A rank that is still in it at a death gets the error there.
fn all_here(ctx: &Ctx) -> Verdict {
    barrier()?;
    ctx.sync();
    Ok(())
}

/// After [`all_here`] the victim dies, a little later: its earlier requests to the others have arrived.
fn one_dies(ctx: &Ctx, victim: u32) -> Verdict {
    all_here(ctx)?;
    if ctx.rank == victim {
        pause(NAP);
        ctx.dies();
    }
    Ok(())
}

/// As [`one_dies`], for the last rank.
fn last_dies(ctx: &Ctx) -> Result<u32, String> {
    one_dies(ctx, ctx.size - 1)?;
    Ok(ctx.size - 1)
}

/// The last rank dies while the others are in `call`, which must end with an error. All survivors see the death in the state vector.
fn ends(ctx: &Ctx, what: &str, call: impl Fn() -> i32) -> Verdict {
    let victim = last_dies(ctx)?;
    must_fail(call(), format!("after a death {what}"))?;
    learn(ctx, victim)
}

fn healthy_at_start(ctx: &Ctx) -> Verdict {
    ensure_eq!(states(ctx)?, vec![0; ctx.size as usize], "the state vector");
    let mut own = vec![9i32; ctx.size as usize];
    let mut vector = own.as_mut_ptr();
    ok!(gaspi_state_vec_get_17(&mut vector));
    ensure_eq!(own, vec![0; ctx.size as usize], "the state vector, 1.7");
    barrier()
}

fn corrupt_after_death(ctx: &Ctx) -> Verdict {
    one_dies(ctx, 1)?;
    learn(ctx, 1)?;
    // The state stays corrupt.
    pause(30);
    let mut expected = vec![0; ctx.size as usize];
    expected[1] = 1;
    equal!(states(ctx)?, expected, "the state vector a little later")
}

fn barrier_ends(ctx: &Ctx) -> Verdict {
    ends(ctx, "gaspi_barrier", || c!(gaspi_barrier(ALL, BLOCK)))
}

fn barrier_never_comes(ctx: &Ctx) -> Verdict {
    one_dies(ctx, 0)?;
    let tries = || {
        let code = c!(gaspi_barrier(ALL, 10));
        ensure!(code != SUCCESS, "a barrier succeeded without a member");
        Ok(())
    };
    let start = Instant::now();
    while ms(start) < 2 * NAP + 100 {
        tries()?;
    }
    learn(ctx, 0)?;
    tries()
}

fn waitsome_ends(ctx: &Ctx) -> Verdict {
    segment(0, 8)?;
    ends(ctx, "gaspi_notify_waitsome", || waitsome(0, 0, 100, BLOCK))
}

fn allreduce_ends(ctx: &Ctx) -> Verdict {
    ends(ctx, "gaspi_allreduce", || summed(ALL, BLOCK))
}

fn commit_ends(ctx: &Ctx) -> Verdict {
    let group = uncommitted(0..ctx.size as u16)?;
    let commit = || c!(gaspi_group_commit(group, BLOCK));
    ends(ctx, "gaspi_group_commit", commit)
}

fn create_ends(ctx: &Ctx) -> Verdict {
    let create = || c!(gaspi_segment_create(5, 64, ALL, BLOCK, 0));
    ends(ctx, "gaspi_segment_create", create)?;
    gives!(GASPI_ERR_INV_SEG, gaspi_segment_ptr(5, &mut null_mut()));
    // The segment's name is free.
    done!(gaspi_segment_alloc(5, 64, 0))
}

fn wait_ends(ctx: &Ctx) -> Verdict {
    let memory = segment(0, 1 << 20)?;
    memory.set(0, 5);
    let victim = last_dies(ctx)?;
    let to = victim as u16;
    let start = Instant::now();
    let mut refused = false;
    while !refused && ms(start) < FOREVER {
        let codes = [
            c!(gaspi_write(0, 0, to, 0, 64, 1 << 19, 0, 100)),
            c!(gaspi_read(0, 1 << 19, to, 0, 0, 1 << 18, 0, 100)),
            c!(gaspi_notify(0, to, 1, 1, 0, 100)),
            c!(gaspi_wait(0, BLOCK)),
        ];
        refused = codes.into_iter().any(is_error);
    }
    ensure!(refused, "no request to a killed process has failed");
    learn(ctx, victim)?;
    repeat("gaspi_queue_purge", || c!(gaspi_queue_purge(0, 100)))?;
    ensure_eq!(queue_size(0)?, 0, "size of the purged queue");
    let survivor = u64::from(ctx.rank ^ 1) as u16;
    ok!(gaspi_write_notify(0, 0, survivor, 0, 8, 8, 7, 1, 0, LONG));
    flush(0)?;
    notified(0, 7)?;
    ensure_eq!(memory.get(8), 5, "the other survivor's bytes");
    // The other queues have no failure.
    flush(1)
}

fn wait_of_others(ctx: &Ctx) -> Verdict {
    segment(0, 4096)?;
    let victim = last_dies(ctx)?;
    let survivor = (ctx.rank ^ 1) as u16;
    let requests = || -> Verdict {
        ok!(gaspi_write(0, 0, survivor, 0, 1024, 64, 0, LONG));
        ok!(gaspi_read(0, 2048, survivor, 0, 0, 64, 0, LONG));
        ok!(gaspi_notify(0, survivor, 1, 1, 0, LONG));
        done!(gaspi_wait(0, BLOCK))
    };
    until_ok("the killed process to be known as dead", || {
        requests()?;
        Ok(is_error(c!(gaspi_proc_ping(victim as u16, LONG))))
    })?;
    for_all(0..100, |_| requests())?;
    learn(ctx, victim)?;
    requests()?;
    // Requests of the other survivor may still use this process's memory.
    ctx.sync();
    Ok(())
}

fn atomics_end(ctx: &Ctx) -> Verdict {
    segment(0, 8)?;
    let victim = last_dies(ctx)?;
    let (to, mut old) = (victim as u16, 0);
    let start = Instant::now();
    while ms(start) < NAP + 100 {
        let begin = Instant::now();
        let _ = c!(gaspi_atomic_fetch_add(0, 0, to, 1, &mut old, BLOCK));
        let _ = c!(gaspi_atomic_compare_swap(0, 0, to, 1, 2, &mut old, BLOCK));
        ensure!(ms(begin) < FOREVER, "atomics took {} ms", ms(begin));
    }
    learn(ctx, victim)?;
    let survivor = (ctx.rank ^ 1) as u16;
    add(0, 0, survivor, 1)?;
    // Neither survivor leaves before the other one has its result.
    let group = group_of(&[0, 1])?;
    done!(gaspi_barrier(group, BLOCK))
}

fn go_on(ctx: &Ctx, dead: u32) -> Verdict {
    let all = (0..ctx.size).filter(|rank| *rank != dead);
    let survivors: Vec<u16> = all.map(|rank| rank as u16).collect();
    let group = group_of(&survivors)?;
    for round in 0..5u64 {
        ok!(gaspi_barrier(group, BLOCK));
        let sum = reduced(group, SUM, round + u64::from(ctx.rank))?;
        let expected: u64 = survivors.iter().map(|r| round + u64::from(*r)).sum();
        ensure_eq!(sum, expected, "the sum over the survivors");
    }
    ok!(gaspi_segment_create(77, 4096, group, BLOCK, 0));
    let memory = memory(77, 4096)?;
    memory.set(0, 900 + u64::from(ctx.rank));
    for rank in &survivors {
        let at = 8 + 8 * u64::from(ctx.rank);
        post::write_notify(77, 0, *rank, 77, at, 8, ctx.rank, 1).ok(2, BLOCK)?;
    }
    for rank in survivors {
        waited(77, rank.into(), 1, BLOCK)?;
        let (at, value) = (8 + 8 * usize::from(rank), 900 + u64::from(rank));
        memory.shows(at, value, format_args!("what rank {rank} wrote"))?;
    }
    ok!(gaspi_wait(2, BLOCK));
    // Without a notification the call times out again, and gives no error.
    ensure_eq!(waitsome(77, 1000, 10, 20), TIMEOUT, "gaspi_notify_waitsome");
    done!(gaspi_barrier(group, BLOCK))
}

fn survivors_go_on(ctx: &Ctx) -> Verdict {
    segment(0, 64)?;
    ends(ctx, "gaspi_barrier", || c!(gaspi_barrier(ALL, BLOCK)))?;
    go_on(ctx, ctx.size - 1)
}

fn other_groups_go_on(ctx: &Ctx) -> Verdict {
    let mut group = ALL;
    if ctx.rank != ctx.size - 1 {
        group = group_of(&[0, 1, 2])?;
    }
    let victim = last_dies(ctx)?;
    learn(ctx, victim)?;
    for round in 0..20u64 {
        ok!(gaspi_barrier(group, BLOCK));
        let sum = reduced(group, SUM, round)?;
        ensure_eq!(sum, 3 * round, "the sum over the group");
    }
    Ok(())
}

fn killed_in_the_middle(ctx: &Ctx) -> Verdict {
    let mut random = ctx.random(0);
    let victim = random.below(u64::from(ctx.size)) as u32;
    let moment = 20 + random.below(400);
    let memory = segment(0, 1 << 16)?;
    memory.set(0, 1);
    barrier()?;
    let start = Instant::now();
    let mut steps = 0;
    let mut mine = ctx.random(1 + u64::from(ctx.rank));
    loop {
        // All ranks do the same collective operations, with random one-sided operations between them.
        let mut codes = Vec::new();
        for _ in 0..3 {
            steps += 1;
            if ctx.rank == victim && steps == moment {
                ctx.dies();
            }
            let to = mine.below(u64::from(ctx.size)) as u16;
            let mut old = 0;
            codes.push(match mine.below(5) {
                0 => c!(gaspi_write_notify(0, 0, to, 0, 64, 32_000, 1, 1, 0, 500)),
                1 => c!(gaspi_read(0, 33_000, to, 0, 64, 30_000, 0, 500)),
                2 => c!(gaspi_atomic_fetch_add(0, 8, to, 1, &mut old, 500)),
                3 => c!(gaspi_wait(0, BLOCK)),
                _ => c!(gaspi_notify(0, to, 2, 1, 0, 500)),
            });
        }
        codes.push(c!(gaspi_wait(0, BLOCK)));
        codes.push(match steps % 2 {
            0 => c!(gaspi_barrier(ALL, BLOCK)),
            _ => summed(ALL, BLOCK),
        });
        if codes.into_iter().any(is_error) {
            break;
        }
        ensure!(ms(start) < LONG, "no failure after {} ms", ms(start));
    }
    learn(ctx, victim)?;
    repeat("gaspi_queue_purge", || c!(gaspi_queue_purge(0, 100)))?;
    go_on(ctx, victim)
}

fn ping_the_dead(ctx: &Ctx) -> Verdict {
    one_dies(ctx, 1)?;
    learn(ctx, 1)?;
    gives!(GASPI_ERROR, gaspi_proc_ping(1, LONG));
    ok!(gaspi_proc_ping(0, LONG));
    let code = c!(gaspi_connect(1, LONG));
    must_fail(code, "gaspi_connect to a killed process")
}

fn term_without_the_dead(ctx: &Ctx) -> Verdict {
    ok!(gaspi_proc_init(LONG));
    segment(0, 1 << 16)?;
    one_dies(ctx, 0)?;
    for _ in 0..5 {
        let _ = c!(gaspi_write(0, 0, 0, 0, 0, 1 << 15, 0, 100));
    }
    repeat("gaspi_proc_term", || c!(gaspi_proc_term(2000)))?;
    Ok(())
}

fn init_without_the_dead(ctx: &Ctx) -> Verdict {
    if ctx.rank == 2 {
        pause(NAP);
        ctx.dies();
    }
    must_fail(
        c!(gaspi_proc_init(BLOCK)),
        "gaspi_proc_init without a process",
    )?;
    let mut rank = 0;
    gives!(GASPI_ERR_NOINIT, gaspi_proc_rank(&mut rank));
    Ok(())
}

/// If ranks emulate hosts, rank 1 is on another host than rank 0.
fn kill_one(ctx: &Ctx, victim: u32) -> Verdict {
    if ctx.rank == victim {
        ctx.may_die();
    }
    all_here(ctx)?;
    if ctx.rank == victim {
        // The signal ends the process in this pause.
        pause(LONG);
        return Err("still alive long after gaspi_proc_kill".into());
    }
    if ctx.rank == 0 {
        pause(NAP);
        gives!(GASPI_ERR_INV_RANK, gaspi_proc_kill(0, LONG));
        gives!(GASPI_ERR_INV_RANK, gaspi_proc_kill(ctx.size as u16, LONG));
        let kill = || c!(gaspi_proc_kill(victim as u16, 500));
        repeat("gaspi_proc_kill", kill)?;
        // After success the process is dead: the state vector shows it at once.
        let mut expected = vec![0; 3];
        expected[victim as usize] = 1;
        ensure_eq!(states(ctx)?, expected, "states after gaspi_proc_kill");
    }
    learn(ctx, victim)?;
    go_on(ctx, victim)
}

//! §5.3.1: a process that takes the place of a dead one.

use std::time::Duration;

use super::kit::*;
use crate::kit::Sides;

laws! {
    told_first: "replaced.state", "§5.3.1, §5.5.2", 3, [gaspi_state_vec_get, gaspi_proc_rank, gaspi_proc_num, gaspi_proc_incarnation] + needs_kill + replaces,
        "the replacement of a killed process has its rank; for the others the rank is corrupt until they read the state vector, and then healthy";
    not_before: "replaced.not-before", "§5.5.1", 3, [gaspi_write, gaspi_barrier, gaspi_wait, gaspi_proc_ping, gaspi_connect] + needs_kill + replaces,
        "nothing reaches the new process from a process that does not know the death yet";
    group_all: "replaced.group-all", "§5.3.1, §6.3.3", 4, [gaspi_group_commit, gaspi_barrier, gaspi_allreduce] + needs_kill + replaces,
        "GASPI_GROUP_ALL fails until all have committed it again, and then has the new process in it";
    new_group: "replaced.group", "§6.3.3", 4, [gaspi_group_create, gaspi_group_add, gaspi_group_commit, gaspi_allreduce] + needs_kill + replaces,
        "a group of all ranks that is made anew has the new process in it; one without it goes on";
    segments: "replaced.segment", "§5.3.1, §7.2", 3,
        [gaspi_segment_create, gaspi_segment_register, gaspi_read, gaspi_write_notify, gaspi_notify_waitsome, gaspi_atomic_fetch_add, gaspi_queue_purge] + needs_kill + replaces,
        "the new process reads the data that a neighbour keeps for it; the others use its segments as before";
    passive: "replaced.passive", "§9.2", 3, [gaspi_passive_send, gaspi_passive_receive] + needs_kill + replaces,
        "passive messages go to and from the new process; unreceived messages of the old one are lost";
    twice: "replaced.twice", "§5.3.1", 3, [gaspi_state_vec_get, gaspi_group_commit, gaspi_barrier] + needs_kill + replaces,
        "the process that has taken the place of a killed one is killed, and another one takes its place";
    two_at_once: "replaced.two", "§5.3.1", 4, [gaspi_state_vec_get, gaspi_group_commit, gaspi_allreduce] + needs_kill + replaces,
        "two processes are killed at once, and two others take their places";
    with_host: "replaced.host", "§5.3.1", 4,
        [gaspi_state_vec_get, gaspi_group_commit, gaspi_segment_create, gaspi_write_notify, gaspi_notify_waitsome] + needs_kill + kills_launcher + replaces,
        "the launcher of a host is killed; processes of another host replace its ranks, and a dead replacement is replaced, too";
    by_call: "replaced.proc_kill", "§5.3.5", 3, [gaspi_proc_kill, gaspi_group_commit, gaspi_barrier] + needs_kill + replaces,
        "another process replaces a process that gaspi_proc_kill has ended";
    before_init: "replaced.init", "§5.3.1", 3, [gaspi_proc_init, gaspi_barrier] + needs_kill + replaces + bare,
        "a process is killed before gaspi_proc_init; the others complete gaspi_proc_init with its replacement";
}

pub(super) fn incarnation() -> Result<u32, String> {
    let incarnation = got!(gaspi_proc_incarnation());
    Ok(incarnation)
}

/// Waits until all ranks are healthy and each of `dead` has been corrupt before. A new process has not seen the deaths: it passes none.
pub(super) fn all_healthy(ctx: &Ctx, dead: &[u32]) -> Verdict {
    let mut seen = vec![false; ctx.size as usize];
    let mut looks = Looks::for_the("new process");
    loop {
        let states = states(ctx)?;
        for (rank, state) in states.iter().enumerate() {
            seen[rank] |= *state == 1;
        }
        let known = dead.iter().all(|rank| seen[*rank as usize]);
        if states.iter().all(|state| *state == 0) && known {
            return Ok(());
        }
        looks.pause(Duration::from_millis(1));
    }
}

/// Waits until the rank has told something.
fn until_told(ctx: &Ctx, rank: u32) {
    let mut looks = Looks::for_the("word of a rank");
    while ctx.told(rank).is_none() {
        looks.pause(Duration::from_millis(1));
    }
}

/// In a survivor: learns of the death by a barrier, and waits for the new process.
fn survives(ctx: &Ctx) -> Verdict {
    barrier_fails()?;
    all_healthy(ctx, &[ctx.size - 1])
}

/// Segment 0 of zeros. A process that takes the place of a dead one allocates it alone.
pub(super) fn own_segment(len: usize) -> Result<Memory, String> {
    if incarnation()? == 0 {
        return segment(0, len);
    }
    ok!(gaspi_segment_alloc(0, len as u64, 0));
    memory(0, len)
}

/// All ranks commit GASPI_GROUP_ALL again, and meet in a barrier.
pub(super) fn together() -> Verdict {
    ok!(gaspi_group_commit(ALL, LONG));
    barrier()
}

/// Kills the last rank after a barrier. Gives true in the process that takes its place.
fn last_dies(ctx: &Ctx) -> Result<bool, String> {
    if incarnation()? > 0 {
        return Ok(true);
    }
    barrier()?;
    ctx.sync();
    if ctx.rank == ctx.size - 1 {
        ctx.dies();
    }
    Ok(false)
}

/// The error by which a survivor learns of the death.
fn barrier_fails() -> Verdict {
    let code = c!(gaspi_barrier(ALL, BLOCK));
    must_fail(code, "a barrier with a killed process")
}

fn told_first(ctx: &Ctx) -> Verdict {
    let (mut rank, mut num) = (9, 9);
    let new = last_dies(ctx)?;
    ok!(gaspi_proc_rank(&mut rank));
    ok!(gaspi_proc_num(&mut num));
    let seen = (u32::from(rank), u32::from(num));
    ensure_eq!(seen, (ctx.rank, ctx.size), "rank and number");
    ensure_eq!(incarnation()?, u32::from(new), "the incarnation");
    let last = ctx.size as usize - 1;
    if new {
        ctx.tell(b"here");
        all_healthy(ctx, &[])?;
    } else {
        // The new process starts before this rank's first gaspi_state_vec_get.
        until_told(ctx, last as u32);
        let mut expected = vec![0; ctx.size as usize];
        expected[last] = 1;
        ensure_eq!(states(ctx)?, expected, "the first state vector");
        ensure_eq!(states(ctx)?, vec![0; ctx.size as usize], "the second one");
        ok!(gaspi_proc_ping(last as u16, LONG));
    }
    together()
}

fn not_before(ctx: &Ctx) -> Verdict {
    let last = ctx.size - 1;
    let new = incarnation()? > 0;
    let memory = own_segment(64)?;
    if new {
        let register = |rank| done!(gaspi_segment_register(0, rank, LONG));
        for_all(0..last as u16, register)?;
    }
    last_dies(ctx)?;
    if new {
        ctx.tell(b"here");
        (0..last).for_each(|rank| until_told(ctx, rank));
        ensure_eq!(memory.get(8), 0, "the data that reached the new process");
    } else {
        until_told(ctx, last);
        memory.set(8, 7);
        let to = last as u16;
        must_fail(c!(gaspi_proc_ping(to, LONG)), "gaspi_proc_ping")?;
        must_fail(c!(gaspi_connect(to, LONG)), "gaspi_connect")?;
        let codes = [
            c!(gaspi_write(0, 8, to, 0, 8, 8, 1, LONG)),
            c!(gaspi_wait(1, LONG)),
        ];
        let failed = codes.into_iter().any(is_error);
        ensure!(failed, "gaspi_write and gaspi_wait gave {codes:?}");
        barrier_fails()?;
        ctx.tell(b"tried");
    }
    let dead = if new { vec![] } else { vec![last] };
    all_healthy(ctx, &dead)?;
    together()?;
    if !new {
        ok!(gaspi_queue_purge(1, LONG));
        post::write(0, 8, last as u16, 0, 16 + 8 * u64::from(ctx.rank), 8).ok(1, LONG)?;
        flush(1)?;
    }
    barrier()?;
    if new {
        ensure_eq!(memory.words([8, 16, 24]), [0, 7, 7], "what has come");
    }
    Ok(())
}

fn group_all(ctx: &Ctx) -> Verdict {
    let last = ctx.size - 1;
    let new = last_dies(ctx)?;
    if new {
        gives!(GASPI_ERR_INV_GROUP, gaspi_barrier(ALL, LONG));
    } else {
        barrier_fails()?;
        all_healthy(ctx, &[last])?;
        barrier_fails()?;
    }
    together()?;
    for round in 1..20 {
        let expected = u64::from(ctx.size * (ctx.size - 1) / 2) * round;
        let sum = sum_of_all(round * u64::from(ctx.rank))?;
        ensure_eq!(sum, expected, "the sum");
        barrier()?;
    }
    Ok(())
}

fn new_group(ctx: &Ctx) -> Verdict {
    let last = ctx.size - 1;
    let survivors = match incarnation()? == 0 && ctx.rank != last {
        true => Some(group_of(&(0..last as u16).collect::<Vec<_>>())?),
        false => None,
    };
    if !last_dies(ctx)? {
        survives(ctx)?;
    }
    let group = group_of(&(0..ctx.size as u16).collect::<Vec<_>>())?;
    ensure_eq!(reduced(group, SUM, 3)?, 3 * u64::from(ctx.size), "over all");
    if let Some(survivors) = survivors {
        let sum = reduced(survivors, SUM, 3)?;
        ensure_eq!(sum, 3 * u64::from(last), "the sum over the survivors");
        ok!(gaspi_group_delete(survivors));
    }
    ok!(gaspi_barrier(group, LONG));
    done!(gaspi_group_delete(group))
}

fn segments(ctx: &Ctx) -> Verdict {
    const KEPT: u64 = 64;
    let last = ctx.size - 1;
    let new = incarnation()? > 0;
    let memory = own_segment(128)?;
    if !new && ctx.rank == last {
        // It saves its state at rank 0.
        memory.set(0, 4711);
        ok!(gaspi_write(0, 0, 0, 0, KEPT, 8, 0, LONG));
        flush(0)?;
    }
    if !last_dies(ctx)? {
        survives(ctx)?;
        ok!(gaspi_queue_purge(0, LONG));
    } else {
        for rank in 0..ctx.size as u16 {
            ok!(gaspi_segment_register(0, rank, LONG));
        }
        ok!(gaspi_read(0, 0, 0, 0, KEPT, 8, 0, LONG));
        flush(0)?;
        ensure_eq!(memory.get(0), 4711, "what was kept");
    }
    together()?;
    // Each rank writes to all ranks.
    memory.set(8, u64::from(ctx.rank) + 1);
    barrier()?;
    for to in 0..ctx.size as u16 {
        let at = 16 + 8 * u64::from(ctx.rank);
        ok!(gaspi_write_notify(0, 8, to, 0, at, 8, ctx.rank, 5, 0, LONG));
        add(0, 56, to, 1)?;
    }
    for from in 0..ctx.size {
        ensure_eq!(notified(0, from)?, 5, "the notification");
        memory.shows(16 + 8 * from as usize, u64::from(from) + 1, "the bytes")?;
    }
    flush(0)?;
    barrier()?;
    memory.shows(56, u64::from(ctx.size), "the sum of the atomics")
}

fn passive(ctx: &Ctx) -> Verdict {
    let last = ctx.size - 1;
    let new = incarnation()? > 0;
    ok!(gaspi_segment_alloc(0, 4096, 0));
    let memory = memory(0, 4096)?;
    if !new && ctx.rank == last {
        memory.set(0, 13);
        // No rank receives at this time.
        for to in 0..last as u16 {
            gives!(GASPI_TIMEOUT, gaspi_passive_send(0, 0, to, 8, TEST));
        }
    }
    if !last_dies(ctx)? {
        survives(ctx)?;
    }
    together()?;
    for round in 0..40u64 {
        if new {
            for _ in 0..last {
                let from = receive(0, 0, 1024)?;
                memory.shows(
                    0,
                    100 * u64::from(from) + round,
                    "the message of a survivor",
                )?;
            }
            for to in 0..last as u16 {
                memory.set(0, round);
                let size = if round % 2 == 0 { 8 } else { 1024 };
                ok!(gaspi_passive_send(0, 0, to, size, LONG));
            }
        } else {
            memory.set(0, 100 * u64::from(ctx.rank) + round);
            ok!(gaspi_passive_send(0, 0, last as u16, 1024, LONG));
            let seen = (receive(0, 0, 1024)?.into(), memory.get(0));
            ensure_eq!(seen, (last, round), "the message of the new process");
        }
    }
    barrier()
}

fn twice(ctx: &Ctx) -> Verdict {
    let last = ctx.size - 1;
    for death in 0..2 {
        if incarnation()? == death && ctx.rank == last {
            match death {
                0 => barrier()?,
                _ => together()?,
            }
            ctx.sync();
            ctx.dies();
        }
        if ctx.rank != last {
            barrier()?;
            ctx.sync();
            survives(ctx)?;
            ok!(gaspi_group_commit(ALL, LONG));
        }
    }
    if ctx.rank == last {
        ok!(gaspi_group_commit(ALL, LONG));
        ensure_eq!(incarnation()?, 2, "the incarnation");
    }
    barrier()
}

fn two_at_once(ctx: &Ctx) -> Verdict {
    let dead = [1, ctx.size - 1];
    if incarnation()? == 0 {
        barrier()?;
        ctx.sync();
        if dead.contains(&ctx.rank) {
            ctx.dies();
        }
        barrier_fails()?;
        all_healthy(ctx, &dead)?;
    } else {
        // The two new processes start in any order.
        all_healthy(ctx, &[])?;
        // The commit may have met the other victim.
        if is_error(c!(gaspi_group_commit(ALL, LONG))) {
            all_healthy(ctx, &[])?;
        }
    }
    together()?;
    equal!(sum_of_all(2)?, 2 * u64::from(ctx.size), "the sum")
}

fn with_host(ctx: &Ctx) -> Verdict {
    const SUMMED: &[u8] = b"summed";
    // Only the first processes meet here. A new process starts later.
    let dead = match incarnation()? {
        0 => {
            let sides = Sides::find(ctx)?;
            barrier()?;
            ctx.sync();
            sides.kill_launcher(ctx);
            // The ranks of the host end after their launcher.
            while c!(gaspi_barrier(ALL, BLOCK)) == SUCCESS {}
            sides.lost().to_vec()
        }
        _ => Vec::new(),
    };
    all_healthy(ctx, &dead)?;
    let mut first = true;
    loop {
        together()?;
        round(ctx)?;
        let last = ctx.size - 1;
        // The last rank dies next. It runs on another host than before.
        let deaths = sum_of_all(incarnation()?.into())?;
        if deaths == 3 {
            return Ok(());
        }
        ensure_eq!(deaths, 2, "the incarnations of all");
        ensure!(first, "the last rank has not died");
        first = false;
        ctx.tell(SUMMED);
        if ctx.rank == last {
            // A death during a sum is an error at each rank that does not have the result yet.
            let mut looks = Looks::for_the("sums of the others");
            while (0..last).any(|rank| ctx.told(rank).as_deref() != Some(SUMMED)) {
                looks.pause(Duration::from_millis(1));
            }
            ctx.dies();
        }
        barrier_fails()?;
        all_healthy(ctx, &[last])?;
    }
}

/// Each rank writes its rank to its neighbour, in a segment that all create.
fn round(ctx: &Ctx) -> Verdict {
    let memory = segment(7, 64)?;
    memory.set(0, u64::from(ctx.rank) + 1);
    let left = u32::from(left(ctx));
    post::write_notify(7, 0, right(ctx), 7, 8, 8, 0, ctx.rank + 1).ok(1, LONG)?;
    flush(1)?;
    ensure_eq!(notified(7, 0)?, left + 1, "left neighbour's notification");
    ensure_eq!(memory.get(8), u64::from(left) + 1, "what it has written");
    barrier()?;
    ok!(gaspi_segment_delete(7));
    barrier()
}

fn by_call(ctx: &Ctx) -> Verdict {
    let last = ctx.size - 1;
    if incarnation()? == 0 {
        barrier()?;
        if ctx.rank == last {
            ctx.may_die();
        }
        ctx.sync();
        if ctx.rank == 0 {
            ok!(gaspi_proc_kill(last as u16, LONG));
        }
        if ctx.rank == last {
            loop {
                pause(1000);
            }
        }
        survives(ctx)?;
    }
    together()?;
    equal!(sum_of_all(1)?, u64::from(ctx.size), "the sum")
}

fn before_init(ctx: &Ctx) -> Verdict {
    let first = std::env::var_os("UNIPGAS_INCARNATION").is_none();
    if first && ctx.rank == 2 {
        ctx.dies();
    }
    // The call may fail because of the death, before the new process has started.
    let mut looks = Looks::for_the("new process");
    while c!(gaspi_proc_init(LONG)) != SUCCESS {
        looks.pause(Duration::from_millis(1));
    }
    together()?;
    ensure_eq!(sum_of_all(1)?, u64::from(ctx.size), "the sum");
    ctx.sync();
    done!(gaspi_proc_term(LONG))
}

//! A member of a group is killed (fi_collective(3)).

use super::collective::{COLLECTIVE, Club, address_of};
use super::collective_data::{KINDS, NAMES, deed};
use super::death::{ended, reset, victim};
use super::kit::*;
use super::waiting::readable;

laws! {
    waits bereaved(&COLLECTIVE): "collective.death", "fi_collective(3)", 4,
        [barrier, broadcast, alltoall, allreduce, allgather, reduce_scatter, reduce, scatter, gather, cq_readerr] + needs_kill,
        "operations that wait for a member that is killed end with a failure at all others, and so do later ones; groups without it go on";
    join: "collective.death.join", "fi_collective(3); fi_eq(3)", 3, [join_collective, eq_read, eq_sread, eq_readerr] + needs_kill,
        "a join that waits for a member that is killed ends with a failure in the event queue, and wakes a member at the queue's descriptor";
    later given(true): "collective.death.later", "fi_collective(3)", 4, [allreduce, broadcast, cq_readerr] + needs_kill,
        "a member that completed the operation that fails elsewhere gets the failure in a later one, although other members begin none";
    later given(false): "collective.leave.later", "fi_collective(3); fi_cm(3)", 4, [close, allreduce, broadcast, cq_readerr],
        "a member that leaves in an operation ends later ones at all others, also where they wait for members that have failed";
    departed: "collective.leave.each", "fi_collective(3); fi_endpoint(3); fi_cm(3)", 3,
        [close, cq_sread, cq_readerr, barrier, broadcast, alltoall, allreduce, allgather, reduce_scatter, reduce, scatter, gather],
        "a member closes its group or endpoint in each operation, beside a thread that waits at its queue: each ends once at all members, and its \
         memory is the program's again";
    meanwhile bereaved(&COLLECTIVE): "collective.death.meanwhile", "fi_collective(3)", 4, [allreduce, broadcast, cq_readerr] + needs_kill,
        "a member is killed in the middle of operations: each ends once, as a success with the right result or as a failure";
    sleeping bereaved(&COLLECTIVE.wait(FI_WAIT_UNSPEC)): "collective.death.wait", "fi_collective(3); fi_cq(3)", 3, [barrier, cq_sread, cq_readerr] + needs_kill,
        "a wait in fi_cq_sread ends with the failure, too";
}

/// Runs the body with the group of all ranks, which it closes. The ranks that survive it meet and close their objects.
fn bereaved(
    ctx: &Ctx,
    plan: &Plan<'_>,
    body: impl FnOnce(&Club<'_>, *mut fid_mc) -> Verdict,
) -> Verdict {
    let job = opened(ctx, plan, 256)?;
    let club = Club::open(&job, plan)?;
    let all = club.all()?;
    body(&club, all)?;
    job.meet();
    club.close()?;
    ended(job)
}

/// The group of the survivors.
fn survivors(club: &Club<'_>) -> Result<*mut fid_mc, String> {
    let ranks: Vec<u32> = (0..victim(club.job)).collect();
    club.group(&ranks)
}

/// Begins an operation of each kind, with contexts from `from` on. The contexts.
fn begin_each(
    club: &Club<'_>,
    group: *mut fid_mc,
    [operand, result]: &mut [[u64; 8]; 2],
    from: usize,
) -> Result<Vec<usize>, String> {
    let job = club.job;
    for (kind, nth) in KINDS.zip(from..) {
        let root = club.addresses[kind as usize % job.size as usize];
        let buffers = (operand.as_ptr(), result.as_mut_ptr());
        let deed = deed(kind, group, (UINT64, SUM), 2).with(root, buffers, nth);
        job.post(|| deed.post(club.ep))?;
    }
    Ok((from..from + NAMES.len()).collect())
}

/// Removes the operation that has ended.
fn end_one(open: &mut Vec<usize>, context: usize) -> Verdict {
    let at = open.iter().position(|known| *known == context);
    let at = at.ok_or_else(|| format!("the operation {context} has ended twice"))?;
    open.swap_remove(at);
    Ok(())
}

fn waits(club: &Club<'_>, all: *mut fid_mc) -> Verdict {
    let job = club.job;
    club.barrier(all)?;
    if job.rank == victim(job) {
        job.meet();
        job.ctx.dies();
    }
    let alive = survivors(club)?;
    let mut words = [[1u64; 8]; 2];
    let mut open = begin_each(club, all, &mut words, 100)?;
    // No operation completes before the death: the victim does not take part.
    job.tx.is_empty()?;
    job.meet();
    open.extend(begin_each(club, all, &mut words, 200)?);
    while !open.is_empty() {
        let error = reset(job, "an operation of a group with a dead member", job.tx)?;
        ensure_eq!(error.flags, FI_COLLECTIVE, "the flags of a failure");
        end_one(&mut open, error.context())?;
    }
    job.tx.is_empty()?;
    for_all(0..3, |_| club.barrier(alive))?;
    // A group that is joined after the death works, too.
    let later = survivors(club)?;
    club.barrier(later)?;
    [alive, later, all].into_iter().try_for_each(close)
}

fn join(ctx: &Ctx) -> Verdict {
    let job = opened(ctx, &COLLECTIVE, 256)?;
    let eq = super::event::open(&job, FI_WAIT_FD)?;
    let club = Club::open_with(&job, &COLLECTIVE, eq)?;
    let descriptor = control(eq, FI_GETWAIT, -1)?;
    if job.rank == victim(&job) {
        job.meet();
        ctx.dies();
    }
    for turn in 0..2 {
        let set = club.set(&club.ranks())?;
        let group = club.begin_own(set, 8)?;
        if turn == 0 {
            job.meet();
        }
        if job.rank == 1 {
            ensure!(readable(descriptor, -1), "poll(2)");
        }
        let (code, ..) = club.event()?;
        ensure_eq!(code, AVAIL, "a join with a dead member");
        // SAFETY:
        // - plain data, of which zeros are a value.
        let mut error: fi_eq_err_entry = unsafe { std::mem::zeroed() };
        let len = call!(obj club.eq, readerr(&mut error, 0));
        ensure_eq!(len, size_of::<fi_eq_err_entry>() as isize, "fi_eq_readerr");
        ensure_eq!(error.err, FI_ECONNRESET, "the failure");
        let seen = (error.fid, error.context.addr());
        ensure_eq!(seen, (group.cast(), 8), "the group and the context");
        gives!(FI_EOPBADSTATE, collective club.ep, barrier(address_of(group), cx(1)));
        close(group)?;
        close(set)?;
    }
    let alive = survivors(&club)?;
    club.barrier(alive)?;
    close(alive)?;
    job.meet();
    club.close()?;
    ended(job)
}

/// Waits for the end of an operation. Whether it is a success. `failure`: the code of a failure.
fn succeeds(job: &Job<'_>, context: usize, failure: c_int) -> Result<bool, String> {
    let (seen, succeeds) = match job.tx.end()? {
        End::Success(entry) => (entry.context(), true),
        End::Failure(error) => {
            ensure_eq!(error.err, failure, "the failure of an operation");
            (error.context(), false)
        }
    };
    ensure_eq!(seen, context, "the context of an end");
    Ok(succeeds)
}

/// The victim dies or leaves after the first round of a reduction. Only member 1 needs its second round.
fn later(ctx: &Ctx, dies: bool) -> Verdict {
    bereaved(ctx, &COLLECTIVE, |club, all| {
        let job = club.job;
        club.barrier(all)?;
        let (operand, mut result) = (1u64, 0u64);
        let buffers = (&raw const operand, &raw mut result);
        let begin = |kind, context| {
            let deed = deed(kind, all, (UINT64, SUM), 1);
            let deed = deed.with(club.addresses[1], buffers, context);
            job.post(|| deed.post(club.ep))
        };
        if job.rank == victim(job) {
            begin(FI_ALLREDUCE, 1)?;
            job.meet();
            if dies {
                ctx.dies();
            }
            close(all)?;
            let what = "the reduction of a member that leaves";
            return job.tx.fails(FI_ECANCELED, what).map(drop);
        }
        job.meet();
        begin(FI_ALLREDUCE, 1)?;
        let failure = if dies { FI_ECONNRESET } else { FI_ECANCELED };
        if succeeds(job, 1, failure)? {
            ensure!(job.rank != 1, "a success without a contribution");
            begin(FI_BROADCAST, 2)?;
            let second = succeeds(job, 2, failure)?;
            ensure!(!second, "a broadcast that its root did not begin");
        }
        over(club, all)
    })
}

fn departed(ctx: &Ctx) -> Verdict {
    let plan = COLLECTIVE.wait(FI_WAIT_UNSPEC);
    with(ctx, &plan, 256, |job| {
        for round in 0..many(ctx, 2) {
            departs(job, &plan, round % 2 == 0).map_err(|text| format!("{round}: {text}"))?;
        }
        Ok(())
    })
}

/// Member 0 leaves operations that member 2 has not begun.
fn departs(job: &Job<'_>, plan: &Plan<'_>, closes_endpoint: bool) -> Verdict {
    let club = Club::open(job, plan)?;
    let all = club.all()?;
    let rest = match job.rank {
        0 => null_mut(),
        _ => club.group(&[1, 2])?,
    };
    let mut words = [[1u64; 8]; 2];
    let mut open = Vec::new();
    if job.rank < 2 {
        open = begin_each(&club, all, &mut words, 100)?;
    }
    job.meet();
    if job.rank == 0 {
        let queue = job.tx.0.addr();
        let wait = move || -> Result<Vec<usize>, String> {
            let (queue, mut open) = (Queue(queue as *mut fid_cq), open);
            while !open.is_empty() {
                let mut entry = blank();
                let code = call!(obj queue.0, sread((&raw mut entry).cast(), 1, null(), LONG));
                ensure_eq!(code, AVAIL, "the wait beside fi_close");
                let error = queue.fails(FI_ECANCELED, "an operation of a member that leaves")?;
                end_one(&mut open, error.context())?;
            }
            Ok(open)
        };
        let (ended, closed) = beside(wait, || {
            pause(job.ctx.random(1).below(10));
            if closes_endpoint {
                close(club.ep)?;
            }
            close(all)
        })?;
        closed?;
        ended?;
        words = [[7; 8]; 2];
        job.meet();
    } else {
        job.meet();
        if job.rank == 2 {
            open = begin_each(&club, all, &mut words, 100)?;
        }
        while !open.is_empty() {
            let context = match job.tx.end()? {
                End::Success(entry) => entry.context(),
                End::Failure(error) => {
                    let known = [FI_ECANCELED, FI_ECONNRESET].contains(&error.err);
                    ensure!(known, "the failure is {}", error.err);
                    error.context()
                }
            };
            end_one(&mut open, context)?;
        }
        club.barrier(rest)?;
        [rest, all].into_iter().try_for_each(close)?;
    }
    job.tx.is_empty()?;
    job.meet();
    ensure!(
        job.rank != 0 || words == [[7; 8]; 2],
        "memory of ended operations"
    );
    match closes_endpoint && job.rank == 0 {
        true => close(club.eq),
        false => club.close(),
    }
}

/// The survivors meet in a group of their own. The queue has no more ends.
fn over(club: &Club<'_>, all: *mut fid_mc) -> Verdict {
    club.job.tx.is_empty()?;
    let alive = survivors(club)?;
    club.barrier(alive)?;
    [alive, all].into_iter().try_for_each(close)
}

fn meanwhile(club: &Club<'_>, all: *mut fid_mc) -> Verdict {
    const COUNT: usize = 40_000;
    let job = club.job;
    let last = 3 + job.ctx.random(1).below(20);
    let operand = vec![u64::from(job.rank) + 1; COUNT];
    for turn in 0.. {
        let root = turn as u32 % job.size;
        let mut result = vec![if job.rank == root { 9 } else { 0u64 }; COUNT];
        let kind = [FI_ALLREDUCE, FI_BROADCAST][turn % 2];
        let buffers = (operand.as_ptr(), result.as_mut_ptr());
        let deed = deed(kind, all, (UINT64, SUM), COUNT);
        let deed = deed.with(club.addresses[root as usize], buffers, turn);
        job.post(|| deed.post(club.ep))?;
        if job.rank == victim(job) && turn as u64 == last {
            job.ctx.dies();
        }
        if !succeeds(job, turn, FI_ECONNRESET)? {
            break;
        }
        let good = if kind == FI_ALLREDUCE { 10 } else { 9 };
        ensure!(result.iter().all(|sum| *sum == good), "a wrong result");
    }
    over(club, all)
}

fn sleeping(club: &Club<'_>, all: *mut fid_mc) -> Verdict {
    let job = club.job;
    if job.rank == victim(job) {
        job.meet();
        job.ctx.dies();
    }
    club.begin_barrier(all, 6)?;
    job.meet();
    let error = super::death::waited(job, "a barrier", job.tx)?;
    ensure_eq!(error.context(), 6, "the context");
    close(all)
}

//! A member of a group is killed (fi_collective(3)).

use super::collective::{COLLECTIVE, Club, address_of};
use super::collective_data::{Deed, KINDS, NAMES, deed};
use super::death::{ended, reset, victim};
use super::kit::*;
use super::waiting::readable;

laws! {
    waits: "collective.death", "fi_collective(3)", 4,
        [barrier, broadcast, alltoall, allreduce, allgather, reduce_scatter, reduce, scatter, gather, cq_readerr] + needs_kill,
        "operations that wait for a member that is killed end with a failure at all others, and so do later ones; groups without it go on";
    join: "collective.death.join", "fi_collective(3); fi_eq(3)", 3, [join_collective, eq_read, eq_sread, eq_readerr] + needs_kill,
        "a join that waits for a member that is killed ends with a failure in the event queue, and wakes a member at the queue's descriptor";
    later given(true): "collective.death.later", "fi_collective(3)", 4, [allreduce, broadcast, cq_readerr] + needs_kill,
        "a member that completed the operation that fails elsewhere gets the failure in a later one, although other members begin none";
    later given(false): "collective.leave.later", "fi_collective(3); fi_cm(3)", 4, [close, allreduce, broadcast, cq_readerr],
        "a member that leaves in an operation ends later ones at all others, also where they wait for members that have failed";
    meanwhile: "collective.death.meanwhile", "fi_collective(3)", 4, [allreduce, broadcast, cq_readerr] + needs_kill,
        "a member is killed in the middle of operations: each ends once, as a success with the right result or as a failure";
    sleeping: "collective.death.wait", "fi_collective(3); fi_cq(3)", 3, [barrier, cq_sread, cq_readerr] + needs_kill,
        "a wait in fi_cq_sread ends with the failure, too";
}

/// Survivors meet and close their objects.
fn over(job: Job<'_>, (ep, eq): (*mut fid_ep, *mut fid_eq)) -> Verdict {
    job.meet();
    close(ep)?;
    close(eq)?;
    ended(job)
}

/// The group of the survivors.
fn survivors(club: &Club<'_>) -> Result<*mut fid_mc, String> {
    let ranks: Vec<u32> = (0..victim(club.job)).collect();
    club.group(&ranks)
}

fn waits(ctx: &Ctx) -> Verdict {
    let job = opened(ctx, &COLLECTIVE, 256)?;
    let club = Club::open(&job, &COLLECTIVE)?;
    let all = club.all()?;
    club.barrier(all)?;
    if job.rank == victim(&job) {
        job.meet();
        ctx.dies();
    }
    let alive = survivors(&club)?;
    let mut words = [[1u64; 8]; 2];
    let [operand, result] = &mut words;
    let mut all_kinds = |from: usize| -> Result<Vec<usize>, String> {
        for (kind, nth) in KINDS.zip(from..) {
            let deed = Deed {
                root: club.addresses[kind as usize % job.size as usize],
                operand: operand.as_ptr().cast(),
                result: result.as_mut_ptr().cast(),
                context: nth,
                ..deed(kind, all, (UINT64, SUM), 2)
            };
            job.post(|| deed.post(club.ep))?;
        }
        Ok((from..from + NAMES.len()).collect())
    };
    let mut open = all_kinds(100)?;
    // No operation completes before the death: the victim does not take part.
    job.tx.is_empty()?;
    job.meet();
    open.extend(all_kinds(200)?);
    while !open.is_empty() {
        let error = reset(&job, "an operation of a group with a dead member", job.tx)?;
        ensure_eq!(error.flags, FI_COLLECTIVE, "the flags of a failure");
        let context = error.context();
        let at = open.iter().position(|known| *known == context);
        let at = at.ok_or_else(|| format!("the operation {context} has ended twice"))?;
        open.swap_remove(at);
    }
    job.tx.is_empty()?;
    for _ in 0..3 {
        club.barrier(alive)?;
    }
    // A group that is joined after the death works, too.
    let later = survivors(&club)?;
    club.barrier(later)?;
    [alive, later, all].into_iter().try_for_each(close)?;
    let objects = (club.ep, club.eq);
    over(job, objects)
}

fn join(ctx: &Ctx) -> Verdict {
    let job = opened(ctx, &COLLECTIVE, 256)?;
    let eq = super::event::open(&job, FI_WAIT_FD)?;
    let club = Club::open_with(&job, &COLLECTIVE, eq)?;
    let mut descriptor = -1;
    ok!(fid eq, control(FI_GETWAIT, (&raw mut descriptor).cast()));
    if job.rank == victim(&job) {
        job.meet();
        ctx.dies();
    }
    for turn in 0..2 {
        let ranks: Vec<u32> = (0..job.size).collect();
        let (set, mut at) = (club.set(&ranks)?, 0);
        ok!(obj set, addr(&mut at));
        let group = club.begin(set, at, 8)?;
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
        let code = call!(collective club.ep, barrier(address_of(group), cx(1)));
        let expected = -(FI_EOPBADSTATE as isize);
        ensure_eq!(code, expected, "a barrier of a group that is not joined");
        close(group)?;
        close(set)?;
    }
    let alive = survivors(&club)?;
    club.barrier(alive)?;
    close(alive)?;
    let objects = (club.ep, club.eq);
    over(job, objects)
}

/// Waits for the end of an operation. Whether it is a success. `failure`: the code of a failure.
fn succeeds(job: &Job<'_>, context: usize, failure: c_int) -> Result<bool, String> {
    let mut entry = blank();
    let mut looks = Looks::for_the("the end of an operation");
    let code = loop {
        match call!(obj job.tx.0, read((&raw mut entry).cast(), 1)) {
            AGAIN => looks.again(),
            code => break code,
        }
    };
    drop(looks);
    if code == AVAIL {
        let error = job.tx.fails(failure, "an operation")?;
        ensure_eq!(error.context(), context, "the context of a failure");
        return Ok(false);
    }
    let seen = (code, entry.context());
    ensure_eq!(seen, (1, context), "the end of an operation");
    Ok(true)
}

/// The victim dies or leaves after the first round of a reduction. Only member 1 needs its second round.
fn later(ctx: &Ctx, dies: bool) -> Verdict {
    let job = opened(ctx, &COLLECTIVE, 256)?;
    let club = Club::open(&job, &COLLECTIVE)?;
    let all = club.all()?;
    club.barrier(all)?;
    let (operand, mut result) = (1u64, 0u64);
    let mut begin = |kind, context| {
        let deed = Deed {
            root: club.addresses[1],
            operand: (&raw const operand).cast(),
            result: (&raw mut result).cast(),
            context,
            ..deed(kind, all, (UINT64, SUM), 1)
        };
        job.post(|| deed.post(club.ep))
    };
    if job.rank == victim(&job) {
        begin(FI_ALLREDUCE, 1)?;
        job.meet();
        if dies {
            ctx.dies();
        }
        close(all)?;
        job.tx
            .fails(FI_ECANCELED, "the reduction of a member that leaves")?;
        let objects = (club.ep, club.eq);
        return over(job, objects);
    }
    job.meet();
    begin(FI_ALLREDUCE, 1)?;
    let failure = if dies { FI_ECONNRESET } else { FI_ECANCELED };
    if succeeds(&job, 1, failure)? {
        ensure!(job.rank != 1, "a success without a contribution");
        begin(FI_BROADCAST, 2)?;
        ensure!(
            !succeeds(&job, 2, failure)?,
            "a broadcast that its root did not begin"
        );
    }
    job.tx.is_empty()?;
    let alive = survivors(&club)?;
    club.barrier(alive)?;
    [alive, all].into_iter().try_for_each(close)?;
    let objects = (club.ep, club.eq);
    over(job, objects)
}

fn meanwhile(ctx: &Ctx) -> Verdict {
    const COUNT: usize = 40_000;
    let job = opened(ctx, &COLLECTIVE, 256)?;
    let club = Club::open(&job, &COLLECTIVE)?;
    let all = club.all()?;
    let last = 3 + ctx.random(1).below(20);
    let operand = vec![u64::from(job.rank) + 1; COUNT];
    let mut turn = 0;
    loop {
        let root = turn as u32 % job.size;
        let mut result = vec![if job.rank == root { 9 } else { 0u64 }; COUNT];
        let kind = [FI_ALLREDUCE, FI_BROADCAST][turn % 2];
        let deed = Deed {
            root: club.addresses[root as usize],
            operand: operand.as_ptr().cast(),
            result: result.as_mut_ptr().cast(),
            context: turn,
            ..deed(kind, all, (UINT64, SUM), COUNT)
        };
        job.post(|| deed.post(club.ep))?;
        if job.rank == victim(&job) && turn as u64 == last {
            ctx.dies();
        }
        if !succeeds(&job, turn, FI_ECONNRESET)? {
            break;
        }
        let good = if kind == FI_ALLREDUCE { 10 } else { 9 };
        ensure!(result.iter().all(|sum| *sum == good), "a wrong result");
        turn += 1;
    }
    job.tx.is_empty()?;
    let alive = survivors(&club)?;
    club.barrier(alive)?;
    [alive, all].into_iter().try_for_each(close)?;
    let objects = (club.ep, club.eq);
    over(job, objects)
}

fn sleeping(ctx: &Ctx) -> Verdict {
    let plan = COLLECTIVE.wait(FI_WAIT_UNSPEC);
    let job = opened(ctx, &plan, 256)?;
    let club = Club::open(&job, &plan)?;
    let all = club.all()?;
    if job.rank == victim(&job) {
        job.meet();
        ctx.dies();
    }
    club.begin_barrier(all, 6)?;
    job.meet();
    let error = super::death::waited(&job, "a barrier", job.tx)?;
    ensure_eq!(error.context(), 6, "the context");
    close(all)?;
    let objects = (club.ep, club.eq);
    over(job, objects)
}

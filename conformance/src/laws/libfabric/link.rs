//! The link between hosts fails during communication, or a host's launcher is killed together with its processes. Operations and messages
//! that need the other side end with FI_ECONNRESET. The processes of one side continue.

use super::death::{WAITS, ended, reset, survived, waited};
use super::death_messages::synchronous;
use super::kit::*;
use crate::kit::{Lose, Sides};

laws! {
    operations_lose given(Sides::cut as Lose): "link.operations", "fi_cq(3)", 4,
        [write, read, atomic, fetch_atomic, compare_atomic, inject_write, cq_readerr, close] + needs_kill + needs_cut,
        "operations across a link that goes down end, at last with FI_ECONNRESET; those between processes of one host go on, and all can be closed";
    messages_lose given(Sides::cut as Lose):
        "link.messages", "fi_msg(3)", 4, [sendmsg, trecv, tsend, cq_sread, cq_readerr] + needs_kill + needs_cut,
        "waits for a send or a directed receive across a link that goes down end with FI_ECONNRESET; a receive from any source gets messages of this side";
    counters survived(&Plan::DEFAULT.counters(&[FI_WRITE]).queues(false)):
        "link.counter", "fi_cntr(3)", 4, [write, cntr_wait, cntr_readerr] + needs_kill + needs_cut,
        "a wait for a counter ends with a failure when what it counts goes across a link that is down; counters of this side count on";
    operations_lose given(Sides::kill_launcher as Lose): "link.launcher.operations", "fi_cq(3)", 4,
        [write, read, atomic, fetch_atomic, compare_atomic, inject_write, cq_readerr, close] + needs_kill + kills_launcher,
        "operations on processes of a killed launcher end with FI_ECONNRESET; processes of the other host go on, and nothing is left behind";
    messages_lose given(Sides::kill_launcher as Lose):
        "link.launcher.messages", "fi_msg(3)", 4, [sendmsg, trecv, tsend, cq_sread, cq_readerr] + needs_kill + kills_launcher,
        "waits for a send to, or a directed receive from, a process of a killed launcher end with FI_ECONNRESET; messages of the others go on";
}

/// Adds `times` times to the word of the next rank on this side, one addition after the other.
fn near(job: &Job<'_>, sides: &Sides, times: u64) -> Verdict {
    let (next, _) = sides.around();
    for_all(0..times, |_| job.fetch(next, 128, SUM, 1))
}

/// Finds the sides, and lets each rank contact all others.
fn begin(job: &Job<'_>) -> Result<Sides, String> {
    let sides = Sides::find(job.ctx)?;
    for other in (0..job.size).filter(|other| *other != job.rank) {
        job.fetch(other, 8, SUM, 1)?;
    }
    job.meet();
    Ok(sides)
}

fn operations_lose(ctx: &Ctx, lose: Lose) -> Verdict {
    let job = opened(ctx, &Plan::DEFAULT, 256)?;
    let sides = begin(&job)?;
    lose(&sides, ctx);
    let mut added = 0;
    for lost in sides.lost() {
        let words = job.words(*lost, 8).into(job.memory.at(64).cast());
        // Operations of a kind in flight at a time. Each of them ends.
        const BATCH: usize = 4;
        for operation in [
            Words::write as Operation,
            Words::read,
            Words::add,
            Words::fetch_add,
            Words::swap,
        ] {
            let mut looks = Looks::for_the("the failure of each kind of operation");
            let mut failures = 0;
            while failures < BATCH {
                failures = 0;
                for_all(0..BATCH, |_| job.post(|| operation(&words.told(5))))?;
                for _ in 0..BATCH {
                    failures += usize::from(fails(&job, 5)?);
                }
                near(&job, &sides, 1)?;
                added += 1;
                looks.again();
            }
        }
        // An injected operation reports only failures.
        job.fails(FI_ECONNRESET, "fi_inject_write", || words.inject())?;
    }
    job.tx.is_empty()?;
    near(&job, &sides, 50)?;
    ctx.tell(&(added + 50u64).to_le_bytes());
    job.meet();
    let expected = u64_of(&job.heard(sides.around().1));
    job.memory
        .shows(128, expected, "the additions of this side")?;
    ended(job)
}

/// Waits for the next completion, of this context. Returns whether it is a failure.
fn fails(job: &Job<'_>, context: usize) -> Result<bool, String> {
    let (seen, failed) = match job.tx.end()? {
        End::Success(entry) => (entry.context(), false),
        End::Failure(error) => {
            ensure_eq!(error.err, FI_ECONNRESET, "an operation across the link");
            (error.context(), true)
        }
    };
    ensure_eq!(seen, context, "the context of an end");
    Ok(failed)
}

fn messages_lose(ctx: &Ctx, lose: Lose) -> Verdict {
    let plan = WAITS.caps(FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_DIRECTED_RECV);
    let job = opened(ctx, &plan, 256)?;
    let sides = begin(&job)?;
    let mut words = [0u64; 4];
    // No rank sends to these receives, and no rank on the other side receives these sends.
    for (word, lost) in words.iter_mut().zip(sides.lost()) {
        let (from, none) = (job.peer(*lost).address, null_mut());
        ok!(tagged job.ep, recv((&raw mut *word).cast(), 8, none, from, 5, 0, cx(1)));
        synchronous(&job, *lost, &[3; 16])?;
    }
    job.meet();
    lose(&sides, ctx);
    for _ in sides.lost() {
        let error = waited(&job, "a directed receive", job.rx)?;
        ensure_eq!(error.context(), 1, "the context of a receive");
        let error = waited(&job, "a send without a receive", job.tx)?;
        ensure_eq!(error.context(), 6, "the context of a send");
    }
    for lost in sides.lost() {
        synchronous(&job, *lost, &[3; 16])?;
        reset(&job, "a send after the cut", job.tx)?;
    }
    let (next, _) = sides.around();
    let to = job.peer(next).address;
    for nth in 0..50u64 {
        let sent = (nth + 7).to_le_bytes();
        job.post(|| send_as(Some(9), (job.ep, to), &sent, 4))?;
        let word = received(Some(9), (job.ep, job.rx), 8)?;
        job.tx.of(4)?;
        ensure_eq!(word, sent, "message {nth} on this side");
    }
    ended(job)
}

fn counters(job: &Job<'_>) -> Verdict {
    let sides = Sides::find(job.ctx)?;
    let writes = job.station.counters[0];
    let write = |rank: u32| job.post(|| job.words(rank, 8).write());
    let (mut good, mut bad) = (0, 0);
    let mut one = |rank: u32| -> Result<bool, String> {
        write(rank)?;
        match call!(obj writes, wait(good + 1, LONG)) as isize {
            0 => good += 1,
            AVAIL => bad += 1,
            code => return Err(format!("fi_cntr_wait gave {}", code_name(code))),
        }
        let seen = (value_of(writes), errors_of(writes));
        ensure_eq!(seen, (good, bad), "successes and failures");
        Ok(seen.1 > 0)
    };
    for other in (0..job.size).filter(|other| *other != job.rank) {
        ensure!(!one(other)?, "a write before the cut has failed");
    }
    job.meet();
    sides.cut(job.ctx);
    let mut looks = Looks::for_the("a write across the link to fail");
    while !one(sides.lost()[0])? {
        looks.again();
    }
    drop(looks);
    // Writes on this side still succeed after the failure.
    let (before, next) = (value_of(writes), sides.around().0);
    for_all(0..50, |_| write(next))?;
    until("the writes on this side", || {
        value_of(writes) == before + 50
    })
}

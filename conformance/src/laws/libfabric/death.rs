//! A peer is killed: each wait for it ends. Lost operations end with a failure.

use std::time::Duration;

use super::counter::wait_fails;
use super::death_messages::synchronous;
use super::kit::*;
use super::matrix::Call;
use super::value::{Type, Value};

laws! {
    operations survived(&Plan::DEFAULT):
        "death.operations", "fi_cq(3)", 3, [atomic, fetch_atomic, compare_atomic, inject_atomic, write, read, cq_readerr] + needs_kill,
        "soon operations on a process that was killed end with FI_ECONNRESET, all of them; those on others go on";
    meanwhile survived(&Plan::DEFAULT): "death.meanwhile", "fi_cq(3)", 3, [atomic, fetch_atomic, cq_readerr] + needs_kill,
        "a process dies while others work on its memory: each operation ends once, as a success or as a failure";
    first_contact survived(&Plan::DEFAULT): "death.first", "fi_cq(3)", 2, [fetch_atomic, send, cq_readerr] + needs_kill,
        "the first operation ever on a process that is dead ends with a failure";
    contact_meanwhile survived(&Plan::DEFAULT): "death.first.meanwhile", "fi_cq(3)", 2, [fetch_atomic, cq_readerr] + needs_kill + ordering,
        "a process dies during the first operation ever on it: the operation ends as a success, or as a failure that names the death";
    counters survived(&Plan::DEFAULT.counters(&[FI_SEND, FI_WRITE])):
        "death.counter", "fi_cntr(3)", 3, [cntr_wait, cntr_readerr, atomic] + needs_kill,
        "a wait for a counter ends when what it counts fails by the death of the peer";
    data survived(&WAITS.entries(16384)): "death.data", "fi_rma(3)", 3, [writedata, cq_readerr] + needs_kill,
        "writes with data that wait for room in the inbox of a process that is killed end with a failure";
    survivors: "death.survivors", "fi_atomic(3) §4", 4, [fetch_atomic, compare_atomic] + needs_kill + ordering,
        "a process killed in the middle of its atomics on a third one's memory leaves no element locked or half done";
    gone: "death.closed", "fi_endpoint(3)", 2, [close, atomic, send, cq_readerr],
        "a closed endpoint is as a dead one: operations on it end with a failure";
}

/// The last rank dies.
pub(super) fn victim(job: &Job<'_>) -> u32 {
    job.size - 1
}

/// The victim dies.
pub(super) fn victim_dies(job: &Job<'_>) {
    victim_dies_after(job, 0);
}

/// The victim dies after some milliseconds.
pub(super) fn victim_dies_after(job: &Job<'_>, ms: u64) {
    if job.rank == victim(job) {
        pause(ms);
        job.ctx.dies();
    }
}

/// The failure of an operation on a dead process.
pub(super) fn reset(job: &Job<'_>, what: &str, queue: Queue) -> Result<fi_cq_err_entry, String> {
    queue
        .fails(FI_ECONNRESET, what)
        .map_err(|e| format!("{e} (rank {})", job.rank))
}

/// Waits in fi_cq_sread(3) for a failure.
pub(super) fn waited(job: &Job<'_>, what: &str, queue: Queue) -> Result<fi_cq_err_entry, String> {
    let mut entry = blank();
    let code = call!(obj queue.0, sread((&raw mut entry).cast(), 1, null(), LONG));
    ensure_eq!(code, AVAIL, "{what}: the wait");
    reset(job, what, queue)
}

pub(super) const WAITS: Plan<'static> = Plan::DEFAULT.wait(FI_WAIT_UNSPEC);

fn operations(job: &Job<'_>) -> Verdict {
    job.fetch(victim(job), 8, SUM, 1)?;
    job.meet();
    victim_dies(job);
    let mut result = 9u64;
    let words = job.words(victim(job), 8).into(&mut result);
    // Detection of a death takes a while.
    let mut looks = Looks::new();
    while job.done(|| words.add()).is_ok() {
        looks.pause(Duration::from_millis(1));
    }
    for _ in 0..3 {
        for (what, operation, context) in [
            ("fi_atomic", Words::add as Operation, 1),
            ("fi_fetch_atomic", Words::fetch_add, 2),
            ("fi_compare_atomic", Words::swap, 3),
            ("fi_inject_atomic", Words::inject_add, 0),
            ("fi_write", Words::write, 4),
            ("fi_read", Words::read, 5),
        ] {
            job.post(|| operation(&words.told(context)))?;
            let seen = reset(job, what, job.tx)?.context();
            ensure_eq!(seen, context, "the context of {what}");
        }
        job.fetch(1 - job.rank, 16, SUM, 1)?;
    }
    ensure_eq!(current(&result), 9, "the result");
    job.tx.is_empty()
}

/// Runs the body with an endpoint and memory, without the ranks that die in it.
pub(super) fn survived(
    ctx: &Ctx,
    plan: &Plan<'_>,
    body: impl FnOnce(&Job<'_>) -> Verdict,
) -> Verdict {
    let job = opened(ctx, plan, 256)?;
    body(&job)?;
    ended(job)
}

/// The survivors meet and close what they have.
pub(super) fn ended(job: Job<'_>) -> Verdict {
    job.meet();
    close(job.registered.mr)?;
    job.station.close()
}

fn meanwhile(job: &Job<'_>) -> Verdict {
    victim_dies_after(job, 20 + job.ctx.random(1).below(40));
    let words = job.words(victim(job), 8);
    let mut looks = Looks::new();
    let [mut posted, mut good, mut bad] = [0u64; 3];
    while bad < 20 {
        posted += u64::from(accepted(words.add())?);
        while posted > good + bad {
            match job.tx.look()? {
                Some(End::Success(_)) => {
                    ensure!(bad == 0 || !job.ctx.is_quick(), "a success after a failure");
                    good += 1;
                }
                Some(End::Failure(error)) => {
                    ensure_eq!(error.err, FI_ECONNRESET, "an operation");
                    bad += 1;
                }
                None => looks.again(),
            }
        }
    }
    job.tx.is_empty()
}

fn is_unreached(failure: fi_cq_err_entry) -> Verdict {
    let known = [FI_ECONNRESET, FI_EHOSTUNREACH].contains(&failure.err);
    ensure!(known, "the failure is {}", failure.err);
    Ok(())
}

fn contact_meanwhile(job: &Job<'_>) -> Verdict {
    let after = job.ctx.random(1).below(1000);
    job.ctx.sync();
    if job.rank == victim(job) {
        std::thread::sleep(Duration::from_micros(after));
        job.ctx.dies();
    }
    let mut result = 0u64;
    let words = job.words(1, 8).into(&mut result);
    job.post(|| words.fetch_add())?;
    match job.tx.end()? {
        End::Failure(error) => is_unreached(error),
        End::Success(_) => Ok(()),
    }
}

fn first_contact(job: &Job<'_>) -> Verdict {
    victim_dies(job);
    job.ctx.sync();
    let mut result = 0u64;
    let words = job.words(1, 8).into(&mut result);
    for operation in [Words::fetch_add, Words::send] {
        job.post(|| operation(&words))?;
        is_unreached(job.tx.error()?)?;
    }
    Ok(())
}

fn counters(job: &Job<'_>) -> Verdict {
    victim_dies_after(job, 150);
    let [sends, writes] = job.station.counted()?;
    // A failure during the wait, or an unread earlier one, ends it. Sends are repeated until then.
    let posted = wait_fails(sends, 1, || {
        synchronous(job, victim(job), &[3; 16])?;
        pause(10);
        Ok(())
    })?;
    until("the end of all sends", || errors_of(sends) == posted)?;
    ensure_eq!(value_of(sends), 0, "sends that succeeded");
    job.post(|| job.words(victim(job), 8).add())?;
    until("a failed write", || errors_of(writes) == 1)?;
    equal!(value_of(writes), 0, "successes")
}

fn data(job: &Job<'_>) -> Verdict {
    victim_dies_after(job, 400);
    // Two senders exceed the target's inbox. The target never reads it.
    let words = job.words(victim(job), 8);
    let (mut posted, mut told, mut looks) = (0, 0, Looks::new());
    let mut failed = 0;
    while posted < 6000 || told < posted {
        if posted < 6000 {
            posted += u32::from(accepted(words.write_data(1))?);
        }
        match job.tx.look()? {
            Some(End::Success(_)) => told += 1,
            Some(End::Failure(error)) => {
                ensure_eq!(error.err, FI_ECONNRESET, "a write with data");
                told += 1;
                failed += 1;
            }
            None => looks.again(),
        }
    }
    ensure_eq!(told, posted, "operations that have ended");
    ensure!(failed > 0, "none of {posted} has failed");
    Ok(())
}

fn survivors(ctx: &Ctx) -> Verdict {
    let job = opened(ctx, &Plan::DEFAULT, 512)?;
    let mut random = ctx.random(job.rank.into());
    // A u64, a 16-byte integer, a complex number of 32 bytes.
    let kinds = [(UINT64, 64), (15, 128), (13, 192)];
    let turn = |nth: usize| -> Result<Vec<u8>, String> {
        let (datatype, at) = kinds[nth % 3];
        let ty = Type::of(datatype);
        let one = match ty.is_integer() {
            true => Value::Bits(1),
            false => Value::Number(1.0, 1.0),
        };
        let (operand, mut result) = (ty.encode(one), vec![0; ty.size()]);
        let mut call = Call::fetch((datatype, SUM), job.place(0, at), &operand, &mut result);
        job.done(|| call.post(job.ep))?;
        Ok(result)
    };
    if job.rank == victim(&job) {
        let long = Duration::from_micros(500 + random.below(20_000));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(long);
                ctx.dies();
            });
            (0..).find(|nth| turn(*nth).is_err());
        });
        return Err("it lives".into());
    }
    pause(60);
    for_all(0..30, turn)?;
    // Additions to the real and the imaginary part happen together.
    let complex = turn(2)?;
    let seen = &complex[..10];
    ensure_eq!(seen, &complex[16..26], "the parts of a complex number");
    ended(job)
}

fn gone(ctx: &Ctx) -> Verdict {
    let job = opened(ctx, &Plan::DEFAULT, 256)?;
    if job.rank == 0 {
        job.fetch(1, 8, SUM, 1)?;
    }
    job.meet();
    if job.rank == 1 {
        close(job.registered.mr)?;
        job.station.close()?;
        ctx.sync();
        ctx.sync();
        return Ok(());
    }
    job.meet();
    let words = job.words(1, 8);
    job.post(|| words.add())?;
    reset(&job, "fi_atomic", job.tx)?;
    job.post(|| words.send())?;
    reset(&job, "fi_send", job.tx)?;
    ended(job)
}

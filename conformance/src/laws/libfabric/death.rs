//! A peer is killed: each wait for it ends. Lost operations end with a failure.

use std::time::Duration;

use super::death_messages::synchronous;
use super::kit::*;
use super::matrix::Call;
use super::station::{Plan, close};

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
        "an endpoint that was closed is as one that has died: operations on it end with a failure";
}

/// The last rank dies.
pub(super) fn victim(job: &Job<'_>) -> u32 {
    job.size - 1
}

/// The victim dies after some milliseconds.
pub(super) fn victim_dies_after(job: &Job<'_>, ms: u64) {
    if job.rank == victim(job) {
        pause(ms);
        job.ctx.dies();
    }
}

static ONE: u64 = 1;

/// The failure of an operation on a dead process.
pub(super) fn reset(job: &Job<'_>, what: &str, queue: Queue) -> Result<fi_cq_err_entry, String> {
    queue
        .fails(FI_ECONNRESET, what)
        .map_err(|e| format!("{e} (rank {})", job.rank))
}

/// Waits in fi_cq_sread(3) for a failure.
pub(super) fn waited(job: &Job<'_>, what: &str, queue: Queue) -> Result<fi_cq_err_entry, String> {
    let mut entry = blank();
    let code = call!(obj queue.0, sread((&raw mut entry).cast(), 1, std::ptr::null(), LONG));
    ensure_eq!(code, AVAIL, "{what}: the wait");
    reset(job, what, queue)
}

pub(super) const WAITS: Plan<'static> = Plan::DEFAULT.wait(FI_WAIT_UNSPEC);

fn operations(job: &Job<'_>) -> Verdict {
    job.fetch(victim(job), 8, SUM, 1)?;
    job.meet();
    if job.rank == victim(job) {
        job.ctx.dies();
    }
    let (to, at, key) = job.place(victim(job), 8);
    let (mut result, none) = (9u64, null_mut());
    let (o, r) = ((&raw const ONE).cast(), (&raw mut result).cast());
    // Detection of a death takes a while.
    let mut looks = Looks::new();
    loop {
        job.post(|| call!(atomic job.ep, write(o, 1, none, to, at, key, UINT64, SUM, none)))?;
        if job.tx.next().is_err() {
            break;
        }
        looks.pause(Duration::from_millis(1));
    }
    for _ in 0..3 {
        job.post(|| call!(atomic job.ep, write(o, 1, none, to, at, key, UINT64, SUM, cx(1))))?;
        let seen = reset(job, "fi_atomic", job.tx)?.op_context.addr();
        ensure_eq!(seen, 1, "the context");
        job.post(
            || call!(atomic job.ep, readwrite(o, 1, none, r, none, to, at, key, UINT64, SUM, none)),
        )?;
        reset(job, "fi_fetch_atomic", job.tx)?;
        job.post(|| call!(atomic job.ep, compwrite(o, 1, none, o, none, r, none, to, at, key, UINT64, CSWAP, none)))?;
        reset(job, "fi_compare_atomic", job.tx)?;
        job.post(|| call!(atomic job.ep, inject(o, 1, to, at, key, UINT64, SUM)))?;
        reset(job, "fi_inject_atomic", job.tx)?;
        job.post(|| call!(rma job.ep, write(o, 8, none, to, at, key, none)))?;
        reset(job, "fi_write", job.tx)?;
        job.post(|| call!(rma job.ep, read(r, 8, none, to, at, key, none)))?;
        reset(job, "fi_read", job.tx)?;
        job.fetch(1 - job.rank, 16, SUM, 1)?;
    }
    ensure_eq!(result, 9, "the result");
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
    let (to, at, key) = job.place(victim(job), 8);
    let mut looks = Looks::new();
    let (mut posted, mut good, mut bad) = (0u64, 0u64, 0u64);
    while bad < 20 {
        match call!(atomic job.ep, write((&raw const ONE).cast(), 1, null_mut(), to, at, key, UINT64, SUM, null_mut()))
        {
            0 => posted += 1,
            AGAIN => {}
            code => return Err(format!("posting gave {}", code_name(code))),
        }
        while posted > good + bad {
            match job.tx.read() {
                (1, _) => {
                    ensure!(bad == 0 || !job.ctx.is_quick(), "a success after a failure");
                    good += 1;
                }
                (AVAIL, _) => {
                    job.tx.fails(FI_ECONNRESET, "an operation")?;
                    bad += 1;
                }
                _ => looks.again(),
            }
        }
    }
    job.tx.is_empty()
}

/// Posts the first operation on the victim.
fn contact(job: &Job<'_>, result: &mut u64) -> Verdict {
    let (to, at, key) = job.place(1, 8);
    let (one, result) = ((&raw const ONE).cast(), (&raw mut *result).cast());
    job.post(|| call!(atomic job.ep, readwrite(one, 1, null_mut(), result, null_mut(), to, at, key, UINT64, SUM, null_mut())))
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
    contact(job, &mut result)?;
    let mut looks = Looks::for_the("the end of the first operation");
    loop {
        match job.tx.read().0 {
            AGAIN => looks.again(),
            AVAIL => return is_unreached(job.tx.take_error()?),
            code => {
                ensure_eq!(code, 1, "the end of the first operation");
                return Ok(());
            }
        }
    }
}

fn first_contact(job: &Job<'_>) -> Verdict {
    if job.rank == victim(job) {
        job.ctx.dies();
    }
    job.ctx.sync();
    let to = job.place(1, 8).0;
    let mut result = 0u64;
    let unreached = || is_unreached(job.tx.error()?);
    contact(job, &mut result)?;
    unreached()?;
    job.post(|| call!(msg job.ep, send((&raw const ONE).cast(), 8, null_mut(), to, null_mut())))?;
    unreached()?;
    Ok(())
}

fn counters(job: &Job<'_>) -> Verdict {
    victim_dies_after(job, 150);
    let [sends, writes] = [job.station.counters[0], job.station.counters[1]];
    // A failure during the wait, or an unread earlier one, ends it. Sends are repeated until then.
    let counter_at = sends.addr();
    let (code, posted) = std::thread::scope(|scope| {
        let waits = scope.spawn(move || {
            let counter = counter_at as *mut fid_cntr;
            call!(obj counter, wait(1, LONG))
        });
        let mut posted = 0;
        while posted == 0 || !waits.is_finished() {
            synchronous(job, victim(job), &[3; 16])?;
            posted += 1;
            pause(10);
        }
        Ok::<_, String>((waits.join().unwrap_or(0), posted))
    })?;
    ensure_eq!(code as isize, AVAIL, "the wait");
    until("the end of all sends", || errors_of(sends) == posted)?;
    ensure_eq!(value_of(sends), 0, "sends that succeeded");
    let (to, at, key) = job.place(victim(job), 8);
    job.post(|| call!(atomic job.ep, write((&raw const ONE).cast(), 1, null_mut(), to, at, key, UINT64, SUM, null_mut())))?;
    until("a failed write", || errors_of(writes) == 1)?;
    ensure_eq!(value_of(writes), 0, "successes");
    Ok(())
}

fn data(job: &Job<'_>) -> Verdict {
    victim_dies_after(job, 400);
    // Two senders exceed the target's inbox. The target never reads it.
    let (to, at, key) = job.place(victim(job), 8);
    let (mut posted, mut told, mut looks) = (0, 0, Looks::new());
    let mut failed = 0;
    while posted < 6000 || told < posted {
        if posted < 6000 {
            match call!(rma job.ep, writedata((&raw const ONE).cast(), 8, null_mut(), 1, to, at, key, null_mut()))
            {
                0 => posted += 1,
                AGAIN => {}
                code => return Err(format!("posting gave {}", code_name(code))),
            }
        }
        match job.tx.read() {
            (1, _) => told += 1,
            (AVAIL, _) => {
                job.tx.fails(FI_ECONNRESET, "a write with data")?;
                told += 1;
                failed += 1;
            }
            _ => looks.again(),
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
        let ty = super::value::Type::of(datatype);
        let one = match ty.is_integer() {
            true => super::value::Value::Bits(1),
            false => super::value::Value::Number(1.0, 1.0),
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
            for nth in 0.. {
                if turn(nth).is_err() {
                    break;
                }
            }
        });
        return Err("it lives".into());
    }
    pause(60);
    for nth in 0..30 {
        turn(nth)?;
    }
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
    let (to, at, key) = job.place(1, 8);
    job.post(|| call!(atomic job.ep, write((&raw const ONE).cast(), 1, null_mut(), to, at, key, UINT64, SUM, null_mut())))?;
    reset(&job, "fi_atomic", job.tx)?;
    job.post(|| call!(msg job.ep, send((&raw const ONE).cast(), 8, null_mut(), to, null_mut())))?;
    reset(&job, "fi_send", job.tx)?;
    ended(job)
}

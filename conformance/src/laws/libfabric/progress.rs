//! Progress: the processes that must make calls until operations complete.

use super::kit::*;
use super::library::offered;

laws! {
    silent_target with(&Plan::DEFAULT, 256):
        "progress.target", "fi_domain(3), fi_atomic(3) §4.3", 3, [atomic, fetch_atomic, compare_atomic, write, read],
        "a target that makes no calls serves atomics, reads and writes; it sees them in its memory";
    sleeping_target with(&Plan::DEFAULT, 256): "progress.asleep", "fi_domain(3)", 2, [fetch_atomic, write, read],
        "so does a peer that sleeps all the time, without a wait for it";
    stopped_target with(&Plan::DEFAULT, 256): "progress.stopped", "fi_domain(3)", 2, [fetch_atomic, write],
        "so does a peer with a computation in all of its threads";
    said: "progress.said", "fi_getinfo(3)", 1, [getinfo],
        "memory alone is offered with automatic progress, and what is asked for is what is offered";
    automatic with(&Plan::DEFAULT.progress(FI_PROGRESS_AUTO), 256): "progress.messages", "fi_domain(3)", 2, [send, recv, getinfo],
        "with FI_PROGRESS_AUTO a large message gets through while the receiver makes no calls";
    alone with(&Plan::DEFAULT.caps(FI_RMA | FI_ATOMIC).progress(FI_PROGRESS_AUTO), 256):
        "progress.memory", "fi_domain(3)", 2, [inject_writedata, getinfo],
        "writes with data come to their end at the target while their initiator, who has memory alone and so FI_PROGRESS_AUTO, makes no calls";
    events with(&Plan::DEFAULT, 256): "progress.events", "fi_domain(3)", 2, [writedata, atomic],
        "more remote writes with data than an inbox holds come to their end when the target looks, and none is lost";
    threads with(&Plan::DEFAULT, 256): "progress.threads", "fi_domain(3)", 2, [fetch_atomic, atomic, cq_read],
        "threads use one endpoint at the same time (FI_THREAD_SAFE): each operation is done once and told once";
}

fn served(job: &Job<'_>, rank: u32, rounds: u64) -> Verdict {
    for nth in 0..rounds {
        let at = 64 * job.rank as usize;
        ensure_eq!(job.fetch(rank, at, SUM, 2)?, 2 * nth, "the word before");
        job.update(rank, at + 8, WRITE, nth)?;
        job.compare((rank, at + 8), CSWAP, nth + 7, nth)?;
        job.write(rank, at + 16, &[nth as u8; 24])?;
        let back = job.read(rank, at + 16, 24)?;
        same(&back, &[nth as u8; 24], "what is read back")?;
    }
    Ok(())
}

fn silent_target(job: &Job<'_>) -> Verdict {
    let rounds = many(job.ctx, 10);
    if job.rank > 0 {
        served(job, 0, rounds)?;
        job.meet();
        return Ok(());
    }
    for_all(1..3, |other| job.await_word(64 * other, 2 * rounds))?;
    job.meet();
    for other in 1..3 {
        let (at, written) = (64 * other, [(rounds - 1) as u8; 24]);
        job.memory.shows(at + 8, rounds + 6, "the word of a rank")?;
        job.memory.holds(at + 16, &written, "what was written")?;
    }
    Ok(())
}

fn sleeping_target(job: &Job<'_>) -> Verdict {
    // The target makes no libfabric call until all operations are done.
    if job.rank == 1 {
        served(job, 0, 20)?;
    }
    job.meet();
    Ok(())
}

fn stopped_target(job: &Job<'_>) -> Verdict {
    if job.rank == 0 {
        let mut turns = 0u64;
        while job.memory.get(128) == 0 {
            turns = std::hint::black_box(turns.wrapping_mul(3) + 1);
        }
    } else {
        served(job, 0, 20)?;
        job.update(0, 128, WRITE, 1)?;
    }
    Ok(())
}

fn said(_: &Ctx) -> Verdict {
    for (caps, progress) in [
        (FI_RMA | FI_ATOMIC, FI_PROGRESS_UNSPEC),
        (FI_RMA | FI_ATOMIC, FI_PROGRESS_AUTO),
        (FI_MSG, FI_PROGRESS_AUTO),
        (FI_MSG | FI_ATOMIC, FI_PROGRESS_MANUAL),
    ] {
        let plan = Plan::DEFAULT.caps(caps).progress(progress);
        let offered = offered(&plan.hints())?.domain().data_progress;
        match progress {
            FI_PROGRESS_UNSPEC => ensure_eq!(offered, FI_PROGRESS_AUTO, "memory alone"),
            // A stronger promise than requested is allowed.
            asked => ensure!(
                offered == asked || offered == FI_PROGRESS_AUTO,
                "progress {asked} became {offered}"
            ),
        }
    }
    Ok(())
}

fn automatic(job: &Job<'_>) -> Verdict {
    const LEN: usize = 3 << 20;
    if job.rank == 0 {
        let mut buffer = vec![0u8; LEN];
        job.receive(&mut buffer, 1)?;
        job.meet();
        // No libfabric call until the whole message has arrived.
        let last = (&raw const buffer[LEN - 1]).cast::<std::sync::atomic::AtomicU8>();
        until("the last byte of a message, without calls", || {
            pause(1);
            // SAFETY:
            // - a byte of the buffer, which lives until the receive is complete.
            unsafe { &*last }.load(std::sync::atomic::Ordering::Acquire) == 9
        })?;
        job.rx.of(1)?;
        ensure!(buffer.iter().all(|byte| *byte == 9), "the message");
    } else {
        job.meet();
        let bytes = vec![9; LEN];
        job.send_and_wait(0, &bytes, 2)?;
    }
    Ok(())
}

fn alone(job: &Job<'_>) -> Verdict {
    for nth in 0..many(job.ctx, 10) {
        if job.rank == 0 {
            let words = job.words(1, 8).from(&nth);
            job.post(|| words.inject_data(nth))?;
        } else {
            ensure_eq!(job.rx.next()?.data, nth, "the data");
            job.memory.shows(8, nth, "the word")?;
        }
        // No libfabric call.
        job.meet();
    }
    Ok(())
}

fn events(job: &Job<'_>) -> Verdict {
    const COUNT: u64 = 6000;
    if job.rank == 0 {
        let (words, mut posted) = (job.words(1, 8), 0);
        let mut told = 0;
        let mut looks = Looks::new();
        while told < COUNT {
            if posted < COUNT {
                posted += u64::from(accepted(words.write_data(posted))?);
            }
            match job.tx.look()? {
                Some(End::Success(_)) => told += 1,
                Some(End::Failure(error)) => return Err(format!("a failure: {}", error.err)),
                None => looks.again(),
            }
        }
    } else {
        pause(100);
        let mut sum = 0;
        for _ in 0..COUNT {
            sum += job.rx.next()?.data;
        }
        ensure_eq!(sum, COUNT * (COUNT - 1) / 2, "all data together");
        job.rx.is_empty()?;
    }
    Ok(())
}

/// A job that threads share.
pub(super) struct Shared<'a>(pub(super) &'a Job<'a>);

impl Shared<'_> {
    fn job(&self) -> &Job<'_> {
        self.0
    }
}

// SAFETY:
// - the endpoint and its queue are opened with FI_THREAD_SAFE.
unsafe impl Sync for Shared<'_> {}

fn threads(job: &Job<'_>) -> Verdict {
    const THREADS: usize = 3;
    let each = many(job.ctx, 20) as usize;
    let shared = Shared(job);
    let told = parking_lot::Mutex::new(vec![0u8; THREADS * each]);
    crate::kit::threads(THREADS, |thread| {
        let job = shared.job();
        for nth in 0..each {
            let words = job.words(job.right(), 8).told(thread * each + nth);
            job.post(|| words.add())?;
            // Each thread takes completions of any thread.
            if let (1, entry) = job.tx.read() {
                told.lock()[entry.context()] += 1;
            }
        }
        Ok(())
    })?;
    let mut told = told.into_inner();
    let done: usize = told.iter().map(|n| usize::from(*n)).sum();
    for _ in done..THREADS * each {
        told[job.tx.next()?.context()] += 1;
    }
    let once = told.iter().all(|n| *n == 1);
    ensure!(once, "the number of reports of each: {told:?}");
    job.tx.is_empty()?;
    job.meet();
    job.memory.shows(8, (THREADS * each) as u64, "the sum")
}

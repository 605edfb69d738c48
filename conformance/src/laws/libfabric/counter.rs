//! Counters (fi_cntr(3)).

use std::time::Instant;

use super::kit::*;
use super::tally::change_and_read;

laws! {
    counts with(&Plan::DEFAULT.counters(&[FI_WRITE, FI_READ, FI_SEND, FI_RECV]), 256): "cntr.counts", "fi_cntr(3), fi_atomic(3) §4.8", 2,
        [cntr_open, cntr_read, ep_bind, atomic, inject_atomic, fetch_atomic, compare_atomic, write, read, send, recv],
        "each counter counts what it was bound for: base atomics with writes, fetching ones with reads, injected ones as well";
    alone with(&Plan::DEFAULT.queues(false).caps(FI_RMA | FI_ATOMIC).counters(&[FI_WRITE, FI_READ]), 256):
        "cntr.alone", "fi_cntr(3)", 2, [cntr_wait, atomic, fetch_atomic],
        "an endpoint with counters alone works, and its waits bring everything to an end";
    failures with(&Plan::DEFAULT.counters(&[FI_WRITE]), 256): "cntr.errors", "fi_cntr(3)", 2, [cntr_readerr, cntr_wait, atomic],
        "failures are counted separately, and end a wait with -FI_EAVAIL, also a later one";
    values with(&Plan::DEFAULT.counters(&[FI_WRITE]), 256):
        "cntr.values", "fi_cntr(3)", 1, [cntr_add, cntr_set, cntr_adderr, cntr_seterr, cntr_read, cntr_readerr],
        "the program may add to and set both values; adding wraps around";
    waits with(&Plan::DEFAULT.counters(&[FI_WRITE]), 256): "cntr.wait", "fi_cntr(3)", 1, [cntr_wait],
        "a wait for what has been reached ends at once, one for what is not reached with -FI_ETIMEDOUT at its time";
    woken with(&Plan::DEFAULT.counters(&[FI_WRITE]), 256): "cntr.woken", "fi_cntr(3)", 1, [cntr_wait, cntr_add],
        "a wait ends when another thread brings the counter to its threshold";
    descriptor with(&Plan::DEFAULT.counters(&[FI_WRITE]).wait(FI_WAIT_FD), 256):
        "cntr.fd", "fi_cntr(3), fi_poll(3)", 2, [cntr_open, control, trywait, write, cntr_add],
        "the descriptor of a counter with FI_WAIT_FD becomes readable when the counter changes after fi_trywait; fi_trywait reports unread changes";
    remote with(&Plan::DEFAULT.caps(FI_RMA | FI_ATOMIC | FI_RMA_EVENT).counters(&[FI_REMOTE_WRITE, FI_REMOTE_READ]), 256):
        "cntr.remote", "fi_cntr(3), fi_atomic(3) §4.8", 3,
        [cntr_wait, cntr_read, atomic, inject_atomic, fetch_atomic, compare_atomic, write, inject_write, read] + ordering,
        "with FI_RMA_EVENT a target's counters count what others have written and read, each operation once";
    unasked with(&Plan::DEFAULT, 256): "cntr.remote.unasked", "fi_cntr(3)", 1, [ep_bind, cntr_open],
        "a counter that would count nothing, or something unknown, is refused; so are unknown attributes";
}

fn counts(job: &Job<'_>) -> Verdict {
    let (mut result, mut word) = (0u64, [0u8; 8]);
    let words = job.words(job.right(), 8).into(&mut result);
    let counters = &job.station.counters;
    let told = |expected: [u64; 4], what: &str| {
        let what = format!("{what}: the counters are to be {expected:?}");
        until(&what, || {
            (0..4).all(|i| value_of(counters[i]) == expected[i])
        })
    };
    told([0; 4], "at first")?;
    job.done(|| words.add())?;
    told([1, 0, 0, 0], "after fi_atomic")?;
    job.post(|| words.inject_add())?;
    told([2, 0, 0, 0], "after fi_inject_atomic")?;
    job.done(|| words.fetch_add())?;
    told([2, 1, 0, 0], "after fi_fetch_atomic")?;
    job.done(|| words.swap())?;
    told([2, 2, 0, 0], "after fi_compare_atomic")?;
    job.done(|| words.write())?;
    job.done(|| words.read())?;
    told([3, 3, 0, 0], "after fi_write and fi_read")?;
    job.receive(&mut word, 0)?;
    job.done(|| words.send())?;
    told([3, 3, 1, 1], "after a message")?;
    for_all(counters, |counter| {
        equal!(errors_of(*counter), 0, "failures")
    })
}

fn alone(job: &Job<'_>) -> Verdict {
    let words = job.words(job.right(), 8);
    let [writes, reads] = job.station.counted()?;
    let mut results = [0u64; 30];
    for result in &mut results {
        job.post(|| words.add())?;
        job.post(|| words.behind(8).into(result).fetch_add())?;
    }
    ok!(obj writes, wait(30, LONG));
    ok!(obj reads, wait(30, LONG));
    results.sort_unstable();
    let all = results.into_iter().eq(0..30);
    ensure!(all, "what was fetched: {results:?}");
    job.meet();
    let found = job.memory.words([8, 16]);
    equal!(found, [30, 30], "the sums")
}

fn failures(job: &Job<'_>) -> Verdict {
    let counter = job.station.counters[0];
    let words = job.words(job.right(), 8);
    let post = |wrong: u64| job.post(|| words.under(words.place.2 + wrong).add());
    post(0)?;
    job.tx.next()?;
    post(1 << 30)?;
    job.tx.error()?;
    let seen = (value_of(counter), errors_of(counter));
    ensure_eq!(seen, (1, 1), "successes and failures");
    let failed = wait_fails(counter, 10, || {
        pause(10);
        post(1 << 30)
    })?;
    for_all(0..failed, |_| job.tx.error())?;
    ensure_eq!(errors_of(counter), 1 + failed, "failures");
    gives!(FI_ETIMEDOUT, obj counter, wait(10, 20));
    // The failure is counted before the wait begins; the counter's error value is not read.
    post(1 << 30)?;
    job.tx.error()?;
    gives!(FI_EAVAIL, obj counter, wait(10, LONG));
    gives!(FI_ETIMEDOUT, obj counter, wait(10, 20));
    ok!(obj counter, adderr(1));
    gives!(FI_ETIMEDOUT, obj counter, wait(10, 20));
    ok!(obj counter, wait(1, LONG));
    Ok(())
}

fn values(job: &Job<'_>) -> Verdict {
    let counter = job.station.counters[0];
    let both = || (value_of(counter), errors_of(counter));
    ok!(obj counter, set(100));
    ensure_eq!(both(), (100, 0), "after fi_cntr_set");
    ok!(obj counter, add(u64::MAX));
    ensure_eq!(both(), (99, 0), "after fi_cntr_add");
    ok!(obj counter, adderr(3));
    ok!(obj counter, adderr(4));
    ensure_eq!(both(), (99, 7), "after fi_cntr_adderr");
    ok!(obj counter, seterr(2));
    ensure_eq!(both(), (99, 2), "after fi_cntr_seterr");
    job.update(0, 8, SUM, 1)?;
    equal!(both(), (100, 2), "after an operation")
}

fn waits(job: &Job<'_>) -> Verdict {
    let counter = job.station.counters[0];
    ok!(obj counter, wait(0, 0));
    ok!(obj counter, set(5));
    ok!(obj counter, wait(5, -1));
    ok!(obj counter, wait(3, 0));
    for ms in [0, 40] {
        let start = Instant::now();
        gives!(FI_ETIMEDOUT, obj counter, wait(6, ms));
        took_all(start, ms)?;
    }
    Ok(())
}

fn woken(job: &Job<'_>) -> Verdict {
    let counter = job.station.counters[0];
    for_all(1..=5, |round| {
        let at = counter.addr();
        let raise = move || {
            pause(20);
            let counter = at as *mut fid_cntr;
            call!(obj counter, add(1))
        };
        let (_, code) = beside(raise, || call!(obj counter, wait(round, LONG)))?;
        equal!(code, 0, "the wait")
    })
}

/// Waits on another thread until the counter has this value, and repeats `fail` until the wait ends, with -FI_EAVAIL. Returns the repetitions.
pub(super) fn wait_fails(
    counter: *mut fid_cntr,
    value: u64,
    mut fail: impl FnMut() -> Verdict,
) -> Result<u64, String> {
    let at = counter.addr();
    let waits = move || {
        let counter = at as *mut fid_cntr;
        call!(obj counter, wait(value, LONG))
    };
    std::thread::scope(|scope| {
        let (waits, mut failed) = (scope.spawn(waits), 0);
        while failed == 0 || !waits.is_finished() {
            fail()?;
            failed += 1;
        }
        let code = waits.join().map_err(|_| "the waiting thread panics")?;
        ensure_eq!(code as isize, AVAIL, "a wait meanwhile");
        Ok(failed)
    })
}

fn descriptor(job: &Job<'_>) -> Verdict {
    let counter = job.station.counters[0];
    let bound: *mut fid = counter.cast();
    let descriptor = control(counter, FI_GETWAIT, -1)?;
    let kind = control(counter, FI_GETWAITOBJ, 0)?;
    ensure_eq!(kind, FI_WAIT_FD, "the kind of wait");
    let readable = |ms| super::waiting::readable(descriptor, ms);
    let words = job.words(job.right(), 8);
    let (mut list, there) = ([bound], counter.addr());
    for round in 1..=8u64 {
        ok!(obj job.station.fabric, trywait(list.as_mut_ptr(), 1));
        ensure!(!readable(0), "readable with nothing behind it");
        if round % 2 == 0 {
            std::thread::spawn(move || {
                pause(5);
                let counter = there as *mut fid_cntr;
                call!(obj counter, add(1))
            });
        } else {
            job.post(|| words.write())?;
        }
        ensure!(readable(LONG), "round {round}: never readable");
        gives!(FI_EAGAIN, obj job.station.fabric, trywait(list.as_mut_ptr(), 1));
        ensure_eq!(value_of(counter), round, "the count");
    }
    job.tx.successes(0..4)?;
    job.meet();
    Ok(())
}

fn remote(job: &Job<'_>) -> Verdict {
    let rounds = many(job.ctx, 5);
    let [writes, reads] = job.station.counted()?;
    if job.rank > 0 {
        for_all(0..rounds, |_| change_and_read(job, job.words(0, 8)))?;
        // Injected operations still need progress.
        until("all are through", || {
            job.tx.progress();
            job.ctx.told(0).is_some_and(|told| told == b"counted")
        })?;
    } else {
        // A fetching atomic reads and writes. It is counted once, as either.
        let others = u64::from(job.size) - 1;
        let all = 7 * others * rounds;
        until("everything counted", || {
            value_of(writes) + value_of(reads) == all
        })?;
        let seen = (value_of(writes), value_of(reads));
        let holds = seen.0 >= 4 * others * rounds && seen.1 >= others * rounds;
        ensure!(holds, "writes and reads: {seen:?}");
        let sum = 3 * others * rounds;
        job.memory.shows(8, sum, "the sum when all is counted")?;
        job.ctx.tell(b"counted");
        pause(20);
        let later = (value_of(writes), value_of(reads));
        ensure_eq!(later, seen, "the counters a little later");
    }
    Ok(())
}

fn unasked(job: &Job<'_>) -> Verdict {
    let domain = job.station.domain;
    let (mut counter, ep) = (job.station.counter()?, job.station.bare()?);
    let other: *mut fid = counter.cast();
    gives!(FI_EBADFLAGS, fid ep, bind(other, 0));
    gives!(FI_EBADFLAGS, fid ep, bind(other, FI_WRITE | 1 << 40));
    close(ep)?;
    close(counter)?;
    let attr = |wait_obj, events| fi_cntr_attr {
        events,
        ..counter_attr(wait_obj, null_mut())
    };
    gives!(FI_EINVAL, obj domain, cntr_open(&mut attr(FI_WAIT_NONE, 1), &mut counter, null_mut()));
    gives!(FI_ENOSYS, obj domain, cntr_open(&mut attr(77, 0), &mut counter, null_mut()));
    gives!(FI_EINVAL, obj domain, cntr_open(null_mut(), null_mut(), null_mut()));
    Ok(())
}

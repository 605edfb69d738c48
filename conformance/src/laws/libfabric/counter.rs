//! Counters (fi_cntr(3)).

use std::time::Instant;

use super::kit::*;
use super::station::Plan;
use super::tally::change_and_read;

laws! {
    counts with(&Plan::DEFAULT.counters(&[FI_WRITE, FI_READ, FI_SEND, FI_RECV]), 256): "cntr.counts", "fi_cntr(3), fi_atomic(3) §4.8", 2,
        [cntr_open, cntr_read, ep_bind, atomic, inject_atomic, fetch_atomic, compare_atomic, write, read, send, recv],
        "each counter counts what it was bound for: base atomics with writes, fetching ones with reads, injected ones as well";
    alone with(&Plan::DEFAULT.queues(false).caps(FI_RMA | FI_ATOMIC).counters(&[FI_WRITE, FI_READ]), 256):
        "cntr.alone", "fi_cntr(3)", 2, [cntr_wait, atomic, fetch_atomic],
        "an endpoint with counters alone works, and its waits bring everything to an end";
    failures with(&Plan::DEFAULT.counters(&[FI_WRITE]), 256): "cntr.errors", "fi_cntr(3)", 2, [cntr_readerr, cntr_wait, atomic],
        "failures are counted apart, and end a wait with -FI_EAVAIL, also one that begins later";
    values with(&Plan::DEFAULT.counters(&[FI_WRITE]), 256):
        "cntr.values", "fi_cntr(3)", 1, [cntr_add, cntr_set, cntr_adderr, cntr_seterr, cntr_read, cntr_readerr],
        "the program may add to and set both values; adding wraps around";
    waits with(&Plan::DEFAULT.counters(&[FI_WRITE]), 256): "cntr.wait", "fi_cntr(3)", 1, [cntr_wait],
        "a wait for what has been reached ends at once, one for what is not reached with -FI_ETIMEDOUT at its time";
    woken with(&Plan::DEFAULT.counters(&[FI_WRITE]), 256): "cntr.woken", "fi_cntr(3)", 1, [cntr_wait, cntr_add],
        "a wait ends when another thread brings the counter to its threshold";
    descriptor with(&Plan::DEFAULT.counters(&[FI_WRITE]).wait(FI_WAIT_FD), 256):
        "cntr.fd", "fi_cntr(3), fi_poll(3)", 2, [cntr_open, control, trywait, write, cntr_add],
        "the descriptor of a counter with FI_WAIT_FD becomes readable when the counter changes after fi_trywait; what the program has not read is said by that";
    remote with(&Plan::DEFAULT.caps(FI_RMA | FI_ATOMIC | FI_RMA_EVENT).counters(&[FI_REMOTE_WRITE, FI_REMOTE_READ]), 256):
        "cntr.remote", "fi_cntr(3), fi_atomic(3) §4.8", 3,
        [cntr_wait, cntr_read, atomic, inject_atomic, fetch_atomic, compare_atomic, write, inject_write, read] + ordering,
        "with FI_RMA_EVENT a target's counters count what others have written and read, each operation once";
    unasked with(&Plan::DEFAULT, 256): "cntr.remote.unasked", "fi_cntr(3)", 1, [ep_bind, cntr_open],
        "a counter that would count nothing, or something unknown, is refused; so are unknown attributes";
}

static ONE: u64 = 1;

fn counts(job: &Job<'_>) -> Verdict {
    let (to, at, key) = job.place(job.right(), 8);
    let (mut result, mut word, none) = (0u64, 0u64, null_mut());
    let (o, r) = ((&raw const ONE).cast(), (&raw mut result).cast());
    let counters = &job.station.counters;
    let told = |expected: [u64; 4], what: &str| {
        until(
            &format!("{what}: the counters are to be {expected:?}"),
            || (0..4).all(|i| value_of(counters[i]) == expected[i]),
        )
    };
    told([0; 4], "at first")?;
    job.done(|| call!(atomic job.ep, write(o, 1, none, to, at, key, UINT64, SUM, none)))?;
    told([1, 0, 0, 0], "after fi_atomic")?;
    job.post(|| call!(atomic job.ep, inject(o, 1, to, at, key, UINT64, SUM)))?;
    told([2, 0, 0, 0], "after fi_inject_atomic")?;
    job.done(
        || call!(atomic job.ep, readwrite(o, 1, none, r, none, to, at, key, UINT64, SUM, none)),
    )?;
    told([2, 1, 0, 0], "after fi_fetch_atomic")?;
    job.done(|| call!(atomic job.ep, compwrite(o, 1, none, o, none, r, none, to, at, key, UINT64, CSWAP, none)))?;
    told([2, 2, 0, 0], "after fi_compare_atomic")?;
    job.done(|| call!(rma job.ep, write(o, 8, none, to, at, key, none)))?;
    job.done(|| call!(rma job.ep, read(r, 8, none, to, at, key, none)))?;
    told([3, 3, 0, 0], "after fi_write and fi_read")?;
    job.post(|| call!(msg job.ep, recv((&raw mut word).cast(), 8, none, FI_ADDR_UNSPEC, none)))?;
    job.done(|| call!(msg job.ep, send(o, 8, none, to, none)))?;
    told([3, 3, 1, 1], "after a message")?;
    for counter in counters {
        ensure_eq!(errors_of(*counter), 0, "failures");
    }
    Ok(())
}

fn alone(job: &Job<'_>) -> Verdict {
    let (to, at, key) = job.place(job.right(), 8);
    let [writes, reads] = job.station.counted()?;
    let mut results = [0u64; 30];
    for nth in 0..30u64 {
        let result = (&raw mut results[nth as usize]).cast();
        job.post(|| call!(atomic job.ep, write((&raw const ONE).cast(), 1, null_mut(), to, at, key, UINT64, SUM, null_mut())))?;
        job.post(|| call!(atomic job.ep, readwrite((&raw const ONE).cast(), 1, null_mut(), result, null_mut(), to, at + 8, key, UINT64, SUM, null_mut())))?;
    }
    ok!(obj writes, wait(30, LONG));
    ok!(obj reads, wait(30, LONG));
    results.sort_unstable();
    ensure!(
        results.into_iter().eq(0..30),
        "what was fetched: {results:?}"
    );
    job.meet();
    let found = job.memory.words([8, 16]);
    ensure_eq!(found, [30, 30], "the sums");
    Ok(())
}

fn failures(job: &Job<'_>) -> Verdict {
    let counter = job.station.counters[0];
    let (to, at, key) = job.place(job.right(), 8);
    let post = |wrong: u64| {
        job.post(|| call!(atomic job.ep, write((&raw const ONE).cast(), 1, null_mut(), to, at, key + wrong, UINT64, SUM, null_mut())))
    };
    post(0)?;
    job.tx.next()?;
    post(1 << 30)?;
    job.tx.error()?;
    let seen = (value_of(counter), errors_of(counter));
    ensure_eq!(seen, (1, 1), "successes and failures");
    let counter_at = counter.addr();
    let (code, failed) = std::thread::scope(|scope| {
        let waits = scope.spawn(move || {
            let counter = counter_at as *mut fid_cntr;
            call!(obj counter, wait(10, LONG))
        });
        let mut failed = 0;
        while !waits.is_finished() {
            pause(10);
            post(1 << 30)?;
            failed += 1;
        }
        Ok::<_, String>((waits.join().unwrap_or(0), failed))
    })?;
    ensure_eq!(code as isize, AVAIL, "a wait meanwhile");
    for _ in 0..failed {
        job.tx.error()?;
    }
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
    ensure_eq!(both(), (100, 2), "after an operation");
    Ok(())
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
    let at = job.station.counters[0].addr();
    for round in 1..=5u64 {
        let code = std::thread::scope(|scope| {
            scope.spawn(move || {
                pause(20);
                let counter = at as *mut fid_cntr;
                let _ = call!(obj counter, add(1));
            });
            let counter = at as *mut fid_cntr;
            call!(obj counter, wait(round, LONG))
        });
        ensure_eq!(code, 0, "the wait");
    }
    Ok(())
}

fn descriptor(job: &Job<'_>) -> Verdict {
    let counter = job.station.counters[0];
    let bound: *mut fid = counter.cast();
    let (mut descriptor, mut kind) = (-1, 0);
    ok!(fid counter, control(FI_GETWAIT, (&raw mut descriptor).cast()));
    ok!(fid counter, control(FI_GETWAITOBJ, (&raw mut kind).cast()));
    ensure_eq!(kind, FI_WAIT_FD, "the kind of wait");
    let readable = |ms| super::waiting::readable(descriptor, ms);
    let (to, at, key) = job.place(job.right(), 8);
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
            job.post(|| call!(rma job.ep, write((&raw const ONE).cast(), 8, null_mut(), to, at, key, null_mut())))?;
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
        let (to, at, key) = job.place(0, 8);
        for _ in 0..rounds {
            change_and_read(job, (to, at, key))?;
        }
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
        ensure!(
            seen.0 >= 4 * others * rounds && seen.1 >= others * rounds,
            "writes and reads: {seen:?}"
        );
        let found = job.memory.get(8);
        ensure_eq!(found, 3 * others * rounds, "the sum when all is counted");
        job.ctx.tell(b"counted");
        pause(20);
        let later = (value_of(writes), value_of(reads));
        ensure_eq!(later, seen, "the counters a little later");
    }
    Ok(())
}

fn unasked(job: &Job<'_>) -> Verdict {
    let domain = job.station.domain;
    let mut counter = null_mut();
    ok!(obj domain, cntr_open(null_mut(), &mut counter, null_mut()));
    let ep = job.station.bare()?;
    let other: *mut fid = counter.cast();
    gives!(FI_EBADFLAGS, fid ep, bind(other, 0));
    gives!(FI_EBADFLAGS, fid ep, bind(other, FI_WRITE | 1 << 40));
    super::station::close(ep)?;
    super::station::close(counter)?;
    let mut attr = fi_cntr_attr {
        events: 1,
        wait_obj: FI_WAIT_NONE,
        wait_set: null_mut(),
        flags: 0,
    };
    gives!(FI_EINVAL, obj domain, cntr_open(&mut attr, &mut counter, null_mut()));
    attr.events = 0;
    attr.wait_obj = 77;
    gives!(FI_ENOSYS, obj domain, cntr_open(&mut attr, &mut counter, null_mut()));
    gives!(FI_EINVAL, obj domain, cntr_open(null_mut(), null_mut(), null_mut()));
    Ok(())
}

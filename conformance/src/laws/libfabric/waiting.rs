//! Waits for completions (fi_cq(3)).

use std::time::Instant;

use super::completion::add;
use super::kit::*;

laws! {
    waits with(&Plan::DEFAULT.wait(FI_WAIT_UNSPEC), 256): "cq.sread", "fi_cq(3)", 2, [cq_sread, cq_sreadfrom, atomic, senddata],
        "a wait ends when there is something, for what this side does and for what comes";
    threshold with(&Plan::DEFAULT.wait(FI_WAIT_UNSPEC).condition(FI_CQ_COND_THRESHOLD), 256):
        "cq.threshold", "fi_cq(3)", 2, [cq_sread, atomic] + ordering,
        "with FI_CQ_COND_THRESHOLD a wait ends when there are as many entries as asked for";
    signal with(&Plan::DEFAULT.wait(FI_WAIT_UNSPEC), 256): "cq.signal", "fi_cq(3)", 1, [cq_signal, cq_sread],
        "fi_cq_signal ends a wait";
    descriptor with(&Plan::DEFAULT.wait(FI_WAIT_FD), 256): "cq.fd", "fi_cq(3), fi_poll(3)", 2, [control, trywait, cq_read, write],
        "a descriptor that fi_trywait has found nothing behind becomes readable when there is something";
    full with(&Plan::DEFAULT.entries(8), 256): "cq.full", "fi_cq(3)", 2, [cq_open, atomic, cq_read],
        "operations without room for their completions are -FI_EAGAIN until some are read; none is lost";
}

/// Sleeps until the descriptor is readable, for at most `ms` milliseconds (-1: no limit).
pub(super) fn readable(descriptor: i32, ms: i32) -> bool {
    let mut wanted = libc::pollfd {
        fd: descriptor,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY:
    // - one valid structure.
    unsafe { libc::poll(&mut wanted, 1, ms) == 1 }
}

fn waits(job: &Job<'_>) -> Verdict {
    let to = job.peer(job.right()).address;
    for nth in 0..20usize {
        let mut entry = blank();
        add(job, nth, 0)?;
        let count = call!(obj job.tx.0, sread((&raw mut entry).cast(), 1, null(), LONG));
        let seen = (count, entry.context());
        ensure_eq!(seen, (1, nth), "the result of a wait for an atomic");
        let mut buffer = [0u8; 8];
        job.receive(&mut buffer, 3)?;
        if job.rank == 0 {
            pause(2);
        }
        job.post(
            || call!(msg job.ep, senddata((&raw const ONE).cast(), 8, null_mut(), 6, to, cx(4))),
        )?;
        let mut source = 0;
        let count =
            call!(obj job.rx.0, sreadfrom((&raw mut entry).cast(), 1, &mut source, null(), LONG));
        let seen = (count, entry.context(), entry.data);
        ensure_eq!(seen, (1, 3, 6), "the result of a wait for a message");
        job.tx.of(4)?;
    }
    Ok(())
}

fn threshold(job: &Job<'_>) -> Verdict {
    for count in [1usize, 3, 7] {
        for_all(0..count, |nth| add(job, nth, 0))?;
        let mut entries = [blank(); 8];
        let seen = call!(obj job.tx.0, sread(entries.as_mut_ptr().cast(), 8, cx(count), LONG));
        ensure_eq!(seen, count as isize, "entries of a wait for {count}");
    }
    let mut entries = [blank(); 8];
    add(job, 1, 0)?;
    let start = Instant::now();
    gives!(FI_EAGAIN, obj job.tx.0, sread(entries.as_mut_ptr().cast(), 8, cx(2), 60));
    took_all(start, 60)?;
    job.tx.of(1).map(drop)
}

fn signal(job: &Job<'_>) -> Verdict {
    let queue = job.tx.0.addr();
    for _ in 0..5 {
        let signal = move || {
            pause(30);
            let queue = queue as *mut fid_cq;
            call!(obj queue, signal())
        };
        let mut entry = blank();
        let wait = || call!(obj job.tx.0, sread((&raw mut entry).cast(), 1, null(), LONG));
        let (_, code) = beside(signal, wait)?;
        ensure_eq!(code, AGAIN, "a wait that was ended");
    }
    Ok(())
}

fn descriptor(job: &Job<'_>) -> Verdict {
    let descriptor = control(job.rx.0, FI_GETWAIT, -1)?;
    let mut list = [job.rx.0.cast::<fid>()];
    let words = job.words(job.right(), 8);
    for round in 0..6u64 {
        ok!(obj job.station.fabric, trywait(list.as_mut_ptr(), 1));
        ensure!(!readable(descriptor, 0), "readable with nothing behind it");
        job.meet();
        if job.rank == 0 {
            pause(20);
        }
        job.post(|| words.write_data(round))?;
        ensure!(readable(descriptor, LONG), "round {round}: never readable");
        ensure_eq!(job.rx.next()?.data, round, "the data");
        job.tx.next()?;
        job.meet();
    }
    // fi_trywait reports an existing entry at once.
    job.done(|| words.write_data(77))?;
    job.meet();
    gives!(FI_EAGAIN, obj job.station.fabric, trywait(list.as_mut_ptr(), 1));
    job.rx.next().map(drop)
}

fn full(job: &Job<'_>) -> Verdict {
    let (words, mut posted) = (job.words(job.right(), 8), 0);
    // On a backend with slow operations, the queue fills up while the loop posts.
    while posted < 5000 && accepted(words.add())? {
        posted += 1;
    }
    let fits = (8..5000).contains(&posted);
    ensure!(fits, "{posted} operations were posted on a queue of 8");
    job.tx.successes(0..posted)?;
    job.tx.is_empty()?;
    add(job, 5, 0)?;
    job.tx.of(5)?;
    let found = job.fetch(job.right(), 8, READ, 0)?;
    equal!(found, posted + 1, "operations done")
}

//! Completion queues (fi_cq(3)).

use std::ffi::{CStr, c_char};
use std::time::Instant;

use super::kit::*;

laws! {
    formats: "cq.format", "fi_cq(3), fi_atomic(3) §4.8", 2, [cq_open, cq_read, atomic],
        "an entry has the fields of its queue's format, with the operation's context, and nothing is written behind it";
    kinds with(&Plan::DEFAULT, 256): "cq.flags", "fi_cq(3)", 2, [cq_read, atomic, fetch_atomic, compare_atomic, write, read],
        "an entry's flags tell what kind of operation it was, its context which one";
    several with(&Plan::DEFAULT, 256): "cq.several", "fi_cq(3)", 2, [cq_read, atomic],
        "several entries are read at once, no more than asked for; none is lost and none comes twice";
    nothing with(&Plan::DEFAULT.wait(FI_WAIT_UNSPEC), 256): "cq.empty", "fi_cq(3)", 1, [cq_read, cq_readfrom, cq_readerr, cq_sread],
        "an empty queue gives -FI_EAGAIN, and a wait ends with it at its timeout";
    failures with(&Plan::DEFAULT, 256): "cq.error", "fi_cq(3)", 2, [cq_readerr, cq_read, cq_strerror],
        "while there is a failure reading gives -FI_EAVAIL; fi_cq_readerr gives it once, with context, flags and number; the number has a text";
    behind_failures with(&Plan::DEFAULT, 256): "cq.error.behind", "fi_cq(3)", 2, [cq_readerr, cq_read, atomic] + ordering,
        "successes beside failures are all told, each of them once";
    in_turn with(&Plan::DEFAULT.wait(FI_WAIT_UNSPEC).counters(&[FI_WRITE]), 256):
        "cq.order", "fi_cq(3)", 2, [cq_readerr, cq_read, cq_sread, atomic],
        "a failure keeps its place: entries before it are read first, and later entries after it";
    wrong: "cq.bad", "fi_cq(3)", 1, [cq_open, cq_read, cq_sread],
        "unknown formats, objects and conditions are refused; so is a wait on a queue that has none";
}

/// Adds 1 to word 1 of the next rank. `wrong` is added to the key.
pub(super) fn add(job: &Job<'_>, context: usize, wrong: u64) -> Verdict {
    let words = job.words(job.right(), 8).told(context);
    job.post(|| words.under(words.place.2 + wrong).add())
}

fn formats(ctx: &Ctx) -> Verdict {
    for (format, size) in [
        (FI_CQ_FORMAT_UNSPEC, 8),
        (FI_CQ_FORMAT_CONTEXT, 8),
        (FI_CQ_FORMAT_MSG, 24),
        (FI_CQ_FORMAT_DATA, 40),
        (FI_CQ_FORMAT_TAGGED, 48),
    ] {
        with(ctx, &Plan::DEFAULT.format(format), 256, |job| {
            add(job, 21, 0)?;
            add(job, 22, 0)?;
            let mut entries = [0xeeu8; 3 * 48];
            let mut seen = 0;
            until("two entries", || {
                let rest = entries[seen * size..].as_mut_ptr();
                let count = call!(obj job.tx.0, read(rest.cast(), 2 - seen));
                seen += count.max(0) as usize;
                seen == 2
            })?;
            let holds = entries[2 * size..].iter().all(|byte| *byte == 0xee);
            ensure!(holds, "format {format}: bytes behind the entries");
            let mut contexts = 0;
            for entry in entries[..2 * size].chunks(size) {
                contexts |= 1 << (u64_of(entry) & 31);
                if size >= 24 {
                    let flags = u64_of(&entry[8..]);
                    ensure_eq!(flags, FI_ATOMIC | FI_WRITE, "format {format}: the flags");
                }
            }
            equal!(contexts, 1 << 21 | 1 << 22, "format {format}: the contexts")
        })?;
    }
    Ok(())
}

fn kinds(job: &Job<'_>) -> Verdict {
    let mut result = 0u64;
    let words = job.words(job.right(), 8).into(&mut result);
    for (context, operation, flags) in [
        (1, Words::add as Operation, FI_ATOMIC | FI_WRITE),
        (2, Words::fetch_add, FI_ATOMIC | FI_READ),
        (3, Words::swap, FI_ATOMIC | FI_READ),
        (4, Words::write, FI_RMA | FI_WRITE),
        (5, Words::read, FI_RMA | FI_READ),
        (0, Words::add, FI_ATOMIC | FI_WRITE),
        (usize::MAX, Words::add, FI_ATOMIC | FI_WRITE),
    ] {
        let entry = job.told(context, || operation(&words.told(context)))?;
        ensure_eq!(entry.flags, flags, "the flags of context {context}");
    }
    Ok(())
}

fn several(job: &Job<'_>) -> Verdict {
    const COUNT: usize = 100;
    for_all(0..COUNT, |nth| add(job, nth, 0))?;
    let (mut seen, mut random) = ([0u8; COUNT], job.ctx.random(job.rank.into()));
    let mut left = COUNT;
    until("all entries", || {
        let mut entries = [blank(); 16];
        let most = 1 + random.below(10) as usize;
        let count = call!(obj job.tx.0, read(entries.as_mut_ptr().cast(), most));
        assert!(count <= most as isize, "{count} entries instead of {most}");
        for entry in entries.iter().take(count.max(0) as usize) {
            seen[entry.context()] += 1;
            left -= 1;
        }
        left == 0
    })?;
    ensure_eq!(seen, [1; COUNT], "how often each context came");
    job.tx.is_empty()
}

fn nothing(job: &Job<'_>) -> Verdict {
    let mut entry = blank();
    let place = (&raw mut entry).cast();
    let mut source = 5;
    gives!(FI_EAGAIN, obj job.tx.0, read(place, 1));
    gives!(FI_EAGAIN, obj job.rx.0, readfrom(place, 1, &mut source));
    // SAFETY:
    // - plain data.
    let mut error: fi_cq_err_entry = unsafe { std::mem::zeroed() };
    gives!(FI_EAGAIN, obj job.tx.0, readerr(&mut error, 0));
    for ms in [0, 1, 50] {
        let start = Instant::now();
        gives!(FI_EAGAIN, obj job.tx.0, sread(place, 1, null(), ms));
        took_all(start, ms)?;
    }
    let seen = (entry.context(), source);
    equal!(seen, (0, 5), "what was not written")
}

fn failures(job: &Job<'_>) -> Verdict {
    add(job, 31, 1 << 32)?;
    until("the failure", || job.tx.read().0 == AVAIL)?;
    ensure_eq!(job.tx.read().0, AVAIL, "a second look");
    let error = job.tx.error()?;
    let seen = (error.context(), error.err);
    ensure_eq!(seen, (31, FI_ENOKEY), "context and number");
    ensure_eq!(error.flags, FI_ATOMIC | FI_WRITE, "the flags");
    let mut text: [c_char; 8] = [1; 8];
    let whole = call!(obj job.tx.0, strerror(error.prov_errno, null(), text.as_mut_ptr(), 8));
    ensure!(!whole.is_null(), "no text");
    // SAFETY:
    // - contract of the call: it returns a C string.
    let whole = unsafe { CStr::from_ptr(whole) }.to_bytes();
    ensure!(whole.len() > 3, "a text of {} bytes", whole.len());
    let holds = text[7] == 0 && text.iter().zip(whole).take(7).all(|(a, b)| *a as u8 == *b);
    ensure!(holds, "the copied text");
    job.tx.is_empty()
}

fn behind_failures(job: &Job<'_>) -> Verdict {
    let mut random = job.ctx.random(job.rank.into());
    let (mut good, mut bad) = (0u64, 0u64);
    for nth in 0..40 {
        let wrong = random.below(3) == 0;
        *(if wrong { &mut bad } else { &mut good }) |= 1 << nth;
        add(job, nth, if wrong { 1 << 33 } else { 0 })?;
    }
    let (mut told, mut failed) = (0u64, 0u64);
    while told | failed != good | bad {
        match job.tx.end()? {
            End::Success(entry) => told |= 1 << entry.context(),
            End::Failure(error) => failed |= 1 << error.context(),
        }
    }
    ensure_eq!((told, failed), (good, bad), "successes and failures");
    job.tx.is_empty()
}

fn in_turn(job: &Job<'_>) -> Verdict {
    let counter = job.station.counters[0];
    let (mut good, mut bad) = (0, 0);
    let mut turn = |context: usize, wrong: u64| {
        add(job, context, wrong << 32)?;
        good += 1 - wrong;
        bad += wrong;
        until("its end", || {
            (value_of(counter), errors_of(counter)) == (good, bad)
        })
    };
    // Each operation ends before the next. No entry is read meanwhile.
    for (context, wrong) in [0, 0, 1, 0, 1, 1, 0].into_iter().enumerate() {
        turn(context, wrong)?;
    }
    let mut entries = [blank(); 8];
    let read = |entries: &mut [fi_cq_tagged_entry], count: usize, waits: bool| {
        let place = entries.as_mut_ptr().cast();
        match waits {
            true => call!(obj job.tx.0, sread(place, count, null(), LONG)),
            false => call!(obj job.tx.0, read(place, count)),
        }
    };
    ensure_eq!(read(&mut entries, 1, false), 1, "one at a time");
    ensure_eq!(read(&mut entries[1..], 7, true), 1, "up to the failure");
    for waits in [false, true] {
        let seen = read(&mut entries[2..], 6, waits);
        ensure_eq!(seen, AVAIL, "the failure's turn");
    }
    ensure_eq!(job.tx.take_error()?.context(), 2, "the first failure");
    ensure_eq!(read(&mut entries[2..], 6, true), 1, "up to the next one");
    ensure_eq!(job.tx.take_error()?.context(), 4, "the second failure");
    let seen = read(&mut entries[3..], 5, false);
    ensure_eq!(seen, AVAIL, "one behind the other");
    ensure_eq!(job.tx.take_error()?.context(), 5, "the third failure");
    ensure_eq!(read(&mut entries[3..], 5, false), 1, "the rest");
    let seen = [0, 1, 2, 3].map(|nth: usize| entries[nth].context());
    ensure_eq!(seen, [0, 1, 3, 6], "the successes");
    // Failures can be read before earlier successes.
    for (context, wrong) in [0, 1].into_iter().enumerate() {
        turn(context, wrong)?;
    }
    ensure_eq!(job.tx.take_error()?.context(), 1, "the failure, early");
    job.tx.of(0)?;
    job.tx.is_empty()
}

fn wrong(_: &Ctx) -> Verdict {
    let station = Station::open(&Plan::DEFAULT)?;
    let mut queue = null_mut();
    let attr = |format, wait_obj, wait_cond| fi_cq_attr {
        size: 0,
        flags: 0,
        format,
        wait_obj,
        signaling_vector: 0,
        wait_cond,
        wait_set: null_mut(),
    };
    let domain = station.domain;
    gives!(FI_EINVAL, obj domain, cq_open(&mut attr(9, FI_WAIT_NONE, 0), &mut queue, null_mut()));
    gives!(FI_EINVAL, obj domain, cq_open(&mut attr(FI_CQ_FORMAT_MSG, FI_WAIT_UNSPEC, 7), &mut queue, null_mut()));
    gives!(FI_ENOSYS, obj domain, cq_open(&mut attr(FI_CQ_FORMAT_MSG, 77, 0), &mut queue, null_mut()));
    gives!(FI_EINVAL, obj domain, cq_open(null_mut(), &mut queue, null_mut()));
    gives!(FI_EINVAL, obj domain, cq_open(&mut attr(FI_CQ_FORMAT_MSG, FI_WAIT_NONE, 0), null_mut(), null_mut()));
    ensure_eq!(queue, null_mut(), "a queue");
    let mut entry = blank();
    gives!(FI_EINVAL, obj station.tx.0, read(null_mut(), 1));
    gives!(FI_EINVAL, obj station.tx.0, sread((&raw mut entry).cast(), 1, null(), 10));
    gives!(FI_EINVAL, obj station.tx.0, readerr(null_mut(), 0));
    station.close()
}

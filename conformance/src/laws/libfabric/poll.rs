//! Poll sets (fi_poll(3)).

use super::kit::*;

laws! {
    news with(&Plan::DEFAULT.counters(&[FI_SEND | FI_RECV]), 256):
        "poll.news", "fi_poll(3)", 2, [poll_open, poll_add, poll_del, poll, send, recv, cntr_read],
        "a poll moves everything on, and names the queues that are not empty and the counters that have changed";
    few with(&Plan::DEFAULT, 256): "poll.few", "fi_poll(3)", 1, [poll, cntr_add],
        "no more contexts are given than there is room for, and each has its turn";
    refused with(&Plan::DEFAULT, 256): "poll.refused", "fi_poll(3)", 1, [poll_open, poll_add, poll_del],
        "members are named once, of the set's domain, and keep both sides from being closed";
}

pub(crate) fn open(job: &Job<'_>) -> Result<*mut fid_poll, String> {
    let mut set: *mut fid_poll = null_mut();
    let mut attr = fi_poll_attr { flags: 0 };
    ok!(obj job.station.domain, poll_open(&mut attr, &mut set));
    Ok(set)
}

/// A counter with a context. Poll sets report objects by context, and the station's objects have none.
fn named(job: &Job<'_>, context: usize) -> Result<*mut fid_cntr, String> {
    let mut counter = null_mut();
    ok!(obj job.station.domain, cntr_open(null_mut(), &mut counter, cx(context)));
    Ok(counter)
}

fn news(job: &Job<'_>) -> Verdict {
    let (set, counter) = (open(job)?, job.station.counters[0]);
    // SAFETY:
    // - the law has opened the objects; their contexts belong to the program.
    unsafe {
        (*job.rx.0).fid.context = cx(1);
        (*counter).fid.context = cx(2);
    }
    ok!(obj set, poll_add(job.rx.0.cast(), 0));
    ok!(obj set, poll_add(counter.cast(), 0));
    let mut places = [null_mut::<c_void>(); 4];
    let mut poll = || -> Vec<usize> {
        let count = call!(obj set, poll(places.as_mut_ptr(), 4)).max(0) as usize;
        places[..count]
            .iter()
            .map(|context| context.addr())
            .collect()
    };
    ensure!(poll().is_empty(), "something new");
    job.meet();
    let mut word = [0u8; 8];
    job.receive(&mut word, 0)?;
    job.done(|| job.words(job.right(), 0).send())?;
    // Polls alone make progress on the message.
    let mut seen = Vec::new();
    until("the message", || {
        seen.extend(poll());
        seen.contains(&1) && value_of(counter) == 2
    })?;
    let last = poll();
    ensure!(last.contains(&1), "the queue is not empty");
    seen.extend(last);
    ensure!(seen.contains(&2), "the counter has changed");
    job.rx.next()?;
    poll();
    ensure!(poll().is_empty(), "something new after all was read");
    ok!(obj set, poll_del(counter.cast(), 0));
    ok!(obj set, poll_del(job.rx.0.cast(), 0));
    close(set)
}

fn few(job: &Job<'_>) -> Verdict {
    let set = open(job)?;
    let counters = [named(job, 1)?, named(job, 2)?, named(job, 3)?];
    for counter in counters {
        ok!(obj set, poll_add(counter.cast(), 0));
        ok!(obj counter, add(1));
    }
    let poll = || {
        let mut place = null_mut::<c_void>();
        let count = call!(obj set, poll(&mut place, 1));
        (count, place.addr())
    };
    let mut seen = [poll(), poll(), poll()];
    seen.sort_unstable();
    ensure_eq!(seen, [(1, 1), (1, 2), (1, 3)], "one context at a time");
    ensure_eq!(poll().0, 0, "nothing is left");
    ensure_eq!(call!(obj set, poll(null_mut(), 0)), 0, "no room");
    for counter in counters {
        ok!(obj set, poll_del(counter.cast(), 0));
        close(counter)?;
    }
    close(set)
}

fn refused(job: &Job<'_>) -> Verdict {
    let mut set: *mut fid_poll = null_mut();
    let mut attr = fi_poll_attr { flags: 1 };
    gives!(FI_EINVAL, obj job.station.domain, poll_open(&mut attr, &mut set));
    gives!(FI_EINVAL, obj job.station.domain, poll_open(null_mut(), null_mut()));
    let (set, counter) = (open(job)?, named(job, 1)?);
    gives!(FI_EINVAL, obj set, poll_add(null_mut(), 0));
    gives!(FI_EINVAL, obj set, poll_add(job.station.av.cast(), 0));
    gives!(FI_EBADFLAGS, obj set, poll_add(counter.cast(), 1));
    gives!(FI_EINVAL, obj set, poll_del(counter.cast(), 0));
    ok!(obj set, poll_add(counter.cast(), 0));
    gives!(FI_EINVAL, obj set, poll_add(counter.cast(), 0));
    gives!(FI_EBUSY, fid counter, close());
    gives!(FI_EBUSY, fid set, close());
    let mut found = [null_mut::<c_void>(); 1];
    gives!(FI_EINVAL, obj set, poll(null_mut(), 1));
    gives!(FI_EINVAL, obj set, poll(found.as_mut_ptr(), -1));
    ok!(obj set, poll_del(counter.cast(), 0));
    close(counter)?;
    close(set)
}

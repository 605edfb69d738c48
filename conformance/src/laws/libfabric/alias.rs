//! Other names of an endpoint (fi_ep_alias of fi_endpoint(3)).

use super::kit::*;
use super::work::context;

laws! {
    triggered with(&Plan::DEFAULT.caps(ALL | FI_TRIGGER), 256): "trigger.alias", "fi_endpoint(3), fi_trigger(3)", 2, [control, write, read, send, recv, tsend, atomic, fetch_atomic, inject, cntr_add],
        "calls without flags at an alias with FI_TRIGGER wait for the counter of their context; calls at the endpoint do not";
    untriggered with(&Plan::DEFAULT, 256): "trigger.alias.bad", "fi_endpoint(3)", 1, [control, write],
        "an endpoint that was not to have FI_TRIGGER has no alias that triggers; unknown flags are refused";
}

const ALL: u64 = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC;

pub(super) fn alias(job: &Job<'_>, flags: u64) -> Result<*mut fid_ep, String> {
    let mut alias: *mut fid = null_mut();
    let fid = &raw mut alias;
    control(job.ep, FI_ALIAS, fi_alias { fid, flags })?;
    Ok(alias.cast())
}

fn triggered(job: &Job<'_>) -> Verdict {
    let sender = alias(job, FI_TRANSMIT | FI_TRIGGER)?;
    let receiver = alias(job, FI_RECV | FI_TRIGGER)?;
    let (counter, none) = (job.station.counter()?, null_mut());
    let mut contexts: Vec<_> = (1..=7)
        .map(|threshold| context(counter, threshold))
        .collect();
    let places: Vec<_> = contexts
        .iter_mut()
        .map(|it| (&raw mut *it).cast())
        .collect();
    let words = Buffer::new(64);
    words.store(
        0,
        [11u64, 0, 5, 7, 0, 21, 31, 0]
            .map(u64::to_le_bytes)
            .as_flattened(),
    );
    let at = |nth: usize| words.at(8 * nth).cast();
    let (to, remote, key) = job.place(job.right(), 0);
    job.memory.set(8, 33);
    job.meet();
    // This receive waits for its counter, so it is posted later and takes the second message.
    ok!(msg receiver, recv(at(7), 8, none, FI_ADDR_UNSPEC, places[5]));
    ok!(rma sender, write(at(0), 8, none, to, remote, key, places[0]));
    ok!(rma sender, read(at(1), 8, none, to, remote + 8, key, places[1]));
    ok!(atomic sender, write(at(2), 1, none, to, remote + 16, key, UINT64, SUM, places[2]));
    ok!(atomic sender, readwrite(at(3), 1, none, at(4), none, to, remote + 16, key, UINT64, SUM, places[3]));
    ok!(tagged sender, send(at(5), 8, none, to, 9, places[4]));
    ok!(msg sender, send(at(6), 8, none, to, places[6]));
    gives!(FI_ENOSYS, rma sender, inject(at(0), 8, to, remote, key));
    gives!(FI_ENOSYS, msg sender, inject(at(0), 8, to));
    // The alias has flags for one direction only.
    let tagged = Buffer::new(16);
    ok!(tagged sender, recv(tagged.base.cast(), 8, none, FI_ADDR_UNSPEC, 9, 0, cx(1)));
    // Operations of the endpoint itself do not wait for a counter.
    let direct = job.words(job.right(), 24).from(words.at(0).cast());
    job.told(2, || direct.told(2).write())?;
    job.tx.is_empty()?;
    job.meet();
    let seen = job.memory.words([0, 16]);
    ensure_eq!(seen, [0, 0], "the words before the counter is raised");
    ensure_eq!(job.memory.get(24), 11, "the endpoint's own data");
    job.meet();
    for (nth, place) in places.iter().take(5).enumerate() {
        ok!(obj counter, add(1));
        let seen = job.tx.next()?.op_context;
        ensure_eq!(seen, *place, "the operation of threshold {}", nth + 1);
    }
    job.rx.of(1)?;
    tagged.holds(0, &21u64.to_le_bytes(), "the tagged message")?;
    ok!(obj counter, add(2));
    ensure_eq!(job.tx.next()?.op_context, places[6], "the send");
    ensure_eq!(job.rx.next()?.op_context, places[5], "the receive");
    ensure_eq!(words.get(56), 31, "the message");
    let seen = words.words([8, 32]);
    ensure_eq!(seen, [33, 5], "the values that were read, and fetched");
    job.meet();
    let seen = job.memory.words([0, 16]);
    ensure_eq!(seen, [11, 12], "the words of the peer");
    job.tx.is_empty()?;
    job.rx.is_empty()?;
    close(sender)?;
    close(receiver)?;
    close(counter)
}

fn untriggered(job: &Job<'_>) -> Verdict {
    let (word, (to, at, key)) = (5u64, job.place(0, 0));
    let sender = alias(job, FI_TRANSMIT | FI_TRIGGER)?;
    gives!(FI_EBADFLAGS, rma sender, write((&raw const word).cast(), 8, null_mut(), to, at, key, null_mut()));
    gives!(FI_EBADFLAGS, msg sender, send((&raw const word).cast(), 8, null_mut(), to, null_mut()));
    close(sender)?;
    let mut none: *mut fid = null_mut();
    let mut wanted = fi_alias {
        fid: &mut none,
        flags: FI_TRANSMIT | 1 << 40,
    };
    gives!(FI_EBADFLAGS, fid job.ep, control(FI_ALIAS, (&raw mut wanted).cast()));
    equal!(job.memory.get(0), 0, "the memory")
}

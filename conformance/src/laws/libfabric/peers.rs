//! More peers, one after the other, than an endpoint can have at the same time (fi_endpoint(3)).

use super::death::survived;
use super::kit::*;

laws! {
    again with(&Plan::DEFAULT, 256): "peers.again", "fi_endpoint(3)", 2, [endpoint, close, tsend, trecv, av_insert, av_remove],
        "an endpoint serves any number of peers one after the other: closed peers make room";
    many with(&Plan::DEFAULT, 256): "peers.many", "fi_endpoint(3)", 7, [endpoint, close, tsend, trecv, av_insert],
        "hundreds of endpoints communicate with one at the same time, started by either side, and all of them go on";
    left with(&SOURCED, 256): "peers.left", "fi_cq(3)", 2, [endpoint, close, tsend, trecv, cq_readfrom],
        "messages of closed peers are received later with their sources, also after other peers came";
    answered with(&Plan::DEFAULT, 256): "peers.answer", "fi_endpoint(3)", 2, [endpoint, close, tsend, trecv, av_insert],
        "peers that only receive make room, too";
    dead survived(&Plan::DEFAULT): "peers.dead", "fi_endpoint(3)", 3, [endpoint, tsend, trecv, cq_read] + needs_kill,
        "killed peers make room, too";
}

/// An endpoint that knows the sources of messages.
const SOURCED: Plan<'static> = Plan::DEFAULT.caps(FI_TAGGED | FI_SOURCE);
const HELLO: u64 = 1;
const ANSWER: u64 = 2;
const NOISE: u64 = 3;
const LETTER: u64 = 100;
/// Simultaneous peers: as many as fit a process. `TIMES` repetitions exceed an endpoint's peer numbers.
const AT_A_TIME: usize = 60;
const TIMES: usize = 5;

/// Sends the endpoint's name to rank 0, with a tag.
fn say(job: &Job<'_>, ep: *mut fid_ep, tag: u64) -> Verdict {
    let (name, to) = (name_of(ep)?, job.peer(0).address);
    job.told(3, || send_as(Some(tag), (ep, to), &name, 3))
        .map(drop)
}

/// Sends the endpoint's name to rank 0 and waits for the answer.
fn visit(job: &Job<'_>, ep: *mut fid_ep) -> Verdict {
    let answer = Buffer::new(8);
    receive_each(Some(ANSWER), ep, (&answer, 8), [0])?;
    say(job, ep, HELLO)?;
    job.rx.of(0)?;
    answer.holds(0, &name_of(ep)?[..8], "the answer")
}

/// Receives a name from any peer and answers the peer. Returns the name.
fn serve(job: &Job<'_>) -> Result<Vec<u8>, String> {
    let said = received(Some(HELLO), (job.ep, job.rx), NAME)?;
    let to = job.station.insert(&said)?;
    job.told(5, || send_as(Some(ANSWER), (job.ep, to), &said[..8], 5))?;
    job.forget(to)?;
    Ok(said)
}

/// Number of extra messages: some peers leave more messages than later peers.
fn noise(time: usize) -> usize {
    if time.is_multiple_of(2) { 3 } else { 0 }
}

fn hear(job: &Job<'_>) -> Result<Vec<u8>, String> {
    received(Some(NOISE), (job.ep, job.rx), NAME)
}

fn rounds(job: &Job<'_>, plan: &Plan<'_>, visitor: u32) -> Verdict {
    if job.rank == 0 {
        return (0..AT_A_TIME * TIMES).try_for_each(|nth| {
            let name = serve(job)?;
            for_all(0..noise(nth / AT_A_TIME), |_| {
                same(&hear(job)?, &name, "who makes noise")
            })
        });
    }
    if job.rank == visitor {
        for time in 0..TIMES {
            let endpoints = all(AT_A_TIME, || {
                let ep = job.station.enabled(plan)?;
                visit(job, ep)?;
                for_all(0..noise(time), |_| say(job, ep, NOISE))?;
                Ok(ep)
            })?;
            // The first endpoint still works.
            visit_again(job, endpoints[0])?;
            endpoints.into_iter().try_for_each(close)?;
        }
    }
    Ok(())
}

/// Sends a message from the endpoint to itself. No peer takes part.
fn visit_again(job: &Job<'_>, ep: *mut fid_ep) -> Verdict {
    let own = job.station.insert(&name_of(ep)?)?;
    job.post(|| inject_as(Some(9), (ep, own), &[7; 8]))?;
    let seen = received(Some(9), (ep, job.rx), 8)?;
    same(&seen, &[7; 8], "a message to itself")
}

fn again(job: &Job<'_>) -> Verdict {
    rounds(job, &Plan::DEFAULT, 1)
}

/// The results of `count` calls.
fn all<T>(count: usize, mut one: impl FnMut() -> Result<T, String>) -> Result<Vec<T>, String> {
    (0..count).map(|_| one()).collect()
}

/// Rank 0 and each endpoint of the other ranks exchange a word. The endpoints stay open.
fn many(job: &Job<'_>) -> Verdict {
    let visitors = AT_A_TIME * (job.size as usize - 1);
    if job.rank == 0 {
        let mut names = all(visitors, || serve(job))?;
        job.meet_and_progress();
        let mut again = all(visitors, || hear(job))?;
        names.sort_unstable();
        again.sort_unstable();
        ensure!(names == again, "other endpoints are heard than before");
        job.meet_and_progress();
        return Ok(());
    }
    let endpoints = all(AT_A_TIME, || {
        let ep = job.station.enabled(&Plan::DEFAULT)?;
        visit(job, ep)?;
        Ok(ep)
    })?;
    // All peers are present.
    job.meet_and_progress();
    endpoints.iter().try_for_each(|ep| say(job, *ep, NOISE))?;
    job.meet_and_progress();
    endpoints.into_iter().try_for_each(close)
}

fn left(job: &Job<'_>) -> Verdict {
    const LETTERS: usize = 100;
    for nth in (0..LETTERS).filter(|_| job.rank == 1) {
        let ep = job.station.enabled(&SOURCED)?;
        say(job, ep, LETTER + nth as u64)?;
        close(ep)?;
    }
    rounds(job, &SOURCED, 1)?;
    for nth in (0..LETTERS).filter(|_| job.rank == 0) {
        let name = Buffer::new(NAME);
        let tag = LETTER + nth as u64;
        receive_each(Some(tag), job.ep, (&name, NAME), [0])?;
        let (entry, source) = job.rx.next_from()?;
        ensure_eq!((entry.len, entry.tag), (NAME, tag), "the letter");
        ensure_eq!(source, FI_ADDR_NOTAVAIL, "its unknown sender");
    }
    // The endpoint has room for the same number again.
    rounds(job, &SOURCED, 1)
}

fn answered(job: &Job<'_>) -> Verdict {
    for_all(0..AT_A_TIME * TIMES, |_| {
        if job.rank == 0 {
            job.meet();
            let to = job.known(1)?;
            job.post(|| inject_as(Some(ANSWER), (job.ep, to), &[5; 8]))?;
            job.forget(to)?;
        } else {
            let ep = job.station.enabled(&Plan::DEFAULT)?;
            job.ctx.tell(&name_of(ep)?);
            job.meet();
            let seen = received(Some(ANSWER), (ep, job.rx), 8)?;
            same(&seen, &[5; 8], "the message")?;
            close(ep)?;
        }
        job.meet();
        Ok(())
    })
}

fn dead(job: &Job<'_>) -> Verdict {
    let both = AT_A_TIME * 2;
    if job.rank == super::death::victim(job) {
        for _ in 0..both {
            visit(job, job.station.enabled(&Plan::DEFAULT)?)?;
        }
        job.meet();
        job.ctx.dies();
    }
    if job.rank == 0 {
        (0..both).try_for_each(|_| serve(job).map(drop))?;
        // The victim has left no messages.
        job.rx.is_empty()?;
    }
    job.meet();
    let visitor = 3 - super::death::victim(job);
    rounds(job, &Plan::DEFAULT, visitor)
}

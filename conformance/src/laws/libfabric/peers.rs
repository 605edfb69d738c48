//! More peers, one after the other, than an endpoint can have at the same time (fi_endpoint(3)).

use super::death::survived;
use super::kit::*;
use super::station::{Plan, close, name_of};

laws! {
    again with(&Plan::DEFAULT, 256): "peers.again", "fi_endpoint(3)", 2, [endpoint, close, tsend, trecv, av_insert, av_remove],
        "an endpoint serves any number of peers, not too many at a time: those that have been closed make room";
    many with(&Plan::DEFAULT, 256): "peers.many", "fi_endpoint(3)", 7, [endpoint, close, tsend, trecv, av_insert],
        "hundreds of endpoints talk with one at the same time, whichever side begins, and all of them go on";
    left with(&SOURCED, 256): "peers.left", "fi_cq(3)", 2, [endpoint, close, tsend, trecv, cq_readfrom],
        "what closed peers have sent is received later, and is theirs, whoever has come after them";
    answered with(&Plan::DEFAULT, 256): "peers.answer", "fi_endpoint(3)", 2, [endpoint, close, tsend, trecv, av_insert],
        "those that only receive make room, too";
    dead survived(&Plan::DEFAULT): "peers.dead", "fi_endpoint(3)", 3, [endpoint, tsend, trecv, cq_read] + needs_kill,
        "those that have been killed make room, too";
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
    job.told(
        3,
        || call!(tagged ep, send(name.as_ptr().cast(), NAME, null_mut(), to, tag, cx(3))),
    )
    .map(drop)
}

/// Sends the endpoint's name to rank 0 and waits for the answer.
fn visit(job: &Job<'_>, ep: *mut fid_ep) -> Verdict {
    let answer = Memory::new(8);
    ok!(tagged ep, recv(answer.base.cast(), 8, null_mut(), FI_ADDR_UNSPEC, ANSWER, 0, cx(2)));
    say(job, ep, HELLO)?;
    job.rx.of(2)?;
    answer.holds(0, &name_of(ep)?[..8], "the answer")?;
    answer.free();
    Ok(())
}

/// Receives a name from any peer and answers the peer. Returns the name.
fn serve(job: &Job<'_>) -> Result<Vec<u8>, String> {
    let name = Memory::new(NAME);
    ok!(tagged job.ep, recv(name.base.cast(), NAME, null_mut(), FI_ADDR_UNSPEC, HELLO, 0, cx(4)));
    job.rx.of(4)?;
    let said = name.load(0, NAME);
    let mut to = job.station.insert(&said)?;
    job.told(
        5,
        || call!(tagged job.ep, send(name.base.cast(), 8, null_mut(), to, ANSWER, cx(5))),
    )?;
    ok!(obj job.station.av, remove(&mut to, 1, 0));
    name.free();
    Ok(said)
}

/// Number of extra messages: some peers leave more messages than later peers.
fn noise(time: usize) -> usize {
    if time.is_multiple_of(2) { 3 } else { 0 }
}

fn hear_noise(job: &Job<'_>, from: &[u8]) -> Verdict {
    same(&hear(job)?, from, "who makes noise")
}

fn hear(job: &Job<'_>) -> Result<Vec<u8>, String> {
    let name = Memory::new(NAME);
    ok!(tagged job.ep, recv(name.base.cast(), NAME, null_mut(), FI_ADDR_UNSPEC, NOISE, 0, cx(4)));
    job.rx.of(4)?;
    let said = name.load(0, NAME);
    name.free();
    Ok(said)
}

fn rounds(job: &Job<'_>, plan: &Plan<'_>, visitor: u32) -> Verdict {
    if job.rank == 0 {
        return (0..AT_A_TIME * TIMES).try_for_each(|nth| {
            let name = serve(job)?;
            (0..noise(nth / AT_A_TIME)).try_for_each(|_| hear_noise(job, &name))
        });
    }
    if job.rank == visitor {
        for time in 0..TIMES {
            let mut endpoints = Vec::new();
            for _ in 0..AT_A_TIME {
                let ep = job.station.enabled(plan)?;
                visit(job, ep)?;
                (0..noise(time)).try_for_each(|_| say(job, ep, NOISE))?;
                endpoints.push(ep);
            }
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
    let word = Memory::new(8);
    ok!(tagged ep, recv(word.base.cast(), 8, null_mut(), FI_ADDR_UNSPEC, 9, 0, cx(6)));
    job.post(|| call!(tagged ep, inject([7u8; 8].as_ptr().cast(), 8, own, 9)))?;
    job.rx.of(6)?;
    word.holds(0, &[7; 8], "a message to itself")?;
    word.free();
    Ok(())
}

fn again(job: &Job<'_>) -> Verdict {
    rounds(job, &Plan::DEFAULT, 1)
}

/// Rank 0 and each endpoint of the other ranks exchange a word. The endpoints stay open.
fn many(job: &Job<'_>) -> Verdict {
    let visitors = AT_A_TIME * (job.size as usize - 1);
    if job.rank == 0 {
        let mut names = (0..visitors)
            .map(|_| serve(job))
            .collect::<Result<Vec<_>, _>>()?;
        job.meet_and_progress();
        let mut again = (0..visitors)
            .map(|_| hear(job))
            .collect::<Result<Vec<_>, _>>()?;
        names.sort_unstable();
        again.sort_unstable();
        ensure!(names == again, "other endpoints are heard than before");
        job.meet_and_progress();
        return Ok(());
    }
    let endpoints: Result<Vec<_>, String> = (0..AT_A_TIME)
        .map(|_| {
            let ep = job.station.enabled(&Plan::DEFAULT)?;
            visit(job, ep)?;
            Ok(ep)
        })
        .collect();
    let endpoints = endpoints?;
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
        let name = Memory::new(NAME);
        let tag = LETTER + nth as u64;
        ok!(tagged job.ep, recv(name.base.cast(), NAME, null_mut(), FI_ADDR_UNSPEC, tag, 0, cx(8)));
        let (mut entry, mut source) = (blank(), 7);
        until("a letter", || {
            call!(obj job.rx.0, readfrom((&raw mut entry).cast(), 1, &mut source)) == 1
        })?;
        ensure_eq!((entry.len, entry.tag), (NAME, tag), "the letter");
        ensure_eq!(source, FI_ADDR_NOTAVAIL, "its sender, who is no one known");
        name.free();
    }
    // The endpoint has room for the same number again.
    rounds(job, &SOURCED, 1)
}

fn answered(job: &Job<'_>) -> Verdict {
    for _ in 0..AT_A_TIME * TIMES {
        let ep = match job.rank {
            0 => null_mut(),
            _ => job.station.enabled(&Plan::DEFAULT)?,
        };
        if !ep.is_null() {
            job.ctx.tell(&name_of(ep)?);
        }
        job.meet();
        if job.rank == 0 {
            let mut to = job.station.insert(&job.ctx.told(1).unwrap_or_default())?;
            job.post(|| call!(tagged job.ep, inject([5u8; 8].as_ptr().cast(), 8, to, ANSWER)))?;
            ok!(obj job.station.av, remove(&mut to, 1, 0));
        } else {
            let word = Memory::new(8);
            ok!(tagged ep, recv(word.base.cast(), 8, null_mut(), FI_ADDR_UNSPEC, ANSWER, 0, cx(2)));
            job.rx.of(2)?;
            word.holds(0, &[5; 8], "the message")?;
            word.free();
            close(ep)?;
        }
        job.meet();
    }
    Ok(())
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
    rounds(job, &Plan::DEFAULT, visitor)?;
    Ok(())
}

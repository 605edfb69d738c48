//! Full queues: on all sides at once, to a stopped process, and to a process that dies.

use super::death::{survived, victim};
use super::kit::*;
use super::message::pattern;
use super::told::*;
use crate::kit::{last_stops_for_a_while, stop_until_killed};

laws! {
    flood given((|_| Ok(())) as Before): "full-queue.both-sides", "fi_domain(3), Resource Management; fi_msg(3), FI_EAGAIN", 3,
        [send, tsend, inject, write, writedata, atomic, fetch_atomic, recv, trecv, cq_read] + ordering,
        "processes that flood each other by operations of all kinds, and repeat what gives -FI_EAGAIN, have each done once, messages in order";
    flood given(last_stops_for_a_while as Before): "full-queue.stopped", "fi_domain(3), Resource Management; fi_msg(3), FI_EAGAIN", 3,
        [send, tsend, inject, write, writedata, atomic, fetch_atomic, recv, trecv, cq_read],
        "the same holds if one process is stopped meanwhile";
    death survived(&Plan::DEFAULT.entries(2 * ENOUGH)):
        "full-queue.death", "fi_domain(3), Tx Ctx; fi_cq(3)", 3, [send, write, writedata, atomic, fetch_atomic, cq_read, cq_readerr] + needs_kill,
        "a process dies to which the transmit context is full: each operation ends once, and others find room";
    counted survived(&Plan::DEFAULT.queues(false).counters(&[FI_SEND, FI_WRITE])):
        "full-queue.death.counted", "fi_domain(3), Tx Ctx; fi_cntr(3)", 3, [send, write, cntr_read, cntr_readerr] + needs_kill,
        "the same holds if the process reads only counters";
}

/// Operations of each process on each other process.
const EACH: usize = 240;
const OF_A_KIND: usize = EACH / KINDS;
const KINDS: usize = 8;
/// Length of a message that fits neither a line nor the ring.
const LONG: usize = 70_000;
const MIDDLE: usize = 3000;

/// Tag and length of each kind of message.
const MESSAGES: [(Option<u64>, usize); 4] =
    [(None, 8), (Some(1), 8), (Some(2), MIDDLE), (Some(3), LONG)];

/// Unique number of an operation of a process.
fn serial(from: u32, nth: usize) -> usize {
    from as usize * EACH + nth
}

/// Index of receive `nth` among the buffers, for one kind and one sender.
fn receive(kind: usize, from: usize, nth: usize) -> usize {
    (from * MESSAGES.len() + kind) * OF_A_KIND + nth
}

struct Flood<'a> {
    job: &'a Job<'a>,
    sent: Told,
    received: Told,
    data: Told,
    rooms: Vec<Buffer>,
}

impl Flood<'_> {
    /// Reads both queues once.
    fn look(&mut self) -> Verdict {
        self.sent.look(self.job.tx)?;
        match self.job.rx.look()? {
            Some(End::Success(entry)) if entry.flags & FI_REMOTE_CQ_DATA != 0 => {
                self.data.note(entry.data as usize)
            }
            Some(End::Success(entry)) => self.received.note(entry.context()),
            Some(End::Failure(error)) => Err(format!("a receive failed: {}", error.err)),
            None => Ok(()),
        }
    }

    /// Checks that the received messages are the sent ones, in order for each kind and sender.
    fn check(&self, posted: &[usize]) -> Verdict {
        let mut next = vec![0; self.job.size as usize * MESSAGES.len()];
        for context in posted {
            let room = &self.rooms[*context];
            let kind = context / OF_A_KIND % MESSAGES.len();
            let head = room.get(0) as usize;
            let (from, nth) = (head / OF_A_KIND, head % OF_A_KIND);
            let place = next.get_mut(from * MESSAGES.len() + kind);
            let expected = place.ok_or(format!("a message from {from}"))?;
            ensure_eq!(nth, *expected, "message of kind {kind} from {from}");
            *expected += 1;
            room.holds(8, &pattern(nth, MESSAGES[kind].1)[8..], "a message")?;
        }
        Ok(())
    }
}

/// The step of each rank before the flood.
type Before = fn(&Ctx) -> Verdict;

fn flood(ctx: &Ctx, before: Before) -> Verdict {
    let plan = Plan::DEFAULT.entries(8).order(FI_ORDER_SAS);
    let (size, me) = (ctx.size as usize, ctx.rank as usize);
    with(ctx, &plan, 8 * (1 + size * EACH), |job| {
        let receives = size * MESSAGES.len() * OF_A_KIND;
        let mut flood = Flood {
            job,
            sent: Told::of(size * EACH),
            received: Told::of(receives),
            data: Told::of(size * EACH),
            rooms: (0..receives)
                .map(|at| Buffer::new(MESSAGES[at / OF_A_KIND % MESSAGES.len()].1))
                .collect(),
        };
        let ep = job.ep;
        let mut posted = Vec::new();
        let mut await_all = |flood: &Flood<'_>, late: bool| -> Verdict {
            for from in (0..size).filter(|from| *from != me) {
                for (kind, (tag, len)) in MESSAGES.into_iter().enumerate() {
                    for nth in (0..OF_A_KIND).filter(|nth| (nth % 2 == 1) == late) {
                        let at = receive(kind, from, nth);
                        posted.push(at);
                        let room = flood.rooms[at].at(0);
                        let place = std::ptr::slice_from_raw_parts_mut(room, len);
                        ensure_eq!(receive_as(tag, ep, place, at), 0, "a receive");
                    }
                }
            }
            Ok(())
        };
        await_all(&flood, false)?;
        let messages: Vec<Vec<u8>> = (0..MESSAGES.len() * OF_A_KIND)
            .map(|at| {
                let (kind, nth) = (at / OF_A_KIND, at % OF_A_KIND);
                let mut bytes = pattern(nth, MESSAGES[kind].1);
                bytes[..8].copy_from_slice(&((me * OF_A_KIND + nth) as u64).to_le_bytes());
                bytes
            })
            .collect();
        let words: Vec<u64> = (0..EACH as u64).collect();
        let mut fetched = vec![0u64; EACH * size];
        let results = fetched.as_mut_ptr();
        job.meet();
        before(ctx)?;
        let mut full = 0;
        for nth in 0..EACH {
            for to in (0..job.size).filter(|to| *to != job.rank) {
                let serial = serial(to, nth);
                let shared = job.words(to, 0).told(serial);
                let own = shared.behind(8 * (1 + super::flood::serial(job.rank, nth)) as u64);
                let own = own.from(&words[nth]);
                let message = |kind: usize| &messages[kind * OF_A_KIND + nth / KINDS][..];
                let peer = (ep, shared.place.0);
                let call = || match nth % KINDS {
                    1 => inject_as(MESSAGES[1].0, peer, message(1)),
                    kind @ ..4 => send_as(MESSAGES[kind].0, peer, message(kind), serial),
                    4 => own.write(),
                    5 => own.write_data(super::flood::serial(job.rank, nth) as u64),
                    6 => shared.add(),
                    _ => shared.into(results.wrapping_add(serial)).fetch_add(),
                };
                post(call, || {
                    full += 1;
                    flood.look()
                })?;
            }
        }
        ensure!(full > 0, "nothing has ever been full");
        await_all(&flood, true)?;
        let others = size - 1;
        let told = others * (EACH - OF_A_KIND);
        let (come, data) = (others * MESSAGES.len() * OF_A_KIND, others * OF_A_KIND);
        until_ok("the end of everything", || {
            flood.look()?;
            let seen = [flood.sent.all(), flood.received.all(), flood.data.all()];
            Ok(seen == [told, come, data])
        })?;
        job.meet();
        job.tx.is_empty()?;
        job.rx.is_empty()?;
        flood.check(&posted)?;
        let is_other = |at: usize| at / EACH != me;
        let told = |at: usize| is_other(at) && at % KINDS != 1;
        let with_data = |at: usize| is_other(at) && at % KINDS == 5;
        flood.sent.ensure(|at| usize::from(told(at)))?;
        flood.data.ensure(|at| usize::from(with_data(at)))?;
        let sum = (2 * others * OF_A_KIND) as u64;
        job.memory.shows(0, sum, "additions")?;
        for_all((0..size * EACH).filter(|at| is_other(*at)), |at| {
            let written = matches!(at % KINDS, 4 | 5);
            let expected = if written { at % EACH } else { 0 } as u64;
            job.memory.shows(8 * (1 + at), expected, "a word")
        })
    })
}

/// Operations that fill any transmit context. Each fourth is a message.
const ENOUGH: usize = 1 << 15;
/// Operations that are always posted.
const FEWEST: usize = 9;

/// Fills the transmit context with operations on the victim. Returns the number of messages and of other operations.
fn fill_towards_victim(job: &Job<'_>) -> Result<(usize, usize), String> {
    let (words, mut count) = (job.words(victim(job), 8), 0);
    // After the death, operations fail and need no room.
    while count < ENOUGH {
        let words = words.told(count);
        let post = || match count % 4 {
            0 => words.send(),
            1 => words.write(),
            2 => words.write_data(1),
            _ => words.add(),
        };
        let mut code = post();
        if count < FEWEST {
            // A message waits for earlier accesses. If the victim stopped before them, room comes only after its death.
            until("room", || {
                code = if code == AGAIN { post() } else { code };
                code != AGAIN
            })?;
        }
        if !accepted(code)? {
            break;
        }
        count += 1;
    }
    let messages = count.div_ceil(4);
    Ok((messages, count - messages))
}

fn death(job: &Job<'_>) -> Verdict {
    let (mut word, other) = ([0u8; 8], 1 - job.rank.min(1));
    job.receive(&mut word, 0)?;
    job.meet();
    if job.rank == victim(job) {
        return stop_until_killed(job.ctx);
    }
    let (messages, accesses) = fill_towards_victim(job)?;
    let count = messages + accesses;
    let mut told = Told::of(count + 1);
    let mut look = || -> Result<usize, String> {
        match job.tx.look()? {
            Some(End::Success(entry)) => told.note(entry.context())?,
            Some(End::Failure(error)) => {
                ensure_eq!(error.err, FI_ECONNRESET, "an operation");
                told.note(error.context())?;
            }
            None => {}
        }
        Ok(told.all())
    };
    // Sends to other peers find no room before the death.
    let mine = (u64::from(job.rank) + 7).to_le_bytes();
    let living = (job.ep, job.peer(other).address);
    post(|| send_as(None, living, &mine, count), || look().map(drop))?;
    until_ok("the end of all operations", || Ok(look()? > count))?;
    told.ensure(|_| 1)?;
    job.rx.next()?;
    let seen = u64_of(&current(&word));
    ensure_eq!(seen, u64::from(other) + 7, "the message of the living");
    for_all(0..300, |_| job.update(other, 0, SUM, 1))?;
    job.meet();
    job.memory.shows(0, 300, "additions of the living")?;
    job.tx.is_empty()
}

fn counted(job: &Job<'_>) -> Verdict {
    job.meet();
    if job.rank == victim(job) {
        return stop_until_killed(job.ctx);
    }
    let (messages, accesses) = fill_towards_victim(job)?;
    for (counter, expected) in job.station.counters.iter().zip([messages, accesses]) {
        let mut seen = (0, 0);
        let waited = until("all ends", || {
            seen = (value_of(*counter), errors_of(*counter));
            (seen.0 + seen.1) as usize >= expected
        });
        waited.map_err(|text| format!("{text}: {seen:?} of {expected}"))?;
        ensure_eq!((seen.0 + seen.1) as usize, expected, "what was counted");
    }
    // The lane of the dead takes some messages. The operations before them may have filled another queue.
    let failed = messages <= LANE || errors_of(job.station.counters[0]) > 0;
    equal!(failed, true, "whether a message to the dead has failed")
}

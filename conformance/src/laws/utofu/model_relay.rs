//! §2.2.8 session mode: rings, several starters of one queue, and the visibility of relayed data.

use super::kit::*;
use super::session::{Session, session};

laws! {
    round_and_round session(1024): "session.ring", "§2.2.8", 3, [put, poll_mrq] + ordering,
        "one put starts puts around three session mode VCQs, each in its turn, without a call of any process";
    crowd session(4096): "session.crowd", "§2.2.8.1", 4, [put, nop, poll_tcq] + ordering,
        "several processes raise steps while the owner posts: exactly as many start as were asked for, in order";
    last_byte session(65_536): "session.strong", "§2.2.8.1, §2.2.10, §6.1.3.1", 3, [put] + ordering,
        "a process that polls the last byte of a strongly ordered put that is relayed, or within a cache line, sees all of it";
    both_modes session(1024): "session.both-modes", "§2.2.7", 2, [create_vcq, put, poll_tcq],
        "VCQs of both modes live beside each other on a TNI: without the flag a VCQ starts at once, with it it waits";
}

fn round_and_round(job: &Job<'_>, session: &Session) -> Verdict {
    const ROUNDS: usize = 50;
    let next = job.right();
    job.memory.set(64, 1);
    // Word 0 of each rank goes to word 0 of the next one; a put without SPS ends the ring.
    for round in 0..ROUNDS {
        let last = job.rank == 2 && round + 1 == ROUNDS;
        let flags = if last { REMOTE } else { sps(1) };
        let (vcq, to) = (session.ids[next as usize], session.at(next, 0)?);
        session.relay(vcq, 0, to, 8, flags)?;
    }
    job.meet();
    if job.rank == 0 {
        job.memory.set(128, 0xabcd);
        session.begin(job, 0, (128, 0), 8, sps(1))?;
        until("the end of the rounds", || {
            let (code, _) = session.queue.poll_mrq();
            code == SUCCESS
        })?;
    } else {
        job.await_word(0, 0xabcd)?;
    }
    job.meet();
    ensure_eq!(job.memory.get(0), 0xabcd, "what has gone round");
    session.queue.has_nothing()
}

/// Ranks 1 to 3 start the commands of rank 0, which count up at rank 1.
fn crowd(job: &Job<'_>, session: &Session) -> Verdict {
    const EACH: u64 = 40;
    let steps = |rank: u32, nth: u64| {
        let mut random = job.ctx.random(u64::from(rank) << 16 | nth);
        random.below(6)
    };
    let total: u64 = (1..4)
        .flat_map(|rank| (0..EACH).map(move |nth| (rank, nth)))
        .map(|(rank, nth)| steps(rank, nth))
        .sum();
    job.meet();
    match job.rank {
        0 => {
            // Posts more commands than will start; starts arrive all the while.
            for nth in 0..total + 10 {
                let (hdl, cbdata) = (session.queue.hdl, nth as usize + 1);
                if nth % 3 == 2 {
                    ok!(utofu_nop(hdl, TCQ, cb(cbdata)));
                    continue;
                }
                let put = post::put(hdl, job.vcq(1), session.stadd, job.at(1, 512), 8);
                put.ok(nth % 256, TCQ | REMOTE, cbdata)?;
            }
            for nth in 0..total {
                ensure_eq!(session.queue.tcq()?, nth as usize + 1, "cbdata");
            }
        }
        rank => {
            let to = session.at(0, 8 * rank as usize)?;
            for nth in 0..EACH {
                let put = post::put(job.hdl, session.ids[0], job.stadd, to, 8);
                put.ok(0, sps(steps(rank, nth)), 0)?;
            }
            if rank == 1 {
                for nth in (0..total).filter(|nth| nth % 3 != 2) {
                    ensure_eq!(job.queue.notice(RMT_PUT)?.edata, nth % 256, "edata");
                }
            }
        }
    }
    job.meet();
    pause(2);
    session.queue.tcq_is_empty()?;
    job.queue.mrq_is_empty()
}

/// 0 begins, 1 relays to 2, which polls its memory.
fn last_byte(job: &Job<'_>, session: &Session) -> Verdict {
    // To whole lines with strong order; within one line also without.
    const SHAPES: [(usize, usize, u64); 6] = [
        (256, 4096, STRONG_ORDER),
        (261, 3001, STRONG_ORDER),
        (256, 256, 0),
        (512, 200, 0),
        (301, 20_000, STRONG_ORDER),
        (512, 131, 0),
    ];
    for round in 1..=36usize {
        let (to, length, flags) = SHAPES[round % SHAPES.len()];
        let value = round as u8;
        if job.rank == 1 {
            job.memory.fill_range(32_768, length, value);
            session.relay(job.vcq(2), 32_768, job.at(2, to), length, flags)?;
        }
        job.meet();
        if job.rank == 0 {
            session.begin(job, 1, (0, 8), 8, sps(1))?;
        }
        if job.rank == 2 {
            job.await_byte(to + length - 1, value)?;
            let what = format!("a relayed put of {length} with a seen last byte");
            job.memory.all(to, length, value, &what)?;
        }
        job.meet();
        if job.rank == 1 {
            session.queue.tcq_is_empty()?;
        }
    }
    Ok(())
}

fn both_modes(job: &Job<'_>, session: &Session) -> Verdict {
    for round in 1..=10u64 {
        job.memory.set(0, round);
        let (to, peer) = (job.at(job.right(), 512), job.right());
        session.relay(job.vcq(peer), 0, to, 8, TCQ)?;
        post::put(job.hdl, job.vcq(peer), job.stadd, to + 8, 8).ok(0, TCQ, 2)?;
        ensure_eq!(job.queue.tcq()?, 2, "the command that does not wait");
        job.await_word(520, round)?;
        session.queue.tcq_is_empty()?;
        ensure_eq!(job.memory.get(512), round - 1, "the one that waits");
        job.meet();
        session.begin(job, peer, (64, 72), 8, sps(1))?;
        session.queue.tcq()?;
        job.await_word(512, round)?;
        job.meet();
    }
    Ok(())
}

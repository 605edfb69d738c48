//! §2.2.12, §3.1.2.1 and chapter 7: communication when processes die or do not poll.

use super::functions::{Call, Function};
use super::kit::*;

laws! {
    peer_dies with(4096): "failure.peer", "§3.1.2.1", 3,
        [put, put_piggyback, put_piggyback8, get, armw4, armw8, cswap8, poll_mrq] + needs_kill,
        "a command to a killed process gives MRQ_PEER within two seconds, with the peer's VCQ id and EDATA; other peers are not affected";
    killed_in_session with(1024): "failure.session", "§2.2.8", 3, [put, post_toq, poll_mrq] + needs_kill,
        "a put to a session mode VCQ of a killed process, and what it would have forwarded, ends with MRQ_PEER";
    before_the_peer with(1024): "failure.no-peer", "§3.1.2.1", 2, [put, get, armw8, poll_mrq],
        "a put to a VCQ before its creation gives MRQ_PEER, and works afterwards";
}

pub(super) const PEER: i32 = UTOFU_ERR_MRQ_PEER;

fn peer_dies(job: &Job<'_>) -> Verdict {
    let victim = 2;
    if job.rank == victim {
        pause(150);
        job.ctx.dies();
    }
    let to = |rank: u32| Call {
        len: 256,
        edata: 0x5a,
        flags: LOCAL,
        cbdata: 1,
        ..Call::to(job, rank)
    };
    let (dead, lives) = (to(victim), to(job.rank ^ 1));
    let functions = [
        "utofu_put",
        "utofu_put_piggyback",
        "utofu_put_piggyback8",
        "utofu_get",
        "utofu_armw4",
        "utofu_armw8",
        "utofu_cswap8",
    ]
    .map(Function::named);
    let answer = |function: &Function, call: &Call| {
        let name = function.name;
        ensure_eq!(function.post(call), SUCCESS, "posting {name}");
        let (code, notice) = job.queue.next_mrq()?;
        let seen = (notice.notice_type, notice.vcq_id, notice.edata);
        let expected = (function.local_type(), call.to, 0x5a);
        ensure_eq!(seen, expected, "the notice of {name}");
        Ok::<_, String>(code)
    };
    // Until then puts succeed.
    'living: loop {
        for function in &functions {
            match answer(function, &dead)? {
                SUCCESS => {}
                PEER => break 'living,
                code => code_is(code, PEER, format!("{} to the dying", function.name))?,
            }
        }
        while job.queue.poll_tcq().0 == SUCCESS {}
    }
    for function in &functions {
        ensure_eq!(answer(function, &dead)?, PEER, "{}", function.name);
        let code = answer(function, &lives)?;
        ensure_eq!(code, SUCCESS, "{} to the living", function.name);
    }
    // Errors arrive without a request for a notice.
    job.put8(victim, 0, 1).ok(0x77, 0, 1)?;
    let (code, notice) = job.queue.next_mrq()?;
    ensure_eq!((code, notice.edata), (PEER, 0x77), "an unasked error");
    job.queue.mrq_is_empty()
}

/// Rank 1 relays from rank 0 to rank 2, then dies.
fn killed_in_session(job: &Job<'_>) -> Verdict {
    let session = Queue::create(TNI, SESSION_MODE)?;
    let inner = session.register_as(job.memory, STAG + 1)?;
    let relay = session.at_rank(1)?;
    if job.rank == 1 {
        for _ in 0..100 {
            post::put(session.hdl, job.vcq(2), inner, job.at(2, 0), 8).ok(9, REMOTE, 0)?;
        }
    }
    job.meet();
    let there = stadd_of(relay, STAG + 1)?;
    let word = |value: u64| {
        job.memory.set(512, value);
        // A poll of the TCQ frees its entries.
        while job.queue.poll_tcq().0 == SUCCESS {}
        let put = post::put(job.hdl, relay, job.stadd + 512, there, 8);
        ensure_eq!(put.code(1, LOCAL | sps(1), 0), SUCCESS, "posting");
        let (code, notice) = job.queue.next_mrq()?;
        ensure_eq!(notice.vcq_id, relay, "the peer of the notice");
        Ok::<_, String>(code)
    };
    if job.rank == 0 {
        ensure_eq!(word(1)?, SUCCESS, "the first put");
    }
    if job.rank == 2 {
        job.queue.notice(RMT_PUT)?;
        ensure_eq!(job.memory.get(0), 1, "what was forwarded");
    }
    job.meet();
    if job.rank == 1 {
        job.ctx.dies();
    }
    if job.rank == 0 {
        until_ok("a dead relay", || match word(2)? {
            PEER => Ok(true),
            code => code_is(code, SUCCESS, "a dead relay").map(|()| false),
        })?;
    }
    job.meet();
    session.close(inner)
}

fn before_the_peer(job: &Job<'_>) -> Verdict {
    let other = vcq_of(job.rank ^ 1, TNI, 5)?;
    let remote = stadd_of(other, 17)?;
    let expect = |expected: i32| -> Verdict {
        for nth in 0..3 {
            match nth {
                0 => post::put(job.hdl, other, job.stadd, remote, 8).ok(nth, LOCAL, 0)?,
                1 => post::get(job.hdl, other, job.stadd + 256, remote, 8).ok(nth, LOCAL, 0)?,
                _ => post::armw8(job.hdl, other, ADD, 0, remote).ok(nth, LOCAL, 0)?,
            }
            let (code, notice) = job.queue.next_mrq()?;
            code_is(code, expected, format!("operation {nth}"))?;
            ensure_eq!((notice.vcq_id, notice.edata), (other, nth), "the notice");
        }
        job.meet();
        Ok(())
    };
    for _ in 0..3 {
        expect(PEER)?;
        let late = Queue::with_component(TNI, 5, 0)?;
        job.meet();
        // The VCQ exists, its memory does not.
        expect(UTOFU_ERR_MRQ_RMT_STADD)?;
        late.register_as(Memory::new(256), 17)?;
        job.meet();
        expect(SUCCESS)?;
        late.free()?;
        job.meet();
    }
    Ok(())
}

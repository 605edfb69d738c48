//! §2.2.12, §3.1.2.1 and chapter 7: communication when processes die or do not poll.

use super::kit::*;

laws! {
    peer_dies: "failure.peer", "§3.1.2.1", 3,
        [put, put_piggyback, put_piggyback8, get, armw4, armw8, cswap8, poll_mrq] + needs_kill,
        "what is sent to a killed process gives MRQ_PEER within two seconds, with the peer's VCQ id and EDATA; other peers are not concerned";
    killed_in_session: "failure.session", "§2.2.8", 3, [put, post_toq, poll_mrq] + needs_kill,
        "a put to a session mode VCQ of a killed process, and what it would have forwarded, ends with MRQ_PEER";
    before_the_peer: "failure.no-peer", "§3.1.2.1", 2, [put, get, armw8, poll_mrq],
        "a put to a VCQ that nobody has created gives MRQ_PEER, and works as soon as it is there";
}

pub(super) const PEER: i32 = UTOFU_ERR_MRQ_PEER;

fn peer_dies(ctx: &Ctx) -> Verdict {
    let queue = Queue::with_component(TNI, 0, 0)?;
    let memory = Memory::new(4096);
    let stadd = queue.register_as(memory, STAG)?;
    let victim = 2;
    ctx.sync();
    if ctx.rank == victim {
        pause(150);
        ctx.dies();
    }
    let (dead, lives) = (vcq_of(victim, TNI, 0)?, vcq_of(ctx.rank ^ 1, TNI, 0)?);
    let remote = stadd_of(dead, STAG)?;
    let bytes = [7u8; 32];
    let hdl = queue.hdl;
    let call = |name: &str, to: u64| match name {
        "put" => post::put(hdl, to, stadd, remote + 512, 256).code(0x5a, LOCAL, 1),
        "put_piggyback" => {
            post::put_piggyback(hdl, to, post::bytes(&bytes), remote, 32).code(0x5a, LOCAL, 1)
        }
        "put_piggyback8" => post::put_piggyback8(hdl, to, 1, remote, 8).code(0x5a, LOCAL, 1),
        "get" => post::get(hdl, to, stadd + 1024, remote, 256).code(0x5a, LOCAL, 1),
        "armw4" => post::armw4(hdl, to, ADD, 1, remote).code(0x5a, LOCAL, 1),
        "armw8" => post::armw8(hdl, to, ADD, 1, remote).code(0x5a, LOCAL, 1),
        _ => post::cswap8(hdl, to, 1, 2, remote).code(0x5a, LOCAL, 1),
    };
    let calls = [
        ("put", LCL_PUT),
        ("put_piggyback", LCL_PUT),
        ("put_piggyback8", LCL_PUT),
        ("get", LCL_GET),
        ("armw4", LCL_ARMW),
        ("armw8", LCL_ARMW),
        ("cswap8", LCL_ARMW),
    ];
    // Until then puts succeed.
    'living: loop {
        for (name, kind) in calls {
            ensure_eq!(call(name, dead), SUCCESS, "posting {name}");
            let (code, notice) = queue.next_mrq()?;
            ensure_eq!(notice.notice_type, kind, "the notice type of {name}");
            match code {
                SUCCESS => {}
                PEER => break 'living,
                code => return Err(format!("{name} to the dying gave {}", code_name(code))),
            }
        }
        while queue.poll_tcq().0 == SUCCESS {}
    }
    for (name, kind) in calls {
        ensure_eq!(call(name, dead), SUCCESS, "posting {name} to the dead");
        let (code, notice) = queue.next_mrq()?;
        ensure_eq!(code, PEER, "{name} to the dead");
        ensure_eq!(
            (notice.notice_type, notice.vcq_id, notice.edata),
            (kind, dead, 0x5a),
            "the notice of {name} to the dead"
        );
        // The other peer lives.
        ensure_eq!(call(name, lives), SUCCESS, "posting {name} to the living");
        let (code, notice) = queue.next_mrq()?;
        ensure_eq!(code, SUCCESS, "{name} to the living");
        ensure_eq!(notice.vcq_id, lives, "the peer of {name}");
    }
    // Errors arrive without a request for a notice.
    post::put_piggyback8(queue.hdl, dead, 1, remote, 8).ok(0x77, 0, 1)?;
    let (code, notice) = queue.next_mrq()?;
    ensure_eq!((code, notice.edata), (PEER, 0x77), "an unasked error");
    queue.mrq_is_empty()?;
    ctx.sync();
    queue.deregister(stadd)?;
    queue.free()
}

fn killed_in_session(ctx: &Ctx) -> Verdict {
    let plain = Queue::with_component(TNI, 0, 0)?;
    let memory = Memory::new(1024);
    let stadd = plain.register_as(memory, STAG)?;
    ctx.sync();
    // Rank 1 relays from rank 0 to rank 2, then dies.
    let session = Queue::create(TNI, SESSION_MODE)?;
    let inner = session.register_as(memory, STAG + 1)?;
    let relay = session.at_rank(1)?;
    if ctx.rank == 1 {
        for _ in 0..100 {
            let end = vcq_of(2, TNI, 0)?;
            post::put(session.hdl, end, inner, stadd_of(end, STAG)?, 8).ok(9, REMOTE, 0)?;
        }
    }
    ctx.sync();
    let there = stadd_of(relay, STAG + 1)?;
    let word = |value: u64| {
        memory.set(512, value);
        // A poll of the TCQ frees its entries.
        while plain.poll_tcq().0 == SUCCESS {}
        post::put(plain.hdl, relay, stadd + 512, there, 8).code(1, LOCAL | sps(1), 0)
    };
    if ctx.rank == 0 {
        ensure_eq!(word(1), SUCCESS, "the first put");
        plain.notice(LCL_PUT)?;
    }
    if ctx.rank == 2 {
        plain.notice(RMT_PUT)?;
        ensure_eq!(memory.get(0), 1, "what was forwarded");
    }
    ctx.sync();
    if ctx.rank == 1 {
        ctx.dies();
    }
    if ctx.rank == 0 {
        let mut looks = Looks::new();
        loop {
            ensure_eq!(word(2), SUCCESS, "posting to a relay");
            let (code, notice) = plain.next_mrq()?;
            ensure_eq!(notice.vcq_id, relay, "the peer of the notice");
            match code {
                SUCCESS => looks.again(),
                PEER => break,
                code => return Err(format!("a dead relay gave {}", code_name(code))),
            }
        }
    }
    ctx.sync();
    Ok(())
}

fn before_the_peer(ctx: &Ctx) -> Verdict {
    let queue = Queue::with_component(TNI, 0, 0)?;
    let memory = Memory::new(1024);
    let stadd = queue.register_as(memory, STAG)?;
    ctx.sync();
    let peer = ctx.rank ^ 1;
    let other = vcq_of(peer, TNI, 5)?;
    let remote = stadd_of(other, 17)?;
    let expect = |expected: i32| -> Verdict {
        for nth in 0..3 {
            let code = match nth {
                0 => post::put(queue.hdl, other, stadd, remote, 8).code(nth, LOCAL, 0),
                1 => post::get(queue.hdl, other, stadd + 256, remote, 8).code(nth, LOCAL, 0),
                _ => post::armw8(queue.hdl, other, ADD, 0, remote).code(nth, LOCAL, 0),
            };
            ensure_eq!(code, SUCCESS, "posting to a VCQ that may not be there");
            let (code, notice): (i32, utofu_mrq_notice) = queue.next_mrq()?;
            code_is(code, expected, format!("operation {nth}"))?;
            ensure_eq!((notice.vcq_id, notice.edata), (other, nth), "the notice");
        }
        Ok(())
    };
    for _ in 0..3 {
        expect(PEER)?;
        ctx.sync();
        let late = Queue::with_component(TNI, 5, 0)?;
        ctx.sync();
        // The VCQ exists, its memory does not.
        expect(UTOFU_ERR_MRQ_RMT_STADD)?;
        ctx.sync();
        let place = Memory::new(256);
        late.register_as(place, 17)?;
        ctx.sync();
        expect(SUCCESS)?;
        ctx.sync();
        late.free()?;
        ctx.sync();
    }
    queue.deregister(stadd)?;
    queue.free()
}

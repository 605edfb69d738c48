//! §2.2.12, §3.1.2.1 and chapter 7: what becomes of communication when processes die or do not look.

use std::time::{Duration, Instant};

use unipgas::utofu::ffi::MrqNotice;
use unipgas::utofu::status::Code;

use super::circuit::{Circuit, NULL, Plan, TABLE, butterfly, ended, ring, tree};
use super::kit::*;
use crate::kit::child;
use crate::law::{Ctx, Verdict};
use crate::{ensure, ensure_eq};

laws! {
    peer_dies: "failure.peer", "§3.1.2.1", 3,
        [put, put_piggyback, put_piggyback8, get, armw4, armw8, cswap8, poll_mrq] + needs_kill,
        "what is sent to a killed process gives MRQ_PEER within two seconds, with the peer's VCQ id and EDATA; other peers are not concerned";
    barrier_ends: "failure.barrier", "§3.8.2", 4, [barrier, poll_barrier] + needs_kill,
        "polling a barrier ends with an error within two seconds when a participant is killed";
    barrier_ends_far_away: "failure.barrier.far", "§3.8.2", 4, [barrier, poll_barrier] + needs_kill,
        "polling ends with an error also where nobody who is connected with the killed one calls anything";
    reduction_ends: "failure.reduce", "§3.8.2", 4, [reduce_uint64, poll_reduce_uint64] + needs_kill,
        "a reduction that a killed participant has not started never succeeds";
    killed_in_rounds: "failure.any-moment", "§3.8.2", 4, [barrier, poll_barrier, set_vbg, alloc_vbg] + needs_kill + ordering,
        "a participant is killed at a moment of the seed's choice: no survivor hangs, and a circuit of the survivors works";
    other_circuits: "failure.other-circuits", "§2.3.3", 4, [barrier, poll_barrier] + needs_kill,
        "a circuit built after a death, without the dead process, waits for its participants as long as they take";
    killed_in_session: "failure.session", "§2.2.8", 3, [put, post_toq, poll_mrq] + needs_kill,
        "a put to a session mode VCQ of a killed process, and what it would have forwarded, ends with MRQ_PEER";
    before_the_peer: "failure.no-peer", "§3.1.2.1", 2, [put, get, armw8, poll_mrq],
        "a put to a VCQ that nobody has created gives MRQ_PEER, and works as soon as it is there";
    overflow: "failure.mrq-overflow", "chapter 7", 1, [poll_mrq, put] + bare,
        "more notices than MRQ entries end the program with the guide's message on standard error and a failing status";
    overflow_by_others: "failure.mrq-overflow.remote", "chapter 7", 2, [poll_mrq, put_piggyback8] + bare,
        "an MRQ that others overflow ends its owner's program, and not theirs, which get MRQ_PEER from then on";
    overflow_of_session: "failure.mrq-overflow.session", "chapter 7, §4.3.2.4", 1, [poll_mrq, create_vcq, put] + bare,
        "an overflow of a session mode VCQ, of as many entries as its variable says, is told with its own CQ";
}

const PEER: i32 = Code::MrqPeer as i32;

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
    type Call<'a> = Box<dyn Fn(u64) -> i32 + 'a>;
    let calls: Vec<(&str, u8, Call<'_>)> = vec![
        (
            "put",
            LCL_PUT,
            Box::new(|to| {
                c!(utofu_put(
                    queue.hdl,
                    to,
                    stadd,
                    remote + 512,
                    256,
                    0x5a,
                    LOCAL,
                    cb(1)
                ))
            }),
        ),
        (
            "put_piggyback",
            LCL_PUT,
            Box::new(|to| {
                c!(utofu_put_piggyback(
                    queue.hdl,
                    to,
                    bytes.as_ptr(),
                    remote,
                    32,
                    0x5a,
                    LOCAL,
                    cb(1)
                ))
            }),
        ),
        (
            "put_piggyback8",
            LCL_PUT,
            Box::new(|to| {
                c!(utofu_put_piggyback8(
                    queue.hdl,
                    to,
                    1,
                    remote,
                    8,
                    0x5a,
                    LOCAL,
                    cb(1)
                ))
            }),
        ),
        (
            "get",
            LCL_GET,
            Box::new(|to| {
                c!(utofu_get(
                    queue.hdl,
                    to,
                    stadd + 1024,
                    remote,
                    256,
                    0x5a,
                    LOCAL,
                    cb(1)
                ))
            }),
        ),
        (
            "armw4",
            LCL_ARMW,
            Box::new(|to| {
                c!(utofu_armw4(
                    queue.hdl,
                    to,
                    ADD,
                    1,
                    remote,
                    0x5a,
                    LOCAL,
                    cb(1)
                ))
            }),
        ),
        (
            "armw8",
            LCL_ARMW,
            Box::new(|to| {
                c!(utofu_armw8(
                    queue.hdl,
                    to,
                    ADD,
                    1,
                    remote,
                    0x5a,
                    LOCAL,
                    cb(1)
                ))
            }),
        ),
        (
            "cswap8",
            LCL_ARMW,
            Box::new(|to| {
                c!(utofu_cswap8(
                    queue.hdl,
                    to,
                    1,
                    2,
                    remote,
                    0x5a,
                    LOCAL,
                    cb(1)
                ))
            }),
        ),
    ];
    // Until then they succeed.
    'living: loop {
        for (name, kind, call) in &calls {
            ensure_eq!(call(dead), SUCCESS, "posting {name}");
            let (code, notice) = queue.next_mrq()?;
            ensure_eq!(
                notice.notice_type,
                *kind,
                "the type of the notice of {name}"
            );
            match code {
                SUCCESS => {}
                PEER => break 'living,
                code => {
                    return Err(format!(
                        "{name} to a dying process gave {}",
                        code_name(code)
                    ));
                }
            }
        }
        while queue.poll_tcq().0 == SUCCESS {}
    }
    for (name, kind, call) in &calls {
        ensure_eq!(call(dead), SUCCESS, "posting {name} to the dead");
        let (code, notice) = queue.next_mrq()?;
        ensure_eq!(code, PEER, "{name} to the dead");
        ensure_eq!(
            (notice.notice_type, notice.vcq_id, notice.edata),
            (*kind, dead, 0x5a),
            "the notice of {name} to the dead"
        );
        // The other one lives.
        ensure_eq!(call(lives), SUCCESS, "posting {name} to the living");
        let (code, notice) = queue.next_mrq()?;
        ensure_eq!(code, SUCCESS, "{name} to the living");
        ensure_eq!(notice.vcq_id, lives, "the peer of {name}");
    }
    // Errors are told without having been asked for.
    ok!(utofu_put_piggyback8(
        queue.hdl,
        dead,
        1,
        remote,
        8,
        0x77,
        0,
        cb(1)
    ));
    let (code, notice) = queue.next_mrq()?;
    ensure_eq!(
        (code, notice.edata),
        (PEER, 0x77),
        "an error that nobody asked for"
    );
    queue.mrq_is_empty()?;
    ctx.sync();
    queue.deregister(stadd)?;
    queue.free()
}

/// Rank 3 dies a moment later; the others go on with what they have built.
fn with_a_death(ctx: &Ctx, body: impl FnOnce(&Job<'_>, &Circuit, u64) -> Verdict) -> Verdict {
    let plan = if ctx.seed.is_multiple_of(2) {
        ring(4)
    } else {
        butterfly(4)
    };
    with_a_death_in(ctx, plan, body)
}

/// The same in a circuit of one's choice; there are 16 bytes behind [`TABLE`].
fn with_a_death_in(
    ctx: &Ctx,
    plan: Plan,
    body: impl FnOnce(&Job<'_>, &Circuit, u64) -> Verdict,
) -> Verdict {
    let queue = Queue::with_component(TNI, 0, 0)?;
    let memory = Memory::new((TABLE + 16).next_multiple_of(256));
    let stadd = queue.register_as(memory, STAG)?;
    ctx.sync();
    let job = Job {
        ctx,
        rank: ctx.rank,
        size: ctx.size,
        queue,
        hdl: queue.hdl,
        memory,
        stadd,
    };
    let circuit = Circuit::build(&job, plan, TNI)?;
    let end = circuit.ends()[0];
    body(&job, &circuit, end)?;
    ctx.sync();
    Ok(())
}

pub(super) fn is_barrier_error(code: i32) -> bool {
    (-320..=Code::BarrierOther as i32).contains(&code)
}

fn barrier_ends(ctx: &Ctx) -> Verdict {
    with_a_death(ctx, |job, circuit, end| {
        circuit.barrier()?;
        job.meet();
        if job.rank == 3 {
            pause(120);
            ctx.dies();
        }
        ok!(utofu_barrier(end, 0));
        let code = ended("the barrier", || c!(utofu_poll_barrier(end, 0)))?;
        ensure!(
            is_barrier_error(code),
            "a barrier without a participant who was killed gave {}",
            code_name(code)
        );
        // Whatever is started again: it does not succeed, and ends.
        let code = match c!(utofu_barrier(end, 0)) {
            SUCCESS => ended("the next barrier", || c!(utofu_poll_barrier(end, 0)))?,
            code => code,
        };
        ensure!(code != SUCCESS, "a barrier succeeded without a participant");
        Ok(())
    })
}

fn barrier_ends_far_away(ctx: &Ctx) -> Verdict {
    // Rank 3 hangs below rank 1, that below rank 0.
    with_a_death_in(ctx, tree(4), |job, circuit, end| {
        circuit.barrier()?;
        job.meet();
        if job.rank == 3 {
            ctx.dies();
        }
        ok!(utofu_barrier(end, 0));
        if job.rank != 0 {
            return job.await_word(TABLE + 8, 1);
        }
        let code = ended("the barrier", || c!(utofu_poll_barrier(end, 0)))?;
        ensure!(
            is_barrier_error(code),
            "a barrier without a participant who was killed gave {}",
            code_name(code)
        );
        job.write(1, TABLE + 8, 1)?;
        job.write(2, TABLE + 8, 1)
    })
}

fn reduction_ends(ctx: &Ctx) -> Verdict {
    with_a_death(ctx, |job, _, end| {
        if job.rank == 3 {
            ctx.dies();
        }
        let mut data = [5u64; 2];
        let code = match c!(utofu_reduce_uint64(end, 7, data.as_ptr(), 1, 0)) {
            SUCCESS => ended("the reduction", || {
                c!(utofu_poll_reduce_uint64(end, 0, data.as_mut_ptr()))
            })?,
            code => code,
        };
        ensure!(
            is_barrier_error(code),
            "a reduction without a participant who was killed gave {}",
            code_name(code)
        );
        ensure_eq!(data, [5; 2], "data of a reduction that failed");
        Ok(())
    })
}

/// A circuit of ranks 0 to 2, in which one starts late.
fn survivors_meet(job: &Job<'_>, late: u64) -> Verdict {
    let mut ids = [0u64; 3];
    ok!(utofu_alloc_vbg(5, 3, 0, ids.as_mut_ptr()));
    for (nth, id) in ids.iter().enumerate() {
        job.memory.set((job.rank as usize * 3 + nth) * 8, *id);
    }
    let row = job.rank as usize * 24;
    for other in (0..3).filter(|other| *other != job.rank) {
        ok!(utofu_put(
            job.hdl,
            job.vcq(other),
            job.stadd + row as u64,
            job.at(other, row),
            24,
            0,
            LOCAL,
            cb(0)
        ));
        job.queue.notice(LCL_PUT)?;
    }
    job.meet();
    let id = |who: u32, gate: usize| job.memory.get((who as usize * 3 + gate) * 8);
    let setting = |gate: usize, from: [u64; 2], to: [u64; 2]| unipgas::utofu::vbg::VbgSetting {
        vbg_id: ids[gate],
        src_lcl_vbg_id: from[0],
        src_rmt_vbg_id: from[1],
        dst_lcl_vbg_id: to[0],
        dst_rmt_vbg_id: to[1],
        dst_path_coords: [u8::MAX; 3],
    };
    // Rank 0 collects from 1, then from 2, and tells 1, then 2.
    let settings = match job.rank {
        0 => vec![
            setting(0, [ids[2], NULL], [ids[1], NULL]),
            setting(1, [ids[0], id(1, 0)], [ids[2], id(1, 0)]),
            setting(2, [ids[1], id(2, 0)], [ids[0], id(2, 0)]),
        ],
        me => vec![setting(
            0,
            [NULL, id(0, me as usize)],
            [NULL, id(0, me as usize)],
        )],
    };
    // Gate 1 sends before rank 2 has come: what rank 1 learns is that rank 0 and itself have come; that is all this circuit promises.
    ok!(utofu_set_vbg(settings.as_ptr(), settings.len()));
    job.meet();
    for _ in 0..2 {
        if job.rank == 2 {
            pause(late);
        }
        ok!(utofu_barrier(ids[0], 0));
        let code = ended("the survivors' barrier", || {
            c!(utofu_poll_barrier(ids[0], 0))
        })?;
        ensure!(
            code == SUCCESS,
            "the survivors' barrier gave {}",
            code_name(code)
        );
        job.meet();
    }
    ok!(utofu_free_vbg(ids.as_ptr(), 3));
    Ok(())
}

fn other_circuits(ctx: &Ctx) -> Verdict {
    with_a_death(ctx, |job, _, _| {
        if job.rank == 3 {
            ctx.dies();
        }
        pause(50);
        survivors_meet(job, 600)
    })
}

fn killed_in_rounds(ctx: &Ctx) -> Verdict {
    with_a_death(ctx, |job, circuit, end| {
        let mut random = ctx.random(3);
        let rounds = random.below(2000);
        // Where gates are not in shared memory, packets may still be in the process that sends them, whose death takes those of the last
        // round along. It had not ended that round had not all others those of the one before.
        let held = !ctx.backend.starts_with("shm");
        let certain = rounds.saturating_sub(held.into());
        let extra = random.below(300);
        for round in 0.. {
            if job.rank == 3 && round == rounds {
                // In the middle of a round, wherever the others are.
                if random.below(2) == 0 {
                    let _ = c!(utofu_barrier(end, 0));
                }
                let start = Instant::now();
                while start.elapsed() < Duration::from_micros(extra) {}
                ctx.dies();
            }
            let code = match c!(utofu_barrier(end, 0)) {
                SUCCESS => ended("the barrier", || c!(utofu_poll_barrier(end, 0)))?,
                code => code,
            };
            if code != SUCCESS {
                ensure!(is_barrier_error(code), "a barrier gave {}", code_name(code));
                ensure!(
                    round >= certain,
                    "round {round} of {rounds} gave {}",
                    code_name(code)
                );
                break;
            }
            ensure!(round <= rounds + 2, "barriers go on without rank 3");
        }
        ensure_eq!(circuit.ends().len(), 1, "VBGs to start with");
        job.meet();
        survivors_meet(job, 1)
    })
}

fn killed_in_session(ctx: &Ctx) -> Verdict {
    let plain = Queue::with_component(TNI, 0, 0)?;
    let memory = Memory::new(1024);
    let stadd = plain.register_as(memory, STAG)?;
    ctx.sync();
    // Rank 1 relays from rank 0 to rank 2 and is killed.
    let session = Queue::create(TNI, SESSION_MODE)?;
    let inner = session.register_as(memory, STAG + 1)?;
    let relay = session.at_rank(1)?;
    if ctx.rank == 1 {
        for _ in 0..100 {
            ok!(utofu_put(
                session.hdl,
                vcq_of(2, TNI, 0)?,
                inner,
                stadd_of(vcq_of(2, TNI, 0)?, STAG)?,
                8,
                9,
                REMOTE,
                cb(0)
            ));
        }
    }
    ctx.sync();
    let there = stadd_of(relay, STAG + 1)?;
    let word = |value: u64| {
        memory.set(512, value);
        // Places in the TCQ are given back by looking at it.
        while plain.poll_tcq().0 == SUCCESS {}
        c!(utofu_put(
            plain.hdl,
            relay,
            stadd + 512,
            there,
            8,
            1,
            LOCAL | sps(1),
            cb(0)
        ))
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
                0 => c!(utofu_put(
                    queue.hdl,
                    other,
                    stadd,
                    remote,
                    8,
                    nth,
                    LOCAL,
                    cb(0)
                )),
                1 => c!(utofu_get(
                    queue.hdl,
                    other,
                    stadd + 256,
                    remote,
                    8,
                    nth,
                    LOCAL,
                    cb(0)
                )),
                _ => c!(utofu_armw8(
                    queue.hdl,
                    other,
                    ADD,
                    0,
                    remote,
                    nth,
                    LOCAL,
                    cb(0)
                )),
            };
            ensure_eq!(code, SUCCESS, "posting to a VCQ that may not be there");
            let (code, notice): (i32, MrqNotice) = queue.next_mrq()?;
            ensure!(
                code == expected,
                "operation {nth} gave {} instead of {}",
                code_name(code),
                code_name(expected)
            );
            ensure_eq!((notice.vcq_id, notice.edata), (other, nth), "the notice");
        }
        Ok(())
    };
    for _ in 0..3 {
        expect(PEER)?;
        ctx.sync();
        let late = Queue::with_component(TNI, 5, 0)?;
        ctx.sync();
        // The VCQ is there, its memory is not.
        expect(Code::MrqRmtStadd as i32)?;
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

/// Whether what was written to standard error is the message of chapter 7 for TNI 0, CQ 0, and the status one of failure.
fn is_overflow(ended: &(i32, String)) -> Verdict {
    let (status, text) = ended;
    ensure_eq!(
        text.as_str(),
        "utofu: asynchronous error: MRQ Overflow on TNI 0 CQ 0\n",
        "standard error of the program"
    );
    ensure!(
        libc::WIFEXITED(*status) && libc::WEXITSTATUS(*status) != 0,
        "the program's status is {status:#x}"
    );
    Ok(())
}

fn overflow(_ctx: &Ctx) -> Verdict {
    // Exactly as many as there are entries are kept.
    for (posted, overflows) in [(2048, false), (2100, true), (6000, true)] {
        for (flags, what) in [(LOCAL, "local"), (REMOTE, "remote")] {
            let ended = child(&[("UTOFU_NUM_MRQ_ENTRIES", "2Ki")], || {
                let queue = Queue::with_component(TNI, 0, 0)?;
                let stadd = queue.register_as(Memory::new(256), STAG)?;
                let mut sent = 0;
                for nth in 0..posted {
                    queue.post_seen(
                        |_| sent += 1,
                        || {
                            c!(utofu_put_piggyback8(
                                queue.hdl,
                                queue.id,
                                nth,
                                stadd,
                                8,
                                0,
                                flags | TCQ,
                                cb(0)
                            ))
                        },
                    )?;
                }
                // All have been sent before the first notice is taken out.
                while sent < posted {
                    queue.tcq()?;
                    sent += 1;
                }
                for _ in 0..posted {
                    queue.mrq()?;
                }
                queue.mrq_is_empty()
            })?;
            if overflows {
                is_overflow(&ended).map_err(|e| format!("{posted} {what} notices: {e}"))?;
            } else {
                ensure_eq!(ended, (0, String::new()), "{posted} {what} notices");
            }
        }
    }
    Ok(())
}

fn overflow_of_session(_: &Ctx) -> Verdict {
    for (posted, overflows) in [(2048, false), (4000, true)] {
        let environment = [
            ("UTOFU_NUM_MRQ_ENTRIES", "32Ki"),
            ("UTOFU_NUM_MRQ_ENTRIES_SESSION", "2Ki"),
        ];
        let (status, text) = child(&environment, || {
            let plain = Queue::with_component(TNI, 0, 0)?;
            let memory = Memory::new(256);
            let here = plain.register_as(memory, STAG)?;
            let session = Queue::create(TNI, SESSION_MODE)?;
            let there = session.register_as(memory, STAG)?;
            let mut sent = 0;
            for _ in 0..posted {
                plain.post_seen(
                    |_| sent += 1,
                    || {
                        c!(utofu_put(
                            plain.hdl,
                            session.id,
                            here,
                            there,
                            8,
                            0,
                            TCQ | REMOTE,
                            cb(0)
                        ))
                    },
                )?;
            }
            while sent < posted {
                plain.tcq()?;
                sent += 1;
            }
            for _ in 0..posted {
                session.notice(RMT_PUT)?;
            }
            session.mrq_is_empty()
        })?;
        if !overflows {
            ensure_eq!((status, text), (0, String::new()), "{posted} notices");
            continue;
        }
        // CQ 0 is the free mode one; which one is for session mode nobody says.
        let cq = text
            .strip_prefix("utofu: asynchronous error: MRQ Overflow on TNI 0 CQ ")
            .and_then(|rest| rest.trim_end().parse::<u16>().ok());
        ensure!(
            cq.is_some_and(|cq| (1..9).contains(&cq)) && text.lines().count() == 1,
            "standard error of the program: {text:?}"
        );
        ensure!(
            libc::WIFEXITED(status) && libc::WEXITSTATUS(status) != 0,
            "the program's status is {status:#x}"
        );
    }
    Ok(())
}

fn overflow_by_others(ctx: &Ctx) -> Verdict {
    if ctx.rank == 0 {
        let ended = child(&[("UTOFU_NUM_MRQ_ENTRIES", "2048")], || {
            let queue = Queue::with_component(TNI, 0, 0)?;
            let memory = Memory::new(256);
            queue.register_as(memory, STAG)?;
            until("the last of the peer's puts", || memory.get(8) == 1)?;
            for _ in 0..6000 {
                queue.mrq()?;
            }
            Ok(())
        })?;
        is_overflow(&ended)?;
    } else {
        let queue = Queue::with_component(TNI, 0, 0)?;
        let to = vcq_of(0, TNI, 0)?;
        let remote = stadd_of(to, STAG)?;
        let send = |offset: u64, flags: u64| -> Result<i32, String> {
            let posted = c!(utofu_put_piggyback8(
                queue.hdl,
                to,
                1,
                remote + offset,
                8,
                0,
                flags | LOCAL,
                cb(0)
            ));
            ensure_eq!(posted, SUCCESS, "posting");
            Ok(queue.next_mrq()?.0)
        };
        // Until the peer is there.
        let mut looks = Looks::new();
        while send(0, 0)? != SUCCESS {
            looks.pause(Duration::from_millis(1));
        }
        for _ in 0..3000 {
            ensure_eq!(
                send(0, REMOTE)?,
                SUCCESS,
                "a put to a peer who does not look"
            );
            while queue.poll_tcq().0 == SUCCESS {}
        }
        ensure_eq!(send(8, 0)?, SUCCESS, "the last put");
        // Its owner ends.
        let mut looks = Looks::new();
        while send(0, 0)? == SUCCESS {
            while queue.poll_tcq().0 == SUCCESS {}
            looks.pause(Duration::from_millis(1));
        }
        ensure_eq!(send(0, 0)?, PEER, "a put to the program that has ended");
    }
    ctx.sync();
    Ok(())
}

//! Several threads in a UE. The original has none; here any thread may make any call. The threads of a UE share its state in the
//! manual: one queue of sends, one last message, registers, locks and communicators.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use super::in_progress::{CALLS, WAITS, prepare};
use super::kit::*;

laws! {
    messages: "threads.messages", "iRCCE 2.0 §9.4", 3, [iRCCE_ssend, iRCCE_srecv, RCCE_send, RCCE_recv] + ordering,
        "two threads of each UE exchange messages, each with another UE, at once";
    requests: "threads.requests", "iRCCE 2.0 §9.2, §9.3", 3,
        [iRCCE_isend, iRCCE_irecv, iRCCE_isend_wait, iRCCE_irecv_wait, iRCCE_isend_test, iRCCE_irecv_test] + ordering,
        "threads begin requests at once, and each waits for, or tests, its own";
    polls: "threads.polls", "RCCE RCCE_recv_test, iRCCE 2.0 §9.4", 2, [RCCE_recv_test, iRCCE_srecv_test, RCCE_send] + ordering,
        "threads that poll for messages of one UE get each of them once, and no poll waits";
    wildcards: "threads.wildcards", "iRCCE 2.0 §6.2", 3, [iRCCE_irecv, iRCCE_irecv_wait, iRCCE_ssend] + ordering,
        "threads that receive from any source at once get every message once";
    copies: "threads.copies", "iRCCE 2.0 §9.5", 2, [iRCCE_put, iRCCE_get, iRCCE_flag_write, iRCCE_wait_until] + ordering,
        "threads put, get and write flags at once, each in its part of the MPB";
    allocations: "threads.allocations", "iRCCE 2.0 §9.5, §9.9", 1, [iRCCE_malloc, iRCCE_flag_alloc, iRCCE_atomic_alloc],
        "simultaneous allocations of threads do not overlap";
    barriers: "threads.barriers", "iRCCE 2.0 §9.11", 3, [RCCE_barrier, iRCCE_barrier, iRCCE_ssend, iRCCE_srecv] + ordering,
        "one thread is in barriers while another sends; two that come to the same barrier are in it one after the other";
    collectives: "threads.collectives", "iRCCE 2.0 §9.11", 4, [RCCE_comm_split, RCCE_bcast, iRCCE_bcast, RCCE_barrier] + ordering,
        "threads run collectives with other UEs at the same time, each in a separate communicator";
    registers: "threads.registers", "iRCCE 2.0 §9.10", 2, [iRCCE_atomic_inc, iRCCE_atomic_read] + ordering,
        "increments of threads are lost by none";
    locks: "threads.locks", "RCCE RCCE_acquire_lock", 2, [RCCE_acquire_lock, RCCE_release_lock] + ordering,
        "one thread of all UEs has a lock at a time";
    wakes: "threads.wakes", "RCCE RCCE_recv, iRCCE 2.0 §9.3, §9.7", 2,
        [RCCE_recv, RCCE_send, iRCCE_irecv_wait, iRCCE_isend_wait, iRCCE_wait_any, iRCCE_probe, RCCE_wait_until, RCCE_flag_write, RCCE_acquire_lock],
        "a thread that waits is woken by what another thread of its UE sends to the UE itself, receives, writes or releases";
    cancelled: "threads.cancel", "iRCCE 2.0 §9.6", 2, [iRCCE_isend_cancel, iRCCE_irecv_cancel, iRCCE_isend_wait, iRCCE_irecv_wait, iRCCE_wait_all, iRCCE_wait_any],
        "a thread that waits for a request goes on when another thread cancels it";
    ended: "threads.finalize", "RCCE RCCE_finalize", 2,
        [RCCE_finalize, RCCE_recv, RCCE_send, iRCCE_srecv, iRCCE_ssend, iRCCE_mrecv, iRCCE_probe, iRCCE_isend_wait, iRCCE_irecv_wait, iRCCE_wait_all,
         iRCCE_wait_any, RCCE_barrier, iRCCE_barrier, RCCE_bcast, iRCCE_bcast, RCCE_reduce, RCCE_allreduce, RCCE_comm_split, RCCE_wait_until,
         iRCCE_wait_until, iRCCE_wait_tagged, RCCE_acquire_lock] + bare,
        "RCCE_finalize ends the calls in which other threads wait, with a code; the process goes on";
    busy: "threads.finalize-busy", "RCCE RCCE_finalize", 2,
        [RCCE_finalize, RCCE_put, RCCE_get, RCCE_flag_write, RCCE_flag_read, RCCE_test_flag, RCCE_recv_test, iRCCE_iprobe, iRCCE_isend_push,
         RCCE_flag_alloc, RCCE_acquire_lock] + bare,
        "RCCE_finalize while other threads call without a pause: each call ends, and later ones give a code";
}

/// Runs the body in `count` threads, which get their numbers.
fn threads(count: u64, body: impl Fn(u64) -> Verdict + Sync) -> Verdict {
    crate::kit::threads(count as usize, |nth| body(nth as u64))
}

fn wakes(ctx: &Ctx) -> Verdict {
    let (me, flag) = (ctx.rank as i32, new_flag()? as usize);
    for round in 0..30i32 {
        let kind = round % 6;
        if kind == 5 {
            ok!(RCCE_acquire_lock(me));
        }
        threads(2, |nth| {
            let (bytes, send, receive) = (Bytes::filled(3000, nth as u8), Send::new(), Recv::new());
            let place = bytes.ptr();
            pause(nth * (round / 6) as u64);
            match (kind, nth) {
                (0, 0) => ok!(RCCE_recv(place, 3000, me)),
                (1, 0) => {
                    c!(iRCCE_irecv(place, 3000, me, receive.0));
                    receive.wait()?;
                }
                (2, 0) => {
                    let mut list = std::mem::MaybeUninit::uninit();
                    c!(iRCCE_irecv(place, 3000, me, receive.0));
                    c!(iRCCE_init_wait_list(list.as_mut_ptr()));
                    c!(iRCCE_add_recv_to_wait_list(list.as_mut_ptr(), receive.0));
                    ok!(iRCCE_wait_any(list.as_mut_ptr(), null_mut(), null_mut()));
                }
                (3, 0) => {
                    ok!(iRCCE_probe(me, null_mut()));
                    ok!(RCCE_recv(place, 3000, me));
                }
                (4, 0) => ok!(RCCE_wait_until(flag as _, round)),
                (5, 0) => ok!(RCCE_acquire_lock(me)),
                (4, _) => ok!(RCCE_flag_write(&mut (flag as _), round, me)),
                (5, _) => ok!(RCCE_release_lock(me)),
                (1, _) => {
                    c!(iRCCE_isend(place, 3000, me, send.0));
                    send.wait()?;
                }
                _ => ok!(RCCE_send(place, 3000, me)),
            }
            Ok(())
        })?;
        if kind == 5 {
            ok!(RCCE_release_lock(me));
        }
    }
    barrier()
}

fn cancelled(ctx: &Ctx) -> Verdict {
    for round in 0..10 {
        let (kind, of_sends) = (round % 5, [0, 4].contains(&(round % 5)));
        if ctx.rank == 1 {
            // Both requests of UE 0 are open until here. A request that has started is not cancelled.
            ctx.sync();
            let cancelled = ctx.told(0) == Some(vec![1]);
            for _ in 0..2 - u32::from(cancelled) {
                match of_sends {
                    true => drop(receive(3000, 0)?),
                    false => send(&Bytes::filled(3000, 1), 0)?,
                }
            }
            continue;
        }
        let begun = [0, 1].map(|_| {
            let place = Bytes::filled(3000, 1).ptr();
            let (send, receive) = (Send::new().0, Recv::new().0);
            match of_sends {
                true => c!(iRCCE_isend(place, 3000, 1, send)),
                false => c!(iRCCE_irecv(place, 3000, 1, receive)),
            };
            (send as usize, receive as usize)
        });
        // The code and, of iRCCE_wait_any, the request.
        let wait = |nth: usize| {
            let (send, receive) = (begun[nth].0 as *mut _, begun[nth].1 as *mut _);
            let mut list = std::mem::MaybeUninit::uninit();
            let list: *mut iRCCE_WAIT_LIST = list.as_mut_ptr();
            c!(iRCCE_init_wait_list(list));
            match of_sends {
                true => c!(iRCCE_add_send_to_wait_list(list, send)),
                false => c!(iRCCE_add_recv_to_wait_list(list, receive)),
            };
            match kind {
                0 => (c!(iRCCE_isend_wait(send)), 0),
                1 => (c!(iRCCE_irecv_wait(receive)), 0),
                2 => (c!(iRCCE_wait_all(list)), 0),
                _ => {
                    // Its other request does not end before.
                    let (send, receive) = (begun[0].0 as *mut _, begun[0].1 as *mut _);
                    match of_sends {
                        true => c!(iRCCE_add_send_to_wait_list(list, send)),
                        false => c!(iRCCE_add_recv_to_wait_list(list, receive)),
                    };
                    let (mut sent, mut received) = (null_mut(), null_mut());
                    let code = c!(iRCCE_wait_any(list, &mut sent, &mut received));
                    (code, sent as usize | received as usize)
                }
            }
        };
        threads(2, |nth| {
            if nth == 0 {
                let (_, found) = wait(1);
                let known = [0, begun[1].0, begun[1].1];
                ensure!(known.contains(&found), "iRCCE_wait_any gave the other one");
                return Ok(());
            }
            pause(ctx.random(round).below(10));
            let mut flag = 0;
            let code = match of_sends {
                true => c!(iRCCE_isend_cancel(begun[1].0 as *mut _, &mut flag)),
                false => c!(iRCCE_irecv_cancel(begun[1].1 as *mut _, &mut flag)),
            };
            ensure!(flag == 0 || code == SUCCESS, "cancelling gave {code}");
            ctx.tell(&[flag as u8]);
            ctx.sync();
            Ok(())
        })?;
        ensure_eq!(wait(0).0, SUCCESS, "the other request");
    }
    barrier()
}

fn ended(ctx: &Ctx) -> Verdict {
    for (nth, (name, call)) in WAITS.into_iter().enumerate() {
        begin()?;
        prepare(ctx)?;
        if ctx.rank == 0 {
            let code = std::thread::scope(|scope| {
                let waits = scope.spawn(call);
                pause(ctx.random(nth as u64).below(20));
                ok!(RCCE_finalize());
                waits.join().map_err(|_| format!("{name}: a panic"))
            })?;
            // The other UE's RCCE_finalize is a barrier, too.
            let met = code == SUCCESS && name == "RCCE_barrier";
            ensure!(code != SUCCESS || met, "{name} gave {}", code_name(code));
        } else {
            // It keeps the lock that UE 0 waits for.
            ok!(RCCE_finalize());
        }
    }
    Ok(())
}

fn busy(ctx: &Ctx) -> Verdict {
    for round in 0..if ctx.is_quick() { 12 } else { 4 } {
        begin()?;
        prepare(ctx)?;
        if ctx.rank != 0 {
            ok!(RCCE_finalize());
            continue;
        }
        let ended = AtomicBool::new(false);
        threads(CALLS.len() as u64 + 1, |nth| {
            let Some((name, call)) = CALLS.get(nth as usize) else {
                pause(ctx.random(round).below(10));
                let code = c!(RCCE_finalize());
                ended.store(true, Ordering::Release);
                ensure_eq!(code, SUCCESS, "RCCE_finalize");
                return Ok(());
            };
            loop {
                let is_over = ended.load(Ordering::Acquire);
                let code = call();
                if is_over {
                    ensure!(code != SUCCESS, "{name} after RCCE_finalize");
                    return Ok(());
                }
            }
        })?;
    }
    Ok(())
}

const SIZES: [usize; 5] = [1, 40, 5000, 9000, 80_000];

fn messages(ctx: &Ctx) -> Verdict {
    let (me, n) = place(ctx);
    threads(2, |nth| {
        let other = (me + 1 + nth as i32) % n;
        for round in 0..40u64 {
            let len = SIZES[(round % 5) as usize];
            let of = |from: i32, to: i32| {
                let salt = round << 16 | (from as u64) << 8 | to as u64;
                content(ctx, salt, len)
            };
            let bytes = Bytes::of(&of(me, other));
            for turn in 0..2 {
                if (turn == 0) == (me < other) {
                    match round % 2 {
                        0 => send(&bytes, other)?,
                        _ => ok!(RCCE_send(bytes.ptr(), len, other)),
                    }
                    continue;
                }
                let room = Bytes::filled(len, 0);
                match round % 3 {
                    0 => ok!(RCCE_recv(room.ptr(), len, other)),
                    _ => ok!(iRCCE_srecv(room.ptr(), len as isize, other)),
                }
                let what = format!("message {round} of UE {other}");
                room.ends_as(&of(other, me), 0, &what)?;
            }
            bytes.free();
        }
        Ok(())
    })
}

fn polls(ctx: &Ctx) -> Verdict {
    const ROUNDS: i32 = 300;
    // One message at a time: a poll that waited for the next message would block its send.
    if ctx.rank == 1 {
        for round in 0..ROUNDS {
            let (bytes, room) = (Bytes::of(&round.to_ne_bytes()), Bytes::filled(4, 0));
            ok!(RCCE_send(bytes.ptr(), bytes.len, 0));
            ok!(RCCE_recv(room.ptr(), room.len, 0));
        }
        return Ok(());
    }
    let come = AtomicI32::new(0);
    let both = std::sync::Barrier::new(2);
    threads(2, |nth| {
        for round in 0..ROUNDS {
            let room = Bytes::filled(4, 0xff);
            until("a message that is polled for", || {
                let (place, length, mut found) = (room.ptr(), room.len as isize, 0);
                match nth {
                    0 => c!(RCCE_recv_test(place, room.len, 1, &mut found)),
                    _ => c!(iRCCE_srecv_test(place, length, 1, &mut found)),
                };
                if found != 0 {
                    come.fetch_add(1, Ordering::AcqRel);
                }
                Ok(come.load(Ordering::Acquire) > round)
            })?;
            both.wait();
            ensure_eq!(come.load(Ordering::Acquire), round + 1, "messages");
            if nth == 0 {
                let answer = Bytes::filled(4, 0);
                ok!(RCCE_send(answer.ptr(), answer.len, 1));
            }
            both.wait();
        }
        Ok(())
    })
}

fn requests(ctx: &Ctx) -> Verdict {
    let (me, n) = place(ctx);
    threads(2, |nth| {
        let other = (me + 1 + nth as i32) % n;
        for round in 0..15u64 {
            let of = |from: i32, to: i32, nth: u64| {
                let salt = round << 20 | nth << 16 | (from as u64) << 8 | to as u64;
                content(ctx, salt, SIZES[((round + nth) % 5) as usize])
            };
            let mut open = Vec::new();
            for nth in 0..4 {
                let bytes = Bytes::of(&of(me, other, nth));
                let room = Bytes::filled(of(other, me, nth).len(), 0);
                let into = irecv(&room, other)?.0;
                let out = isend(&bytes, other)?.0;
                open.push((out, bytes, into, room));
            }
            for (nth, (out, bytes, into, room)) in open.into_iter().enumerate() {
                if (round + nth as u64).is_multiple_of(3) {
                    until("a receive that is tested", || {
                        c!(iRCCE_isend_push());
                        Ok(into.test() == (SUCCESS, 1))
                    })?;
                }
                into.wait()?;
                let what = format!("message {nth} of UE {other} in round {round}");
                room.holds(&of(other, me, nth as u64), 0, &what)?;
                out.wait()?;
                ensure_eq!(out.test(), (SUCCESS, 1), "a send that has ended");
                bytes.free();
                room.free();
            }
        }
        Ok(())
    })
}

fn wildcards(ctx: &Ctx) -> Verdict {
    const EACH: i32 = 60;
    if ctx.rank != 0 {
        return threads(2, |nth| {
            for number in 0..EACH {
                let text = [ctx.rank as i32 * 2 + nth as i32, number].map(i32::to_le_bytes);
                send_text(&text.concat(), 0)?;
            }
            Ok(())
        });
    }
    let seen: Vec<_> = (0..EACH as usize * 6).map(|_| AtomicI32::new(0)).collect();
    threads(2, |nth| {
        for number in 0..EACH * 2 {
            let (room, request) = (Bytes::filled(8, 0), Recv::new());
            if (number + nth as i32) % 2 == 0 {
                c!(iRCCE_irecv(room.ptr(), 8, ANY_SOURCE, request.0));
                request.wait()?;
                ensure!((1..3).contains(&request.source()), "the source");
            } else {
                ok!(iRCCE_srecv(room.ptr(), ANY_LENGTH, ANY_SOURCE));
            }
            let word = |at: usize| {
                let bytes = room.get();
                i32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
            };
            let (from, number) = (word(0), word(4));
            let known = (2..6).contains(&from) && (0..EACH).contains(&number);
            ensure!(known, "a message {number} of thread {from}");
            seen[(from * EACH + number) as usize].fetch_add(1, Ordering::Relaxed);
            room.free();
        }
        Ok(())
    })?;
    for (nth, times) in seen.iter().enumerate().skip(EACH as usize * 2) {
        let times = times.load(Ordering::Relaxed);
        let (number, from) = (nth as i32 % EACH, nth as i32 / EACH);
        ensure!(times == 1, "{number} of thread {from} came {times} times");
    }
    Ok(())
}

fn copies(ctx: &Ctx) -> Verdict {
    let (me, other) = (ctx.rank as i32, 1 - ctx.rank as i32);
    let areas = [c!(iRCCE_malloc(1024)), c!(iRCCE_malloc(1024))].map(|area| area as usize);
    let there = [new_flag()?, new_flag()?].map(|flag| flag as usize);
    let read = [new_flag()?, new_flag()?].map(|flag| flag as usize);
    barrier()?;
    threads(2, |nth| {
        let area = areas[nth as usize] as *mut u8;
        let [there, read] = [there, read].map(|flags| flags[nth as usize] as *mut i32);
        for round in 1..60 {
            let of = |from: i32| content(ctx, (round as u64) << 8 | nth << 4 | from as u64, 1000);
            let bytes = Bytes::of(&of(me));
            ok!(iRCCE_put(area, bytes.raw(), 1000, other));
            ok!(iRCCE_flag_write(&mut { there }, round, other));
            ok!(iRCCE_wait_until(there, round));
            let back = Bytes::filled(1000, 0);
            ok!(iRCCE_get(back.raw(), area, 1000, me));
            back.holds(&of(other), 0, &format!("round {round} of thread {nth}"))?;
            // The thread of the other side continues after this one has read.
            ok!(iRCCE_flag_write(&mut { read }, round, other));
            ok!(iRCCE_wait_until(read, round));
            bytes.free();
            back.free();
        }
        Ok(())
    })?;
    barrier()
}

fn allocations(_: &Ctx) -> Verdict {
    let taken = parking_lot::Mutex::new(Vec::new());
    threads(4, |nth| {
        for round in 0..15 {
            let (place, len) = if (nth + round) % 2 == 0 {
                (c!(iRCCE_malloc(64)) as usize, 64)
            } else {
                let flag = got!(iRCCE_flag_alloc());
                (flag as usize, LINE)
            };
            ensure!(place != 0, "nothing was given");
            let register = new_register()?;
            taken.lock().extend([(place, len), (register, 1)]);
        }
        Ok(())
    })?;
    let mut taken = taken.into_inner();
    taken.sort_unstable();
    for pair in taken.windows(2) {
        ensure!(pair[0].0 + pair[0].1 <= pair[1].0, "allocations overlap");
    }
    Ok(())
}

fn barriers(ctx: &Ctx) -> Verdict {
    let (me, n) = place(ctx);
    let (right, left) = ((me + 1) % n, (me + n - 1) % n);
    let flags = [new_flag()? as usize, new_flag()? as usize];
    barrier()?;
    let rounds = |nth: u64, improved: bool| {
        let flag = flags[nth as usize] as *mut i32;
        for round in 1..if ctx.is_quick() { 60 } else { 20 } {
            ok!(RCCE_flag_write(&mut { flag }, round, me));
            meet(improved, null_mut())?;
            for_all(0..n, |id| in_round(flag, id, round))?;
        }
        Ok(())
    };
    threads(3, |nth| match nth {
        0 => rounds(0, false),
        1 => rounds(1, true),
        _ => {
            for round in 0..60u64 {
                let of = |from: i32| content(ctx, round << 4 | from as u64, 3000);
                let (bytes, request) = (Bytes::of(&of(me)), Send::new());
                c!(iRCCE_isend(bytes.ptr(), 3000, right, request.0));
                ensure!(receive(3000, left)? == of(left), "{round} of UE {left}");
                request.wait()?;
                bytes.free();
            }
            Ok(())
        }
    })?;
    // The same number at each UE, so that all end.
    let meets = |round| meet(round % 2 != 0, null_mut());
    threads(2, |_| for_all(0..60, meets))?;
    barrier()
}

fn collectives(ctx: &Ctx) -> Verdict {
    let comms = [split(parity)?, split(halves)?];
    threads(2, |nth| {
        let mut comm = comms[nth as usize];
        for round in 0..if ctx.is_quick() { 40u64 } else { 10 } {
            let (root, len) = ((round % 2) as i32, SIZES[(round % 5) as usize]);
            let first = comm.member[0] as u64;
            let expected = content(ctx, round << 8 | nth << 4 | first, len);
            let bytes = Bytes::of_root(comm.my_rank == root, &expected);
            bcast(round % 3 == 0, &bytes, root, comm)?;
            let what = format!("broadcast {round} of communicator {nth}");
            bytes.holds(&expected, 0, &what)?;
            ok!(RCCE_barrier(&mut comm));
            bytes.free();
        }
        Ok(())
    })?;
    barrier()
}

fn registers(ctx: &Ctx) -> Verdict {
    let each = if ctx.is_quick() { 400 } else { 80 };
    let register = new_register()?;
    barrier()?;
    threads(3, |_| {
        let mut last = -1;
        for _ in 0..each {
            let before = got!(iRCCE_atomic_inc(register as *const _));
            ensure!(before > last, "{before} after {last}");
            last = before;
        }
        Ok(())
    })?;
    barrier()?;
    let value = register_value(register)?;
    ensure_eq!(value, each * 3 * ctx.size as i32, "the register");
    barrier()
}

fn locks(ctx: &Ctx) -> Verdict {
    let each = if ctx.is_quick() { 40 } else { 10 };
    let flag = new_flag()? as usize;
    barrier()?;
    threads(2, |_| {
        for _ in 0..each {
            ok!(RCCE_acquire_lock(1));
            let value = flag_at(flag as *mut _, 0)?;
            ok!(RCCE_flag_write(&mut (flag as *mut _), value + 1, 0));
            ok!(RCCE_release_lock(1));
        }
        Ok(())
    })?;
    barrier()?;
    let value = flag_at(flag as *mut _, 0)?;
    ensure_eq!(value, each * 2 * ctx.size as i32, "counted under the lock");
    barrier()
}

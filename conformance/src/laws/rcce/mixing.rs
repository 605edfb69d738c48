//! Blocking calls and collectives while requests are pending, in cases that could deadlock in the original; §7.
//!
//! In each law UE 0 has begun sends, and only the first can proceed. Then UE 0 waits for an event that comes only after all of them
//! have been received.

use super::gory::Way;
use super::kit::*;

laws! {
    before_barrier: "mixing.barrier", "iRCCE 2.0 §7", 2, [iRCCE_isend, RCCE_barrier, iRCCE_barrier] + ordering,
        "two sends, then a barrier: the other receives both before it comes to the barrier";
    before_flag: "mixing.flag", "iRCCE 2.0 §7", 2, [iRCCE_isend, RCCE_wait_until] + ordering,
        "two sends, then a wait for a flag that is written when both have been received";
    before_tag: "mixing.tagged-flag", "iRCCE 2.0 §7", 2, [iRCCE_isend, iRCCE_wait_tagged] + ordering,
        "the same with a tagged flag";
    before_receive: "mixing.receive", "iRCCE 2.0 §7", 2, [iRCCE_isend, RCCE_recv, iRCCE_srecv] + ordering,
        "two sends, then a blocking receive of what is sent when both have been received";
    before_send: "mixing.send", "iRCCE 2.0 §7", 3, [iRCCE_isend, RCCE_send, iRCCE_ssend] + ordering,
        "two sends, then a blocking send to a UE that receives only when both have been received";
    before_probe: "mixing.probe", "iRCCE 2.0 §7", 2, [iRCCE_isend, iRCCE_probe] + ordering,
        "two sends, then a probe for a message that comes when both have been received";
    before_bcast: "mixing.bcast", "iRCCE 2.0 §7", 2, [iRCCE_isend, RCCE_bcast, iRCCE_bcast, iRCCE_mrecv] + ordering,
        "two sends, then a broadcast from a root that receives both first";
    before_bcast_root: "mixing.bcast-root", "iRCCE 2.0 §7", 2, [iRCCE_isend, RCCE_bcast, iRCCE_bcast] + ordering,
        "two sends, then a broadcast to a UE that receives both first, with any length";
    before_reduce: "mixing.reduce", "iRCCE 2.0 §7", 3, [iRCCE_isend, RCCE_reduce, RCCE_allreduce] + ordering,
        "two sends, then a reduction that the others begin when both have been received";
    before_split: "mixing.comm-split", "iRCCE 2.0 §7", 3, [iRCCE_isend, RCCE_comm_split] + ordering,
        "two sends, then a communicator that the others make when both have been received";
    before_lock: "mixing.lock", "iRCCE 2.0 §7", 2, [iRCCE_isend, RCCE_acquire_lock] + ordering,
        "two sends, then a lock that its holder gives back when both have been received";
    before_gory: "mixing.gory", "iRCCE 2.0 §7", 2, [iRCCE_isend, RCCE_send_gory, RCCE_recv_gory] + ordering,
        "two sends, then a gory message that begins when both have been received";
    before_finalize: "mixing.finalize", "iRCCE 2.0 §7", 2, [iRCCE_isend, RCCE_finalize] + bare,
        "two sends, then RCCE_finalize: the other receives both before its own";
    before_test_flag: "mixing.flag-loop", "iRCCE 2.0 §7", 2, [iRCCE_isend, iRCCE_test_tagged, iRCCE_isend_push] + ordering,
        "two sends, then a loop of pushes and looks at a flag";
    blocking_meets_request: "mixing.blocking-meets-request", "iRCCE 2.0 §7", 2,
        [RCCE_send, RCCE_recv, iRCCE_isend, iRCCE_irecv, iRCCE_ssend, iRCCE_srecv],
        "RCCE_send meets iRCCE_irecv, and iRCCE_isend RCCE_recv; the pipelined calls meet requests, too";
    collectives_apart: "mixing.collectives-apart", "iRCCE 2.0 §7", 3, [RCCE_bcast, RCCE_reduce, iRCCE_irecv, iRCCE_mrecv],
        "pending receives, from any source and of any length, take nothing of collectives";
    allocation: "mixing.allocation", "iRCCE 2.0 §7", 2, [iRCCE_isend, iRCCE_irecv, iRCCE_malloc, RCCE_flag_alloc],
        "flags and buffers that are allocated while messages are pending do them no harm";
}

const SIZES: [usize; 4] = [16, 5000, 9000, 100_000];

fn isend(ctx: &Ctx, nth: u64, len: usize, dest: i32) -> Send {
    let (request, bytes) = (Send::new(), Bytes::of(&content(ctx, nth, len)));
    c!(iRCCE_isend(bytes.ptr(), len as isize, dest, request.0));
    request
}

/// UE 0 begins sends to all others, then calls `waits`. Each of the others receives its messages and calls `then`. UE 0's wait may end
/// only after all others have received, unless the law states otherwise.
fn each_size(
    ctx: &Ctx,
    waits: impl Fn(usize) -> Verdict,
    then: impl Fn(usize) -> Verdict,
) -> Verdict {
    let n = ctx.size as i32;
    for len in SIZES {
        if ctx.rank == 0 {
            let mut requests = Vec::new();
            for nth in 0..3 {
                for dest in 1..n {
                    requests.push(isend(ctx, nth, len, dest));
                }
            }
            waits(len)?;
            for_all(requests, |request| request.wait())?;
        } else {
            // UE 0 is in its wait now, which does not name these requests.
            pause(3);
            for nth in 0..3 {
                let seen = receive(len, 0)?;
                ensure!(seen == content(ctx, nth, len), "message {nth} of {len}");
            }
            then(len)?;
        }
    }
    Ok(())
}

fn before_barrier(ctx: &Ctx) -> Verdict {
    each_size(ctx, |_| barrier(), |_| barrier())?;
    let improved = |_: usize| meet(true, &mut world());
    each_size(ctx, improved, improved)
}

fn before_flag(ctx: &Ctx) -> Verdict {
    let flag = new_flag()?;
    each_size(
        ctx,
        |_| {
            ok!(RCCE_wait_until(flag, 1));
            done!(RCCE_flag_write(&mut { flag }, 0, 0))
        },
        |_| done!(RCCE_flag_write(&mut { flag }, 1, 0)),
    )
}

fn before_tag(ctx: &Ctx) -> Verdict {
    let flag = new_flag()?;
    each_size(
        ctx,
        |_| {
            let room = Bytes::filled(28, 0);
            ok!(iRCCE_wait_tagged(flag, 1, tag(&room), 28));
            room.holds(&[6; 28], 0, "the tag")?;
            done!(RCCE_flag_write(&mut { flag }, 0, 0))
        },
        |_| write_tagged(flag, 1, 0, &Bytes::filled(28, 6), 28),
    )
}

fn before_receive(ctx: &Ctx) -> Verdict {
    for len in [50, 70_000] {
        each_size(
            ctx,
            |_| {
                let room = Bytes::filled(len, 0);
                ok!(RCCE_recv(room.ptr(), len, 1));
                room.holds(&vec![1; len], 0, "the message")?;
                ok!(iRCCE_srecv(room.ptr(), ANY_LENGTH, ANY_SOURCE));
                room.holds(&vec![2; len], 0, "the message")
            },
            |_| {
                ok!(RCCE_send(Bytes::filled(len, 1).ptr(), len, 0));
                send(&Bytes::filled(len, 2), 0)
            },
        )?;
    }
    Ok(())
}

fn before_send(ctx: &Ctx) -> Verdict {
    // UE 2 receives the blocking sends after UE 1 has received all its messages.
    each_size(
        ctx,
        |len| {
            ok!(RCCE_send(Bytes::filled(len, 3).ptr(), len, 2));
            send(&Bytes::filled(len, 4), 2)
        },
        |len| {
            if ctx.rank == 1 {
                return send(&Bytes::filled(1, 0), 2);
            }
            receive(1, 1)?;
            ensure_eq!(receive(len, 0)?[0], 3, "of RCCE_send");
            equal!(receive(len, 0)?[0], 4, "of iRCCE_ssend")
        },
    )
}

fn before_probe(ctx: &Ctx) -> Verdict {
    each_size(
        ctx,
        |_| {
            ensure_eq!(got!(iRCCE_probe(ANY_SOURCE)), 1, "the sender");
            receive(8, 1).map(drop)
        },
        |_| send(&Bytes::filled(8, 1), 0),
    )
}

fn before_bcast(ctx: &Ctx) -> Verdict {
    let call = |len: usize| {
        for_all([false, true], |improved| {
            let text = vec![9 - u8::from(improved); len];
            let bytes = Bytes::of_root(ctx.rank == 1, &text);
            bcast(improved, &bytes, 1, world())?;
            bytes.holds(&text, 0, &format!("iRCCE_bcast: {improved}"))
        })
    };
    each_size(ctx, call, call)
}

fn before_bcast_root(ctx: &Ctx) -> Verdict {
    for len in [20, 8193, 1 << 20] {
        let call = |_: usize| {
            let text = vec![9; len];
            let bytes = Bytes::of_root(ctx.rank == 0, &text);
            for improved in [false, true] {
                bcast(improved, &bytes, 0, world())?;
                bytes.holds(&text, 0, &format!("iRCCE_bcast: {improved}"))?;
            }
            bytes.free();
            Ok(())
        };
        each_size(ctx, call, call)?;
    }
    Ok(())
}

fn before_reduce(ctx: &Ctx) -> Verdict {
    let call = |_: usize| {
        for root in 0..3 {
            let data = Bytes::of(&(ctx.rank as i32 + 1).to_le_bytes());
            let result = Bytes::filled(4, 0);
            reduce(&data, &result, 1, (INT, SUM), root, world())?;
            if ctx.rank as i32 == root {
                result.holds(&6i32.to_le_bytes(), 0, "the sum")?;
            }
        }
        let data = Bytes::of(&(ctx.rank as i32 + 1).to_le_bytes());
        let result = Bytes::filled(4, 0);
        allreduce(&data, &result, 1, (INT, SUM), world())?;
        result.holds(&6i32.to_le_bytes(), 0, "the sum everywhere")
    };
    each_size(ctx, call, call)
}

fn before_split(ctx: &Ctx) -> Verdict {
    let call = |_: usize| {
        let mut comm = split(parity)?;
        done!(RCCE_comm_free(&mut comm))
    };
    each_size(ctx, call, call)
}

fn before_lock(ctx: &Ctx) -> Verdict {
    for len in SIZES {
        if ctx.rank == 0 {
            ctx.sync();
            let requests: Vec<_> = (0..3).map(|nth| isend(ctx, nth, len, 1)).collect();
            ok!(RCCE_acquire_lock(0));
            ok!(RCCE_release_lock(0));
            for_all(requests, |request| request.wait())?;
        } else {
            ok!(RCCE_acquire_lock(0));
            ctx.sync();
            pause(3);
            for nth in 0..3 {
                ensure!(receive(len, 0)? == content(ctx, nth, len), "message {nth}");
            }
            ok!(RCCE_release_lock(0));
        }
        barrier()?;
    }
    Ok(())
}

fn before_gory(ctx: &Ctx) -> Verdict {
    let way = Way::new(256)?;
    barrier()?;
    each_size(
        ctx,
        |_| {
            let bytes = Bytes::filled(1000, 1);
            way.send(&bytes, 1)?;
            way.receive(&bytes, 1000, 1)?;
            bytes.holds(&[2; 1000], 0, "the message back")
        },
        |_| {
            let bytes = Bytes::filled(1000, 0);
            way.receive(&bytes, 1000, 0)?;
            bytes.holds(&[1; 1000], 0, "the message")?;
            bytes.fill(2);
            way.send(&bytes, 0)
        },
    )
}

fn before_finalize(ctx: &Ctx) -> Verdict {
    ok!(RCCE_init(null_mut(), null_mut()));
    if ctx.rank == 0 {
        for len in SIZES {
            isend(ctx, len as u64, len, 1);
        }
    } else {
        pause(20);
        for (nth, len) in SIZES.into_iter().enumerate() {
            ensure!(receive(len, 0)? == content(ctx, len as u64, len), "{nth}");
        }
    }
    done!(RCCE_finalize())
}

fn before_test_flag(ctx: &Ctx) -> Verdict {
    let flag = new_flag()?;
    each_size(
        ctx,
        |_| {
            until("the flag", || {
                c!(iRCCE_isend_push());
                Ok(test_tag(flag, 1, null_mut())? == 1)
            })?;
            done!(iRCCE_flag_write(&mut { flag }, 0, 0))
        },
        |_| done!(iRCCE_flag_write(&mut { flag }, 1, 0)),
    )
}

fn blocking_meets_request(ctx: &Ctx) -> Verdict {
    for len in LENGTHS.into_iter().filter(|len| *len > 0) {
        let (expected, length) = (content(ctx, len as u64, len), len as isize);
        let (bytes, room) = (Bytes::of(&expected), Bytes::filled(len, 0));
        let (out, into) = (Send::new(), Recv::new());
        for turn in 0..4 {
            room.fill(0);
            if ctx.rank == 0 {
                match turn {
                    0 => ok!(RCCE_send(bytes.ptr(), len, 1)),
                    1 => ok!(iRCCE_ssend(bytes.ptr(), length, 1)),
                    _ => {
                        c!(iRCCE_isend(bytes.ptr(), length, 1, out.0));
                        out.wait()?;
                    }
                }
                continue;
            }
            match turn {
                2 => ok!(RCCE_recv(room.ptr(), len, 0)),
                3 => ok!(iRCCE_srecv(room.ptr(), length, 0)),
                _ => {
                    c!(iRCCE_irecv(room.ptr(), length, 0, into.0));
                    into.wait()?;
                }
            }
            room.holds(&expected, 0, &format!("{len} bytes in turn {turn}"))?;
        }
        bytes.free();
        room.free();
    }
    Ok(())
}

fn collectives_apart(ctx: &Ctx) -> Verdict {
    let (me, n) = place(ctx);
    let room = Bytes::filled(100_000, 0x15);
    let request = Recv::new();
    let code = c!(iRCCE_irecv(room.ptr(), ANY_LENGTH, ANY_SOURCE, request.0));
    ensure_eq!(code, RESERVED, "a receive from anyone");
    for root in 0..n {
        let bytes = Bytes::filled(9000, if me == root { 5 } else { 0 });
        ok!(RCCE_bcast(bytes.ptr(), 9000, root, world()));
        bytes.holds(&[5; 9000], 0, "the broadcast")?;
        let (data, result) = (Bytes::of(&me.to_le_bytes()), Bytes::filled(4, 0));
        reduce(&data, &result, 1, (INT, SUM), root, world())?;
        let bytes = Bytes::filled(700, if me == root { 6 } else { 0 });
        match me == root {
            true => ok!(iRCCE_msend(bytes.ptr(), 700)),
            false => ok!(iRCCE_mrecv(bytes.ptr(), 700, root)),
        }
        bytes.holds(&[6; 700], 0, "the multicast")?;
        barrier()?;
    }
    ensure_eq!(request.test(), (RESERVED, 0), "the receive from anyone");
    room.holds(&[], 0x15, "its buffer")?;
    barrier()?;
    send_and_wait(ctx, &request)?;
    room.holds(&[me as u8 + 1; 33], 0x15, "the message that was for it")
}

/// Sends to the left UE, and waits for the message from the right UE by `request`.
fn send_and_wait(ctx: &Ctx, request: &Recv) -> Verdict {
    let (me, n) = place(ctx);
    let left = (me + n - 1) % n;
    let bytes = Bytes::filled(33, left as u8 + 1);
    let out = Send::new();
    c!(iRCCE_isend(bytes.ptr(), 33, left, out.0));
    request.wait()?;
    ensure_eq!(request.source(), (me + 1) % n, "the sender");
    out.wait()
}

fn allocation(ctx: &Ctx) -> Verdict {
    let other = 1 - ctx.rank as i32;
    for len in SIZES {
        let room = Bytes::filled(len, 0);
        let into = irecv(&room, other)?.0;
        let out = isend(ctx, u64::from(ctx.rank), len, other);
        new_flag()?;
        let area = c!(iRCCE_malloc(1024));
        ensure!(!area.is_null(), "no room");
        let bytes = Bytes::filled(1024, 0x88);
        ok!(iRCCE_put(area, bytes.raw(), 1024, other));
        wait_both(&out, &into)?;
        room.holds(&content(ctx, other as u64, len), 0, "the message")?;
        barrier()?;
        let back = Bytes::filled(1024, 0);
        ok!(iRCCE_get(back.raw(), area, 1024, ctx.rank as i32));
        back.holds(&[0x88; 1024], 0, "what was put")?;
        barrier()?;
    }
    Ok(())
}

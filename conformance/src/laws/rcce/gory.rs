//! RCCE's send and receive for GORY programs: through a window in the MPB and flags of the program.

use super::kit::*;

laws! {
    lengths: "gory.lengths", "RCCE GORY RCCE_send", 2, [RCCE_send_gory, RCCE_recv_gory],
        "messages of every length arrive through windows of every size, and nothing is written behind them";
    test: "gory.test", "RCCE GORY RCCE_recv_test", 2, [RCCE_recv_test_gory, RCCE_send_gory],
        "RCCE_recv_test says 0 as long as there is no message, then receives all of it and says 1";
    synchronous: "gory.synchronous", "RCCE GORY RCCE_send", 2, [RCCE_send_gory, RCCE_recv_gory, RCCE_wtime],
        "RCCE_send ends after the message has been received";
    both_ways: "gory.both-ways", "RCCE GORY RCCE_send", 3, [RCCE_send_gory, RCCE_recv_gory] + ordering,
        "rings of messages with a pair of flags for each sender do not meet";
    bad: "gory.bad-input", "RCCE GORY RCCE_send", 2, [RCCE_send_gory, RCCE_recv_gory, RCCE_recv_test_gory],
        "wrong UEs, windows, flags and buffers give their codes, and nothing is sent";
}

pub(super) struct Way {
    window: *mut u8,
    chunk: usize,
    ready: *mut i32,
    sent: *mut i32,
}

impl Way {
    pub(super) fn new(chunk: usize) -> Result<Way, String> {
        let window = c!(RCCE_malloc_gory(chunk.next_multiple_of(LINE)));
        ensure!(!window.is_null(), "no room for a window");
        let (ready, sent) = (new_flag()?, new_flag()?);
        Ok(Way {
            window,
            chunk,
            ready,
            sent,
        })
    }

    /// The arguments that the transfers have in common. The calls need pointers to flags that they do not change.
    fn parts(&self) -> (*mut u8, usize, [*mut i32; 2]) {
        (self.window, self.chunk, [self.ready, self.sent])
    }

    pub(super) fn send(&self, bytes: &Bytes, dest: i32) -> Verdict {
        let (window, chunk, [mut ready, mut sent]) = self.parts();
        let (place, len, ready, sent) = (bytes.ptr(), bytes.len, &mut ready, &mut sent);
        done!(RCCE_send_gory(place, window, chunk, ready, sent, len, dest))
    }

    pub(super) fn receive(&self, bytes: &Bytes, len: usize, source: i32) -> Verdict {
        let (window, chunk, [mut ready, mut sent]) = self.parts();
        let (place, ready, sent) = (bytes.ptr(), &mut ready, &mut sent);
        done!(RCCE_recv_gory(
            place, window, chunk, ready, sent, len, source
        ))
    }

    fn test(&self, bytes: &Bytes, len: usize, source: i32) -> Result<i32, String> {
        let (window, chunk, [mut ready, mut sent]) = self.parts();
        let (place, ready, sent) = (bytes.ptr(), &mut ready, &mut sent);
        Ok(got!(RCCE_recv_test_gory(
            place, window, chunk, ready, sent, len, source
        )))
    }

    fn free(self) -> Verdict {
        c!(RCCE_free(self.window));
        ok!(RCCE_flag_free(&mut { self.ready }));
        done!(RCCE_flag_free(&mut { self.sent }))
    }
}

fn lengths(ctx: &Ctx) -> Verdict {
    for chunk in [32, 33, 1000, 4096] {
        let way = Way::new(chunk)?;
        barrier()?;
        for len in LENGTHS.into_iter().filter(|len| len / chunk <= 300) {
            let expected = content(ctx, len as u64, len);
            if ctx.rank == 0 {
                let bytes = Bytes::of(&expected);
                way.send(&bytes, 1)?;
                bytes.free();
            } else {
                let room = Bytes::filled(len + 64, 0x5a);
                way.receive(&room, len, 0)?;
                room.ends_as(&expected, 0x5a, &format!("{len} bytes by {chunk}"))?;
            }
        }
        barrier()?;
        way.free()?;
    }
    Ok(())
}

fn test(ctx: &Ctx) -> Verdict {
    let way = Way::new(512)?;
    let expected = content(ctx, 1, 2000);
    let room = Bytes::filled(2048, 0x5b);
    if ctx.rank == 1 {
        for _ in 0..20 {
            ensure_eq!(way.test(&room, 2000, 0)?, 0, "a test before the send");
        }
        room.holds(&[], 0x5b, "the buffer of a test that says 0")?;
    }
    barrier()?;
    if ctx.rank == 0 {
        way.send(&Bytes::of(&expected), 1)?;
    } else {
        until("a message", || Ok(way.test(&room, 2000, 0)? == 1))?;
        room.holds(&expected, 0x5b, "the message")?;
        ensure_eq!(way.test(&room, 2000, 0)?, 0, "a test after the message");
    }
    barrier()
}

fn synchronous(ctx: &Ctx) -> Verdict {
    let way = Way::new(256)?;
    barrier()?;
    if ctx.rank == 0 {
        way.send(&Bytes::filled(100, 1), 1)?;
        let over = c!(RCCE_wtime());
        let begun = f64::from_le_bytes(receive(8, 1)?.try_into().expect("8 bytes"));
        ensure!(over >= begun, "the send ended {} s early", begun - over);
    } else {
        pause(60);
        let begun = c!(RCCE_wtime());
        way.receive(&Bytes::filled(100, 0), 100, 0)?;
        send(&Bytes::of(&begun.to_le_bytes()), 0)?;
    }
    Ok(())
}

fn both_ways(ctx: &Ctx) -> Verdict {
    let (me, n) = place(ctx);
    let ways = (0..n).map(|_| Way::new(512));
    let ways: Vec<Way> = ways.collect::<Result<_, _>>()?;
    barrier()?;
    let (right, left) = ((me + 1) % n, (me + n - 1) % n);
    let mut random = ctx.random(5);
    for round in 0..25u64 {
        let len = 1 + random.below(1500) as usize;
        let of = |id: i32| content(ctx, round << 8 | id as u64, len);
        let send = || ways[me as usize].send(&Bytes::of(&of(me)), right);
        let receive = || {
            let room = Bytes::filled(len, 0);
            ways[left as usize].receive(&room, len, left)?;
            room.holds(&of(left), 0, &format!("round {round}"))
        };
        // UE 0 receives first, because the calls block.
        if me == 0 {
            receive()?;
            send()?;
        } else {
            send()?;
            receive()?;
        }
    }
    barrier()
}

fn bad(ctx: &Ctx) -> Verdict {
    let way = Way::new(64)?;
    let (bytes, mut test) = (Bytes::filled(64, 3), -7);
    let other = 1 - ctx.rank as i32;
    let (mut ready, mut sent) = (way.ready, way.sent);
    let mut nowhere = 5i32;
    let mut stray = &raw mut nowhere;
    let mut none = null_mut();
    let (data, window, chunk) = (bytes.ptr(), way.window, way.chunk);
    for wrong in [-1, 2, 48, i32::MIN] {
        let id = RCCE_ERROR_ID;
        gives! { id:
            RCCE_send_gory(data, window, chunk, &mut ready, &mut sent, 64, wrong);
            RCCE_recv_gory(data, window, chunk, &mut ready, &mut sent, 64, wrong);
            RCCE_recv_test_gory(data, window, chunk, &mut ready, &mut sent, 64, wrong, &mut test);
        }
    }
    for wrong in [null_mut(), bytes.raw()] {
        let target = RCCE_ERROR_TARGET;
        gives! { target:
            RCCE_send_gory(data, wrong, chunk, &mut ready, &mut sent, 64, other);
            RCCE_recv_gory(data, wrong, chunk, &mut ready, &mut sent, 64, other);
        }
    }
    let undefined = RCCE_ERROR_FLAG_UNDEFINED;
    gives! { undefined:
        RCCE_send_gory(data, window, chunk, null_mut(), &mut sent, 64, other);
        RCCE_send_gory(data, window, chunk, &mut ready, null_mut(), 64, other);
        RCCE_send_gory(data, window, chunk, &mut none, &mut sent, 64, other);
        RCCE_recv_gory(data, window, chunk, &mut ready, &mut none, 64, other);
    }
    let elsewhere = RCCE_ERROR_FLAG_NOT_IN_COMM_BUFFER;
    gives! { elsewhere:
        RCCE_send_gory(data, window, chunk, &mut stray, &mut sent, 64, other);
        RCCE_recv_gory(data, window, chunk, &mut ready, &mut stray, 64, other);
    }
    gives! { ERROR:
        RCCE_send_gory(null_mut(), window, chunk, &mut ready, &mut sent, 64, other);
        RCCE_recv_gory(null_mut(), window, chunk, &mut ready, &mut sent, 64, other);
    }
    gives! {
        RCCE_send_gory(data, window, 0, &mut ready, &mut sent, 64, other) => RCCE_ERROR_MESSAGE_LENGTH;
        RCCE_recv_test_gory(data, window, chunk, &mut ready, &mut sent, 64, other, null_mut()) => RCCE_ERROR_VAL_UNDEFINED;
    }
    barrier()?;
    ensure_eq!(way.test(&bytes, 64, other)?, 0, "something was sent");
    barrier()
}

//! §9: passive communication.

use std::sync::atomic::Ordering;

use super::kit::*;
use crate::kit::bytes_of;

laws! {
    arrives: "passive.send", "§9.2.1, §9.2.2", 3, [gaspi_passive_send, gaspi_passive_receive],
        "the bytes arrive at the place of the receive, and nothing else changes; the receive returns the sender's rank";
    sizes: "passive.sizes", "§9.2.1, §12.4.1", 2, [gaspi_passive_send, gaspi_passive_receive, gaspi_passive_transfer_size_max],
        "1 byte, gaspi_passive_transfer_size_max bytes and what is between them arrive whole, one after the other";
    too_long configured(|config| config.passive_transfer_size_max = 1000): "passive.size-max", "§12.4.1", 2, [gaspi_passive_send, gaspi_passive_receive, gaspi_passive_transfer_size_max] + bare,
        "more than the configured maximum, or nothing, is refused on both sides";
    from_anyone with_segment(64): "passive.anyone", "§9.1", 6, [gaspi_passive_send, gaspi_passive_receive] + ordering,
        "many processes send to one, which receives from each of them everything, once, in its order";
    waits_for_the_receive with_segment(64): "passive.synchronous", "§9.2.2", 2, [gaspi_passive_send, gaspi_passive_receive],
        "without a matching receive a send does not return GASPI_SUCCESS, and with one it does";
    goes_on with_segment(64): "passive.send.timeout", "§9.2.1, §3.9", 3, [gaspi_passive_send, gaspi_passive_receive],
        "sends and receives with GASPI_TEST and short timeouts, repeated, bring each message once";
    while_it_computes: "passive.sender-computes", "§9.2.2, §3.9", 2, [gaspi_passive_send, gaspi_passive_receive],
        "a timed-out send of any length is received while the sender makes no call";
    nobody_sends: "passive.receive.timeout", "§9.2.2", 2, [gaspi_passive_receive, gaspi_passive_send],
        "a receive that nothing has been sent for ends with GASPI_TIMEOUT, writes nothing, and takes nothing from the next one";
    elsewhere: "passive.receive.elsewhere", "§9.2.2", 2, [gaspi_passive_receive, gaspi_passive_send],
        "after a timeout a receive into another place gets the message, whatever its length; the places before stay as they were";
    own_rank with_segment(1 << 16): "passive.self", "§9.2.1", 2, [gaspi_passive_send, gaspi_passive_receive],
        "a process sends to itself, while another one of its threads receives";
    of_threads: "passive.threads", "§9.2.1, §9.2.2", 2, [gaspi_passive_send, gaspi_passive_receive] + ordering,
        "threads send and receive at the same time: each message is received by one of them";
    fair: "passive.fair", "§9.1, §9.2.2", 3, [gaspi_passive_send, gaspi_passive_receive],
        "messages of a process that sends little are received while the threads of another one send all the time";
    full configured(|config| config.passive_queue_size_max = 4): "passive.queue-full", "§9.2.1", 2, [gaspi_passive_send, gaspi_passive_receive] + bare,
        "beyond passive_queue_size_max requests that have not ended another one is refused with GASPI_ERROR, until one has";
    purged configured(|config| config.passive_queue_size_max = 4): "passive.purge", "§9.3.1", 2, [gaspi_passive_queue_purge, gaspi_passive_send, gaspi_passive_receive] + bare,
        "a purge ends the requests that have run into their timeouts: the queue has room for as many, and what is sent then arrives";
    too_little_room: "passive.room", "§9.2.2", 2, [gaspi_passive_receive, gaspi_passive_send],
        "a message longer than the receive's size writes the bytes that fit, and nothing behind them; the receive returns an error";
    of_a_deleted_segment with_segment(64): "passive.segment-delete", "§7.3, §9.2.1", 2, [gaspi_passive_send, gaspi_segment_delete, gaspi_passive_receive],
        "a segment with timed-out requests may be deleted; sends from others go on";
    bad_input with_segment(64): "passive.bad-input", "§9.2", 2, [gaspi_passive_send, gaspi_passive_receive],
        "segments, ranges, ranks and pointers that are not there are refused, and nothing is sent";
    with_others: "passive.beside", "§9.1", 4, [gaspi_passive_send, gaspi_passive_receive, gaspi_write_notify, gaspi_barrier],
        "requests are received in a thread while the process writes, is notified and meets the others";
    send_ends with_segment(64): "failure.passive.send", "§5.5.1, §9.2.1", 3, [gaspi_passive_send, gaspi_state_vec_get] + needs_kill,
        "a send to a process that dies before it receives ends with an error";
    receive_ends with_segment(64): "failure.passive.receive", "§5.5.1, §9.2.2", 3, [gaspi_passive_receive, gaspi_passive_send, gaspi_state_vec_get] + needs_kill,
        "a receive ends with an error when a process dies, and after gaspi_state_vec_get another one gets what the living send";
}

fn send(segment: u8, at: u64, to: u16, size: u64) -> Verdict {
    done!(gaspi_passive_send(segment, at, to, size, LONG))
}

/// Sends to rank 1, which receives nothing within the time.
fn sends_in_vain(segment: u8, at: u64, size: u64, timeout: u64) -> Verdict {
    let code = c!(gaspi_passive_send(segment, at, 1, size, timeout));
    equal!(code, TIMEOUT, "a failing send of {size} bytes at {at}")
}

/// Nothing is received within the time.
fn none_received(at: u64, timeout: u64, what: &str) -> Verdict {
    equal!(received(0, at, 8, timeout), TIMEOUT, "a receive {what}")
}

fn arrives(ctx: &Ctx) -> Verdict {
    let memory = segment(0, 256)?;
    let me = ctx.rank as u16;
    for sender in 0..ctx.size as u16 {
        memory.fill(0x5a);
        barrier()?;
        if sender == me {
            memory.set(8, 7 + u64::from(me));
            for_all(others(ctx), |to| send(0, 8, to, 8))?;
        } else {
            ensure_eq!(receive(0, 64, 8)?, sender, "the rank of the sender");
            ensure_eq!(memory.get(64), 7 + u64::from(sender), "the message");
            memory.all(0, 64, 0x5a, "before the message")?;
            memory.all(72, 184, 0x5a, "behind the message")?;
        }
        barrier()?;
    }
    Ok(())
}

fn sizes(ctx: &Ctx) -> Verdict {
    let most = got!(gaspi_passive_transfer_size_max());
    let memory = segment(0, 2 * most as usize)?;
    barrier()?;
    let lengths = [
        1, 2, 7, 8, 31, 32, 33, 63, 64, 65, 1000, 1023, 1024, 1025, 4095, 4096, 4097, 8192, 20_000,
        40_000,
    ];
    for len in lengths.into_iter().chain([most - 1, most]) {
        let bytes = bytes_of(ctx, len, len as usize);
        if ctx.rank == 0 {
            memory.store(0, &bytes);
            send(0, 0, 1, len)?;
        } else if ctx.rank == 1 {
            ensure_eq!(receive(0, most, len)?, 0, "the rank of the sender");
            memory.holds(most as usize, &bytes, &format!("a message of {len}"))?;
        }
    }
    barrier()
}

fn too_long(ctx: &Ctx) -> Verdict {
    let most = got!(gaspi_passive_transfer_size_max());
    ensure_eq!(most, 1000, "gaspi_passive_transfer_size_max");
    segment(0, 4096)?;
    barrier()?;
    let mut sender = 9;
    let to = right(ctx);
    for size in [0, 1001, 4096, u64::MAX] {
        gives! { GASPI_ERR_INV_COMMSIZE:
            gaspi_passive_send(0, 0, to, size, LONG);
            gaspi_passive_receive(0, 0, &mut sender, size, LONG);
        }
    }
    match ctx.rank {
        0 => send(0, 0, 1, 1000),
        1 => receive(0, 0, 1000).map(drop),
        _ => Ok(()),
    }
}

/// The text of a message: the sender's rank and the message's number.
fn text(from: u64, nth: u64) -> u64 {
    from << 32 | nth
}

/// Receives `each` messages from each of `senders`, in the order of each sender.
fn receive_all(memory: &Memory, senders: std::ops::Range<u16>, each: u64) -> Verdict {
    let mut next = vec![0; usize::from(senders.end)];
    for _ in 0..each * senders.len() as u64 {
        let from = receive(0, 0, 8)?;
        ensure!(senders.contains(&from), "a message from {from}");
        let nth = &mut next[usize::from(from)];
        ensure_eq!(memory.get(0), text(from.into(), *nth), "the next of {from}");
        *nth += 1;
    }
    Ok(())
}

fn from_anyone(ctx: &Ctx, memory: Memory) -> Verdict {
    let each = if ctx.is_quick() { 300 } else { 40 };
    if ctx.rank == 0 {
        receive_all(&memory, 1..ctx.size as u16, each)?;
    } else {
        for nth in 0..each {
            memory.set(8, text(ctx.rank.into(), nth));
            send(0, 8, 0, 8)?;
        }
    }
    barrier()
}

fn waits_for_the_receive(ctx: &Ctx, memory: Memory) -> Verdict {
    if ctx.rank == 0 {
        memory.set(0, 11);
        for_all([TEST, 1, 20], |timeout| sends_in_vain(0, 0, 8, timeout))?;
        ctx.sync();
        send(0, 0, 1, 8)?;
    } else {
        ctx.sync();
        if ctx.rank == 1 {
            ensure_eq!(receive(0, 8, 8)?, 0, "the rank of the sender");
            ensure_eq!(memory.get(8), 11, "the message");
        }
    }
    barrier()?;
    if ctx.rank == 1 {
        none_received(8, 20, "after all calls of one send")?;
    }
    barrier()
}

fn goes_on(ctx: &Ctx, memory: Memory) -> Verdict {
    let (each, me) = (60, ctx.rank);
    if me > 0 {
        for nth in 0..each {
            memory.set(8, text(me.into(), nth));
            repeat("gaspi_passive_send", || {
                c!(gaspi_passive_send(0, 8, 0, 8, nth % 3))
            })?;
        }
    } else {
        let mut next = vec![0; ctx.size as usize];
        for turn in 0..each * u64::from(ctx.size - 1) {
            let mut from = u16::MAX;
            repeat("gaspi_passive_receive", || {
                c!(gaspi_passive_receive(0, 0, &mut from, 8, turn % 3))
            })?;
            let nth = next.get_mut(usize::from(from)).ok_or("no such rank")?;
            ensure_eq!(memory.get(0), text(from.into(), *nth), "the next of {from}");
            *nth += 1;
        }
        none_received(0, 20, "after all messages")?;
    }
    barrier()
}

fn while_it_computes(ctx: &Ctx) -> Verdict {
    let memory = segment(0, 1 << 16)?;
    for len in [8, 1024, 1025, 5000, 40_000] {
        barrier()?;
        if ctx.rank == 0 {
            memory.fill(len as u8);
            sends_in_vain(0, 0, len, TEST)?;
        }
        ctx.sync();
        if ctx.rank == 1 {
            memory.fill(0xee);
            ensure_eq!(receive(0, 0, len)?, 0, "the rank of the sender");
            memory.all(0, len as usize, len as u8, &format!("a message of {len}"))?;
        }
        ctx.sync();
        if ctx.rank == 0 {
            send(0, 0, 1, len)?;
        }
    }
    barrier()
}

fn nobody_sends(ctx: &Ctx) -> Verdict {
    let memory = segment(0, 64)?;
    memory.fill(0x33);
    barrier()?;
    if ctx.rank == 1 {
        for timeout in [TEST, 1, 30] {
            none_received(0, timeout, "that nothing was sent for")?;
        }
        // Into another place: the receives that timed out are withdrawn.
        ctx.sync();
        ensure_eq!(receive(0, 32, 8)?, 0, "the rank of the sender");
        ensure_eq!(memory.get(32), 5, "the message");
        ensure_eq!(memory.get(0), 0x3333_3333_3333_3333, "the place before");
    } else {
        ctx.sync();
        if ctx.rank == 0 {
            memory.set(0, 5);
            send(0, 0, 1, 8)?;
        }
    }
    barrier()
}

fn elsewhere(ctx: &Ctx) -> Verdict {
    const PLACES: u64 = 20;
    let most = got!(gaspi_passive_transfer_size_max());
    let most = most & !7;
    let memory = segment(0, (PLACES * most) as usize)?;
    barrier()?;
    for len in [8, 5000, most] {
        if ctx.rank == 0 {
            memory.fill(0x71);
            send(0, 0, 1, len)?;
        } else if ctx.rank == 1 {
            memory.fill(0x33);
            let (mut nth, mut from) = (0, u16::MAX);
            repeat("gaspi_passive_receive", || {
                nth += 1;
                let at = nth % PLACES * most;
                c!(gaspi_passive_receive(0, at, &mut from, len, nth % 2))
            })?;
            ensure_eq!(from, 0, "the rank of the sender");
            let place = nth % PLACES;
            memory.all((place * most) as usize, len as usize, 0x71, "the message")?;
            for other in (0..PLACES).filter(|other| *other != place) {
                let (at, len) = ((other * most) as usize, most as usize);
                memory.all(at, len, 0x33, "another place")?;
            }
        }
        barrier()?;
    }
    Ok(())
}

fn own_rank(ctx: &Ctx, memory: Memory) -> Verdict {
    let (me, half) = (ctx.rank as u16, 1 << 15);
    threads(2, |which| {
        for nth in 1..20u64 {
            let len = if nth.is_multiple_of(4) { half } else { 8 };
            if which == 0 {
                memory.set(0, nth);
                send(0, 0, me, len)?;
            } else {
                ensure_eq!(receive(0, half, len)?, me, "the rank of the sender");
                ensure_eq!(memory.get(half as usize), nth, "the message");
            }
        }
        Ok(())
    })?;
    barrier()
}

fn of_threads(ctx: &Ctx) -> Verdict {
    const THREADS: usize = 3;
    let memory = segment(0, 64 * 2 * THREADS)?;
    let each = if ctx.is_quick() { 100 } else { 20 };
    let sum = std::sync::atomic::AtomicU64::new(0);
    barrier()?;
    threads(2 * THREADS, |which| {
        let at = 64 * which;
        for nth in 0..each {
            if which < THREADS {
                memory.set(at, 1 + nth);
                send(0, at as u64, right(ctx), 8)?;
            } else {
                ensure_eq!(receive(0, at as u64, 8)?, left(ctx), "the sender's rank");
                sum.fetch_add(memory.get(at), Ordering::Relaxed);
            }
        }
        Ok(())
    })?;
    let expected = THREADS as u64 * each * (each + 1) / 2;
    ensure_eq!(sum.into_inner(), expected, "the sum of all received");
    barrier()
}

fn fair(ctx: &Ctx) -> Verdict {
    const FEW: u64 = 10;
    let memory = segment(0, 256)?;
    barrier()?;
    match ctx.rank {
        // The flood: its threads stop when rank 0 writes to segment 0 here.
        1 => threads(3, |which| {
            memory.set(8 + 8 * which, 1);
            while memory.get(0) == 0 {
                send(0, 8 + 8 * which as u64, 0, 8)?;
            }
            // The last message of this thread: rank 0 receives it, so that no send stays in progress.
            memory.set(8 + 8 * which, 2);
            send(0, 8 + 8 * which as u64, 0, 8)
        })?,
        2 => {
            for nth in 0..FEW {
                memory.set(8, 100 + nth);
                send(0, 8, 0, 8)?;
            }
        }
        0 => {
            let (mut few, mut ended) = (0, 0);
            while few < FEW || ended < 3 {
                let from = receive(0, 64, 8)?;
                let value = memory.get(64);
                if from == 2 {
                    ensure_eq!(value, 100 + few, "the next message of the slow sender");
                    few += 1;
                    if few == FEW {
                        memory.set(0, 1);
                        ok!(gaspi_write(0, 0, 1, 0, 0, 8, 0, LONG));
                        flush(0)?;
                    }
                } else {
                    ensure_eq!(from, 1, "the rank of the sender");
                    ended += u64::from(value == 2);
                }
            }
        }
        _ => {}
    }
    barrier()
}

fn full(ctx: &Ctx) -> Verdict {
    let memory = segment(0, 64)?;
    barrier()?;
    if ctx.rank == 0 {
        for nth in 0..4u64 {
            memory.set(8 * nth as usize, nth);
            sends_in_vain(0, 8 * nth, 8, TEST)?;
        }
        for _ in 0..2 {
            gives!(GASPI_ERROR, gaspi_passive_send(0, 32, 1, 8, TEST));
        }
        // A repeated send continues the queued one, and needs no second entry.
        sends_in_vain(0, 0, 8, TEST)?;
        ctx.sync();
        send(0, 0, 1, 8)?;
        memory.set(32, 4);
        for_all([3, 1, 2, 4], |nth| send(0, 8 * nth, 1, 8))?;
    } else {
        ctx.sync();
        for nth in 0..if ctx.rank == 1 { 5 } else { 0 } {
            ensure_eq!(receive(0, 0, 8)?, 0, "the rank of the sender");
            ensure_eq!(memory.get(0), nth, "the message");
        }
    }
    barrier()
}

fn purged(ctx: &Ctx) -> Verdict {
    let memory = segment(0, 64)?;
    barrier()?;
    if ctx.rank == 0 {
        for _ in 0..5 {
            for_all(0..4, |nth| sends_in_vain(0, 8 * nth, 8, TEST))?;
            gives!(GASPI_ERROR, gaspi_passive_send(0, 32, 1, 8, TEST));
            ok!(gaspi_passive_queue_purge(LONG));
        }
        ctx.sync();
        memory.set(40, 99);
        send(0, 40, 1, 8)?;
    } else {
        ctx.sync();
        if ctx.rank == 1 {
            drained(&memory)?;
        }
    }
    barrier()
}

fn too_little_room(ctx: &Ctx) -> Verdict {
    let memory = segment(0, 1 << 15)?;
    for (len, room) in [(16u64, 8u64), (2000, 100), (30_000, 4096)] {
        memory.fill(0x11);
        barrier()?;
        if ctx.rank == 0 {
            memory.fill(0x77);
            send(0, 0, 1, len)?;
        } else if ctx.rank == 1 {
            let code = received(0, 0, room, LONG);
            ensure_eq!(code, GASPI_ERR_INV_SIZE, "a receive of {room} bytes");
            let (len, room) = (len as usize, room as usize);
            memory.all(0, room, 0x77, &format!("the fitting part of {len} bytes"))?;
            memory.all(room, 64, 0x11, &format!("behind {room} bytes"))?;
        }
        barrier()?;
    }
    Ok(())
}

/// Receives until message 99. An abandoned send may arrive before it, if it left during its call.
fn drained(memory: &Memory) -> Verdict {
    let mut looks = Looks::new();
    loop {
        let code = received(0, 0, 8, LONG);
        one_of(code, &[SUCCESS, GASPI_ERR_INV_SIZE], "a receive")?;
        if code == SUCCESS && memory.get(0) == 99 {
            return Ok(());
        }
        looks.again();
    }
}

fn of_a_deleted_segment(ctx: &Ctx, memory: Memory) -> Verdict {
    if ctx.rank == 0 {
        ok!(gaspi_segment_alloc(7, 1 << 16, 0));
        for (at, size) in [(0, 8), (64, 2000), (4096, 60_000)] {
            sends_in_vain(7, at, size, TEST)?;
        }
        ok!(gaspi_segment_delete(7));
        ok!(gaspi_segment_alloc(7, 64, 0));
        ctx.sync();
        memory.set(0, 99);
        send(0, 0, 1, 8)?;
    } else {
        ctx.sync();
        if ctx.rank == 1 {
            drained(&memory)?;
        }
    }
    barrier()
}

fn bad_input(ctx: &Ctx, _: Memory) -> Verdict {
    let (to, mut sender) = (right(ctx), 9);
    gives! { GASPI_ERR_INV_SEG:
        gaspi_passive_send(5, 0, to, 8, LONG);
        gaspi_passive_receive(5, 0, &mut sender, 8, LONG);
    }
    for (at, size) in [(64, 1), (57, 8), (0, 65), (u64::MAX, 8), (u64::MAX - 3, 8)] {
        gives! { GASPI_ERR_INV_LOC_OFF:
            gaspi_passive_send(0, at, to, size, LONG);
            gaspi_passive_receive(0, at, &mut sender, size, LONG);
        }
    }
    for rank in [ctx.size as u16, u16::MAX] {
        gives!(GASPI_ERR_INV_RANK, gaspi_passive_send(0, 0, rank, 8, LONG));
    }
    let code = c!(gaspi_passive_receive(0, 0, null_mut(), 8, LONG));
    ensure_eq!(code, GASPI_ERR_NULLPTR, "a receive without a place");
    barrier()?;
    none_received(0, 10, "after calls that were refused")?;
    barrier()
}

fn with_others(ctx: &Ctx) -> Verdict {
    let memory = segment(0, 256)?;
    let (each, half) = (30u64, u64::from(ctx.size) / 2);
    barrier()?;
    threads(2, |which| {
        for nth in 1..=each {
            if which == 0 {
                memory.set(0, nth);
                send(0, 0, right(ctx), 8)?;
                post::write_notify(0, 0, left(ctx), 0, 128, 8, 3, 1).ok(0, LONG)?;
                flush(0)?;
                notified(0, 3)?;
                barrier()?;
            } else {
                ensure_eq!(receive(0, 64, 8)?, left(ctx), "the rank of the sender");
                ensure_eq!(memory.get(64), nth, "the message");
            }
        }
        Ok(())
    })?;
    ensure!(half > 0, "several ranks");
    barrier()
}

/// The last rank dies while the others go on.
fn last_dies(ctx: &Ctx) -> u32 {
    ctx.sync();
    if ctx.rank == ctx.size - 1 {
        pause(20);
        ctx.dies();
    }
    ctx.size - 1
}

fn send_ends(ctx: &Ctx, _: Memory) -> Verdict {
    let victim = last_dies(ctx);
    let code = c!(gaspi_passive_send(0, 0, victim as u16, 8, BLOCK));
    must_fail(code, "gaspi_passive_send")?;
    equal!(states(ctx)?[victim as usize], 1, "the victim's state")
}

fn receive_ends(ctx: &Ctx, memory: Memory) -> Verdict {
    let victim = last_dies(ctx);
    if ctx.rank > 0 {
        memory.set(0, 4);
        return send(0, 0, 0, 8);
    }
    let (mut living, mut looks) = (0, Looks::new());
    // Messages of living peers may come before the death is seen.
    let code = loop {
        match received(0, 8, 8, BLOCK) {
            SUCCESS => living += 1,
            code => break code,
        }
        looks.again();
    };
    must_fail(code, "gaspi_passive_receive")?;
    ensure_eq!(states(ctx)?[victim as usize], 1, "the victim's state");
    while living < ctx.size - 2 {
        receive(0, 8, 8)?;
        living += 1;
    }
    Ok(())
}

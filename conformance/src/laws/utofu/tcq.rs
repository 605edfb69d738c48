//! §2.2.1.2, §2.2.6, §3.7.4.1, §3.7.5.1: TCQ and NOP.

use super::kit::*;

laws! {
    in_order with(4096): "tcq.order", "§2.2.10, §3.7.4.1", 3, [poll_tcq, put, get, armw8, put_piggyback8, nop] + ordering,
        "entries come in the order of posting, with the cbdata of each, whatever the kinds and peers";
    wanted_only with(256): "tcq.wanted", "§3.7.9.1", 2, [poll_tcq, put_piggyback8, nop] + ordering,
        "only what was posted with the flag gives an entry, and one each";
    per_block with(4096): "tcq.stride", "§3.7", 2, [put_stride, get_stride, poll_tcq],
        "a strided command gives as many entries as blocks, all with its cbdata";
    no_communication with(256): "nop", "§2.2.6, §3.7.1.15", 2, [nop, poll_tcq, poll_mrq],
        "a NOP gives a TCQ entry if wanted, and never an MRQ notice";
    overwritable: "tcq.source", "§2.2.10", 2, [put, poll_tcq] + ordering,
        "after the TCQ entry of a put its source can be overwritten";
    busy with(256): "tcq.busy", "§3.7", 2, [put_piggyback8, poll_tcq] + ordering,
        "with the queue full, posting is BUSY and does nothing; polling makes room, and nothing is lost";
    busy_and_quiet with(256): "tcq.busy.quiet", "§3.7", 2, [put_piggyback8, poll_tcq],
        "without notices too, posting is BUSY in the end; polling finds nothing and makes room";
    unread: "tcq.unread", "§3.7.5.1", 1, [query_num_unread_tcq, poll_tcq, nop, create_vcq_with_cmp_id],
        "the number of entries not looked at goes up with posting and to 0 with polling, for all VCQs of the CQ";
    send_errors with(256): "tcq.errors", "§2.2.12, §3.7", 2, [put, poll_tcq] + ordering,
        "an error on sending comes through the TCQ with its cbdata, wanted or not, in order";
}

fn in_order(job: &Job<'_>) -> Verdict {
    const COMMANDS: usize = 300;
    let mut random = job.ctx.random(u64::from(job.rank));
    let mut seen = Vec::new();
    for nth in 1..=COMMANDS {
        let peer = random.below(u64::from(job.size)) as u32;
        let (vcq, to, here) = (job.vcq(peer), job.at(peer, 64), job.stadd + 2048);
        let kind = random.below(5);
        let length = random.below(1500) as usize;
        job.queue.post_seen(
            |cbdata| seen.push(cbdata),
            || match kind {
                0 => post::put(job.hdl, vcq, here, to, length).code(0, TCQ, nth),
                1 => post::get(job.hdl, vcq, here, to, length).code(0, TCQ, nth),
                2 => post::armw8(job.hdl, vcq, ADD, 1, to).code(0, TCQ, nth),
                3 => post::put_piggyback8(job.hdl, vcq, 1, to, 8).code(0, TCQ, nth),
                _ => c!(utofu_nop(job.hdl, TCQ, cb(nth))),
            },
        )?;
    }
    while seen.len() < COMMANDS {
        seen.push(job.queue.tcq()?);
    }
    let right = seen.iter().copied().eq(1..=COMMANDS);
    ensure!(right, "cbdata in the order of the entries: {seen:?}");
    job.queue.tcq_is_empty()
}

fn wanted_only(job: &Job<'_>) -> Verdict {
    let mut random = job.ctx.random(u64::from(job.rank));
    let mut wanted = Vec::new();
    for nth in 1..=200usize {
        let flags = if random.below(3) == 0 { TCQ } else { 0 };
        if flags != 0 {
            wanted.push(nth);
        }
        if random.below(4) == 0 {
            ok!(utofu_nop(job.hdl, flags, cb(nth)));
        } else {
            job.put8(job.right(), 0, 1).ok(0, flags, nth)?;
        }
    }
    job.queue.completes(wanted)?;
    pause(2);
    job.queue.tcq_is_empty()
}

fn per_block(job: &Job<'_>) -> Verdict {
    job.put_stride(job.right(), 0, 2048, 8, 16, 50)
        .ok(0, TCQ, 1)?;
    ok!(utofu_nop(job.hdl, TCQ, cb(2)));
    job.get_stride(job.right(), 1024, 2048, 4, 9, 30)
        .ok(0, TCQ, 3)?;
    job.queue
        .completes([vec![1; 50], vec![2], vec![3; 30]].concat())?;
    job.queue.tcq_is_empty()
}

fn no_communication(job: &Job<'_>) -> Verdict {
    ok!(utofu_nop(job.hdl, TCQ | LOCAL | REMOTE, cb(5)));
    ok!(utofu_nop(job.hdl, 0, cb(6)));
    ok!(utofu_nop(job.hdl, TCQ, null_mut()));
    ensure_eq!(job.queue.tcq()?, 5, "cbdata of the first");
    ensure_eq!(job.queue.tcq()?, 0, "cbdata of the last");
    job.queue.tcq_is_empty()?;
    pause(2);
    job.queue.mrq_is_empty()
}

fn overwritable(ctx: &Ctx) -> Verdict {
    const LENGTH: usize = 3000;
    const ROUNDS: usize = 30;
    with(ctx, 2 * ROUNDS * 4096, |job| {
        let source = ROUNDS * 4096;
        for round in 0..ROUNDS {
            job.memory.fill_range(source, LENGTH, round as u8 + 1);
            job.put(job.right(), source, round * 4096, LENGTH)
                .ok(0, TCQ | LOCAL, round + 1)?;
            ensure_eq!(job.queue.tcq()?, round + 1, "cbdata");
        }
        job.memory.fill_range(source, LENGTH, 0xff);
        job.queue.notices(0..ROUNDS, LCL_PUT)?;
        job.meet();
        for round in 0..ROUNDS {
            let what = "a put with an overwritten source";
            let value = round as u8 + 1;
            job.memory.all(round * 4096, LENGTH, value, what)?;
        }
        Ok(())
    })
}

/// Posts without polling until BUSY; returns the number posted.
pub(super) fn fill(mut post: impl FnMut(usize) -> i32) -> Result<usize, String> {
    for nth in 1..=1_000_000 {
        match post(nth) {
            SUCCESS => {}
            BUSY => return Ok(nth - 1),
            code => return Err(format!("posting gave {}", code_name(code))),
        }
    }
    Err("a million commands, and the queue is not full".into())
}

fn busy(job: &Job<'_>) -> Verdict {
    let mut total = 0;
    for _ in 0..3 {
        let posted = fill(|nth| job.armw8(job.right(), 0, ADD, 1).code(0, TCQ, nth))?;
        ensure!(posted > 0, "BUSY with an empty queue");
        pause(2);
        // Still full: completed commands make no room without a poll.
        job.put8(job.right(), 0, 0)
            .gives(BUSY, 0, TCQ, posted + 1)?;
        gives!(UTOFU_ERR_BUSY, utofu_nop(job.hdl, TCQ, cb(posted + 1)));
        job.queue.completes(1..=posted)?;
        job.queue.tcq_is_empty()?;
        total += posted as u64;
    }
    job.sum_arrives(total)
}

fn busy_and_quiet(job: &Job<'_>) -> Verdict {
    let mut total = 0;
    for _ in 0..3 {
        total += fill(|_| job.armw8(job.right(), 0, ADD, 1).code(0, 0, 0))? as u64;
        until("room after polling", || {
            let (code, _) = job.queue.poll_tcq();
            code == NOT_FOUND && {
                let code = job.armw8(job.right(), 0, ADD, 1).code(0, 0, 0);
                total += u64::from(code == SUCCESS);
                code == SUCCESS
            }
        })?;
        // §3.7: poll until no entry is left.
        job.queue.tcq_is_empty()?;
    }
    job.write(job.right(), 8, total)?;
    job.meet();
    let theirs = job.memory.get(8);
    job.sum_arrives(theirs)?;
    job.queue.mrq_is_empty()
}

fn unread(_: &Ctx) -> Verdict {
    let one = Queue::with_component(TNI, 0, 0)?;
    let two = Queue::with_component(TNI, 1, 0)?;
    let elsewhere = Queue::with_component(TNI + 1, 0, 0)?;
    let count = Queue::unread_tcq;
    ensure_eq!(count(&one)?, 0, "entries of a new VCQ");
    for nth in 1..=10 {
        ok!(utofu_nop(one.hdl, TCQ, cb(nth)));
    }
    ensure_eq!(count(&one)?, 10, "entries after 10 NOPs");
    for nth in 1..=5 {
        ok!(utofu_nop(two.hdl, TCQ, cb(nth)));
    }
    ensure_eq!((count(&one)?, count(&two)?), (15, 15), "entries of the CQ");
    ensure_eq!(count(&elsewhere)?, 0, "entries of another CQ");
    one.completes(1..=10)?;
    ensure_eq!(count(&one)?, 5, "entries of the other VCQ");
    two.completes(1..=5)?;
    two.tcq_is_empty()?;
    ensure_eq!((count(&one)?, count(&two)?), (0, 0), "entries in the end");
    elsewhere.free()?;
    two.free()?;
    one.free()
}

fn send_errors(job: &Job<'_>) -> Verdict {
    let (vcq, to) = (job.vcq(job.right()), job.at(job.right(), 0));
    let nowhere = stadd_of(job.queue.id, 77)?;
    post::put_piggyback8(job.hdl, vcq, 0, to, 8).ok(0, TCQ, 1)?;
    post::put(job.hdl, vcq, nowhere, to, 8).ok(0, 0, 2)?;
    post::put(job.hdl, vcq, job.stadd + 250, to, 8).ok(0, TCQ, 3)?;
    post::put_piggyback8(job.hdl, vcq, 0, to, 8).ok(0, TCQ, 4)?;
    let expected = [
        (SUCCESS, 1),
        (UTOFU_ERR_TCQ_STADD, 2),
        (UTOFU_ERR_TCQ_LENGTH, 3),
        (SUCCESS, 4),
    ];
    for (code, cbdata) in expected {
        job.queue.tcq_is(code, cbdata, "an entry of the TCQ")?;
    }
    job.queue.tcq_is_empty()
}

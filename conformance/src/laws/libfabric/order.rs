//! Order between operations, and the visibility of their results.

use super::kit::*;
use super::library::{Info, getinfo, offered};

laws! {
    told: "order.told", "fi_endpoint(3)", 1, [getinfo],
        "every requested order is offered or refused, never omitted; unknown orders are refused";
    atomics_in_order with(&Plan::DEFAULT.order(FI_ORDER_STRICT | FI_ORDER_ATOMIC), 256): "atomic.order", "fi_atomic(3) §8", 2, [atomic, fetch_atomic] + ordering,
        "with message and data order of atomics, each operation acts on the results of those posted before it";
    writes_in_order with(&Plan::DEFAULT.order(FI_ORDER_STRICT | FI_ORDER_RMA), 8192): "order.write", "fi_endpoint(3)", 2, [write, read] + ordering,
        "with the orders of RMA the last of several writes stays, and a read after a write sees it";
    all_in_order with(&Plan::DEFAULT.order(FI_ORDER_STRICT | FI_ORDER_RMA | FI_ORDER_ATOMIC), 256):
        "order.mixed", "fi_endpoint(3)", 2, [atomic, write, fetch_atomic, read] + ordering,
        "with strict order RMA and atomics to one peer follow one another";
    anyway: "order.anyway", "fi_endpoint(3) msg_order, max_order_raw_size", 2, [getinfo, atomic, write, fetch_atomic, read] + ordering,
        "without a request the order that holds is shown, and the sizes of ordered data with it; accesses keep to it";
    before_message: "atomic.visible.message", "fi_atomic(3) §4.8", 2, [atomic, send, recv] + ordering,
        "a message after an atomic's completion: its receiver sees the atomic's result";
    before_data: "atomic.visible.data", "fi_atomic(3) §4.8", 2, [atomic, writedata] + ordering,
        "likewise with a write that has remote completion data";
    before_fence: "atomic.visible.fence", "fi_atomic(3) §4.8", 2, [atomic, sendmsg, recv] + ordering,
        "a fenced message needs no completion before it: its receiver sees the atomic's result";
    counted: "atomic.visible.counter", "fi_atomic(3) §4.8", 2, [atomic, cntr_wait, cntr_read] + ordering,
        "when the target's counter of remote writes has counted an atomic, its result is there";
}

/// All message orders of the header, one bit each.
const ORDERS: u64 = FI_ORDER_STRICT | FI_ORDER_RMA | FI_ORDER_ATOMIC;

fn told(_: &Ctx) -> Verdict {
    for (bit, side) in (0..64).flat_map(|bit| (1..4).map(move |side| (bit, side))) {
        let (order, plan) = (1u64 << bit, Plan::DEFAULT);
        let mut hints = plan.hints();
        let of = |which: u64| if side & which != 0 { order } else { 0 };
        hints.transmit().msg_order = of(1);
        hints.receive().msg_order = of(2);
        match getinfo(plan.version, 0, Some(&hints)) {
            Ok(mut info) => {
                ensure!(order & ORDERS != 0, "unknown order {order:#x} is offered");
                let (tx, rx) = (info.transmit().msg_order, info.receive().msg_order);
                let left = (of(1) & !tx, of(2) & !rx);
                ensure_eq!(left, (0, 0), "order {order:#x} that is not offered");
                sizes_fit(&mut info)?;
            }
            Err(code) => {
                ensure_eq!(code, -libc::ENODATA, "order {order:#x}");
                ensure!(order & ORDERS == 0, "known order {order:#x} is refused");
            }
        }
    }
    Ok(())
}

/// Fails unless each maximum ordered size is at least 8 if one of its orders is offered, and 0 otherwise.
fn sizes_fit(info: &mut Info) -> Verdict {
    let (order, sizes) = (info.transmit().msg_order, *info.endpoint());
    let raw = FI_ORDER_RAW | FI_ORDER_RMA_RAW | FI_ORDER_ATOMIC_RAW;
    let war = FI_ORDER_WAR | FI_ORDER_RMA_WAR | FI_ORDER_ATOMIC_WAR;
    let waw = FI_ORDER_WAW | FI_ORDER_RMA_WAW | FI_ORDER_ATOMIC_WAW;
    for (size, orders) in [
        (sizes.max_order_raw_size, raw),
        (sizes.max_order_war_size, war),
        (sizes.max_order_waw_size, waw),
    ] {
        let fits = match order & orders {
            0 => size == 0,
            _ => size >= 8,
        };
        ensure!(fits, "{size} bytes of data in order, with order {order:#x}");
    }
    Ok(())
}

fn anyway(ctx: &Ctx) -> Verdict {
    let plan = Plan::DEFAULT;
    let mut info = offered(&plan.hints())?;
    sizes_fit(&mut info)?;
    let (order, receives) = (info.transmit().msg_order, info.receive().msg_order);
    let seen = order & receives & FI_ORDER_SAS;
    ensure_eq!(seen, FI_ORDER_SAS, "the order of messages");
    let accesses = FI_ORDER_RMA | FI_ORDER_ATOMIC | FI_ORDER_RAW | FI_ORDER_WAR | FI_ORDER_WAW;
    ensure!(
        ctx.backend != "shm" || order & receives & accesses == accesses,
        "the order {order:#x} where operations end within their calls"
    );
    if order & accesses == accesses {
        with(ctx, &Plan::DEFAULT, 256, atomics_in_order)?;
        with(ctx, &Plan::DEFAULT, 8192, writes_in_order)?;
        with(ctx, &Plan::DEFAULT, 256, all_in_order)?;
    }
    let mut hints = plan.hints();
    hints.endpoint().max_order_waw_size = 8;
    let mut info = offered(&hints)?;
    ensure!(info.endpoint().max_order_waw_size >= 8, "the ordered size");
    sizes_fit(&mut info)
}

fn atomics_in_order(job: &Job<'_>) -> Verdict {
    let words = job.words(job.right(), 8);
    let mut random = job.ctx.random(job.rank.into());
    for _ in 0..many(job.ctx, 6) {
        const COUNT: usize = 12;
        let values: Vec<u64> = (0..COUNT).map(|_| random.next()).collect();
        let mut seen = [0u64; COUNT];
        let fetches: Vec<bool> = (0..COUNT).map(|_| random.below(2) == 0).collect();
        for nth in 0..COUNT {
            let words = words.from(&values[nth]).into(&mut seen[nth]);
            job.post(|| match fetches[nth] {
                true => words.fetch_add(),
                false => words.atomic(UINT64, WRITE),
            })?;
        }
        job.tx.successes(0..COUNT)?;
        let mut value = None;
        for (nth, result) in current(&seen).into_iter().enumerate() {
            if !fetches[nth] {
                value = Some(values[nth]);
                continue;
            }
            let follows = value.is_none_or(|value| value == result);
            ensure!(follows, "operation {nth} does not act on the one before");
            value = Some(result.wrapping_add(values[nth]));
        }
        let found = Some(job.fetch(job.right(), 8, READ, 0)?);
        ensure_eq!(found, value, "the last value");
    }
    Ok(())
}

fn writes_in_order(job: &Job<'_>) -> Verdict {
    let (to, at, key) = job.place(job.right(), 0);
    let mut random = job.ctx.random(job.rank.into());
    for round in 0..many(job.ctx, 4) {
        let buffers: Vec<Vec<u8>> = (0..6)
            .map(|_| vec![random.next() as u8; 1 + random.below(4000) as usize])
            .collect();
        let mut expected = job.read(job.right(), 0, 4096)?;
        let mut seen = vec![0u8; 4096];
        for buffer in &buffers {
            expected[..buffer.len()].copy_from_slice(buffer);
            job.post(|| call!(rma job.ep, write(buffer.as_ptr().cast(), buffer.len(), null_mut(), to, at, key, null_mut())))?;
        }
        job.post(|| call!(rma job.ep, read(seen.as_mut_ptr().cast(), 4096, null_mut(), to, at, key, null_mut())))?;
        job.tx.successes(0..=buffers.len())?;
        same(&seen, &expected, &format!("the data read in round {round}"))?;
    }
    Ok(())
}

fn all_in_order(job: &Job<'_>) -> Verdict {
    let words = job.words(job.right(), 8);
    let mut random = job.ctx.random(job.rank.into());
    for _ in 0..many(job.ctx, 5) {
        let (written, added) = (random.next(), random.next());
        let (mut fetched, mut seen) = (0u64, 0u64);
        job.post(|| words.from(&written).write())?;
        job.post(|| words.from(&added).into(&mut fetched).fetch_add())?;
        job.post(|| words.into(&mut seen).read())?;
        job.tx.successes(0..3)?;
        let (fetched, seen) = (current(&fetched), current(&seen));
        ensure_eq!(fetched, written, "the atomic's view of the write");
        let expected = written.wrapping_add(added);
        ensure_eq!(seen, expected, "the read's view of the atomic");
    }
    Ok(())
}

/// Rank 0 adds to a word of rank 1 in each round and then does `follow`; rank 1 does `notice`, and must see the sum.
fn followed(
    ctx: &Ctx,
    plan: &Plan<'_>,
    completed: bool,
    follow: impl Fn(&Job<'_>, u64) -> Verdict,
    notice: impl Fn(&Job<'_>, u64) -> Verdict,
) -> Verdict {
    with(ctx, plan, 256, |job| {
        for round in 1..=many(ctx, 8) {
            if job.rank == 0 {
                job.post(|| job.words(1, 8).told(1).add())?;
                if completed {
                    job.tx.of(1)?;
                }
                follow(job, round)?;
            } else {
                notice(job, round)?;
                ensure_eq!(job.memory.get(8), round, "the sum after the notice");
            }
            job.meet();
        }
        Ok(())
    })
}

fn heard(job: &Job<'_>, round: u64) -> Verdict {
    let seen = received(None, (job.ep, job.rx), 8)?;
    equal!(u64_of(&seen), round, "the message")
}

fn before_message(ctx: &Ctx) -> Verdict {
    let send = |job: &Job<'_>, round: u64| job.send_and_wait(1, &round.to_le_bytes(), 2);
    followed(ctx, &Plan::DEFAULT, true, send, heard)
}

fn before_data(ctx: &Ctx) -> Verdict {
    let write = |job: &Job<'_>, round: u64| {
        let words = job.words(1, 64).from(&round).told(3);
        job.told(3, || words.write_data(round)).map(drop)
    };
    let notice = |job: &Job<'_>, round: u64| {
        let entry = job.rx.next()?;
        ensure_eq!(entry.data, round, "the data");
        job.memory.shows(64, round, "what was written")
    };
    followed(ctx, &Plan::DEFAULT, true, write, notice)
}

fn before_fence(ctx: &Ctx) -> Verdict {
    let send = |job: &Job<'_>, round: u64| {
        let part = iovec(&raw const round, 8);
        let msg = plain_msg(&part, job.peer(1).address, cx(2));
        job.done(|| call!(msg job.ep, sendmsg(&msg, FI_FENCE)))?;
        job.tx.next().map(drop)
    };
    followed(ctx, &Plan::DEFAULT, false, send, heard)
}

fn counted(ctx: &Ctx) -> Verdict {
    let plan = Plan::DEFAULT
        .caps(FI_MSG | FI_RMA | FI_ATOMIC | FI_RMA_EVENT)
        .counters(&[FI_REMOTE_WRITE]);
    let notice = |job: &Job<'_>, round: u64| {
        let counter = job.station.counters[0];
        ok!(obj counter, wait(round, LONG));
        equal!(value_of(counter), round, "the count")
    };
    followed(ctx, &plan, true, |_, _| Ok(()), notice)
}

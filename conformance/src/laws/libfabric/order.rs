//! Order between operations, and the visibility of their results.

use super::kit::*;
use super::library::{Info, getinfo};
use super::station::Plan;

laws! {
    told: "order.told", "fi_endpoint(3)", 1, [getinfo],
        "every order that a program asks for is offered or refused, never left out; what nobody knows is refused";
    atomics_in_order given(FI_ORDER_STRICT | FI_ORDER_ATOMIC): "atomic.order", "fi_atomic(3) §8", 2, [atomic, fetch_atomic] + ordering,
        "with message and data order of atomics, each operation acts on the results of those posted before it";
    writes_in_order given(FI_ORDER_STRICT | FI_ORDER_RMA): "order.write", "fi_endpoint(3)", 2, [write, read] + ordering,
        "with the orders of RMA the last of several writes stays, and a read after a write sees it";
    all_in_order given(FI_ORDER_STRICT | FI_ORDER_RMA | FI_ORDER_ATOMIC):
        "order.mixed", "fi_endpoint(3)", 2, [atomic, write, fetch_atomic, read] + ordering,
        "with strict order RMA and atomics to one peer follow one another";
    anyway: "order.anyway", "fi_endpoint(3) msg_order, max_order_raw_size", 2, [getinfo, atomic, write, fetch_atomic, read] + ordering,
        "without a request the order that holds is shown, and the sizes of ordered data with it; accesses keep to it";
    before_message: "atomic.visible.message", "fi_atomic(3) §4.8", 2, [atomic, send, recv] + ordering,
        "after an atomic's completion a message follows: who has received it sees the atomic's result";
    before_data: "atomic.visible.data", "fi_atomic(3) §4.8", 2, [atomic, writedata] + ordering,
        "likewise with a write that has remote completion data";
    before_fence: "atomic.visible.fence", "fi_atomic(3) §4.8", 2, [atomic, sendmsg, recv] + ordering,
        "a fenced message needs no completion before it: who has received it sees the atomic's result";
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
                ensure!(
                    order & ORDERS != 0,
                    "order {order:#x} is offered, which nobody knows"
                );
                let (tx, rx) = (info.transmit().msg_order, info.receive().msg_order);
                ensure!(
                    of(1) & !tx == 0 && of(2) & !rx == 0,
                    "order {order:#x} is accepted and not offered"
                );
                sizes_fit(&mut info)?;
            }
            Err(code) => {
                ensure_eq!(code, -libc::ENODATA, "order {order:#x}");
                ensure!(
                    order & ORDERS == 0,
                    "order {order:#x} of the header is refused"
                );
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
    let mut info = getinfo(plan.version, 0, Some(&plan.hints()))
        .map_err(|code| format!("fi_getinfo gave {code}"))?;
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
        atomics_in_order(ctx, 0)?;
        writes_in_order(ctx, 0)?;
        all_in_order(ctx, 0)?;
    }
    let mut hints = plan.hints();
    hints.endpoint().max_order_waw_size = 8;
    let mut info = getinfo(plan.version, 0, Some(&hints))
        .map_err(|code| format!("fi_getinfo with an ordered size gave {code}"))?;
    ensure!(info.endpoint().max_order_waw_size >= 8, "the ordered size");
    sizes_fit(&mut info)
}

fn atomics_in_order(ctx: &Ctx, order: u64) -> Verdict {
    with(ctx, &Plan::DEFAULT.order(order), 256, |job| {
        let (to, at, key) = job.place(job.right(), 8);
        let mut random = ctx.random(job.rank.into());
        for _ in 0..many(ctx, 6) {
            const COUNT: usize = 12;
            let values: Vec<u64> = (0..COUNT).map(|_| random.next()).collect();
            let mut seen = [0u64; COUNT];
            let fetches: Vec<bool> = (0..COUNT).map(|_| random.below(2) == 0).collect();
            for nth in 0..COUNT {
                let (operand, result) =
                    ((&raw const values[nth]).cast(), (&raw mut seen[nth]).cast());
                job.post(|| match fetches[nth] {
                    true => call!(atomic job.ep, readwrite(operand, 1, null_mut(), result, null_mut(), to, at, key, UINT64, SUM, null_mut())),
                    false => call!(atomic job.ep, write(operand, 1, null_mut(), to, at, key, UINT64, WRITE, null_mut())),
                })?;
            }
            job.tx.successes(0..COUNT)?;
            let mut value = None;
            for nth in 0..COUNT {
                // SAFETY:
                // - in bounds; the provider writes it through a pointer.
                let result = unsafe { (&raw const seen[nth]).read_volatile() };
                if fetches[nth] {
                    ensure!(
                        value.is_none_or(|value| value == result),
                        "operation {nth} does not act on what the one before has left"
                    );
                    value = Some(result.wrapping_add(values[nth]));
                } else {
                    value = Some(values[nth]);
                }
            }
            let found = Some(job.fetch(job.right(), 8, READ, 0)?);
            ensure_eq!(found, value, "the last value");
        }
        Ok(())
    })
}

fn writes_in_order(ctx: &Ctx, order: u64) -> Verdict {
    with(ctx, &Plan::DEFAULT.order(order), 8192, |job| {
        let (to, at, key) = job.place(job.right(), 0);
        let mut random = ctx.random(job.rank.into());
        for round in 0..many(ctx, 4) {
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
            same(&seen, &expected, &format!("what is read in round {round}"))?;
        }
        Ok(())
    })
}

fn all_in_order(ctx: &Ctx, order: u64) -> Verdict {
    with(ctx, &Plan::DEFAULT.order(order), 256, |job| {
        let (to, at, key) = job.place(job.right(), 8);
        let mut random = ctx.random(job.rank.into());
        for _ in 0..many(ctx, 5) {
            let (written, added, mut fetched, mut seen) =
                (random.next(), random.next(), 0u64, 0u64);
            job.post(|| call!(rma job.ep, write((&raw const written).cast(), 8, null_mut(), to, at, key, null_mut())))?;
            job.post(|| call!(atomic job.ep, readwrite((&raw const added).cast(), 1, null_mut(), (&raw mut fetched).cast(), null_mut(), to, at, key, UINT64, SUM, null_mut())))?;
            job.post(|| call!(rma job.ep, read((&raw mut seen).cast(), 8, null_mut(), to, at, key, null_mut())))?;
            job.tx.successes(0..3)?;
            ensure_eq!(fetched, written, "what the atomic sees of the write");
            let expected = written.wrapping_add(added);
            ensure_eq!(seen, expected, "what the read sees of the atomic");
        }
        Ok(())
    })
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
        let one = 1u64;
        for round in 1..=many(ctx, 8) {
            if job.rank == 0 {
                let (to, at, key) = job.place(1, 8);
                job.post(|| call!(atomic job.ep, write((&raw const one).cast(), 1, null_mut(), to, at, key, UINT64, SUM, cx(1))))?;
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

fn received(job: &Job<'_>, round: u64) -> Verdict {
    let mut word = 0u64;
    job.post(
        || call!(msg job.ep, recv((&raw mut word).cast(), 8, null_mut(), FI_ADDR_UNSPEC, cx(2))),
    )?;
    job.rx.of(2)?;
    ensure_eq!(word, round, "the message");
    Ok(())
}

fn before_message(ctx: &Ctx) -> Verdict {
    let send = |job: &Job<'_>, round: u64| {
        let (to, word) = (job.peer(1).address, round);
        job.told(
            2,
            || call!(msg job.ep, send((&raw const word).cast(), 8, null_mut(), to, cx(2))),
        )
        .map(drop)
    };
    followed(ctx, &Plan::DEFAULT, true, send, received)
}

fn before_data(ctx: &Ctx) -> Verdict {
    let write = |job: &Job<'_>, round: u64| {
        let ((to, at, key), word) = (job.place(1, 64), round);
        job.told(3, || call!(rma job.ep, writedata((&raw const word).cast(), 8, null_mut(), round, to, at, key, cx(3)))).map(drop)
    };
    let notice = |job: &Job<'_>, round: u64| {
        let entry = job.rx.next()?;
        ensure_eq!(entry.data, round, "the data");
        ensure_eq!(job.memory.get(64), round, "what was written");
        Ok(())
    };
    followed(ctx, &Plan::DEFAULT, true, write, notice)
}

fn before_fence(ctx: &Ctx) -> Verdict {
    let send = |job: &Job<'_>, round: u64| {
        let word = round;
        let part = iovec(&raw const word, 8);
        let msg = plain_msg(&part, job.peer(1).address, cx(2));
        job.done(|| call!(msg job.ep, sendmsg(&msg, FI_FENCE)))?;
        job.tx.next().map(drop)
    };
    followed(ctx, &Plan::DEFAULT, false, send, received)
}

fn counted(ctx: &Ctx) -> Verdict {
    let plan = Plan::DEFAULT
        .caps(FI_MSG | FI_RMA | FI_ATOMIC | FI_RMA_EVENT)
        .counters(&[FI_REMOTE_WRITE]);
    let notice = |job: &Job<'_>, round: u64| {
        let counter = job.station.counters[0];
        ok!(obj counter, wait(round, LONG));
        ensure_eq!(value_of(counter), round, "the count");
        Ok(())
    };
    followed(ctx, &plan, true, |_, _| Ok(()), notice)
}

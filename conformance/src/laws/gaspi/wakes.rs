//! Threads that wait for effects of operations of their own process. With UNIPGAS_TEST_SLEEPS_UNTIL_RUNG only a wake-up ends a sleep: a
//! lost wake-up is a hang.

use super::kit::*;

laws! {
    reads: "wake.read", "§8.4.4, §8.4.6, §8.3.3", 2, [gaspi_read_notify, gaspi_read_list_notify, gaspi_notify_waitsome],
        "a thread in gaspi_notify_waitsome is woken by what another thread of its process reads";
    own with_segment(4096): "wake.own", "§8.3.3, §9.2.2", 2,
        [gaspi_notify, gaspi_write_notify, gaspi_write_list_notify, gaspi_passive_send, gaspi_passive_receive, gaspi_notify_waitsome],
        "a thread is woken by notifications and messages that another thread sends to the own rank, and a sender by the receive";
    requests with_segment(4096): "wake.requests", "§8.2.3", 2, [gaspi_operation_submit, gaspi_request_wait],
        "a thread in gaspi_request_wait is woken when an operation ends, also if another thread has posted it";
    atomics with_segment(64): "wake.atomics", "§10.2", 2, [gaspi_atomic_fetch_add],
        "each of several threads is woken when its own atomic operation has ended";
    queues with_segment(4096): "wake.queues", "§8.2.3", 2, [gaspi_write, gaspi_wait],
        "threads that wait for queues are woken, also for requests that other threads have posted";
}

fn reads(ctx: &Ctx) -> Verdict {
    let memory = segment(0, 4096)?;
    memory.fill(ctx.rank as u8 + 1);
    barrier()?;
    let from = right(ctx);
    threads(2, |which| {
        for round in 0..40u32 {
            if which == 0 {
                ensure_eq!(notified(0, 7)?, 1, "the notification");
                ok!(gaspi_notify(0, ctx.rank as u16, 9, 1, 1, LONG));
                continue;
            }
            pause(u64::from(round % 3));
            match round % 2 {
                0 => ok!(gaspi_read_notify(0, 1024, from, 0, 0, 64, 7, 0, LONG)),
                _ => {
                    let list = post::Parts::new(0, 0, &[(1024, 0, 100), (2048, 512, 8)]);
                    list.read_notify(from, 0, 7).ok(0, LONG)?;
                }
            }
            notified(0, 9)?;
        }
        Ok(())
    })?;
    flush(0)?;
    flush(1)?;
    barrier()
}

fn own(ctx: &Ctx, _: Memory) -> Verdict {
    let me = ctx.rank as u16;
    threads(2, |which| {
        for round in 0..48u32 {
            // The one or the other thread is late.
            pause(u64::from(round % 3) * which as u64 + u64::from(round % 2));
            match (round % 4, which) {
                (3, 0) => drop(receive(0, 64, 8)?),
                (3, _) => ok!(gaspi_passive_send(0, 0, me, 8, LONG)),
                (_, 0) => drop(notified(0, 7)?),
                (0, _) => ok!(gaspi_notify(0, me, 7, 1, 0, LONG)),
                (1, _) => post::write_notify(0, 0, me, 0, 1024, 64, 7, 1).ok(0, LONG)?,
                _ => {
                    let list = post::Parts::new(0, 0, &[(0, 1024, 100), (512, 2048, 8)]);
                    list.write_notify(me, 0, 7, 1).ok(0, LONG)?;
                }
            }
            if which == 1 {
                // The next round waits for the first thread.
                ok!(gaspi_notify(0, me, 8, 1, 0, LONG));
                notified(0, 9)?;
            } else {
                notified(0, 8)?;
                ok!(gaspi_notify(0, me, 9, 1, 0, LONG));
            }
        }
        Ok(())
    })?;
    flush(0)?;
    barrier()
}

fn requests(ctx: &Ctx, _: Memory) -> Verdict {
    let to = right(ctx);
    for round in 0..30 {
        threads(2, |which| {
            if which == 1 {
                pause(round % 3);
            }
            if round % 2 == 0 || which == 1 {
                let (write, tag) = (GASPI_OP_WRITE, 1 + which as i64);
                ok!(gaspi_operation_submit(
                    write, tag, 0, 0, to, 0, 64, 64, 0, 0, 0, LONG
                ));
            }
            let mut seen = 0;
            while which == 0 && seen < 1 + u32::from(round % 2 == 0) {
                let (mut num, mut tag, mut status) = (0, 0, gaspi_status_t { error: 0 });
                let timeout = LONG;
                ok!(gaspi_request_wait(
                    0,
                    1,
                    &mut num,
                    &mut tag,
                    &mut status,
                    timeout
                ));
                seen += num;
            }
            Ok(())
        })?;
    }
    barrier()
}

fn atomics(ctx: &Ctx, memory: Memory) -> Verdict {
    threads(4, |_| for_all(0..30, |_| add(0, 8, right(ctx), 1)))?;
    barrier()?;
    ensure_eq!(memory.get(8), 120, "the sum");
    barrier()
}

fn queues(ctx: &Ctx, _: Memory) -> Verdict {
    threads(4, |which| {
        for round in 0..30u64 {
            let (queue, at) = ((which % 2) as u8, 64 * which as u64);
            ok!(gaspi_write(0, at, right(ctx), 0, at, 64, queue, LONG));
            if (round + which as u64).is_multiple_of(3) {
                flush(1 - queue)?;
            }
            flush(queue)?;
        }
        Ok(())
    })?;
    barrier()
}

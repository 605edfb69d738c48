//! Threads that wait for effects of operations of their own process. With UNIPGAS_TEST_SLEEPS_UNTIL_RUNG only a wake-up ends a sleep: a
//! lost wake-up is a hang.

use super::kit::*;

laws! {
    reads: "wake.read", "§8.4.4, §8.4.6, §8.3.3", 2, [gaspi_read_notify, gaspi_read_list_notify, gaspi_notify_waitsome],
        "a thread in gaspi_notify_waitsome is woken by what another thread of its process reads";
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

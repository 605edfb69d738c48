//! §3.6.1.4: memory that a thread deregisters while others use it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::freed::{COMMANDS, entries};
use super::kit::*;

laws! {
    deregistered with_flags(4096, THREAD_SAFE): "memory.deregistered-in-use", "§2.5, §3.6.1.4", 2,
        [dereg_mem, reg_mem_with_stag, put, put_piggyback8, put_stride, get, get_stride, armw4, armw8, cswap4, cswap8, poll_tcq, poll_mrq] + ordering,
        "memory is deregistered and registered while threads of both sides use it: each command is refused, fails or is done, and each has its entries of the TCQ";
}

fn deregistered(job: &Job<'_>) -> Verdict {
    job.meet();
    let stop = AtomicBool::new(false);
    let (posted, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let take = || {
        while job.queue.poll_tcq().0 != NOT_FOUND {
            ended.fetch_add(1, Ordering::Relaxed);
        }
        while job.queue.poll_mrq().0 != NOT_FOUND {}
    };
    threads(3, |thread| {
        if thread == 2 {
            for round in 0..if job.ctx.is_quick() { 60 } else { 15 } {
                pause(job.ctx.random(round).below(3));
                job.queue.deregister(stadd_of(job.queue.id, STAG)?)?;
                pause(job.ctx.random(round).below(2));
                job.queue.register_as(job.memory, STAG)?;
            }
            stop.store(true, Ordering::Release);
            return Ok(());
        }
        let vcq = job.vcq(job.right());
        let here = stadd_of(job.queue.id, STAG)?;
        while !stop.load(Ordering::Acquire) {
            for (nth, command) in COMMANDS.iter().enumerate() {
                if command(job.hdl, here, vcq) == SUCCESS {
                    posted.fetch_add(entries(nth), Ordering::Relaxed);
                }
                take();
            }
        }
        Ok(())
    })?;
    let [posted, ended] = [&posted, &ended].map(|count| || count.load(Ordering::Relaxed));
    until("an entry of each command", || {
        take();
        ended() >= posted()
    })?;
    ensure!(posted() > 0, "all were refused");
    ensure_eq!(ended(), posted(), "entries of the TCQ");
    job.meet();
    Ok(())
}

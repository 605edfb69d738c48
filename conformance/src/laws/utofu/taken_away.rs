//! §3.6.1.4: memory that a thread deregisters while others use it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::functions::{Call, Function};
use super::kit::*;

laws! {
    deregistered with_flags(4096, THREAD_SAFE): "memory.deregistered-in-use", "§2.5, §3.6.1.4", 2, [dereg_mem, reg_mem_with_stag, put, get, armw8, poll_tcq, poll_mrq] + ordering,
        "memory is deregistered and registered while threads of both sides use it: each command is refused, fails or is done, and each has one entry of the TCQ";
}

/// The STag of the memory that is deregistered.
const TAKEN: u32 = 33;

fn deregistered(job: &Job<'_>) -> Verdict {
    let lent = Memory::pages(4096)?;
    job.queue.register_as(lent, TAKEN)?;
    job.meet();
    let commands = ["utofu_put", "utofu_get", "utofu_armw8"].map(Function::named);
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
                job.queue.deregister(stadd_of(job.queue.id, TAKEN)?)?;
                pause(job.ctx.random(round).below(2));
                job.queue.register_as(lent, TAKEN)?;
            }
            stop.store(true, Ordering::Release);
            return Ok(());
        }
        let call = Call {
            local: stadd_of(job.queue.id, TAKEN)? + 1024,
            remote: stadd_of(job.vcq(job.right()), TAKEN)? + 2048,
            len: 512,
            flags: TCQ | LOCAL,
            ..Call::to(job, job.right())
        };
        while !stop.load(Ordering::Acquire) {
            for command in &commands {
                if command.post(&call) == SUCCESS {
                    posted.fetch_add(1, Ordering::Relaxed);
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
    let stadd = stadd_of(job.queue.id, TAKEN)?;
    job.queue.deregister(stadd)
}

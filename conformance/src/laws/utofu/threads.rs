//! §2.5 thread safety.

use super::kit::*;

laws! {
    one_vcq with_flags(4096, THREAD_SAFE): "threads.one-vcq", "§2.5, §3.3.4.1", 2, [create_vcq_with_cmp_id, put, armw8, poll_tcq] + ordering,
        "several threads use one thread-safe VCQ: every command is done once, every entry comes once";
    each_its_own given(THREAD_SAFE): "threads.two-vcqs", "§2.5, §3.3.4.1", 2, [create_vcq, armw8, poll_mrq] + ordering,
        "two threads use thread-safe VCQs of one CQ, each its own, at the same time";
    each_its_own given(EXCLUSIVE): "threads.exclusive", "§3.3.4.1", 2, [create_vcq, armw8] + ordering,
        "threads with a CQ-exclusive VCQ each need no other care";
    registering with_flags(1024, THREAD_SAFE): "threads.memory", "§2.5", 2, [reg_mem, dereg_mem],
        "several threads register and deregister memory with one thread-safe VCQ";
    making: "threads.make", "§2.5", 1, [create_vcq, free_vcq, query_vcq_id],
        "several threads create and free VCQs at the same time";
}

fn one_vcq(job: &Job<'_>) -> Verdict {
    const EACH: usize = 200;
    const THREADS: usize = 3;
    let seen = parking_lot::Mutex::new(vec![0u32; EACH * THREADS]);
    let count = || seen.lock().iter().sum::<u32>();
    threads(THREADS, |thread| {
        let take = || {
            while let (SUCCESS, cbdata) = job.queue.poll_tcq() {
                seen.lock()[cbdata - 1] += 1;
            }
        };
        for nth in 0..EACH {
            let (peer, id) = (job.right(), thread * EACH + nth + 1);
            let put = job.put8(peer, 64 + 8 * thread, id as u64);
            match nth % 2 {
                0 => job.armw8(peer, 0, ADD, 1).ok(0, TCQ, id)?,
                _ => put.ok(0, TCQ | LOCAL, id)?,
            }
            take();
        }
        until("all entries of the TCQ", || {
            take();
            count() as usize >= EACH * THREADS
        })
    })?;
    let seen = seen.into_inner();
    let wrong = seen.iter().find(|seen| **seen != 1);
    ensure_eq!(wrong, None, "entries of a command, other than one");
    job.queue.notices(0..THREADS * EACH / 2, LCL_PUT)?;
    job.queue.has_nothing()?;
    job.meet();
    job.sum_arrives((THREADS * EACH / 2) as u64)
}

/// Each thread uses a separate VCQ to add to the word of the right rank.
fn each_its_own(ctx: &Ctx, flags: u64) -> Verdict {
    const EACH: u64 = 200;
    with(ctx, 256, |job| {
        let create = || Queue::create(TNI + 1, flags);
        let queues = [create()?, create()?];
        job.meet();
        threads(2, |thread| {
            let queue = queues[thread];
            let (vcq, to) = (job.vcq(job.right()), job.at(job.right(), 0));
            for nth in 0..EACH {
                let armw = post::armw8(queue.hdl, vcq, ADD, 1, to);
                armw.ok(nth % 256, LOCAL | TCQ, nth as usize + 1)?;
                ensure_eq!(queue.tcq()?, nth as usize + 1, "cbdata");
                ensure_eq!(queue.notice(LCL_ARMW)?.edata, nth % 256, "edata");
            }
            queue.has_nothing()
        })?;
        job.meet();
        ensure_eq!(job.memory.get(0), 2 * EACH, "additions");
        queues.into_iter().try_for_each(Queue::free)
    })
}

fn registering(job: &Job<'_>) -> Verdict {
    threads(3, |thread| {
        for round in 1..=100u64 {
            let memory = Memory::new(256);
            let stadd = if round % 2 == 0 {
                job.queue.register(memory)?
            } else {
                job.queue.register_as(memory, 10 + thread as u32)?
            };
            memory.set(0, round);
            // To the own memory; the memory registered just above is the source.
            let to = job.stadd + 8 * thread as u64;
            post::put(job.hdl, job.queue.id, stadd, to, 8).ok(0, 0, 0)?;
            until("the put", || job.memory.get(8 * thread) == round)?;
            job.queue.deregister(stadd)?;
            memory.free();
        }
        Ok(())
    })?;
    job.queue.mrq_is_empty()
}

fn making(_: &Ctx) -> Verdict {
    threads(3, |thread| {
        for round in 0..100 {
            let (tni, flags) = (round % 6, if thread == 0 { THREAD_SAFE } else { 0 });
            let queue = Queue::create(tni, flags)?;
            let other = Queue::create(tni, 0)?;
            ensure_eq!(queue.id == other.id, false, "one id for two");
            queue.free()?;
            other.free()?;
        }
        Ok(())
    })
}

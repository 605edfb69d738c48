//! §3.3.4.1: the VCQs that threads may use at the same time.

use super::kit::*;

laws! {
    of_all_kinds with(4096): "threads.mixed", "§3.3.4.1", 2, [create_vcq, reg_mem, reg_mem_with_stag, query_stadd, dereg_mem, put, get, armw8] + ordering,
        "at the same time threads register memory with and use a thread-safe VCQ, another VCQ of the same CQ, and exclusive ones";
}

const EACH: u64 = 100;
const THREADS: usize = 5;

fn of_all_kinds(job: &Job<'_>) -> Verdict {
    let kind = |flags| Queue::create(TNI + 1, flags);
    let shared = kind(THREAD_SAFE)?;
    let queues = [
        shared,
        shared,
        kind(0)?,
        kind(EXCLUSIVE)?,
        kind(EXCLUSIVE | THREAD_SAFE)?,
    ];
    let peer = job.right();
    let (vcq, sum) = (job.vcq(peer), job.at(peer, 2048));
    job.meet();
    threads(THREADS, |thread| {
        let queue = queues[thread];
        let board = 64 * thread;
        let there = job.at(peer, board);
        for round in 1..=EACH {
            let memory = Memory::new(256);
            memory.set(0, round << 8 | thread as u64);
            let stadd = if round % 2 == 0 {
                queue.register(memory)?
            } else {
                let stag = 20 + thread as u32;
                let stadd = queue.register_as(memory, stag)?;
                ensure_eq!(stadd_of(queue.id, stag)?, stadd, "the STADD of a STag");
                stadd
            };
            // A round trip with an addition in between; strong order, so the last notice confirms all of it.
            let hdl = queue.hdl;
            post::put(hdl, vcq, stadd, there, 8).ok(0, STRONG_ORDER, 0)?;
            post::armw8(hdl, vcq, ADD, 1, sum).ok(0, STRONG_ORDER, 0)?;
            post::get(hdl, vcq, stadd + 8, there, 8).ok(0, STRONG_ORDER, 0)?;
            until("the get", || {
                let _ = queue.poll_tcq();
                memory.get(8) != 0
            })?;
            ensure_eq!(memory.get(8), memory.get(0), "what came back");
            queue.deregister(stadd)?;
            memory.free();
        }
        Ok(())
    })?;
    for_all(queues, |queue| queue.mrq_is_empty())?;
    job.meet();
    ensure_eq!(job.memory.get(2048), EACH * THREADS as u64, "additions");
    for_all(0..THREADS, |thread| {
        let expected = EACH << 8 | thread as u64;
        job.memory.shows(64 * thread, expected, "the last put")
    })?;
    job.meet();
    queues.into_iter().skip(1).try_for_each(Queue::free)
}

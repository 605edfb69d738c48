//! §2.1 and §2.5: concurrent calls of a process's threads, and calls for other threads.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::circuit::*;
use super::kit::*;
use crate::kit::Child;

laws! {
    for_another circuit(butterfly(2)): "threads.for-another", "§2.1", 2, [put, armw8, poll_tcq, poll_mrq, barrier, poll_barrier],
        "a thread finds another thread's operations completed: TCQ, MRQ and barriers, without a thread-safe flag";
    several_cqs with(256): "threads.several-cqs", "§2.5", 2, [create_vcq_with_cmp_id, put, armw8, reg_mem, dereg_mem] + ordering,
        "threads use VCQs without flags, on a CQ each, at the same time: they communicate, and register the same memory";
    managing with(512): "threads.managing", "§2.5", 2,
        [create_vcq, free_vcq, query_vcq_id, query_vcq_info, construct_vcq_id, get_path_id, alloc_vbg, free_vbg, query_stadd] + ordering,
        "while a thread communicates by a VCQ without flags others manage VCQs of the same CQ, VBGs and ids";
    first: "threads.first", "§2.5", 1, [create_vcq, query_my_coords, get_onesided_tnis, alloc_vbg, put_piggyback8] + bare,
        "the very first calls of a process come from several threads at once";
    counting: "threads.counting", "§2.5, §3.7.5.1", 1, [query_num_unread_tcq, create_vcq, free_vcq],
        "a thread asks for the unread entries of a CQ while another one creates and frees VCQs there";
    beside_a_safe_one with(256): "threads.beside-safe", "§2.5, §3.3.4.1", 2, [create_vcq_with_cmp_id, armw8, poll_tcq, poll_mrq] + ordering,
        "a thread-safe VCQ is used by threads while another one uses a VCQ without the flag on the same CQ";
}

fn for_another(job: &Job<'_>, _: &Circuit, end: u64) -> Verdict {
    let peer = job.right();
    // A separate thread makes each step, and ends before the next step.
    let apart = |work: &(dyn Fn() -> Verdict + Sync)| threads(1, |_| work());
    for round in 1..=20u64 {
        apart(&|| {
            job.armw8(peer, TABLE, ADD, 1).ok(1, LOCAL | TCQ, 1)?;
            job.put(peer, TABLE + 64, TABLE + 8, 8)
                .ok(2, LOCAL | TCQ, 2)?;
            done!(utofu_barrier(end, 0))
        })?;
        apart(&|| equal!((job.queue.tcq()?, job.queue.tcq()?), (1, 2), "cbdata"))?;
        apart(&|| {
            let (first, second) = (job.queue.mrq()?, job.queue.mrq()?);
            ensure_eq!((first.edata, second.edata), (1, 2), "edata");
            equal!(first.rmt_value, round - 1, "the value before")
        })?;
        apart(&|| completed("the barrier", || c!(utofu_poll_barrier(end, 0))))?;
    }
    Ok(())
}

fn several_cqs(job: &Job<'_>) -> Verdict {
    const EACH: u64 = 100;
    // Component 0 of different TNIs: separate CQs, without a flag.
    let queues = (1..4).map(|tni| Queue::with_component(tni, 0, 0));
    let queues = queues.collect::<Result<Vec<_>, _>>()?;
    let shared = Memory::new(1024);
    job.meet();
    threads(3, |nth| {
        let (queue, peer) = (queues[nth], job.right());
        let (vcq, sum) = (job.vcq(peer), job.at(peer, 0));
        for round in 1..=EACH {
            // All threads register the same memory, and parts of it.
            let stadd = queue.register(shared)?;
            let also = queue.register(shared.part(256 * nth, 512))?;
            shared.set(256 * nth, round);
            post::armw8(queue.hdl, vcq, ADD, 1, sum).ok(1, LOCAL | TCQ, 1)?;
            let to = job.at(peer, 64 + 8 * nth);
            post::put(queue.hdl, vcq, also, to, 8).ok(2, LOCAL | TCQ, 2)?;
            ensure_eq!((queue.tcq()?, queue.tcq()?), (1, 2), "cbdata");
            let notices = (queue.mrq()?, queue.mrq()?);
            ensure_eq!((notices.0.edata, notices.1.edata), (1, 2), "edata");
            queue.deregister(stadd)?;
            queue.deregister(also)?;
        }
        queue.has_nothing()
    })?;
    job.meet();
    ensure_eq!(job.memory.get(0), 3 * EACH, "additions");
    let last = job.memory.words([64, 72, 80]);
    ensure_eq!(last, [EACH; 3], "the last puts");
    queues.into_iter().try_for_each(Queue::free)
}

fn managing(job: &Job<'_>) -> Verdict {
    let done = AtomicBool::new(false);
    threads(3, |nth| {
        let peer = job.right();
        if nth == 0 {
            let result = (1..=300u64).try_for_each(|round| {
                job.memory.set(64, round);
                job.put(peer, 64, 8, 8)
                    .ok(round % 256, LOCAL | TCQ, round as usize)?;
                ensure_eq!(job.queue.tcq()?, round as usize, "cbdata");
                equal!(job.queue.mrq()?.edata, round % 256, "edata")
            });
            done.store(true, Ordering::Release);
            return result;
        }
        while !done.load(Ordering::Acquire) {
            // All are on one CQ: the first one of the TNI has room for these.
            let queue = Queue::with_component(TNI, nth as u16, 0)?;
            ensure_eq!(queue.id, vcq_of(job.rank, TNI, nth as u16)?, "the id");
            let (at, tni, cq, _) = vcq_info(queue.id)?;
            ensure_eq!((at, tni, cq), (coords(job.rank)?, TNI, 0), "its parts");
            got!(utofu_get_path_id(job.vcq(peer), null_mut()));
            let vbgs = gates::<3>(TNI, 0)?;
            ensure!(vbgs[0] != vbgs[1] && vbgs[1] != vbgs[2], "one id for two");
            stadd_of(queue.id, 3)?;
            free_gates(&vbgs)?;
            queue.free()?;
        }
        Ok(())
    })?;
    job.meet();
    ensure_eq!(job.memory.get(8), 300, "the last put");
    job.queue.has_nothing()
}

fn first(_: &Ctx) -> Verdict {
    for _ in 0..5 {
        Child::start(&[], || {
            let together = std::sync::Barrier::new(4);
            threads(4, |nth| {
                together.wait();
                if nth % 2 == 0 {
                    my_coords()?;
                }
                let vbg = (nth == 1).then(|| gates(TNI, 0)).transpose()?;
                let queue = Queue::with_component(nth as u16, 0, 0)?;
                let memory = Memory::new(256);
                let stadd = queue.register(memory)?;
                post::put_piggyback8(queue.hdl, queue.id, 7, stadd, 8).noticed(0, 0)?;
                ensure_eq!(memory.get(0), 7, "the put of thread {nth}");
                if let Some([vbg]) = vbg {
                    free_gate(vbg)?;
                }
                queue.close(stadd)
            })
        })?
        .succeeds("four threads")?;
    }
    Ok(())
}

fn counting(ctx: &Ctx) -> Verdict {
    let rounds = if ctx.is_quick() { 500 } else { 50 };
    let queue = Queue::with_component(TNI, 0, 0)?;
    for nth in 1..=3 {
        ok!(utofu_nop(queue.hdl, TCQ, cb(nth)));
    }
    let done = AtomicBool::new(false);
    threads(3, |thread| {
        if thread > 0 {
            while !done.load(Ordering::Acquire) {
                let count = queue.unread_tcq()?;
                // The other VCQ has posted up to two commands.
                ensure!((3..=5).contains(&count), "{count} unread entries");
            }
            return Ok(());
        }
        let result = (0..rounds).try_for_each(|_| {
            let other = Queue::with_component(TNI, 5, 0)?;
            ok!(utofu_nop(other.hdl, TCQ, null_mut()));
            ok!(utofu_nop(other.hdl, TCQ, null_mut()));
            other.free()
        });
        done.store(true, Ordering::Release);
        result
    })?;
    queue.completes(1..=3)?;
    queue.free()
}

fn beside_a_safe_one(job: &Job<'_>) -> Verdict {
    const EACH: u64 = 150;
    let safe = Queue::with_component(TNI, 1, THREAD_SAFE)?;
    let alone = Queue::with_component(TNI, 2, 0)?;
    let seen = AtomicU64::new(0);
    job.meet();
    threads(3, |nth| {
        let queue = if nth == 2 { alone } else { safe };
        let (vcq, to) = (job.vcq(job.right()), job.at(job.right(), 0));
        for _ in 0..EACH {
            post::armw8(queue.hdl, vcq, ADD, 1, to).ok(nth as u64, LOCAL | TCQ, nth + 1)?;
            // Each user of the shared VCQ may take the entry of another one.
            let cbdata = queue.tcq()?;
            ensure!((cbdata == 3) == (nth == 2), "cbdata {cbdata} for {nth}");
            let edata = queue.notice(LCL_ARMW)?.edata;
            ensure!((edata == 2) == (nth == 2), "edata {edata} for {nth}");
            seen.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    })?;
    job.meet();
    ensure_eq!(seen.into_inner(), 3 * EACH, "completions");
    ensure_eq!(job.memory.get(0), 3 * EACH, "additions");
    for_all([safe, alone], |queue| {
        queue.has_nothing()?;
        queue.free()
    })
}

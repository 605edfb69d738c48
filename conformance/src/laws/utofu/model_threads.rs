//! §2.1 and §2.5: what threads of a process may do at the same time, and for each other.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::barrier::{Circuit, TABLE, butterfly, completed};
use super::kit::*;
use crate::law::{Ctx, Verdict};
use crate::{ensure, ensure_eq};
use unipgas::utofu::status::Code;

laws! {
    for_another: "threads.for-another", "§2.1", 2, [put, armw8, poll_tcq, poll_mrq, barrier, poll_barrier],
        "what one thread has started another one finds completed: TCQ, MRQ and barriers, without a thread-safe flag";
    one_vbg: "threads.one-vbg", "§2.5, §3.4.5.1", 2, [alloc_vbg, reduce_uint64, poll_reduce_uint64] + ordering,
        "threads that start and poll on one thread-safe VBG: every round is started by one, and ended by one";
    vbgs: "threads.vbgs", "§2.5", 2, [alloc_vbg, barrier, poll_barrier, reduce_uint64, poll_reduce_uint64] + ordering,
        "threads use a VBG each at the same time, without a flag";
    several_cqs: "threads.several-cqs", "§2.5", 2, [create_vcq_with_cmp_id, put, armw8, reg_mem, dereg_mem] + ordering,
        "threads use VCQs without flags, on a CQ each, at the same time: they communicate, and register the same memory";
    managing: "threads.managing", "§2.5", 2,
        [create_vcq, free_vcq, query_vcq_id, query_vcq_info, construct_vcq_id, get_path_id, alloc_vbg, free_vbg, query_stadd] + ordering,
        "while a thread communicates by a VCQ without flags others manage VCQs of the same CQ, VBGs and ids";
    counting: "threads.counting", "§2.5, §3.7.5.1", 1, [query_num_unread_tcq, create_vcq, free_vcq],
        "a thread asks for the unread entries of a CQ while another one creates and frees VCQs there";
    beside_a_safe_one: "threads.beside-safe", "§2.5, §3.3.4.1", 2, [create_vcq_with_cmp_id, armw8, poll_tcq, poll_mrq] + ordering,
        "a thread-safe VCQ is used by threads while another one uses a VCQ without the flag on the same CQ";
}

fn for_another(ctx: &Ctx) -> Verdict {
    with(ctx, TABLE.next_multiple_of(256) + 256, |job| {
        let circuit = Circuit::build(job, butterfly(2), TNI)?;
        let end = circuit.ends()[0];
        let (vcq, word) = (job.vcq(job.right()), TABLE.next_multiple_of(256));
        // Each step by a thread of its own, which has ended before the next one begins.
        let apart = |work: &(dyn Fn() -> Verdict + Sync)| threads(1, |_| work());
        for round in 1..=20u64 {
            apart(&|| {
                let (to, from) = (job.at(job.right(), word), job.stadd + word as u64 + 64);
                ok!(utofu_armw8(job.hdl, vcq, ADD, 1, to, 1, LOCAL | TCQ, cb(1)));
                let to = job.at(job.right(), word + 8);
                ok!(utofu_put(job.hdl, vcq, from, to, 8, 2, LOCAL | TCQ, cb(2)));
                ok!(utofu_barrier(end, 0));
                Ok(())
            })?;
            apart(&|| {
                ensure_eq!((job.queue.tcq()?, job.queue.tcq()?), (1, 2), "cbdata");
                Ok(())
            })?;
            apart(&|| {
                let (first, second) = (job.queue.mrq()?, job.queue.mrq()?);
                ensure_eq!((first.edata, second.edata), (1, 2), "edata");
                ensure_eq!(first.rmt_value, round - 1, "the value before");
                Ok(())
            })?;
            apart(&|| completed("the barrier", || c!(utofu_poll_barrier(end, 0))))?;
        }
        job.meet();
        circuit.free()
    })
}

/// A VBG in a circuit of two: each tells itself by the signal, and the other one by the packet.
fn pair(job: &Job<'_>, tni: u16, flags: u64, at: usize) -> Result<u64, String> {
    let mut id = 0;
    ok!(utofu_alloc_vbg(tni, 1, flags, &mut id));
    job.write(job.right(), at, id)?;
    job.meet();
    let peer = job.memory.get(at);
    let setting = unipgas::utofu::vbg::VbgSetting {
        vbg_id: id,
        src_lcl_vbg_id: id,
        src_rmt_vbg_id: peer,
        dst_lcl_vbg_id: id,
        dst_rmt_vbg_id: peer,
        dst_path_coords: [u8::MAX; 3],
    };
    ok!(utofu_set_vbg(&setting, 1));
    job.meet();
    Ok(id)
}

fn one_vbg(ctx: &Ctx) -> Verdict {
    const THREADS: usize = 3;
    const EACH: u64 = 3000;
    with(ctx, 256, |job| {
        let id = pair(job, TNI, THREAD_SAFE, 8)?;
        let ended = AtomicU64::new(0);
        threads(THREADS, |_| {
            let mut left = EACH;
            let what = format!("{} rounds on one VBG", EACH * THREADS as u64);
            let mut try_both = || {
                if left > 0 {
                    let data = [1u64, 5];
                    match c!(utofu_reduce_uint64(id, 7, data.as_ptr(), 2, 0)) {
                        SUCCESS => left -= 1,
                        BUSY => {}
                        code => return Err(format!("starting gave {}", code_name(code))),
                    }
                }
                let mut data = [0u64; 2];
                match c!(utofu_poll_reduce_uint64(id, 0, data.as_mut_ptr())) {
                    SUCCESS if data == [2, 10] => drop(ended.fetch_add(1, Ordering::AcqRel)),
                    SUCCESS => return Err(format!("a sum of {data:?}")),
                    code if code == BUSY || code == Code::NotCompleted as i32 => {}
                    code => return Err(format!("polling gave {}", code_name(code))),
                }
                Ok(left == 0 && ended.load(Ordering::Acquire) >= EACH * THREADS as u64)
            };
            let mut failure: Verdict = Ok(());
            until(&what, || {
                // Many times before others have the core: so they are stopped at any place.
                for _ in 0..500 {
                    match try_both() {
                        Ok(false) => {}
                        Ok(true) => return true,
                        Err(why) => {
                            failure = Err(why);
                            return true;
                        }
                    }
                }
                false
            })?;
            failure
        })?;
        ensure_eq!(
            ended.into_inner(),
            EACH * THREADS as u64,
            "rounds that have ended"
        );
        gives!(Busy, utofu_poll_barrier(id, 0));
        job.meet();
        ok!(utofu_free_vbg(&id, 1));
        Ok(())
    })
}

fn vbgs(ctx: &Ctx) -> Verdict {
    with(ctx, 256, |job| {
        let mut ids = Vec::new();
        for nth in 0..3 {
            // Two on one TNI, one on another.
            ids.push(pair(job, TNI + nth as u16 / 2, 0, 8 + 8 * nth)?);
        }
        threads(3, |nth| {
            let end = ids[nth];
            for round in 0..200u64 {
                if nth == 0 {
                    ok!(utofu_barrier(end, 0));
                    completed("a barrier", || c!(utofu_poll_barrier(end, 0)))?;
                    continue;
                }
                let mut data = [round * nth as u64];
                ok!(utofu_reduce_uint64(end, 7, data.as_ptr(), 1, 0));
                completed("a sum", || {
                    c!(utofu_poll_reduce_uint64(end, 0, data.as_mut_ptr()))
                })?;
                ensure_eq!(data, [2 * round * nth as u64], "the sum of thread {nth}");
            }
            Ok(())
        })?;
        job.meet();
        for id in &ids {
            ok!(utofu_free_vbg(id, 1));
        }
        Ok(())
    })
}

fn several_cqs(ctx: &Ctx) -> Verdict {
    const EACH: u64 = 100;
    with(ctx, 256, |job| {
        // Of the component 0 of a TNI each: CQs of their own, without a flag.
        let queues: Vec<Queue> = (1..4)
            .map(|tni| Queue::with_component(tni, 0, 0))
            .collect::<Result<_, _>>()?;
        let shared = Memory::leaked(1024);
        job.meet();
        threads(3, |nth| {
            let (queue, peer) = (queues[nth], job.right());
            let (vcq, sum) = (job.vcq(peer), job.at(peer, 0));
            for round in 1..=EACH {
                // All threads register the same memory, and parts of it.
                let stadd = queue.register(shared)?;
                let part = Memory {
                    base: shared.base.wrapping_add(256 * nth),
                    len: 512,
                };
                let also = queue.register(part)?;
                shared.set(256 * nth, round);
                ok!(utofu_armw8(
                    queue.hdl,
                    vcq,
                    ADD,
                    1,
                    sum,
                    1,
                    LOCAL | TCQ,
                    cb(1)
                ));
                let to = job.at(peer, 64 + 8 * nth);
                ok!(utofu_put(
                    queue.hdl,
                    vcq,
                    also,
                    to,
                    8,
                    2,
                    LOCAL | TCQ,
                    cb(2)
                ));
                ensure_eq!((queue.tcq()?, queue.tcq()?), (1, 2), "cbdata");
                let notices = (queue.mrq()?, queue.mrq()?);
                ensure_eq!((notices.0.edata, notices.1.edata), (1, 2), "edata");
                queue.deregister(stadd)?;
                queue.deregister(also)?;
            }
            queue.tcq_is_empty()?;
            queue.mrq_is_empty()
        })?;
        job.meet();
        ensure_eq!(job.memory.get(0), 3 * EACH, "additions");
        for nth in 0..3 {
            ensure_eq!(job.memory.get(64 + 8 * nth), EACH, "the last put of {nth}");
        }
        for queue in queues {
            queue.free()?;
        }
        shared.free();
        Ok(())
    })
}

fn managing(ctx: &Ctx) -> Verdict {
    with(ctx, 512, |job| {
        let done = AtomicBool::new(false);
        threads(3, |nth| {
            let peer = job.right();
            if nth == 0 {
                let result = (1..=300u64).try_for_each(|round| {
                    let (vcq, to) = (job.vcq(peer), job.at(peer, 8));
                    job.memory.set(64, round);
                    ok!(utofu_put(
                        job.hdl,
                        vcq,
                        job.stadd + 64,
                        to,
                        8,
                        round % 256,
                        LOCAL | TCQ,
                        cb(round as usize)
                    ));
                    ensure_eq!(job.queue.tcq()?, round as usize, "cbdata");
                    ensure_eq!(job.queue.mrq()?.edata, round % 256, "edata");
                    Ok(())
                });
                done.store(true, Ordering::Release);
                return result;
            }
            while !done.load(Ordering::Acquire) {
                // The same CQ: the first one of the TNI has room for these.
                let queue = Queue::with_component(TNI, nth as u16, 0)?;
                ensure_eq!(queue.id, vcq_of(job.rank, TNI, nth as u16)?, "the id");
                let (mut at, mut tni, mut cq, mut extra) = ([0; 6], 9, 9, 0);
                ok!(utofu_query_vcq_info(
                    queue.id,
                    at.as_mut_ptr(),
                    &mut tni,
                    &mut cq,
                    &mut extra
                ));
                ensure_eq!((at, tni, cq), (coords(job.rank)?, TNI, 0), "its parts");
                let mut path = 0;
                ok!(utofu_get_path_id(
                    job.vcq(peer),
                    std::ptr::null(),
                    &mut path
                ));
                let mut vbgs = [0u64; 3];
                ok!(utofu_alloc_vbg(TNI, 3, 0, vbgs.as_mut_ptr()));
                ensure!(vbgs[0] != vbgs[1] && vbgs[1] != vbgs[2], "one id for two");
                stadd_of(queue.id, 3)?;
                ok!(utofu_free_vbg(vbgs.as_ptr(), 3));
                queue.free()?;
            }
            Ok(())
        })?;
        job.meet();
        ensure_eq!(job.memory.get(8), 300, "the last put");
        job.queue.tcq_is_empty()?;
        job.queue.mrq_is_empty()
    })
}

fn counting(ctx: &Ctx) -> Verdict {
    let rounds = if ctx.backend == "chaos" { 50 } else { 500 };
    let queue = Queue::with_component(TNI, 0, 0)?;
    for nth in 1..=3 {
        ok!(utofu_nop(queue.hdl, TCQ, cb(nth)));
    }
    let done = AtomicBool::new(false);
    threads(3, |thread| {
        if thread > 0 {
            while !done.load(Ordering::Acquire) {
                let mut count = usize::MAX;
                ok!(utofu_query_num_unread_tcq(queue.hdl, &mut count));
                // The other VCQ has posted up to two.
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
    for nth in 1..=3 {
        ensure_eq!(queue.tcq()?, nth, "cbdata");
    }
    queue.free()
}

fn beside_a_safe_one(ctx: &Ctx) -> Verdict {
    const EACH: u64 = 150;
    with(ctx, 256, |job| {
        let safe = Queue::with_component(TNI, 1, THREAD_SAFE)?;
        let alone = Queue::with_component(TNI, 2, 0)?;
        let seen = AtomicU64::new(0);
        job.meet();
        threads(3, |nth| {
            let queue = if nth == 2 { alone } else { safe };
            let (vcq, to) = (job.vcq(job.right()), job.at(job.right(), 0));
            for _ in 0..EACH {
                ok!(utofu_armw8(
                    queue.hdl,
                    vcq,
                    ADD,
                    1,
                    to,
                    nth as u64,
                    LOCAL | TCQ,
                    cb(nth + 1)
                ));
                // Of the shared one, whose does not matter.
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
        for queue in [safe, alone] {
            queue.tcq_is_empty()?;
            queue.mrq_is_empty()?;
            queue.free()?;
        }
        Ok(())
    })
}

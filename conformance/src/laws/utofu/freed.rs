//! §3.3.1.3 and §3.4.1.2: a thread frees a VCQ or VBG while others are in calls with it.
//! The guide does not define the result of these calls.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use super::circuit::*;
use super::kit::*;

laws! {
    vcq: "freed.vcq", "§3.3.1.3, §2.5", 2,
        [free_vcq, create_vcq_with_cmp_id, put, put_piggyback8, put_stride, get, get_stride, armw4, armw8, cswap4, cswap8, nop, prepare_nop, post_toq,
         poll_tcq, poll_mrq, reg_mem, dereg_mem, query_num_unread_tcq, query_num_unread_mrq, query_vcq_id],
        "a VCQ is freed while threads are in calls with it: each call ends as for a VCQ that is there, or with UTOFU_ERR_INVALID_VCQ_HDL";
    session: "freed.session", "§3.3.1.3, §2.2.8", 2, [free_vcq, create_vcq, put, put_piggyback8, poll_tcq, poll_mrq],
        "the same for a session mode VCQ with commands that wait or start";
    alone: "freed.alone", "§3.3.1.3, §2.5", 2, [free_vcq, create_vcq_with_cmp_id, put, get, armw8, poll_tcq, poll_mrq],
        "the same of a VCQ that one other thread uses, without the flag THREAD_SAFE";
    vbg: "freed.vbg", "§3.4.1.2, §2.5", 1,
        [free_vbg, alloc_vbg, set_vbg, barrier, poll_barrier, reduce_uint64, poll_reduce_uint64, reduce_double, poll_reduce_double],
        "VBGs are freed while threads are in calls with them: each call ends as for VBGs that are there, or with UTOFU_ERR_INVALID_VBG_ID";
}

/// The component of the VCQ that is freed, and its memory's STag.
const COMPONENT: u16 = 1;
const TAKEN: u32 = 5;

/// The VCQ that exists now.
struct Shown {
    hdl: AtomicUsize,
    id: AtomicU64,
}

pub(crate) type Call = fn(hdl: usize, own: u64, peer: u64) -> i32;

/// Commands. Polls of the same thread take their completions. Memory: [`TAKEN`] of the VCQ itself, [`STAG`] of the peer.
pub(crate) const COMMANDS: [Call; 12] = [
    |hdl, own, peer| post::put(hdl, peer, own, stadd(peer, STAG), 256).code(0, TCQ | LOCAL, 1),
    |hdl, own, peer| post::put(hdl, peer, own, stadd(peer, STAG), 2048).code(0, TCQ, 1),
    |hdl, _, peer| post::put_piggyback8(hdl, peer, 7, stadd(peer, STAG), 8).code(0, TCQ, 1),
    |hdl, own, peer| post::get(hdl, peer, own, stadd(peer, STAG), 512).code(0, TCQ | LOCAL, 1),
    |hdl, _, peer| post::armw8(hdl, peer, ADD, 1, stadd(peer, STAG)).code(0, TCQ | LOCAL, 1),
    |hdl, _, peer| post::cswap8(hdl, peer, 1, 2, stadd(peer, STAG)).code(0, TCQ | LOCAL, 1),
    |hdl, own, peer| post::put_stride(hdl, peer, own, stadd(peer, STAG), 8, 64, 4).code(0, TCQ, 1),
    |hdl, _, _| c!(utofu_nop(hdl, TCQ, cb(1))),
    |hdl, own, peer| post::get_stride(hdl, peer, own, stadd(peer, STAG), 8, 64, 4).code(0, TCQ, 1),
    |hdl, _, peer| post::armw4(hdl, peer, ADD, 1, stadd(peer, STAG)).code(0, TCQ | LOCAL, 1),
    |hdl, _, peer| post::cswap4(hdl, peer, 1, 2, stadd(peer, STAG)).code(0, TCQ | LOCAL, 1),
    |hdl, _, _| {
        let (mut toq, mut size) = ([0u64; 8], 0);
        let at = toq.as_mut_ptr().cast();
        match c!(utofu_prepare_nop(hdl, TCQ, at, &mut size)) {
            SUCCESS => c!(utofu_post_toq(hdl, at, size, cb(1))),
            code => code,
        }
    },
];

/// Other calls with a VCQ.
pub(crate) const CALLS: [Call; 3] = [
    |hdl, _, _| {
        let mut count = 0;
        match c!(utofu_query_num_unread_tcq(hdl, &mut count)) {
            SUCCESS => c!(utofu_query_num_unread_mrq(hdl, &mut count)),
            code => code,
        }
    },
    |hdl, _, _| {
        let mut id = 0;
        c!(utofu_query_vcq_id(hdl, &mut id))
    },
    |hdl, _, _| {
        let (memory, mut stadd) = ([0u64; 8], 0);
        let at = memory.as_ptr().cast_mut().cast();
        match c!(utofu_reg_mem(hdl, at, 64, 0, &mut stadd)) {
            SUCCESS => c!(utofu_dereg_mem(hdl, stadd, 0)),
            code => code,
        }
    },
];

/// Entries of the TCQ by command `nth` of [`COMMANDS`]: a command with strides has one for each block.
pub(super) fn entries(nth: usize) -> usize {
    if [6, 8].contains(&nth) { 4 } else { 1 }
}

fn stadd(vcq: u64, stag: u32) -> u64 {
    stadd_of(vcq, stag).unwrap_or_default()
}

/// Whether a call may end with this code while another thread frees its VCQ.
fn is_expected(code: i32) -> bool {
    let of_polls = UTOFU_ERR_MRQ_RMT_LENGTH..=UTOFU_ERR_TCQ_OTHER;
    let of_calls = [
        SUCCESS,
        NOT_FOUND,
        BUSY,
        UTOFU_ERR_INVALID_VCQ_HDL,
        UTOFU_ERR_INVALID_STADD,
    ];
    of_calls.contains(&code) || of_polls.contains(&code)
}

fn check(name: &str, code: i32) -> Verdict {
    ensure!(is_expected(code), "{name} gave {}", code_name(code));
    Ok(())
}

/// A thread that uses the VCQ of `shown` until `stop`, with each call of `calls` and both polls.
fn use_it(
    job: &Job<'_>,
    shown: &Shown,
    stop: &AtomicBool,
    calls: &[Call],
    used: &AtomicU32,
) -> Verdict {
    let peer = job.vcq(job.right());
    while !stop.load(Ordering::Acquire) {
        for (nth, call) in calls.iter().enumerate() {
            let hdl = shown.hdl.load(Ordering::Acquire);
            let own = stadd(shown.id.load(Ordering::Acquire), TAKEN);
            let code = call(hdl, own, peer);
            check(&format!("call {nth}"), code)?;
            used.fetch_add(u32::from(code == SUCCESS), Ordering::Relaxed);
            let queue = Queue { hdl, id: 0 };
            check("utofu_poll_tcq", queue.poll_tcq().0)?;
            check("utofu_poll_mrq", queue.poll_mrq().0)?;
        }
    }
    Ok(())
}

/// Frees the queues of `make` again and again. One thread for each entry of `calls` uses them; one more thread runs `beside`.
fn freed(
    ctx: &Ctx,
    make: impl Fn() -> Result<Queue, String> + Sync,
    calls: &[&[Call]],
    beside: impl Fn(&Job<'_>, u64) + Sync,
) -> Verdict {
    with_flags(ctx, 4096, THREAD_SAFE, |job| {
        let fresh = || {
            let (queue, memory) = (make()?, Memory::pages(4096)?);
            queue.register_as(memory, TAKEN)?;
            Ok::<_, String>((queue, memory))
        };
        let mut there = fresh()?;
        let shown = Shown {
            hdl: there.0.hdl.into(),
            id: there.0.id.into(),
        };
        let (stop, used) = (AtomicBool::new(false), AtomicU32::new(0));
        job.meet();
        let verdict = threads(calls.len() + 2, |thread| {
            if let Some(calls) = calls.get(thread) {
                return use_it(job, &shown, &stop, calls, &used);
            }
            if thread == calls.len() {
                while !stop.load(Ordering::Acquire) {
                    beside(job, shown.id.load(Ordering::Acquire));
                    while job.queue.poll_tcq().0 != NOT_FOUND {}
                    while job.queue.poll_mrq().0 != NOT_FOUND {}
                }
                return Ok(());
            }
            let mut there = there;
            let ended = (0..if ctx.is_quick() { 40 } else { 10 }).try_for_each(|round| {
                pause(ctx.random(round).below(3));
                let (queue, memory) = there;
                queue.free()?;
                // SAFETY:
                // - a mapping of this law; no call uses it any more.
                unsafe { libc::munmap(memory.base.cast(), memory.len) };
                gives!(UTOFU_ERR_INVALID_VCQ_HDL, utofu_free_vcq(queue.hdl));
                there = fresh()?;
                shown.id.store(there.0.id, Ordering::Release);
                shown.hdl.store(there.0.hdl, Ordering::Release);
                Ok(())
            });
            stop.store(true, Ordering::Release);
            ended
        });
        verdict?;
        ensure!(used.load(Ordering::Relaxed) > 0, "no call has succeeded");
        job.meet();
        // Frees the last one.
        let hdl = shown.hdl.load(Ordering::Acquire);
        there.0.hdl = hdl;
        there.0.free()
    })
}

fn vcq(ctx: &Ctx) -> Verdict {
    let make = || Queue::with_component(TNI, COMPONENT, THREAD_SAFE);
    freed(ctx, make, &[&COMMANDS, &COMMANDS, &CALLS], |job, id| {
        // Sends notices to it until it is freed.
        post::put_piggyback8(job.hdl, id, 1, stadd(id, TAKEN), 8).code(0, REMOTE | TCQ, 1);
    })
}

fn session(ctx: &Ctx) -> Verdict {
    let make = || Queue::create(TNI, SESSION_MODE | THREAD_SAFE);
    freed(ctx, make, &[&COMMANDS[..2], &COMMANDS[..1]], |job, id| {
        let steps = sps(1);
        post::put_piggyback8(job.hdl, id, 1, stadd(id, TAKEN), 8).code(0, steps | TCQ, 1);
    })
}

fn alone(ctx: &Ctx) -> Verdict {
    // The VCQ has a separate CQ.
    let make = || Queue::with_component(TNI + 1, COMPONENT, 0);
    freed(ctx, make, &[&COMMANDS], |_, _| pause(1))
}

/// Calls with a VBG.
pub(crate) const OF_GATES: [fn(u64) -> i32; 6] = [
    |vbg| start(vbg, 0, &[]),
    |vbg| poll(vbg, 0, &mut []),
    |vbg| start(vbg, SUM, &[1; 4]),
    |vbg| poll(vbg, SUM, &mut [0; 6]),
    |vbg| start(vbg, BFPSUM, &[1f64.to_bits(); 3]),
    |vbg| poll(vbg, BFPSUM, &mut [0; 3]),
];

/// A circuit within this process.
pub(crate) fn circuit() -> Result<[u64; 2], String> {
    let ids = gates::<2>(TNI, UTOFU_VBG_FLAG_THREAD_SAFE)?;
    let gate = |one: usize| setting(ids[one], [ids[1 - one]; 2], [NULL; 2]);
    set_gates(&[gate(0), gate(1)])?;
    Ok(ids)
}

fn vbg(ctx: &Ctx) -> Verdict {
    let first = circuit()?;
    let shown = AtomicU64::new(first[0]);
    let (stop, used) = (AtomicBool::new(false), AtomicU32::new(0));
    threads(3, |thread| {
        if thread < 2 {
            while !stop.load(Ordering::Acquire) {
                for (nth, call) in OF_GATES.iter().enumerate() {
                    let code = call(shown.load(Ordering::Acquire));
                    let expected = [
                        SUCCESS,
                        BUSY,
                        UTOFU_ERR_NOT_COMPLETED,
                        UTOFU_ERR_INVALID_VBG_ID,
                        UTOFU_ERR_BARRIER_MISMATCH,
                        UTOFU_ERR_BARRIER_OTHER,
                    ];
                    one_of(code, &expected, format!("call {nth}"))?;
                    used.fetch_add(u32::from(code == SUCCESS), Ordering::Relaxed);
                }
            }
            return Ok(());
        }
        let mut there = first;
        let ended = (0..if ctx.is_quick() { 200 } else { 40 }).try_for_each(|round| {
            pause(ctx.random(round).below(2));
            free_gates(&there)?;
            there = circuit()?;
            shown.store(there[0], Ordering::Release);
            Ok(())
        });
        stop.store(true, Ordering::Release);
        free_gates(&there)?;
        ended
    })?;
    ensure!(used.load(Ordering::Relaxed) > 0, "no call has succeeded");
    Ok(())
}

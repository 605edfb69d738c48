//! §3.3.1.3 and §3.6.1.4: freed objects use no memory, neither here nor at peers, however often a program repeats this.
//! Other users at that time get no wrong results.

use std::sync::atomic::{AtomicBool, Ordering};

use super::circuit::*;
use super::kit::*;
use crate::growth::stays_small;
use crate::kit::program;

laws! {
    own_vcq: "growth.own-vcq", "§3.3.1.3", 1, [create_vcq_with_cmp_id, free_vcq, put_piggyback8],
        "a process that creates a VCQ, puts to it and frees it, a thousand times, does not grow";
    peers_vcq: "growth.peers-vcq", "§3.3.1.3", 2, [create_vcq_with_cmp_id, free_vcq, put_piggyback8],
        "a process that puts to a thousand VCQs of a peer, one after the other under one id, does not grow, and each gets its word";
    peers_memory: "growth.peers-memory", "§3.6.1.4", 2, [reg_mem_with_stag, dereg_mem, put_piggyback8],
        "a process that puts to a peer's memory, tens of thousands of registrations of it, does not grow, and each gets its word";
    peers: "growth.peers", "§3.1.2.1, §3.3.1.3", 2, [create_vcq_with_cmp_id, put_piggyback8, get] + bare,
        "a process that puts to the VCQs of programs that follow each other at one place does not grow, and each of them gets its words";
    peers_gates: "growth.peers-gates", "§3.1.2.1, §3.4.2.1", 2, [alloc_vbg, set_vbg, barrier, poll_barrier] + bare,
        "a process with gates connected to successive programs at one place keeps nothing of ended ones";
    own_gates: "growth.own-gates", "§3.4.1.2", 1, [alloc_vbg, free_vbg, set_vbg, barrier, poll_barrier],
        "a process that allocates gates, uses and frees them, a thousand times, does not grow";
    meanwhile: "growth.meanwhile", "§2.5, §3.3.1.3, §3.6.1.4", 2,
        [create_vcq_with_cmp_id, free_vcq, reg_mem_with_stag, dereg_mem, put_piggyback8, poll_mrq],
        "threads put to a VCQ that is freed and created again, and to memory that is registered again: each put succeeds or says what is missing";
}

/// Component of the VCQ that is created and freed again and again.
const COMPONENT: u16 = 5;

/// Puts a word; returns the code of its notice.
fn try_word(queue: Queue, to: u64, at: u64, word: u64) -> Result<i32, String> {
    post::put_piggyback8(queue.hdl, to, word, at, 8).ok(0, LOCAL, 0)?;
    let (code, _) = queue.next_mrq()?;
    // The poll reclaims commands without a requested completion.
    queue.tcq_is_empty()?;
    Ok(code)
}

/// Puts a word, and waits until it is there.
fn put_word(queue: Queue, to: u64, at: u64, word: u64) -> Verdict {
    match try_word(queue, to, at, word)? {
        SUCCESS => Ok(()),
        code => Err(format!("a put gave {}", code_name(code))),
    }
}

const VCQS: u64 = 1000;
/// A leak of each VCQ would add up to more than 64 MiB.
const MOST: u64 = 8 << 10;

fn own_vcq(_ctx: &Ctx) -> Verdict {
    let memory = Memory::new(4096);
    stays_small(VCQS, MOST, |nth| {
        let queue = Queue::with_component(TNI, COMPONENT, 0)?;
        let stadd = queue.register_as(memory, STAG)?;
        put_word(queue, queue.id, stadd, nth + 1)?;
        ensure_eq!(memory.get(0), nth + 1, "the word");
        queue.close(stadd)
    })
}

fn peers_vcq(ctx: &Ctx) -> Verdict {
    let own = Queue::create(TNI, 0)?;
    let there = vcq_of(0, TNI, COMPONENT)?;
    let memory = Memory::new(4096);
    stays_small(VCQS, MOST, |nth| {
        let fresh = (ctx.rank == 0)
            .then(|| {
                let queue = Queue::with_component(TNI, COMPONENT, 0)?;
                Ok::<_, String>((queue, queue.register_as(memory, STAG)?))
            })
            .transpose()?;
        ctx.sync();
        if ctx.rank == 1 {
            put_word(own, there, stadd_of(there, STAG)?, nth + 1)?;
        }
        ctx.sync();
        if let Some((queue, stadd)) = fresh {
            ensure_eq!(memory.get(0), nth + 1, "the word");
            queue.close(stadd)?;
        }
        Ok(())
    })?;
    own.free()
}

/// Simultaneous registrations.
const STAGS: usize = 250;

fn peers_memory(ctx: &Ctx) -> Verdict {
    const PART: usize = 256;
    with(ctx, STAGS * PART, |job| {
        // A leak of each of 50000 registrations would add up to 8 MiB.
        stays_small(200, 2 << 10, |round| {
            let stags = STAG + 1..STAG + 1 + STAGS as u32;
            let word = |stag: u32| round * 1000 + u64::from(stag);
            let mut registered = Vec::new();
            if job.rank == 0 {
                for (nth, stag) in stags.clone().enumerate() {
                    registered.push(
                        job.queue
                            .register_as(job.memory.part(nth * PART, PART), stag)?,
                    );
                }
            }
            job.meet();
            if job.rank == 1 {
                for stag in stags.clone() {
                    let at = stadd_of(job.vcq(0), stag)?;
                    put_word(job.queue, job.vcq(0), at, word(stag))?;
                }
            }
            job.meet();
            for (nth, stadd) in registered.into_iter().enumerate() {
                let expected = word(STAG + 1 + nth as u32);
                ensure_eq!(job.memory.get(nth * PART), expected, "a word");
                job.queue.deregister(stadd)?;
            }
            Ok(())
        })
    })
}

/// Gets words of the program at rank 0's place until the first one is the mark of this life.
fn await_mark(own: Queue, memory: Memory, offset: usize, life: u64) -> Verdict {
    let here = own.register(memory)?;
    let first = vcq_of(0, TNI, 0)?;
    let there = stadd_of(first, STAG)? + offset as u64;
    memory.set(0, 0);
    until("the next program's mark", || {
        let code = post::get(own.hdl, first, here, there, 24).code(0, LOCAL, 0);
        let _ = (own.next_mrq(), own.poll_tcq());
        pause(1);
        code != SUCCESS || memory.get(0) == life
    })?;
    ensure_eq!(memory.get(0), life, "the mark");
    own.deregister(here)
}

/// VCQs of each program: eight components on each of these TNIs.
const TNIS: u16 = 4;

fn peers(ctx: &Ctx) -> Verdict {
    let places = || (0..TNIS).flat_map(|tni| (0..8).map(move |component| (tni, component)));
    let own = (ctx.rank == 1).then(|| Queue::create(TNI, 0)).transpose()?;
    let memory = Memory::new(4096);
    let mark = 8 * places().count();
    // A leak of one program with all its VCQs is 2 MiB.
    stays_small(16, 8 << 10, |nth| {
        let life = nth + 1;
        if let Some(own) = own {
            await_mark(own, memory, mark, life)?;
            for (index, (tni, component)) in places().enumerate() {
                let vcq = vcq_of(0, tni, component)?;
                put_word(own, vcq, stadd_of(vcq, STAG)? + 8 * index as u64, life)?;
            }
        } else {
            program(&[], &format!("life {life}"), || {
                memory.set(mark, life);
                // The VCQ that the peer finds first is the last one created: then all exist.
                for (tni, component) in places().collect::<Vec<_>>().into_iter().rev() {
                    Queue::with_component(tni, component, 0)?.register_as(memory, STAG)?;
                }
                until("the peer's words", || {
                    (0..places().count()).all(|index| memory.get(8 * index) == life)
                })
            })?;
        }
        ctx.sync();
        Ok(())
    })
}

/// Mappings and descriptors of this process.
fn holdings() -> Result<usize, String> {
    let maps = std::fs::read_to_string("/proc/self/maps").map_err(|e| e.to_string())?;
    let descriptors = std::fs::read_dir("/proc/self/fd").map_err(|e| e.to_string())?;
    Ok(maps.lines().count() + descriptors.count())
}

fn peers_gates(ctx: &Ctx) -> Verdict {
    const LIVES: u64 = 48;
    let words = Memory::new(4096);
    let own = (ctx.rank == 1).then(|| Queue::create(TNI, 0)).transpose()?;
    let mut gate = 0;
    if own.is_some() {
        [gate] = gates(TNI, 0)?;
        ctx.tell(&gate.to_le_bytes());
    }
    ctx.sync();
    let told = ctx.told(1).ok_or("rank 1 has told nothing")?;
    let gate_of_1 = u64::from_le_bytes(told.try_into().map_err(|_| "no VBG ID")?);
    let mut before = 0;
    for life in 1..=LIVES {
        if let Some(own) = own {
            await_mark(own, words, 0, life)?;
            // The mark comes with the ID of the other gate.
            set_gates(&[beside(gate, words.get(16))])?;
            let first = vcq_of(0, TNI, 0)?;
            put_word(own, first, stadd_of(first, STAG)? + 8, life)?;
            one_barrier(gate)?;
            if life == LIVES / 4 {
                before = holdings()?;
            }
        } else {
            program(&[], &format!("life {life}"), || {
                let queue = Queue::with_component(TNI, 0, 0)?;
                let [gate] = gates(TNI, 0)?;
                set_gates(&[beside(gate, gate_of_1)])?;
                words.set(16, gate);
                words.set(0, life);
                words.set(8, 0);
                queue.register_as(words, STAG)?;
                until("the peer's word", || words.get(8) == life)?;
                one_barrier(gate)
            })?;
        }
        ctx.sync();
    }
    if ctx.rank == 1 {
        // Reclaim is lazy, so some remain. Each had at least one mapping and one descriptor.
        let grown = holdings()?.saturating_sub(before);
        ensure!(
            grown <= LIVES as usize / 4,
            "{grown} more mappings and descriptors after {} more lives",
            LIVES - LIVES / 4
        );
    }
    Ok(())
}

fn own_gates(_ctx: &Ctx) -> Verdict {
    // A leak of each of a thousand circuits would add up to at least 1 MiB.
    stays_small(1000, 512, |nth| {
        let ids = gates::<3>(TNI + (nth % 6) as u16, 0)?;
        let gate =
            |at: usize, from: usize, to: usize| setting(ids[at], [ids[from], ids[to]], [NULL; 2]);
        set_gates(&[gate(0, 2, 1), gate(1, 0, 2), gate(2, 1, 0)])?;
        one_barrier(ids[0])?;
        free_gates(&ids)
    })
}

/// Threads of rank 1 that put; the last two share a VCQ.
const THREADS: usize = 4;

fn meanwhile(ctx: &Ctx) -> Verdict {
    let there = vcq_of(0, TNI, COMPONENT)?;
    let at = stadd_of(there, STAG)?;
    if ctx.rank == 0 {
        let memory = Memory::new(4096);
        ctx.sync();
        for round in 0..200 {
            let queue = Queue::with_component(TNI, COMPONENT, 0)?;
            for _ in 0..5 {
                let stadd = queue.register_as(memory, STAG)?;
                if round % 8 == 0 {
                    pause(1);
                } else {
                    std::thread::yield_now();
                }
                queue.deregister(stadd)?;
            }
            queue.free()?;
        }
        let queue = Queue::with_component(TNI, COMPONENT, 0)?;
        let stadd = queue.register_as(memory, STAG)?;
        memory.fill(0);
        ctx.sync();
        ctx.sync();
        for nth in 0..THREADS {
            ensure_eq!(memory.get(8 * nth), 77, "the last word of thread {nth}");
        }
        queue.deregister(stadd)?;
        return queue.free();
    }
    let own = [
        Queue::create(TNI, 0)?,
        Queue::create(TNI, 0)?,
        Queue::create(TNI, THREAD_SAFE)?,
    ];
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let working = scope.spawn(|| {
            threads(THREADS, |thread| {
                let queue = own[thread.min(own.len() - 1)];
                let mut round = 0u64;
                while !done.load(Ordering::Relaxed) {
                    round += 1;
                    let code = try_word(queue, there, at + 8 * thread as u64, round)?;
                    let allowed = [SUCCESS, UTOFU_ERR_MRQ_PEER, UTOFU_ERR_MRQ_RMT_STADD];
                    one_of(code, &allowed, "a put")?;
                }
                Ok(())
            })
        });
        ctx.sync();
        ctx.sync();
        done.store(true, Ordering::Relaxed);
        working.join().map_err(|_| "a thread panicked")?
    })?;
    for thread in 0..THREADS {
        let queue = own[thread.min(own.len() - 1)];
        put_word(queue, there, at + 8 * thread as u64, 77)?;
    }
    ctx.sync();
    own.into_iter().try_for_each(Queue::free)
}

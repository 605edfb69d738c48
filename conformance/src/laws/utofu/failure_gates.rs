//! Processes that die while others wait for them at barrier gates.

use std::time::{Duration, Instant};

use super::circuit::*;
use super::kit::*;

laws! {
    barrier_ends with_a_death(): "failure.barrier", "§3.8.2", 4, [barrier, poll_barrier] + needs_kill,
        "polling a barrier ends with an error within two seconds when a participant is killed";
    barrier_ends_far_away circuit(tree(4)): "failure.barrier.far", "§3.8.2", 4, [barrier, poll_barrier] + needs_kill,
        "polling ends with an error also while no process connected with the killed one makes a call";
    reduction_ends with_a_death(): "failure.reduce", "§3.8.2", 4, [reduce_uint64, poll_reduce_uint64] + needs_kill,
        "a reduction that a killed participant has not started never succeeds";
    killed_in_rounds with_a_death(): "failure.any-moment", "§3.8.2", 4, [barrier, poll_barrier, set_vbg, alloc_vbg] + needs_kill + ordering,
        "a participant is killed at a moment of the seed's choice: no survivor hangs, and a circuit of the survivors works";
    other_circuits with_a_death(): "failure.other-circuits", "§2.3.3", 4, [barrier, poll_barrier] + needs_kill,
        "a circuit built after a death, without the dead process, waits for its participants as long as they take";
}

/// Rank 3 dies a moment later; the others continue with the circuit.
fn with_a_death(ctx: &Ctx, body: impl FnOnce(&Job<'_>, &Circuit, u64) -> Verdict) -> Verdict {
    let [butterfly, ring, _] = of_four();
    circuit(
        ctx,
        if ctx.seed.is_multiple_of(2) {
            ring
        } else {
            butterfly
        },
        body,
    )
}

pub(super) fn is_barrier_error(code: i32) -> bool {
    (-320..=UTOFU_ERR_BARRIER_OTHER).contains(&code)
}

/// The code of a barrier: of its start, or of its end. A start fails if this process knows of a death already.
pub(super) fn whole_barrier(end: u64) -> Result<i32, String> {
    match c!(utofu_barrier(end, 0)) {
        SUCCESS => ended("the barrier", || c!(utofu_poll_barrier(end, 0))),
        code => Ok(code),
    }
}

fn barrier_ends(job: &Job<'_>, circuit: &Circuit, end: u64) -> Verdict {
    circuit.barrier()?;
    job.meet();
    if job.rank == 3 {
        pause(120);
        job.ctx.dies();
    }
    failed(whole_barrier(end)?, "a barrier")?;
    // A later start fails, or its round ends without success.
    let code = whole_barrier(end)?;
    ensure!(code != SUCCESS, "a barrier succeeded without a participant");
    Ok(())
}

/// Rank 3 is a child of rank 1; rank 1 is a child of rank 0.
fn barrier_ends_far_away(job: &Job<'_>, circuit: &Circuit, end: u64) -> Verdict {
    circuit.barrier()?;
    job.meet();
    if job.rank == 3 {
        job.ctx.dies();
    }
    if job.rank != 0 {
        let code = c!(utofu_barrier(end, 0));
        let allowed = code == SUCCESS || is_barrier_error(code);
        ensure!(allowed, "the start of a barrier gave {}", code_name(code));
        return job.await_word(TABLE + 8, 1);
    }
    failed(whole_barrier(end)?, "a barrier")?;
    job.write(1, TABLE + 8, 1)?;
    job.write(2, TABLE + 8, 1)
}

fn reduction_ends(job: &Job<'_>, _: &Circuit, end: u64) -> Verdict {
    if job.rank == 3 {
        job.ctx.dies();
    }
    let mut data = [5u64; 2];
    let code = match start(end, SUM, &data[..1]) {
        SUCCESS => ended("the reduction", || poll(end, SUM, &mut data))?,
        code => code,
    };
    failed(code, "a reduction")?;
    equal!(data, [5; 2], "data of a reduction that failed")
}

/// Fails unless this code is the end of an operation that lost a participant.
fn failed(code: i32, what: &str) -> Verdict {
    let (ended, code) = (is_barrier_error(code), code_name(code));
    ensure!(
        ended,
        "{what} without a participant who was killed gave {code}"
    );
    Ok(())
}

/// A circuit of ranks 0 to 2, in which one rank starts late.
fn survivors_meet(job: &Job<'_>, late: u64) -> Verdict {
    let ids = gates::<3>(5, 0)?;
    for (nth, id) in ids.iter().enumerate() {
        job.memory.set((job.rank as usize * 3 + nth) * 8, *id);
    }
    let row = job.rank as usize * 24;
    for other in (0..3).filter(|other| *other != job.rank) {
        job.put(other, row, row, 24).noticed(0, 0)?;
    }
    job.meet();
    let id = |who: u32, gate: usize| job.memory.get((who as usize * 3 + gate) * 8);
    // Rank 0 collects from 1, then from 2, and releases 1, then 2.
    let settings = match job.rank {
        0 => vec![
            setting(ids[0], [ids[2], ids[1]], [NULL; 2]),
            setting(ids[1], [ids[0], ids[2]], [id(1, 0); 2]),
            setting(ids[2], [ids[1], ids[0]], [id(2, 0); 2]),
        ],
        me => vec![setting(ids[0], [NULL; 2], [id(0, me as usize); 2])],
    };
    // Gate 1 sends before rank 2 arrives. Rank 1 learns only that ranks 0 and 1 have arrived; this circuit promises no more.
    set_gates(&settings)?;
    job.meet();
    for _ in 0..2 {
        if job.rank == 2 {
            pause(late);
        }
        one_barrier(ids[0])?;
        job.meet();
    }
    free_gates(&ids)
}

fn other_circuits(job: &Job<'_>, _: &Circuit, _: u64) -> Verdict {
    if job.rank == 3 {
        job.ctx.dies();
    }
    pause(50);
    survivors_meet(job, 600)
}

fn killed_in_rounds(job: &Job<'_>, circuit: &Circuit, end: u64) -> Verdict {
    let mut random = job.ctx.random(3);
    let rounds = random.below(if job.ctx.is_quick() { 2000 } else { 100 });
    // Without shared memory a packet may still be in its sender. The sender's death loses its packets of the last round.
    // The sender ended that round, so all others had ended the round before.
    let held = !job.ctx.backend.starts_with("shm");
    let certain = rounds.saturating_sub(held.into());
    let extra = random.below(300);
    for round in 0.. {
        if job.rank == 3 && round == rounds {
            // During a round; the other ranks may be anywhere in it.
            if random.below(2) == 0 {
                let _ = c!(utofu_barrier(end, 0));
            }
            let start = Instant::now();
            while start.elapsed() < Duration::from_micros(extra) {}
            job.ctx.dies();
        }
        let code = whole_barrier(end)?;
        if code != SUCCESS {
            ensure!(is_barrier_error(code), "a barrier gave {}", code_name(code));
            ensure!(round >= certain, "{round}/{rounds}: {}", code_name(code));
            break;
        }
        ensure!(round <= rounds + 2, "barriers go on without rank 3");
    }
    ensure_eq!(circuit.ends().len(), 1, "VBGs to start with");
    job.meet();
    survivors_meet(job, 1)
}

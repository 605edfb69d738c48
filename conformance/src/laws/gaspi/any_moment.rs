//! §5.3.1: a computation that keeps its state goes on after a death at any moment.

use std::time::Duration;

use super::kit::*;
use super::replacement::{all_healthy, incarnation, own_segment, together};

laws! {
    any_moment: "replaced.any-moment", "§5.3.1, §5.5.1", 4,
        [gaspi_state_vec_get, gaspi_queue_purge, gaspi_group_commit, gaspi_write_notify, gaspi_notify_waitsome, gaspi_allreduce, gaspi_read] + needs_kill + replaces + ordering,
        "a process is killed at a moment that the seed chooses; the others return to the checkpoint, and with the replacement reach the same result";
}

/// Steps of the computation.
const STEPS: u64 = 60;
/// Steps between two saves of the state.
const OFTEN: u64 = 10;

/// Offsets: the value, the left neighbour's value, the saved state (two slots in turn: step and value), the left neighbour's saved state.
const VALUE: usize = 0;
const HALO: usize = 8;
const OWN: usize = 16;
const KEPT: usize = 48;

/// One step: each rank sends its value to the right, and mixes its own value with the received one.
fn step(ctx: &Ctx, memory: &Memory, at: u64) -> Result<(), i32> {
    let right = right(ctx);
    let done = |code| if code == SUCCESS { Ok(()) } else { Err(code) };
    let (from, to, value) = (VALUE as u64, HALO as u64, at as u32 + 1);
    done(c!(gaspi_write_notify(
        0, from, right, 0, to, 8, 0, value, 0, BLOCK
    )))?;
    let (mut first, mut value) = (0, 0);
    done(c!(gaspi_notify_waitsome(0, 0, 1, &mut first, BLOCK)))?;
    done(c!(gaspi_notify_reset(0, 0, &mut value)))?;
    done(c!(gaspi_wait(0, BLOCK)))?;
    memory.set(VALUE, mix(memory.get(VALUE), memory.get(HALO), at));
    if at.is_multiple_of(OFTEN) {
        let place = (at / OFTEN % 2) as usize * 16;
        memory.set(OWN + place, at + 1);
        memory.set(OWN + place + 8, memory.get(VALUE));
        // The value before the step: a process may be killed between the two writes.
        for word in [8, 0] {
            let (from, to) = ((OWN + place + word) as u64, (KEPT + place + word) as u64);
            done(c!(gaspi_write(0, from, right, 0, to, 8, 0, BLOCK)))?;
            done(c!(gaspi_wait(0, BLOCK)))?;
        }
    }
    // No rank is more than one step ahead.
    done(c!(gaspi_barrier(ALL, BLOCK)))
}

fn mix(own: u64, left: u64, at: u64) -> u64 {
    own.wrapping_mul(31).wrapping_add(left).rotate_left(7) ^ at
}

/// The values after a run without a death.
fn expected(ranks: u32) -> Vec<u64> {
    let mut values: Vec<u64> = (1..=u64::from(ranks)).collect();
    for at in 0..STEPS {
        let before = values.clone();
        for rank in 0..values.len() {
            let left = before[(rank + values.len() - 1) % values.len()];
            values[rank] = mix(before[rank], left, at);
        }
    }
    values
}

fn any_moment(ctx: &Ctx) -> Verdict {
    let mut random = ctx.random(0);
    let victim = random.below(u64::from(ctx.size)) as u32;
    let moment = 1 + random.below(STEPS - 2);
    let pause_before = random.below(400);
    let new = incarnation()? > 0;
    let memory = own_segment(128)?;
    let mut at = 0;
    if new {
        at = go_back(ctx, &memory, true)?;
    } else {
        memory.set(VALUE, u64::from(ctx.rank) + 1);
        memory.set(OWN + 24, memory.get(VALUE));
        post::write(0, OWN as u64 + 16, right(ctx), 0, KEPT as u64 + 16, 16).ok(0, LONG)?;
        flush(0)?;
        barrier()?;
        ctx.sync();
    }
    while at < STEPS {
        if !new && ctx.rank == victim && at == moment {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(Duration::from_micros(pause_before));
                    ctx.dies();
                });
                let mut at = at;
                // The victim omits the last step: the others cannot finish before its death.
                while at < STEPS - 1 && step(ctx, &memory, at).is_ok() {
                    at += 1;
                }
                loop {
                    std::thread::park();
                }
            });
        }
        match step(ctx, &memory, at) {
            Ok(()) => at += 1,
            Err(code) => {
                must_fail(code, "a step")?;
                all_healthy(ctx, &[victim])?;
                at = go_back(ctx, &memory, false)?;
            }
        }
    }
    let expected = expected(ctx.size)[ctx.rank as usize];
    memory.shows(VALUE, expected, "the value at the end")
}

/// Restores the last step that all ranks have saved. Gives its number.
fn go_back(ctx: &Ctx, memory: &Memory, new: bool) -> Result<u64, String> {
    if new {
        for rank in 0..ctx.size as u16 {
            ok!(gaspi_segment_register(0, rank, LONG));
        }
    }
    repeat("gaspi_queue_purge", || c!(gaspi_queue_purge(0, LONG)))?;
    together()?;
    got!(gaspi_notify_reset(0, 0));
    if new {
        // The right neighbour has the copy.
        post::read(0, OWN as u64, right(ctx), 0, KEPT as u64, 32).ok(0, LONG)?;
        flush(0)?;
    }
    let newest = u64::from(memory.get(OWN) < memory.get(OWN + 16));
    let mine = memory.get(OWN + 16 * newest as usize);
    let all = reduced(ALL, MIN, mine)?;
    let place = (0..2).find(|nth| memory.get(OWN + 16 * nth) == all);
    let place = place.ok_or_else(|| format!("nothing of step {all} is kept"))?;
    memory.set(VALUE, memory.get(OWN + 16 * place + 8));
    // All ranks copy their state again: the new process has lost its neighbour's copy.
    post::write(0, OWN as u64, right(ctx), 0, KEPT as u64, 32).ok(0, LONG)?;
    flush(0)?;
    barrier()?;
    Ok(all)
}

//! §3.4: gates that are set, asked, freed and used again, and gates in use.

use super::barrier::{poll_any, start_any};
use super::circuit::*;
use super::kit::*;

laws! {
    busy with(TABLE + 8): "barrier.busy", "§3.8.1.1", 2, [barrier, poll_barrier, reduce_uint64, poll_reduce_uint64, reduce_double, poll_reduce_double],
        "a circuit that is in use cannot be started again, and one that has not been started cannot be polled: BUSY";
    set_again with(TABLE + 8): "barrier.set_again", "§3.4.2.1", 4, [set_vbg, barrier, poll_barrier],
        "set_vbg on VBGs that are set: the last call takes effect, in any order of VBGs and for a part of them";
    info with(TABLE + 8): "barrier.query_vbg_info", "§3.4.3.1", 2, [alloc_vbg, query_vbg_info],
        "a VBG id, of this process or another, tells coordinates, TNI and BG; the first of an array can start, the others are relays";
    free_and_again with(TABLE + 8): "barrier.free", "§3.4.1.2", 2, [alloc_vbg, free_vbg, set_vbg, barrier, poll_barrier],
        "VBGs that were freed are allocated again, and circuits of them work";
}

fn busy(job: &Job<'_>) -> Verdict {
    let circuit = Circuit::build(job, butterfly(2), TNI)?;
    let end = circuit.ends()[0];
    let (mut integers, mut doubles) = ([UNTOUCHED; 6], [7f64; 3]);
    let nothing_started = |integers: &mut [u64; 6], doubles: &mut [f64; 3]| -> Verdict {
        gives! { UTOFU_ERR_BUSY:
            utofu_poll_barrier(end, 0);
            utofu_poll_reduce_uint64(end, 0, integers.as_mut_ptr());
            utofu_poll_reduce_double(end, 0, doubles.as_mut_ptr());
        }
        ensure_eq!(*integers, [UNTOUCHED; 6], "data of a poll without a start");
        ensure_eq!(*doubles, [7f64; 3], "data of a poll without a start");
        Ok(())
    };
    for op in [0, SUM, BFPSUM] {
        nothing_started(&mut integers, &mut doubles)?;
        ensure_eq!(start_any(end, op, 2), SUCCESS, "the first start");
        for again in [0, SUM, BFPSUM] {
            let code = start_any(end, again, 2);
            ensure_eq!(code, BUSY, "starting {again} while {op} is under way");
        }
        // Polls of another function do not match the started operation.
        if op != 0 {
            gives!(UTOFU_ERR_BUSY, utofu_poll_barrier(end, 0));
        }
        if op != SUM {
            gives! { UTOFU_ERR_BUSY: utofu_poll_reduce_uint64(end, 0, integers.as_mut_ptr()); }
        }
        ensure_eq!(poll_any(end, op)?, SUCCESS, "the round after all that");
        // It has ended at both ranks before the polls that find no end.
        job.meet();
    }
    nothing_started(&mut integers, &mut doubles)?;
    // Complete, but not polled: still in use.
    ok!(utofu_barrier(end, 0));
    job.meet();
    gives!(UTOFU_ERR_BUSY, utofu_barrier(end, 0));
    completed("the barrier", || c!(utofu_poll_barrier(end, 0)))?;
    job.meet();
    circuit.free()
}

/// Takes the inputs and outputs from a gate.
fn take_apart(gate: &mut utofu_vbg_setting) {
    *gate = setting(gate.vbg_id, [NULL; 2], [NULL; 2]);
}

fn set_again(job: &Job<'_>) -> Verdict {
    let mut circuit = Circuit::build_spare(job, butterfly(4), TNI, 4)?;
    circuit.barrier()?;
    let mut random = job.ctx.random(u64::from(job.ctx.rank));
    for (nth, plan) in [
        ring(4),
        tree(4),
        butterfly(4),
        ring(3),
        ring(4),
        butterfly(2),
    ]
    .into_iter()
    .enumerate()
    {
        // This round never completes: rank 0 does not start it.
        if job.rank != 0 && nth % 2 == 0 && (job.rank as usize) < circuit.plan.0.len() {
            ok!(utofu_barrier(circuit.ends()[0], 0));
        }
        job.meet();
        // Packets of that round must not reach the next circuit. The first pass stops new packets; after the second all packets have arrived.
        for _ in 0..2 {
            if (job.rank as usize) < circuit.plan.0.len() {
                circuit.set(|settings| settings.iter_mut().for_each(take_apart))?;
            }
            job.meet();
        }
        circuit.plan = plan;
        let among = (job.rank as usize) < circuit.plan.0.len();
        if among {
            let turns = random.below(4) as usize;
            circuit.set(|settings| {
                let others = settings.len() - 1;
                settings[1..].rotate_left(turns % others.max(1));
            })?;
        }
        job.meet();
        if among {
            let all = circuit.plan.0.len() as u64;
            let wide = circuit.mine.clone();
            ensure_eq!(wide, [job.rank as usize], "participants of this rank");
            for round in 0..3 {
                circuit
                    .integers(SUM, 2, |_| vec![1, round], &[all, all * round])
                    .map_err(|e| format!("circuit {nth} on the same VBGs: {e}"))?;
            }
        }
        job.meet();
    }
    circuit.free()
}

fn info(job: &Job<'_>) -> Verdict {
    for tni in 0..6 {
        let circuit = Circuit::build_spare(job, butterfly(2), tni, 5)?;
        let mut seen = Vec::new();
        for (who, ids) in circuit.ids.iter().enumerate() {
            for (nth, id) in ids.iter().enumerate() {
                let mut at = [0xee; 7];
                let (mut on, mut bg, mut extra) = (99, 99, 0);
                let place = at.as_mut_ptr();
                ok!(utofu_query_vbg_info(
                    *id, place, &mut on, &mut bg, &mut extra
                ));
                let expected = coords((who % circuit.ranks) as u32)?;
                ensure_eq!(at[..6], expected, "coordinates of VBG {id:#x}");
                ensure_eq!(at[6], 0xee, "the byte behind the coordinates");
                ensure_eq!(on, tni, "the TNI of VBG {id:#x}");
                ensure!(bg < 48, "BG {bg} of VBG {id:#x}");
                ensure_eq!(bg < 16, nth == 0, "whether BG {bg} starts and ends");
                ensure!(*id != NULL, "a VBG has the null id");
                seen.push(*id);
            }
        }
        seen.sort_unstable();
        seen.dedup();
        ensure_eq!(seen.len(), 12, "different VBG ids");
        job.meet();
        circuit.free()?;
    }
    Ok(())
}

fn free_and_again(job: &Job<'_>) -> Verdict {
    for round in 0..40 {
        let plan = if round % 2 == 0 {
            butterfly(2)
        } else {
            ring(2)
        };
        let spare = round % 7;
        let circuit = Circuit::build_spare(job, plan, (round % 6) as u16, spare)?;
        circuit.barrier()?;
        circuit.integers(SUM, 1, |_| vec![3], &[6])?;
        if round % 3 == 0 {
            // Freed during a round.
            job.meet();
            if job.rank == 0 {
                ok!(utofu_barrier(circuit.ends()[0], 0));
            }
        }
        job.meet();
        circuit.free()?;
        job.meet();
    }
    Ok(())
}

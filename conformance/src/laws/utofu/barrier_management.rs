//! §3.4: gates that are set, asked, freed and used again, and gates in use.

use super::barrier::poll_any;
use super::circuit::*;
use super::kit::*;

laws! {
    busy circuit(butterfly(2)): "barrier.busy", "§3.8.1.1", 2, [barrier, poll_barrier, reduce_uint64, poll_reduce_uint64, reduce_double, poll_reduce_double],
        "a circuit in use cannot be started again, and a circuit before its start cannot be polled: BUSY";
    set_again with(TABLE + 8): "barrier.set_again", "§3.4.2.1", 4, [set_vbg, barrier, poll_barrier],
        "set_vbg on VBGs that are set: the last call takes effect, in any order of VBGs and for a part of them";
    info with(TABLE + 8): "barrier.query_vbg_info", "§3.4.3.1", 2, [alloc_vbg, query_vbg_info],
        "a VBG id, of this process or another, tells coordinates, TNI and BG; the first of an array can start, the others are relays";
    free_and_again with(TABLE + 8): "barrier.free", "§3.4.1.2", 2, [alloc_vbg, free_vbg, set_vbg, barrier, poll_barrier],
        "VBGs that were freed are allocated again, and circuits of them work";
}

/// A barrier, and reductions of integers and of doubles.
const OPS: [u32; 3] = [0, SUM, BFPSUM];

fn busy(job: &Job<'_>, _: &Circuit, end: u64) -> Verdict {
    let is_not_of = |op: u32, what: &str| {
        let mut data = [UNTOUCHED; 6];
        code_is(
            poll(end, op, &mut data),
            BUSY,
            format!("a poll of {op} {what}"),
        )?;
        equal!(data, [UNTOUCHED; 6], "data of a poll of {op} {what}")
    };
    let nothing_started = || for_all(OPS, |op| is_not_of(op, "without a start"));
    for op in OPS {
        nothing_started()?;
        ensure_eq!(start(end, op, &[1; 2]), SUCCESS, "the first start");
        for again in OPS {
            let code = start(end, again, &[1; 2]);
            ensure_eq!(code, BUSY, "starting {again} while {op} is under way");
        }
        // Polls of another function do not match the started operation.
        for other in [0, SUM].into_iter().filter(|other| *other != op) {
            is_not_of(other, "while another operation is under way")?;
        }
        ensure_eq!(poll_any(end, op)?, SUCCESS, "the round after all that");
        // It has ended at both ranks before the polls that find no end.
        job.meet();
    }
    nothing_started()?;
    // Complete, but not polled: still in use.
    ok!(utofu_barrier(end, 0));
    job.meet();
    gives!(UTOFU_ERR_BUSY, utofu_barrier(end, 0));
    completed("the barrier", || c!(utofu_poll_barrier(end, 0)))
}

/// Takes the inputs and outputs from a gate.
fn take_apart(gate: &mut utofu_vbg_setting) {
    *gate = setting(gate.vbg_id, [NULL; 2], [NULL; 2]);
}

fn set_again(job: &Job<'_>) -> Verdict {
    let mut circuit = Circuit::build_spare(job, butterfly(4), TNI, 4)?;
    circuit.barrier()?;
    let mut random = job.ctx.random(u64::from(job.ctx.rank));
    let [four, ring_of_4, tree] = of_four();
    let plans = [
        ring_of_4.clone(),
        tree,
        four,
        ring(3),
        ring_of_4,
        butterfly(2),
    ];
    let is_among = |plan: &Plan| (job.rank as usize) < plan.gates.len();
    for (nth, plan) in plans.into_iter().enumerate() {
        // This round never completes: rank 0 does not start it.
        if job.rank != 0 && nth % 2 == 0 && is_among(&circuit.plan) {
            ok!(utofu_barrier(circuit.ends()[0], 0));
        }
        job.meet();
        // Packets of that round must not reach the next circuit. The first pass stops new packets; after the second all packets have arrived.
        for _ in 0..2 {
            if is_among(&circuit.plan) {
                circuit.set(|settings| settings.iter_mut().for_each(take_apart))?;
            }
            job.meet();
        }
        circuit.plan = plan;
        let among = is_among(&circuit.plan);
        if among {
            let turns = random.below(4) as usize;
            circuit.set(|settings| {
                let others = settings.len() - 1;
                settings[1..].rotate_left(turns % others.max(1));
            })?;
        }
        job.meet();
        if among {
            let all = circuit.plan.gates.len() as u64;
            ensure_eq!(circuit.mine, [job.rank as usize], "own participants");
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
                let (at, on, bg) = vbg_info(*id)?;
                let expected = coords((who % circuit.ranks) as u32)?;
                ensure_eq!((at, on), (expected, tni), "place of VBG {id:#x}");
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
        let plan = [butterfly(2), ring(2)][round % 2].clone();
        let circuit = Circuit::build_spare(job, plan, (round % 6) as u16, round % 7)?;
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

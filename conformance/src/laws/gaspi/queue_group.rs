//! GASPI_Lowlevel.h: groups of queues.

use super::kit::*;

laws! {
    groups: "queue-group.queues", "§8.5", 1,
        [gaspi_queue_group_create, gaspi_queue_group_delete, gaspi_queue_group_get_queue, gaspi_queue_group_max],
        "a queue group gives its queues in turn, or one for each processor; unknown and existing groups are refused";
}

fn groups(_: &Ctx) -> Verdict {
    let turns = GASPI_QUEUE_GROUP_POLICY_DEFAULT;
    let cpus = GASPI_QUEUE_GROUP_POLICY_CPU_RR;
    let (mut max, mut queue) = (0, 0);
    ok!(gaspi_queue_group_max(&mut max));
    ensure!(max >= 16, "{max} queue groups");
    let end = max as u8;
    gives! { GASPI_ERR_INV_NUM:
        gaspi_queue_group_create(end, 0, 1, turns);
        gaspi_queue_group_create(0, 0, 0, turns);
        gaspi_queue_group_create(0, 0, 1, 7);
    }
    gives! { GASPI_ERR_INV_QUEUE:
        gaspi_queue_group_create(0, 2, 15, turns);
        gaspi_queue_group_create(0, 0, u32::MAX, turns);
        gaspi_queue_group_create(0, 255, 1, turns);
    }
    gives! {
        gaspi_queue_group_get_queue(0, &mut queue) => GASPI_ERROR;
        gaspi_queue_group_get_queue(end, &mut queue) => GASPI_ERR_INV_NUM;
        gaspi_queue_group_delete(0) => GASPI_ERROR;
        gaspi_queue_group_create(0, 2, 5, turns) => GASPI_SUCCESS;
        gaspi_queue_group_create(0, 0, 1, turns) => GASPI_ERROR;
        gaspi_queue_group_get_queue(0, null_mut()) => GASPI_ERR_NULLPTR;
    }
    // Each queue comes equally often, also with 4 threads.
    let counts = parking_lot::Mutex::new([0u32; 16]);
    threads(4, |_| {
        for _ in 0..25 {
            let queue = got!(gaspi_queue_group_get_queue(0));
            counts.lock()[usize::from(queue)] += 1;
        }
        Ok(())
    })?;
    let counts = counts.into_inner();
    ensure_eq!(counts[2..7], [20; 5], "how often each queue came");
    ok!(gaspi_queue_group_create(end - 1, 1, 3, cpus));
    let first = by_processor(end - 1)?;
    ensure_eq!(by_processor(end - 1)?, first, "queues of the processors");
    ok!(gaspi_queue_group_delete(end - 1));
    ok!(gaspi_queue_group_delete(0));
    gives!(GASPI_ERROR, gaspi_queue_group_get_queue(0, &mut queue));
    ok!(gaspi_queue_group_create(0, 7, 1, cpus));
    ok!(gaspi_queue_group_get_queue(0, &mut queue));
    equal!(queue, 7, "the only queue")
}

/// The queue of each processor that this process may use.
fn by_processor(group: u8) -> Result<Vec<u8>, String> {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    let allowed = sched_getaffinity(None).map_err(|e| format!("affinity: {e}"))?;
    let mut queues = Vec::new();
    for cpu in (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)) {
        let mut one = CpuSet::new();
        one.set(cpu);
        sched_setaffinity(None, &one).map_err(|e| format!("affinity: {e}"))?;
        let mut seen = [0u8; 3];
        for queue in &mut seen {
            ok!(gaspi_queue_group_get_queue(group, queue));
        }
        let one = seen == [seen[0]; 3] && (1..4).contains(&seen[0]);
        ensure!(one, "processor {cpu} has the queues {seen:?}");
        queues.push(seen[0]);
    }
    sched_setaffinity(None, &allowed).map_err(|e| format!("affinity: {e}"))?;
    Ok(queues)
}

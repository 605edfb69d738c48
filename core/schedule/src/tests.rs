use super::*;
use std::collections::HashMap;

/// Runs all members' schedules on a model. Values are sets of contributors. `order` selects the member that moves next.
fn run(schedules: &[Schedule], start: impl Fn(u32) -> u64, mut order: u64) -> Vec<u64> {
    let n = schedules.len();
    let mut at = vec![0; n];
    let mut held: Vec<u64> = (0..n as u32).map(start).collect();
    let mut kept = vec![0; n];
    let mut flags: HashMap<(u32, u32), u64> = HashMap::new();
    let mut met = 0;
    let mut idle = 0;
    while at
        .iter()
        .zip(schedules)
        .any(|(at, schedule)| *at < schedule.steps.len())
    {
        order = order
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        let me = (order >> 33) as usize % n;
        let Some(step) = schedules[me].steps.get(at[me]) else {
            continue;
        };
        let moved = match *step {
            Step::Signal { to, slot } | Step::Send { to, slot } => {
                let old = flags.insert((to, slot), held[me]);
                assert_eq!(old, None, "slot {slot} of {to} used twice");
                true
            }
            Step::Await { slot } => flags.contains_key(&(me as u32, slot)),
            Step::Combine { slot } => {
                let value = flags.get(&(me as u32, slot));
                assert_eq!(held[me] & value.unwrap_or(&0), 0, "combined twice");
                held[me] |= value.unwrap_or(&0);
                value.is_some()
            }
            Step::Take { slot } => {
                let value = flags.get(&(me as u32, slot));
                held[me] = *value.unwrap_or(&held[me]);
                value.is_some()
            }
            Step::Keep => {
                kept[me] = held[me];
                true
            }
            Step::CombineKept => {
                assert_eq!(held[me] & kept[me], 0, "combined twice");
                held[me] |= kept[me];
                true
            }
            Step::Meet { slot } => {
                if flags.insert((me as u32, slot + 1000), 0).is_none() {
                    met += 1;
                }
                met == n
            }
        };
        if moved {
            at[me] += 1;
            idle = 0;
        } else {
            idle += 1;
            assert!(idle < 100_000, "stuck at {at:?}");
        }
    }
    held
}

#[test]
fn few_members_combine_in_one_order() {
    for n in 1..=9u32 {
        for me in 0..n {
            let mut order = Vec::new();
            for step in &flat_allreduce(me, n).steps {
                match step {
                    Step::Take { slot } | Step::Combine { slot } => order.push(*slot),
                    Step::CombineKept => order.push(me),
                    _ => {}
                }
            }
            // Member 0 begins with its own value.
            let first = u32::from(me == 0);
            assert_eq!(order, (first..n).collect::<Vec<_>>(), "{me} of {n}");
        }
    }
}

#[test]
fn barriers_end_for_every_size() {
    for n in 1..=40u32 {
        let schedules: Vec<_> = (0..n).map(|me| dissemination_barrier(me, n)).collect();
        for schedule in &schedules {
            let sent = schedule.steps.iter();
            let sent = sent.filter(|step| matches!(step, Step::Signal { .. }));
            assert_eq!(sent.count() as u32, n.next_power_of_two().ilog2());
        }
        run(&schedules, |_| 0, 3);
        let schedules: Vec<_> = (0..n).map(|_| counting_barrier(n)).collect();
        run(&schedules, |_| 0, 3);
    }
}

#[test]
fn everyone_but_the_root_is_the_child_of_one() {
    for n in 1..=70u32 {
        let mut parents = vec![0; n as usize];
        for me in 0..n {
            assert!(children(me, n).count() as u32 <= rounds(n));
            children(me, n).for_each(|child| parents[child as usize] += 1);
        }
        assert_eq!(parents[0], 0);
        assert!(parents[1..].iter().all(|parents| *parents == 1), "{n}");
    }
}

const REDUCES: [AllReduce; 11] = [
    AllReduce::Doubling,
    AllReduce::Flat,
    AllReduce::Radix(2),
    AllReduce::Radix(3),
    AllReduce::Radix(4),
    AllReduce::Radix(8),
    AllReduce::Tree(2),
    AllReduce::Tree(4),
    AllReduce::ByNode(4, 2),
    AllReduce::ByNode(3, 4),
    AllReduce::ByNode(1, 3),
];
const BARRIERS: [Barrier; 6] = [
    Barrier::Radix(2),
    Barrier::Radix(3),
    Barrier::Radix(8),
    Barrier::ByNode(4, 2),
    Barrier::ByNode(3, 4),
    Barrier::ByNode(1, 2),
];
const BROADCASTS: [Broadcast; 7] = [
    Broadcast::Binomial,
    Broadcast::Tree(2),
    Broadcast::Tree(3),
    Broadcast::Tree(8),
    Broadcast::ByNode(4, 2),
    Broadcast::ByNode(3, 4),
    Broadcast::ByNode(1, 2),
];

/// The slots suffice for a group's outgoing buffers.
fn fits(schedules: &[Schedule]) {
    for schedule in schedules {
        assert_eq!(schedule.slots, schedules[0].slots);
        let sends = schedule.steps.iter();
        let sends = sends.filter(|step| matches!(step, Step::Send { .. }));
        assert!(sends.count() as u32 <= schedule.slots + 1);
        for step in &schedule.steps {
            if let Step::Signal { slot, .. }
            | Step::Send { slot, .. }
            | Step::Await { slot }
            | Step::Combine { slot }
            | Step::Take { slot } = step
            {
                assert!(*slot < schedule.slots, "{step:?}");
            }
        }
    }
}

#[test]
fn every_shape_of_an_all_reduce_has_every_contribution_once() {
    for n in 1..=63u32 {
        for shape in REDUCES {
            let schedules: Vec<_> = (0..n).map(|me| shape.schedule(me, n)).collect();
            fits(&schedules);
            let all = (1u64 << n) - 1;
            for order in 0..5 {
                assert_eq!(
                    run(&schedules, |me| 1 << me, order),
                    vec![all; n as usize],
                    "{shape} of {n}"
                );
            }
        }
    }
}

/// Values are texts: the same text means the same order, and so the same bits.
#[test]
fn all_members_combine_in_one_order() {
    fn texts(schedules: &[Schedule]) -> Vec<String> {
        let n = schedules.len();
        let mut at = vec![0; n];
        let mut held: Vec<String> = (0..n).map(|me| me.to_string()).collect();
        let mut kept = vec![String::new(); n];
        let mut slots: HashMap<(u32, u32), String> = HashMap::new();
        while (0..n).any(|me| at[me] < schedules[me].steps.len()) {
            for me in 0..n {
                while let Some(step) = schedules[me].steps.get(at[me]) {
                    let here = |slot: &u32| slots.get(&(me as u32, *slot)).cloned();
                    match step {
                        Step::Send { to, slot } => {
                            let value = held[me].clone();
                            slots.insert((*to, *slot), value);
                        }
                        Step::Combine { slot } => match here(slot) {
                            Some(other) => {
                                // A sum of two begins with the lower one: the operation is commutative.
                                let mut two = [held[me].clone(), other];
                                two.sort();
                                held[me] = format!("({}+{})", two[0], two[1]);
                            }
                            None => break,
                        },
                        Step::Take { slot } => match here(slot) {
                            Some(other) => held[me] = other,
                            None => break,
                        },
                        Step::Keep => kept[me] = held[me].clone(),
                        Step::CombineKept => {
                            let mut two = [held[me].clone(), kept[me].clone()];
                            two.sort();
                            held[me] = format!("({}+{})", two[0], two[1]);
                        }
                        other => panic!("{other:?}"),
                    }
                    at[me] += 1;
                }
            }
        }
        held
    }
    for n in 1..=30u32 {
        for shape in REDUCES {
            let schedules: Vec<_> = (0..n).map(|me| shape.schedule(me, n)).collect();
            let texts = texts(&schedules);
            assert!(
                texts.iter().all(|text| *text == texts[0]),
                "{shape} of {n}: {texts:?}"
            );
        }
    }
}

#[test]
fn every_shape_of_a_broadcast_reaches_everyone_from_any_root() {
    for n in 1..=21u32 {
        for (shape, root) in BROADCASTS
            .into_iter()
            .flat_map(|shape| (0..n).map(move |root| (shape, root)))
        {
            let schedules: Vec<_> = (0..n).map(|me| shape.schedule(me, n, root)).collect();
            fits(&schedules);
            let held = run(&schedules, |me| u64::from(me == root), 7);
            assert_eq!(held, vec![1; n as usize], "{shape} of {n} from {root}");
        }
    }
}

/// No member leaves a barrier before all have entered, or a broadcast before all have the value.
#[test]
fn nobody_leaves_a_barrier_or_a_broadcast_early() {
    type Make = Box<dyn Fn(u32, u32) -> Schedule>;
    let mut all: Vec<(String, Make)> = Vec::new();
    for shape in BARRIERS {
        all.push((
            shape.to_string(),
            Box::new(move |me, n| shape.schedule(me, n)),
        ));
    }
    for shape in BROADCASTS {
        all.push((
            shape.to_string(),
            Box::new(move |me, n| shape.schedule(me, n, n / 2)),
        ));
    }
    for (name, make) in &all {
        for n in 2..=20u32 {
            let schedules: Vec<_> = (0..n).map(|me| make(me, n)).collect();
            fits(&schedules);
            for late in 0..n {
                let mut at = vec![0; n as usize];
                let mut flags = std::collections::HashSet::new();
                let mut moved = true;
                while moved {
                    moved = false;
                    for me in (0..n).filter(|me| *me != late) {
                        match schedules[me as usize].steps.get(at[me as usize]) {
                            Some(Step::Signal { to, slot } | Step::Send { to, slot }) => {
                                flags.insert((*to, *slot));
                            }
                            Some(Step::Await { slot } | Step::Take { slot })
                                if flags.contains(&(me, *slot)) => {}
                            _ => continue,
                        }
                        at[me as usize] += 1;
                        moved = true;
                    }
                }
                for me in (0..n).filter(|me| *me != late) {
                    assert!(
                        at[me as usize] < schedules[me as usize].steps.len(),
                        "{name} of {n}: {me} without {late}"
                    );
                }
            }
        }
    }
}

#[test]
fn one_member_in_each_node_is_the_dissemination_that_there_is() {
    for n in 1..=40u32 {
        for me in 0..n {
            // With one member in each node, nodes are members. Two flags are unused.
            let alone = barrier_by_node(me, n, 1, 2);
            assert_eq!(alone.steps.len(), dissemination_barrier(me, n).steps.len());
        }
    }
}

#[test]
fn large_shapes_have_members_that_exist() {
    let n = 635_904;
    for me in [0, 1, 4, 77, 65_536, 400_000, n - 1] {
        let mut all: Vec<Schedule> = Vec::new();
        all.extend(
            REDUCES
                .into_iter()
                .filter(|shape| *shape != AllReduce::Flat)
                .map(|shape| shape.schedule(me, n)),
        );
        all.extend(BARRIERS.map(|shape| shape.schedule(me, n)));
        all.extend(BROADCASTS.map(|shape| shape.schedule(me, n, 5)));
        for step in all.iter().flat_map(|schedule| &schedule.steps) {
            if let Step::Signal { to, .. } | Step::Send { to, .. } = step {
                assert!(*to < n && *to != me, "{step:?}");
            }
        }
    }
}

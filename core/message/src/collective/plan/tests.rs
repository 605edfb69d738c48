//! Simulates the plans of all members together.

use std::collections::{HashMap, HashSet, VecDeque};

use super::*;

/// One member: its buffer, its round, and the round's receives in progress.
struct Walker {
    plan: CollectivePlan,
    memory: Vec<u8>,
    round: usize,
    open: Vec<Receive>,
    begun: bool,
}

/// Runs the operation on bytes, with addition as the reduction. Returns the results.
fn run(kind: Collective, n: u32, root: u32, len: usize) -> Vec<Option<Vec<u8>>> {
    let operand = |me: u32| (0..n as usize * len).map(move |at| me as u8 * 7 + at as u8 + 1);
    let mut walkers: Vec<Walker> = (0..n)
        .map(|me| {
            let plan = CollectivePlan::new(kind, Seat { me, n, root }, len);
            let mut memory = vec![0; plan.len];
            if let Some(load) = plan.load {
                let bytes: Vec<u8> = operand(me).take(load.len).collect();
                memory[load.at..][..load.len].copy_from_slice(&bytes);
            }
            if let Some((from, to)) = plan.own {
                memory.copy_within(from.at..from.at + from.len, to);
            }
            Walker {
                plan,
                memory,
                round: 0,
                open: Vec::new(),
                begun: false,
            }
        })
        .collect();
    let mut wires: HashMap<(u32, u32), VecDeque<Vec<u8>>> = HashMap::new();
    let mut pairs = HashSet::new();
    let mut moved = true;
    while moved {
        moved = false;
        // Later members run first: earlier members then find messages before they receive.
        for me in (0..n).rev() {
            let walker = &mut walkers[me as usize];
            let Some(round) = walker.plan.rounds.get(walker.round) else {
                continue;
            };
            if !walker.begun {
                walker.begun = true;
                walker.open = round.receives.clone();
                for (to, span) in &round.sends {
                    let bytes = walker.memory[span.at..][..span.len].to_vec();
                    // All messages of an operation have the same tag.
                    assert!(pairs.insert((me, *to)), "{kind:?} of {n}");
                    wires.entry((me, *to)).or_default().push_back(bytes);
                }
                moved = true;
            }
            walker.open.retain(|receive| {
                let wire = wires.entry((receive.from, me)).or_default();
                let Some(bytes) = wire.pop_front() else {
                    return true;
                };
                assert_eq!(bytes.len(), receive.into.len, "{kind:?} of {n}");
                walker.memory[receive.into.at..][..bytes.len()].copy_from_slice(&bytes);
                moved = true;
                false
            });
            if walker.open.is_empty() {
                for receive in &round.receives {
                    for nth in (0..receive.into.len).filter(|_| receive.onto.is_some()) {
                        let other = walker.memory[receive.into.at + nth];
                        let held = &mut walker.memory[receive.onto.unwrap_or_default() + nth];
                        *held = held.wrapping_add(other);
                    }
                }
                walker.round += 1;
                walker.begun = false;
                moved = true;
            }
        }
    }
    assert!(
        wires.values().all(VecDeque::is_empty),
        "{kind:?} of {n}: a message is left"
    );
    walkers
        .iter()
        .map(|walker| {
            assert_eq!(walker.round, walker.plan.rounds.len(), "{kind:?} of {n}");
            let store = walker.plan.store?;
            Some(walker.memory[store.at..][..store.len].to_vec())
        })
        .collect()
}

/// The result of one member.
fn expected(kind: Collective, n: u32, root: u32, len: usize, me: u32) -> Option<Vec<u8>> {
    let byte = |member: u32, at: usize| member as u8 * 7 + at as u8 + 1;
    let sum = |at: usize| (0..n).fold(0u8, |sum, member| sum.wrapping_add(byte(member, at)));
    let slice = me as usize * len..(me as usize + 1) * len;
    match kind {
        Collective::Barrier => None,
        Collective::Broadcast if me == root => None,
        Collective::Broadcast => Some((0..len).map(|at| byte(root, at)).collect()),
        Collective::AllToAll => Some(
            (0..n)
                .flat_map(|from| slice.clone().map(move |at| byte(from, at)))
                .collect(),
        ),
        Collective::AllReduce => Some((0..len).map(sum).collect()),
        Collective::AllGather => Some(
            (0..n)
                .flat_map(|from| (0..len).map(move |at| byte(from, at)))
                .collect(),
        ),
        Collective::ReduceScatter => Some(slice.map(sum).collect()),
        Collective::Reduce => (me == root).then(|| (0..len).map(sum).collect()),
        Collective::Scatter => Some(slice.map(|at| byte(root, at)).collect()),
        Collective::Gather => (me == root).then(|| {
            (0..n)
                .flat_map(|from| (0..len).map(move |at| byte(from, at)))
                .collect()
        }),
    }
}

#[test]
fn each_member_gets_its_result() {
    for kind in Collective::ALL {
        for n in 1..=17 {
            for root in [0, n / 2, n - 1] {
                for len in [1, 3] {
                    for (me, result) in (0..n).zip(run(kind, n, root, len)) {
                        let wanted = expected(kind, n, root, len, me);
                        assert_eq!(result, wanted, "{kind:?} of {n}, root {root}, member {me}");
                    }
                }
            }
        }
    }
}

#[test]
fn no_member_completes_before_all_have_begun() {
    for kind in Collective::ALL {
        for n in 1..=17u32 {
            let plans: Vec<CollectivePlan> = (0..n)
                .map(|me| CollectivePlan::new(kind, Seat { me, n, root: n / 3 }, 1))
                .collect();
            for absent in 0..n {
                let done = walk_without(&plans, absent);
                let early = (0..n).find(|me| *me != absent && done[*me as usize]);
                assert_eq!(early, None, "{kind:?} of {n} without {absent}");
            }
        }
    }
}

/// The members that complete although `absent` does not begin.
fn walk_without(plans: &[CollectivePlan], absent: u32) -> Vec<bool> {
    let mut wires: HashMap<(u32, u32), usize> = HashMap::new();
    let mut rounds = vec![(0, false); plans.len()];
    loop {
        let mut moved = false;
        for (me, (round, begun)) in rounds.iter_mut().enumerate() {
            let me = me as u32;
            let Some(now) = plans[me as usize].rounds.get(*round) else {
                continue;
            };
            if me == absent {
                continue;
            }
            if !std::mem::replace(begun, true) {
                for (to, _) in &now.sends {
                    *wires.entry((me, *to)).or_default() += 1;
                }
            }
            let here = |receive: &Receive| wires.get(&(receive.from, me)).is_some_and(|n| *n > 0);
            if now.receives.iter().all(here) {
                for receive in &now.receives {
                    *wires.entry((receive.from, me)).or_default() -= 1;
                }
                (*round, *begun) = (*round + 1, false);
                moved = true;
            }
        }
        if !moved {
            let done = rounds.iter().zip(plans);
            return done
                .map(|((round, _), plan)| *round == plan.rounds.len())
                .collect();
        }
    }
}

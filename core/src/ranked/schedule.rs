//! Shapes of collective operations, as data: what each member does, step by step. [`crate::group`] walks them.
//!
//! Members are numbered 0..n. Slots are flags (and buffers) in the receiving member's arena; a schedule never uses a slot of
//! one member twice, so that a flag needs no reset: it holds the number of the last operation that set it.

/// One step of one member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Set flag `slot` of member `to`.
    Signal {
        /// Receiver.
        to: u32,
        /// Its flag.
        slot: u32,
    },
    /// Wait for the own flag `slot`.
    Await {
        /// The flag.
        slot: u32,
    },
    /// Put the value that this member holds into buffer `slot` of member `to`, then set its flag.
    Send {
        /// Receiver.
        to: u32,
        /// Its buffer and flag.
        slot: u32,
    },
    /// Wait for buffer `slot`, and combine it with the value that this member holds.
    Combine {
        /// The buffer.
        slot: u32,
    },
    /// Wait for buffer `slot`, and hold its value from now on.
    Take {
        /// The buffer.
        slot: u32,
    },
    /// Put the own value aside: the one of another member is held next.
    Keep,
    /// Combine what was put aside with the value that this member holds.
    CombineKept,
    /// Count this member in at member 0's counter, and wait until the last one has counted itself in: `slot` tells.
    Meet {
        /// The flag.
        slot: u32,
    },
}

/// What one member does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// In order.
    pub steps: Box<[Step]>,
    /// Slots that the whole operation uses.
    pub slots: u32,
}

/// Rounds in which distances of powers of two reach every one of `n` members.
fn rounds(n: u32) -> u32 {
    n.next_power_of_two().trailing_zeros()
}

/// A barrier in which every member has a core: dissemination, ceil(log2 n) rounds, no member waits for one in particular.
pub fn dissemination_barrier(me: u32, n: u32) -> Schedule {
    let steps = (0..rounds(n))
        .flat_map(|round| {
            [
                Step::Signal {
                    to: (me + (1 << round)) % n,
                    slot: round,
                },
                Step::Await { slot: round },
            ]
        })
        .collect();
    Schedule {
        steps,
        slots: rounds(n),
    }
}

/// A barrier of more members than cores: each runs once to count itself in and once to see that all have, whatever the order
/// in which the system lets them run.
pub fn counting_barrier(n: u32) -> Schedule {
    Schedule {
        steps: if n > 1 {
            Box::new([Step::Meet { slot: 0 }])
        } else {
            Box::new([])
        },
        slots: 1,
    }
}

/// An all-reduce by recursive doubling. With p the largest power of two up to n, the members above p first hand their values
/// to the lower ones and get the result from them. Every member combines the same pairs, so that all get the same bits
/// wherever the operation is commutative.
pub fn doubling_allreduce(me: u32, n: u32) -> Schedule {
    let p = if n.is_power_of_two() {
        n
    } else {
        n.next_power_of_two() / 2
    };
    let depth = rounds(p);
    let (fold, unfold) = (depth, depth + 1);
    let mut steps = Vec::new();
    if me >= p {
        steps.push(Step::Send {
            to: me - p,
            slot: fold,
        });
        steps.push(Step::Take { slot: unfold });
    } else {
        let partner = (me + p < n).then_some(me + p);
        if partner.is_some() {
            steps.push(Step::Combine { slot: fold });
        }
        for round in 0..depth {
            steps.push(Step::Send {
                to: me ^ (1 << round),
                slot: round,
            });
            steps.push(Step::Combine { slot: round });
        }
        if let Some(to) = partner {
            steps.push(Step::Send { to, slot: unfold });
        }
    }
    Schedule {
        steps: steps.into(),
        slots: depth + 2,
    }
}

/// An all-reduce of few members on fewer cores: each sends its value to all others, and combines all in the order of the members, so that
/// all get the same bits. Each runs once to send and once to see that all have, whatever the order in which the system lets them run;
/// rounds would have each wait for the right one, and once a round.
pub fn flat_allreduce(me: u32, n: u32) -> Schedule {
    let mut steps: Vec<Step> = (1..n)
        .map(|distance| Step::Send {
            to: (me + distance) % n,
            slot: me,
        })
        .collect();
    if me > 0 {
        steps.extend([Step::Keep, Step::Take { slot: 0 }]);
    }
    steps.extend((1..n).map(|slot| match slot == me {
        true => Step::CombineKept,
        false => Step::Combine { slot },
    }));
    Schedule {
        steps: steps.into(),
        slots: n,
    }
}

/// In a binomial tree of `n` with root 0 the parent differs in the lowest set bit; the children in the zero bits below it.
fn low_bit(me: u32, n: u32) -> u32 {
    if me == 0 {
        rounds(n)
    } else {
        me.trailing_zeros()
    }
}

/// The children of `me` in a binomial tree of `n` with root 0, that with the largest subtree first.
pub fn children(me: u32, n: u32) -> impl Iterator<Item = u32> {
    (0..low_bit(me, n))
        .rev()
        .map(move |bit| me | 1 << bit)
        .filter(move |child| *child < n)
}

/// A broadcast from member `root` down a binomial tree, with acknowledgements up the same tree and a release down it again:
/// nobody leaves before everyone has the value, so that the next one may have another root and use the same slots.
pub fn binomial_broadcast(me: u32, n: u32, root: u32) -> Schedule {
    let relative = (me + n - root) % n;
    let absolute = |relative: u32| (relative + root) % n;
    let depth = rounds(n);
    let low = low_bit(relative, n);
    let (value, acks, release) = (0, 1, 1 + depth);
    let children: Vec<u32> = children(relative, n).collect();
    let mut steps = Vec::new();
    if relative != 0 {
        steps.push(Step::Take { slot: value });
    }
    steps.extend(children.iter().map(|child| Step::Send {
        to: absolute(*child),
        slot: value,
    }));
    steps.extend(children.iter().map(|child| Step::Await {
        slot: acks + (child & !relative).trailing_zeros(),
    }));
    if relative != 0 {
        steps.push(Step::Signal {
            to: absolute(relative & (relative - 1)),
            slot: acks + low,
        });
        steps.push(Step::Await { slot: release });
    }
    steps.extend(children.iter().map(|child| Step::Signal {
        to: absolute(*child),
        slot: release,
    }));
    Schedule {
        steps: steps.into(),
        slots: 2 + depth,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// Runs all members' schedules on a model: values are sets of contributors. `order` picks who moves next.
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
                Step::Combine { slot } => match flags.get(&(me as u32, slot)) {
                    Some(value) => {
                        assert_eq!(held[me] & value, 0, "combined twice");
                        held[me] |= value;
                        true
                    }
                    None => false,
                },
                Step::Take { slot } => match flags.get(&(me as u32, slot)) {
                    Some(value) => {
                        held[me] = *value;
                        true
                    }
                    None => false,
                },
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
    fn every_member_gets_every_contribution_once() {
        for n in 1..=33u32 {
            for shape in [doubling_allreduce, flat_allreduce] {
                let schedules: Vec<_> = (0..n).map(|me| shape(me, n)).collect();
                for order in 0..5 {
                    let all = (1u64 << n) - 1;
                    assert_eq!(run(&schedules, |me| 1 << me, order), vec![all; n as usize]);
                }
            }
        }
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
    fn a_broadcast_reaches_everyone_from_any_root() {
        for n in 1..=17u32 {
            for root in 0..n {
                let schedules: Vec<_> = (0..n).map(|me| binomial_broadcast(me, n, root)).collect();
                let held = run(&schedules, |me| u64::from(me == root), 7);
                assert_eq!(held, vec![1; n as usize], "{n} {root}");
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

    /// Dissemination must let nobody out before everybody has come in.
    #[test]
    fn nobody_leaves_a_barrier_early() {
        for n in 2..=20u32 {
            let schedules: Vec<_> = (0..n).map(|me| dissemination_barrier(me, n)).collect();
            for late in 0..n {
                // Everyone but `late` runs as far as possible.
                let mut at = vec![0; n as usize];
                let mut flags = std::collections::HashSet::new();
                let mut moved = true;
                while moved {
                    moved = false;
                    for me in (0..n).filter(|me| *me != late) {
                        match schedules[me as usize].steps.get(at[me as usize]) {
                            Some(Step::Signal { to, slot }) => {
                                flags.insert((*to, *slot));
                            }
                            Some(Step::Await { slot }) if flags.contains(&(me, *slot)) => {}
                            _ => continue,
                        }
                        at[me as usize] += 1;
                        moved = true;
                    }
                }
                for me in (0..n).filter(|me| *me != late) {
                    assert!(at[me as usize] < schedules[me as usize].steps.len());
                }
            }
        }
    }
}

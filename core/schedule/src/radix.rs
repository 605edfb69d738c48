//! Shapes with more than two members in an exchange: fewer rounds, with more sends in each. They suit networks with a latency above the cost of a send.

use super::{Schedule, Step};

/// Rounds in which distances of powers of `radix` reach each of `n` members.
fn rounds(n: u32, radix: u32) -> u32 {
    let (mut rounds, mut reached) = (0, 1u64);
    while reached < u64::from(n) {
        reached *= u64::from(radix);
        rounds += 1;
    }
    rounds
}

/// A radix below two would never end.
fn at_least_two(radix: u32) -> u32 {
    radix.max(2)
}

/// A barrier by dissemination in ceil(log n) rounds to the base `radix`. In a round each member notifies `radix - 1` others.
pub(crate) fn radix_barrier(me: u32, n: u32, radix: u32) -> Schedule {
    let radix = at_least_two(radix);
    let mut steps = Vec::new();
    let mut distance = 1u64;
    for round in 0..rounds(n, radix) {
        let others = (1..radix).take_while(|nth| u64::from(*nth) * distance < u64::from(n));
        let slot = |nth: u32| round * (radix - 1) + nth - 1;
        steps.extend(others.clone().map(|nth| Step::Signal {
            to: ((u64::from(me) + u64::from(nth) * distance) % u64::from(n)) as u32,
            slot: slot(nth),
        }));
        steps.extend(others.map(|nth| Step::Await { slot: slot(nth) }));
        distance *= u64::from(radix);
    }
    Schedule {
        steps: steps.into(),
        slots: rounds(n, radix) * (radix - 1),
    }
}

/// An all-reduce by recursive multiplying. In each round `radix` members exchange their values, and combine them in the order of their numbers. So all get the
/// same bits. With p the largest power of the radix up to n, the members from p on first send their values to lower members. At the end they get the result
/// from them.
pub(crate) fn radix_allreduce(me: u32, n: u32, radix: u32) -> Schedule {
    let radix = at_least_two(radix);
    let depth = match rounds(n, radix) {
        0 => 0,
        rounds if radix.pow(rounds - 1) * radix == n => rounds,
        rounds => rounds - 1,
    };
    let p = radix.pow(depth);
    let (fold, unfold) = (depth * radix, depth * radix + radix - 1);
    let mut steps = Vec::new();
    if me >= p {
        steps.push(Step::Send {
            to: me % p,
            slot: fold + me / p - 1,
        });
        steps.push(Step::Take { slot: unfold });
    } else {
        let partners = (1..radix)
            .map(|nth| me + nth * p)
            .take_while(|other| *other < n);
        steps.extend(partners.clone().map(|other| Step::Combine {
            slot: fold + other / p - 1,
        }));
        for round in 0..depth {
            let distance = radix.pow(round);
            let mine = me / distance % radix;
            let slot = |digit: u32| round * radix + digit;
            steps.extend((1..radix).map(|nth| {
                let digit = (mine + nth) % radix;
                Step::Send {
                    to: me - mine * distance + digit * distance,
                    slot: slot(mine),
                }
            }));
            steps.extend(combine_in_order(mine, radix, slot));
        }
        steps.extend(partners.map(|to| Step::Send { to, slot: unfold }));
    }
    Schedule {
        steps: steps.into(),
        slots: unfold + 1,
    }
}

/// Combines `n` values in the order of their numbers. The own value has the number `mine`.
pub(super) fn combine_in_order(mine: u32, n: u32, slot: impl Fn(u32) -> u32) -> Vec<Step> {
    let mut steps = Vec::new();
    if mine > 0 {
        steps.extend([Step::Keep, Step::Take { slot: slot(0) }]);
    }
    steps.extend((1..n).map(|digit| match digit == mine {
        true => Step::CombineKept,
        false => Step::Combine { slot: slot(digit) },
    }));
    steps
}

/// A member's place in a tree with root 0. A member and its parent differ in the member's lowest digit that is not 0.
pub(super) struct Place {
    pub parent: Option<u32>,
    /// Its number among the parent's children.
    pub nth: u32,
    /// The children and their numbers. The largest subtrees are first.
    pub children: Vec<(u32, u32)>,
}

pub(super) fn place(me: u32, n: u32, radix: u32) -> Place {
    let radix = at_least_two(radix);
    let mut children = Vec::new();
    let (mut distance, mut nth) = (1u64, 0);
    while distance < u64::from(n) && u64::from(me) / distance % u64::from(radix) == 0 {
        for digit in 1..radix {
            let child = u64::from(me) + u64::from(digit) * distance;
            if child < u64::from(n) {
                children.push((child as u32, nth + digit - 1));
            }
        }
        distance *= u64::from(radix);
        nth += radix - 1;
    }
    children.reverse();
    let digit = (u64::from(me) / distance % u64::from(radix)) as u32;
    Place {
        parent: (me > 0).then(|| me - digit * distance as u32),
        nth: (nth + digit).saturating_sub(1),
        children,
    }
}

/// Maximum of children of a member in such a tree.
pub(super) fn most_children(n: u32, radix: u32) -> u32 {
    let radix = at_least_two(radix);
    rounds(n, radix) * (radix - 1)
}

/// An all-reduce up a tree and down again. A member has up to `radix - 1` children for each round. It needs fewer messages than [`radix_allreduce`], but twice
/// as many rounds.
pub(crate) fn tree_allreduce(me: u32, n: u32, radix: u32) -> Schedule {
    let tree = place(me, n, radix);
    let down = most_children(n, radix);
    let mut steps = Vec::new();
    // Small subtrees are ready first.
    let up = tree.children.iter().rev();
    steps.extend(up.map(|(_, nth)| Step::Combine { slot: *nth }));
    if let Some(to) = tree.parent {
        steps.push(Step::Send { to, slot: tree.nth });
        steps.push(Step::Take { slot: down });
    }
    let below = tree.children.iter();
    steps.extend(below.map(|(to, _)| Step::Send {
        to: *to,
        slot: down,
    }));
    Schedule {
        steps: steps.into(),
        slots: down + 1,
    }
}

/// A broadcast from member `root` down such a tree, and a [barrier](radix_barrier) behind it. No member leaves before all have the value. So the next broadcast
/// may have another root and use the same slots.
pub(crate) fn tree_broadcast(me: u32, n: u32, root: u32, radix: u32) -> Schedule {
    let tree = place((me + n - root) % n, n, radix);
    let mut steps = Vec::new();
    if tree.parent.is_some() {
        steps.push(Step::Take { slot: 0 });
    }
    steps.extend(tree.children.iter().map(|(child, _)| Step::Send {
        to: (child + root) % n,
        slot: 0,
    }));
    radix_barrier(me, n, radix).behind(steps, 1)
}

impl Schedule {
    /// These steps, which use `used` slots, and then the schedule.
    pub(super) fn behind(self, mut steps: Vec<Step>, used: u32) -> Schedule {
        steps.extend(self.steps.iter().map(|step| step.moved(|to| to, used)));
        Schedule {
            steps: steps.into(),
            slots: self.slots + used,
        }
    }
}

impl Step {
    /// The same step between other members, with slots behind `used` others.
    pub(super) fn moved(self, member: impl Fn(u32) -> u32, used: u32) -> Step {
        match self {
            Step::Signal { to, slot } => Step::Signal {
                to: member(to),
                slot: slot + used,
            },
            Step::Send { to, slot } => Step::Send {
                to: member(to),
                slot: slot + used,
            },
            Step::Await { slot } => Step::Await { slot: slot + used },
            Step::Combine { slot } => Step::Combine { slot: slot + used },
            Step::Take { slot } => Step::Take { slot: slot + used },
            Step::Meet { slot } => Step::Meet { slot: slot + used },
            Step::Keep | Step::CombineKept => self,
        }
    }
}

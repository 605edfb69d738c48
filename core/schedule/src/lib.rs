//! Schedules of collective operations: the steps of each member, as data. Groups of the engine execute them.
//!
//! Members have the numbers 0..n. A slot is a flag (and buffer) in the receiving member's arena. A schedule uses a slot of a member only once.
//! So a flag needs no reset: it holds the number of the last operation that set it.
//!
//! This crate depends on no other crate.
//!
//! ```
//! use unipgas_schedule::{Barrier, Step};
//!
//! let schedule = Barrier::Dissemination.schedule(0, 2);
//! assert_eq!(*schedule.steps, [Step::Signal { to: 1, slot: 0 }, Step::Await { slot: 0 }]);
//! ```

mod by_node;
mod radix;
mod shapes;

use by_node::{allreduce_by_node, barrier_by_node, broadcast_by_node};
use radix::{combine_in_order, radix_allreduce, radix_barrier, tree_allreduce, tree_broadcast};
pub use shapes::{AllReduce, Barrier, Broadcast, Shapes};

/// Maximum size of a group on fewer cores in which all members notify each other directly. Short chains of wakes end sooner.
pub const FEW: u32 = 16;
/// Maximum payload of a reduction or broadcast in bytes (GASPI's allreduce buffer is 2040).
pub const PAYLOAD: usize = 2048;

/// A step of a member.
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
    /// Wait for buffer `slot`, and hold its value instead.
    Take {
        /// The buffer.
        slot: u32,
    },
    /// Keep the own value aside. The value of another member is held next.
    Keep,
    /// Combine the kept value with the value that this member holds.
    CombineKept,
    /// Count this member at member 0's counter, and wait until all members are counted. The last one sets `slot`.
    Meet {
        /// The flag.
        slot: u32,
    },
}

/// The steps of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// The steps, in order.
    pub steps: Box<[Step]>,
    /// Slots that the whole operation uses.
    pub slots: u32,
}

/// Rounds in which distances of powers of two reach each of `n` members.
fn rounds(n: u32) -> u32 {
    n.next_power_of_two().trailing_zeros()
}

/// A barrier for members with a core each: dissemination in ceil(log2 n) rounds, without a central member.
pub fn dissemination_barrier(me: u32, n: u32) -> Schedule {
    radix_barrier(me, n, 2)
}

/// A barrier for more members than cores. Each member runs once to count itself, and once to see that all have counted. The order in which the system runs them
/// does not matter.
pub(crate) fn counting_barrier(n: u32) -> Schedule {
    Schedule {
        steps: if n > 1 {
            Box::new([Step::Meet { slot: 0 }])
        } else {
            Box::new([])
        },
        slots: 1,
    }
}

/// An all-reduce by recursive doubling. With p the largest power of two up to n, the members from p on first send their values to lower members. At the end
/// they get the result from them. All members combine the same pairs. So all get the same bits if the operation is commutative.
pub(crate) fn doubling_allreduce(me: u32, n: u32) -> Schedule {
    let p = 1 << n.ilog2();
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

/// An all-reduce for few members on fewer cores. Each member sends its value to all others, and combines all values in the order of the members. So all get the
/// same bits. Each member runs once to send, and once to see all values, in any order. With rounds, each member would wait for a certain other one, once a
/// round.
pub(crate) fn flat_allreduce(me: u32, n: u32) -> Schedule {
    let mut steps: Vec<Step> = (1..n)
        .map(|distance| Step::Send {
            to: (me + distance) % n,
            slot: me,
        })
        .collect();
    steps.extend(combine_in_order(me, n, |slot| slot));
    Schedule {
        steps: steps.into(),
        slots: n,
    }
}

/// In a binomial tree of `n` with root 0, a member and its parent differ in the member's lowest set bit. A member and its child differ in a bit below it.
fn low_bit(me: u32, n: u32) -> u32 {
    if me == 0 {
        rounds(n)
    } else {
        me.trailing_zeros()
    }
}

/// The children of `me` in a binomial tree of `n` with root 0. The child with the largest subtree is first.
pub fn children(me: u32, n: u32) -> impl Iterator<Item = u32> {
    (0..low_bit(me, n))
        .rev()
        .map(move |bit| me | 1 << bit)
        .filter(move |child| *child < n)
}

/// A broadcast from member `root` down a binomial tree, with acknowledgements up the tree and a release down again. No member leaves before all have the value.
/// So the next broadcast may have another root and use the same slots.
pub(crate) fn binomial_broadcast(me: u32, n: u32, root: u32) -> Schedule {
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
mod tests;

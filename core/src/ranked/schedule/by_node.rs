//! Shapes in two levels: members of one node gather at its first one by shared memory, and those are on the network alone. Nodes have `per_node` members that follow
//! each other, the last one perhaps fewer.

use super::radix::place;
use super::{Schedule, Step, doubling_allreduce, radix_allreduce, radix_barrier};

/// The members of one node.
struct Node {
    /// Its first member, who is on the network.
    first: u32,
    /// Number of members.
    size: u32,
    /// Which node it is, of how many.
    index: u32,
    nodes: u32,
    per_node: u32,
}

impl Node {
    fn of(me: u32, n: u32, per_node: u32) -> Self {
        let per_node = per_node.clamp(1, n.max(1));
        let index = me / per_node;
        let first = index * per_node;
        Node {
            first,
            size: per_node.min(n - first),
            index,
            nodes: n.div_ceil(per_node),
            per_node,
        }
    }

    fn others(&self) -> impl Iterator<Item = u32> + use<> {
        self.first + 1..self.first + self.size
    }

    /// The flag by which the first member lets the others go; those below are by which it is told.
    fn down(&self) -> u32 {
        self.per_node - 1
    }

    /// What the first members do among themselves, between `up` and `down`.
    fn between(
        &self,
        up: Vec<Step>,
        inner: &Schedule,
        down: impl Iterator<Item = Step>,
    ) -> Schedule {
        let mut steps = up;
        let moved = |step: &Step| step.moved(|to| to * self.per_node, self.per_node);
        steps.extend(inner.steps.iter().map(moved));
        steps.extend(down);
        Schedule {
            steps: steps.into(),
            slots: self.per_node + inner.slots,
        }
    }
}

/// A barrier: at the first member of each node, among those by [`radix_barrier`], and back.
pub fn barrier_by_node(me: u32, n: u32, per_node: u32, radix: u32) -> Schedule {
    let node = Node::of(me, n, per_node);
    let inner = radix_barrier(node.index, node.nodes, radix);
    let slot = node.down();
    if me != node.first {
        let steps = [
            Step::Signal {
                to: node.first,
                slot: me - node.first - 1,
            },
            Step::Await { slot },
        ];
        return Schedule {
            steps: Box::new(steps),
            slots: node.per_node + inner.slots,
        };
    }
    let up = (0..node.size - 1)
        .map(|slot| Step::Await { slot })
        .collect();
    let down = node.others().map(|to| Step::Signal { to, slot });
    node.between(up, &inner, down)
}

/// An all-reduce, likewise; with a radix of 2 by [`doubling_allreduce`], else by [`radix_allreduce`].
pub fn allreduce_by_node(me: u32, n: u32, per_node: u32, radix: u32) -> Schedule {
    let node = Node::of(me, n, per_node);
    let inner = match radix {
        0..=2 => doubling_allreduce(node.index, node.nodes),
        _ => radix_allreduce(node.index, node.nodes, radix),
    };
    let slot = node.down();
    if me != node.first {
        let steps = [
            Step::Send {
                to: node.first,
                slot: me - node.first - 1,
            },
            Step::Take { slot },
        ];
        return Schedule {
            steps: Box::new(steps),
            slots: node.per_node + inner.slots,
        };
    }
    let up = (0..node.size - 1)
        .map(|slot| Step::Combine { slot })
        .collect();
    let down = node.others().map(|to| Step::Send { to, slot });
    node.between(up, &inner, down)
}

/// A broadcast down a tree of nodes, from the root and the first members of the other ones, then to the others of each node; and a
/// [barrier](barrier_by_node) behind it.
pub fn broadcast_by_node(me: u32, n: u32, root: u32, per_node: u32, radix: u32) -> Schedule {
    let node = Node::of(me, n, per_node);
    let home = Node::of(root, n, per_node).index;
    // Who has the value first on a node.
    let head = |index: u32| match index == home {
        true => root,
        false => index * node.per_node,
    };
    let mut steps = Vec::new();
    if me != root {
        steps.push(Step::Take { slot: 0 });
    }
    if me == head(node.index) {
        let below = (node.index + node.nodes - home) % node.nodes;
        let children = place(below, node.nodes, radix).children;
        steps.extend(children.iter().map(|(child, _)| Step::Send {
            to: head((child + home) % node.nodes),
            slot: 0,
        }));
        let all = node.first..node.first + node.size;
        steps.extend(
            all.filter(|to| *to != me)
                .map(|to| Step::Send { to, slot: 0 }),
        );
    }
    barrier_by_node(me, n, per_node, radix).behind(steps, 1)
}

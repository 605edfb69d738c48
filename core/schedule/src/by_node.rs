//! Shapes in two levels. The members of a node gather at its first member, through shared memory. Only first members use the network. Nodes have `per_node`
//! consecutive members; the last node may have fewer.

use super::radix::place;
use super::{Schedule, Step, doubling_allreduce, radix_allreduce, radix_barrier};

/// The members of one node.
struct Node {
    /// Its first member, which uses the network.
    first: u32,
    /// Number of members.
    size: u32,
    /// Index of the node, and number of nodes.
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

    /// The flag that releases the other members. The flags below it report their arrival to the first member.
    fn down(&self) -> u32 {
        self.per_node - 1
    }

    /// The schedule of a member that is not the first one of its node.
    fn of_other(&self, steps: [Step; 2], inner: &Schedule) -> Schedule {
        Schedule {
            steps: Box::new(steps),
            slots: self.per_node + inner.slots,
        }
    }

    /// The schedule `inner` of the first members, between `up` and `down`.
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

/// A barrier: up to the first member of each node, [`radix_barrier`] among the first members, and down again.
pub(crate) fn barrier_by_node(me: u32, n: u32, per_node: u32, radix: u32) -> Schedule {
    let node = Node::of(me, n, per_node);
    let inner = radix_barrier(node.index, node.nodes, radix);
    let slot = node.down();
    if me != node.first {
        let (to, up) = (node.first, me - node.first - 1);
        return node.of_other(
            [Step::Signal { to, slot: up }, Step::Await { slot }],
            &inner,
        );
    }
    let up = (0..node.size - 1)
        .map(|slot| Step::Await { slot })
        .collect();
    let down = node.others().map(|to| Step::Signal { to, slot });
    node.between(up, &inner, down)
}

/// An all-reduce in the same way. The first members use [`doubling_allreduce`] if the radix is at most 2, else [`radix_allreduce`].
pub(crate) fn allreduce_by_node(me: u32, n: u32, per_node: u32, radix: u32) -> Schedule {
    let node = Node::of(me, n, per_node);
    let inner = match radix {
        0..=2 => doubling_allreduce(node.index, node.nodes),
        _ => radix_allreduce(node.index, node.nodes, radix),
    };
    let slot = node.down();
    if me != node.first {
        let (to, up) = (node.first, me - node.first - 1);
        return node.of_other([Step::Send { to, slot: up }, Step::Take { slot }], &inner);
    }
    let up = (0..node.size - 1)
        .map(|slot| Step::Combine { slot })
        .collect();
    let down = node.others().map(|to| Step::Send { to, slot });
    node.between(up, &inner, down)
}

/// A broadcast down a tree of nodes, from the root to the first members of the other nodes. These send the value to the other members of their nodes. A
/// [barrier](barrier_by_node) follows.
pub(crate) fn broadcast_by_node(me: u32, n: u32, root: u32, per_node: u32, radix: u32) -> Schedule {
    let node = Node::of(me, n, per_node);
    let home = Node::of(root, n, per_node).index;
    // The member that gets the value first on a node.
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

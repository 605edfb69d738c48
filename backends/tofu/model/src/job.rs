//! A job: processes on the nodes of a box.

use crate::route::{self, PathRule};
use crate::shape::TorusShape;
use crate::{Result, wrong};

/// The order in which ranks are assigned to nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RankOrder {
    /// Consecutive ranks share a node while it has room.
    #[default]
    Node,
    /// Consecutive ranks are on consecutive nodes.
    Cyclic,
}

/// The assignment of processes to nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobLayout {
    /// The box.
    pub shape: TorusShape,
    /// Processes that a node has room for.
    pub per_node: u32,
    /// Number of ranks.
    pub processes: u32,
    /// The order of the ranks.
    pub order: RankOrder,
    /// The path rule of all packets.
    pub path: PathRule,
}

/// Maximum number of processes on a node: one for each core of an A64FX.
pub const MOST_PER_NODE: u32 = 48;

impl JobLayout {
    /// A job that fills a box. Errors: no processes on a node, or more than [`MOST_PER_NODE`].
    pub fn full(shape: TorusShape, per_node: u32) -> Result<Self> {
        if !(1..=MOST_PER_NODE).contains(&per_node) {
            return wrong(format!(
                "a node has 1 to {MOST_PER_NODE} processes, not {per_node}"
            ));
        }
        Ok(JobLayout {
            shape,
            per_node,
            processes: shape.nodes() * per_node,
            order: RankOrder::default(),
            path: PathRule::default(),
        })
    }

    /// A job of `processes` processes, in a box with room for them. Errors: as [`JobLayout::full`] and [`TorusShape::for_nodes`].
    pub fn of(processes: u32, per_node: u32) -> Result<Self> {
        let nodes = processes.div_ceil(per_node.max(1));
        let job = JobLayout::full(TorusShape::for_nodes(nodes)?, per_node)?;
        Ok(JobLayout { processes, ..job })
    }

    /// The node of a rank.
    #[inline]
    pub fn node(&self, rank: u32) -> u32 {
        match self.order {
            RankOrder::Node => rank / self.per_node,
            RankOrder::Cyclic => rank % self.nodes_in_use(),
        }
    }

    /// The index of a rank among the processes of its node.
    #[inline]
    pub fn place(&self, rank: u32) -> u32 {
        match self.order {
            RankOrder::Node => rank % self.per_node,
            RankOrder::Cyclic => rank / self.nodes_in_use(),
        }
    }

    /// The rank of a process of a node. `None`: the node has no such process.
    pub fn rank(&self, node: u32, place: u32) -> Option<u32> {
        let nodes = self.nodes_in_use();
        let rank = match self.order {
            RankOrder::Node => node * self.per_node + place,
            RankOrder::Cyclic => place * nodes + node,
        };
        (node < nodes && place < self.per_node && rank < self.processes).then_some(rank)
    }

    /// Number of nodes with processes. These are the first nodes.
    #[inline]
    pub fn nodes_in_use(&self) -> u32 {
        self.processes.div_ceil(self.per_node)
    }

    /// Number of processes of a node.
    pub fn on_node(&self, node: u32) -> u32 {
        (0..self.per_node)
            .filter(|place| self.rank(node, *place).is_some())
            .count() as u32
    }

    /// Whether every node is full.
    pub fn is_full(&self) -> bool {
        self.processes == self.shape.nodes() * self.per_node
    }

    /// Hops between two ranks; 0 on the same node.
    #[inline]
    pub fn hops(&self, from: u32, to: u32) -> u32 {
        route::hops(&self.shape, self.path, self.node(from), self.node(to))
    }

    /// The TNIs of a process, if the node has `tnis`. Process `i` of `k` has `i`, `i + k`, `i + 2k` and so on. With more processes than TNIs, each has one, and
    /// shares it.
    pub fn tnis(&self, place: u32, tnis: u32) -> impl ExactSizeIterator<Item = u32> {
        let step = self.per_node.min(tnis);
        (place % step..tnis).step_by(step as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_have_places_and_come_back() {
        for (processes, per_node) in [(1, 4), (7, 4), (48, 4), (100, 3), (13, 1)] {
            for order in [RankOrder::Node, RankOrder::Cyclic] {
                let job = JobLayout {
                    order,
                    ..JobLayout::of(processes, per_node).unwrap()
                };
                for rank in 0..processes {
                    let (node, place) = (job.node(rank), job.place(rank));
                    assert!(node < job.shape.nodes() && place < per_node);
                    assert_eq!(
                        job.rank(node, place),
                        Some(rank),
                        "{processes} {per_node} {order:?}"
                    );
                }
                let all: u32 = (0..job.shape.nodes()).map(|node| job.on_node(node)).sum();
                assert_eq!(all, processes);
            }
        }
    }

    #[test]
    fn all_interfaces_are_used_and_none_is_shared_as_long_as_there_are_enough() {
        for per_node in 1..=12 {
            let job = JobLayout::of(per_node, per_node).unwrap();
            let mut users = [0; 6];
            for place in 0..per_node {
                assert!(job.tnis(place, 6).len() > 0);
                job.tnis(place, 6).for_each(|tni| users[tni as usize] += 1);
            }
            let most = per_node.div_ceil(6).max(1);
            assert!(
                users.iter().all(|users| (1..=most).contains(users)),
                "{per_node}: {users:?}"
            );
        }
    }
}

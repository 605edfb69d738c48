//! Names of the shapes.

use std::fmt;

use super::{
    FEW, Schedule, allreduce_by_node, barrier_by_node, binomial_broadcast, broadcast_by_node,
    counting_barrier, dissemination_barrier, doubling_allreduce, flat_allreduce, radix_allreduce,
    radix_barrier, tree_allreduce, tree_broadcast,
};

/// A shape of a barrier. All members use the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Barrier {
    /// Each member counts itself at one place, and waits until all have counted. For more members than cores.
    Counting,
    /// ceil(log2 n) rounds without a central member ([`dissemination_barrier`]).
    Dissemination,
    /// Dissemination in rounds to the base of this radix.
    Radix(u32),
    /// Up to the first member of each node, dissemination among these, and down again: members of a node, radix.
    ByNode(u32, u32),
}

impl Barrier {
    /// The steps of member `me` of `n`.
    pub fn schedule(self, me: u32, n: u32) -> Schedule {
        match self {
            Barrier::Counting => counting_barrier(n),
            Barrier::Dissemination => dissemination_barrier(me, n),
            Barrier::Radix(radix) => radix_barrier(me, n, radix),
            Barrier::ByNode(per_node, radix) => barrier_by_node(me, n, per_node, radix),
        }
    }
}

/// A shape of an all-reduce. All members use the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AllReduce {
    /// Each member sends its value to all others. For few members on fewer cores.
    Flat,
    /// Recursive doubling.
    Doubling,
    /// Recursive multiplying by this radix.
    Radix(u32),
    /// Up a tree of this radix and down again: fewer messages, twice as many rounds.
    Tree(u32),
    /// Up to the first member of each node, an exchange among these, and down again: members of a node, radix.
    ByNode(u32, u32),
}

impl AllReduce {
    /// The steps of member `me` of `n`.
    pub fn schedule(self, me: u32, n: u32) -> Schedule {
        match self {
            AllReduce::Flat => flat_allreduce(me, n),
            AllReduce::Doubling => doubling_allreduce(me, n),
            AllReduce::Radix(radix) => radix_allreduce(me, n, radix),
            AllReduce::Tree(radix) => tree_allreduce(me, n, radix),
            AllReduce::ByNode(per_node, radix) => allreduce_by_node(me, n, per_node, radix),
        }
    }
}

/// A shape of a broadcast. All members use the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Broadcast {
    /// Down a binomial tree, with acknowledgements and a release.
    Binomial,
    /// Down a tree of this radix, and a barrier behind it.
    Tree(u32),
    /// Down a tree of nodes, then to the other members of each node, and a barrier behind it: members of a node, radix.
    ByNode(u32, u32),
}

impl Broadcast {
    /// The steps of member `me` of `n`, from member `root`.
    pub fn schedule(self, me: u32, n: u32, root: u32) -> Schedule {
        match self {
            Broadcast::Binomial => binomial_broadcast(me, n, root),
            Broadcast::Tree(radix) => tree_broadcast(me, n, root, radix),
            Broadcast::ByNode(per_node, radix) => broadcast_by_node(me, n, root, per_node, radix),
        }
    }
}

/// The shapes of a group's operations. The network suggests them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shapes {
    /// Shape of barriers.
    pub barrier: Barrier,
    /// Shape of all-reduces.
    pub all_reduce: AllReduce,
    /// Shape of broadcasts.
    pub broadcast: Broadcast,
}

impl Shapes {
    /// The shapes for `n` members without a suggestion. `gathers`: the members are on fewer cores.
    pub fn usual(n: u32, gathers: bool) -> Self {
        Shapes {
            barrier: match gathers {
                true => Barrier::Counting,
                false => Barrier::Dissemination,
            },
            all_reduce: match gathers && n <= FEW {
                true => AllReduce::Flat,
                false => AllReduce::Doubling,
            },
            broadcast: Broadcast::Binomial,
        }
    }
}

impl fmt::Display for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Barrier::Counting => write!(f, "counting"),
            Barrier::Dissemination => write!(f, "dissemination"),
            Barrier::Radix(radix) => write!(f, "dissemination, radix {radix}"),
            Barrier::ByNode(_, radix) => write!(f, "by node, radix {radix}"),
        }
    }
}

impl fmt::Display for AllReduce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AllReduce::Flat => write!(f, "flat"),
            AllReduce::Doubling => write!(f, "doubling"),
            AllReduce::Radix(radix) => write!(f, "exchange, radix {radix}"),
            AllReduce::Tree(radix) => write!(f, "tree, radix {radix}"),
            AllReduce::ByNode(_, radix) => write!(f, "by node, radix {radix}"),
        }
    }
}

impl fmt::Display for Broadcast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Broadcast::Binomial => write!(f, "binomial"),
            Broadcast::Tree(radix) => write!(f, "tree, radix {radix}"),
            Broadcast::ByNode(_, radix) => write!(f, "by node, radix {radix}"),
        }
    }
}

//! The best shapes for groups over TofuD, as a table of results of the simulation. So no process simulates when it forms a group.

use unipgas_schedule::{AllReduce, Barrier, Broadcast, Shapes};

/// Maximum number of bytes of a small value.
const FEW: u64 = 256;

/// The best shapes up to a number of nodes, for small and for large values. They are simulated with 8 bytes, and with the largest payload of a group.
type Row = (u32, Barrier, [AllReduce; 2], [Broadcast; 2]);

/// Shapes with one member on each node.
#[rustfmt::skip]
const ALONE: [Row; 7] = [
    (2, Barrier::Dissemination, [AllReduce::Doubling, AllReduce::Doubling], [Broadcast::Tree(2), Broadcast::Tree(2)]),
    (4, Barrier::Radix(4), [AllReduce::Radix(4), AllReduce::Radix(4)], [Broadcast::Tree(4), Broadcast::Tree(4)]),
    (12, Barrier::Radix(4), [AllReduce::Flat, AllReduce::Radix(4)], [Broadcast::Tree(4), Broadcast::Tree(4)]),
    (48, Barrier::Radix(4), [AllReduce::Radix(8), AllReduce::Radix(4)], [Broadcast::Tree(8), Broadcast::Tree(8)]),
    (192, Barrier::Radix(4), [AllReduce::Radix(4), AllReduce::Radix(4)], [Broadcast::Tree(4), Broadcast::Tree(8)]),
    (768, Barrier::Radix(4), [AllReduce::Radix(4), AllReduce::Radix(4)], [Broadcast::Tree(4), Broadcast::Tree(4)]),
    (3072, Barrier::Radix(8), [AllReduce::Radix(8), AllReduce::Radix(4)], [Broadcast::Tree(8), Broadcast::Tree(8)]),
];

/// Shapes with four members on each node. Other numbers of members use these shapes with their own number.
#[rustfmt::skip]
const SHARED: [Row; 7] = [
    (2, Barrier::Radix(8), [AllReduce::Radix(8), AllReduce::Doubling], [Broadcast::Tree(8), Broadcast::Tree(8)]),
    (4, Barrier::ByNode(4, 4), [AllReduce::Radix(4), AllReduce::Doubling], [Broadcast::ByNode(4, 4), Broadcast::ByNode(4, 4)]),
    (12, Barrier::ByNode(4, 4), [AllReduce::Radix(4), AllReduce::Doubling], [Broadcast::ByNode(4, 4), Broadcast::Tree(8)]),
    (48, Barrier::ByNode(4, 4), [AllReduce::Radix(4), AllReduce::ByNode(4, 4)], [Broadcast::ByNode(4, 8), Broadcast::ByNode(4, 8)]),
    (192, Barrier::ByNode(4, 4), [AllReduce::Radix(4), AllReduce::ByNode(4, 4)], [Broadcast::ByNode(4, 4), Broadcast::ByNode(4, 4)]),
    (768, Barrier::ByNode(4, 4), [AllReduce::Radix(8), AllReduce::ByNode(4, 4)], [Broadcast::Tree(8), Broadcast::Tree(8)]),
    (3072, Barrier::ByNode(4, 8), [AllReduce::ByNode(4, 8), AllReduce::ByNode(4, 4)], [Broadcast::ByNode(4, 8), Broadcast::ByNode(4, 8)]),
];

/// The shapes for `members` members on nodes of TofuD, with `per_node` consecutive members on each, for values of about `bytes` bytes. All members must pass
/// the same arguments.
pub fn shapes(members: u32, per_node: u32, bytes: u64) -> Shapes {
    let per_node = per_node.clamp(1, members.max(1));
    let nodes = members.div_ceil(per_node);
    let rows = if per_node == 1 { &ALONE } else { &SHARED };
    let row = rows.iter().find(|(most, ..)| nodes <= *most);
    let (_, barrier, all_reduce, broadcast) = row.unwrap_or(&rows[rows.len() - 1]);
    let kind = usize::from(bytes > FEW);
    Shapes {
        barrier: match *barrier {
            Barrier::ByNode(_, radix) => Barrier::ByNode(per_node, radix),
            other => other,
        },
        all_reduce: match all_reduce[kind] {
            // Each member sends to each: unsuitable for many members.
            AllReduce::Flat if members > unipgas_schedule::FEW => AllReduce::Doubling,
            AllReduce::ByNode(_, radix) => AllReduce::ByNode(per_node, radix),
            other => other,
        },
        broadcast: match broadcast[kind] {
            Broadcast::ByNode(_, radix) => Broadcast::ByNode(per_node, radix),
            other => other,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectives::{CollectiveAlgorithm, CollectiveOperation, best_of};
    use crate::figures::Figures;
    use crate::job::JobLayout;

    const PER_NODE: u32 = 4;
    const BYTES: [u64; 2] = [8, unipgas_schedule::PAYLOAD as u64];

    fn simulated(nodes: u32, per_node: u32) -> Row {
        let job = JobLayout::of(nodes * per_node, per_node).unwrap();
        let best = |operation, bytes| {
            let figures = Figures::default();
            best_of(
                operation,
                &job,
                &figures,
                bytes,
                CollectiveAlgorithm::is_of_groups,
            )
            .unwrap()
            .0
        };
        let CollectiveAlgorithm::Barrier(barrier) = best(CollectiveOperation::Barrier, 0) else {
            panic!("a barrier")
        };
        let all_reduce = BYTES.map(|bytes| match best(CollectiveOperation::AllReduce, bytes) {
            CollectiveAlgorithm::AllReduce(shape) => shape,
            other => panic!("{other}"),
        });
        let broadcast = BYTES.map(|bytes| match best(CollectiveOperation::Broadcast, bytes) {
            CollectiveAlgorithm::Broadcast(shape) => shape,
            other => panic!("{other}"),
        });
        (nodes, barrier, all_reduce, broadcast)
    }

    #[test]
    fn the_table_is_what_the_simulation_says() {
        for (rows, per_node) in [(ALONE, 1), (SHARED, PER_NODE)] {
            let simulated = rows.map(|(nodes, ..)| simulated(nodes, per_node));
            assert_eq!(rows, simulated, "with {per_node} a node");
        }
    }

    #[test]
    fn every_size_has_shapes_of_its_own_nodes() {
        for members in [1, 2, 3, 5, 48, 100, 1000, 700_000] {
            for per_node in [1, 2, 4, 48] {
                let shapes = shapes(members, per_node, 8);
                let most = per_node.min(members);
                for of in [
                    matches!(shapes.barrier, Barrier::ByNode(k, _) if k != most),
                    matches!(shapes.all_reduce, AllReduce::ByNode(k, _) if k != most),
                    matches!(shapes.broadcast, Broadcast::ByNode(k, _) if k != most),
                ] {
                    assert!(!of, "{members} {per_node}: {shapes:?}");
                }
            }
        }
    }
}

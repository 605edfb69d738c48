//! Logical coordinates of Fujitsu's MPI: a torus of one to three dimensions, embedded in the six-dimensional network.

use crate::shape::{Coords, NetworkShape};

/// Arrangement of a job's compute nodes in a torus of up to three dimensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Logical {
    /// Every node of the network has processes. Three axes: X with A, Y with B, Z with C.
    Grid(NetworkShape),
    /// One axis with this number of nodes.
    Line(u32),
}

impl Logical {
    /// For `nodes` nodes with processes.
    pub fn new(shape: NetworkShape, nodes: u32) -> Self {
        if shape.nodes() == nodes {
            Logical::Grid(shape)
        } else {
            Logical::Line(nodes)
        }
    }

    /// Lengths of the axes, at least one. Trailing axes of length 1 are left out.
    pub fn lengths(&self) -> Vec<u32> {
        match self {
            Logical::Line(nodes) => vec![*nodes],
            Logical::Grid(shape) => {
                let pairs = pairs(shape.lengths()).map(|[long, short]| long * short);
                let dimension = pairs.iter().rposition(|length| *length > 1).unwrap_or(0) + 1;
                pairs[..dimension].to_vec()
            }
        }
    }

    /// The coordinates of a node, one for each axis.
    pub fn coords(&self, node: u32) -> Vec<u32> {
        match self {
            Logical::Line(_) => vec![node],
            Logical::Grid(shape) => {
                let [x, y, z, a, b, c] = shape.coords(node).map(u32::from);
                let axes = pairs(shape.lengths());
                let mut at = vec![
                    ring(axes[0], [x, a]),
                    ring(axes[1], [y, b]),
                    ring(axes[2], [z, c]),
                ];
                at.truncate(self.lengths().len());
                at
            }
        }
    }

    /// The node at these coordinates. `None`: `at` is outside, or does not have one number for each axis.
    pub fn node(&self, at: &[u32]) -> Option<u32> {
        let lengths = self.lengths();
        if at.len() != lengths.len() || at.iter().zip(&lengths).any(|(at, length)| at >= length) {
            return None;
        }
        match self {
            Logical::Line(_) => Some(at[0]),
            Logical::Grid(shape) => {
                let mut coords: Coords = [0; 6];
                for (axis, pair) in pairs(shape.lengths()).into_iter().enumerate() {
                    let [long, short] = of_ring(pair, at.get(axis).copied().unwrap_or(0));
                    coords[axis] = long as u8;
                    coords[axis + 3] = short as u8;
                }
                shape.node(&coords)
            }
        }
    }
}

fn pairs([x, y, z, a, b, c]: [u16; 6]) -> [[u32; 2]; 3] {
    [[x, a], [y, b], [z, c]].map(|pair| pair.map(u32::from))
}

/// The place of `[at, fold]` in a ring through all points of a long axis and a short axis (`folds`, up to three). The ring goes up along the first fold.
/// It comes back across the other folds, from side to side. Each step goes to a neighbour, also the last one: the folds are a ring.
fn ring([long, folds]: [u32; 2], [at, fold]: [u32; 2]) -> u32 {
    if fold == 0 {
        return at;
    }
    let back = long - 1 - at;
    let aside = if back.is_multiple_of(2) {
        fold - 1
    } else {
        folds - 1 - fold
    };
    long + back * (folds - 1) + aside
}

/// The inverse of [`ring`].
fn of_ring([long, folds]: [u32; 2], place: u32) -> [u32; 2] {
    let Some(past) = place.checked_sub(long) else {
        return [place, 0];
    };
    let (back, aside) = (past / (folds - 1), past % (folds - 1));
    let fold = if back.is_multiple_of(2) {
        aside + 1
    } else {
        folds - 1 - aside
    };
    [long - 1 - back, fold]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_go_through_all_points_from_neighbour_to_neighbour() {
        for long in 1..9 {
            for folds in 1..=3 {
                let mut seen = std::collections::BTreeSet::new();
                let all = long * folds;
                for place in 0..all {
                    let point = of_ring([long, folds], place);
                    assert_eq!(ring([long, folds], point), place, "{long} x {folds}");
                    assert!(point[0] < long && point[1] < folds);
                    seen.insert(point);
                    let next = of_ring([long, folds], (place + 1) % all);
                    let along = point[0].abs_diff(next[0]);
                    let aside = point[1].abs_diff(next[1]);
                    // A single fold is a ring only if its axis is a torus.
                    let aside = aside.min(folds - aside);
                    let closes = folds == 1 && place + 1 == all;
                    assert!(
                        along + aside <= 1 || closes,
                        "{long} x {folds}: {point:?} {next:?}"
                    );
                }
                assert_eq!(seen.len(), all as usize);
            }
        }
    }

    #[test]
    fn nodes_have_coordinates_and_come_back() {
        for (shape, nodes, lengths) in [
            ("2x1x3x2x3x2", 72, vec![4, 3, 6]),
            ("1x1x1x2x3x2", 12, vec![2, 3, 2]),
            ("1x1x1x2x3x2", 5, vec![5]),
            ("5x1x1x1x1x1", 5, vec![5]),
            ("4x3x1x1x1x1", 12, vec![4, 3]),
            ("1x1x5x1x1x1", 5, vec![1, 1, 5]),
            ("1x1x1x1x1x1", 1, vec![1]),
        ] {
            let logical = Logical::new(shape.parse().unwrap(), nodes);
            assert_eq!(logical.lengths(), lengths, "{shape}");
            let mut seen = std::collections::BTreeSet::new();
            for node in 0..nodes {
                let at = logical.coords(node);
                assert_eq!(logical.node(&at), Some(node), "{shape}");
                seen.insert(at);
            }
            assert_eq!(seen.len(), nodes as usize, "{shape}");
            assert_eq!(logical.node(&lengths), None, "{shape}");
            assert_eq!(logical.node(&[]), None, "{shape}");
        }
    }
}

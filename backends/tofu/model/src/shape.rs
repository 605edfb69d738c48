//! The box of nodes of a job. It has six axes: X, Y, Z and B are rings, A and C are not (uTofu guide §1.1.2).

use std::fmt;
use std::str::FromStr;

use crate::{Error, Result, wrong};

/// The coordinates X, Y, Z, A, B, C of a node.
pub type NodeCoords = [u32; 6];

/// Names of the axes.
pub const AXES: [char; 6] = ['X', 'Y', 'Z', 'A', 'B', 'C'];
/// Number of ports of a node: two directions of each axis. [`TorusShape::has_link`] tells whether a port has a link.
pub const PORTS: usize = 12;
/// Maximum lengths of A, B and C.
const UNIT: [u32; 3] = [2, 3, 2];
/// Maximum length of X, Y and Z: a coordinate is a byte.
const LONGEST: u32 = 255;
/// Maximum number of nodes in the model.
pub const MAX_NODES: u32 = 1 << 20;

/// The lengths of the six axes, and whether each is a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TorusShape {
    lengths: [u32; 6],
    rings: [bool; 6],
}

impl TorusShape {
    /// Fugaku: 158,976 nodes.
    pub const FUGAKU: [u32; 6] = [24, 23, 24, 2, 3, 2];

    /// A box with axes of these lengths: X, Y, Z of 1 to 255, A, B, C up to 2, 3, 2. Axes of two nodes are no rings: one link connects them. Errors: an invalid
    /// length, or more than [`MAX_NODES`] nodes.
    pub fn new(lengths: [u32; 6]) -> Result<Self> {
        let most = [LONGEST, LONGEST, LONGEST, UNIT[0], UNIT[1], UNIT[2]];
        for ((length, most), axis) in lengths.iter().zip(most).zip(AXES) {
            if !(1..=most).contains(length) {
                return wrong(format!(
                    "the {axis} axis has a length of 1 to {most}, not {length}"
                ));
            }
        }
        let nodes: u64 = lengths.iter().map(|length| u64::from(*length)).product();
        if nodes > u64::from(MAX_NODES) {
            return wrong(format!(
                "the model has at most {MAX_NODES} nodes, not {nodes}"
            ));
        }
        let ring = |axis: usize| lengths[axis] > 2;
        Ok(TorusShape {
            lengths,
            rings: [ring(0), ring(1), ring(2), false, ring(4), false],
        })
    }

    /// The same box as a part of a larger machine: X, Y and Z are no rings.
    pub fn open(mut self) -> Self {
        self.rings[..3].fill(false);
        self
    }

    /// A box for `nodes` nodes. Up to twelve nodes, it is the smallest sufficient part of a unit of 2 x 3 x 2. Otherwise it consists of units. It has the
    /// shortest routes among the boxes that are at most a quarter too large. Errors: as [`TorusShape::new`].
    pub fn for_nodes(nodes: u32) -> Result<Self> {
        if nodes == 0 || nodes > MAX_NODES {
            return wrong(format!("a job has 1 to {MAX_NODES} nodes, not {nodes}"));
        }
        let parts = [[1, 1, 1], [2, 1, 1], [1, 3, 1], [2, 1, 2], [2, 3, 1], UNIT];
        let part = |part: &&[u32; 3]| part.iter().product::<u32>() >= nodes;
        if let Some([a, b, c]) = parts.iter().find(part) {
            return TorusShape::new([1, 1, 1, *a, *b, *c]);
        }
        let units = nodes.div_ceil(12);
        let mut best: Option<([u32; 3], (bool, u32, u32))> = None;
        for y in (1..=LONGEST).take_while(|y| (y - 1) * (y - 1) * (y - 1) < units) {
            for z in (y..=LONGEST).take_while(|z| y * (z - 1) * (z - 1) < units) {
                let x = units.div_ceil(y * z).max(z);
                let volume = x * y * z;
                let rank = (volume > units + units / 4, x + y + z, volume);
                if x <= LONGEST && best.is_none_or(|(_, other)| rank < other) {
                    best = Some(([x, y, z], rank));
                }
            }
        }
        match best {
            Some(([x, y, z], _)) => TorusShape::new([x, y, z, UNIT[0], UNIT[1], UNIT[2]]),
            None => wrong(format!("there is no box for {nodes} nodes")),
        }
    }

    /// Lengths of the axes X, Y, Z, A, B, C.
    pub fn lengths(&self) -> [u32; 6] {
        self.lengths
    }

    /// Whether an axis is a ring.
    pub fn is_ring(&self, axis: usize) -> bool {
        self.rings[axis]
    }

    /// Number of nodes.
    pub fn nodes(&self) -> u32 {
        self.lengths.iter().product()
    }

    /// Number of nodes with the same X, Y, Z.
    pub fn unit(&self) -> u32 {
        self.lengths[3..].iter().product()
    }

    /// The number of the node at `at`, which is in the box: C counts fastest, X slowest.
    #[inline]
    pub fn node(&self, at: &NodeCoords) -> u32 {
        at.iter()
            .zip(self.lengths)
            .fold(0, |node, (at, length)| node * length + at)
    }

    /// The coordinates of node `node`, which must be below [`TorusShape::nodes`].
    #[inline]
    pub fn coords(&self, mut node: u32) -> NodeCoords {
        let mut at = [0; 6];
        for (at, length) in at.iter_mut().zip(self.lengths).rev() {
            *at = node % length;
            node /= length;
        }
        at
    }

    /// Difference between the numbers of neighbours along an axis.
    #[inline]
    pub(crate) fn stride(&self, axis: usize) -> u32 {
        self.lengths[axis + 1..].iter().product()
    }

    /// Hops between two coordinates of an axis.
    #[inline]
    pub fn distance(&self, axis: usize, from: u32, to: u32) -> u32 {
        let straight = from.abs_diff(to);
        match self.rings[axis] {
            true => straight.min(self.lengths[axis] - straight),
            false => straight,
        }
    }

    /// The next node along an axis, up or down. `None`: there is no link.
    pub fn neighbour(&self, node: u32, axis: usize, up: bool) -> Option<u32> {
        let mut at = self.coords(node);
        let length = self.lengths[axis];
        at[axis] = match up {
            true if at[axis] + 1 < length => at[axis] + 1,
            true if self.rings[axis] => 0,
            false if at[axis] > 0 => at[axis] - 1,
            false if self.rings[axis] => length - 1,
            _ => return None,
        };
        Some(self.node(&at))
    }

    /// Whether the port `2 * axis + up` of a node has a link.
    pub fn has_link(&self, node: u32, port: usize) -> bool {
        self.neighbour(node, port / 2, port % 2 == 1).is_some()
    }

    /// Maximum number of hops between two nodes.
    pub fn diameter(&self) -> u32 {
        let longest = |axis: usize| match self.rings[axis] {
            true => self.lengths[axis] / 2,
            false => self.lengths[axis] - 1,
        };
        (0..6).map(longest).sum()
    }
}

impl FromStr for TorusShape {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let lengths: Option<Vec<u32>> = text.split(['x', 'X']).map(|l| l.parse().ok()).collect();
        match lengths.and_then(|lengths| lengths.try_into().ok()) {
            Some(lengths) => TorusShape::new(lengths),
            None => wrong(format!(
                "{text:?} is no shape: six lengths are needed, as in 4x2x3x2x3x2"
            )),
        }
    }
}

impl fmt::Display for TorusShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [x, y, z, a, b, c] = self.lengths;
        write!(f, "{x}x{y}x{z}x{a}x{b}x{c}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_box_is_large_enough_and_not_much_larger() {
        for nodes in (1..3000).chain([12_000, 100_000, 158_976, 158_977, MAX_NODES - 20_000]) {
            let shape = TorusShape::for_nodes(nodes).unwrap();
            assert!(shape.nodes() >= nodes, "{nodes}: {shape}");
            let units = nodes.div_ceil(12);
            let most = if nodes <= 12 {
                12
            } else {
                12 * (units + units / 4)
            };
            assert!(shape.nodes() <= most, "{nodes}: {shape}");
            assert_eq!(shape.to_string().parse(), Ok(shape));
        }
        let fugaku = TorusShape::for_nodes(158_976).unwrap();
        let mut lengths = fugaku.lengths();
        lengths[..3].sort_unstable();
        let mut known = TorusShape::FUGAKU;
        known[..3].sort_unstable();
        assert_eq!(lengths, known);
    }

    #[test]
    fn nodes_have_coordinates_and_come_back() {
        let shape: TorusShape = "3x2x4x2x3x2".parse().unwrap();
        for node in 0..shape.nodes() {
            assert_eq!(shape.node(&shape.coords(node)), node);
        }
        assert_eq!(shape.coords(1), [0, 0, 0, 0, 0, 1], "C counts fastest");
    }

    #[test]
    fn a_node_of_a_full_box_has_ten_links() {
        let shape = TorusShape::new([4, 3, 5, 2, 3, 2]).unwrap();
        for node in 0..shape.nodes() {
            let links = (0..PORTS).filter(|port| shape.has_link(node, *port));
            assert_eq!(links.count(), 10);
        }
        let corner = (0..PORTS).filter(|port| shape.open().has_link(0, *port));
        assert_eq!(corner.count(), 7);
    }

    #[test]
    fn what_is_no_shape_is_refused() {
        for bad in [
            "",
            "1x1",
            "0x1x1x1x1x1",
            "1x1x1x3x1x1",
            "1x1x1x2x4x2",
            "256x1x1x1x1x1",
            "255x255x255x2x3x2",
            "1x1x1x1x1x1x1",
            "-1x1x1x1x1x1",
        ] {
            assert!(bad.parse::<TorusShape>().is_err(), "{bad}");
        }
    }
}

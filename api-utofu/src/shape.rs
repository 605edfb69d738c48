//! The virtual six-dimensional mesh/torus: its nodes and their coordinates (guide §1.1.2).

use std::fmt;
use std::str::FromStr;

/// X, Y, Z, A, B, C of a compute node.
pub type Coords = [u8; 6];

/// Lengths of the A, B and C axes (guide §2.4).
pub const UNIT: [u16; 3] = [2, 3, 2];
/// The most nodes of a network.
pub const MAX_NODES: u32 = 16384;

/// Lengths of the six axes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NetworkShape {
    lengths: [u16; 6],
}

impl NetworkShape {
    /// Axes of these lengths: X, Y, Z from 1 to 255, A, B, C up to 2, 3, 2; at most [`MAX_NODES`] nodes.
    /// Errors: a line with the wrong value and the allowed ones.
    pub fn new(lengths: [u16; 6]) -> Result<Self, String> {
        let most = [255, 255, 255, UNIT[0], UNIT[1], UNIT[2]];
        for ((length, most), axis) in lengths.iter().zip(most).zip("XYZABC".chars()) {
            if !(1..=most).contains(length) {
                return Err(format!(
                    "the {axis} axis has a length of 1 to {most}, not {length}"
                ));
            }
        }
        let nodes: u64 = lengths.iter().map(|length| u64::from(*length)).product();
        if nodes > u64::from(MAX_NODES) {
            return Err(format!(
                "a network has at most {MAX_NODES} nodes, not {nodes}"
            ));
        }
        Ok(NetworkShape { lengths })
    }

    /// A network of units of 2 x 3 x 2 nodes, in a shape near a cube. It has room for `nodes` nodes, up to 16380.
    pub fn for_nodes(nodes: u32) -> Self {
        let units = nodes.clamp(1, MAX_NODES / 12 * 12).div_ceil(12);
        let x = (1..).find(|x| x * x * x >= units).unwrap_or(1);
        let y = (1..).find(|y| x * y * y >= units).unwrap_or(1);
        let z = units.div_ceil(x * y);
        // Near the maximum, the cube can have more than MAX_NODES nodes. A plane then fits.
        let fits = |x: u32, z: u32| z <= 255 && 12 * x * z <= MAX_NODES;
        let (x, y, z) = if 12 * x * y * z <= MAX_NODES {
            (x, y, z)
        } else {
            let x = (1..=255)
                .find(|x| fits(*x, units.div_ceil(*x)))
                .unwrap_or(1);
            (x, 1, units.div_ceil(x))
        };
        NetworkShape {
            lengths: [x as u16, y as u16, z as u16, UNIT[0], UNIT[1], UNIT[2]],
        }
    }

    /// Lengths of the axes X, Y, Z, A, B, C.
    pub fn lengths(&self) -> [u16; 6] {
        self.lengths
    }

    /// Number of nodes.
    pub fn nodes(&self) -> u32 {
        self.lengths.iter().map(|l| u32::from(*l)).product()
    }

    /// The number of the node at `coords`. C counts fastest, X slowest. `None`: outside of the network.
    #[inline]
    pub fn node(&self, coords: &Coords) -> Option<u32> {
        let mut node = 0;
        for (at, length) in coords.iter().zip(self.lengths) {
            if u16::from(*at) >= length {
                return None;
            }
            node = node * u32::from(length) + u32::from(*at);
        }
        Some(node)
    }

    /// The coordinates of node `node`, which is below [`NetworkShape::nodes`].
    pub fn coords(&self, mut node: u32) -> Coords {
        let mut coords = [0; 6];
        for (at, length) in coords.iter_mut().zip(self.lengths).rev() {
            *at = (node % u32::from(length)) as u8;
            node /= u32::from(length);
        }
        coords
    }

    /// Whether a path may go through these A, B, C coordinates.
    #[inline]
    pub fn has_path(&self, path: &[u8; 3]) -> bool {
        path.iter()
            .zip(&self.lengths[3..])
            .all(|(at, length)| u16::from(*at) < *length)
    }

    /// The lengths as 12 bytes, little-endian.
    pub fn to_bytes(&self) -> [u8; 12] {
        let mut bytes = [0; 12];
        for (place, length) in bytes.chunks_exact_mut(2).zip(self.lengths) {
            place.copy_from_slice(&length.to_le_bytes());
        }
        bytes
    }

    /// From [`NetworkShape::to_bytes`].
    pub fn from_bytes(bytes: &[u8; 12]) -> Result<Self, String> {
        let mut lengths = [0; 6];
        for (length, place) in lengths.iter_mut().zip(bytes.chunks_exact(2)) {
            *length = u16::from_le_bytes([place[0], place[1]]);
        }
        NetworkShape::new(lengths)
    }
}

impl FromStr for NetworkShape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let lengths: Option<Vec<u16>> = text.split(['x', 'X']).map(|l| l.parse().ok()).collect();
        let lengths: [u16; 6] = lengths.and_then(|l| l.try_into().ok()).ok_or_else(|| {
            format!("{text:?} is no shape: six lengths are needed, as in 2x1x1x2x3x2")
        })?;
        NetworkShape::new(lengths)
    }
}

impl fmt::Display for NetworkShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [x, y, z, a, b, c] = self.lengths;
        write!(f, "{x}x{y}x{z}x{a}x{b}x{c}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_node_has_coordinates_of_its_own() {
        for nodes in [1, 2, 12, 13, 48, 100, 1000, 16000, 16380] {
            let shape = NetworkShape::for_nodes(nodes);
            assert_eq!(shape.to_string().parse(), Ok(shape));
            assert!(shape.nodes() >= nodes, "{nodes}: {shape}");
            let all = shape.nodes();
            for node in 0..all {
                assert_eq!(shape.node(&shape.coords(node)), Some(node));
            }
        }
        assert_eq!(NetworkShape::for_nodes(12).to_string(), "1x1x1x2x3x2");
    }

    #[test]
    fn texts_and_bytes_come_back_and_wrong_ones_are_refused() {
        let shape: NetworkShape = "4x3x2x2x3x2".parse().unwrap();
        assert_eq!(shape.to_string().parse(), Ok(shape));
        assert_eq!(NetworkShape::from_bytes(&shape.to_bytes()), Ok(shape));
        for wrong in [
            "",
            "1",
            "1x1x1x2x3",
            "0x1x1x2x3x2",
            "1x1x1x3x3x2",
            "255x255x1x2x3x2",
            "axbxcxdxexf",
        ] {
            assert!(wrong.parse::<NetworkShape>().is_err(), "{wrong}");
        }
        assert_eq!(shape.node(&[4, 0, 0, 0, 0, 0]), None);
    }
}

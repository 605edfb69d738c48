//! The route of a packet (uTofu guide §2.4).

use std::str::FromStr;

use crate::shape::{NodeCoords, PORTS, TorusShape};
use crate::{Error, Result, wrong};

/// The order of the axes; each is traversed by its shortest way. First to the path's A, B, C, then X, Y, Z, then the target's A, B, C. The guide does not give
/// the order within each three; it is assumed.
const TO_PATH: [usize; 3] = [3, 4, 5];
const ACROSS: [usize; 3] = [0, 1, 2];

/// The path coordinates of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PathRule {
    /// The coordinates of the target, which its VCQ id contains (guide §3.3): the default of the system.
    #[default]
    Target,
    /// The coordinates of the sender.
    Source,
    /// The same coordinates for all packets.
    Fixed([u32; 3]),
    /// All coordinates in turn, by the numbers of the two nodes: a program that requests a path for each peer.
    Spread,
}

impl PathRule {
    fn coords(self, shape: &TorusShape, from: &NodeCoords, to: &NodeCoords) -> [u32; 3] {
        let of = |at: &NodeCoords| [at[3], at[4], at[5]];
        match self {
            PathRule::Target => of(to),
            PathRule::Source => of(from),
            PathRule::Fixed(path) => path,
            PathRule::Spread => {
                let turn = (shape.node(from) + shape.node(to)) % shape.unit();
                of(&shape.coords(turn))
            }
        }
    }

    /// Checks the rule for a box. Errors: path coordinates that the box does not have.
    pub fn check(self, shape: &TorusShape) -> Result<()> {
        let PathRule::Fixed(path) = self else {
            return Ok(());
        };
        let inside = path
            .iter()
            .zip(&shape.lengths()[3..])
            .all(|(at, length)| at < length);
        match inside {
            true => Ok(()),
            false => wrong(format!(
                "the path {},{},{} is outside of A, B, C of {shape}",
                path[0], path[1], path[2]
            )),
        }
    }
}

impl FromStr for PathRule {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "target" => return Ok(PathRule::Target),
            "source" => return Ok(PathRule::Source),
            "spread" => return Ok(PathRule::Spread),
            _ => {}
        }
        let path: Option<Vec<u32>> = text.split(',').map(|at| at.parse().ok()).collect();
        match path.and_then(|path| path.try_into().ok()) {
            Some(path) => Ok(PathRule::Fixed(path)),
            None => wrong(format!(
                "{text:?} is no path: target, source, spread, or A,B,C as in 0,1,0"
            )),
        }
    }
}

/// The number of a link: the number of its first node times [`PORTS`], plus its port there, `2 * axis + up`.
pub fn link(node: u32, axis: usize, up: bool) -> usize {
    node as usize * PORTS + 2 * axis + usize::from(up)
}

/// Calls `visit` with the number of each link from one node to another, in order, and returns their number. If both ways around a ring have the same length,
/// the route goes upwards.
#[inline]
pub fn walk(
    shape: &TorusShape,
    rule: PathRule,
    from: u32,
    to: u32,
    mut visit: impl FnMut(usize),
) -> u32 {
    let (start, target) = (shape.coords(from), shape.coords(to));
    let path = rule.coords(shape, &start, &target);
    let mut at = start;
    let mut node = from;
    let mut hops = 0;
    let mut along = |axis: usize, goal: u32| {
        let (length, stride) = (shape.lengths()[axis], shape.stride(axis));
        let straight = goal.abs_diff(at[axis]);
        let upwards = goal > at[axis];
        let around =
            shape.is_ring(axis) && (2 * straight > length || 2 * straight == length && !upwards);
        let (steps, up) = match around {
            true => (length - straight, !upwards),
            false => (straight, upwards),
        };
        for _ in 0..steps {
            visit(link(node, axis, up));
            (at[axis], node) = match up {
                true if at[axis] + 1 == length => (0, node - stride * (length - 1)),
                true => (at[axis] + 1, node + stride),
                false if at[axis] == 0 => (length - 1, node + stride * (length - 1)),
                false => (at[axis] - 1, node - stride),
            };
        }
        hops += steps;
    };
    // Two processes of one node need no path.
    if from != to {
        TO_PATH.iter().for_each(|axis| along(*axis, path[axis - 3]));
        ACROSS.iter().for_each(|axis| along(*axis, target[*axis]));
        TO_PATH.iter().for_each(|axis| along(*axis, target[*axis]));
    }
    hops
}

/// The number of hops of [`walk`].
#[inline]
pub fn hops(shape: &TorusShape, rule: PathRule, from: u32, to: u32) -> u32 {
    if from == to {
        return 0;
    }
    let (start, target) = (shape.coords(from), shape.coords(to));
    let path = rule.coords(shape, &start, &target);
    let across = |axis: &usize| shape.distance(*axis, start[*axis], target[*axis]);
    let aside = |axis: &usize| {
        let by = path[axis - 3];
        shape.distance(*axis, start[*axis], by) + shape.distance(*axis, by, target[*axis])
    };
    ACROSS.iter().map(across).sum::<u32>() + TO_PATH.iter().map(aside).sum::<u32>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    /// Hops from one node to all others, computed from the links alone.
    fn breadth_first(shape: &TorusShape, from: u32) -> Vec<u32> {
        let mut hops = vec![u32::MAX; shape.nodes() as usize];
        hops[from as usize] = 0;
        let mut queue = VecDeque::from([from]);
        while let Some(node) = queue.pop_front() {
            for port in 0..PORTS {
                if let Some(next) = shape.neighbour(node, port / 2, port % 2 == 1)
                    && hops[next as usize] == u32::MAX
                {
                    hops[next as usize] = hops[node as usize] + 1;
                    queue.push_back(next);
                }
            }
        }
        hops
    }

    fn ends(shape: &TorusShape, rule: PathRule, from: u32, to: u32) -> (u32, u32) {
        let (mut node, mut count) = (from, 0);
        let hops = walk(shape, rule, from, to, |link| {
            assert_eq!(link / PORTS, node as usize, "links follow each other");
            let port = link % PORTS;
            node = shape
                .neighbour(node, port / 2, port % 2 == 1)
                .expect("a link");
            count += 1;
        });
        assert_eq!(count, hops);
        (node, hops)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn ways_arrive_by_the_rule(
            x in 1..6u32, y in 1..5u32, z in 1..4u32, a in 1..3u32, b in 1..4u32, c in 1..3u32,
            open: bool, seed: u32,
        ) {
            let mut shape = TorusShape::new([x, y, z, a, b, c]).unwrap();
            if open {
                shape = shape.open();
            }
            let from = seed % shape.nodes();
            let shortest = breadth_first(&shape, from);
            let fixed = shape.coords(seed.rotate_left(7) % shape.unit());
            for rule in [PathRule::Target, PathRule::Source, PathRule::Spread, PathRule::Fixed([fixed[3], fixed[4], fixed[5]])] {
                for to in 0..shape.nodes() {
                    let (end, count) = ends(&shape, rule, from, to);
                    prop_assert_eq!(end, to);
                    prop_assert_eq!(count, hops(&shape, rule, from, to));
                    match rule {
                        PathRule::Target | PathRule::Source => prop_assert_eq!(count, shortest[to as usize]),
                        _ => prop_assert!(count >= shortest[to as usize] && count <= shortest[to as usize] + 6),
                    }
                }
            }
        }
    }

    #[test]
    fn the_longest_way_is_the_diameter() {
        for shape in ["4x3x5x2x3x2", "2x2x1x2x3x1", "6x1x1x1x1x1"] {
            let shape: TorusShape = shape.parse().unwrap();
            let longest = breadth_first(&shape, 0).into_iter().max();
            assert_eq!(longest, Some(shape.diameter()), "{shape}");
        }
    }

    /// The example of the guide's figure 2.18: X, B (1,0) to (4,2) by each B.
    #[test]
    fn a_path_is_taken_before_x() {
        let shape: TorusShape = "6x1x1x1x3x1".parse().unwrap();
        let (from, to) = (
            shape.node(&[1, 0, 0, 0, 0, 0]),
            shape.node(&[4, 0, 0, 0, 2, 0]),
        );
        for by in 0..3 {
            let mut rows = Vec::new();
            walk(&shape, PathRule::Fixed([0, by, 0]), from, to, |link| {
                if link % PORTS / 2 == 0 {
                    rows.push(shape.coords((link / PORTS) as u32)[4]);
                }
            });
            assert_eq!(rows, vec![by; 3]);
        }
    }
}

//! Draws the job as text for a page of 80 columns: each node, or a digit for each X, Y, Z, or a line for each plane, as the size permits.

use std::fmt::Write as _;

use unipgas_tofud::JobLayout;
use unipgas_tofud::predict::Loads;
use unipgas_tofud::shape::{AXES, PORTS};

use super::text::grouped;

/// Columns and lines of a page.
const COLUMNS: u32 = 80;
const LINES: u32 = 66;

/// One line that describes the job.
pub fn heading(job: &JobLayout) -> String {
    let shape = &job.shape;
    let rings: String = (0..6)
        .filter(|axis| shape.is_ring(*axis))
        .map(|axis| AXES[axis])
        .collect();
    let rings = match rings.len() {
        0 => "no axis closes".into(),
        _ => format!("rings: {rings}"),
    };
    format!(
        "TofuD {shape}: {} nodes, {} processes, {} a node; {rings}\n",
        grouped(u64::from(shape.nodes())),
        grouped(u64::from(job.processes)),
        job.per_node,
    )
}

/// The drawing, with tenths of the busiest link's load.
pub fn draw(job: &JobLayout, loads: &Loads) -> String {
    let [x, y, z, _, b, _] = job.shape.lengths();
    let busy = Busy::of(job, loads);
    let page = Page::of(job);
    let bands = x.div_ceil(page.units_in_a_row());
    if page.units_in_a_row() > 0 && bands * z * (2 + y * (b + 1)) <= LINES {
        return page.nodes(&busy);
    }
    if 8 + 2 * x <= COLUMNS && z * (y + 2) <= LINES {
        return units(job, &busy);
    }
    planes(job, &busy)
}

/// Loads of links relative to the busiest link.
struct Busy {
    most: u64,
    /// The load of the busiest link of each node.
    nodes: Vec<u64>,
}

impl Busy {
    fn of(job: &JobLayout, loads: &Loads) -> Self {
        let nodes = loads.links.chunks(PORTS);
        let nodes: Vec<u64> = nodes
            .map(|ports| ports.iter().copied().max().unwrap_or(0))
            .collect();
        debug_assert_eq!(nodes.len(), job.shape.nodes() as usize);
        Busy {
            most: nodes.iter().copied().max().unwrap_or(0),
            nodes,
        }
    }

    /// A dot for no load, else tenths, rounded down; 9 also for the full load.
    fn digit(&self, bytes: u64) -> char {
        match bytes {
            0 => '.',
            bytes => {
                let tenths = u128::from(bytes) * 10 / u128::from(self.most);
                char::from_digit(tenths.min(9) as u32, 10).unwrap_or('9')
            }
        }
    }
}

const LEGEND: &str = "the load of the busiest link that leaves\nit, in tenths of that of the busiest one of all (. is none)";

/// A drawing of each node.
struct Page<'a> {
    job: &'a JobLayout,
    /// Digits of the largest rank.
    digits: u32,
}

impl<'a> Page<'a> {
    fn of(job: &'a JobLayout) -> Self {
        let digits = job.processes.max(2) - 1;
        Page {
            job,
            digits: digits.to_string().len() as u32,
        }
    }

    /// Columns of a node: its first rank, a colon, a digit and a space.
    fn cell(&self) -> u32 {
        self.digits + 3
    }

    fn units_in_a_row(&self) -> u32 {
        let [.., a, _, c] = self.job.shape.lengths();
        ((COLUMNS - 6) / (a * c * self.cell() + 1)).min(self.job.shape.lengths()[0])
    }

    fn nodes(&self, busy: &Busy) -> String {
        let [x, y, z, a, b, c] = self.job.shape.lengths();
        let mut text = String::new();
        let _ = writeln!(
            text,
            "Each node has its first rank and {LEGEND}.\nRows of a block are B, columns A and, faster, C.\n"
        );
        let width = (a * c * self.cell() + 1) as usize;
        let step = self.units_in_a_row();
        for z in 0..z {
            for first in (0..x).step_by(step as usize) {
                let row: String = (first..x.min(first + step))
                    .map(|x| format!("{:<width$}", format!("x {x}")))
                    .collect();
                let _ = writeln!(text, "{:<6}{}", format!("z {z}"), row.trim_end());
                for y in 0..y {
                    for b in 0..b {
                        let name = if b == 0 {
                            format!("y {y}")
                        } else {
                            String::new()
                        };
                        let mut line = format!("{name:<6}");
                        for x in first..x.min(first + step) {
                            for (a, c) in (0..a).flat_map(|a| (0..c).map(move |c| (a, c))) {
                                let node = self.job.shape.node(&[x, y, z, a, b, c]);
                                line += &self.node(node, busy);
                            }
                            line.push(' ');
                        }
                        let _ = writeln!(text, "{}", line.trim_end());
                    }
                    text.push('\n');
                }
            }
        }
        text
    }

    fn node(&self, node: u32, busy: &Busy) -> String {
        let digits = self.digits as usize;
        let rank = match self.job.rank(node, 0) {
            Some(rank) => rank.to_string(),
            None => "-".into(),
        };
        format!("{rank:>digits$}:{} ", busy.digit(busy.nodes[node as usize]))
    }
}

/// Draws a digit for each X, Y, Z.
fn units(job: &JobLayout, busy: &Busy) -> String {
    let [x, y, z, ..] = job.shape.lengths();
    let mut text = format!(
        "Each X, Y, Z with its {} nodes has {LEGEND}.\n\n",
        job.shape.unit()
    );
    for z in 0..z {
        let columns: String = (0..x).map(|x| format!("{:>2}", x % 10)).collect();
        let _ = writeln!(text, "{:<6}x{columns}", format!("z {z}"));
        for y in 0..y {
            let row: String = (0..x)
                .map(|x| {
                    let first = job.shape.node(&[x, y, z, 0, 0, 0]) as usize;
                    let all = &busy.nodes[first..first + job.shape.unit() as usize];
                    format!(" {}", busy.digit(all.iter().copied().max().unwrap_or(0)))
                })
                .collect();
            let _ = writeln!(text, "{:<7}{row}", format!("y {y}"));
        }
    }
    text
}

/// Lists a line for each plane.
fn planes(job: &JobLayout, busy: &Busy) -> String {
    let mut text = String::from(
        "Planes: nodes in use, and the loads of the nodes' busiest links beside that of\nthe busiest one of all\n\n  plane    nodes   most   mean\n",
    );
    for axis in 0..3 {
        let length = job.shape.lengths()[axis];
        let mut planes = vec![(0u64, 0u64, 0u128); length as usize];
        for (node, bytes) in busy.nodes.iter().enumerate() {
            let node = node as u32;
            let (used, most, sum) = &mut planes[job.shape.coords(node)[axis] as usize];
            *used += u64::from(node < job.nodes_in_use());
            *most = (*most).max(*bytes);
            *sum += u128::from(*bytes);
        }
        let each = job.shape.nodes() / length;
        for (at, (used, most, sum)) in planes.into_iter().enumerate() {
            let part = |load: f64| 100.0 * load / busy.most.max(1) as f64;
            let (most, mean) = (part(most as f64), part(sum as f64 / f64::from(each)));
            let bar = "#".repeat((mean / 2.5).round() as usize);
            let name = format!("{} {at}", AXES[axis].to_ascii_lowercase());
            let line = format!(
                "  {name:<6} {:>7}  {most:>3.0} %  {mean:>3.0} %  {bar}",
                grouped(used)
            );
            let _ = writeln!(text, "{}", line.trim_end());
        }
    }
    text
}

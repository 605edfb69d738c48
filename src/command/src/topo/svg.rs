//! Draws the job as SVG: a plane of X and Y for each Z, with links coloured by load.

use std::path::Path;

use plotters::prelude::*;
use unipgas_tofud::JobLayout;
use unipgas_tofud::predict::Loads;
use unipgas_tofud::shape::PORTS;

/// Most nodes to draw one by one. In larger jobs, a square stands for all nodes of one X, Y, Z.
const EACH: u32 = 1536;
/// Sizes in pixels: a node with its links, the margin, the heading.
const CELL: i32 = 16;
const MARGIN: i32 = 24;
const HEAD: i32 = 64;
/// Width of a row of planes in pixels, at most.
const WIDTH: i32 = 1600;

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// Positions in the drawing.
struct Layout<'a> {
    job: &'a JobLayout,
    /// Whether each node is drawn.
    nodes: bool,
    /// Width and height of an X, Y, Z, in pixels.
    unit: [i32; 2],
    /// Planes in a row.
    columns: i32,
}

impl<'a> Layout<'a> {
    fn of(job: &'a JobLayout) -> Self {
        let [x, y, z, a, b, c] = job.shape.lengths().map(|length| length as i32);
        let nodes = job.shape.nodes() <= EACH;
        let unit = match nodes {
            true => [(a * c + 1) * CELL, (b + 1) * CELL],
            false => [CELL, CELL],
        };
        let width = x * unit[0] + MARGIN;
        let columns = (WIDTH / width).clamp(1, z);
        let _ = y;
        Layout {
            job,
            nodes,
            unit,
            columns,
        }
    }

    fn plane(&self) -> [i32; 2] {
        let [x, y, ..] = self.job.shape.lengths().map(|length| length as i32);
        [x * self.unit[0] + MARGIN, y * self.unit[1] + 2 * MARGIN]
    }

    fn size(&self) -> (u32, u32) {
        let z = self.job.shape.lengths()[2] as i32;
        let [width, height] = self.plane();
        let rows = (z + self.columns - 1) / self.columns;
        let wide = (self.columns * width + MARGIN).max(760);
        (wide as u32, (HEAD + rows * height + MARGIN) as u32)
    }

    /// The corner of a plane.
    fn corner(&self, z: i32) -> (i32, i32) {
        let [width, height] = self.plane();
        (
            MARGIN + z % self.columns * width,
            HEAD + MARGIN + z / self.columns * height,
        )
    }

    /// The middle of a node, or of all nodes of its X, Y, Z.
    fn place(&self, node: u32) -> (i32, i32) {
        let [x, y, z, a, b, c] = self.job.shape.coords(node).map(|at| at as i32);
        let (left, top) = self.corner(z);
        let (across, down) = match self.nodes {
            true => (a * self.job.shape.lengths()[5] as i32 + c, b),
            false => (0, 0),
        };
        (
            left + x * self.unit[0] + across * CELL + CELL / 2,
            top + y * self.unit[1] + down * CELL + CELL / 2,
        )
    }
}

/// Writes the drawing. Errors: the file cannot be written.
pub fn draw(file: &Path, job: &JobLayout, loads: &Loads, title: &str) -> Outcome {
    let layout = Layout::of(job);
    let area = SVGBackend::new(file, layout.size()).into_drawing_area();
    area.fill(&WHITE)?;
    area.draw(&Text::new(
        title.to_owned(),
        (MARGIN, 12),
        ("sans-serif", 18),
    ))?;
    legend(&area)?;
    for z in 0..job.shape.lengths()[2] as i32 {
        let (left, top) = layout.corner(z);
        area.draw(&Text::new(
            format!("z {z}"),
            (left, top - 16),
            ("sans-serif", 12),
        ))?;
    }
    let most = loads.hottest().map_or(1, |(_, bytes)| bytes);
    let mut drawn = match layout.nodes {
        true => of_nodes(&layout, loads),
        false => of_units(&layout, loads),
    };
    // Draws busy links above others.
    drawn.sort_by_key(|link| link.bytes);
    for link in &drawn {
        let part = link.bytes as f64 / most as f64;
        let style = color(part).stroke_width(if link.bytes == 0 { 1 } else { 3 });
        area.draw(&PathElement::new(vec![link.from, link.to], style))?;
    }
    for (place, bytes, used) in squares(&layout, loads) {
        let half = if layout.nodes { 3 } else { 2 };
        let style = match (used, bytes) {
            (false, 0) => RGBColor(225, 225, 225).filled(),
            _ => color(bytes as f64 / most as f64).filled(),
        };
        let corners = [
            (place.0 - half, place.1 - half),
            (place.0 + half, place.1 + half),
        ];
        area.draw(&Rectangle::new(corners, style))?;
    }
    area.present()?;
    Ok(())
}

/// A drawn link. It stands for both directions.
struct Drawn {
    from: (i32, i32),
    to: (i32, i32),
    bytes: u64,
}

/// The next node on an axis, and the load of the busier direction.
fn both(job: &JobLayout, loads: &Loads, node: u32, axis: usize) -> Option<(u32, u64)> {
    let next = job.shape.neighbour(node, axis, true)?;
    let up = loads.links[node as usize * PORTS + 2 * axis + 1];
    let down = loads.links[next as usize * PORTS + 2 * axis];
    Some((next, up.max(down)))
}

/// The line of a link. A link that wraps around, or leads to another plane, is a stub of about half a cell.
fn line(layout: &Layout<'_>, node: u32, next: u32, axis: usize, bytes: u64) -> Drawn {
    let (from, there) = (layout.place(node), layout.place(next));
    let [at, goal] = [node, next].map(|node| layout.job.shape.coords(node)[axis]);
    let to = match axis {
        2 => (from.0 + CELL / 3, from.1 - CELL / 3),
        0 if goal < at => (from.0 + CELL / 2, from.1),
        1 | 4 if goal < at => (from.0, from.1 + CELL / 2),
        _ => there,
    };
    Drawn { from, to, bytes }
}

fn of_nodes(layout: &Layout<'_>, loads: &Loads) -> Vec<Drawn> {
    let mut drawn = Vec::new();
    for node in 0..layout.job.shape.nodes() {
        for axis in 0..6 {
            if let Some((next, bytes)) = both(layout.job, loads, node, axis) {
                drawn.push(line(layout, node, next, axis, bytes));
            }
        }
    }
    drawn
}

/// The busiest link between each two X, Y, Z.
fn of_units(layout: &Layout<'_>, loads: &Loads) -> Vec<Drawn> {
    let shape = &layout.job.shape;
    let mut drawn = Vec::new();
    for first in (0..shape.nodes()).step_by(shape.unit() as usize) {
        for axis in 0..3 {
            let links = (first..first + shape.unit())
                .filter_map(|node| both(layout.job, loads, node, axis));
            if let Some((next, bytes)) = links.max_by_key(|(_, bytes)| *bytes) {
                drawn.push(line(layout, first, next, axis, bytes));
            }
        }
    }
    drawn
}

/// The squares of nodes, or of all nodes of an X, Y, Z, with the load of the busiest link on A, B and C, and whether the job uses them.
fn squares(layout: &Layout<'_>, loads: &Loads) -> Vec<((i32, i32), u64, bool)> {
    let shape = &layout.job.shape;
    let step = if layout.nodes { 1 } else { shape.unit() };
    let within = |node: u32| (3..6).filter_map(move |axis| both(layout.job, loads, node, axis));
    (0..shape.nodes())
        .step_by(step as usize)
        .map(|first| {
            let loads = (first..first + step).flat_map(within);
            let bytes = loads.map(|(_, bytes)| bytes).max().unwrap_or(0);
            (
                layout.place(first),
                bytes,
                first < layout.job.nodes_in_use(),
            )
        })
        .collect()
}

/// Colours from light grey over blue and orange to red. They differ in lightness too.
fn color(part: f64) -> RGBColor {
    match part {
        part if part <= 0.0 => RGBColor(205, 205, 205),
        part if part <= 0.25 => RGBColor(158, 202, 225),
        part if part <= 0.5 => RGBColor(66, 146, 198),
        part if part <= 0.75 => RGBColor(230, 130, 0),
        _ => RGBColor(160, 20, 20),
    }
}

fn legend<B: DrawingBackend>(area: &DrawingArea<B, plotters::coord::Shift>) -> Outcome
where
    B::ErrorType: 'static,
{
    let parts = [
        ("no load", 0.0),
        ("to a quarter of the busiest link's", 0.2),
        ("to half", 0.4),
        ("to three quarters", 0.7),
        ("above", 1.0),
    ];
    let mut left = MARGIN;
    for (name, part) in parts {
        area.draw(&PathElement::new(
            vec![(left, 46), (left + 20, 46)],
            color(part).stroke_width(3),
        ))?;
        area.draw(&Text::new(name, (left + 26, 40), ("sans-serif", 12)))?;
        left += 46 + 7 * name.len() as i32;
    }
    Ok(())
}

//! Heat in a plate: Jacobi steps on a grid. The rows of the grid are distributed over the processes. `examples/gaspi/heat2d.c` in Rust.
//!
//! heat [ROWS [COLUMNS [STEPS]]]
//!
//! In each step a process writes its first and last row to its neighbours. Then it computes its inner rows, which need no row of a neighbour, and
//! waits for the neighbours' rows. At the end rank 0 repeats the work alone: residual and checksum must agree to the last bit, with any number of processes.

use std::ops::Range;

use unipgas::gaspi::ReductionOperation;
use unipgas::gaspi::safe::{Gaspi, Notification, Result, Timeout};

/// Size of the grid, and number of steps.
#[derive(Clone, Copy)]
pub struct Problem {
    /// Rows from the upper to the lower edge.
    pub rows: usize,
    /// Columns from left to right.
    pub columns: usize,
    /// Jacobi steps.
    pub steps: usize,
}

#[derive(Debug, PartialEq)]
struct Outcome {
    /// Largest change of a cell in the last step.
    residual: f64,
    /// Sum of the bit patterns of all cells; the order does not matter.
    checksum: u64,
}

/// The rows of a process. The numbers of rows of two processes differ by at most one.
fn part(problem: Problem, rank: u16, size: u16) -> Range<usize> {
    let first = |rank: usize| problem.rows * rank / usize::from(size);
    first(rank.into())..first(usize::from(rank) + 1)
}

/// The warm upper edge of the plate. The other edges are at 0.
fn warm_edge(columns: usize) -> Vec<f64> {
    let at = |column| (column + 1) as f64 / (columns + 1) as f64;
    (0..columns)
        .map(|column| 4.0 * at(column) * (1.0 - at(column)))
        .collect()
}

/// Computes the next values of a row from this row and the rows above and below. Returns the largest change.
fn relax(above: &[f64], row: &[f64], below: &[f64], next: &mut [f64]) -> f64 {
    let mut largest: f64 = 0.0;
    for column in 0..row.len() {
        let left = column.checked_sub(1).map_or(0.0, |column| row[column]);
        let right = row.get(column + 1).copied().unwrap_or(0.0);
        next[column] = 0.25 * ((above[column] + below[column]) + (left + right));
        largest = largest.max((next[column] - row[column]).abs());
    }
    largest
}

/// Computes the rows `which` of a part. `above` and `below` are the neighbouring rows of the part.
fn relax_rows(
    which: Range<usize>,
    (above, below): (&[f64], &[f64]),
    now: &[f64],
    next: &mut [f64],
) -> f64 {
    let columns = above.len();
    let rows = now.len() / columns;
    let row = |row: usize| &now[row * columns..][..columns];
    let changes = which.map(|at| {
        let above = if at == 0 { above } else { row(at - 1) };
        let below = if at + 1 == rows { below } else { row(at + 1) };
        relax(above, row(at), below, &mut next[at * columns..][..columns])
    });
    changes.fold(0.0, f64::max)
}

fn checksum(cells: &[f64]) -> u64 {
    cells
        .iter()
        .fold(0, |sum, cell| sum.wrapping_add(cell.to_bits()))
}

fn alone(problem: Problem) -> Outcome {
    let (warm, cold) = (warm_edge(problem.columns), vec![0.0; problem.columns]);
    let mut now = vec![0.0; problem.rows * problem.columns];
    let mut next = now.clone();
    let mut residual = 0.0;
    for _ in 0..problem.steps {
        residual = relax_rows(0..problem.rows, (&warm, &cold), &now, &mut next);
        std::mem::swap(&mut now, &mut next);
    }
    Outcome {
        residual,
        checksum: checksum(&now),
    }
}

/// Indices of notifications and halo rows. Even and odd steps have different ones, since a neighbour may be a step ahead.
const FROM_ABOVE: usize = 0;
const FROM_BELOW: usize = 1;
const SIDES: usize = 2;

fn together(gaspi: &Gaspi, problem: Problem) -> Result<Outcome> {
    let columns = problem.columns;
    let (rank, size) = (gaspi.rank(), gaspi.size());
    let rows = part(problem, rank, size).len();
    let all = gaspi.group_all();
    let halo = all.create_segment::<f64>(0, 2 * SIDES * columns)?;
    let mut now = gaspi.buffer::<f64>(rows * columns)?;
    let mut next = gaspi.buffer::<f64>(rows * columns)?;
    let mut queue = gaspi.queue()?;
    // The edges of the plate, for sides without a neighbour.
    let mut above = warm_edge(columns);
    let mut below = vec![0.0; columns];
    let mut residual: f64 = 0.0;
    for step in 0..problem.steps {
        let at = |side| step % 2 * SIDES + side;
        residual = queue.scope(|q| {
            let write = |row: usize, neighbour, at: usize| {
                let row = now.slice(row * columns..).slice(..columns);
                let there = halo.remote(neighbour).at(at * columns);
                q.write_notify(row, there, Notification::plain(at as u32))
            };
            let read = |at: usize, row: &mut [f64]| -> Result<()> {
                halo.notification(at as u32).wait(Timeout::Block)?;
                halo.slice(at * columns..).slice(..columns).copy_to(row);
                Ok(())
            };
            if rank > 0 {
                write(0, rank - 1, at(FROM_BELOW))?;
            }
            if rank + 1 < size {
                write(rows - 1, rank + 1, at(FROM_ABOVE))?;
            }
            // The inner rows, which need no row of a neighbour.
            let edges = (&above[..], &below[..]);
            let inner = relax_rows(1..rows.max(2) - 1, edges, &now, &mut next);
            if rank > 0 {
                read(at(FROM_ABOVE), &mut above)?;
            }
            if rank + 1 < size {
                read(at(FROM_BELOW), &mut below)?;
            }
            let edges = (&above[..], &below[..]);
            let first = relax_rows(0..1, edges, &now, &mut next);
            let last = relax_rows(rows - 1..rows, edges, &now, &mut next);
            Ok(inner.max(first).max(last))
        })?;
        std::mem::swap(&mut now, &mut next);
    }
    let residual = all.allreduce(&[residual], ReductionOperation::Max)?[0];
    let sums = all.allreduce_by(&[checksum(&now)], u64::wrapping_add)?;
    // Neighbours may still write to the halo, so all processes leave together.
    all.barrier()?;
    Ok(Outcome {
        residual,
        checksum: sums[0],
    })
}

/// Solves the problem with all processes, and on rank 0 alone, and compares the results.
pub fn compare(problem: Problem) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let gaspi = Gaspi::init()?;
    if problem.rows < gaspi.size().into() || problem.columns == 0 {
        return Err("every process needs a row, and a row a column".into());
    }
    let outcome = together(&gaspi, problem)?;
    if gaspi.rank() > 0 {
        return Ok(());
    }
    let expected = alone(problem);
    if outcome != expected {
        return Err(format!("{outcome:?} is wrong, {expected:?} is right").into());
    }
    println!("heat: {} processes, {outcome:?}", gaspi.size());
    Ok(())
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse());
    let mut next = |default| arguments.next().unwrap_or(Ok(default));
    let problem = Problem {
        rows: next(200)?,
        columns: next(150)?,
        steps: next(300)?,
    };
    unipgas::init();
    compare(problem)
}

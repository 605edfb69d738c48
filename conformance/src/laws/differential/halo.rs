//! Ranks hold rows of a grid, and neighbours exchange the edges in each step. Two buffers for each edge let a neighbour run one step
//! ahead. An edge of the wrong step, or half of one, changes every cell near it in all later steps.

use super::{Arrivals, Left, bytes_of, scenario, words_of};
use crate::law::Ctx;

scenario! {
    "halo", "a grid whose edges are exchanged step by step ends as the serial one";
    Core by core: "unipgas core: Channel::put_notify", [];
    Gaspi by gaspi: "GASPI 17.1 §8.4.1", ["gaspi_write_notify", "gaspi_notify_waitsome", "gaspi_notify_reset", "gaspi_wait"];
    Utofu by utofu: "uTofu §2.2.4", ["utofu_put", "utofu_poll_mrq", "utofu_poll_tcq"];
    Rcce by rcce: "iRCCE 2.0 §9.2, §9.3", ["iRCCE_isend", "iRCCE_irecv", "iRCCE_isend_wait", "iRCCE_irecv_wait"];
    Libfabric by libfabric: "fi_rma(3)", ["fi_writedata"];
}

const STEPS: usize = 7;
const COLUMNS: usize = 40;
/// Bytes of an edge.
const EDGE: usize = COLUMNS * 8;

/// Side of a rank on which a neighbour's edge is stored.
const ABOVE: usize = 0;
const BELOW: usize = 1;

/// Bytes that each rank needs: the neighbours' edges, and its outgoing edges.
const MEMORY: usize = 8 * EDGE;

/// Offset of the incoming edge of a side in a step.
fn halo(step: usize, side: usize) -> usize {
    (step % 2 * 2 + side) * EDGE
}

/// Offset of the outgoing edge that a neighbour stores on that side.
fn source(step: usize, side: usize) -> usize {
    4 * EDGE + halo(step, side)
}

type Row = Vec<u64>;

fn rows_of(rank: u32) -> usize {
    1 + rank as usize % 3
}

/// The grid at the beginning, and the number of rows before the rank's.
fn start(ctx: &Ctx) -> (Vec<Row>, usize) {
    let mut random = ctx.random(0x6861_6c6f);
    let rows = (0..ctx.size).map(rows_of).sum();
    let mut row = |_| (0..COLUMNS).map(|_| random.next()).collect();
    let grid = (0..rows).map(&mut row).collect();
    (grid, (0..ctx.rank).map(rows_of).sum())
}

fn next(above: &[u64], row: &[u64], below: &[u64]) -> Row {
    (0..COLUMNS)
        .map(|at| {
            let right = row[(at + 1) % COLUMNS];
            let sum = above[at].wrapping_mul(3).wrapping_add(below[at]);
            row[at].rotate_left(11) ^ sum ^ right.rotate_left(29)
        })
        .collect()
}

/// The rank's rows of the grid, computed serially.
fn reference(ctx: &Ctx) -> Vec<u8> {
    let (mut grid, first) = start(ctx);
    let rows = grid.len();
    for _ in 0..STEPS {
        let row = |at: usize| {
            next(
                &grid[(at + rows - 1) % rows],
                &grid[at],
                &grid[(at + 1) % rows],
            )
        };
        grid = (0..rows).map(row).collect();
    }
    bytes_of(&grid[first..first + rows_of(ctx.rank)].concat())
}

/// The rank's rows after all steps. `exchange` takes the step and the edges for the previous and the next rank, and returns the edges
/// that they have sent.
fn steps(
    ctx: &Ctx,
    mut exchange: impl FnMut(usize, [&[u8]; 2]) -> Result<[Vec<u8>; 2], String>,
) -> Left {
    let (grid, first) = start(ctx);
    let mut rows = grid[first..first + rows_of(ctx.rank)].to_vec();
    for step in 0..STEPS {
        let edges = [bytes_of(&rows[0]), bytes_of(&rows[rows.len() - 1])];
        let [above, below] = exchange(step, [&edges[0], &edges[1]])?;
        rows.insert(0, words_of(&above));
        rows.push(words_of(&below));
        rows = rows
            .windows(3)
            .map(|rows| next(&rows[0], &rows[1], &rows[2]))
            .collect();
    }
    Ok(bytes_of(&rows.concat()))
}

/// The previous and the next rank, with the side on which each stores this rank's edge.
fn neighbours(ctx: &Ctx) -> [(u32, usize); 2] {
    let (rank, size) = (ctx.rank, ctx.size);
    [
        ((rank + size - 1) % size, BELOW),
        ((rank + 1) % size, ABOVE),
    ]
}

/// Waits until the edges of both sides have come.
fn both(
    arrivals: &mut Arrivals,
    step: usize,
    mut poll: impl FnMut() -> Result<(usize, usize), String>,
) -> crate::law::Verdict {
    let first = arrivals.next(step, &mut poll)?;
    let second = arrivals.next(step, &mut poll)?;
    crate::ensure_eq!(first + second, ABOVE + BELOW, "sides that came in a step");
    Ok(())
}

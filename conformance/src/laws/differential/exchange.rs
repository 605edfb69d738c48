//! In each round every rank sends a block to every other one and reads each block as soon as its notice has come. Lengths differ.
//! Two places for each sender let it run a round ahead. Later blocks overwrite earlier ones: the bytes left show a late or too long block.
//! The digest shows a block that was announced before it was complete.

use super::{Arrivals, Left, bytes_of, scenario};
use crate::law::{Ctx, Verdict};

scenario! {
    "exchange", "blocks of all ranks to all ranks are whole when their notices come, round after round";
    Core by core: "unipgas core: Channel::put_notify", [];
    Gaspi by gaspi: "GASPI 17.1 §8.3.3, §8.4.1", ["gaspi_write_notify", "gaspi_notify_waitsome", "gaspi_notify_reset"];
    Utofu by utofu: "uTofu §2.2.4", ["utofu_put", "utofu_poll_mrq", "utofu_poll_tcq"];
    Rcce by rcce: "iRCCE 2.0 §9.2, §9.4", ["iRCCE_isend", "iRCCE_irecv", "iRCCE_add_recv_to_wait_list", "iRCCE_wait_any"];
    Libfabric by libfabric: "fi_rma(3)", ["fi_writedata"];
}

const ROUNDS: usize = 5;
/// The longest block.
const PLACE: usize = 704;

/// Offset of the block of a rank in a round.
fn place(ctx: &Ctx, round: usize, from: u32) -> usize {
    (round % 2 * ctx.size as usize + from as usize) * PLACE
}

/// Bytes of all places.
fn places(ctx: &Ctx) -> usize {
    2 * ctx.size as usize * PLACE
}

/// Offset of the outgoing block for a rank, behind the places.
fn source(ctx: &Ctx, round: usize, to: u32) -> usize {
    places(ctx) + place(ctx, round, to)
}

/// Bytes that each rank needs.
fn memory(ctx: &Ctx) -> usize {
    2 * places(ctx)
}

fn block(ctx: &Ctx, round: usize, from: u32, to: u32) -> Vec<u8> {
    let salt = (round as u64) << 16 | u64::from(from) << 8 | u64::from(to);
    let mut random = ctx.random(0x626c_6f63_0000_0000 | salt);
    let mut bytes = vec![0; 1 + random.below(PLACE as u64) as usize];
    random.fill(&mut bytes);
    bytes
}

fn others(ctx: &Ctx) -> impl Iterator<Item = u32> + use<> {
    let rank = ctx.rank;
    (0..ctx.size).filter(move |other| *other != rank)
}

/// Digests of the blocks from each sender, in order.
struct Digests(Vec<u64>);

impl Digests {
    fn new(ctx: &Ctx) -> Self {
        Digests(vec![0; ctx.size as usize])
    }

    fn see(&mut self, from: u32, block: &[u8]) {
        let digest = &mut self.0[from as usize];
        for byte in block {
            *digest = (*digest ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        *digest = digest.rotate_left(5) ^ block.len() as u64;
    }
}

fn reference(ctx: &Ctx) -> Vec<u8> {
    let mut left = vec![0; places(ctx)];
    let mut digests = Digests::new(ctx);
    for round in 0..ROUNDS {
        for from in others(ctx) {
            let (at, block) = (place(ctx, round, from), block(ctx, round, from, ctx.rank));
            left[at..at + block.len()].copy_from_slice(&block);
            digests.see(from, &block);
        }
    }
    left.extend(bytes_of(&digests.0));
    left
}

/// Operations of an interface in this scenario.
trait Mesh {
    /// Sends a block.
    fn send(&mut self, round: usize, to: u32, block: &[u8]) -> Verdict;
    /// Waits for another block of this round, and returns its sender and length.
    fn come(&mut self, round: usize) -> Result<(u32, usize), String>;
    /// Reads this rank's memory.
    fn load(&self, at: usize, len: usize) -> Vec<u8>;
    /// Waits until all sent blocks have left.
    fn gone(&mut self) -> Verdict;
}

fn rounds(ctx: &Ctx, mesh: &mut impl Mesh) -> Left {
    let mut digests = Digests::new(ctx);
    for round in 0..ROUNDS {
        for to in others(ctx) {
            mesh.send(round, to, &block(ctx, round, ctx.rank, to))?;
        }
        let mut missing: Vec<u32> = others(ctx).collect();
        while !missing.is_empty() {
            let (from, len) = mesh.come(round)?;
            let nth = missing.iter().position(|rank| *rank == from);
            crate::ensure!(
                nth.is_some(),
                "round {round}: a second block of rank {from}"
            );
            missing.retain(|rank| *rank != from);
            digests.see(from, &mesh.load(place(ctx, round, from), len));
        }
        mesh.gone()?;
    }
    let mut left = mesh.load(0, places(ctx));
    left.extend(bytes_of(&digests.0));
    Ok(left)
}

/// Round and sender in 8 bits, for interfaces that carry no more.
fn number(round: usize, from: u32) -> u64 {
    (round as u64) << 4 | u64::from(from)
}

/// The next sender of `round`, and the length of its block. `poll` returns the number of a block that has arrived.
fn sender(
    ctx: &Ctx,
    arrivals: &mut Arrivals,
    round: usize,
    mut poll: impl FnMut() -> Result<u64, String>,
) -> Result<(u32, usize), String> {
    let from = arrivals.next(round, || {
        let number = poll()? as usize;
        Ok((number >> 4, number & 15))
    })? as u32;
    Ok((from, block(ctx, round, from, ctx.rank).len()))
}

//! Chapter 7: a barrier gate gets an input that it cannot keep.

use super::circuit::{NULL, gates, set_gates, setting};
use super::kit::*;
use super::mrq_overflow::failed;
use crate::kit::child;

laws! {
    runs_ahead given((0, Wrong::TooMany)): "barrier.overrun", "chapter 7", 2, [barrier, poll_barrier, set_vbg] + bare,
        "a gate with a peer that runs too far ahead ends its program with the guide's message; the peer gets BARRIER_OTHER";
    runs_ahead given((1, Wrong::TooMany)): "barrier.overrun.relay", "chapter 7", 2, [barrier, poll_barrier, set_vbg] + bare,
        "the message names the gate, also if it is a relay";
    runs_ahead given((0, Wrong::Source)): "barrier.wrong-source", "chapter 7", 2, [barrier, poll_barrier, set_vbg] + bare,
        "a packet from another gate than the set one also ends the program";
}

/// In each rank's memory: bytes 0 to 7 hold a VBG ID of the other rank plus 1, then the ready word of the other rank.
const ID: usize = 0;
const READY: usize = 8;
/// More rounds than a gate keeps.
const MANY: usize = 100;

/// A rank with memory that the other one may write to.
struct Side {
    other: u32,
    queue: Queue,
    memory: Memory,
}

impl Side {
    fn new(rank: u32) -> Result<Side, String> {
        let (queue, memory, _) = Queue::with_memory(256)?;
        Ok(Side {
            other: 1 - rank,
            queue,
            memory,
        })
    }

    /// Repeats the put until the other rank has registered its memory.
    fn tell(&self, at: usize, value: u64) -> Verdict {
        let to = vcq_of(self.other, TNI, 0)?;
        let stadd = stadd_of(to, STAG)? + at as u64;
        self.queue.write_when_there(to, stadd, value)
    }

    fn hear(&self, at: usize) -> Result<u64, String> {
        until("the other's word", || self.memory.get(at) != 0)?;
        Ok(self.memory.get(at))
    }

    /// Adds 1: an ID may be 0, which means that no word has arrived.
    fn tell_id(&self, id: u64) -> Verdict {
        self.tell(ID, id + 1)
    }

    fn hear_id(&self) -> Result<u64, String> {
        Ok(self.hear(ID)? - 1)
    }
}

/// The fault of the packets that rank 0 sends to a gate of rank 1.
#[derive(Clone, Copy, PartialEq)]
enum Wrong {
    /// More packets than the gate keeps.
    TooMany,
    /// Their source gate differs from the source in the settings.
    Source,
}

/// The program of rank 1. Gate `gate` of its two gates gets the packets. It waits at the first gate for an input that never comes, unless the
/// packets go to this gate.
fn victim(gate: usize, wrong: Wrong) -> Verdict {
    let side = Side::new(1)?;
    let ids = gates::<2>(TNI, 0)?;
    let peer = side.hear_id()?;
    let source = match wrong {
        Wrong::TooMany => peer,
        // A relay of the other rank. It never sends.
        Wrong::Source => peer + 16,
    };
    let settings = match gate {
        0 => [
            setting(ids[0], [NULL; 2], [source, NULL]),
            setting(ids[1], [NULL; 2], [NULL; 2]),
        ],
        // The relay gets packets and waits for a signal that never comes.
        _ => [
            setting(ids[0], [NULL; 2], [peer + 16, NULL]),
            setting(ids[1], [ids[0], NULL], [source, NULL]),
        ],
    };
    set_gates(&settings)?;
    side.tell_id(ids[gate])?;
    side.hear(READY)?;
    let mut code = SUCCESS;
    until("the end of this program", || {
        code = match c!(utofu_barrier(ids[0], 0)) {
            SUCCESS | BUSY => c!(utofu_poll_barrier(ids[0], 0)),
            code => code,
        };
        code < 0 && code != UTOFU_ERR_NOT_COMPLETED
    })?;
    Err(format!("the gate gave {}", code_name(code)))
}

fn runs_ahead(ctx: &Ctx, (gate, wrong): (usize, Wrong)) -> Verdict {
    if ctx.rank == 1 {
        let (status, text) = child(&[], || victim(gate, wrong))?;
        // The start/end VBGs of a TNI are 0 to 15, the relays come behind them.
        let bg = if gate == 0 { 0 } else { 16 };
        ensure_eq!(
            text,
            format!("utofu: asynchronous error: Barrier Input Lost on TNI {TNI} BG {bg}\n"),
            "standard error of the program"
        );
        failed(status)?;
    } else {
        let side = Side::new(0)?;
        let ids = gates::<2>(TNI, 0)?;
        ensure_eq!(ids[1] - ids[0], 16, "the relay after the first start/end");
        // The other rank derives the relay's ID from this start/end VBG.
        side.tell_id(ids[0])?;
        let target = side.hear_id()?;
        set_gates(&[setting(ids[0], [NULL; 2], [NULL, target])])?;
        let code = (0..MANY).find_map(|_| {
            let code = match c!(utofu_barrier(ids[0], 0)) {
                SUCCESS => c!(utofu_poll_barrier(ids[0], 0)),
                code => code,
            };
            (code != SUCCESS).then_some(code)
        });
        ensure_eq!(code, Some(UTOFU_ERR_BARRIER_OTHER), "running ahead");
        side.tell(READY, 1)?;
    }
    ctx.sync();
    Ok(())
}

//! Bytes: [`Channel::put`](unipgas_core::transport::Channel::put) and `get`.

use unipgas_core::lines::LINE;
use unipgas_core::{Error, Flags};

use super::node::{Node, on_nodes};
use crate::ensure_eq;
use crate::kit::{bytes_of, random_bytes, same, until};
use crate::law::{Ctx, Verdict};

laws! {
    "core.transport.put", "unipgas core: Channel::put", 2,
        "puts of every length and alignment move exactly their bytes" => put;
    "core.transport.get", "unipgas core: Channel::get", 3,
        "gets of every length and alignment move exactly their bytes" => get;
    "core.transport.inline", "unipgas core: Flags::INLINE", 2 + ordering,
        "after an inline put has returned its source may be used again" => inline;
    "core.transport.lines", "unipgas core: Flags::LINES", 2 + ordering,
        "the last word of a line is there after the line's other bytes, or that is refused" => lines;
}

const LENGTHS: [usize; 16] = [
    0, 1, 2, 3, 7, 8, 9, 31, 64, 65, 255, 1000, 4095, 4097, 20_001, 70_000,
];
const LEN: usize = 80_000;

/// Lengths within the limit of one operation.
fn lengths(node: &Node<'_>) -> impl Iterator<Item = usize> {
    let largest = node.limits().largest;
    LENGTHS.into_iter().map(move |len| len.min(largest))
}

fn put(ctx: &Ctx) -> Verdict {
    on_nodes(ctx, LEN, |node| {
        for (nth, len) in lengths(node).enumerate() {
            let place = |rank: usize| 64 + ctx.random((rank * 100 + nth) as u64).below(99) as usize;
            let bytes = |rank: usize| bytes_of(ctx, (rank * 1000 + nth) as u64, len);
            node.own().fill(0x55);
            ctx.sync();
            let (me, left) = (ctx.rank as usize, node.left());
            let from = nth % 9;
            node.source().store(from, &bytes(me));
            let to = node.at(node.right(), place(me));
            node.put(from, to, len, Flags::empty())?;
            ctx.sync();
            let (own, at) = (node.own(), place(left));
            own.all(0, at, 0x55, "before a put")?;
            own.holds(at, &bytes(left), "a put")?;
            own.all(at + len, LEN - at - len, 0x55, "behind a put")?;
            ctx.sync();
        }
        Ok(())
    })
}

fn get(ctx: &Ctx) -> Verdict {
    on_nodes(ctx, LEN, |node| {
        node.own().store(0, &bytes_of(ctx, ctx.rank.into(), LEN));
        ctx.sync();
        let theirs = bytes_of(ctx, node.right() as u64, LEN);
        let mut random = ctx.random(77);
        for len in lengths(node) {
            let at = random.below(99) as usize;
            node.source().fill(0x3c);
            let seen = node.get(node.at(node.right(), at), len)?;
            same(&seen, &theirs[at..at + len], "a get")?;
            let behind = node.source().len - len;
            node.source().all(len, behind, 0x3c, "behind a get")?;
        }
        Ok(())
    })
}

fn inline(ctx: &Ctx) -> Verdict {
    on_nodes(ctx, LEN, |node| {
        let mut random = ctx.random(ctx.rank.into());
        let mut sent = Vec::new();
        for nth in 0..40 {
            let bytes = random_bytes(&mut random, (1 + nth * 3).min(node.limits().inline));
            node.source().store(0, &bytes);
            let to = node.at(node.right(), nth * 256);
            node.begin_put(0, to, bytes.len(), Flags::INLINE)?;
            node.source().fill_range(0, bytes.len(), 0xee);
            sent.push(bytes);
        }
        node.drain()?;
        for (nth, bytes) in sent.iter().enumerate() {
            let seen = node.get(node.at(node.right(), nth * 256), bytes.len())?;
            same(&seen, bytes, "an inline put")?;
        }
        Ok(())
    })
}

fn lines(ctx: &Ctx) -> Verdict {
    const LINES: usize = 5;
    on_nodes(ctx, 4096, |node| {
        let lines = LINES.min(node.limits().largest / LINE);
        let to = node.at(node.right(), 0);
        for round in 1..16u8 {
            if !node.limits().lines {
                let refused = node.try_put(0, to, lines * LINE, Flags::LINES)?;
                ensure_eq!(refused, Err(Error::Unsupported), "a put by lines");
            } else if ctx.rank == 0 {
                node.source().fill_range(0, lines * LINE, round);
                node.begin_put(0, to, lines * LINE, Flags::LINES)?;
                node.drain()?;
            } else {
                let own = node.own();
                for line in 0..lines {
                    let last = (line + 1) * LINE - 8;
                    let whole = u64::from_ne_bytes([round; 8]);
                    until("the last word of a line", || own.get(last) == whole)?;
                    own.all(line * LINE, LINE, round, "a line whose last word has come")?;
                }
            }
            ctx.sync();
        }
        Ok(())
    })
}

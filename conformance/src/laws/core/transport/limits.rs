//! The [limits](unipgas_core::transport::Limits) of a backend's operations.

use unipgas_core::op::{GetRequest, PutRequest};
use unipgas_core::transport::Limits;
use unipgas_core::{AtomicOp, AtomicType, Error, Flags, Notice, Outcome};

use super::super::rank::{Says, update};
use super::node::{Node, on_nodes};
use crate::kit::bytes_of;
use crate::law::{Ctx, Verdict};
use crate::stall::Looks;
use crate::{ensure, ensure_eq};

laws! {
    "core.transport.largest", "unipgas core: Limits::largest", 2,
        "the longest transfers go at once, what is one byte longer is refused, and nothing of it is done" => largest;
    "core.transport.inline.most", "unipgas core: Limits::inline", 2,
        "as many bytes as the backend says are taken in the call; one more is refused" => most_inline;
    "core.transport.depth", "unipgas core: Limits::depth; Error::NotNow", 3,
        "a channel takes as many operations to a peer as the backend says, and one more when one has been reported; other channels and peers do not matter" => depth;
}

/// Length to use without a limit.
const LEN: usize = 100_000;

fn largest(ctx: &Ctx) -> Verdict {
    on_nodes(ctx, LEN + 1, |node| {
        let largest = node.limits().largest;
        ensure!(
            largest >= Limits::SHORTEST,
            "the longest transfer: {largest}"
        );
        let len = largest.min(LEN);
        let bytes = bytes_of(ctx, ctx.rank.into(), len);
        node.source().store(0, &bytes);
        node.put(0, node.at(node.right(), 0), len, Flags::empty())?;
        let seen = node.get(node.at(node.right(), 0), len)?;
        crate::kit::same(&seen, &bytes, "the longest")?;
        ctx.sync();
        if largest > LEN {
            return Ok(());
        }
        node.source().fill(0xee);
        let there = node.at(node.right(), 0);
        let slot = node.at(node.right(), 0);
        let words = len / 8 + 1;
        let operands = vec![u64::MAX; words];
        let request = update(AtomicOp::Write, AtomicType::U64, words, operands.as_ptr());
        for kind in 0..4 {
            let none = Flags::empty();
            // SAFETY:
            // - in bounds of the source and of the operands, which outlive the operation.
            let refused = node.end(|channel, context| unsafe {
                let (local, len) = (node.local(0), len + 1);
                match kind {
                    0 => channel.put(&PutRequest::new(local, there, len), none, context),
                    1 => channel.get(&GetRequest::new(local, there, len), none, context),
                    2 => {
                        let notice = Notice { slot, value: 1 };
                        let put = PutRequest::new(local, there, len).with(notice);
                        channel.put(&put, none, context)
                    }
                    _ => channel.atomic(there, &request, 0, none, context),
                }
            })?;
            let expected = Err(Error::Unsupported);
            ensure_eq!(refused, expected, "one byte more, of kind {kind}");
        }
        ctx.sync();
        node.own()
            .holds(0, &bytes_of(ctx, node.left() as u64, len), "what was there")
    })
}

fn most_inline(ctx: &Ctx) -> Verdict {
    on_nodes(ctx, LEN, |node| {
        let limits = node.limits();
        let put = |len: usize| node.try_put(0, node.at(node.right(), 0), len, Flags::INLINE);
        let len = limits.inline.min(limits.largest).min(LEN);
        put(len)?.says("as many as there may be")?;
        if limits.inline < LEN {
            ensure_eq!(put(limits.inline + 1)?, Err(Error::Unsupported), "one more");
        }
        Ok(())
    })
}

/// Posts a word to `rank`.
fn post(node: &Node<'_>, rank: usize) -> unipgas_core::Result<Outcome> {
    // SAFETY:
    // - in bounds of the source, which outlives the operation.
    unsafe {
        let to = node.at(rank, 8 * node.ctx.rank as usize);
        node.channel
            .put(&PutRequest::new(node.local(0), to, 8), Flags::empty(), 7)
    }
}

fn depth(ctx: &Ctx) -> Verdict {
    on_nodes(ctx, 4096, |node| {
        let depth = node.limits().depth;
        ensure!(depth > 0, "no operation at all");
        let rounds = depth.min(200);
        for rank in [node.right(), node.left()] {
            let before = node.channel.pending();
            while node.channel.pending() < before + rounds {
                if post(node, rank).says("an operation within the depth")? == Outcome::Complete {
                    break;
                }
            }
        }
        if depth > rounds {
            return node.drain();
        }
        ensure_eq!(node.channel.pending(), 2 * depth, "operations under way");
        for _ in 0..3 {
            for rank in [node.right(), node.left()] {
                ensure_eq!(post(node, rank), Err(Error::NotNow), "one more to {rank}");
            }
        }
        let other = node.transport.open_channel().says("open_channel")?;
        let again = || {
            // SAFETY:
            // - as above.
            unsafe {
                let put = PutRequest::new(node.local(0), node.at(node.right(), 0), 8);
                other.put(&put, Flags::empty(), 1)
            }
        };
        again().says("an operation of another channel")?;
        let mut looks = Looks::for_the("the end of an operation");
        while other.pending() > 0 {
            other.poll(&mut |_| {});
            looks.again();
        }
        node.drain()?;
        post(node, node.right()).says("an operation after the others")?;
        node.drain()
    })
}

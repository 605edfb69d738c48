//! Active messages: [`Channel::active_message`](unipgas_core::transport::Channel::active_message).

use std::sync::Arc;

use parking_lot::Mutex;
use unipgas_core::op::{PutRequest, ReplyBuffer};
use unipgas_core::region::Memory as Registration;
use unipgas_core::transport::{Handler, LONGEST_MESSAGE};
use unipgas_core::{Error, Flags, Remote, Result, Rights};

use super::super::rank::{Says, remote};
use super::node::{Node, on_nodes, view};
use crate::kit::{Memory, bytes_of, until};
use crate::law::{Ctx, Verdict};
use crate::{ensure, ensure_eq};

laws! {
    "core.transport.message", "unipgas core: Channel::active_message; Flags::ORDERED", 3 + ordering,
        "messages come once each, to a process that calls nothing; ordered ones in their order, after earlier data of their channel" => messages;
    "core.transport.message.refused", "unipgas core: Channel::active_message; Error::Refused, Unsupported", 2,
        "a record that a handler refuses, or that has no handler, comes back to the sender" => refused;
    "core.transport.message.answered", "unipgas core: Channel::active_message; op::ReplyBuffer", 2,
        "the handler's answer is there when the message has ended: the bytes that fit, and not a byte more" => answered;
    "core.transport.message.released", "unipgas core: Channel::active_message; Error::StaleRegion", 2,
        "once its owner has released a region, its handler is called no more" => released;
    "core.transport.message.dies", "unipgas core: Channel::active_message; Error::PeerDead", 3 + needs_kill,
        "messages to a process that was killed end; the others take theirs" => dies;
}

/// An arrival: its offset, its bytes, and the word of the data that it announces.
type Seen = (usize, Vec<u8>, u64);

/// Keeps arrivals. Refuses a message that begins with a number above 0.
struct Keeping {
    data: Memory,
    seen: Mutex<Vec<Seen>>,
}

impl Keeping {
    fn new(data: Memory) -> Arc<Keeping> {
        let seen = Mutex::default();
        Arc::new(Keeping { data, seen })
    }

    fn count(&self) -> usize {
        self.seen.lock().len()
    }
}

impl Handler for Keeping {
    fn handle(
        &self,
        offset: usize,
        message: &[u8],
        _reply: &mut Vec<u8>,
    ) -> std::result::Result<(), u32> {
        let word = |at: usize| {
            message
                .get(at..at + 4)
                .map_or([0; 4], |b| [b[0], b[1], b[2], b[3]])
        };
        match u32::from_le_bytes(word(0)) {
            0 => {
                let at = u32::from_le_bytes(word(4)) as usize;
                let data = self.data.get(at % self.data.len);
                self.seen.lock().push((offset, message.to_vec(), data));
                Ok(())
            }
            why => Err(why),
        }
    }
}

/// A message that announces the data at `at`.
fn telling(at: usize, more: &[u8]) -> Vec<u8> {
    let mut message = vec![0; 4];
    message.extend((at as u32).to_le_bytes());
    message.extend(more);
    message
}

fn send(
    node: &Node<'_>,
    to: Remote<'_>,
    message: &[u8],
) -> std::result::Result<Result<()>, String> {
    node.end(|channel, context| {
        channel.active_message(to, message, ReplyBuffer::NONE, Flags::empty(), context)
    })
}

/// Replies with the reversed message. Refuses an empty one.
struct Mirror;

impl Handler for Mirror {
    fn handle(
        &self,
        _offset: usize,
        message: &[u8],
        reply: &mut Vec<u8>,
    ) -> std::result::Result<(), u32> {
        reply.extend(message.iter().rev());
        if message.is_empty() { Err(5) } else { Ok(()) }
    }
}

fn answered(ctx: &Ctx) -> Verdict {
    const SPARE: u8 = 0xa5;
    on_nodes(ctx, 4096, |node| {
        node.memory.handle_by(Arc::new(Mirror)).says("handle_by")?;
        ctx.sync();
        let there = node.at(node.right(), 16);
        for nth in 0..60u64 {
            let mut random = ctx.random(nth);
            let len = 1 + random.below(LONGEST_MESSAGE as u64) as usize;
            let room = random.below(LONGEST_MESSAGE as u64 + 1) as usize;
            let message = bytes_of(ctx, nth, len);
            let mut answer = vec![SPARE; LONGEST_MESSAGE + 1];
            // SAFETY:
            // - room for the longest reply, which outlives the message.
            let reply = unsafe { ReplyBuffer::new(answer.as_mut_ptr(), room) };
            node.end(|channel, context| {
                channel.active_message(there, &message, reply, Flags::empty(), context)
            })?
            .says("a message")?;
            let taken = len.min(room);
            let expected: Vec<u8> = message.iter().rev().take(taken).copied().collect();
            ensure_eq!(answer[..taken], expected[..], "the answer to {len} bytes");
            let spared = answer[taken..].iter().all(|byte| *byte == SPARE);
            ensure!(
                spared,
                "an answer of {len} bytes wrote past its room of {room}"
            );
        }
        let mut answer = [SPARE; 8];
        // SAFETY:
        // - as above.
        let reply = unsafe { ReplyBuffer::new(answer.as_mut_ptr(), answer.len()) };
        let refused = node.end(|channel, context| {
            channel.active_message(there, &[], reply, Flags::empty(), context)
        })?;
        ensure_eq!(refused, Err(Error::Refused(5)), "an empty message");
        ensure_eq!(answer, [SPARE; 8], "the answer of a refusal");
        ctx.sync();
        Ok(())
    })
}

fn messages(ctx: &Ctx) -> Verdict {
    const EACH: usize = 12;
    on_nodes(ctx, 4096, |node| {
        let kept = Keeping::new(node.own());
        node.memory.handle_by(kept.clone()).says("handle_by")?;
        ctx.sync();
        for round in 1..12u64 {
            let more = |rank: usize, nth: usize| {
                let salt = round << 16 | (rank as u64) << 8 | nth as u64;
                let len = ctx.random(salt).below(LONGEST_MESSAGE as u64 - 7) as usize;
                bytes_of(ctx, salt, len)
            };
            let me = ctx.rank as usize;
            for nth in 0..EACH {
                let at = 8 * nth;
                node.source().set(at, round << 32 | nth as u64);
                // SAFETY:
                // - in bounds of the source, and drained before it changes.
                node.begin("put", |channel, context| unsafe {
                    let to = node.at(node.right(), at);
                    channel.put(
                        &PutRequest::new(node.local(at), to, 8),
                        Flags::empty(),
                        context,
                    )
                })?;
                let message = telling(at, &more(me, nth));
                node.begin("an ordered message", |channel, context| {
                    let to = node.at(node.right(), 100 * nth);
                    channel.active_message(to, &message, ReplyBuffer::NONE, Flags::ORDERED, context)
                })?;
            }
            // The drain makes progress on networks that need a caller for it. No other call follows.
            node.drain()?;
            until("messages", || kept.count() == EACH)?;
            for (nth, seen) in kept.seen.lock().drain(..).enumerate() {
                let message = telling(8 * nth, &more(node.left(), nth));
                let data = round << 32 | nth as u64;
                ensure_eq!(seen, (100 * nth, message, data), "message {nth}");
            }
            ctx.sync();
        }
        Ok(())
    })
}

fn refused(ctx: &Ctx) -> Verdict {
    on_nodes(ctx, 4096, |node| {
        let there = node.at(node.right(), 8);
        let nobody = send(node, there, b"to nobody")?;
        let expected = Err(Error::Unsupported);
        ensure_eq!(nobody, expected, "where nobody handles messages");
        ctx.sync();
        let kept = Keeping::new(node.own());
        node.memory.handle_by(kept.clone()).says("handle_by")?;
        let read_only = node.transport.allocate(4096, Rights::READ);
        let read_only = read_only.says("allocate")?;
        read_only.handle_by(kept.clone()).says("handle_by")?;
        let others = node.offer(read_only.as_ref())?;
        for why in [1, 77, u32::MAX] {
            let result = send(node, there, &why.to_le_bytes())?;
            ensure_eq!(result, Err(Error::Refused(why)), "a refusal");
        }
        let long = vec![0; LONGEST_MESSAGE + 1];
        let result = send(node, there, &long)?;
        let is_refused = matches!(result, Err(Error::InvalidArgument(_)));
        ensure!(is_refused, "a message that is too long: {result:?}");
        for offset in [4097, usize::MAX] {
            let result = send(node, node.at(node.right(), offset), b"")?;
            let is_refused = matches!(result, Err(Error::OutOfBounds { .. }));
            ensure!(is_refused, "a message to byte {offset}: {result:?}");
        }
        let region = others[node.right()].as_ref().expect("another rank");
        let result = send(node, remote(region, 0), b"")?;
        let expected = Err(Error::AccessDenied);
        ensure_eq!(result, expected, "without the right to write");
        ctx.sync();
        ensure_eq!(kept.count(), 0, "messages that were refused and taken");
        ctx.sync();
        // The longest message, the shortest one, and the last offset.
        send(node, there, &long[1..])?.says("the longest message")?;
        send(node, node.at(node.right(), 4096), b"")?.says("an empty message")?;
        until("both", || kept.count() == 2)?;
        let expected = vec![(8, long[1..].to_vec(), 0), (4096, Vec::new(), 0)];
        ensure_eq!(*kept.seen.lock(), expected, "what has come");
        Ok(())
    })
}

fn released(ctx: &Ctx) -> Verdict {
    on_nodes(ctx, 4096, |node| {
        for round in 0..4u64 {
            let memory = node.transport.allocate(4096, Rights::FULL);
            let memory: Box<dyn Registration> = memory.says("allocate")?;
            let kept = Keeping::new(view(memory.as_ref()));
            // Even rounds have a handler. Memory of an odd round may reuse their place, but not their handler.
            if round % 2 == 0 {
                memory.handle_by(kept.clone()).says("handle_by")?;
            }
            let regions = node.offer(memory.as_ref())?;
            let region = regions[node.right()].as_ref().expect("another rank");
            let there = remote(region, 0);
            let expected = match round % 2 {
                0 => Ok(()),
                _ => Err(Error::Unsupported),
            };
            ensure_eq!(send(node, there, b"")?, expected, "round {round}");
            ctx.sync();
            drop(memory);
            // The handler is dropped with the memory.
            ensure_eq!(Arc::strong_count(&kept), 1, "who has the handler");
            ctx.sync();
            let result = send(node, there, b"")?;
            ensure_eq!(result, Err(Error::StaleRegion), "to what was released");
            let count = usize::from(round % 2 == 0);
            ensure_eq!(kept.count(), count, "messages in round {round}");
            ctx.sync();
        }
        Ok(())
    })
}

fn dies(ctx: &Ctx) -> Verdict {
    on_nodes(ctx, 4096, |node| {
        let kept = Keeping::new(node.own());
        node.memory.handle_by(kept.clone()).says("handle_by")?;
        ctx.sync();
        if ctx.rank == 1 {
            ctx.dies();
        }
        let mut failed = None;
        until("the end of who is killed", || {
            match send(node, node.at(1, 0), b"") {
                Ok(Ok(())) => false,
                Ok(Err(Error::PeerDead | Error::StaleRegion)) => true,
                other => {
                    failed = Some(format!("a message to the dead: {other:?}"));
                    true
                }
            }
        })?;
        failed.map_or(Ok(()), Err)?;
        let other = 2 - ctx.rank as usize;
        send(node, node.at(other, 0), b"")?.says("a message to the living")?;
        until("a message of the living", || kept.count() == 1)
    })
}

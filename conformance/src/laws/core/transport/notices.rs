//! Words and records that announce data, and wake-ups.

use std::sync::atomic::Ordering;

use unipgas_core::inbox::{InboxLayout, InboxReader, Record, initialise_zeroed};
use unipgas_core::op::PutRequest;
use unipgas_core::region::Memory as Registration;
use unipgas_core::transport::Channel;
use unipgas_core::{Error, Flags, Notice, Rights};

use super::super::rank::Says;
use super::node::{Node, on_nodes, view};
use crate::kit::{bytes_of, until};
use crate::law::{Ctx, Verdict};
use crate::stall::Looks;
use crate::{ensure, ensure_eq};

laws! {
    "core.transport.put-notify", "unipgas core: Channel::put_notify", 2 + ordering,
        "a notice never overtakes the data of its own operation" => put_notify;
    "core.transport.ordered", "unipgas core: Flags::ORDERED", 3 + ordering,
        "an ordered operation comes after all earlier operations of its channel to the same peer" => ordered;
    "core.transport.deliver", "unipgas core: Channel::deliver", 3 + ordering,
        "records of all peers come once each, ordered records of a peer in order; a full inbox refuses and loses nothing" => deliver;
    "core.transport.deliver.ordered", "unipgas core: Channel::deliver; Flags::ORDERED", 2 + ordering,
        "ordered records that are under way together come in their order, after earlier data of their channel" => deliver_ordered;
    "core.transport.full", "unipgas core: Channel::deliver; Error::InboxFull", 2,
        "an inbox takes as many records as it has places, and more when some have been taken" => full;
    "core.transport.wake", "unipgas core: Flags::WAKE, Transport::bell", 2,
        "notices and flagged operations wake a sleeper at the bell" => wake;
}

fn word(node: &Node<'_>, at: usize) -> u32 {
    node.own().half(at).load(Ordering::Acquire)
}

fn put_notify(ctx: &Ctx) -> Verdict {
    on_nodes(ctx, 16_384, |node| {
        for round in 1..12u32 {
            let len = |rank: usize| {
                let salt = u64::from(round) << 8 | rank as u64;
                (1 + ctx.random(salt).below(9000) as usize).min(node.limits().largest)
            };
            let bytes =
                |rank: usize| bytes_of(ctx, u64::from(round) << 16 | rank as u64, len(rank));
            let me = ctx.rank as usize;
            node.source().store(0, &bytes(me));
            let (to, slot) = (node.at(node.right(), 64), node.at(node.right(), 8));
            let notice = Notice { slot, value: round };
            let put = PutRequest::new(node.local(0), to, len(me)).with(notice);
            // SAFETY:
            // - in bounds of the source, and drained before it changes.
            let put_notify = |channel: &dyn Channel, context| unsafe {
                channel.put(&put, Flags::empty(), context)
            };
            match node.notifies() {
                true => node.begin("put_notify", put_notify)?,
                false => {
                    let refused = node.end(put_notify)?;
                    ensure_eq!(refused, Err(Error::Unsupported), "such a notice");
                    node.put(0, to, len(me), Flags::empty())?;
                    node.begin("the notice", |channel, context| {
                        channel.notify(notice, Flags::ORDERED, context)
                    })?;
                }
            }
            until("a notice", || word(node, 8) == round)?;
            let left = node.left();
            node.own()
                .holds(64, &bytes(left), "the data when their notice has come")?;
            node.drain()?;
            ctx.sync();
        }
        Ok(())
    })
}

fn ordered(ctx: &Ctx) -> Verdict {
    const PUTS: usize = 6;
    // Some networks keep the order of operations below 1 KiB.
    const EACH: usize = 1200;
    on_nodes(ctx, PUTS * EACH + 64, |node| {
        let each = EACH.min(node.limits().largest);
        for round in 1..12u32 {
            let bytes =
                |rank: usize| bytes_of(ctx, u64::from(round) << 16 | rank as u64, PUTS * each);
            let right = node.right();
            node.source().store(64, &bytes(ctx.rank as usize));
            for nth in 0..PUTS {
                let to = node.at(right, 64 + nth * each);
                node.begin_put(64 + nth * each, to, each, Flags::empty())?;
            }
            let slot = node.at(right, 8);
            node.begin("an ordered notice", |channel, context| {
                channel.notify(Notice { slot, value: round }, Flags::ORDERED, context)
            })?;
            until("a notice", || word(node, 8) == round)?;
            node.own()
                .holds(64, &bytes(node.left()), "earlier puts at an ordered notice")?;
            node.drain()?;
            ctx.sync();
        }
        Ok(())
    })
}

fn record(rank: u32, nth: u64) -> Record {
    Record {
        source: rank.into(),
        kind: 5,
        len: nth as u32,
        value: nth * 3,
        offset: !nth,
    }
}

/// An inbox for `capacity` records. The memory must outlive the reader.
fn inbox(node: &Node<'_>, capacity: usize) -> Result<(Box<dyn Registration>, InboxReader), String> {
    let layout = InboxLayout::new(capacity).says("a layout")?;
    let memory = node.transport.allocate(layout.size(), Rights::FULL);
    let memory = memory.says("allocate an inbox")?;
    // SAFETY:
    // - fresh zeroed memory of the layout's size; this is its only reader.
    let reader = unsafe {
        initialise_zeroed(memory.base(), capacity).says("an inbox")?;
        InboxReader::attach(memory.base(), memory.len()).says("its reader")?
    };
    Ok((memory, reader))
}

fn deliver_ordered(ctx: &Ctx) -> Verdict {
    const RECORDS: u64 = 12;
    on_nodes(ctx, 4096, |node| {
        let (memory, mut reader) = inbox(node, 16)?;
        let inboxes = node.offer(memory.as_ref())?;
        let right = inboxes[node.right()].as_ref().expect("another rank");
        for round in 1..8 {
            for nth in 0..RECORDS {
                let at = nth as usize * 8;
                node.source().set(at, round * 100 + nth);
                node.begin_put(at, node.at(node.right(), at), 8, Flags::empty())?;
                node.begin("deliver", |channel, context| {
                    channel.deliver(right.into(), record(ctx.rank, nth), Flags::ORDERED, context)
                })?;
            }
            let from = node.left() as u32;
            for nth in 0..RECORDS {
                let mut seen = None;
                until("a record", || {
                    seen = reader.take();
                    seen.is_some()
                })?;
                ensure_eq!(seen, Some(record(from, nth)), "record {nth}");
                let data = node.own().get(nth as usize * 8);
                ensure_eq!(data, round * 100 + nth, "the data before record {nth}");
            }
            node.drain()?;
            ctx.sync();
        }
        Ok(())
    })
}

fn deliver(ctx: &Ctx) -> Verdict {
    const EACH: u64 = 30;
    on_nodes(ctx, 4096, |node| {
        let (memory, mut reader) = inbox(node, 4)?;
        let inboxes = node.offer(memory.as_ref())?;
        let mut sent = vec![0; ctx.size as usize];
        let mut come = vec![0; ctx.size as usize];
        sent[ctx.rank as usize] = EACH;
        come[ctx.rank as usize] = EACH;
        let mut looks = Looks::for_the("records");
        while sent.iter().chain(&come).any(|count| *count < EACH) {
            for (inbox, nth) in inboxes.iter().zip(&mut sent) {
                let Some(inbox) = inbox.as_ref().filter(|_| *nth < EACH) else {
                    continue;
                };
                let record = record(ctx.rank, *nth);
                match node.end(|channel, context| {
                    channel.deliver(inbox.into(), record, Flags::ORDERED, context)
                })? {
                    Ok(()) => *nth += 1,
                    Err(Error::InboxFull) => {}
                    Err(error) => return Err(format!("deliver: {error}")),
                }
            }
            while let Some(seen) = reader.take() {
                let from = seen.source as u32;
                ensure!(from < ctx.size && from != ctx.rank, "a record of {from}");
                let nth = &mut come[from as usize];
                ensure_eq!(seen, record(from, *nth), "the next record of {from}");
                *nth += 1;
            }
            looks.again();
        }
        ctx.sync();
        ensure_eq!(reader.take(), None, "a record of nobody");
        ensure_eq!(reader.lost(), 0, "records lost");
        Ok(())
    })
}

fn full(ctx: &Ctx) -> Verdict {
    on_nodes(ctx, 4096, |node| {
        let (memory, mut reader) = inbox(node, 8)?;
        let inboxes = node.offer(memory.as_ref())?;
        let right = inboxes[node.right()].as_ref().expect("another rank");
        let deliver = |nth| {
            node.end(|channel, context| {
                channel.deliver(right.into(), record(ctx.rank, nth), Flags::ORDERED, context)
            })
        };
        for nth in 0..8 {
            deliver(nth)?.says("a record for which there is room")?;
        }
        for _ in 0..3 {
            ensure_eq!(deliver(99)?, Err(Error::InboxFull), "one too many");
        }
        ctx.sync();
        let from = node.left() as u32;
        for nth in 0..3 {
            ensure_eq!(reader.take(), Some(record(from, nth)), "a record");
        }
        ctx.sync();
        for nth in 8..11 {
            deliver(nth)?.says("a record in a place that was taken")?;
        }
        ensure_eq!(deliver(99)?, Err(Error::InboxFull), "one too many again");
        ctx.sync();
        for nth in 3..11 {
            ensure_eq!(reader.take(), Some(record(from, nth)), "a record");
        }
        ensure_eq!(reader.take(), None, "one that was refused");
        Ok(())
    })
}

fn wake(ctx: &Ctx) -> Verdict {
    on_nodes(ctx, 4096, |node| {
        // The sleeper sets these words after a wake-up.
        let memory = view(node.memory.as_ref());
        for (kind, done) in [(0, 1024), (1, 1032)] {
            let mut looks = Looks::for_the("a sleeper to be woken");
            if ctx.rank == 0 {
                while !node
                    .transport
                    .bell()
                    .listen()
                    .sleep(unipgas_core::bell::LONGEST)
                {
                    looks.again();
                }
                node.source().set(0, 1);
                node.put(0, node.at(1, done), 8, Flags::empty())?;
            } else {
                while memory.get(done) == 0 {
                    match kind {
                        0 => node.put(16, node.at(0, 16), 8, Flags::WAKE)?,
                        _ => node.notify(node.at(0, 8), 1, Flags::empty())?,
                    }
                    looks.pause(std::time::Duration::from_millis(1));
                }
            }
            ctx.sync();
        }
        Ok(())
    })
}

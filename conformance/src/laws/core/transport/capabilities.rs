//! The declared capabilities of a backend are true.

use unipgas_core::op::PutRequest;
use unipgas_core::{Error, Flags, Outcome, Rights};

use super::super::rank::{Says, remote};
use super::node::on_nodes;
use crate::kit::{Memory, bytes_of};
use crate::law::{Ctx, Verdict};
use crate::{ensure, ensure_eq};

laws! {
    "core.transport.name", "unipgas core: Transport::name", 1,
        "a backend has the name by which it was asked for" => name;
    "core.transport.direct", "unipgas core: Capabilities::maps, direct, asynchronous", 2,
        "an imported region is mapped here if the backend says so; operations on a direct region end in the call, as do synchronous ones" => direct;
    "core.transport.user-memory", "unipgas core: Transport::register, expose; Capabilities::registers_user_memory", 2,
        "memory of the user is reached by peers where the backend registers it, and refused where it does not" => user_memory;
}

fn name(ctx: &Ctx) -> Verdict {
    on_nodes(ctx, 4096, |node| {
        let asked = match ctx.place.net() {
            Some(_) => "loopback".into(),
            None => std::env::var("UNIPGAS_BACKEND").unwrap_or_default(),
        };
        ensure_eq!(node.transport.name(), asked, "the name");
        Ok(())
    })
}

fn direct(ctx: &Ctx) -> Verdict {
    on_nodes(ctx, 4096, |node| {
        let offers = node.transport.capabilities();
        let there = node.at(node.right(), 8);
        let parts = there.region.parts();
        ensure_eq!(offers.maps, !parts.base.is_null(), "whether it is mapped");
        if offers.direct {
            ensure!(offers.maps, "direct, and not mapped");
            ensure!(!offers.asynchronous, "direct and asynchronous");
            ensure!(!parts.locks.is_null(), "a region without locks");
            // The owner must see a store to the mapping.
            let mapped = Memory {
                base: parts.base,
                len: parts.len,
            };
            mapped.set(256, 0x1234 + u64::from(ctx.rank));
        }
        for nth in 0..64 {
            if node.channel.pending() >= offers.limits.depth {
                node.drain()?;
            }
            // SAFETY:
            // - in bounds of the source, which outlives the operation.
            let outcome = unsafe {
                let from = node.local(0);
                node.channel
                    .put(&PutRequest::new(from, there, 8 + nth), Flags::empty(), 1)
            };
            let outcome = outcome.says("put")?;
            ensure!(
                outcome == Outcome::Complete || offers.asynchronous,
                "an operation that ends later"
            );
        }
        node.drain()?;
        ctx.sync();
        if offers.direct {
            let left = node.left() as u64;
            ensure_eq!(node.own().get(256), 0x1234 + left, "what a peer stored");
        }
        Ok(())
    })
}

fn user_memory(ctx: &Ctx) -> Verdict {
    on_nodes(ctx, 4096, |node| {
        let memory = Memory::pages(3 * 4096)?;
        memory.fill(0x55);
        // SAFETY:
        // - the pages live as long as the process.
        let registered = unsafe {
            node.transport
                .register(memory.base, memory.len, Rights::FULL)
        };
        if !node.transport.capabilities().registers_user_memory {
            let refused = matches!(registered, Err(Error::InvalidArgument(_)));
            ensure!(refused, "memory of the user was registered after all");
            return Ok(());
        }
        let registered = registered.says("register")?;
        ensure_eq!(registered.base(), memory.base, "the place of the memory");
        ensure_eq!(registered.len(), memory.len, "its length");
        let there = node.offer(registered.as_ref())?;
        let region = there[node.right()].as_ref().expect("another rank");
        let len = 3000.min(node.limits().largest);
        let bytes = bytes_of(ctx, ctx.rank.into(), len);
        node.source().store(0, &bytes);
        let at = |offset| remote(region, offset);
        node.put(0, at(2000), len, Flags::empty())?;
        let adds = if node.limits().atomics { 7 } else { 0 };
        if adds > 0 {
            ensure_eq!(node.add(at(8), adds)?, 0x5555_5555_5555_5555, "a word");
        }
        ctx.sync();
        let from_left = bytes_of(ctx, node.left() as u64, len);
        memory.all(16, 1984, 0x55, "before the bytes")?;
        memory.holds(2000, &from_left, "the bytes")?;
        memory.all(2000 + len, 3 * 4096 - 2000 - len, 0x55, "behind the bytes")?;
        ensure_eq!(memory.get(8), 0x5555_5555_5555_5555 + adds, "the word");
        ctx.sync();
        // SAFETY:
        // - as above.
        let exposed = unsafe { node.transport.expose(memory.base, memory.len) };
        let exposed = exposed.says("expose")?;
        let there = node.offer(exposed.as_ref())?;
        let region = there[node.right()].as_ref().expect("another rank");
        let seen = node.get(remote(region, 2000), len)?;
        crate::kit::same(&seen, &bytes, "what a peer reads")?;
        ctx.sync();
        Ok(())
    })
}

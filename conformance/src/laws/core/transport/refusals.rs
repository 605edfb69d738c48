//! Refused operations, which change nothing.

use unipgas_core::op::{GetRequest, PutRequest};
use unipgas_core::{
    AtomicOp, AtomicType, Deadline, Error, Flags, Notice, RemoteRegion, Result, Rights,
};

use super::super::rank::{Says, remote, update};
use super::node::{Node, on_nodes, view};
use crate::law::{Ctx, Verdict};
use crate::{ensure, ensure_eq};

laws! {
    "core.transport.bounds", "unipgas core: Error::OutOfBounds, Misaligned", 2,
        "an operation beyond its region, or not aligned, is refused, and nothing is written" => bounds;
    "core.transport.rights", "unipgas core: Rights; Error::AccessDenied", 2,
        "operations without the region's right are refused, others are done" => rights;
    "core.transport.stale", "unipgas core: Error::StaleRegion", 2,
        "once its owner has released a region nothing is done to it, and its key leads nowhere" => stale;
    "core.transport.garbage", "unipgas core: Transport::connect, Peer::import", 2,
        "bytes that are no address, or no key, are refused" => garbage;
}

/// Kinds of operations that need a right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    Put,
    Get,
    Notify,
    PutNotify,
    Atomic,
}

const ALL: [Access; 5] = [
    Access::Put,
    Access::Get,
    Access::Notify,
    Access::PutNotify,
    Access::Atomic,
];

impl Access {
    fn needs(self) -> Rights {
        match self {
            Access::Get => Rights::READ,
            Access::Atomic => Rights::ATOMIC,
            _ => Rights::WRITE,
        }
    }

    /// Tries the operation on `len` bytes. Notices and atomics have their own length.
    fn attempt(
        self,
        node: &Node<'_>,
        region: &RemoteRegion,
        offset: usize,
        len: usize,
    ) -> std::result::Result<Result<()>, String> {
        let at = remote(region, offset);
        let operand = 0x7777_7777u32;
        let request = update(AtomicOp::Sum, AtomicType::U32, 1, &raw const operand);
        let notice = |slot| Notice { slot, value: 9 };
        let (local, none) = (node.local(0), Flags::empty());
        // SAFETY:
        // - the range is refused, or no longer than the source; the operand outlives the operation.
        node.end(|channel, context| unsafe {
            match self {
                Access::Put => channel.put(&PutRequest::new(local, at, len), none, context),
                Access::Get => channel.get(&GetRequest::new(local, at, len), none, context),
                Access::Notify => channel.notify(notice(at), none, context),
                Access::PutNotify => channel.put(
                    &PutRequest::new(local, at, len).with(notice(at)),
                    none,
                    context,
                ),
                Access::Atomic => channel.atomic(at, &request, 0, none, context),
            }
        })
    }
}

/// The operations that the network has.
fn offered(node: &Node<'_>) -> impl Iterator<Item = Access> {
    let atomics = node.limits().atomics;
    ALL.into_iter()
        .filter(move |access| atomics || *access != Access::Atomic)
}

const LEN: usize = 4096;

fn bounds(ctx: &Ctx) -> Verdict {
    on_nodes(ctx, LEN, |node| {
        let there = node.data[node.right()].as_ref().expect("another rank");
        node.source().fill(0xee);
        for access in offered(node) {
            for (offset, len) in [
                (LEN, 8),
                (LEN + 8, 8),
                (usize::MAX & !7, 8),
                (usize::MAX & !7, 16),
                (1 << 40, 64),
            ] {
                let result = access.attempt(node, there, offset, len)?;
                let refused = matches!(result, Err(Error::OutOfBounds { .. }));
                ensure!(refused, "{access:?} of {len} at {offset}: {result:?}");
            }
        }
        for access in [Access::Put, Access::Get, Access::PutNotify] {
            for (offset, len) in [(0, LEN + 1), (8, LEN), (LEN - 8, 9), (0, usize::MAX)] {
                let result = access.attempt(node, there, offset, len)?;
                let refused = matches!(result, Err(Error::OutOfBounds { .. }));
                ensure!(refused, "{access:?} of {len} at {offset}: {result:?}");
            }
        }
        for access in offered(node).filter(|a| matches!(a, Access::Notify | Access::Atomic)) {
            for offset in [1, 2, 3, 65, LEN - 6] {
                let result = access.attempt(node, there, offset, 4)?;
                ensure_eq!(result, Err(Error::Misaligned(4)), "{access:?} at {offset}");
            }
        }
        ctx.sync();
        node.own().all(0, LEN, 0, "after what was refused")
    })
}

fn rights(ctx: &Ctx) -> Verdict {
    on_nodes(ctx, LEN, |node| {
        node.source().fill(0xee);
        for bits in 0..8 {
            let rights = Rights::from_bits_truncate(bits);
            let memory = node.transport.allocate(LEN, rights);
            let memory = memory.says("allocate")?;
            let regions = node.offer(memory.as_ref())?;
            let there = regions[node.right()].as_ref().expect("another rank");
            for access in offered(node) {
                let result = access.attempt(node, there, 64, 32)?;
                let taken = access != Access::PutNotify || node.notifies();
                let expected = match (rights.contains(access.needs()), taken) {
                    (true, true) => Ok(()),
                    (true, false) => Err(Error::Unsupported),
                    (false, _) => Err(Error::AccessDenied),
                };
                ensure_eq!(result, expected, "{access:?} with {rights:?}");
            }
            ctx.sync();
            if !rights.intersects(Rights::WRITE | Rights::ATOMIC) {
                view(memory.as_ref()).all(0, LEN, 0, "memory that nobody may write")?;
            }
            ctx.sync();
        }
        Ok(())
    })
}

fn stale(ctx: &Ctx) -> Verdict {
    on_nodes(ctx, LEN, |node| {
        for round in 0..3 {
            let memory = node.transport.allocate(LEN, Rights::FULL);
            let memory = memory.says("allocate")?;
            let regions = node.offer(memory.as_ref())?;
            let there = regions[node.right()].as_ref().expect("another rank");
            let key = ctx.told(node.right() as u32).unwrap_or_default();
            Access::Put
                .attempt(node, there, 8, 64)?
                .says("a put before")?;
            ctx.sync();
            drop(memory);
            ctx.sync();
            for access in offered(node) {
                let result = access.attempt(node, there, 8, 8)?;
                let expected = Err(Error::StaleRegion);
                ensure_eq!(result, expected, "{access:?} in round {round}");
            }
            let peer = node.peers[node.right()].as_ref().expect("another rank");
            let again = peer.import(&key, Deadline::Never).map(drop);
            ensure_eq!(again, Err(Error::StaleRegion), "an import in round {round}");
            ctx.sync();
        }
        node.own().all(0, LEN, 0, "another region")
    })
}

fn garbage(ctx: &Ctx) -> Verdict {
    on_nodes(ctx, LEN, |node| {
        let mut random = ctx.random(3);
        let peer = node.peers[node.right()].as_ref().expect("another rank");
        let wrong = [0, 1, 3, 5, 17, 61].map(|len| vec![0xff; len]);
        let drawn = (0..20).map(|len| crate::kit::random_bytes(&mut random, 3 * len));
        for bytes in wrong.into_iter().chain(drawn) {
            ensure!(
                peer.import(&bytes, Deadline::Never).is_err(),
                "key {bytes:02x?}"
            );
            ensure!(
                node.transport.connect(&bytes).is_err(),
                "address {bytes:02x?}"
            );
        }
        Access::Put
            .attempt(node, node.at(node.right(), 0).region, 8, 8)?
            .says("a put after all that")
    })
}

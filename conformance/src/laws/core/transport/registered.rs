//! Operations with and without [registered](unipgas_core::transport::Limits::registered) local memory.

use unipgas_core::op::{GetRequest, PutRequest};
use unipgas_core::{
    AtomicOp, AtomicRequest, AtomicType, Error, Flags, Local, Notice, Result, Rights,
};

use super::super::rank::{Says, update};
use super::node::{Node, on_nodes};
use crate::ensure_eq;
use crate::law::{Ctx, Verdict};

laws! {
    "core.transport.registered", "unipgas core: Limits::registered; Error::NotRegistered", 2,
        "where local memory must be registered, operations on memory that is not registered, no longer registered, or too short are refused without effect; elsewhere any memory is permitted" => registered;
}

fn registered(ctx: &Ctx) -> Verdict {
    on_nodes(ctx, 4096, |node| {
        let needed = node.limits().registered;
        let fill = |byte| -> Vec<u8> { vec![byte; 32] };
        let (mut private, zeros) = (fill(7), fill(0));
        let private = Local::unregistered(private.as_mut_ptr());
        let gone = {
            let transport = &node.transport;
            let memory = transport.allocate(4096, Rights::FULL).says("allocate")?;
            Local {
                ptr: memory.base(),
                desc: memory.desc(),
            }
        };
        // A range that exceeds its registration.
        let beside = Local {
            ptr: node.local(0).ptr.wrapping_add(node.scratch.len() - 8),
            desc: node.scratch.desc(),
        };
        let kinds = [("private", private), ("gone", gone), ("beside", beside)];
        let kinds = &kinds[..if needed { 3 } else { 1 }];
        for (what, local) in kinds {
            let operations = if node.limits().atomics { 4 } else { 3 };
            for kind in 0..operations {
                let expected = match (kind, needed) {
                    (1, _) if !node.notifies() => Err(Error::Unsupported),
                    (_, true) => Err(Error::NotRegistered),
                    (_, false) => Ok(()),
                };
                let ended = attempt(node, kind, *local)?;
                ensure_eq!(
                    ended,
                    expected,
                    "an operation of kind {kind} on memory that is {what}"
                );
            }
        }
        ctx.sync();
        if needed {
            node.own().holds(0, &zeros, "what was there")?;
        }
        ctx.sync();
        // The call takes the bytes of an inline put: they need no registration.
        let len = node.limits().inline.min(8);
        // SAFETY:
        // - 32 bytes; the call takes at most 8 of them.
        node.end(|channel, context| unsafe {
            let there = node.at(node.right(), 64);
            channel.put(
                &PutRequest::new(private, there, len),
                Flags::INLINE,
                context,
            )
        })?
        .says("an inline put of memory that is not registered")?;
        ctx.sync();
        node.own().holds(64, &fill(7)[..len], "what was taken")
    })
}

/// An operation with 16 bytes of local memory: put, put with notice, get, or sum with result.
fn attempt(node: &Node<'_>, kind: usize, local: Local) -> std::result::Result<Result<()>, String> {
    let there = node.at(node.right(), 0);
    let slot = node.at(node.right(), 28);
    let operands = [1u64; 2];
    let request = AtomicRequest {
        result: local.ptr,
        ..update(AtomicOp::Sum, AtomicType::U64, 2, operands.as_ptr())
    };
    let none = Flags::empty();
    // SAFETY:
    // - 16 bytes that outlive the operation, or the operation is refused; the operands outlive it, too.
    node.end(|channel, context| unsafe {
        match kind {
            0 => channel.put(&PutRequest::new(local, there, 16), none, context),
            1 => {
                let notice = Notice { slot, value: 1 };
                channel.put(
                    &PutRequest::new(local, there, 16).with(notice),
                    none,
                    context,
                )
            }
            2 => channel.get(&GetRequest::new(local, there, 16), none, context),
            _ => channel.atomic(there, &request, local.desc, none, context),
        }
    })
}

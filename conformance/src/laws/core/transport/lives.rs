//! Peers that leave or die: [`Peer::life`](unipgas_core::transport::Peer::life).

use unipgas_core::op::PutRequest;
use unipgas_core::transport::Life;
use unipgas_core::{Deadline, Error, Flags, Result};

use super::node::{Node, on_nodes};
use crate::kit::until;
use crate::law::{Ctx, Verdict};
use crate::{ensure, ensure_eq};

laws! {
    "core.transport.leaves", "unipgas core: Transport::leave, Peer::life", 3,
        "a process that has left has not died, and the others go on" => leaves;
    "core.transport.dies", "unipgas core: Peer::life; Error::PeerDead", 3 + needs_kill,
        "all operations to a killed process end, and its regions are refused; the other processes go on" => dies;
}

fn life(node: &Node<'_>, rank: usize) -> Life {
    node.peers[rank]
        .as_ref()
        .map_or(Life::Alive, |peer| peer.life())
}

fn leaves(ctx: &Ctx) -> Verdict {
    on_nodes(ctx, 4096, |node| {
        for rank in 0..ctx.size as usize {
            ensure_eq!(life(node, rank), Life::Alive, "rank {rank} at first");
        }
        ctx.sync();
        if ctx.rank == 1 {
            node.transport.leave();
            ctx.sync();
            return Ok(());
        }
        until("the life of who leaves", || life(node, 1) != Life::Alive)?;
        ensure_eq!(life(node, 1), Life::Left, "rank 1");
        let other = 2 - ctx.rank as usize;
        ensure_eq!(life(node, other), Life::Alive, "rank {other}");
        node.put(0, node.at(other, 0), 64, Flags::empty())?;
        ctx.sync();
        Ok(())
    })
}

fn is_gone<T>(result: &Result<T>) -> bool {
    matches!(
        result,
        Err(Error::PeerDead | Error::StaleRegion | Error::Unreachable(_))
    )
}

fn dies(ctx: &Ctx) -> Verdict {
    on_nodes(ctx, 4096, |node| {
        let key = ctx.told(1).unwrap_or_default();
        ctx.sync();
        if ctx.rank == 1 {
            ctx.dies();
        }
        let put = |at| {
            // SAFETY:
            // - in bounds of the source, which outlives the operation.
            node.end(|channel, context| unsafe {
                channel.put(
                    &PutRequest::new(node.local(0), node.at(1, at), 64),
                    Flags::empty(),
                    context,
                )
            })
        };
        // Each put ends, with or without an error, before the death is detected.
        let mut failed = None;
        until("the life of who is killed", || {
            failed = put(0).err();
            failed.is_some() || life(node, 1) != Life::Alive
        })?;
        failed.map_or(Ok(()), Err)?;
        ensure_eq!(life(node, 1), Life::Dead, "rank 1");
        let result = put(64)?;
        ensure!(is_gone(&result), "a put to the dead: {result:?}");
        let peer = node.peers[1].as_ref().expect("another rank");
        let again = peer.import(&key, Deadline::Never).map(drop);
        ensure!(is_gone(&again), "an import from the dead: {again:?}");
        let other = 2 - ctx.rank as usize;
        ensure_eq!(life(node, other), Life::Alive, "rank {other}");
        node.put(0, node.at(other, 0), 64, Flags::empty())
    })
}

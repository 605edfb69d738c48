//! Peers with unmapped memory, even if the backend below maps it.

use std::ptr::null;
use std::sync::Arc;

use unipgas_core::op::{Inbox, Notice, Remote};
use unipgas_core::region::{RemoteParts, RemoteRegion};
use unipgas_core::transport::{Life, Peer};
use unipgas_core::{Deadline, Result};

/// A peer of the backend below.
pub(crate) struct HiddenPeer(pub Arc<dyn Peer>);

impl Peer for HiddenPeer {
    fn import(&self, key: &[u8], deadline: Deadline) -> Result<RemoteRegion> {
        self.0.import(key, deadline).map(hide)
    }

    fn life(&self) -> Life {
        self.0.life()
    }

    fn declare_dead(&self) {
        self.0.declare_dead();
    }
}

/// Hides the mapping from the engine, so all accesses go by the channel.
fn hide(below: RemoteRegion) -> RemoteRegion {
    let parts = RemoteParts {
        base: std::ptr::null_mut(),
        bell: null(),
        locks: null(),
        ..*below.parts()
    };
    // SAFETY:
    // - the generation word is valid as long as the region below, which the new region keeps. There are no other pointers.
    unsafe { RemoteRegion::new(parts, Arc::new(below)) }
}

/// The region as the backend below imported it.
pub fn region(seen: &RemoteRegion) -> &RemoteRegion {
    seen.kept().downcast_ref().unwrap_or(seen)
}

pub fn place(seen: Remote<'_>) -> Remote<'_> {
    Remote {
        region: region(seen.region),
        ..seen
    }
}

pub fn notice(seen: Notice<'_>) -> Notice<'_> {
    Notice {
        slot: place(seen.slot),
        ..seen
    }
}

pub fn inbox(seen: Inbox<'_>) -> Inbox<'_> {
    Inbox {
        first: region(seen.first),
        second: seen.second.map(region),
        overflow: seen.overflow.map(place),
    }
}

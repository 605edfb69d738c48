//! Unsignaled writes. A signaled write after them confirms that they are visible at the target.

use std::sync::Arc;

use unipgas_core::streams::{NetworkOp, Ticket};
use unipgas_core::{Error, Result, Rights};

use crate::fabric::{AccessParameters, Fabric, OfiRegistration};
use crate::net::OfiNet;
use crate::operations::What;

/// Memory for the signaled writes of peers. Its contents are never read.
pub(crate) struct ConfirmTarget {
    registration: OfiRegistration,
    begin: u64,
    _memory: Box<[u64; 8]>,
}

impl ConfirmTarget {
    /// Registers it under `key`, if the provider does not choose keys.
    pub fn new(fabric: &Fabric, key: u64) -> Result<Self> {
        let mut memory = Box::new([0u64; 8]);
        let base = memory.as_mut_ptr();
        let key = match fabric.traits.own_keys {
            true => 0,
            false => key >> (64 - fabric.traits.key_bits),
        };
        // SAFETY:
        // - the memory is dropped after the registration.
        let registration =
            unsafe { fabric.register(base.cast(), size_of_val(&*memory), Rights::WRITE, key) }?;
        let begin = match fabric.traits.addresses {
            true => base.expose_provenance() as u64,
            false => 0,
        };
        Ok(ConfirmTarget {
            registration,
            begin,
            _memory: memory,
        })
    }

    /// Bytes that a peer needs to write to it.
    pub fn told(&self) -> impl Iterator<Item = u8> {
        let words = [self.registration.key(), self.begin];
        words.into_iter().flat_map(u64::to_le_bytes)
    }
}

/// Context of all unsignaled writes to the endpoint with this tag. They share it, since only a failure reports it. It is odd, so it differs from the
/// address of an operation.
pub fn context(tag: u32) -> usize {
    (tag as usize) << 1 | 1
}

/// The tag in a context of [`context`]; `None`: the context of an operation.
pub fn owner(context: usize) -> Option<u32> {
    (context & 1 == 1).then_some((context >> 1) as u32)
}

/// A signaled write to the landing of a peer.
pub(crate) struct Acknowledge {
    /// The network of this process.
    pub net: Arc<OfiNet>,
    /// The tag of the peer.
    pub to: u32,
}

impl NetworkOp for Acknowledge {
    fn post(&mut self, ticket: Ticket) -> Result<()> {
        let landing = self.net.landings.read().get(&self.to).copied();
        let at = landing.ok_or(Error::PeerDead)?;
        let context = self.net.operations.begin(What::Access(ticket));
        let how = AccessParameters {
            desc: std::ptr::null_mut(),
            context,
            data: None,
            inline: true,
        };
        let word = 0u64;
        // SAFETY:
        // - the call copies the word.
        let posted = unsafe {
            let from = (&raw const word).cast();
            self.net.fabric.write(from, size_of_val(&word), at, how)
        };
        self.net.posted(context, posted)
    }
}

//! Registered memory of this process and of peers.

use std::any::Any;
use std::sync::Arc;

use parking_lot::Mutex;

use super::completion::{Completions, Kind};
use super::landing::Landing;
use super::link::{Current, Ends, Link, Waiting};
use super::stream_node::{BRIEFLY, StreamNode};
use unipgas_base::{Deadline, Error, Result, Rights};
use unipgas_engine::agent::{RegisteredPlace, Request};
use unipgas_engine::region::{Memory, RemoteParts, RemoteRegion};
use unipgas_engine::transport::Handler;

/// The network's part of a registration.
#[derive(Default)]
pub struct OwnPart {
    /// Bytes for importers, beside length and rights ([`Network::imported`](super::Network::imported)).
    pub told: Vec<u8>,
    /// The network's name of the memory in operations of this process. 0: the name of the [default](super::Network::check_local).
    pub desc: u64,
    /// Dropped when no peer uses the registration any more. The memory is still valid then.
    pub keeps: Option<Box<dyn Any + Send + Sync>>,
}

/// Memory of this process that peers may import.
pub struct Registration {
    node: Arc<StreamNode>,
    place: RegisteredPlace,
    base: *mut u8,
    len: usize,
    desc: u64,
    keeps: Option<Box<dyn Any + Send + Sync>>,
    allocated: bool,
}

// SAFETY:
// - `base` leads to memory that threads share on purpose. The other fields are plain data.
unsafe impl Send for Registration {}
// SAFETY:
// - as for Send. No field changes.
unsafe impl Sync for Registration {}

impl Registration {
    /// Allocates memory, and calls `own` with it. Errors: [`Error::Exhausted`]; as `own`.
    pub(crate) fn allocate(
        node: &Arc<StreamNode>,
        len: usize,
        rights: Rights,
        own: impl FnOnce(*mut u8) -> Result<OwnPart>,
    ) -> Result<Self> {
        let base = node.heap.take(len)?;
        let own = own(base).inspect_err(|_| node.heap.give_back(base, len))?;
        // SAFETY:
        // - the block belongs to this registration until its drop.
        Ok(unsafe { Registration::open(node, base, len, rights, own, true) })
    }

    /// # Safety
    /// `len` bytes at `base` are valid until the registration is dropped.
    pub(crate) unsafe fn of_user(
        node: &Arc<StreamNode>,
        base: *mut u8,
        len: usize,
        rights: Rights,
        own: OwnPart,
    ) -> Self {
        // SAFETY:
        // - contract of this call: valid until the registration is dropped.
        unsafe { Registration::open(node, base, len, rights, own, false) }
    }

    unsafe fn open(
        node: &Arc<StreamNode>,
        base: *mut u8,
        len: usize,
        rights: Rights,
        own: OwnPart,
        allocated: bool,
    ) -> Self {
        // SAFETY:
        // - valid until `drop`, which closes it first.
        let place = unsafe { node.registered().open(base, len, rights, own.told) };
        let desc = match own.desc {
            // A unique name: a generation of a slot is not used twice.
            0 if node.limits().registered => {
                u64::from(place.generation) << 32 | u64::from(place.slot)
            }
            desc => desc,
        };
        Registration {
            node: node.clone(),
            place,
            base,
            len,
            desc,
            keeps: own.keeps,
            allocated,
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if !self.node.is_here() {
            // In the child of a fork: another thread of the parent may have held the locks.
            std::mem::forget(self.keeps.take());
            return;
        }
        if self.node.registered().close(self.place) {
            self.node.releases.begin(self.place);
            self.node.wake();
            // The agent of this process refuses peers that do not know of the end yet.
            let releases = &self.node.releases;
            let told = |by| self.node.wait_until(by, || releases.is_over(self.place));
            // A peer may have died. The first look may only find bytes that the peer sent after an earlier look.
            let soon = (0..2).any(|_| {
                let over = told(Deadline::after(BRIEFLY)).is_ok();
                if !over {
                    self.node.look_at_peers();
                }
                over
            });
            if !soon && told(self.node.patience()).is_err() {
                releases.give_up(self.place);
            }
        }
        drop(self.keeps.take());
        if self.allocated {
            self.node.heap.give_back(self.base, self.len);
        }
    }
}

impl Memory for Registration {
    fn base(&self) -> *mut u8 {
        self.base
    }

    fn len(&self) -> usize {
        self.len
    }

    fn desc(&self) -> u64 {
        self.desc
    }

    fn handle_by(&self, handler: Arc<dyn Handler>) -> Result<()> {
        self.node.registered().handle_by(self.place, handler);
        Ok(())
    }

    /// Slot and generation. The owner gives the rest.
    fn key(&self) -> Vec<u8> {
        let mut key = Vec::with_capacity(KEY);
        key.extend(self.place.slot.to_le_bytes());
        key.extend(self.place.generation.to_le_bytes());
        key
    }
}

/// Length of a key in bytes.
const KEY: usize = 8;

/// The state that an imported region keeps alive.
pub(super) struct Imported {
    /// Whether the region is valid.
    pub current: Current,
    /// It keeps the peer's index in use.
    pub link: Arc<Link>,
}

/// `None`: the region was not imported by streams.
pub(super) fn imported(region: &RemoteRegion) -> Option<&Imported> {
    region.kept().downcast_ref()
}

/// The stream to the owner of the region. `None`: the region was not imported by streams.
pub(crate) fn link_of(region: &RemoteRegion) -> Option<&Arc<Link>> {
    imported(region).map(|imported| &imported.link)
}

/// Imports the region with this `key`: asks its owner. Errors: [`Error::StaleRegion`], [`Error::PeerDead`], [`Error::Timeout`].
pub(super) fn import(
    key: &[u8],
    peer: u32,
    link: &Arc<Link>,
    node: &StreamNode,
    deadline: Deadline,
) -> Result<RemoteRegion> {
    if link.is_gone() {
        return Err(Error::PeerDead);
    }
    let key: &[u8; KEY] = key.try_into().map_err(|_| Error::StaleRegion)?;
    let packed = u64::from_le_bytes(*key);
    let place = unpack(packed, 0);
    // After a timeout, the next try continues the request.
    let question = match link.take_question(place) {
        Some(question) => question,
        None => Question::ask(place, link, node)?,
    };
    let answer = match question.answer(node, deadline) {
        Err(Error::Timeout) => {
            link.keep_question(place, question);
            return Err(Error::Timeout);
        }
        answer => answer,
    };
    let current = question.current;
    let asked = answer.and_then(|answer| {
        let (told, own) = Told::split(&answer)?;
        Ok((told, node.network().imported(link, own)?))
    });
    let (told, [a, b, c]) = match asked {
        Ok(answer) => answer,
        Err(error) => {
            match error {
                Error::StaleRegion => link.refused(place),
                _ => link.unwatch(place, current),
            }
            return Err(error);
        }
    };
    let parts = RemoteParts {
        base: std::ptr::null_mut(),
        len: told.len,
        generation: &*current,
        expected: 1,
        rights: match told.rights.contains(Rights::RECORDS) {
            true => told.rights.difference(Rights::FULL),
            false => told.rights,
        },
        bell: std::ptr::null(),
        locks: std::ptr::null(),
        peer,
        detail: [packed, a, b, c],
    };
    let imported = Imported {
        current,
        link: link.clone(),
    };
    // SAFETY:
    // - the generation word lives as long as the region. So does the link, which keeps its index in use.
    Ok(unsafe { RemoteRegion::new(parts, Arc::new(imported)) })
}

/// The owner's data of a region, which precede the network's.
pub(super) struct Told {
    pub len: usize,
    rights: Rights,
}

impl Told {
    pub(crate) fn split(answer: &[u8]) -> Result<(Told, &[u8])> {
        let whole = answer.split_first_chunk().and_then(|(len, rest)| {
            let (rights, own) = rest.split_first_chunk()?;
            let len = usize::try_from(u64::from_le_bytes(*len)).ok()?;
            let rights = Rights::from_bits(u32::from_le_bytes(*rights))?;
            Some((Told { len, rights }, own))
        });
        whole.ok_or(Error::StaleRegion)
    }
}

/// A request for a region.
pub(super) struct Question {
    completions: Arc<Completions>,
    told: Arc<Mutex<Vec<u8>>>,
    /// Watched from the request on.
    current: Current,
}

impl Question {
    fn ask(place: RegisteredPlace, link: &Link, node: &StreamNode) -> Result<Self> {
        let request = Request::Import { place };
        let completions = Arc::new(Completions::new(1));
        completions.begin(0)?;
        let kind = Kind {
            own: false,
            reads: false,
        };
        completions.leaves(0, kind);
        let question = Question {
            completions: completions.clone(),
            told: Arc::default(),
            current: link.watch(place),
        };
        let waiting = Waiting {
            completions,
            peer: 0,
            context: 0,
            kind,
            landing: Some(Landing::Told(question.told.clone())),
            ends: Ends::One,
        };
        match node.ask(link, (0, false), |into| request.encode(into), waiting) {
            Ok(()) => Ok(question),
            Err(error) => {
                link.unwatch(place, question.current);
                Err(error)
            }
        }
    }

    /// Waits for the owner's answer.
    fn answer(&self, node: &StreamNode, deadline: Deadline) -> Result<Vec<u8>> {
        let mut result = Ok(());
        // The request ends even if the peer dies.
        node.wait_until(deadline, || {
            self.completions
                .report(&mut |completion| result = completion.result);
            self.completions.pending() == 0
        })?;
        result.map(|()| std::mem::take(&mut *self.told.lock()))
    }
}

fn unpack(packed: u64, offset: usize) -> RegisteredPlace {
    RegisteredPlace {
        slot: packed as u32,
        generation: (packed >> 32) as u32,
        offset: offset as u64,
    }
}

/// The owner's place of `offset` in the region.
pub(super) fn place(region: &RemoteRegion, offset: usize) -> RegisteredPlace {
    unpack(region.parts().detail[0], offset)
}

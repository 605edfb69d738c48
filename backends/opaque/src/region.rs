//! Registered memory: of this process, and of peers.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use unipgas_core::agent::{Place, Request};
use unipgas_core::op::Local;
use unipgas_core::region::{Memory, RemoteParts, RemoteRegion, Rights};
use unipgas_core::transport::Handler;
use unipgas_core::{Deadline, Error, Result};

use crate::completion::Completions;
use crate::link::{Link, Waiting};
use crate::transport::{Home, PARTING};

/// Memory that was allocated here. It stays mapped as long as the transport lives; what is given back is given out again.
#[derive(Default)]
pub struct Heap(Mutex<Blocks>);

#[derive(Default)]
struct Blocks {
    free: HashMap<usize, Vec<usize>>,
    all: Vec<(usize, usize)>,
}

impl Heap {
    fn take(&self, len: usize) -> Result<*mut u8> {
        let none = || Error::Exhausted(format!("memory for {len} bytes"));
        let whole = len
            .checked_next_multiple_of(rustix::param::page_size())
            .ok_or_else(none)?;
        let mut blocks = self.0.lock();
        if let Some(block) = blocks.free.get_mut(&whole).and_then(Vec::pop) {
            let block = std::ptr::with_exposed_provenance_mut::<u8>(block);
            // SAFETY:
            // - a block of this length that nobody has.
            unsafe { block.write_bytes(0, whole) };
            return Ok(block);
        }
        // SAFETY:
        // - a new mapping, placed by the kernel.
        let block = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                whole,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }
        .map_err(|_| none())?;
        blocks.all.push((block.expose_provenance(), whole));
        Ok(block.cast())
    }

    fn give_back(&self, base: *mut u8, len: usize) {
        let whole = len.next_multiple_of(rustix::param::page_size());
        let mut blocks = self.0.lock();
        blocks
            .free
            .entry(whole)
            .or_default()
            .push(base.expose_provenance());
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        for (block, len) in &self.0.get_mut().all {
            // SAFETY:
            // - mapped by `take`; the transport, whose memory it is, is dropped.
            let _ = unsafe { munmap(std::ptr::with_exposed_provenance_mut(*block), *len) };
        }
    }
}

/// Memory of this process that peers may ask for.
pub struct Registration {
    home: Arc<Home>,
    place: Place,
    base: *mut u8,
    len: usize,
    rights: Rights,
    allocated: bool,
}

// SAFETY:
// - `base` leads to memory that is shared by purpose; the rest is plain data.
unsafe impl Send for Registration {}
// SAFETY:
// - as for Send; nothing changes in it.
unsafe impl Sync for Registration {}

impl Registration {
    pub fn allocate(home: &Arc<Home>, len: usize, rights: Rights) -> Result<Self> {
        let base = home.heap.take(len)?;
        // SAFETY:
        // - the block is this registration's until it is dropped.
        Ok(unsafe { Registration::open(home, base, len, rights, true) })
    }

    /// # Safety
    /// `len` bytes at `base` are valid until it is dropped.
    pub unsafe fn of_user(home: &Arc<Home>, base: *mut u8, len: usize, rights: Rights) -> Self {
        // SAFETY:
        // - the caller's word.
        unsafe { Registration::open(home, base, len, rights, false) }
    }

    unsafe fn open(
        home: &Arc<Home>,
        base: *mut u8,
        len: usize,
        rights: Rights,
        allocated: bool,
    ) -> Self {
        Registration {
            home: home.clone(),
            // SAFETY:
            // - valid until `drop`, which closes it first.
            place: unsafe { home.registered.open(base, len, rights) },
            base,
            len,
            rights,
            allocated,
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if !self.home.is_here() {
            // Another thread may have held any of the locks when this process was forked.
            return;
        }
        if self.home.registered.close(self.place) {
            self.home.releases.begin(self.place);
            self.home.wake();
            // Who has not heard of it then is refused by this process's agent.
            let _ = self.home.wait_until(Deadline::after(PARTING), || {
                self.home.releases.is_over(self.place)
            });
        }
        if self.allocated {
            self.home.heap.give_back(self.base, self.len);
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

    /// Generation and slot, which no other registration has ever had.
    fn desc(&self) -> u64 {
        match self.home.options.limits.registered {
            true => u64::from(self.place.generation) << 32 | u64::from(self.place.slot),
            false => 0,
        }
    }

    fn handle_by(&self, handler: Arc<dyn Handler>) -> Result<()> {
        self.home.registered.handle_by(self.place, handler);
        Ok(())
    }

    /// Slot, generation, length, rights.
    fn key(&self) -> Vec<u8> {
        let mut key = Vec::with_capacity(KEY);
        key.extend(self.place.slot.to_le_bytes());
        key.extend(self.place.generation.to_le_bytes());
        key.extend((self.len as u64).to_le_bytes());
        key.extend(self.rights.bits().to_le_bytes());
        key
    }
}

const KEY: usize = 20;

/// The region of a peer that `key` names, which is asked whether it is registered still. Errors: [`Error::StaleRegion`],
/// [`Error::PeerDead`], [`Error::Timeout`].
pub fn import(
    key: &[u8],
    peer: u32,
    link: &Arc<Link>,
    home: &Home,
    deadline: Deadline,
) -> Result<RemoteRegion> {
    let key: &[u8; KEY] = key.try_into().map_err(|_| Error::StaleRegion)?;
    let word = |at: usize| {
        u64::from(u32::from_le_bytes([
            key[at],
            key[at + 1],
            key[at + 2],
            key[at + 3],
        ]))
    };
    let len = word(8) | word(12) << 32;
    let place = Place {
        slot: word(0) as u32,
        generation: word(4) as u32,
        offset: 0,
    };
    let rights = Rights::from_bits(word(16) as u32).ok_or(Error::StaleRegion)?;
    let len = usize::try_from(len).map_err(|_| Error::StaleRegion)?;
    let current = link.watch(place);
    if let Err(error) = ask(&Request::Import { place }, link, home, deadline) {
        match error {
            Error::StaleRegion => link.refused(place),
            _ => link.unwatch(place, current),
        }
        return Err(error);
    }
    let parts = RemoteParts {
        base: std::ptr::null_mut(),
        len,
        generation: &*current,
        expected: 1,
        rights,
        bell: std::ptr::null(),
        locks: std::ptr::null(),
        peer,
        detail: [word(0), word(4)],
    };
    // SAFETY:
    // - the generation word lives as long as the region, and so does the link, whose index nobody else gets until then.
    Ok(unsafe { RemoteRegion::new(parts, Arc::new((current, link.clone()))) })
}

/// Asks a peer, and waits for the answer.
fn ask(request: &Request<'_>, link: &Link, home: &Home, deadline: Deadline) -> Result<()> {
    let completions = Arc::new(Completions::new(1));
    completions.begin(0)?;
    let waiting = Waiting {
        completions: completions.clone(),
        peer: 0,
        context: 0,
        landing: None,
    };
    home.ask(link, (0, false), |into| request.encode(into), waiting)?;
    let mut result = Ok(());
    // It ends, also when the peer dies.
    home.wait_until(deadline, || {
        completions.report(&mut |completion| result = completion.result);
        completions.pending() == 0
    })?;
    result
}

impl Home {
    /// Whether `len` bytes of this process are registered, where they have to be. Errors: [`Error::NotRegistered`].
    pub fn check_local(&self, local: Local, len: usize) -> Result<()> {
        let place = Place {
            slot: local.desc as u32,
            generation: (local.desc >> 32) as u32,
            offset: 0,
        };
        let needed = self.options.limits.registered && len > 0;
        match needed && !self.registered.covers(place, local.ptr, len) {
            true => Err(Error::NotRegistered),
            false => Ok(()),
        }
    }
}

/// Where a peer has what lies at `offset` of the region.
pub fn place(region: &RemoteRegion, offset: usize) -> Place {
    let [slot, generation] = region.parts().detail;
    Place {
        slot: slot as u32,
        generation: generation as u32,
        offset: offset as u64,
    }
}

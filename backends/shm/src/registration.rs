//! Regions of this process: slots in the control block, and the memory behind them.

use std::collections::HashMap;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use bytemuck::bytes_of;
use once_cell::sync::OnceCell;
use parking_lot::{Mutex, RwLock};
use unipgas_core::driver::Driver;
use unipgas_core::process;
use unipgas_core::region::Memory;
use unipgas_core::transport::Handler;
use unipgas_core::{Error, Result, Rights, log};

use crate::agent::Agent;
use crate::control::{RegionKind, SLOTS, SlotEntry};
use crate::mirror::Mirror;
use crate::peer::ShmKey;
use crate::pool::MemoryPool;

/// State that all registrations of a process share.
pub(crate) struct RegistrationState {
    /// The pool.
    pub pool: MemoryPool,
    /// Adopted memory. `None` before the first adoption.
    mirror: Mutex<Option<Mirror>>,
    /// UNIPGAS_SHM_ADOPT: whether user memory may be adopted.
    may_adopt: bool,
    free_slots: Mutex<Vec<u32>>,
    /// Handlers of active messages.
    pub handlers: Handlers,
    /// The driver that serves the agent. Empty without an agent.
    pub agent_driver: OnceCell<Weak<Driver>>,
    /// The count of requests in the control block at the last look of a waiting thread.
    pub looked_at: AtomicU32,
    process: u32,
}

/// Handlers of regions, by slot, with the generation of the region.
#[derive(Default)]
pub(crate) struct Handlers(RwLock<HashMap<u32, Handled>>);

type Handled = (u32, Arc<dyn Handler>);

impl Handlers {
    /// Hands over a message for a region. Errors: [`Error::StaleRegion`], [`Error::Refused`].
    pub fn handle(
        &self,
        (slot, generation): (u32, u32),
        at: usize,
        message: &[u8],
        reply: &mut Vec<u8>,
    ) -> Result<()> {
        let all = self.0.read();
        match all.get(&slot) {
            Some((named, handler)) if *named == generation => {
                handler.handle(at, message, reply).map_err(Error::Refused)
            }
            _ => Err(Error::StaleRegion),
        }
    }

    /// As [`handle`](Handlers::handle), for a thread that waits. `None`: it must not ([`Handler::is_plain`]), or the handlers are being changed.
    pub fn handle_if_plain(
        &self,
        (slot, generation): (u32, u32),
        at: usize,
        message: &[u8],
        reply: &mut Vec<u8>,
    ) -> Option<Result<()>> {
        let all = self.0.try_read()?;
        let (named, handler) = all.get(&slot)?;
        if *named != generation || !handler.is_plain(message) {
            return None;
        }
        let handled = handler.handle(at, message, reply);
        Some(handled.map_err(Error::Refused))
    }

    /// `handler` gets the messages for a region from now on.
    pub fn insert(&self, (slot, generation): (u32, u32), handler: Arc<dyn Handler>) {
        let before = self.0.write().insert(slot, (generation, handler));
        drop(before);
    }

    /// After the return, no thread calls the handler.
    fn remove(&self, slot: u32) {
        if self.0.read().contains_key(&slot) {
            let handler = self.0.write().remove(&slot);
            drop(handler);
        }
    }
}

impl RegistrationState {
    pub fn new(pool: MemoryPool, may_adopt: bool) -> Self {
        RegistrationState {
            pool,
            mirror: Mutex::new(None),
            may_adopt,
            free_slots: Mutex::new(Vec::new()),
            handlers: Handlers::default(),
            agent_driver: OnceCell::new(),
            looked_at: AtomicU32::new(0),
            process: process::id(),
        }
    }

    /// False in the child of a fork: slots, pool and regions belong to the parent.
    pub fn is_here(&self) -> bool {
        self.process == process::id()
    }

    /// Adopts memory of the user in place, if that is possible.
    ///
    /// # Safety
    /// The memory is valid until the registration with [`Backing::Adopted`] is dropped.
    pub unsafe fn adopt(&self, base: *mut u8, len: usize) -> bool {
        if !self.may_adopt {
            return false;
        }
        let mut mirror = self.mirror.lock();
        let result = (|| {
            if mirror.is_none() {
                let made = Mirror::create()?;
                let control = self.pool.view().control();
                control.mirror_fd.store(made.fd(), Ordering::Release);
                *mirror = Some(made);
            }
            match &mut *mirror {
                // SAFETY:
                // - contract of this call: the memory stays valid until its registration is dropped.
                Some(mirror) => unsafe { mirror.adopt(base, len) },
                None => unreachable!("just made"),
            }
        })();
        match &result {
            Ok(()) => {
                tracing::debug!(target: log::MEMORY, ?base, len, "memory of the program is adopted: peers reach it in place")
            }
            Err(refusal) => {
                tracing::debug!(target: log::MEMORY, ?base, len, "memory of the program is not adopted, the kernel copies: {refusal}");
            }
        }
        result.is_ok()
    }

    /// Peers that ring a bell of this process wake its progress thread by this end of a pipe.
    pub fn show_alarm(&self, alarm: RawFd) -> Result<()> {
        // SAFETY:
        // - the descriptor belongs to a driver, which the caller keeps during this call.
        let alarm = unsafe { BorrowedFd::borrow_raw(alarm) };
        let stat = rustix::fs::fstat(alarm).map_err(|e| Error::os("fstat of a pipe", e))?;
        let control = self.pool.view().control();
        control
            .alarm_fd
            .store(alarm.as_raw_fd() as u32, Ordering::Relaxed);
        control.alarm_inode.store(stat.st_ino, Ordering::Release);
        Ok(())
    }

    fn release(&self, base: *mut u8, len: usize) {
        if let Some(mirror) = &mut *self.mirror.lock() {
            mirror.release(base, len);
        }
    }

    fn take_slot(&self) -> Result<u32> {
        if let Some(slot) = self.free_slots.lock().pop() {
            return Ok(slot);
        }
        let control = self.pool.view().control();
        let slot = control.slots_used.fetch_add(1, Ordering::AcqRel);
        if slot as usize >= SLOTS {
            control.slots_used.fetch_sub(1, Ordering::AcqRel);
            return Err(Error::Exhausted(format!(
                "region slots (a process can register {SLOTS} regions)"
            )));
        }
        Ok(slot)
    }
}

/// Memory behind a registration. It is released after the slot is closed.
pub(crate) enum Backing {
    /// An extent of the pool at this offset.
    Extent(u64),
    /// The user's memory, adopted in place.
    Adopted,
    /// The user's memory, unchanged.
    Private,
}

/// One registered region.
pub(crate) struct ShmRegistration {
    home: Arc<RegistrationState>,
    agent: Arc<OnceCell<Agent>>,
    slot: u32,
    generation: u32,
    base: *mut u8,
    len: usize,
    backing: Backing,
}

// SAFETY:
// - `base` leads to registered memory, which is shared by purpose; the rest is plain data.
unsafe impl Send for ShmRegistration {}
// SAFETY:
// - as for Send; no interior mutability outside atomics.
unsafe impl Sync for ShmRegistration {}

impl ShmRegistration {
    /// Opens a slot for memory that `backing` describes.
    pub fn open(
        home: &Arc<RegistrationState>,
        agent: &Arc<OnceCell<Agent>>,
        base: *mut u8,
        len: usize,
        rights: Rights,
        backing: Backing,
    ) -> Result<Self> {
        let slot = home.take_slot()?;
        let (kind, offset) = match backing {
            Backing::Extent(offset) => (RegionKind::Pool, offset),
            Backing::Adopted => (RegionKind::Mirror, 0),
            Backing::Private => (RegionKind::Private, 0),
        };
        let generation = home.pool.view().control().slots[slot as usize].open(SlotEntry {
            kind,
            rights,
            offset,
            len: len as u64,
            address: base as u64,
        });
        Ok(ShmRegistration {
            home: home.clone(),
            agent: agent.clone(),
            slot,
            generation,
            base,
            len,
            backing,
        })
    }
}

impl Memory for ShmRegistration {
    fn base(&self) -> *mut u8 {
        self.base
    }

    fn len(&self) -> usize {
        self.len
    }

    fn key(&self) -> Vec<u8> {
        bytes_of(&ShmKey {
            slot: self.slot,
            generation: self.generation,
        })
        .to_vec()
    }

    fn handle_by(&self, handler: Arc<dyn Handler>) -> Result<()> {
        self.agent.get_or_try_init(|| Agent::start(&self.home))?;
        let place = (self.slot, self.generation);
        self.home.handlers.insert(place, handler);
        self.home.pool.view().control().slots[self.slot as usize].handle();
        Ok(())
    }
}

impl Drop for ShmRegistration {
    fn drop(&mut self) {
        let home = &self.home;
        // The slot and the memory are the parent's.
        if !home.is_here() {
            return;
        }
        home.pool.view().control().slots[self.slot as usize].close(self.generation);
        home.handlers.remove(self.slot);
        match self.backing {
            Backing::Extent(offset) => home.pool.give_back(offset, self.len),
            Backing::Adopted => home.release(self.base, self.len),
            Backing::Private => {}
        }
        home.free_slots.lock().push(self.slot);
    }
}

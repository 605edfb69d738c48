//! Segments (GASPI 17.1 §7): registered memory with notification words. The directory of the process lists them by name.

use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use unipgas_core::calls::{self, Call};
use unipgas_core::notification::Words;
use unipgas_core::{Deadline, Endpoint, Error, Local, NotificationArray, Region, Rights};

use crate::process::{GaspiProcess, SEGMENT_IDS, deadline};
use crate::status::{Result, Status, from_engine};

/// Most time that procedures without a timeout wait for peers.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);

/// Limit of a procedure without a timeout argument that needs an answer of a living rank: longer than a loaded host needs.
const ANSWER: Duration = Duration::from_secs(60);

/// Access rights of other processes. The two atomic operations of §10 use values of 8 bytes.
const RIGHTS: Rights = Rights::FULL.union(Rights::WORDS);

/// A segment of this process.
pub struct LocalSegment {
    /// Whether the memory belongs to the program.
    users: bool,
    base: *mut u8,
    len: usize,
    desc: u64,
    region: Mutex<Option<Region>>,
    notifications: NotificationArray,
}

// SAFETY:
// - `base` points to registered memory, which threads and processes share. The other fields are Send and Sync.
unsafe impl Send for LocalSegment {}
// SAFETY:
// - as for Send.
unsafe impl Sync for LocalSegment {}

impl LocalSegment {
    /// `size` bytes at `offset`. Errors: [`Status::ErrInvLocOff`].
    #[inline(always)]
    pub(crate) fn local(&self, offset: u64, size: u64) -> Result<Local> {
        if offset as usize > self.len || size as usize > self.len - offset as usize {
            return Err(Status::ErrInvLocOff);
        }
        Ok(Local {
            ptr: self.base.wrapping_add(offset as usize),
            desc: self.desc,
        })
    }

    /// Ends the registrations. Threads that have just found the segment may still read the other fields.
    fn retire(&self) {
        *self.region.lock() = None;
        self.notifications.release();
    }
}

/// A deleted segment, and the queues that had requests in progress at its deletion.
pub(crate) struct Unfreed {
    segment: Box<LocalSegment>,
    queues: Vec<Arc<Endpoint>>,
}

/// The owner of the memory of a new segment.
enum Source {
    Library,
    User(*mut u8),
}

impl GaspiProcess {
    /// The notification words of a ready segment. They stay mapped after the deletion of the segment. Errors: [`Status::ErrInvSeg`].
    #[inline(always)]
    pub(crate) fn words(&self, id: u8) -> Result<Words> {
        let first = self.words[usize::from(id)].load(Ordering::Acquire);
        if first.is_null() {
            return Err(Status::ErrInvSeg);
        }
        // SAFETY:
        // - `make` allocates `notification_num` words for each segment. The words stay mapped while `self` keeps the transport.
        Ok(unsafe { Words::from_raw(first, self.config.notification_num as usize) })
    }

    /// Whether these are still the notification words of a segment.
    pub(crate) fn has_words(&self, id: u8, words: &Words) -> bool {
        std::ptr::eq(
            self.words[usize::from(id)].load(Ordering::Acquire),
            words.as_ptr(),
        )
    }

    fn segment_any<'a>(&'a self, id: u8, _call: &'a Call) -> Option<&'a LocalSegment> {
        let segment = self.made[usize::from(id)].load(Ordering::Acquire);
        // SAFETY:
        // - null, or from Box::into_raw. A deleted segment is not freed before the calls end that may have found it.
        unsafe { segment.as_ref() }
    }

    fn exists(&self, id: u8) -> bool {
        !self.made[usize::from(id)].load(Ordering::Acquire).is_null()
    }

    /// A ready segment.
    #[inline(always)]
    pub(crate) fn segment<'a>(&'a self, id: u8, _call: &'a Call) -> Result<&'a LocalSegment> {
        let segment = self.segments[usize::from(id)].load(Ordering::Acquire);
        // SAFETY:
        // - null, or from Box::into_raw. A deleted segment is not freed before the calls end that may have found it.
        unsafe { segment.as_ref() }.ok_or(Status::ErrInvSeg)
    }

    fn make(&self, id: u8, size: u64, source: &Source, ready: bool) -> Result<()> {
        if size == 0 || size > isize::MAX as u64 {
            return Err(Status::ErrInvSegsize);
        }
        let _changing = self.segment_changes.lock();
        if self.exists(id) {
            return Err(Status::ErrInvSeg);
        }
        if self.count() >= self.config.segment_max {
            return Err(Status::ErrManySeg);
        }
        let engine = self.world.engine();
        let region = match *source {
            Source::Library => engine.allocate(size as usize, RIGHTS),
            // SAFETY:
            // - contract of `segment_bind` and `segment_use`: the memory is valid until the segment is deleted.
            Source::User(base) => unsafe { engine.register(base, size as usize, RIGHTS) },
        }
        .map_err(from_engine)?;
        let words = self.config.notification_num as usize;
        let notifications = engine
            .allocate(words.max(1) * 4, Rights::WRITE)
            .and_then(|region| NotificationArray::new(region, words))
            .map_err(from_engine)?;
        self.world
            .directory()
            .list_region(usize::from(id), &region.key(), &notifications.key())
            .map_err(from_engine)?;
        let local = region.local(0, 0).map_err(from_engine)?;
        let segment = Box::new(LocalSegment {
            users: matches!(source, Source::User(_)),
            base: local.ptr,
            len: region.len(),
            desc: local.desc,
            region: Mutex::new(Some(region)),
            notifications,
        });
        let segment = Box::into_raw(segment);
        self.made[usize::from(id)].store(segment, Ordering::Release);
        if ready {
            // SAFETY:
            // - from Box::into_raw above. Only a thread with the lock removes it.
            self.mark_ready(id, unsafe { &*segment });
        }
        self.show(id, self.rank())
    }

    fn mark_ready(&self, id: u8, segment: &LocalSegment) {
        let this = std::ptr::from_ref(segment).cast_mut();
        self.segments[usize::from(id)].store(this, Ordering::Release);
        let words = segment.notifications.as_ptr().cast_mut();
        self.words[usize::from(id)].store(words, Ordering::Release);
    }

    fn show(&self, id: u8, rank: u16) -> Result<()> {
        self.world
            .directory()
            .show_region(usize::from(id), usize::from(rank))
            .map_err(from_engine)
    }

    fn count(&self) -> u32 {
        (0..SEGMENT_IDS).filter(|id| self.exists(*id as u8)).count() as u32
    }

    /// Allocates a segment of `size` zeroed bytes (§7.2.1). Errors: [`Status::ErrInvSegsize`], [`Status::ErrInvSeg`] if the name is in use,
    /// [`Status::ErrManySeg`], [`Status::ErrMemalloc`].
    pub fn segment_alloc(&self, id: u8, size: u64) -> Result<()> {
        self.make(id, size, &Source::Library, true)
    }

    /// Makes a segment of memory of the program (§7.2.4). Errors: [`Status::ErrNullptr`], and the errors of [`GaspiProcess::segment_alloc`].
    ///
    /// # Safety
    /// `size` bytes at `pointer` stay valid until the segment is deleted.
    pub unsafe fn segment_bind(&self, id: u8, pointer: *mut u8, size: u64) -> Result<()> {
        if pointer.is_null() {
            return Err(Status::ErrNullptr);
        }
        self.make(id, size, &Source::User(pointer), true)
    }

    /// Lets `rank` use the segment (§7.2.2). Errors: [`Status::ErrInvRank`], [`Status::ErrInvSeg`], [`Status::Timeout`], [`Status::Error`].
    pub fn segment_register(&self, id: u8, rank: u16, timeout: u64) -> Result<()> {
        self.check_rank(rank)?;
        self.segment(id, &self.call())?;
        self.world
            .connect_within(u32::from(rank), deadline(timeout))
            .map_err(|error| match error {
                Error::Timeout => Status::Timeout,
                _ => Status::Error,
            })?;
        self.show(id, rank)
    }

    /// Allocates a segment on each member of `group`, for use by all members (§7.2.3). Errors: [`Status::Timeout`]: call again; after another
    /// error the segment does not exist; [`Status::ErrInvSeg`]: the name is in use, or another thread has deleted the segment meanwhile.
    pub fn segment_create(&self, id: u8, size: u64, group: u8, timeout: u64) -> Result<()> {
        self.make_together(id, size, &Source::Library, group, deadline(timeout))
    }

    /// Makes a segment of memory of the program on each member of `group`, for use by all members (§7.2.5). Errors: as
    /// [`GaspiProcess::segment_create`]; [`Status::ErrNullptr`].
    ///
    /// # Safety
    /// As [`GaspiProcess::segment_bind`].
    pub unsafe fn segment_use(
        &self,
        id: u8,
        pointer: *mut u8,
        size: u64,
        group: u8,
        timeout: u64,
    ) -> Result<()> {
        if pointer.is_null() {
            return Err(Status::ErrNullptr);
        }
        self.make_together(id, size, &Source::User(pointer), group, deadline(timeout))
    }

    fn make_together(
        &self,
        id: u8,
        size: u64,
        source: &Source,
        group: u8,
        deadline: Deadline,
    ) -> Result<()> {
        let members = self.committed_members(group)?;
        // An earlier call with this memory has timed out.
        let ready = &self.segments[usize::from(id)];
        let begun = self.segment_any(id, &self.call()).is_some_and(|segment| {
            let same = match *source {
                Source::Library => !segment.users,
                Source::User(base) => segment.users && segment.base == base,
            };
            ready.load(Ordering::Acquire).is_null() && same && segment.len == size as usize
        });
        if !begun {
            self.make(id, size, source, false)?;
        }
        // The earlier call may have had another group.
        for rank in &members {
            self.show(id, *rank as u16)?;
        }
        match self.barrier_until(group, deadline) {
            Ok(()) => {
                // Another thread may have deleted it, or deletes it now.
                let _changing = self.segment_changes.lock();
                let call = self.call();
                let segment = self.segment_any(id, &call).ok_or(Status::ErrInvSeg)?;
                self.mark_ready(id, segment);
                Ok(())
            }
            Err(Status::Timeout) => Err(Status::Timeout),
            Err(status) => {
                let _ = self.segment_delete(id);
                Err(status)
            }
        }
    }

    /// Deletes a segment (§7.3.1). Later requests of peers to it are refused. It first waits up to a second for own requests in progress. After
    /// that, memory of the library is freed later. Errors: [`Status::ErrInvSeg`]; [`Status::Error`]: requests in progress may use memory of the
    /// program. Then the only valid use of the segment is another deletion.
    pub fn segment_delete(&self, id: u8) -> Result<()> {
        let _changing = self.segment_changes.lock();
        let place = usize::from(id);
        let call = self.call();
        let is_users = self.segment_any(id, &call).ok_or(Status::ErrInvSeg)?.users;
        drop(call);
        self.passive.forget(id);
        self.words[place].store(null_mut(), Ordering::Release);
        self.segments[place].store(null_mut(), Ordering::Release);
        // Threads that wait for notifications or messages of the segment wake, and return.
        self.world.engine().ring();
        let mut late = false;
        if self.world.engine().is_driven() {
            let deadline = Deadline::after(PATIENCE);
            // A call that has found the segment may still post a request.
            calls::wait_for_others(|| !deadline.expired());
            late = self.drain_all(deadline) == Err(Status::Timeout);
        }
        self.world
            .directory()
            .unlist_region(place)
            .map_err(from_engine)?;
        if late && is_users {
            unipgas_core::tell(&format!(
                "gaspi_segment_delete: requests that use segment {id} are not answered: its memory must stay until the segment can be deleted"
            ));
            return Err(Status::Error);
        }
        let segment = self.made[place].swap(null_mut(), Ordering::AcqRel);
        // SAFETY:
        // - from Box::into_raw in `make`. Only this thread removes it, since it has the lock.
        let segment = unsafe { Box::from_raw(segment) };
        if late {
            let queues = self.queues_under_way();
            self.unfreed.lock().push(Unfreed { segment, queues });
            return Ok(());
        }
        self.free(segment);
        self.free_unfreed();
        Ok(())
    }

    fn free(&self, segment: Box<LocalSegment>) {
        segment.retire();
        self.world.retire(segment, 1);
    }

    /// Frees deleted segments after the end of their requests.
    pub(crate) fn free_unfreed(&self) {
        let mut unfreed = self.unfreed.lock();
        for one in &mut *unfreed {
            one.queues.retain(|queue| queue.pending() > 0);
        }
        let free = unfreed.extract_if(.., |one| one.queues.is_empty());
        let free: Vec<_> = free.collect();
        drop(unfreed);
        free.into_iter().for_each(|one| self.free(one.segment));
    }

    /// Number of segments (§7.4.1).
    pub fn segment_num(&self) -> u32 {
        self.count()
    }

    /// The names of the segments, ascending (§7.4.2).
    pub fn segment_list(&self) -> Vec<u8> {
        (0..SEGMENT_IDS)
            .map(|id| id as u8)
            .filter(|id| self.exists(*id))
            .collect()
    }

    /// The first byte of a segment of this process (§7.4.3).
    pub fn segment_ptr(&self, id: u8) -> Result<*mut u8> {
        Ok(self.segment(id, &self.call())?.base)
    }

    /// Size in bytes of a segment of any rank. Errors: [`Status::ErrInvRank`]; [`Status::ErrInvSeg`]: no such segment, or this process may not use
    /// it; [`Status::Timeout`]; [`Status::Error`].
    pub fn segment_size(&self, id: u8, rank: u16) -> Result<u64> {
        self.check_rank(rank)?;
        let call = self.call();
        if rank == self.rank() {
            return Ok(self.segment(id, &call)?.len as u64);
        }
        let deadline = Deadline::after(ANSWER);
        let import = self
            .world
            .import(u32::from(rank), usize::from(id), &call, deadline);
        match import {
            Ok(import) => Ok(import.data.len() as u64),
            Err(Error::StaleRegion) => Err(Status::ErrInvSeg),
            Err(error) => Err(self.failed_at(rank.into(), error)),
        }
    }

    /// The lowest free name. Errors: [`Status::ErrManySeg`].
    pub fn segment_avail(&self) -> Result<u8> {
        if self.segment_num() >= self.config.segment_max {
            return Err(Status::ErrManySeg);
        }
        (0..SEGMENT_IDS)
            .map(|id| id as u8)
            .find(|id| !self.exists(*id))
            .ok_or(Status::ErrManySeg)
    }
}

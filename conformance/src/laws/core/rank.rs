//! A rank for the bodies of laws, with a region that its peers have imported.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use unipgas_core::group::{Forming, RankGroup};
use unipgas_core::imports::Imported;
use unipgas_core::inbox::Record;
use unipgas_core::loopback::Loopback;
use unipgas_core::registry::{Opening, open_from_env};
use unipgas_core::{
    AtomicOp, AtomicRequest, AtomicType, Deadline, Endpoint, Engine, Error, Flags, Local, Notice,
    NotificationArray, Outcome, Region, Remote, RemoteRegion, Result, Rights, World,
};

pub(crate) use crate::kit::bytes_of;
use crate::law::{Ctx, Random, Verdict};
use crate::stall::LONG;
use crate::{ensure, ensure_eq};

/// Notification words of each rank.
pub const NOTES: usize = 256;
/// Directory id of each rank's data.
const DATA: usize = 1;
/// First directory id for regions of bodies.
pub const EXTRA: usize = 10;

/// Names the failed step in an error.
pub(crate) trait Says<T> {
    /// The error as the text of the law.
    fn says(self, what: &str) -> std::result::Result<T, String>;
}

impl<T> Says<T> for Result<T> {
    fn says(self, what: &str) -> std::result::Result<T, String> {
        self.map_err(|error| format!("{what}: {error}"))
    }
}

/// The deadline of every expected event.
pub fn late() -> Deadline {
    Deadline::after(LONG)
}

/// One rank: its world, an endpoint, `len` bytes of data, notification words, and a source of the same length.
pub(crate) struct Rank<'a> {
    /// Context of the body.
    pub ctx: &'a Ctx,
    /// Declared before the memory that it uses: fields are dropped in declaration order, and the endpoint goes first.
    pub endpoint: Endpoint,
    /// Memory that peers write and read.
    pub data: Region,
    /// Notification words that peers set.
    pub notes: NotificationArray,
    /// Source and destination of this rank's operations.
    pub scratch: Region,
    /// The engine with its job.
    pub world: Arc<World>,
}

/// Runs `body` in one life cycle. No rank leaves before all have finished.
pub fn on_ranks<T>(
    ctx: &Ctx,
    len: usize,
    body: impl FnOnce(&Rank<'_>) -> std::result::Result<T, String>,
) -> std::result::Result<T, String> {
    let rank = Rank::join(ctx, len).says("joining the job")?;
    rank.list(DATA, &rank.data).says("listing the data")?;
    ctx.sync();
    // Reported before the regions are dropped: other ranks could report that loss as the cause.
    let result = body(&rank).inspect_err(|text| ctx.place.tell("fail", text))?;
    ctx.sync();
    rank.world.leave().says("leaving the job")?;
    Ok(result)
}

impl<'a> Rank<'a> {
    /// Joins the job, and waits for the others.
    pub fn join(ctx: &'a Ctx, len: usize) -> Result<Self> {
        let job = ctx.place.job()?;
        let engine = Engine::new(match ctx.place.net() {
            Some(net) => vec![Arc::new(Loopback::join(net))],
            None => open_from_env(&Opening::of(&job))?,
        })?;
        let world = Arc::new(World::new(engine, job, ctx.life_cycle)?);
        world.meet(late())?;
        let engine = world.engine();
        Ok(Rank {
            ctx,
            endpoint: engine.endpoint(u32::MAX)?,
            data: engine.allocate(len, Rights::FULL)?,
            notes: NotificationArray::new(engine.allocate(NOTES * 4, Rights::FULL)?, NOTES)?,
            scratch: engine.allocate(len, Rights::FULL)?,
            world,
        })
    }

    /// This process's engine.
    pub fn engine(&self) -> &Engine {
        self.world.engine()
    }

    /// Publishes `region` and the notification words to all ranks.
    pub fn list(&self, id: usize, region: &Region) -> Result<()> {
        let directory = self.world.directory();
        directory.list_region(id, &region.key(), &self.notes.key())?;
        (0..self.world.size()).try_for_each(|rank| directory.show_region(id, rank as usize))
    }

    /// Allocates a region and publishes it.
    pub fn share(
        &self,
        id: usize,
        len: usize,
        rights: Rights,
    ) -> std::result::Result<Region, String> {
        let region = self.engine().allocate(len, rights).says("allocate")?;
        self.list(id, &region).says("list")?;
        Ok(region)
    }

    /// Imports the region that `rank` has published under `id`, without the cache.
    pub fn listed(&self, rank: u32, id: usize) -> std::result::Result<RemoteRegion, String> {
        let call = self.world.call();
        let import = self.world.import(rank, id, &call, Deadline::Never);
        Ok(import
            .says(&format!("import from rank {rank}"))?
            .data
            .clone())
    }

    /// One of the regions that `rank` has published at the start.
    fn imported(
        &self,
        rank: u32,
        which: impl Fn(&Imported) -> &RemoteRegion,
    ) -> std::result::Result<RemoteRegion, String> {
        let call = self.world.call();
        let import = self.world.imported(rank, DATA, &call, Deadline::Never);
        Ok(which(import.says("import")?).clone())
    }

    /// The data of `rank`.
    pub fn data_of(&self, rank: u32) -> std::result::Result<RemoteRegion, String> {
        self.imported(rank, |import| &import.data)
    }

    /// The notification words of `rank`.
    pub fn notes_of(&self, rank: u32) -> std::result::Result<RemoteRegion, String> {
        self.imported(rank, |import| &import.notices)
    }

    /// The data and the notification words of all ranks.
    pub fn peers(&'a self) -> std::result::Result<Peers<'a>, String> {
        let all = 0..self.ctx.size;
        Ok(Peers {
            rank: self,
            data: all
                .clone()
                .map(|r| self.data_of(r))
                .collect::<std::result::Result<_, _>>()?,
            notes: all
                .map(|r| self.notes_of(r))
                .collect::<std::result::Result<_, _>>()?,
        })
    }

    /// The other one of two.
    pub fn other(&self) -> u32 {
        1 - self.ctx.rank
    }

    /// Waits until all operations are complete. Purges the endpoint after an error.
    pub fn drain(&self) -> Result<()> {
        let result = self
            .endpoint
            .drain(self.engine(), late(), &mut || self.world.check_anyone());
        if result.is_err() {
            self.endpoint.purge();
        }
        result
    }

    /// The result of an operation, from its call or from its completion.
    pub fn end(&self, posted: Result<Outcome>) -> Result<()> {
        match posted? {
            Outcome::Complete => Ok(()),
            Outcome::Pending => self.drain(),
        }
    }

    /// Puts bytes of the scratch region; see [`Endpoint::put`].
    pub fn post_put(
        &self,
        from: usize,
        dst: Remote<'_>,
        len: usize,
        flags: Flags,
    ) -> Result<Outcome> {
        let local = self.scratch.local(from, len)?;
        // SAFETY:
        // - in bounds of the scratch region, which outlives the endpoint's operations: bodies drain before they change it.
        unsafe { self.endpoint.put(local, dst, len, flags, 0) }
    }

    /// Puts `bytes` and waits for completion.
    pub fn put(&self, bytes: &[u8], dst: Remote<'_>) -> Result<()> {
        write(&self.scratch, 0, bytes);
        self.end(self.post_put(0, dst, bytes.len(), Flags::empty()))
    }

    /// Gets `len` bytes and waits for completion.
    pub fn get(&self, src: Remote<'_>, len: usize) -> Result<Vec<u8>> {
        let local = self.scratch.local(0, len)?;
        // SAFETY:
        // - in bounds of the scratch region; the call waits for completion.
        self.end(unsafe { self.endpoint.get(local, src, len, Flags::empty(), 0) })?;
        Ok(read(&self.scratch, 0, len))
    }

    /// Puts `len` bytes, which may exceed the scratch region: for calls that must be refused.
    pub fn try_put(&self, dst: Remote<'_>, len: usize) -> Result<()> {
        let local = self.anywhere();
        // SAFETY:
        // - the range is refused, or no longer than the scratch region: the bodies ensure it.
        self.end(unsafe { self.endpoint.put(local, dst, len, Flags::empty(), 0) })
    }

    /// As [`Rank::try_put`].
    pub fn try_get(&self, src: Remote<'_>, len: usize) -> Result<()> {
        let local = self.anywhere();
        // SAFETY:
        // - as for `try_put`.
        self.end(unsafe { self.endpoint.get(local, src, len, Flags::empty(), 0) })
    }

    /// As [`Rank::try_put`].
    pub fn try_put_notify(&self, dst: Remote<'_>, len: usize, slot: Remote<'_>) -> Result<()> {
        self.end(self.post_put_notify(self.anywhere(), dst, len, (slot, 7)))
    }

    /// Puts bytes that stay as they are until the next drain, with a notice.
    pub fn post_put_notify(
        &self,
        local: Local,
        dst: Remote<'_>,
        len: usize,
        (slot, value): (Remote<'_>, u32),
    ) -> Result<Outcome> {
        let (notice, flags) = (Notice { slot, value }, Flags::empty());
        // SAFETY:
        // - in bounds of a region that outlives the endpoint's operations, or as for `try_put`.
        unsafe { self.endpoint.put_notify(local, dst, len, notice, flags, 0) }
    }

    /// Carries out an atomic operation with `count` operands, comparands and results, or one that is refused before it reads them.
    pub fn atomic(&self, dst: Remote<'_>, request: &AtomicRequest) -> Result<()> {
        self.end(self.post_atomic(dst, request, Flags::empty()))
    }

    /// As [`Rank::atomic`]; the operands are read before the call returns.
    pub fn post_atomic(
        &self,
        dst: Remote<'_>,
        request: &AtomicRequest,
        flags: Flags,
    ) -> Result<Outcome> {
        // SAFETY:
        // - contract of this function; bodies wait for the end of operations with results.
        unsafe { self.endpoint.atomic(dst, request, flags, 0) }
    }

    /// Sends a record to an inbox.
    pub fn deliver(&self, to: &RemoteRegion, record: Record, flags: Flags) -> Result<Outcome> {
        self.endpoint.deliver(to.into(), record, flags, 0)
    }

    /// Waits until `look` sees something, with progress of the endpoint.
    pub fn await_some<T>(&self, mut look: impl FnMut() -> Option<T>) -> Result<T> {
        let mut check = || self.world.check_anyone();
        self.engine().wait(late(), &mut check, || {
            self.endpoint.progress();
            Ok(look())
        })
    }

    /// Notices among ranks that live. Each sends them to `next` and gets as many.
    pub fn go_on(&self, next: u32, whose: &str) -> Verdict {
        let notes = self.notes_of(next)?;
        let slot = remote(&notes, 5 * 4);
        for number in 1..=50 {
            self.notify(slot, number).says(&format!("notice {whose}"))?;
            let seen = self.await_note(5, 1, late());
            let (_, seen) = seen.says(&format!("waiting for a rank {whose}"))?;
            ensure_eq!(seen, number, "notice of a rank {whose}");
            // The word is free before its next use.
            self.ctx.sync();
        }
        Ok(())
    }

    fn anywhere(&self) -> Local {
        Local {
            ptr: self.scratch.base(),
            desc: self.scratch.local(0, 1).map_or(0, |local| local.desc),
        }
    }

    /// Sets a notification word of a rank and waits for completion.
    pub fn notify(&self, slot: Remote<'_>, value: u32) -> Result<()> {
        self.end(self.post_notify(slot, value, Flags::empty()))
    }

    /// Sets a notification word of a rank.
    pub fn post_notify(&self, slot: Remote<'_>, value: u32, flags: Flags) -> Result<Outcome> {
        self.endpoint.notify(Notice { slot, value }, flags, 0)
    }

    /// Adds to a word and returns its value before.
    pub fn fetch_add(&self, at: Remote<'_>, value: u64) -> Result<u64> {
        self.endpoint.fetch_add(self.engine(), at, value)
    }

    /// Swaps a word if it has the expected value, and returns its value before.
    pub fn compare_swap(&self, at: Remote<'_>, expected: u64, value: u64) -> Result<u64> {
        self.endpoint
            .compare_swap(self.engine(), at, expected, value)
    }

    /// Writes `value` to the place of this rank in the data of all ranks.
    pub fn enter(&self, value: u64) -> Verdict {
        for peer in 0..self.ctx.size {
            let there = self.data_of(peer)?;
            let at = remote(&there, self.ctx.rank as usize * 64);
            self.put(&value.to_ne_bytes(), at).says("put")?;
        }
        Ok(())
    }

    /// Fails unless all ranks have [entered](Rank::enter) this round here.
    pub fn all_have_entered(&self, round: u64) -> Verdict {
        for peer in 0..self.ctx.size {
            let seen = read_word(&self.data, peer as usize * 64);
            ensure!(
                seen == round || seen == round + 1,
                "left barrier {round} when rank {peer} was before barrier {seen}"
            );
        }
        Ok(())
    }

    /// Waits until the word of a region of this rank is not 0.
    pub fn await_word(&self, region: &Region, offset: usize, deadline: Deadline) -> Result<u32> {
        let word = region.word(offset)?;
        self.engine()
            .wait(deadline, &mut || self.world.check_anyone(), || {
                Ok(Some(word.load(Ordering::Acquire)).filter(|value| *value != 0))
            })
    }

    /// Waits for one of the words `begin..begin + num`, and takes it.
    pub fn await_note(&self, begin: usize, num: usize, deadline: Deadline) -> Result<(usize, u32)> {
        let index = self.notes.wait_some(
            self.engine(),
            begin,
            num,
            deadline,
            &mut || self.world.check_anyone(),
            || self.endpoint.progress(),
        )?;
        Ok((index, self.notes.take(index)?))
    }

    /// A group of `members`.
    pub fn group(&self, members: &[u32], name: u64) -> std::result::Result<RankGroup, String> {
        Forming::new(&self.world, members, [0x6c61_7773, name])
            .and_then(|mut forming| forming.advance(late()))
            .says("forming a group")
    }

    /// A group of all ranks.
    pub fn group_of_all(&self) -> std::result::Result<RankGroup, String> {
        let members: Vec<u32> = (0..self.ctx.size).collect();
        self.group(&members, 0)
    }
}

/// What a rank knows of all ranks.
pub(crate) struct Peers<'a> {
    pub rank: &'a Rank<'a>,
    pub data: Vec<RemoteRegion>,
    notes: Vec<RemoteRegion>,
}

impl Peers<'_> {
    /// Puts bytes of a region of this rank, which stay as they are until the next drain, with a notice: its word and its value.
    pub fn put_notify(
        &self,
        (region, from): (&Region, usize),
        (to, at): (u32, usize),
        len: usize,
        (word, value): (usize, u32),
    ) -> Verdict {
        let local = region.local(from, len).says("the bytes of a put")?;
        let dst = remote(&self.data[to as usize], at);
        let notice = (remote(&self.notes[to as usize], 4 * word), value);
        let posted = self.rank.post_put_notify(local, dst, len, notice);
        posted.says("put_notify").map(drop)
    }
}

/// Reads memory that peers may be writing to.
pub fn read(region: &Region, offset: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let local = region.local(offset, len).expect("in the region");
    // SAFETY:
    // - in bounds, as just checked. Bytes of a concurrent write may be torn: laws look for that.
    unsafe { std::ptr::copy_nonoverlapping(local.ptr, bytes.as_mut_ptr(), len) };
    bytes
}

/// Writes memory that no operation is using.
pub fn write(region: &Region, offset: usize, bytes: &[u8]) {
    let local = region.local(offset, bytes.len()).expect("in the region");
    // SAFETY:
    // - in bounds, as just checked; bodies call this with no operation in progress there.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), local.ptr, bytes.len()) };
}

/// The first byte of `region` from `offset` on that is not `byte`.
pub fn other_than(region: &Region, offset: usize, len: usize, byte: u8) -> Option<usize> {
    read(region, offset, len)
        .iter()
        .position(|b| *b != byte)
        .map(|at| at + offset)
}

/// Yields the processor at random.
pub fn dawdle(random: &mut Random) {
    for _ in 0..random.below(4) {
        std::thread::yield_now();
    }
}

/// A place in a region of a peer.
pub fn remote(region: &RemoteRegion, offset: usize) -> Remote<'_> {
    Remote { region, offset }
}

/// All operations on all types, also those that are not defined.
pub fn cells() -> impl Iterator<Item = (AtomicOp, AtomicType)> {
    let types = |op: &'static AtomicOp| AtomicType::ALL.iter().map(|ty| (*op, *ty));
    AtomicOp::ALL.iter().flat_map(types)
}

/// An atomic operation that neither compares nor fetches.
pub fn update<T>(op: AtomicOp, ty: AtomicType, count: usize, operand: *const T) -> AtomicRequest {
    AtomicRequest {
        op,
        ty,
        count,
        operand: operand.cast(),
        compare: std::ptr::null(),
        result: std::ptr::null_mut(),
    }
}

/// Fails at the first byte of the range that is not `byte`.
pub fn untouched(region: &Region, (offset, len): (usize, usize), byte: u8, what: &str) -> Verdict {
    let changed = other_than(region, offset, len, byte);
    ensure_eq!(changed, None, "first byte changed {what}");
    Ok(())
}

/// The word at `offset`.
pub fn read_word(region: &Region, offset: usize) -> u64 {
    u64::from_ne_bytes(read(region, offset, 8).try_into().expect("8 bytes"))
}

/// The expectation of exactly this error, for [`refused`].
pub fn is(expected: Error) -> impl Fn(&Error) -> bool {
    move |error| *error == expected
}

/// The expectation of [`Error::InvalidArgument`], for [`refused`].
pub fn invalid(error: &Error) -> bool {
    matches!(error, Error::InvalidArgument(_))
}

/// The expectation of [`Error::OutOfBounds`], for [`refused`].
pub fn out_of_bounds(error: &Error) -> bool {
    matches!(error, Error::OutOfBounds { .. })
}

/// Fails unless the operation is refused with this error.
pub fn refused<T>(result: Result<T>, expected: impl Fn(&Error) -> bool, what: &str) -> Verdict {
    match result {
        Err(error) if expected(&error) => Ok(()),
        Err(error) => Err(format!("{what}: refused with the wrong error: {error}")),
        Ok(_) => Err(format!("{what}: was carried out instead of refused")),
    }
}

/// The result of `work` and its duration, for deadlines.
pub fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    (work(), start.elapsed())
}

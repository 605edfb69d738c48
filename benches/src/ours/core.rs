//! The core's Rust interface.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use unipgas_core::bundle::BUNDLE_LEN;
use unipgas_core::combine::{Combination, ElementType};
use unipgas_core::group::{Forming, RankGroup};
use unipgas_core::message::{Envelope, Lane, Messenger, Mode, Pattern, Precedence};
use unipgas_core::op::{Flags, Local, Notice, Outcome, Remote};
use unipgas_core::registry::{Opening, open_from_env};
use unipgas_core::{Deadline, Endpoint, Engine, Region, RegionKey, RemoteRegion, Rights, World};

use super::meeting::Meeting;
use super::{registration, text, walk};
use crate::bare::each;
use crate::bare::wake_of;
use crate::case::Case;
use crate::ctx::{BATCH_OF_PAIRS, BenchContext, arrived, exchanges};

/// Maximum number of puts in flight.
const PENDING: usize = 128;
const DATA: usize = 64 << 20;
/// Offset of the notification words, behind the data.
pub const NOTICES: usize = DATA;
const LEN: usize = DATA + (1 << 20);

/// State of the columns `core`.
pub(super) struct Core {
    world: Arc<World>,
    /// Operations are posted here.
    pub endpoint: Endpoint,
    region: Region,
    remote: Option<RemoteRegion>,
    /// All processes.
    pub group: RankGroup,
    messenger: Messenger,
    round: Cell<u64>,
}

impl Core {
    /// Joins its own job, allocates a region, imports the partner's region if there are pairs, and forms a group of all.
    pub fn enter(ctx: &BenchContext) -> Result<Core, String> {
        let meeting = Meeting::new(ctx).map_err(text)?;
        let job = meeting.job();
        let transports = open_from_env(&Opening::of(&job)).map_err(text)?;
        let world = Engine::new(transports).and_then(|engine| World::join(engine, job));
        let world = &Arc::new(world.map_err(text)?);
        let lane = Lane {
            lines: 32,
            data: 4096,
        };
        let messenger = Messenger::new(world, "bench", Precedence::Posted, lane, Deadline::Never)
            .map_err(text)?;
        meeting.exchange(ctx);
        world.meet(Deadline::Never).map_err(text)?;
        let engine = world.engine();
        let len = if ctx.is_of_pairs() { LEN } else { 4096 };
        let region = engine.allocate(len, Rights::FULL).map_err(text)?;
        let mut remote = None;
        if ctx.is_of_pairs() {
            let key = region.key();
            let keys = ctx.share(key.as_bytes());
            let bytes = keys[ctx.other()].as_slice().try_into();
            let bytes: [u8; BUNDLE_LEN] = bytes.map_err(|_| "the other process has no key")?;
            let key = RegionKey::from_bytes(&bytes).map_err(text)?;
            remote = Some(
                world
                    .connect(ctx.other() as u32)
                    .and_then(|c| c.import(&key))
                    .map_err(text)?,
            );
        }
        let members: Vec<u32> = (0..world.size()).collect();
        let group = Forming::new(world, &members, [0x6265_6e63, 0])
            .and_then(|mut forming| forming.advance(Deadline::Never))
            .map_err(text)?;
        let endpoint = engine.endpoint(u32::MAX).map_err(text)?;
        Ok(Core {
            world: world.clone(),
            endpoint,
            region,
            remote,
            group,
            messenger,
            round: Cell::new(0),
        })
    }

    /// Makes progress for peers.
    pub fn attend(&self) {
        self.engine().progress();
    }

    /// Leaves the job.
    pub fn leave(self) -> Result<(), String> {
        let world = self.world.clone();
        drop(self);
        world.leave().map_err(text)
    }

    /// The engine.
    pub fn engine(&self) -> &Engine {
        self.world.engine()
    }

    /// The region of the other process.
    pub fn remote(&self) -> &RemoteRegion {
        self.remote
            .as_ref()
            .expect("cases of puts have pairs of processes")
    }

    /// A place in the region of the other process.
    pub fn there(&self, offset: usize) -> Remote<'_> {
        Remote {
            region: self.remote(),
            offset,
        }
    }

    /// Offsets of the data and of the notification word in this visit.
    fn place(&self, ctx: &BenchContext) -> (usize, usize) {
        (
            ctx.place() * (512 << 10),
            NOTICES + ctx.place() * 4096 + 5 * 64,
        )
    }

    /// `len` bytes of the region.
    pub fn local(&self, offset: usize, len: usize) -> Result<Local, String> {
        self.region.local(offset, len).map_err(text)
    }

    /// Waits until all posted operations are complete.
    pub fn drain(&self) -> Result<(), String> {
        self.endpoint
            .drain(self.engine(), Deadline::Never, &mut || Ok(()))
            .map_err(text)
    }

    /// Sends `len` bytes and the notice `value`.
    #[inline(always)]
    fn send(
        &self,
        from: Local,
        to: usize,
        len: usize,
        word: usize,
        value: u32,
    ) -> Result<(), String> {
        let slot = self.there(word);
        let notice = Notice { slot, value };
        // SAFETY:
        // - `from` was checked to have `len` bytes in the region, which lives as long as `self`
        // - pending puts are drained before the bytes change
        let outcome = unsafe {
            self.endpoint
                .put_notify(from, self.there(to), len, notice, Flags::empty(), 0)
        };
        match outcome {
            Ok(Outcome::Complete) => Ok(()),
            // The peer's reply implies the arrival.
            Ok(Outcome::Pending) if self.endpoint.pending() < PENDING => Ok(()),
            Ok(Outcome::Pending) => self.drain(),
            Err(e) => Err(text(e)),
        }
    }

    /// Puts `n` times from the same bytes into a window of the other process, and waits for completion.
    #[inline(always)]
    fn burst(&self, from: Local, len: usize, n: usize, window: usize) -> Result<(), String> {
        let posted = walk(n, len, window).try_for_each(|at| {
            // SAFETY:
            // - `from` has `len` bytes in the region, which do not change before the drain
            let put = unsafe {
                self.endpoint
                    .put(from, self.there(at), len, Flags::empty(), 0)
            };
            put.map(drop).map_err(text)
        });
        self.drain().and(posted)
    }

    /// Waits for the notice `value`.
    #[inline(always)]
    fn receive(&self, word: usize, value: u32) -> Result<(), String> {
        let word = self.region.word(word).map_err(text)?;
        self.engine()
            .wait(Deadline::Never, &mut || Ok(()), || {
                self.endpoint.report();
                Ok((word.load(Acquire) == value).then_some(()))
            })
            .map_err(text)
    }
}

/// Ping-pong of put with notice.
pub fn put_notice(ctx: &BenchContext, case: &Case) -> Result<f64, String> {
    let core = &ctx.ours()?.core()?;
    let len = case.bytes as usize;
    let (at, word) = core.place(ctx);
    // The source differs from the bytes that the other process writes.
    let from = core.local(DATA / 2 + at, len)?;
    let source_last = from.ptr.wrapping_add(len - 8).cast::<u64>();
    let last = core.local(at + len - 8, 8)?.ptr.cast::<u64>();
    ctx.sync();
    let send = |round| {
        // SAFETY:
        // - it is inside the source; only this process uses it, and no pending operation reads it
        unsafe { source_last.write(round) };
        core.send(from, at, len, word, round as u32)
    };
    let receive = |round| {
        core.receive(word, round as u32)?;
        // SAFETY:
        // - it is inside the region; the notice implies that the other process has written it
        arrived(unsafe { last.read_volatile() }, round)
    };
    let ns = ctx.both_ways(exchanges(case.bytes), &core.round, send, receive);
    ns.map(|ns| ns / 2.0)
}

/// Ping-pong of synchronous messages of 8 bytes.
pub fn message(ctx: &BenchContext, case: &Case) -> Result<f64, String> {
    let core = &ctx.ours()?.core()?;
    let (other, len) = (ctx.other() as u32, case.bytes as usize);
    let (mut sent, mut room) = (vec![0u8; len], vec![0u8; len]);
    ctx.sync();
    let send = |number| {
        sent[0] = number as u8;
        let (envelope, bytes) = (Envelope::default(), (sent.as_ptr(), len));
        // SAFETY:
        // - the bytes are valid and unchanged until the call returns
        let sent = unsafe {
            core.messenger
                .send(other, envelope, bytes, Mode::Synchronous, Deadline::Never)
        };
        sent.map_err(text)
    };
    let receive = |number| {
        let (pattern, place) = (Pattern::from(None, 0), (room.as_mut_ptr(), len));
        // SAFETY:
        // - the buffer is valid until the call returns
        let received = unsafe { core.messenger.receive(pattern, place, Deadline::Never) };
        match received.map_err(text)?.len {
            got if got != len => Err(format!("{got} bytes came, not {len}")),
            _ if room[0] != number as u8 => Err("another message came".into()),
            _ => Ok(()),
        }
    };
    let ns = ctx.both_ways(ctx.fewer(2000), &Cell::new(0), send, receive);
    ns.map(|ns| ns / 2.0)
}

/// Fetch-and-add on a word of rank 1.
pub fn fetch_add(ctx: &BenchContext, _: &Case) -> Result<f64, String> {
    let core = &ctx.ours()?.core()?;
    let target = core.there(core.place(ctx).0);
    ctx.by_first(|| {
        let mut sum = 0u64;
        let ns = ctx.per_step(ctx.fewer(5000), || {
            let before = core.endpoint.fetch_add(core.engine(), target, 1);
            sum = sum.wrapping_add(before.map_err(text)?);
            Ok(())
        });
        std::hint::black_box(sum);
        ns
    })
}

/// Gets of rank 0, one at a time.
pub fn read(ctx: &BenchContext, case: &Case) -> Result<f64, String> {
    let core = &ctx.ours()?.core()?;
    let len = case.bytes as usize;
    ctx.by_first(|| {
        let into = core.local(0, len)?;
        ctx.per_step(ctx.fewer(5000), || {
            // SAFETY:
            // - `into` has `len` bytes in the region, which are not used before the drain
            let got = unsafe {
                core.endpoint
                    .get(into, core.there(0), len, Flags::empty(), 0)
            };
            got.map_err(text).and_then(|_| core.drain())
        })
    })
}

fn puts(ctx: &BenchContext, len: usize, each: usize, window: usize) -> Result<f64, String> {
    let core = &ctx.ours()?.core()?;
    ctx.by_first(|| {
        let from = core.local(0, len)?;
        ctx.per_batch(each, |n| core.burst(from, len, n, window))
    })
}

/// 8-byte puts of all pairs at once.
pub fn pair_rate(ctx: &BenchContext, _: &Case) -> Result<f64, String> {
    let core = &ctx.ours()?.core()?;
    let from = core.local(0, 8)?;
    ctx.rate_of_pairs(ctx.fewer(BATCH_OF_PAIRS), |n| core.burst(from, 8, n, 4096))
}

/// 8-byte puts.
pub fn rate(ctx: &BenchContext, _: &Case) -> Result<f64, String> {
    puts(ctx, 8, ctx.fewer(64 * 512), 4096).map(|ns| 1e3 / ns)
}

/// Large puts.
pub fn bandwidth(ctx: &BenchContext, case: &Case) -> Result<f64, String> {
    let len = case.bytes as usize;
    puts(ctx, len, each(case.bytes), len).map(|ns| len as f64 / ns)
}

/// Barrier of all processes.
pub fn barrier(ctx: &BenchContext, _: &Case) -> Result<f64, String> {
    let core = &ctx.ours()?.core()?;
    ctx.collective(|_| core.group.barrier(Deadline::Never).map_err(text))
}

/// Sum of a double over all processes.
pub fn allreduce(ctx: &BenchContext, _: &Case) -> Result<f64, String> {
    let core = &ctx.ours()?.core()?;
    ctx.collective(|round| {
        let mine = ((ctx.rank as u64 + round) as f64).to_ne_bytes();
        let mut sum = [0u8; 8];
        let elements = (Combination::Sum, ElementType::F64);
        core.group
            .all_reduce_elements_in((), &mine, &mut sum, elements, Deadline::Never)
            .map_err(text)?;
        ctx.check_sum(round, f64::from_ne_bytes(sum))
    })
}

/// Time from the put to the return of a parked waiter.
pub fn wake(ctx: &BenchContext, _: &Case) -> Result<f64, String> {
    let core = &ctx.ours()?.core()?;
    let (at, word) = core.place(ctx);
    core.region.word(word).map_err(text)?.store(0, Relaxed);
    ctx.sync();
    let from = core.local(DATA / 2, 8)?;
    let us = wake_of(
        ctx,
        |round| core.send(from, at, 8, word, round as u32),
        |round| core.receive(word, round as u32),
    );
    core.region.word(word).map_err(text)?.store(0, Relaxed);
    us
}

/// Registration of user memory.
pub fn register(ctx: &BenchContext, case: &Case) -> Result<f64, String> {
    let engine = ctx.ours()?.core()?.engine();
    registration(
        ctx,
        case,
        // SAFETY:
        // - `registration` keeps the buffer until the region has been dropped
        |base, len| unsafe { engine.register(base, len, Rights::FULL) }.map_err(text),
        |region| {
            drop(region);
            Ok(())
        },
    )
}

//! GASPI's procedures in the shared library. A call jumps to an address in a table, as in a program that is linked with the library.

use std::cell::Cell;

use unipgas_gaspi_sys::{
    GASPI_BLOCK as BLOCK, GASPI_GROUP_ALL as ALL, GASPI_OP_SUM as SUM,
    GASPI_QUEUE_FULL as QUEUE_FULL, GASPI_TEST as TEST, GaspiFunctions as Functions, *,
};
use unipgas_launcher::library::InstalledLibrary;

use super::{call, calls, ok, registration, walk};
use crate::bare::{each, wake_of};
use crate::case::Case;
use crate::ctx::{BATCH_OF_PAIRS, BenchContext, arrived, exchanges};

const SEGMENT: u8 = 0;
const BOUND: u8 = 1;
const DATA: u64 = 64 << 20;
const QUEUE: u8 = 0;
/// No column uses this notification.
const UNUSED: u32 = 65_535;

gaspi_functions!(calls);

/// The functions under test.
pub(super) struct Gaspi {
    calls: Calls,
    round: Cell<u64>,
}

impl Gaspi {
    /// Initialises GASPI.
    pub fn enter(library: &InstalledLibrary) -> Result<Gaspi, String> {
        let calls = Calls::of(library)?;
        call!(calls.gaspi_proc_init(BLOCK))?;
        Ok(Gaspi {
            calls,
            round: Cell::new(0),
        })
    }

    /// Makes the segment of the measurements between pairs of processes.
    pub fn segments(&self, ctx: &BenchContext) -> Result<(), String> {
        if !ctx.is_of_pairs() {
            return Ok(());
        }
        call!(
            self.calls
                .gaspi_segment_create(SEGMENT, DATA, ALL, BLOCK, 0)
        )
    }

    /// Makes progress for peers, as a test for a notification does.
    pub fn attend(&self) {
        let mut first = 0;
        // SAFETY:
        // - a valid place for the result
        unsafe { (self.calls.gaspi_notify_waitsome)(SEGMENT, UNUSED, 1, &mut first, TEST) };
    }

    /// Ends GASPI.
    pub fn leave(self) -> Result<(), String> {
        call!(self.calls.gaspi_proc_term(BLOCK))
    }

    fn base(&self) -> Result<*mut u8, String> {
        let mut base = std::ptr::null_mut();
        call!(self.calls.gaspi_segment_ptr(SEGMENT, &mut base))?;
        Ok(base)
    }

    /// Posts by `post`. If the queue is full, it waits for the queue and posts again.
    #[inline(always)]
    fn posted(&self, what: &str, post: impl Fn() -> i32) -> Result<(), String> {
        let code = post();
        if code == QUEUE_FULL {
            self.flush()?;
            return ok(what, post());
        }
        ok(what, code)
    }

    #[inline(always)]
    fn send(
        &self,
        ctx: &BenchContext,
        from: u64,
        to: u64,
        len: u64,
        id: u32,
        value: u32,
    ) -> Result<(), String> {
        // SAFETY:
        // - no pointers
        self.posted("gaspi_write_notify", || unsafe {
            (self.calls.gaspi_write_notify)(
                SEGMENT,
                from,
                ctx.other() as u16,
                SEGMENT,
                to,
                len,
                id,
                value,
                QUEUE,
                BLOCK,
            )
        })
    }

    /// Writes `n` times into a window of the process `to`, and waits for completion.
    #[inline(always)]
    fn burst(&self, to: u16, len: u64, n: usize, window: u64) -> Result<(), String> {
        let posted = walk(n, len as usize, window as usize).try_for_each(|at| {
            // SAFETY:
            // - no pointers
            self.posted("gaspi_write", || unsafe {
                (self.calls.gaspi_write)(SEGMENT, 0, to, SEGMENT, at as u64, len, QUEUE, BLOCK)
            })
        });
        self.flush().and(posted)
    }

    fn flush(&self) -> Result<(), String> {
        call!(self.calls.gaspi_wait(QUEUE, BLOCK))
    }

    #[inline(always)]
    fn await_notice(&self, id: u32) -> Result<(), String> {
        let mut first = 0;
        call!(
            self.calls
                .gaspi_notify_waitsome(SEGMENT, id, 1, &mut first, BLOCK)
        )
    }

    #[inline(always)]
    fn take(&self, id: u32, value: u32) -> Result<(), String> {
        let mut old = 0;
        call!(self.calls.gaspi_notify_reset(SEGMENT, id, &mut old))?;
        if old == value {
            Ok(())
        } else {
            Err(format!("notification {old} instead of {value}"))
        }
    }
}

/// Ping-pong of gaspi_write_notify and gaspi_notify_waitsome. Each message has its own notification. The resets of a batch follow it, and their time
/// counts. Batches alternate between two sets of notifications, so that no reset meets a new message.
pub fn put_notice(ctx: &BenchContext, case: &Case) -> Result<f64, String> {
    let gaspi = ctx.ours()?.gaspi()?;
    let len = case.bytes;
    let at = ctx.place() as u64 * (512 << 10);
    let base = gaspi.base()?;
    let (source_last, last) = (
        base.wrapping_add((DATA / 2 + at + len - 8) as usize)
            .cast::<u64>(),
        base.wrapping_add((at + len - 8) as usize),
    );
    let last = last.cast::<u64>();
    ctx.sync();
    let mut set = ctx.place() as u32 % 32 * 1024;
    let ns = ctx.per_batch(exchanges(len), |n| {
        set ^= 512;
        let first = gaspi.round.get() + 1;
        let rounds = first..first + n as u64;
        gaspi.round.set(rounds.end - 1);
        let id = |round: u64| set + (round - first) as u32;
        let send = |round| {
            // SAFETY:
            // - it is inside the segment; the other process has received the earlier message from here
            unsafe { source_last.write(round) };
            gaspi.send(ctx, DATA / 2 + at, at, len, id(round), round as u32)
        };
        let receive = |round| {
            gaspi.await_notice(id(round))?;
            // SAFETY:
            // - it is inside the segment; the notification implies that the other process has written it
            arrived(unsafe { last.read_volatile() }, round)
        };
        for round in rounds.clone() {
            ctx.exchange(round, send, receive)?;
        }
        rounds
            .clone()
            .try_for_each(|round| gaspi.take(id(round), round as u32))
    });
    ns.map(|ns| ns / 2.0)
}

/// gaspi_atomic_fetch_add on a word of rank 1.
pub fn fetch_add(ctx: &BenchContext, _: &Case) -> Result<f64, String> {
    let at = ctx.place() as u64 * 4096;
    let mut old = 0u64;
    one_after_another(ctx, |gaspi| {
        call!(
            gaspi
                .calls
                .gaspi_atomic_fetch_add(SEGMENT, at, 1, 1, &mut old, BLOCK)
        )
    })
}

/// gaspi_read and gaspi_wait of rank 0.
pub fn read(ctx: &BenchContext, case: &Case) -> Result<f64, String> {
    let at = ctx.place() as u64 * 4096;
    one_after_another(ctx, |gaspi| {
        call!(
            gaspi
                .calls
                .gaspi_read(SEGMENT, at, 1, SEGMENT, at, case.bytes, QUEUE, BLOCK)
        )?;
        gaspi.flush()
    })
}

/// Time of an operation of rank 0 in ns, one at a time.
#[inline(always)]
fn one_after_another(
    ctx: &BenchContext,
    mut operation: impl FnMut(&Gaspi) -> Result<(), String>,
) -> Result<f64, String> {
    let gaspi = ctx.ours()?.gaspi()?;
    ctx.by_first(|| ctx.per_step(ctx.fewer(5000), || operation(gaspi)))
}

fn puts(ctx: &BenchContext, len: u64, each: usize, window: u64) -> Result<f64, String> {
    let gaspi = ctx.ours()?.gaspi()?;
    ctx.by_first(|| ctx.per_batch(each, |n| gaspi.burst(1, len, n, window)))
}

/// 8-byte gaspi_write of all pairs at once.
pub fn pair_rate(ctx: &BenchContext, _: &Case) -> Result<f64, String> {
    let gaspi = ctx.ours()?.gaspi()?;
    let other = ctx.other() as u16;
    ctx.rate_of_pairs(ctx.fewer(BATCH_OF_PAIRS), |n| {
        gaspi.burst(other, 8, n, 4096)
    })
}

/// Memory that GASPI uses: mean over all processes, in KiB.
pub fn memory(ctx: &BenchContext, _: &Case) -> Result<f64, String> {
    let mine = ctx.ours()?.memory()?;
    let all = ctx.share(&mine.to_ne_bytes());
    let sum: u64 = all
        .iter()
        .filter_map(|bytes| Some(u64::from_ne_bytes(bytes.as_slice().try_into().ok()?)))
        .sum();
    Ok(sum as f64 / ctx.size as f64)
}

/// 8-byte gaspi_write.
pub fn rate(ctx: &BenchContext, _: &Case) -> Result<f64, String> {
    puts(ctx, 8, ctx.fewer(64 * 512), 4096).map(|ns| 1e3 / ns)
}

/// Large gaspi_write.
pub fn bandwidth(ctx: &BenchContext, case: &Case) -> Result<f64, String> {
    puts(ctx, case.bytes, each(case.bytes), case.bytes).map(|ns| case.bytes as f64 / ns)
}

/// Ping-pong of passive messages.
pub fn passive(ctx: &BenchContext, case: &Case) -> Result<f64, String> {
    let gaspi = ctx.ours()?.gaspi()?;
    let (other, len) = (ctx.other() as u16, case.bytes);
    let (sent, room) = (DATA / 2, DATA / 2 + len);
    let base = gaspi.base()?;
    let at = |offset: u64| base.wrapping_add(offset as usize).cast::<u8>();
    ctx.sync();
    let send = |number| {
        // SAFETY:
        // - it is inside the segment; no process uses this part now
        unsafe { at(sent).write(number as u8) };
        call!(
            gaspi
                .calls
                .gaspi_passive_send(SEGMENT, sent, other, len, BLOCK)
        )
    };
    let receive = |number| {
        let mut from = u16::MAX;
        call!(
            gaspi
                .calls
                .gaspi_passive_receive(SEGMENT, room, &mut from, len, BLOCK)
        )?;
        // SAFETY:
        // - it is inside the segment; no process uses this part now
        match (from, unsafe { at(room).read() }) {
            (from, came) if from == other && came == number as u8 => Ok(()),
            (from, came) => Err(format!("{came} came from {from}")),
        }
    };
    let ns = ctx.both_ways(ctx.fewer(2000), &Cell::new(0), send, receive);
    ns.map(|ns| ns / 2.0)
}

/// gaspi_barrier of all processes.
pub fn barrier(ctx: &BenchContext, _: &Case) -> Result<f64, String> {
    let gaspi = ctx.ours()?.gaspi()?;
    ctx.collective(|_| call!(gaspi.calls.gaspi_barrier(ALL, BLOCK)))
}

/// gaspi_allreduce of a double over all processes.
pub fn allreduce(ctx: &BenchContext, _: &Case) -> Result<f64, String> {
    const DOUBLE: u32 = 3;
    let gaspi = ctx.ours()?.gaspi()?;
    ctx.collective(|round| {
        let (mine, mut sum) = ((ctx.rank as u64 + round) as f64, 0f64);
        let (send, receive) = ((&raw const mine).cast(), (&raw mut sum).cast());
        call!(
            gaspi
                .calls
                .gaspi_allreduce(send, receive, 1, SUM, DOUBLE, ALL, BLOCK)
        )?;
        ctx.check_sum(round, sum)
    })
}

/// Time from gaspi_write_notify to the return of gaspi_notify_waitsome in a parked process.
pub fn wake(ctx: &BenchContext, _: &Case) -> Result<f64, String> {
    let gaspi = ctx.ours()?.gaspi()?;
    let id = ctx.place() as u32 * 64;
    ctx.sync();
    wake_of(
        ctx,
        |round| gaspi.send(ctx, DATA / 2, 0, 8, id, round as u32),
        |round| {
            gaspi
                .await_notice(id)
                .and_then(|()| gaspi.take(id, round as u32))
        },
    )
}

/// gaspi_segment_bind of user memory.
pub fn register(ctx: &BenchContext, case: &Case) -> Result<f64, String> {
    let gaspi = ctx.ours()?.gaspi()?;
    registration(
        ctx,
        case,
        |base, len| {
            // `registration` keeps the buffer until the segment has been deleted.
            call!(gaspi.calls.gaspi_segment_bind(BOUND, base, len as u64, 0))
        },
        |()| call!(gaspi.calls.gaspi_segment_delete(BOUND)),
    )
}

/// Time from the launch to the end of gaspi_proc_init in the last process.
pub fn start(ctx: &BenchContext, _: &Case) -> Result<f64, String> {
    ctx.ours()?;
    Ok(ctx.all_started_ms())
}

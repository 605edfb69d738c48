//! The functions of RCCE and iRCCE in the shared library.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::Duration;

use unipgas_ircce_sys::{RcceFunctions as Functions, *};
use unipgas_launcher::library::InstalledLibrary;

use super::{UserBuffer, call, calls};
use crate::case::Case;
use crate::ctx::{BenchContext, exchanges};

const DATA: usize = 16 << 20;
/// Length of the window of blocking sends. MPBs must have room for it.
const WINDOW: usize = 8 << 10;
const MPB: &str = "16384";
/// Messages to all in a row. `WINDOW_MESSAGES` is lower, because the loop of blocking sends takes much longer.
const MESSAGES: usize = 32;
const WINDOW_MESSAGES: usize = 2;
const SET: c_int = 1;
const UNSET: c_int = 0;

ircce_functions!(calls);

/// Flags and a window in the MPB, and memory of the user.
pub(crate) struct Ircce {
    calls: Calls,
    /// The communicator of all processes.
    world: RCCE_COMM,
    tagged: *mut c_int,
    ready: *mut c_int,
    sent: *mut c_int,
    window: *mut u8,
    buffer: UserBuffer,
    round: Cell<u8>,
}

impl Ircce {
    /// Joins the job and allocates.
    pub fn enter(ctx: &BenchContext, library: &InstalledLibrary) -> Result<Ircce, String> {
        let calls = Calls::of(library)?;
        // SAFETY:
        // - no other thread reads the environment: this process has one thread
        unsafe { std::env::set_var("UNIPGAS_RCCE_MPB", MPB) };
        let (mut tagged, mut ready, mut sent) = (null_mut(), null_mut(), null_mut());
        call!(calls.RCCE_init(null_mut(), null_mut()))?;
        call!(calls.iRCCE_flag_alloc_tagged(&mut tagged))?;
        call!(calls.iRCCE_flag_alloc(&mut ready))?;
        call!(calls.iRCCE_flag_alloc(&mut sent))?;
        // SAFETY:
        // - no pointers
        let window = unsafe { (calls.iRCCE_malloc)(WINDOW) };
        if window.is_null() {
            return Err("no window in the MPB".into());
        }
        ctx.started();
        let variables = Variables::load(|name| library.symbol(name));
        let world = variables
            .RCCE_COMM_WORLD
            .ok_or("the library has no RCCE_COMM_WORLD")?;
        Ok(Ircce {
            calls,
            // SAFETY:
            // - it is the library's variable of this type; RCCE_init has written it, and it does not change later
            world: unsafe { world.read() },
            tagged,
            ready,
            sent,
            window,
            buffer: UserBuffer::new(DATA)?,
            round: Cell::new(0),
        })
    }

    /// Leaves the job.
    pub fn leave(self) -> Result<(), String> {
        call!(self.calls.RCCE_finalize())
    }

    fn barrier(&self) -> Result<(), String> {
        call!(self.calls.iRCCE_barrier(null_mut()))
    }

    fn data(&self) -> *mut c_char {
        self.buffer.base.cast()
    }

    /// Writes a new mark into the last byte of a payload.
    fn mark(&self, len: usize) -> u8 {
        self.round.set(self.round.get().wrapping_add(1));
        // SAFETY:
        // - it is inside the buffer: no case is longer
        unsafe { self.buffer.base.add(len - 1).write(self.round.get()) };
        self.round.get()
    }

    fn last(&self, len: usize) -> u8 {
        // SAFETY:
        // - it is inside the buffer: no case is longer
        unsafe { self.buffer.base.add(len - 1).read_volatile() }
    }
}

/// Time one way in ns.
fn ping_pong(ctx: &BenchContext, case: &Case) -> Result<f64, String> {
    let ours = ctx.ours()?.ircce()?;
    let (len, other) = (case.bytes as usize, ctx.other() as c_int);
    let mark = Cell::new(0);
    let send = |_| {
        if ctx.rank == 0 {
            mark.set(ours.mark(len));
        }
        call!(ours.calls.iRCCE_ssend(ours.data(), len as isize, other))
    };
    let receive = |_| {
        call!(ours.calls.iRCCE_srecv(ours.data(), len as isize, other))?;
        match ctx.rank == 0 && ours.last(len) != mark.get() {
            true => Err("another message came back".into()),
            false => Ok(()),
        }
    };
    let ns = ctx.both_ways(exchanges(case.bytes), &Cell::new(0), send, receive);
    ns.map(|ns| ns / 2.0)
}

/// Ping-pong of messages with a receipt. Returns ns one way.
pub fn message(ctx: &BenchContext, case: &Case) -> Result<f64, String> {
    ping_pong(ctx, case)
}

/// The same in GB/s.
pub fn message_bandwidth(ctx: &BenchContext, case: &Case) -> Result<f64, String> {
    ping_pong(ctx, case).map(|ns| case.bytes as f64 / ns)
}

/// Ping-pong of flags with 28 bytes. Returns ns one way.
pub fn tagged(ctx: &BenchContext, case: &Case) -> Result<f64, String> {
    let ours = ctx.ours()?.ircce()?;
    let len = case.bytes as c_int;
    let (me, other) = (ctx.rank as c_int, ctx.other() as c_int);
    let mut flag = ours.tagged;
    let mut tag = [1u8; 32];
    let mut got = [0u8; 32];
    let write = |round| {
        tag[case.bytes as usize - 1] = round as u8;
        call!(ours.calls.iRCCE_flag_write_tagged(
            &mut flag,
            SET,
            other,
            tag.as_mut_ptr().cast(),
            len
        ))
    };
    let wait = |round| {
        let mut flag = ours.tagged;
        let into = got.as_mut_ptr().cast();
        call!(ours.calls.iRCCE_wait_tagged(flag, SET, into, len))?;
        call!(ours.calls.iRCCE_flag_write(&mut flag, UNSET, me))?;
        match got[case.bytes as usize - 1] == round as u8 {
            true => Ok(()),
            false => Err("another tag came".into()),
        }
    };
    ours.barrier()?;
    let ns = ctx.both_ways(500, &Cell::new(0), write, wait);
    ns.map(|ns| ns / 2.0)
}

/// Throughput of `send` from UE 0 and `receive` at the others, in MB/s: `each` messages, until all processes have all of them.
fn one_to_all(
    ctx: &BenchContext,
    case: &Case,
    each: usize,
    send: impl Fn(&Ircce, usize) -> Result<(), String>,
    receive: impl Fn(&Ircce, usize) -> Result<(), String>,
) -> Result<f64, String> {
    let ours = ctx.ours()?.ircce()?;
    let len = case.bytes as usize;
    let turn = || {
        let mark = ours.mark(len);
        if ctx.rank == 0 {
            return send(ours, len);
        }
        // The old content must not look like the message.
        // SAFETY:
        // - it is inside the buffer
        unsafe { ours.buffer.base.add(len - 1).write(!mark) };
        receive(ours, len)?;
        if ours.last(len) == mark {
            Ok(())
        } else {
            Err("another message came".into())
        }
    };
    ours.barrier()?;
    let ns = ctx.per_batch(each, |n| {
        (0..n).try_for_each(|_| turn())?;
        ours.barrier()
    });
    ns.map(|ns| case.bytes as f64 * 1e3 / ns)
}

/// A loop of blocking sends through a window of 8 KiB.
pub fn window(ctx: &BenchContext, case: &Case) -> Result<f64, String> {
    one_to_all(
        ctx,
        case,
        WINDOW_MESSAGES,
        |ours, len| {
            let (data, window) = (ours.data(), ours.window);
            let (mut ready, mut sent) = (ours.ready, ours.sent);
            let (ready, sent) = (&mut ready, &mut sent);
            (1..ctx.size as c_int).try_for_each(|dest| {
                call!(
                    ours.calls
                        .RCCE_send_gory(data, window, WINDOW, ready, sent, len, dest)
                )
            })
        },
        |ours, len| {
            let (data, window) = (ours.data(), ours.window);
            let (mut ready, mut sent) = (ours.ready, ours.sent);
            let (ready, sent) = (&mut ready, &mut sent);
            call!(
                ours.calls
                    .RCCE_recv_gory(data, window, WINDOW, ready, sent, len, 0)
            )
        },
    )
}

/// RCCE_bcast.
pub fn rcce_broadcast(ctx: &BenchContext, case: &Case) -> Result<f64, String> {
    let broadcast =
        |ours: &Ircce, len: usize| call!(ours.calls.RCCE_bcast(ours.data(), len, 0, ours.world));
    one_to_all(ctx, case, MESSAGES, broadcast, broadcast)
}

/// iRCCE_msend and iRCCE_mrecv.
pub fn multicast(ctx: &BenchContext, case: &Case) -> Result<f64, String> {
    one_to_all(
        ctx,
        case,
        MESSAGES,
        |ours, len| call!(ours.calls.iRCCE_msend(ours.data(), len as isize)),
        |ours, len| call!(ours.calls.iRCCE_mrecv(ours.data(), len as isize, -1)),
    )
}

/// Offset of the CPU time of each process, in ns.
const BURNT: usize = 4096;
const LATE: Duration = Duration::from_millis(300);

fn cpu_ns() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// All processes but one wait in a barrier for the last one, which is late. Returns the CPU time of each in the meantime, in % of a core.
pub fn idle_cpu(ctx: &BenchContext, _: &Case) -> Result<f64, String> {
    let ours = ctx.ours()?.ircce()?;
    ours.barrier()?;
    let before = cpu_ns();
    if ctx.rank == 0 {
        std::thread::sleep(LATE);
    }
    ours.barrier()?;
    let mine = ctx.arena().word(ctx.rank, BURNT);
    mine.store(cpu_ns() - before, Release);
    ours.barrier()?;
    let burnt: u64 = (1..ctx.size)
        .map(|rank| ctx.arena().word(rank, BURNT).load(Acquire))
        .sum();
    Ok(100.0 * burnt as f64 / LATE.as_nanos() as f64 / (ctx.size - 1) as f64)
}

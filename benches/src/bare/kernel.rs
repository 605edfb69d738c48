//! Operations of the kernel: a wake of a parked process, a write into another process, a launch.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

use rustix::thread::futex;

use crate::arena::SCRATCH;
use crate::case::Case;
use crate::ctx::{BenchContext, median, now_ns};

const WORD: usize = 8 << 20;
/// Delay before the wake. The waiter has parked by then.
const PARKED: Duration = Duration::from_millis(1);

/// Time from `notify` in rank 0 to the return of `wait` in rank 1. Returns the median in us.
pub fn wake_of(
    ctx: &BenchContext,
    mut notify: impl FnMut(u64) -> Result<(), String>,
    mut wait: impl FnMut(u64) -> Result<(), String>,
) -> Result<f64, String> {
    let stamp = ctx.arena().control(SCRATCH);
    let rounds = 2 * ctx.batches() as u64;
    let mut times = Vec::new();
    let mut failed = Ok(());
    for round in 1..=rounds {
        ctx.sync();
        if ctx.rank == 0 {
            let start = Instant::now();
            while start.elapsed() < PARKED {
                std::hint::spin_loop();
            }
            let told = now_ns();
            failed = failed.and(notify(round));
            ctx.sync();
            times.push(stamp.load(Acquire).saturating_sub(told) as f64 / 1e3);
        } else {
            failed = failed.and(wait(round));
            stamp.store(now_ns(), Release);
            ctx.sync();
        }
    }
    failed.map(|()| {
        if ctx.rank == 0 {
            median(&mut times)
        } else {
            0.0
        }
    })
}

/// Time from a store and FUTEX_WAKE to the return of FUTEX_WAIT in another process, in us.
pub fn wake(ctx: &BenchContext, _: &Case) -> Result<f64, String> {
    let word = ctx.arena().word32(1, WORD);
    word.store(0, Relaxed);
    ctx.sync();
    wake_of(
        ctx,
        |round| {
            word.store(round as u32, Release);
            futex::wake(word, futex::Flags::empty(), 1)
                .map(|_| ())
                .map_err(|e| format!("futex: {e}"))
        },
        |round| {
            while word.load(Acquire) != round as u32 {
                // An error means that the word has changed, or that a signal arrived: check again.
                let _ = futex::wait(word, futex::Flags::empty(), round as u32 - 1, None);
            }
            Ok(())
        },
    )
}

/// process_vm_writev of 8 bytes, in ns.
pub fn process_vm(ctx: &BenchContext, case: &Case) -> Result<f64, String> {
    let mut mine = 0u64;
    let (pid, address) = (
        ctx.arena().control(SCRATCH),
        ctx.arena().control(SCRATCH + 8),
    );
    if ctx.rank == 1 {
        pid.store(std::process::id().into(), Relaxed);
        address.store(&raw mut mine as u64, Relaxed);
    }
    ctx.sync();
    let outcome = ctx.by_first(|| {
        let value = 0x0123_4567_89ab_cdefu64;
        let len = case.bytes as usize;
        let local = libc::iovec {
            iov_base: (&raw const value).cast_mut().cast(),
            iov_len: len,
        };
        let remote = libc::iovec {
            iov_base: address.load(Relaxed) as *mut _,
            iov_len: len,
        };
        let pid = pid.load(Relaxed) as libc::pid_t;
        let mut error = None;
        let ns = ctx.per_op(1000, |n| {
            for _ in 0..n {
                // SAFETY:
                // - both vectors describe `len` = 8 bytes: `value` here, and `mine` of rank 1, which waits in `sync` below
                if unsafe { libc::process_vm_writev(pid, &local, 1, &remote, 1, 0) } != len as isize
                {
                    error = Some(std::io::Error::last_os_error());
                }
            }
        });
        error.map_or(Ok(ns), |e| Err(format!("process_vm_writev: {e}")))
    });
    std::hint::black_box(&mine);
    outcome
}

/// Time from the launch until the last process is in main, in ms.
pub fn start(ctx: &BenchContext, _: &Case) -> Result<f64, String> {
    Ok(ctx.all_in_main_ms())
}

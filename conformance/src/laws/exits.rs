//! Processes that end while their threads are in calls: one thread calls `exit` beside others, or a signal handler interrupts a call and exits.
//! Specifications do not cover this. Each end runs in a separate job of two processes.

mod gaspi;
mod libfabric;
mod rcce;
mod utofu;

use std::sync::atomic::{AtomicU64, Ordering};

use super::rcce::job_of;
use crate::ensure;
use crate::kit::{pause, until};
use crate::law::{Api, Ctx, Law, Verdict};

/// All of these laws, by interface.
pub fn laws() -> Vec<&'static Law> {
    [
        gaspi::laws(),
        utofu::laws(),
        rcce::laws(),
        libfabric::laws(),
    ]
    .concat()
}

/// Jobs of these laws, found by name only.
pub const JOBS: &[Law] = &[
    ends(Api::Gaspi, "gaspi.job.ends", gaspi::ends),
    ends(Api::Utofu, "utofu.job.ends", utofu::ends),
    ends(Api::Rcce, "rcce.job.ends", rcce::ends),
    ends(Api::Libfabric, "libfabric.job.ends", libfabric::ends),
];

const fn ends(api: Api, id: &'static str, body: fn(&Ctx) -> Verdict) -> Law {
    let (clause, says) = ("unipgas conformance", "the job of a separate law");
    Law {
        bare: true,
        ..Law::new(api, id, clause, says, 2, &[], body)
    }
}

/// How rank 0 ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// The main thread calls `exit` while another one is in the call.
    Beside,
    /// A handler that has interrupted the call calls `exit`.
    Handler,
    /// The same by `_exit`.
    AtOnce,
}

const WAYS: [Way; 3] = [Way::Beside, Way::Handler, Way::AtOnce];

/// Runs jobs in which rank 0 ends in the way `way` during a call of the table of `calls` entries: all calls, or two random ones.
fn each_call(ctx: &Ctx, job_law: &str, way: Way, calls: u64) -> Verdict {
    let way_number = WAYS.iter().position(|one| *one == way).unwrap_or(0) as u64;
    // One job takes a second on few processors.
    let (first, number) = match ctx.is_quick() {
        true => (0, calls),
        false => (ctx.random(0).below(calls), 2),
    };
    for nth in first..first + number {
        let seed = way_number + WAYS.len() as u64 * (nth % calls);
        let outcome = job_of(ctx, job_law, 2, seed)?;
        for (rank, end) in outcome.ranks.iter().enumerate() {
            let (exit, text) = (end.exit, String::from_utf8_lossy(&end.stderr));
            ensure!(
                exit.success() && text.is_empty(),
                "call {}: rank {rank} {exit} ({text:?})",
                nth % calls
            );
        }
    }
    Ok(())
}

/// Like a return from main.
fn returns() -> ! {
    // SAFETY:
    // - handlers of the library run as at every end of a program.
    unsafe { libc::exit(0) }
}

/// Whether the handler ends the process by `_exit`.
static AT_ONCE: AtomicU64 = AtomicU64::new(0);

extern "C" fn handler(_: libc::c_int) {
    match AT_ONCE.load(Ordering::Relaxed) {
        0 => returns(),
        // SAFETY:
        // - ends the process.
        _ => unsafe { libc::_exit(0) },
    }
}

/// Rank 0 ends during the call of a number below `calls`, which it repeats until then. Rank 1 ends afterwards. Both ranks have done the setup that the
/// calls need.
fn end_in(ctx: &Ctx, calls: usize, call: fn(usize)) -> Verdict {
    ctx.tell(&std::process::id().to_ne_bytes());
    ctx.sync();
    if ctx.rank != 0 {
        let other = ctx.told(0).ok_or("rank 0 has told nothing")?;
        let other = other
            .as_slice()
            .try_into()
            .map_err(|_| "rank 0 has told no number")?;
        until("the end of rank 0", || {
            !crate::job::lives(u32::from_ne_bytes(other))
        })?;
        returns();
    }
    let nth = (ctx.seed / WAYS.len() as u64) as usize % calls;
    let way = WAYS[ctx.seed as usize % WAYS.len()];
    let delay = u64::from(std::process::id()) % 20;
    if way == Way::Beside {
        std::thread::spawn(move || {
            loop {
                call(nth);
            }
        });
        pause(delay);
        returns();
    }
    AT_ONCE.store((way == Way::AtOnce).into(), Ordering::Relaxed);
    // SAFETY:
    // - the handler ends the process; this thread lives until then.
    let caller = unsafe {
        let handler = handler as extern "C" fn(libc::c_int);
        libc::signal(libc::SIGUSR1, handler as libc::sighandler_t);
        libc::pthread_self()
    };
    std::thread::spawn(move || {
        pause(delay);
        // SAFETY:
        // - `caller` is the thread that makes the calls; it lives as long as the process.
        unsafe { libc::pthread_kill(caller, libc::SIGUSR1) }
    });
    loop {
        call(nth);
    }
}

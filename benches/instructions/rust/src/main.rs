//! Instructions of the engine's calls in a Rust program, between two processes of a host.
//!
//! The processor traps after each instruction while the trap flag is set, and the thread counts its own signals.

use std::arch::asm;
use std::error::Error;
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use unipgas::core::group::Forming;
use unipgas::core::job::Job;
use unipgas::core::op::{Notice, Outcome};
use unipgas::core::registry::{Opening, open_from_env};
use unipgas::core::{Deadline, Engine, Flags, Remote, Rights, World};

/// Calls before the count, in which the engine finds and caches what it needs.
const WARM_UP: u32 = 200;
const TRIALS: u32 = 40;
const LEN: usize = 4096;
/// Offset of the notification word.
const WORD: usize = 2048;

static EXECUTED: AtomicU64 = AtomicU64::new(0);

extern "C" fn trap(_: c_int, _: *mut libc::siginfo_t, _: *mut c_void) {
    EXECUTED.fetch_add(1, Ordering::Relaxed);
}

/// Sets or clears the trap flag. The compiler may keep values below the stack pointer: the code steps over them.
macro_rules! trap_flag {
    ($operation:literal) => {
        // SAFETY:
        // - the stack pointer and the other flags are restored. The handler of SIGTRAP is set.
        unsafe {
            asm!(
                "lea rsp, [rsp - 128]",
                "pushfq",
                $operation,
                "popfq",
                "lea rsp, [rsp + 128]"
            )
        }
    };
}

/// The fewest instructions of `call`.
fn count(name: &str, mut call: impl FnMut()) {
    let mut least = u64::MAX;
    for trial in 0..WARM_UP + TRIALS {
        if trial < WARM_UP {
            call();
            continue;
        }
        EXECUTED.store(0, Ordering::Relaxed);
        trap_flag!("or qword ptr [rsp], 0x100");
        trap_flag!("and qword ptr [rsp], -0x101");
        let nothing = EXECUTED.swap(0, Ordering::Relaxed);
        trap_flag!("or qword ptr [rsp], 0x100");
        call();
        trap_flag!("and qword ptr [rsp], -0x101");
        least = least.min(EXECUTED.load(Ordering::Relaxed) - nothing);
    }
    println!("rust:{name} {least}");
}

fn ended(outcome: Result<Outcome, unipgas::core::Error>) {
    assert!(matches!(outcome, Ok(Outcome::Complete)), "{outcome:?}");
}

fn main() -> Result<(), Box<dyn Error>> {
    unipgas::init();
    let job = Job::from_env()?;
    let engine = Engine::new(open_from_env(&Opening::of(&job))?)?;
    let world = Arc::new(World::join(engine, job)?);
    let region = world.engine().allocate(LEN, Rights::FULL)?;
    world.publish_region("memory", &region.key())?;
    world.meet(Deadline::Never)?;
    let other = world.published_region(1 - world.rank(), "memory")?;
    let group = Forming::new(&world, &[0, 1], [1, 0])?.advance(Deadline::Never)?;
    let endpoint = world.engine().endpoint(u32::MAX)?;
    if world.rank() == 0 {
        // SAFETY:
        // - contract of sigaction(2): the handler has the type that SA_SIGINFO asks for. It uses an atomic only.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = trap as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            libc::sigaction(libc::SIGTRAP, &action, std::ptr::null_mut());
        }
        let from = region.local(0, 8)?;
        let to = Remote {
            region: &other,
            offset: 0,
        };
        let slot = Remote {
            region: &other,
            offset: WORD,
        };
        let notice = Notice { slot, value: 1 };
        let none = Flags::empty();
        // SAFETY:
        // - contract of `Endpoint::put`: the region outlives the operations, which are complete when a call over shm returns.
        count("put", || unsafe {
            ended(endpoint.put(from, to, 8, none, 0))
        });
        // SAFETY:
        // - as above.
        count("put_notify", || unsafe {
            ended(endpoint.put_notify(from, to, 8, notice, none, 0))
        });
        count("notify", || ended(endpoint.notify(notice, none, 0)));
    }
    group.barrier(Deadline::Never)?;
    world.leave()?;
    Ok(())
}

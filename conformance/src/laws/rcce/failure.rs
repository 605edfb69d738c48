//! A UE is killed while others wait: each of them ends with one line on standard error and status 1.
//!
//! Each law starts a job, in which a law of [`VICTIMS`] runs rounds of waiting calls. One UE kills itself at a moment that the seed sets.
//! Only the death ends the other UEs.

use std::time::Duration;

use unipgas_launcher::Launch;
use unipgas_launcher::{Exit, JobOutcome, Output};

use super::kit::*;
use crate::job::leftovers;
use crate::law::{Api, Law};
use crate::stall::LONG;

/// UEs of each job.
const UES: u32 = 4;

/// One round at one UE: its context, the victim, and the number of the round.
type Round = fn(&Ctx, i32, u64) -> Verdict;

macro_rules! waits {
    ($($name:literal $($idle:ident)?, [$($procedure:ident),*], $says:literal, $round:expr;)*) => {
        const NAMES: &[&str] = &[$(concat!("rcce.victim.", $name)),*];

        /// Laws found by name only.
        pub const VICTIMS: &[Law] = &[$(Law {
            bare: true,
            ..Law::new(Api::Rcce, concat!("rcce.victim.", $name), "unipgas conformance", "a UE dies", UES, &[], |ctx| {
                dying(ctx, $name, &[$(stringify!($idle))?], $round)
            })
        }),*];

        pub(super) fn laws() -> Vec<&'static Law> {
            const SAYS: &str = "a UE is killed at any moment of any wait: the others end with one line and a failing status, and nothing is left";
            static ANY: Law = Law {
                bare: true,
                ordering: true,
                ..Law::new(Api::Rcce, "rcce.failure.any-moment", "RCCE.h", SAYS, 1, &[], |ctx| {
                    killed(ctx, NAMES[ctx.random(1).below(NAMES.len() as u64) as usize])
                })
            };
            vec![$({
                static LAW: Law = Law {
                    bare: true,
                    ..Law::new(
                        Api::Rcce,
                        concat!("rcce.failure.", $name),
                        "RCCE.h",
                        concat!("a UE is killed while the others are in ", $says, ": they end with one line and status 1"),
                        1,
                        &[$(stringify!($procedure)),*],
                        |ctx| killed(ctx, concat!("rcce.victim.", $name)),
                    )
                };
                &LAW
            },)* &ANY]
        }
    };
}

// The victim of a row with `idle` makes no call.
waits! {
    "init", [RCCE_init], "RCCE_init", |_, _, _| Ok(());
    "barrier", [RCCE_barrier, iRCCE_barrier], "barriers", |_, _, round| {
        meet(round % 2 != 0, &mut world())
    };
    "air-barrier", [iRCCE_barrier], "iRCCE_barrier, some with a request open", |ctx, victim, round| {
        if round == 0 && ctx.rank % 2 == 0 && ctx.rank as i32 != victim {
            c!(iRCCE_irecv(Bytes::filled(8, 0).ptr(), 8, victim, Recv::new().0));
        }
        done!(iRCCE_barrier(null_mut()))
    };
    "finalize" idle, [RCCE_finalize], "RCCE_finalize", |_, _, _| {
        done!(RCCE_finalize())
    };
    "flag", [RCCE_wait_until], "a wait for a flag", |_, _, _| done!(RCCE_wait_until(new_flag()?, 1));
    "tagged-flag", [iRCCE_wait_tagged], "a wait for a tagged flag", |_, _, _| done!(iRCCE_wait_tagged(new_flag()?, 1, null_mut(), 0));
    "test-flag", [iRCCE_test_tagged, RCCE_flag_read], "a loop that looks at flags", |_, _, _| {
        let flag = new_flag()?;
        loop {
            let mut result = 0;
            ok!(iRCCE_test_tagged(flag, 1, &mut result, null_mut(), 0));
            ok!(RCCE_flag_read(flag, &mut result, 0));
        }
    };
    "put", [RCCE_put, RCCE_get], "a loop of puts and gets", |ctx, _, _| {
        let (area, bytes) = (c!(iRCCE_malloc(256)), Bytes::filled(256, 1));
        loop {
            for id in 0..ctx.size as i32 {
                ok!(RCCE_put(area, bytes.raw(), 256, id));
                ok!(RCCE_get(bytes.raw(), area, 256, id));
            }
        }
    };
    "put-alone", [RCCE_put], "a loop of puts", |_, victim, _| {
        let (area, bytes) = (c!(iRCCE_malloc(32)), Bytes::filled(32, 1));
        loop {
            ok!(RCCE_put(area, bytes.raw(), 32, victim));
        }
    };
    "get-alone", [RCCE_get], "a loop of gets", |_, victim, _| {
        let (area, bytes) = (c!(iRCCE_malloc(32)), Bytes::filled(32, 1));
        loop {
            ok!(RCCE_get(bytes.raw(), area, 32, victim));
        }
    };
    "get-slowly", [RCCE_get], "gets with 20 ms between two of them", |_, victim, _| {
        let (area, bytes) = (c!(iRCCE_malloc(32)), Bytes::filled(32, 1));
        // The victim dies within 300 ms.
        for _ in 0..115 {
            ok!(RCCE_get(bytes.raw(), area, 32, victim));
            std::thread::sleep(Duration::from_millis(20));
        }
        Err("a hundred gets of a UE that was killed have succeeded".into())
    };
    "write-flag", [RCCE_flag_write], "a loop that writes a flag", |_, victim, _| {
        let mut flag = new_flag()?;
        loop {
            ok!(RCCE_flag_write(&mut flag, 1, victim));
        }
    };
    "locks" idle, [RCCE_acquire_lock, RCCE_release_lock], "a loop that takes locks and gives them back", |_, victim, _| {
        loop {
            ok!(RCCE_acquire_lock(victim));
            ok!(RCCE_release_lock(victim));
        }
    };
    "increment", [iRCCE_atomic_inc], "a loop that increments a register", |_, _, _| {
        let register = new_register()? as *const _;
        loop {
            ok!(iRCCE_atomic_inc(register, null_mut()));
        }
    };
    "send" idle, [RCCE_send, iRCCE_ssend], "a send", |_, victim, round| {
        let bytes = Bytes::filled(if round % 2 == 0 { 10 } else { 100_000 }, 1);
        send(&bytes, victim)
    };
    "receive" idle, [RCCE_recv, iRCCE_srecv], "a receive", |_, victim, _| {
        receive(10, victim).map(drop)
    };
    "receive-any", [iRCCE_srecv], "a receive from any source", |_, _, _| {
        let room = Bytes::filled(100, 0);
        done!(iRCCE_srecv(room.ptr(), ANY_LENGTH, ANY_SOURCE))
    };
    "probe", [iRCCE_probe], "a probe", |ctx, victim, _| {
        let source = if ctx.rank as i32 == victim { ANY_SOURCE } else { victim };
        done!(iRCCE_probe(source, null_mut()))
    };
    "iprobe", [iRCCE_iprobe, iRCCE_irecv_push], "a loop of probes", |_, _, _| {
        ok!(iRCCE_iprobe(ANY_SOURCE, null_mut(), null_mut()));
        c!(iRCCE_irecv_push());
        Ok(())
    };
    "ring", [iRCCE_isend, iRCCE_irecv, iRCCE_isend_wait, iRCCE_irecv_wait], "a ring of messages", |ctx, _, round| {
        let (me, n) = place(ctx);
        let len = [10, 5000, 9000, 100_000][round as usize % 4];
        let (bytes, room) = (Bytes::filled(len, 1), Bytes::filled(len, 0));
        let into = irecv(&room, (me + n - 1) % n)?.0;
        let out = isend(&bytes, (me + 1) % n)?.0;
        wait_both(&out, &into)
    };
    "isend-wait" idle, [iRCCE_isend_wait], "a wait for a send that is behind another one", |ctx, victim, round| {
        // First to the victim, then to a survivor; both stay without a receive.
        let lives = (0..ctx.size as i32).find(|id| *id != victim && *id != ctx.rank as i32).unwrap_or(0);
        let bytes = Bytes::filled(if round % 2 == 0 { 40 } else { 50_000 }, 1);
        isend(&bytes, victim)?;
        isend(&bytes, lives)?.0.wait()
    };
    "wait-null" idle, [iRCCE_isend_wait, iRCCE_irecv_wait], "a wait for all requests", |ctx, victim, _| {
        irecv(&Bytes::filled(40, 0), victim)?;
        isend(&Bytes::filled(40, 0), victim)?;
        match ctx.rank % 2 {
            0 => done!(iRCCE_isend_wait(null_mut())),
            _ => done!(iRCCE_irecv_wait(null_mut())),
        }
    };
    "test" idle, [iRCCE_isend_test, iRCCE_irecv_test, iRCCE_isend_push], "loops of tests and pushes", |ctx, victim, _| {
        let into = irecv(&Bytes::filled(40, 0), victim)?.0;
        let out = isend(&Bytes::filled(40, 0), victim)?.0;
        loop {
            match ctx.rank % 3 {
                0 => drop(out.test()),
                1 => drop(into.test()),
                _ => drop(c!(iRCCE_isend_push())),
            }
        }
    };
    "wait-list" idle, [iRCCE_wait_all, iRCCE_wait_any, iRCCE_test_any], "calls for lists of requests", |ctx, victim, _| {
        let into = irecv(&Bytes::filled(40, 0), victim)?.0;
        let mut list = std::mem::MaybeUninit::uninit();
        c!(iRCCE_init_wait_list(list.as_mut_ptr()));
        c!(iRCCE_add_recv_to_wait_list(list.as_mut_ptr(), into.0));
        loop {
            match ctx.rank % 3 {
                0 => drop(c!(iRCCE_wait_all(list.as_mut_ptr()))),
                1 => drop(c!(iRCCE_wait_any(list.as_mut_ptr(), null_mut(), null_mut()))),
                _ => drop(c!(iRCCE_test_any(list.as_mut_ptr(), null_mut(), null_mut()))),
            }
        }
    };
    "bcast", [RCCE_bcast, iRCCE_bcast], "broadcasts", |ctx, _, round| {
        let len = [10, 9000, 100_000][round as usize % 3];
        let bytes = Bytes::filled(len, 1);
        let root = (round % u64::from(ctx.size)) as i32;
        for_all([false, true], |improved| bcast(improved, &bytes, root, world()))?;
        bytes.free();
        Ok(())
    };
    "multicast" idle, [iRCCE_msend, iRCCE_mrecv], "multicasts that one does not receive", |ctx, victim, _| {
        let lowest = i32::from(victim == 0);
        let bytes = Bytes::filled(9000, 1);
        match ctx.rank as i32 == lowest {
            true => done!(iRCCE_msend(bytes.ptr(), 9000)),
            false => done!(iRCCE_mrecv(bytes.ptr(), 9000, lowest)),
        }
    };
    "reduce", [RCCE_reduce, RCCE_allreduce], "reductions", |ctx, _, round| {
        let (data, result) = (Bytes::filled(800, 0), Bytes::filled(800, 0));
        let root = (round % u64::from(ctx.size)) as i32;
        ok!(RCCE_reduce(data.ptr(), result.ptr(), 200, 63_636_363, 23_232_323, root, world()));
        done!(RCCE_allreduce(data.ptr(), result.ptr(), 100, 63_636_366, 23_232_323, world()))
    };
    "comm-split", [RCCE_comm_split], "RCCE_comm_split", |_, _, _| {
        let mut comm = RCCE_COMM::UNDEFINED;
        ok!(RCCE_comm_split(Some(one_colour), null_mut(), &mut comm));
        ok!(RCCE_barrier(&mut comm));
        done!(RCCE_comm_free(&mut comm))
    };
    "lock", [RCCE_acquire_lock], "a wait for a lock of the dying UE", |ctx, victim, _| {
        let other = i32::from(victim == 0);
        if ctx.rank as i32 == victim {
            ok!(RCCE_acquire_lock(other));
            return forever();
        }
        // The first survivor to take the lock releases it for the victim.
        ok!(RCCE_acquire_lock(other));
        done!(RCCE_release_lock(other))
    };
    "register", [iRCCE_atomic_read], "a loop that reads a register", |_, _, _| {
        let register = new_register()? as *const _;
        loop {
            ok!(iRCCE_atomic_read(register, null_mut()));
        }
    };
    "gory" idle, [RCCE_send_gory, RCCE_recv_gory], "gory messages", |ctx, victim, _| {
        let window = c!(RCCE_malloc_gory(64));
        let (mut ready, mut sent) = (new_flag()?, new_flag()?);
        let bytes = Bytes::filled(100, 1);
        match ctx.rank % 2 {
            0 => done!(RCCE_send_gory(bytes.ptr(), window, 64, &mut ready, &mut sent, 100, victim)),
            _ => done!(RCCE_recv_gory(bytes.ptr(), window, 64, &mut ready, &mut sent, 100, victim)),
        }
    };
}

unsafe extern "C" fn one_colour(_: i32, _: *mut std::ffi::c_void) -> i32 {
    0
}

fn forever() -> Verdict {
    loop {
        std::thread::park();
    }
}

fn victim(ctx: &Ctx) -> i32 {
    ctx.random(2).below(u64::from(UES)) as i32
}

/// A UE of the job with a victim: runs rounds until the death.
fn dying(ctx: &Ctx, name: &str, idle: &[&str], round: Round) -> Verdict {
    let before_init = name == "init";
    let victim = victim(ctx);
    if ctx.rank as i32 == victim {
        let ctx = ctx.clone();
        std::thread::spawn(move || {
            let ms = ctx.random(3).below(4) * ctx.random(4).below(100);
            std::thread::sleep(Duration::from_millis(ms));
            ctx.dies();
        });
        if before_init {
            return forever();
        }
    }
    begin()?;
    if !idle.is_empty() && ctx.rank as i32 == victim {
        return forever();
    }
    for_all(0.., |nth| round(ctx, victim, nth))
}

/// Runs a hidden law in a new job. Other UEs continue after one has ended.
pub(super) fn job(ctx: &Ctx, law: &str, size: u32) -> Result<JobOutcome, String> {
    job_of(ctx, law, size, ctx.seed)
}

/// [`job`] with another seed.
pub(in crate::laws) fn job_of(
    ctx: &Ctx,
    law: &str,
    size: u32,
    seed: u64,
) -> Result<JobOutcome, String> {
    let program = std::env::current_exe().map_err(|e| format!("cannot find myself: {e}"))?;
    let mut launch = Launch::new(size, program);
    let item = format!("{law}@{seed}+1");
    let library = library().path.to_string_lossy();
    let (seconds, backend) = (LONG.as_secs().to_string(), ctx.backend.as_str());
    let args = [
        "--worker",
        "/dev/null",
        "-",
        backend,
        &seconds,
        "0",
        &library,
        &item,
    ];
    launch.args = args.map(Into::into).to_vec();
    launch.seed = Some(seed);
    launch.backend = std::env::var("UNIPGAS_BACKEND").ok();
    launch.keep_going = true;
    launch.output = Output::Capture;
    launch.timeout = Some(LONG);
    launch
        .run()
        .map_err(|e| format!("the job cannot be started: {e}"))
}

/// Whether a UE has printed one line, which names a lost UE, or a UE that ended because of the loss.
pub(super) fn tells_the_loss(text: &str) -> bool {
    let lines: Vec<_> = text.lines().collect();
    let told = [" has died", " has ended, and "];
    matches!(lines.as_slice(), [line] if line.starts_with("unipgas: UE ") && told.iter().any(|end| line.contains(end)))
}

/// Runs the job and checks the end of each UE.
fn killed(ctx: &Ctx, law: &str) -> Verdict {
    let outcome = job(ctx, law, UES)?;
    let victim = victim(ctx);
    for (rank, end) in outcome.ranks.iter().enumerate() {
        let text = String::from_utf8_lossy(&end.stderr);
        if rank as i32 == victim {
            ensure_eq!(end.exit, Exit::Signal(libc::SIGKILL), "the victim's end");
            continue;
        }
        let (exit, told) = (end.exit, tells_the_loss(&text));
        let what = format!("{law}: UE {rank}, with UE {victim} killed, {exit} ({text:?})");
        ensure!(exit == Exit::Code(1) && told, "{what}");
    }
    match leftovers(outcome.job.token()) {
        None => Ok(()),
        Some(left) => Err(format!("{law}: {left}")),
    }
}

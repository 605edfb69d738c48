//! Ends without a death, jobs that cannot begin, and variables of the environment. Some of these laws start a separate job.

use unipgas_launcher::{Exit, JobOutcome, RankOutcome};

use super::failure::job;
use super::kit::*;
use crate::law::{Api, Law, without_job};

laws! {
    all_end_well given("rcce.job.without-finalize"): "ending.without-finalize", "RCCE RCCE_finalize", 1, [RCCE_finalize] + bare,
        "a UE may return from main without RCCE_finalize: the others end well";
    all_end_well given("rcce.job.last-multicasts"): "ending.last-multicasts", "RCCE RCCE_bcast, iRCCE 2.0 §9.8", 1, [RCCE_bcast, iRCCE_msend, iRCCE_mrecv] + bare,
        "a message to several UEs arrives, also if the sender returns from main without RCCE_finalize before they receive it";
    one_has_returned given("rcce.job.waited-for"): "ending.waited-for", "RCCE.h", 1, [RCCE_recv, RCCE_barrier] + bare,
        "a UE that waits for a UE that has returned from main ends with one line about it, and status 1";
    one_has_returned given("rcce.job.waited-for-at-barrier"): "ending.waited-for-at-barrier", "iRCCE 2.0 §9.11", 1, [iRCCE_barrier] + bare,
        "a UE that waits at iRCCE_barrier for a UE that has returned from main, with or without an open request, ends in the same way";
    passed: "ending.barrier-passed", "iRCCE 2.0 §9.11", 1, [iRCCE_barrier] + bare,
        "a UE that returns from main right after iRCCE_barrier keeps no other UE in it, even if it owned the registers";
    too_many: "ending.too-many", "RCCE RCCE_ERROR_NUM_UES", 1, [RCCE_init] + bare,
        "in a job of 49 processes RCCE_init gives ERROR_NUM_UES everywhere";
    alone: "ending.alone", "RCCE RCCE_init", 1, [RCCE_init, RCCE_finalize] + bare,
        "the same process can begin and end again and again";
    mpb_size: "ending.mpb-size", "RCCE.h UNIPGAS_RCCE_MPB", 1, [RCCE_malloc_gory, RCCE_init] + bare,
        "the environment says how large an MPB is";
    low: "ending.shared-low", "RCCE.h UNIPGAS_RCCE_SHM_LOW", 1, [RCCE_shmalloc, RCCE_init] + bare,
        "the environment says whether addresses of shared memory have 32 bits";
    cores: "ending.cores", "RCCE.h UNIPGAS_RCCE_CORES", 1, [RCCE_power_domain, RCCE_init] + bare,
        "the environment says which cores the UEs stand for";
    wrong_environment: "ending.wrong-environment", "RCCE.h", 1, [RCCE_init] + bare,
        "with a wrong environment RCCE_init gives ERROR_CORE_NOT_IN_HOSTFILE, and works after its correction";
    other_launcher: "ending.other-launcher", "RCCE.h", 1, [RCCE_init] + bare,
        "a process of another launcher's several is no job of one: RCCE_init gives ERROR_CORE_NOT_IN_HOSTFILE";
}

const fn hidden(id: &'static str, processes: u32, body: fn(&Ctx) -> Verdict) -> Law {
    let (place, says) = ("unipgas conformance", "the job of a separate law");
    Law {
        bare: true,
        ..Law::new(Api::Rcce, id, place, says, processes, &[], body)
    }
}

/// Laws found by name only.
pub const JOBS: &[Law] = &[
    hidden("rcce.job.without-finalize", 3, |ctx| {
        ok!(RCCE_init(null_mut(), null_mut()));
        barrier()?;
        if ctx.rank == 1 {
            returns();
        }
        ok!(RCCE_finalize());
        // The framework would wait for the ended UE 1.
        returns()
    }),
    hidden("rcce.job.last-multicasts", 3, |ctx| {
        begin()?;
        barrier()?;
        let contents = [content(ctx, 1, 5000), content(ctx, 2, 700)];
        for (nth, content) in contents.iter().enumerate() {
            let several = nth == 0;
            if ctx.rank == 0 {
                let bytes = Bytes::of(content);
                match several {
                    true => ok!(iRCCE_msend(bytes.ptr(), bytes.len as isize)),
                    false => ok!(RCCE_bcast(bytes.ptr(), bytes.len, 0, world())),
                }
                continue;
            }
            // UE 0 sleeps by then, or has ended.
            pause(100);
            let room = Bytes::filled(content.len(), 0);
            match several {
                true => ok!(iRCCE_mrecv(room.ptr(), room.len as isize, 0)),
                false => ok!(RCCE_bcast(room.ptr(), room.len, 0, world())),
            }
            room.holds(content, 0, "the message to several UEs")?;
        }
        returns()
    }),
    hidden("rcce.job.waited-for", 3, |ctx| {
        ok!(RCCE_init(null_mut(), null_mut()));
        barrier()?;
        match ctx.rank {
            0 => receive(8, 1).map(drop),
            1 => returns(),
            _ => barrier(),
        }
    }),
    hidden("rcce.job.waited-for-at-barrier", 3, |ctx| {
        begin()?;
        barrier()?;
        match ctx.rank {
            1 => returns(),
            0 => {
                c!(iRCCE_irecv(Bytes::filled(8, 0).ptr(), 8, 2, Recv::new().0));
            }
            _ => {}
        }
        done!(iRCCE_barrier(null_mut()))
    }),
    hidden("rcce.job.barrier-passed", 3, |ctx| {
        begin()?;
        barrier()?;
        if ctx.rank == 2 {
            // The other UEs sleep here.
            pause(20);
        }
        ok!(iRCCE_barrier(null_mut()));
        returns()
    }),
    hidden("rcce.job.too-many", 49, |_| {
        gives!(RCCE_ERROR_NUM_UES, RCCE_init(null_mut(), null_mut()));
        Ok(())
    }),
];

/// Ends the process like a return from main.
fn returns() -> ! {
    // SAFETY:
    // - the exit handlers of the library run as at the end of any program.
    unsafe { libc::exit(0) }
}

fn told(end: &RankOutcome) -> String {
    String::from_utf8_lossy(&end.stderr).into_owned()
}

/// The ranks, with their ends and what they have written to standard error.
fn ends(outcome: &JobOutcome) -> impl Iterator<Item = (usize, Exit, String)> {
    let ranks = outcome.ranks.iter().enumerate();
    ranks.map(|(rank, end)| (rank, end.exit, told(end)))
}

fn all_end_well(ctx: &Ctx, law: &str) -> Verdict {
    let outcome = job(ctx, law, 3)?;
    for (rank, exit, text) in ends(&outcome) {
        let well = exit.success() && text.is_empty();
        ensure!(well, "UE {rank} {exit} ({text:?})");
    }
    Ok(())
}

fn passed(ctx: &Ctx) -> Verdict {
    for_all(0..5, |_| all_end_well(ctx, "rcce.job.barrier-passed"))
}

/// Runs a job in which UE 1 returns from main while the others wait for it.
fn one_has_returned(ctx: &Ctx, law: &str) -> Verdict {
    let outcome = job(ctx, law, 3)?;
    for (rank, exit, text) in ends(&outcome) {
        if rank == 1 {
            ensure!(exit.success() && text.is_empty(), "UE 1 {exit} ({text:?})");
            continue;
        }
        let lines: Vec<_> = text.lines().collect();
        let ended = "unipgas: UE 1 has ended, and UE ";
        // The second survivor may have seen the end of the first one.
        let well = matches!(lines.as_slice(), [line] if line.starts_with(ended) || line.contains(" has died"));
        ensure!(exit == Exit::Code(1) && well, "UE {rank} {exit} ({text:?})");
    }
    let all = outcome.ranks.iter().map(told).collect::<String>();
    ensure!(all.contains("has ended"), "UE 1's end is unknown: {all:?}");
    Ok(())
}

fn too_many(ctx: &Ctx) -> Verdict {
    let outcome = job(ctx, "rcce.job.too-many", 49)?;
    ensure_eq!(outcome.ranks.len(), 49, "processes");
    for (rank, exit, text) in ends(&outcome) {
        let line = text == "unipgas: RCCE_init: a job has at most 48 UEs\n";
        ensure!(exit.success() && line, "process {rank} {exit} ({text:?})");
    }
    Ok(())
}

fn alone(_: &Ctx) -> Verdict {
    for _ in 0..20 {
        begin()?;
        let flag = new_flag()?;
        ok!(RCCE_flag_write(&mut { flag }, 1, 0));
        barrier()?;
        ok!(RCCE_finalize());
    }
    Ok(())
}

/// Runs `body` with a variable of the environment.
fn with(name: &str, value: &str, body: impl FnOnce() -> Verdict) -> Verdict {
    // SAFETY:
    // - a process of a bare law has one thread when it calls this.
    unsafe { std::env::set_var(name, value) };
    let verdict = body();
    // SAFETY:
    // - as above: the library's threads have ended, or read no environment.
    unsafe { std::env::remove_var(name) };
    verdict
}

/// Runs `body` in a job that begins with a variable of the environment.
fn job_with(name: &str, value: &str, body: impl FnOnce() -> Verdict) -> Verdict {
    with(name, value, || {
        ok!(RCCE_init(null_mut(), null_mut()));
        body()?;
        done!(RCCE_finalize())
    })
}

fn low(_: &Ctx) -> Verdict {
    for (text, wanted) in [("1", true), ("0", false)] {
        job_with("UNIPGAS_RCCE_SHM_LOW", text, || {
            let memory = c!(RCCE_shmalloc(4096));
            ensure!(!memory.is_null(), "no memory");
            equal!(memory.addr() >> 32 == 0, wanted, "an address of 32 bits")
        })?;
    }
    Ok(())
}

fn mpb_size(_: &Ctx) -> Verdict {
    let texts = ["32", "33", "100000", "1048576"];
    for (text, size) in texts.into_iter().zip([32, 64, 100_000, 1_048_576]) {
        job_with("UNIPGAS_RCCE_MPB", text, || {
            ensure!(c!(RCCE_malloc_gory(size + 32)).is_null(), "{text}: more");
            let all = c!(RCCE_malloc_gory(size));
            ensure!(!all.is_null(), "{text}: {size} bytes were not given");
            let bytes = Bytes::filled(size, 7);
            ok!(RCCE_put(all, bytes.raw(), size as i32, 0));
            bytes.fill(0);
            ok!(RCCE_get(bytes.raw(), all, size as i32, 0));
            bytes.holds(&vec![7; size], 0, "the whole MPB")
        })?;
    }
    Ok(())
}

fn cores(_: &Ctx) -> Verdict {
    for_all(
        [("0", 0), ("4", 1), ("47", 5), ("24", 3)],
        |(core, domain)| {
            job_with("UNIPGAS_RCCE_CORES", core, || {
                equal!(c!(RCCE_power_domain()), domain, "the domain of core {core}")
            })
        },
    )
}

fn other_launcher(_: &Ctx) -> Verdict {
    without_job(|| {
        let failed = RCCE_ERROR_CORE_NOT_IN_HOSTFILE;
        for (size, expected) in [("2", failed), ("1", 0)] {
            with("OMPI_COMM_WORLD_SIZE", size, || {
                let seen = c!(RCCE_init(null_mut(), null_mut()));
                equal!(seen, expected, "RCCE_init as one of {size} processes")
            })?;
        }
        ensure_eq!(c!(RCCE_num_ues()), 1, "the number of UEs");
        done!(RCCE_finalize())
    })
}

fn wrong_environment(_: &Ctx) -> Verdict {
    for (name, value) in [
        ("UNIPGAS_RCCE_MPB", "31"),
        ("UNIPGAS_RCCE_MPB", "many"),
        ("UNIPGAS_RCCE_CORES", "48"),
        ("UNIPGAS_RCCE_CORES", "1,1"),
        ("UNIPGAS_RCCE_CORES", "0,1"),
    ] {
        with(name, value, || {
            let seen = c!(RCCE_init(null_mut(), null_mut()));
            equal!(seen, RCCE_ERROR_CORE_NOT_IN_HOSTFILE, "{name}={value}")
        })?;
    }
    ok!(RCCE_init(null_mut(), null_mut()));
    barrier()?;
    done!(RCCE_finalize())
}

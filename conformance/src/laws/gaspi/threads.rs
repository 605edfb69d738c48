//! GASPI_Threads.h of release 1.6: threads of a process, and their meetings.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::kit::*;

laws! {
    meet: "threads.sync", "§3.1", 2,
        [gaspi_threads_init_user, gaspi_threads_register, gaspi_threads_run, gaspi_threads_sync, gaspi_threads_get_tid,
         gaspi_threads_get_total, gaspi_threads_term],
        "threads that are run get the numbers from 0 on, and none leaves a meeting before all have come";
    meet_everywhere: "threads.sync-all", "§11.2", 3, [gaspi_threads_sync_all, gaspi_threads_register],
        "no thread of any process leaves a meeting of all before all threads of all processes have come";
    ended: "threads.term", "§3.1", 1, [gaspi_threads_term, gaspi_threads_sync, gaspi_threads_sync_all],
        "gaspi_threads_term ends the calls in which threads wait for others";
    refused: "threads.refused", "§3.1", 1,
        [gaspi_threads_init_user, gaspi_threads_init, gaspi_threads_get_num_cores, gaspi_threads_register, gaspi_threads_run, gaspi_threads_term],
        "use before initialisation, a second initialisation, too many threads and null pointers are refused";
}

const THREADS: u32 = 3;
const ROUNDS: u64 = 50;

/// Number of threads that have come to each meeting.
static COME: [AtomicU32; ROUNDS as usize] = [const { AtomicU32::new(0) }; ROUNDS as usize];
static WRONG: AtomicU64 = AtomicU64::new(0);
static NUMBERS: AtomicU32 = AtomicU32::new(0);

fn meets() {
    let (mut number, mut same) = (-1, -2);
    let mut failed = c!(gaspi_threads_register(&mut number)) != SUCCESS;
    failed |= c!(gaspi_threads_get_tid(&mut same)) != SUCCESS || same != number;
    NUMBERS.fetch_or(1 << number, Ordering::AcqRel);
    for come in &COME {
        come.fetch_add(1, Ordering::AcqRel);
        c!(gaspi_threads_sync());
        failed |= come.load(Ordering::Acquire) != THREADS;
    }
    WRONG.fetch_add(failed.into(), Ordering::AcqRel);
    c!(gaspi_threads_sync());
}

extern "C" fn run(_: *mut c_void) -> *mut c_void {
    meets();
    null_mut()
}

fn meet(_: &Ctx) -> Verdict {
    COME.iter()
        .for_each(|come| come.store(0, Ordering::Release));
    NUMBERS.store(0, Ordering::Release);
    WRONG.store(0, Ordering::Release);
    ok!(gaspi_threads_init_user(THREADS));
    let total = got!(gaspi_threads_get_total());
    ensure_eq!(total, THREADS as i32, "gaspi_threads_get_total");
    for _ in 1..THREADS {
        ok!(gaspi_threads_run(Some(run), null_mut()));
    }
    meets();
    ensure_eq!(WRONG.load(Ordering::Acquire), 0, "threads with errors");
    let numbers = NUMBERS.load(Ordering::Acquire);
    ensure_eq!(numbers, (1 << THREADS) - 1, "the numbers, as bits");
    ok!(gaspi_threads_term());
    barrier()
}

fn meet_everywhere(ctx: &Ctx) -> Verdict {
    segment(0, 8 * ROUNDS as usize)?;
    ok!(gaspi_threads_init_user(THREADS));
    barrier()?;
    let all = u64::from(THREADS * ctx.size);
    threads(THREADS as usize, |_| {
        let (mut number, mut seen) = (0, 0);
        ok!(gaspi_threads_register(&mut number));
        for round in 0..ROUNDS {
            ok!(gaspi_atomic_fetch_add(0, 8 * round, 0, 1, &mut seen, LONG));
            ok!(gaspi_threads_sync_all(ALL, LONG));
            ok!(gaspi_atomic_fetch_add(0, 8 * round, 0, 0, &mut seen, LONG));
            ensure_eq!(seen, all, "threads that have come to meeting {round}");
        }
        Ok(())
    })?;
    ok!(gaspi_threads_term());
    barrier()
}

fn ended(ctx: &Ctx) -> Verdict {
    for of_all in [false, true] {
        ok!(gaspi_threads_init_user(2));
        threads(2, |which| {
            if which == 0 {
                pause(ctx.random(0).below(20));
                return done!(gaspi_threads_term());
            }
            let mut number = 0;
            c!(gaspi_threads_register(&mut number));
            match of_all {
                true => must_fail(c!(gaspi_threads_sync_all(ALL, BLOCK)), "a meeting"),
                false => {
                    c!(gaspi_threads_sync());
                    Ok(())
                }
            }
        })?;
    }
    Ok(())
}

fn refused(_: &Ctx) -> Verdict {
    let (mut number, null) = (0, null_mut());
    gives!(GASPI_ERROR, gaspi_threads_register(&mut number));
    gives!(GASPI_ERROR, gaspi_threads_get_tid(&mut number));
    gives!(GASPI_ERROR, gaspi_threads_get_total(&mut number));
    gives!(GASPI_ERROR, gaspi_threads_run(Some(run), null));
    gives!(GASPI_ERROR, gaspi_threads_sync_all(ALL, LONG));
    gives!(GASPI_ERROR, gaspi_threads_init_user(0));
    ok!(gaspi_threads_get_num_cores(&mut number));
    ensure!(number > 0, "{number} processors");
    let cores = got!(gaspi_threads_init());
    ensure_eq!(cores, number, "the threads of gaspi_threads_init");
    gives!(GASPI_ERROR, gaspi_threads_init_user(1));
    ok!(gaspi_threads_term());
    ok!(gaspi_threads_init_user(1));
    gives!(GASPI_ERROR, gaspi_threads_get_tid(&mut number));
    ok!(gaspi_threads_register(&mut number));
    ensure_eq!(number, 0, "the number of the only thread");
    gives!(GASPI_ERROR, gaspi_threads_register(&mut number));
    c!(gaspi_threads_sync());
    gives!(GASPI_ERR_NULLPTR, gaspi_threads_run(None, null));
    gives!(GASPI_ERR_NULLPTR, gaspi_threads_register(null_mut()));
    gives!(GASPI_ERR_NULLPTR, gaspi_threads_get_tid(null_mut()));
    gives!(GASPI_ERR_NULLPTR, gaspi_threads_get_total(null_mut()));
    gives!(GASPI_ERR_NULLPTR, gaspi_threads_get_num_cores(null_mut()));
    gives!(GASPI_ERR_NULLPTR, gaspi_threads_init(null_mut()));
    done!(gaspi_threads_term())
}

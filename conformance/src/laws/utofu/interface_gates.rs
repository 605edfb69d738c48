//! §3.4 and §3.8: VBGs and barrier communication outside of circuits.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::circuit::*;
use super::interface_management::every_path;
use super::kit::*;

laws! {
    all_gates: "vbg.ids", "§3.1.1.1, §3.4.3.1", 1, [alloc_vbg, query_vbg_info, free_vbg],
        "the VBGs of a TNI are its BGs, each once; BG ids are below 48, VBG ids differ between all TNIs";
    taken_apart with(TABLE + 8): "vbg.bits", "§3.1.1.1, §3.4.4.1", 2, [alloc_vbg, query_vbg_info, set_vbg, barrier, poll_barrier],
        "a VBG id is its BG, coordinates and TNI in the vendor's bits: programs that take ids apart and put others together build circuits";
    foreign circuit(ring(2)): "vbg.foreign", "§3.4.1.2, §3.4.2.1, §3.8", 2,
        [free_vbg, set_vbg, barrier, reduce_uint64, reduce_double, poll_barrier, poll_reduce_uint64, poll_reduce_double],
        "a process cannot free, set, start or poll another one's VBGs, nor take signals from another TNI; circuits stay as they are";
    paths with(TABLE + 8): "vbg.paths", "§3.4.4.1, §3.5", 2, [set_vbg, barrier, poll_barrier],
        "the packets of a circuit may take any path, named by its A, B, C, or left open by a null A";
    reductions_wait circuit(ring(3)): "barrier.not-before.reduce", "§3.8.2.2, §3.8.2.3", 3,
        [reduce_uint64, poll_reduce_uint64, reduce_double, poll_reduce_double],
        "polling a reduction returns NOT_COMPLETED at once while a participant has not started, and leaves the data alone";
    by_threads with(TABLE + 8): "vbg.threads", "§3.4.5.1", 2,
        [alloc_vbg, barrier, reduce_uint64, reduce_double, poll_barrier, poll_reduce_uint64, poll_reduce_double] + ordering,
        "threads start and poll on one thread-safe VBG: every start that is not BUSY ends once, with its result";
    other_kinds: "vbg.threads.kinds", "§3.4.5.1, §3.8.2", 1,
        [barrier, reduce_uint64, reduce_double, poll_barrier, poll_reduce_uint64, poll_reduce_double] + ordering,
        "while one thread starts, others poll for everything: each round is ended by the function that belongs to it";
}

fn all_gates(_: &Ctx) -> Verdict {
    let mut everywhere = BTreeSet::new();
    for tni in 0..6 {
        let mut ids = [0u64; 48];
        ok!(utofu_alloc_vbg(tni, 33, 0, ids.as_mut_ptr()));
        for id in &mut ids[33..] {
            ok!(utofu_alloc_vbg(tni, 1, 0, id));
        }
        let mut gates = BTreeSet::new();
        for id in ids {
            let (_, on, bg) = vbg_info(id)?;
            ensure_eq!(on, tni, "the TNI of {id:#x}");
            ensure!(gates.insert(bg), "BG {bg} of TNI {tni} twice");
            ensure!(everywhere.insert(id), "{id:#x} twice");
        }
        ensure!(gates.into_iter().eq(0..48), "BGs of TNI {tni}");
        free_gates(&ids[..33])?;
        for_all(&ids[33..], |id| free_gate(*id))?;
    }
    Ok(())
}

/// The fields of an ID by which programs find the BG, X, Y, Z, A, B, C and the TNI: first bit and number of bits.
const BITS: [(u32, u32); 8] = [
    (0, 6),
    (32, 8),
    (40, 8),
    (48, 8),
    (56, 1),
    (57, 2),
    (59, 1),
    (61, 3),
];

/// The ID that these parts form.
fn put_together(at: [u8; 6], tni: u16, bg: u16) -> u64 {
    let [x, y, z, a, b, c] = at.map(u64::from);
    let parts = [u64::from(bg), x, y, z, a, b, c, u64::from(tni)];
    BITS.iter()
        .zip(parts)
        .fold(0, |id, ((first, _), part)| id | part << first)
}

fn taken_apart(job: &Job<'_>) -> Verdict {
    for tni in 0..6 {
        // The other rank gets only the BG of the gate that starts here.
        let ids = gates::<4>(tni, 0)?;
        for id in ids {
            let (at, _, bg) = vbg_info(id)?;
            ensure_eq!(at, coords(job.rank)?, "coordinates of {id:#x}");
            ensure_eq!(id, put_together(at, tni, bg), "VBG {bg}, {tni}, {at:?}");
            let parts = BITS.map(|(first, bits)| id >> first & ((1 << bits) - 1));
            ensure_eq!(parts[0] < 16, id == ids[0], "if BG {} starts", parts[0]);
        }
        job.write(job.right(), TABLE, ids[0] & 0x3f)?;
        job.meet();
        let peer = put_together(coords(job.right())?, tni, job.memory.get(TABLE) as u16);
        set_gates(&[beside(ids[0], peer)])?;
        job.meet();
        for _ in 0..5 {
            one_barrier(ids[0])?;
        }
        job.meet();
        free_gates(&ids)?;
    }
    Ok(())
}

fn foreign(job: &Job<'_>, circuit: &Circuit, own: u64) -> Verdict {
    let elsewhere = got!(utofu_alloc_vbg(TNI + 1, 1, 0));
    job.write(job.right(), TABLE, own)?;
    job.meet();
    let theirs = job.memory.get(TABLE);
    ensure!(theirs != own, "both ranks have VBG {own:#x}");
    circuit.barrier()?;
    let (mut integers, mut doubles) = ([7u64; 6], [7f64; 3]);
    let wrong = || -> Verdict {
        gives! { UTOFU_ERR_INVALID_VBG_ID:
            utofu_free_vbg(std::ptr::from_ref(&theirs).cast_mut(), 1);
            utofu_barrier(theirs, 0);
            utofu_poll_barrier(theirs, 0);
        }
        let code = set_code(&[beside(theirs, NULL)]);
        code_is(code, UTOFU_ERR_INVALID_VBG_ID, "setting another's VBG")
    };
    wrong()?;
    gives! { UTOFU_ERR_INVALID_VBG_ID:
        utofu_reduce_uint64(theirs, SUM, integers.as_ptr().cast_mut(), 1, 0);
        utofu_reduce_double(theirs, BFPSUM, doubles.as_ptr().cast_mut(), 1, 0);
        utofu_poll_reduce_uint64(theirs, 0, integers.as_mut_ptr());
        utofu_poll_reduce_double(theirs, 0, doubles.as_mut_ptr());
    }
    ensure_eq!((integers, doubles), ([7; 6], [7.0; 3]), "data after errors");
    // Signals go from VBG to VBG of one TNI.
    for far in [theirs, elsewhere] {
        for inwards in [false, true] {
            let signals = if inwards { [far, own] } else { [own, far] };
            let setting = setting(own, signals, [NULL; 2]);
            let what = format!("a signal of {far:#x}, inwards: {inwards}");
            code_is(set_code(&[setting]), UTOFU_ERR_INVALID_VBG_ID, what)?;
        }
    }
    // One call sets VBGs of one allocation only.
    let code = set_code(&[beside(own, NULL), beside(elsewhere, NULL)]);
    code_is(code, UTOFU_ERR_INVALID_VBG_ID, "setting two allocations")?;
    job.meet();
    for _ in 0..20 {
        circuit.barrier()?;
    }
    // During a round of the other rank too.
    if job.rank == 0 {
        ok!(utofu_barrier(own, 0));
    }
    job.meet();
    wrong()?;
    job.meet();
    if job.rank == 1 {
        ok!(utofu_barrier(own, 0));
    }
    completed("the barrier", || c!(utofu_poll_barrier(own, 0)))?;
    free_gate(elsewhere)
}

/// Two ranks with a VBG each exchange packets over this path.
fn pair<T>(
    job: &Job<'_>,
    flags: u64,
    path: [u8; 3],
    body: impl FnOnce(u64) -> Result<T, String>,
) -> Result<T, String> {
    let id = got!(utofu_alloc_vbg(TNI, 1, flags));
    job.write(job.right(), TABLE, id)?;
    job.meet();
    let peer = job.memory.get(TABLE);
    let setting = utofu_vbg_setting {
        dst_path_coords: path,
        ..beside(id, peer)
    };
    set_gates(&[setting])?;
    job.meet();
    let done = body(id)?;
    job.meet();
    free_gate(id)?;
    Ok(done)
}

fn paths(job: &Job<'_>) -> Verdict {
    let open = [[u8::MAX, 0, 0], [u8::MAX, 9, 200], [u8::MAX; 3]];
    for path in every_path().chain(open) {
        pair(job, 0, path, |id| {
            for_all(0..5, |_| {
                one_barrier(id).map_err(|e| format!("over {path:?}: {e}"))
            })
        })?;
    }
    Ok(())
}

fn reductions_wait(job: &Job<'_>, _: &Circuit, id: u64) -> Verdict {
    let doubles = |all: [f64; 2]| all.map(f64::to_bits);
    let integers = (SUM, [1, 2], [3, 6]);
    let halves = (BFPSUM, doubles([0.25, 2.0]), doubles([0.75, 6.0]));
    for (late, (op, terms, [first, second])) in [
        (0, integers),
        (1, halves),
        (2, integers),
        (0, halves),
        (1, integers),
    ] {
        let start = || start(id, op, &terms);
        let mut data = [7u64; 6];
        let mut poll = || {
            let code = poll(id, op, &mut data);
            let [first, second] = if code == SUCCESS {
                [first, second]
            } else {
                [7; 2]
            };
            ensure_eq!(data, [first, second, 7, 7, 7, 7], "at {}", code_name(code));
            Ok::<_, String>(code)
        };
        if job.rank != late {
            ensure_eq!(start(), SUCCESS, "starting");
            let begin = Instant::now();
            while begin.elapsed() < Duration::from_millis(20) {
                ensure_eq!(poll()?, UTOFU_ERR_NOT_COMPLETED, "polling too early");
            }
        }
        job.meet();
        if job.rank == late {
            ensure_eq!(start(), SUCCESS, "starting late");
        }
        until_ok("the result", || Ok(poll()? == SUCCESS))?;
        job.meet();
    }
    Ok(())
}

/// A barrier, a reduction of an integer and of a double.
const KINDS: [u32; 3] = [0, SUM, BFPSUM];

/// Starts an operation of this kind, unless the VBG is busy.
fn started(id: u64, kind: usize) -> Result<bool, String> {
    let code = start(id, KINDS[kind], &[[0, 21, 0.75f64.to_bits()][kind]]);
    one_of(code, &[SUCCESS, BUSY], format!("starting kind {kind}"))?;
    Ok(code == SUCCESS)
}

/// Polls for the end. Returns whether it has come; checks the result of `ranks` ranks.
fn poll_kind(id: u64, kind: usize, ranks: u64) -> Result<bool, String> {
    let mut data = [0];
    let code = poll(id, KINDS[kind], &mut data);
    let allowed = [SUCCESS, BUSY, NOT_COMPLETED];
    one_of(code, &allowed, format!("polling kind {kind}"))?;
    if code == SUCCESS {
        let expected = [0, 21 * ranks, (0.75 * ranks as f64).to_bits()][kind];
        ensure_eq!(data, [expected], "the result of kind {kind}");
    }
    if code == BUSY {
        // The others need the CPU core.
        std::thread::yield_now();
    }
    Ok(code == SUCCESS)
}

fn by_threads(job: &Job<'_>) -> Verdict {
    const THREADS: usize = 3;
    let each = if job.ctx.is_quick() { 200 } else { 20 };
    for kind in 0..3 {
        let ended = AtomicUsize::new(0);
        pair(job, 1, [u8::MAX; 3], |id| {
            threads(THREADS, |_| {
                let look = || -> Verdict {
                    ended.fetch_add(poll_kind(id, kind, 2)?.into(), Ordering::AcqRel);
                    Ok(())
                };
                for _ in 0..each {
                    until_ok("a start", || match started(id, kind)? {
                        true => Ok(true),
                        false => look().map(|()| false),
                    })?;
                }
                until("the end of all rounds", || {
                    look().is_err() || ended.load(Ordering::Acquire) == THREADS * each
                })
            })?;
            ensure_eq!(ended.load(Ordering::Acquire), THREADS * each, "of {kind}");
            job.meet();
            ensure!(!poll_kind(id, kind, 2)?, "a round more has ended");
            Ok(())
        })?;
    }
    Ok(())
}

/// A circuit of one process, which ends each round at its start: threads wait only for each other.
fn other_kinds(_: &Ctx) -> Verdict {
    const ROUNDS: usize = 12_000;
    let id = got!(utofu_alloc_vbg(TNI, 1, 1));
    set_gates(&[beside(id, NULL)])?;
    let ended = [const { AtomicUsize::new(0) }; 3];
    let count = |kind: usize| ended[kind].load(Ordering::Acquire);
    threads(3, |thread| {
        if thread == 0 {
            for round in 0..ROUNDS {
                until_ok("a start", || started(id, round % 3))?;
            }
        }
        let (mut turn, mut looks) = (thread, Looks::new());
        loop {
            turn += 1;
            let kind = turn % 3;
            ended[kind].fetch_add(poll_kind(id, kind, 1)?.into(), Ordering::AcqRel);
            let seen = [0, 1, 2].map(count);
            if seen.iter().sum::<usize>() >= ROUNDS {
                return Ok(());
            }
            if turn.is_multiple_of(64) {
                looks.again();
            }
        }
    })?;
    ensure_eq!([0, 1, 2].map(count), [ROUNDS / 3; 3], "rounds of each kind");
    free_gate(id)
}

//! Beginning and end, numbers, time, variables, texts, debug output; §2.2, §9.1.

use std::ffi::{CStr, CString, c_char};

use super::kit::*;
use crate::kit::printed;

laws! {
    numbers: "environment.numbers", "RCCE RCCE_ue, RCCE_num_ues", 3, [RCCE_init, RCCE_ue, RCCE_num_ues, iRCCE_init],
        "every UE knows its number and how many there are; a second RCCE_init and a second iRCCE_init change nothing";
    variables: "environment.variables", "RCCE RCCE_lib.h", 3, [RCCE_init, RCCE_comm_size, RCCE_comm_rank],
        "RCCE_IAM, RCCE_NP, RC_COREID, RCCE_COMM_WORLD and the wildcards hold what the calls say";
    clock: "environment.clock", "RCCE RCCE_wtime", 2, [RCCE_wtime],
        "the clock counts seconds, never goes back, and is the same at all UEs";
    launcher_words: "environment.launcher-words", "RCCE RCCE_init", 2, [RCCE_init] + bare,
        "the words of RCCE's launcher are removed from the arguments, argv[0] stays, and the cores are as named there";
    own_words: "environment.own-words", "RCCE RCCE_init", 1, [RCCE_init] + bare,
        "arguments that only resemble the launcher's words are left alone";
    before_init: "environment.before-init", "RCCE RCCE_init", 1, [RCCE_ue, RCCE_num_ues, RCCE_barrier, iRCCE_init, RCCE_malloc] + bare,
        "calls before RCCE_init fail, and none crashes";
    after_finalize: "environment.after-finalize", "RCCE RCCE_finalize", 2, [RCCE_finalize, RCCE_ue, RCCE_num_ues, RCCE_barrier] + bare,
        "after RCCE_finalize the numbers are still known, other calls fail, and none crashes";
    finalize_waits: "environment.finalize-waits", "RCCE RCCE_finalize", 2, [RCCE_finalize] + bare,
        "RCCE_finalize waits for the others";
    texts: "errors.texts", "RCCE RCCE_error_string", 1, [RCCE_error_string],
        "every code but the last has a distinct text of at most 45 bytes with its end; others give length 0 and ERROR_INVALID_ERROR_CODE";
    debug_flags: "errors.debug-flags", "RCCE RCCE_debug_set", 1, [RCCE_debug_set, RCCE_debug_unset, RCCE_error_string],
        "errors are printed for the classes that are set, and for no others; wrong flags give ERROR_DEBUG_FLAG";
    debug_barrier: "errors.debug-barrier", "RCCE RCCE_barrier", 2, [RCCE_debug_set, RCCE_barrier],
        "with RCCE_DEBUG_SYNCH each UE tells that it has come to a barrier";
}

const ALL: i32 = 111_111;
const SYNCH: i32 = 111_444;
const COMM: i32 = 111_555;
const RPC: i32 = 111_666;
const DEBUG: i32 = 111_888;

fn numbers(ctx: &Ctx) -> Verdict {
    for _ in 0..2 {
        ensure_eq!((c!(RCCE_ue()), c!(RCCE_num_ues())), place(ctx), "place");
        ok!(RCCE_init(null_mut(), null_mut()));
        ok!(iRCCE_init());
    }
    Ok(())
}

fn variables(ctx: &Ctx) -> Verdict {
    let all = &library().rcce_variables;
    let iam = variable(all.RCCE_IAM, "RCCE_IAM");
    let np = variable(all.RCCE_NP, "RCCE_NP");
    let cores = variable(all.RC_COREID, "RC_COREID");
    ensure_eq!((iam, np), place(ctx), "RCCE_IAM and RCCE_NP");
    ensure_eq!(&cores[..3], &[0, 1, 2], "the first cores");
    let source = variable(all.iRCCE_ANY_SOURCE, "iRCCE_ANY_SOURCE");
    let length = variable(all.iRCCE_ANY_LENGTH, "iRCCE_ANY_LENGTH");
    ensure_eq!((source, length), (-1, -1), "the wildcards");
    let comm = world();
    ensure_eq!((comm.my_rank, comm.size), place(ctx), "RCCE_COMM_WORLD");
    ensure_eq!(&comm.member[..3], &[0, 1, 2], "its members");
    let (size, rank) = (got!(RCCE_comm_size(comm)), got!(RCCE_comm_rank(comm)));
    equal!((rank, size), place(ctx), "comm_rank and comm_size")
}

fn clock(ctx: &Ctx) -> Verdict {
    let begin = c!(RCCE_wtime());
    pause(30);
    let passed = c!(RCCE_wtime()) - begin;
    ensure!((0.029..10.0).contains(&passed), "30 ms took {passed} s");
    // The UEs pass times back and forth: each time is later than the received one.
    let other = 1 - ctx.rank as i32;
    let mut last = 0.0;
    for round in 0..50 {
        if (round + ctx.rank).is_multiple_of(2) {
            let now = c!(RCCE_wtime());
            ensure!(now >= last, "{now} is earlier than the other UE's {last}");
            send(&Bytes::of(&now.to_le_bytes()), other)?;
        } else {
            let bytes = receive(8, other)?;
            last = f64::from_le_bytes(bytes.try_into().expect("8 bytes"));
        }
    }
    Ok(())
}

/// Arguments as main has them.
struct Args {
    words: Vec<*mut c_char>,
    count: i32,
}

impl Args {
    fn new(line: &str) -> Args {
        let words = line.split(' ');
        let words: Vec<_> = words
            .map(|word| CString::new(word).expect("a word").into_raw())
            .collect();
        let count = words.len() as i32;
        let words = words.into_iter().chain([null_mut()]).collect();
        Args { words, count }
    }

    /// Calls RCCE_init and returns the remaining arguments.
    fn init(mut self) -> Result<String, String> {
        let mut argv = self.words.as_mut_ptr();
        ok!(RCCE_init(&mut self.count, &mut argv));
        let left: Vec<_> = (0..self.count as usize)
            .map(|nth| {
                // SAFETY:
                // - RCCE_init leaves `count` of the strings of `new`.
                let word = unsafe { CStr::from_ptr(*argv.add(nth)) };
                word.to_string_lossy().into_owned()
            })
            .collect();
        Ok(left.join(" "))
    }
}

fn launcher_words(_: &Ctx) -> Verdict {
    let left = Args::new("program 2 0.533 07 03 1000 x").init()?;
    ensure_eq!(left, "program 1000 x", "the arguments");
    let cores = variable(library().rcce_variables.RC_COREID, "RC_COREID");
    ensure_eq!(&cores[..2], &[3, 7], "the cores, ascending");
    done!(RCCE_finalize())
}

fn own_words(_: &Ctx) -> Verdict {
    for line in [
        "program",
        "program 1 2 3",
        "program 2 0.533 00 01",
        "program 1 1.5 99",
        "program 1 1.5 x",
        "program one 1.5 0",
        "program -1 0.5 0",
        "program 1 nan 0",
        "program 1 0.5",
    ] {
        ensure_eq!(Args::new(line).init()?, line, "the arguments");
        ok!(RCCE_finalize());
    }
    ensure_eq!(Args::new("program 1 0.8 05").init()?, "program", "args");
    done!(RCCE_finalize())
}

fn before_init(ctx: &Ctx) -> Verdict {
    let id = RCCE_ERROR_ID;
    if ctx.life_cycle == 1 {
        ensure_eq!((c!(RCCE_ue()), c!(RCCE_num_ues())), (0, 0), "place");
    }
    gives!(id, iRCCE_init());
    gives!(id, RCCE_barrier(null_mut()));
    gives!(id, iRCCE_isend(null_mut(), 0, 0, null_mut()));
    gives!(id, iRCCE_irecv_wait(null_mut()));
    gives!(id, RCCE_finalize());
    gives!(id, RCCE_acquire_lock(0));
    ensure!(c!(RCCE_malloc(32)).is_null(), "malloc before RCCE_init");
    ensure!(c!(RCCE_shmalloc(32)).is_null(), "before RCCE_init");
    c!(RCCE_free(null_mut()));
    ok!(RCCE_init(null_mut(), null_mut()));
    done!(RCCE_finalize())
}

fn after_finalize(ctx: &Ctx) -> Verdict {
    ok!(RCCE_init(null_mut(), null_mut()));
    ok!(RCCE_finalize());
    ensure_eq!((c!(RCCE_ue()), c!(RCCE_num_ues())), place(ctx), "place");
    let id = RCCE_ERROR_ID;
    gives!(id, RCCE_barrier(null_mut()));
    gives!(id, iRCCE_init());
    gives!(id, RCCE_finalize());
    gives!(id, RCCE_send(null_mut(), 0, 0));
    Ok(())
}

fn finalize_waits(ctx: &Ctx) -> Verdict {
    ok!(RCCE_init(null_mut(), null_mut()));
    let begin = std::time::Instant::now();
    ctx.sync();
    if ctx.rank == 1 {
        pause(200);
    }
    ok!(RCCE_finalize());
    ensure!(begin.elapsed().as_millis() >= 190, "{:?}", begin.elapsed());
    Ok(())
}

fn texts(_: &Ctx) -> Verdict {
    let mut seen = Vec::new();
    let last = RCCE_ERROR_COMM_INITIALIZED;
    for number in std::iter::once(0).chain(RCCE_ERROR_TARGET..=last) {
        let text = Bytes::filled(45, 0x55);
        let mut len = -7;
        ok!(RCCE_error_string(number, text.ptr(), &mut len));
        let bytes = text.get();
        let end = bytes.iter().position(|b| *b == 0);
        ensure_eq!(end, usize::try_from(len).ok(), "length of text {number}");
        ensure!(len > 0, "no text for {number}");
        let text = bytes[..len as usize].to_vec();
        ensure!(!seen.contains(&text), "text {number} is another's, too");
        seen.push(text);
    }
    ensure_eq!(seen.len(), 27, "texts");
    for wrong in [1, -1, 1_234_321, last + 1, last + 2, i32::MIN, i32::MAX] {
        let text = Bytes::filled(45, 0x55);
        let mut len = -7;
        gives! { RCCE_ERROR_INVALID_ERROR_CODE:
            RCCE_error_string(wrong, text.ptr(), &mut len);
            RCCE_error_string(wrong, null_mut(), null_mut());
        }
        ensure_eq!((len, text.get()[0]), (0, 0), "length and text of {wrong}");
    }
    done!(RCCE_error_string(0, null_mut(), null_mut()))
}

fn debug_flags(_: &Ctx) -> Verdict {
    // An error of each class.
    let calls = || {
        printed(|| {
            gives! {
                RCCE_acquire_lock(99) => RCCE_ERROR_ID;
                RCCE_send(null_mut(), 1, 99) => RCCE_ERROR_ID;
                RCCE_wait_power(&mut Default::default()) => RCCE_ERROR_NO_ACTIVE_RPC_REQUEST;
                RCCE_debug_set(5) => RCCE_ERROR_DEBUG_FLAG;
            }
            Ok(())
        })
    };
    let text = |number: i32| {
        let text = Bytes::filled(45, 0);
        c!(RCCE_error_string(number, text.ptr(), null_mut()));
        let text = String::from_utf8_lossy(&text.get()).into_owned();
        format!("Error on UE 0: {}\n", text.trim_end_matches('\0'))
    };
    let (id, debug) = (text(RCCE_ERROR_ID), text(RCCE_ERROR_DEBUG_FLAG));
    let power = text(RCCE_ERROR_NO_ACTIVE_RPC_REQUEST);
    ensure_eq!(calls()?, "", "with no flag set");
    for (flag, lines) in [
        (SYNCH, vec![&id]),
        (COMM, vec![&id]),
        (RPC, vec![&power]),
        (DEBUG, vec![&debug]),
        (ALL, vec![&id, &id, &power, &debug]),
    ] {
        ok!(RCCE_debug_set(flag));
        let lines: String = lines.into_iter().map(String::as_str).collect();
        ensure_eq!(calls()?, lines, "with flag {flag}");
        ok!(RCCE_debug_unset(flag));
        ensure_eq!(calls()?, "", "with flag {flag} unset again");
    }
    for wrong in [0, 1, 111_112, -1, i32::MIN] {
        gives!(RCCE_ERROR_DEBUG_FLAG, RCCE_debug_set(wrong));
        gives!(RCCE_ERROR_DEBUG_FLAG, RCCE_debug_unset(wrong));
    }
    Ok(())
}

fn debug_barrier(ctx: &Ctx) -> Verdict {
    ok!(RCCE_debug_set(SYNCH));
    let text = printed(barrier);
    ok!(RCCE_debug_unset(SYNCH));
    let line = format!("UE {} has checked into barrier\n", ctx.rank);
    ensure_eq!(text?, line, "what is printed");
    equal!(printed(barrier)?, "", "output without the flag")
}

//! §14.1: statistics.

use std::ffi::{CStr, c_char};

use super::kit::*;

laws! {
    told: "statistics.info", "§14.1.1, §14.1.2", 1,
        [gaspi_statistic_counter_max, gaspi_statistic_counter_info, gaspi_statistic_counter_get, gaspi_statistic_counter_reset] + bare,
        "each counter below the maximum has a name, a description, a known kind of argument and a level of 1 or more, in any phase; others are refused";
    counts: "statistics.counts", "§14.1.3, §14.1.4", 2,
        [gaspi_statistic_verbosity_level, gaspi_statistic_counter_get, gaspi_statistic_counter_get_17, gaspi_write, gaspi_read, gaspi_write_list,
         gaspi_passive_send],
        "successful calls and their bytes are counted, each time; refused calls are not";
    levels: "statistics.levels", "§14.1.3, §14.1.4", 2, [gaspi_statistic_verbosity_level, gaspi_statistic_counter_get],
        "a counter counts while the level is as high as its own, and keeps its value below; at level 0 nothing counts";
    by_rank: "statistics.ranks", "§14.1.4", 3, [gaspi_statistic_counter_get, gaspi_statistic_counter_info],
        "a counter with a rank as argument returns the value of that rank, and refuses an invalid rank";
    reset: "statistics.reset", "§14.1.5", 2, [gaspi_statistic_counter_reset, gaspi_statistic_counter_get],
        "a reset counter is 0, for all arguments, and no other one is changed";
    printed: "statistics.print", "§14.1", 1, [gaspi_statistic_print_counters] + bare,
        "the counters that are not 0 are printed, a line each";
}

/// Properties of a counter: whether its argument is a rank, its name and its level.
fn info(counter: u32) -> Result<(bool, String, u32), String> {
    let (mut argument, mut level) = (9, 0);
    let (mut name, mut description) = (std::ptr::null_mut::<c_char>(), null_mut());
    gives! { GASPI_SUCCESS:
        gaspi_statistic_counter_info(counter, &mut argument, &mut name, &mut description, &mut level);
    }
    ensure!(!name.is_null() && !description.is_null(), "{counter}: null");
    // SAFETY:
    // - contract of gaspi_statistic_counter_info: the texts end with a 0.
    let [name, description] = [name, description].map(|text| unsafe { CStr::from_ptr(text) });
    let empty = name.is_empty() || description.is_empty();
    ensure!(!empty, "the texts of counter {counter} are empty");
    ensure!(matches!(argument, 0 | 1), "{counter} takes a {argument}");
    ensure!(level >= 1, "counter {counter} has the level {level}");
    Ok((argument == 1, name.to_string_lossy().into_owned(), level))
}

/// The counter with this name and level.
fn find(name: &str, level: u32) -> Result<u32, String> {
    for counter in 0..got!(gaspi_statistic_counter_max()) {
        let (_, known, of) = info(counter)?;
        if known == name && of == level {
            return Ok(counter);
        }
    }
    Err(format!("there is no counter {name} of level {level}"))
}

fn value(counter: u32, argument: u32) -> Result<u64, String> {
    let value = got!(gaspi_statistic_counter_get(counter, argument));
    let short = got!(gaspi_statistic_counter_get_17(counter, argument));
    let least = u32::try_from(value).unwrap_or(u32::MAX);
    ensure!(short >= least, "counter {counter}: {value}, and {short}");
    Ok(value)
}

fn level(level: u32) -> Verdict {
    done!(gaspi_statistic_verbosity_level(level))
}

/// Stops counting and resets all counters.
fn clear() -> Verdict {
    level(0)?;
    for counter in 0..got!(gaspi_statistic_counter_max()) {
        ok!(gaspi_statistic_counter_reset(counter));
    }
    Ok(())
}

fn told(_: &Ctx) -> Verdict {
    let max = got!(gaspi_statistic_counter_max());
    ensure!(max > 0, "no counters");
    for counter in 0..max {
        info(counter)?;
        value(counter, 0)?;
    }
    let (mut number, mut long) = (0, 0);
    let mut text = null_mut();
    let mut other = null_mut();
    for counter in [max, max + 1, u32::MAX] {
        gives! { GASPI_ERROR:
            gaspi_statistic_counter_info(counter, &mut number, &mut text, &mut other, &mut number);
            gaspi_statistic_counter_get(counter, 0, &mut long);
            gaspi_statistic_counter_reset(counter);
        }
    }
    gives! { GASPI_ERR_NULLPTR:
        gaspi_statistic_counter_max(null_mut());
        gaspi_statistic_counter_get(0, 0, null_mut());
        gaspi_statistic_counter_get_17(0, 0, null_mut());
        gaspi_statistic_counter_info(0, &mut number, null_mut(), &mut other, &mut number);
    }
    Ok(())
}

fn counts(ctx: &Ctx) -> Verdict {
    segment(0, 256)?;
    clear()?;
    let calls = ["gaspi_write", "gaspi_read", "gaspi_write_list"];
    let bytes = ["bytes_written", "bytes_read", "bytes_sent"];
    let counters = calls.into_iter().chain(bytes).map(|name| find(name, 1));
    let counters: Vec<u32> = counters.collect::<Result<_, _>>()?;
    barrier()?;
    if ctx.rank == 0 {
        level(1)?;
        for_all(0..5, |_| done!(gaspi_write(0, 0, 1, 0, 8, 24, 0, LONG)))?;
        ok!(gaspi_read(0, 0, 1, 0, 8, 10, 0, LONG));
        let (ids, offsets, sizes) = ([0u8; 3], [0u64, 8, 16], [1u64, 2, 4]);
        let (id, at, size) = (ids.as_ptr(), offsets.as_ptr(), sizes.as_ptr());
        ok!(gaspi_write_list(3, id, at, 1, id, at, size, 0, LONG));
        gives!(GASPI_ERR_INV_SEG, gaspi_write(9, 0, 1, 0, 8, 24, 0, LONG));
        flush(0)?;
        ok!(gaspi_passive_send(0, 0, 1, 9, LONG));
        level(0)?;
        let seen: Vec<_> = counters.iter().map(|counter| value(*counter, 0)).collect();
        ensure_eq!(seen, [5, 1, 1, 5 * 24 + 7, 10, 9].map(Ok), "the counters");
    } else {
        receive(0, 64, 9)?;
    }
    clear()?;
    barrier()
}

fn levels(ctx: &Ctx) -> Verdict {
    segment(0, 64)?;
    clear()?;
    let (calls, time) = (find("gaspi_notify", 1)?, find("gaspi_notify", 2)?);
    barrier()?;
    let post = || -> Verdict { done!(gaspi_notify(0, right(ctx), 1, 1, 0, LONG)) };
    post()?;
    ensure_eq!((value(calls, 0)?, value(time, 0)?), (0, 0), "at level 0");
    level(1)?;
    post()?;
    ensure_eq!((value(calls, 0)?, value(time, 0)?), (1, 0), "at level 1");
    level(2)?;
    post()?;
    let spent = value(time, 0)?;
    ensure!(spent > 0, "no time has been spent at level 2");
    level(u32::MAX)?;
    post()?;
    level(0)?;
    post()?;
    ensure_eq!(value(calls, 0)?, 3, "calls at levels 1 and above");
    ensure!(value(time, 0)? > spent, "no time at the highest level");
    clear()?;
    flush(0)?;
    barrier()
}

fn by_rank(ctx: &Ctx) -> Verdict {
    segment(0, 64)?;
    clear()?;
    let to = find("bytes_written_to", 2)?;
    ensure!(info(to)?.0, "the argument of bytes_written_to is no rank");
    level(2)?;
    for rank in 0..ctx.size {
        for _ in 0..=rank {
            ok!(gaspi_write(0, 0, rank as u16, 0, 8, 8, 0, LONG));
        }
    }
    level(0)?;
    for rank in 0..ctx.size {
        ensure_eq!(value(to, rank)?, 8 * u64::from(rank + 1), "to rank {rank}");
    }
    let code = c!(gaspi_statistic_counter_get(to, 65_536, &mut 0));
    ensure_eq!(code, GASPI_ERR_INV_RANK, "the counter of rank 65536");
    clear()?;
    ensure_eq!(value(to, 1)?, 0, "bytes to rank 1 after a reset");
    flush(0)?;
    barrier()
}

fn reset(ctx: &Ctx) -> Verdict {
    segment(0, 64)?;
    clear()?;
    let (notices, writes) = (find("gaspi_notify", 1)?, find("gaspi_write", 1)?);
    level(1)?;
    ok!(gaspi_notify(0, right(ctx), 1, 1, 0, LONG));
    ok!(gaspi_write(0, 0, right(ctx), 0, 8, 8, 0, LONG));
    ok!(gaspi_statistic_counter_reset(notices));
    ensure_eq!((value(notices, 0)?, value(writes, 0)?), (0, 1), "counted");
    ok!(gaspi_notify(0, right(ctx), 1, 1, 0, LONG));
    ensure_eq!(value(notices, 0)?, 1, "after another call");
    clear()?;
    flush(0)?;
    barrier()
}

fn printed(_: &Ctx) -> Verdict {
    clear()?;
    let print = || {
        segment(0, 64)?;
        level(1)?;
        for_all(0..3, |nth| done!(gaspi_notify(0, 0, nth, 1, 0, LONG)))?;
        level(0)?;
        ok!(gaspi_statistic_print_counters());
        flush(0)
    };
    let text = crate::kit::printed(|| with_config(|_| {}, print))?;
    let lines = text.lines().map(|line| line.split_whitespace().collect());
    let lines: Vec<Vec<&str>> = lines.collect();
    ensure_eq!(lines.len(), 1, "lines of {text:?}");
    ensure_eq!(lines[0][..4], ["[", "0]", "gaspi_notify", "3"], "the line");
    clear()
}

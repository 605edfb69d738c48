//! §12, §13, §14.2: getters, version, time, error texts, shifted names.

use std::ffi::{CStr, c_char};

use super::kit::*;
use crate::kit::printed;
use crate::library::{library, offered};

laws! {
    getters_agree: "getters", "§12", 2,
        [gaspi_group_max, gaspi_segment_max, gaspi_queue_num, gaspi_queue_size_max, gaspi_queue_max, gaspi_transfer_size_max,
         gaspi_notification_num, gaspi_passive_transfer_size_max, gaspi_passive_transfer_size_min, gaspi_transfer_size_min,
         gaspi_atomic_max, gaspi_allreduce_buf_size,
         gaspi_allreduce_elem_max, gaspi_network_type, gaspi_build_infrastructure, gaspi_config_get],
        "the getters give the values of the configuration in force, the same at all ranks";
    version_at_any_time: "version", "§13.1.1", 1, [gaspi_version] + bare,
        "gaspi_version works in any phase and gives one version";
    clock in_each_phase(): "time", "§13.2.1", 1, [gaspi_time_get, gaspi_time_ticks, gaspi_time_resolution, gaspi_cpu_frequency] + bare,
        "time is in milliseconds and never goes back, in any phase; its resolution is a small positive number of milliseconds";
    texts in_each_phase(): "error-texts", "§13.3.2", 1, [gaspi_print_error, gaspi_error_message, gaspi_error_str] + bare,
        "every return code has a distinct text, in any phase; other numbers have the text of an unknown code";
    printed_there: "printf-to", "§13", 3, [gaspi_printf_to, gaspi_printf] + bare,
        "a text is written by the process that it is for, in one piece, behind the rank that it is from; one for a rank that does not exist, here";
    shifted_names: "shifted-names", "§14.2", 3,
        [pgaspi_proc_rank, pgaspi_proc_num, pgaspi_segment_create, pgaspi_segment_ptr, pgaspi_write, pgaspi_notify,
         pgaspi_write_notify, pgaspi_read, pgaspi_wait, pgaspi_notify_waitsome, pgaspi_notify_reset, pgaspi_queue_size,
         pgaspi_group_create, pgaspi_group_add, pgaspi_group_commit, pgaspi_barrier, pgaspi_allreduce, pgaspi_atomic_fetch_add,
         pgaspi_atomic_compare_swap, pgaspi_group_delete, pgaspi_segment_delete],
        "pgaspi_ names are the same procedures, on the same segments, queues and groups";
    small_extras: "extras", "§14.2.1", 1, [gaspi_pcontrol, gaspi_numa_socket, gaspi_set_socket_affinity, gaspi_delay],
        "gaspi_pcontrol, and the extensions about the machine, can be called";
}

fn getters_agree(_: &Ctx) -> Verdict {
    let config = config()?;
    macro_rules! getter {
        ($($name:ident: $ty:ty = $expected:expr;)*) => {$(
            let mut seen: $ty = 0;
            ok!($name(&mut seen));
            ensure_eq!(seen, $expected, "{}", stringify!($name));
            let (mut low, mut high) = (0u64, 0u64);
            let seen = seen as u64;
            ok!(gaspi_allreduce((&raw const seen).cast(), (&raw mut low).cast(), 1, 0, 5, ALL, LONG));
            ok!(gaspi_allreduce((&raw const seen).cast(), (&raw mut high).cast(), 1, 1, 5, ALL, LONG));
            ensure_eq!(low, high, "{} at the ranks, least and greatest", stringify!($name));
        )*};
    }
    getter! {
        gaspi_group_max: u32 = config.group_max;
        gaspi_segment_max: u32 = config.segment_max;
        gaspi_queue_num: u32 = config.queue_num;
        gaspi_queue_size_max: u32 = config.queue_size_max;
        gaspi_queue_max: u32 = 16;
        gaspi_transfer_size_max: u64 = config.transfer_size_max;
        gaspi_transfer_size_min: u64 = 0;
        gaspi_passive_transfer_size_min: u64 = 1;
        gaspi_notification_num: u32 = config.notification_num;
        gaspi_passive_transfer_size_max: u64 = u64::from(config.passive_transfer_size_max);
        gaspi_atomic_max: u64 = u64::MAX;
        gaspi_allreduce_buf_size: u64 = config.allreduce_buf_size;
        gaspi_allreduce_elem_max: u32 = config.allreduce_elem_max;
        gaspi_rw_list_elem_max: u32 = config.rw_list_elem_max;
        gaspi_network_type: u32 = config.network;
        gaspi_build_infrastructure: u32 = config.build_infrastructure;
    }
    Ok(())
}

fn version_at_any_time(_: &Ctx) -> Verdict {
    let before: f32 = got!(gaspi_version());
    ok!(gaspi_proc_init(LONG));
    let during = got!(gaspi_version());
    ok!(gaspi_proc_term(LONG));
    let seen = [before, during, got!(gaspi_version())];
    let one = seen[0] > 1.0 && seen == [seen[0]; 3];
    ensure!(one, "versions {seen:?}");
    Ok(())
}

/// Runs a check before, in and after the working phase.
fn in_each_phase(_: &Ctx, check: fn() -> Verdict) -> Verdict {
    check()?;
    ok!(gaspi_proc_init(LONG));
    check()?;
    ok!(gaspi_proc_term(LONG));
    check()
}

fn clock() -> Verdict {
    let (begin, begin_ticks) = (got!(gaspi_time_get()), got!(gaspi_time_ticks()));
    let (mut last, mut last_ticks): (f32, u64) = (begin, begin_ticks);
    for _ in 0..1000 {
        let (time, ticks) = (got!(gaspi_time_get()), got!(gaspi_time_ticks()));
        ensure!(time >= last, "the time went from {last} to {time}");
        ensure!(ticks >= last_ticks, "ticks {last_ticks}, then {ticks}");
        (last, last_ticks) = (time, ticks);
    }
    pause(50);
    let (time, ticks): (f32, u64) = (got!(gaspi_time_get()), got!(gaspi_time_ticks()));
    let slept = time - begin;
    ensure!((49.0..5000.0).contains(&slept), "50 ms took {slept} ms");
    let mut mhz = 0f32;
    ok!(gaspi_cpu_frequency(&mut mhz));
    let by_ticks = (ticks - begin_ticks) as f64 / f64::from(mhz) / 1e3;
    let near = (40.0..6000.0).contains(&by_ticks);
    ensure!(near, "50 ms took {by_ticks} by ticks of {mhz} MHz");
    let mut resolution = 0f32;
    ok!(gaspi_time_resolution(&mut resolution));
    ensure!(resolution > 0.0 && resolution <= 20.0, "{resolution} ms");
    Ok(())
}

/// The text; `None` for a null pointer.
fn text(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY:
    // - contract of the procedures: the text ends with a 0; it is not freed before the copy.
    let text = unsafe { CStr::from_ptr(text) };
    Some(text.to_string_lossy().into_owned())
}

fn texts() -> Verdict {
    let mut all = Vec::new();
    for code in -1..=28 {
        let (mut printed, mut message) = (null_mut(), null_mut());
        ok!(gaspi_print_error(code, &mut printed));
        let one = text(printed).unwrap_or_default();
        // SAFETY:
        // - contract of gaspi_print_error: the program frees the text; it is not used afterwards.
        unsafe { libc_free(printed) };
        ok!(gaspi_error_message(code, &mut message));
        ensure_eq!(text(message), Some(one.clone()), "error_message({code})");
        ensure_eq!(text(c!(gaspi_error_str(code))), Some(one.clone()), "{code}");
        ensure!(one.len() > 3, "the text of {code} is {one:?}");
        ensure!(!all.contains(&one), "{code} repeats the text {one:?}");
        all.push(one);
    }
    for code in [-2, -1000, 29, 1000, i32::MIN, i32::MAX] {
        let printed = got!(gaspi_print_error(code));
        let message = got!(gaspi_error_message(code));
        let seen = [printed, message, c!(gaspi_error_str(code))].map(|seen| text(seen));
        // SAFETY:
        // - as above.
        unsafe { libc_free(printed) };
        let expected = || Some("no return code of GASPI".to_owned());
        ensure_eq!(seen, [(); 3].map(|()| expected()), "the texts of {code}");
    }
    Ok(())
}

unsafe extern "C" {
    #[link_name = "free"]
    fn libc_free(memory: *mut c_char);
}

fn printed_there(ctx: &Ctx) -> Verdict {
    let me = ctx.rank as u16;
    let long = format!("{}\0", "0123456789".repeat(500));
    let all = &library().gaspi;
    let printf = offered(all.gaspi_printf, "gaspi_printf");
    let printf_to = offered(all.gaspi_printf_to, "gaspi_printf_to");
    let (long, format) = (long.as_ptr().cast::<c_char>(), c"%s %d\n".as_ptr());
    let print = || {
        // SAFETY:
        // - the arguments match the formats: C strings and numbers. A null format is accepted.
        unsafe {
            printf_to(1, format, long, i32::from(me));
            printf_to(1, c"short %d %.1f\n".as_ptr(), i32::from(me), 0.5f64);
            printf_to(u16::MAX, c"nowhere\n".as_ptr());
            printf_to(0, std::ptr::null());
            printf(c"here %d\n".as_ptr(), 7);
        }
        Ok(())
    };
    let seen = printed(|| with_config(|_| {}, print))?;
    let mut expected = vec![format!("[{me:4}] nowhere"), format!("[{me:4}] here 7")];
    for from in 0..if me == 1 { ctx.size } else { 0 } {
        let long = "0123456789".repeat(500);
        expected.push(format!("[{from:4}] {long} {from}"));
        expected.push(format!("[{from:4}] short {from} 0.5"));
    }
    let mut lines: Vec<&str> = seen.lines().collect();
    // The lines of different processes have no order.
    lines.sort_unstable();
    expected.sort_unstable();
    equal!(lines, expected, "the lines that rank {me} has printed")
}

fn shifted_names(ctx: &Ctx) -> Verdict {
    let (mut rank, mut num) = (0, 0);
    ok!(pgaspi_proc_rank(&mut rank));
    ok!(pgaspi_proc_num(&mut num));
    ensure_eq!(
        (u32::from(rank), u32::from(num)),
        (ctx.rank, ctx.size),
        "rank and number"
    );
    ok!(pgaspi_segment_create(0, 64, ALL, LONG, 0));
    let base = got!(pgaspi_segment_ptr(0));
    let memory = memory(0, 64)?;
    ensure_eq!(base, memory.base, "the segment's pointer by both names");
    memory.set(0, 30 + u64::from(rank));
    // One name posts, the other sees the effect.
    ok!(pgaspi_write(0, 0, right(ctx), 0, 8, 8, 4, LONG));
    ok!(gaspi_notify(0, right(ctx), 0, 1, 4, LONG));
    ensure!(queue_size(4)? >= 1, "a queue is empty after pgaspi_write");
    let (mut first, mut value) = (9, 0);
    ok!(pgaspi_notify_waitsome(0, 0, 10, &mut first, LONG));
    ok!(pgaspi_notify_reset(0, first, &mut value));
    ensure_eq!((first, value), (0, 1), "the notification");
    ensure_eq!(memory.get(8), 30 + u64::from(left(ctx)), "the word");
    ok!(pgaspi_wait(4, LONG));
    ensure_eq!(queue_size(4)?, 0, "the queue's size after pgaspi_wait");
    ok!(pgaspi_notify(0, right(ctx), 1, 3, 0, LONG));
    ensure_eq!(notified(0, 1)?, 3, "the notification of pgaspi_notify");
    let to = right(ctx);
    ok!(pgaspi_write_notify(0, 0, to, 0, 16, 8, 2, 4, 0, LONG));
    ensure_eq!(notified(0, 2)?, 4, "its notification");
    ok!(pgaspi_read(0, 24, right(ctx), 0, 0, 8, 0, LONG));
    ok!(gaspi_wait(0, LONG));
    memory.shows(24, 30 + u64::from(right(ctx)), "the word that was read")?;
    let group = got!(pgaspi_group_create());
    for_all(0..num, |rank| done!(pgaspi_group_add(group, rank)))?;
    ok!(pgaspi_group_commit(group, LONG));
    ok!(gaspi_barrier(group, LONG));
    ok!(pgaspi_barrier(group, LONG));
    let (send, mut sum) = (1u64, 0u64);
    let (from, into) = ((&raw const send).cast(), (&raw mut sum).cast());
    ok!(pgaspi_allreduce(from, into, 1, 2, 5, group, LONG));
    ensure_eq!(sum, u64::from(num), "the sum");
    let mut old = 9;
    ok!(pgaspi_atomic_fetch_add(0, 32, to, 6, &mut old, LONG));
    ensure_eq!(old, 0, "the old value");
    ensure_eq!(swap(0, 32, to, 6, 7)?, 6, "the old value");
    ok!(pgaspi_atomic_compare_swap(0, 32, to, 7, 8, &mut old, LONG));
    ensure_eq!(old, 7, "the old value");
    barrier()?;
    ensure_eq!(memory.get(32), 8, "the value");
    ok!(pgaspi_group_delete(group));
    ok!(pgaspi_segment_delete(0));
    let segments = got!(gaspi_segment_num());
    equal!(segments, 0, "segments after pgaspi_segment_delete")
}

fn small_extras(_: &Ctx) -> Verdict {
    ok!(gaspi_pcontrol(null_mut()));
    let mut socket = 0xee;
    // The job was not started with a NUMA node for each process.
    gives!(GASPI_ERR_ENV, gaspi_numa_socket(&mut socket));
    let code = c!(gaspi_set_socket_affinity(255));
    must_fail(code, "binding to NUMA node 255")?;
    c!(gaspi_delay());
    Ok(())
}

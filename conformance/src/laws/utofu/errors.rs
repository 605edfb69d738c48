//! Errors that queues report (§2.2.12, §3.1.2.1).

use super::functions::{Call, Function};
use super::kit::*;
use super::wrong::TOO_LONG;
use crate::library::{library, offered};

laws! {
    send_errors with(LEN): "errors.tcq", "§3.1.2.1", 2, [put, poll_tcq],
        "a local STADD that is unknown, or reaches past the end, gives its code in the TCQ with cbdata, with or without the flag";
    remote_errors with(LEN): "errors.mrq.remote", "§3.1.2.1", 2, [put, put_piggyback, put_piggyback8, get, armw4, armw8, cswap4, cswap8, poll_mrq],
        "a remote STADD that is unknown, past the end, read-only or misaligned comes out of the local MRQ by its code; the target notices nothing";
    local_errors with(LEN): "errors.mrq.local", "§3.1.2.1", 2, [get, poll_mrq],
        "a local STADD of Get that is unknown, past the end or read-only comes out of the MRQ by its code";
    after_deregistration with(LEN): "errors.deregistered", "§3.6.1.4", 2, [dereg_mem, put, get, armw8, poll_mrq, poll_tcq],
        "a STADD that has been deregistered is refused as local and as remote one, at once";
    last_error with(LEN): "errors.last", "beside the guide", 2, [get_last_error, put, poll_tcq, free_vcq],
        "the text of a thread's last error names function, code and meaning, and ends within 256 bytes; unsuccessful polls do not count";
}

const LEN: usize = 1024;

fn send_errors(job: &Job<'_>) -> Verdict {
    let end = job.stadd + LEN as u64;
    let right = job.vcq(job.right());
    let remote = job.at(job.right(), 512);
    let (stadd, length) = (UTOFU_ERR_TCQ_STADD, UTOFU_ERR_TCQ_LENGTH);
    let unused = stadd_of(job.vcq(job.rank), 99)?;
    let cases = [
        (0, 8, stadd, "0"),
        (u64::MAX, 8, stadd, "all ones"),
        (unused, 8, stadd, "an unused STag"),
        (job.stadd - 1, 8, stadd, "one before the begin"),
        (end, 8, stadd, "the end"),
        (end + 4096, 8, stadd, "past the end"),
        (end - 7, 8, length, "7 before the end"),
        (job.stadd, LEN + 1, length, "the begin, too long"),
        (job.stadd + 8, TOO_LONG - 1, length, "far too long"),
    ];
    for flags in [0, TCQ, TCQ | LOCAL, LOCAL | REMOTE] {
        for (nth, (local, len, code, what)) in cases.iter().enumerate() {
            post::put(job.hdl, right, *local, remote, *len).ok(1, flags, 100 + nth)?;
            let what = format!("a put of {len} from {what}");
            job.queue.tcq_is(*code, 100 + nth, &what)?;
            job.queue.mrq_is_empty()?;
            // The error keeps its place among other entries.
            ok!(utofu_nop(job.hdl, TCQ, cb(1)));
            post::put(job.hdl, right, *local, remote, *len).ok(1, flags, 2)?;
            ok!(utofu_nop(job.hdl, TCQ, cb(3)));
            for (code, cbdata) in [(SUCCESS, 1), (*code, 2), (SUCCESS, 3)] {
                job.queue.tcq_is(code, cbdata, &what)?;
            }
        }
    }
    // Read-only memory is a valid source.
    let fixed = Memory::new(256);
    fixed.set(0, 77);
    let readable = got!(utofu_reg_mem(job.hdl, fixed.base.cast(), 256, 1));
    post::put(job.hdl, right, readable, job.at(job.right(), 0), 8).noticed(1, 0)?;
    job.meet();
    ensure_eq!(job.memory.get(0), 77, "a put from read-only memory");
    job.memory.all(512, 512, 0, "memory after failed puts")?;
    job.queue.deregister(readable)?;
    job.queue.mrq_is_empty()
}

fn remote_errors(job: &Job<'_>) -> Verdict {
    // A second, read-only registration of other memory, and one of an odd length.
    let fixed = Memory::new(512);
    fixed.fill(0x3c);
    let base = fixed.base.cast();
    let stadd = got!(utofu_reg_mem_with_stag(job.hdl, base, 512, 8, 1));
    job.memory.fill(0x3c);
    job.meet();
    let right = job.vcq(job.right());
    let (begin, fixed_there) = (job.at(job.right(), 0), stadd_of(right, 8)?);
    let end = begin + LEN as u64;
    let unused = stadd_of(right, 99)?;
    let data = [1u8; 32].as_ptr();
    let to = |remote: u64, flags: u64| Call {
        remote,
        len: 64,
        edata: 0xe1,
        flags,
        old: 0x3c3c_3c3c_3c3c_3c3c,
        data,
        cbdata: 4,
        ..Call::to(job, job.right())
    };
    // With the number of bytes at the target.
    for (name, bytes) in [
        ("utofu_put", 64),
        ("utofu_put_piggyback", 32),
        ("utofu_put_piggyback8", 8),
        ("utofu_get", 64),
        ("utofu_armw4", 4),
        ("utofu_armw8", 8),
        ("utofu_cswap4", 4),
        ("utofu_cswap8", 8),
    ] {
        let function = Function::named(name);
        let kind = function.local_type();
        let (writes, aligned) = (kind != LCL_GET, kind == LCL_ARMW);
        let mut cases = vec![
            (0, UTOFU_ERR_MRQ_RMT_STADD, "0"),
            (u64::MAX, UTOFU_ERR_MRQ_RMT_STADD, "all ones"),
            (unused, UTOFU_ERR_MRQ_RMT_STADD, "an unused STag"),
            (end, UTOFU_ERR_MRQ_RMT_STADD, "the end"),
            (end + (1 << 30), UTOFU_ERR_MRQ_RMT_STADD, "past the end"),
        ];
        if !aligned {
            cases.push((end - bytes + 1, UTOFU_ERR_MRQ_RMT_LENGTH, "a byte too far"));
        }
        if writes {
            cases.push((fixed_there, UTOFU_ERR_MRQ_RMT_MEMORY, "read-only memory"));
        }
        for (at, code, what) in cases {
            for flags in [LOCAL, LOCAL | TCQ | REMOTE, 0, REMOTE] {
                let posted = function.post(&to(at, flags));
                ensure_eq!(posted, SUCCESS, "posting {name}");
                if flags & TCQ != 0 {
                    ensure_eq!(job.queue.tcq()?, 4, "cbdata of {name}: it was sent");
                }
                let (seen, notice) = job.queue.next_mrq()?;
                code_is(seen, code, format!("{name} at {what}"))?;
                let seen = (notice.notice_type, notice.vcq_id, notice.edata);
                ensure_eq!(seen, (kind, right, 0xe1), "{name} at {what}");
                job.queue.tcq_is_empty()?;
            }
        }
        if aligned {
            for off in 1..bytes {
                let posted = function.post(&to(begin + off, LOCAL));
                ensure_eq!(posted, SUCCESS, "posting {name}");
                let (seen, notice) = job.queue.next_mrq()?;
                let allowed = UTOFU_ERR_MRQ_RMT_LENGTH..=UTOFU_ERR_MRQ_OTHER;
                code_in(seen, allowed, format!("{name} at a misaligned word"))?;
                ensure_eq!(notice.notice_type, kind, "the notice of {name}");
            }
        }
    }
    job.meet();
    // The target gets no notice of the failures, and its memory is unchanged.
    job.queue.mrq_is_empty()?;
    job.memory
        .all(0, LEN, 0x3c, "memory after failed operations")?;
    fixed.all(0, 512, 0x3c, "read-only memory after failed operations")?;
    job.meet();
    post::get(job.hdl, right, job.stadd + 512, fixed_there, 256).ok(2, LOCAL | REMOTE, 0)?;
    let mut kinds = [job.queue.mrq()?.notice_type, job.queue.mrq()?.notice_type];
    kinds.sort();
    ensure_eq!(kinds, [LCL_GET, RMT_GET], "a get from read-only memory");
    job.meet();
    job.queue.deregister(stadd)
}

fn local_errors(job: &Job<'_>) -> Verdict {
    let fixed = Memory::new(512);
    let read_only = got!(utofu_reg_mem(job.hdl, fixed.base.cast(), 512, 1));
    job.memory.fill(0x77);
    job.meet();
    let right = job.vcq(job.right());
    let remote = job.at(job.right(), 0);
    let end = job.stadd + LEN as u64;
    for flags in [0, LOCAL, LOCAL | TCQ, REMOTE] {
        for (local, len, code, what) in [
            (0, 8, UTOFU_ERR_MRQ_LCL_STADD, "0"),
            (u64::MAX, 8, UTOFU_ERR_MRQ_LCL_STADD, "all ones"),
            (end, 8, UTOFU_ERR_MRQ_LCL_STADD, "the end"),
            (end + 4096, 8, UTOFU_ERR_MRQ_LCL_STADD, "past the end"),
            (end - 7, 8, UTOFU_ERR_MRQ_LCL_LENGTH, "a byte too far"),
            (read_only, 8, UTOFU_ERR_MRQ_LCL_MEMORY, "read-only memory"),
        ] {
            post::get(job.hdl, right, local, remote, len).ok(5, flags, 8)?;
            if flags & TCQ != 0 {
                ensure_eq!(job.queue.tcq()?, 8, "cbdata");
            }
            // The remote notice may come from the other rank, which makes the same calls.
            let (seen, notice) = loop {
                let (seen, notice) = job.queue.next_mrq()?;
                if seen != SUCCESS || notice.notice_type != RMT_GET {
                    break (seen, notice);
                }
            };
            code_is(seen, code, format!("a get to {what}"))?;
            ensure_eq!((notice.notice_type, notice.edata), (LCL_GET, 5), "notice");
            job.queue.tcq_is_empty()?;
        }
    }
    job.meet();
    while job.queue.poll_mrq().0 == SUCCESS {}
    job.memory.all(0, LEN, 0x77, "memory after failed gets")?;
    fixed.all(0, 512, 0, "read-only memory after failed gets")?;
    job.queue.deregister(read_only)
}

fn after_deregistration(job: &Job<'_>) -> Verdict {
    let extra = Memory::new(512);
    let right = job.vcq(job.right());
    for round in 0..20u64 {
        // The memory gets a new STADD in each round; the peer learns it by a put.
        let stadd = job.queue.register(extra)?;
        let named = job.queue.register_as(extra, 30)?;
        ensure_eq!(named, stadd_of(job.vcq(job.rank), 30)?, "a reserved STADD");
        job.write(job.right(), 8, stadd)?;
        job.meet();
        // From the left neighbour; with two ranks that is also the right one.
        let theirs = [job.memory.get(8), stadd_of(right, 30)?];
        let all = |expected: i32| {
            for remote in theirs {
                let here = job.stadd + 512;
                post::put(job.hdl, right, here, remote, 8).ok(1, LOCAL, 0)?;
                post::get(job.hdl, right, here, remote, 8).ok(1, LOCAL, 0)?;
                post::armw8(job.hdl, right, ADD, 0, remote).ok(1, LOCAL, 0)?;
                for_all(0..3, |_| {
                    code_is(job.queue.next_mrq()?.0, expected, format!("round {round}"))
                })?;
            }
            Ok::<_, String>(())
        };
        all(SUCCESS)?;
        job.meet();
        job.queue.deregister(stadd)?;
        job.queue.deregister(named)?;
        job.meet();
        all(UTOFU_ERR_MRQ_RMT_STADD)?;
        for local in [stadd, named] {
            post::put(job.hdl, right, local, job.at(job.right(), 0), 8).ok(1, 0, 6)?;
            ensure_eq!(job.queue.next_tcq()?, (UTOFU_ERR_TCQ_STADD, 6), "a put");
            post::get(job.hdl, right, local, job.at(job.right(), 0), 8).ok(1, 0, 6)?;
            ensure_eq!(job.queue.next_mrq()?.0, UTOFU_ERR_MRQ_LCL_STADD, "a get");
        }
        job.meet();
    }
    Ok(())
}

/// The text of the last error. Fails if the call writes behind the text.
fn text_of_last_error() -> Result<String, String> {
    let mut room = [b'#'; 512];
    let get = offered(library().utofu_get_last_error, "utofu_get_last_error");
    // SAFETY:
    // - `room` has 512 bytes; the header asks for 256.
    unsafe { get(room.as_mut_ptr().cast()) };
    let end = room.iter().position(|byte| *byte == 0);
    let end = end.ok_or("the text has no end")?;
    ensure!(end < 256, "a text of {end} bytes");
    let kept = room[end + 1..].iter().all(|byte| *byte == b'#');
    ensure!(kept, "bytes behind the text were written");
    String::from_utf8(room[..end].to_vec()).map_err(|error| error.to_string())
}

fn last_error(job: &Job<'_>) -> Verdict {
    let right = job.vcq(job.right());
    // For a thread without errors, beside threads with errors.
    let none = || {
        ensure_eq!(text_of_last_error()?, "no error", "without an error");
        job.queue.tcq_is_empty()?;
        equal!(
            text_of_last_error()?,
            "no error",
            "after an unsuccessful poll"
        )
    };
    threads(1, |_| none())?;
    post::put(job.hdl, right, 0, job.at(job.right(), 0), 8).ok(1, TCQ, 1)?;
    ensure_eq!(job.queue.next_tcq()?.0, UTOFU_ERR_TCQ_STADD, "the put");
    let seen = text_of_last_error()?;
    for part in [
        "utofu_poll_tcq",
        "UTOFU_ERR_TCQ_STADD",
        "-131",
        "The local STADD is outside of registered memory",
    ] {
        ensure!(seen.contains(part), "{seen:?} has no {part:?}");
    }
    ensure_eq!(text_of_last_error()?, seen, "asked again");
    job.queue.tcq_is_empty()?;
    job.write(job.right(), 8, 1)?;
    ensure_eq!(text_of_last_error()?, seen, "after calls that succeed");
    threads(1, |_| none())?;
    gives!(UTOFU_ERR_INVALID_VCQ_HDL, utofu_free_vcq(0));
    let seen = text_of_last_error()?;
    let other = seen.starts_with("utofu_free_vcq: UTOFU_ERR_INVALID_VCQ_HDL");
    ensure!(other, "{seen:?} after another error");
    let get = offered(library().utofu_get_last_error, "utofu_get_last_error");
    // SAFETY:
    // - the function accepts null and returns.
    unsafe { get(null_mut()) };
    Ok(())
}

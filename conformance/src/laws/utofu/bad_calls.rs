//! Wrong arguments of start and preparation functions, of batches and polls (§3.7).

use std::ops::RangeInclusive;
use std::ptr::null;

use super::functions::{Call, Function, Room, functions, right_call};
use super::kit::*;
use super::wrong::{freed, unassigned, wrong_handles, wrong_vcq_ids};

laws! {
    start_arguments with(1024): "bad.start", "§3.7.1", 2,
        [put, put_gap, put_stride, put_stride_gap, put_piggyback, put_piggyback8, get, get_gap, get_stride, get_stride_gap,
         armw4, armw8, cswap4, cswap8, nop],
        "every start function refuses wrong handles, VCQ ids, EDATA, flags, path ids, sizes, operations, MTUs, gaps; nothing is posted";
    prepare_arguments with(1024): "bad.prepare", "§3.7.2", 2,
        [prepare_put, prepare_put_gap, prepare_put_stride, prepare_put_stride_gap, prepare_put_piggyback, prepare_put_piggyback8,
         prepare_get, prepare_get_gap, prepare_get_stride, prepare_get_stride_gap, prepare_armw4, prepare_armw8, prepare_cswap4,
         prepare_cswap8, prepare_nop],
        "every preparation function refuses the same, and descriptors that are null or misaligned; nothing is written";
    descriptors with(1024): "bad.post_toq", "§3.7.3.1", 2, [post_toq, prepare_put],
        "descriptors of garbage, of another VCQ, cut, misaligned, null or too many are refused, and none of a batch is posted";
    poll_arguments: "bad.poll", "§3.7.4", 1, [poll_tcq, poll_mrq, query_num_unread_tcq, query_num_unread_mrq],
        "polls and queries refuse wrong handles, null pointers and flags, and write nothing where nothing is found";
}

/// The codes of wrong arguments of any kind.
const SOME_ARGUMENT: RangeInclusive<i32> = UTOFU_ERR_INVALID_DATA..=UTOFU_ERR_INVALID_ARG;

/// Calls each function with one wrong argument at a time; `call` gets the function and its arguments.
fn wrong_arguments(job: &Job<'_>, call: impl Fn(&Function, &Call) -> i32, right: &Call) -> Verdict {
    let gone = freed()?;
    for function in functions() {
        let has = |what: &str| function.takes.contains(what);
        let expect = |code: i32, wrong: Call| {
            let what = format!("{} of {wrong:?}", function.name);
            code_is(call(&function, &wrong), code, what)
        };
        for hdl in wrong_handles(gone) {
            expect(UTOFU_ERR_INVALID_VCQ_HDL, Call { hdl, ..*right })?;
        }
        for flags in unassigned() {
            expect(UTOFU_ERR_INVALID_FLAGS, Call { flags, ..*right })?;
        }
        // §2.2.8.1: undefined except for Put.
        if !function.name.contains("put") || function.name.contains("piggyback") {
            let flags = sps(1);
            expect(UTOFU_ERR_INVALID_FLAGS, Call { flags, ..*right })?;
        }
        for flags in [13, 14, 128, 255].map(path) {
            expect(UTOFU_ERR_INVALID_PATH_ID, Call { flags, ..*right })?;
        }
        if has("target") {
            // A VCQ ID with coordinates outside of the network is as wrong as an ID without a VCQ.
            for to in wrong_vcq_ids(right.to) {
                expect(UTOFU_ERR_INVALID_VCQ_ID, Call { to, ..*right })?;
            }
            for edata in [256, 1 << 32, u64::MAX] {
                expect(UTOFU_ERR_INVALID_EDATA, Call { edata, ..*right })?;
            }
        }
        if function.most < usize::MAX {
            for len in [function.most + 1, 1 << 32, usize::MAX] {
                expect(UTOFU_ERR_INVALID_SIZE, Call { len, ..*right })?;
            }
        }
        if has("data") {
            let data = null();
            expect(UTOFU_ERR_INVALID_POINTER, Call { data, ..*right })?;
        }
        if has("op") {
            for op in [0, 6, 7, 255, u32::MAX] {
                expect(UTOFU_ERR_INVALID_OP, Call { op, ..*right })?;
            }
        }
        if has("blocks") {
            let blocks = 0;
            expect(UTOFU_ERR_INVALID_NUMBER, Call { blocks, ..*right })?;
        }
        if has("packets") {
            // The guide has no specific codes for these.
            for (mtu, gap) in [(1921, 0), (usize::MAX, 0), (1920, 256), (1, usize::MAX)] {
                let seen = call(&function, &Call { mtu, gap, ..*right });
                let what = format!("{} with MTU {mtu} and gap {gap}", function.name);
                code_in(seen, SOME_ARGUMENT, what)?;
            }
        }
        job.queue.has_nothing()?;
    }
    Ok(())
}

fn start_arguments(job: &Job<'_>) -> Verdict {
    job.memory.fill(0xa5);
    job.meet();
    let (mut room, mut size) = (Room([0x77; 2 * DESC]), 7);
    let right = right_call(job, &mut room, &mut size);
    wrong_arguments(job, |function, call| (function.start)(call), &right)?;
    // More blocks than any TOQ holds: the call must refuse them with some code.
    for function in functions() {
        if function.takes.contains("blocks") {
            for blocks in [1 << 20, 1 << 35, 1 << 58, usize::MAX] {
                let code = (function.start)(&Call { blocks, ..right });
                let what = format!("{} of {blocks} blocks", function.name);
                one_of(code, &[UTOFU_ERR_INVALID_NUMBER, BUSY], what)?;
            }
        }
    }
    ensure_eq!(
        job.queue.unread_tcq()?,
        0,
        "commands posted by calls that were refused"
    );
    job.meet();
    job.queue.mrq_is_empty()?;
    job.memory
        .all(0, 1024, 0xa5, "memory after calls that were refused")?;
    job.meet();
    // With right arguments each function succeeds.
    for function in functions() {
        let flags = TCQ | LOCAL;
        let call = Call { flags, ..right };
        ensure_eq!((function.start)(&call), SUCCESS, "{}", function.name);
        ensure_eq!(job.queue.tcq()?, 3, "cbdata of {}", function.name);
        if function.name != "utofu_nop" {
            let notice = job.queue.mrq()?;
            ensure_eq!(notice.edata, 255, "EDATA of {}", function.name);
        }
    }
    Ok(())
}

fn prepare_arguments(job: &Job<'_>) -> Verdict {
    let (mut room, mut size) = (Room([0x77; 2 * DESC]), 7);
    let right = right_call(job, &mut room, &mut size);
    wrong_arguments(job, |function, call| (function.prepare)(call), &right)?;
    for function in functions() {
        let prepare = function.prepare;
        let (desc, size) = (null_mut(), null_mut());
        for wrong in [Call { desc, ..right }, Call { size, ..right }] {
            let what = format!("{} of {wrong:?}", function.name);
            code_is(prepare(&wrong), UTOFU_ERR_INVALID_POINTER, what)?;
        }
        for off in [1, 2, 4, 7] {
            let desc = right.desc.wrapping_add(off);
            let code = prepare(&Call { desc, ..right });
            let what = format!("{} with a misaligned desc", function.name);
            code_in(code, SOME_ARGUMENT, what)?;
        }
    }
    ensure!(room.0 == [0x77; 2 * DESC], "a descriptor was written");
    equal!(size, 7, "desc_size after errors")
}

fn descriptors(job: &Job<'_>) -> Verdict {
    let other = Queue::with_component(TNI, 1, 0)?;
    let (mut room, mut size) = (Room([0x77; 2 * DESC]), 7);
    let right = right_call(job, &mut room, &mut size);
    let put = functions()[0];
    let post = |hdl: usize, desc: *const u8, size: usize| {
        c!(utofu_post_toq(hdl, desc.cast_mut().cast(), size, cb(9)))
    };
    for_all(wrong_handles(freed()?), |wrong| {
        code_is(
            post(wrong, right.desc, 0),
            UTOFU_ERR_INVALID_VCQ_HDL,
            "a wrong handle",
        )
    })?;
    code_is(post(job.hdl, null(), 64), UTOFU_ERR_INVALID_POINTER, "null")?;
    code_is(post(job.hdl, null(), 0), SUCCESS, "none, of 0 bytes")?;
    // Garbage: in a batch of two, only the second descriptor is wrong.
    let quiet = Call {
        flags: TCQ,
        ..right
    };
    code_is((put.prepare)(&quiet), SUCCESS, "preparing")?;
    ensure_eq!(size, DESC, "the size of a descriptor");
    let good: [u8; DESC] = room.0[..DESC].try_into().expect("as long");
    let invalid = [
        UTOFU_ERR_INVALID_DESC,
        UTOFU_ERR_INVALID_SIZE,
        UTOFU_ERR_INVALID_POINTER,
    ];
    let mut random = job.ctx.random(u64::from(job.rank));
    for nth in 0..300 {
        let mut garbage = [0u8; DESC];
        match nth {
            0 => {}
            1 => garbage.fill(0xff),
            _ => random.fill(&mut garbage),
        }
        room.0[..DESC].copy_from_slice(&good);
        room.0[DESC..].copy_from_slice(&garbage);
        for (from, size) in [(0, 2 * DESC), (DESC, DESC)] {
            let code = post(job.hdl, &raw const room.0[from], size);
            one_of(code, &invalid, "garbage")?;
        }
    }
    room.0[..DESC].copy_from_slice(&good);
    let base = room.0.as_ptr();
    let sizes = [
        1,
        63,
        65,
        100,
        1 << 40,
        1 << 63,
        usize::MAX - 63,
        usize::MAX,
    ];
    let misaligned = [(1, DESC), (4, DESC)];
    for (off, size) in sizes.map(|size| (0, size)).into_iter().chain(misaligned) {
        let code = post(job.hdl, base.wrapping_add(off), size);
        one_of(code, &invalid, format!("{size} bytes {off} further"))?;
    }
    // With another VCQ, in both directions.
    let (hdl, what) = (other.hdl, "a descriptor of another VCQ");
    code_is(post(hdl, base, DESC), UTOFU_ERR_INVALID_DESC, what)?;
    let code = (put.prepare)(&Call { hdl, ..quiet });
    code_is(code, SUCCESS, "preparing for the other")?;
    let code = post(job.hdl, room.0.as_ptr(), DESC);
    code_is(code, UTOFU_ERR_INVALID_DESC, what)?;
    job.queue.tcq_is_empty()?;
    other.tcq_is_empty()?;
    room.0[..DESC].copy_from_slice(&good);
    ensure_eq!(post(job.hdl, room.0.as_ptr(), DESC), SUCCESS, "right");
    ensure_eq!(job.queue.tcq()?, 9, "its cbdata");
    job.meet();
    other.free()
}

fn poll_arguments(_ctx: &Ctx) -> Verdict {
    let gone = freed()?;
    let queue = Queue::with_component(TNI, 0, 0)?;
    let (mut cbdata, mut count) = (cb(0x77), 7usize);
    let mut notice = utofu_mrq_notice {
        edata: 0x77,
        ..utofu_mrq_notice::default()
    };
    for wrong in wrong_handles(gone) {
        gives! { UTOFU_ERR_INVALID_VCQ_HDL:
            utofu_poll_tcq(wrong, 0, &mut cbdata);
            utofu_poll_mrq(wrong, 0, &mut notice);
            utofu_query_num_unread_tcq(wrong, &mut count);
            utofu_query_num_unread_mrq(wrong, &mut count);
        }
    }
    for bit in 0..64 {
        gives! { UTOFU_ERR_INVALID_FLAGS:
            utofu_poll_tcq(queue.hdl, 1 << bit, &mut cbdata);
            utofu_poll_mrq(queue.hdl, 1 << bit, &mut notice);
        }
    }
    gives! {
        UTOFU_ERR_INVALID_POINTER: utofu_poll_tcq(queue.hdl, 0, null_mut());
        UTOFU_ERR_INVALID_POINTER: utofu_poll_mrq(queue.hdl, 0, null_mut());
        UTOFU_ERR_INVALID_POINTER: utofu_query_num_unread_tcq(queue.hdl, null_mut());
        UTOFU_ERR_INVALID_POINTER: utofu_query_num_unread_mrq(queue.hdl, null_mut());
        UTOFU_ERR_NOT_FOUND: utofu_poll_tcq(queue.hdl, 0, &mut cbdata);
        UTOFU_ERR_NOT_FOUND: utofu_poll_mrq(queue.hdl, 0, &mut notice);
    }
    ensure!(
        cbdata == cb(0x77) && notice.edata == 0x77 && count == 7,
        "something was written"
    );
    // A refused poll removes no entry.
    ok!(utofu_nop(queue.hdl, TCQ, cb(5)));
    gives! {
        UTOFU_ERR_INVALID_POINTER: utofu_poll_tcq(queue.hdl, 0, null_mut());
        UTOFU_ERR_INVALID_FLAGS: utofu_poll_tcq(queue.hdl, 1, &mut cbdata);
    }
    ensure_eq!(queue.tcq()?, 5, "cbdata after refused polls");
    queue.free()
}

//! Wrong arguments of every function (§3.1.2.1), and errors that queues report (§2.2.12).

use std::ptr::{null, null_mut};

use unipgas::utofu::ffi::MrqNotice;
use unipgas::utofu::status::Code;
use unipgas::utofu::vbg::VbgSetting;

use super::barrier::NULL;
use super::kit::*;
use crate::law::{Ctx, Random, Verdict};
use crate::{ensure, ensure_eq};

laws! {
    tni_arguments: "bad.tni", "§3.2.1", 1,
        [get_onesided_tnis, get_barrier_tnis, query_onesided_caps, query_barrier_caps, query_my_coords],
        "null pointers and wrong TNI ids give INVALID_POINTER and INVALID_TNI_ID, and nothing is written";
    vcq_arguments: "bad.vcq", "§3.3", 1,
        [create_vcq, create_vcq_with_cmp_id, free_vcq, query_vcq_id, construct_vcq_id, set_vcq_id_path, query_vcq_info],
        "VCQ management refuses null pointers, wrong ids, handles, flags, coordinates and paths, each by its code";
    path_arguments: "bad.path", "§3.5.1", 1, [get_path_id, get_path_coords, set_vcq_id_path],
        "path functions refuse null pointers, wrong VCQ ids, path ids and coordinates";
    vbg_arguments: "bad.vbg", "§3.4", 1, [alloc_vbg, free_vbg, set_vbg, query_vbg_info],
        "VBG management refuses null pointers, wrong ids, numbers, flags and paths, and sets nothing then";
    barrier_arguments: "bad.barrier", "§3.8", 1,
        [barrier, reduce_uint64, reduce_double, poll_barrier, poll_reduce_uint64, poll_reduce_double],
        "barrier functions refuse null pointers, wrong VBG ids, operations, numbers and flags";
    stadd_arguments: "bad.stadd", "§3.6.1", 1, [reg_mem, reg_mem_with_stag, query_stadd, dereg_mem],
        "STADD management refuses null pointers, wrong handles, addresses, sizes, STags, flags and STADDs";
    start_arguments: "bad.start", "§3.7.1", 2,
        [put, put_gap, put_stride, put_stride_gap, put_piggyback, put_piggyback8, get, get_gap, get_stride, get_stride_gap,
         armw4, armw8, cswap4, cswap8, nop],
        "every start function refuses wrong handles, VCQ ids, EDATA, flags, path ids, sizes, operations, MTUs, gaps; nothing is posted";
    prepare_arguments: "bad.prepare", "§3.7.2", 2,
        [prepare_put, prepare_put_gap, prepare_put_stride, prepare_put_stride_gap, prepare_put_piggyback, prepare_put_piggyback8,
         prepare_get, prepare_get_gap, prepare_get_stride, prepare_get_stride_gap, prepare_armw4, prepare_armw8, prepare_cswap4,
         prepare_cswap8, prepare_nop],
        "every preparation function refuses the same, and descriptors that are null or misaligned; nothing is written";
    descriptors: "bad.post_toq", "§3.7.3.1", 2, [post_toq, prepare_put],
        "descriptors of garbage, of another VCQ, cut, misaligned, null or too many are refused, and none of a batch is posted";
    poll_arguments: "bad.poll", "§3.7.4", 1, [poll_tcq, poll_mrq, query_num_unread_tcq, query_num_unread_mrq],
        "polls and queries refuse wrong handles, null pointers and flags, and write nothing where nothing is found";
    send_errors: "errors.tcq", "§3.1.2.1", 2, [put, poll_tcq],
        "a local STADD that is unknown, past the end, or whose range is, comes out of the TCQ by its code with cbdata, asked for or not";
    remote_errors: "errors.mrq.remote", "§3.1.2.1", 2, [put, put_piggyback, put_piggyback8, get, armw4, armw8, cswap4, cswap8, poll_mrq],
        "a remote STADD that is unknown, past the end, read-only or misaligned comes out of the local MRQ by its code; the target notices nothing";
    local_errors: "errors.mrq.local", "§3.1.2.1", 2, [get, poll_mrq],
        "a local STADD of Get that is unknown, past the end or read-only comes out of the MRQ by its code";
    after_deregistration: "errors.deregistered", "§3.6.1.4", 2, [dereg_mem, put, get, armw8, poll_mrq, poll_tcq],
        "a STADD that has been deregistered is refused as local and as remote one, at once";
    anything: "bad.random", "§3.1.2.1", 2, [put, get, post_toq, set_vbg, barrier, reg_mem, dereg_mem, query_vcq_info] + ordering,
        "thousands of calls with arguments from a heap of strange numbers: codes are those of the guide, foreign memory stays as it was";
}

const TOO_LONG: usize = 1 << 24;
/// Flag bits that have no meaning.
fn unassigned() -> impl Iterator<Item = u64> {
    [4, 6, 7, 9, 10, 11, 12, 13]
        .into_iter()
        .chain(16..24)
        .chain(36..64)
        .map(|bit| 1u64 << bit)
}

/// Numbers that are no VCQ id.
fn wrong_vcq_ids(right: u64) -> Vec<u64> {
    vec![
        0,
        1,
        u64::MAX,
        NULL,
        0x5a5a_5a5a_5a5a_5a5a,
        // A TNI and a CQ that no node has.
        right | 7 << 7,
        right | 15 << 3,
        right ^ 1 << 50,
        right ^ 1 << 63,
        // Coordinates outside of the network.
        right | 0xff << 26,
        right | 0xff << 10,
    ]
}

fn wrong_handles(freed: usize) -> [usize; 7] {
    [
        0,
        1,
        0x5a5a_5a5a,
        usize::MAX,
        freed,
        freed ^ 1 << 20,
        0xffff,
    ]
}

/// The handle of a VCQ that has been freed.
fn freed() -> Result<usize, String> {
    let queue = Queue::with_component(TNI, 7, 0)?;
    queue.free()?;
    Ok(queue.hdl)
}

fn tni_arguments(_ctx: &Ctx) -> Verdict {
    let (mut ids, mut number) = (null_mut::<u16>(), 77usize);
    gives!(
        InvalidPointer,
        utofu_get_onesided_tnis(null_mut(), &mut number)
    );
    gives!(
        InvalidPointer,
        utofu_get_barrier_tnis(null_mut(), &mut number)
    );
    gives!(
        InvalidPointer,
        utofu_get_onesided_tnis(&mut ids, null_mut())
    );
    gives!(InvalidPointer, utofu_get_barrier_tnis(&mut ids, null_mut()));
    ensure!(ids.is_null() && number == 77, "something was written");
    let (mut onesided, mut barrier) = (null(), null());
    for tni in [6, 7, 9, 255, 256, u16::MAX] {
        gives!(InvalidTniId, utofu_query_onesided_caps(tni, &mut onesided));
        gives!(InvalidTniId, utofu_query_barrier_caps(tni, &mut barrier));
    }
    ensure!(
        onesided.is_null() && barrier.is_null(),
        "something was written"
    );
    gives!(InvalidPointer, utofu_query_onesided_caps(0, null_mut()));
    gives!(InvalidPointer, utofu_query_barrier_caps(0, null_mut()));
    gives!(InvalidPointer, utofu_query_my_coords(null_mut()));
    // These have no code.
    c!(utofu_query_tofu_version(null_mut(), null_mut()));
    c!(utofu_query_utofu_version(null_mut(), null_mut()));
    Ok(())
}

fn vcq_arguments(_ctx: &Ctx) -> Verdict {
    let mut hdl = 7;
    for tni in [6, 7, 256, u16::MAX] {
        gives!(InvalidTniId, utofu_create_vcq(tni, 0, &mut hdl));
        gives!(
            InvalidTniId,
            utofu_create_vcq_with_cmp_id(tni, 0, 0, &mut hdl)
        );
    }
    for component in [8, 9, 256, u16::MAX] {
        gives!(
            InvalidCmpId,
            utofu_create_vcq_with_cmp_id(0, component, 0, &mut hdl)
        );
    }
    for bit in 3..64 {
        gives!(InvalidFlags, utofu_create_vcq(0, 1 << bit, &mut hdl));
        gives!(
            InvalidFlags,
            utofu_create_vcq_with_cmp_id(0, 0, 1 << bit, &mut hdl)
        );
    }
    gives!(
        InvalidFlags,
        utofu_create_vcq(0, EXCLUSIVE | SESSION_MODE, &mut hdl)
    );
    gives!(
        InvalidFlags,
        utofu_create_vcq_with_cmp_id(0, 0, EXCLUSIVE, &mut hdl)
    );
    gives!(
        InvalidFlags,
        utofu_create_vcq_with_cmp_id(0, 0, SESSION_MODE, &mut hdl)
    );
    ensure_eq!(hdl, 7, "the handle after errors");
    gives!(InvalidPointer, utofu_create_vcq(0, 0, null_mut()));
    gives!(
        InvalidPointer,
        utofu_create_vcq_with_cmp_id(0, 0, 0, null_mut())
    );
    // Nothing was created by all that.
    let queue = Queue::with_component(0, 0, 0)?;
    let mut id = 7;
    for wrong in wrong_handles(freed()?) {
        gives!(InvalidVcqHdl, utofu_free_vcq(wrong));
        gives!(InvalidVcqHdl, utofu_query_vcq_id(wrong, &mut id));
    }
    gives!(InvalidPointer, utofu_query_vcq_id(queue.hdl, null_mut()));
    let at = coords(0)?;
    gives!(
        InvalidPointer,
        utofu_construct_vcq_id(null(), 0, 0, 0, &mut id)
    );
    gives!(
        InvalidPointer,
        utofu_construct_vcq_id(at.as_ptr(), 0, 0, 0, null_mut())
    );
    for axis in 0..6 {
        let mut outside = at;
        outside[axis] = u8::MAX;
        gives!(
            InvalidCoords,
            utofu_construct_vcq_id(outside.as_ptr(), 0, 0, 0, &mut id)
        );
    }
    gives!(
        InvalidTniId,
        utofu_construct_vcq_id(at.as_ptr(), 6, 0, 0, &mut id)
    );
    gives!(
        InvalidCqId,
        utofu_construct_vcq_id(at.as_ptr(), 0, 9, 0, &mut id)
    );
    gives!(
        InvalidCmpId,
        utofu_construct_vcq_id(at.as_ptr(), 0, 0, 8, &mut id)
    );
    ensure_eq!(id, 7, "the id after errors");
    let (mut place, mut tni, mut cq, mut extra) = ([9u8; 6], 9u16, 9u16, 9u16);
    for wrong in wrong_vcq_ids(queue.id) {
        gives!(
            InvalidVcqId,
            utofu_query_vcq_info(wrong, place.as_mut_ptr(), &mut tni, &mut cq, &mut extra)
        );
        let mut id = wrong;
        gives!(InvalidVcqId, utofu_set_vcq_id_path(&mut id, null()));
        ensure_eq!(id, wrong, "a wrong id after set_vcq_id_path");
    }
    gives!(
        InvalidPointer,
        utofu_query_vcq_info(queue.id, null_mut(), &mut tni, &mut cq, &mut extra)
    );
    gives!(
        InvalidPointer,
        utofu_query_vcq_info(
            queue.id,
            place.as_mut_ptr(),
            null_mut(),
            &mut cq,
            &mut extra
        )
    );
    gives!(
        InvalidPointer,
        utofu_query_vcq_info(
            queue.id,
            place.as_mut_ptr(),
            &mut tni,
            null_mut(),
            &mut extra
        )
    );
    gives!(
        InvalidPointer,
        utofu_query_vcq_info(queue.id, place.as_mut_ptr(), &mut tni, &mut cq, null_mut())
    );
    ensure_eq!(
        (place, tni, cq, extra),
        ([9; 6], 9, 9, 9),
        "places after errors"
    );
    gives!(InvalidPointer, utofu_set_vcq_id_path(null_mut(), null()));
    queue.free()?;
    gives!(InvalidVcqHdl, utofu_free_vcq(queue.hdl));
    Ok(())
}

fn path_arguments(_ctx: &Ctx) -> Verdict {
    let id = vcq_of(0, 0, 0)?;
    let (mut path, mut at) = (99u8, [99u8; 3]);
    for wrong in wrong_vcq_ids(id) {
        gives!(InvalidVcqId, utofu_get_path_id(wrong, null(), &mut path));
        gives!(
            InvalidVcqId,
            utofu_get_path_coords(wrong, 1, at.as_mut_ptr())
        );
    }
    for outside in [
        [2, 0, 0],
        [0, 3, 0],
        [0, 0, 2],
        [255, 255, 255],
        [0, 0, 255],
    ] {
        gives!(
            InvalidPath,
            utofu_get_path_id(id, outside.as_ptr(), &mut path)
        );
        let mut with = id;
        gives!(
            InvalidPath,
            utofu_set_vcq_id_path(&mut with, outside.as_ptr())
        );
        ensure_eq!(with, id, "the VCQ id after a wrong path");
    }
    for wrong in [0, 13, 14, 128, 255] {
        let code = c!(utofu_get_path_coords(id, wrong, at.as_mut_ptr()));
        ensure!(
            code == Code::InvalidPathId as i32,
            "path id {wrong}: {}",
            code_name(code)
        );
    }
    ensure_eq!((path, at), (99, [99; 3]), "places after errors");
    gives!(InvalidPointer, utofu_get_path_id(id, null(), null_mut()));
    gives!(InvalidPointer, utofu_get_path_coords(id, 1, null_mut()));
    Ok(())
}

fn setting(id: u64) -> VbgSetting {
    VbgSetting {
        vbg_id: id,
        src_lcl_vbg_id: id,
        src_rmt_vbg_id: NULL,
        dst_lcl_vbg_id: id,
        dst_rmt_vbg_id: NULL,
        dst_path_coords: [u8::MAX; 3],
    }
}

fn wrong_vbg_ids(right: u64) -> [u64; 8] {
    [
        0,
        1,
        0x6000_0000_0000_0000 ^ u64::MAX,
        // A BG and a TNI that no node has, other bits, outside of the network.
        right | 63,
        right | 7 << 7,
        right ^ 1 << 62,
        right | 1 << 45,
        right | 0xff << 26,
    ]
}

fn vbg_arguments(_ctx: &Ctx) -> Verdict {
    let mut ids = [7u64; 4];
    for tni in [6, 7, 255, u16::MAX] {
        gives!(InvalidTniId, utofu_alloc_vbg(tni, 1, 0, ids.as_mut_ptr()));
    }
    gives!(InvalidNumber, utofu_alloc_vbg(0, 0, 0, ids.as_mut_ptr()));
    for bit in 1..64 {
        gives!(
            InvalidFlags,
            utofu_alloc_vbg(0, 1, 1 << bit, ids.as_mut_ptr())
        );
    }
    gives!(InvalidPointer, utofu_alloc_vbg(0, 1, 0, null_mut()));
    ensure_eq!(ids, [7; 4], "ids after errors");
    let mut other = [0u64; 3];
    ok!(utofu_alloc_vbg(0, 3, 0, ids.as_mut_ptr()));
    ok!(utofu_alloc_vbg(0, 3, 0, other.as_mut_ptr()));
    ensure_eq!(ids[3], 7, "the place behind the ids");
    // Freeing: all of one allocation, or nothing.
    gives!(InvalidPointer, utofu_free_vbg(null(), 3));
    for number in [0, 1, 2, 4, 48] {
        let mut all = [ids[0]; 48];
        all[..3].copy_from_slice(&ids[..3]);
        gives!(InvalidNumber, utofu_free_vbg(all.as_ptr(), number));
    }
    let mixed = [ids[0], ids[1], other[2]];
    gives!(InvalidVbgId, utofu_free_vbg(mixed.as_ptr(), 3));
    let turned = [ids[1], ids[2], ids[0]];
    gives!(InvalidVbgId, utofu_free_vbg(turned.as_ptr(), 3));
    // Setting.
    gives!(InvalidPointer, utofu_set_vbg(null(), 1));
    let right = setting(ids[0]);
    let four = [right, setting(ids[1]), setting(ids[2]), setting(ids[2])];
    gives!(InvalidNumber, utofu_set_vbg(four.as_ptr(), 0));
    gives!(InvalidNumber, utofu_set_vbg(four.as_ptr(), 4));
    gives!(InvalidVbgId, utofu_set_vbg(four[1..].as_ptr(), 1));
    let twice = [right, setting(ids[1]), setting(ids[1])];
    gives!(InvalidVbgId, utofu_set_vbg(twice.as_ptr(), 3));
    let foreign = [right, setting(other[1])];
    gives!(InvalidVbgId, utofu_set_vbg(foreign.as_ptr(), 2));
    for wrong in wrong_vbg_ids(ids[0]) {
        for field in 0..5 {
            let mut settings = [right, setting(ids[1])];
            let s = &mut settings[1];
            *[
                &mut s.vbg_id,
                &mut s.src_lcl_vbg_id,
                &mut s.src_rmt_vbg_id,
                &mut s.dst_lcl_vbg_id,
                &mut s.dst_rmt_vbg_id,
            ][field] = wrong;
            let code = c!(utofu_set_vbg(settings.as_ptr(), 2));
            ensure!(
                code == Code::InvalidVbgId as i32,
                "{wrong:#x} in field {field}: {}",
                code_name(code)
            );
        }
    }
    for path in [[2, 0, 0], [0, 3, 0], [0, 0, 2]] {
        let with = VbgSetting {
            dst_rmt_vbg_id: other[0],
            dst_path_coords: path,
            ..right
        };
        gives!(InvalidPath, utofu_set_vbg(&with, 1));
    }
    // Nothing was set: there is no circuit.
    let code = c!(utofu_barrier(ids[0], 0));
    ensure!(
        code < 0,
        "a barrier without a circuit gave {}",
        code_name(code)
    );
    let (mut at, mut tni, mut bg, mut extra) = ([9u8; 6], 9u16, 99u16, 9u16);
    for wrong in wrong_vbg_ids(ids[0]) {
        gives!(
            InvalidVbgId,
            utofu_query_vbg_info(wrong, at.as_mut_ptr(), &mut tni, &mut bg, &mut extra)
        );
    }
    gives!(
        InvalidVbgId,
        utofu_query_vbg_info(NULL, at.as_mut_ptr(), &mut tni, &mut bg, &mut extra)
    );
    gives!(
        InvalidPointer,
        utofu_query_vbg_info(ids[0], null_mut(), &mut tni, &mut bg, &mut extra)
    );
    gives!(
        InvalidPointer,
        utofu_query_vbg_info(ids[0], at.as_mut_ptr(), null_mut(), &mut bg, &mut extra)
    );
    gives!(
        InvalidPointer,
        utofu_query_vbg_info(ids[0], at.as_mut_ptr(), &mut tni, null_mut(), &mut extra)
    );
    gives!(
        InvalidPointer,
        utofu_query_vbg_info(ids[0], at.as_mut_ptr(), &mut tni, &mut bg, null_mut())
    );
    ensure_eq!((at, tni, bg), ([9; 6], 9, 99), "places after errors");
    ok!(utofu_free_vbg(ids.as_ptr(), 3));
    gives!(InvalidVbgId, utofu_free_vbg(ids.as_ptr(), 3));
    gives!(InvalidVbgId, utofu_set_vbg(&right, 1));
    ok!(utofu_free_vbg(other.as_ptr(), 3));
    Ok(())
}

fn barrier_arguments(_ctx: &Ctx) -> Verdict {
    let mut ids = [0u64; 2];
    ok!(utofu_alloc_vbg(1, 2, 0, ids.as_mut_ptr()));
    // A circuit of one: the start signals to the relay, which signals back.
    let pair = [
        VbgSetting {
            src_lcl_vbg_id: ids[1],
            dst_lcl_vbg_id: ids[1],
            ..setting(ids[0])
        },
        VbgSetting {
            src_lcl_vbg_id: ids[0],
            dst_lcl_vbg_id: ids[0],
            ..setting(ids[1])
        },
    ];
    ok!(utofu_set_vbg(pair.as_ptr(), 2));
    let (data, reals) = ([1u64; 8], [1f64; 8]);
    let (mut out, mut real) = ([7u64; 8], [7f64; 8]);
    let mut wrong: Vec<u64> = wrong_vbg_ids(ids[0]).to_vec();
    wrong.extend([ids[1], NULL]);
    for id in wrong {
        gives!(InvalidVbgId, utofu_barrier(id, 0));
        gives!(
            InvalidVbgId,
            utofu_reduce_uint64(id, 7, data.as_ptr(), 1, 0)
        );
        gives!(
            InvalidVbgId,
            utofu_reduce_double(id, 8, reals.as_ptr(), 1, 0)
        );
        gives!(InvalidVbgId, utofu_poll_barrier(id, 0));
        gives!(
            InvalidVbgId,
            utofu_poll_reduce_uint64(id, 0, out.as_mut_ptr())
        );
        gives!(
            InvalidVbgId,
            utofu_poll_reduce_double(id, 0, real.as_mut_ptr())
        );
    }
    let end = ids[0];
    for flags in [1, 2, 1 << 63, u64::MAX] {
        gives!(InvalidFlags, utofu_barrier(end, flags));
        gives!(
            InvalidFlags,
            utofu_reduce_uint64(end, 7, data.as_ptr(), 1, flags)
        );
        gives!(
            InvalidFlags,
            utofu_reduce_double(end, 8, reals.as_ptr(), 1, flags)
        );
        gives!(InvalidFlags, utofu_poll_barrier(end, flags));
        gives!(
            InvalidFlags,
            utofu_poll_reduce_uint64(end, flags, out.as_mut_ptr())
        );
        gives!(
            InvalidFlags,
            utofu_poll_reduce_double(end, flags, real.as_mut_ptr())
        );
    }
    for op in [0, 1, 8, 9, 255, u32::MAX] {
        gives!(InvalidOp, utofu_reduce_uint64(end, op, data.as_ptr(), 1, 0));
    }
    for op in (0..8).chain([9, u32::MAX]) {
        gives!(
            InvalidOp,
            utofu_reduce_double(end, op, reals.as_ptr(), 1, 0)
        );
    }
    for number in [0, 7, 8, 1 << 40, usize::MAX] {
        gives!(
            InvalidNumber,
            utofu_reduce_uint64(end, 7, data.as_ptr(), number, 0)
        );
    }
    for number in [0, 4, 8, 1 << 40, usize::MAX] {
        gives!(
            InvalidNumber,
            utofu_reduce_double(end, 8, reals.as_ptr(), number, 0)
        );
    }
    gives!(InvalidPointer, utofu_reduce_uint64(end, 7, null(), 1, 0));
    gives!(InvalidPointer, utofu_reduce_double(end, 8, null(), 1, 0));
    gives!(InvalidPointer, utofu_poll_reduce_uint64(end, 0, null_mut()));
    gives!(InvalidPointer, utofu_poll_reduce_double(end, 0, null_mut()));
    ensure_eq!((out, real), ([7; 8], [7.0; 8]), "results after errors");
    // Nothing has been started, and the circuit works.
    ok!(utofu_reduce_uint64(end, 7, data.as_ptr(), 2, 0));
    gives!(InvalidPointer, utofu_poll_reduce_uint64(end, 0, null_mut()));
    ok!(utofu_poll_reduce_uint64(end, 0, out.as_mut_ptr()));
    ensure_eq!(out, [1, 1, 7, 7, 7, 7, 7, 7], "the result");
    ok!(utofu_free_vbg(ids.as_ptr(), 2));
    gives!(InvalidVbgId, utofu_barrier(end, 0));
    gives!(InvalidVbgId, utofu_poll_barrier(end, 0));
    Ok(())
}

fn stadd_arguments(_ctx: &Ctx) -> Verdict {
    let gone = freed()?;
    let queue = Queue::with_component(TNI, 0, 0)?;
    let memory = Memory::leaked(1024);
    let base = memory.base;
    let mut stadd = 7u64;
    for wrong in wrong_handles(gone) {
        gives!(InvalidVcqHdl, utofu_reg_mem(wrong, base, 8, 0, &mut stadd));
        gives!(
            InvalidVcqHdl,
            utofu_reg_mem_with_stag(wrong, base, 256, 3, 0, &mut stadd)
        );
        gives!(InvalidVcqHdl, utofu_dereg_mem(wrong, 1 << 62, 0));
    }
    gives!(
        InvalidPointer,
        utofu_reg_mem(queue.hdl, base, 8, 0, null_mut())
    );
    gives!(
        InvalidPointer,
        utofu_reg_mem_with_stag(queue.hdl, base, 256, 3, 0, null_mut())
    );
    gives!(
        InvalidSize,
        utofu_reg_mem(queue.hdl, base, 0, 0, &mut stadd)
    );
    for size in [usize::MAX, 1 << 63, 1 << 47] {
        let code = c!(utofu_reg_mem(queue.hdl, base, size, 0, &mut stadd));
        ensure!(
            code < 0,
            "{size:#x} bytes were registered: {}",
            code_name(code)
        );
    }
    let code = c!(utofu_reg_mem(queue.hdl, null_mut(), 8, 0, &mut stadd));
    ensure!(
        code == Code::InvalidAddress as i32 || code == Code::InvalidPointer as i32,
        "memory at 0: {}",
        code_name(code)
    );
    for bit in 1..64 {
        gives!(
            InvalidFlags,
            utofu_reg_mem(queue.hdl, base, 8, 1 << bit, &mut stadd)
        );
        gives!(
            InvalidFlags,
            utofu_reg_mem_with_stag(queue.hdl, base, 256, 3, 1 << bit, &mut stadd)
        );
    }
    for off in [1, 8, 128, 255] {
        let at = base.wrapping_add(off);
        gives!(
            InvalidAddress,
            utofu_reg_mem_with_stag(queue.hdl, at, 256, 3, 0, &mut stadd)
        );
        gives!(
            InvalidSize,
            utofu_reg_mem_with_stag(queue.hdl, base, 256 + off, 3, 0, &mut stadd)
        );
    }
    gives!(
        InvalidSize,
        utofu_reg_mem_with_stag(queue.hdl, base, 0, 3, 0, &mut stadd)
    );
    for stag in [256, 257, 1 << 20, u32::MAX] {
        gives!(
            InvalidStag,
            utofu_reg_mem_with_stag(queue.hdl, base, 256, stag, 0, &mut stadd)
        );
        gives!(InvalidStag, utofu_query_stadd(queue.id, stag, &mut stadd));
    }
    for wrong in wrong_vcq_ids(queue.id) {
        gives!(InvalidVcqId, utofu_query_stadd(wrong, 3, &mut stadd));
    }
    ensure_eq!(stadd, 7, "the STADD after errors");
    gives!(InvalidPointer, utofu_query_stadd(queue.id, 3, null_mut()));
    let real = queue.register(memory)?;
    let named = queue.register_as(memory, 3)?;
    let fourth = stadd_of(queue.id, 4)?;
    for wrong in [
        0,
        1,
        u64::MAX,
        real + 1,
        real + 1024,
        named + 256,
        fourth,
        real ^ 1 << 62,
        real ^ 1 << 53,
    ] {
        let code = c!(utofu_dereg_mem(queue.hdl, wrong, 0));
        ensure!(
            code == Code::InvalidStadd as i32,
            "deregistering {wrong:#x}: {}",
            code_name(code)
        );
    }
    for bit in 0..64 {
        gives!(InvalidFlags, utofu_dereg_mem(queue.hdl, real, 1 << bit));
    }
    queue.deregister(real)?;
    gives!(InvalidStadd, utofu_dereg_mem(queue.hdl, real, 0));
    queue.deregister(named)?;
    gives!(InvalidStadd, utofu_dereg_mem(queue.hdl, named, 0));
    queue.free()
}

/// Arguments of a start function; each takes what it knows.
#[derive(Clone, Copy)]
pub(super) struct Call {
    pub(super) hdl: usize,
    pub(super) to: u64,
    pub(super) local: u64,
    pub(super) remote: u64,
    pub(super) len: usize,
    pub(super) edata: u64,
    pub(super) flags: u64,
    pub(super) op: u32,
    pub(super) mtu: usize,
    pub(super) gap: usize,
    pub(super) stride: usize,
    pub(super) blocks: usize,
    pub(super) data: *const u8,
    pub(super) desc: *mut u8,
    pub(super) size: *mut usize,
    pub(super) cbdata: usize,
}

#[derive(Clone, Copy)]
pub(super) struct Function {
    pub(super) name: &'static str,
    pub(super) start: fn(&Call) -> i32,
    pub(super) prepare: fn(&Call) -> i32,
    /// What it takes beside handle and flags.
    pub(super) takes: &'static str,
    /// The longest length.
    pub(super) most: usize,
}

/// Both forms of a function, with the same arguments.
macro_rules! function {
    ($start:ident, $prepare:ident, $takes:literal, $most:expr, |$a:ident| $($arg:expr),*) => {
        Function {
            name: stringify!($start),
            start: |$a| c!($start($a.hdl, $($arg),*, cb($a.cbdata))),
            prepare: |$a| c!($prepare($a.hdl, $($arg),*, $a.desc.cast(), $a.size)),
            takes: $takes,
            most: $most,
        }
    };
}

/// Every start function with its preparation function.
pub(super) fn functions() -> Vec<Function> {
    const LONGEST: usize = TOO_LONG - 1;
    vec![
        function!(
            utofu_put,
            utofu_prepare_put,
            "target local",
            LONGEST,
            |a| a.to,
            a.local,
            a.remote,
            a.len,
            a.edata,
            a.flags
        ),
        function!(
            utofu_put_gap,
            utofu_prepare_put_gap,
            "target local packets",
            LONGEST,
            |a| a.to,
            a.local,
            a.remote,
            a.len,
            a.edata,
            a.flags,
            a.mtu,
            a.gap
        ),
        function!(
            utofu_put_stride,
            utofu_prepare_put_stride,
            "target local blocks",
            LONGEST,
            |a| a.to,
            a.local,
            a.remote,
            a.len,
            a.stride,
            a.blocks,
            a.edata,
            a.flags
        ),
        function!(
            utofu_put_stride_gap,
            utofu_prepare_put_stride_gap,
            "target local blocks packets",
            LONGEST,
            |a| a.to,
            a.local,
            a.remote,
            a.len,
            a.stride,
            a.blocks,
            a.edata,
            a.flags,
            a.mtu,
            a.gap
        ),
        function!(
            utofu_put_piggyback,
            utofu_prepare_put_piggyback,
            "target data",
            32,
            |a| a.to,
            a.data,
            a.remote,
            a.len,
            a.edata,
            a.flags
        ),
        function!(
            utofu_put_piggyback8,
            utofu_prepare_put_piggyback8,
            "target",
            8,
            |a| a.to,
            7,
            a.remote,
            a.len,
            a.edata,
            a.flags
        ),
        function!(
            utofu_get,
            utofu_prepare_get,
            "target local",
            LONGEST,
            |a| a.to,
            a.local,
            a.remote,
            a.len,
            a.edata,
            a.flags
        ),
        function!(
            utofu_get_gap,
            utofu_prepare_get_gap,
            "target local packets",
            LONGEST,
            |a| a.to,
            a.local,
            a.remote,
            a.len,
            a.edata,
            a.flags,
            a.mtu,
            a.gap
        ),
        function!(
            utofu_get_stride,
            utofu_prepare_get_stride,
            "target local blocks",
            LONGEST,
            |a| a.to,
            a.local,
            a.remote,
            a.len,
            a.stride,
            a.blocks,
            a.edata,
            a.flags
        ),
        function!(
            utofu_get_stride_gap,
            utofu_prepare_get_stride_gap,
            "target local blocks packets",
            LONGEST,
            |a| a.to,
            a.local,
            a.remote,
            a.len,
            a.stride,
            a.blocks,
            a.edata,
            a.flags,
            a.mtu,
            a.gap
        ),
        function!(
            utofu_armw4,
            utofu_prepare_armw4,
            "target op",
            usize::MAX,
            |a| a.to,
            a.op,
            1,
            a.remote,
            a.edata,
            a.flags
        ),
        function!(
            utofu_armw8,
            utofu_prepare_armw8,
            "target op",
            usize::MAX,
            |a| a.to,
            a.op,
            1,
            a.remote,
            a.edata,
            a.flags
        ),
        function!(
            utofu_cswap4,
            utofu_prepare_cswap4,
            "target",
            usize::MAX,
            |a| a.to,
            1,
            2,
            a.remote,
            a.edata,
            a.flags
        ),
        function!(
            utofu_cswap8,
            utofu_prepare_cswap8,
            "target",
            usize::MAX,
            |a| a.to,
            1,
            2,
            a.remote,
            a.edata,
            a.flags
        ),
        function!(utofu_nop, utofu_prepare_nop, "", usize::MAX, |a| a.flags),
    ]
}

/// Room for two descriptors.
#[repr(align(8))]
pub(super) struct Room(pub(super) [u8; 2 * DESC]);

/// Calls every function with one argument after the other wrong; `call` is given the function and how it is called.
fn wrong_arguments(job: &Job<'_>, call: impl Fn(&Function, &Call) -> i32, right: &Call) -> Verdict {
    let gone = freed()?;
    for function in functions() {
        let has = |what: &str| function.takes.contains(what);
        let expect = |code: Code, what: &str, wrong: Call| -> Verdict {
            let seen = call(&function, &wrong);
            ensure!(
                seen == code as i32,
                "{} with {what} gave {} instead of {code:?}",
                function.name,
                code_name(seen)
            );
            Ok(())
        };
        for hdl in wrong_handles(gone) {
            expect(
                Code::InvalidVcqHdl,
                "a wrong handle",
                Call { hdl, ..*right },
            )?;
        }
        for flags in unassigned() {
            let what = format!("flags {flags:#x}");
            expect(Code::InvalidFlags, &what, Call { flags, ..*right })?;
        }
        for id in [13, 14, 128, 255] {
            let flags = path(id);
            expect(
                Code::InvalidPathId,
                "a wrong path id",
                Call { flags, ..*right },
            )?;
        }
        if has("target") {
            // A VCQ at coordinates outside of the network is as wrong as no VCQ.
            for to in wrong_vcq_ids(right.to) {
                let what = format!("VCQ id {to:#x}");
                expect(Code::InvalidVcqId, &what, Call { to, ..*right })?;
            }
            for edata in [256, 1 << 32, u64::MAX] {
                expect(Code::InvalidEdata, "a wide EDATA", Call { edata, ..*right })?;
            }
        }
        if function.most < usize::MAX {
            for len in [function.most + 1, 1 << 32, usize::MAX] {
                let what = format!("length {len}");
                expect(Code::InvalidSize, &what, Call { len, ..*right })?;
            }
        }
        if has("data") {
            expect(
                Code::InvalidPointer,
                "no data",
                Call {
                    data: null(),
                    ..*right
                },
            )?;
        }
        if has("op") {
            for op in [0, 6, 7, 255, u32::MAX] {
                expect(Code::InvalidOp, "a wrong operation", Call { op, ..*right })?;
            }
        }
        if has("blocks") {
            expect(
                Code::InvalidNumber,
                "no blocks",
                Call {
                    blocks: 0,
                    ..*right
                },
            )?;
        }
        if has("packets") {
            // The guide has no code of their own for these.
            for (mtu, gap) in [(1921, 0), (usize::MAX, 0), (1920, 256), (1, usize::MAX)] {
                let seen = call(&function, &Call { mtu, gap, ..*right });
                ensure!(
                    (Code::InvalidData as i32..=Code::InvalidArg as i32).contains(&seen),
                    "{} with MTU {mtu} and gap {gap} gave {}",
                    function.name,
                    code_name(seen)
                );
            }
        }
        job.queue.tcq_is_empty()?;
        job.queue.mrq_is_empty()?;
    }
    Ok(())
}

pub(super) fn right_call(job: &Job<'_>, room: &mut Room, size: &mut usize) -> Call {
    Call {
        hdl: job.hdl,
        to: job.vcq(job.right()),
        local: job.stadd,
        remote: job.at(job.right(), 256),
        len: 8,
        edata: 255,
        flags: TCQ | LOCAL | REMOTE,
        op: ADD,
        mtu: 1920,
        gap: 255,
        stride: 8,
        blocks: 1,
        data: job.memory.base,
        desc: room.0.as_mut_ptr(),
        size,
        cbdata: 3,
    }
}

fn start_arguments(ctx: &Ctx) -> Verdict {
    with(ctx, 1024, |job| {
        job.memory.fill(0xa5);
        job.meet();
        let (mut room, mut size) = (Room([0x77; 2 * DESC]), 7);
        let right = right_call(job, &mut room, &mut size);
        wrong_arguments(job, |function, call| (function.start)(call), &right)?;
        // More blocks than any TOQ holds: refused, in whatever way, not tried.
        for function in functions() {
            if function.takes.contains("blocks") {
                for blocks in [1 << 20, 1 << 35, 1 << 58, usize::MAX] {
                    let code = (function.start)(&Call { blocks, ..right });
                    ensure!(
                        code == Code::InvalidNumber as i32 || code == BUSY,
                        "{} of {blocks} blocks gave {}",
                        function.name,
                        code_name(code)
                    );
                }
            }
        }
        let mut count = 7;
        ok!(utofu_query_num_unread_tcq(job.hdl, &mut count));
        ensure_eq!(count, 0, "commands posted by calls that were refused");
        job.meet();
        job.queue.mrq_is_empty()?;
        job.memory
            .all(0, 1024, 0xa5, "memory after calls that were refused")?;
        job.meet();
        // With right arguments each of them works.
        for function in functions() {
            let call = Call {
                flags: TCQ | LOCAL,
                ..right
            };
            ensure_eq!((function.start)(&call), SUCCESS, "{}", function.name);
            ensure_eq!(job.queue.tcq()?, 3, "cbdata of {}", function.name);
            if function.name != "utofu_nop" {
                let notice = job.queue.mrq()?;
                ensure_eq!(notice.edata, 255, "EDATA of {}", function.name);
            }
        }
        Ok(())
    })
}

fn prepare_arguments(ctx: &Ctx) -> Verdict {
    with(ctx, 1024, |job| {
        let (mut room, mut size) = (Room([0x77; 2 * DESC]), 7);
        let right = right_call(job, &mut room, &mut size);
        wrong_arguments(job, |function, call| (function.prepare)(call), &right)?;
        for function in functions() {
            let prepare = function.prepare;
            let no_desc = Call {
                desc: null_mut(),
                ..right
            };
            let no_size = Call {
                size: null_mut(),
                ..right
            };
            let invalid = Code::InvalidPointer as i32;
            ensure_eq!(prepare(&no_desc), invalid, "{} without desc", function.name);
            ensure_eq!(
                prepare(&no_size),
                invalid,
                "{} without desc_size",
                function.name
            );
            for off in [1, 2, 4, 7] {
                let code = prepare(&Call {
                    desc: right.desc.wrapping_add(off),
                    ..right
                });
                ensure!(
                    (Code::InvalidData as i32..=Code::InvalidArg as i32).contains(&code),
                    "{} with a misaligned desc gave {}",
                    function.name,
                    code_name(code)
                );
            }
        }
        ensure!(room.0 == [0x77; 2 * DESC], "a descriptor was written");
        ensure_eq!(size, 7, "desc_size after errors");
        Ok(())
    })
}

fn descriptors(ctx: &Ctx) -> Verdict {
    with(ctx, 1024, |job| {
        let other = Queue::with_component(TNI, 1, 0)?;
        let (mut room, mut size) = (Room([0x77; 2 * DESC]), 7);
        let right = right_call(job, &mut room, &mut size);
        let put = functions()[0];
        let post = |hdl: usize, desc: *const u8, size: usize| {
            c!(utofu_post_toq(hdl, desc.cast(), size, cb(9)))
        };
        let gone = freed()?;
        for wrong in wrong_handles(gone) {
            ensure_eq!(
                post(wrong, right.desc, 0),
                Code::InvalidVcqHdl as i32,
                "a wrong handle"
            );
        }
        ensure_eq!(
            post(job.hdl, null(), 64),
            Code::InvalidPointer as i32,
            "no descriptors"
        );
        ensure_eq!(post(job.hdl, null(), 0), SUCCESS, "none, of 0 bytes");
        // Garbage: the second one of a batch whose first is right.
        let quiet = Call {
            flags: TCQ,
            ..right
        };
        ensure_eq!((put.prepare)(&quiet), SUCCESS, "preparing");
        ensure_eq!(size, DESC, "the size of a descriptor");
        let good: [u8; DESC] = room.0[..DESC].try_into().expect("as long");
        let invalid = [
            Code::InvalidDesc as i32,
            Code::InvalidSize as i32,
            Code::InvalidPointer as i32,
        ];
        let mut random = ctx.random(u64::from(job.rank));
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
                ensure!(invalid.contains(&code), "garbage gave {}", code_name(code));
            }
        }
        room.0[..DESC].copy_from_slice(&good);
        let base = room.0.as_ptr();
        for (off, size) in [
            (0, 1),
            (0, 63),
            (0, 65),
            (0, 100),
            (1, DESC),
            (4, DESC),
            (0, 1 << 40),
            (0, usize::MAX),
            (0, usize::MAX - 63),
            (0, 1 << 63),
        ] {
            let code = post(job.hdl, base.wrapping_add(off), size);
            ensure!(
                invalid.contains(&code),
                "{size} bytes {off} further gave {}",
                code_name(code)
            );
        }
        // Of another VCQ, in both directions.
        ensure_eq!(
            post(other.hdl, base, DESC),
            Code::InvalidDesc as i32,
            "a descriptor of another VCQ"
        );
        ensure_eq!(
            (put.prepare)(&Call {
                hdl: other.hdl,
                ..quiet
            }),
            SUCCESS,
            "preparing for the other"
        );
        ensure_eq!(
            post(job.hdl, room.0.as_ptr(), DESC),
            Code::InvalidDesc as i32,
            "a descriptor of another VCQ"
        );
        job.queue.tcq_is_empty()?;
        other.tcq_is_empty()?;
        room.0[..DESC].copy_from_slice(&good);
        ensure_eq!(
            post(job.hdl, room.0.as_ptr(), DESC),
            SUCCESS,
            "the right one"
        );
        ensure_eq!(job.queue.tcq()?, 9, "its cbdata");
        job.meet();
        other.free()
    })
}

fn poll_arguments(_ctx: &Ctx) -> Verdict {
    let gone = freed()?;
    let queue = Queue::with_component(TNI, 0, 0)?;
    let (mut cbdata, mut count) = (cb(0x77), 7usize);
    let mut notice = MrqNotice {
        edata: 0x77,
        ..MrqNotice::default()
    };
    for wrong in wrong_handles(gone) {
        gives!(InvalidVcqHdl, utofu_poll_tcq(wrong, 0, &mut cbdata));
        gives!(InvalidVcqHdl, utofu_poll_mrq(wrong, 0, &mut notice));
        gives!(InvalidVcqHdl, utofu_query_num_unread_tcq(wrong, &mut count));
        gives!(InvalidVcqHdl, utofu_query_num_unread_mrq(wrong, &mut count));
    }
    for bit in 0..64 {
        gives!(
            InvalidFlags,
            utofu_poll_tcq(queue.hdl, 1 << bit, &mut cbdata)
        );
        gives!(
            InvalidFlags,
            utofu_poll_mrq(queue.hdl, 1 << bit, &mut notice)
        );
    }
    gives!(InvalidPointer, utofu_poll_tcq(queue.hdl, 0, null_mut()));
    gives!(InvalidPointer, utofu_poll_mrq(queue.hdl, 0, null_mut()));
    gives!(
        InvalidPointer,
        utofu_query_num_unread_tcq(queue.hdl, null_mut())
    );
    gives!(
        InvalidPointer,
        utofu_query_num_unread_mrq(queue.hdl, null_mut())
    );
    gives!(NotFound, utofu_poll_tcq(queue.hdl, 0, &mut cbdata));
    gives!(NotFound, utofu_poll_mrq(queue.hdl, 0, &mut notice));
    ensure!(
        cbdata == cb(0x77) && notice.edata == 0x77 && count == 7,
        "something was written"
    );
    // A refused poll takes nothing out.
    ok!(utofu_nop(queue.hdl, TCQ, cb(5)));
    gives!(InvalidPointer, utofu_poll_tcq(queue.hdl, 0, null_mut()));
    gives!(InvalidFlags, utofu_poll_tcq(queue.hdl, 1, &mut cbdata));
    ensure_eq!(queue.tcq()?, 5, "cbdata after refused polls");
    queue.free()
}

const LEN: usize = 1024;

fn send_errors(ctx: &Ctx) -> Verdict {
    with(ctx, LEN, |job| {
        let end = job.stadd + LEN as u64;
        let right = job.vcq(job.right());
        let remote = job.at(job.right(), 512);
        let cases = [
            (0, 8, Code::TcqStadd, "0"),
            (u64::MAX, 8, Code::TcqStadd, "all ones"),
            (
                stadd_of(job.vcq(job.rank), 99)?,
                8,
                Code::TcqStadd,
                "an unused STag",
            ),
            (job.stadd - 1, 8, Code::TcqStadd, "one before the begin"),
            (end, 8, Code::TcqStadd, "the end"),
            (end + 4096, 8, Code::TcqStadd, "past the end"),
            (end - 7, 8, Code::TcqLength, "7 before the end"),
            (job.stadd, LEN + 1, Code::TcqLength, "the begin, too long"),
            (job.stadd + 8, TOO_LONG - 1, Code::TcqLength, "far too long"),
        ];
        for flags in [0, TCQ, TCQ | LOCAL, LOCAL | REMOTE] {
            for (nth, (local, len, code, what)) in cases.iter().enumerate() {
                ok!(utofu_put(
                    job.hdl,
                    right,
                    *local,
                    remote,
                    *len,
                    1,
                    flags,
                    cb(100 + nth)
                ));
                let (seen, cbdata) = job.queue.next_tcq()?;
                ensure!(
                    seen == *code as i32,
                    "a put of {len} from {what} gave {} instead of {code:?}",
                    code_name(seen)
                );
                ensure_eq!(cbdata, 100 + nth, "cbdata of a put from {what}");
                job.queue.mrq_is_empty()?;
                // In its turn among others.
                ok!(utofu_nop(job.hdl, TCQ, cb(1)));
                ok!(utofu_put(
                    job.hdl,
                    right,
                    *local,
                    remote,
                    *len,
                    1,
                    flags,
                    cb(2)
                ));
                ok!(utofu_nop(job.hdl, TCQ, cb(3)));
                ensure_eq!(
                    job.queue.next_tcq()?,
                    (SUCCESS, 1),
                    "the TCQ before an error"
                );
                ensure_eq!(
                    job.queue.next_tcq()?,
                    (*code as i32, 2),
                    "the TCQ at an error"
                );
                ensure_eq!(
                    job.queue.next_tcq()?,
                    (SUCCESS, 3),
                    "the TCQ behind an error"
                );
            }
        }
        // A read-only source is a source.
        let mut readable = 0;
        let fixed = Memory::leaked(256);
        fixed.set(0, 77);
        ok!(utofu_reg_mem(job.hdl, fixed.base, 256, 1, &mut readable));
        ok!(utofu_put(
            job.hdl,
            right,
            readable,
            job.at(job.right(), 0),
            8,
            1,
            LOCAL,
            cb(0)
        ));
        job.queue.notice(LCL_PUT)?;
        job.meet();
        ensure_eq!(job.memory.get(0), 77, "what was put from read-only memory");
        job.memory.all(512, 512, 0, "memory after failed puts")?;
        job.queue.deregister(readable)?;
        job.queue.mrq_is_empty()
    })
}

fn remote_errors(ctx: &Ctx) -> Verdict {
    with(ctx, LEN, |job| {
        // A second, read-only registration of other memory, and one of an odd length.
        let fixed = Memory::leaked(512);
        fixed.fill(0x3c);
        let mut stadd = 0;
        ok!(utofu_reg_mem_with_stag(
            job.hdl, fixed.base, 512, 8, 1, &mut stadd
        ));
        job.memory.fill(0x3c);
        job.meet();
        let right = job.vcq(job.right());
        let (begin, fixed_there) = (job.at(job.right(), 0), stadd_of(right, 8)?);
        let end = begin + LEN as u64;
        let unused = stadd_of(right, 99)?;
        let bytes = [1u8; 32];
        type Start<'a> = Box<dyn Fn(u64, u64) -> i32 + 'a>;
        let local = job.stadd;
        // Name, type of notice, bytes at the target, whether it writes there, whether the word must be aligned.
        let calls: Vec<(&str, u8, u64, bool, bool, Start<'_>)> = vec![
            (
                "put",
                LCL_PUT,
                64,
                true,
                false,
                Box::new(|to, f| c!(utofu_put(job.hdl, right, local, to, 64, 0xe1, f, cb(4)))),
            ),
            (
                "put_piggyback",
                LCL_PUT,
                32,
                true,
                false,
                Box::new(|to, f| {
                    c!(utofu_put_piggyback(
                        job.hdl,
                        right,
                        bytes.as_ptr(),
                        to,
                        32,
                        0xe1,
                        f,
                        cb(4)
                    ))
                }),
            ),
            (
                "put_piggyback8",
                LCL_PUT,
                8,
                true,
                false,
                Box::new(|to, f| {
                    c!(utofu_put_piggyback8(
                        job.hdl,
                        right,
                        1,
                        to,
                        8,
                        0xe1,
                        f,
                        cb(4)
                    ))
                }),
            ),
            (
                "get",
                LCL_GET,
                64,
                false,
                false,
                Box::new(|to, f| c!(utofu_get(job.hdl, right, local, to, 64, 0xe1, f, cb(4)))),
            ),
            (
                "armw4",
                LCL_ARMW,
                4,
                true,
                true,
                Box::new(|to, f| c!(utofu_armw4(job.hdl, right, ADD, 1, to, 0xe1, f, cb(4)))),
            ),
            (
                "armw8",
                LCL_ARMW,
                8,
                true,
                true,
                Box::new(|to, f| c!(utofu_armw8(job.hdl, right, ADD, 1, to, 0xe1, f, cb(4)))),
            ),
            (
                "cswap4",
                LCL_ARMW,
                4,
                true,
                true,
                Box::new(|to, f| {
                    c!(utofu_cswap4(
                        job.hdl,
                        right,
                        0x3c3c_3c3c,
                        1,
                        to,
                        0xe1,
                        f,
                        cb(4)
                    ))
                }),
            ),
            (
                "cswap8",
                LCL_ARMW,
                8,
                true,
                true,
                Box::new(|to, f| {
                    c!(utofu_cswap8(
                        job.hdl,
                        right,
                        0x3c3c_3c3c_3c3c_3c3c,
                        1,
                        to,
                        0xe1,
                        f,
                        cb(4)
                    ))
                }),
            ),
        ];
        for (name, kind, bytes, writes, aligned, call) in &calls {
            let mut cases = vec![
                (0, Code::MrqRmtStadd, "0"),
                (u64::MAX, Code::MrqRmtStadd, "all ones"),
                (unused, Code::MrqRmtStadd, "an unused STag"),
                (end, Code::MrqRmtStadd, "the end"),
                (end + (1 << 30), Code::MrqRmtStadd, "past the end"),
            ];
            if !aligned {
                cases.push((end - bytes + 1, Code::MrqRmtLength, "a byte too far"));
            }
            if *writes {
                cases.push((fixed_there, Code::MrqRmtMemory, "read-only memory"));
            }
            for (to, code, what) in cases {
                for flags in [LOCAL, LOCAL | TCQ | REMOTE, 0, REMOTE] {
                    ensure_eq!(call(to, flags), SUCCESS, "posting {name}");
                    if flags & TCQ != 0 {
                        ensure_eq!(job.queue.tcq()?, 4, "cbdata of {name}: it was sent");
                    }
                    let (seen, notice) = job.queue.next_mrq()?;
                    ensure!(
                        seen == code as i32,
                        "{name} at {what} gave {} instead of {code:?}",
                        code_name(seen)
                    );
                    ensure_eq!(
                        (notice.notice_type, notice.vcq_id, notice.edata),
                        (*kind, right, 0xe1),
                        "the notice of {name} at {what}"
                    );
                    job.queue.tcq_is_empty()?;
                }
            }
            if *aligned {
                for off in 1..*bytes {
                    ensure_eq!(call(begin + off, LOCAL), SUCCESS, "posting {name}");
                    let (seen, notice) = job.queue.next_mrq()?;
                    ensure!(
                        (Code::MrqRmtLength as i32..=Code::MrqOther as i32).contains(&seen),
                        "{name} at a misaligned word gave {}",
                        code_name(seen)
                    );
                    ensure_eq!(notice.notice_type, *kind, "the notice of {name}");
                }
            }
        }
        job.meet();
        // Nobody was told of any of it, and nothing has changed.
        job.queue.mrq_is_empty()?;
        job.memory
            .all(0, LEN, 0x3c, "memory after failed operations")?;
        fixed.all(0, 512, 0x3c, "read-only memory after failed operations")?;
        job.meet();
        ok!(utofu_get(
            job.hdl,
            right,
            job.stadd + 512,
            fixed_there,
            256,
            2,
            LOCAL | REMOTE,
            cb(0)
        ));
        let kinds = [job.queue.mrq()?.notice_type, job.queue.mrq()?.notice_type];
        ensure!(
            kinds == [LCL_GET, RMT_GET] || kinds == [RMT_GET, LCL_GET],
            "notices of a get from read-only memory: {kinds:?}"
        );
        job.meet();
        job.queue.deregister(stadd)
    })
}

fn local_errors(ctx: &Ctx) -> Verdict {
    with(ctx, LEN, |job| {
        let fixed = Memory::leaked(512);
        let mut read_only = 0;
        ok!(utofu_reg_mem(job.hdl, fixed.base, 512, 1, &mut read_only));
        job.memory.fill(0x77);
        job.meet();
        let right = job.vcq(job.right());
        let remote = job.at(job.right(), 0);
        let end = job.stadd + LEN as u64;
        for flags in [0, LOCAL, LOCAL | TCQ, REMOTE] {
            for (local, len, code, what) in [
                (0, 8, Code::MrqLclStadd, "0"),
                (u64::MAX, 8, Code::MrqLclStadd, "all ones"),
                (end, 8, Code::MrqLclStadd, "the end"),
                (end + 4096, 8, Code::MrqLclStadd, "past the end"),
                (end - 7, 8, Code::MrqLclLength, "a byte too far"),
                (read_only, 8, Code::MrqLclMemory, "read-only memory"),
            ] {
                ok!(utofu_get(
                    job.hdl,
                    right,
                    local,
                    remote,
                    len,
                    5,
                    flags,
                    cb(8)
                ));
                if flags & TCQ != 0 {
                    ensure_eq!(job.queue.tcq()?, 8, "cbdata");
                }
                // A remote notice may come from the other rank, which does the same.
                let (seen, notice) = loop {
                    let (seen, notice) = job.queue.next_mrq()?;
                    if seen != SUCCESS || notice.notice_type != RMT_GET {
                        break (seen, notice);
                    }
                };
                ensure!(
                    seen == code as i32,
                    "a get to {what} gave {} instead of {code:?}",
                    code_name(seen)
                );
                ensure_eq!(
                    (notice.notice_type, notice.edata),
                    (LCL_GET, 5),
                    "the notice"
                );
                job.queue.tcq_is_empty()?;
            }
        }
        job.meet();
        while job.queue.poll_mrq().0 == SUCCESS {}
        job.memory.all(0, LEN, 0x77, "memory after failed gets")?;
        fixed.all(0, 512, 0, "read-only memory after failed gets")?;
        job.queue.deregister(read_only)
    })
}

fn after_deregistration(ctx: &Ctx) -> Verdict {
    with(ctx, LEN, |job| {
        let extra = Memory::leaked(512);
        let right = job.vcq(job.right());
        for round in 0..20u64 {
            // The place under a new number each time; peers learn it by a put.
            let stadd = job.queue.register(extra)?;
            let named = job.queue.register_as(extra, 30)?;
            ensure_eq!(named, stadd_of(job.vcq(job.rank), 30)?, "a reserved STADD");
            job.write(job.right(), 8, stadd)?;
            job.meet();
            let theirs = [job.memory.get(8), stadd_of(right, 30)?];
            // `theirs` is what the left one has; with two ranks that is the right one.
            let all = |remote: u64| -> Result<[i32; 3], String> {
                let mut codes = [0; 3];
                ok!(utofu_put(
                    job.hdl,
                    right,
                    job.stadd + 512,
                    remote,
                    8,
                    1,
                    LOCAL,
                    cb(0)
                ));
                codes[0] = job.queue.next_mrq()?.0;
                ok!(utofu_get(
                    job.hdl,
                    right,
                    job.stadd + 512,
                    remote,
                    8,
                    1,
                    LOCAL,
                    cb(0)
                ));
                codes[1] = job.queue.next_mrq()?.0;
                ok!(utofu_armw8(job.hdl, right, ADD, 0, remote, 1, LOCAL, cb(0)));
                codes[2] = job.queue.next_mrq()?.0;
                Ok(codes)
            };
            for remote in theirs {
                ensure_eq!(
                    all(remote)?,
                    [SUCCESS; 3],
                    "before the deregistration, round {round}"
                );
            }
            job.meet();
            job.queue.deregister(stadd)?;
            job.queue.deregister(named)?;
            job.meet();
            for remote in theirs {
                let gone = Code::MrqRmtStadd as i32;
                ensure_eq!(
                    all(remote)?,
                    [gone; 3],
                    "after the deregistration, round {round}"
                );
            }
            for local in [stadd, named] {
                ok!(utofu_put(
                    job.hdl,
                    right,
                    local,
                    job.at(job.right(), 0),
                    8,
                    1,
                    0,
                    cb(6)
                ));
                ensure_eq!(
                    job.queue.next_tcq()?,
                    (Code::TcqStadd as i32, 6),
                    "a put from it"
                );
                ok!(utofu_get(
                    job.hdl,
                    right,
                    local,
                    job.at(job.right(), 0),
                    8,
                    1,
                    0,
                    cb(6)
                ));
                ensure_eq!(
                    job.queue.next_mrq()?.0,
                    Code::MrqLclStadd as i32,
                    "a get to it"
                );
            }
            job.meet();
        }
        Ok(())
    })
}

/// One of a heap of numbers, some of which mean something.
fn strange(random: &mut Random, known: &[u64]) -> u64 {
    let one = known[random.below(known.len() as u64) as usize];
    match random.below(10) {
        0 => random.next(),
        1 => 1 << random.below(64),
        2 => u64::MAX << random.below(64),
        3 => one ^ 1 << random.below(64),
        4 => one.wrapping_add(random.below(4096)).wrapping_sub(2048),
        5 => random.below(300),
        _ => one,
    }
}

fn anything(ctx: &Ctx) -> Verdict {
    with(ctx, 8192, |job| {
        let mut random = ctx.random(u64::from(job.rank) ^ 0xbad);
        // What nobody has registered stays as it is, beside what is.
        let canary = Memory::leaked(8192);
        canary.fill(0xc5);
        let inner = Memory {
            base: canary.base.wrapping_add(4096),
            len: 256,
        };
        let registered = job.queue.register(inner)?;
        let (mut ids, mut theirs) = ([0u64; 4], [0u64; 4]);
        ok!(utofu_alloc_vbg(0, 4, 0, ids.as_mut_ptr()));
        for (nth, id) in ids.iter().enumerate() {
            job.write(job.right(), 4096 + nth * 8, *id)?;
        }
        job.meet();
        for (nth, id) in theirs.iter_mut().enumerate() {
            *id = job.memory.get(4096 + nth * 8);
        }
        let session = Queue::create(TNI, SESSION_MODE)?;
        let (mut room, mut size) = (Room([0; 2 * DESC]), 0);
        let right = right_call(job, &mut room, &mut size);
        let hdls = [job.hdl as u64, session.hdl as u64, 0];
        let vcqs = [job.vcq(0), job.vcq(1), vcq_of(0, 1, 3)?, session.id];
        let stadds = [
            job.stadd,
            job.at(0, 8184),
            job.at(1, 4096),
            registered,
            registered + 255,
        ];
        let gates = [
            ids[0], ids[1], ids[2], ids[3], theirs[0], theirs[1], theirs[3], NULL,
        ];
        let all = functions();
        let data = canary.base.wrapping_add(64);
        let known =
            |code: i32| code == SUCCESS || Code::ALL.iter().any(|known| *known as i32 == code);
        for turn in 0..4000 {
            let r = &mut random;
            let call = Call {
                hdl: strange(r, &hdls) as usize,
                to: strange(r, &vcqs),
                local: strange(r, &stadds),
                remote: strange(r, &stadds),
                len: strange(r, &[0, 1, 8, 32, 4096]) as usize,
                edata: strange(r, &[0, 255]),
                flags: strange(
                    r,
                    &[
                        0,
                        TCQ,
                        LOCAL,
                        REMOTE,
                        DELAY,
                        sps(1),
                        sps(15) | LOCAL,
                        STRONG_ORDER,
                        path(3),
                    ],
                ),
                op: strange(r, &[1, 2, 5]) as u32,
                mtu: strange(r, &[1920]) as usize,
                gap: strange(r, &[0]) as usize,
                stride: strange(r, &[8, 256]) as usize,
                blocks: strange(r, &[1, 2]) as usize,
                data,
                ..right
            };
            let function = all[r.below(all.len() as u64) as usize];
            let code = match r.below(8) {
                // Bytes of a piggyback are read before its length is looked at only by who is wrong: `data` has room for 32.
                0..4 => (function.start)(&call),
                4 => {
                    let fitting = Call {
                        blocks: call.blocks.min(2),
                        ..call
                    };
                    let prepared = (function.prepare)(&fitting);
                    if prepared == SUCCESS && r.below(2) == 0 {
                        // A bit that was not there.
                        let bit = r.below(8 * DESC as u64) as usize;
                        room.0[bit / 8] ^= 1 << (bit % 8);
                    }
                    if prepared == SUCCESS {
                        c!(utofu_post_toq(
                            call.hdl,
                            room.0.as_ptr().cast(),
                            size,
                            cb(1)
                        ))
                    } else {
                        prepared
                    }
                }
                5 => {
                    let setting = VbgSetting {
                        vbg_id: strange(r, &gates),
                        src_lcl_vbg_id: strange(r, &gates),
                        src_rmt_vbg_id: strange(r, &gates),
                        dst_lcl_vbg_id: strange(r, &gates),
                        dst_rmt_vbg_id: strange(r, &gates),
                        dst_path_coords: [r.next() as u8 | 0x80, 0, 0],
                    };
                    let first = VbgSetting {
                        vbg_id: ids[0],
                        ..setting
                    };
                    c!(utofu_set_vbg(
                        [first, setting].as_ptr(),
                        1 + r.below(2) as usize
                    ))
                }
                6 => {
                    let end = strange(r, &gates);
                    let mut words = [1u64; 6];
                    match r.below(4) {
                        0 => c!(utofu_barrier(end, 0)),
                        1 => c!(utofu_reduce_uint64(
                            end,
                            strange(r, &[2, 7]) as u32,
                            words.as_ptr(),
                            r.below(7) as usize,
                            0
                        )),
                        2 => c!(utofu_poll_barrier(end, 0)),
                        _ => c!(utofu_poll_reduce_uint64(end, 0, words.as_mut_ptr())),
                    }
                }
                _ => {
                    let (mut at, mut a, mut b, mut e, mut out) = ([0u8; 6], 0u16, 0u16, 0u16, 0u64);
                    match r.below(4) {
                        0 => c!(utofu_query_vcq_info(
                            call.to,
                            at.as_mut_ptr(),
                            &mut a,
                            &mut b,
                            &mut e
                        )),
                        1 => c!(utofu_query_vbg_info(
                            strange(r, &gates),
                            at.as_mut_ptr(),
                            &mut a,
                            &mut b,
                            &mut e
                        )),
                        2 => c!(utofu_query_stadd(call.to, call.op, &mut out)),
                        _ => c!(utofu_dereg_mem(
                            call.hdl,
                            strange(r, &[0, registered + 1, job.stadd + 8]) & !(1 << 62),
                            0
                        )),
                    }
                }
            };
            ensure!(
                known(code) && code != Code::Fatal as i32,
                "turn {turn}: code {}",
                code_name(code)
            );
            while job.queue.poll_tcq().0 != NOT_FOUND {}
            while job.queue.poll_mrq().0 != NOT_FOUND {}
        }
        job.meet();
        // All that was under way has come or failed.
        pause(20);
        while job.queue.poll_mrq().0 != NOT_FOUND {}
        job.meet();
        canary.all(0, 4096, 0xc5, "memory that nobody has registered")?;
        canary.all(4352, 8192 - 4352, 0xc5, "memory that nobody has registered")?;
        session.free()?;
        ok!(utofu_free_vbg(ids.as_ptr(), 4));
        job.queue.deregister(registered)
    })
}

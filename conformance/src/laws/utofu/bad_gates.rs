//! Wrong arguments of VBG management and barriers (§3.4, §3.8).

use super::circuit::{NULL, beside, free_gates, gates, set_code, set_gates, setting};
use super::kit::*;

laws! {
    vbg_arguments: "bad.vbg", "§3.4", 1, [alloc_vbg, free_vbg, set_vbg, query_vbg_info],
        "VBG management refuses null pointers, wrong ids, numbers, flags and paths, and sets nothing then";
    barrier_arguments: "bad.barrier", "§3.8", 1,
        [barrier, reduce_uint64, reduce_double, poll_barrier, poll_reduce_uint64, poll_reduce_double],
        "barrier functions refuse null pointers, wrong VBG ids, operations, numbers and flags";
}

/// Numbers that name no VBG of any node, made from an id.
fn wrong_vbg_ids(right: u64) -> [u64; 9] {
    [
        // Marks that programs use beside UTOFU_VBG_ID_NULL.
        NULL - 1,
        NULL - 2,
        // A BG and a TNI that no node has, bits that ids leave out, a B and an X outside of the network.
        right | 63,
        right | 7 << 61,
        right | 1 << 6,
        right | 1 << 31,
        right | 1 << 60,
        right | 3 << 57,
        right | 0xff << 32,
    ]
}

fn vbg_arguments(_ctx: &Ctx) -> Verdict {
    let mut ids = [7u64; 4];
    for tni in [6, 7, 255, u16::MAX] {
        gives! { UTOFU_ERR_INVALID_TNI_ID: utofu_alloc_vbg(tni, 1, 0, ids.as_mut_ptr()); }
    }
    gives! { UTOFU_ERR_INVALID_NUMBER: utofu_alloc_vbg(0, 0, 0, ids.as_mut_ptr()); }
    for bit in 1..64 {
        gives! { UTOFU_ERR_INVALID_FLAGS: utofu_alloc_vbg(0, 1, 1 << bit, ids.as_mut_ptr()); }
    }
    gives! { UTOFU_ERR_INVALID_POINTER: utofu_alloc_vbg(0, 1, 0, null_mut()); }
    ensure_eq!(ids, [7; 4], "ids after errors");
    ok!(utofu_alloc_vbg(0, 3, 0, ids.as_mut_ptr()));
    let other = gates::<3>(0, 0)?;
    ensure_eq!(ids[3], 7, "the place behind the ids");
    // Free releases all gates of one allocation, or none.
    gives!(UTOFU_ERR_INVALID_POINTER, utofu_free_vbg(null_mut(), 3));
    for number in [0, 1, 2, 4, 48] {
        let mut all = [ids[0]; 48];
        all[..3].copy_from_slice(&ids[..3]);
        gives! { UTOFU_ERR_INVALID_NUMBER: utofu_free_vbg(all.as_ptr().cast_mut(), number); }
    }
    let (mixed, turned) = ([ids[0], ids[1], other[2]], [ids[1], ids[2], ids[0]]);
    gives! { UTOFU_ERR_INVALID_VBG_ID:
        utofu_free_vbg(mixed.as_ptr().cast_mut(), 3);
        utofu_free_vbg(turned.as_ptr().cast_mut(), 3);
    }
    // Setting.
    gives!(UTOFU_ERR_INVALID_POINTER, utofu_set_vbg(null_mut(), 1));
    let four = [0, 1, 2, 2].map(|nth| beside(ids[nth], NULL));
    let right = four[0];
    let twice = [right, four[1], four[1]];
    let foreign = [right, beside(other[1], NULL)];
    for (what, wrong, code) in [
        ("no gate", &four[..0], UTOFU_ERR_INVALID_NUMBER),
        ("a gate more", &four, UTOFU_ERR_INVALID_NUMBER),
        ("a relay alone", &four[1..2], UTOFU_ERR_INVALID_VBG_ID),
        ("a gate twice", &twice, UTOFU_ERR_INVALID_VBG_ID),
        ("another allocation's", &foreign, UTOFU_ERR_INVALID_VBG_ID),
    ] {
        code_is(set_code(wrong), code, format!("setting {what}"))?;
    }
    for wrong in wrong_vbg_ids(ids[0]) {
        for field in 0..5 {
            let mut settings = [right, beside(ids[1], NULL)];
            let s = &mut settings[1];
            *[
                &mut s.vbg_id,
                &mut s.src_lcl_vbg_id,
                &mut s.src_rmt_vbg_id,
                &mut s.dst_lcl_vbg_id,
                &mut s.dst_rmt_vbg_id,
            ][field] = wrong;
            let what = format!("{wrong:#x} in field {field}");
            code_is(set_code(&settings), UTOFU_ERR_INVALID_VBG_ID, what)?;
        }
    }
    for path in [[2, 0, 0], [0, 3, 0], [0, 0, 2]] {
        let with = utofu_vbg_setting {
            dst_rmt_vbg_id: other[0],
            dst_path_coords: path,
            ..right
        };
        gives! { UTOFU_ERR_INVALID_PATH: utofu_set_vbg(std::ptr::from_ref(&with).cast_mut(), 1); }
    }
    // No gate was set: there is no circuit.
    let code = c!(utofu_barrier(ids[0], 0));
    ensure!(code < 0, "an unset barrier gave {}", code_name(code));
    let (mut at, mut tni, mut bg, mut extra) = ([9u8; 6], 9u16, 99u16, 9u16);
    for wrong in wrong_vbg_ids(ids[0]) {
        gives! { UTOFU_ERR_INVALID_VBG_ID:
            utofu_query_vbg_info(wrong, at.as_mut_ptr(), &mut tni, &mut bg, &mut extra);
        }
    }
    gives! {
        UTOFU_ERR_INVALID_VBG_ID: utofu_query_vbg_info(NULL, at.as_mut_ptr(), &mut tni, &mut bg, &mut extra);
        UTOFU_ERR_INVALID_POINTER: utofu_query_vbg_info(ids[0], null_mut(), &mut tni, &mut bg, &mut extra);
        UTOFU_ERR_INVALID_POINTER: utofu_query_vbg_info(ids[0], at.as_mut_ptr(), null_mut(), &mut bg, &mut extra);
        UTOFU_ERR_INVALID_POINTER: utofu_query_vbg_info(ids[0], at.as_mut_ptr(), &mut tni, null_mut(), &mut extra);
        UTOFU_ERR_INVALID_POINTER: utofu_query_vbg_info(ids[0], at.as_mut_ptr(), &mut tni, &mut bg, null_mut());
    }
    ensure_eq!((at, tni, bg), ([9; 6], 9, 99), "places after errors");
    free_gates(&ids[..3])?;
    gives! { UTOFU_ERR_INVALID_VBG_ID:
        utofu_free_vbg(ids.as_ptr().cast_mut(), 3);
        utofu_set_vbg(std::ptr::from_ref(&right).cast_mut(), 1);
    }
    free_gates(&other)
}

fn barrier_arguments(_ctx: &Ctx) -> Verdict {
    let ids = gates::<2>(1, 0)?;
    // A circuit of one process: the start signals to the relay, which signals back.
    let gate = |one: usize| setting(ids[one], [ids[1 - one]; 2], [NULL; 2]);
    set_gates(&[gate(0), gate(1)])?;
    let (data, reals) = ([1u64; 8], [1f64; 8]);
    let (mut out, mut real) = ([7u64; 8], [7f64; 8]);
    for id in wrong_vbg_ids(ids[0]).into_iter().chain([ids[1], NULL]) {
        gives! { UTOFU_ERR_INVALID_VBG_ID:
            utofu_barrier(id, 0);
            utofu_reduce_uint64(id, 7, data.as_ptr().cast_mut(), 1, 0);
            utofu_reduce_double(id, 8, reals.as_ptr().cast_mut(), 1, 0);
            utofu_poll_barrier(id, 0);
            utofu_poll_reduce_uint64(id, 0, out.as_mut_ptr());
            utofu_poll_reduce_double(id, 0, real.as_mut_ptr());
        }
    }
    let end = ids[0];
    for flags in [1, 2, 1 << 63, u64::MAX] {
        gives! { UTOFU_ERR_INVALID_FLAGS:
            utofu_barrier(end, flags);
            utofu_reduce_uint64(end, 7, data.as_ptr().cast_mut(), 1, flags);
            utofu_reduce_double(end, 8, reals.as_ptr().cast_mut(), 1, flags);
            utofu_poll_barrier(end, flags);
            utofu_poll_reduce_uint64(end, flags, out.as_mut_ptr());
            utofu_poll_reduce_double(end, flags, real.as_mut_ptr());
        }
    }
    for op in [0, 1, 8, 9, 255, u32::MAX] {
        gives! { UTOFU_ERR_INVALID_OP:
            utofu_reduce_uint64(end, op, data.as_ptr().cast_mut(), 1, 0);
        }
    }
    for op in (0..8).chain([9, u32::MAX]) {
        gives! { UTOFU_ERR_INVALID_OP:
            utofu_reduce_double(end, op, reals.as_ptr().cast_mut(), 1, 0);
        }
    }
    for number in [0, 7, 8, 1 << 40, usize::MAX] {
        gives! { UTOFU_ERR_INVALID_NUMBER:
            utofu_reduce_uint64(end, 7, data.as_ptr().cast_mut(), number, 0);
        }
    }
    for number in [0, 4, 8, 1 << 40, usize::MAX] {
        gives! { UTOFU_ERR_INVALID_NUMBER:
            utofu_reduce_double(end, 8, reals.as_ptr().cast_mut(), number, 0);
        }
    }
    gives! { UTOFU_ERR_INVALID_POINTER:
        utofu_reduce_uint64(end, 7, null_mut(), 1, 0);
        utofu_reduce_double(end, 8, null_mut(), 1, 0);
        utofu_poll_reduce_uint64(end, 0, null_mut());
        utofu_poll_reduce_double(end, 0, null_mut());
    }
    ensure_eq!((out, real), ([7; 8], [7.0; 8]), "results after errors");
    // No round has started, and the circuit works.
    ok!(utofu_reduce_uint64(end, 7, data.as_ptr().cast_mut(), 2, 0));
    gives! { UTOFU_ERR_INVALID_POINTER: utofu_poll_reduce_uint64(end, 0, null_mut()); }
    ok!(utofu_poll_reduce_uint64(end, 0, out.as_mut_ptr()));
    ensure_eq!(out, [1, 1, 7, 7, 7, 7, 7, 7], "the result");
    free_gates(&ids)?;
    gives!(UTOFU_ERR_INVALID_VBG_ID, utofu_barrier(end, 0));
    gives!(UTOFU_ERR_INVALID_VBG_ID, utofu_poll_barrier(end, 0));
    Ok(())
}

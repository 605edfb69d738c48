//! Wrong arguments of the management of TNIs, VCQs, paths and STADDs (§3.2, §3.3, §3.5, §3.6).

use super::kit::*;
use super::wrong::{freed, wrong_handles, wrong_vcq_ids};

laws! {
    tni_arguments: "bad.tni", "§3.2.1", 1,
        [get_onesided_tnis, get_barrier_tnis, query_onesided_caps, query_barrier_caps, query_my_coords],
        "null pointers and wrong TNI ids give INVALID_POINTER and INVALID_TNI_ID, and nothing is written";
    vcq_arguments: "bad.vcq", "§3.3", 1,
        [create_vcq, create_vcq_with_cmp_id, free_vcq, query_vcq_id, construct_vcq_id, set_vcq_id_path, query_vcq_info],
        "VCQ management refuses null pointers, wrong ids, handles, flags, coordinates and paths, each by its code";
    path_arguments: "bad.path", "§3.5.1", 1, [get_path_id, get_path_coords, set_vcq_id_path],
        "path functions refuse null pointers, wrong VCQ ids, path ids and coordinates";
    stadd_arguments: "bad.stadd", "§3.6.1", 1, [reg_mem, reg_mem_with_stag, query_stadd, dereg_mem],
        "STADD management refuses null pointers, wrong handles, addresses, sizes, STags, flags and STADDs";
}

fn tni_arguments(_ctx: &Ctx) -> Verdict {
    let (mut ids, mut number) = (null_mut::<u16>(), 77usize);
    gives! { UTOFU_ERR_INVALID_POINTER:
        utofu_get_onesided_tnis(null_mut(), &mut number);
        utofu_get_barrier_tnis(null_mut(), &mut number);
        utofu_get_onesided_tnis(&mut ids, null_mut());
        utofu_get_barrier_tnis(&mut ids, null_mut());
    }
    ensure!(ids.is_null() && number == 77, "something was written");
    let (mut onesided, mut barrier) = (null_mut(), null_mut());
    for tni in [6, 7, 9, 255, 256, u16::MAX] {
        gives! { UTOFU_ERR_INVALID_TNI_ID:
            utofu_query_onesided_caps(tni, &mut onesided);
            utofu_query_barrier_caps(tni, &mut barrier);
        }
    }
    ensure!(onesided.is_null() && barrier.is_null(), "written");
    gives! { UTOFU_ERR_INVALID_POINTER:
        utofu_query_onesided_caps(0, null_mut());
        utofu_query_barrier_caps(0, null_mut());
        utofu_query_my_coords(null_mut());
    }
    // These have no code.
    c!(utofu_query_tofu_version(null_mut(), null_mut()));
    c!(utofu_query_utofu_version(null_mut(), null_mut()));
    Ok(())
}

fn vcq_arguments(_ctx: &Ctx) -> Verdict {
    let mut hdl = 7;
    for tni in [6, 7, 256, u16::MAX] {
        gives! { UTOFU_ERR_INVALID_TNI_ID:
            utofu_create_vcq(tni, 0, &mut hdl);
            utofu_create_vcq_with_cmp_id(tni, 0, 0, &mut hdl);
        }
    }
    for component in [8, 9, 256, u16::MAX] {
        gives! { UTOFU_ERR_INVALID_CMP_ID:
            utofu_create_vcq_with_cmp_id(0, component, 0, &mut hdl);
        }
    }
    for bit in 3..64 {
        gives! { UTOFU_ERR_INVALID_FLAGS:
            utofu_create_vcq(0, 1 << bit, &mut hdl);
            utofu_create_vcq_with_cmp_id(0, 0, 1 << bit, &mut hdl);
        }
    }
    gives! { UTOFU_ERR_INVALID_FLAGS:
        utofu_create_vcq(0, EXCLUSIVE | SESSION_MODE, &mut hdl);
        utofu_create_vcq_with_cmp_id(0, 0, EXCLUSIVE, &mut hdl);
        utofu_create_vcq_with_cmp_id(0, 0, SESSION_MODE, &mut hdl);
    }
    ensure_eq!(hdl, 7, "the handle after errors");
    gives! { UTOFU_ERR_INVALID_POINTER:
        utofu_create_vcq(0, 0, null_mut());
        utofu_create_vcq_with_cmp_id(0, 0, 0, null_mut());
    }
    // These calls created no object.
    let queue = Queue::with_component(0, 0, 0)?;
    let mut id = 7;
    for wrong in wrong_handles(freed()?) {
        gives! { UTOFU_ERR_INVALID_VCQ_HDL:
            utofu_free_vcq(wrong);
            utofu_query_vcq_id(wrong, &mut id);
        }
    }
    gives! { UTOFU_ERR_INVALID_POINTER: utofu_query_vcq_id(queue.hdl, null_mut()); }
    let at = coords(0)?;
    gives! { UTOFU_ERR_INVALID_POINTER:
        utofu_construct_vcq_id(null_mut(), 0, 0, 0, &mut id);
        utofu_construct_vcq_id(at.as_ptr().cast_mut(), 0, 0, 0, null_mut());
    }
    for axis in 0..6 {
        let mut outside = at;
        outside[axis] = u8::MAX;
        gives! { UTOFU_ERR_INVALID_COORDS:
            utofu_construct_vcq_id(outside.as_ptr().cast_mut(), 0, 0, 0, &mut id);
        }
    }
    gives! {
        UTOFU_ERR_INVALID_TNI_ID: utofu_construct_vcq_id(at.as_ptr().cast_mut(), 6, 0, 0, &mut id);
        UTOFU_ERR_INVALID_CQ_ID: utofu_construct_vcq_id(at.as_ptr().cast_mut(), 0, 9, 0, &mut id);
        UTOFU_ERR_INVALID_CMP_ID: utofu_construct_vcq_id(at.as_ptr().cast_mut(), 0, 0, 8, &mut id);
    }
    ensure_eq!(id, 7, "the id after errors");
    let (mut place, mut tni, mut cq, mut extra) = ([9u8; 6], 9u16, 9u16, 9u16);
    for wrong in wrong_vcq_ids(queue.id) {
        gives! { UTOFU_ERR_INVALID_VCQ_ID:
            utofu_query_vcq_info(wrong, place.as_mut_ptr(), &mut tni, &mut cq, &mut extra);
        }
        let mut id = wrong;
        gives! { UTOFU_ERR_INVALID_VCQ_ID: utofu_set_vcq_id_path(&mut id, null_mut()); }
        ensure_eq!(id, wrong, "a wrong id after set_vcq_id_path");
    }
    gives! { UTOFU_ERR_INVALID_POINTER:
        utofu_query_vcq_info(queue.id, null_mut(), &mut tni, &mut cq, &mut extra);
        utofu_query_vcq_info(queue.id, place.as_mut_ptr(), null_mut(), &mut cq, &mut extra);
        utofu_query_vcq_info(queue.id, place.as_mut_ptr(), &mut tni, null_mut(), &mut extra);
        utofu_query_vcq_info(queue.id, place.as_mut_ptr(), &mut tni, &mut cq, null_mut());
    }
    ensure_eq!((place, tni, cq, extra), ([9; 6], 9, 9, 9), "the places");
    gives! { UTOFU_ERR_INVALID_POINTER: utofu_set_vcq_id_path(null_mut(), null_mut()); }
    queue.free()?;
    gives!(UTOFU_ERR_INVALID_VCQ_HDL, utofu_free_vcq(queue.hdl));
    Ok(())
}

fn path_arguments(_ctx: &Ctx) -> Verdict {
    let id = vcq_of(0, 0, 0)?;
    let (mut path, mut at) = (99u8, [99u8; 3]);
    for wrong in wrong_vcq_ids(id) {
        gives! { UTOFU_ERR_INVALID_VCQ_ID:
            utofu_get_path_id(wrong, null_mut(), &mut path);
            utofu_get_path_coords(wrong, 1, at.as_mut_ptr());
        }
    }
    for outside in [
        [2, 0, 0],
        [0, 3, 0],
        [0, 0, 2],
        [255, 255, 255],
        [0, 0, 255],
    ] {
        gives! { UTOFU_ERR_INVALID_PATH:
            utofu_get_path_id(id, outside.as_ptr().cast_mut(), &mut path);
        }
        let mut with = id;
        gives! { UTOFU_ERR_INVALID_PATH:
            utofu_set_vcq_id_path(&mut with, outside.as_ptr().cast_mut());
        }
        ensure_eq!(with, id, "the VCQ id after a wrong path");
    }
    for wrong in [0, 13, 14, 128, 255] {
        gives! { UTOFU_ERR_INVALID_PATH_ID: utofu_get_path_coords(id, wrong, at.as_mut_ptr()); }
    }
    ensure_eq!((path, at), (99, [99; 3]), "places after errors");
    gives! { UTOFU_ERR_INVALID_POINTER:
        utofu_get_path_id(id, null_mut(), null_mut());
        utofu_get_path_coords(id, 1, null_mut());
    }
    Ok(())
}

fn stadd_arguments(_ctx: &Ctx) -> Verdict {
    let gone = freed()?;
    let queue = Queue::with_component(TNI, 0, 0)?;
    let memory = Memory::new(1024);
    let base = memory.base;
    let mut stadd = 7u64;
    for wrong in wrong_handles(gone) {
        gives! { UTOFU_ERR_INVALID_VCQ_HDL:
            utofu_reg_mem(wrong, base.cast(), 8, 0, &mut stadd);
            utofu_reg_mem_with_stag(wrong, base.cast(), 256, 3, 0, &mut stadd);
            utofu_dereg_mem(wrong, 1 << 62, 0);
        }
    }
    gives! {
        UTOFU_ERR_INVALID_POINTER: utofu_reg_mem(queue.hdl, base.cast(), 8, 0, null_mut());
        UTOFU_ERR_INVALID_POINTER: utofu_reg_mem_with_stag(queue.hdl, base.cast(), 256, 3, 0, null_mut());
        UTOFU_ERR_INVALID_SIZE: utofu_reg_mem(queue.hdl, base.cast(), 0, 0, &mut stadd);
    }
    for size in [usize::MAX, 1 << 63, 1 << 47] {
        let code = c!(utofu_reg_mem(queue.hdl, base.cast(), size, 0, &mut stadd));
        ensure!(code < 0, "{size:#x} registered: {}", code_name(code));
    }
    let code = c!(utofu_reg_mem(queue.hdl, null_mut(), 8, 0, &mut stadd));
    let allowed = [UTOFU_ERR_INVALID_ADDRESS, UTOFU_ERR_INVALID_POINTER];
    one_of(code, &allowed, "memory at 0")?;
    for bit in 1..64 {
        gives! { UTOFU_ERR_INVALID_FLAGS:
            utofu_reg_mem(queue.hdl, base.cast(), 8, 1 << bit, &mut stadd);
            utofu_reg_mem_with_stag(queue.hdl, base.cast(), 256, 3, 1 << bit, &mut stadd);
        }
    }
    for off in [1, 8, 128, 255] {
        let at = base.wrapping_add(off);
        gives! {
            UTOFU_ERR_INVALID_ADDRESS: utofu_reg_mem_with_stag(queue.hdl, at.cast(), 256, 3, 0, &mut stadd);
            UTOFU_ERR_INVALID_SIZE: utofu_reg_mem_with_stag(queue.hdl, base.cast(), 256 + off, 3, 0, &mut stadd);
        }
    }
    gives! { UTOFU_ERR_INVALID_SIZE:
        utofu_reg_mem_with_stag(queue.hdl, base.cast(), 0, 3, 0, &mut stadd);
    }
    for stag in [256, 257, 1 << 20, u32::MAX] {
        gives! { UTOFU_ERR_INVALID_STAG:
            utofu_reg_mem_with_stag(queue.hdl, base.cast(), 256, stag, 0, &mut stadd);
            utofu_query_stadd(queue.id, stag, &mut stadd);
        }
    }
    for wrong in wrong_vcq_ids(queue.id) {
        gives! { UTOFU_ERR_INVALID_VCQ_ID: utofu_query_stadd(wrong, 3, &mut stadd); }
    }
    ensure_eq!(stadd, 7, "the STADD after errors");
    gives! { UTOFU_ERR_INVALID_POINTER: utofu_query_stadd(queue.id, 3, null_mut()); }
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
        code_is(code, UTOFU_ERR_INVALID_STADD, format!("{wrong:#x}"))?;
    }
    for bit in 0..64 {
        gives! { UTOFU_ERR_INVALID_FLAGS: utofu_dereg_mem(queue.hdl, real, 1 << bit); }
    }
    queue.deregister(real)?;
    gives!(UTOFU_ERR_INVALID_STADD, utofu_dereg_mem(queue.hdl, real, 0));
    queue.deregister(named)?;
    gives! { UTOFU_ERR_INVALID_STADD: utofu_dereg_mem(queue.hdl, named, 0); }
    queue.free()
}

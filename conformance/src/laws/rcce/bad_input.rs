//! Invalid arguments: the codes of the headers, and never a crash.

use super::kit::*;

laws! {
    ids: "bad-input.ids", "RCCE RCCE_ERROR_ID", 2,
        [RCCE_send, RCCE_recv, RCCE_recv_test, iRCCE_isend, iRCCE_irecv, iRCCE_issend, iRCCE_isrecv, iRCCE_ssend, iRCCE_srecv,
         iRCCE_srecv_test, iRCCE_probe, iRCCE_iprobe, iRCCE_mrecv, iRCCE_mcast, RCCE_bcast, RCCE_put, RCCE_get, iRCCE_put, iRCCE_get,
         RCCE_flag_write, RCCE_flag_read, iRCCE_flag_write_tagged, iRCCE_flag_read_tagged, RCCE_acquire_lock, RCCE_release_lock],
        "numbers of UEs that do not exist give ERROR_ID, and nothing is done";
    buffers: "bad-input.buffers", "iRCCE 2.0 §9", 2,
        [RCCE_send, RCCE_recv, RCCE_recv_test, iRCCE_isend, iRCCE_irecv, iRCCE_issend, iRCCE_isrecv, iRCCE_ssend, iRCCE_srecv,
         iRCCE_srecv_test, iRCCE_msend, iRCCE_mrecv, iRCCE_mcast, RCCE_bcast, iRCCE_bcast, RCCE_reduce, RCCE_allreduce],
        "null where there should be bytes gives iRCCE_ERROR, and nothing is sent or taken";
    copies: "bad-input.copies", "RCCE RCCE_put", 2,
        [RCCE_put, RCCE_get, iRCCE_put, iRCCE_get, iRCCE_memcpy_put, iRCCE_memcpy_get],
        "addresses outside of the MPB, ranges beyond it, null and negative sizes give their codes";
    flags: "bad-input.flags", "RCCE RCCE_flag_write", 2,
        [RCCE_flag_alloc, RCCE_flag_free, RCCE_flag_write, RCCE_flag_read, RCCE_wait_until, RCCE_flag_write_gory, RCCE_wait_until_gory,
         iRCCE_flag_alloc, iRCCE_flag_write, iRCCE_flag_read, iRCCE_wait_until, iRCCE_flag_alloc_tagged, iRCCE_flag_write_tagged,
         iRCCE_flag_read_tagged, iRCCE_wait_tagged, iRCCE_test_tagged],
        "flags that are null, or not in the MPB, and places that are null give their codes";
    lengths: "bad-input.lengths", "iRCCE 2.0 §9", 2, [iRCCE_isend, iRCCE_irecv, iRCCE_ssend, iRCCE_srecv, iRCCE_msend, iRCCE_mrecv],
        "negative lengths are none";
    requests: "bad-input.requests", "iRCCE 2.0 §9", 1,
        [iRCCE_isend_test, iRCCE_irecv_test, iRCCE_isend_wait, iRCCE_irecv_wait, iRCCE_isend_cancel, iRCCE_irecv_cancel, iRCCE_get_status],
        "requests that have never been begun have nothing left to do";
    failed_requests: "bad-input.failed-requests", "iRCCE 2.0 §9", 2, [iRCCE_isend, iRCCE_irecv, iRCCE_isend_wait, iRCCE_irecv_wait],
        "a request of a failed call is not waited for";
    lists: "bad-input.lists", "iRCCE 2.0 §9.7", 1,
        [iRCCE_init_wait_list, iRCCE_add_to_wait_list, iRCCE_add_send_to_wait_list, iRCCE_add_recv_to_wait_list, iRCCE_test_all,
         iRCCE_wait_all, iRCCE_test_any, iRCCE_wait_any],
        "a null list gives iRCCE_ERROR";
}

const WRONG: [i32; 6] = [2, 48, 1_000_000, -2, i32::MIN, i32::MAX];

fn ids(_: &Ctx) -> Verdict {
    let bytes = Bytes::filled(64, 1);
    let (ptr, mut number) = (bytes.ptr(), -7);
    let (area, flag) = (c!(iRCCE_malloc(64)), new_flag()?);
    let id = RCCE_ERROR_ID;
    for wrong in WRONG {
        gives!(id, RCCE_recv_test(ptr, 8, wrong, &mut number));
        for len in [8, 0] {
            gives!(id, RCCE_send(ptr, len as usize, wrong));
            gives!(id, RCCE_recv(ptr, len as usize, wrong));
            gives!(id, iRCCE_isend(ptr, len, wrong, Send::new().0));
            gives!(id, iRCCE_isend(ptr, len, wrong, null_mut()));
            gives!(id, iRCCE_issend(ptr, len, wrong, Send::new().0));
            gives!(id, iRCCE_irecv(ptr, len, wrong, Recv::new().0));
            gives!(id, iRCCE_irecv(ptr, len, wrong, null_mut()));
            gives!(id, iRCCE_isrecv(ptr, len, wrong, Recv::new().0));
            gives!(id, iRCCE_ssend(ptr, len, wrong));
            gives!(id, iRCCE_srecv(ptr, len, wrong));
            gives!(id, iRCCE_srecv_test(ptr, len, wrong, &mut number));
            gives!(id, iRCCE_mrecv(ptr, len, wrong));
            gives!(id, iRCCE_mcast(ptr, len as usize, wrong));
            gives!(id, RCCE_bcast(ptr, len as usize, wrong, world()));
            gives!(id, iRCCE_bcast(ptr, len as usize, wrong, world()));
        }
        gives! { id:
            iRCCE_probe(wrong, &mut number);
            iRCCE_iprobe(wrong, &mut number, &mut number);
            RCCE_put(area, bytes.raw(), 32, wrong);
            RCCE_get(bytes.raw(), area, 32, wrong);
            iRCCE_put(area, bytes.raw(), 32, wrong);
            iRCCE_get(bytes.raw(), area, 32, wrong);
            RCCE_flag_write(&mut { flag }, 1, wrong);
            RCCE_flag_read(flag, &mut number, wrong);
            iRCCE_flag_write_tagged(&mut { flag }, 1, wrong, tag(&bytes), 28);
            iRCCE_flag_read_tagged(flag, &mut number, wrong, tag(&bytes), 28);
            RCCE_acquire_lock(wrong);
            RCCE_release_lock(wrong);
        }
    }
    // Wildcards are for receives only.
    gives!(id, RCCE_send(ptr, 8, ANY_SOURCE));
    gives!(id, iRCCE_isend(ptr, 8, ANY_SOURCE, Send::new().0));
    gives!(id, iRCCE_ssend(ptr, 8, ANY_SOURCE));
    gives!(id, RCCE_recv(ptr, 8, ANY_SOURCE));
    gives!(id, RCCE_acquire_lock(ANY_SOURCE));
    bytes.holds(&[1; 64], 0, "the buffer")?;
    gives!(SUCCESS, iRCCE_isend_push());
    gives!(SUCCESS, iRCCE_irecv_push());
    barrier()
}

fn buffers(ctx: &Ctx) -> Verdict {
    let other = 1 - ctx.rank as i32;
    let mut test = -7;
    gives!(ERROR, RCCE_send(null_mut(), 8, other));
    gives!(ERROR, RCCE_recv(null_mut(), 8, other));
    gives!(ERROR, RCCE_recv_test(null_mut(), 8, other, &mut test));
    for request in [Send::new().0, null_mut()] {
        gives!(ERROR, iRCCE_isend(null_mut(), 8, other, request));
        gives!(ERROR, iRCCE_issend(null_mut(), 8, other, request));
    }
    for request in [Recv::new().0, null_mut()] {
        gives!(ERROR, iRCCE_irecv(null_mut(), 8, other, request));
        gives!(ERROR, iRCCE_irecv(null_mut(), ANY_LENGTH, other, request));
        gives!(ERROR, iRCCE_isrecv(null_mut(), 8, other, request));
    }
    gives!(ERROR, iRCCE_ssend(null_mut(), 8, other));
    gives!(ERROR, iRCCE_srecv(null_mut(), 8, other));
    gives!(ERROR, iRCCE_srecv(null_mut(), ANY_LENGTH, ANY_SOURCE));
    gives!(ERROR, iRCCE_srecv_test(null_mut(), 8, other, &mut test));
    gives!(ERROR, iRCCE_msend(null_mut(), 8));
    gives!(ERROR, iRCCE_mrecv(null_mut(), 8, other));
    for root in 0..2 {
        gives!(ERROR, iRCCE_mcast(null_mut(), 8, root));
        gives!(ERROR, RCCE_bcast(null_mut(), 8, root, world()));
        gives!(ERROR, iRCCE_bcast(null_mut(), 8, root, world()));
    }
    let (int, sum) = (63_636_363, 23_232_323);
    let data = Bytes::filled(8, 0);
    gives! { ERROR:
        RCCE_reduce(null_mut(), data.ptr(), 1, int, sum, 0, world());
        RCCE_allreduce(null_mut(), data.ptr(), 1, int, sum, world());
        RCCE_allreduce(data.ptr(), null_mut(), 1, int, sum, world());
    }
    gives! { RCCE_ERROR_VAL_UNDEFINED:
        RCCE_recv_test(data.ptr(), 8, other, null_mut());
        iRCCE_srecv_test(data.ptr(), 8, other, null_mut());
    }
    gives!(SUCCESS, iRCCE_isend_push());
    gives!(SUCCESS, iRCCE_irecv_push());
    // Valid calls still work: the refused calls have left nothing behind.
    barrier()?;
    if ctx.rank == 0 {
        send(&Bytes::filled(8, 5), 1)?;
        ok!(RCCE_bcast(Bytes::filled(8, 6).ptr(), 8, 0, world()));
    } else {
        ensure_eq!(receive(8, 0)?, [5; 8], "the message");
        ok!(RCCE_bcast(data.ptr(), 8, 0, world()));
        data.holds(&[6; 8], 0, "the broadcast")?;
    }
    Ok(())
}

fn copies(ctx: &Ctx) -> Verdict {
    let other = 1 - ctx.rank as i32;
    let area = c!(iRCCE_malloc(MPB));
    let bytes = Bytes::filled(MPB + 64, 0x61);
    let (target, source) = (RCCE_ERROR_TARGET, RCCE_ERROR_SOURCE);
    let length = RCCE_ERROR_MESSAGE_LENGTH;
    for (wrong, size) in [
        (null_mut(), 8),
        (null_mut(), 0),
        (bytes.raw(), 8),
        (area.wrapping_sub(1), 8),
        (area.wrapping_add(MPB), 8),
        (area.wrapping_add(MPB - 7), 8),
        (area, MPB as i32 + 1),
        (area.wrapping_add(1), i32::MAX),
    ] {
        gives!(target, RCCE_put(wrong, bytes.raw(), size, other));
        gives!(target, iRCCE_put(wrong, bytes.raw(), size, other));
        gives!(source, RCCE_get(bytes.raw(), wrong, size, other));
        gives!(source, iRCCE_get(bytes.raw(), wrong, size, other));
    }
    gives!(source, iRCCE_put(area, null_mut(), 8, other));
    gives!(target, iRCCE_get(null_mut(), area, 8, other));
    for negative in [-1, -32, i32::MIN] {
        gives!(length, RCCE_put(area, bytes.raw(), negative, other));
        gives!(length, iRCCE_get(bytes.raw(), area, negative, other));
    }
    ok!(iRCCE_put(area, null_mut(), 0, other));
    let put = c!(iRCCE_memcpy_put(null_mut(), bytes.raw().cast(), 8));
    let get = c!(iRCCE_memcpy_get(null_mut(), bytes.raw().cast(), 8));
    let null = put.is_null() && get.is_null();
    ensure!(null, "copies to null: {put:?}, {get:?}");
    c!(iRCCE_memcpy_put(bytes.raw().cast(), std::ptr::null(), 8));
    bytes.holds(&[0x61; MPB + 64], 0, "the program's bytes")?;
    barrier()?;
    ok!(iRCCE_get(bytes.raw(), area, MPB as i32, other));
    bytes.holds(&[0; MPB], 0x61, "the MPB")?;
    barrier()
}

fn flags(ctx: &Ctx) -> Verdict {
    let other = 1 - ctx.rank as i32;
    let [undefined, elsewhere, unallocated, value_place] = [
        RCCE_ERROR_FLAG_UNDEFINED,
        RCCE_ERROR_FLAG_NOT_IN_COMM_BUFFER,
        RCCE_ERROR_FLAG_NOT_ALLOCATED,
        RCCE_ERROR_VAL_UNDEFINED,
    ];
    let flag = new_flag()?;
    let (mut value, mut result) = (-7, -7);
    gives!(undefined, RCCE_flag_alloc(null_mut()));
    gives!(undefined, iRCCE_flag_alloc(null_mut()));
    gives!(undefined, iRCCE_flag_alloc_tagged(null_mut()));
    let mut none: *mut i32 = null_mut();
    for place in [null_mut(), &raw mut none] {
        gives! { undefined:
            RCCE_flag_free(place);
            RCCE_flag_write(place, 1, other);
            RCCE_flag_write_gory(place, 1, other);
            iRCCE_flag_write(place, 1, other);
            iRCCE_flag_write_tagged(place, 1, other, null_mut(), 0);
        }
    }
    gives! { undefined:
        RCCE_flag_read(null_mut(), &mut value, other);
        iRCCE_flag_read(null_mut(), &mut value, other);
        iRCCE_flag_read_tagged(null_mut(), &mut value, other, null_mut(), 0);
    }
    gives! { unallocated:
        RCCE_wait_until(null_mut(), 1);
        RCCE_wait_until_gory(null_mut(), 1);
        iRCCE_wait_until(null_mut(), 1);
        iRCCE_wait_tagged(null_mut(), 1, null_mut(), 0);
        iRCCE_test_tagged(null_mut(), 1, &mut result, null_mut(), 0);
    }
    let mut own = 3i32;
    let odd = flag.cast::<u8>().wrapping_add(2).cast::<i32>();
    for stray in [&raw mut own, flag.wrapping_add(1 << 20), odd] {
        gives! { elsewhere:
            RCCE_flag_write(&mut { stray }, 1, other);
            RCCE_flag_read(stray, &mut value, other);
            RCCE_wait_until(stray, 1);
            iRCCE_flag_write_tagged(&mut { stray }, 1, other, null_mut(), 0);
            iRCCE_flag_read_tagged(stray, &mut value, other, null_mut(), 0);
            iRCCE_wait_tagged(stray, 1, null_mut(), 0);
            iRCCE_test_tagged(stray, 1, &mut result, null_mut(), 0);
        }
    }
    gives! { value_place:
        RCCE_flag_read(flag, null_mut(), other);
        iRCCE_flag_read_tagged(flag, null_mut(), other, null_mut(), 0);
        iRCCE_test_tagged(flag, 1, null_mut(), null_mut(), 0);
    }
    ensure_eq!((value, result, own), (-7, -7, 3), "places of results");
    barrier()
}

fn lengths(ctx: &Ctx) -> Verdict {
    let other = 1 - ctx.rank as i32;
    let room = Bytes::filled(16, 0x62);
    for wrong in [-2, -100, isize::MIN] {
        gives! { SUCCESS:
            iRCCE_isend(room.ptr(), wrong, other, Send::new().0);
            iRCCE_irecv(room.ptr(), wrong, other, Recv::new().0);
        }
        // These calls synchronise, like calls with no bytes.
        if ctx.rank == 0 {
            ok!(iRCCE_ssend(room.ptr(), wrong, other));
            ok!(iRCCE_msend(room.ptr(), wrong));
        } else {
            ok!(iRCCE_srecv(room.ptr(), wrong, other));
            ok!(iRCCE_mrecv(room.ptr(), wrong, other));
        }
    }
    room.holds(&[], 0x62, "the buffer")
}

fn requests(_: &Ctx) -> Verdict {
    let (out, into) = (Send::new(), Recv::new());
    for _ in 0..2 {
        ensure_eq!([out.test(), into.test()], [(SUCCESS, 1); 2], "tests");
        wait_both(&out, &into)?;
        ensure_eq!((out.status(), into.status()), (SUCCESS, SUCCESS), "status");
        let cancels = [out.cancel(), into.cancel()];
        ensure_eq!(cancels, [(NOT_ENQUEUED, 0); 2], "cancelling them");
    }
    // The same with arbitrary bytes in the structures.
    // SAFETY:
    // - room for the structures; the library follows none of their pointers.
    unsafe {
        out.0.cast::<u8>().write_bytes(0xa7, 100);
        into.0.cast::<u8>().write_bytes(0xa7, 100);
    }
    ensure!(out.test().1 == 1 && into.test().1 == 1, "tests of noise");
    gives!(NOT_ENQUEUED, iRCCE_isend_cancel(out.0, null_mut()));
    gives!(NOT_ENQUEUED, iRCCE_irecv_cancel(into.0, null_mut()));
    Ok(())
}

fn failed_requests(ctx: &Ctx) -> Verdict {
    let other = 1 - ctx.rank as i32;
    let (out, into) = (Send::new(), Recv::new());
    let bytes = Bytes::filled(4, 0);
    gives!(RCCE_ERROR_ID, iRCCE_isend(bytes.ptr(), 4, 77, out.0));
    gives!(RCCE_ERROR_ID, iRCCE_irecv(bytes.ptr(), 4, 77, into.0));
    c!(iRCCE_isend_wait(out.0));
    c!(iRCCE_irecv_wait(into.0));
    gives!(ERROR, iRCCE_isend(null_mut(), 4, other, out.0));
    gives!(ERROR, iRCCE_irecv(null_mut(), 4, other, into.0));
    c!(iRCCE_isend_wait(out.0));
    c!(iRCCE_irecv_wait(into.0));
    barrier()
}

fn lists(_: &Ctx) -> Verdict {
    c!(iRCCE_init_wait_list(null_mut()));
    let (mut flag, mut send, mut receive) = (-7, Send::new().0, Recv::new().0);
    c!(iRCCE_add_to_wait_list(null_mut(), send, receive));
    c!(iRCCE_add_send_to_wait_list(null_mut(), send));
    c!(iRCCE_add_recv_to_wait_list(null_mut(), receive));
    gives!(ERROR, iRCCE_test_all(null_mut(), &mut flag));
    gives!(ERROR, iRCCE_wait_all(null_mut()));
    gives!(ERROR, iRCCE_test_any(null_mut(), &mut send, &mut receive));
    gives!(ERROR, iRCCE_wait_any(null_mut(), &mut send, &mut receive));
    equal!(flag, -7, "the flag")
}

//! Invalid places, notifications, lists, sizes and memory: the code that refuses them, without an effect at any rank.

use super::bad_input::untouched;
use super::kit::*;
use crate::laws::no_memory;

laws! {
    past_the_end: "bad.offsets", "§5.7", 2,
        [gaspi_write, gaspi_read, gaspi_write_notify, gaspi_read_notify],
        "ranges that leave a segment are refused by GASPI_ERR_INV_LOC_OFF and GASPI_ERR_INV_REM_OFF, nothing is written";
    overflowing: "bad.overflow", "§5.7", 2, [gaspi_write, gaspi_read, gaspi_write_notify, gaspi_read_notify],
        "sizes and offsets near 2^64 do not wrap around";
    notification_values: "bad.notifications", "§8.3.2", 2,
        [gaspi_notify, gaspi_write_notify, gaspi_write_list_notify, gaspi_read_notify, gaspi_notify_waitsome, gaspi_notify_reset],
        "the value 0 and ids out of range are refused; the data that goes with them is not written";
    lists_are_all_or_nothing: "bad.lists", "§8.4.2", 2,
        [gaspi_write_list, gaspi_write_list_notify, gaspi_read_list, gaspi_read_list_notify],
        "a list with an invalid element at any place writes nothing";
    list_lengths: "bad.list-lengths", "§8.4.2", 2,
        [gaspi_write_list, gaspi_write_list_notify, gaspi_read_list, gaspi_read_list_notify],
        "lists of no element, and of more than gaspi_rw_list_elem_max, are refused by GASPI_ERR_INV_NUM";
    segment_sizes: "bad.segment-sizes", "§7.2.1", 1, [gaspi_segment_alloc, gaspi_segment_bind, gaspi_segment_create],
        "segments of no byte, or of more than there can be, are refused and leave nothing behind";
    segment_memory: "bad.segment-memory", "§7.2.4, §7.2.5", 1, [gaspi_segment_bind, gaspi_segment_use, gaspi_segment_num],
        "memory that no process has, or that is not mapped throughout, makes no segment; other memory does as before";
    segment_names: "bad.segment-names", "§7.2.1", 1, [gaspi_segment_alloc, gaspi_segment_bind, gaspi_segment_list],
        "a name in use is refused; the segment that has it stays as it was";
}

fn past_the_end(ctx: &Ctx) -> Verdict {
    untouched(ctx, |peer| {
        // Offset and size of ranges that leave a segment of 256 bytes.
        for (offset, size) in [
            (256, 1),
            (249, 8),
            (0, 257),
            (255, 2),
            (257, 0),
            (300, 8),
            (1 << 20, 1),
            (128, 129),
            (1, 256),
        ] {
            gives! { GASPI_ERR_INV_LOC_OFF:
                gaspi_write(0, offset, peer, 1, 0, size, 0, LONG);
                gaspi_read(0, offset, peer, 1, 0, size, 0, LONG);
                gaspi_write_notify(0, offset, peer, 1, 0, size, 0, 1, 0, LONG);
                gaspi_read_notify(0, offset, peer, 1, 0, size, 0, 0, LONG);
            }
            if size <= 256 {
                gives! { GASPI_ERR_INV_REM_OFF:
                    gaspi_write(0, 0, peer, 1, offset, size, 0, LONG);
                    gaspi_read(0, 0, peer, 1, offset, size, 0, LONG);
                    gaspi_write_notify(0, 0, peer, 1, offset, size, 0, 1, 0, LONG);
                    gaspi_read_notify(0, 0, peer, 1, offset, size, 0, 0, LONG);
                }
            }
        }
        Ok(())
    })
}

fn overflowing(ctx: &Ctx) -> Verdict {
    untouched(ctx, |peer| {
        for (offset, size) in [
            (u64::MAX, 1),
            (u64::MAX - 7, 8),
            (u64::MAX - 7, 16),
            (1 << 63, 8),
            (i64::MAX as u64, 2),
            (u64::MAX, 0),
        ] {
            post::write(0, offset, peer, 1, 0, size).gives(GASPI_ERR_INV_LOC_OFF, 0, LONG)?;
            post::read(0, offset, peer, 1, 0, size).gives(GASPI_ERR_INV_LOC_OFF, 0, LONG)?;
            gives! { GASPI_ERR_INV_REM_OFF:
                gaspi_write(0, 0, peer, 1, offset, size, 0, LONG);
                gaspi_read(0, 0, peer, 1, offset, size, 0, LONG);
                gaspi_write_notify(0, 0, peer, 1, offset, size, 0, 1, 0, LONG);
                gaspi_read_notify(0, 0, peer, 1, offset, size, 0, 0, LONG);
            }
        }
        let most = got!(gaspi_transfer_size_max());
        for size in [most + 1, 1 << 40, 1 << 63, u64::MAX - 255, u64::MAX] {
            for offset in [0, 8, 256] {
                gives! { GASPI_ERR_INV_COMMSIZE:
                    gaspi_write(0, offset, peer, 1, 0, size, 0, LONG);
                    gaspi_read(0, 0, peer, 1, offset, size, 0, LONG);
                    gaspi_write_notify(0, 0, peer, 1, offset, size, 0, 1, 0, LONG);
                    gaspi_read_notify(0, offset, peer, 1, 0, size, 0, 0, LONG);
                }
            }
        }
        Ok(())
    })
}

fn notification_values(ctx: &Ctx) -> Verdict {
    let num = got!(gaspi_notification_num());
    untouched(ctx, |peer| {
        let (mine, theirs, at, size) = ([0u8], [1u8], [8u64], [8u64]);
        let (mine, theirs, at, size) = (mine.as_ptr(), theirs.as_ptr(), at.as_ptr(), size.as_ptr());
        gives! { GASPI_ERR_INV_NOTIF_VAL:
            gaspi_notify(0, peer, 0, 0, 0, LONG);
            gaspi_write_notify(0, 0, peer, 1, 0, 8, 0, 0, 0, LONG);
            gaspi_write_list_notify(1, mine, at, peer, theirs, at, size, 1, 0, 0, 0, LONG);
        }
        for id in [num, num + 1, 1 << 30, u32::MAX] {
            gives! { GASPI_ERR_INV_NOTIF_ID:
                gaspi_notify(0, peer, id, 1, 0, LONG);
                gaspi_write_notify(0, 0, peer, 1, 0, 8, id, 1, 0, LONG);
                gaspi_read_notify(0, 0, peer, 1, 0, 8, id, 0, LONG);
                gaspi_write_list_notify(1, mine, at, peer, theirs, at, size, 1, id, 1, 0, LONG);
                gaspi_read_list_notify(1, mine, at, peer, theirs, at, size, 1, id, 0, LONG);
            }
            let mut value = 7;
            gives! { GASPI_ERR_INV_NOTIF_ID:
                gaspi_notify_reset(0, id, &mut value);
                gaspi_notify_waitsome(0, id, 1, &mut value, TEST);
                gaspi_notify_waitsome(0, id, 1, &mut value, BLOCK);
            }
            ensure_eq!(value, 7, "results of refused calls");
        }
        let last = num - 1;
        for (begin, count) in [(0, num + 1), (last, 2), (1, u32::MAX), (last, u32::MAX)] {
            let code = waitsome(0, begin, count, BLOCK);
            must_fail(code, format!("a wait for {count} from {begin} on"))?;
        }
        Ok(())
    })
}

fn lists_are_all_or_nothing(ctx: &Ctx) -> Verdict {
    untouched(ctx, |peer| {
        for (bad, fault) in (0..5u64).flat_map(|bad| (0..6).map(move |fault| (bad, fault))) {
            let mut list = post::Parts::default();
            for nth in 0..5 {
                let (mut here, mut there, mut size) = ((0, 16 * nth), (1, 40 * nth), 8);
                match fault {
                    _ if nth != bad => {}
                    0 => here.0 = 9,
                    1 => there.0 = 9,
                    2 => here.1 = 250,
                    3 => there.1 = 250,
                    4 => there.1 = u64::MAX - 3,
                    _ => size = u64::MAX,
                }
                list.push(here, there, size);
            }
            let expected = match fault {
                0 | 1 => GASPI_ERR_INV_SEG,
                2 => GASPI_ERR_INV_LOC_OFF,
                3 | 4 => GASPI_ERR_INV_REM_OFF,
                _ => GASPI_ERR_INV_COMMSIZE,
            };
            for (what, code) in [
                ("gaspi_write_list", list.write(peer).code(0, LONG)),
                ("gaspi_read_list", list.read(peer).code(0, LONG)),
                (
                    "gaspi_write_list_notify",
                    list.write_notify(peer, 1, 0, 1).code(0, LONG),
                ),
                (
                    "gaspi_read_list_notify",
                    list.read_notify(peer, 1, 0).code(0, LONG),
                ),
            ] {
                ensure_eq!(code, expected, "{what}, element {bad}, fault {fault}");
            }
        }
        // The elements are valid, the segment of the notification is not.
        let list = post::Parts::new(0, 1, &[(8, 8, 8)]);
        list.write_notify(peer, 9, 0, 1)
            .gives(GASPI_ERR_INV_SEG, 0, LONG)?;
        list.read_notify(peer, 9, 0)
            .gives(GASPI_ERR_INV_SEG, 0, LONG)
    })
}

fn list_lengths(ctx: &Ctx) -> Verdict {
    let most = got!(gaspi_rw_list_elem_max());
    untouched(ctx, |peer| {
        let n = most as usize + 1;
        let (mine, theirs, at, size) = (vec![0u8; n], vec![1u8; n], vec![8u64; n], vec![8u64; n]);
        let (mine, theirs, at, size) = (mine.as_ptr(), theirs.as_ptr(), at.as_ptr(), size.as_ptr());
        for num in [0, most + 1, 1 << 20, u32::MAX] {
            gives! { GASPI_ERR_INV_NUM:
                gaspi_write_list(num, mine, at, peer, theirs, at, size, 0, LONG);
                gaspi_read_list(num, mine, at, peer, theirs, at, size, 0, LONG);
                gaspi_write_list_notify(num, mine, at, peer, theirs, at, size, 1, 0, 1, 0, LONG);
                gaspi_read_list_notify(num, mine, at, peer, theirs, at, size, 1, 0, 0, LONG);
            }
        }
        Ok(())
    })
}

fn segment_sizes(_: &Ctx) -> Verdict {
    let mut own = [0u64; 8];
    let base: *mut u8 = own.as_mut_ptr().cast();
    gives! { GASPI_ERR_INV_SEGSIZE:
        gaspi_segment_alloc(0, 0, 0);
        gaspi_segment_create(0, 0, ALL, LONG, 0);
        gaspi_segment_bind(0, base, 0, 0);
        gaspi_segment_use(0, base, 0, ALL, LONG, 0);
    }
    let most = i64::MAX as u64;
    for size in [u64::MAX, u64::MAX - 4096, most + 1, most, 1 << 60, 1 << 50] {
        let code = c!(gaspi_segment_alloc(0, size, 0));
        must_fail(code, format!("a segment of {size} bytes"))?;
        let code = c!(gaspi_segment_create(0, size, ALL, LONG, 0));
        must_fail(code, format!("a collective segment of {size} bytes"))?;
    }
    ensure_eq!(got!(gaspi_segment_num()), 0, "segments after refusals");
    segment(0, 64)?.fill(1);
    barrier()
}

fn segment_memory(_: &Ctx) -> Verdict {
    for (base, len) in no_memory() {
        let (base, len) = (base.cast(), len as u64);
        let code = c!(gaspi_segment_bind(0, base, len, 0));
        must_fail(code, format!("{len} bytes at {base:p}"))?;
        let code = c!(gaspi_segment_use(0, base, len, ALL, LONG, 0));
        must_fail(code, format!("{len} bytes at {base:p} for all"))?;
    }
    ensure_eq!(got!(gaspi_segment_num()), 0, "segments after refusals");
    let mut own = [0u64; 64];
    ok!(gaspi_segment_bind(0, own.as_mut_ptr().cast(), 512, 0));
    ok!(gaspi_segment_delete(0));
    segment(0, 64)?.fill(1);
    barrier()
}

fn segment_names(_: &Ctx) -> Verdict {
    let memory = segment(3, 64)?;
    memory.fill(8);
    let mut own = [0u64; 8];
    let base: *mut u8 = own.as_mut_ptr().cast();
    gives! { GASPI_ERR_INV_SEG:
        gaspi_segment_alloc(3, 64, 0);
        gaspi_segment_alloc(3, 128, 0);
        gaspi_segment_bind(3, base, 64, 0);
        gaspi_segment_create(3, 64, ALL, LONG, 0);
        gaspi_segment_use(3, base, 64, ALL, LONG, 0);
    }
    let (pointer, num) = (got!(gaspi_segment_ptr(3)), got!(gaspi_segment_num()));
    ensure_eq!((pointer, num), (memory.base, 1), "segment after refusals");
    memory.all(0, 64, 8, "the segment after refusals")?;
    let mut ids = [0xee; 8];
    let code = c!(gaspi_segment_list(2, ids.as_mut_ptr()));
    must_fail(code, "a list of 2 of 1 segments")?;
    barrier()
}

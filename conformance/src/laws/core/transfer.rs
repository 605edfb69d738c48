//! Puts and gets: transferred bytes, and bytes that must stay.

use unipgas_core::{AtomicOp, AtomicRequest, AtomicType, Error, Flags, Rights};

use super::rank::{
    EXTRA, Says, bytes_of, is, on_ranks, other_than, out_of_bounds, read, refused, remote,
    untouched, update, write,
};
use crate::law::{Ctx, Verdict};
use crate::{ensure, ensure_eq};

laws! {
    "core.put.contents", "unipgas core: Channel::put", 2,
        "a put writes its bytes, all of them, and no others" => put_contents;
    "core.get.contents", "unipgas core: Channel::get", 2,
        "a get reads the bytes that are there, and changes no others" => get_contents;
    "core.transfer.bounds", "unipgas core: RemoteRegion::check", 2,
        "a range that leaves its region is refused, and nothing is written" => bounds;
    "core.transfer.rights", "unipgas core: Rights", 2,
        "an access that the owner does not grant is refused, and nothing is written" => rights;
    "core.put-notify.refused-whole", "unipgas core: Channel::put_notify", 2,
        "a put with a refused notice writes nothing" => refused_whole;
    "core.region.stale", "unipgas core: Region", 2,
        "a released region is refused, also when another one takes its place" => stale;
}

const SIZES: &[usize] = &[
    0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129, 255, 1000, 4095, 4096,
    4097, 65_539, 1_048_576,
];
const OFFSETS: &[usize] = &[0, 1, 3, 4, 8, 13, 4095];
const GUARD: u8 = 0xa5;
const ROOM: usize = 8 << 20;

fn stride(size: usize) -> usize {
    (size + 4096 + 128).next_multiple_of(64)
}

fn put_contents(ctx: &Ctx) -> Verdict {
    on_ranks(ctx, ROOM, |rank| {
        let there = rank.data_of(rank.other())?;
        for &size in SIZES {
            write(&rank.data, 0, &vec![GUARD; stride(size) * OFFSETS.len()]);
            ctx.sync();
            let sent = bytes_of(ctx, size as u64 * 2 + u64::from(ctx.rank), size);
            for (nth, offset) in OFFSETS.iter().enumerate() {
                let dst = remote(&there, nth * stride(size) + offset);
                rank.put(&sent, dst)
                    .says(&format!("put of {size} bytes at offset {}", dst.offset))?;
            }
            ctx.sync();
            let expected = bytes_of(ctx, size as u64 * 2 + u64::from(rank.other()), size);
            for (nth, offset) in OFFSETS.iter().enumerate() {
                let begin = nth * stride(size);
                let (from, to) = (begin + offset, begin + offset + size);
                ensure!(
                    read(&rank.data, from, size) == expected,
                    "put of {size} bytes at offset {from}: other bytes arrived"
                );
                let before = other_than(&rank.data, begin, *offset, GUARD);
                let after = other_than(&rank.data, to, begin + stride(size) - to, GUARD);
                ensure!(
                    before.or(after).is_none(),
                    "put of {size} bytes at offset {from} changed byte {:?}",
                    before.or(after)
                );
            }
            ctx.sync();
        }
        Ok(())
    })
}

fn get_contents(ctx: &Ctx) -> Verdict {
    on_ranks(ctx, ROOM, |rank| {
        let there = rank.data_of(rank.other())?;
        let mine = bytes_of(ctx, u64::from(ctx.rank), ROOM);
        let theirs = bytes_of(ctx, u64::from(rank.other()), ROOM);
        write(&rank.data, 0, &mine);
        ctx.sync();
        for &size in SIZES {
            for (nth, &offset) in OFFSETS.iter().enumerate() {
                write(&rank.scratch, 0, &vec![GUARD; size + 128]);
                let at = nth * stride(size) + offset;
                let dst = rank.scratch.local(61 + nth, size).says("a destination")?;
                let src = remote(&there, at);
                // SAFETY:
                // - in bounds of the scratch region; the call waits for completion.
                let got = rank.end(unsafe { rank.endpoint.get(dst, src, size, Flags::empty(), 0) });
                got.says(&format!("get of {size} bytes at offset {at}"))?;
                ensure!(
                    read(&rank.scratch, 61 + nth, size) == theirs[at..at + size],
                    "get of {size} bytes at offset {at}: other bytes came"
                );
                let before = other_than(&rank.scratch, 0, 61 + nth, GUARD);
                let after = other_than(&rank.scratch, 61 + nth + size, 128 - 61 - nth, GUARD);
                ensure!(
                    before.or(after).is_none(),
                    "get of {size} bytes changed a byte beside its destination"
                );
            }
        }
        ctx.sync();
        ensure!(
            read(&rank.data, 0, ROOM) == mine,
            "gets changed their source"
        );
        Ok(())
    })
}

fn request(count: usize, operand: &[u64; 2]) -> AtomicRequest {
    update(AtomicOp::Sum, AtomicType::U64, count, operand.as_ptr())
}

fn bounds(ctx: &Ctx) -> Verdict {
    // A multiple of neither a page nor a word: the requested length counts.
    const LEN: usize = 5003;
    on_ranks(ctx, LEN, |rank| {
        let there = rank.data_of(rank.other())?;
        let notes = rank.notes_of(rank.other())?;
        write(&rank.data, 0, &[GUARD; LEN]);
        write(&rank.scratch, 0, &[!GUARD; LEN]);
        ctx.sync();
        let ranges = [
            (LEN, 1),
            (LEN + 1, 0),
            (LEN - 3, 4),
            (0, LEN + 1),
            (1, LEN),
            (4096, 4096),
            (1, usize::MAX),
            (LEN, usize::MAX),
            (usize::MAX, 0),
            (usize::MAX, 1),
            (usize::MAX, usize::MAX),
            (usize::MAX / 2 + 1, usize::MAX / 2 + 1),
        ];
        let slot = remote(&notes, 0);
        for (offset, len) in ranges {
            let at = remote(&there, offset);
            let what = format!("{len} bytes at offset {offset} of {LEN}");
            for (kind, result) in [
                ("put", rank.try_put(at, len)),
                ("get", rank.try_get(at, len)),
                ("put with notice", rank.try_put_notify(at, len, slot)),
            ] {
                refused(result, out_of_bounds, &format!("{kind} of {what}"))?;
            }
        }
        for offset in [LEN, LEN - 3, usize::MAX, usize::MAX - 3] {
            let (at, slot) = (remote(&there, 0), remote(&there, offset));
            let what = format!("notice at offset {offset} of {LEN}");
            refused(rank.notify(slot, 7), out_of_bounds, &what)?;
            let ended = rank.try_put_notify(at, 8, slot);
            refused(ended, out_of_bounds, &format!("put with a {what}"))?;
        }
        let operand = [1u64; 2];
        for (offset, count) in [
            (5000, 1),
            (4992, 2),
            (usize::MAX - 7, 1),
            (0, 626),
            (0, usize::MAX / 8 + 1),
            (8, usize::MAX),
        ] {
            // The range is refused before an operand is read.
            let result = rank.atomic(remote(&there, offset), &request(count, &operand));
            let what = format!("atomic of {count} u64 at offset {offset} of {LEN}");
            refused(result, out_of_bounds, &what)?;
        }
        let end = remote(&there, LEN);
        rank.try_put(end, 0).says("put of 0 bytes at the end")?;
        rank.try_get(end, 0).says("get of 0 bytes at the end")?;
        ctx.sync();
        untouched(&rank.data, (0, LEN), GUARD, "by a refused operation")?;
        let seen = rank.notes.take(0).says("note 0")?;
        ensure_eq!(seen, 0, "notice of a refused put");
        untouched(&rank.scratch, (0, LEN), !GUARD, "by a refused get")
    })
}

fn rights(ctx: &Ctx) -> Verdict {
    on_ranks(ctx, 4096, |rank| {
        let notes = rank.notes_of(rank.other())?;
        let each = [Rights::READ, Rights::WRITE, Rights::ATOMIC, Rights::empty()];
        let mut regions = Vec::new();
        for (nth, rights) in each.into_iter().enumerate() {
            regions.push(rank.share(EXTRA + nth, 4096, rights)?);
        }
        ctx.sync();
        let denied = |error: &Error| *error == Error::AccessDenied;
        let slot = remote(&notes, 0);
        write(&rank.scratch, 0, &[1; 64]);
        for (nth, rights) in each.into_iter().enumerate() {
            let there = rank.listed(rank.other(), EXTRA + nth)?;
            let at = remote(&there, 64);
            let data = rank.data_of(rank.other())?;
            let data = remote(&data, 0);
            let what = format!("with {rights:?}");
            if !rights.contains(Rights::READ) {
                refused(rank.try_get(at, 8), denied, &format!("get {what}"))?;
            }
            if !rights.contains(Rights::WRITE) {
                refused(rank.try_put(at, 8), denied, &format!("put {what}"))?;
                refused(rank.notify(at, 1), denied, &format!("notice {what}"))?;
                let ended = rank.try_put_notify(at, 8, slot);
                refused(ended, denied, &format!("put with notice {what}"))?;
                let ended = rank.try_put_notify(data, 8, at);
                refused(ended, denied, &format!("put with its notice {what}"))?;
            }
            if !rights.contains(Rights::ATOMIC) {
                let result = rank.atomic(at, &request(1, &[1; 2]));
                refused(result, denied, &format!("atomic {what}"))?;
                let result = rank.fetch_add(at, 1);
                refused(result, denied, &format!("fetch-add {what}"))?;
            }
        }
        ctx.sync();
        for (region, rights) in regions.iter().zip(each) {
            untouched(region, (0, 4096), 0, &format!("in spite of {rights:?}"))?;
        }
        untouched(&rank.data, (0, 4096), 0, "by a put with a refused notice")?;
        let seen = rank.notes.take(0).says("note 0")?;
        ensure_eq!(seen, 0, "notice of a put that was refused");
        ctx.sync();
        Ok(())
    })
}

fn refused_whole(ctx: &Ctx) -> Verdict {
    on_ranks(ctx, 4096, |rank| {
        let mut own = vec![0u64; 512];
        // SAFETY:
        // - the vector outlives the region, which is dropped first.
        let region = unsafe {
            rank.engine()
                .register(own.as_mut_ptr().cast(), 4096, Rights::FULL)
        };
        let region = region.says("registering memory of the user")?;
        rank.list(EXTRA, &region).says("list")?;
        ctx.sync();
        write(&rank.scratch, 0, &[1; 64]);
        let notes = rank.notes_of(rank.other())?;
        for (there, whose) in [
            (rank.data_of(rank.other())?, "the library's memory"),
            (rank.listed(rank.other(), EXTRA)?, "memory of the user"),
        ] {
            let at = remote(&there, 64);
            for (region, which) in [(&notes, "of the library"), (&there, "in the same memory")] {
                for offset in [1, 2, 3] {
                    let slot = remote(region, offset);
                    let what = format!("put to {whose}, notice at offset {offset} {which}");
                    let ended = rank.try_put_notify(at, 8, slot);
                    refused(ended, is(Error::Misaligned(4)), &what)?;
                }
                let slot = remote(region, region.len());
                let what = format!("put to {whose}, notice behind the memory {which}");
                refused(rank.try_put_notify(at, 8, slot), out_of_bounds, &what)?;
            }
        }
        ctx.sync();
        untouched(&rank.data, (0, 4096), 0, "in the library's memory")?;
        untouched(&region, (0, 4096), 0, "in memory of the user")?;
        ctx.sync();
        drop(region);
        Ok(())
    })
}

fn stale(ctx: &Ctx) -> Verdict {
    on_ranks(ctx, 4096, |rank| {
        let is_stale = |error: &Error| *error == Error::StaleRegion;
        let mut old = Vec::new();
        for round in 0..10u8 {
            let region = rank.share(EXTRA, 8192, Rights::FULL)?;
            ctx.sync();
            let there = rank.listed(rank.other(), EXTRA)?;
            for gone in &old {
                let at = remote(gone, 64);
                write(&rank.scratch, 0, &[0xff; 8]);
                refused(rank.try_put(at, 8), is_stale, "put to a released region")?;
                refused(rank.try_get(at, 8), is_stale, "get from a released region")?;
                refused(rank.notify(at, 9), is_stale, "notice to a released region")?;
                let result = rank.fetch_add(at, 1);
                refused(result, is_stale, "fetch-add on a released region")?;
            }
            let at = remote(&there, 128);
            rank.put(&[round + 1; 8], at).says("put to a new region")?;
            ctx.sync();
            let seen = read(&region, 128, 8);
            ensure_eq!(seen, [round + 1; 8], "what was put to the new region");
            untouched(&region, (0, 128), 0, "through a handle of an old region")?;
            old.push(there);
            ctx.sync();
            drop(region);
            ctx.sync();
            if round == 9 {
                let ended = rank.try_put(remote(&old[9], 0), 8);
                refused(ended, is_stale, "put to the last region")?;
                let ended = rank.try_put(remote(&old[9], 0), 0);
                refused(ended, is_stale, "put of 0 bytes to the last region")?;
            }
        }
        ctx.sync();
        Ok(())
    })
}

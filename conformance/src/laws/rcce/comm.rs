//! Communicators: RCCE_comm_split and the use of its results.

use std::ffi::c_void;

use super::kit::*;

laws! {
    splits: "comm.split", "RCCE RCCE_comm_split", 5, [RCCE_comm_split, RCCE_comm_size, RCCE_comm_rank],
        "each UE is in the communicator of its colour; ranks follow the numbers; aux is passed on";
    barriers: "comm.barriers", "RCCE RCCE_barrier", 4, [RCCE_comm_split, RCCE_barrier, iRCCE_barrier] + ordering,
        "a barrier of a communicator waits only for its members";
    many: "comm.many", "RCCE RCCE_comm_split", 3, [RCCE_comm_split, RCCE_comm_free, RCCE_bcast],
        "many communicators live side by side; freed ones make room; split anew into one variable there is no end to them";
    copies: "comm.copies", "RCCE RCCE_comm_split", 3, [RCCE_comm_split, RCCE_barrier, RCCE_bcast],
        "a copy of a communicator is as good as it, also when the variable is split anew";
    free: "comm.free", "RCCE RCCE_comm_free", 2, [RCCE_comm_free, RCCE_comm_size, RCCE_barrier],
        "a freed communicator is none: ERROR_COMM_UNDEFINED, freeing it again gives ERROR_COMM_INITIALIZED; that of all UEs stays";
    overlapping: "comm.overlapping", "RCCE RCCE_comm_split", 4, [RCCE_comm_split, RCCE_bcast, RCCE_allreduce] + ordering,
        "two ways to split the same UEs are used in turns, and do not meet";
    wrong: "comm.wrong", "RCCE RCCE_comm_split", 2,
        [RCCE_comm_split, RCCE_comm_free, RCCE_comm_size, RCCE_comm_rank, RCCE_barrier, iRCCE_barrier, RCCE_bcast],
        "null pointers and bytes that are no communicator give their codes";
}

unsafe extern "C" fn modulo(id: i32, aux: *mut c_void) -> i32 {
    // SAFETY:
    // - laws pass a pointer to an int.
    id % unsafe { *aux.cast::<i32>() }
}

fn split_by(by: i32, comm: &mut RCCE_COMM) -> Verdict {
    let mut by = by;
    done!(RCCE_comm_split(Some(modulo), (&raw mut by).cast(), comm))
}

fn splits(ctx: &Ctx) -> Verdict {
    let (me, n) = place(ctx);
    for by in 1..=6 {
        let mut comm = RCCE_COMM::UNDEFINED;
        split_by(by, &mut comm)?;
        let members: Vec<i32> = (0..n).filter(|id| id % by == me % by).collect();
        let rank = members.iter().position(|id| *id == me);
        let (size, seen) = (got!(RCCE_comm_size(comm)), got!(RCCE_comm_rank(comm)));
        let expected = (members.len(), rank);
        let told = (size as usize, Some(seen as usize));
        ensure_eq!(told, expected, "size and rank by {by}");
        ensure_eq!((comm.size, comm.my_rank), (size, seen), "size, my_rank");
        ensure_eq!(&comm.member[..members.len()], &members[..], "list by {by}");
        ok!(RCCE_barrier(&mut comm));
    }
    Ok(())
}

fn barriers(ctx: &Ctx) -> Verdict {
    let mut comm = RCCE_COMM::UNDEFINED;
    split_by(2, &mut comm)?;
    // UE 3 is late; UEs 0 and 2 do not wait for it.
    ctx.sync();
    if ctx.rank == 3 {
        pause(80);
    }
    let came = c!(RCCE_wtime());
    ok!(RCCE_barrier(&mut comm));
    let left = c!(RCCE_wtime());
    if ctx.rank == 3 {
        send(&Bytes::of(&came.to_le_bytes()), 1)?;
    } else if ctx.rank == 1 {
        let came = f64::from_le_bytes(receive(8, 3)?.try_into().expect("8 bytes"));
        ensure!(left >= came, "UE 1 left {} s before UE 3 came", came - left);
    }
    for_all(0..20, |_| done!(iRCCE_barrier(&mut comm)))?;
    let flag = new_flag()?;
    let partner = (ctx.rank as i32 + 2) % 4;
    for round in 1..30 {
        ok!(RCCE_flag_write(&mut { flag }, round, ctx.rank as i32));
        ok!(RCCE_barrier(&mut comm));
        in_round(flag, partner, round)?;
    }
    done!(RCCE_barrier(&mut comm))
}

fn works(comm: RCCE_COMM) -> Verdict {
    let mut comm = comm;
    ok!(RCCE_barrier(&mut comm));
    for root in 0..comm.size {
        let text = [root as u8 + 1; 40];
        let bytes = Bytes::of_root(comm.my_rank == root, &text);
        ok!(RCCE_bcast(bytes.ptr(), 40, root, comm));
        bytes.holds(&text, 0, "a broadcast")?;
    }
    Ok(())
}

fn many(ctx: &Ctx) -> Verdict {
    let (kept, dropped) = if ctx.is_quick() { (30, 100) } else { (10, 20) };
    let mut comms = Vec::new();
    for nth in 0..kept {
        let mut comm = RCCE_COMM::UNDEFINED;
        split_by(1 + nth % 3, &mut comm)?;
        comms.push(comm);
    }
    for_all(&comms, |comm| works(*comm))?;
    for comm in comms.iter_mut().step_by(2) {
        ok!(RCCE_comm_free(comm));
    }
    let mut again = RCCE_COMM::UNDEFINED;
    for_all(0..dropped, |nth| split_by(1 + nth % 3, &mut again))?;
    works(again)?;
    for_all(comms.iter().skip(1).step_by(2), |comm| works(*comm))
}

fn copies(_: &Ctx) -> Verdict {
    let mut comm = RCCE_COMM::UNDEFINED;
    let mut copies = Vec::new();
    for by in 1..=3 {
        split_by(by, &mut comm)?;
        copies.push(comm);
    }
    for_all(copies, works)
}

fn free(_: &Ctx) -> Verdict {
    let mut comm = RCCE_COMM::UNDEFINED;
    split_by(1, &mut comm)?;
    let mut copy = comm;
    works(comm)?;
    ok!(RCCE_comm_free(&mut comm));
    let undefined = RCCE_ERROR_COMM_UNDEFINED;
    let mut size = -7;
    for mut freed in [comm, copy] {
        gives!(undefined, RCCE_comm_size(freed, &mut size));
        gives!(undefined, RCCE_comm_rank(freed, &mut size));
        gives!(undefined, RCCE_barrier(&mut freed));
        gives!(undefined, iRCCE_barrier(&mut freed));
        gives!(undefined, RCCE_bcast(null_mut(), 0, 0, freed));
    }
    ensure_eq!(size, -7, "a size was told");
    gives!(RCCE_ERROR_COMM_INITIALIZED, RCCE_comm_free(&mut comm));
    gives!(RCCE_ERROR_COMM_INITIALIZED, RCCE_comm_free(&mut copy));
    gives!(undefined, RCCE_comm_free(&mut world()));
    barrier()
}

fn overlapping(ctx: &Ctx) -> Verdict {
    let (mut pairs, mut all) = (RCCE_COMM::UNDEFINED, RCCE_COMM::UNDEFINED);
    split_by(2, &mut pairs)?;
    split_by(1, &mut all)?;
    let mut random = ctx.random(90);
    for _ in 0..30 {
        let len = random.below(12_000) as usize;
        for comm in [pairs, all, world()] {
            let root = random.below(2) as i32;
            let from = comm.member[root as usize] as u64;
            let expected = content(ctx, from << 32 | len as u64 | (comm.size as u64) << 24, len);
            let bytes = Bytes::of_root(comm.my_rank == root, &expected);
            ok!(RCCE_bcast(bytes.ptr(), len, root, comm));
            bytes.ends_as(&expected, 0, &format!("{len} bytes among {}", comm.size))?;
            let (data, result) = (Bytes::of(&1i32.to_ne_bytes()), Bytes::filled(4, 0));
            allreduce(&data, &result, 1, (INT, SUM), comm)?;
            result.holds(&comm.size.to_ne_bytes(), 0, "the number of members")?;
        }
    }
    Ok(())
}

fn wrong(_: &Ctx) -> Verdict {
    let undefined = RCCE_ERROR_COMM_UNDEFINED;
    let mut comm = RCCE_COMM::UNDEFINED;
    gives! { undefined:
        RCCE_comm_split(None, null_mut(), &mut comm);
        RCCE_comm_split(Some(modulo), null_mut(), null_mut());
        RCCE_comm_free(null_mut());
    }
    let mut shifted = [0u8; size_of::<RCCE_COMM>()];
    shifted.fill(0xa7);
    // SAFETY:
    // - every bit pattern is a valid `RCCE_COMM`: it has integers only.
    let noise: RCCE_COMM = unsafe { std::mem::transmute(shifted) };
    for mut wrong in [RCCE_COMM::UNDEFINED, noise] {
        let mut number = -7;
        gives!(undefined, RCCE_comm_size(wrong, &mut number));
        gives!(undefined, RCCE_comm_rank(wrong, &mut number));
        gives!(undefined, RCCE_barrier(&mut wrong));
        gives!(undefined, iRCCE_barrier(&mut wrong));
        gives!(undefined, RCCE_bcast(null_mut(), 0, 0, wrong));
        gives!(undefined, iRCCE_bcast(null_mut(), 0, 0, wrong));
        gives!(RCCE_ERROR_COMM_INITIALIZED, RCCE_comm_free(&mut wrong));
        ensure_eq!(number, -7, "a number was told");
    }
    gives! { RCCE_ERROR_VAL_UNDEFINED:
        RCCE_comm_size(world(), null_mut());
        RCCE_comm_rank(world(), null_mut());
    }
    barrier()
}

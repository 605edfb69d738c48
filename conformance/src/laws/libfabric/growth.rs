//! Closed objects use no memory (fi_close(3)), locally or at peers. The unit is bytes of the heap.

use super::kit::*;

laws! {
    endpoints with(&Plan::DEFAULT, 256):
        "growth.endpoints", "fi_close(3), fi_av(3)", 2, [endpoint, close, av_insert, av_remove, tsend, trecv, write],
        "endpoints that are opened, talked to and closed leave nothing behind, in their own process and where their address was removed";
    own_address with(&Plan::DEFAULT, 256): "growth.address", "fi_close(3), fi_av(3)", 1, [endpoint, close, av_insert, av_remove],
        "nor do endpoints with names that are only inserted and removed";
    objects: "growth.objects", "fi_close(3)", 1, [fabric, domain, eq_open, av_open, cq_open, cntr_open, poll_open, mr_reg, endpoint, srx_context, stx_context, close],
        "nor does any other object, from the fabric on: not a byte stays of a round, on average, nor a descriptor";
}

/// Measurements. One without growth is enough.
const COUNTS: usize = 20;

/// Used bytes of the heap, over all threads.
fn in_use() -> usize {
    // SAFETY:
    // - no arguments.
    let info = unsafe { libc::mallinfo2() };
    info.uordblks + info.hblkhd
}

/// Repeats the body often enough that a leak of a few bytes a round exceeds the noise. Library threads without a core free memory late, and
/// usage may grow for a while. A leak appears in every measurement.
fn leaves_nothing(ctx: &Ctx, body: &mut dyn FnMut() -> Verdict) -> Verdict {
    const ROUNDS: usize = 100;
    (0..ROUNDS).try_for_each(|_| body())?;
    ctx.sync();
    let mut least = usize::MAX;
    for _ in 0..COUNTS {
        let before = in_use();
        (0..ROUNDS).try_for_each(|_| body())?;
        least = least.min(in_use().saturating_sub(before) / ROUNDS);
        ctx.tell(&[u8::from(least < 24)]);
        ctx.sync();
        let all = (0..ctx.size).all(|rank| ctx.told(rank).is_none_or(|told| told == [1]));
        // No rank publishes a new value before all have read this one.
        ctx.sync();
        if all {
            return Ok(());
        }
    }
    ensure!(least < 24, "{least} bytes stay of each round");
    Ok(())
}

/// Open descriptors of this process.
fn descriptors() -> Result<usize, String> {
    let all = std::fs::read_dir("/proc/self/fd").map_err(|e| e.to_string())?;
    Ok(all.count())
}

/// Opens one object of each kind, and closes them.
fn round() -> Verdict {
    let plan = Plan::DEFAULT
        .wait(FI_WAIT_FD)
        .counters(&[FI_WRITE | FI_REMOTE_WRITE]);
    let station = Station::open(&plan)?;
    let memory = Buffer::new(4096);
    let registered = station.register(*memory, 3)?;
    let events: *mut fid_eq = open!(obj station.fabric, eq_open(null_mut()));
    let mut set = null_mut();
    ok!(obj station.domain, poll_open(null_mut(), &mut set));
    ok!(obj set, poll_add(station.tx.0.cast(), 0));
    ok!(obj set, poll_del(station.tx.0.cast(), 0));
    let transmits: *mut fid_stx = open!(obj station.domain, stx_ctx(null_mut()));
    let receives: *mut fid_ep = open!(obj station.domain, srx_ctx(null_mut()));
    // This receive is never matched.
    ok!(msg receives, recv(memory.base.cast(), 8, null_mut(), FI_ADDR_UNSPEC, null_mut()));
    close(receives)?;
    close(transmits)?;
    close(set)?;
    close(events)?;
    close(registered.mr)?;
    station.close()?;
    Ok(())
}

fn objects(_: &Ctx) -> Verdict {
    const ROUNDS: usize = 60;
    (0..ROUNDS).try_for_each(|_| round())?;
    let open = descriptors()?;
    let mut least = usize::MAX;
    for _ in 0..COUNTS {
        let before = in_use();
        (0..ROUNDS).try_for_each(|_| round())?;
        least = least.min(in_use().saturating_sub(before));
        if least < ROUNDS {
            break;
        }
    }
    ensure!(least < ROUNDS, "{least} bytes stay of {ROUNDS} rounds");
    let now = descriptors()?;
    ensure!(now <= open, "{open} descriptors before, {now} after");
    Ok(())
}

fn endpoints(job: &Job<'_>) -> Verdict {
    leaves_nothing(job.ctx, &mut || {
        if job.rank == 0 {
            let name = received(Some(1), (job.ep, job.rx), NAME)?;
            let to = job.station.insert(&name)?;
            job.told(5, || send_as(Some(2), (job.ep, to), &[0; 8], 5))?;
            job.meet();
            job.forget(to)?;
        } else {
            let (ep, word) = (job.station.enabled(&Plan::DEFAULT)?, Buffer::new(8));
            let (own, words) = (name_of(ep)?, job.words(0, 8).by(ep).told(6));
            receive_each(Some(2), ep, (&word, 8), [0])?;
            job.told(3, || send_as(Some(1), (ep, words.place.0), &own, 3))?;
            job.told(6, || words.write())?;
            job.rx.of(0)?;
            close(ep)?;
            job.meet();
        }
        job.meet();
        Ok(())
    })
}

fn own_address(job: &Job<'_>) -> Verdict {
    leaves_nothing(job.ctx, &mut || {
        let ep = job.station.enabled(&Plan::DEFAULT)?;
        job.forget(job.station.insert(&name_of(ep)?)?)?;
        close(ep)
    })
}

//! Closed objects use no memory (fi_close(3)), locally or at peers. The unit is bytes of the heap.

use super::kit::*;
use super::station::{Plan, Station, close, name_of};

laws! {
    endpoints with(&Plan::DEFAULT, 256):
        "growth.endpoints", "fi_close(3), fi_av(3)", 2, [endpoint, close, av_insert, av_remove, tsend, trecv, write],
        "endpoints that are opened, talked to and closed leave nothing behind, in their own process and where their address was removed";
    own_address with(&Plan::DEFAULT, 256): "growth.address", "fi_close(3), fi_av(3)", 1, [endpoint, close, av_insert, av_remove],
        "nor do endpoints whose names are only inserted and removed";
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
    let memory = Memory::new(4096);
    let registered = station.register(memory, 3)?;
    let (mut events, mut set) = (null_mut(), null_mut());
    let (mut transmits, mut receives) = (null_mut(), null_mut());
    ok!(obj station.fabric, eq_open(null_mut(), &mut events, null_mut()));
    ok!(obj station.domain, poll_open(null_mut(), &mut set));
    ok!(obj set, poll_add(station.tx.0.cast(), 0));
    ok!(obj set, poll_del(station.tx.0.cast(), 0));
    ok!(obj station.domain, stx_ctx(null_mut(), &mut transmits, null_mut()));
    ok!(obj station.domain, srx_ctx(null_mut(), &mut receives, null_mut()));
    // This receive is never matched.
    ok!(msg receives, recv(memory.base.cast(), 8, null_mut(), FI_ADDR_UNSPEC, null_mut()));
    close(receives)?;
    close(transmits)?;
    close(set)?;
    close(events)?;
    close(registered.mr)?;
    station.close()?;
    memory.free();
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
    let name = Memory::new(NAME);
    let word = Memory::new(8);
    leaves_nothing(job.ctx, &mut || {
        if job.rank == 0 {
            ok!(tagged job.ep, recv(name.base.cast(), NAME, null_mut(), FI_ADDR_UNSPEC, 1, 0, cx(4)));
            job.rx.of(4)?;
            let mut to = job.station.insert(&name.load(0, NAME))?;
            job.told(
                5,
                || call!(tagged job.ep, send(word.base.cast(), 8, null_mut(), to, 2, cx(5))),
            )?;
            job.meet();
            ok!(obj job.station.av, remove(&mut to, 1, 0));
        } else {
            let ep = job.station.enabled(&Plan::DEFAULT)?;
            let own = name_of(ep)?;
            let (to, at, key) = job.place(0, 8);
            ok!(tagged ep, recv(word.base.cast(), 8, null_mut(), FI_ADDR_UNSPEC, 2, 0, cx(2)));
            job.told(
                3,
                || call!(tagged ep, send(own.as_ptr().cast(), NAME, null_mut(), to, 1, cx(3))),
            )?;
            job.told(
                6,
                || call!(rma ep, write(own.as_ptr().cast(), 8, null_mut(), to, at, key, cx(6))),
            )?;
            job.rx.of(2)?;
            close(ep)?;
            job.meet();
        }
        job.meet();
        Ok(())
    })?;
    name.free();
    word.free();
    Ok(())
}

fn own_address(job: &Job<'_>) -> Verdict {
    leaves_nothing(job.ctx, &mut || {
        let ep = job.station.enabled(&Plan::DEFAULT)?;
        let mut address = job.station.insert(&name_of(ep)?)?;
        ok!(obj job.station.av, remove(&mut address, 1, 0));
        close(ep)
    })
}

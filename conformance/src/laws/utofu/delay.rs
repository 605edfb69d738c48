//! §3.7.9.1 UTOFU_ONESIDED_FLAG_DELAY_START.

use super::kit::*;

laws! {
    by_the_next with(1024): "delay.next", "§3.7.9.1", 2, [put_piggyback8, put, armw8] + ordering,
        "the next command without the flag starts the delayed ones, in order";
    by_post_toq with(1024): "delay.post", "§3.7.3.1, §3.7.9.1", 2, [post_toq, put_piggyback8] + ordering,
        "post_toq of nothing starts the delayed descriptors; its cbdata is ignored";
    by_a_batch with(1024): "delay.batch", "§3.7.3.1", 2, [post_toq, prepare_put_piggyback8] + ordering,
        "post_toq of descriptors starts earlier delayed ones, in order";
    full with(256): "delay.full", "§3.7.9.1", 2, [put_piggyback8, armw8, poll_tcq],
        "delaying more than the queue holds loses nothing";
    no_effect_prepared with(256): "delay.prepared", "§3.7.9.1", 2, [prepare_put_piggyback8, post_toq],
        "the flag has no effect on a prepared command: posting starts it";
}

/// Posts delayed additions and puts.
fn delayed(job: &Job<'_>, count: usize) -> Verdict {
    let peer = job.right();
    for nth in 1..=count {
        let (edata, flags) = (nth as u64, DELAY | LOCAL | TCQ);
        match nth % 2 {
            0 => job.armw8(peer, 0, ADD, 1).ok(edata, flags, nth)?,
            _ => job.put8(peer, 8 * nth, 3).ok(edata, flags, nth)?,
        }
    }
    Ok(())
}

fn completed(job: &Job<'_>, count: usize) -> Verdict {
    job.queue.completes(1..=count)?;
    for_all(1..=count, |nth| {
        equal!(job.queue.mrq()?.edata, nth as u64, "edata")
    })
}

fn by_the_next(job: &Job<'_>) -> Verdict {
    for _ in 0..20 {
        delayed(job, 9)?;
        job.put8(job.right(), 8, 3).ok(10, LOCAL | TCQ, 10)?;
        completed(job, 10)?;
    }
    job.meet();
    equal!(job.memory.get(0), 80, "additions")
}

fn by_post_toq(job: &Job<'_>) -> Verdict {
    for _ in 0..20 {
        delayed(job, 10)?;
        post::toq(job.hdl, null_mut::<u64>(), 0, 99)?;
        completed(job, 10)?;
    }
    // Without delayed commands it has no effect.
    post::toq(job.hdl, null_mut::<u64>(), 0, 99)?;
    job.queue.tcq_is_empty()?;
    job.meet();
    equal!(job.memory.get(0), 100, "additions")
}

fn by_a_batch(job: &Job<'_>) -> Verdict {
    for _ in 0..20 {
        delayed(job, 5)?;
        let mut desc = [0u64; 8];
        let put = job.put8(job.right(), 8, 3);
        let size = put.prepare(6, LOCAL | TCQ, desc.as_mut_ptr())?;
        post::toq(job.hdl, desc.as_mut_ptr(), size, 6)?;
        completed(job, 6)?;
    }
    Ok(())
}

fn full(job: &Job<'_>) -> Verdict {
    const COUNT: usize = 10_000;
    let mut seen = Vec::new();
    for nth in 1..=COUNT {
        let add = job.armw8(job.right(), 0, ADD, 1);
        let post = || add.code(0, DELAY | TCQ, nth);
        job.queue.post_seen(|cbdata| seen.push(cbdata), post)?;
    }
    post::toq(job.hdl, null_mut::<u64>(), 0, 0)?;
    // The last entries may come after the commands that they confirm.
    until("all additions and entries", || {
        while let (SUCCESS, cbdata) = job.queue.poll_tcq() {
            seen.push(cbdata);
        }
        job.memory.get(0) >= COUNT as u64 && seen.len() >= COUNT
    })?;
    job.meet();
    let right = seen.iter().copied().eq(1..=COUNT);
    ensure!(right, "cbdata in the order of the entries: {seen:?}");
    equal!(job.memory.get(0), COUNT as u64, "additions")
}

fn no_effect_prepared(job: &Job<'_>) -> Verdict {
    let mut desc = [0u64; 8];
    let put = job.put8(job.right(), 8, 3);
    let size = put.prepare(6, DELAY | LOCAL | TCQ, desc.as_mut_ptr())?;
    post::toq(job.hdl, desc.as_mut_ptr(), size, 6)?;
    ensure_eq!(job.queue.tcq()?, 6, "cbdata");
    job.queue.notice(LCL_PUT)?;
    Ok(())
}

//! A peer is killed while messages are in flight, and while other processes access memory together with it.

use super::death::{WAITS, ended, reset, survived, victim, victim_dies, victim_dies_after, waited};
use super::kit::*;

laws! {
    sends survived(&WAITS): "death.send", "fi_msg(3)", 3, [send, sendmsg, cq_sread, cq_readerr] + needs_kill,
        "sends that wait for room or for their receive end with a failure when the receiver is killed";
    receives survived(&WAITS.caps(FI_MSG | FI_TAGGED | FI_DIRECTED_RECV)):
        "death.recv", "fi_msg(3)", 3, [recv, trecv, cq_sread, cq_readerr] + needs_kill,
        "a directed receive from a killed process ends with a failure; a receive from any source gets messages of others";
    halfway survived(&WAITS.caps(FI_MSG | FI_DIRECTED_RECV)):
        "death.halfway", "fi_msg(3)", 3, [recv, send, cq_sread, cq_readerr] + needs_kill,
        "a receive from a sender that is killed in the middle of a long message ends with a failure";
    polling survived(&Plan::DEFAULT): "death.poll", "fi_msg(3)", 3, [sendmsg, cq_read, cq_readerr] + needs_kill,
        "one who polls the queue learns of it as well as one who waits";
    asleep survived(&Plan::DEFAULT.counters(&[FI_SEND]).wait(FI_WAIT_FD)):
        "death.descriptor", "fi_poll(3), fi_msg(3)", 3, [sendmsg, trywait, control, cq_readerr, cntr_readerr] + needs_kill,
        "the death of the receiver wakes a sender that sleeps at the descriptor of its queue or counter";
    closing: "death.close", "fi_endpoint(3)", 3, [close, recv, send] + needs_kill,
        "with operations under way to a dead peer everything can be closed";
}

/// Posts a send that completes when it has been received. Its context is 6.
pub(super) fn synchronous(job: &Job<'_>, to: u32, bytes: &[u8]) -> Verdict {
    let part = iovec(bytes.as_ptr(), bytes.len());
    let msg = plain_msg(&part, job.peer(to).address, cx(6));
    job.post(|| call!(msg job.ep, sendmsg(&msg, FI_DELIVERY_COMPLETE)))
}

fn sends(job: &Job<'_>) -> Verdict {
    victim_dies_after(job, 150);
    let long = vec![1u8; 4 << 20];
    if job.rank == 0 {
        synchronous(job, victim(job), &long[..64])?;
    } else {
        job.send(victim(job), &long, 6)?;
    }
    let error = waited(job, "a send without a receive", job.tx)?;
    equal!(error.context(), 6, "the context")
}

fn receives(job: &Job<'_>) -> Verdict {
    victim_dies_after(job, 150);
    let from = job.peer(victim(job)).address;
    let (mut buffers, none) = ([0u64; 3], null_mut());
    let [a, b, c] = &mut buffers;
    ok!(msg job.ep, recv((&raw mut *a).cast(), 8, none, from, cx(1)));
    ok!(tagged job.ep, recv((&raw mut *b).cast(), 8, none, from, 5, 0, cx(2)));
    let both = waited(job, "a directed receive", job.rx)?.context()
        + reset(job, "a directed receive", job.rx)?.context();
    ensure_eq!(both, 3, "both contexts");
    ok!(msg job.ep, recv((&raw mut *c).cast(), 8, none, FI_ADDR_UNSPEC, cx(3)));
    job.send(1 - job.rank, &[4; 8], 4)?;
    job.rx.of(3)?;
    job.tx.of(4)?;
    Ok(())
}

fn halfway(job: &Job<'_>) -> Verdict {
    let mut long = vec![1u8; 16 << 20];
    if job.rank == victim(job) {
        job.send(0, &long, 6)?;
        // The part that fits has been sent. The rest needs another progress call.
        pause(30);
        job.ctx.dies();
    }
    job.ctx.sync();
    if job.rank == 0 {
        let from = job.peer(victim(job)).address;
        let (base, mut entry) = (long.as_mut_ptr().cast(), blank());
        ok!(msg job.ep, recv(base, long.len(), null_mut(), from, cx(1)));
        let code = call!(obj job.rx.0, sread((&raw mut entry).cast(), 1, null(), LONG));
        // A receiver that fetches from the sender's memory may succeed: that memory may outlive the sender.
        ensure!(
            code == AVAIL || code == 1 && long.iter().all(|byte| *byte == 1),
            "the wait gave {}",
            code_name(code)
        );
        if code == AVAIL {
            reset(job, "half a message", job.rx)?;
        }
    }
    Ok(())
}

fn polling(job: &Job<'_>) -> Verdict {
    victim_dies_after(job, 150);
    synchronous(job, victim(job), &[3; 16])?;
    reset(job, "a send without a receive", job.tx)?;
    Ok(())
}

fn asleep(job: &Job<'_>) -> Verdict {
    victim_dies_after(job, 150);
    synchronous(job, victim(job), &[3; 16])?;
    let (queue, counter) = (job.tx.0, job.station.counters[0]);
    let slept_at = [queue.cast::<fid_cq>(), counter.cast()][job.rank as usize];
    let descriptor = control(slept_at, FI_GETWAIT, -1)?;
    if call!(obj job.station.fabric, trywait([slept_at.cast()].as_mut_ptr(), 1)) == 0 {
        ensure!(super::waiting::readable(descriptor, -1), "poll(2)");
    }
    ensure_eq!(errors_of(counter), 1, "the counted failures");
    reset(job, "a send that no process receives", job.tx)?;
    Ok(())
}

fn closing(ctx: &Ctx) -> Verdict {
    let job = opened(
        ctx,
        &Plan::DEFAULT.caps(FI_MSG | FI_TAGGED | FI_RMA | FI_DIRECTED_RECV),
        256,
    )?;
    let long = vec![1u8; 8 << 20];
    job.send(victim(&job), &long, 6)?;
    let (mut word, from) = (0u64, job.peer(victim(&job)).address);
    ok!(msg job.ep, recv((&raw mut word).cast(), 8, null_mut(), from, cx(1)));
    job.meet();
    victim_dies(&job);
    pause(30);
    ended(job)
}

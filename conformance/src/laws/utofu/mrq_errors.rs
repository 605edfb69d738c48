//! §2.2.12, §3.7.4.2: notices of commands that fail.

use super::kit::*;

laws! {
    too_early: "mrq.early", "§2.2.12, §3.7", 2, [put_piggyback8, put, get, armw8, query_stadd, construct_vcq_id] + ordering,
        "to a VCQ that is not there yet, or has not registered yet, is an error notice; later the same succeeds";
    error_fields with(256): "mrq.errors", "§2.2.12, §3.7.4.2", 2, [poll_mrq, put, get, armw8],
        "errors at the remote end come through the local MRQ, also unwanted, and name peer and EDATA; the target hears nothing";
}

fn too_early(ctx: &Ctx) -> Verdict {
    let own = Queue::with_component(TNI, 0, 0)?;
    let source = Memory::new(256);
    let from = own.register(source)?;
    // The VCQ that all commands target. Rank 1 creates it later.
    let target = vcq_of(1, TNI, 6)?;
    let to = stadd_of(target, 40)?;
    let memory = Memory::new(256);
    let mut made = None;
    for step in 0..3 {
        ctx.sync();
        if ctx.rank == 1 && step == 1 {
            made = Some(Queue::with_component(TNI, 6, 0)?);
        }
        if let (Some(queue), 2) = (made, step) {
            queue.register_as(memory, 40)?;
        }
        ctx.sync();
        let expected = [UTOFU_ERR_MRQ_PEER, UTOFU_ERR_MRQ_RMT_STADD, SUCCESS][step];
        for edata in 0..4 {
            let flags = LOCAL * if step == 2 { 1 } else { edata % 2 };
            match edata {
                0 => post::put_piggyback8(own.hdl, target, 9, to, 8).ok(edata, flags, 0)?,
                1 => post::put(own.hdl, target, from, to + 8, 8).ok(edata, flags, 0)?,
                2 => post::get(own.hdl, target, from + 8, to, 8).ok(edata, flags, 0)?,
                _ => post::armw8(own.hdl, target, ADD, 1, to + 16).ok(edata, flags, 0)?,
            }
            let (code, notice) = own.next_mrq()?;
            code_is(code, expected, format!("command {edata} of step {step}"))?;
            ensure_eq!((notice.edata, notice.vcq_id), (edata, target), "both");
        }
    }
    ctx.sync();
    if let Some(queue) = made {
        memory.shows(16, u64::from(ctx.size), "the additions that succeeded")?;
        queue.mrq_is_empty()?;
        queue.deregister(stadd_of(queue.id, 40)?)?;
        queue.free()?;
    }
    own.close(from)?;
    ctx.sync();
    Ok(())
}

fn error_fields(job: &Job<'_>) -> Verdict {
    let vcq = job.vcq(job.right());
    let nowhere = stadd_of(vcq, 99)?;
    let end = job.at(job.right(), 252);
    job.meet();
    let (stadd, length) = (UTOFU_ERR_MRQ_RMT_STADD, UTOFU_ERR_MRQ_RMT_LENGTH);
    for flags in [0, REMOTE, LOCAL | REMOTE] {
        for (edata, expected) in (11..).zip([stadd, length, stadd, length, stadd]) {
            match edata {
                11 => post::put(job.hdl, vcq, job.stadd, nowhere, 8).ok(edata, flags, 0)?,
                12 => post::put(job.hdl, vcq, job.stadd, end, 8).ok(edata, flags, 0)?,
                13 => post::get(job.hdl, vcq, job.stadd, nowhere, 8).ok(edata, flags, 0)?,
                14 => post::get(job.hdl, vcq, job.stadd, end, 8).ok(edata, flags, 0)?,
                _ => post::armw8(job.hdl, vcq, ADD, 1, nowhere).ok(edata, flags, 0)?,
            }
            let (code, notice) = job.queue.next_mrq()?;
            code_is(code, expected, format!("command {edata}"))?;
            ensure_eq!((notice.edata, notice.vcq_id), (edata, vcq), "both");
            ensure!(notice.notice_type % 2 == 0, "a remote notice of an error");
        }
    }
    job.meet();
    pause(1);
    job.queue.mrq_is_empty()?;
    job.memory.all(0, 256, 0, "after errors")
}

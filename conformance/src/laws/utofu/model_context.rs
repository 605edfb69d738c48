//! §2.1 and §2.2.1: communication contexts, of a process and of its VCQs.

use super::circuit::*;
use super::kit::*;
use super::tcq::fill;

laws! {
    apart with(512): "vcq.apart", "§2.2.1", 2, [create_vcq_with_cmp_id, put_piggyback8, poll_tcq, poll_mrq, query_num_unread_mrq],
        "a full TOQ, unread entries and errors of a VCQ concern no other VCQ, of the same CQ neither";
    foreign with(512): "vcq.foreign", "§2.1, §2.2.1", 2, [put, query_vcq_id, reg_mem, free_vcq, barrier, set_vbg, free_vbg],
        "handles, VBGs and STADDs that another process has made are no good for starting anything here";
}

fn apart(job: &Job<'_>) -> Verdict {
    let other = Queue::with_component(TNI, 1, 0)?;
    job.meet();
    let (vcq, to) = (job.vcq(job.right()), job.at(job.right(), 0));
    let posted = fill(|_| job.armw8(job.right(), 0, ADD, 1).code(0, TCQ, 7))?;
    // The full TOQ does not affect the other VCQ.
    let flags = TCQ | LOCAL;
    let nowhere = stadd_of(vcq, 99)?;
    for round in 1..=20 {
        post::armw8(other.hdl, vcq, ADD, 1, to + 8).ok(1, flags, round)?;
        let sent = (other.tcq()?, other.notice(LCL_ARMW)?.edata);
        ensure_eq!(sent, (round, 1), "entry and notice of the other VCQ");
        post::armw8(other.hdl, vcq, ADD, 1, nowhere).ok(2, 0, 0)?;
        ensure!(other.next_mrq()?.0 != SUCCESS, "an addition nowhere");
    }
    ensure_eq!(
        job.queue.unread_mrq()?,
        0,
        "unread notices of the first VCQ"
    );
    job.queue.mrq_is_empty()?;
    job.queue.completes(std::iter::repeat_n(7, posted))?;
    job.queue.tcq_is_empty()?;
    other.has_nothing()?;
    job.sum_arrives(posted as u64)?;
    ensure_eq!(job.memory.get(8), 20, "additions through the other VCQ");
    other.free()
}

fn foreign(job: &Job<'_>) -> Verdict {
    // Rank 1 has objects that rank 0 lacks.
    if job.rank == 1 {
        let queue = Queue::with_component(TNI, 6, 0)?;
        let stadd = queue.register(job.memory)?;
        let vbg = got!(utofu_alloc_vbg(TNI, 1, 0));
        let objects = [queue.hdl as u64, queue.id, stadd, vbg];
        for (at, value) in objects.into_iter().enumerate() {
            job.write(0, 8 * at, value)?;
        }
        job.meet();
        job.meet();
        ensure_eq!(job.memory.get(256), 0, "memory of the owner");
        // The gate still belongs to this process, unchanged.
        set_gates(&[beside(vbg, NULL)])?;
        one_barrier(vbg)?;
        free_gate(vbg)?;
        queue.deregister(stadd)?;
        return queue.free();
    }
    job.meet();
    let [hdl, id, stadd, vbg] = job.memory.words([0, 8, 16, 24]);
    let (theirs, mut seen) = (hdl as usize, 0);
    gives! { UTOFU_ERR_INVALID_VCQ_HDL:
        utofu_query_vcq_id(theirs, &mut seen);
        utofu_free_vcq(theirs);
    }
    let to = job.at(0, 256);
    gives! { UTOFU_ERR_INVALID_VCQ_HDL:
        utofu_put(theirs, job.vcq(0), stadd, to, 8, 0, LOCAL, null_mut());
        utofu_put_piggyback8(theirs, id, 1, to, 8, 0, LOCAL, null_mut());
    }
    // A put of this process's VCQ cannot read the other's memory.
    post::put(job.hdl, job.vcq(0), stadd, to, 8).ok(0, 0, 3)?;
    let (code, cbdata) = job.queue.next_tcq()?;
    ensure!(code != SUCCESS && cbdata == 3, "a put from foreign memory");
    gives! { UTOFU_ERR_INVALID_VBG_ID:
        utofu_barrier(vbg, 0);
        utofu_poll_barrier(vbg, 0);
        utofu_free_vbg(std::ptr::from_ref(&vbg).cast_mut(), 1);
    }
    let code = set_code(&[setting(vbg, [NULL; 2], [NULL; 2])]);
    code_is(code, UTOFU_ERR_INVALID_VBG_ID, "setting a foreign gate")?;
    job.meet();
    equal!(job.memory.get(256), 0, "a put from foreign memory")
}

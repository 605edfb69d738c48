//! §3.7 with session mode VCQs.

use super::functions::{Call, functions};
use super::interface_onesided::{BLOCKS, with_calls};
use super::kit::*;
use super::session::{Session, session};

laws! {
    no_others: "session.refused", "§3.1.2.1", 2,
        [get, put_piggyback, put_piggyback8, armw4, armw8, cswap4, cswap8, post_toq],
        "a command that a session mode VCQ cannot start gives NOT_SUPPORTED at post and prepare, and is not posted";
    prepared_steps session(1024): "session.prepared-steps", "§3.7.9.3", 2, [prepare_put, post_toq, put],
        "the SPS of a prepared put is that of its flags, 0 without one";
}

fn no_others(ctx: &Ctx) -> Verdict {
    with_calls(ctx, |job, right, desc, size| {
        let queue = Queue::create(TNI, SESSION_MODE)?;
        let local = queue.register(job.memory)?;
        let puts = [
            "utofu_put",
            "utofu_put_gap",
            "utofu_put_stride",
            "utofu_put_stride_gap",
            "utofu_nop",
        ];
        for function in functions() {
            let hdl = queue.hdl;
            let call = Call {
                hdl,
                local,
                ..*right
            };
            let expected = match puts.contains(&function.name) {
                true => SUCCESS,
                false => UTOFU_ERR_NOT_SUPPORTED,
            };
            code_is((function.start)(&call), expected, function.name)?;
            if (function.prepare)(&call) == SUCCESS {
                // SAFETY:
                // - `right` names this place; no call writes it now.
                let size = unsafe { size.read() };
                let descs = desc.as_mut_ptr().cast();
                let code = c!(utofu_post_toq(hdl, descs, size, cb(1)));
                code_is(code, expected, format!("posting {}", function.name))?;
            }
        }
        // Only these commands wait: twice four puts and NOPs, two of which have five blocks.
        let count = got!(utofu_query_num_unread_tcq(queue.hdl));
        ensure_eq!(count, 2 * (3 + 2 * BLOCKS), "commands of the session VCQ");
        job.meet();
        job.queue.mrq_is_empty()?;
        job.memory.all(0, 1024, 0, "memory without writes")?;
        job.meet();
        queue.close(local)
    })
}

fn prepared_steps(job: &Job<'_>, session: &Session) -> Verdict {
    session.answers(job, (0..16).sum())?;
    job.meet();
    if job.rank == 0 {
        let mut desc = [0u64; 8];
        let place = desc.as_mut_ptr().cast();
        let (to, at) = (session.ids[1], session.at(1, 8)?);
        for steps in 0..16 {
            for flags in [LOCAL | sps(steps), LOCAL] {
                let size = post::put(job.hdl, to, job.stadd, at, 8).prepare(0, flags, place)?;
                ok!(utofu_post_toq(job.hdl, place, size, null_mut()));
                let mut started = 0;
                let expected = 1 + if flags == LOCAL { 0 } else { steps };
                for _ in 0..expected {
                    started += u64::from(job.queue.mrq()?.notice_type == RMT_PUT);
                }
                ensure_eq!(started + 1, expected, "notices of an SPS of {steps}");
                job.queue.mrq_is_empty()?;
            }
        }
        pause(2);
        job.queue.mrq_is_empty()?;
    }
    Ok(())
}

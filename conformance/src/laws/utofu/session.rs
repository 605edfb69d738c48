//! §2.2.8 session mode.

use super::kit::*;

laws! {
    waits session(1024): "session.waits", "§2.2.8", 2, [create_vcq, put, put_stride] + ordering,
        "commands posted to a session mode VCQ start when a put arrives: as many as its SPS, in order";
    steps session(1024): "session.steps", "§2.2.8.1, §3.7.9.3", 2, [put],
        "an SPS is 0 to 15; without one it is 0 and nothing starts";
    forks session(2048): "session.fork", "§2.2.8.2", 4, [put] + ordering,
        "one put with SPS 2 goes on to two processes; the relay calls nothing meanwhile";
    joins session(1024): "session.join", "§2.2.8.3", 4, [put, nop] + ordering,
        "two NOPs and a put: the third arrival starts the put, and all three's data are there";
    pipeline: "session.pipeline", "§2.2.8.4", 4, [put, put_stride] + ordering,
        "parts go through two relays that call nothing, each exactly as it arrived";
    afterwards session(1024): "session.afterwards", "§2.2.8.1", 2, [put, post_toq, prepare_put] + ordering,
        "missing steps start descriptors that are posted later, by each function";
    lacking session(1024): "session.lacking", "§2.2.8.1", 2, [put],
        "2000 steps may be lacking";
    free_mode with(256): "session.free-mode", "§3.7.9.3", 2, [put],
        "a free mode VCQ ignores the SPS and starts at once";
    errors session(1024): "session.errors", "§2.2.8.1", 2, [put, poll_mrq],
        "a put with an error starts nothing";
    completions session(1024): "session.completions", "§2.2.8.1", 2, [put, poll_tcq, poll_mrq] + ordering,
        "commands that an arrival starts complete as in free mode";
    flags: "session.flags", "§3.3.4.1", 1, [create_vcq, create_vcq_with_cmp_id],
        "session mode goes neither with EXCLUSIVE nor with a component id";
}

const STAG_S: u32 = 3;

/// A session mode VCQ beside the free mode one, with the same memory; the IDs of all ranks.
pub(super) struct Session {
    pub(super) queue: Queue,
    pub(super) stadd: u64,
    pub(super) ids: Vec<u64>,
}

/// The ranks exchange the IDs in the last words of the memory.
pub(super) fn session(
    ctx: &Ctx,
    len: usize,
    body: impl FnOnce(&Job<'_>, &Session) -> Verdict,
) -> Verdict {
    with(ctx, len + 256, |job| {
        let queue = Queue::create(TNI, SESSION_MODE)?;
        let stadd = queue.register_as(job.memory, STAG_S)?;
        for rank in 0..job.size {
            job.write(rank, len + 8 * job.rank as usize, queue.id)?;
        }
        job.meet();
        let ids = (0..job.size as usize)
            .map(|rank| job.memory.get(len + 8 * rank))
            .collect();
        let session = Session { queue, stadd, ids };
        body(job, &session)?;
        job.meet();
        queue.close(stadd)
    })
}

impl Session {
    /// The STADD of byte `offset` of a rank's memory through its session mode VCQ.
    pub(super) fn at(&self, rank: u32, offset: usize) -> Result<u64, String> {
        Ok(stadd_of(self.ids[rank as usize], STAG_S)? + offset as u64)
    }

    /// Posts a put from the own session mode VCQ.
    pub(super) fn relay(
        &self,
        vcq: u64,
        from: usize,
        to: u64,
        length: usize,
        flags: u64,
    ) -> Verdict {
        post::put(self.queue.hdl, vcq, self.stadd + from as u64, to, length).ok(0, flags, 0)
    }

    /// Rank 1 posts this number of puts to rank 0. They wait for arrivals, and come with a remote notice.
    pub(super) fn answers(&self, job: &Job<'_>, number: u64) -> Verdict {
        let own = if job.rank == 1 { number } else { 0 };
        for_all(0..own, |_| {
            self.relay(job.vcq(0), 0, job.at(0, 512), 8, REMOTE)
        })
    }

    /// A put from the free mode VCQ to a rank's session mode VCQ; waits for completion.
    pub(super) fn begin(
        &self,
        job: &Job<'_>,
        rank: u32,
        (from, to): (usize, usize),
        length: usize,
        flags: u64,
    ) -> Verdict {
        let (vcq, to) = (self.ids[rank as usize], self.at(rank, to)?);
        post::put(job.hdl, vcq, job.stadd + from as u64, to, length).noticed(0, flags)?;
        Ok(())
    }
}

fn waits(job: &Job<'_>, session: &Session) -> Verdict {
    if job.rank == 1 {
        // Five puts back to rank 0; starts 3 of them, then 2.
        for i in 0..5 {
            job.memory.set(256 + 8 * i, i as u64 + 1);
        }
        session.relay(job.vcq(0), 256, job.at(0, 512), 8, 0)?;
        let (hdl, vcq, from) = (session.queue.hdl, job.vcq(0), session.stadd + 264);
        post::put_stride(hdl, vcq, from, job.at(0, 520), 8, 8, 4).ok(0, 0, 0)?;
    }
    job.meet();
    if job.rank == 0 {
        for (steps, there) in [(0, 0), (3, 3), (2, 5)] {
            session.begin(job, 1, (0, 8), 8, sps(steps))?;
            if there > 0 {
                job.await_word(504 + 8 * there as usize, there)?;
            }
            pause(2);
            let seen = job.memory.words([512, 520, 528, 536, 544]);
            let expected = [1, 2, 3, 4, 5].map(|nth| if nth <= there { nth } else { 0 });
            ensure_eq!(seen, expected, "puts after {there} steps");
        }
    }
    Ok(())
}

fn steps(job: &Job<'_>, session: &Session) -> Verdict {
    session.answers(job, (0..16).sum())?;
    job.meet();
    if job.rank == 0 {
        for steps in 0..16u64 {
            // An SPS of 0 in the flags has the same effect as no SPS.
            session.begin(job, 1, (0, 8), 8, sps(steps))?;
            job.queue.notices(0..steps, RMT_PUT)?;
            session.begin(job, 1, (0, 8), 8, 0)?;
            job.queue.mrq_is_empty()?;
        }
        pause(2);
        job.queue.mrq_is_empty()?;
    }
    Ok(())
}

/// Rank 0 begins, rank 1 relays to 2 and 3.
fn forks(job: &Job<'_>, session: &Session) -> Verdict {
    const LENGTH: usize = 600;
    for round in 1..=20u8 {
        if job.rank == 1 {
            for to in [2, 3] {
                session.relay(job.vcq(to), 0, job.at(to, 0), LENGTH, REMOTE)?;
            }
        }
        job.meet();
        match job.rank {
            0 => {
                job.memory.fill_range(1024, LENGTH, round);
                session.begin(job, 1, (1024, 0), LENGTH, sps(2))?;
            }
            // The relay only waits, without library calls.
            1 => {}
            _ => {
                let notice = job.queue.notice(RMT_PUT)?;
                ensure_eq!(notice.vcq_id, session.ids[1], "the peer");
                job.memory.all(0, LENGTH, round, "what was relayed")?;
            }
        }
        job.meet();
        if job.rank == 1 {
            // Makes room in its queue.
            session.queue.tcq_is_empty()?;
        }
    }
    Ok(())
}

/// Ranks 0 and 3 begin (3 twice), rank 1 relays to 2.
fn joins(job: &Job<'_>, session: &Session) -> Verdict {
    for round in 1..=20u64 {
        if job.rank == 1 {
            ok!(utofu_nop(session.queue.hdl, 0, null_mut()));
            ok!(utofu_nop(session.queue.hdl, 0, null_mut()));
            session.relay(job.vcq(2), 0, job.at(2, 0), 24, REMOTE)?;
        }
        job.memory.set(512, round);
        job.meet();
        match job.rank {
            0 => session.begin(job, 1, (512, 0), 8, sps(1))?,
            3 => {
                session.begin(job, 1, (512, 8), 8, sps(1))?;
                session.begin(job, 1, (512, 16), 8, sps(1))?;
            }
            2 => {
                job.queue.notice(RMT_PUT)?;
                let words = job.memory.words([0, 8, 16]);
                ensure_eq!(words, [round; 3], "the data of three puts");
                job.queue.mrq_is_empty()?;
            }
            _ => {}
        }
        job.meet();
        if job.rank == 1 {
            session.queue.tcq_is_empty()?;
        }
    }
    Ok(())
}

/// 0 begins, 1 and 2 relay, 3 ends.
fn pipeline(ctx: &Ctx) -> Verdict {
    const PARTS: usize = 24;
    const LENGTH: usize = 1000;
    session(ctx, 2 * PARTS * LENGTH, |job, session| {
        let mut random = ctx.random(1);
        for _ in 0..4 {
            let bytes = random_bytes(&mut random, PARTS * LENGTH);
            job.memory.fill_range(0, PARTS * LENGTH, 0);
            if job.rank == 0 {
                job.memory.store(0, &bytes);
            }
            // To the next process. The SPS to a terminal process is 0.
            let put = |hdl: usize, stadd: u64, flags: u64| {
                let (vcq, to) = (
                    session.ids[job.right() as usize],
                    session.at(job.right(), 0)?,
                );
                post::put_stride(hdl, vcq, stadd, to, LENGTH, LENGTH, PARTS).ok(0, flags, 0)
            };
            match job.rank {
                1 => put(session.queue.hdl, session.stadd, sps(1))?,
                2 => put(session.queue.hdl, session.stadd, REMOTE)?,
                _ => {}
            }
            job.meet();
            match job.rank {
                0 => put(job.hdl, job.stadd, sps(1))?,
                3 => {
                    for part in 0..PARTS {
                        session.queue.notice(RMT_PUT)?;
                        let at = part * LENGTH;
                        job.memory
                            .holds(at, &bytes[at..at + LENGTH], &format!("part {part}"))?;
                    }
                }
                _ => {}
            }
            job.meet();
            if job.rank != 3 {
                session.queue.tcq_is_empty()?;
                job.queue.tcq_is_empty()?;
            }
        }
        Ok(())
    })
}

fn afterwards(job: &Job<'_>, session: &Session) -> Verdict {
    for round in 1..=20u64 {
        if job.rank == 0 {
            session.begin(job, 1, (0, 8), 8, sps(5))?;
        }
        job.meet();
        if job.rank == 1 {
            job.memory.set(256, round);
            // One command, then three at once, then two: one more than can start.
            session.relay(job.vcq(0), 256, job.at(0, 512), 8, REMOTE)?;
            let mut desc = [0u64; 8 * 3];
            let (hdl, vcq, from) = (session.queue.hdl, job.vcq(0), session.stadd + 256);
            let puts = post::put_stride(hdl, vcq, from, job.at(0, 520), 8, 0, 3);
            let size = puts.prepare(0, REMOTE, desc.as_mut_ptr())?;
            post::toq(hdl, desc.as_ptr(), size, 0)?;
            session.relay(job.vcq(0), 256, job.at(0, 528), 8, REMOTE)?;
            session.relay(job.vcq(0), 256, job.at(0, 536), 8, REMOTE)?;
        } else {
            job.queue.notices(0..5, RMT_PUT)?;
            ensure_eq!(job.memory.get(528), round, "the last put that was started");
        }
        job.meet();
        if job.rank == 0 {
            pause(1);
            job.queue.mrq_is_empty()?;
            job.memory
                .shows(536, round - 1, "the put for which there was no step")?;
            session.begin(job, 1, (0, 8), 8, sps(1))?;
            job.queue.notice(RMT_PUT)?;
            ensure_eq!(job.memory.get(536), round, "the put after another step");
        }
        job.meet();
        session.queue.tcq_is_empty()?;
    }
    Ok(())
}

fn lacking(job: &Job<'_>, session: &Session) -> Verdict {
    const STEPS: u64 = 2000;
    if job.rank == 0 {
        for _ in 0..STEPS / 10 {
            session.begin(job, 1, (0, 8), 8, sps(10))?;
        }
    }
    job.meet();
    session.answers(job, STEPS + 1)?;
    if job.rank == 0 {
        job.queue.notices(0..STEPS, RMT_PUT)?;
        pause(2);
        job.queue.mrq_is_empty()?;
    }
    Ok(())
}

fn free_mode(job: &Job<'_>) -> Verdict {
    for steps in 0..16 {
        let flags = LOCAL | REMOTE | sps(steps);
        job.put(job.right(), 8, 0, 8).ok(steps, flags, 0)?;
        for _ in 0..2 {
            ensure_eq!(job.queue.mrq()?.edata, steps, "edata");
        }
        job.meet();
    }
    Ok(())
}

fn errors(job: &Job<'_>, session: &Session) -> Verdict {
    session.answers(job, 1)?;
    job.meet();
    if job.rank == 0 {
        let nowhere = stadd_of(session.ids[1], 99)?;
        let end = session.at(1, 1024 + 256 - 4)?;
        for wrong in [nowhere, end] {
            post::put(job.hdl, session.ids[1], job.stadd, wrong, 8).ok(0, LOCAL | sps(1), 0)?;
            let (code, _) = job.queue.next_mrq()?;
            ensure!(code != SUCCESS, "a put to nowhere succeeded");
        }
        pause(2);
        job.queue.mrq_is_empty()?;
        session.begin(job, 1, (0, 8), 8, sps(1))?;
        job.queue.notice(RMT_PUT)?;
    }
    Ok(())
}

fn completions(job: &Job<'_>, session: &Session) -> Verdict {
    for round in 1..=20usize {
        if job.rank == 1 {
            for nth in 1..=3 {
                let (hdl, vcq, from) = (session.queue.hdl, job.vcq(0), session.stadd);
                let put = post::put(hdl, vcq, from, job.at(0, 512), 16);
                put.ok(nth as u64, TCQ | LOCAL | REMOTE, 10 * round + nth)?;
            }
            session.queue.has_nothing()?;
        }
        job.meet();
        if job.rank == 0 {
            session.begin(job, 1, (0, 8), 8, REMOTE | sps(3))?;
            for nth in 1..=3 {
                let notice = job.queue.notice(RMT_PUT)?;
                ensure_eq!((notice.edata, notice.vcq_id), (nth, session.ids[1]), "both");
                ensure_eq!(notice.rmt_stadd, job.at(0, 528), "the data's end");
            }
        } else {
            let (mut started, mut arrived) = (Vec::new(), 0);
            for _ in 0..4 {
                let notice = session.queue.mrq()?;
                ensure_eq!(notice.vcq_id, job.vcq(0), "the peer");
                match notice.notice_type {
                    LCL_PUT => started.push(notice.edata),
                    kind => arrived += u64::from(kind == RMT_PUT),
                }
            }
            ensure_eq!((arrived, started), (1, vec![1, 2, 3]), "notices");
            let first = 10 * round + 1;
            session.queue.completes(first..first + 3)?;
        }
        job.meet();
    }
    Ok(())
}

fn flags(_: &Ctx) -> Verdict {
    let mut hdl = 0;
    gives! { UTOFU_ERR_INVALID_FLAGS:
        utofu_create_vcq(TNI, SESSION_MODE | EXCLUSIVE, &mut hdl);
        utofu_create_vcq_with_cmp_id(TNI, 1, SESSION_MODE, &mut hdl);
        utofu_create_vcq_with_cmp_id(TNI, 1, EXCLUSIVE, &mut hdl);
    }
    Queue::create(TNI, SESSION_MODE | THREAD_SAFE)?.free()
}

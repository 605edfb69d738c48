//! §2.2.10: notices at the remote process, and what is visible when they come.

use super::kit::*;
use super::mrq::FLAGS;

laws! {
    target_written with(2 * 8192): "mrq.remote.put", "§2.2.10", 2, [put, poll_mrq] + ordering,
        "with the remote notice of a put all its data are in the target's memory";
    read_all with(2 * 8192): "mrq.remote.get", "§2.2.10", 2, [get, poll_mrq] + ordering,
        "with the remote notice of a get its source can be overwritten; with the local one the data are there";
}

fn target_written(job: &Job<'_>) -> Verdict {
    const LENGTH: usize = 5000;
    for round in 1..=30u8 {
        if job.rank == 0 {
            job.memory.fill_range(8192, LENGTH, round);
            job.put(1, 8192, 5, LENGTH).ok(0, REMOTE, 0)?;
            job.queue.notice(RMT_PUT)?;
        } else {
            job.queue.notice(RMT_PUT)?;
            job.memory
                .all(5, LENGTH, round, "the data of a put that was notified")?;
            job.put8(0, 0, 0).ok(0, REMOTE, 0)?;
        }
    }
    Ok(())
}

fn read_all(job: &Job<'_>) -> Verdict {
    const LENGTH: usize = 5000;
    for round in 1..=30u8 {
        job.memory.fill_range(0, LENGTH, round);
        job.meet();
        job.get(job.right(), 8192, 0, LENGTH).ok(0, FLAGS, 0)?;
        for _ in 0..2 {
            match job.queue.mrq()?.notice_type {
                LCL_GET => job
                    .memory
                    .all(8192, LENGTH, round, "a get that was notified")?,
                RMT_GET => job.memory.fill_range(0, LENGTH, 0xff),
                other => return Err(format!("a notice of type {other}")),
            }
        }
        let what = "the data of a get with an overwritten source";
        job.memory.all(8192, LENGTH, round, what)?;
        job.meet();
    }
    Ok(())
}

use super::*;
use crate::laws::utofu::kit::*;

struct Vcq<'a> {
    job: &'a Job<'a>,
    /// Offset of the source of results.
    own: usize,
    sent: usize,
    come: Vec<usize>,
}

impl Vcq<'_> {
    /// Takes the next notice: the old value for an atomic operation of this rank, or `None` for a result, which is noted.
    fn look(&mut self) -> Result<Option<u64>, String> {
        let notice = self.job.queue.mrq()?;
        match notice.notice_type {
            LCL_ARMW => Ok(Some(notice.rmt_value)),
            RMT_PUT => {
                self.come.push(notice.edata as usize);
                Ok(None)
            }
            other => Err(format!("a notice of type {other}")),
        }
    }
}

impl Pool for Vcq<'_> {
    fn add(&mut self, rank: u32, at: usize, value: u64) -> Result<u64, String> {
        self.job.armw8(rank, at, ADD, value).ok(0, LOCAL, 0)?;
        loop {
            if let Some(before) = self.look()? {
                return Ok(before);
            }
        }
    }

    fn deliver(&mut self, task: Task, result: &[u8]) -> Verdict {
        let from = self.own + task.at();
        self.job.memory.store(from, result);
        let put = self.job.put(task.home, from, task.at(), RESULT);
        put.ok(task.nth as u64, TCQ | REMOTE, task.nth)?;
        self.sent += 1;
        Ok(())
    }

    fn finish(&mut self, here: &[usize]) -> Verdict {
        while self.come.len() < here.len() {
            self.look()?;
        }
        self.come.sort_unstable();
        crate::ensure_eq!(self.come, here, "the results that came");
        for _ in 0..self.sent {
            self.job.queue.tcq()?;
        }
        Ok(())
    }
}

pub(super) fn run(ctx: &Ctx) -> Left {
    let own = memory(ctx);
    with(ctx, 2 * own, |job| {
        let mut pool = Vcq {
            job,
            own,
            sent: 0,
            come: Vec::new(),
        };
        work(ctx, &mut pool)?;
        job.meet();
        let left = job.memory.load(0, own);
        job.queue.mrq_is_empty().map(|()| left)
    })
}

//! Accounts of operations: completions by context, and values of counters.

use super::kit::*;

/// Short messages that find room at a process that makes no call. Later ones wait at the sender.
pub(super) const LANE: usize = 64;

/// Number of completions of each context, and their sum.
pub(super) struct Told(Vec<u8>, usize);

impl Told {
    pub(super) fn of(contexts: usize) -> Told {
        Told(vec![0; contexts], 0)
    }

    /// Reads the queue once and returns the entry.
    pub(super) fn look(&mut self, queue: Queue) -> Result<Option<fi_cq_tagged_entry>, String> {
        match queue.look()? {
            Some(End::Success(entry)) => {
                self.note(entry.context())?;
                Ok(Some(entry))
            }
            Some(End::Failure(error)) => {
                let what = code_name(-(error.err as isize));
                Err(format!("context {} failed: {what}", error.context()))
            }
            None => Ok(None),
        }
    }

    /// Counts a completion of this context.
    pub(super) fn note(&mut self, context: usize) -> Verdict {
        let times = self.0.get_mut(context);
        *times.ok_or_else(|| format!("context {context}"))? += 1;
        self.1 += 1;
        Ok(())
    }

    pub(super) fn all(&self) -> usize {
        self.1
    }

    /// Reads until the counters have these values and `all` completions have come. Fails if more follow.
    pub(super) fn complete(
        &mut self,
        queue: Queue,
        all: usize,
        counters: &[(*mut fid_cntr, usize)],
    ) -> Verdict {
        let mut values = Vec::new();
        let waited = until_ok("everything told and counted", || {
            self.look(queue)?;
            let value = |counter: &(*mut fid_cntr, usize)| value_of(counter.0) as usize;
            values = counters.iter().map(value).collect();
            let mut each = values.iter().zip(counters);
            Ok(self.all() >= all && each.all(|(seen, (_, all))| seen >= all))
        });
        let told = self.all();
        waited.map_err(|text| format!("{text}: {told} of {all} told, counted {values:?}"))?;
        for (counter, all) in counters {
            ensure_eq!(value_of(*counter) as usize, *all, "counted");
            ensure_eq!(errors_of(*counter), 0, "failures");
        }
        ensure_eq!(self.all(), all, "told");
        queue.is_empty()
    }

    /// As [`complete`](Told::complete): each context has one completion if `is_told`, and none otherwise.
    pub(super) fn complete_each(
        mut self,
        queue: Queue,
        counters: &[(*mut fid_cntr, usize)],
        is_told: impl Fn(usize) -> bool,
    ) -> Verdict {
        let all = (0..self.0.len()).filter(|nth| is_told(*nth)).count();
        self.complete(queue, all, counters)?;
        self.ensure(|nth| usize::from(is_told(nth)))
    }

    /// Fails unless each context has `times(context)` completions.
    pub(super) fn ensure(&self, times: impl Fn(usize) -> usize) -> Verdict {
        for_all(self.0.iter().enumerate(), |(context, seen)| {
            let (seen, times) = (usize::from(*seen), times(context));
            equal!(seen, times, "the number of reports of context {context}")
        })
    }
}

/// Waits until `rank` has published this text. Makes no libfabric call.
pub(super) fn hear(ctx: &Ctx, rank: u32, what: &[u8]) -> Verdict {
    until("what the others tell", || {
        ctx.told(rank).is_some_and(|told| told == what)
    })
}

pub(super) fn piece(bytes: &[u8]) -> libc::iovec {
    iovec(bytes.as_ptr(), bytes.len())
}

/// A message, or a receive, for the calls that take a structure.
pub(super) fn envelope(part: &libc::iovec, addr: u64, context: usize) -> fi_msg_tagged {
    tagged_msg(part, addr, 5, cx(context))
}

pub(super) fn untagged(message: &fi_msg_tagged) -> fi_msg {
    // SAFETY:
    // - the law's list, which has one entry.
    plain_msg(unsafe { &*message.msg_iov }, message.addr, message.context)
}

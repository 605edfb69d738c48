//! Queues (GASPI 17.1 §8.5, §8.2.3): one endpoint each, shared by all threads.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use unipgas_core::calls::Call;
use unipgas_core::{Deadline, Endpoint, Error};

use crate::config::QUEUE_MAX;
use crate::process::{Process, deadline};
use crate::segment::PATIENCE;
use crate::status::{Result, Status, from_engine};

/// What a queue is called for who looks at the process from the outside.
fn name(id: usize) -> String {
    format!("queue {id}")
}

/// Whether a deleted queue has nothing under way any more, and knows of no failure.
fn is_idle(queue: &Endpoint) -> bool {
    queue.progress();
    let idle = queue.pending() == 0;
    if idle {
        queue.purge();
    }
    idle
}

impl Process {
    #[inline(always)]
    pub(crate) fn queue(&self, id: u8) -> Result<&Endpoint> {
        if let Some(queue) = self.queues.get(usize::from(id)) {
            let queue = queue.load(Ordering::Acquire);
            if !queue.is_null() {
                // SAFETY:
                // - queues are freed with the process only (deleted ones are kept aside).
                return Ok(unsafe { &*queue });
            }
        }
        Err(Status::ErrInvQueue)
    }

    pub(crate) fn all_queues(&self) -> impl Iterator<Item = &Endpoint> {
        (0..QUEUE_MAX as u8).filter_map(|id| self.queue(id).ok())
    }

    /// Moves pending requests of all queues on, where the backend needs that.
    #[inline]
    pub(crate) fn progress(&self) {
        if self.world.engine().is_driven() {
            for queue in self.all_queues() {
                queue.report();
            }
        }
    }

    /// Whether progress of this process sets notifications, for its own reads (§8.4.4).
    pub(crate) fn owes_notices(&self) -> bool {
        self.all_queues().any(Endpoint::owes_notices)
    }

    /// Waits until the requests of all queues have ended, also of deleted ones. Errors: [`Status::Timeout`]. A failed request is for
    /// gaspi_wait to report.
    pub(crate) fn drain_all(&self, deadline: Deadline) -> Result<()> {
        let engine = self.world.engine();
        let mut drain =
            |queue: &Endpoint| match queue.drain(engine, deadline, &mut self.world.watch_lives()) {
                Err(Error::Timeout) => Err(Status::Timeout),
                _ => Ok(()),
            };
        self.all_queues().try_for_each(&mut drain)?;
        let deleted = self.queue_changes.lock().clone();
        deleted.iter().try_for_each(|queue| drain(queue))
    }

    /// Those that have something under way, also deleted ones.
    pub(crate) fn queues_under_way(&self) -> Vec<Arc<Endpoint>> {
        let deleted = self.queue_changes.lock();
        let current = self.queues.iter().filter_map(|queue| {
            let queue = queue.load(Ordering::Acquire).cast_const();
            // SAFETY:
            // - null, or from Arc::into_raw in `queue_create`, and given back under the lock only.
            (!queue.is_null()).then(|| unsafe {
                Arc::increment_strong_count(queue);
                Arc::from_raw(queue)
            })
        });
        let all = current.chain(deleted.iter().cloned());
        all.filter(|queue| queue.pending() > 0).collect()
    }

    /// Makes a queue (§8.5.1). Errors: [`Status::ErrInvNum`] if there are `gaspi_queue_max` already.
    pub fn queue_create(&self) -> Result<u8> {
        let mut spare = self.queue_changes.lock();
        let id = (0..QUEUE_MAX as usize)
            .find(|id| self.queues[*id].load(Ordering::Acquire).is_null())
            .ok_or(Status::ErrInvNum)?;
        let idle = spare.iter().position(|queue| is_idle(queue));
        let queue = match idle {
            Some(at) => {
                let queue = spare.swap_remove(at);
                queue.rename(&name(id));
                queue
            }
            None => {
                let engine = self.world.engine();
                let queue = engine.endpoint(self.config.queue_size_max);
                queue.map_err(from_engine)?.named(&name(id))
            }
        };
        self.queues[id].store(Arc::into_raw(queue).cast_mut(), Ordering::Release);
        Ok(id as u8)
    }

    /// Deletes a queue (§8.5.2); requests that are still in it are completed first, as far as they are answered within a second. Errors:
    /// [`Status::Error`]: too many deleted queues have requests that are not answered; the queue stays.
    pub fn queue_delete(&self, id: u8) -> Result<()> {
        let mut spare = self.queue_changes.lock();
        let queue = self.queue(id)?;
        let deadline = Deadline::after(PATIENCE);
        let late = queue.drain(self.world.engine(), deadline, &mut self.world.watch_lives());
        if late == Err(Error::Timeout)
            && spare.iter().filter(|queue| !is_idle(queue)).count() >= QUEUE_MAX as usize
        {
            return Err(Status::Error);
        }
        queue.purge();
        queue.rename("deleted queues");
        let queue = self.queues[usize::from(id)].swap(std::ptr::null_mut(), Ordering::AcqRel);
        // SAFETY:
        // - came from Arc::into_raw in `queue_create`. A thread that still uses it sees a live endpoint: it is kept until the
        //   process ends, and used again by a `queue_create` when nothing is under way there.
        spare.push(unsafe { Arc::from_raw(queue) });
        Ok(())
    }

    /// Number of queues (§12.3.1).
    pub fn queue_num(&self) -> u32 {
        self.all_queues().count() as u32
    }

    /// Requests posted to the queue since the last successful wait (§8.5.3), and those with a tag that is not reported.
    pub fn queue_size(&self, id: u8) -> Result<u32> {
        let queue = self.queue(id)?;
        Ok(queue.posted() + queue.unreported())
    }

    /// Forgets the requests of a queue after a failure (§8.5.4), when they have ended. Errors: [`Status::Timeout`]: some have not.
    pub fn queue_purge(&self, id: u8, timeout: u64) -> Result<()> {
        let queue = self.queue(id)?;
        let drained = queue.drain(
            self.world.engine(),
            deadline(timeout),
            &mut self.world.watch_lives(),
        );
        if drained == Err(Error::Timeout) {
            return Err(Status::Timeout);
        }
        queue.purge();
        Ok(())
    }

    /// Waits until all requests posted to the queue are complete on this side (§8.2.3). Errors: [`Status::Timeout`]; [`Status::Error`] if
    /// one of them failed. Who else has died is no concern of the queue's (§3.6): see [`Process::states`].
    #[inline]
    pub fn wait(&self, id: u8, timeout: u64) -> Result<()> {
        let call = self.call();
        if let Some(done) = self.wait_fast(&call, id) {
            return done;
        }
        drop(call);
        self.wait_slow(id, timeout)
    }

    /// [`wait`](Process::wait), if all requests are complete already.
    #[inline(always)]
    pub(crate) fn wait_fast(&self, _call: &Call, id: u8) -> Option<Result<()>> {
        let queue = self.queue(id).ok()?;
        if self.pace.is_due() {
            self.look_around();
        }
        if queue.posted() > 0 {
            // The next request to a dead rank is refused.
            self.world.look_at_news();
        }
        let drained = queue.try_drain(self.world.engine())?;
        Some(drained.map_err(|error| self.not_drained(&error)))
    }

    #[cold]
    pub(crate) fn not_drained(&self, error: &Error) -> Status {
        match error {
            Error::Timeout => Status::Timeout,
            error => {
                if *error == Error::PeerDead {
                    self.world.some_rank_is_dead();
                }
                Status::Error
            }
        }
    }

    #[cold]
    pub(crate) fn wait_slow(&self, id: u8, timeout: u64) -> Result<()> {
        let mut look = || {
            self.look_around();
            Ok(())
        };
        self.queue(id)?
            .drain(self.world.engine(), deadline(timeout), &mut look)
            .map_err(|error| self.not_drained(&error))
    }
}

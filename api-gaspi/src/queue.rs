//! Queues (GASPI 17.1 §8.5, §8.2.3). Each queue is an endpoint, shared by all threads.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use unipgas_core::calls::Call;
use unipgas_core::{Deadline, Endpoint, Error};

use crate::config::QUEUE_MAX;
use crate::process::{GaspiProcess, deadline};
use crate::segment::PATIENCE;
use crate::status::{Result, Status, from_engine};

/// Name of a queue for tools that inspect the process.
fn name(id: usize) -> String {
    format!("queue {id}")
}

/// Whether a deleted queue has no request in progress. An idle queue forgets its failures.
fn is_idle(queue: &Endpoint) -> bool {
    queue.progress();
    let idle = queue.pending() == 0;
    if idle {
        queue.purge();
    }
    idle
}

impl GaspiProcess {
    #[inline(always)]
    pub(crate) fn queue(&self, id: u8) -> Result<&Endpoint> {
        if let Some(queue) = self.queues.get(usize::from(id)) {
            let queue = queue.load(Ordering::Acquire);
            if !queue.is_null() {
                // SAFETY:
                // - a queue is freed only with the process. Deleted queues stay in `queue_changes`.
                return Ok(unsafe { &*queue });
            }
        }
        Err(Status::ErrInvQueue)
    }

    pub(crate) fn all_queues(&self) -> impl Iterator<Item = &Endpoint> {
        (0..QUEUE_MAX as u8).filter_map(|id| self.queue(id).ok())
    }

    /// Makes progress with the requests of all queues, if the backend needs it.
    #[inline]
    pub(crate) fn progress(&self) {
        if self.world.engine().is_driven() {
            for queue in self.all_queues() {
                queue.report();
            }
        }
    }

    /// Whether own reads with a notification are in progress (§8.4.4). Progress of this process sets these notifications.
    pub(crate) fn owes_notices(&self) -> bool {
        self.all_queues().any(Endpoint::owes_notices)
    }

    /// Waits for the requests of all queues, also of deleted queues. Errors: [`Status::Timeout`]. It reports no failed request; gaspi_wait does.
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

    /// Queues with requests in progress, also deleted queues.
    pub(crate) fn queues_under_way(&self) -> Vec<Arc<Endpoint>> {
        let deleted = self.queue_changes.lock();
        let current = self.queues.iter().filter_map(|queue| {
            let queue = queue.load(Ordering::Acquire).cast_const();
            // SAFETY:
            // - null, or from Arc::into_raw in `queue_create`. The count drops only under the lock.
            (!queue.is_null()).then(|| unsafe {
                Arc::increment_strong_count(queue);
                Arc::from_raw(queue)
            })
        });
        let all = current.chain(deleted.iter().cloned());
        all.filter(|queue| queue.pending() > 0).collect()
    }

    /// Creates a queue (§8.5.1). Errors: [`Status::ErrInvNum`] if `gaspi_queue_max` queues exist.
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

    /// Deletes a queue (§8.5.2). It first waits up to a second for the requests in progress. Errors: [`Status::ErrInvQueue`]; [`Status::Error`]: too
    /// many deleted queues have requests in progress; the queue stays.
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
        // - from Arc::into_raw in `queue_create`. Other threads may still use the endpoint: it stays alive until the process ends. `queue_create`
        //   reuses it when it is idle.
        spare.push(unsafe { Arc::from_raw(queue) });
        Ok(())
    }

    /// Number of queues (§12.3.1).
    pub fn queue_num(&self) -> u32 {
        self.all_queues().count() as u32
    }

    /// Number of requests posted to the queue since the last successful wait (§8.5.3), plus unreported requests with a tag.
    pub fn queue_size(&self, id: u8) -> Result<u32> {
        let queue = self.queue(id)?;
        Ok(queue.posted() + queue.unreported())
    }

    /// Waits for the requests of a queue, and forgets their failures (§8.5.4). Errors: [`Status::Timeout`]: requests are in progress.
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

    /// Waits until all requests of the queue are complete on this side (§8.2.3). Errors: [`Status::Timeout`]; [`Status::Error`] if a request has
    /// failed. The death of a rank without requests in the queue is no error (§3.6): see [`GaspiProcess::states`].
    #[inline]
    pub fn wait(&self, id: u8, timeout: u64) -> Result<()> {
        let call = self.call();
        if let Some(done) = self.wait_fast(&call, id) {
            return done;
        }
        drop(call);
        self.wait_slow(id, timeout)
    }

    /// [`wait`](GaspiProcess::wait), if all requests are already complete.
    #[inline(always)]
    pub(crate) fn wait_fast(&self, _call: &Call, id: u8) -> Option<Result<()>> {
        let queue = self.queue(id).ok()?;
        if self.liveness.is_due() {
            self.look_around();
        }
        if queue.posted() > 0 {
            // So the next request to a dead rank is refused.
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

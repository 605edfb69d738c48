//! Queues, and the scopes within which requests may be under way.

use super::gaspi::Gaspi;
use super::scope::Scope;
use super::timeout::Timeout;
use super::{Result, counted};
use crate::statistics::procedure;

/// Where requests are posted (§8.5), by one [scope](Queue::scope) at a time. Requests of several queues do not wait for each other.
pub struct Queue<'g> {
    gaspi: &'g Gaspi,
    id: u8,
    timeout: Timeout,
}

impl Gaspi {
    /// A queue that nobody else has; dropped, it may be had again. There are 16 at most.
    ///
    /// # Errors
    /// [`ErrInvNum`](crate::Status::ErrInvNum): all are taken.
    pub fn queue(&self) -> Result<Queue<'_>> {
        let free = self.queues.lock().pop();
        let id = match free {
            Some(id) => id,
            None => self.process().queue_create()?,
        };
        Ok(Queue {
            gaspi: self,
            id,
            timeout: Timeout::Block,
        })
    }
}

/// Nothing is under way any more when this is dropped, whatever has happened meanwhile.
struct End<'a, 'g>(&'a Queue<'g>);

impl Drop for End<'_, '_> {
    fn drop(&mut self) {
        let _ = self.0.finish();
    }
}

/// Ends the process when it is dropped.
struct Abort;

impl Drop for Abort {
    fn drop(&mut self) {
        std::process::abort();
    }
}

impl<'g> Queue<'g> {
    /// How long a request waits at most while it is posted: for room in the queue, or until its rank has been found. Without this, as long as it takes.
    pub fn set_timeout(&mut self, timeout: impl Into<Timeout>) {
        self.timeout = timeout.into();
    }

    /// Runs `work`, which posts requests by the scope that it is given, and waits until all of them are complete on this side, whatever `work` has done
    /// (`gaspi_wait`, §8.2.3). What they read and write is borrowed until then.
    ///
    /// Errors of the program's own are a part of what `work` gives: `queue.scope(|q| Ok(own(q)))?`.
    ///
    /// That a write is complete here does not mean that it has arrived: a notification says so there.
    ///
    /// ```
    /// # use unipgas::gaspi::safe::{Error, Gaspi};
    /// # unipgas::init();
    /// # let gaspi = Gaspi::init()?;
    /// let mut source = gaspi.buffer::<u32>(4)?;
    /// let target = gaspi.segment::<u32>(0, 10)?;
    /// source.copy_from_slice(&[1, 2, 3, 4]);
    /// let mut queue = gaspi.queue()?;
    /// let there = target.remote(0);
    /// queue.scope(|q| {
    ///     q.write(source.slice(..2), there.at(5))?;
    ///     q.write(source.slice(2..), there)
    /// })?;
    /// // Here at once, since it is this process's own memory.
    /// assert_eq!(target.slice(..).to_vec(), [3, 4, 0, 0, 0, 1, 2, 0, 0, 0]);
    /// source[0] = 0; // It is free again.
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// While a request is under way, its memory cannot be changed:
    ///
    /// ```compile_fail,E0502
    /// # use unipgas::gaspi::safe::{Error, Gaspi};
    /// # let gaspi = Gaspi::init()?;
    /// # let there = gaspi.remote::<f64>(0, 0);
    /// let mut source = gaspi.buffer::<f64>(4)?;
    /// gaspi.queue()?.scope(|q| {
    ///     q.write(source.slice(..), there)?;
    ///     source[0] = 2.0;
    ///     Ok(())
    /// })
    /// ```
    ///
    /// ```compile_fail,E0502
    /// # use unipgas::gaspi::safe::{Error, Gaspi};
    /// # let gaspi = Gaspi::init()?;
    /// # let there = gaspi.remote::<f64>(0, 0);
    /// let mut segment = gaspi.segment::<f64>(1, 4)?;
    /// gaspi.queue()?.scope(|q| {
    ///     q.write(segment.slice(..2), there)?;
    ///     segment.set(1, 2.0);
    ///     Ok(())
    /// })
    /// ```
    ///
    /// nor looked at where it is read into, nor freed, and it must be there before the scope:
    ///
    /// ```compile_fail,E0502
    /// # use unipgas::gaspi::safe::{Error, Gaspi};
    /// # let gaspi = Gaspi::init()?;
    /// # let there = gaspi.remote::<f64>(0, 0);
    /// let mut room = gaspi.buffer::<f64>(4)?;
    /// gaspi.queue()?.scope(|q| {
    ///     q.read(room.slice_mut(..), there)?;
    ///     assert_eq!(room[0], 1.0);
    ///     Ok(())
    /// })
    /// ```
    ///
    /// ```compile_fail,E0505
    /// # use unipgas::gaspi::safe::{Error, Gaspi};
    /// # let gaspi = Gaspi::init()?;
    /// # let there = gaspi.remote::<f64>(0, 0);
    /// let segment = gaspi.segment::<f64>(1, 4)?;
    /// gaspi.queue()?.scope(|q| {
    ///     q.write(segment.slice(..), there)?;
    ///     drop(segment);
    ///     Ok(())
    /// })
    /// ```
    ///
    /// ```compile_fail,E0597
    /// # use unipgas::gaspi::safe::{Error, Gaspi};
    /// # let gaspi = Gaspi::init()?;
    /// # let there = gaspi.remote::<f64>(0, 0);
    /// gaspi.queue()?.scope(|q| {
    ///     let source = gaspi.buffer::<f64>(4)?;
    ///     q.write(source.slice(..), there)
    /// })
    /// ```
    ///
    /// # Errors
    /// Those of `work`; else [`Failed`](super::Error::Failed) if a request has failed: then it is not known which ones have been carried out
    /// ([`Gaspi::states`] tells whether a process has died).
    pub fn scope<'env, R>(
        &'env mut self,
        work: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> Result<R>,
    ) -> Result<R> {
        let queue: &'env Queue<'g> = self;
        let scope = Scope::new(queue.gaspi, queue.id, queue.timeout);
        let end = End(queue);
        let done = work(&scope);
        std::mem::forget(end);
        let ended = queue.finish();
        let value = done?;
        ended?;
        Ok(value)
    }

    /// Waits for the end of all requests. After a failure the queue is as new (`gaspi_queue_purge`, §8.5.4).
    fn finish(&self) -> Result<()> {
        // A panic of the library's own must not get past requests that are still under way.
        let bomb = Abort;
        let process = self.gaspi.process();
        let wait = || process.wait(self.id, u64::MAX);
        let waited = counted(const { procedure("gaspi_wait") }, wait);
        process.drop_reports(self.id);
        if waited.is_ok() || process.queue_purge(self.id, u64::MAX).is_ok() {
            std::mem::forget(bomb);
        }
        Ok(waited?)
    }
}

impl Drop for Queue<'_> {
    fn drop(&mut self) {
        self.gaspi.queues.lock().push(self.id);
    }
}

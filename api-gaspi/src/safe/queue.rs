//! Queues, and the scopes of their requests.

use super::gaspi::Gaspi;
use super::scope::QueueScope;
use super::timeout::Timeout;
use super::{Result, counted};
use crate::statistics::procedure;

/// A queue of requests (§8.5), with one [scope](Queue::scope) at a time. Requests of different queues do not wait for each other.
pub struct Queue<'g> {
    gaspi: &'g Gaspi,
    id: u8,
    timeout: Timeout,
}

impl Gaspi {
    /// Takes a free queue. Drop returns it. A process has at most 16 queues.
    ///
    /// # Errors
    /// [`ErrInvNum`](crate::Status::ErrInvNum): no queue is free.
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

/// Drop waits for all requests of the queue, also after a panic.
struct End<'a, 'g>(&'a Queue<'g>);

impl Drop for End<'_, '_> {
    fn drop(&mut self) {
        let _ = self.0.finish();
    }
}

/// Drop aborts the process.
struct Abort;

impl Drop for Abort {
    fn drop(&mut self) {
        std::process::abort();
    }
}

impl<'g> Queue<'g> {
    /// Sets the timeout for the posting of a request: it may wait for room in the queue, or for the lookup of the remote segment. The default is
    /// [`Timeout::Block`].
    pub fn set_timeout(&mut self, timeout: impl Into<Timeout>) {
        self.timeout = timeout.into();
    }

    /// Runs `work`, which posts requests in its scope. Then waits until all of them are complete on this side, also after an error or a panic of
    /// `work` (`gaspi_wait`, §8.2.3). The requests borrow their memory until then.
    ///
    /// `work` may return errors of the program as its value: `queue.scope(|q| Ok(own(q)))?`.
    ///
    /// A write that is complete here may not have arrived: a notification tells the target.
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
    /// While a request is in progress, the program cannot change its memory:
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
    /// It cannot read the destination of a read, nor free the memory. The memory must exist before the scope:
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
    /// As `work`; else [`Failed`](super::Error::Failed) if a request has failed. Then other requests may or may not have completed.
    /// [`Gaspi::states`] shows dead processes.
    pub fn scope<'env, R>(
        &'env mut self,
        work: impl for<'scope> FnOnce(&'scope QueueScope<'scope, 'env>) -> Result<R>,
    ) -> Result<R> {
        let queue: &'env Queue<'g> = self;
        let scope = QueueScope::new(queue.gaspi, queue.id, queue.timeout);
        let end = End(queue);
        let done = work(&scope);
        std::mem::forget(end);
        let ended = queue.finish();
        let value = done?;
        ended?;
        Ok(value)
    }

    /// Waits for all requests. After a failure it resets the queue (`gaspi_queue_purge`, §8.5.4).
    fn finish(&self) -> Result<()> {
        // A panic of the library must not unwind to the owner of the memory while requests are in progress.
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

//! Operations of several processes, or with a timeout.

use super::error::{Error, Result};
use super::timeout::Timeout;
use crate::status::{self, Status};

/// An operation in progress. Only this value resumes it. After a timeout, the specification requires a call with the same arguments (§3.9), and
/// no other operation of the kind meanwhile (§11.1).
///
/// Other processes may wait for the operation. So drop waits for it, unless the thread panics. If a group operation is forgotten
/// ([`std::mem::forget`]) or dropped in a panic, the group refuses further operations of the kind with
/// [`ErrActiveColl`](crate::Status::ErrActiveColl).
///
/// ```
/// # use unipgas::gaspi::safe::{Error, Gaspi};
/// # use std::time::Duration;
/// # unipgas::init();
/// # let gaspi = Gaspi::init()?;
/// let all = gaspi.group_all();
/// let mut barrier = all.begin_barrier()?;
/// let mut rounds = 0;
/// while barrier.poll(Duration::from_millis(10))?.is_none() {
///     rounds += 1; // Something useful; or a look whether all processes are healthy.
/// }
/// # Ok::<(), Error>(())
/// ```
#[must_use = "dropped, it is waited for"]
pub struct Pending<'a, R> {
    state: State<'a, R>,
}

type Step<'a, R> = Box<dyn FnMut(u64) -> status::Result<R> + Send + 'a>;

enum State<'a, R> {
    UnderWay(Step<'a, R>),
    Done(R),
    Over,
}

impl<'a, R> Pending<'a, R> {
    /// Begins an operation. `step` runs it for a number of milliseconds. After [`Status::Timeout`] the next call of `step` resumes it.
    pub(super) fn begin(step: impl FnMut(u64) -> status::Result<R> + Send + 'a) -> Result<Self> {
        let mut pending = Pending {
            state: State::UnderWay(Box::new(step)),
        };
        if let Some(done) = pending.poll(Timeout::Test)? {
            pending.state = State::Done(done);
        }
        Ok(pending)
    }

    /// Resumes the operation. `None` after a timeout. Another result ends the operation.
    ///
    /// # Errors
    /// As the operation, except [`Error::Timeout`].
    ///
    /// # Panics
    /// If the operation has ended.
    pub fn poll(&mut self, timeout: impl Into<Timeout>) -> Result<Option<R>> {
        let mut step = match std::mem::replace(&mut self.state, State::Over) {
            State::UnderWay(step) => step,
            State::Done(done) => return Ok(Some(done)),
            State::Over => panic!("the operation is over"),
        };
        match step(timeout.into().millis()) {
            Err(Status::Timeout) => {
                self.state = State::UnderWay(step);
                Ok(None)
            }
            done => Ok(Some(done?)),
        }
    }

    /// Waits for the end of the operation.
    ///
    /// # Errors
    /// As the operation.
    ///
    /// # Panics
    /// If the operation has ended.
    pub fn wait(mut self) -> Result<R> {
        self.poll(Timeout::Block)?.ok_or(Error::Timeout)
    }

    /// Whether the first attempt has completed the operation: [`wait`](Pending::wait) then returns at once.
    pub fn is_done(&self) -> bool {
        matches!(self.state, State::Done(_))
    }
}

impl<R> Drop for Pending<'_, R> {
    fn drop(&mut self) {
        // After a panic the other processes may never arrive.
        if let State::UnderWay(step) = &mut self.state
            && !std::thread::panicking()
        {
            let _ = step(u64::MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn countdown(left: &AtomicU32) -> impl FnMut(u64) -> status::Result<u64> + Send + '_ {
        |timeout| match left.load(Ordering::Relaxed) {
            0 => Ok(timeout),
            _ if timeout == u64::MAX => Ok(u64::from(left.swap(0, Ordering::Relaxed))),
            _ => {
                left.fetch_sub(1, Ordering::Relaxed);
                Err(Status::Timeout)
            }
        }
    }

    #[test]
    fn it_goes_on_until_it_is_over() {
        let left = AtomicU32::new(2);
        let mut pending = Pending::begin(countdown(&left)).unwrap();
        assert!(!pending.is_done());
        assert_eq!(pending.poll(Timeout::Test), Ok(None));
        assert_eq!(pending.poll(Timeout::Test), Ok(Some(0)));
        let again = std::panic::AssertUnwindSafe(|| pending.poll(Timeout::Test));
        assert!(std::panic::catch_unwind(again).is_err());
    }

    #[test]
    fn what_is_done_at_once_is_not_called_again() {
        let left = AtomicU32::new(0);
        let pending = Pending::begin(countdown(&left)).unwrap();
        left.store(5, Ordering::Relaxed);
        assert!(pending.is_done());
        assert_eq!(pending.wait(), Ok(0));
        assert_eq!(left.load(Ordering::Relaxed), 5);
    }

    #[test]
    fn dropped_it_is_waited_for() {
        let left = AtomicU32::new(9);
        drop(Pending::begin(countdown(&left)).unwrap());
        assert_eq!(left.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn an_error_ends_it() {
        thread_local!(static CALLS: Cell<u32> = const { Cell::new(0) });
        let mut pending = Pending::<()>::begin(|timeout| {
            CALLS.set(CALLS.get() + 1);
            match timeout {
                0 => Err(Status::Timeout),
                _ => Err(Status::Error),
            }
        })
        .unwrap();
        assert_eq!(pending.poll(Timeout::Block), Err(Error::Failed));
        drop(pending);
        assert_eq!(CALLS.get(), 2);
    }
}

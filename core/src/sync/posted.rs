//! How many requests an endpoint has been given: a counter that the thread which posts most increments without a locked
//! instruction. A lock waits until the data before it has reached the peer, which is just what a sender should not do.

use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::sync::this_thread;

/// Set while a thread drains the endpoint.
pub const DRAINING: u64 = 1 << 63;

/// The counter. The first thread that counts owns `own`; the others share `others`.
#[derive(Debug, Default)]
pub struct Posted {
    owner: AtomicUsize,
    /// Requests of the owner, who alone stores it.
    own: AtomicU64,
    /// Requests of other threads. Wraps: each request that is taken back is subtracted here.
    others: AtomicU64,
    state: AtomicU64,
    /// Bytes of requests, as far as threads do not count at once.
    bytes: AtomicU64,
    /// Requests that are over, and have been taken off the count.
    over: AtomicU64,
}

impl Posted {
    /// The count, with [`DRAINING`].
    #[inline(always)]
    pub fn look(&self) -> u64 {
        let others = self.others.load(Ordering::Relaxed);
        self.sum(others) | self.state.load(Ordering::Acquire)
    }

    /// The owner begins to post a request, if the count is below `limit`, and no thread drains. [`end`](Posted::end) gets the result. None for other
    /// threads; there may be none for a moment when there is room.
    #[inline(always)]
    pub fn begin(&self, limit: u64) -> Option<u64> {
        let own = self.own.load(Ordering::Relaxed);
        let count = own.wrapping_add(self.others.load(Ordering::Relaxed));
        if self.owner.load(Ordering::Relaxed) != this_thread::number()
            || (count | self.state.load(Ordering::Acquire)) >= limit
        {
            return None;
        }
        Some(own)
    }

    /// Makes this thread the owner, if there is none.
    #[inline]
    pub fn own(&self) {
        if self.owner.load(Ordering::Relaxed) == 0 {
            self.count(0);
        }
    }

    /// The request that has been begun is posted.
    #[inline(always)]
    pub fn end(&self, begun: u64) {
        self.own.store(begun + 1, Ordering::Relaxed);
    }

    #[inline(always)]
    fn sum(&self, others: u64) -> u64 {
        let count = self.own.load(Ordering::Relaxed).wrapping_add(others);
        // Between the two loads a drain may have taken back what `own` did not show yet.
        if count > u64::MAX / 2 { 0 } else { count }
    }

    /// What [`begin`](Posted::begin) compares with its limit, but for a drain.
    pub fn counted(&self) -> u64 {
        self.sum(self.others.load(Ordering::Relaxed))
    }

    /// Counts after the fact.
    #[inline(always)]
    pub fn count(&self, requests: u32) {
        if self.owner.load(Ordering::Relaxed) == this_thread::number() {
            let own = self.own.load(Ordering::Relaxed);
            self.own
                .store(own.wrapping_add(requests.into()), Ordering::Relaxed);
        } else {
            self.count_of_others(requests);
        }
    }

    #[cold]
    fn count_of_others(&self, requests: u32) {
        let claimed = self.owner.compare_exchange(
            0,
            this_thread::number(),
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        match claimed {
            Ok(_) => self.count(requests),
            Err(_) => {
                self.others.fetch_add(requests.into(), Ordering::Relaxed);
            }
        }
    }

    /// Counts before the fact, for queues that could overflow. Errors: what was there, if `depth` has no room for more or a drain is
    /// running; nothing is counted then.
    pub fn try_add(&self, requests: u32, depth: u64) -> Result<(), u64> {
        let requests = u64::from(requests);
        let mut others = self.others.load(Ordering::Relaxed);
        loop {
            let before = self.sum(others) | self.state.load(Ordering::Acquire);
            if before + requests > depth {
                return Err(before);
            }
            match self.others.compare_exchange_weak(
                others,
                others.wrapping_add(requests),
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Ok(()),
                Err(now) => others = now,
            }
        }
    }

    /// Adds to the bytes of what has been posted.
    #[inline(always)]
    pub fn moved(&self, bytes: usize) {
        let before = self.bytes.load(Ordering::Relaxed);
        self.bytes
            .store(before.wrapping_add(bytes as u64), Ordering::Relaxed);
    }

    /// Requests so far, and their bytes.
    pub fn so_far(&self) -> (u64, u64) {
        let over = self.over.load(Ordering::Relaxed);
        let requests = over + self.counted();
        (requests, self.bytes.load(Ordering::Relaxed))
    }

    /// These requests are over.
    pub fn end_all(&self, requests: u32) {
        self.take_back(requests);
        self.over.fetch_add(requests.into(), Ordering::Relaxed);
    }

    /// Takes requests off the count that have not been posted.
    pub fn take_back(&self, requests: u32) {
        self.others.fetch_sub(requests.into(), Ordering::Relaxed);
    }

    /// Lets one thread drain; false if another one does.
    pub fn close(&self) -> bool {
        self.state.fetch_or(DRAINING, Ordering::AcqRel) & DRAINING == 0
    }

    /// Ends the drain.
    pub fn open(&self) {
        self.state.fetch_and(!DRAINING, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_lose_no_count() {
        const EACH: u32 = if cfg!(miri) { 50 } else { 10_000 };
        let posted = Posted::default();
        posted.count(1);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..EACH).for_each(|_| posted.count(2)));
            }
            (0..EACH).for_each(|_| posted.count(1));
        });
        assert_eq!(posted.look(), 9 * u64::from(EACH) + 1);
        posted.end_all(9 * EACH);
        posted.moved(100);
        assert_eq!(posted.look(), 1);
        assert_eq!(posted.so_far(), (9 * u64::from(EACH) + 1, 100));
        assert_eq!(posted.try_add(5, 6), Ok(()));
        assert_eq!(posted.try_add(1, 6), Err(6));
        assert_eq!(posted.look(), 6);
    }

    #[test]
    fn the_owner_posts_where_there_is_room() {
        let posted = Posted::default();
        assert_eq!(posted.begin(2), None);
        posted.count(1);
        let begun = posted.begin(2).expect("room for another");
        assert_eq!(posted.look(), 1);
        std::thread::scope(|scope| {
            let other = scope.spawn(|| posted.begin(2).is_none());
            assert!(other.join().expect("no panic"));
        });
        posted.end(begun);
        assert_eq!((posted.look(), posted.begin(2)), (2, None));
        assert!(posted.begin(3).is_some() && posted.close());
        assert_eq!(posted.begin(3), None);
    }

    #[test]
    fn one_thread_drains_at_a_time() {
        let posted = Posted::default();
        assert!(posted.close() && !posted.close());
        assert_ne!(posted.look() & DRAINING, 0);
        assert!(posted.try_add(1, 100).is_err());
        posted.open();
        assert_eq!(posted.look(), 0);
    }
}

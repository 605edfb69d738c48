//! The number of requests that an endpoint has. The thread that posts most of them increments it without a locked instruction. A locked instruction waits
//! until earlier data has reached the peer, and a sender should not wait for that.

use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::sync::this_thread;

/// Set while a thread drains the endpoint.
pub const DRAINING: u64 = 1 << 63;

/// The counter. The first thread that counts owns `own`. The others share `others`.
#[derive(Debug, Default)]
pub struct PostCounter {
    owner: AtomicUsize,
    /// Requests of the owner, which alone stores it.
    own: AtomicU64,
    /// Requests of other threads. It wraps, since requests that are taken back are subtracted here.
    others: AtomicU64,
    state: AtomicU64,
    /// Bytes of requests. Threads that count at the same time may lose some.
    bytes: AtomicU64,
    /// Requests that have ended, and are no longer counted.
    over: AtomicU64,
}

impl PostCounter {
    /// The count, with [`DRAINING`].
    #[inline(always)]
    pub fn look(&self) -> u64 {
        let others = self.others.load(Ordering::Relaxed);
        self.sum(others) | self.state.load(Ordering::Acquire)
    }

    /// The owner begins to post a request, if the count is below `limit` and no thread drains. [`end`](PostCounter::end) gets the result. `None` for other
    /// threads. `None` is also possible for a moment although there is room.
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

    /// Counts the request that has begun.
    #[inline(always)]
    pub fn end(&self, begun: u64) {
        self.own.store(begun + 1, Ordering::Relaxed);
    }

    #[inline(always)]
    fn sum(&self, others: u64) -> u64 {
        let count = self.own.load(Ordering::Relaxed).wrapping_add(others);
        // Between the two loads a drain may have subtracted requests that `own` did not show yet.
        if count > u64::MAX / 2 { 0 } else { count }
    }

    /// The count that [`begin`](PostCounter::begin) compares with its limit, without a drain.
    pub fn counted(&self) -> u64 {
        self.sum(self.others.load(Ordering::Relaxed))
    }

    /// Counts requests after they are posted.
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

    /// Counts requests before they are posted, for queues that could overflow. Errors: the count, if `depth` has no room or a drain is in progress. The count
    /// is unchanged then.
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

    /// Adds to the bytes of posted requests.
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

    /// Ends these requests.
    pub fn end_all(&self, requests: u32) {
        self.take_back(requests);
        self.over.fetch_add(requests.into(), Ordering::Relaxed);
    }

    /// Subtracts requests that were not posted.
    pub fn take_back(&self, requests: u32) {
        self.others.fetch_sub(requests.into(), Ordering::Relaxed);
    }

    /// Starts a drain. False: another thread drains.
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
        let posted = PostCounter::default();
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
        let posted = PostCounter::default();
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
        let posted = PostCounter::default();
        assert!(posted.close() && !posted.close());
        assert_ne!(posted.look() & DRAINING, 0);
        assert!(posted.try_add(1, 100).is_err());
        posted.open();
        assert_eq!(posted.look(), 0);
    }
}

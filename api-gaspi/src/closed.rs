//! Closed connections (GASPI 17.1 §5.4.2). A closed connection leads to one incarnation of a rank: a later process of the rank is not affected.

use std::sync::atomic::{AtomicU64, Ordering};

/// One value per rank: 0 if the connection is open, else 1 + the incarnation of the process to which it is closed.
pub(crate) struct Closed(Box<[AtomicU64]>);

impl Closed {
    /// All connections to `ranks` ranks are open.
    pub fn none(ranks: u32) -> Self {
        Closed((0..ranks).map(|_| AtomicU64::new(0)).collect())
    }

    /// Closes the connection to this incarnation of the rank. A closed connection to a later incarnation stays closed. A rank out of range has no effect.
    pub fn close(&self, rank: u16, incarnation: u32) {
        if let Some(place) = self.0.get(usize::from(rank)) {
            place.fetch_max(u64::from(incarnation) + 1, Ordering::AcqRel);
        }
    }

    /// Opens the connection to this incarnation of the rank, or to an earlier one.
    pub fn open(&self, rank: u16, incarnation: u32) {
        let open = |now| (now <= u64::from(incarnation) + 1).then_some(0);
        if let Some(place) = self.0.get(usize::from(rank)) {
            // An error means that the closed connection leads to a later incarnation.
            let _ = place.fetch_update(Ordering::AcqRel, Ordering::Acquire, open);
        }
    }

    /// Whether the connection to this incarnation is closed.
    #[inline]
    pub fn is_closed(&self, rank: u32, incarnation: impl FnOnce() -> u32) -> bool {
        let place = self.0.get(rank as usize);
        let to = place.map_or(0, |place| place.load(Ordering::Acquire));
        to != 0 && to == u64::from(incarnation()) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_dead_process_has_closed_is_open_to_the_next() {
        let closed = Closed::none(2);
        let is_closed = |incarnation| closed.is_closed(1, || incarnation);
        closed.close(1, 0);
        assert!(is_closed(0) && !is_closed(1));
        // The next process closes the connection early. Then late messages of the dead process arrive.
        closed.close(1, 1);
        closed.close(1, 0);
        closed.open(1, 0);
        assert!(is_closed(1) && !is_closed(0));
        closed.open(1, 1);
        assert!(!is_closed(1));
        closed.close(2, 0);
        closed.open(2, 0);
        assert!(!closed.is_closed(2, || 0), "no such rank");
    }
}

//! A hint for ranks that poll or compute without a pause while they share cores.

use std::time::{Duration, Instant};

/// Interval between two checks of the ranks.
const PAUSE: Duration = Duration::from_secs(5);

/// Watches a job that has more ranks than cores.
pub(super) struct Crowd {
    /// `None`: the cores suffice, or the hint has been given.
    next: Option<Instant>,
}

/// Context switches of a process since it began.
struct Switches {
    by_itself: u64,
    by_force: u64,
}

impl Crowd {
    pub(crate) fn new(ranks: usize, cores: usize, now: Instant) -> Self {
        let next = now.checked_add(PAUSE).filter(|_| ranks > cores);
        Crowd { next }
    }

    /// Time of the next call of [`news`](Crowd::news).
    pub fn next(&self) -> Option<Instant> {
        self.next
    }

    /// The first of these ranks that uses whole time slices. Returns a rank at most once.
    pub(crate) fn news(
        &mut self,
        ranks: impl Iterator<Item = (u32, u32)>,
        now: Instant,
    ) -> Option<u32> {
        if self.next.is_none_or(|next| now < next) {
            return None;
        }
        self.next = now.checked_add(PAUSE);
        let mut ranks = ranks.filter(|(_, pid)| {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
            status.is_ok_and(|status| read(&status).is_some_and(|seen| seen.has_no_pause()))
        });
        let (rank, _) = ranks.next()?;
        self.next = None;
        Some(rank)
    }
}

impl Switches {
    /// Whether the kernel preempts the process often, while the process hardly yields the core.
    fn has_no_pause(&self) -> bool {
        self.by_force >= 100 && self.by_force / 10 > self.by_itself
    }
}

/// Parses the file of proc_pid_status(5).
fn read(status: &str) -> Option<Switches> {
    let number = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line?.trim().parse().ok()
    };
    Some(Switches {
        by_itself: number("voluntary_ctxt_switches:")?,
        by_force: number("nonvoluntary_ctxt_switches:")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(by_itself: u64, by_force: u64) -> Switches {
        let status = format!(
            "Name:\tp\nvoluntary_ctxt_switches:\t{by_itself}\nnonvoluntary_ctxt_switches:\t{by_force}\n"
        );
        read(&status).unwrap()
    }

    #[test]
    fn ranks_that_poll_are_told_from_those_that_wait() {
        assert!(of(20, 1000).has_no_pause());
        assert!(!of(200, 1000).has_no_pause(), "it waits in calls");
        assert!(!of(0, 99).has_no_pause(), "too early to say");
        assert!(read("Name:\tp\n").is_none());
    }

    #[test]
    fn nothing_is_looked_at_where_cores_suffice() {
        let now = Instant::now();
        assert!(Crowd::new(2, 2, now).next().is_none());
        let mut crowd = Crowd::new(3, 2, now);
        assert_eq!(crowd.next(), now.checked_add(PAUSE));
        assert_eq!(crowd.news([(0, std::process::id())].into_iter(), now), None);
        assert_eq!(crowd.next(), now.checked_add(PAUSE), "too early");
    }
}

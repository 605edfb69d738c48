//! Processes that have gone: who asks for one of them again is told at once.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::greeting::SECRET;
use crate::Error;
use parking_lot::Mutex;

/// So many are remembered: those that went last.
const MOST: usize = 1024;
/// A host that was silent is not tried again before that: it may come back.
const SILENCE: Duration = Duration::from_secs(10);

/// Those of one process's peers, by their secrets, which nobody has after them.
#[derive(Default)]
pub struct Departed(Mutex<VecDeque<Gone>>);

struct Gone {
    secret: [u8; SECRET],
    until: Option<Instant>,
    why: Error,
}

impl Departed {
    /// This one has ended, or, if it was only `silent`, is not to be asked for a while; and `why`.
    pub fn add(&self, secret: [u8; SECRET], silent: bool, why: Error) {
        let mut all = self.0.lock();
        all.retain(|gone| gone.secret != secret);
        if all.len() == MOST {
            all.pop_front();
        }
        let until = silent.then(|| Instant::now() + SILENCE);
        all.push_back(Gone { secret, until, why });
    }

    /// Why it is not to be asked, if it is one of them.
    pub fn why(&self, secret: &[u8; SECRET]) -> Option<Error> {
        let all = self.0.lock();
        let found = all.iter().rev().find(|gone| gone.secret == *secret);
        let now = Instant::now();
        let gone = found.filter(|gone| gone.until.is_none_or(|until| now < until))?;
        Some(gone.why.clone())
    }

    /// Whether it has ended, and was not only silent.
    pub fn has_ended(&self, secret: &[u8; SECRET]) -> bool {
        let all = self.0.lock();
        let mut ended = all.iter().filter(|gone| gone.until.is_none());
        ended.any(|gone| gone.secret == *secret)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_are_remembered() {
        let departed = Departed::default();
        let secret = |nth: usize| std::array::from_fn(|at| nth.to_le_bytes()[at % 8]);
        for nth in 0..2 * MOST {
            assert_eq!(departed.why(&secret(nth)), None);
            departed.add(secret(nth), nth % 2 == 0, Error::Timeout);
            assert_eq!(departed.has_ended(&secret(nth)), nth % 2 == 1);
            departed.add(secret(nth), false, Error::PeerDead);
            assert_eq!(departed.why(&secret(nth)), Some(Error::PeerDead));
        }
        assert!(departed.why(&secret(MOST)).is_some());
        assert_eq!(departed.why(&secret(MOST - 1)), None);
    }
}

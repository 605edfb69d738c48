//! Departed processes: a new connection to one of them fails at once.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::greeting::SECRET;
use parking_lot::Mutex;
use unipgas_base::Error;

/// Maximum of remembered processes: the last ones.
const MOST: usize = 1024;
/// Time until a silent host is tried again. It may come back.
const SILENCE: Duration = Duration::from_secs(10);

/// The departed peers of one process, by their secrets. Secrets are unique.
#[derive(Default)]
pub struct Departed(Mutex<VecDeque<Gone>>);

struct Gone {
    secret: [u8; SECRET],
    until: Option<Instant>,
    why: Error,
}

impl Departed {
    /// Adds a process. `silent`: it did not answer, so it may be tried again later. `why`: the error for new connections.
    pub fn add(&self, secret: [u8; SECRET], silent: bool, why: Error) {
        let mut all = self.0.lock();
        all.retain(|gone| gone.secret != secret);
        if all.len() == MOST {
            all.pop_front();
        }
        let until = silent.then(|| Instant::now() + SILENCE);
        all.push_back(Gone { secret, until, why });
    }

    /// The error for a connection to this process. `None`: it may be tried.
    pub fn why(&self, secret: &[u8; SECRET]) -> Option<Error> {
        let all = self.0.lock();
        let found = all.iter().rev().find(|gone| gone.secret == *secret);
        let now = Instant::now();
        let gone = found.filter(|gone| gone.until.is_none_or(|until| now < until))?;
        Some(gone.why.clone())
    }

    /// Whether the process has ended. Silence is no proof of that.
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

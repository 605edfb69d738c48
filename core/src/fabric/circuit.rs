//! Barrier gates of a network's own: circuits in which the members of a group meet, and combine few values, without their processors.
//!
//! A circuit has the shape of the [dissemination barrier](crate::schedule::dissemination_barrier), or of recursive doubling where the members are a power of two: each member has a gate
//! for each round, and tells those to whom it sends, and from whom it receives, which.

use crate::{Error, Result};

/// What is combined on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Combining {
    /// Nothing: a barrier.
    Nothing,
    /// The sum; of recursive doubling only, as others count some values twice.
    Sum,
    /// The maximum.
    Max,
}

/// A network with gates.
pub trait Gates: Send + Sync {
    /// Gates for a circuit of so many rounds. Errors: [`Error::Exhausted`]; others.
    fn claim(&self, rounds: u32) -> Result<Box<dyn Circuit>>;
}

/// A member's part of a circuit, until it is dropped.
pub trait Circuit: Send + Sync {
    /// The names of its gates: which one sends in each round.
    fn gates(&self) -> &[u64];
    /// Connects them: `to` those that receive what this member sends in each round, and `from` those that send what it receives. Errors: the network's.
    fn connect(&mut self, to: &[u64], from: &[u64]) -> Result<()>;
    /// How many values of 64 bits can be combined.
    fn room(&self) -> usize;
    /// Begins to meet, and to combine these values. Errors: the network's.
    fn begin(&mut self, what: Combining, values: &[u64]) -> Result<()>;
    /// Whether all have met; then the values have been combined. Errors: the network's.
    fn poll(&mut self, values: &mut [u64]) -> Result<bool>;
}

/// Members that send to, and receive from, member `me` of `n` in a round: (to, from).
pub fn partners(me: u32, n: u32, round: u32) -> (u32, u32) {
    let distance = 1 << round;
    match n.is_power_of_two() {
        true => (me ^ distance, me ^ distance),
        false => ((me + distance) % n, (me + n - distance) % n),
    }
}

/// Rounds of a circuit of `n` members.
pub fn rounds(n: u32) -> u32 {
    n.next_power_of_two().trailing_zeros()
}

/// Whether members that have met so combine values by `what`.
pub fn combines(n: u32, what: Combining) -> Result<()> {
    match what {
        Combining::Sum if !n.is_power_of_two() => Err(Error::Unsupported),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After all rounds each member has heard of each other one, and in recursive doubling once.
    #[test]
    fn everybody_hears_of_everybody() {
        for n in 2..=65 {
            let mut heard: Vec<Vec<u32>> = (0..n).map(|me| vec![me]).collect();
            for round in 0..rounds(n) {
                let before = heard.clone();
                for me in 0..n {
                    let (to, from) = partners(me, n, round);
                    assert_eq!(partners(to, n, round).1, me);
                    assert_eq!(partners(from, n, round).0, me);
                    heard[me as usize].extend(&before[from as usize]);
                }
            }
            for mut all in heard {
                all.sort_unstable();
                let once = all.len() == n as usize;
                all.dedup();
                assert_eq!(all.len(), n as usize);
                assert!(once || combines(n, Combining::Sum).is_err());
            }
        }
    }
}

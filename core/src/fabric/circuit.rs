//! Barrier gates of a network's own: circuits in which the members of a group meet without their processors.
//!
//! A circuit has the shape of the [dissemination barrier](crate::schedule::dissemination_barrier): each member has a gate for each round, which sends in that round; it receives
//! what is sent in the round before.

use crate::Result;

/// A network with gates.
pub trait Gates: Send + Sync {
    /// Gates for a circuit of so many rounds. Errors: [`Error::Exhausted`](crate::Error::Exhausted); others.
    fn claim(&self, rounds: u32) -> Result<Box<dyn Circuit>>;
}

/// A member's part of a circuit, until it is dropped.
pub trait Circuit: Send + Sync {
    /// The names of its gates: which one sends in each round.
    fn gates(&self) -> &[u64];
    /// Connects them: `to` those that receive what this member sends in each round, and `from` those that send what it receives. Errors: the network's.
    fn connect(&mut self, to: &[u64], from: &[u64]) -> Result<()>;
    /// Begins to meet. Errors: the network's.
    fn begin(&mut self) -> Result<()>;
    /// Whether all have met. Errors: the network's.
    fn poll(&mut self) -> Result<bool>;
}

/// Rounds of a circuit of `n` members.
pub fn rounds(n: u32) -> u32 {
    n.next_power_of_two().trailing_zeros()
}

/// To whom member `me` of `n` sends in a round.
pub fn partner(me: u32, n: u32, round: u32) -> u32 {
    (me + (1 << round)) % n
}

/// The gate that receives what is sent in a round.
pub fn receiver(round: u32, rounds: u32) -> u32 {
    (round + 1) % rounds
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::{Step, dissemination_barrier};

    #[test]
    fn a_circuit_has_the_shape_of_the_barrier() {
        for n in 2..=65 {
            for me in 0..n {
                let steps = dissemination_barrier(me, n).steps;
                let sent = steps.iter().filter_map(|step| match step {
                    Step::Signal { to, slot } => Some((*to, *slot)),
                    _ => None,
                });
                let ours = (0..rounds(n)).map(|round| (partner(me, n, round), round));
                assert!(sent.eq(ours), "{me} of {n}");
            }
        }
    }
}

//! Barrier gates of a network. In a circuit of gates the members of a group meet, and reduce a few words, without their processors.
//!
//! A circuit is a butterfly (uTofu User's Guide §2.3.2). The first `p` of `n` members, the largest power of two, exchange in rounds. Each other member has a
//! partner among them. It hands its part to the partner before the first round, and gets the result from it after the last.

use crate::Result;

/// A network with gates.
pub trait GateNetwork: Send + Sync {
    /// Claims `count` gates for one circuit. Errors: [`Error::Exhausted`](crate::Error::Exhausted); others.
    fn claim(&self, count: usize) -> Result<Box<dyn Circuit>>;
    /// Most words that a circuit reduces at once by this operation; 0: not supported. The same in all processes.
    fn most(&self, by: GateOp) -> usize;
}

/// The operation by which gates combine words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateOp {
    /// The largest of unsigned words.
    Max,
    /// The sum of words, modulo 2^64.
    Sum,
    /// The sum of words that are `f64`.
    SumF64,
}

/// A member's part of a circuit, until it is dropped.
pub trait Circuit: Send + Sync {
    /// The ids of its gates. The circuit begins and ends at the first gate.
    fn gates(&self) -> &[u64];
    /// Connects each gate to its receiver and its sender. Errors: network errors.
    fn connect(&mut self, to: &[Option<u64>], from: &[Option<u64>]) -> Result<()>;
    /// Begins a barrier. Errors: network errors.
    fn meet(&mut self) -> Result<()>;
    /// Whether all members have met. Errors: network errors.
    fn have_met(&mut self) -> Result<bool>;
    /// Begins to reduce `words`. All members give the same number of words, and the same operation. Errors: network errors.
    fn reduce(&mut self, by: GateOp, words: &[u64]) -> Result<()>;
    /// Whether the words have been reduced. Then `words`, of the same length, holds the results. Errors: network errors.
    fn poll_reduced(&mut self, by: GateOp, words: &mut [u64]) -> Result<bool>;
}

/// The two connections of a member's gate. Each is a member, and the number of its gate there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GateLinks {
    /// The receiver of its packets.
    pub to: Option<(u32, u32)>,
    /// The sender of its packets.
    pub from: Option<(u32, u32)>,
}

/// The gates of member `me` of `n`, at least two, in the order in which a signal goes around them.
pub fn butterfly(me: u32, n: u32) -> Vec<GateLinks> {
    let rounds = n.ilog2();
    let p = 1 << rounds;
    let last = rounds + 1;
    // A member with a partner beyond `p` has one more gate for the partner's part, and one for the result.
    let is_handed = |member: u32| member + p < n;
    let (sends, receives) = (
        |member: u32, round: u32| round + u32::from(is_handed(member)),
        |member: u32, round: u32| match is_handed(member) {
            true => round + 2,
            false => (round + 1) % rounds.max(2),
        },
    );
    if me >= p {
        let whom = me - p;
        return vec![GateLinks {
            to: Some((whom, 1)),
            from: Some((whom, last)),
        }];
    }
    // At least two gates: the signal between gates carries the member's own part, and a single gate has none.
    let count = match is_handed(me) {
        true => rounds + 2,
        false => rounds.max(2),
    };
    let mut gates = vec![GateLinks::default(); count as usize];
    for round in 0..rounds {
        let whom = me ^ 1 << round;
        gates[sends(me, round) as usize].to = Some((whom, receives(whom, round)));
        gates[receives(me, round) as usize].from = Some((whom, sends(whom, round)));
    }
    if is_handed(me) {
        gates[1].from = Some((me + p, 0));
        gates[last as usize].to = Some((me + p, 0));
    }
    gates
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMBERS: u32 = if cfg!(miri) { 9 } else { 65 };

    #[test]
    fn both_sides_name_each_other() {
        for n in 2..=MEMBERS {
            let all: Vec<_> = (0..n).map(|me| butterfly(me, n)).collect();
            let gate = |(member, gate): (u32, u32)| all[member as usize][gate as usize];
            for (me, gates) in (0..).zip(&all) {
                for (nth, one) in (0..).zip(gates) {
                    if let Some(to) = one.to {
                        assert_eq!(gate(to).from, Some((me, nth)), "of {n}");
                    }
                    if let Some(from) = one.from {
                        assert_eq!(gate(from).to, Some((me, nth)), "of {n}");
                    }
                }
            }
        }
    }

    /// The result of each member: each gives its own bit, and values that meet are added.
    fn sums(n: u32) -> Vec<u128> {
        let all: Vec<_> = (0..n).map(|me| butterfly(me, n)).collect();
        let mut at = vec![(0usize, 0u128); n as usize];
        let mut packets = std::collections::HashMap::new();
        let mut ends = vec![None; n as usize];
        // A gate passes on the values from the gate before it and from its sender. The first gate begins and ends.
        while ends.contains(&None) {
            for me in 0..n as usize {
                let (gates, (nth, held)) = (&all[me], at[me]);
                if ends[me].is_some() {
                    continue;
                }
                let gate = gates[nth % gates.len()];
                let mut value = held;
                if nth == 0 {
                    value = 1 << me;
                } else if gate.from.is_some() {
                    let Some(packet) = packets.remove(&(me, nth % gates.len())) else {
                        continue;
                    };
                    value += packet;
                }
                if nth == gates.len() {
                    ends[me] = Some(value);
                    continue;
                }
                if let Some((whom, there)) = gate.to {
                    assert_eq!(packets.insert((whom as usize, there as usize), value), None);
                }
                // A single gate has no signal beside the packet.
                at[me] = (nth + 1, if gates.len() == 1 { 0 } else { value });
            }
        }
        ends.into_iter().flatten().collect()
    }

    #[test]
    fn all_parts_are_in_the_result_once() {
        for n in 2..=MEMBERS {
            let whole = (1u128 << n) - 1;
            assert!(sums(n).iter().all(|sum| *sum == whole), "of {n}");
        }
    }
}

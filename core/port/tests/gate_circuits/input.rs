//! Inputs of reductions, and their sequentially computed results.

use unipgas_port::gate::{Operation, Payload};

pub const OPERATIONS: [Operation; 8] = {
    use Operation::*;
    [Barrier, Band, Bor, Bxor, Max, Maxloc, Sum, Bfpsum]
};

/// A well-mixed number.
pub fn mix(n: u64) -> u64 {
    let n = (n ^ n >> 31).wrapping_mul(0x7fb5_d329_728e_a185);
    let n = (n ^ n >> 27).wrapping_mul(0x81da_def4_bc2d_d44d);
    n ^ n >> 33
}

/// The reduction of a round: operation, number of elements, flags.
#[derive(Debug, Clone, Copy)]
pub struct InputKind {
    pub operation: Operation,
    pub count: usize,
    pub flags: u64,
}

impl InputKind {
    pub fn of(round: u64) -> Self {
        let random = mix(round);
        let operation = OPERATIONS[random as usize % 8];
        let most = match operation {
            Operation::Barrier => 0,
            Operation::Maxloc | Operation::Bfpsum => 3,
            _ => 6,
        };
        let count = (random >> 8) as usize % most.max(1) + 1;
        Self {
            operation,
            count: count.min(most) * if operation == Operation::Maxloc { 2 } else { 1 },
            flags: if random >> 16 & 3 == 0 {
                random >> 32
            } else {
                0
            },
        }
    }

    fn integer(&self, rank: u64, round: u64, index: usize) -> u64 {
        let random = mix(mix(mix(round) + rank) + index as u64);
        // Few different values, so that MAXLOC has to choose between locations.
        if self.operation == Operation::Maxloc {
            random % 3
        } else {
            random
        }
    }

    /// Integers of 53 bits with very different exponents, of both signs: additions of doubles would lose bits.
    fn double(&self, rank: u64, round: u64, index: usize) -> i128 {
        let random = mix(mix(mix(round) + rank) + index as u64);
        let magnitude = i128::from(random >> 11) << (random % 60);
        if random & 0x400 == 0 {
            magnitude
        } else {
            -magnitude
        }
    }

    pub fn input(&self, rank: u64, round: u64) -> Payload {
        let mut integers = [0; 6];
        let mut doubles = [0.0; 3];
        match self.operation {
            Operation::Barrier => Payload::barrier(self.flags),
            Operation::Bfpsum => {
                for (index, to) in doubles[..self.count].iter_mut().enumerate() {
                    *to = self.double(rank, round, index) as f64;
                }
                Payload::doubles(self.operation, &doubles[..self.count], self.flags).unwrap()
            }
            _ => {
                for (index, to) in integers[..self.count].iter_mut().enumerate() {
                    *to = self.integer(rank, round, index);
                }
                Payload::integers(self.operation, &integers[..self.count], self.flags).unwrap()
            }
        }
    }

    /// Checks the result for the ranks below `ranks`.
    pub fn check(&self, ranks: u64, round: u64, result: &Payload) {
        let what = (self.operation, self.count, self.flags);
        let got = result.operation().unwrap();
        assert_eq!((got, result.count(), result.flags()), what, "{ranks} ranks");
        assert_eq!(result.double(self.count), None);
        if self.operation == Operation::Bfpsum {
            for index in 0..self.count {
                let exact: i128 = (0..ranks).map(|rank| self.double(rank, round, index)).sum();
                let bits = result.double(index).unwrap().to_bits();
                assert_eq!(
                    bits,
                    (exact as f64).to_bits(),
                    "element {index} of {result:?}"
                );
            }
            assert!(result.as_integers().is_empty());
            return;
        }
        let column = |index| (0..ranks).map(move |rank| self.integer(rank, round, index));
        let expected: Vec<u64> = (0..self.count)
            .map(|index| match self.operation {
                Operation::Band => column(index).fold(u64::MAX, |a, b| a & b),
                Operation::Bor => column(index).fold(0, |a, b| a | b),
                Operation::Bxor => column(index).fold(0, |a, b| a ^ b),
                Operation::Sum => column(index).fold(0, u64::wrapping_add),
                Operation::Max => column(index).max().unwrap(),
                _ if index % 2 == 0 => column(index).max().unwrap(),
                _ => {
                    let best = column(index - 1).max().unwrap();
                    let pairs = column(index - 1).zip(column(index));
                    pairs
                        .filter(|&(value, _)| value == best)
                        .map(|(_, at)| at)
                        .min()
                        .unwrap()
                }
            })
            .collect();
        assert_eq!(
            result.as_integers(),
            expected,
            "{what:?}, {ranks} ranks, round {round}"
        );
        assert_eq!(result.double(0), None);
    }
}

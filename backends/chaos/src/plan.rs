//! The plan of one operation. It depends only on the configuration, and on the channel, number and shape of the operation.

use std::ops::Range;

use unipgas_core::lines::LINE;

use crate::config::ChaosConfig;

/// SplitMix64 (Steele, Lea and Flood): one addition and a mix for each number.
#[derive(Debug, Clone)]
pub(crate) struct SplitMix(u64);

impl SplitMix {
    /// Each list of parts has its own stream.
    pub fn of(parts: &[u64]) -> Self {
        let mut random = SplitMix(0x756e_6970_6761_7321);
        for part in parts {
            random.0 ^= part;
            random.0 = random.draw();
        }
        random
    }

    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in 0..n; n > 0.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(n)) >> 64) as u64
    }
}

/// Maximum number of parts of a transfer.
pub const MAX_PARTS: usize = 4;

/// Properties of an operation that its plan depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OperationShape {
    /// Bytes or elements of a divisible operation; else 0.
    pub divisible: usize,
    /// Cuts must be between lines. Bytes up to the end of the first line ([`Flags::LINES`](unipgas_core::Flags::LINES)).
    pub first_line: Option<usize>,
    /// A notice follows the data.
    pub notice: bool,
}

impl OperationShape {
    fn between_lines(self, cut: usize) -> usize {
        match self.first_line {
            Some(first) => cut
                .checked_sub(first)
                .map_or(0, |past| first + past / LINE * LINE),
            None => cut,
        }
    }
}

/// A part of an operation, executed separately.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OperationPart {
    /// The whole operation, in one call.
    Whole,
    /// These bytes or elements.
    Range(Range<usize>),
    /// The data of an operation with a notice.
    Data,
    /// The notice, after all data.
    Notice,
}

/// Time and parts in which an operation is carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DelayPlan {
    /// Carried out whole in the call, unless it must wait for earlier operations.
    pub at_once: bool,
    /// The part, its delay in polls, and its rank among due parts.
    pub parts: Vec<(OperationPart, u64, u64)>,
    /// Number of parts that are carried out before a disaster of this operation.
    pub disaster_after: usize,
}

impl DelayPlan {
    pub fn draw(config: &ChaosConfig, channel: u64, number: u64, shape: OperationShape) -> Self {
        let mut random = SplitMix::of(&[config.seed, u64::from(config.rank), channel, number]);
        let at_once = random.below(100) < u64::from(config.at_once_percent);
        let mut parts = Vec::with_capacity(MAX_PARTS + 1);
        let wanted = if config.split {
            1 + random.below(MAX_PARTS as u64) as usize
        } else {
            1
        };
        if wanted > 1 && shape.divisible > 1 {
            let mut cuts: Vec<usize> = (1..wanted)
                .map(|_| 1 + random.below(shape.divisible as u64 - 1) as usize)
                .map(|cut| shape.between_lines(cut))
                .collect();
            cuts.extend([0, shape.divisible]);
            cuts.sort_unstable();
            cuts.dedup();
            parts.extend(
                cuts.windows(2)
                    .map(|cut| OperationPart::Range(cut[0]..cut[1])),
            );
        } else if shape.notice && config.split && random.below(2) == 0 {
            parts.push(OperationPart::Data);
        } else {
            parts.push(OperationPart::Whole);
        }
        if shape.notice && parts[0] != OperationPart::Whole {
            parts.push(OperationPart::Notice);
        }
        let mut due = 0;
        let parts: Vec<_> = parts
            .into_iter()
            .map(|part| {
                let delay = random.below(u64::from(config.max_delay_polls) + 1);
                // Without reordering the parts of an operation also keep their order.
                due = if config.reorder {
                    delay
                } else {
                    due.max(delay)
                };
                (part, due, random.draw())
            })
            .collect();
        DelayPlan {
            at_once,
            disaster_after: random.below(parts.len() as u64) as usize,
            parts,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: OperationShape = OperationShape {
        divisible: 1000,
        first_line: None,
        notice: true,
    };

    fn plans(config: &ChaosConfig, channel: u64) -> Vec<DelayPlan> {
        (0..200)
            .map(|number| DelayPlan::draw(config, channel, number, SHAPE))
            .collect()
    }

    #[test]
    fn a_seed_repeats_and_whatever_differs_makes_a_difference() {
        let config = ChaosConfig::seeded(42);
        let first = plans(&config, 0);
        assert_eq!(first, plans(&config, 0));
        assert_ne!(first, plans(&config, 1));
        assert_ne!(first, plans(&ChaosConfig::seeded(43), 0));
        assert_ne!(first, plans(&ChaosConfig { rank: 1, ..config }, 0));
    }

    #[test]
    fn parts_cover_everything_once_and_the_notice_is_the_last() {
        let mut counts = [0; MAX_PARTS + 2];
        for divisible in [0, 1, 2, 3, 1000] {
            for number in 0..500 {
                let shape = OperationShape {
                    divisible,
                    first_line: (number % 3 == 0).then_some(number as usize % LINE + 1),
                    notice: number % 2 == 0,
                };
                let config = ChaosConfig::seeded(1);
                let plan = DelayPlan::draw(&config, 0, number, shape);
                let whole = plan.parts[0].0 == OperationPart::Whole
                    || plan.parts[0].0 == OperationPart::Data;
                let mut at = 0;
                for (index, (part, due, _)) in plan.parts.iter().enumerate() {
                    assert!(*due <= u64::from(config.max_delay_polls));
                    match part {
                        OperationPart::Range(range) => {
                            assert_eq!(range.start, at);
                            assert!(range.end > at);
                            at = range.end;
                            if let Some(first) = shape.first_line
                                && at < divisible
                            {
                                assert!(at >= first && (at - first).is_multiple_of(LINE));
                            }
                        }
                        OperationPart::Notice => {
                            assert!(shape.notice && index > 0 && index + 1 == plan.parts.len());
                        }
                        OperationPart::Whole => assert_eq!(plan.parts.len(), 1),
                        OperationPart::Data => assert!(shape.notice && plan.parts.len() == 2),
                    }
                }
                assert!(whole || at == divisible);
                assert!(plan.disaster_after < plan.parts.len());
                counts[plan.parts.len()] += 1;
            }
        }
        assert!(counts[1..].iter().all(|n| *n > 0), "{counts:?}");
    }

    #[test]
    fn switches_switch() {
        let config = ChaosConfig {
            split: false,
            max_delay_polls: 0,
            ..ChaosConfig::seeded(3)
        };
        assert!(
            plans(&config, 0)
                .iter()
                .all(|p| p.parts[0].0 == OperationPart::Whole && p.parts[0].1 == 0)
        );
        let never = ChaosConfig {
            at_once_percent: 0,
            ..config.clone()
        };
        assert!(plans(&never, 0).iter().all(|p| !p.at_once));
        let always = ChaosConfig {
            at_once_percent: 100,
            ..config
        };
        assert!(plans(&always, 0).iter().all(|p| p.at_once));
    }
}

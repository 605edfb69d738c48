//! Operations and bytes a second of the ranks, between two pictures.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::job_snapshot::JobSnapshot;
use unipgas_core::counters::CounterValues;

/// Operations and bytes a second, by rank.
#[derive(Debug, Clone, Default)]
pub struct Rates(BTreeMap<u32, [f64; 2]>);

impl Rates {
    /// Rates of the processes in both pictures, which are `span` apart.
    pub fn between(earlier: &JobSnapshot, later: &JobSnapshot, span: Duration) -> Rates {
        let before: BTreeMap<_, &CounterValues> = (earlier.ranks.iter())
            .map(|seen| ((seen.rank, seen.pid), &seen.counts))
            .collect();
        let of_one = |counts: &CounterValues, before: &CounterValues| {
            let more = |now: u64, before: u64| now.saturating_sub(before) as f64;
            [
                more(counts.operations, before.operations),
                more(counts.bytes, before.bytes),
            ]
            .map(|many| many / span.as_secs_f64().max(1e-9))
        };
        let rates = later.ranks.iter().filter_map(|seen| {
            let before = before.get(&(seen.rank, seen.pid))?;
            Some((seen.rank, of_one(&seen.counts, before)))
        });
        Rates(rates.collect())
    }

    /// Text for users. Empty: unknown.
    pub(super) fn of(&self, rank: u32) -> [String; 2] {
        let rates = self.0.get(&rank).copied();
        rates.map_or_else(Default::default, |rates| rates.map(short))
    }
}

/// Three digits, with an SI prefix.
pub fn short(value: f64) -> String {
    let mut value = value;
    for prefix in ["", " k", " M", " G", " T"] {
        if value < 999.5 {
            return match value {
                _ if prefix.is_empty() => format!("{value:.0}"),
                ..9.995 => format!("{value:.2}{prefix}"),
                ..99.95 => format!("{value:.1}{prefix}"),
                _ => format!("{value:.0}{prefix}"),
            };
        }
        value /= 1000.0;
    }
    format!("{value:.0} P")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        let all = [
            (0.0, "0"),
            (999.0, "999"),
            (1000.0, "1.00 k"),
            (12_345.0, "12.3 k"),
            (999_600.0, "1.00 M"),
            (2.5e9, "2.50 G"),
            (7e15, "7 P"),
        ];
        for (value, text) in &all {
            assert_eq!(short(*value), *text);
        }
    }
}

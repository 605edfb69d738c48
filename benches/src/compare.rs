//! Comparison with earlier figures.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::file;
use crate::record::BenchRecord;

/// A figure relative to an earlier one of the same case and column.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq)]
pub(crate) struct Change {
    /// Ratio of the medians.
    pub ratio: f64,
    /// Lower end of the ratio, from the quartiles of both.
    pub low: f64,
    /// Upper end of the ratio.
    pub high: f64,
}

/// Rating of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Worth {
    /// An improvement beyond the noise.
    Better,
    /// A decline beyond the noise.
    Worse,
    /// The ranges overlap.
    Noise,
}

impl Worth {
    /// The word in the table.
    pub fn word(self) -> &'static str {
        match self {
            Worth::Better => "better",
            Worth::Worse => "worse",
            Worth::Noise => "",
        }
    }
}

impl Change {
    /// The change from `old` to `new`. A record without quartiles uses its median. `None`: a ratio is not finite.
    fn of(old: &BenchRecord, new: &BenchRecord) -> Option<Change> {
        let quartiles = |record: &BenchRecord| record.quartiles.unwrap_or([record.value; 2]);
        let ([old_low, old_high], [low, high]) = (quartiles(old), quartiles(new));
        let change = Change {
            ratio: new.value / old.value,
            low: low / old_high,
            high: high / old_low,
        };
        let all = [change.ratio, change.low, change.high];
        all.iter().all(|one| one.is_finite()).then_some(change)
    }

    /// The rating, for a metric where more is better, or less.
    pub fn worth(self, more_is_better: bool) -> Worth {
        match (self.low > 1.0, self.high < 1.0) {
            (true, _) if more_is_better => Worth::Better,
            (_, true) if !more_is_better => Worth::Better,
            (false, false) => Worth::Noise,
            _ => Worth::Worse,
        }
    }
}

/// The figures of a file.
pub(crate) struct Old {
    records: Vec<BenchRecord>,
    name: String,
}

impl Old {
    /// Reads a file of `--json`.
    pub fn read(path: &Path) -> Result<Old, String> {
        let records = file::read(path)?;
        Ok(Old {
            records,
            name: path.display().to_string(),
        })
    }

    /// Sets the change of each record that has an earlier figure.
    pub fn compare(&self, records: &mut [BenchRecord]) {
        for new in records {
            let old = self.records.iter().find(|old| old.is_of_the_same(new));
            new.change = old.and_then(|old| Change::of(old, new));
        }
    }

    /// A summary in lines.
    pub fn summary(&self, records: &[BenchRecord]) -> String {
        let worths = records.iter().filter_map(|record| {
            let change = record.change?;
            Some(change.worth(record.metric.more_is_better()))
        });
        let worths: Vec<Worth> = worths.collect();
        let count = |worth| worths.iter().filter(|one| **one == worth).count();
        let mut text = format!(
            "\nBeside {}: {} better, {} worse, {} within the noise (quartiles of both overlap), {} not in it.\n",
            self.name,
            count(Worth::Better),
            count(Worth::Worse),
            count(Worth::Noise),
            records.len() - worths.len(),
        );
        let machine =
            |records: &[BenchRecord]| records.first().and_then(|first| first.machine.clone());
        match (machine(&self.records), machine(records)) {
            (Some(old), Some(new)) => {
                text += &format!("It is of {}.\n", old.about());
                if (&old.host, &old.cpu, &old.cores) != (&new.host, &new.cpu, &new.cores) {
                    text += "That was another machine, or other cores: the ratios compare these, too.\n";
                }
            }
            _ => text += "It does not say on what machine it was measured.\n",
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(low: f64, high: f64) -> Change {
        Change {
            ratio: f64::midpoint(low, high),
            low,
            high,
        }
    }

    #[test]
    fn what_overlaps_is_noise() {
        assert_eq!(change(0.9, 1.2).worth(true), Worth::Noise);
        assert_eq!(change(1.0, 1.2).worth(false), Worth::Noise);
        assert_eq!(change(1.1, 1.2).worth(true), Worth::Better);
        assert_eq!(change(1.1, 1.2).worth(false), Worth::Worse);
        assert_eq!(change(0.8, 0.9).worth(true), Worth::Worse);
        assert_eq!(change(0.8, 0.9).worth(false), Worth::Better);
    }
}

//! `unipgas run --stats`: counters of the ranks, printed after the end of the job: operations, bytes and waits, and for GASPI each call.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;

use clap::ValueEnum;
use serde::Deserialize;
use unipgas::core::{tell, tell_lines};

use crate::records::Records;

/// The output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// A table, on standard error
    Table,
    /// A record of JSON for each rank, on standard error
    Json,
}

/// The level that enables all counters.
const LEVEL: &str = "2";
/// Tables with more ranks have no column for each rank.
const COLUMNS: usize = 8;

/// The counters of a rank.
#[derive(Deserialize)]
struct Record {
    rank: u32,
    calls: BTreeMap<String, u64>,
    bytes: BTreeMap<String, u64>,
    nanoseconds: BTreeMap<String, u64>,
}

impl Record {
    /// All values by their names in the table.
    fn values(&self) -> BTreeMap<String, u64> {
        let times = self
            .nanoseconds
            .iter()
            .map(|(name, time)| (format!("{name} us"), time / 1000));
        let all = self.calls.clone().into_iter().chain(self.bytes.clone());
        all.chain(times).collect()
    }
}

/// Variables for a job without a collector: each rank prints its own counters.
pub fn variables() -> [(String, OsString); 1] {
    [("UNIPGAS_STATS".into(), LEVEL.into())]
}

/// Variables for ranks that append their counters to `records`.
pub fn collected(records: &Records) -> [(OsString, OsString); 2] {
    [
        ("UNIPGAS_STATS".into(), LEVEL.into()),
        ("UNIPGAS_STATS_TO".into(), records.path().into()),
    ]
}

impl Form {
    /// Prints the records of the ranks in `text`, which has one record on each line.
    pub fn tell(self, text: &str, processes: u32) {
        let mut lines: Vec<(u32, &str)> = Vec::new();
        let mut records = Vec::new();
        for line in text.lines() {
            if let Ok(record) = serde_json::from_str::<Record>(line) {
                lines.push((record.rank, line));
                records.push(record);
            }
        }
        lines.sort_by_key(|(rank, _)| *rank);
        records.sort_by_key(|record| record.rank);
        match self {
            Form::Json => lines
                .iter()
                .for_each(|(_, line)| tell_lines(&format!("{line}\n"))),
            Form::Table => tell_lines(&table(&records)),
        }
        let ranks: BTreeSet<u32> = records.iter().map(|record| record.rank).collect();
        if ranks.len() < processes as usize {
            let missing = processes as usize - ranks.len();
            tell(&format!(
                "{missing} of {processes} ranks have left no statistics: a process that uses unipgas leaves them when it returns from main, or by exit"
            ));
        }
    }
}

/// A row for each counter: the sum, minimum and maximum with their ranks, and all ranks if they are few.
fn table(records: &[Record]) -> String {
    let mut values: BTreeMap<u32, BTreeMap<String, u64>> = BTreeMap::new();
    for record in records {
        values
            .entry(record.rank)
            .or_default()
            .extend(record.values());
    }
    let names: BTreeSet<&String> = values.values().flat_map(BTreeMap::keys).collect();
    let mut text = String::new();
    if names.is_empty() {
        return text;
    }
    let few = values.len() <= COLUMNS;
    text += &format!(
        "{:<30} {:>14} {:>20} {:>20}",
        "counter", "sum", "least (rank)", "most (rank)"
    );
    for rank in values.keys().filter(|_| few) {
        text += &format!(" {:>12}", format!("rank {rank}"));
    }
    text.push('\n');
    for name in names {
        let of_ranks = || {
            values
                .iter()
                .map(|(rank, of)| (of.get(name).copied().unwrap_or(0), *rank))
        };
        // Values come from ranks and may be wrong; their sum must not overflow.
        let sum: u128 = of_ranks().map(|(value, _)| u128::from(value)).sum();
        let show = |found: Option<(u64, u32)>| {
            found.map_or_else(String::new, |(value, rank)| format!("{value} ({rank})"))
        };
        let least = show(of_ranks().min());
        let most = show(of_ranks().max_by_key(|(value, _)| *value));
        text += &format!("{name:<30} {sum:>14} {least:>20} {most:>20}");
        for (value, _) in of_ranks().filter(|_| few) {
            text += &format!(" {value:>12}");
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(rank: u32, writes: u64) -> Record {
        let text = format!(
            "{{\"interface\":\"gaspi\",\"rank\":{rank},\"size\":2,\"calls\":{{\"gaspi_write\":{writes}}},\"bytes\":{{}},\"nanoseconds\":{{\"gaspi_write\":5000}}}}"
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn a_row_has_sum_least_and_most() {
        let shown = table(&[record(0, 3), record(1, 4)]);
        let rows: Vec<Vec<&str>> = shown
            .lines()
            .map(|row| row.split_whitespace().collect())
            .collect();
        assert_eq!(
            rows[1],
            ["gaspi_write", "7", "3", "(0)", "4", "(1)", "3", "4"]
        );
        assert_eq!(
            rows[2],
            ["gaspi_write", "us", "10", "5", "(0)", "5", "(1)", "5", "5"]
        );
        assert_eq!(table(&[]), "");
        let counted = r#"{"interface":"unipgas","rank":1,"size":2,"calls":{"waits":6},"bytes":{"bytes":9},"nanoseconds":{"waits":7000}}"#;
        let both = table(&[
            record(0, 3),
            record(1, 4),
            serde_json::from_str(counted).unwrap(),
        ]);
        let row = |name: &str| {
            both.lines()
                .find_map(|row| row.strip_prefix(name)?.split_whitespace().next())
        };
        assert_eq!(
            ["gaspi_write ", "waits ", "waits us ", "bytes "].map(row),
            ["7", "6", "7", "9"].map(Some)
        );
        let most = [record(0, u64::MAX), record(1, u64::MAX)];
        assert!(table(&most).contains("36893488147419103230"));
    }

    #[test]
    fn many_ranks_have_no_columns_of_their_own() {
        let records: Vec<Record> = (0..COLUMNS as u32 + 1)
            .map(|rank| record(rank, 1))
            .collect();
        assert!(!table(&records).contains("rank 0"));
    }
}

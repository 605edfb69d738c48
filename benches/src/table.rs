//! The table for the terminal.

use std::fmt::Write as _;

use crate::case::Metric;
use crate::record::BenchRecord;

/// A size for people.
pub fn size(bytes: u64) -> String {
    match bytes {
        0 => "-".into(),
        b if b >= 1 << 30 && b % (1 << 30) == 0 => format!("{} GiB", b >> 30),
        b if b >= 1 << 20 && b % (1 << 20) == 0 => format!("{} MiB", b >> 20),
        b if b >= 1 << 10 && b % (1 << 10) == 0 => format!("{} KiB", b >> 10),
        b => format!("{b} B"),
    }
}

/// A value with three significant digits.
pub fn number(value: f64) -> String {
    let decimals = match value.abs() {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 => 2,
        _ => 3,
    };
    format!("{value:.decimals$}")
}

/// A description of a metric and of its limit.
pub fn about(metric: Metric, network: bool) -> &'static str {
    match network {
        true => metric.about_on_a_network(),
        false => metric.about(),
    }
}

/// The columns of a table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Columns {
    /// The processes share no memory.
    pub network: bool,
    /// A model's prediction.
    pub model: Option<String>,
    /// The backends of unipgas, if there are several. The others are compared with the first.
    pub backends: Vec<String>,
    /// Earlier figures.
    pub old: bool,
    /// Verdicts.
    pub check: bool,
}

impl Columns {
    /// The columns for which the records have data.
    pub fn of(records: &[BenchRecord]) -> Columns {
        let mut backends: Vec<String> = Vec::new();
        for record in records.iter().filter(|record| record.is_ours()) {
            if !backends.contains(&record.backend) {
                backends.push(record.backend.clone());
            }
        }
        Columns {
            network: records.iter().any(|record| record.of_provider.is_some()),
            model: records
                .iter()
                .find_map(|record| record.predicted_by.clone()),
            backends: if backends.len() > 1 {
                backends
            } else {
                Vec::new()
            },
            old: records.iter().any(|record| record.change.is_some()),
            check: records.iter().any(|record| record.target.is_some()),
        }
    }

    /// The heads of the columns after processes and size.
    pub fn heads(&self) -> Vec<String> {
        let mut heads: Vec<String> = vec!["column".into()];
        if !self.backends.is_empty() {
            heads.push("backend".into());
        }
        heads.push("median".into());
        heads.extend(self.model.clone());
        let kernel = self.network && self.backends.is_empty();
        heads.push(if kernel { "x kernel" } else { "x limit" }.into());
        if self.network {
            heads.push("x provider".into());
        }
        heads.push("x peer".into());
        heads.extend(self.backends.first().map(|first| format!("x {first}")));
        if self.old {
            heads.push("x old (noise)".into());
        }
        if self.network {
            heads.push("kernel + provider + ours".into());
        }
        if self.check {
            heads.push("target".into());
        }
        heads
    }

    /// The cells of a row after processes and size. `records` has the other rows of its case.
    pub fn cells(&self, row: &BenchRecord, records: &[BenchRecord]) -> Vec<String> {
        let ratio = |r: Option<f64>| r.map_or("-".into(), |r| format!("{r:.2}"));
        let of_ours = |r: Option<f64>| ratio(r.filter(|_| row.is_ours()));
        let mut cells = vec![row.api.clone()];
        if !self.backends.is_empty() {
            cells.push(row.backend.clone());
        }
        cells.push(number(row.value));
        if self.model.is_some() {
            cells.push(row.predicted.map_or(String::new(), number));
        }
        cells.push(ratio(row.ratio_to_limit));
        if self.network {
            cells.push(ratio(row.ratio_to_provider));
        }
        cells.push(of_ours(row.ratio_to_best_peer));
        if let Some(first) = self.backends.first() {
            let same = |other: &&BenchRecord| {
                other.case() == row.case() && other.api == row.api && &other.backend == first
            };
            let other = records.iter().find(same);
            cells.push(of_ours(other.map(|other| row.value / other.value)));
        }
        if self.old {
            let more = row.metric.more_is_better();
            cells.push(row.change.map_or("-".into(), |change| {
                let worth = change.worth(more).word();
                let text = format!(
                    "{:.2} ({:.2}-{:.2}) {worth}",
                    change.ratio, change.low, change.high
                );
                text.trim_end().into()
            }));
        }
        if self.network {
            cells.push(row.split.map_or(String::new(), |split| {
                let [kernel, provider, ours] =
                    [split.kernel, split.provider, split.ours].map(number);
                format!("{kernel} + {provider} + {ours}")
            }));
        }
        if self.check {
            cells.push(row.target.as_ref().map_or(String::new(), |target| {
                format!("{}: {target}", verdict(row.met))
            }));
        }
        cells
    }
}

fn verdict(met: Option<bool>) -> &'static str {
    match met {
        Some(true) => "met",
        Some(false) => "MISSED",
        None => "not judged",
    }
}

/// Pads a cell to the width of its column. Words are left-aligned, numbers right-aligned.
fn pad(head: &str, text: &str) -> String {
    match head {
        "column" => format!("{text:<20}"),
        "backend" => format!("{text:<8}"),
        "x old (noise)" => format!("{text:<24}"),
        "kernel + provider + ours" => format!("{text:<24}"),
        "target" => text.into(),
        _ => format!("{text:>10}"),
    }
}

/// A table that grows by whole cases.
pub(crate) struct Table {
    columns: Columns,
    heads: Vec<String>,
    metric: Option<Metric>,
}

impl Table {
    /// A table with these columns.
    pub fn new(columns: Columns) -> Table {
        Table {
            heads: columns.heads(),
            columns,
            metric: None,
        }
    }

    /// The lines of these records, which are sorted by case. Each new metric gets a head.
    pub fn add(&mut self, records: &[BenchRecord]) -> String {
        let mut out = String::new();
        let mut previous = None;
        for row in records {
            let case = row.case();
            if self.metric.replace(case.metric) != Some(case.metric) {
                let what = about(
                    case.metric,
                    self.columns.network && self.columns.backends.is_empty(),
                );
                let unit = case.metric.unit();
                let _ = writeln!(out, "\n{}: {what}, in {unit}", case.metric.name());
                out += &self.line("procs", "size", &self.heads);
            }
            let first = previous.replace(case) != Some(case);
            let (processes, bytes) = match first {
                true => (case.processes.to_string(), size(case.bytes)),
                false => (String::new(), String::new()),
            };
            out += &self.line(&processes, &bytes, &self.columns.cells(row, records));
        }
        out
    }

    fn line(&self, processes: &str, bytes: &str, cells: &[String]) -> String {
        let mut line = format!("  {processes:>5} {bytes:>8} ");
        for (head, cell) in self.heads.iter().zip(cells) {
            line += " ";
            line += &pad(head, cell);
        }
        line.truncate(line.trim_end().len());
        line + "\n"
    }
}

/// A line about the network of processes that share no memory; empty for others.
pub fn provider(records: &[BenchRecord]) -> String {
    let told = records
        .iter()
        .find_map(|record| Some((record, record.provider.as_ref()?)));
    let Some((record, provider)) = told else {
        return String::new();
    };
    let release = record.libfabric.as_deref().unwrap_or("?");
    let by = match records.iter().any(|record| record.backend == "verbs") {
        true => "verbs. The provider beside it is ",
        false => "",
    };
    format!(
        "\nHosts: {}. Ours over {by}{provider} of libfabric {release}.\n",
        record.hosts
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_numbers_read_as_people_write_them() {
        assert_eq!(size(8), "8 B");
        assert_eq!(size(4096), "4 KiB");
        assert_eq!(size(1 << 30), "1 GiB");
        assert_eq!(number(5.834), "5.83");
        assert_eq!(number(1234.5), "1234");
    }

    #[test]
    fn a_model_has_a_column_of_its_own() {
        let case = crate::case::Case::new(Metric::PutNotice, 2, 8);
        let samples = crate::samples::Samples::of(case, &[("core", 110.0)]);
        let mut setting = crate::record::RecordSetting::of_tests(false, false);
        let words = |setting: &_| {
            let records = crate::record::all(&[case], &samples, setting);
            let text = Table::new(Columns::of(&records)).add(&records);
            let line = |nth: usize| {
                let line = text.lines().filter(|line| line.starts_with("  ")).nth(nth);
                line.unwrap()
                    .split_whitespace()
                    .map(String::from)
                    .collect::<Vec<_>>()
            };
            (line(0), line(1))
        };
        let (head, row) = words(&setting);
        assert!(
            !head.contains(&"tofud".into()) && !row.contains(&"490".into()),
            "{row:?}"
        );
        setting.model = Some(crate::model::Model::Tofud);
        let (head, row) = words(&setting);
        let column = head.iter().position(|word| word == "tofud").unwrap();
        // A size is two words.
        assert_eq!(row[column + 1], "490", "{head:?} {row:?}");
    }
}

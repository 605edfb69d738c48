//! The table for the terminal.

use std::fmt::Write as _;

use crate::case::Metric;
use crate::record::{Record, is_ours};
use crate::samples::family;

/// A size as people write it.
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

/// A value of an axis: without trailing zeros, thousands as "k".
pub fn plain(value: f64) -> String {
    let (value, suffix) = if value >= 1e6 {
        (value / 1e6, "M")
    } else if value >= 1e4 {
        (value / 1e3, "k")
    } else {
        (value, "")
    };
    let text = format!("{value:.2}");
    format!(
        "{}{suffix}",
        text.trim_end_matches('0').trim_end_matches('.')
    )
}

/// What a metric is, and what it is compared with.
pub fn about(metric: Metric, network: bool) -> &'static str {
    match network {
        true => metric.about_on_a_network(),
        false => metric.about(),
    }
}

/// The whole table.
pub fn render(records: &[Record]) -> String {
    let mut out = String::new();
    let network = records.iter().any(|r| r.of_provider.is_some());
    if let Some((record, provider)) = records
        .iter()
        .find_map(|record| Some((record, record.provider.as_ref()?)))
    {
        let release = record.libfabric.as_deref().unwrap_or("?");
        let by = match records.iter().any(|record| record.backend == "verbs") {
            true => "verbs. The provider beside it is ",
            false => "",
        };
        let _ = writeln!(
            out,
            "\nHosts: {}. Ours over {by}{provider} of libfabric {release}.",
            record.hosts
        );
    }
    for metric in Metric::ALL {
        let rows: Vec<&Record> = records.iter().filter(|r| r.case.metric == metric).collect();
        if rows.is_empty() {
            continue;
        }
        let _ = writeln!(
            out,
            "\n{}: {}, in {}",
            metric.name(),
            about(metric, network),
            metric.unit()
        );
        let (provider, split) = match network {
            true => (" x provider", "  kernel + provider + ours"),
            false => ("", ""),
        };
        let limit = if network { "x kernel" } else { "x limit" };
        let model = match rows.iter().find_map(|row| row.predicted_by) {
            Some(name) => format!(" {name:>9}"),
            None => String::new(),
        };
        let _ = writeln!(
            out,
            "  {:>5} {:>8}  {:<20} {:>9}{model} {limit:>9}{provider} {:>9}{split}  target",
            "procs", "size", "column", "median", "x peer"
        );
        let mut previous = None;
        for row in rows {
            let first = previous.replace(row.case) != Some(row.case);
            let _ = writeln!(out, "{}", line(row, first, network));
        }
    }
    out
}

fn line(row: &Record, first: bool, network: bool) -> String {
    let (procs, bytes) = if first {
        (row.processes.to_string(), size(row.bytes))
    } else {
        (String::new(), String::new())
    };
    let ratio = |r: Option<f64>| r.map_or("-".into(), |r| format!("{r:.2}"));
    let peer = if is_ours(family(&row.api)) {
        ratio(row.ratio_to_best_peer)
    } else {
        "-".into()
    };
    let target = row.target.as_ref().map_or(String::new(), |target| {
        let met = match row.met {
            Some(true) => "met",
            Some(false) => "MISSED",
            None => "not judged",
        };
        format!("{met}: {target}")
    });
    let (mut provider, mut split) = (String::new(), String::new());
    if network {
        provider = format!(" {:>10}", ratio(row.ratio_to_provider));
        let parts = row.split.map_or(String::new(), |split| {
            let [kernel, provider, ours] = [split.kernel, split.provider, split.ours].map(number);
            format!("{kernel} + {provider} + {ours}")
        });
        split = format!("  {parts:<24}");
    }
    let predicted = match row.predicted {
        Some(value) => format!(" {:>9}", number(value)),
        None => String::new(),
    };
    let line = format!(
        "  {procs:>5} {bytes:>8}  {:<20} {:>9}{predicted} {:>9}{provider} {peer:>9}{split}  {target}",
        row.api,
        number(row.value),
        ratio(row.ratio_to_limit),
    );
    line.trim_end().into()
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
        assert_eq!(plain(100.0), "100");
        assert_eq!(plain(0.5), "0.5");
        assert_eq!(plain(25_000.0), "25k");
    }

    #[test]
    fn a_model_has_a_column_of_its_own() {
        let case = crate::case::Case {
            metric: Metric::PutNotice,
            processes: 2,
            bytes: 8,
        };
        let mut samples = crate::samples::Samples::default();
        samples.add(case, "core", 110.0);
        let mut setting = crate::record::Setting {
            backend: "shm".into(),
            hosts: "this one".into(),
            network: false,
            model: None,
        };
        let words = |setting: &_| {
            let text = render(&crate::record::all(&[case], &samples, setting));
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

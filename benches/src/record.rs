//! One line of the table, and of the file that `--json` writes.

use serde::Serialize;

use crate::case::Case;
use crate::samples::{Samples, best, family};
use crate::target::{self, Target};

/// A measured figure beside its limit and its best peer.
#[derive(Clone, Debug, Serialize)]
pub struct Record {
    /// What was measured.
    pub metric: &'static str,
    /// Column: "bare", "core", "gaspi", or a peer.
    pub api: String,
    /// Backend of ours, "-" for others.
    pub backend: String,
    /// Number of processes.
    pub processes: u32,
    /// Size of the payload in bytes, 0 where there is none.
    pub bytes: u64,
    /// Median.
    pub value: f64,
    /// Unit of `value`, `limit` and `best_peer`.
    pub unit: &'static str,
    /// Median of the best bare variant.
    pub limit: Option<f64>,
    /// `value / limit`.
    pub ratio_to_limit: Option<f64>,
    /// Median of the best peer.
    pub best_peer: Option<f64>,
    /// `value / best_peer`.
    pub ratio_to_best_peer: Option<f64>,
    /// Which peer that is.
    pub best_peer_name: Option<String>,
    /// The targets, in words.
    pub target: Option<String>,
    /// Whether all of them are met; nothing when one of them could not be judged.
    pub met: Option<bool>,
    /// What this is a record of.
    #[serde(skip)]
    pub case: Case,
}

/// Whether a column is the machine's.
pub fn is_bare(family: &str) -> bool {
    family == "bare"
}

/// Whether a column is ours.
pub fn is_ours(family: &str) -> bool {
    ["core", "gaspi", "utofu", "ircce", "unipgas"].contains(&family)
}

/// Whether a column is a peer's.
pub fn is_peer(family: &str) -> bool {
    !is_bare(family) && !is_ours(family)
}

/// All records of a run, in the order of `cases`.
pub fn all(cases: &[Case], samples: &Samples, backend: &str) -> Vec<Record> {
    let mut records = Vec::new();
    for &case in cases {
        let mut columns = samples.columns(case);
        columns.sort_by_key(|(api, _)| {
            (
                if is_bare(family(api)) {
                    0
                } else {
                    1 + is_peer(family(api)) as u8
                },
                api.clone(),
            )
        });
        let more = case.metric.more_is_better();
        let limit = best(&columns, more, is_bare).map(|c| c.1);
        let peer = best(&columns, more, is_peer);
        for (api, value) in &columns {
            let targets = target::of(case, api);
            let verdicts: Vec<Option<bool>> = targets
                .iter()
                .map(|&t| judge(t, *value, more, limit, &columns))
                .collect();
            records.push(Record {
                metric: case.metric.name(),
                api: api.clone(),
                backend: if is_ours(family(api)) { backend } else { "-" }.to_owned(),
                processes: case.processes,
                bytes: case.bytes,
                value: *value,
                unit: case.metric.unit(),
                limit,
                ratio_to_limit: limit.map(|l| value / l),
                best_peer: peer.map(|p| p.1),
                ratio_to_best_peer: peer.map(|p| value / p.1),
                best_peer_name: peer.map(|p| p.0.clone()),
                target: (!targets.is_empty()).then(|| {
                    targets
                        .iter()
                        .map(|t| t.words(case))
                        .collect::<Vec<_>>()
                        .join(", ")
                }),
                met: if targets.is_empty() {
                    None
                } else {
                    verdict(&verdicts)
                },
                case,
            });
        }
    }
    records
}

fn verdict(verdicts: &[Option<bool>]) -> Option<bool> {
    if verdicts.contains(&Some(false)) {
        Some(false)
    } else if verdicts.contains(&None) {
        None
    } else {
        Some(true)
    }
}

fn judge(
    target: Target,
    value: f64,
    more: bool,
    limit: Option<f64>,
    columns: &[(String, f64)],
) -> Option<bool> {
    let ahead = |peer: Option<&(String, f64)>, factor: f64| {
        peer.map(|(_, other)| {
            if more {
                value >= factor * other
            } else {
                factor * value <= *other
            }
        })
    };
    match target {
        Target::AtMostLimit(f) => limit.map(|l| value <= f * l),
        Target::AtLeastLimit(f) => limit.map(|l| value >= f * l),
        Target::AtMost(v) => Some(value <= v),
        Target::AtLeast(v) => Some(value >= v),
        Target::AheadOfPeers(f) => ahead(best(columns, more, is_peer), f),
        Target::AheadOf(name, f) => ahead(best(columns, more, |family| family == name), f),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Metric;

    fn records(metric: Metric, processes: u32, bytes: u64, values: &[(&str, f64)]) -> Vec<Record> {
        let case = Case {
            metric,
            processes,
            bytes,
        };
        let mut samples = Samples::default();
        for (api, value) in values {
            samples.add(case, api, *value);
        }
        all(&[case], &samples, "shm")
    }

    fn of<'a>(records: &'a [Record], api: &str) -> &'a Record {
        records
            .iter()
            .find(|r| r.api == api)
            .expect("a record of that column")
    }

    #[test]
    fn a_latency_is_judged_against_the_best_bare_variant() {
        let r = records(
            Metric::Barrier,
            2,
            0,
            &[
                ("bare/central", 0.3),
                ("bare/flags", 0.2),
                ("core", 0.23),
                ("gaspi", 0.25),
            ],
        );
        assert_eq!(of(&r, "core").limit, Some(0.2));
        assert_eq!(of(&r, "core").met, Some(true));
        assert_eq!(of(&r, "gaspi").met, Some(false));
    }

    #[test]
    fn a_rate_is_judged_upwards() {
        let r = records(
            Metric::PutRate,
            2,
            8,
            &[("core", 90.0), ("ucx", 48.0), ("oshmem", 82.0)],
        );
        assert_eq!(of(&r, "core").best_peer_name.as_deref(), Some("oshmem"));
        assert_eq!(of(&r, "core").met, Some(false));
    }

    #[test]
    fn a_target_that_needs_an_absent_peer_is_not_judged() {
        let r = records(
            Metric::Barrier,
            8,
            0,
            &[("bare/central", 3.0), ("core", 4.0)],
        );
        assert_eq!(of(&r, "core").met, None);
        let r = records(
            Metric::Barrier,
            8,
            0,
            &[("bare/central", 3.0), ("core", 5.0)],
        );
        assert_eq!(of(&r, "core").met, Some(false));
    }

    #[test]
    fn variants_of_a_peer_count_as_that_peer() {
        let r = records(
            Metric::Barrier,
            8,
            0,
            &[
                ("bare/central", 3.0),
                ("core", 4.0),
                ("openmpi/default", 7.0),
                ("ucx", 1.0),
            ],
        );
        assert_eq!(of(&r, "core").met, Some(false));
        let r = records(
            Metric::Barrier,
            8,
            0,
            &[
                ("bare/central", 3.0),
                ("core", 4.0),
                ("openmpi/default", 8.0),
            ],
        );
        assert_eq!(of(&r, "core").met, Some(true));
    }
}

//! One line of the table, and of the file of `--json`.

use serde::{Deserialize, Serialize};

use crate::case::{Case, Metric};
use crate::compare::Change;
use crate::machine::MachineInfo;
use crate::model::Model;
use crate::samples::{Samples, best, family};
use crate::target::{self, FigureBound};

/// A measured figure, with its limit and its best peer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct BenchRecord {
    /// The metric.
    pub metric: Metric,
    /// Column: for example "bare", "core", "gaspi" or a peer, with "/VARIANT" if there are several.
    pub api: String,
    /// Backend of unipgas, "-" for other columns.
    pub backend: String,
    /// The library, for columns that call it.
    #[serde(default)]
    pub library: Option<String>,
    /// Number of processes.
    pub processes: u32,
    /// The hosts of the processes: "this one", "2 of namespaces", or names.
    pub hosts: String,
    /// The libfabric provider that unipgas uses, if any.
    pub provider: Option<String>,
    /// The release of libfabric.
    pub libfabric: Option<String>,
    /// Size of the payload in bytes, 0 if there is none.
    pub bytes: u64,
    /// Median.
    pub value: f64,
    /// The first and the third quartile.
    #[serde(default)]
    pub quartiles: Option<[f64; 2]>,
    /// Number of values.
    pub values: usize,
    /// No more values follow. This record replaces earlier ones of the same figure.
    #[serde(rename = "final")]
    pub is_final: bool,
    /// Unit of `value`, `limit` and `best_peer`.
    pub unit: String,
    /// Median of the best bare variant.
    pub limit: Option<f64>,
    /// `value / limit`.
    pub ratio_to_limit: Option<f64>,
    /// Median of the bare loop over the provider. Without atomic operations, the loop is a request and its reply.
    pub of_provider: Option<f64>,
    /// `value / of_provider`.
    pub ratio_to_provider: Option<f64>,
    /// The parts of a latency of unipgas over a provider.
    pub split: Option<Split>,
    /// Median of the best peer.
    pub best_peer: Option<f64>,
    /// `value / best_peer`.
    pub ratio_to_best_peer: Option<f64>,
    /// Name of the best peer.
    pub best_peer_name: Option<String>,
    /// Prediction of a model of another network, in the unit of `value`.
    pub predicted: Option<f64>,
    /// Name of the model.
    pub predicted_by: Option<String>,
    /// With `--compare`: the change from the earlier figure.
    #[serde(default)]
    pub change: Option<Change>,
    /// With `--check`: the targets, in words.
    pub target: Option<String>,
    /// With `--check`: whether all targets are met. `None` if a target has no verdict and no other is missed.
    pub met: Option<bool>,
    /// Time and machine.
    #[serde(flatten)]
    pub machine: Option<MachineInfo>,
}

impl BenchRecord {
    /// The case of this figure.
    pub fn case(&self) -> Case {
        Case::new(self.metric, self.processes, self.bytes)
    }

    /// Whether it is a figure of unipgas.
    pub fn is_ours(&self) -> bool {
        is_ours(family(&self.api))
    }

    /// Whether `other` is a record of the same figure.
    pub fn is_of_the_same(&self, other: &BenchRecord) -> bool {
        (self.case(), &self.api, &self.backend) == (other.case(), &other.api, &other.backend)
    }
}

/// The parts of a latency, in the unit of its record. A part may be negative: it is a difference of medians of different loops.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq)]
pub(crate) struct Split {
    /// The exchange over TCP.
    pub kernel: f64,
    /// Additional time of the provider.
    pub provider: f64,
    /// Additional time of unipgas.
    pub ours: f64,
}

/// Fields that all records of a run share.
#[derive(Clone, Debug)]
pub(crate) struct RecordSetting {
    /// Backend of unipgas.
    pub backend: String,
    /// The hosts.
    pub hosts: String,
    /// Whether the processes share no memory.
    pub network: bool,
    /// The library under test.
    pub library: String,
    /// The model for predictions.
    pub model: Option<Model>,
    /// Compare figures with their targets.
    pub check: bool,
}

#[cfg(test)]
impl RecordSetting {
    /// A setting of tests.
    pub fn of_tests(network: bool, check: bool) -> RecordSetting {
        RecordSetting {
            backend: "shm".into(),
            hosts: "this one".into(),
            network,
            library: "libunipgas.so.0".into(),
            model: None,
            check,
        }
    }
}

/// The record of one column, with the values so far.
pub fn so_far(
    case: Case,
    api: &str,
    samples: &Samples,
    setting: &RecordSetting,
) -> Option<BenchRecord> {
    let mut record = all(&[case], samples, setting)
        .into_iter()
        .find(|record| record.api == api)?;
    record.is_final = false;
    Some(record)
}

/// Whether a column is a limit of the machine.
pub fn is_bare(family: &str) -> bool {
    family == "bare"
}

/// Whether a column is unipgas.
pub fn is_ours(family: &str) -> bool {
    ["core", "gaspi", "utofu", "ircce", "libfabric"].contains(&family)
}

/// Whether a column is the provider that unipgas uses.
pub fn is_provider(family: &str) -> bool {
    family == "provider"
}

/// Whether a column is a peer.
pub fn is_peer(family: &str) -> bool {
    !is_bare(family) && !is_ours(family) && !is_provider(family)
}

/// All records of a run, in the order of `cases`.
pub fn all(cases: &[Case], samples: &Samples, setting: &RecordSetting) -> Vec<BenchRecord> {
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
        let of = |wanted| columns.iter().find(|(api, _)| api == wanted);
        // `provider/ask` replaces atomic operations that the provider lacks.
        let provider = of("provider").or_else(|| of("provider/ask"));
        let provider = provider.map(|(_, value)| *value);
        let peer = best(&columns, more, is_peer);
        let predicted = setting.model.and_then(|model| model.predict(case));
        for (api, value) in &columns {
            let targets = match (setting.check, setting.network) {
                (false, _) => Vec::new(),
                (true, true) => target::of_a_network(case, api),
                (true, false) => target::of(case, api),
            };
            let is_ours = is_ours(family(api));
            let split = |(kernel, provider): (f64, f64)| Split {
                kernel,
                provider: provider - kernel,
                ours: value - provider,
            };
            let verdicts: Vec<Option<bool>> = targets
                .iter()
                .map(|&t| judge(t, *value, more, (limit, provider), &columns))
                .collect();
            records.push(BenchRecord {
                metric: case.metric,
                api: api.clone(),
                backend: if is_ours { &setting.backend } else { "-" }.to_owned(),
                library: (is_ours && family(api) != "core").then(|| setting.library.clone()),
                processes: case.processes,
                hosts: setting.hosts.clone(),
                provider: samples.provider.as_ref().map(|(name, _)| name.clone()),
                libfabric: samples
                    .provider
                    .as_ref()
                    .map(|(_, version)| version.clone()),
                bytes: case.bytes,
                value: *value,
                quartiles: samples.quartiles(case, api),
                values: samples.count(case, api),
                is_final: true,
                unit: case.metric.unit().into(),
                limit,
                ratio_to_limit: limit.map(|l| value / l),
                of_provider: provider,
                ratio_to_provider: provider.map(|p| value / p),
                split: limit.zip(provider).filter(|_| is_ours && !more).map(split),
                best_peer: peer.map(|p| p.1),
                ratio_to_best_peer: peer.map(|p| value / p.1),
                best_peer_name: peer.map(|p| p.0.clone()),
                predicted,
                predicted_by: predicted
                    .and(setting.model)
                    .map(|model| model.name().into()),
                change: None,
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
                machine: None,
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
    target: FigureBound,
    value: f64,
    more: bool,
    (limit, provider): (Option<f64>, Option<f64>),
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
        FigureBound::AtMostLimit(f) => limit.map(|l| value <= f * l),
        FigureBound::AtLeastLimit(f) => limit.map(|l| value >= f * l),
        FigureBound::AtMostProvider(f) => provider.map(|p| value <= f * p),
        FigureBound::AtLeastProvider(f) => provider.map(|p| value >= f * p),
        FigureBound::AtMost(v) => Some(value <= v),
        FigureBound::AtLeast(v) => Some(value >= v),
        FigureBound::AtMostOf(name, f) => {
            let column = columns.iter().find(|(column, _)| column == name);
            column.map(|(_, other)| value <= f * other)
        }
        FigureBound::AheadOfPeers(f) => ahead(best(columns, more, is_peer), f),
        FigureBound::AheadOf(name, f) => ahead(best(columns, more, |family| family == name), f),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Metric;

    fn records(
        metric: Metric,
        processes: u32,
        bytes: u64,
        values: &[(&str, f64)],
    ) -> Vec<BenchRecord> {
        let case = Case::new(metric, processes, bytes);
        all(
            &[case],
            &Samples::of(case, values),
            &RecordSetting::of_tests(false, true),
        )
    }

    fn of<'a>(records: &'a [BenchRecord], api: &str) -> &'a BenchRecord {
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
                ("gaspi", 0.27),
            ],
        );
        assert_eq!(of(&r, "core").limit, Some(0.2));
        assert_eq!(of(&r, "core").met, Some(true));
        assert_eq!(of(&r, "gaspi").met, Some(false));
    }

    #[test]
    fn a_rate_is_judged_upwards() {
        let values = [("core", 90.0), ("ucx", 48.0), ("oshmem", 82.0)];
        let r = records(Metric::PutRate, 2, 8, &values);
        assert_eq!(of(&r, "core").best_peer_name.as_deref(), Some("oshmem"));
        assert_eq!(of(&r, "core").met, Some(false));
    }

    /// A target that needs an absent peer is not judged. Variants of a peer count as that peer.
    #[test]
    fn a_barrier_is_judged_against_the_limit_and_open_mpi() {
        for (core, peers, met) in [
            (4.0, &[][..], None),
            (5.0, &[], Some(false)),
            (4.0, &[("openmpi/default", 7.0), ("ucx", 1.0)], Some(false)),
            (4.0, &[("openmpi/default", 8.0)], Some(true)),
        ] {
            let values = [&[("bare/central", 3.0), ("core", core)], peers].concat();
            let r = records(Metric::Barrier, 8, 0, &values);
            assert_eq!(of(&r, "core").met, met, "{values:?}");
        }
    }

    #[test]
    fn a_latency_over_a_provider_is_split() {
        let case = Case::new(Metric::PutNotice, 2, 8);
        let mut samples = Samples::default();
        samples.read("= tcp;ofi_rxm 1.17\nput_notice:2:8 bare/tcp 4\nput_notice:2:8 provider 6\nput_notice:2:8 gaspi 7\nput_notice:2:8 ucx 8\n");
        let r = all(&[case], &samples, &RecordSetting::of_tests(true, true));
        let ours = of(&r, "gaspi");
        let split = Split {
            kernel: 4.0,
            provider: 2.0,
            ours: 1.0,
        };
        assert_eq!(ours.split, Some(split));
        assert_eq!(ours.ratio_to_provider, Some(7.0 / 6.0));
        assert_eq!(ours.provider.as_deref(), Some("tcp;ofi_rxm"));
        assert_eq!(ours.libfabric.as_deref(), Some("1.17"));
        assert_eq!(ours.met, Some(true));
        assert_eq!(ours.best_peer_name.as_deref(), Some("ucx"));
        assert_eq!(of(&r, "provider").split, None);
        assert_eq!(of(&r, "provider").target, None);
        samples.add(case, "gaspi", 9.0);
        samples.add(case, "gaspi", 9.0);
        assert_eq!(
            of(
                &all(&[case], &samples, &RecordSetting::of_tests(true, true)),
                "gaspi"
            )
            .met,
            Some(false)
        );
    }

    #[test]
    fn a_model_predicts_beside_every_column_of_a_case_that_it_knows() {
        let known = Case::new(Metric::PutNotice, 2, 8);
        let unknown = Case {
            metric: Metric::Wake,
            ..known
        };
        let mut samples = Samples::default();
        for case in [known, unknown] {
            samples.add(case, "core", 100.0);
            samples.add(case, "ucx", 150.0);
        }
        let mut setting = RecordSetting::of_tests(false, true);
        let without = all(&[known], &samples, &setting);
        assert!(without.iter().all(|record| record.predicted.is_none()));
        setting.model = Some(Model::Tofud);
        for record in all(&[known, unknown], &samples, &setting) {
            let of_known = record.case() == known;
            assert_eq!(record.predicted, of_known.then_some(490.0));
            assert_eq!(record.predicted_by.as_deref(), of_known.then_some("tofud"));
            assert!(record.value < 200.0, "what was measured stays");
        }
    }
}

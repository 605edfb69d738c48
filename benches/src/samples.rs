//! The values measured so far, by case and column.

use std::collections::BTreeMap;

use crate::case::Case;
use crate::ctx::median;

/// Column of a value: "bare", "bare/central", "core", "gaspi", "ucx", "openmpi/put", …
pub type Api = String;

/// All values of a run.
#[derive(Default)]
pub struct Samples {
    values: BTreeMap<(Case, Api), Vec<f64>>,
    /// What was not measured and why, each once.
    pub notes: Vec<String>,
    /// libfabric's provider that ours have used, and the release of libfabric.
    pub provider: Option<(String, String)>,
}

impl Samples {
    /// Adds a value.
    pub fn add(&mut self, case: Case, api: &str, value: f64) {
        if value.is_finite() && value > 0.0 {
            self.values
                .entry((case, api.into()))
                .or_default()
                .push(value);
        } else {
            self.note(format!("{case} {api}: {value} is no measurement"));
        }
    }

    /// Adds a remark, unless it is there already.
    pub fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Takes over lines "CASE API VALUE", "! CASE API REASON" and "= PROVIDER RELEASE".
    pub fn read(&mut self, text: &str) {
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("! ours: ") {
                self.note(format!("core, gaspi: {rest}"));
                continue;
            }
            if let Some(rest) = line.strip_prefix("= ") {
                let provider = rest.split_once(' ');
                self.provider = provider.map(|(name, release)| (name.into(), release.into()));
                continue;
            }
            if let Some(rest) = line.strip_prefix("! ") {
                let (case, rest) = rest.split_once(' ').unwrap_or((rest, ""));
                let (api, why) = rest.split_once(' ').unwrap_or((rest, ""));
                self.note(format!("{api}: no {case}: {why}"));
                continue;
            }
            let mut words = line.split_whitespace();
            let parsed = (|| {
                let case: Case = words.next()?.parse().ok()?;
                Some((
                    case,
                    words.next()?.to_string(),
                    words.next()?.parse::<f64>().ok()?,
                ))
            })();
            if let Some((case, api, value)) = parsed {
                self.add(case, &api, value);
            }
        }
    }

    /// The columns of a case with their medians.
    pub fn columns(&self, case: Case) -> Vec<(String, f64)> {
        self.values
            .iter()
            .filter(|((c, _), _)| *c == case)
            .map(|((_, api), values)| (api.clone(), median(&mut values.clone())))
            .collect()
    }
}

/// What stands before the variant in a column's name.
pub fn family(api: &str) -> &str {
    api.split('/').next().unwrap_or(api)
}

/// The best of some medians of a metric.
pub fn best(
    columns: &[(String, f64)],
    more_is_better: bool,
    keep: impl Fn(&str) -> bool,
) -> Option<&(String, f64)> {
    columns
        .iter()
        .filter(|(api, _)| keep(family(api)))
        .min_by(|a, b| {
            let order = a.1.total_cmp(&b.1);
            if more_is_better {
                order.reverse()
            } else {
                order
            }
        })
}

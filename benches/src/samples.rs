//! The values measured so far, by case and column.

use std::collections::BTreeMap;

use crate::case::Case;
use crate::ctx::median;

/// Column of a value: "bare", "bare/central", "core", "gaspi", "ucx", "openmpi/put", …
pub(crate) type ColumnName = String;

/// Omitted measurements and the reasons, without duplicates.
#[derive(Debug, Default)]
pub(crate) struct Notes(Vec<String>);

impl Notes {
    /// Adds a note, unless it is present already.
    pub fn add(&mut self, note: String) {
        if !self.0.contains(&note) {
            self.0.push(note);
        }
    }

    /// All notes, in the order of their addition.
    pub fn all(&self) -> &[String] {
        &self.0
    }

    /// Adds the notes of `other`.
    pub fn extend(&mut self, other: Notes) {
        other.0.into_iter().for_each(|note| self.add(note));
    }
}

/// All values of a run.
#[derive(Default)]
pub(crate) struct Samples {
    values: BTreeMap<(Case, ColumnName), Vec<f64>>,
    /// Omitted measurements.
    pub notes: Notes,
    /// The libfabric provider that unipgas uses, and the release of libfabric.
    pub provider: Option<(String, String)>,
    /// The RDMA device that unipgas uses, and whether it is a software device.
    rdma: Option<(String, bool)>,
    /// Requests to the device per operation: doorbells, work requests, signaled requests, and polled completions.
    asked: BTreeMap<String, Vec<f64>>,
}

impl Samples {
    /// Adds a value. Returns false, and adds a note, if it is not finite and positive.
    pub fn add(&mut self, case: Case, api: &str, value: f64) -> bool {
        let is_value = value.is_finite() && value > 0.0;
        if is_value {
            self.values
                .entry((case, api.into()))
                .or_default()
                .push(value);
        } else {
            self.notes
                .add(format!("{case} {api}: {value} is no measurement"));
        }
        is_value
    }

    /// Samples with these values of one case.
    #[cfg(test)]
    pub fn of(case: Case, values: &[(&str, f64)]) -> Samples {
        let mut samples = Samples::default();
        for (api, value) in values {
            samples.add(case, api, *value);
        }
        samples
    }

    /// The number of values of a column.
    pub fn count(&self, case: Case, api: &str) -> usize {
        self.values.get(&(case, api.into())).map_or(0, Vec::len)
    }

    /// The first and the third quartile of a column.
    pub fn quartiles(&self, case: Case, api: &str) -> Option<[f64; 2]> {
        let mut values = self.values.get(&(case, api.into()))?.clone();
        values.sort_by(f64::total_cmp);
        let at = |part: f64| {
            let place = part * (values.len() - 1) as f64;
            let (low, high) = (
                values[place.floor() as usize],
                values[place.ceil() as usize],
            );
            low + (high - low) * place.fract()
        };
        Some([at(0.25), at(0.75)])
    }

    /// Reads lines of results. Returns the figures that have a new value. The lines are:
    /// - "CASE API VALUE"
    /// - "! CASE API REASON" and "! ours: REASON": omitted measurements
    /// - "= PROVIDER RELEASE": libfabric
    /// - "@ DEVICE KIND" and "# OPERATION: NUMBERS": an RDMA device and the requests to it
    pub fn read(&mut self, text: &str) -> Vec<(Case, ColumnName)> {
        let mut added = Vec::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("! ours: ") {
                self.notes.add(format!("core, gaspi: {rest}"));
                continue;
            }
            if let Some(rest) = line.strip_prefix("@ ") {
                let device = rest.split_once(' ');
                self.rdma = device.map(|(name, kind)| (name.into(), kind == "software"));
                continue;
            }
            if let Some((what, numbers)) = line
                .strip_prefix("# ")
                .and_then(|rest| rest.split_once(": "))
            {
                let numbers = numbers.split(' ').filter_map(|word| word.parse().ok());
                self.asked.insert(what.into(), numbers.collect());
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
                self.notes.add(format!("{api}: no {case}: {why}"));
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
            if let Some((case, api, value)) = parsed
                && self.add(case, &api, value)
            {
                added.push((case, api));
            }
        }
        added
    }

    /// A table of the requests to the RDMA device; empty if there is no device.
    pub fn device(&self) -> String {
        let Some((name, software)) = &self.rdma else {
            return String::new();
        };
        let mut text = format!(
            "\n{:<24} {:>9} {:>9} {:>9} {:>9}\n",
            format!("{name}, per operation"),
            "doorbells",
            "requests",
            "signaled",
            "polled"
        );
        for (what, numbers) in &self.asked {
            text += &format!("{what:<24}");
            for number in numbers {
                text += &format!(" {number:>9.2}");
            }
            text.push('\n');
        }
        if *software {
            text += &format!(
                "{name} is made of software, perhaps in an emulated machine: its times say nothing of adapters, these counts do.\n"
            );
        }
        text
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

/// The name of a column without its variant.
pub fn family(api: &str) -> &str {
    api.split('/').next().unwrap_or(api)
}

/// The best median of the columns that `keep` accepts.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_programs_print_is_read_among_what_launchers_say() {
        // Output of the program of Open MPI 4.1.4 on two hosts.
        let text = "[vm:17284] plm:rsh: Warning: setpgid(17293,17293) failed in parent with errno=Permission denied(13)\n\
                    put_notice:2:8 openmpi/sendrecv 72458.3\nbandwidth:2:1048576 openmpi/sendrecv 0.0915032\n\
                    message:2:8 openmpi 103212\n";
        let mut samples = Samples::default();
        samples.read(text);
        let columns = |case: &str| samples.columns(case.parse().expect("a case"));
        let one = |api: &str, value| vec![(api.to_string(), value)];
        assert_eq!(columns("put_notice:2:8"), one("openmpi/sendrecv", 72458.3));
        assert_eq!(
            columns("bandwidth:2:1048576"),
            one("openmpi/sendrecv", 0.0915032)
        );
        assert_eq!(columns("message:2:8"), one("openmpi", 103212.0));
        assert!(samples.notes.all().is_empty());
    }

    #[test]
    fn reasons_and_the_provider_are_read() {
        let mut samples = Samples::default();
        samples.read("= tcp;ofi_rxm 1.17\n! fetch_add:2:8 provider Function not implemented\n");
        let provider = ("tcp;ofi_rxm".to_string(), "1.17".to_string());
        assert_eq!(samples.provider, Some(provider));
        let note = "provider: no fetch_add:2:8: Function not implemented";
        assert_eq!(samples.notes.all(), [note]);
    }
}

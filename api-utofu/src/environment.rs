//! Environment variables of uTofu (guide §4.3.2) and of the virtual network.

use crate::shape::NetworkShape;

/// Settings from the environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UtofuSettings {
    /// `UTOFU_NUM_EXCLUSIVE_CQS`: CQs of each TNI that this process reserves for CQ-exclusive VCQs (§4.3.2.1).
    pub exclusive_cqs: usize,
    /// `UTOFU_NUM_SESSION_MODE_CQS`: CQs of each TNI that this process reserves for session mode VCQs (§4.3.2.2).
    pub session_cqs: usize,
    /// `UTOFU_NUM_MRQ_ENTRIES` (§4.3.2.3).
    pub mrq_entries: usize,
    /// `UTOFU_NUM_MRQ_ENTRIES_SESSION` (§4.3.2.4, which also calls it `UTOFU_NUM_MRQ_ENTRIES_ENTRIES`).
    pub mrq_entries_session: usize,
    /// `UTOFU_SWAP_PROTECT`: registered memory is locked, so that the system does not swap it out (§4.3.2.5).
    pub swap_protect: bool,
    /// `UNIPGAS_TOFU_SHAPE`.
    pub shape: Option<NetworkShape>,
    /// `UNIPGAS_TOFU_PPN`: processes that share a virtual node.
    pub processes_per_node: u32,
}

/// The values that §4.3.2.3 allows.
const MRQ_ENTRIES: [(usize, &str); 6] = [
    (2048, "2ki"),
    (8192, "8ki"),
    (32768, "32ki"),
    (131_072, "128ki"),
    (524_288, "512ki"),
    (2_097_152, "2mi"),
];
const MRQ_DEFAULT: usize = 131_072;
/// A second spelling of UTOFU_NUM_MRQ_ENTRIES_SESSION (§4.3.2.4).
const ALIAS: &str = "UTOFU_NUM_MRQ_ENTRIES_ENTRIES";

impl UtofuSettings {
    /// Errors: a line with the wrong variable and its allowed values.
    pub fn from_env() -> Result<Self, String> {
        unipgas_core::variables::check()
            .and_then(|()| unipgas_core::variables::get(ALIAS))
            .map_err(|e| e.to_string())?;
        UtofuSettings::read(|name| std::env::var(name).ok())
    }

    pub(crate) fn read(get: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let get = |name: &str| {
            get(name)
                .map(|text| text.trim().to_owned())
                .filter(|text| !text.is_empty())
        };
        let number = |name: &str, default: usize| match get(name) {
            None => Ok(default),
            Some(text) => text
                .parse()
                .map_err(|_| format!("{name} must be a number from 0 on, not {text:?}")),
        };
        let entries = |names: &[&str]| {
            let set = names.iter().find_map(|name| Some((name, get(name)?)));
            match set {
                None => Ok(MRQ_DEFAULT),
                Some((name, text)) => mrq_entries(&text).ok_or_else(|| {
                    format!(
                        "{name} must be 2Ki, 8Ki, 32Ki, 128Ki, 512Ki, 2Mi or a number, not {text:?}"
                    )
                }),
            }
        };
        let swap_protect = match get("UTOFU_SWAP_PROTECT") {
            None => false,
            Some(text) => {
                text.parse::<i64>()
                    .map_err(|_| format!("UTOFU_SWAP_PROTECT must be 0 or 1, not {text:?}"))?
                    != 0
            }
        };
        let shape = get("UNIPGAS_TOFU_SHAPE")
            .map(|text| {
                text.parse()
                    .map_err(|why| format!("UNIPGAS_TOFU_SHAPE: {why}"))
            })
            .transpose()?;
        let processes_per_node = match get("UNIPGAS_TOFU_PPN") {
            None => 1,
            Some(text) => match text.parse() {
                Ok(number @ 1..=48) => number,
                _ => return Err(format!("UNIPGAS_TOFU_PPN must be 1 to 48, not {text:?}")),
            },
        };
        Ok(UtofuSettings {
            exclusive_cqs: number("UTOFU_NUM_EXCLUSIVE_CQS", 0)?,
            session_cqs: number("UTOFU_NUM_SESSION_MODE_CQS", 3)?,
            mrq_entries: entries(&["UTOFU_NUM_MRQ_ENTRIES"])?,
            mrq_entries_session: entries(&["UTOFU_NUM_MRQ_ENTRIES_SESSION", ALIAS])?,
            swap_protect,
            shape,
            processes_per_node,
        })
    }
}

/// Rounds a number to the nearest allowed value, or to the greater of two equally near values.
fn mrq_entries(text: &str) -> Option<usize> {
    let lower = text.to_ascii_lowercase();
    if let Some((entries, _)) = MRQ_ENTRIES.iter().find(|(_, name)| *name == lower) {
        return Some(*entries);
    }
    let wish: u64 = text.parse().ok()?;
    MRQ_ENTRIES
        .iter()
        .map(|(entries, _)| *entries)
        .min_by_key(|entries| (wish.abs_diff(*entries as u64), usize::MAX - entries))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &'static str, value: &'static str) -> Result<UtofuSettings, String> {
        UtofuSettings::read(|asked| (asked == name).then(|| value.to_owned()))
    }

    #[test]
    fn defaults_are_those_of_the_guide() {
        let wishes = UtofuSettings::read(|_| None).unwrap();
        assert_eq!(wishes.exclusive_cqs, 0);
        assert_eq!(wishes.session_cqs, 3);
        assert_eq!(wishes.mrq_entries, 131_072);
        assert_eq!(wishes.mrq_entries_session, 131_072);
        assert!(!wishes.swap_protect);
        assert_eq!(wishes.processes_per_node, 1);
    }

    #[test]
    fn entries_are_rounded_to_the_nearest() {
        for (text, entries) in [
            ("2Ki", 2048),
            ("2MI", 2_097_152),
            ("0", 2048),
            ("5120", 8192),
            ("5119", 2048),
            ("99999999999", 2_097_152),
        ] {
            let wishes = with("UTOFU_NUM_MRQ_ENTRIES", text).unwrap();
            assert_eq!(wishes.mrq_entries, entries, "{text}");
        }
        for name in [
            "UTOFU_NUM_MRQ_ENTRIES_SESSION",
            "UTOFU_NUM_MRQ_ENTRIES_ENTRIES",
        ] {
            assert_eq!(with(name, "8ki").unwrap().mrq_entries_session, 8192);
        }
    }

    #[test]
    fn wrong_values_are_named() {
        for (name, value) in [
            ("UTOFU_NUM_EXCLUSIVE_CQS", "-1"),
            ("UTOFU_NUM_SESSION_MODE_CQS", "many"),
            ("UTOFU_NUM_MRQ_ENTRIES", "3Ki"),
            ("UTOFU_SWAP_PROTECT", "yes"),
            ("UNIPGAS_TOFU_SHAPE", "2x2"),
            ("UNIPGAS_TOFU_PPN", "0"),
            ("UNIPGAS_TOFU_PPN", "49"),
        ] {
            let why = with(name, value).unwrap_err();
            assert!(why.starts_with(name), "{why}");
        }
        assert!(with("UTOFU_SWAP_PROTECT", "7").unwrap().swap_protect);
    }
}

//! Failures on demand.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use unipgas_utofu_sys::{UtofuFunctions, constants};

/// The occurrences that a rule selects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// The n-th one, from 1.
    Nth(u64),
    /// Each n-th one.
    Every(u64),
    Always,
}

impl When {
    fn parse(text: &str) -> Option<Self> {
        let number = |text: &str| text.trim().parse().ok().filter(|n| *n > 0);
        match text.strip_prefix("every") {
            _ if text == "*" => Some(When::Always),
            Some(number_text) => number(number_text).map(When::Every),
            None => number(text).map(When::Nth),
        }
    }

    fn meets(self, number: u64) -> bool {
        match self {
            When::Nth(n) => number == n,
            When::Every(n) => number.is_multiple_of(n),
            When::Always => true,
        }
    }
}

/// A code for some of the occurrences of an event, with their count.
#[derive(Debug)]
pub(crate) struct FaultRule {
    when: When,
    code: c_int,
    seen: AtomicU64,
}

impl FaultRule {
    /// Parses `WHEN:CODE`. The name of the code begins with `family`, after an optional `UTOFU_`.
    pub fn parse(text: &str, family: &str) -> Option<Self> {
        let (when, name) = text.rsplit_once(':')?;
        let name = format!("UTOFU_{}", name.strip_prefix("UTOFU_").unwrap_or(name));
        let is_one = name.starts_with("UTOFU_ERR_") && name.contains(family);
        let (_, code) = constants().find(|(known, _)| is_one && *known == name)?;
        Some(FaultRule {
            when: When::parse(when)?,
            code: code as c_int,
            seen: AtomicU64::new(0),
        })
    }

    /// Counts one more occurrence. Returns its code, if the rule selects it.
    fn next(&self) -> Option<c_int> {
        let number = self.seen.fetch_add(1, Relaxed) + 1;
        self.when.meets(number).then_some(self.code)
    }
}

/// Counts one more occurrence in all rules. Returns the code of the first rule that selects it.
pub fn next<'a>(faults: impl IntoIterator<Item = &'a FaultRule>) -> Option<c_int> {
    faults
        .into_iter()
        .map(FaultRule::next)
        .fold(None, |first, code| first.or(code))
}

/// `CALL:WHEN:CODE`: the index of the call, and its fault.
pub fn of_call(text: &str) -> Option<(usize, FaultRule)> {
    let (call, fault) = text.split_once(':')?;
    let index = UtofuFunctions::NAMES
        .iter()
        .position(|name| *name == call)?;
    Some((index, FaultRule::parse(fault, "")?))
}

#[cfg(test)]
mod tests {
    use unipgas_utofu_sys::*;

    use super::*;

    fn codes(text: &str) -> Vec<Option<c_int>> {
        let faults = [FaultRule::parse(text, "").unwrap()];
        (0..4).map(|_| next(&faults)).collect()
    }

    #[test]
    fn some_of_many_are_met() {
        let busy = Some(UTOFU_ERR_BUSY);
        assert_eq!(codes("2:ERR_BUSY"), [None, busy, None, None]);
        assert_eq!(codes("every 2:ERR_BUSY"), [None, busy, None, busy]);
        assert_eq!(codes("every3:UTOFU_ERR_BUSY"), [None, None, busy, None]);
        assert_eq!(codes("*:ERR_BUSY"), [busy; 4]);
        let (call, _) = of_call("utofu_nop:1:ERR_FATAL").unwrap();
        assert_eq!(UtofuFunctions::NAMES[call], "utofu_nop");
    }

    #[test]
    fn what_is_wrong_is_refused() {
        for text in [
            "",
            "1",
            "0:ERR_BUSY",
            "x:ERR_BUSY",
            "1:BUSY",
            "1:SUCCESS",
            "every:ERR_BUSY",
        ] {
            assert!(FaultRule::parse(text, "").is_none(), "{text}");
        }
        assert!(FaultRule::parse("1:ERR_MRQ_PEER", "ERR_TCQ_").is_none());
        assert!(FaultRule::parse("1:ERR_TCQ_DESC", "ERR_TCQ_").is_some());
        assert!(of_call("utofu_fly:1:ERR_BUSY").is_none());
        assert!(of_call("utofu_put:ERR_BUSY").is_none());
    }
}

//! Readers of start parameters, for tests and libFuzzer.

use crate::comm::MAX_UES;
use crate::launch::{LaunchSettings, MPB_MAX, launcher_words};

/// A reader: its name, the function, and valid inputs.
pub type Reader = (&'static str, fn(&[u8]), fn() -> Vec<Vec<u8>>);

/// All readers of this crate.
pub const READERS: &[Reader] = &[
    ("rcce-variables", variables, all_variables),
    ("rcce-words", words, all_words),
];

/// Input: a line with the size of an MPB, and a line with cores.
fn variables(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let wishes = LaunchSettings::read(|name| {
        let nth = usize::from(name == "UNIPGAS_RCCE_CORES");
        text.lines().nth(nth).map(str::to_owned)
    });
    if let Ok(wishes) = wishes {
        assert!(wishes.mpb <= MPB_MAX && wishes.cores.len() <= MAX_UES);
        assert!(wishes.cores.is_sorted_by(|a, b| a < b));
    }
}

fn all_variables() -> Vec<Vec<u8>> {
    let all = ["8192\n0,5,3", "1000000000\n47", "\n1, 2 ,4"];
    all.map(|text| text.as_bytes().to_vec()).to_vec()
}

/// Input: the launcher's words, separated by blanks.
fn words(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let args: Vec<&str> = text.split(' ').collect();
    for job in [None, Some(3)] {
        if let Some(found) = launcher_words(&args, job) {
            assert!(found.words <= args.len() && found.words == 2 + found.cores.len());
        }
    }
}

fn all_words() -> Vec<Vec<u8>> {
    let all = ["3 0.533 0 5 7 more", "1 1.0 0"];
    all.map(|text| text.as_bytes().to_vec()).to_vec()
}

#[cfg(test)]
unipgas_fuzz::test_readers!();

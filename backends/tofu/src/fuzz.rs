//! Readers of untrusted bytes, from the network or from addresses, for tests and libFuzzer.

/// A reader: name, function, and valid inputs.
pub type Reader = (&'static str, fn(&[u8]), fn() -> Vec<Vec<u8>>);

/// The readers of this crate.
pub const READERS: &[Reader] = &[
    (
        "tofu-card",
        crate::greeting::fuzz::card,
        crate::greeting::fuzz::cards,
    ),
    (
        "tofu-answer",
        crate::greeting::fuzz::answer,
        crate::greeting::fuzz::answers,
    ),
    (
        "tofu-notice",
        crate::greeting::fuzz::notice,
        crate::greeting::fuzz::notices,
    ),
    ("tofu-region", told, regions),
];

/// Reads an owner's description of its memory.
fn told(bytes: &[u8]) {
    let said = crate::region::said(bytes);
    assert!(said.is_err() || [0, 16].contains(&bytes.len()));
}

fn regions() -> Vec<Vec<u8>> {
    vec![Vec::new(), [77u64, 1 << 40].map(u64::to_le_bytes).concat()]
}

#[cfg(test)]
unipgas_fuzz::test_readers!();

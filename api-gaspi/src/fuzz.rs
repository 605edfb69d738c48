//! Readers of control messages from other ranks, for tests and libFuzzer.

/// A reader: its name, the function, and valid inputs.
pub type Reader = (&'static str, fn(&[u8]), fn() -> Vec<Vec<u8>>);

/// All readers of this crate.
pub const READERS: &[Reader] = &[(
    "gaspi-links",
    crate::links::fuzz::messages,
    crate::links::fuzz::all_messages,
)];

#[cfg(test)]
unipgas_fuzz::test_readers!();

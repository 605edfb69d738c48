//! Readers of memory that peers write, and their names, for tests and libFuzzer.

/// A reader: its name, the function, and valid inputs.
pub type Reader = (&'static str, fn(&[u8]), fn() -> Vec<Vec<u8>>);

/// All of this crate.
pub const READERS: &[Reader] = &[
    (
        "shm-peer",
        crate::peer::fuzz::imports,
        crate::peer::fuzz::slots,
    ),
    (
        "shm-agent",
        crate::agent::fuzz::asked,
        crate::agent::fuzz::all_requests,
    ),
];

#[cfg(test)]
unipgas_fuzz::test_readers!();

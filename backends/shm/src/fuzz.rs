//! What peers write into shared memory, and what they are called: for tests and libFuzzer.

/// A reader: its name, the function, and bytes that make sense to it.
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

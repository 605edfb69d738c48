//! Readers of addresses and options, for tests and libFuzzer.

use unipgas_core::streams::greeting::SECRET;

use crate::options::StreamsOptions;
use crate::stream;

/// A reader: its name, the function, and inputs to begin with.
pub type Reader = (&'static str, fn(&[u8]), fn() -> Vec<Vec<u8>>);

/// All readers of this crate.
pub const READERS: &[Reader] = &[
    ("streams-address", address, addresses),
    ("streams-options", options, all_options),
];

fn address(bytes: &[u8]) {
    if let Some(place) = stream::place(bytes) {
        assert!(
            bytes.len() == 1 + SECRET + 6 && place.port().to_le_bytes() == bytes[bytes.len() - 2..]
        );
    }
}

fn addresses() -> Vec<Vec<u8>> {
    let of = |kind: u8, place: &[u8]| [&[kind][..], &[7; SECRET], place].concat();
    vec![of(1, &[9; 8]), of(2, &[127, 0, 0, 1, 1, 2])]
}

fn options(bytes: &[u8]) {
    let _ = StreamsOptions::parse(&String::from_utf8_lossy(bytes), 3, 1);
}

fn all_options() -> Vec<Vec<u8>> {
    vec![
        b"tcp,unordered,largest=100,lose=2@1".to_vec(),
        b"registered".to_vec(),
    ]
}

#[cfg(test)]
unipgas_fuzz::test_readers!();

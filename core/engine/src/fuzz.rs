//! Readers of bytes from other processes: tests and libFuzzer call them with malformed input. A correct reader returns, and touches only its memory.

use crate::bundle::{BUNDLE_LEN, Bundle, Tag};
use crate::{agent, inbox};

/// A reader: its name, the function, and valid inputs.
pub type Reader = (&'static str, fn(&[u8]), fn() -> Vec<Vec<u8>>);

/// All readers of this crate.
pub const READERS: &[Reader] = &[
    ("bundle", bundle, bundles),
    ("inbox", inbox::fuzz::inbox, inbox::fuzz::inboxes),
    ("active", agent::fuzz::active, agent::fuzz::messages),
];

fn bundle(bytes: &[u8]) {
    let mut whole = [0; BUNDLE_LEN];
    let len = bytes.len().min(BUNDLE_LEN);
    whole[..len].copy_from_slice(&bytes[..len]);
    let _ = Bundle::from_bytes(bytes);
    let Ok(bundle) = Bundle::from_bytes(&whole) else {
        panic!("as long as a bundle");
    };
    let parts = bundle.count();
    for tag in (1..10).map(Tag::new) {
        assert!(bundle.part(tag).is_none_or(|part| part.len() < BUNDLE_LEN));
    }
    for begin in 0..=parts {
        assert_eq!(bundle.only(begin..parts).count(), parts - begin);
    }
}

fn bundles() -> Vec<Vec<u8>> {
    let parts = [
        (Tag::new(2), &[1u8; 40][..]),
        (Tag::new(4), &[2; 50]),
        (Tag::new(6), &[]),
    ];
    let all = (0..=parts.len()).map(|end| Bundle::pack(parts[..end].iter().copied()));
    all.map(|bundle| bundle.expect("room").as_bytes().to_vec())
        .collect()
}

#[cfg(test)]
unipgas_fuzz::test_readers!();

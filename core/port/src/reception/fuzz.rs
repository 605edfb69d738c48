//! Answers from a port on which another program may listen.

use super::{MAGIC, said};

pub(crate) fn answer(bytes: &[u8]) {
    for end in 0..=bytes.len() {
        if let Some(Some(said)) = said(&bytes[..end]) {
            assert!(said.len() < end);
        }
    }
}

pub(crate) fn answers() -> Vec<Vec<u8>> {
    vec![
        [&MAGIC[..], &[3, 1, 2, 3]].concat(),
        [&MAGIC[..], &[0]].concat(),
        b"220 ready".to_vec(),
    ]
}

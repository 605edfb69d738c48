//! What comes from the network, or stands in addresses: for tests and libFuzzer.

use unipgas_core::streams::greeting::SECRET;

use crate::address::{Address, protocol};
use crate::wire::{self, Kind};

/// A reader: its name, the function, and bytes that make sense to it.
pub type Reader = (&'static str, fn(&[u8]), fn() -> Vec<Vec<u8>>);

/// All of this crate.
pub const READERS: &[Reader] = &[
    ("verbs-address", address, addresses),
    ("verbs-word", word, words),
];

fn address(bytes: &[u8]) {
    let _ = protocol(bytes);
    if let Some(address) = Address::decode(bytes) {
        assert_eq!(address.encode(), bytes);
    }
}

fn addresses() -> Vec<Vec<u8>> {
    let doors = ["10.1.2.3:4711", "[2001:db8::1]:99"];
    let all = doors.map(|door| Address {
        secret: [7; SECRET],
        door: door.parse().expect("an address"),
    });
    all.iter().map(Address::encode).collect()
}

/// What messages and writes say beside their bytes.
fn word(bytes: &[u8]) {
    for word in bytes.as_chunks().0 {
        if let Some((kind, credits)) = wire::split(u32::from_le_bytes(*word)) {
            assert_eq!(wire::word(kind, credits).to_le_bytes(), *word);
        }
    }
}

fn words() -> Vec<Vec<u8>> {
    let all = [Kind::Bytes, Kind::Written, Kind::Credits, Kind::Close];
    let words = all.map(|kind| wire::word(kind, 0xff_ffff).to_le_bytes());
    vec![words.concat()]
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_nobody_sends_is_read() {
        unipgas_fuzz::run(super::READERS);
    }
}

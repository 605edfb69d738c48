//! Readers of messages from the network and of addresses, for tests and libFuzzer.

use bytemuck::bytes_of;
use unipgas_core::streams::greeting::{ADDRESS, SECRET, foreign_address};

use crate::address::{OfiAddress, number};
use crate::choice;
use crate::wire::{self, Acceptance, Along, Head, OpenRequest, PROTOCOL};

/// A reader: its name, the function, and inputs to begin with.
pub type Reader = (&'static str, fn(&[u8]), fn() -> Vec<Vec<u8>>);

/// All readers of this crate.
pub const READERS: &[Reader] = &[
    ("ofi-address", address, addresses),
    ("ofi-message", message, messages),
    ("ofi-region", told, regions),
];

/// An owner's bytes about its memory.
fn told(bytes: &[u8]) {
    assert_eq!(crate::region::said(bytes).is_ok(), bytes.len() == 36);
}

fn regions() -> Vec<Vec<u8>> {
    vec![Vec::new(), (0..36).collect()]
}

fn address(bytes: &[u8]) {
    let _ = foreign_address(bytes, PROTOCOL, "ofi");
    if let Some(address) = OfiAddress::decode(bytes) {
        let _ = (choice::socket(&address.name), choice::ip(&address.name));
        assert_eq!(address.encode(), bytes);
    }
}

fn addresses() -> Vec<Vec<u8>> {
    let name = [2, 0, 0x1f, 0x90, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
    let lifelines = ["10.1.2.3:4711", "[2001:db8::1]:99"].map(|text| text.parse().ok());
    let all = lifelines.into_iter().chain([None]);
    all.map(|lifeline| {
        let address = OfiAddress {
            secret: [7; SECRET],
            provider: number("tcp"),
            lifeline,
            name: name.to_vec(),
        };
        address.encode()
    })
    .collect()
}

/// A message with held-back pieces before it, and the contents of each kind.
fn message(bytes: &[u8]) {
    let mut next = bytes;
    while let Some((head, body)) = wire::split::<Head>(next) {
        match head.kind {
            wire::OPEN => {
                if let Some((opening, _)) = wire::split::<OpenRequest>(body)
                    && let Some(from) = opening.address.get(..opening.len as usize)
                {
                    address(from);
                }
            }
            wire::ACCEPT => drop(wire::split::<Acceptance>(body)),
            wire::ALONG => {
                let Some((piece, rest)) = wire::ride(body) else {
                    return;
                };
                assert!(piece.len() + rest.len() < body.len());
                next = rest;
                continue;
            }
            _ => {}
        }
        return;
    }
}

fn messages() -> Vec<Vec<u8>> {
    let head = |kind| Head {
        conversation: 1,
        kind,
        cookie: 5,
    };
    let mut opening = OpenRequest {
        secret: [7; SECRET],
        cookie: 9,
        conversation: 3,
        len: 0,
        address: [0; ADDRESS],
    };
    let from = &addresses()[0];
    opening.address[..from.len()].copy_from_slice(from);
    opening.len = from.len() as u32;
    let along = Along { len: 20, pad: 0 };
    let open = [bytes_of(&head(wire::OPEN)), bytes_of(&opening)].concat();
    let rides = [
        bytes_of(&head(wire::ALONG)),
        bytes_of(&along),
        &[1; 20],
        &open,
    ]
    .concat();
    let accepted = [bytes_of(&head(wire::ACCEPT)), &[0; 16]].concat();
    vec![open, rides, accepted]
}

#[cfg(test)]
unipgas_fuzz::test_readers!();

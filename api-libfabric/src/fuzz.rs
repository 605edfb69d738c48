//! Readers of bytes from other processes, for tests and libFuzzer: names that programs exchange, and requests in messages.

use unipgas_core::bundle::Tag;
use unipgas_core::{Address, RegionKey};

use crate::name::{Called, EndpointName};
use crate::service::{Server, ServiceName};

/// A reader: its name, the function, and valid inputs.
pub type Reader = (&'static str, fn(&[u8]), fn() -> Vec<Vec<u8>>);

/// All readers of this crate.
pub const READERS: &[Reader] = &[
    ("fabric-name", name, names),
    ("fabric-text", text, texts),
    (
        "fabric-request",
        crate::messages::operate::fuzz::request,
        crate::messages::operate::fuzz::requests,
    ),
];

fn name(bytes: &[u8]) {
    let Ok(called) = Called::from_bytes(bytes) else {
        return;
    };
    assert_eq!(called.as_bytes(), bytes);
    if let Called::Name(name) = called {
        let _ = (name.address().count(), name.directory().count());
    }
    text(called.to_string().as_bytes());
}

fn text(bytes: &[u8]) {
    if let Ok(called) = String::from_utf8_lossy(bytes).parse::<Called>() {
        assert_eq!(Called::from_bytes(called.as_bytes()), Ok(called));
    }
}

fn all() -> Vec<Called> {
    let address = Address::pack([(Tag::new(2), &[3u8; 20][..])]).expect("room");
    let directory = RegionKey::pack([(Tag::new(2), &[4u8; 8][..])]).expect("room");
    let name = EndpointName::new(9, &address, &directory).expect("room");
    let service = ServiceName::new("7471").expect("a port");
    let server = Server::new(([10, 0, 0, 2], 7471).into()).expect("a port");
    vec![
        Called::Name(name),
        Called::Service(service),
        Called::Server(server),
    ]
}

fn names() -> Vec<Vec<u8>> {
    all()
        .iter()
        .map(|called| called.as_bytes().to_vec())
        .collect()
}

fn texts() -> Vec<Vec<u8>> {
    all()
        .iter()
        .map(|called| called.to_string().into())
        .collect()
}

#[cfg(test)]
unipgas_fuzz::test_readers!();

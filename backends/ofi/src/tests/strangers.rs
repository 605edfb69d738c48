//! Peers of another job, of another release, or dead; and missing providers and interfaces.

use unipgas_core::Error;
use unipgas_core::streams::StreamTransport;
use unipgas_core::transport::Transport;

use super::{chosen, wish};
use crate::Ofi;
use crate::address::OfiAddress;
use crate::choice::choose;

/// `None`: libfabric is not installed.
pub fn place() -> Option<StreamTransport<Ofi>> {
    Some(Ofi::open(chosen("tcp")?, None).unwrap())
}

/// The error of a connection to `address` with a changed byte.
fn refusal(one: &StreamTransport<Ofi>, address: &[u8], at: usize) -> String {
    let mut wrong = address.to_vec();
    wrong[at] ^= 1;
    match one.connect(&wrong) {
        Err(Error::Unreachable(text)) => text,
        other => panic!("byte {at}: {:?}", other.map(drop)),
    }
}

#[test]
fn strangers_are_told_why_and_others_go_on() {
    let Some((one, two)) = place().zip(place()) else {
        return;
    };
    let address = two.address();
    for round in 0..3 {
        for (at, expected) in [
            (0, "another release of unipgas"),
            (1, "another release of unipgas"),
            (2, "another job"),
            (17, "another job"),
            (18, "UNIPGAS_OFI_PROVIDER"),
        ] {
            let text = refusal(&one, &address, at);
            assert!(text.contains(expected), "round {round}, byte {at}: {text}");
        }
        one.connect(&address).unwrap();
    }
}

#[test]
fn who_has_gone_is_not_asked_again() {
    let Some((one, two)) = place().zip(place()) else {
        return;
    };
    let address = two.address();
    one.connect(&address).unwrap();
    drop(two);
    // The process seems to live until its farewell arrives.
    let secret = OfiAddress::decode(&address).unwrap().secret;
    while one.net.departed.why(&secret).is_none() {
        let _ = one.connect(&address);
    }
    assert_eq!(one.connect(&address).map(drop), Err(Error::PeerDead));
    // The call sends no message.
    assert_eq!(one.net.reach(&address).map(drop), Err(Error::PeerDead));
}

#[test]
fn a_provider_that_cannot_be_used_is_refused_with_the_reason() {
    if let Err(error) = crate::probe(false) {
        eprintln!("skipped: {error}");
        return;
    }
    for (provider, why) in [
        ("no-such", "UNIPGAS_OFI_PROVIDER=no-such"),
        ("shm", "shm"),
        ("udp;ofi_rxd", "reads"),
    ] {
        let chosen = choose(&wish(provider, None), false).map(drop);
        let Err(Error::InvalidArgument(text)) = chosen else {
            panic!("{provider} is taken");
        };
        assert!(text.contains(why), "{text}");
    }
}

#[test]
fn an_interface_that_is_not_here_is_named_with_those_that_are() {
    let wish = |interface| wish("tcp", Some(interface));
    if let Err(error) = choose(&wish("127.0.0.1"), false) {
        eprintln!("skipped: {error}");
        return;
    }
    let Err(Error::InvalidArgument(text)) = choose(&wish("no-such"), false).map(drop) else {
        panic!("there is one");
    };
    for part in ["UNIPGAS_OFI_INTERFACE=no-such", "lo (127.0.0.1)"] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(text.lines().count(), 1);
}

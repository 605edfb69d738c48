//! Readers of untrusted bytes, from the network or from addresses, for tests and libFuzzer.

use bytemuck::{Pod, Zeroable, bytes_of, pod_read_unaligned};
use unipgas_core::streams::greeting::{SECRET, foreign_address};

use crate::address::VerbsAddress;
use crate::choice::{DevicePort, DeviceSelector};
use crate::desk::contact::{accepted, caller};
use crate::wire::{
    self, ConnectReply, ConnectRequest, ImmediateKind, MAGIC, PROTOCOL, QpParameters,
};
use crate::{queues, region};

/// A reader: name, function, and valid inputs.
pub type Reader = (&'static str, fn(&[u8]), fn() -> Vec<Vec<u8>>);

/// The readers of this crate.
pub const READERS: &[Reader] = &[
    ("verbs-address", address, addresses),
    ("verbs-word", word, words),
    ("verbs-opening", opening, openings),
    ("verbs-answer", answer, answers),
    ("verbs-region", told, regions),
    ("verbs-wish", wish, wishes),
];

const PORT: DevicePort = DevicePort {
    number: 1,
    ethernet: true,
    mtu: 5,
    longest: 1 << 30,
    gid: [9; 16],
    gid_index: 3,
    timeout: 17,
};

fn ends() -> QpParameters {
    QpParameters {
        pair: 77,
        first: 0xff_ffff,
        credits: 16,
        mtu: 3,
        ethernet: 1,
        reads: 16,
        serves: 4,
        gid: [9; 16],
        ..QpParameters::zeroed()
    }
}

fn address(bytes: &[u8]) {
    let _ = foreign_address(bytes, PROTOCOL, "verbs");
    if let Some(address) = VerbsAddress::decode(bytes) {
        assert_eq!(address.encode(), bytes);
    }
}

fn addresses() -> Vec<Vec<u8>> {
    let doors = ["10.1.2.3:4711", "[2001:db8::1]:99"];
    let all = doors.map(|door| VerbsAddress {
        secret: [7; SECRET],
        door: door.parse().expect("an address"),
    });
    all.iter().map(VerbsAddress::encode).collect()
}

/// Reads the immediates of messages and writes.
fn word(bytes: &[u8]) {
    for word in bytes.as_chunks().0 {
        if let Some((kind, credits)) = wire::split(u32::from_le_bytes(*word)) {
            assert_eq!(wire::word(kind, credits).to_le_bytes(), *word);
        }
    }
}

fn words() -> Vec<Vec<u8>> {
    let all = [
        ImmediateKind::Bytes,
        ImmediateKind::Written,
        ImmediateKind::Credits,
        ImmediateKind::Close,
    ];
    let words = all.map(|kind| wire::word(kind, 0xff_ffff).to_le_bytes());
    vec![words.concat()]
}

/// Computes the device attributes for a peer's end.
fn connect(theirs: &QpParameters) {
    let [ready, sends] = queues::connected(&PORT, &ends(), theirs);
    assert!(ready.dest_qp_num < 1 << 24 && ready.rq_psn < 1 << 24);
    assert!((1..=PORT.mtu).contains(&ready.path_mtu));
    assert!(ready.max_dest_rd_atomic <= ends().serves && sends.max_rd_atomic <= ends().reads);
}

fn said<T: Pod>(bytes: &[u8]) -> Option<T> {
    bytes.get(..size_of::<T>()).map(pod_read_unaligned)
}

fn opening(bytes: &[u8]) {
    let Some(opening) = said::<ConnectRequest>(bytes) else {
        return;
    };
    match caller(&opening, &[7; SECRET], PORT.ethernet) {
        Ok(with) => {
            assert_eq!(with.encode(), opening.address[..usize::from(opening.len)]);
            connect(&opening.ends);
        }
        Err(verdict) => assert_ne!(verdict, Some(wire::ACCEPTED)),
    }
}

fn openings() -> Vec<Vec<u8>> {
    let of = |address: Vec<u8>| {
        let mut opening = ConnectRequest {
            magic: MAGIC,
            protocol: PROTOCOL,
            len: address.len() as u16,
            ends: ends(),
            secret: [7; SECRET],
            ..ConnectRequest::zeroed()
        };
        opening.address[..address.len()].copy_from_slice(&address);
        bytes_of(&opening).to_vec()
    };
    addresses().into_iter().map(of).collect()
}

fn answer(bytes: &[u8]) {
    let door = ([10, 0, 0, 1], 7).into();
    if let Some(answer) = said::<ConnectReply>(bytes)
        && let Ok(theirs) = accepted(&answer, door)
    {
        connect(&theirs);
    }
}

fn answers() -> Vec<Vec<u8>> {
    let verdicts = [
        wire::ACCEPTED,
        wire::STRANGER,
        wire::OTHER_VERSION,
        wire::OTHER_LINK,
        wire::FULL,
    ];
    let of = |verdict| ConnectReply {
        magic: MAGIC,
        protocol: PROTOCOL,
        verdict,
        ends: ends(),
    };
    verdicts
        .map(|verdict| bytes_of(&of(verdict)).to_vec())
        .to_vec()
}

/// Reads an owner's description of its memory.
fn told(bytes: &[u8]) {
    let said = region::said(bytes);
    assert!(said.is_err() || [0, 13].contains(&bytes.len()));
}

fn regions() -> Vec<Vec<u8>> {
    let whole = [&77u32.to_le_bytes()[..], &[1], &(1u64 << 40).to_le_bytes()].concat();
    vec![Vec::new(), whole]
}

/// Reads a device, an index and a timeout, one a line.
fn wish(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let line = |nth| Ok(text.lines().nth(nth).map(str::to_owned));
    let wish = DeviceSelector::read(|name| match name {
        "UNIPGAS_VERBS_DEVICE" => line(0),
        "UNIPGAS_VERBS_GID" => line(1),
        _ => line(2),
    });
    if let Ok(wish) = wish {
        assert!(wish.port != Some(0) && wish.timeout.is_none_or(|it| (8..=31).contains(&it)));
    }
}

fn wishes() -> Vec<Vec<u8>> {
    let all = ["mlx5_0:1\n3\n17", "mlx5_0\n0\n8", "a:b:255\n4294967295\n31"];
    all.map(|text| text.as_bytes().to_vec()).to_vec()
}

#[cfg(test)]
unipgas_fuzz::test_readers!();

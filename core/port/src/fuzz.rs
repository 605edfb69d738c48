//! Readers of bytes from other processes, users' files or the network: tests and libFuzzer call them with malformed input.
//! A correct reader returns, and touches only its own memory (`tests/fuzz`, and the crate `unipgas-fuzz`).

use crate::{gate, keyring, peer_numbers, port, reception};

/// A reader: its name, the function, and valid inputs.
pub type Reader = (&'static str, fn(&[u8]), fn() -> Vec<Vec<u8>>);

/// All readers of this crate.
pub const READERS: &[Reader] = &[
    ("packet", packet, packets),
    ("gates", gate::fuzz::gates, gate::fuzz::all_gates),
    ("keyring", keyring::fuzz::ring, keyring::fuzz::rings),
    (
        "numbers",
        peer_numbers::fuzz::numbers,
        peer_numbers::fuzz::tables,
    ),
    ("ports", port::fuzz::ports, port::fuzz::all_ports),
    (
        "reception",
        reception::fuzz::answer,
        reception::fuzz::answers,
    ),
];

/// Fills the beginning of a region that has no user yet.
pub(crate) fn write(region: &unipgas_engine::Region, bytes: &[u8]) {
    let to = region.local(0, bytes.len()).expect("room").ptr;
    // SAFETY:
    // - within the region, which is live and has no other user yet.
    unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
}

/// Input: the settings of a gate, then a packet to it.
fn packet(bytes: &[u8]) {
    let (settings, rest) = bytes.split_at(bytes.len().min(gate::SETTINGS));
    if let Ok(settings) = settings.try_into() {
        assert!(gate::neighbours_in(settings).len() <= 4);
    }
    let Some(packet) = gate::Packet::decode(rest) else {
        return;
    };
    let gates = [gate::Gate::new(), gate::Gate::new()];
    gate::configure(
        &gates[0],
        &gate::Settings {
            role: gate::Role::Relay,
            src_signal: None,
            src_packet: Some(7),
            dst_signal: None,
            dst_packet: Some(9),
        },
    );
    struct Both<'a>(&'a [gate::Gate; 2]);
    impl gate::Resolve for Both<'_> {
        fn gate(&self, name: u64) -> unipgas_base::Result<&gate::Gate> {
            self.0
                .get(name as usize)
                .ok_or(unipgas_base::Error::StaleRegion)
        }
        fn wake(&self, _: u64) {}
    }
    for _ in 0..=gate::ROUNDS {
        if let Ok(Some(ready)) = gate::arrive(&gates[0], &packet) {
            gate::execute(&gates[0], ready, &Both(&gates));
        }
    }
    let mut result = gate::Payload::default();
    let _ = gate::poll(&gates[0], &mut result);
    assert_eq!(
        gate::Packet::decode(&packet.encode()).map(|again| again.gate),
        Some(packet.gate)
    );
}

fn packets() -> Vec<Vec<u8>> {
    let settings = vec![0; gate::SETTINGS];
    let kinds = [
        0u64,
        1 | 1 << 32,
        1 | 0x0101 << 32,
        1 | 0x0203 << 32,
        1 | 0x0306 << 32,
    ];
    let mut all = vec![settings.clone()];
    for kind in kinds {
        for words in [0, 1, 3, 6, 20] {
            let mut bytes = settings.clone();
            for word in [0, 7, kind] {
                bytes.extend(u64::to_le_bytes(word));
            }
            bytes.extend((0..words).flat_map(u64::to_le_bytes));
            all.push(bytes);
        }
    }
    all
}

#[cfg(test)]
unipgas_fuzz::test_readers!();

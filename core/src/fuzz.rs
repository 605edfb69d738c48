//! Readers of bytes from other processes, users' files or the network: tests and libFuzzer call them with malformed input.
//! A correct reader returns, and touches only its own memory (`packaging/fuzz`, and the crate `unipgas-fuzz`).

use crate::bundle::{BUNDLE_LEN, Bundle, Tag};
use crate::cache::PAIR;
use crate::{fabric, gate, launch, message, queues, ranked};

/// A reader: its name, the function, and valid inputs.
pub type Reader = (&'static str, fn(&[u8]), fn() -> Vec<Vec<u8>>);

/// All readers of this crate.
pub const READERS: &[Reader] = &[
    ("bundle", bundle, bundles),
    ("packet", packet, packets),
    ("gates", gate::fuzz::gates, gate::fuzz::all_gates),
    (
        "inbox",
        fabric::inbox::fuzz::inbox,
        fabric::inbox::fuzz::inboxes,
    ),
    (
        "guest",
        fabric::streams::fuzz::guest,
        fabric::streams::fuzz::guests,
    ),
    (
        "stranger",
        fabric::streams::fuzz::stranger,
        fabric::streams::fuzz::strangers,
    ),
    (
        "answers",
        fabric::streams::fuzz::answers,
        fabric::streams::fuzz::all_answers,
    ),
    (
        "active",
        fabric::agent::fuzz::active,
        fabric::agent::fuzz::messages,
    ),
    ("lines", message::fuzz::lines, message::fuzz::all_lines),
    (
        "rendezvous",
        queues::rendezvous::fuzz::file,
        queues::rendezvous::fuzz::files,
    ),
    (
        "keyring",
        queues::keyring::fuzz::ring,
        queues::keyring::fuzz::rings,
    ),
    (
        "directory",
        ranked::fuzz::directory,
        ranked::fuzz::directories,
    ),
    ("arena", ranked::fuzz::arena, ranked::fuzz::arenas),
    ("circuit", ranked::fuzz::circuit, ranked::fuzz::circuits),
    (
        "numbers",
        queues::peer_numbers::fuzz::numbers,
        queues::peer_numbers::fuzz::tables,
    ),
    (
        "ports",
        queues::port::fuzz::ports,
        queues::port::fuzz::all_ports,
    ),
    (
        "reception",
        queues::reception::fuzz::answer,
        queues::reception::fuzz::answers,
    ),
    (
        "board",
        launch::job::board::fuzz::board,
        launch::job::board::fuzz::boards,
    ),
    (
        "pmi",
        launch::bootstrap::pmi::fuzz::pmi,
        launch::bootstrap::pmi::fuzz::answers,
    ),
    (
        "environment",
        launch::bootstrap::fuzz::environment,
        launch::bootstrap::fuzz::environments,
    ),
    ("proc", launch::fuzz::proc, launch::fuzz::files_of_proc),
];

/// Memory between fences, which detect writes outside it.
pub(crate) struct Fenced {
    bytes: Vec<u64>,
    len: usize,
}

impl Fenced {
    /// Words of a fence on each side, at least.
    const FENCE: usize = PAIR / 8;
    const MARK: u64 = 0x5afe_5afe_5afe_5afe;

    /// `len` zeros, aligned to a [`PAIR`] of lines.
    pub fn new(len: usize) -> Self {
        let words = len.div_ceil(8) + 3 * Self::FENCE;
        let mut fenced = Fenced {
            bytes: vec![Self::MARK; words],
            len,
        };
        // SAFETY:
        // - the vector has `len` bytes after the first fence.
        unsafe { fenced.base().write_bytes(0, len) };
        fenced
    }

    /// Address of the first byte.
    pub fn base(&mut self) -> *mut u8 {
        let begin = self.bytes.as_mut_ptr().cast::<u8>();
        let first = begin.wrapping_add(8 * Self::FENCE);
        first.wrapping_add(first.align_offset(8 * Self::FENCE))
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Writes as much of `bytes` as fits.
    pub fn fill(&mut self, bytes: &[u8]) {
        let len = bytes.len().min(self.len);
        // SAFETY:
        // - `len` is at most the room.
        unsafe { self.base().copy_from_nonoverlapping(bytes.as_ptr(), len) };
    }

    /// Panics if a fence has changed.
    pub fn check(&mut self) {
        let (base, len) = (self.base(), self.len);
        let begin = self.bytes.as_ptr().cast::<u8>();
        let all = 8 * self.bytes.len();
        let inside = base.addr() - begin.addr()..base.addr() - begin.addr() + len;
        for at in (0..all).filter(|at| !inside.contains(at)) {
            // SAFETY:
            // - the byte is in the vector.
            let found = unsafe { begin.wrapping_add(at).read() };
            let mark = Self::MARK.to_ne_bytes()[at % 8];
            assert_eq!(
                found, mark,
                "byte {at} of {all}, of which {inside:?} are meant"
            );
        }
    }
}

fn bundle(bytes: &[u8]) {
    let mut whole = [0; BUNDLE_LEN];
    let len = bytes.len().min(BUNDLE_LEN);
    whole[..len].copy_from_slice(&bytes[..len]);
    let _ = Bundle::from_bytes(bytes);
    let Ok(bundle) = Bundle::from_bytes(&whole) else {
        panic!("as long as a bundle");
    };
    let parts = bundle.count();
    for tag in [
        Tag::Loopback,
        Tag::Shm,
        Tag::Opaque,
        Tag::Ofi,
        Tag::Verbs,
        Tag::Tofu,
    ] {
        assert!(bundle.part(tag).is_none_or(|part| part.len() < BUNDLE_LEN));
    }
    for begin in 0..=parts {
        assert_eq!(bundle.only(begin..parts).count(), parts - begin);
    }
}

fn bundles() -> Vec<Vec<u8>> {
    let parts = [
        (Tag::Shm, &[1u8; 40][..]),
        (Tag::Ofi, &[2; 50]),
        (Tag::Tofu, &[]),
    ];
    let all = (0..=parts.len()).map(|end| Bundle::pack(parts[..end].iter().copied()));
    all.map(|bundle| bundle.expect("room").as_bytes().to_vec())
        .collect()
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
        fn gate(&self, name: u64) -> crate::Result<&gate::Gate> {
            self.0.get(name as usize).ok_or(crate::Error::StaleRegion)
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
mod tests {
    #[test]
    #[cfg_attr(miri, ignore = "as often as it takes")]
    fn what_nobody_sends_is_read() {
        unipgas_fuzz::run(super::READERS);
    }

    #[test]
    #[should_panic(expected = "are meant")]
    fn what_is_written_beside_memory_is_found() {
        let mut fenced = super::Fenced::new(10);
        let beside = fenced.base().wrapping_add(10);
        // SAFETY:
        // - the byte is in the fence.
        unsafe { beside.write(1) };
        fenced.check();
    }
}

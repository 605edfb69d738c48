//! Readers of ids and bytes from peers, and of environment variables: for tests and libFuzzer.

use unipgas_core::port::{PORTS, ShortKey};

use crate::environment::UtofuSettings;
use crate::ids::{VbgId, VcqId, path_coords, path_id};
use crate::logical::Logical;
use crate::process::{dealt, dealt_to};
use crate::shape::NetworkShape;

/// A reader: its name, its function, and valid inputs.
pub type Reader = (&'static str, fn(&[u8]), fn() -> Vec<Vec<u8>>);

/// All readers of this crate.
pub const READERS: &[Reader] = &[
    ("utofu-ids", ids, all_ids),
    ("utofu-shape", shape, shapes),
    ("utofu-variables", variables, all_variables),
];

/// VCQ and VBG ids, and STADDs, 8 bytes each.
fn ids(bytes: &[u8]) {
    for bits in bytes.as_chunks().0.iter().map(|id| u64::from_le_bytes(*id)) {
        if let Some(id) = VcqId::from_bits(bits) {
            assert!(usize::from(id.port()) < PORTS);
            let plain = VcqId::from_bits(id.plain()).expect("the same, with another path");
            assert_eq!(
                (plain.identity(), plain.coords()),
                (id.identity(), id.coords())
            );
            assert_eq!(id.with_path(id.path()), id);
            for shape in [NetworkShape::for_nodes(1), NetworkShape::for_nodes(100)] {
                let node = shape.node(&id.coords());
                assert!(node.is_none_or(|node| node < shape.nodes()));
                let _ = shape.has_path(&id.path());
            }
            for sharers in [1, 4, 48] {
                assert!(dealt_to(id.tni(), id.cq(), sharers) < sharers);
            }
        }
        if let Some(id) = VbgId::from_bits(bits) {
            assert_eq!(VbgId::new(&id.coords(), id.tni(), id.bg()), id);
        }
        if let Some(path) = path_coords(bits as u8) {
            assert_eq!(path_id(path), bits as u8);
        }
        assert!(ShortKey(bits).offset() < 1 << 40);
    }
}

fn all_ids() -> Vec<Vec<u8>> {
    let at = [3, 2, 1, 1, 2, 1];
    let ids = [
        VcqId::new(&at, 5, 8, 7).bits(),
        VcqId::new(&at, 0, 0, 0).with_path([0, 0, 0]).bits(),
        VbgId::new(&at, 5, 47).bits(),
        ShortKey::reserved(7, 255).0 + 99,
    ];
    vec![ids.into_iter().flat_map(u64::to_le_bytes).collect()]
}

/// The shape of a network, as text and as bytes.
fn shape(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes).parse::<NetworkShape>();
    let told = bytes.first_chunk().map(NetworkShape::from_bytes);
    for shape in text.into_iter().chain(told.into_iter().flatten()) {
        assert_eq!(shape.to_string().parse(), Ok(shape));
        assert_eq!(NetworkShape::from_bytes(&shape.to_bytes()), Ok(shape));
        let nodes = shape.nodes();
        for node in [0, nodes / 2, nodes - 1] {
            assert_eq!(shape.node(&shape.coords(node)), Some(node));
            for used in [nodes, node + 1] {
                let logical = Logical::new(shape, used);
                assert_eq!(logical.node(&logical.coords(node)), Some(node));
            }
        }
    }
}

fn shapes() -> Vec<Vec<u8>> {
    let all = ["24x23x2x2x3x2", "1x1x1x2x1x1", "255x1x5X2x3x2"];
    let told = NetworkShape::for_nodes(100).to_bytes().to_vec();
    let texts = all.map(|text| text.as_bytes().to_vec());
    texts.into_iter().chain([told]).collect()
}

/// Variables, one a line.
fn variables(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let lines = text.lines().filter_map(|line| line.split_once('='));
    let all: Vec<(&str, &str)> = lines.collect();
    let wishes = UtofuSettings::read(|name| {
        let found = all.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    });
    if let Ok(wishes) = wishes {
        assert!((2048..=2 << 20).contains(&wishes.mrq_entries));
        assert!((1..=48).contains(&wishes.processes_per_node));
        for me in 0..wishes.processes_per_node {
            assert!(!dealt(me, wishes.processes_per_node, &wishes).is_empty());
        }
    }
}

fn all_variables() -> Vec<Vec<u8>> {
    let all = [
        "UTOFU_NUM_EXCLUSIVE_CQS=2\nUTOFU_NUM_SESSION_MODE_CQS=9\nUTOFU_SWAP_PROTECT=1",
        "UTOFU_NUM_MRQ_ENTRIES=8Ki\nUTOFU_NUM_MRQ_ENTRIES_SESSION=70000",
        "UNIPGAS_TOFU_SHAPE=2x1x1x2x3x2\nUNIPGAS_TOFU_PPN=48",
    ];
    all.map(|text| text.as_bytes().to_vec()).to_vec()
}

#[cfg(test)]
unipgas_fuzz::test_readers!();

//! A corrupt job file.

use std::os::fd::AsFd;

use rustix::fs::MemfdFlags;

use super::process::Process;
use super::table::{Entry, Layout, PROPERTIES_LEN, Table};
use unipgas_base::descriptor;
use unipgas_engine::bundle::BUNDLE_LEN;

const LAYOUT: Layout = Layout {
    places: 3,
    places_per_group: 2,
    words_per_group: 4,
    properties: [7; PROPERTIES_LEN],
};
/// Bytes of the header and the first record.
const SEEN: usize = 4096 + 640;

/// Input: the beginning of the file; then optionally its length.
pub(crate) fn file(bytes: &[u8]) {
    let file = descriptor::memory("unipgas-test", MemfdFlags::empty()).expect("a file");
    let len = LAYOUT.len().expect("in bounds");
    let len = match bytes.get(SEEN) {
        Some(cut) => len / 256 * usize::from(*cut),
        None => len,
    };
    rustix::fs::ftruncate(&file, len as u64).expect("room");
    let kept = bytes.len().min(SEEN).min(len);
    rustix::io::pwrite(&file, &bytes[..kept], 0).expect("room");
    let Ok(table) = Table::find(&file, &LAYOUT) else {
        return;
    };
    assert!(table.places_used() <= LAYOUT.places);
    for place in 0..4 {
        table.mourn(place, 1);
        let holder = table.entry(place).and_then(|entry| entry.holder);
        // Any process: the test only queries the kernel.
        if let Some(holder) = holder {
            let _ = holder.lives(&Process::this().expect("/proc"));
        }
    }
    for (group, index) in [(0, 0), (0, 3), (1, 2), (9, 0)] {
        let _ = table.claimed(group, index);
    }
    let _ = (table.deaths(), table.use_place(file.as_fd(), 2));
    let _ = table.use_group(file.as_fd(), 1);
}

pub(crate) fn files() -> Vec<Vec<u8>> {
    let file = descriptor::memory("unipgas-test", MemfdFlags::empty()).expect("a file");
    let table = Table::make(&file, &LAYOUT).expect("in bounds");
    let read = || {
        let mut bytes = vec![0; SEEN];
        rustix::io::pread(&file, &mut bytes, 0).expect("as long");
        bytes
    };
    let mut all = vec![read()];
    table.use_place(file.as_fd(), 0).expect("room");
    table.use_group(file.as_fd(), 0).expect("room");
    let mut entry = Entry {
        generation: 1,
        holder: Some(Process::this().expect("/proc")),
        published: None,
    };
    table.show(0, &entry);
    table.claim(0, 1, Some((0, 1)));
    all.push(read());
    entry.published = Some(([1; BUNDLE_LEN], [2; BUNDLE_LEN]));
    table.show(0, &entry);
    all.push(read());
    all
}

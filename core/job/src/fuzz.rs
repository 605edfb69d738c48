//! Readers of bytes from other processes, users' files and launchers: tests and libFuzzer call them with malformed input. A correct reader returns,
//! and touches only its memory.

use unipgas_base::user_memory::maps::MemoryMapping;

use crate::{bootstrap, job, rendezvous};

/// A reader: its name, the function, and valid inputs.
pub type Reader = (&'static str, fn(&[u8]), fn() -> Vec<Vec<u8>>);

/// All readers of this crate.
pub const READERS: &[Reader] = &[
    (
        "rendezvous",
        rendezvous::fuzz::file,
        rendezvous::fuzz::files,
    ),
    ("board", job::board::fuzz::board, job::board::fuzz::boards),
    (
        "pmi",
        bootstrap::pmi::fuzz::pmi,
        bootstrap::pmi::fuzz::answers,
    ),
    (
        "environment",
        bootstrap::fuzz::environment,
        bootstrap::fuzz::environments,
    ),
    ("proc", proc, files_of_proc),
];

/// Texts of /proc and /sys with names that programs and users choose: lines of maps, and lists of processors.
fn proc(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for line in text.lines() {
        let _ = MemoryMapping::parse(line);
    }
    let _ = super::numa::parse(&text);
}

fn files_of_proc() -> Vec<Vec<u8>> {
    let lines = "1000-2000 rw-p 00000000 00:00 0 \n\
                 7f0000000000-7f0000001000 r-xs 00001000 fd:01 1234   /a file (deleted)\n";
    vec![lines.into(), b"0-3,8,10-11\n".to_vec()]
}

#[cfg(test)]
unipgas_fuzz::test_readers!();

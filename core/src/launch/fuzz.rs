//! Texts of /proc and /sys. They hold names that programs and users choose.

use crate::user_memory::maps::Mapping;

/// Lines of maps, and lists of processors.
pub(crate) fn proc(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for line in text.lines() {
        let _ = Mapping::parse(line);
    }
    let _ = super::numa::parse(&text);
}

pub(crate) fn files_of_proc() -> Vec<Vec<u8>> {
    let lines = "1000-2000 rw-p 00000000 00:00 0 \n\
                 7f0000000000-7f0000001000 r-xs 00001000 fd:01 1234   /a file (deleted)\n";
    vec![lines.into(), b"0-3,8,10-11\n".to_vec()]
}

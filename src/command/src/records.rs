//! Records of the ranks of a host for the launcher. The ranks append them to a file, one record on each line.

use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use rustix::fs::{MemfdFlags, memfd_create};

/// Approximate size of a piece for the job's launcher, in bytes.
const PIECE: usize = 1 << 20;

/// A file of records, without a name in the file system.
pub(crate) struct Records(File);

impl Records {
    /// Errors: a line.
    pub fn new() -> Result<Self, String> {
        let file = memfd_create("unipgas-records", MemfdFlags::CLOEXEC);
        file.map(|file| Records(file.into()))
            .map_err(|error| format!("no file for what the ranks leave: {error}"))
    }

    /// The path that ranks on this host open.
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd()).into()
    }

    /// All records. Errors: a line.
    pub fn text(mut self) -> Result<String, String> {
        let mut text = String::new();
        let read = self
            .0
            .rewind()
            .and_then(|()| self.0.read_to_string(&mut text));
        read.map_err(|error| format!("the ranks' records cannot be read: {error}"))?;
        Ok(text)
    }
}

/// Splits `text` into pieces of whole lines: the launcher joins pieces of several hosts.
pub fn pieces(mut text: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let whole = |end: usize| {
            text.as_bytes()[end..]
                .iter()
                .position(|byte| *byte == b'\n')
        };
        let end = match text.len() {
            0 => return None,
            len if len <= PIECE => len,
            len => whole(PIECE).map_or(len, |more| PIECE + more + 1),
        };
        let (piece, rest) = text.split_at(end);
        text = rest;
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_whole_lines() {
        let line = "é".repeat(300) + "\n";
        let text = line.repeat(4000) + "the last";
        let found: Vec<&str> = pieces(&text).collect();
        assert!(found.len() > 2 && found.concat() == text);
        let (last, others) = found.split_last().unwrap();
        assert!(others.iter().all(|piece| piece.ends_with('\n')));
        assert!(last.ends_with("the last"));
        assert_eq!(pieces("").count(), 0);
    }
}

//! The program of a job: its file, and whether this machine can start it.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use object::elf::{EM_386, EM_AARCH64, EM_ARM, EM_X86_64};

/// Reason why a program cannot be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProgramError {
    /// No such file. A shell exits with 127.
    NotFound(String),
    /// The file is not executable. A shell exits with 126.
    NotExecutable(String),
}

impl fmt::Display for ProgramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProgramError::NotFound(text) | ProgramError::NotExecutable(text) => f.write_str(text),
        }
    }
}

type Result<T> = std::result::Result<T, ProgramError>;

/// The file of `program`. A name without a slash is searched in PATH, as by a shell.
///
/// # Errors
/// One line with the reason.
pub fn find_program(program: &OsStr) -> Result<PathBuf> {
    let shown = program.to_string_lossy();
    if program.as_bytes().contains(&b'/') {
        let path = PathBuf::from(program);
        return match std::fs::metadata(&path) {
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                Err(ProgramError::NotFound(format!(
                    "there is no program {shown}"
                )))
            }
            Err(error) => Err(ProgramError::NotExecutable(format!("{shown}: {error}"))),
            Ok(found) if found.is_dir() => Err(ProgramError::NotExecutable(format!(
                "{shown} is a directory, not a program"
            ))),
            Ok(_) if !executable(&path) => Err(ProgramError::NotExecutable(format!(
                "{shown} is not executable (chmod +x {shown})"
            ))),
            Ok(_) => Ok(path),
        };
    }
    let places = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    std::env::split_paths(&places)
        .map(|place| place.join(program))
        .find(|path| executable(path))
        .ok_or_else(|| {
            let here = if !program.is_empty() && executable(Path::new(program)) {
                format!("; the one in this directory is ./{shown}")
            } else {
                String::new()
            };
            ProgramError::NotFound(format!("there is no program {shown:?} in PATH{here}"))
        })
}

fn executable(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

/// Checks that this machine can start the program: its processor architecture, or the interpreter of a script. A file of another kind passes, since a shell
/// would run it as its own script.
///
/// # Errors
/// As [`find_program`].
pub fn check_program(path: &Path) -> Result<()> {
    let shown = path.display();
    let mut head = Vec::new();
    // A file without read permission may be executable.
    let read = File::open(path).and_then(|file| file.take(HEAD).read_to_end(&mut head));
    if read.is_err() {
        return Ok(());
    }
    if is_for_others(&head) && !kernel_has_others() {
        return Err(ProgramError::NotExecutable(format!(
            "{shown} is a program for another kind of processor than this machine's ({})",
            std::env::consts::ARCH
        )));
    }
    match interpreter(&head) {
        Some(interpreter) if !interpreter.exists() => Err(ProgramError::NotFound(format!(
            "{shown} needs {}, which is not there",
            interpreter.display()
        ))),
        Some(interpreter) if !executable(&interpreter) => {
            Err(ProgramError::NotExecutable(format!(
                "{shown} needs {}, which is not executable",
                interpreter.display()
            )))
        }
        _ => Ok(()),
    }
}

/// Bytes of a script that the kernel reads.
const HEAD: u64 = 256;
/// Position of the processor architecture in an ELF file.
const MACHINE: std::ops::Range<usize> = 18..20;

/// Whether this is the head of an ELF file for another processor architecture.
fn is_for_others(head: &[u8]) -> bool {
    let own: &[u16] = match std::env::consts::ARCH {
        "x86_64" => &[EM_X86_64.0, EM_386.0],
        "aarch64" => &[EM_AARCH64.0, EM_ARM.0],
        _ => return false,
    };
    let machine = (head.get(MACHINE)).and_then(|bytes| bytes.try_into().ok());
    let machine = machine.map(u16::from_le_bytes);
    head.starts_with(b"\x7fELF") && machine.is_some_and(|machine| !own.contains(&machine))
}

/// Whether the kernel may have emulators (binfmt_misc).
fn kernel_has_others() -> bool {
    let told = std::fs::read_dir("/proc/sys/fs/binfmt_misc");
    told.is_ok_and(|all| {
        let names = all.flatten().map(|entry| entry.file_name());
        names
            .into_iter()
            .any(|name| name != "register" && name != "status")
    })
}

/// The interpreter of a script.
fn interpreter(head: &[u8]) -> Option<PathBuf> {
    let line = head.strip_prefix(b"#!")?;
    let line = line.split(|byte| *byte == b'\n').next()?;
    let word = (line.split(|byte| matches!(byte, b' ' | b'\t'))).find(|word| !word.is_empty())?;
    Some(OsString::from_vec(word.to_vec()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interpreters_are_read_as_by_the_kernel() {
        for (head, found) in [
            ("#!/bin/sh\n", Some("/bin/sh")),
            ("#! /usr/bin/env python3\n", Some("/usr/bin/env")),
            ("#!\n", None),
            ("echo", None),
        ] {
            assert_eq!(interpreter(head.as_bytes()), found.map(PathBuf::from));
        }
    }

    #[test]
    fn programs_of_other_processors_are_known() {
        let mut own = std::fs::read("/proc/self/exe").unwrap();
        own.truncate(HEAD as usize);
        assert!(!is_for_others(&own));
        own[MACHINE.start] = 0xf3;
        assert!(is_for_others(&own));
        assert!(!is_for_others(b"\x7fELF"));
    }
}

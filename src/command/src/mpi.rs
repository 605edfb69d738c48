//! Detects MPI programs. `unipgas run` gives them no ranks: MPI would make each process a job of one.

use std::ffi::OsString;
use std::path::Path;

use object::elf::DT_NEEDED;
use object::read::elf::ElfFile64;
use unipgas_launcher::find_program;

/// Longest file to read, in bytes.
const LONGEST: u64 = 1 << 30;

/// Names of MPI libraries between `lib` and `.so`: Open MPI, MPICH and its derivatives, and the ABI of MPI 5.
const LIBRARIES: [&str; 12] = [
    "mpi",
    "mpi_abi",
    "mpi_cxx",
    "mpi_mpifh",
    "mpi_usempif08",
    "mpi_usempi_ignore_tkr",
    "mpich",
    "mpichcxx",
    "mpichfort",
    "mpicxx",
    "mpifort",
    "mpifort_mpich",
];

/// The libraries of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Links {
    /// No MPI found. The program may still link it statically or load it later.
    NoMpi,
    /// This library of MPI, and not unipgas.
    MpiAlone(String),
    /// This library of MPI, and unipgas.
    Both(String),
}

/// The libraries of the program at `path`. A script has none.
pub fn links(path: &Path) -> Links {
    let readable = std::fs::metadata(path).is_ok_and(|m| m.is_file() && m.len() <= LONGEST);
    let bytes = if readable {
        std::fs::read(path).unwrap_or_default()
    } else {
        Vec::new()
    };
    let needed = needed(&bytes).unwrap_or_default();
    let Some(mpi) = needed.iter().find(|name| is_mpi(name)) else {
        return Links::NoMpi;
    };
    // A program that is linked with the static archive contains the name of this variable.
    let mark = b"UNIPGAS_JOB";
    let ours = needed.iter().any(|name| name.starts_with("libunipgas"))
        || bytes.windows(mark.len()).any(|window| window == mark);
    if ours {
        Links::Both(mpi.clone())
    } else {
        Links::MpiAlone(mpi.clone())
    }
}

fn is_mpi(library: &str) -> bool {
    let stem = library.split(".so").next();
    let stem = stem.and_then(|stem| stem.strip_prefix("lib"));
    stem.is_some_and(|stem| LIBRARIES.contains(&stem))
}

/// The shared libraries that a program needs.
fn needed(bytes: &[u8]) -> object::Result<Vec<String>> {
    let file: ElfFile64<'_> = ElfFile64::parse(bytes)?;
    let table = file.elf_dynamic_table()?;
    table
        .iter()
        .filter(|entry| entry.tag == DT_NEEDED)
        .map(|entry| Ok(String::from_utf8_lossy(table.string(entry)?).into_owned()))
        .collect()
}

/// The first argument that is itself an MPI program, as after the name of a debugger, and its library.
pub fn among_arguments(args: &[OsString]) -> Option<(String, String)> {
    args.iter().find_map(|arg| {
        // In most commands, a name without a slash is not a program.
        if !arg.as_encoded_bytes().contains(&b'/') {
            return None;
        }
        match links(&find_program(arg).ok()?) {
            Links::MpiAlone(library) => Some((arg.to_string_lossy().into_owned(), library)),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_of_mpi_are_known_by_their_names() {
        for name in [
            "libmpi.so.40",
            "libmpich.so.12",
            "libmpi_mpifh.so.40",
            "libmpifort.so.12",
            "libmpi.so",
        ] {
            assert!(is_mpi(name), "{name}");
        }
        for name in ["libmpir.so.23", "libm.so.6", "mpi.so", "libc.so.6", ""] {
            assert!(!is_mpi(name), "{name}");
        }
    }

    #[test]
    fn what_is_no_program_of_mpi_passes() {
        assert_eq!(links(Path::new("/proc/self/exe")), Links::NoMpi);
        assert_eq!(links(Path::new("/etc/passwd")), Links::NoMpi);
        assert_eq!(links(Path::new("/no/such")), Links::NoMpi);
        let own = std::fs::read("/proc/self/exe").unwrap();
        let needed = needed(&own).unwrap();
        assert!(
            needed.iter().any(|name| name.starts_with("libc.so")),
            "{needed:?}"
        );
    }
}

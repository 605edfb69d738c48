//! Classification of a range by its mappings: whether it can be adopted.

use std::ops::Range;

use unipgas_core::user_memory::maps::{MemoryMapping, all, cover};

use super::Refusal;

/// Kind of a range, by [`classify`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Private anonymous memory throughout.
    Anonymous,
    /// Private and writable, some of it backed by a file (initialised data of a program or library).
    FilePrivate,
}

fn kind(mapping: &MemoryMapping) -> Result<Kind, Refusal> {
    let huge = ["/anon_hugepage", "/dev/hugepages", "/SYSV-huge"]
        .iter()
        .any(|n| mapping.name.starts_with(n));
    if huge || mapping.page_size > rustix::param::page_size() as u64 {
        return Err(Refusal::Huge);
    }
    let device = mapping.name.starts_with("/dev/")
        && !mapping.name.starts_with("/dev/shm/")
        && !mapping.name.starts_with("/dev/zero");
    if device || mapping.name.starts_with("anon_inode:") {
        return Err(Refusal::Device);
    }
    if mapping.is_shared() {
        return Err(Refusal::AlreadyShared);
    }
    if !mapping.allows(true) {
        return Err(Refusal::ReadOnly);
    }
    if mapping.is_executable() {
        return Err(Refusal::Executable);
    }
    Ok(if mapping.inode == 0 {
        Kind::Anonymous
    } else {
        Kind::FilePrivate
    })
}

/// Whether `mappings` cover `range` without a hole and can all be adopted.
pub(super) fn classify(mappings: &[MemoryMapping], range: &Range<usize>) -> Result<Kind, Refusal> {
    covers(mappings, range)?;
    let mut all = Kind::Anonymous;
    for mapping in mappings {
        if kind(mapping)? == Kind::FilePrivate {
            all = Kind::FilePrivate;
        }
    }
    Ok(all)
}

/// Refuses a hole.
pub(super) fn covers(mappings: &[MemoryMapping], range: &Range<usize>) -> Result<(), Refusal> {
    match cover(mappings, range) {
        true => Ok(()),
        false => Err(Refusal::Unmapped),
    }
}

/// Whether it is initialised data of a program or library.
pub(super) fn is_private_file_data(mapping: &MemoryMapping) -> bool {
    matches!(kind(mapping), Ok(Kind::FilePrivate))
}

/// Every private, writable mapping of the program's own file.
pub(super) fn static_data() -> Result<Vec<MemoryMapping>, Refusal> {
    let exe = std::fs::read_link("/proc/self/exe");
    let exe = exe.map_err(|e| Refusal::Os(format!("cannot read /proc/self/exe: {e}")))?;
    let exe = exe.to_string_lossy();
    let mut found = all()?;
    found.retain(|mapping| mapping.name == exe && is_private_file_data(mapping));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Result<Kind, Refusal> {
        let mapping = MemoryMapping::parse(line).expect("a line of /proc/self/maps");
        classify(std::slice::from_ref(&mapping), &mapping.range)
    }

    #[test]
    fn lines_of_every_kind() {
        assert_eq!(
            of("7f0000000000-7f0000002000 rw-p 00000000 00:00 0 "),
            Ok(Kind::Anonymous)
        );
        assert_eq!(
            of("7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0                          [stack]"),
            Ok(Kind::Anonymous)
        );
        assert_eq!(
            of("55d000004000-55d000005000 rw-p 00003000 fe:00 10035219   /usr/bin/x y"),
            Ok(Kind::FilePrivate)
        );
        assert_eq!(
            of("7f0000000000-7f0000002000 r--p 00000000 00:00 0  [vvar]"),
            Err(Refusal::ReadOnly)
        );
        assert_eq!(
            of("7f0000000000-7f0000002000 ---p 00000000 00:00 0 "),
            Err(Refusal::ReadOnly)
        );
        assert_eq!(
            of("7f0000000000-7f0000002000 rwxp 00000000 00:00 0 "),
            Err(Refusal::Executable)
        );
        assert_eq!(
            of("7f0000000000-7f0000002000 rw-s 00000000 00:01 12 /memfd:a (deleted)"),
            Err(Refusal::AlreadyShared)
        );
        assert_eq!(
            of("7f0000000000-7f0000200000 rw-p 00000000 00:10 12 /anon_hugepage (deleted)"),
            Err(Refusal::Huge)
        );
        assert_eq!(
            of("7f0000000000-7f0000002000 rw-s 00000000 00:06 12 /dev/nvidia0"),
            Err(Refusal::Device)
        );
        assert_eq!(
            of("7f0000000000-7f0000002000 rw-s 00000000 00:06 12 /dev/shm/x"),
            Err(Refusal::AlreadyShared)
        );
    }

    #[test]
    fn holes_are_seen() {
        let a = MemoryMapping::parse("1000-2000 rw-p 00000000 00:00 0 ").expect("a line");
        let b = MemoryMapping::parse("3000-4000 rw-p 00000000 00:00 0 ").expect("a line");
        assert_eq!(
            classify(std::slice::from_ref(&a), &(0x1000..0x2000)),
            Ok(Kind::Anonymous)
        );
        assert_eq!(
            classify(std::slice::from_ref(&a), &(0x1000..0x3000)),
            Err(Refusal::Unmapped)
        );
        assert_eq!(
            classify(&[a, b.clone()], &(0x1000..0x4000)),
            Err(Refusal::Unmapped)
        );
        assert_eq!(classify(&[b], &(0x2000..0x4000)), Err(Refusal::Unmapped));
    }
}

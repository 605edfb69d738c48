//! What is mapped in a range: asked of the kernel one mapping at a time, or read from /proc/self/maps.

use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{self, Opcode, Updater, opcode};
use unipgas_core::descriptor;

use super::Refusal;

const READABLE: u64 = 1;
const WRITABLE: u64 = 2;
const EXECUTABLE: u64 = 4;
const SHARED: u64 = 8;
const COVERING_OR_NEXT: u64 = 0x10;

#[repr(C)]
#[derive(Default)]
struct Query {
    size: u64,
    query_flags: u64,
    query_addr: u64,
    vma_start: u64,
    vma_end: u64,
    vma_flags: u64,
    vma_page_size: u64,
    vma_offset: u64,
    inode: u64,
    dev_major: u32,
    dev_minor: u32,
    name_size: u32,
    build_id_size: u32,
    name_addr: u64,
    build_id_addr: u64,
}

const PROCMAP_QUERY: Opcode = opcode::read_write::<Query>(b'f', 17);

/// One mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mapping {
    pub(super) range: Range<usize>,
    flags: u64,
    page_size: u64,
    pub(super) offset: u64,
    pub(super) inode: u64,
    pub(super) device: (u32, u32),
    name: String,
}

/// What [`classify`] found a range to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Private anonymous memory throughout.
    Anonymous,
    /// Private and writable, some of it backed by a file (initialised data of a program or library).
    FilePrivate,
}

/// Whether the names of mapped files matter, which the kernel takes long to put together.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Names {
    Read,
    Unread,
}

/// Reads this process's mappings.
pub(super) struct Maps {
    fd: OwnedFd,
    queries: bool,
}

impl Maps {
    pub(super) fn open() -> Result<Maps, Refusal> {
        let fd = descriptor::open("/proc/self/maps", OFlags::RDONLY, Mode::empty())
            .map_err(|e| Refusal::os("open /proc/self/maps", e))?;
        let mut maps = Maps { fd, queries: true };
        maps.queries = !matches!(
            maps.query(0, Names::Unread),
            Err(Errno::NOTTY | Errno::INVAL)
        );
        Ok(maps)
    }

    /// The mappings that touch `range`, in order.
    pub(super) fn within(
        &self,
        range: &Range<usize>,
        names: Names,
    ) -> Result<Vec<Mapping>, Refusal> {
        if !self.queries {
            return read_text(range).map_err(|e| Refusal::Os(format!("read /proc/self/maps: {e}")));
        }
        let mut found = Vec::new();
        let mut at = range.start;
        while at < range.end {
            match self.query(at, names) {
                Ok(mapping) if mapping.range.start < range.end => {
                    at = mapping.range.end;
                    found.push(mapping);
                }
                Ok(_) | Err(Errno::NOENT) => break,
                Err(errno) => return Err(Refusal::os("PROCMAP_QUERY", errno)),
            }
        }
        Ok(found)
    }

    fn query(&self, at: usize, names: Names) -> Result<Mapping, Errno> {
        let mut name = [0_u8; 64];
        let mut query = Query {
            size: size_of::<Query>() as u64,
            query_flags: COVERING_OR_NEXT,
            query_addr: at as u64,
            ..Query::default()
        };
        self.call(&mut query)?;
        let mut text = String::new();
        if names == Names::Read && (query.inode != 0 || query.vma_flags & SHARED != 0) {
            let mut again = Query {
                size: size_of::<Query>() as u64,
                query_addr: query.vma_start,
                name_size: name.len() as u32,
                name_addr: name.as_mut_ptr() as u64,
                ..Query::default()
            };
            // A name longer than the buffer is that of an ordinary file.
            if self.call(&mut again).is_ok() {
                let len = (again.name_size as usize).saturating_sub(1).min(name.len());
                text = String::from_utf8_lossy(&name[..len]).into_owned();
            }
        }
        Ok(Mapping {
            range: query.vma_start as usize..query.vma_end as usize,
            flags: query.vma_flags & (READABLE | WRITABLE | EXECUTABLE | SHARED),
            page_size: query.vma_page_size,
            offset: query.vma_offset,
            inode: query.inode,
            device: (query.dev_major, query.dev_minor),
            name: text,
        })
    }

    fn call(&self, query: &mut Query) -> Result<(), Errno> {
        // SAFETY:
        // - PROCMAP_QUERY reads and writes one `procmap_query`, whose layout `Query` has, and writes a name only to
        //   the buffer that it names, which outlives the call
        unsafe { ioctl::ioctl(&self.fd, Updater::<PROCMAP_QUERY, Query>::new(query)) }
    }
}

impl Mapping {
    /// Whether this process may read it, and, if asked for, write it.
    pub(super) fn allows(&self, write: bool) -> bool {
        self.flags & READABLE != 0 && (self.flags & WRITABLE != 0 || !write)
    }

    pub(super) fn is_shared(&self) -> bool {
        self.flags & SHARED != 0
    }

    pub(super) fn is_private_file_data(&self) -> bool {
        matches!(self.refusal(), Ok(Kind::FilePrivate))
    }

    fn refusal(&self) -> Result<Kind, Refusal> {
        let huge = ["/anon_hugepage", "/dev/hugepages", "/SYSV-huge"]
            .iter()
            .any(|n| self.name.starts_with(n));
        if huge || self.page_size > rustix::param::page_size() as u64 {
            return Err(Refusal::Huge);
        }
        let device = self.name.starts_with("/dev/")
            && !self.name.starts_with("/dev/shm/")
            && !self.name.starts_with("/dev/zero");
        if device || self.name.starts_with("anon_inode:") {
            return Err(Refusal::Device);
        }
        if self.is_shared() {
            return Err(Refusal::AlreadyShared);
        }
        if self.flags & WRITABLE == 0 || self.flags & READABLE == 0 {
            return Err(Refusal::ReadOnly);
        }
        if self.flags & EXECUTABLE != 0 {
            return Err(Refusal::Executable);
        }
        Ok(if self.inode == 0 {
            Kind::Anonymous
        } else {
            Kind::FilePrivate
        })
    }
}

/// Whether `mappings` cover `range` without a hole and can all be adopted.
pub(super) fn classify(mappings: &[Mapping], range: &Range<usize>) -> Result<Kind, Refusal> {
    covers(mappings, range)?;
    let mut kind = Kind::Anonymous;
    for mapping in mappings {
        if mapping.refusal()? == Kind::FilePrivate {
            kind = Kind::FilePrivate;
        }
    }
    Ok(kind)
}

/// Refuses a hole.
pub(super) fn covers(mappings: &[Mapping], range: &Range<usize>) -> Result<(), Refusal> {
    let mut at = range.start;
    for mapping in mappings {
        if mapping.range.start > at {
            return Err(Refusal::Unmapped);
        }
        at = mapping.range.end;
    }
    if at < range.end {
        Err(Refusal::Unmapped)
    } else {
        Ok(())
    }
}

fn read_text(range: &Range<usize>) -> std::io::Result<Vec<Mapping>> {
    let mut found = Vec::new();
    for line in BufReader::new(text_file()?).lines() {
        if let Some(mapping) = parse_line(&line?) {
            if mapping.range.start >= range.end {
                break;
            }
            if mapping.range.end > range.start {
                found.push(mapping);
            }
        }
    }
    Ok(found)
}

fn text_file() -> std::io::Result<std::fs::File> {
    let file = descriptor::open("/proc/self/maps", OFlags::RDONLY, Mode::empty())?;
    Ok(file.into())
}

/// Every private, writable mapping of the program's own file.
pub(super) fn static_data() -> std::io::Result<Vec<Mapping>> {
    let exe = std::fs::read_link("/proc/self/exe")?;
    let exe = exe.to_string_lossy();
    let mut found = Vec::new();
    for line in BufReader::new(text_file()?).lines() {
        found.extend(parse_line(&line?).filter(|m| m.name == exe && m.is_private_file_data()));
    }
    Ok(found)
}

fn parse_line(line: &str) -> Option<Mapping> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let rights = fields.next()?.as_bytes();
    let offset = u64::from_str_radix(fields.next()?, 16).ok()?;
    let (major, minor) = fields.next()?.split_once(':')?;
    let inode = fields.next()?.parse().ok()?;
    let name = fields.next().unwrap_or("").trim_start().to_owned();
    let flag = |at: usize, byte: u8, value: u64| {
        if rights.get(at) == Some(&byte) {
            value
        } else {
            0
        }
    };
    Some(Mapping {
        range: usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?,
        flags: flag(0, b'r', READABLE)
            | flag(1, b'w', WRITABLE)
            | flag(2, b'x', EXECUTABLE)
            | flag(3, b's', SHARED),
        // The text does not tell; huge pages are known by their file's name.
        page_size: rustix::param::page_size() as u64,
        offset,
        inode,
        device: (
            u32::from_str_radix(major, 16).ok()?,
            u32::from_str_radix(minor, 16).ok()?,
        ),
        name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Result<Kind, Refusal> {
        let mapping = parse_line(line).expect("a line of /proc/self/maps");
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
        let a = parse_line("1000-2000 rw-p 00000000 00:00 0 ").expect("a line");
        let b = parse_line("3000-4000 rw-p 00000000 00:00 0 ").expect("a line");
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

    #[test]
    fn the_kernels_answer_is_the_texts_answer() {
        let maps = Maps::open().expect("/proc/self/maps");
        let here = [1_u8; 3];
        for at in [
            here.as_ptr() as usize,
            lines_of_every_kind as *const () as usize,
            &raw const SOME_DATA as usize,
        ] {
            let range = at..at + 1;
            let text = read_text(&range).expect("/proc/self/maps");
            let asked = maps.within(&range, Names::Read).expect("the mapping");
            assert_eq!((asked.len(), text.len()), (1, 1));
            assert_eq!(asked[0].flags, text[0].flags);
            assert_eq!(
                (asked[0].inode, asked[0].offset, asked[0].device),
                (text[0].inode, text[0].offset, text[0].device)
            );
        }
    }

    static SOME_DATA: [u8; 3] = [1, 2, 3];
}

//! The mappings in a range, from kernel queries (one per mapping) or from the text of /proc/self/maps.

use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{self, Opcode, Updater, opcode};

use crate::{Error, Result, descriptor};

const FILE: &str = "/proc/self/maps";

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
pub struct MemoryMapping {
    /// Range of addresses.
    pub range: Range<usize>,
    flags: u64,
    /// Page size in bytes. Text from /proc does not have it; then it is the base page size.
    pub page_size: u64,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Inode of the file; 0 for none.
    pub inode: u64,
    /// Device of the file: major and minor number.
    pub device: (u32, u32),
    /// Name of the file, or empty if it was not read.
    pub name: String,
}

/// Whether to read the names of mapped files, which is slow in the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileNames {
    /// Read the names.
    Read,
    /// Leave the names empty.
    Unread,
}

/// Reads this process's mappings.
#[derive(Debug)]
pub struct Maps {
    fd: OwnedFd,
    queries: bool,
}

impl Maps {
    /// Opens /proc/self/maps. Errors: [`Error::Os`].
    pub fn open() -> Result<Maps> {
        let fd = descriptor::open(FILE, OFlags::RDONLY, Mode::empty())
            .map_err(|e| Error::os("open /proc/self/maps", e))?;
        let mut maps = Maps { fd, queries: true };
        maps.queries = !matches!(
            maps.query(0, FileNames::Unread),
            Err(Errno::NOTTY | Errno::INVAL)
        );
        Ok(maps)
    }

    /// The mappings that touch `range`, in order. Errors: [`Error::Os`].
    pub fn within(&self, range: &Range<usize>, names: FileNames) -> Result<Vec<MemoryMapping>> {
        if !self.queries {
            return read_text(range);
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
                Err(errno) => return Err(Error::os("PROCMAP_QUERY", errno)),
            }
        }
        Ok(found)
    }

    fn query(&self, at: usize, names: FileNames) -> Result<MemoryMapping, Errno> {
        let mut name = [0_u8; 64];
        let mut query = Query {
            size: size_of::<Query>() as u64,
            query_flags: COVERING_OR_NEXT,
            query_addr: at as u64,
            ..Query::default()
        };
        self.call(&mut query)?;
        let mut text = String::new();
        if names == FileNames::Read && (query.inode != 0 || query.vma_flags & SHARED != 0) {
            let mut again = Query {
                size: size_of::<Query>() as u64,
                query_addr: query.vma_start,
                name_size: name.len() as u32,
                name_addr: name.as_mut_ptr() as u64,
                ..Query::default()
            };
            // Only ordinary files have names longer than the buffer.
            if self.call(&mut again).is_ok() {
                let len = (again.name_size as usize).saturating_sub(1).min(name.len());
                text = String::from_utf8_lossy(&name[..len]).into_owned();
            }
        }
        Ok(MemoryMapping {
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
        // - PROCMAP_QUERY reads and writes one `procmap_query`, and `Query` has its layout. The kernel writes a name only to the
        //   buffer in the query, which outlives the call.
        unsafe { ioctl::ioctl(&self.fd, Updater::<PROCMAP_QUERY, Query>::new(query)) }
    }
}

impl MemoryMapping {
    /// Whether this process may read it and, if `write`, also write it.
    pub fn allows(&self, write: bool) -> bool {
        self.flags & READABLE != 0 && (self.flags & WRITABLE != 0 || !write)
    }

    /// Whether this process may execute it.
    pub fn is_executable(&self) -> bool {
        self.flags & EXECUTABLE != 0
    }

    /// Whether other processes may share it.
    pub fn is_shared(&self) -> bool {
        self.flags & SHARED != 0
    }

    /// Parses a line of /proc/self/maps.
    pub fn parse(line: &str) -> Option<MemoryMapping> {
        parse_line(line)
    }
}

/// Whether `mappings`, in ascending order, cover `range` without a hole.
pub fn cover(mappings: &[MemoryMapping], range: &Range<usize>) -> bool {
    let mut at = range.start;
    for mapping in mappings {
        if mapping.range.start > at {
            return false;
        }
        at = mapping.range.end;
    }
    at >= range.end
}

/// All mappings of this process, with names. Errors: [`Error::Os`].
pub fn all() -> Result<Vec<MemoryMapping>> {
    read_text(&(0..usize::MAX))
}

fn read_text(range: &Range<usize>) -> Result<Vec<MemoryMapping>> {
    let refused = |e: std::io::Error| Error::os("read /proc/self/maps", e);
    let file = descriptor::open(FILE, OFlags::RDONLY, Mode::empty());
    let file = std::fs::File::from(file.map_err(|e| refused(e.into()))?);
    let mut found = Vec::new();
    for line in BufReader::new(file).lines() {
        if let Some(mapping) = parse_line(&line.map_err(refused)?) {
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

fn parse_line(line: &str) -> Option<MemoryMapping> {
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
    Some(MemoryMapping {
        range: usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?,
        flags: flag(0, b'r', READABLE)
            | flag(1, b'w', WRITABLE)
            | flag(2, b'x', EXECUTABLE)
            | flag(3, b's', SHARED),
        // The text has no page size. Callers recognise huge pages by the name of the file.
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

    #[test]
    fn holes_are_seen() {
        let a = parse_line("1000-2000 rw-p 00000000 00:00 0 ").expect("a line");
        let b = parse_line("3000-4000 rw-p 00000000 00:00 0 ").expect("a line");
        let cover = |mappings: &[&MemoryMapping], range| {
            let mappings: Vec<_> = mappings.iter().map(|m| (*m).clone()).collect();
            super::cover(&mappings, &range)
        };
        assert!(cover(&[&a], 0x1000..0x2000) && cover(&[&a], 0x1800..0x1801));
        assert!(!cover(&[&a], 0x1000..0x3000) && !cover(&[&a, &b], 0x1000..0x4000));
        assert!(!cover(&[&b], 0x2000..0x4000) && !cover(&[], 0..1));
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn the_kernels_answer_is_the_texts_answer() {
        let maps = Maps::open().expect("/proc/self/maps");
        let here = [1_u8; 3];
        for at in [
            here.as_ptr() as usize,
            holes_are_seen as *const () as usize,
            &raw const SOME_DATA as usize,
        ] {
            let range = at..at + 1;
            let text = read_text(&range).expect("/proc/self/maps");
            let asked = maps.within(&range, FileNames::Read).expect("the mapping");
            assert_eq!((asked.len(), text.len()), (1, 1));
            assert_eq!(asked[0].flags, text[0].flags);
            assert_eq!(
                (asked[0].inode, asked[0].offset, asked[0].device),
                (text[0].inode, text[0].offset, text[0].device)
            );
            assert!(asked[0].allows(false));
            assert!(all().unwrap().iter().any(|one| one.range == text[0].range));
        }
    }

    static SOME_DATA: [u8; 3] = [1, 2, 3];
}

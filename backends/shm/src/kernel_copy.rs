//! Copies by the kernel between this process and memory that only a peer maps.

use std::ops::Range;
use std::sync::atomic::{Ordering, fence};

use unipgas_core::lines::{IN_ORDER, last_word, rest_of_line};
use unipgas_core::op::Flags;
use unipgas_core::{Error, Result};

use crate::peer::PeerProcess;

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// To the peer.
    Write,
    /// From it.
    Read,
}

/// Copies `len` bytes between `local` and the address `there` of `peer`. Errors: [`Error::PeerDead`], [`Error::StaleRegion`],
/// [`Error::Unreachable`], [`Error::Os`].
///
/// # Safety
/// `len` bytes at `local` are valid, for reads or for writes.
pub unsafe fn copy(
    peer: &PeerProcess,
    local: *mut u8,
    there: usize,
    len: usize,
    direction: Direction,
    flags: Flags,
) -> Result<()> {
    let target = match direction {
        Direction::Write => there,
        Direction::Read => local.addr(),
    };
    let ways = Ways {
        peer,
        local,
        there,
        direction,
    };
    if !flags.contains(Flags::LINES) {
        // The kernel's stores are this processor's: what has been put before comes first.
        fence(Ordering::Release);
        // SAFETY:
        // - the caller's word.
        unsafe { ways.copy_all(std::slice::from_ref(&(0..len))) }?;
    } else {
        let mut done = 0;
        while done < len {
            for parts in next_lines(target, len, &mut done, IN_ORDER) {
                fence(Ordering::Release);
                // SAFETY:
                // - parts of the bytes of the caller's word.
                unsafe { ways.copy_all(&parts) }?;
            }
        }
    }
    // What is read later must not be older than what has been read here.
    fence(Ordering::Acquire);
    Ok(())
}

/// Parts that one call takes.
const PARTS: usize = 512;

/// The next lines of a copy to `target`, from `done` on, in two calls at most. The kernel copies parts one after the other: where stores are
/// seen `in_order` the last word of each line is a part behind the rest of it. Elsewhere the last words are a second call's, and the last
/// line is by itself, so that its last word is seen after all others.
fn next_lines(
    target: usize,
    len: usize,
    done: &mut usize,
    in_order: bool,
) -> [Vec<Range<usize>>; 2] {
    let begin = *done;
    let mut calls = [Vec::new(), Vec::new()];
    while *done < len && calls[0].len() + calls[1].len() + 2 <= PARTS {
        let here = rest_of_line(target + *done).min(len - *done);
        let after = *done + here;
        if !in_order && after == len && *done > begin {
            break;
        }
        let end = after - last_word(target + *done, here);
        if end > *done {
            calls[0].push(*done..end);
        }
        calls[usize::from(!in_order)].push(end..after);
        *done = after;
    }
    calls
}

struct Ways<'a> {
    peer: &'a PeerProcess,
    local: *mut u8,
    there: usize,
    direction: Direction,
}

impl Ways<'_> {
    /// # Safety
    /// The parts are valid from `local` on.
    unsafe fn copy_all(&self, parts: &[Range<usize>]) -> Result<()> {
        let mut left: std::collections::VecDeque<_> = parts.iter().cloned().collect();
        left.retain(|part| !part.is_empty());
        while !left.is_empty() {
            // SAFETY:
            // - the caller's word.
            let mut moved = unsafe { self.copy_some(left.make_contiguous()) }?;
            while moved > 0 {
                let Some(first) = left.front_mut() else { break };
                let here = moved.min(first.len());
                first.start += here;
                moved -= here;
                if first.start == first.end {
                    left.pop_front();
                }
            }
        }
        Ok(())
    }

    /// Gives how many bytes of the parts have been copied, at least one.
    ///
    /// # Safety
    /// As [`copy_all`](Self::copy_all); there is a part, and none is empty.
    unsafe fn copy_some(&self, parts: &[Range<usize>]) -> Result<usize> {
        let here: Vec<_> = parts
            .iter()
            .map(|part| libc::iovec {
                iov_base: self.local.wrapping_add(part.start).cast(),
                iov_len: part.len(),
            })
            .collect();
        // Each range of the peer's costs more than one of ours.
        let mut there: Vec<libc::iovec> = Vec::new();
        for part in parts {
            let at = std::ptr::without_provenance_mut(self.there + part.start);
            match there.last_mut() {
                Some(last) if last.iov_base.wrapping_byte_add(last.iov_len) == at => {
                    last.iov_len += part.len();
                }
                _ => there.push(libc::iovec {
                    iov_base: at,
                    iov_len: part.len(),
                }),
            }
        }
        let pid = self.peer.pid() as i32;
        let counts = (here.len() as u64, there.len() as u64);
        let write = self.direction == Direction::Write;
        // SAFETY:
        // - the local bytes are valid by the caller's word; the kernel checks the remote ones.
        let moved = unsafe {
            let (here, there) = (here.as_ptr(), there.as_ptr());
            if write {
                libc::process_vm_writev(pid, here, counts.0, there, counts.1, 0)
            } else {
                libc::process_vm_readv(pid, here, counts.0, there, counts.1, 0)
            }
        };
        if moved > 0 {
            return Ok(moved as usize);
        }
        let error = std::io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EPERM | libc::ENOSYS) => {
                let at = self.there + parts[0].start;
                // SAFETY:
                // - as above.
                unsafe { self.peer.copy_by_file(&here[0], at, write, &error) }
            }
            Some(libc::ESRCH) => Err(Error::PeerDead),
            Some(libc::EFAULT) => Err(Error::StaleRegion),
            _ => Err(Error::os("copy to or from a peer's private memory", error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(target: usize, len: usize, in_order: bool) -> Vec<Vec<Range<usize>>> {
        let (mut done, mut calls) = (0, Vec::new());
        while done < len {
            let next = next_lines(target, len, &mut done, in_order);
            calls.extend(next.into_iter().filter(|parts| !parts.is_empty()));
        }
        calls
    }

    /// When each byte is written: the number of its call, and of its part where the order within a call counts.
    fn times(target: usize, len: usize, in_order: bool) -> Vec<(usize, usize)> {
        let mut times = vec![None; len];
        for (call, parts) in calls(target, len, in_order).into_iter().enumerate() {
            assert!(parts.len() <= PARTS);
            for (nth, part) in parts.into_iter().enumerate() {
                for at in part {
                    let time = (call, if in_order { nth } else { 0 });
                    assert_eq!(times[at].replace(time), None, "{at} is written twice");
                }
            }
        }
        times
            .into_iter()
            .map(|time| time.expect("written"))
            .collect()
    }

    #[test]
    fn the_last_word_of_each_line_is_written_after_the_rest_and_that_of_the_last_line_after_all() {
        let long = 256 * PARTS + 77;
        for in_order in [true, false] {
            for target in [0usize, 1, 8, 100, 250, 255] {
                for len in (1..600).chain([long, 2 * long]) {
                    let times = times(target, len, in_order);
                    let mut begin = 0;
                    while begin < len {
                        let end = len.min(begin + rest_of_line(target + begin));
                        let word = end - last_word(target + begin, end - begin);
                        assert!(times[begin..word].iter().all(|time| *time < times[word]));
                        assert!(times[word..end].iter().all(|time| *time == times[word]));
                        begin = end;
                    }
                    let (last, before) = (times[len - 1], &times[..len - last_word(target, len)]);
                    assert!(before.iter().all(|time| *time < last), "{target} {len}");
                }
            }
        }
    }
}

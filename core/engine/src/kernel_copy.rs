//! Copies by the kernel. They reach memory that only its owner maps, and memory with pages that change ([`Rights::BY_ADDRESS`]). A copy fails at an address
//! without memory; a load or a store would end the process.

use std::ops::Range;
use std::sync::atomic::{Ordering, fence};

use crate::atomic::apply_by_copies;
use crate::lines::{IN_ORDER, last_word, rest_of_line};
use crate::op::{AtomicRequest, Flags, Local, Remote};
use crate::{Error, Result, Rights};

/// Direction of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Stores to the peer.
    Write,
    /// Loads from the peer.
    Read,
}

/// Owner of the remote side of a copy.
#[derive(Clone, Copy)]
pub struct RemoteOwner<'a> {
    /// Process id.
    pub pid: u32,
    /// Copies one piece if the kernel forbids process_vm_readv(2) or process_vm_writev(2). Arguments: valid local bytes, remote address, direction, the
    /// kernel's error. Returns the number of bytes copied.
    pub otherwise: &'a dyn Fn(&libc::iovec, usize, Direction, &std::io::Error) -> Result<usize>,
}

impl RemoteOwner<'static> {
    /// This process.
    pub(crate) fn here() -> Self {
        RemoteOwner {
            pid: std::process::id(),
            otherwise: &|_, _, _, error| Err(Error::os("copy memory of this process", error)),
        }
    }
}

fn address(of: Remote<'_>) -> usize {
    (of.region.parts().detail[0] as usize).wrapping_add(of.offset)
}

impl RemoteOwner<'_> {
    /// As [`Channel::put`](crate::transport::Channel::put). The region's first [detail](crate::region::RemoteParts::detail) is its address in the owner.
    ///
    /// # Safety
    /// `len` bytes at `src` are valid.
    pub unsafe fn put(self, src: Local, dst: Remote<'_>, len: usize, flags: Flags) -> Result<()> {
        dst.region.check(dst.offset, len, Rights::WRITE)?;
        // SAFETY:
        // - contract of this call.
        unsafe { copy(self, src.ptr, address(dst), len, Direction::Write, flags) }?;
        ring(dst, flags);
        Ok(())
    }

    /// As [`Channel::get`](crate::transport::Channel::get), with the address as for `put`.
    ///
    /// # Safety
    /// `len` bytes at `dst` are valid for writes.
    pub unsafe fn get(self, dst: Local, src: Remote<'_>, len: usize, flags: Flags) -> Result<()> {
        src.region.check(src.offset, len, Rights::READ)?;
        // SAFETY:
        // - contract of this call.
        unsafe { copy(self, dst.ptr, address(src), len, Direction::Read, flags) }
    }

    /// As [`Channel::atomic`](crate::transport::Channel::atomic), under the owner's locks alone.
    ///
    /// # Safety
    /// The request's pointers are valid as [`AtomicRequest`] requires.
    pub unsafe fn atomic(
        self,
        dst: Remote<'_>,
        request: &AtomicRequest,
        flags: Flags,
    ) -> Result<()> {
        let AtomicRequest {
            op,
            ty,
            count,
            operand,
            compare,
            result,
        } = *request;
        let len = count.saturating_mul(ty.size());
        dst.region.check(dst.offset, len, Rights::ATOMIC)?;
        let locks = dst.region.locks().ok_or(Error::Unsupported)?;
        let copy = |buffer: &mut [u8], there, write| {
            let direction = match write {
                true => Direction::Write,
                false => Direction::Read,
            };
            let (local, len) = (buffer.as_mut_ptr(), buffer.len());
            // SAFETY:
            // - `local` and `len` are a borrowed buffer.
            unsafe { copy(self, local, there, len, direction, Flags::empty()) }
        };
        let target = std::ptr::without_provenance_mut(address(dst));
        // SAFETY:
        // - contract of this call: operands and results are valid.
        unsafe { apply_by_copies(locks, op, ty, target, count, operand, compare, result, copy) }?;
        ring(dst, flags);
        Ok(())
    }
}

fn ring(dst: Remote<'_>, flags: Flags) {
    if flags.contains(Flags::WAKE)
        && let Some(bell) = dst.region.bell()
    {
        bell.ring_if_heard();
    }
}

/// Copies `len` bytes between `local` and the address `there` of `owner`. Errors: [`Error::PeerDead`]; [`Error::AccessDenied`] if no memory is there, or if
/// it does not permit the access; [`Error::Unreachable`], [`Error::Os`].
///
/// # Safety
/// `len` bytes at `local` are valid, for reads or for writes.
unsafe fn copy(
    owner: RemoteOwner<'_>,
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
        owner,
        local,
        there,
        direction,
    };
    if !flags.contains(Flags::LINES) {
        // The kernel stores on this processor. The fence orders earlier puts before its stores.
        fence(Ordering::Release);
        // SAFETY:
        // - contract of this call.
        unsafe { ways.copy_all(std::slice::from_ref(&(0..len))) }?;
    } else {
        let mut done = 0;
        while done < len {
            for parts in next_lines(target, len, &mut done, IN_ORDER) {
                fence(Ordering::Release);
                // SAFETY:
                // - contract of this call. The parts lie within `len` bytes.
                unsafe { ways.copy_all(&parts) }?;
            }
        }
    }
    // Later reads return no older values than this copy.
    fence(Ordering::Acquire);
    Ok(())
}

/// Most parts of one call.
const PARTS: usize = 512;

/// The next lines of a copy to `target`, from `done` on, in at most two calls. The kernel copies parts in order. If stores are seen `in_order`, the last word
/// of each line is a part behind the rest of the line. Otherwise a second call copies the last words. The last line then comes alone, so that its last word
/// is seen after all others.
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
    owner: RemoteOwner<'a>,
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
            // - contract of this call. No part is empty, and there is one.
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

    /// Returns the number of bytes copied, at least 1.
    ///
    /// # Safety
    /// As [`copy_all`](Self::copy_all). There is a part, and no part is empty.
    unsafe fn copy_some(&self, parts: &[Range<usize>]) -> Result<usize> {
        let here: Vec<_> = parts
            .iter()
            .map(|part| libc::iovec {
                iov_base: self.local.wrapping_add(part.start).cast(),
                iov_len: part.len(),
            })
            .collect();
        // A remote range costs more than a local range.
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
        let pid = self.owner.pid as i32;
        let counts = (here.len() as u64, there.len() as u64);
        // SAFETY:
        // - contract of this call: the local bytes are valid. The kernel checks the remote bytes.
        let moved = unsafe {
            let (here, there) = (here.as_ptr(), there.as_ptr());
            if self.direction == Direction::Write {
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
                (self.owner.otherwise)(&here[0], at, self.direction, &error)
            }
            Some(libc::ESRCH) => Err(Error::PeerDead),
            Some(libc::EFAULT) => Err(Error::AccessDenied),
            _ => Err(Error::os("copy to or from the memory of a process", error)),
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

    /// Time of each byte's write: the number of its call, and of its part if the order within a call counts.
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
                for len in (1..600)
                    .step_by(if cfg!(miri) { 67 } else { 1 })
                    .chain([long, 2 * long])
                {
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

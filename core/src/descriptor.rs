//! File descriptors of the library: none is below 3.
//!
//! A program may run with its standard input, output or error closed. The next file that is opened gets that number, and what the
//! program prints goes into it: into shared memory, if the file is that. So whatever opens one does it here, or under a [`Reserved`].
//! That holds for files which are open for microseconds, too: another thread may print meanwhile.

use std::io::Read;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{MemfdFlags, Mode, OFlags};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::pipe::PipeFlags;
use rustix::process::{Pid, PidfdFlags, Resource, getrlimit};

use crate::{Error, Result};

/// The first number that is free for us.
const FIRST: i32 = 3;

/// While this lives, what is opened in this process gets a number above 2. Numbers that were free are taken by descriptors that can
/// neither be read nor written: to whoever uses them they look closed.
#[derive(Debug, Default)]
pub struct Reserved {
    taken: [Option<OwnedFd>; FIRST as usize],
}

impl Reserved {
    /// Takes those of 0, 1 and 2 that are free. Three quick system calls where none is.
    pub fn take() -> Self {
        let mut reserved = Reserved::default();
        for number in 0..FIRST {
            // SAFETY:
            // - asks about a number; nothing is changed.
            if unsafe { libc::fcntl(number, libc::F_GETFD) } != -1 {
                continue;
            }
            // Gets the lowest free number. Where it cannot be opened, `above` still moves what comes after it.
            let placeholder =
                rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok();
            reserved.taken[number as usize] = placeholder.filter(|fd| fd.as_raw_fd() < FIRST);
        }
        reserved
    }
}

/// What `open` opens, at a number above 2. Errors: those of `open`, and no free descriptor.
pub fn above(open: impl FnOnce() -> rustix::io::Result<OwnedFd>) -> rustix::io::Result<OwnedFd> {
    let _reserved = Reserved::take();
    let fd = open()?;
    if fd.as_raw_fd() >= FIRST {
        return Ok(fd);
    }
    // A thread of the program has closed its standard descriptor just now.
    fcntl_dupfd_cloexec(&fd, FIRST)
}

/// How sockets of ours are: calls do not wait at them, and other programs do not get them.
pub const SOCKET: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

/// A socket for TCP that calls do not wait at, close-on-exec, for addresses like this one. Errors: as socket(2).
pub fn tcp_socket(like: &SocketAddr) -> rustix::io::Result<OwnedFd> {
    let family = match like {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    above(|| socket_with(family, SocketType::STREAM, SOCKET, None))
}

/// Opens `path`, close-on-exec. Errors: as open(2).
pub fn open(path: impl AsRef<Path>, flags: OFlags, mode: Mode) -> rustix::io::Result<OwnedFd> {
    above(|| rustix::fs::open(path.as_ref(), flags | OFlags::CLOEXEC, mode))
}

/// An empty file without a name, close-on-exec. Errors: as memfd_create(2).
pub fn memory(name: &str, flags: MemfdFlags) -> rustix::io::Result<OwnedFd> {
    above(|| rustix::fs::memfd_create(name, flags | MemfdFlags::CLOEXEC))
}

/// The ends of a pipe, to read from and to write to, close-on-exec; neither blocks. Errors: as pipe2(2).
pub fn pipe() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    let _reserved = Reserved::take();
    let (out, into) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    Ok((above(|| Ok(out))?, above(|| Ok(into))?))
}

/// The marks of those that an epoll instance watches, and that are ready now: as many as there is room for.
pub fn ready<'a, E: AsFd>(
    epoll: &E,
    room: &'a mut [libc::epoll_event],
) -> impl Iterator<Item = u64> + use<'a, E> {
    let (fd, most) = (epoll.as_fd().as_raw_fd(), room.len() as libc::c_int);
    // SAFETY:
    // - `room` has space for so many events, and outlives the call.
    let count = unsafe { libc::epoll_wait(fd, room.as_mut_ptr(), most, 0) };
    let count = usize::try_from(count).unwrap_or(0);
    room[..count].iter().map(|event| event.u64)
}

/// A descriptor of the process `pid`. Errors: as pidfd_open(2).
pub fn process(pid: Pid) -> rustix::io::Result<OwnedFd> {
    above(|| rustix::process::pidfd_open(pid, PidfdFlags::empty()))
}

/// The text of a small file, such as those of /proc. Errors: as open(2) and read(2); [`Errno::ILSEQ`] for what is no text.
pub fn read_text(path: impl AsRef<Path>) -> rustix::io::Result<String> {
    String::from_utf8(read_bytes(path)?).map_err(|_| Errno::ILSEQ)
}

fn read_bytes(path: impl AsRef<Path>) -> rustix::io::Result<Vec<u8>> {
    let file = open(path, OFlags::RDONLY, Mode::empty())?;
    // Files of /proc do not say how long they are: most are read at once so.
    let mut bytes = Vec::with_capacity(1024);
    std::fs::File::from(file)
        .read_to_end(&mut bytes)
        .map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
    Ok(bytes)
}

/// What /proc/PID/stat says. Errors: [`Error::PeerDead`] where there is no such process; [`Error::Os`] where /proc does not tell.
pub fn stat_of(pid: u32) -> Result<String> {
    proc_text(&format!("/proc/{pid}/stat"))?.ok_or(Error::PeerDead)
}

/// The state in what /proc/PID/stat says.
pub fn state_in(stat: &str) -> Option<char> {
    stat.rsplit_once(") ")?.1.chars().next()
}

/// The text of a file of /proc, if there is such a one; the kernel cuts names of programs within a character, perhaps. Errors: [`Error::Os`] where it cannot be read, with the remedy.
pub fn proc_text(name: &str) -> Result<Option<String>> {
    match read_bytes(name) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(Errno::NOENT) if !Path::new("/proc/self/stat").exists() => Err(Error::Os(
            "/proc is not there: mount it (mount -t proc proc /proc)".into(),
        )),
        Err(Errno::NOENT | Errno::SRCH) => Ok(None),
        Err(e @ (Errno::MFILE | Errno::NFILE)) => {
            Err(Error::os("/proc cannot be read (raise ulimit -n)", e))
        }
        Err(e) => Err(Error::os(name, e)),
    }
}

/// Whether files may grow to any length; if not, what ends a process that makes one longer (SIGXFSZ).
pub fn file_limit() -> Option<u64> {
    getrlimit(Resource::Fsize).current
}

/// Gives `file`, which is empty, its length; `what` it is stands in the error. Errors: [`Error::Exhausted`] where files may not be that
/// long, [`Error::Os`].
pub fn set_len(file: impl AsFd, len: u64, what: &str) -> Result<()> {
    if let Some(limit) = file_limit().filter(|limit| *limit < len) {
        return Err(Error::Exhausted(format!(
            "room for {what} of {} KiB: ulimit -f allows {} KiB; raise it",
            len >> 10,
            limit >> 10
        )));
    }
    rustix::fs::ftruncate(file, len)
        .map_err(|e| Error::os(&format!("cannot size {what} (ftruncate)"), e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "reads /proc")]
    fn names_that_are_no_text_are_read() {
        let named = std::thread::spawn(|| {
            // SAFETY:
            // - a C string, which is copied.
            unsafe { libc::prctl(libc::PR_SET_NAME, c"cut\xc3".as_ptr()) };
            proc_text("/proc/thread-self/stat")
        });
        let text = named.join().unwrap().unwrap().unwrap();
        assert!(text.contains("(cut\u{fffd})"), "{text}");
    }

    /// The numbers that the others of this process's threads do not care for are those of a child.
    #[test]
    #[cfg_attr(miri, ignore = "forks")]
    fn whatever_is_closed_stays_free_and_is_not_used() {
        for subset in 0..8 {
            // SAFETY:
            // - the child closes descriptors, makes system calls and ends; it allocates nothing and takes no lock.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // SAFETY:
                // - as above.
                unsafe { libc::_exit(i32::from(!keeps_clear(subset))) };
            }
            let mut status = 0;
            // SAFETY:
            // - waits for the child that was just made.
            unsafe { libc::waitpid(child, &mut status, 0) };
            assert_eq!(status, 0, "subset {subset}");
        }
    }

    fn keeps_clear(subset: i32) -> bool {
        let closed = |number: i32| subset >> number & 1 == 1;
        // SAFETY:
        // - asks about a number.
        let is_open = |number: i32| unsafe { libc::fcntl(number, libc::F_GETFD) } != -1;
        for number in 0..FIRST {
            if closed(number) {
                // SAFETY:
                // - nothing in this child uses it.
                unsafe { libc::close(number) };
            }
        }
        let reserved = Reserved::take();
        let text = *b"x";
        // SAFETY:
        // - one byte that lives through the call.
        let written = |number| unsafe { libc::write(number, text.as_ptr().cast(), 1) };
        let harmless =
            (0..FIRST).all(|number| is_open(number) && (!closed(number) || written(number) == -1));
        drop(reserved);
        let Ok(file) = memory("unipgas-test", MemfdFlags::empty()) else {
            return false;
        };
        harmless
            && file.as_raw_fd() >= FIRST
            && (0..FIRST).all(|number| is_open(number) != closed(number))
    }
}

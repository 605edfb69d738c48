//! File descriptors of the library: none is below 3.
//!
//! A program may run with its standard input, output or error closed. The next open file gets that number, and the program's output
//! goes into it: into shared memory, for example. So the library opens files only by this module or under a [`Reserved`]. This includes
//! files that are open for microseconds: another thread may print at the same time.

use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{MemfdFlags, Mode, OFlags};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::pipe::PipeFlags;
use rustix::process::{Pid, PidfdFlags, Resource, getrlimit};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::{Error, Result};

/// Lowest number for descriptors of the library.
const FIRST: i32 = 3;

/// While this exists, new descriptors of this process get numbers above 2. Placeholders take the free numbers. A placeholder can
/// neither be read nor written, so it looks closed.
#[derive(Debug, Default)]
pub struct Reserved {
    taken: [Option<OwnedFd>; FIRST as usize],
}

impl Reserved {
    /// Takes the free numbers among 0, 1 and 2. Three fast system calls if all are in use.
    pub fn take() -> Self {
        let mut reserved = Reserved::default();
        for number in 0..FIRST {
            // SAFETY:
            // - the call only queries a descriptor number.
            if unsafe { libc::fcntl(number, libc::F_GETFD) } != -1 {
                continue;
            }
            // This gets the lowest free number. If it fails, `above` still moves the next descriptor.
            let placeholder =
                rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok();
            reserved.taken[number as usize] = placeholder.filter(|fd| fd.as_raw_fd() < FIRST);
        }
        reserved
    }
}

/// Calls `open`, and returns its descriptor at a number above 2. Errors: as `open`, or no free descriptor.
pub fn above(open: impl FnOnce() -> rustix::io::Result<OwnedFd>) -> rustix::io::Result<OwnedFd> {
    let _reserved = Reserved::take();
    let fd = open()?;
    if fd.as_raw_fd() >= FIRST {
        return Ok(fd);
    }
    // Another thread has closed a standard descriptor concurrently.
    fcntl_dupfd_cloexec(&fd, FIRST)
}

/// Flags of the library's sockets: nonblocking and close-on-exec.
pub const SOCKET: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

/// A nonblocking TCP socket, close-on-exec, of the address family of `like`. Errors: as socket(2).
pub fn tcp_socket(like: &SocketAddr) -> rustix::io::Result<OwnedFd> {
    let family = match like {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    above(|| socket_with(family, SocketType::STREAM, SOCKET, None))
}

/// A socket that listens on any TCP port of this host address, and its address. `backlog`: the kernel reduces it to its limit. Errors: [`Error::Os`].
pub fn tcp_listener(ip: IpAddr, backlog: i32) -> Result<(OwnedFd, SocketAddr)> {
    let os = |what: &'static str| move |error: Errno| Error::os(what, error);
    let any = SocketAddr::new(ip, 0);
    let socket = tcp_socket(&any).map_err(os("socket"))?;
    rustix::net::bind(&socket, &any).map_err(os("bind"))?;
    rustix::net::listen(&socket, backlog).map_err(os("listen"))?;
    let bound = rustix::net::getsockname(&socket).and_then(SocketAddr::try_from);
    Ok((socket, bound.map_err(os("getsockname"))?))
}

/// A nonblocking timer of the monotonic clock, close-on-exec. Errors: [`Error::Os`].
pub fn timer() -> Result<OwnedFd> {
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    above(|| timerfd_create(TimerfdClockId::Monotonic, flags))
        .map_err(|error| Error::os("timerfd_create", error))
}

/// Makes the timer readable once, after this time of less than a second.
pub fn set_timer(timer: &OwnedFd, nanoseconds: i64) {
    let time = |nanoseconds| Timespec {
        tv_sec: 0,
        tv_nsec: nanoseconds,
    };
    let once = Itimerspec {
        it_interval: time(0),
        it_value: time(nanoseconds),
    };
    let _ = timerfd_settime(timer, TimerfdTimerFlags::empty(), &once);
}

/// Opens `path`, close-on-exec. Errors: as open(2).
pub fn open(path: impl AsRef<Path>, flags: OFlags, mode: Mode) -> rustix::io::Result<OwnedFd> {
    above(|| rustix::fs::open(path.as_ref(), flags | OFlags::CLOEXEC, mode))
}

/// An empty file without a name, close-on-exec. Errors: as memfd_create(2).
pub fn memory(name: &str, flags: MemfdFlags) -> rustix::io::Result<OwnedFd> {
    above(|| rustix::fs::memfd_create(name, flags | MemfdFlags::CLOEXEC))
}

/// The read end and the write end of a pipe, close-on-exec and nonblocking. Errors: as pipe2(2).
pub fn pipe() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    let _reserved = Reserved::take();
    let (out, into) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    Ok((above(|| Ok(out))?, above(|| Ok(into))?))
}

/// The tags of descriptors in an epoll instance that are ready now, `room.len()` at most.
pub fn ready<'a, E: AsFd>(
    epoll: &E,
    room: &'a mut [libc::epoll_event],
) -> impl Iterator<Item = u64> + use<'a, E> {
    let (fd, most) = (epoll.as_fd().as_raw_fd(), room.len() as libc::c_int);
    // SAFETY:
    // - `room` has space for `most` events, and outlives the call.
    let count = unsafe { libc::epoll_wait(fd, room.as_mut_ptr(), most, 0) };
    let count = usize::try_from(count).unwrap_or(0);
    room[..count].iter().map(|event| event.u64)
}

/// A pidfd of the process `pid`. Errors: as pidfd_open(2).
pub fn process(pid: Pid) -> rustix::io::Result<OwnedFd> {
    above(|| rustix::process::pidfd_open(pid, PidfdFlags::empty()))
}

/// The text of a small file, such as one in /proc. Errors: as open(2) and read(2); [`Errno::ILSEQ`] if it is not UTF-8.
pub fn read_text(path: impl AsRef<Path>) -> rustix::io::Result<String> {
    String::from_utf8(read_bytes(path)?).map_err(|_| Errno::ILSEQ)
}

fn read_bytes(path: impl AsRef<Path>) -> rustix::io::Result<Vec<u8>> {
    let file = open(path, OFlags::RDONLY, Mode::empty())?;
    // Files of /proc have no length. This size holds most of them at once.
    let mut bytes = Vec::with_capacity(1024);
    std::fs::File::from(file)
        .read_to_end(&mut bytes)
        .map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
    Ok(bytes)
}

/// The text of /proc/PID/stat. Errors: [`Error::PeerDead`] if the process does not exist; [`Error::Os`] if /proc cannot be read.
pub fn stat_of(pid: u32) -> Result<String> {
    proc_text(&format!("/proc/{pid}/stat"))?.ok_or(Error::PeerDead)
}

/// The process state in the text of /proc/PID/stat.
pub fn state_in(stat: &str) -> Option<char> {
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Field `nth` of the text of /proc/PID/stat (proc_pid_stat(5)), from the fourth on. The second may hold blanks and parentheses.
pub fn field_in(stat: &str, nth: usize) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split_ascii_whitespace().nth(nth - 3)?.parse().ok()
}

/// The text of a file of /proc, or `None` without such a file. The kernel may cut a program's name within a character, so the
/// conversion is lossy. Errors: [`Error::Os`] with the remedy if it cannot be read.
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

/// The limit on file size in bytes, or `None`. SIGXFSZ ends a process that exceeds it.
pub fn file_limit() -> Option<u64> {
    getrlimit(Resource::Fsize).current
}

/// Sets the length of the empty `file`. `what` names it in the error. Errors: [`Error::Exhausted`] if `len` exceeds the limit on file
/// size, [`Error::Os`].
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
            // - the argument is a C string, and the kernel copies it.
            unsafe { libc::prctl(libc::PR_SET_NAME, c"cut\xc3".as_ptr()) };
            proc_text("/proc/thread-self/stat")
        });
        let text = named.join().unwrap().unwrap().unwrap();
        assert!(text.contains("(cut\u{fffd})"), "{text}");
    }

    /// The test runs in a child: the other threads of this process need their standard descriptors.
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
            // - the call waits for the child above.
            unsafe { libc::waitpid(child, &mut status, 0) };
            assert_eq!(status, 0, "subset {subset}");
        }
    }

    fn keeps_clear(subset: i32) -> bool {
        let closed = |number: i32| subset >> number & 1 == 1;
        // SAFETY:
        // - the call only queries a descriptor number.
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

//! Signals that the launcher receives and forwards.

use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use unipgas_core::{Error, Result};

/// Two interrupts within this time are one keypress that came by two ways.
pub(super) const ONE_KEYPRESS: Duration = Duration::from_millis(100);

const FORWARDED: [i32; 6] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
];

/// A write to a closed pipe fails instead of raising SIGPIPE.
pub fn ignore_broken_pipes() {
    // SAFETY:
    // - sets a disposition; the standard library restores the default one for programs that it starts.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}

/// The name of a signal, such as `SIGKILL`.
pub(crate) fn signal_name(signal: i32) -> &'static str {
    match signal {
        libc::SIGHUP => "SIGHUP",
        libc::SIGINT => "SIGINT",
        libc::SIGQUIT => "SIGQUIT",
        libc::SIGILL => "SIGILL",
        libc::SIGTRAP => "SIGTRAP",
        libc::SIGABRT => "SIGABRT",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGKILL => "SIGKILL",
        libc::SIGUSR1 => "SIGUSR1",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGUSR2 => "SIGUSR2",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGALRM => "SIGALRM",
        libc::SIGTERM => "SIGTERM",
        libc::SIGXCPU => "SIGXCPU",
        libc::SIGXFSZ => "SIGXFSZ",
        libc::SIGVTALRM => "SIGVTALRM",
        libc::SIGPROF => "SIGPROF",
        libc::SIGSYS => "SIGSYS",
        _ => "no common signal",
    }
}

/// Whether the signal asks the launcher for a picture of the ranks. The launcher forwards it only to processes that handle it, so it ends no other.
pub(super) fn asks(signal: i32) -> bool {
    matches!(signal, libc::SIGUSR1 | libc::SIGQUIT)
}

/// Whether the signal asks the job to end.
pub(super) fn ends(signal: i32) -> bool {
    matches!(signal, libc::SIGHUP | libc::SIGINT | libc::SIGTERM)
}

/// A signal that arrived.
pub(super) struct Arrived {
    pub signal: i32,
    /// The terminal sent it. The ranks got it too, since they are in the same process group.
    pub from_terminal: bool,
}

/// Blocks the signals that the launcher forwards in this thread, and reads them from a descriptor. Drop restores the mask.
pub(super) struct Inbox {
    fd: OwnedFd,
    /// A shell ignores these signals in background jobs of a script. Then the launcher drops them if they come from the terminal.
    not_from_terminal: Vec<i32>,
    before: libc::sigset_t,
}

impl Inbox {
    pub(crate) fn open() -> Result<Inbox> {
        let mut set = empty_set();
        let is_shells = |signal: &i32| matches!(*signal, libc::SIGINT | libc::SIGQUIT);
        let (ignored, mut taken): (Vec<i32>, Vec<i32>) =
            FORWARDED.into_iter().partition(|signal| ignored(*signal));
        // Other ignored signals (nohup) stay ignored.
        let not_from_terminal: Vec<i32> = ignored.into_iter().filter(is_shells).collect();
        taken.extend(&not_from_terminal);
        for signal in taken {
            // SAFETY:
            // - `set` is an initialised set.
            unsafe { libc::sigaddset(&mut set, signal) };
        }
        let mut before = empty_set();
        // SAFETY:
        // - both sets are initialised and live through the call.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut before) };
        // SAFETY:
        // - `set` is initialised; -1 asks for a new descriptor.
        let fd = unsafe { libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            let error = std::io::Error::last_os_error();
            restore(&before);
            return Err(Error::os("cannot take signals (signalfd)", error));
        }
        // SAFETY:
        // - signalfd has just returned the descriptor, which has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Inbox {
            fd,
            not_from_terminal,
            before,
        })
    }

    /// The signal mask before, for the ranks.
    pub(crate) fn mask_before(&self) -> libc::sigset_t {
        self.before
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The next signal that has arrived.
    pub fn next(&self) -> Option<Arrived> {
        const LEN: usize = size_of::<libc::signalfd_siginfo>();
        let mut raw = [0u8; LEN];
        loop {
            if rustix::io::read(&self.fd, &mut raw) != Ok(LEN) {
                return None;
            }
            // SAFETY:
            // - the kernel filled all bytes of the structure, which has only integers.
            let info: libc::signalfd_siginfo =
                unsafe { std::ptr::read_unaligned(raw.as_ptr().cast()) };
            let signal = info.ssi_signo as i32;
            // The kernel sends a hangup to the session leader only, so the launcher forwards it.
            let from_terminal = info.ssi_code == libc::SI_KERNEL && signal != libc::SIGHUP;
            if !(from_terminal && self.not_from_terminal.contains(&signal)) {
                return Some(Arrived {
                    signal,
                    from_terminal,
                });
            }
        }
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        restore(&self.before);
    }
}

/// The calling thread's signal mask.
pub(super) fn current_mask() -> libc::sigset_t {
    let mut mask = empty_set();
    // SAFETY:
    // - a null new set changes nothing; `mask` lives through the call.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut mask) };
    mask
}

fn restore(mask: &libc::sigset_t) {
    // SAFETY:
    // - `mask` is an initialised set.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, std::ptr::null_mut()) };
}

fn empty_set() -> libc::sigset_t {
    // SAFETY:
    // - a set of zero bytes is a valid value of the type, and sigemptyset initialises it.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        set
    }
}

fn ignored(signal: i32) -> bool {
    // SAFETY:
    // - a null new action changes nothing; zero bytes are a valid value of the structure, which the call fills.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &mut action) == 0
            && action.sa_sigaction == libc::SIG_IGN
    }
}

//! The few userfaultfd calls that a swap needs: hold back writers, fill pages, wake.

use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{self, Opcode, Updater, opcode};
use rustix::mm::UserfaultfdFlags;
use unipgas_core::descriptor::{self, Reserved};

/// `_UFFDIO` type byte.
const TYPE: u8 = 0xAA;
const API_VERSION: u64 = 0xAA;
const FEATURE_WP: u64 = 1 << 0;
const FEATURE_WP_SHMEM: u64 = 1 << 12;
const FEATURE_WP_UNPOPULATED: u64 = 1 << 13;
const REGISTER_MISSING: u64 = 1 << 0;
const REGISTER_WP: u64 = 1 << 1;
const WRITEPROTECT_ON: u64 = 1 << 0;

#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct Span {
    start: u64,
    len: u64,
}

#[repr(C)]
struct Register {
    range: Span,
    mode: u64,
    ioctls: u64,
}

#[repr(C)]
struct Copy {
    dst: u64,
    src: u64,
    len: u64,
    mode: u64,
    copied: i64,
}

#[repr(C)]
struct WriteProtect {
    range: Span,
    mode: u64,
}

const UFFDIO_API: Opcode = opcode::read_write::<Api>(TYPE, 0x3F);
const UFFDIO_REGISTER: Opcode = opcode::read_write::<Register>(TYPE, 0x00);
const UFFDIO_UNREGISTER: Opcode = opcode::read::<Span>(TYPE, 0x01);
const UFFDIO_WAKE: Opcode = opcode::read::<Span>(TYPE, 0x02);
const UFFDIO_COPY: Opcode = opcode::read_write::<Copy>(TYPE, 0x03);
const UFFDIO_WRITEPROTECT: Opcode = opcode::read_write::<WriteProtect>(TYPE, 0x06);
const USERFAULTFD_IOC_NEW: Opcode = opcode::none(TYPE, 0x00);

/// A userfaultfd that serves faults of user code and of system calls alike.
pub(super) struct Uffd {
    fd: OwnedFd,
    /// Pages never touched can be write-protected as they are (Linux 6.4).
    pub(super) protects_unpopulated: bool,
}

impl Uffd {
    /// Opens one; the error says in words what is missing.
    pub(super) fn open() -> Result<Uffd, String> {
        let probe = raw_open()?;
        let supported =
            handshake(&probe, 0).map_err(|e| format!("userfaultfd's handshake failed: {e}"))?;
        let needed = FEATURE_WP | FEATURE_WP_SHMEM;
        if supported & needed != needed {
            return Err(
                "this kernel's userfaultfd cannot write-protect shared memory (Linux 5.19 can)"
                    .into(),
            );
        }
        let fd = raw_open()?;
        let wanted = needed | (supported & FEATURE_WP_UNPOPULATED);
        handshake(&fd, wanted).map_err(|e| format!("userfaultfd refused its features: {e}"))?;
        Ok(Uffd {
            fd,
            protects_unpopulated: supported & FEATURE_WP_UNPOPULATED != 0,
        })
    }

    /// Watches for writes to `range`; nothing is held back before [`Uffd::protect`].
    pub(super) fn watch_writes(&self, range: &Range<usize>) -> Result<(), Errno> {
        self.register(range, REGISTER_WP)
    }

    /// Makes `range` fillable by [`Uffd::fill`].
    pub(super) fn watch_missing(&self, range: &Range<usize>) -> Result<(), Errno> {
        self.register(range, REGISTER_MISSING)
    }

    fn register(&self, range: &Range<usize>, mode: u64) -> Result<(), Errno> {
        self.call::<UFFDIO_REGISTER, _>(&mut Register {
            range: span(range),
            mode,
            ioctls: 0,
        })
    }

    /// Forgets `range` and wakes whoever sleeps on it.
    pub(super) fn forget(&self, range: &Range<usize>) -> Result<(), Errno> {
        self.call::<UFFDIO_UNREGISTER, _>(&mut span(range))
    }

    /// From its return until [`Uffd::unprotect`], every write to `range`, by any thread or system call, sleeps.
    pub(super) fn protect(&self, range: &Range<usize>) -> Result<(), Errno> {
        self.call::<UFFDIO_WRITEPROTECT, _>(&mut WriteProtect {
            range: span(range),
            mode: WRITEPROTECT_ON,
        })
    }

    /// Lets writers on again, and wakes them.
    pub(super) fn unprotect(&self, range: &Range<usize>) -> Result<(), Errno> {
        self.call::<UFFDIO_WRITEPROTECT, _>(&mut WriteProtect {
            range: span(range),
            mode: 0,
        })
    }

    /// Wakes whoever sleeps on `range`.
    pub(super) fn wake(&self, range: &Range<usize>) -> Result<(), Errno> {
        self.call::<UFFDIO_WAKE, _>(&mut span(range))
    }

    /// Fills missing pages at `dst` from `src`. The error comes with the bytes that were filled before it;
    /// `EEXIST` stands for a page that is not missing.
    pub(super) fn fill(&self, dst: usize, src: usize, len: usize) -> Result<(), (usize, Errno)> {
        let mut done = 0;
        while done < len {
            let mut order = Copy {
                dst: (dst + done) as u64,
                src: (src + done) as u64,
                len: (len - done) as u64,
                mode: 0,
                copied: 0,
            };
            let answer = self.call::<UFFDIO_COPY, _>(&mut order);
            done += usize::try_from(order.copied).unwrap_or(0);
            match answer {
                Ok(()) | Err(Errno::AGAIN) => {}
                Err(errno) => return Err((done, errno)),
            }
        }
        Ok(())
    }

    fn call<const OPCODE: Opcode, T>(&self, argument: &mut T) -> Result<(), Errno> {
        // SAFETY:
        // - each opcode above is built from the size of the structure that its one caller passes
        // - the structures have the kernel's layout; the kernel writes to nothing else through this call except the
        //   pages that `fill` names, which its caller owns
        unsafe { ioctl::ioctl(&self.fd, Updater::<OPCODE, T>::new(argument)) }
    }
}

fn span(range: &Range<usize>) -> Span {
    Span {
        start: range.start as u64,
        len: (range.end - range.start) as u64,
    }
}

fn handshake(fd: &OwnedFd, features: u64) -> Result<u64, Errno> {
    let mut api = Api {
        api: API_VERSION,
        features,
        ioctls: 0,
    };
    // SAFETY:
    // - UFFDIO_API reads and writes one `uffdio_api`, whose layout `Api` has
    unsafe { ioctl::ioctl(fd, Updater::<UFFDIO_API, Api>::new(&mut api)) }?;
    Ok(api.features)
}

fn raw_open() -> Result<OwnedFd, String> {
    let flags = UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::NONBLOCK;
    // SAFETY:
    // - the descriptor stays in this module, which registers only ranges that its caller vouches for
    let by_call = descriptor::above(|| unsafe { rustix::mm::userfaultfd(flags) });
    let errno = match by_call {
        Ok(fd) => return Ok(fd),
        Err(errno) => errno,
    };
    if errno == Errno::NOSYS {
        return Err("this kernel has no userfaultfd".into());
    }
    let denied = || {
        format!(
            "userfaultfd is not permitted ({errno}): set vm.unprivileged_userfaultfd=1, grant access to \
             /dev/userfaultfd, or give the program CAP_SYS_PTRACE"
        )
    };
    let device =
        descriptor::open("/dev/userfaultfd", OFlags::RDWR, Mode::empty()).map_err(|_| denied())?;
    let _reserved = Reserved::take();
    // SAFETY:
    // - USERFAULTFD_IOC_NEW takes the flags by value and touches no memory
    let raw = unsafe {
        libc::ioctl(
            device.as_raw_fd(),
            libc::c_ulong::from(USERFAULTFD_IOC_NEW) as _,
            flags.bits(),
        )
    };
    if raw < 0 {
        return Err(denied());
    }
    // SAFETY:
    // - the ioctl returned a new descriptor that nobody else owns
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

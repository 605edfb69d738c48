//! The calls of a userfaultfd: userfaultfd(2) and ioctl_userfaultfd(2).

use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{self, Opcode, Updater, opcode};
use rustix::mm::UserfaultfdFlags;

use crate::descriptor::{self, Reserved};

/// Type byte of the ioctl numbers.
const TYPE: u8 = 0xAA;
const API_VERSION: u64 = 0xAA;
const WRITEPROTECT_ON: u64 = 1 << 0;
/// `UFFD_USER_MODE_ONLY` (Linux 5.11).
const USER_MODE_ONLY: u32 = 1;

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

bitflags::bitflags! {
    /// `UFFD_FEATURE_*`: events and abilities of the kernel.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Features: u64 {
        /// Write protection of private memory.
        const WP = 1 << 0;
        /// Events for `mremap`.
        const EVENT_REMAP = 1 << 2;
        /// Events for `madvise` calls that release pages.
        const EVENT_REMOVE = 1 << 3;
        /// Events for `munmap`.
        const EVENT_UNMAP = 1 << 6;
        /// Write protection of shared memory (Linux 5.19).
        const WP_SHMEM = 1 << 12;
        /// Write protection of untouched pages, without populating them (Linux 6.4).
        const WP_UNPOPULATED = 1 << 13;
    }
}

/// Kind of faults that a registered range reports.
#[derive(Debug, Clone, Copy)]
#[repr(u64)]
pub enum FaultKinds {
    /// Accesses to missing pages.
    Missing = 1 << 0,
    /// Writes to write-protected pages.
    Protected = 1 << 1,
}

/// An open userfaultfd. Reads from its descriptor do not block.
#[derive(Debug)]
pub struct Userfaultfd(OwnedFd);

impl Userfaultfd {
    /// Opens one for faults of user code alone, which needs no privilege. Errors: as userfaultfd(2).
    pub fn of_user_code() -> Result<Self, Errno> {
        by_call(flags() | UserfaultfdFlags::from_bits_retain(USER_MODE_ONLY))
    }

    /// Opens one for faults of user code and of system calls. Errors: a text with the cause and the remedy.
    pub fn of_all_code() -> Result<Self, String> {
        let errno = match by_call(flags()) {
            Ok(userfaultfd) => return Ok(userfaultfd),
            Err(errno) => errno,
        };
        if errno == Errno::NOSYS {
            return Err("this kernel has no userfaultfd".into());
        }
        by_device().map_err(|_| {
            format!(
                "userfaultfd is not permitted ({errno}): set vm.unprivileged_userfaultfd=1, grant access to \
                 /dev/userfaultfd, or give the program CAP_SYS_PTRACE"
            )
        })
    }

    /// The mandatory first call: requests features, returns the features of the kernel. A second call fails. Errors: as UFFDIO_API.
    pub fn handshake(&self, features: Features) -> Result<Features, Errno> {
        let mut api = Api {
            api: API_VERSION,
            features: features.bits(),
            ioctls: 0,
        };
        self.call::<UFFDIO_API, _>(&mut api)?;
        Ok(Features::from_bits_retain(api.features))
    }

    /// Reports faults in `range`, which is whole pages. Errors: as UFFDIO_REGISTER.
    pub fn register(&self, range: &Range<usize>, faults: FaultKinds) -> Result<(), Errno> {
        self.call::<UFFDIO_REGISTER, _>(&mut Register {
            range: span(range),
            mode: faults as u64,
            ioctls: 0,
        })
    }

    /// Stops the reports for `range` and wakes threads that wait there. Errors: as UFFDIO_UNREGISTER.
    pub fn unregister(&self, range: &Range<usize>) -> Result<(), Errno> {
        self.call::<UFFDIO_UNREGISTER, _>(&mut span(range))
    }

    /// Write-protects `range`: writes block until [`unprotect`](Userfaultfd::unprotect). Errors: as UFFDIO_WRITEPROTECT.
    pub fn protect(&self, range: &Range<usize>) -> Result<(), Errno> {
        self.write_protect(range, WRITEPROTECT_ON)
    }

    /// Ends the write protection and wakes blocked writers. Errors: as UFFDIO_WRITEPROTECT.
    pub fn unprotect(&self, range: &Range<usize>) -> Result<(), Errno> {
        self.write_protect(range, 0)
    }

    fn write_protect(&self, range: &Range<usize>, mode: u64) -> Result<(), Errno> {
        self.call::<UFFDIO_WRITEPROTECT, _>(&mut WriteProtect {
            range: span(range),
            mode,
        })
    }

    /// Wakes threads that wait on a fault in `range`. Errors: as UFFDIO_WAKE.
    pub fn wake(&self, range: &Range<usize>) -> Result<(), Errno> {
        self.call::<UFFDIO_WAKE, _>(&mut span(range))
    }

    /// Fills missing pages. An error comes with the number of bytes filled before it; `EEXIST` means that a page is present.
    ///
    /// # Safety
    /// The caller owns the missing pages among the `len` bytes at `dst`; `len` bytes at `src` are readable.
    pub unsafe fn fill(&self, dst: usize, src: usize, len: usize) -> Result<(), (usize, Errno)> {
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
        // - each opcode has the size of the structure that its caller passes, and the structure has the kernel's layout;
        // - the kernel writes only to the structure and to the pages that the contract of `fill` covers.
        unsafe { ioctl::ioctl(&self.0, Updater::<OPCODE, T>::new(argument)) }
    }
}

impl AsFd for Userfaultfd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn flags() -> UserfaultfdFlags {
    UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::NONBLOCK
}

fn by_call(flags: UserfaultfdFlags) -> Result<Userfaultfd, Errno> {
    // SAFETY:
    // - the call changes no memory; pages change only by the calls above.
    descriptor::above(|| unsafe { rustix::mm::userfaultfd(flags) }).map(Userfaultfd)
}

fn by_device() -> Result<Userfaultfd, Errno> {
    let device = descriptor::open("/dev/userfaultfd", OFlags::RDWR, Mode::empty())?;
    let _reserved = Reserved::take();
    // SAFETY:
    // - USERFAULTFD_IOC_NEW takes the flags by value and touches no memory.
    let raw = unsafe {
        libc::ioctl(
            device.as_raw_fd(),
            libc::c_ulong::from(USERFAULTFD_IOC_NEW) as _,
            flags().bits(),
        )
    };
    if raw < 0 {
        return Err(Errno::PERM);
    }
    // SAFETY:
    // - the ioctl returned a new descriptor without another owner.
    Ok(Userfaultfd(unsafe { OwnedFd::from_raw_fd(raw) }))
}

fn span(range: &Range<usize>) -> Span {
    Span {
        start: range.start as u64,
        len: (range.end - range.start) as u64,
    }
}

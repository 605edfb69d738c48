//! The job's file: opening, creation, locking, and removal after its processes have ended.
//!
//! Two bytes have locks that belong to the open file (F_OFD_SETLK), so the kernel releases them when a process dies. All attached processes share `LIFE`. A
//! process that gets it exclusively is the only one attached. A process that changes the file holds `CHANGE` exclusively. `LIFE` is acquired, upgraded or tried
//! only under `CHANGE`, and without waiting. So a process that is about to attach is not overlooked, and there is no deadlock.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use unipgas_base::{Error, Result, descriptor};

const LIFE: i64 = 0;
const CHANGE: i64 = 1;

fn lock(fd: BorrowedFd<'_>, command: i32, kind: i32, byte: i64) -> std::result::Result<(), Errno> {
    // SAFETY:
    // - all-zero bytes are a valid flock; its pid must be zero for these commands.
    let mut range: libc::flock = unsafe { std::mem::zeroed() };
    range.l_type = kind as _;
    range.l_whence = libc::SEEK_SET as _;
    range.l_start = byte as _;
    range.l_len = 1;
    loop {
        // SAFETY:
        // - `range` is valid for the call. If the descriptor is not open, the call fails.
        if unsafe { libc::fcntl(fd.as_raw_fd(), command, &mut range) } == 0 {
            return Ok(());
        }
        match Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO) {
            Errno::INTR => {}
            error => return Err(error),
        }
    }
}

fn try_lock(fd: BorrowedFd<'_>, kind: i32, byte: i64) -> Result<bool> {
    match lock(fd, libc::F_OFD_SETLK, kind, byte) {
        Ok(()) => Ok(true),
        Err(Errno::AGAIN | Errno::ACCESS) => Ok(false),
        Err(error) => Err(Error::os(
            "cannot lock the rendezvous file (F_OFD_SETLK)",
            error,
        )),
    }
}

/// The right to change the file, until dropped.
pub(super) struct Change<'a>(BorrowedFd<'a>);

impl<'a> Change<'a> {
    /// Waits for the right. Holders keep it for some microseconds, unless they are stopped.
    pub(crate) fn wait(fd: BorrowedFd<'a>) -> Result<Self> {
        lock(fd, libc::F_OFD_SETLKW, libc::F_WRLCK, CHANGE)
            .map_err(|e| Error::os("cannot lock the rendezvous file (F_OFD_SETLKW)", e))?;
        Ok(Change(fd))
    }

    fn attempt(fd: BorrowedFd<'a>) -> Result<Option<Self>> {
        Ok(try_lock(fd, libc::F_WRLCK, CHANGE)?.then_some(Change(fd)))
    }

    /// Whether no other process is attached. If so, the file is locked for all others until [`attach`](Self::attach) or its close.
    pub fn alone(&self) -> Result<bool> {
        try_lock(self.0, libc::F_WRLCK, LIFE)
    }

    /// Attaches this process, until the file is closed. False: a foreign program has locked the file.
    pub fn attach(&self) -> Result<bool> {
        try_lock(self.0, libc::F_RDLCK, LIFE)
    }

    /// Ends the attachment. A close is not sufficient while a child that another thread is starting has the file open too.
    pub(crate) fn detach(&self) {
        // Cannot fail. The close of the file would release it, too.
        let _ = lock(self.0, libc::F_OFD_SETLK, libc::F_UNLCK, LIFE);
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        // Cannot fail for a lock that is held. The close of the file would release it, too.
        let _ = lock(self.0, libc::F_OFD_SETLK, libc::F_UNLCK, CHANGE);
    }
}

fn uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// `unipgas-<uid>-<hash>`
pub(super) fn file_name(hash: u64) -> String {
    format!("unipgas-{}-{hash:016x}", uid())
}

/// Directory of the files of all jobs of this machine: the first writable one of /dev/shm, XDG_RUNTIME_DIR, /tmp.
///
/// # Errors
/// [`Error::Os`] if none is writable.
pub(super) fn directory() -> Result<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|value| !value.is_empty());
    let candidates = [Some("/dev/shm".into()), runtime, Some("/tmp".into())];
    first_usable(candidates.into_iter().flatten().map(PathBuf::from))
}

fn first_usable(candidates: impl Iterator<Item = PathBuf>) -> Result<PathBuf> {
    use rustix::fs::{Access, access};
    candidates
        .into_iter()
        .find(|path| path.is_dir() && access(path, Access::WRITE_OK | Access::EXEC_OK).is_ok())
        .ok_or_else(|| {
            Error::Os(
                "no directory for the rendezvous of the job's processes: make /dev/shm, XDG_RUNTIME_DIR or /tmp writable"
                    .into(),
            )
        })
}

/// Opens the file at `path`, or creates it. Errors: [`Error::Os`], also if the path has something that this user's processes did not create.
pub(super) fn open_or_make(path: &Path) -> Result<OwnedFd> {
    loop {
        match open(path, OFlags::empty()) {
            Err(Errno::NOENT) => match open(path, OFlags::CREATE | OFlags::EXCL) {
                Ok(file) => {
                    // Sets the mode bits that the umask has removed.
                    rustix::fs::fchmod(&file, Mode::RUSR | Mode::WUSR)
                        .map_err(|e| Error::os("cannot set the rendezvous file's mode", e))?;
                    return Ok(file);
                }
                Err(Errno::EXIST) => {}
                Err(error) => {
                    return Err(Error::os(&format!("cannot make {}", path.display()), error));
                }
            },
            Err(Errno::LOOP) => return Err(not_ours(path, "is a symbolic link")),
            Err(error) => {
                return Err(match fs::symlink_metadata(path) {
                    Ok(there) if there.uid() != uid() => {
                        not_ours(path, &format!("belongs to user {}", there.uid()))
                    }
                    Ok(there) if !there.is_file() => not_ours(path, "is not a regular file"),
                    _ => Error::os(&format!("cannot open {}", path.display()), error),
                });
            }
            Ok(file) => {
                let stat = rustix::fs::fstat(&file)
                    .map_err(|e| Error::os("cannot examine the rendezvous file (fstat)", e))?;
                if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
                    return Err(not_ours(path, "is not a regular file"));
                }
                if stat.st_uid != uid() {
                    return Err(not_ours(path, &format!("belongs to user {}", stat.st_uid)));
                }
                return Ok(file);
            }
        }
    }
}

fn open(path: &Path, more: OFlags) -> rustix::io::Result<OwnedFd> {
    // Without NONBLOCK, opening a device could block.
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | more;
    descriptor::open(path, flags, Mode::RUSR | Mode::WUSR)
}

#[cold]
fn not_ours(path: &Path, what: &str) -> Error {
    Error::Os(format!(
        "{} {what}, but should be a rendezvous file of user {}: remove it",
        path.display(),
        uid()
    ))
}

/// Whether `path` still leads to the open `file`.
pub(super) fn is_at(file: impl AsFd, path: &Path) -> bool {
    let open = rustix::fs::fstat(file);
    let named = rustix::fs::statat(rustix::fs::CWD, path, AtFlags::SYMLINK_NOFOLLOW);
    matches!((open, named), (Ok(a), Ok(b)) if (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino))
}

/// Removes the rendezvous files of this user without attached processes from `directory`. Files of other users, and files with errors, stay.
pub(super) fn sweep(directory: &Path) {
    let prefix = format!("unipgas-{}-", uid());
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let ours = name
            .to_str()
            .and_then(|name| name.strip_prefix(&prefix))
            .is_some_and(|hash| hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit()));
        if ours {
            // A failure does not prevent joining another file.
            let _ = remove_if_deserted(&entry.path());
        }
    }
}

fn remove_if_deserted(path: &Path) -> Result<()> {
    let stat = fs::symlink_metadata(path).map_err(|e| Error::os("stat", e))?;
    if !stat.is_file() || stat.uid() != uid() {
        return Ok(());
    }
    let file = open(path, OFlags::empty()).map_err(|e| Error::os("open", e))?;
    // A process that changes the file is attached, or about to attach.
    let Some(change) = Change::attempt(file.as_fd())? else {
        return Ok(());
    };
    if change.alone()? && is_at(&file, path) {
        let _ = rustix::fs::unlink(path);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "asks for rights of directories")]
    fn the_first_directory_that_can_be_written_is_taken() {
        let here = std::env::temp_dir();
        let missing = here.join("unipgas-no-such-directory");
        let file = std::env::current_exe().unwrap();
        let found = first_usable([missing.clone(), file.clone(), here.clone()].into_iter());
        assert_eq!(found.unwrap(), here);
        assert!(first_usable([missing, file].into_iter()).is_err());
    }
}

//! Tools for the laws of all interfaces. The `kit` beside an interface's laws has its calls and their codes.

mod memory;
mod processes;
mod sides;
mod stopped;
mod table;

use std::fmt::Display;
use std::panic::Location;
use std::path::PathBuf;
use std::time::Duration;

pub(crate) use memory::{Memory, same};
pub(crate) use processes::{Child, child, program, shared_words};
pub(crate) use sides::{Lose, Sides};
pub(crate) use stopped::{Stopped, last_stops_for_a_while, stop_until_killed};
pub(crate) use table::{check, check_rows, table};

use crate::law::{Ctx, Random, Verdict};
use crate::stall::Looks;

/// The threads of the library in this process: their names and their folders in /proc. The main thread is called as the program, which is none of them.
pub(crate) fn library_threads() -> Vec<(String, PathBuf)> {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    let main = std::process::id().to_string();
    let folders = tasks.flatten().map(|task| task.path());
    let others = folders.filter(|folder| !folder.ends_with(&main));
    let named = others.filter_map(|folder| {
        let name = std::fs::read_to_string(folder.join("comm")).ok()?;
        Some((name.trim().to_owned(), folder))
    });
    named
        .filter(|(name, _)| name.starts_with("unipgas-"))
        .collect()
}

/// The text of a call that gave something else, with the place in the law.
pub(crate) fn gave(
    call: &str,
    (seen, expected): (&str, &str),
    (file, line): (&str, u32),
) -> String {
    let file = file.rsplit('/').next().unwrap_or(file);
    format!("{call} gave {seen} instead of {expected} ({file}:{line})")
}

/// Fails unless a call gave the code that the law expects of it.
#[track_caller]
pub(crate) fn gives(
    call: &str,
    (seen, expected): (i32, i32),
    code_name: fn(i32) -> String,
) -> Verdict {
    if seen == expected {
        return Ok(());
    }
    let (codes, place) = ((code_name(seen), code_name(expected)), Location::caller());
    Err(gave(
        call,
        (&codes.0, &codes.1),
        (place.file(), place.line()),
    ))
}

/// Fails unless a call gave one of the codes that the law allows.
pub(crate) fn one_of(
    seen: i32,
    allowed: &[i32],
    what: impl Display,
    code_name: fn(i32) -> String,
) -> Verdict {
    crate::ensure!(allowed.contains(&seen), "{what} gave {}", code_name(seen));
    Ok(())
}

/// Checks one item after the other, up to the first failure.
pub(crate) fn for_all<T, R>(
    items: impl IntoIterator<Item = T>,
    mut check: impl FnMut(T) -> Result<R, String>,
) -> Verdict {
    items.into_iter().try_for_each(|item| check(item).map(drop))
}

/// For laws that share a body: the body takes the value.
pub(crate) fn given<T>(ctx: &Ctx, value: T, body: impl FnOnce(&Ctx, T) -> Verdict) -> Verdict {
    body(ctx, value)
}

/// Places for results, with values that no call of a law gives.
pub(crate) trait Unset {
    fn unset() -> Self;
}

macro_rules! unset {
    ($($ty:ty = $value:expr;)*) => {$(
        impl Unset for $ty {
            fn unset() -> $ty {
                $value
            }
        }
    )*};
}

unset! {
    u8 = u8::MAX;
    u16 = u16::MAX;
    u32 = u32::MAX;
    u64 = u64::MAX;
    usize = usize::MAX;
    i32 = -7;
    f32 = f32::NAN;
    unipgas_ircce_sys::RCCE_COMM = unipgas_ircce_sys::RCCE_COMM::UNDEFINED;
}

impl<T> Unset for *mut T {
    fn unset() -> *mut T {
        std::ptr::null_mut()
    }
}

impl<T> Unset for *const T {
    fn unset() -> *const T {
        std::ptr::null()
    }
}

/// Waits until the condition holds, or fails.
pub(crate) fn until_ok(what: &str, mut condition: impl FnMut() -> Result<bool, String>) -> Verdict {
    let mut looks = Looks::for_the(what);
    while !condition()? {
        looks.again();
    }
    Ok(())
}

/// Waits until the condition holds.
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) -> Verdict {
    until_ok(what, || Ok(condition()))
}

pub(crate) fn random_bytes(random: &mut Random, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    random.fill(&mut bytes);
    bytes
}

/// Bytes that are different for each salt, and the same on all ranks.
pub(crate) fn bytes_of(ctx: &Ctx, salt: u64, len: usize) -> Vec<u8> {
    random_bytes(&mut ctx.random(salt), len)
}

pub(crate) fn pause(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

/// Runs the work on `n` threads and gives the first failure.
pub(crate) fn threads(n: usize, work: impl Fn(usize) -> Verdict + Sync) -> Verdict {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..n)
            .map(|i| {
                let work = &work;
                scope.spawn(move || work(i))
            })
            .collect();
        let mut verdict = Ok(());
        for thread in threads {
            let one = thread
                .join()
                .unwrap_or_else(|_| Err("a thread panicked".into()));
            verdict = verdict.and(one);
        }
        verdict
    })
}

/// Runs the call with standard output in a file, and gives what was written there.
pub(crate) fn printed(call: impl FnOnce() -> Verdict) -> Result<String, String> {
    use std::io::{Read, Seek, Write};
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
    let fd = rustix::fs::memfd_create("printed", rustix::fs::MemfdFlags::CLOEXEC)
        .map_err(|e| format!("a file in memory: {e}"))?;
    let mut file = std::fs::File::from(fd);
    let _ = std::io::stdout().flush();
    // SAFETY:
    // - descriptors of this process; streams are flushed before and after, so that every line goes where it belongs.
    let before = unsafe {
        libc::fflush(std::ptr::null_mut());
        let before = OwnedFd::from_raw_fd(libc::dup(1));
        libc::dup2(file.as_raw_fd(), 1);
        before
    };
    let verdict = call();
    // SAFETY:
    // - as above.
    unsafe {
        libc::fflush(std::ptr::null_mut());
        libc::dup2(before.as_raw_fd(), 1);
    }
    verdict?;
    let mut text = String::new();
    file.rewind()
        .and_then(|()| file.read_to_string(&mut text))
        .map_err(|e| format!("reading what was printed: {e}"))?;
    Ok(text)
}

//! Adoption in place, while other threads use the same pages.

mod content;
mod memory;
mod others;
mod refusals;
mod stacks;
mod stores;

use std::ptr;

use unipgas_shm::adopt;

const ORDINARY: &str = "UNIPGAS_TEST_ORDINARY";
/// The machine is emulated.
const SLOW: &str = "UNIPGAS_TEST_SLOW";

/// Number of rounds: `rounds`, or fewer if each swap stops all threads or the machine is emulated.
fn rounds_of(rounds: usize) -> usize {
    if adopt::way() == Ok(adopt::AdoptionMethod::Halt) || std::env::var_os(SLOW).is_some() {
        (rounds / 100).max(2)
    } else {
        rounds
    }
}

/// Makes userfaultfd fail with EPERM, in this process and in processes that it starts.
fn deny_userfaultfd() -> std::io::Result<()> {
    let step = |code: u32, jt, jf, k| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    let filter = [
        // The number of the call.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            0,
            1,
            libc::SYS_userfaultfd as u32,
        ),
        step(
            libc::BPF_RET | libc::BPF_K,
            0,
            0,
            libc::SECCOMP_RET_ERRNO | libc::EPERM as u32,
        ),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_ptr().cast_mut(),
    };
    // SAFETY:
    // - the kernel copies the program, which lives here
    unsafe {
        if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
            || libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const program,
            ) != 0
        {
            return Err(std::io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Repeats all tests in a process of an ordinary user without userfaultfd: the swap stops the other threads there.
#[test]
fn as_an_ordinary_user() {
    if std::env::var_os(ORDINARY).is_some() {
        assert!(adopt::available().is_err(), "there is a userfaultfd");
        assert_eq!(adopt::way(), Ok(adopt::AdoptionMethod::Halt));
        return;
    }
    if !rustix::process::geteuid().is_root() {
        // The other tests are run so.
        return;
    }
    for (filter, denied) in [("", true), ("watched_memory_is_adopted", false)] {
        ordinary(filter, denied);
    }
}

/// Runs the tests with `filter` in their names in a process of an ordinary user; `denied`: it may have no userfaultfd at all.
fn ordinary(filter: &str, denied: bool) {
    use std::os::unix::process::CommandExt;
    let mut command = std::process::Command::new("/proc/self/exe");
    command
        .args([
            "--test-threads=2",
            "--skip",
            "huge_pages",
            "--skip",
            "devices",
            filter,
        ])
        .env(ORDINARY, "1");
    let drop_rights = move || {
        const NOBODY: u32 = 65534;
        // SAFETY:
        // - takes numbers; runs in the child before it executes the program
        unsafe {
            if libc::geteuid() == 0
                && (libc::setgroups(0, ptr::null()) != 0
                    || libc::setresgid(NOBODY, NOBODY, NOBODY) != 0
                    || libc::setresuid(NOBODY, NOBODY, NOBODY) != 0)
            {
                return Err(std::io::Error::last_os_error());
            }
        }
        if denied { deny_userfaultfd() } else { Ok(()) }
    };
    // SAFETY:
    // - the closure makes system calls only
    unsafe { command.pre_exec(drop_rights) };
    let output = command.output().expect("this program again");
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

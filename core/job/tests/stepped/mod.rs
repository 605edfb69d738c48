//! A child process that runs a number of instructions and is killed.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Forks a child, which calls `prepare`, stops itself, calls `work`, stops itself again, and ends. The child runs `steps` instructions from the
/// first stop and is killed. If it reaches the second stop: the number of instructions; then `work` has returned true.
///
/// # Safety
///
/// `prepare` and `work` need no lock that another thread of this process may hold.
pub unsafe fn killed_after<S>(
    steps: usize,
    prepare: impl FnOnce() -> Option<S>,
    work: impl FnOnce(S) -> bool,
) -> Option<usize> {
    share_a_core();
    let none = std::ptr::null_mut::<libc::c_void>();
    // SAFETY:
    // - the caller's contract for the child;
    // - the parent waits for, steps and kills its own child only, and `status` is valid for `waitpid`.
    unsafe {
        let pid = libc::fork();
        assert!(pid >= 0, "fork: {}", std::io::Error::last_os_error());
        if pid == 0 {
            let Some(state) = prepare() else {
                libc::_exit(3);
            };
            if libc::ptrace(libc::PTRACE_TRACEME, 0, none, none) != 0 {
                libc::_exit(4);
            }
            libc::raise(libc::SIGSTOP);
            let done = work(state);
            libc::raise(libc::SIGSTOP);
            libc::_exit(i32::from(!done));
        }
        let mut status = 0;
        let mut stopped = || {
            assert_eq!(libc::waitpid(pid, &mut status, 0), pid);
            status
        };
        let first = stopped();
        assert!(
            libc::WIFSTOPPED(first),
            "the child cannot be traced: status {first:#x}"
        );
        for step in 0..steps {
            assert_eq!(libc::ptrace(libc::PTRACE_SINGLESTEP, pid, none, none), 0);
            let status = stopped();
            assert!(libc::WIFSTOPPED(status), "status {status:#x}");
            if libc::WSTOPSIG(status) == libc::SIGSTOP {
                assert_eq!(libc::ptrace(libc::PTRACE_CONT, pid, none, none), 0);
                let status = stopped();
                assert!(
                    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0,
                    "status {status:#x}"
                );
                return Some(step);
            }
        }
        assert_eq!(libc::kill(pid, libc::SIGKILL), 0);
        stopped();
        None
    }
}

/// Binds this thread and its children to one core: parent and child take turns, and a wake-up of another core costs four times as much as a step.
fn share_a_core() {
    let allowed = sched_getaffinity(None).unwrap();
    let first = (0..CpuSet::MAX_CPU)
        .find(|&cpu| allowed.is_set(cpu))
        .unwrap();
    let mut one = CpuSet::new();
    one.set(first);
    sched_setaffinity(None, &one).unwrap();
}

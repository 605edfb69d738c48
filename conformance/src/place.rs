//! Where a body runs: in a process of a job, or in a thread that plays one.

use std::fmt;
use std::sync::Arc;

use unipgas::core::job::Board;
use unipgas::core::loopback::LoopbackNet;

/// Where a body runs.
#[derive(Clone)]
pub(crate) enum Place {
    /// A process of its own.
    Process,
    /// A thread, with the network and the board that it shares with the others.
    Thread(Arc<LoopbackNet>, Arc<Board>),
}

impl Place {
    /// SIGKILL for this process.
    pub fn dies(&self) -> ! {
        let me = rustix::process::getpid();
        match self {
            Place::Process => {
                let _ = rustix::process::kill_process(me, rustix::process::Signal::KILL);
            }
            Place::Thread(..) => unreachable!("laws that kill are not run on threads"),
        }
        unreachable!("SIGKILL cannot be held up");
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Place::Process => "process",
            Place::Thread(..) => "thread",
        })
    }
}

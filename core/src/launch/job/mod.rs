//! The job: which rank this process is, of how many, and how ranks find each other before they can communicate.
pub mod board;
mod context;

pub(crate) use board::check_size;
pub use board::{Board, RankState};
pub(crate) use context::process_ended;
pub use context::{Job, tell_waits};

/// CPUs that the processes of a job share: those that this one may run on. Launchers bind each process to one of its own: then all of
/// the machine's.
pub fn cores_of_a_job() -> usize {
    let own = std::thread::available_parallelism().map_or(1, usize::from);
    if own > 1 {
        return own;
    }
    // SAFETY:
    // - only asks for a number.
    let online = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    usize::try_from(online).unwrap_or(1).max(1)
}

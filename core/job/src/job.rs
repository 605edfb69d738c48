//! The job: its board, the rank of this process, and the exchange of data before ranks can communicate.
pub mod board;
mod context;

pub(crate) use board::check_size;
pub use board::{Board, RankState};
pub use context::{Job, tell_waits};

/// CPUs that the processes of a job share: the CPUs of this process's affinity. With one such CPU, a launcher has probably bound the process: then all online
/// CPUs.
pub fn cores_of_a_job() -> usize {
    let own = std::thread::available_parallelism().map_or(1, usize::from);
    if own > 1 {
        return own;
    }
    // SAFETY:
    // - sysconf only returns a number.
    let online = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    usize::try_from(online).unwrap_or(1).max(1)
}

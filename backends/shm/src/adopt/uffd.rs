//! The userfaultfd of a swap, which holds back writers, fills pages and wakes.

use std::ops::Deref;

use unipgas_core::userfaultfd::{Features, Userfaultfd};

/// A userfaultfd that serves faults of user code and of system calls alike.
pub(super) struct Uffd {
    calls: Userfaultfd,
    /// Pages never touched can be write-protected as they are (Linux 6.4).
    pub(super) protects_unpopulated: bool,
}

impl Uffd {
    /// Opens one; the error says in words what is missing.
    pub(super) fn open() -> Result<Uffd, String> {
        let supported = Userfaultfd::of_all_code()?
            .handshake(Features::empty())
            .map_err(|e| format!("userfaultfd's handshake failed: {e}"))?;
        let needed = Features::WP | Features::WP_SHMEM;
        if !supported.contains(needed) {
            return Err(
                "this kernel's userfaultfd cannot write-protect shared memory (Linux 5.19 can)"
                    .into(),
            );
        }
        let calls = Userfaultfd::of_all_code()?;
        calls
            .handshake(needed | (supported & Features::WP_UNPOPULATED))
            .map_err(|e| format!("userfaultfd refused its features: {e}"))?;
        Ok(Uffd {
            calls,
            protects_unpopulated: supported.contains(Features::WP_UNPOPULATED),
        })
    }
}

impl Deref for Uffd {
    type Target = Userfaultfd;

    fn deref(&self) -> &Userfaultfd {
        &self.calls
    }
}

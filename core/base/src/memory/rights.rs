//! Access rights of peers to a region.

bitflags::bitflags! {
    /// Operations on a region that peers may use.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Rights: u32 {
        /// Peers may get.
        const READ = 1;
        /// Peers may put and notify.
        const WRITE = 2;
        /// Peers may use atomic operations.
        const ATOMIC = 4;
        /// Peers may do everything.
        const FULL = 7;
        /// Atomic operations exclude each other by [locks](crate::atomic::Exclusion::Locks), and are then much faster on arrays. They do not exclude CPU
        /// atomics of programs. Not for memory that is also registered without this right.
        const EXCLUSIVE = 8;
        /// The only atomic operations are additions, reads and compare-and-swaps of aligned words of 8 bytes, as devices have them. Others are refused. The
        /// owner's processor may read the words, and may change words that no peer changes meanwhile.
        const WORDS = 16;
        /// Only the owner's device carries out atomic operations, for all processes. The engine sets this right.
        const DEVICE = 32;
        /// Peers across a network deliver records and send active messages, and have no other rights. So networks need neither reach nor pin the memory.
        const RECORDS = 64;
        /// The pages may come, go and be replaced while the region is registered. Each access uses the owner's pages at that time, and fails with
        /// [`Error::AccessDenied`](crate::Error::AccessDenied) if an address has no page. So the kernel copies, no peer maps the memory, and no device reaches it. Atomic operations are
        /// [exclusive](Rights::EXCLUSIVE). Not for notices and records.
        const BY_ADDRESS = 128;
    }
}

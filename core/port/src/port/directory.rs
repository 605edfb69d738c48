//! The list of a process's ports. Peers read it to find a port by its index.

use std::mem::size_of;

use parking_lot::Mutex;

use unipgas_base::{Result, Rights};
use unipgas_engine::Region;
use unipgas_engine::bundle::RegionKey;
use unipgas_engine::directory::{RegionEntry, write_listed};
use unipgas_engine::engine::Engine;

/// Maximum number of ports in a process.
pub const PORTS: usize = 768;

/// Index of the entry for the process's barrier gates, after the ports.
pub(super) const GATES: usize = PORTS;

/// Offset of the entry of port `index`.
pub(super) const fn entry(index: usize) -> usize {
    index * size_of::<RegionEntry>()
}

/// The list of this process.
pub struct PortDirectory {
    region: Region,
    writing: Mutex<()>,
}

impl PortDirectory {
    /// An empty list. Errors: as [`Engine::allocate`].
    pub fn new(engine: &Engine) -> Result<Self> {
        Ok(PortDirectory {
            region: engine.allocate(entry(PORTS + 1), Rights::READ)?,
            writing: Mutex::new(()),
        })
    }

    #[cfg(all(any(test, fuzzing), not(loom)))]
    pub(super) fn region(&self) -> &Region {
        &self.region
    }

    /// The key that peers import.
    pub fn key(&self) -> RegionKey {
        self.region.key()
    }

    /// Lists a port: its key table and its inbox.
    pub(super) fn list(&self, index: usize, table: &RegionKey, inbox: &RegionKey) -> Result<()> {
        let listed = RegionEntry::new(table, inbox);
        write_listed(&self.region, &self.writing, entry(index), &listed)
    }

    /// Lists the region of the process's barrier gates.
    pub fn list_gates(&self, gates: &RegionKey) -> Result<()> {
        self.list(GATES, gates, gates)
    }

    /// Removes a port from the list.
    pub(super) fn unlist(&self, index: usize) -> Result<()> {
        let nothing = bytemuck::Zeroable::zeroed();
        write_listed::<RegionEntry>(&self.region, &self.writing, entry(index), &nothing)
    }
}

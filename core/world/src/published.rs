//! The regions that the ranks of a world have published under one name.

use std::sync::Arc;

use once_cell::sync::OnceCell;

use crate::world::{World, no_such_rank};
use unipgas_base::Result;
use unipgas_engine::region::RemoteRegion;

/// A region of each rank. The first use of a region looks it up, so a rank connects only to the ranks that it uses.
pub struct PublishedRegions {
    world: Arc<World>,
    name: &'static str,
    found: Box<[OnceCell<RemoteRegion>]>,
}

impl PublishedRegions {
    /// The regions that [`World::publish_region`] has published under `name`. Looks up no region yet.
    pub fn new(world: &Arc<World>, name: &'static str) -> Self {
        PublishedRegions {
            world: world.clone(),
            name,
            found: (0..world.size()).map(|_| OnceCell::new()).collect(),
        }
    }

    /// The region of `rank`. Errors: as [`World::published_region`], at the first use.
    #[inline(always)]
    pub fn get(&self, rank: u32) -> Result<&RemoteRegion> {
        match self.found.get(rank as usize).and_then(OnceCell::get) {
            Some(region) => Ok(region),
            None => self.find(rank),
        }
    }

    #[cold]
    fn find(&self, rank: u32) -> Result<&RemoteRegion> {
        let place = self
            .found
            .get(rank as usize)
            .ok_or_else(|| no_such_rank(rank, self.world.size()))?;
        place.get_or_try_init(|| self.world.published_region(rank, self.name))
    }
}

//! Another endpoint, as it is reached from here; and what an endpoint shows to others.

use bytemuck::{Pod, Zeroable};
use unipgas_core::engine::Connection;
use unipgas_core::keyring::{RemoteKey, RemoteKeys};
use unipgas_core::message::Shape;
use unipgas_core::transport::Life;
use unipgas_core::{Error, RegionKey, Remote, RemoteRegion};

use crate::domain::Domain;
use crate::name::Name;
use crate::status::Errno;

/// What an endpoint's directory region holds. Written before anyone knows the endpoint's name; never changed.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Directory {
    pub id: u64,
    /// Not 0: it wants to know of every access to its memory (FI_RMA_EVENT).
    pub events: u64,
    /// The sizes of its mailbox.
    pub shape: [u64; 3],
    /// The domain's keys.
    pub keys: [u8; 64],
    /// Where notices of remote writes go.
    pub inbox: [u8; 64],
    /// Where messages go, and who has which lane there. All zero without messages.
    pub mailbox: [u8; 64],
    pub lanes: [u8; 64],
}

/// The sizes of all mailboxes: lanes for so many peers each.
pub(crate) const SHAPE: Shape = Shape {
    peers: 256,
    lines: 64,
    data: 32 << 10,
};

pub(crate) const SHAPE_WORDS: [u64; 3] =
    [SHAPE.peers as u64, SHAPE.lines as u64, SHAPE.data as u64];

/// Reads the directory of an endpoint. Errors: [`Error::PeerDead`] if it has been closed, or its process has ended.
pub(crate) fn read_directory(
    domain: &Domain,
    name: &Name,
) -> Result<(Connection, RemoteRegion, Directory), Error> {
    let engine = domain.engine();
    let connection = engine.connect(&name.address())?;
    let gone = |error| match error {
        Error::StaleRegion => Error::PeerDead,
        error => error,
    };
    let region = connection.import(&name.directory()).map_err(gone)?;
    let mut directory = Directory::zeroed();
    let at = Remote {
        region: &region,
        offset: 0,
    };
    domain
        .service()
        .read(engine, at, bytemuck::bytes_of_mut(&mut directory))
        .map_err(gone)?;
    if directory.id != name.id() {
        return Err(Error::PeerDead);
    }
    Ok((connection, region, directory))
}

/// An endpoint that has been talked to.
pub(crate) struct Target {
    pub name: Name,
    connection: Connection,
    /// Current as long as the endpoint is open.
    directory: RemoteRegion,
    keys: RemoteKeys,
    pub inbox: RemoteRegion,
    pub events: bool,
    /// It has been found dead.
    gone: bool,
    /// Its number among the peers of the mailbox here.
    pub number: Option<u32>,
}

impl Target {
    pub fn open(domain: &Domain, name: Name) -> Result<Target, Error> {
        let (connection, region, directory) = read_directory(domain, &name)?;
        let import = |key: &[u8; 64]| connection.import(&RegionKey::from_bytes(key)?);
        Ok(Target {
            name,
            keys: RemoteKeys::new(&connection, &RegionKey::from_bytes(&directory.keys)?)?,
            inbox: import(&directory.inbox)?,
            events: directory.events != 0,
            connection,
            directory: region,
            gone: false,
            number: None,
        })
    }

    /// The memory under `key`.
    #[inline(always)]
    pub fn key(&mut self, domain: &Domain, key: u64) -> Result<&RemoteKey, Errno> {
        if self.gone || !self.directory.is_current() {
            return Err(Errno::CONNRESET);
        }
        let found = self.keys.find(domain.engine(), domain.service(), key);
        found.map_err(|error| blame(&self.connection, &mut self.gone, error))
    }

    /// The memory under `key`, if it has been looked up before and is still there.
    #[inline(always)]
    pub fn key_at_hand(&self, key: u64) -> Option<&RemoteKey> {
        if self.gone | !self.directory.is_current() {
            return None;
        }
        self.keys.at_hand(key)
    }

    /// What an error of an operation means: memory that is not there any more may have gone with its owner.
    #[cold]
    pub fn why(&mut self, error: Error) -> Errno {
        blame(&self.connection, &mut self.gone, error)
    }

    /// Whether its process has ended, or it has been closed.
    pub fn has_gone(&self) -> bool {
        self.connection.life() != Life::Alive || !self.directory.is_current()
    }
}

#[cold]
fn blame(connection: &Connection, gone: &mut bool, error: Error) -> Errno {
    // What has been seen to die does not come back, even if it is not quite dead yet.
    *gone |= match error {
        Error::PeerDead => true,
        Error::StaleRegion => connection.life() != Life::Alive,
        _ => false,
    };
    if *gone {
        Errno::CONNRESET
    } else {
        error.into()
    }
}

//! Peer endpoints, and the directory that an endpoint shows to its peers.

use std::mem::offset_of;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};

use bytemuck::{Pod, Zeroable};
use unipgas_core::bundle::BUNDLE_LEN;
use unipgas_core::engine::Connection;
use unipgas_core::inbox::Record;
use unipgas_core::keyring::{RemoteKey, RemoteKeys};
use unipgas_core::message::Shape;
use unipgas_core::operations;
use unipgas_core::transport::Life;
use unipgas_core::{Address, Error, Flags, Region, RegionKey, Remote, RemoteRegion};

use crate::domain::Domain;
use crate::name::EndpointName;
use crate::status::Errno;

/// Content of an endpoint's directory region. Written before peers know the endpoint's name. Only `counts` changes later.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Directory {
    pub id: u64,
    /// Words that count reads and writes through it ([`Counts::packed`]). [`NOT_YET`] until the endpoint is enabled.
    pub counts: u64,
    /// The sizes of its mailbox.
    pub shape: [u64; 4],
    /// Its process, and this region, by all transports. A name lacks the room for them.
    pub address: [u8; BUNDLE_LEN],
    pub directory: [u8; BUNDLE_LEN],
    /// The domain's keys.
    pub keys: [u8; BUNDLE_LEN],
    /// The domain's words for counters.
    pub tallies: [u8; BUNDLE_LEN],
    /// Inbox for notices of remote writes.
    pub inbox: [u8; BUNDLE_LEN],
    /// Its mailbox, and the table of numbers of peers there. All zero without messages.
    pub mailbox: [u8; BUNDLE_LEN],
    pub numbers: [u8; BUNDLE_LEN],
}

/// `counts` of an endpoint that has not been enabled.
pub(crate) const NOT_YET: u64 = u64::MAX;

/// Numbers of the words that count reads and writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Counts {
    pub read: Option<NonZeroU32>,
    pub write: Option<NonZeroU32>,
}

impl Counts {
    pub fn packed(self) -> u64 {
        let number = |number: Option<NonZeroU32>| number.map_or(0, |number| number.get().into());
        number(self.read) | number(self.write) << 32
    }

    pub fn unpack(packed: u64) -> Counts {
        Counts {
            read: NonZeroU32::new(packed as u32),
            write: NonZeroU32::new((packed >> 32) as u32),
        }
    }

    pub fn of(self, writes: bool) -> Option<NonZeroU32> {
        if writes { self.write } else { self.read }
    }
}

/// Publishes the words that count later accesses through an endpoint.
pub(crate) fn show_counts(directory: &Region, counts: Counts) -> Result<(), Error> {
    let place = directory.local(offset_of!(Directory, counts), 8)?;
    // SAFETY:
    // - 8 aligned bytes of memory that lives as long as the region. No other thread writes them.
    unsafe { AtomicU64::from_ptr(place.ptr.cast()) }.store(counts.packed(), Ordering::Release);
    Ok(())
}

/// The sizes of all mailboxes: lanes for 4096 peers, allocated in blocks of 256.
pub(crate) const SHAPE: Shape = Shape {
    peers: 256,
    more: 15,
    lines: 64,
    data: 32 << 10,
};

pub(crate) const SHAPE_WORDS: [u64; 4] = [
    SHAPE.peers as u64,
    SHAPE.more as u64,
    SHAPE.lines as u64,
    SHAPE.data as u64,
];

/// Reads the directory of an endpoint. Errors: [`Error::PeerDead`] if it has been closed, or its process has ended.
pub(crate) fn read_directory(
    domain: &Domain,
    name: &EndpointName,
) -> Result<(Connection, RemoteRegion, Directory), Error> {
    let found = read_directory_at(domain, &name.address(), &name.directory())?;
    if found.2.id == name.id() {
        Ok(found)
    } else {
        Err(Error::PeerDead)
    }
}

/// As [`read_directory`], of any endpoint with its directory there. The result uses the best route, even if `address` lacks it.
pub(crate) fn read_directory_at(
    domain: &Domain,
    address: &Address,
    key: &RegionKey,
) -> Result<(Connection, RemoteRegion, Directory), Error> {
    let engine = domain.engine();
    let connection = engine.connect(address)?;
    let gone = |error| match error {
        Error::StaleRegion => Error::PeerDead,
        error => error,
    };
    let region = connection.import(key).map_err(gone)?;
    let mut directory = Directory::zeroed();
    let at = Remote {
        region: &region,
        offset: 0,
    };
    domain
        .service()
        .read(engine, at, bytemuck::bytes_of_mut(&mut directory))
        .map_err(gone)?;
    if directory.address == *address.as_bytes() {
        return Ok((connection, region, directory));
    }
    let better = engine.connect(&Address::from_bytes(&directory.address)?)?;
    if better.is_as(&connection) {
        return Ok((connection, region, directory));
    }
    let region = better.import(&RegionKey::from_bytes(&directory.directory)?);
    Ok((better, region.map_err(gone)?, directory))
}

/// A peer endpoint.
pub(crate) struct Target {
    pub name: EndpointName,
    connection: Connection,
    /// Current while the endpoint is open.
    directory: RemoteRegion,
    keys: RemoteKeys,
    pub inbox: RemoteRegion,
    /// Words that count accesses through the endpoint. `None` until it is enabled.
    counts: Option<Counts>,
    /// No word counts accesses through the endpoint.
    pub uncounted: bool,
    tallies: RemoteRegion,
    /// Words that count the current operation.
    pub counting: Vec<NonZeroU32>,
    /// The notice of the current operation while it may travel with the data, and its order among notices.
    pub along: Option<(Record, Flags)>,
    /// The peer has been found dead.
    gone: bool,
    /// Its number among the peers of the mailbox here.
    pub number: Option<u32>,
}

impl Target {
    pub fn open(domain: &Domain, name: EndpointName) -> Result<Target, Error> {
        let (connection, region, directory) = read_directory(domain, &name)?;
        let import = |key: &[u8; BUNDLE_LEN]| connection.import(&RegionKey::from_bytes(key)?);
        Ok(Target {
            name,
            keys: RemoteKeys::new(&connection, &RegionKey::from_bytes(&directory.keys)?)?,
            inbox: import(&directory.inbox)?,
            counts: counts(&directory),
            uncounted: counts(&directory) == Some(Counts::default()),
            tallies: import(&directory.tallies)?,
            counting: Vec::new(),
            along: None,
            connection,
            directory: region,
            gone: false,
            number: None,
        })
    }

    /// The memory under `key`, for an access. Notes the word that counts the access.
    #[inline(always)]
    pub fn key(&mut self, domain: &Domain, key: u64, writes: bool) -> Result<&RemoteKey, Errno> {
        if self.gone || !self.directory.is_current() {
            return Err(Errno::CONNRESET);
        }
        let found = self.keys.find(domain.engine(), domain.service(), key);
        let known = found.map_err(|error| blame(&self.connection, &mut self.gone, error))?;
        if known.keyed.beside != 0 {
            let counts = Counts::unpack(known.keyed.beside);
            note(&mut self.counting, counts.of(writes));
        }
        Ok(known)
    }

    /// Begins an operation. Notes the endpoint's word that counts it.
    #[cold]
    pub fn begin_counting(&mut self, domain: &Domain, writes: bool) {
        if self.counts.is_none()
            && let Ok((_, _, directory)) = read_directory(domain, &self.name)
        {
            self.counts = counts(&directory);
            self.uncounted = self.counts == Some(Counts::default());
        }
        note(
            &mut self.counting,
            self.counts.and_then(|counts| counts.of(writes)),
        );
    }

    /// The memory under `key`, if it is cached and still registered.
    #[inline(always)]
    pub fn key_fast(&self, key: u64) -> Option<&RemoteKey> {
        if self.gone | !self.directory.is_current() {
            return None;
        }
        self.keys.find_fast(key)
    }
}

impl operations::Target for Target {
    type Failure = Errno;

    fn failure(error: Error) -> Errno {
        error.into()
    }

    fn id(&self) -> u64 {
        self.name.id()
    }

    fn inbox(&self) -> &RemoteRegion {
        &self.inbox
    }

    fn tallies(&self) -> &RemoteRegion {
        &self.tallies
    }

    /// Whether its process has ended, or it has been closed.
    fn has_gone(&self) -> bool {
        self.connection.life() != Life::Alive || !self.directory.is_current()
    }

    /// Converts an error of an operation. A stale region may have gone with its owner.
    #[cold]
    fn why(&mut self, error: Error) -> Errno {
        blame(&self.connection, &mut self.gone, error)
    }
}

fn counts(directory: &Directory) -> Option<Counts> {
    (directory.counts != NOT_YET).then(|| Counts::unpack(directory.counts))
}

/// Notes a word. Each word counts an operation once, even if it has several parts.
#[cold]
fn note(counting: &mut Vec<NonZeroU32>, number: Option<NonZeroU32>) {
    if let Some(number) = number
        && !counting.contains(&number)
    {
        counting.push(number);
    }
}

#[cold]
fn blame(connection: &Connection, gone: &mut bool, error: Error) -> Errno {
    // A dead peer never returns, even if its process has not ended completely.
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

//! Active messages between processes beside data: texts to print, and the closing and opening of connections.

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;

use std::collections::HashMap;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use unipgas_core::op::Remote;
use unipgas_core::pending_fetch::{PendingFetch, Unfinished};
use unipgas_core::transport::{Handler, LONGEST_MESSAGE};
use unipgas_core::{Deadline, Error, RemoteRegion, World, own_thread};

use crate::closed::Closed;

/// Type of a message: its first byte. Bytes 1 and 2 are the rank of the sender. `TEXT` and `LINE` continue with a text number (4 bytes) and
/// the text, `CLOSE` and `OPEN` with the incarnation of the sender (4 bytes).
const TEXT: u8 = 1;
/// The last part of a text.
const LINE: u8 = 2;
const CLOSE: u8 = 3;
const OPEN: u8 = 4;

/// Most incomplete texts. The texts of failed senders stay until [`Links::renew`].
const UNENDED: usize = 1024;

/// Most bytes of a text in one message. The rest is for the head, and for the engine.
const PART: usize = LONGEST_MESSAGE - 64;
/// Timeout of a text.
const PATIENCE: Duration = Duration::from_secs(60);

/// A rank, the type of a message to it, and the number of closings and openings by that rank.
type Told = (u16, u8, u32);

/// The links of this process.
pub(crate) struct Links {
    shared: Arc<Shared>,
    /// Regions of the other ranks that receive the messages, found at first use.
    others: Box<[Mutex<Option<RemoteRegion>>]>,
    /// Ranks with a connection closed here, without a confirmed `CLOSE`.
    untold: Mutex<Vec<u16>>,
    /// Messages in flight after a timeout of their calls.
    told: Unfinished<Told>,
    /// Number of sent texts.
    texts: AtomicU32,
}

struct Shared {
    world: Weak<World>,
    closed: Closed,
    /// Connections that the other side has closed.
    from_there: Closed,
    /// Ranks with a connection that was ever closed, by either side.
    once_closed: Box<[AtomicBool]>,
    /// Number of closings and openings by each rank.
    turns: Box<[AtomicU32]>,
    /// Imports of connections that have been closed. [`Links::release`] releases them.
    released: Mutex<Vec<Box<dyn Send>>>,
    /// Incomplete texts, by sender and text number.
    parts: Mutex<HashMap<(u16, u32), Vec<u8>>>,
    printer: Printer,
}

/// Prints in a separate thread, since a write to standard output may block, and a thread that serves peers must not block.
struct Printer {
    texts: Mutex<Option<Sender<Vec<u8>>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    ended: AtomicBool,
}

impl Printer {
    fn print(&self, text: Vec<u8>) {
        let mut texts = self.texts.lock();
        if self.ended.load(Ordering::Relaxed) {
            return put_out(&text);
        }
        if texts.is_none() {
            let (sender, receiver) = channel::<Vec<u8>>();
            let started = own_thread::start("unipgas-print", move || {
                receiver.iter().for_each(|text| put_out(&text));
            });
            let Ok(thread) = started else {
                return put_out(&text);
            };
            *self.thread.lock() = Some(thread);
            *texts = Some(sender);
        }
        if let Some(texts) = &*texts {
            let _ = texts.send(text);
        }
    }

    /// Waits until all is printed.
    fn end(&self) {
        let mut texts = self.texts.lock();
        self.ended.store(true, Ordering::Relaxed);
        *texts = None;
        drop(texts);
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
    }
}

/// The rank, as a prefix of its texts.
pub(crate) fn of_rank(rank: u16) -> Vec<u8> {
    format!("[{rank:4}] ").into_bytes()
}

/// Writes a text in one piece.
pub(crate) fn put_out(text: &[u8]) {
    let mut out = std::io::stdout().lock();
    // Write errors are ignored: the program may have closed stdout.
    let _ = out.write_all(text).and_then(|()| out.flush());
}

impl Handler for Shared {
    fn handle(&self, _: usize, message: &[u8], _: &mut Vec<u8>) -> Result<(), u32> {
        let Some(([what, rank @ ..], text)) = message.split_first_chunk::<3>() else {
            return Ok(());
        };
        let rank = u16::from_le_bytes(*rank);
        if matches!(*what, CLOSE | OPEN) {
            if let Some(incarnation) = text.first_chunk() {
                self.turn(rank, u32::from_le_bytes(*incarnation), *what == CLOSE);
            }
            return Ok(());
        }
        match *what {
            TEXT | LINE => {
                let Some((number, part)) = text.split_first_chunk::<4>() else {
                    return Ok(());
                };
                let key = (rank, u32::from_le_bytes(*number));
                let mut parts = self.parts.lock();
                if *what == LINE {
                    let mut whole = parts.remove(&key).unwrap_or_default();
                    whole.extend_from_slice(part);
                    self.printer.print(whole);
                } else if parts.len() < UNENDED || parts.contains_key(&key) {
                    parts.entry(key).or_default().extend_from_slice(part);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl Shared {
    /// This incarnation of `rank` has closed or opened the connection. The process may have died since.
    fn turn(&self, rank: u16, incarnation: u32, closes: bool) {
        if let Some(turns) = self.turns.get(usize::from(rank)) {
            turns.fetch_add(1, Ordering::AcqRel);
        }
        if closes {
            self.from_there.close(rank, incarnation);
            self.close(rank, incarnation);
        } else {
            self.open(rank, incarnation);
        }
    }

    fn close(&self, rank: u16, incarnation: u32) {
        if let Some(once_closed) = self.once_closed.get(usize::from(rank)) {
            once_closed.store(true, Ordering::Release);
        }
        self.closed.close(rank, incarnation);
        if let Some(world) = self.world.upgrade()
            && world.incarnation_of(rank.into()) == incarnation
        {
            self.released.lock().extend(world.forget(rank.into()));
        }
    }

    fn open(&self, rank: u16, incarnation: u32) {
        self.from_there.open(rank, incarnation);
        self.closed.open(rank, incarnation);
    }
}

impl Links {
    pub fn new(world: &Arc<World>) -> Self {
        let ranks = 0..world.size();
        Links {
            shared: Arc::new(Shared {
                world: Arc::downgrade(world),
                closed: Closed::none(world.size()),
                from_there: Closed::none(world.size()),
                once_closed: ranks.clone().map(|_| AtomicBool::new(false)).collect(),
                turns: ranks.clone().map(|_| AtomicU32::new(0)).collect(),
                released: Mutex::default(),
                parts: Mutex::default(),
                printer: Printer {
                    texts: Mutex::default(),
                    thread: Mutex::default(),
                    ended: AtomicBool::new(false),
                },
            }),
            others: ranks.map(|_| Mutex::default()).collect(),
            untold: Mutex::default(),
            told: Unfinished::default(),
            texts: AtomicU32::new(0),
        }
    }

    /// The handler of the messages.
    pub fn handler(&self) -> Arc<dyn Handler> {
        self.shared.clone()
    }

    /// Whether the connection to the current incarnation of a rank is closed.
    #[inline]
    pub fn is_closed(&self, world: &World, rank: u32) -> bool {
        (self.shared.closed).is_closed(rank, || world.incarnation_of(rank))
    }

    /// Whether the connection may be closed on the other side. Messages of both sides may cross.
    pub fn may_be_closed(&self, rank: u16) -> bool {
        let once_closed = self.shared.once_closed.get(usize::from(rank));
        once_closed.is_some_and(|once_closed| once_closed.load(Ordering::Acquire))
    }

    /// Whether the connection is closed here, and the rank has not confirmed it.
    pub fn is_untold(&self, rank: u16) -> bool {
        self.untold.lock().contains(&rank)
    }

    /// Another process becomes the rank: the state about the previous process is dropped.
    pub fn renew(&self, rank: u16) {
        if let Some(place) = self.others.get(usize::from(rank)) {
            *place.lock() = None;
        }
        self.untold.lock().retain(|untold| *untold != rank);
        self.told.forget(|(to, ..)| *to == rank);
        self.shared
            .parts
            .lock()
            .retain(|(from, _), _| *from != rank);
    }

    /// Retires the imports of closed connections. Call it outside of handlers.
    pub fn release(&self, world: &World) {
        let released = std::mem::take(&mut *self.shared.released.lock());
        for one in released {
            world.retire(one, 1);
        }
    }

    /// Waits until all texts are printed. Later texts are printed by their callers.
    pub fn end(&self) {
        self.shared.printer.end();
    }
}

/// The means to send a message to a rank.
pub(crate) struct Telling<'a> {
    pub world: &'a World,
    pub endpoint: &'a unipgas_core::Endpoint,
    /// Name of the regions that receive messages.
    pub name: &'static str,
}

impl Telling<'_> {
    /// Incarnation of this process, as bytes of a message.
    fn incarnation(&self) -> [u8; 4] {
        (self.world.incarnation_of(self.world.rank())).to_le_bytes()
    }
}

impl Links {
    fn tell(
        &self,
        by: &Telling<'_>,
        rank: u16,
        what: u8,
        text: &[u8],
        deadline: Deadline,
    ) -> unipgas_core::Result<()> {
        let turns = self.shared.turns.get(usize::from(rank));
        let turn = turns.map_or(0, |turns| turns.load(Ordering::Acquire));
        // A retry of `CLOSE` or `OPEN` waits for the message of the first call. A text never has such a message.
        let waited = match self.told.take(&(rank, what, turn)) {
            Some(waited) => waited,
            None => self.send(by, rank, what, text, deadline)?,
        };
        let told = waited.end(
            by.endpoint,
            by.world.engine(),
            deadline,
            &mut by.world.watch_lives(),
        );
        if matches!(what, CLOSE | OPEN) {
            self.told.forget(|(to, ..)| *to == rank);
            if told == Err(Error::Timeout) {
                self.told.keep((rank, what, turn), waited);
            }
        }
        told
    }

    fn send(
        &self,
        by: &Telling<'_>,
        rank: u16,
        what: u8,
        text: &[u8],
        deadline: Deadline,
    ) -> unipgas_core::Result<PendingFetch> {
        let place = self.others.get(usize::from(rank));
        let place = place.ok_or_else(|| Error::InvalidArgument("no such rank".into()))?;
        let known = place.lock().clone();
        let region = &match known {
            Some(region) => region,
            None => {
                let found = by
                    .world
                    .published_region_within(rank.into(), by.name, deadline)?;
                place.lock().insert(found).clone()
            }
        };
        let me = (by.world.rank() as u16).to_le_bytes();
        let message = [&[what], &me[..], text].concat();
        let to = Remote { region, offset: 0 };
        by.endpoint.tell_of(to, &message)
    }

    /// Has a rank print a text. Errors: the rank does not receive it in time.
    pub fn print(&self, by: &Telling<'_>, rank: u16, text: &[u8]) -> unipgas_core::Result<()> {
        let deadline = Deadline::after(PATIENCE);
        let number = self.texts.fetch_add(1, Ordering::Relaxed).to_le_bytes();
        let numbered = |part: &[u8]| [&number[..], part].concat();
        let (parts, last) = text.split_at(text.len().saturating_sub(1) / PART * PART);
        for part in parts.chunks(PART) {
            self.tell(by, rank, TEXT, &numbered(part), deadline)?;
        }
        self.tell(by, rank, LINE, &numbered(last), deadline)
    }

    /// Closes the connection to a rank on both sides. Errors: as the message to the rank; then the connection is closed at least on this side.
    pub fn close(
        &self,
        by: &Telling<'_>,
        rank: u16,
        deadline: Deadline,
    ) -> unipgas_core::Result<()> {
        let incarnation = by.world.incarnation_of(rank.into());
        self.shared.close(rank, incarnation);
        self.release(by.world);
        if u32::from(rank) == by.world.rank() {
            return Ok(());
        }
        if !self.is_untold(rank) {
            self.untold.lock().push(rank);
        }
        let mut told = self.tell(by, rank, CLOSE, &by.incarnation(), deadline);
        let from_there = &self.shared.from_there;
        if told.is_err() && from_there.is_closed(rank.into(), || incarnation) {
            // The rank has closed the connection too, and perhaps left.
            told = Ok(());
        }
        // Only a timeout needs a retry: a dead rank needs no message.
        if told != Err(Error::Timeout) {
            self.untold.lock().retain(|untold| *untold != rank);
        }
        told
    }

    /// Opens the connection again. Errors: as the message to the rank; then the connection stays closed.
    pub fn open(
        &self,
        by: &Telling<'_>,
        rank: u16,
        deadline: Deadline,
    ) -> unipgas_core::Result<()> {
        let told = match u32::from(rank) == by.world.rank() {
            true => Ok(()),
            false => self.tell(by, rank, OPEN, &by.incarnation(), deadline),
        };
        if told.is_ok() {
            let incarnation = by.world.incarnation_of(rank.into());
            self.shared.open(rank, incarnation);
        }
        told
    }
}

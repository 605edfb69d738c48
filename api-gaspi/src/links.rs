//! What processes tell each other beside data, by active messages: texts to be printed, and that a connection is closed or opened again.

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
use unipgas_core::awaited::{Awaited, Unfinished};
use unipgas_core::op::Remote;
use unipgas_core::transport::{Handler, LONGEST_MESSAGE};
use unipgas_core::{Deadline, Error, RemoteRegion, World, own_thread};

use crate::closed::Closed;

/// What a message says; the second and the third byte are the sender's rank. With the next two comes its incarnation.
const TEXT: u8 = 1;
/// The last part of a text.
const LINE: u8 = 2;
const CLOSE: u8 = 3;
const OPEN: u8 = 4;

/// Texts that may be in parts at once; those of senders that have failed stay.
const UNENDED: usize = 1024;

/// Of a text in one message: with the head, and with what the engine needs of it.
const PART: usize = LONGEST_MESSAGE - 64;
/// Who does not take a text in this time is not waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// A rank, what it has been told, and after how many closings and openings of its own.
type Told = (u16, u8, u32);

/// This process's side.
pub(crate) struct Links {
    shared: Arc<Shared>,
    /// Where the others take such messages.
    others: Box<[Mutex<Option<RemoteRegion>>]>,
    /// Ranks to which connections are closed here, and that have not been told.
    untold: Mutex<Vec<u16>>,
    /// What has been told ranks by who did not wait until they knew.
    told: Unfinished<Told>,
    /// Texts that have been sent.
    texts: AtomicU32,
}

struct Shared {
    world: Weak<World>,
    closed: Closed,
    /// Those that the other side has closed.
    from_there: Closed,
    /// Ranks to which a connection was ever closed, by either side.
    once_closed: Box<[AtomicBool]>,
    /// How often the other side has closed or opened one.
    turns: Box<[AtomicU32]>,
    /// What had been imported over connections that the other side has closed: to be released elsewhere.
    released: Mutex<Vec<Box<dyn Send>>>,
    /// Parts of texts, by the rank that sends them, and its number for the text.
    parts: Mutex<HashMap<(u16, u32), Vec<u8>>>,
    printer: Printer,
}

/// Prints in a thread of its own: standard output may have to be waited for, which nobody may who serves peers.
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

/// What is in front of a text of a rank.
pub(crate) fn of_rank(rank: u16) -> Vec<u8> {
    format!("[{rank:4}] ").into_bytes()
}

/// Writes a text in one piece.
pub(crate) fn put_out(text: &[u8]) {
    let mut out = std::io::stdout().lock();
    // A closed stdout is the program's business.
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
    /// A process that has this incarnation of `rank`, and may have died since, has closed the connection, or opened it.
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

    /// What takes the messages.
    pub fn handler(&self) -> Arc<dyn Handler> {
        self.shared.clone()
    }

    /// Whether the connection to a rank, as `world` knows it, is closed.
    #[inline]
    pub fn is_closed(&self, world: &World, rank: u32) -> bool {
        (self.shared.closed).is_closed(rank, || world.incarnation_of(rank))
    }

    /// Whether it may be closed on the other side: what both sides say may cross.
    pub fn may_be_closed(&self, rank: u16) -> bool {
        let once_closed = self.shared.once_closed.get(usize::from(rank));
        once_closed.is_some_and(|once_closed| once_closed.load(Ordering::Acquire))
    }

    /// Whether it has been closed here, and the rank does not know yet.
    pub fn is_untold(&self, rank: u16) -> bool {
        self.untold.lock().contains(&rank)
    }

    /// Another process becomes the rank: what is known of the one before goes.
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

    /// Where memory may be released.
    pub fn release(&self, world: &World) {
        let released = std::mem::take(&mut *self.shared.released.lock());
        for one in released {
            world.retire(one, 1);
        }
    }

    /// All texts have been printed, and no more come.
    pub fn end(&self) {
        self.shared.printer.end();
    }
}

/// What a process uses to tell others something.
pub(crate) struct Telling<'a> {
    pub world: &'a World,
    pub endpoint: &'a unipgas_core::Endpoint,
    /// Under which the ranks' regions are found.
    pub name: &'static str,
}

impl Telling<'_> {
    /// Of this process.
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
        // What is no text is told once, however often the caller has to call.
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
    ) -> unipgas_core::Result<Awaited> {
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

    /// Has a rank print a text. Errors: it does not take it.
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

    /// The connection to a rank is closed on both sides, at least on this one. Errors: those of the message to the rank.
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
            // It has closed the connection itself meanwhile, and perhaps left.
            told = Ok(());
        }
        // Who has died need not be told any more.
        if told != Err(Error::Timeout) {
            self.untold.lock().retain(|untold| *untold != rank);
        }
        told
    }

    /// It is open again. Errors: likewise; then it stays closed.
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

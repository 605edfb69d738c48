//! A stream of bytes to a process, by messages.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use unipgas_core::streams::greeting::SECRET;
use unipgas_core::streams::{Ended, Found, Stream};
use unipgas_core::{Deadline, Error};

use crate::address::Address;
use crate::lifeline::{self, Try};
use crate::names::Name;
use crate::net::Net;
use crate::wire::{self, Accepted, Head, Opening};

/// A host that has answered nothing in so many looks has gone.
const SILENT: u32 = 10;

/// How the other side wants to be addressed.
#[derive(Debug, Clone, Copy)]
pub struct Theirs {
    /// The conversation, as it is numbered there.
    pub conversation: u32,
    /// What is to be said there.
    pub cookie: u64,
}

/// Whom a conversation is with.
pub struct Whom {
    /// His endpoint.
    pub name: Arc<Name>,
    secret: [u8; SECRET],
    lifeline: Option<SocketAddr>,
}

impl Whom {
    /// Errors: [`Error::Unreachable`].
    pub fn of(net: &Net, address: &Address) -> unipgas_core::Result<Self> {
        Ok(Whom {
            name: Name::hold(net, &address.name)?,
            secret: address.secret,
            lifeline: address.lifeline,
        })
    }
}

/// What is to be said first.
pub enum First {
    /// It begins, with this.
    Open(Box<Opening>),
    /// It has begun.
    Accept,
    /// It does not begin. Said until then.
    Refuse(Deadline),
}

/// What the looks have found.
#[derive(Default)]
struct Pulse {
    heard: u32,
    silent: u32,
    r#try: Option<Try>,
}

/// One side of it.
pub struct Conversation {
    net: Weak<Net>,
    /// As this process numbers it.
    pub number: u32,
    /// What the other side must say.
    pub cookie: u64,
    /// Whom it is with.
    pub with: Whom,
    /// Its messages that are on their way.
    pub under_way: Arc<AtomicUsize>,
    first: First,
    refused: AtomicBool,
    theirs: OnceLock<Theirs>,
    incoming: Mutex<Vec<u8>>,
    ended: AtomicBool,
    wants_room: AtomicBool,
    /// Somebody asks whether the other process lives.
    watched: AtomicBool,
    /// Messages that have come.
    heard: AtomicU32,
    pulse: Mutex<Pulse>,
}

impl Conversation {
    /// One that this process begins, or that the other one has begun and wants to be addressed like that.
    pub fn new(
        net: Weak<Net>,
        (number, cookie): (u32, u64),
        with: Whom,
        first: First,
        theirs: Option<Theirs>,
    ) -> Self {
        Conversation {
            net,
            number,
            cookie,
            with,
            under_way: Arc::default(),
            first,
            refused: AtomicBool::new(false),
            theirs: theirs.map_or_else(OnceLock::new, OnceLock::from),
            incoming: Mutex::default(),
            ended: AtomicBool::new(false),
            wants_room: AtomicBool::new(false),
            watched: AtomicBool::new(false),
            heard: AtomicU32::new(0),
            pulse: Mutex::default(),
        }
    }

    /// The other side has accepted it. False: it had done so before.
    pub fn accept(&self, theirs: Theirs) -> bool {
        self.hear();
        self.theirs.set(theirs).is_ok()
    }

    /// A message has come.
    pub fn hear(&self) {
        self.heard.fetch_add(1, Ordering::Relaxed);
    }

    /// Bytes of the stream have come.
    pub fn take(&self, bytes: &[u8]) {
        self.incoming.lock().extend_from_slice(bytes);
    }

    /// Nothing comes any more.
    pub fn fail(&self) {
        self.ended.store(true, Ordering::Release);
    }

    /// The other side says that it is not the one that is meant.
    pub fn is_refused(&self) {
        self.refused.store(true, Ordering::Relaxed);
        self.fail();
    }

    /// Whether a turn is called for when there is room.
    pub fn wants_room(&self) -> bool {
        self.wants_room.load(Ordering::Relaxed)
    }

    /// The other process has gone.
    fn depart(&self, silent: bool) -> Found {
        if let Some(net) = self.net.upgrade() {
            net.departed.add(self.with.secret, silent);
        }
        Found::Silence
    }

    /// Whether this process has begun it.
    pub fn is_begun_here(&self) -> bool {
        matches!(self.first, First::Open(_))
    }

    /// Says first what is to be said: that it begins, or is accepted. False: there is no room for that now.
    pub fn introduce(&self, net: &Net) -> bool {
        if self.ended.load(Ordering::Acquire) {
            return true;
        }
        let accepted = Accepted {
            cookie: self.cookie,
            conversation: self.number,
            pad: 0,
        };
        let (head, body) = match (&self.first, self.theirs.get()) {
            (First::Open(opening), _) => {
                let head = Head {
                    conversation: 0,
                    kind: wire::OPEN,
                    cookie: 0,
                };
                (head, bytemuck::bytes_of(&**opening))
            }
            (First::Accept, Some(theirs)) => {
                (theirs.head(wire::ACCEPT), bytemuck::bytes_of(&accepted))
            }
            (First::Refuse(until), Some(theirs)) if !until.expired() => {
                (theirs.head(wire::REFUSE), &[][..])
            }
            (First::Accept | First::Refuse(_), _) => return true,
        };
        send(net, self, &head, body) != Ok(false)
    }
}

impl Theirs {
    fn head(&self, kind: u32) -> Head {
        Head {
            conversation: self.conversation,
            kind,
            cookie: self.cookie,
        }
    }
}

fn send(net: &Net, to: &Conversation, head: &Head, body: &[u8]) -> Result<bool, Ended> {
    match net.send(to, head, body) {
        Ok(()) => Ok(true),
        Err(Error::NotNow) => Ok(false),
        Err(error) => {
            tracing::debug!("ofi: a message cannot be sent: {error}");
            to.fail();
            Err(Ended)
        }
    }
}

impl Stream for Conversation {
    fn push(&self, bytes: &[u8]) -> Result<usize, Ended> {
        let net = self.net.upgrade().ok_or(Ended)?;
        if self.ended.load(Ordering::Acquire) {
            return Err(Ended);
        }
        let Some(theirs) = self.theirs.get() else {
            return Ok(0);
        };
        let head = theirs.head(wire::BYTES);
        let mut sent = 0;
        for body in bytes.chunks(net.body()) {
            if !send(&net, self, &head, body)? {
                break;
            }
            sent += body.len();
        }
        Ok(sent)
    }

    fn pull(&self, into: &mut Vec<u8>) -> Result<(), Ended> {
        // What has come before the end counts.
        let ended = self.ended.load(Ordering::Acquire);
        let mut incoming = self.incoming.lock();
        match into.is_empty() {
            true => std::mem::swap(into, &mut incoming),
            false => into.append(&mut incoming),
        }
        match ended {
            true => Err(Ended),
            false => Ok(()),
        }
    }

    fn is_open(&self) -> bool {
        self.theirs.get().is_some()
    }

    fn refusal(&self) -> Option<Error> {
        let refused = self.refused.load(Ordering::Relaxed);
        refused.then(|| {
            Error::Unreachable(
                "the process at the peer's address does not know its secret: it is of another job"
                    .into(),
            )
        })
    }

    fn want_room(&self, wanted: bool) {
        if self.wants_room.swap(wanted, Ordering::Relaxed) != wanted
            && let Some(net) = self.net.upgrade()
        {
            net.blocked(wanted);
        }
    }

    fn look(&self) -> Found {
        let mut pulse = self.pulse.lock();
        let heard = self.heard.load(Ordering::Relaxed);
        let news = heard != pulse.heard;
        let watched = self.watched.swap(false, Ordering::Relaxed);
        let wanted = watched || self.wants_room() || self.theirs.get().is_none();
        pulse.heard = heard;
        if news || !wanted && pulse.r#try.is_none() {
            *pulse = Pulse {
                heard,
                ..Pulse::default()
            };
            return if wanted { Found::Waits } else { Found::Nothing };
        }
        let Some(lifeline) = &self.with.lifeline else {
            return Found::Nothing;
        };
        let found = pulse.r#try.as_ref().map(Try::look);
        match found {
            Some(lifeline::Found::Gone) => return self.depart(false),
            Some(lifeline::Found::There) => {
                pulse.silent = 0;
                pulse.r#try = None;
                return if wanted { Found::Waits } else { Found::Nothing };
            }
            Some(lifeline::Found::Nothing) => pulse.silent += 1,
            None => pulse.r#try = Try::begin(lifeline),
        }
        match pulse.silent < SILENT {
            true => Found::Waits,
            false => self.depart(true),
        }
    }

    fn watch(&self) -> bool {
        self.watched.store(true, Ordering::Relaxed);
        self.with.lifeline.is_some()
    }

    fn end(&self) {
        let Some(net) = self.net.upgrade() else {
            return;
        };
        if !self.ended.swap(true, Ordering::AcqRel)
            && let Some(theirs) = self.theirs.get()
        {
            let _ = net.send(self, &theirs.head(wire::CLOSE), &[]);
        }
        self.want_room(false);
        net.forget(self);
    }
}

//! A byte stream to a process, made of messages.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use unipgas_core::streams::greeting::SECRET;
use unipgas_core::streams::{Stream, StreamEnded, StreamState, TransitState, pull_from};
use unipgas_core::{Deadline, Error};

use crate::address::OfiAddress;
use crate::contact::{Contact, Finding, SILENT, Whereabouts};
use crate::liveness_listener::{self, Try};
use crate::names::AvEntry;
use crate::net::OfiNet;
use crate::wire::{self, Acceptance, Head, OpenRequest};

/// Silent looks at a lifeline, while the process itself answers, after which a warning is due.
const DEAF: u32 = 3;

/// Address of the conversation at the peer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Theirs {
    /// The peer's number of the conversation.
    pub conversation: u32,
    /// Cookie that messages to the peer carry.
    pub cookie: u64,
}

/// The peer of a conversation.
pub(crate) struct Whom {
    /// Its endpoint.
    pub name: Arc<AvEntry>,
    /// TCP port of its provider, if known.
    port: Option<SocketAddr>,
    secret: [u8; SECRET],
    lifeline: Option<SocketAddr>,
}

impl Whom {
    /// Errors: [`Error::Unreachable`].
    pub fn of(net: &OfiNet, address: &OfiAddress) -> unipgas_core::Result<Self> {
        Ok(Whom {
            name: AvEntry::hold(net, &address.name)?,
            port: net.here.port(&address.name),
            secret: address.secret,
            lifeline: address.lifeline,
        })
    }
}

/// First message of a conversation.
pub(crate) enum First {
    /// Request to begin.
    Open(Box<OpenRequest>),
    /// The peer has begun it: accept.
    Accept,
    /// The peer has begun it: refuse. Sent until the deadline.
    Refuse(Deadline),
}

/// State of the looks.
#[derive(Default)]
struct Pulse {
    heard: u32,
    silent: u32,
    r#try: Option<Try>,
    /// Used until the peer accepts the conversation.
    contact: Contact,
    /// Silent looks at the lifeline, while the process itself answered.
    deaf: u32,
}

/// One side of a conversation.
pub(crate) struct Conversation {
    net: Weak<OfiNet>,
    /// Number of the conversation in this process.
    pub number: u32,
    /// Cookie that messages of the peer must carry.
    pub cookie: u64,
    /// The peer.
    pub with: Whom,
    /// Number of its messages in flight.
    pub under_way: Arc<AtomicUsize>,
    first: First,
    theirs: OnceLock<Theirs>,
    incoming: Mutex<Vec<u8>>,
    pub state: StreamState,
    pulse: Mutex<Pulse>,
}

impl Conversation {
    /// A conversation that this process begins. With `theirs`: a conversation that the peer has begun.
    pub fn new(
        net: Weak<OfiNet>,
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
            theirs: theirs.map_or_else(OnceLock::new, OnceLock::from),
            incoming: Mutex::default(),
            state: StreamState::default(),
            pulse: Mutex::default(),
        }
    }

    /// The peer has accepted the conversation. False: it had accepted before.
    pub fn accept(&self, theirs: Theirs) -> bool {
        self.state.hear();
        self.theirs.set(theirs).is_ok()
    }

    /// Appends received bytes of the stream.
    pub fn take(&self, bytes: &[u8]) {
        self.incoming.lock().extend_from_slice(bytes);
    }

    /// The peer has refused the conversation: this process does not know its secret.
    pub fn on_refused(&self) {
        let stranger =
            "the process at the peer's address does not know its secret: it is of another job";
        self.state.refuse(Error::Unreachable(stranger.into()));
        self.state.end();
    }

    /// Notes that the peer has gone. `silent`: it did not answer, so it may be tried again later.
    fn depart(&self, silent: bool) -> TransitState {
        self.is_lost(silent, Error::PeerDead)
    }

    fn is_lost(&self, silent: bool, why: Error) -> TransitState {
        if let Some(net) = self.net.upgrade() {
            net.departed.add(self.with.secret, silent, why);
        }
        TransitState::Silence
    }

    /// Looks at the peer before it has accepted.
    fn look_for(&self, contact: &mut Contact) -> TransitState {
        let Whom { lifeline, port, .. } = &self.with;
        match contact.look(lifeline.as_ref(), port.as_ref()) {
            Finding::Hope => TransitState::Waits,
            finding => self.is_found(finding),
        }
    }

    /// Handles the result of the looks.
    fn is_found(&self, finding: Finding) -> TransitState {
        let explain = |net: Arc<OfiNet>| {
            let peer = Whereabouts {
                name: self.with.name.bytes(),
                lifeline: self.with.lifeline.as_ref(),
            };
            net.here.explain(finding, &peer)
        };
        let text = || self.net.upgrade().and_then(explain);
        match finding {
            Finding::Hope | Finding::Gone => self.depart(false),
            Finding::Nobody => {
                // Callers see a dead peer, so the text goes to standard error.
                text().iter().for_each(|text| unipgas_core::tell(text));
                self.depart(true)
            }
            Finding::Dropped | Finding::Refused | Finding::Late | Finding::NoWay(_) => {
                let why = Error::Unreachable(text().unwrap_or_default());
                self.state.refuse(why.clone());
                self.is_lost(true, why)
            }
        }
    }

    /// The provider does not reach the peer, or no longer.
    pub fn on_unreachable(&self) {
        if self.is_begun_here() && self.theirs.get().is_none() && !self.state.has_ended() {
            let Whom { lifeline, port, .. } = &self.with;
            let at = port.as_ref().or(lifeline.as_ref());
            let finding = self.pulse.lock().contact.give_up(at);
            if finding != Finding::Gone {
                self.is_found(finding);
            }
        }
        self.state.end();
    }

    /// Answers the peer's question whether this process lives.
    pub fn answer(&self, net: &OfiNet) -> Option<()> {
        // Without room the answer is dropped: the peer asks again.
        let _ = net.send(self, &self.theirs.get()?.head(wire::HERE), &[]);
        Some(())
    }

    /// Asks the peer whether it lives, while its lifeline is silent.
    fn ask(&self) {
        if let Some((net, theirs)) = self.net.upgrade().zip(self.theirs.get()) {
            let _ = net.send(self, &theirs.head(wire::ASK), &[]);
        }
    }

    /// The process has answered, but not at its lifeline. Warns once per process.
    fn note_deaf(&self, pulse: &mut Pulse) {
        pulse.deaf += 1;
        if let Some(lifeline) = &self.with.lifeline
            && pulse.deaf == DEAF
            && let Some(net) = self.net.upgrade()
            && !net.deaf_told.swap(true, Ordering::Relaxed)
        {
            unipgas_core::tell(&format!(
                "{lifeline} does not answer from {}, though the process there does: a firewall drops what goes to its ports that are not the provider's; a process \
                 that is stopped counts as dead there",
                net.here.interface
            ));
        }
    }

    /// Whether this process has begun it.
    pub fn is_begun_here(&self) -> bool {
        matches!(self.first, First::Open(_))
    }

    /// Sends the first message. False: there is no room for it now.
    pub fn introduce(&self, net: &OfiNet) -> bool {
        if self.state.has_ended() {
            return true;
        }
        let accepted = Acceptance {
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

fn send(net: &OfiNet, to: &Conversation, head: &Head, body: &[u8]) -> Result<bool, StreamEnded> {
    match net.send(to, head, body) {
        Ok(()) => Ok(true),
        Err(Error::NotNow) => Ok(false),
        Err(error) => {
            tracing::debug!("ofi: a message cannot be sent: {error}");
            to.on_unreachable();
            Err(StreamEnded)
        }
    }
}

impl Stream for Conversation {
    fn push(&self, bytes: &[u8]) -> Result<usize, StreamEnded> {
        let net = self.net.upgrade().ok_or(StreamEnded)?;
        if self.state.has_ended() {
            return Err(StreamEnded);
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

    fn push_along(&self, bytes: &[u8]) -> Result<usize, StreamEnded> {
        let net = self.net.upgrade().ok_or(StreamEnded)?;
        let theirs = self.theirs.get();
        let waits = theirs.filter(|_| !self.state.has_ended());
        match waits.is_some_and(|theirs| net.hold(self, theirs.head(wire::BYTES), bytes)) {
            true => Ok(bytes.len()),
            false => {
                let pushed = self.push(bytes);
                net.note_sent(self);
                pushed
            }
        }
    }

    fn pull(&self, into: &mut Vec<u8>) -> Result<(), StreamEnded> {
        // First, so bytes from before the end are returned.
        let ended = self.state.has_ended();
        pull_from(&mut self.incoming.lock(), into, ended)
    }

    fn is_open(&self) -> bool {
        self.theirs.get().is_some()
    }

    fn state(&self) -> Option<&StreamState> {
        Some(&self.state)
    }

    fn want_room(&self, wanted: bool) {
        if self.state.want_room(wanted)
            && let Some(net) = self.net.upgrade()
        {
            net.blocked(wanted);
        }
    }

    fn look(&self) -> TransitState {
        let mut pulse = self.pulse.lock();
        if self.theirs.get().is_none() {
            return self.look_for(&mut pulse.contact);
        }
        let (news, wanted) = self.state.look(&mut pulse.heard);
        if news || !wanted && pulse.r#try.is_none() {
            if pulse.silent > 0 {
                self.note_deaf(&mut pulse);
            }
            (pulse.silent, pulse.r#try) = (0, None);
            return TransitState::of_living(wanted);
        }
        let Some(lifeline) = &self.with.lifeline else {
            return TransitState::Nothing;
        };
        let mut found = pulse.r#try.as_ref().map(Try::look);
        if found.is_none() {
            pulse.r#try = Try::begin(lifeline);
            // A near host refuses at once.
            let refuses = |begun: &Try| begun.look() == liveness_listener::ProbeResult::Gone;
            let refused = pulse.r#try.as_ref().is_some_and(refuses);
            found = refused.then_some(liveness_listener::ProbeResult::Gone);
        }
        match found {
            Some(liveness_listener::ProbeResult::Gone) => return self.depart(false),
            Some(liveness_listener::ProbeResult::There) => {
                (pulse.silent, pulse.deaf, pulse.r#try) = (0, 0, None);
                return TransitState::of_living(wanted);
            }
            Some(liveness_listener::ProbeResult::Nothing) => {
                pulse.silent += 1;
                self.ask();
            }
            None => {}
        }
        match pulse.silent < SILENT {
            true => TransitState::Waits,
            false => self.depart(true),
        }
    }

    fn watch(&self) -> bool {
        self.state.watch();
        self.with.lifeline.is_some()
    }

    fn end(&self) {
        let Some(net) = self.net.upgrade() else {
            return;
        };
        if self.state.end()
            && let Some(theirs) = self.theirs.get()
        {
            let _ = net.send(self, &theirs.head(wire::CLOSE), &[]);
        }
        self.want_room(false);
        net.forget(self);
    }
}

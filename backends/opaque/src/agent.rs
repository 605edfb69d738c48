//! Serving peers, and taking what they answer: by turns that never wait. The process's progress thread does both; who waits takes answers.

use std::collections::HashSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::event::epoll;
use rustix::io::Errno;
use unipgas_core::agent::{Answer, Place, Request, wire};
use unipgas_core::descriptor::above;
use unipgas_core::{Error, Result};

use crate::envelope::{self, Answered, Envelope};
use crate::link::{Link, Outgoing, parts};
use crate::pulse::{Found, Pulse};
use crate::stream::{self, ADDRESS, HELLO};
use crate::transport::Home;
use crate::window::Window;

/// The most guests who have not said who they are.
const STRANGERS: usize = 512;

/// The descriptors whose events call for a turn: itself one that can be polled.
pub struct Events(OwnedFd);

impl Events {
    pub fn new() -> Result<Self> {
        let events = above(|| epoll::create(epoll::CreateFlags::CLOEXEC));
        Ok(Events(events.map_err(|e| Error::os("epoll_create", e))?))
    }

    /// Errors: [`Error::Os`].
    pub fn watch(&self, what: impl AsFd) -> Result<()> {
        epoll::add(
            &self.0,
            what,
            epoll::EventData::new_u64(0),
            epoll::EventFlags::IN,
        )
        .map_err(|e| Error::os("epoll_ctl", e))
    }

    fn watch_output(&self, what: impl AsFd, wanted: bool) {
        let mut flags = epoll::EventFlags::IN;
        flags.set(epoll::EventFlags::OUT, wanted);
        self.watch_for(what, flags);
    }

    fn watch_for(&self, what: impl AsFd, flags: epoll::EventFlags) {
        let _ = epoll::modify(&self.0, what, epoll::EventData::new_u64(0), flags);
    }

    /// Before it is closed: the child of a fork may have it, too, and then it would stay.
    fn forget(&self, what: impl AsFd) {
        let _ = epoll::delete(&self.0, what);
    }
}

impl AsFd for Events {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Somebody who has connected to this process.
struct Guest {
    socket: OwnedFd,
    /// Where he listens, who has said the secret.
    known: Option<[u8; ADDRESS]>,
    told_of_leave: bool,
    /// What he has imported, and has not been told the end of.
    imported: HashSet<Place>,
    /// What he has been told the end of, and may use still.
    released: HashSet<Place>,
    incoming: Vec<u8>,
    window: Window,
    outgoing: Outgoing,
    /// The end of a full socket is waited for.
    blocked: bool,
    pulse: Pulse,
}

/// A stream to a peer, and what has come from there in part.
struct Host {
    link: Arc<Link>,
    incoming: Vec<u8>,
    blocked: bool,
    pulse: Pulse,
}

/// What a turn works on.
#[derive(Default)]
pub struct Agent {
    /// In the order in which they have come.
    guests: Vec<Guest>,
    hosts: Vec<Host>,
    /// There is no room for another guest: who connects waits.
    full: bool,
}

impl Agent {
    /// Takes what has been answered. Runs nobody's code, so that it may be called whatever the caller holds.
    pub fn take_answers(&mut self, home: &Home) {
        self.meet_new_hosts(home);
        self.hear_hosts(home, false);
    }

    /// Does what there is to do.
    pub fn turn(&mut self, home: &Home) {
        let _ = rustix::io::read(&home.alarm, &mut [0u8; 8]);
        let looks = home.timer.is_due();
        self.meet_new_hosts(home);
        if home.leaving.load(Ordering::Acquire) {
            self.tell_of_leave(home);
            home.releases.left();
        }
        self.tell_of_releases(home);
        if !self.full || looks {
            self.greet(home);
        }
        self.serve(home, looks);
        self.dismiss_strangers(home);
        self.hear_hosts(home, looks);
        if self.guests.iter().any(|guest| !guest.window.is_empty()) {
            // What is held back goes on without an event.
            home.wake();
        }
        if home.releases.have_changed() {
            home.registered.bell().ring_if_heard();
        }
    }

    /// Whether everything that peers are told has left.
    pub fn has_sent_all(&self) -> bool {
        self.guests.iter().all(|guest| guest.outgoing.is_empty())
    }

    fn meet_new_hosts(&mut self, home: &Home) {
        for link in home.new_links.lock().drain(..) {
            if let Err(error) = home.events.watch(link.socket()) {
                tracing::warn!("a peer cannot be heard: {error}");
                link.close();
                continue;
            }
            self.hosts.push(Host {
                link,
                incoming: Vec::new(),
                blocked: false,
                pulse: Pulse::default(),
            });
        }
    }

    fn greet(&mut self, home: &Home) {
        let full = loop {
            match home.listener.accept() {
                Ok(None) => break false,
                Ok(Some(socket)) => self.take_in(socket, home),
                Err(error) => {
                    if !self.full {
                        tracing::warn!("a process that has connected has to wait: {error}");
                    }
                    break true;
                }
            }
        };
        if full {
            // There may be room at the next look; until then the listener would have one turn follow the other.
            home.timer.start();
        }
        if self.full != full {
            self.full = full;
            let mut wanted = epoll::EventFlags::empty();
            wanted.set(epoll::EventFlags::IN, !full);
            home.events.watch_for(&home.listener.socket, wanted);
        }
    }

    fn take_in(&mut self, socket: OwnedFd, home: &Home) {
        if let Err(error) = home.events.watch(&socket) {
            tracing::warn!("a process that has connected cannot be heard: {error}");
            return;
        }
        self.guests.push(Guest {
            socket,
            known: None,
            told_of_leave: false,
            imported: HashSet::new(),
            released: HashSet::new(),
            incoming: Vec::new(),
            window: Window::new(home.options.seed),
            outgoing: Outgoing::default(),
            blocked: false,
            pulse: Pulse::default(),
        });
    }

    /// Who says nothing must not keep others out: those who came first go, all where there is no room.
    fn dismiss_strangers(&mut self, home: &Home) {
        let is_stranger = |guest: &Guest| guest.known.is_none();
        let there = self
            .guests
            .iter()
            .filter(|guest| is_stranger(guest))
            .count();
        let most = if self.full { 0 } else { STRANGERS };
        let mut many = there.saturating_sub(most);
        if many == 0 {
            return;
        }
        tracing::warn!(
            "{many} processes have connected and said nothing: their streams are closed"
        );
        self.guests.retain(|guest| {
            let goes = many > 0 && is_stranger(guest);
            if goes {
                many -= 1;
                guest.part(home);
            }
            !goes
        });
    }

    fn tell_of_leave(&mut self, home: &Home) {
        for guest in self.guests.iter_mut().filter(|guest| guest.known.is_some()) {
            if !guest.told_of_leave {
                guest.told_of_leave = true;
                guest.answer(0, &Answer::Leaving);
                let _ = guest.push(home);
            }
        }
    }

    fn tell_of_releases(&mut self, home: &Home) {
        let guests = &mut self.guests;
        home.releases.tell(|place| {
            let mut told = 0;
            for guest in guests.iter_mut() {
                if guest.imported.remove(&place) {
                    guest.released.insert(place);
                    guest.answer(0, &Answer::Released(place));
                    let _ = guest.push(home);
                    told += 1;
                }
            }
            told
        });
    }

    fn serve(&mut self, home: &Home, looks: bool) {
        self.guests.retain_mut(|guest| {
            let ended = stream::pull(&guest.socket, &mut guest.incoming).is_err();
            // What came before the end counts.
            let sense = guest.serve(home, ended);
            if sense.is_err() {
                tracing::warn!("a process has sent what no peer sends: its stream is closed");
            }
            let lost = guest.known.is_some_and(|address| home.is_lost(&address));
            let stays = sense.is_ok()
                && !ended
                && !lost
                && guest.push(home).is_ok()
                && !(looks && is_silent(&mut guest.pulse, &guest.socket, home));
            if !stays {
                guest.part(home);
                for place in guest.released.drain() {
                    home.releases.forgotten(place);
                }
            } else if guest.blocked == guest.outgoing.is_empty() {
                guest.blocked = !guest.blocked;
                home.events.watch_output(&guest.socket, guest.blocked);
            }
            stays
        });
    }

    fn hear_hosts(&mut self, home: &Home, looks: bool) {
        self.hosts.retain_mut(|host| {
            let socket = host.link.socket();
            let was_reached = host.link.is_reached();
            let blocked = host.link.push();
            let reached = !was_reached && host.link.is_reached();
            let ended = stream::pull(socket, &mut host.incoming).is_err();
            let taken = host.link.take(&mut host.incoming, home);
            let silent = looks && is_silent(&mut host.pulse, socket, home);
            let lost = ended || silent || taken.is_err();
            if lost {
                home.events.forget(socket);
                host.link.close();
            } else if host.blocked != blocked {
                host.blocked = blocked;
                home.events.watch_output(socket, blocked);
            }
            if lost || reached || taken.is_ok_and(|news| news) {
                home.send_late();
                home.registered.bell().ring_if_heard();
            }
            !lost
        });
    }
}

/// Looks whether the host at the other end has gone; and again later, if anything is on its way.
fn is_silent(pulse: &mut Pulse, socket: impl AsFd, home: &Home) -> bool {
    let found = pulse.look(socket);
    if found == Found::Waits {
        home.watch_silence();
    }
    found == Found::Silence
}

impl Guest {
    /// Carries out what has come whole; all of it where that is the `last`. Errors: he makes no sense, or does not know the secret.
    fn serve(&mut self, home: &Home, last: bool) -> Result<(), wire::Malformed> {
        let incoming = std::mem::take(&mut self.incoming);
        let mut at = 0;
        if self.known.is_none() {
            let Some(said) = incoming.first_chunk::<HELLO>() else {
                self.incoming = incoming;
                return Ok(());
            };
            self.known = stream::greeted(said, &home.listener.secret);
            at = HELLO;
        }
        let address = self.known.ok_or(wire::Malformed)?;
        if home.is_lost(&address) {
            // It is as if nothing of it had come.
            self.incoming.clear();
            return Ok(());
        }
        while let Some((head, message, len)) = envelope::first::<Envelope>(&incoming[at..])? {
            let request = Request::decode(message)?;
            at += len;
            match request {
                Request::Forgotten { place } => {
                    if self.released.remove(&place) {
                        home.releases.forgotten(place);
                    }
                }
                Request::Import { .. } => self.carry_out(home, &head, &request),
                _ if home.options.unordered => self.window.hold(head, &request, message),
                _ => self.carry_out(home, &head, &request),
            }
        }
        self.incoming = incoming;
        self.incoming.drain(..at);
        while let Some((head, message)) = self.window.take(last) {
            self.carry_out(home, &head, &Request::decode(&message)?);
        }
        self.window.turn();
        Ok(())
    }

    fn carry_out(&mut self, home: &Home, head: &Envelope, request: &Request<'_>) {
        let answer = match request {
            // What is told to have ended is the whole.
            Request::Import { place } if place.offset != 0 => failed(&Error::StaleRegion),
            _ => serve_in_parts(home, request),
        };
        self.answer(head.number, &answer);
        if let (Request::Import { place }, Answer::Done(_)) = (request, answer) {
            self.imported.insert(*place);
        }
    }

    fn answer(&mut self, number: Answered, answer: &Answer) {
        let into = self.outgoing.bytes();
        let whole = envelope::frame(into, number, |into| answer.encode(into));
        if let Err(error) = whole {
            // What was asked for is too long; the end of it is not.
            let _ = envelope::frame(into, number, |into| failed(&error).encode(into));
        }
    }

    /// Sends what there is room for. Errors: the stream has ended.
    fn push(&mut self, home: &Home) -> Result<(), Errno> {
        if self.outgoing.is_empty() {
            return Ok(());
        }
        let pushed = self.outgoing.push(&self.socket);
        home.watch_silence();
        pushed
    }

    /// The last that he sees of this process, whatever children of it have the socket, too.
    fn part(&self, home: &Home) {
        home.events.forget(&self.socket);
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }
}

fn failed(error: &Error) -> Answer {
    Answer::Failed(error.into())
}

/// What keeps no lines writes from the end.
fn serve_in_parts(home: &Home, request: &Request<'_>) -> Answer {
    let Request::Put {
        to,
        bytes,
        flags,
        notice,
    } = *request
    else {
        return home.registered.serve(request);
    };
    let mut answer = Answer::Done(Vec::new());
    for part in parts(bytes.len(), !home.options.limits.lines) {
        let first = part.start == 0;
        let Some(offset) = to.offset.checked_add(part.start as u64) else {
            return failed(&Error::StaleRegion);
        };
        let to = Place { offset, ..to };
        answer = home.registered.serve(&Request::Put {
            to,
            bytes: &bytes[part],
            flags,
            // With the part that comes last.
            notice: notice.filter(|_| first),
        });
        if let Answer::Failed(_) = answer {
            break;
        }
        if !first {
            std::thread::yield_now();
        }
    }
    answer
}

//! A peer that has begun a stream to this process, and is served.

use std::collections::HashSet;
use std::sync::Arc;

use super::envelope::{self, Answered, Envelope};
use super::greeting::{HELLO, Who, greeted, other_version};
use super::home::Home;
use super::landing::parts;
use super::network::{Accepted, Ended, Faults, Found, Order, Stream};
use super::outgoing::Outgoing;
use unipgas_base::Error;
use unipgas_engine::agent::{Answer, Carried, Place, Request, wire};

/// The thread that serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    /// The progress thread, or a thread that drives in its place.
    Driver,
    /// A thread that waits. It must not run code of the user.
    Waiter,
}

pub(super) struct Guest {
    stream: Arc<dyn Stream>,
    /// The peer's listen address, once authenticated.
    known: Option<Who>,
    told_of_leave: bool,
    /// Registrations that the peer has imported, and still considers valid.
    imported: HashSet<Place>,
    /// Ended registrations that the peer knows about, but may still use.
    released: HashSet<Place>,
    incoming: Vec<u8>,
    /// Keeps requests that are not executed on arrival.
    order: Option<Box<dyn Order>>,
    /// Channels and inboxes with a last record that found no room. Records chained to it are refused too.
    refused: HashSet<(u32, Place)>,
    outgoing: Outgoing,
    /// A thread of the peer may wait for an answer in `outgoing`.
    urgent: bool,
    /// The stream is full, and reports room.
    blocked: bool,
}

impl Guest {
    pub(crate) fn new(accepted: Accepted, home: &Home) -> Self {
        Guest {
            stream: accepted.stream,
            known: accepted.known,
            told_of_leave: false,
            imported: HashSet::new(),
            released: HashSet::new(),
            incoming: Vec::new(),
            order: home.faults().and_then(Faults::order),
            refused: HashSet::new(),
            outgoing: Outgoing::default(),
            urgent: false,
            blocked: false,
        }
    }

    pub(crate) fn is_stranger(&self) -> bool {
        self.known.is_none()
    }

    /// Whether no request is kept.
    pub(crate) fn is_served(&self) -> bool {
        self.order.as_ref().is_none_or(|order| order.is_empty())
    }

    /// Whether all bytes to the peer have left.
    pub(crate) fn has_all(&self) -> bool {
        self.outgoing.is_empty()
    }

    pub(crate) fn tell_of_leave(&mut self, home: &Home) {
        if self.known.is_some() && !self.told_of_leave {
            self.told_of_leave = true;
            self.answer(0, &Answer::Leaving);
            let _ = self.push(home);
        }
    }

    /// Reports the end of a registration. False: the peer has not imported it.
    pub(crate) fn tell_of_release(&mut self, home: &Home, place: Place) -> bool {
        let knows = self.imported.remove(&place);
        if knows {
            self.released.insert(place);
            self.answer(0, &Answer::Released(place));
            let _ = self.push(home);
        }
        knows
    }

    /// Serves the peer. False: the stream has ended, and the peer uses no registration any more.
    pub fn turn(&mut self, home: &Home, looks: bool, by: By) -> bool {
        let ended = self.stream.pull(&mut self.incoming).is_err();
        if by == By::Waiter && (ended || self.order.is_some() || self.known.is_none()) {
            home.wake();
            return true;
        }
        // Bytes from before the end count.
        let sense = self.serve(home, ended, by);
        if sense.is_err() {
            tracing::warn!("a process has sent what no peer sends: its stream is closed");
        }
        let lost = self.known.is_some_and(|who| home.is_lost(&who));
        let stays = sense.is_ok()
            && !ended
            && !lost
            && self.push_by(home, by).is_ok()
            && !(looks && is_silent(&*self.stream, !self.released.is_empty(), home));
        if !stays {
            self.part();
            for place in self.released.drain() {
                home.releases.forgotten(place);
            }
        } else if self.blocked == self.outgoing.is_empty() {
            self.blocked = !self.blocked;
            self.stream.want_room(self.blocked);
        }
        stays
    }

    /// Executes the complete requests. `last`: kept requests too. Errors: the bytes are malformed, or the secret is wrong.
    fn serve(&mut self, home: &Home, last: bool, by: By) -> Result<(), wire::Malformed> {
        let incoming = std::mem::take(&mut self.incoming);
        let mut at = 0;
        if self.known.is_none() {
            let Some(said) = incoming.first_chunk::<HELLO>() else {
                self.incoming = incoming;
                return Ok(());
            };
            self.known = greeted(said, &home.network().secret());
            if let Some(version) = other_version(said) {
                tracing::warn!(
                    "a process has connected that has another release of unipgas (version {version} of the protocol): install one release on all hosts"
                );
            }
            at = HELLO;
        }
        let who = self.known.ok_or(wire::Malformed)?;
        if home.is_lost(&who) {
            // As if the bytes had been lost.
            self.incoming.clear();
            return Ok(());
        }
        while let Some((head, message, len)) = envelope::first::<Envelope>(&incoming[at..])? {
            let request = Request::decode(message)?;
            if by == By::Waiter && !home.registered().is_plain(&request) {
                home.wake();
                break;
            }
            at += len;
            match (request, &mut self.order) {
                (Request::Forgotten { place }, _) => {
                    self.refused.retain(|(_, inbox)| *inbox != place);
                    if self.released.remove(&place) {
                        home.releases.forgotten(place);
                    }
                }
                (Request::Import { .. }, _) | (_, None) => self.carry_out(home, &head, &request),
                (_, Some(order)) => order.hold(head, &request, message),
            }
        }
        self.incoming = incoming;
        self.incoming.drain(..at);
        while let Some((head, message)) = self.order.as_mut().and_then(|order| order.take(last)) {
            self.carry_out(home, &head, &Request::decode(&message)?);
        }
        if let Some(order) = &mut self.order {
            order.turn();
        }
        Ok(())
    }

    fn carry_out(&mut self, home: &Home, head: &Envelope, request: &Request<'_>) {
        let answer = match request {
            // A release names a whole region, so an import must do the same.
            Request::Import { place } if place.offset != 0 => failed(&Error::StaleRegion),
            Request::Deliver { first, .. } => self.deliver(home, (head.channel, *first), request),
            _ => serve_in_parts(home, request),
        };
        self.urgent |= !matches!(&answer, Answer::Done(bytes) if bytes.is_empty());
        self.answer(head.number, &answer);
        home.serves();
        if let (Request::Import { place }, Answer::Done(_)) = (request, answer) {
            self.imported.insert(*place);
        }
    }

    /// Delivers a record after its put, in the order of its [chain](unipgas_engine::op::Flags::CHAINED).
    fn deliver(&mut self, home: &Home, chain: (u32, Place), request: &Request<'_>) -> Answer {
        if let Request::Deliver {
            put, chained: true, ..
        } = request
            && self.refused.contains(&chain)
        {
            let written = put.map(|Carried { to, bytes, flags }| Request::Put {
                to,
                bytes,
                flags,
                notice: None,
            });
            return match written.map(|put| home.registered().serve(&put)) {
                None | Some(Answer::Done(_)) => failed(&Error::InboxFull),
                Some(other) => other,
            };
        }
        let answer = home.registered().serve(request);
        let full = matches!(&answer, Answer::Failed(why) if Error::from(*why) == Error::InboxFull);
        match full {
            true => _ = self.refused.insert(chain),
            false if self.refused.is_empty() => {}
            false => _ = self.refused.remove(&chain),
        }
        answer
    }

    fn answer(&mut self, number: Answered, answer: &Answer) {
        let into = self.outgoing.bytes();
        let whole = envelope::frame(into, number, |into| answer.encode(into));
        if let Err(error) = whole {
            // The answer is too long. The error fits.
            let _ = envelope::frame(into, number, |into| failed(&error).encode(into));
        }
    }

    /// Sends the bytes that there is room for. Errors: the stream has ended.
    fn push(&mut self, home: &Home) -> Result<(), Ended> {
        self.push_by(home, By::Driver)
    }

    /// As [`push`](Guest::push). A waiting thread may send more to this peer soon, so its answers may leave with that, unless they are urgent.
    fn push_by(&mut self, home: &Home, by: By) -> Result<(), Ended> {
        if self.outgoing.is_empty() {
            return Ok(());
        }
        let urgent = std::mem::take(&mut self.urgent) || by == By::Driver;
        let pushed = match urgent {
            true => self.outgoing.push(&*self.stream),
            false => self.outgoing.push_along(&*self.stream),
        };
        home.watch_silence();
        pushed
    }

    /// Ends the stream, also in children of a fork.
    pub(crate) fn part(&self) {
        self.stream.end();
    }
}

/// Looks whether the peer has gone. Asks for another look if bytes are in transit. `awaited`: this process needs an answer.
pub(super) fn is_silent(stream: &dyn Stream, awaited: bool, home: &Home) -> bool {
    if awaited {
        stream.watch();
    }
    let found = stream.look();
    if found == Found::Waits {
        home.watch_silence();
    }
    found == Found::Silence
}

fn failed(error: &Error) -> Answer {
    Answer::Failed(error.into())
}

/// Executes a request. A test network without [`Limits::lines`](unipgas_engine::transport::Limits) gets its puts in parts, the last part first.
fn serve_in_parts(home: &Home, request: &Request<'_>) -> Answer {
    let Request::Put {
        to,
        bytes,
        flags,
        notice,
    } = *request
    else {
        return home.registered().serve(request);
    };
    let mut answer = Answer::Done(Vec::new());
    for part in parts(bytes.len(), home.writes_backwards()) {
        let first = part.start == 0;
        let Some(offset) = to.offset.checked_add(part.start as u64) else {
            return failed(&Error::StaleRegion);
        };
        let to = Place { offset, ..to };
        answer = home.registered().serve(&Request::Put {
            to,
            bytes: &bytes[part],
            flags,
            // With the part that is written last.
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

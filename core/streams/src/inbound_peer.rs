//! A peer that has begun a stream to this process, and is served.

use std::collections::HashSet;
use std::sync::Arc;

use super::envelope::{self, Answered, RequestHeader};
use super::greeting::{HELLO, PaddedAddress, greeted, other_version};
use super::landing::parts;
use super::network::{Accepted, Faults, Order, Stream, StreamEnded, TransitState};
use super::outgoing::Outgoing;
use super::stream_node::StreamNode;
use unipgas_base::Error;
use unipgas_engine::agent::{Answer, Carried, RegisteredPlace, Request, wire};

/// The thread that serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    /// The progress thread, or a thread that drives in its place.
    Driver,
    /// A thread that waits. It must not run code of the user.
    Waiter,
}

pub(super) struct InboundPeer {
    stream: Arc<dyn Stream>,
    /// The peer's listen address, once authenticated.
    known: Option<PaddedAddress>,
    told_of_leave: bool,
    /// Registrations that the peer has imported, and still considers valid.
    imported: HashSet<RegisteredPlace>,
    /// Ended registrations that the peer knows about, but may still use.
    released: HashSet<RegisteredPlace>,
    incoming: Vec<u8>,
    /// Keeps requests that are not executed on arrival.
    order: Option<Box<dyn Order>>,
    /// Channels and inboxes with a last record that found no room. Records chained to it are refused too.
    refused: HashSet<(u32, RegisteredPlace)>,
    outgoing: Outgoing,
    /// A thread of the peer may wait for an answer in `outgoing`.
    urgent: bool,
    /// The stream is full, and reports room.
    blocked: bool,
}

impl InboundPeer {
    pub(crate) fn new(accepted: Accepted, node: &StreamNode) -> Self {
        InboundPeer {
            stream: accepted.stream,
            known: accepted.known,
            told_of_leave: false,
            imported: HashSet::new(),
            released: HashSet::new(),
            incoming: Vec::new(),
            order: node.faults().and_then(Faults::order),
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

    pub(crate) fn tell_of_leave(&mut self, node: &StreamNode) {
        if self.known.is_some() && !self.told_of_leave {
            self.told_of_leave = true;
            self.answer(0, &Answer::Leaving);
            let _ = self.push(node);
        }
    }

    /// Reports the end of a registration. False: the peer has not imported it.
    pub(crate) fn tell_of_release(&mut self, node: &StreamNode, place: RegisteredPlace) -> bool {
        let knows = self.imported.remove(&place);
        if knows {
            self.released.insert(place);
            self.answer(0, &Answer::Released(place));
            let _ = self.push(node);
        }
        knows
    }

    /// Serves the peer. False: the stream has ended, and the peer uses no registration any more.
    pub fn turn(&mut self, node: &StreamNode, looks: bool, by: By) -> bool {
        let ended = self.stream.pull(&mut self.incoming).is_err();
        if by == By::Waiter && (ended || self.order.is_some() || self.known.is_none()) {
            node.wake();
            return true;
        }
        // Bytes from before the end count.
        let sense = self.serve(node, ended, by);
        if sense.is_err() {
            tracing::warn!("a process has sent what no peer sends: its stream is closed");
        }
        let lost = self.known.is_some_and(|who| node.is_lost(&who));
        let stays = sense.is_ok()
            && !ended
            && !lost
            && self.push_by(node, by).is_ok()
            && !(looks && is_silent(&*self.stream, !self.released.is_empty(), node));
        if !stays {
            self.part();
            for place in self.released.drain() {
                node.releases.forgotten(place);
            }
        } else if self.blocked == self.outgoing.is_empty() {
            self.blocked = !self.blocked;
            self.stream.want_room(self.blocked);
        }
        stays
    }

    /// Executes the complete requests. `last`: kept requests too. Errors: the bytes are malformed, or the secret is wrong.
    fn serve(&mut self, node: &StreamNode, last: bool, by: By) -> Result<(), wire::Malformed> {
        let incoming = std::mem::take(&mut self.incoming);
        let mut at = 0;
        if self.known.is_none() {
            let Some(said) = incoming.first_chunk::<HELLO>() else {
                self.incoming = incoming;
                return Ok(());
            };
            self.known = greeted(said, &node.network().secret());
            if let Some(version) = other_version(said) {
                tracing::warn!(
                    "a process has connected that has another release of unipgas (version {version} of the protocol): install one release on all hosts"
                );
            }
            at = HELLO;
        }
        let who = self.known.ok_or(wire::Malformed)?;
        if node.is_lost(&who) {
            // As if the bytes had been lost.
            self.incoming.clear();
            return Ok(());
        }
        while let Some((head, message, len)) = envelope::first::<RequestHeader>(&incoming[at..])? {
            let request = Request::decode(message)?;
            if by == By::Waiter && !node.registered().is_plain(&request) {
                node.wake();
                break;
            }
            at += len;
            match (request, &mut self.order) {
                (Request::Forgotten { place }, _) => {
                    self.refused.retain(|(_, inbox)| *inbox != place);
                    if self.released.remove(&place) {
                        node.releases.forgotten(place);
                    }
                }
                (Request::Import { .. }, _) | (_, None) => self.carry_out(node, &head, &request),
                (_, Some(order)) => order.hold(head, &request, message),
            }
        }
        self.incoming = incoming;
        self.incoming.drain(..at);
        while let Some((head, message)) = self.order.as_mut().and_then(|order| order.take(last)) {
            self.carry_out(node, &head, &Request::decode(&message)?);
        }
        if let Some(order) = &mut self.order {
            order.turn();
        }
        Ok(())
    }

    fn carry_out(&mut self, node: &StreamNode, head: &RequestHeader, request: &Request<'_>) {
        let answer = match request {
            // A release names a whole region, so an import must do the same.
            Request::Import { place } if place.offset != 0 => failed(&Error::StaleRegion),
            Request::Deliver { first, .. } => self.deliver(node, (head.channel, *first), request),
            _ => serve_in_parts(node, request),
        };
        self.urgent |= !matches!(&answer, Answer::Done(bytes) if bytes.is_empty());
        self.answer(head.number, &answer);
        node.serves();
        if let (Request::Import { place }, Answer::Done(_)) = (request, answer) {
            self.imported.insert(*place);
        }
    }

    /// Delivers a record after its put, in the order of its [chain](unipgas_engine::op::Flags::CHAINED).
    fn deliver(
        &mut self,
        node: &StreamNode,
        chain: (u32, RegisteredPlace),
        request: &Request<'_>,
    ) -> Answer {
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
            return match written.map(|put| node.registered().serve(&put)) {
                None | Some(Answer::Done(_)) => failed(&Error::InboxFull),
                Some(other) => other,
            };
        }
        let answer = node.registered().serve(request);
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
    fn push(&mut self, node: &StreamNode) -> Result<(), StreamEnded> {
        self.push_by(node, By::Driver)
    }

    /// As [`push`](InboundPeer::push). A waiting thread may send more to this peer soon, so its answers may leave with that, unless they are urgent.
    fn push_by(&mut self, node: &StreamNode, by: By) -> Result<(), StreamEnded> {
        if self.outgoing.is_empty() {
            return Ok(());
        }
        let urgent = std::mem::take(&mut self.urgent) || by == By::Driver;
        let pushed = match urgent {
            true => self.outgoing.push(&*self.stream),
            false => self.outgoing.push_along(&*self.stream),
        };
        node.watch_silence();
        pushed
    }

    /// Ends the stream, also in children of a fork.
    pub(crate) fn part(&self) {
        self.stream.end();
    }
}

/// Looks whether the peer has gone. Asks for another look if bytes are in transit. `awaited`: this process needs an answer.
pub(super) fn is_silent(stream: &dyn Stream, awaited: bool, node: &StreamNode) -> bool {
    if awaited {
        stream.watch();
    }
    let found = stream.look();
    if found == TransitState::Waits {
        node.watch_silence();
    }
    found == TransitState::Silence
}

fn failed(error: &Error) -> Answer {
    Answer::Failed(error.into())
}

/// Executes a request. A test network without [`Limits::lines`](unipgas_engine::transport::Limits) gets its puts in parts, the last part first.
fn serve_in_parts(node: &StreamNode, request: &Request<'_>) -> Answer {
    let Request::Put {
        to,
        bytes,
        flags,
        notice,
    } = *request
    else {
        return node.registered().serve(request);
    };
    let mut answer = Answer::Done(Vec::new());
    for part in parts(bytes.len(), node.writes_backwards()) {
        let first = part.start == 0;
        let Some(offset) = to.offset.checked_add(part.start as u64) else {
            return failed(&Error::StaleRegion);
        };
        let to = RegisteredPlace { offset, ..to };
        answer = node.registered().serve(&Request::Put {
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

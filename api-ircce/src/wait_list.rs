//! Wait lists in Rust (manual §4.3, §9.7).

use crate::places::ScopeRequests;
use crate::request::{Handle, State};
use crate::scope::{Message, Receiving, Sending};
use crate::status::Result;

/// A list of requests of one scope, with a common wait. If the list is dropped, the end of the scope waits for its requests.
pub struct WaitList<'scope> {
    requests: &'scope ScopeRequests<'scope>,
    members: Vec<Member<'scope>>,
    added: usize,
}

struct Member<'scope> {
    number: usize,
    request: Request<'scope>,
}

/// A request of either kind.
enum Request<'scope> {
    Send(Sending<'scope>),
    Receive(Receiving<'scope>),
}

/// A request that has ended and left its list.
#[derive(Debug)]
pub struct Finished<'scope> {
    /// Its number in the list, in the order of adding, from 0.
    pub number: usize,
    /// Its result. Errors: as for [`Sending::wait`] and [`Receiving::wait`].
    pub ended: Result<RequestResult<'scope>>,
}

/// The result of a request.
#[derive(Debug)]
pub enum RequestResult<'scope> {
    /// The UE of this number has received the message.
    Sent(u32),
    /// The received message.
    Received(Message<'scope>),
}

impl Request<'_> {
    fn handle(&self) -> Handle {
        match self {
            Request::Send(request) => request.handle(),
            Request::Receive(request) => request.handle(),
        }
    }

    fn state(&self) -> State {
        match self {
            Request::Send(request) => request.state(),
            Request::Receive(request) => request.state(),
        }
    }
}

impl<'scope> WaitList<'scope> {
    pub(crate) fn new(requests: &'scope ScopeRequests<'scope>) -> Self {
        WaitList {
            requests,
            members: Vec::new(),
            added: 0,
        }
    }

    /// Adds a send, and returns its number (`iRCCE_add_to_wait_list`).
    pub fn add_send(&mut self, request: Sending<'scope>) -> usize {
        self.add(Request::Send(request))
    }

    /// Adds a receive, and returns its number (`iRCCE_add_to_wait_list`).
    pub fn add_receive(&mut self, request: Receiving<'scope>) -> usize {
        self.add(Request::Receive(request))
    }

    fn add(&mut self, request: Request<'scope>) -> usize {
        let number = self.added;
        self.added += 1;
        self.members.push(Member { number, request });
        number
    }

    /// Number of requests in the list.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Makes progress, and returns whether all requests of the list have ended (`iRCCE_test_all`). They stay in the list for [`WaitList::wait_all`]. Errors:
    /// [`Failure::Engine`](crate::Failure::Engine).
    pub fn test_all(&self) -> Result<bool> {
        self.requests.ue.move_messages_on()?;
        let ended = |member: &Member<'_>| matches!(member.request.state(), State::Ended(_));
        let done = self.members.iter().all(ended);
        if !done {
            self.requests.ue.looked()?;
        }
        Ok(done)
    }

    /// Waits until all requests have ended, and returns them in the order of adding (`iRCCE_wait_all`). Errors: [`Failure::Engine`](crate::Failure::Engine).
    pub fn wait_all(&mut self) -> Result<Vec<Finished<'scope>>> {
        let mut finished = Vec::with_capacity(self.members.len());
        let mut codes = Vec::with_capacity(self.members.len());
        for member in &self.members {
            // SAFETY:
            // - a request is valid while it is in the list.
            codes.push(unsafe { self.requests.ue.wait_for(member.request.handle()) }?);
        }
        for (member, status) in self.members.drain(..).zip(codes) {
            finished.push(member.finish(status));
        }
        Ok(finished)
    }

    /// Makes progress, and removes a request that has ended, if there is one (`iRCCE_test_any`). Errors: [`Failure::Engine`](crate::Failure::Engine).
    pub fn test_any(&mut self) -> Result<Option<Finished<'scope>>> {
        self.requests.ue.move_messages_on()?;
        let found = first_ended(&self.members, Request::state);
        if found.is_none() {
            self.requests.ue.looked()?;
        }
        Ok(found.map(|(at, status)| self.members.remove(at).finish(status)))
    }

    /// Waits until a request has ended, and removes it (`iRCCE_wait_any`). `None`: the list is empty. Errors: [`Failure::Engine`](crate::Failure::Engine).
    pub fn wait_any(&mut self) -> Result<Option<Finished<'scope>>> {
        if self.members.is_empty() {
            return Ok(None);
        }
        let members = &self.members;
        // SAFETY:
        // - a request is valid while it is in the list.
        let (at, status) = unsafe {
            self.requests
                .ue
                .wait_any(|state| first_ended(members, |request| state(request.handle())))
        }?;
        Ok(Some(self.members.remove(at).finish(status)))
    }
}

fn first_ended<'scope>(
    members: &[Member<'scope>],
    mut state: impl FnMut(&Request<'scope>) -> State,
) -> Option<(usize, i32)> {
    let states = members.iter().map(|member| state(&member.request));
    let mut ended = states.enumerate().filter_map(|(at, state)| match state {
        State::Ended(status) => Some((at, status)),
        State::Open(_) => None,
    });
    ended.next()
}

impl<'scope> Member<'scope> {
    fn finish(self, status: i32) -> Finished<'scope> {
        let ended = match self.request {
            Request::Send(request) => {
                let dest = request.dest();
                request.ended(status).map(|()| RequestResult::Sent(dest))
            }
            Request::Receive(request) => request.ended(status).map(RequestResult::Received),
        };
        Finished {
            number: self.number,
            ended,
        }
    }
}

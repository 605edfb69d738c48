//! Actions that wait for a counter: operations with copies of all lists that describe them, and changes of counters.

use std::sync::Arc;

use crate::atomics::{AtomicOperands, Family};
use crate::counter::Counter;
use crate::endpoint::{Endpoint, PostOptions};
use crate::messages::MatchTag;
use crate::operation::{CounterEvent, Report};
use crate::rma::{LocalRange, RemotePart, RmaKind};
use crate::status::{Errno, Result};
use crate::sys::{FI_RECV, FI_SEND};

/// The call of an operation.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Send(MatchTag),
    Receive(MatchTag),
    Transfer(RmaKind),
    Atomic(Family, (i32, i32)),
}

/// An operation of an endpoint.
pub(crate) struct Request {
    pub endpoint: Arc<Endpoint>,
    pub kind: Kind,
    pub local: Vec<LocalRange>,
    pub compare: Vec<LocalRange>,
    pub result: Vec<LocalRange>,
    pub remote: Vec<RemotePart>,
    pub peer: u64,
    pub posting: PostOptions,
}

// SAFETY:
// - only `carry_out` uses the pointers. Contract of the queueing call (`ffi::trigger`): the memory is valid then, for any thread of the process.
unsafe impl Send for Request {}

impl Request {
    /// Carries out the operation as deferred work `work`. 0: as a direct call. Errors: errors of the call.
    fn carry_out(&self, work: u32) -> Result<()> {
        let posting = PostOptions {
            work,
            ..self.posting
        };
        // SAFETY:
        // - contract of the queueing call (`ffi::trigger`): the memory is valid when the operation is carried out.
        unsafe {
            match self.kind {
                Kind::Send(tag) => self.endpoint.send(tag, &self.local, self.peer, &posting),
                Kind::Receive(tag) => self.endpoint.receive(tag, &self.local, self.peer, &posting),
                Kind::Transfer(direction) => self.endpoint.transfer(
                    direction,
                    &self.local,
                    &self.remote,
                    self.peer,
                    &posting,
                ),
                Kind::Atomic(family, what) => {
                    let operands = AtomicOperands {
                        operand: &self.local,
                        compare: &self.compare,
                        result: &self.result,
                        remote: &self.remote,
                    };
                    self.endpoint
                        .atomic(family, what, &operands, self.peer, &posting)
                }
            }
        }
    }

    /// The report of an operation that cannot be carried out.
    fn report(&self) -> Report {
        let (flags, counted) = match self.kind {
            Kind::Send(tag) => (tag.kind() | FI_SEND, CounterEvent::Send),
            Kind::Receive(tag) => (tag.kind() | FI_RECV, CounterEvent::Receive),
            Kind::Transfer(direction) => direction.completion(),
            Kind::Atomic(family, _) => family.completion(),
        };
        Report {
            context: self.posting.context,
            flags,
            wanted: true,
            counted,
            work: 0,
        }
    }

    /// Reports that the operation ended before it began.
    pub fn refuse(&self, errno: Errno) {
        self.endpoint.tell_failure(&self.report(), errno);
    }
}

/// An action at a counter's threshold.
pub(crate) enum Action {
    Request(Request),
    Add(Arc<Counter>, u64),
    Set(Arc<Counter>, u64),
}

impl Action {
    /// Carries out the action. Errors: errors of the call.
    pub fn carry_out(&self, work: u32) -> Result<()> {
        match self {
            Action::Request(request) => return request.carry_out(work),
            Action::Add(counter, value) => counter.count(*value),
            Action::Set(counter, value) => counter.put(*value),
        }
        Ok(())
    }

    /// Whether it is an operation of this endpoint.
    pub fn is_of(&self, endpoint: &Endpoint) -> bool {
        matches!(self, Action::Request(request) if std::ptr::eq(&*request.endpoint, endpoint))
    }
}

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

/// A call, with the lists of the caller.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    pub kind: Kind,
    /// `operand`: the local memory.
    pub memory: AtomicOperands<'a>,
    pub peer: u64,
    pub posting: PostOptions,
}

impl Call<'_> {
    /// Carries out the call. Errors: errors of the call.
    ///
    /// # Safety
    /// As for [`Endpoint::send`], [`Endpoint::receive`], [`Endpoint::transfer`] and [`Endpoint::atomic`].
    #[inline(always)]
    pub unsafe fn carry_out(&self, endpoint: &Endpoint) -> Result<()> {
        let (local, peer, posting) = (self.memory.operand, self.peer, &self.posting);
        // SAFETY:
        // - contract of this call.
        unsafe {
            match self.kind {
                Kind::Send(tag) => endpoint.send(tag, local, peer, posting),
                Kind::Receive(tag) => endpoint.receive(tag, local, peer, posting),
                Kind::Transfer(direction) => {
                    endpoint.transfer(direction, local, self.memory.remote, peer, posting)
                }
                Kind::Atomic(family, what) => {
                    endpoint.atomic(family, what, &self.memory, peer, posting)
                }
            }
        }
    }
}

/// A call of an endpoint, with copies of the lists.
pub(crate) struct Request {
    pub endpoint: Arc<Endpoint>,
    kind: Kind,
    /// Operands or local memory, comparands, results.
    local: [Vec<LocalRange>; 3],
    remote: Vec<RemotePart>,
    peer: u64,
    posting: PostOptions,
}

// SAFETY:
// - only `carry_out` uses the pointers. Contract of the queueing call (`ffi::trigger`): the memory is valid then, for any thread of the process.
unsafe impl Send for Request {}

impl Request {
    /// A copy of a call.
    pub fn copy(endpoint: &Arc<Endpoint>, call: &Call<'_>) -> Request {
        let memory = &call.memory;
        Request {
            endpoint: endpoint.clone(),
            kind: call.kind,
            local: [memory.operand, memory.compare, memory.result].map(<[_]>::to_vec),
            remote: memory.remote.to_vec(),
            peer: call.peer,
            posting: call.posting,
        }
    }

    /// Carries out the operation as deferred work `work`. 0: as a direct call. Errors: errors of the call.
    fn carry_out(&self, work: u32) -> Result<()> {
        let [operand, compare, result] = &self.local;
        let call = Call {
            kind: self.kind,
            memory: AtomicOperands {
                operand,
                compare,
                result,
                remote: &self.remote,
            },
            peer: self.peer,
            posting: PostOptions {
                work,
                ..self.posting
            },
        };
        // SAFETY:
        // - contract of the queueing call (`ffi::trigger`): the memory is valid when the operation is carried out.
        unsafe { call.carry_out(&self.endpoint) }
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

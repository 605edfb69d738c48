//! Shared receive contexts (fi_srx_context of fi_endpoint(3)): receives that several endpoints share. A message to one of them takes the first
//! receive that fits. The endpoint's queues and counters report its end.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use unipgas_core::message::{Pool, PoolTicket, Wanted};
use unipgas_core::transport::Life;

use super::ends::GIVEN_BACK;
use super::post::check_receive;
use super::{Destination, MatchTag, Messages};
use crate::av::AddressVector;
use crate::completion::CqEntry;
use crate::domain::Domain;
use crate::endpoint::{Endpoint, PostOptions, RECEIVES};
use crate::name::EndpointName;
use crate::operation::{CounterEvent, Report, Reports};
use crate::rma::LocalRange;
use crate::status::{Errno, Result};
use crate::sys::{
    FI_ADDR_UNSPEC, FI_CLAIM, FI_COMPLETION, FI_DIRECTED_RECV, FI_MULTI_RECV, FI_PEEK, FI_RECV,
};

/// Receives that several endpoints share.
pub struct SharedReceives {
    domain: Arc<Domain>,
    /// Capabilities: all, or the requested ones.
    caps: u64,
    pool: Arc<Pool>,
    /// Indexed by the index of the pool's ticket. Tickets are issued and freed under the lock, so an index always means one receive.
    posted: Mutex<Vec<Option<Posted>>>,
    users: Mutex<Users>,
}

#[derive(Default)]
struct Users {
    av: Option<Arc<AddressVector>>,
    least_room: usize,
    /// With the number of each mailbox in the pool.
    endpoints: Vec<(u32, Weak<Endpoint>)>,
}

struct Posted {
    ticket: PoolTicket,
    report: Report,
    to: Destination,
    several: bool,
    /// The only accepted sender. `None`: any.
    from: Option<EndpointName>,
    /// Cancelled, but messages are still in flight to its buffer.
    cancelled: bool,
}

/// A receive that a message has taken.
pub(super) enum Taken {
    Whole(Report, Destination),
    Part(Several),
}

/// A message in a buffer for several messages.
pub(super) struct Several {
    pub report: Report,
    pub last: bool,
    pub cancelled: bool,
}

impl SharedReceives {
    /// A context without receives. `caps`: the capabilities of its receives.
    pub fn new(domain: &Arc<Domain>, caps: u64) -> Arc<SharedReceives> {
        Arc::new(SharedReceives {
            domain: domain.clone(),
            caps,
            pool: Arc::default(),
            posted: Mutex::default(),
            users: Mutex::default(),
        })
    }

    /// Its domain.
    pub fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// Least room in a buffer for several messages. A buffer with less room is returned (FI_OPT_MIN_MULTI_RECV).
    pub fn least_room(&self) -> usize {
        self.users.lock().least_room
    }

    /// See [`SharedReceives::least_room`].
    pub fn set_least_room(&self, bytes: usize) {
        self.users.lock().least_room = bytes;
    }

    /// Number of receives that can be posted.
    pub(crate) fn room(&self) -> usize {
        RECEIVES.saturating_sub(self.pool.receives())
    }

    /// Checks that all endpoints have the same address vector. Errors: [`Errno::INVAL`] if this one differs.
    pub(crate) fn agree(&self, av: &Arc<AddressVector>) -> Result<()> {
        let mut users = self.users.lock();
        match &users.av {
            Some(known) if !Arc::ptr_eq(known, av) => Err(Errno::INVAL),
            _ => {
                users.av = Some(av.clone());
                Ok(())
            }
        }
    }

    /// Lets messages for this endpoint take receives of the context.
    pub(crate) fn serve(self: &Arc<Self>, endpoint: &Arc<Endpoint>, messages: &mut Messages) {
        let number = messages.mailbox.draw_from(&self.pool);
        messages.shared = Some(self.clone());
        let mut users = self.users.lock();
        users.endpoints.push((number, Arc::downgrade(endpoint)));
    }

    /// Ends [`SharedReceives::serve`] for this endpoint.
    pub(crate) fn leave(&self, endpoint: &Endpoint) {
        let mut users = self.users.lock();
        let is_other = |known: &Weak<Endpoint>| !std::ptr::eq(known.as_ptr(), endpoint);
        users.endpoints.retain(|(_, known)| is_other(known));
        if users.endpoints.is_empty() {
            users.av = None;
        }
    }

    fn endpoints(&self) -> Vec<Arc<Endpoint>> {
        let users = self.users.lock();
        let known = users.endpoints.iter();
        known.filter_map(|(_, known)| known.upgrade()).collect()
    }

    /// Receives a message to any of the endpoints, with flags as for [`Endpoint::receive`]. The endpoint that has the message reports the result of
    /// FI_PEEK; without a message the first endpoint reports it. Errors: as for [`Endpoint::receive`]; [`Errno::NOMSG`] with FI_PEEK if there is
    /// no endpoint.
    ///
    /// # Safety
    /// As for [`Endpoint::receive`].
    pub unsafe fn receive(
        &self,
        tag: MatchTag,
        parts: &[LocalRange],
        from: u64,
        posting: &PostOptions,
    ) -> Result<()> {
        let flags = posting.flags;
        let len = check_receive(tag, parts, flags, self.caps)?;
        if self.caps & tag.kind() == 0 {
            return Err(Errno::OPNOTSUPP);
        }
        let report = Report {
            context: posting.context,
            work: 0,
            flags: tag.kind() | FI_RECV,
            // The flag of the receive itself. The endpoint's queue adds its own rule (`wanted_at`).
            wanted: flags & FI_COMPLETION != 0,
            counted: CounterEvent::Receive,
        };
        let from = match self.caps & FI_DIRECTED_RECV {
            0 => None,
            _ if from == FI_ADDR_UNSPEC => None,
            _ => {
                let users = self.users.lock();
                Some(users.av.as_ref().ok_or(Errno::NOAV)?.name(from)?)
            }
        };
        if flags & (FI_PEEK | FI_CLAIM) != 0 {
            return self.look(tag, parts, from, &report, flags);
        }
        let several = flags & FI_MULTI_RECV != 0;
        if several && parts.len() != 1 {
            return Err(Errno::INVAL);
        }
        let mut to = Destination::of(parts, len);
        let buffer = to.buffer();
        let wanted = Wanted {
            sender: from.map(|name| name.id()),
            pattern: tag.pattern(None),
        };
        let least = several.then(|| self.least_room());
        let keeping = {
            let mut all = self.posted.lock();
            if self.pool.receives() >= RECEIVES {
                return Err(Errno::AGAIN);
            }
            // SAFETY:
            // - contract of this call: the memory is valid for writes. `Posted` keeps a bounce buffer until the receive has ended.
            let (ticket, keeping) = unsafe { self.pool.receive(wanted, buffer, len, least) };
            if all.len() <= ticket.index() {
                all.resize_with(ticket.index() + 1, || None);
            }
            all[ticket.index()] = Some(Posted {
                ticket,
                report,
                to,
                several,
                from,
                cancelled: false,
            });
            keeping
        };
        if !keeping.is_empty() {
            self.tell(&keeping);
        }
        Ok(())
    }

    /// Makes endpoints with unmatched messages match them again.
    #[cold]
    fn tell(&self, keeping: &[u32]) {
        let endpoints: Vec<_> = {
            let users = self.users.lock();
            let known = users.endpoints.iter();
            let keeping = known.filter(|(number, _)| keeping.contains(number));
            keeping.filter_map(|(_, known)| known.upgrade()).collect()
        };
        for endpoint in endpoints {
            if let Ok((reports, mut state)) = endpoint.live()
                && let Some(messages) = &mut state.messages
            {
                messages.mailbox.draw_kept();
                messages.report(reports);
            }
        }
    }

    /// Handles FI_PEEK and FI_CLAIM.
    #[cold]
    fn look(
        &self,
        tag: MatchTag,
        parts: &[LocalRange],
        from: Option<EndpointName>,
        report: &Report,
        flags: u64,
    ) -> Result<()> {
        let endpoints = self.endpoints();
        for endpoint in &endpoints {
            let (reports, mut state) = endpoint.live()?;
            let report = wanted_at(report, reports.selective[1]);
            let messages = state.messages.as_mut().ok_or(Errno::OPNOTSUPP)?;
            let found = if flags & FI_PEEK == 0 {
                messages.claim(reports, &report, parts, flags)?
            } else {
                let source = from.map(|name| messages.number(&name)).transpose()?;
                messages.peek(reports, tag.pattern(source), &report, flags)?
            };
            if found {
                return Ok(());
            }
        }
        if flags & FI_PEEK == 0 {
            return Err(Errno::INVAL);
        }
        let first = endpoints.first().ok_or(Errno::NOMSG)?;
        let (reports, _state) = first.live()?;
        reports.fail(report, Errno::NOMSG)
    }

    /// Cancels a receive that no message has taken (fi_cancel(3)). The first endpoint reports its end with [`Errno::CANCELED`]. Errors:
    /// [`Errno::NOENT`]; [`Errno::OPBADSTATE`] if no endpoint exists to report it.
    pub fn cancel(&self, context: usize) -> Result<()> {
        let is_meant = |posted: &Posted| posted.report.context == context && !posted.cancelled;
        let endpoints = self.endpoints();
        let Some(first) = endpoints.first() else {
            let known = self.posted.lock().iter().flatten().any(is_meant);
            return Err(if known {
                Errno::OPBADSTATE
            } else {
                Errno::NOENT
            });
        };
        let (reports, _state) = first.live()?;
        let mut all = self.posted.lock();
        for place in &mut *all {
            let Some(posted) = place else { continue };
            if !is_meant(posted) {
                continue;
            }
            match self.pool.cancel(posted.ticket) {
                None => continue,
                Some(true) => {}
                Some(false) => {
                    posted.cancelled = true;
                    return Ok(());
                }
            }
            let (report, several) = (posted.report, posted.several);
            *place = None;
            drop(all);
            let entry = match several {
                true => GIVEN_BACK,
                false => CqEntry::default(),
            };
            return reports.fail_with(&report, Errno::CANCELED, entry, 0);
        }
        Err(Errno::NOENT)
    }

    /// The data of a receive, once its message has ended. `selective`: the queue reports only requested completions.
    pub(super) fn taken(&self, ticket: PoolTicket, selective: bool) -> Option<Taken> {
        let mut all = self.posted.lock();
        let last = self.pool.taken(ticket);
        let place = all.get_mut(ticket.index())?;
        let posted = place.as_ref()?;
        let report = wanted_at(&posted.report, selective);
        if posted.several {
            let cancelled = posted.cancelled;
            if last {
                *place = None;
            }
            return Some(Taken::Part(Several {
                report,
                last,
                cancelled,
            }));
        }
        let to = place.take()?.to;
        Some(Taken::Whole(report, to))
    }

    /// Ends receives from peers that have gone.
    pub(super) fn forget_the_dead(&self, reports: &Reports) {
        let mut ended = Vec::new();
        for place in &mut *self.posted.lock() {
            let Some(posted) = place else { continue };
            let Some(name) = &posted.from else { continue };
            let reached = self.domain.engine().connect(&name.address());
            let alive = reached.is_ok_and(|connection| connection.life() == Life::Alive);
            if !alive && self.pool.cancel(posted.ticket) == Some(true) {
                ended.push(posted.report);
                *place = None;
            }
        }
        for report in ended {
            let _ = reports.fail(&report, Errno::CONNRESET);
        }
    }
}

fn wanted_at(report: &Report, selective: bool) -> Report {
    Report {
        wanted: report.wanted | !selective,
        ..*report
    }
}

impl Drop for Messages {
    fn drop(&mut self) {
        if let Some(shared) = &self.shared {
            // Messages in flight end without a report.
            for ticket in self.mailbox.all_drawn() {
                drop(shared.taken(ticket, true));
            }
        }
    }
}

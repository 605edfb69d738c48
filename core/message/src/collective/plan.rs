//! The messages of one member in a collective operation, as data: rounds of sends and receives within one buffer.
//!
//! A round ends when all its sends and receives have ended. Before its last round ends, each member has a message that depends on each other
//! member. So no member completes before all members have begun.

use unipgas_base::atomic::{AtomicOp, AtomicType};
use unipgas_schedule::children;

/// A kind of operation. A slice has as many bytes as the call names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Collective {
    /// No data.
    Barrier,
    /// The root's slice, to all others.
    Broadcast,
    /// A slice of each member for each member.
    AllToAll,
    /// A slice of each member, combined, to all.
    AllReduce,
    /// A slice of each member, to all.
    AllGather,
    /// A slice of each member for each member, combined by destination.
    ReduceScatter,
    /// A slice of each member, combined, to the root.
    Reduce,
    /// A slice of the root for each member.
    Scatter,
    /// A slice of each member, to the root.
    Gather,
}

impl Collective {
    /// All kinds, in the order of their definition.
    pub const ALL: [Collective; 9] = [
        Collective::Barrier,
        Collective::Broadcast,
        Collective::AllToAll,
        Collective::AllReduce,
        Collective::AllGather,
        Collective::ReduceScatter,
        Collective::Reduce,
        Collective::Scatter,
        Collective::Gather,
    ];

    /// Whether elements of different members are combined.
    pub fn reduces(self) -> bool {
        matches!(
            self,
            Collective::AllReduce | Collective::ReduceScatter | Collective::Reduce
        )
    }

    /// Whether one member is the source or the destination of the data.
    pub fn has_root(self) -> bool {
        matches!(
            self,
            Collective::Broadcast | Collective::Reduce | Collective::Scatter | Collective::Gather
        )
    }
}

/// A range of bytes in the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Span {
    pub at: usize,
    pub len: usize,
}

/// A receive of a round.
#[derive(Debug, Clone, Copy)]
pub(super) struct Receive {
    pub from: u32,
    pub into: Span,
    /// At the end of the round, the received elements are combined with the elements at this offset.
    pub onto: Option<usize>,
}

impl Receive {
    /// A receive that is not combined.
    fn plain(from: u32, into: Span) -> Receive {
        Receive {
            from,
            into,
            onto: None,
        }
    }
}

/// Messages that may be in flight at the same time.
#[derive(Debug, Default)]
pub(super) struct Round {
    pub sends: Vec<(u32, Span)>,
    pub receives: Vec<Receive>,
}

/// One member's part of an operation.
#[derive(Debug, Default)]
pub struct CollectivePlan {
    /// Bytes of the buffer.
    pub(super) len: usize,
    /// Destination of the operand.
    pub(super) load: Option<Span>,
    /// This member's own part of the operand, and its offset in the result.
    pub(super) own: Option<(Span, usize)>,
    pub(super) rounds: Vec<Round>,
    /// Location of the result.
    pub(super) store: Option<Span>,
    /// The combination of elements, of operations that reduce.
    pub(super) combination: Option<(AtomicOp, AtomicType)>,
}

/// A member's place among the members.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seat {
    pub me: u32,
    pub n: u32,
    /// Index of the root.
    pub root: u32,
}

impl Seat {
    fn others(self) -> impl Iterator<Item = u32> {
        (0..self.n).filter(move |member| *member != self.me)
    }

    /// The range of a member's slice.
    fn slice(member: u32, len: usize) -> Span {
        Span {
            at: member as usize * len,
            len,
        }
    }
}

impl CollectivePlan {
    /// Whether this member contributes data.
    pub fn reads(&self) -> bool {
        self.load.is_some()
    }

    /// Whether this member gets data.
    pub fn writes(&self) -> bool {
        self.store.is_some()
    }

    /// `len`: bytes of a slice.
    pub(super) fn new(kind: Collective, seat: Seat, len: usize) -> CollectivePlan {
        let mut plan = CollectivePlan::without_rounds(kind, seat, len);
        let slice = |member| Seat::slice(member, len);
        // Behind the values of this member.
        let behind = |member| Span {
            at: (seat.n + member) as usize * len,
            len,
        };
        match kind {
            Collective::Barrier => plan.disseminate(seat),
            Collective::Broadcast => plan.climb(seat, 0, len),
            Collective::Reduce => plan.climb(seat, len, 0),
            Collective::AllReduce => plan.double(seat, len),
            Collective::Gather => plan.spread(seat, len, 0),
            Collective::Scatter => plan.spread(seat, 0, len),
            Collective::AllGather => {
                plan.exchange(seat, |_| slice(seat.me), |from| (slice(from), None))
            }
            Collective::AllToAll => plan.exchange(seat, slice, |from| (behind(from), None)),
            Collective::ReduceScatter => {
                let onto = Some(seat.me as usize * len);
                plan.exchange(seat, slice, |from| (behind(from), onto))
            }
        }
        plan
    }

    /// The memory of a plan, and its places in the memory of the program.
    fn without_rounds(kind: Collective, seat: Seat, len: usize) -> CollectivePlan {
        let one = Span { at: 0, len };
        let all = Span {
            at: 0,
            len: seat.n as usize * len,
        };
        let own = Seat::slice(seat.me, len);
        let at_root = seat.me == seat.root;
        // `climb` adds the room that a reduction needs.
        let (room, load, store) = match kind {
            Collective::Barrier => (0, None, None),
            Collective::Broadcast if at_root => (len, Some(one), None),
            Collective::Broadcast => (len, None, Some(one)),
            Collective::AllReduce => (2 * len, Some(one), Some(one)),
            Collective::Reduce => (0, Some(one), at_root.then_some(one)),
            Collective::AllGather => (all.len, Some(own), Some(all)),
            Collective::Gather if at_root => (all.len, Some(own), Some(all)),
            Collective::Gather => (len, Some(one), None),
            Collective::Scatter if at_root => (all.len, Some(all), Some(own)),
            Collective::Scatter => (len, None, Some(one)),
            Collective::AllToAll => (2 * all.len, Some(all), Some(Seat::slice(1, all.len))),
            Collective::ReduceScatter => (2 * all.len, Some(all), Some(own)),
        };
        let to = (seat.n + seat.me) as usize * len;
        CollectivePlan {
            len: room,
            load,
            store,
            own: (kind == Collective::AllToAll).then_some((own, to)),
            ..CollectivePlan::default()
        }
    }

    /// Each member sends an empty message to each other member.
    pub(super) fn meeting(seat: Seat) -> CollectivePlan {
        let mut plan = CollectivePlan::default();
        plan.exchange(seat, |_| Span::default(), |_| (Span::default(), None));
        plan
    }

    /// One round: each member sends to each other member.
    fn exchange(
        &mut self,
        seat: Seat,
        from: impl Fn(u32) -> Span,
        into: impl Fn(u32) -> (Span, Option<usize>),
    ) {
        // Members begin at different places. Otherwise all would send to the same member first.
        let turned = |distance| (seat.me + distance) % seat.n;
        let receives = seat.others().map(|from| {
            let (into, onto) = into(from);
            Receive { from, into, onto }
        });
        let sends = (1..seat.n).map(turned).map(|to| (to, from(to)));
        self.round(sends, receives);
    }

    fn round(
        &mut self,
        sends: impl IntoIterator<Item = (u32, Span)>,
        receives: impl IntoIterator<Item = Receive>,
    ) {
        self.rounds.push(Round {
            sends: sends.into_iter().collect(),
            receives: receives.into_iter().collect(),
        });
    }

    /// Dissemination: each round doubles the members on which a member's messages depend.
    fn disseminate(&mut self, Seat { me, n, .. }: Seat) {
        for round in 0..n.next_power_of_two().trailing_zeros() {
            let distance = 1 << round;
            let (to, from) = ((me + distance) % n, (me + n - distance) % n);
            let none = Span::default();
            self.round([(to, none)], [Receive::plain(from, none)]);
        }
    }

    /// Recursive doubling: all members combine the same pairs, and get the same bits. Members above the largest power of two send their values
    /// to other members, and get the result from them.
    fn double(&mut self, Seat { me, n, .. }: Seat, len: usize) {
        let value = Span { at: 0, len };
        let combine = |from| Receive {
            from,
            into: Span { at: len, len },
            onto: Some(0),
        };
        let p = 1 << n.ilog2();
        if me >= p {
            self.round([(me - p, value)], []);
            self.round([], [Receive::plain(me - p, value)]);
            return;
        }
        let above = (me + p < n).then_some(me + p);
        if let Some(from) = above {
            self.round([], [combine(from)]);
        }
        for bit in 0..p.trailing_zeros() {
            let partner = me ^ (1 << bit);
            self.round([(partner, value)], [combine(partner)]);
        }
        if let Some(to) = above {
            self.round([(to, value)], []);
        }
    }

    /// A binomial tree: `up` bytes of each member go to the root and are combined on the way. Then `down` bytes go back.
    fn climb(&mut self, Seat { me, n, root }: Seat, up: usize, down: usize) {
        let relative = (me + n - root) % n;
        let absolute = |relative: u32| (relative + root) % n;
        let below: Vec<u32> = children(relative, n).map(absolute).collect();
        self.len = self.len.max(up * (1 + below.len()));
        if !below.is_empty() {
            let receives = below.iter().zip(1..).map(|(from, nth)| Receive {
                onto: (up > 0).then_some(0),
                ..Receive::plain(*from, Seat::slice(nth, up))
            });
            self.round([], receives);
        }
        let (raised, lowered) = (Seat::slice(0, up), Seat::slice(0, down));
        if relative != 0 {
            let parent = absolute(relative & (relative - 1));
            self.round([(parent, raised)], [Receive::plain(parent, lowered)]);
        }
        self.round(below.into_iter().map(|to| (to, lowered)), []);
    }

    /// A star: each member sends `up` bytes directly to the root, and gets `down` bytes back.
    fn spread(&mut self, seat: Seat, up: usize, down: usize) {
        let slice = Seat::slice;
        if seat.me != seat.root {
            let root = seat.root;
            self.round(
                [(root, slice(0, up))],
                [Receive::plain(root, slice(0, down))],
            );
            return;
        }
        let receive = |from| Receive::plain(from, slice(from, up));
        self.round([], seat.others().map(receive));
        self.round(seat.others().map(|to| (to, slice(to, down))), []);
    }
}

#[cfg(test)]
mod tests;

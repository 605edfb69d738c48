//! The messages of one member in a collective operation, as data: rounds of sends and receives within one buffer.
//!
//! A round ends when all its sends and receives have ended. Before its last round ends, each member has a message that depends on each other
//! member. So no member completes before all members have begun (fi_collective(3)).

use unipgas_core::schedule::children;

/// `enum fi_collective_op`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the header")]
pub enum Collective {
    Barrier,
    Broadcast,
    AllToAll,
    AllReduce,
    AllGather,
    ReduceScatter,
    Reduce,
    Scatter,
    Gather,
}

impl Collective {
    /// All, in the order of the header.
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

/// Messages that may be in flight at the same time.
#[derive(Debug, Default)]
pub(super) struct Round {
    pub sends: Vec<(u32, Span)>,
    pub receives: Vec<Receive>,
}

/// One member's part.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Bytes of the buffer.
    pub len: usize,
    /// Destination of the operand.
    pub load: Option<Span>,
    /// This member's own part of the operand, and its offset in the result.
    pub own: Option<(Span, usize)>,
    pub rounds: Vec<Round>,
    /// Location of the result.
    pub store: Option<Span>,
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

impl Plan {
    /// `len`: bytes of `count` elements.
    pub fn new(kind: Collective, seat: Seat, len: usize) -> Plan {
        let mut plan = Plan::without_rounds(kind, seat, len);
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
    fn without_rounds(kind: Collective, seat: Seat, len: usize) -> Plan {
        let one = Span { at: 0, len };
        let all = Span {
            at: 0,
            len: seat.n as usize * len,
        };
        let own = Seat::slice(seat.me, len);
        let at_root = seat.me == seat.root;
        let (load, store) = match kind {
            Collective::Barrier => (None, None),
            Collective::Broadcast => (at_root.then_some(one), (!at_root).then_some(one)),
            Collective::AllReduce => (Some(one), Some(one)),
            Collective::Reduce => (Some(one), at_root.then_some(one)),
            Collective::AllGather => (Some(own), Some(all)),
            Collective::Gather if at_root => (Some(own), Some(all)),
            Collective::Gather => (Some(one), None),
            Collective::Scatter if at_root => (Some(all), Some(own)),
            Collective::Scatter => (None, Some(one)),
            Collective::AllToAll => (Some(all), Some(Span { at: all.len, ..all })),
            Collective::ReduceScatter => (Some(all), Some(own)),
        };
        let to = (seat.n + seat.me) as usize * len;
        Plan {
            len: match kind {
                // `climb` adds the room that a reduction needs.
                Collective::Barrier | Collective::Reduce => 0,
                Collective::Gather | Collective::Scatter if at_root => all.len,
                Collective::Broadcast | Collective::Gather | Collective::Scatter => len,
                Collective::AllReduce => 2 * len,
                Collective::AllGather => all.len,
                Collective::AllToAll | Collective::ReduceScatter => 2 * all.len,
            },
            load,
            store,
            own: (kind == Collective::AllToAll).then_some((own, to)),
            ..Plan::default()
        }
    }

    /// Each member sends an empty message to each other member.
    pub fn meeting(seat: Seat) -> Plan {
        let mut plan = Plan::default();
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
        self.rounds.push(Round {
            sends: (1..seat.n).map(turned).map(|to| (to, from(to))).collect(),
            receives: seat
                .others()
                .map(|from| {
                    let (into, onto) = into(from);
                    Receive { from, into, onto }
                })
                .collect(),
        });
    }

    /// Dissemination: each round doubles the members on which a member's messages depend.
    fn disseminate(&mut self, Seat { me, n, .. }: Seat) {
        let distances = std::iter::successors(Some(1u32), |distance| distance.checked_mul(2));
        for distance in distances.take_while(|distance| *distance < n) {
            self.rounds.push(Round {
                sends: vec![((me + distance) % n, Span::default())],
                receives: vec![Receive {
                    from: (me + n - distance) % n,
                    into: Span::default(),
                    onto: None,
                }],
            });
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
        let p = match n.is_power_of_two() {
            true => n,
            false => n.next_power_of_two() / 2,
        };
        if me >= p {
            self.rounds.push(Round {
                sends: vec![(me - p, value)],
                receives: Vec::new(),
            });
            self.rounds.push(Round {
                sends: Vec::new(),
                receives: vec![Receive {
                    from: me - p,
                    into: value,
                    onto: None,
                }],
            });
            return;
        }
        let above = (me + p < n).then_some(me + p);
        if let Some(from) = above {
            self.rounds.push(Round {
                sends: Vec::new(),
                receives: vec![combine(from)],
            });
        }
        for bit in 0..p.trailing_zeros() {
            let partner = me ^ (1 << bit);
            self.rounds.push(Round {
                sends: vec![(partner, value)],
                receives: vec![combine(partner)],
            });
        }
        if let Some(to) = above {
            self.rounds.push(Round {
                sends: vec![(to, value)],
                receives: Vec::new(),
            });
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
                from: *from,
                into: Span {
                    at: nth * up,
                    len: up,
                },
                onto: (up > 0).then_some(0),
            });
            self.rounds.push(Round {
                sends: Vec::new(),
                receives: receives.collect(),
            });
        }
        let lowered = Span { at: 0, len: down };
        if relative != 0 {
            let parent = absolute(relative & (relative - 1));
            self.rounds.push(Round {
                sends: vec![(parent, Span { at: 0, len: up })],
                receives: vec![Receive {
                    from: parent,
                    into: lowered,
                    onto: None,
                }],
            });
        }
        self.rounds.push(Round {
            sends: below.into_iter().map(|to| (to, lowered)).collect(),
            receives: Vec::new(),
        });
    }

    /// A star: each member sends `up` bytes directly to the root, and gets `down` bytes back.
    fn spread(&mut self, seat: Seat, up: usize, down: usize) {
        if seat.me != seat.root {
            self.rounds.push(Round {
                sends: vec![(seat.root, Span { at: 0, len: up })],
                receives: vec![Receive {
                    from: seat.root,
                    into: Span { at: 0, len: down },
                    onto: None,
                }],
            });
            return;
        }
        let receives = seat.others().map(|from| Receive {
            from,
            into: Seat::slice(from, up),
            onto: None,
        });
        self.rounds.push(Round {
            sends: Vec::new(),
            receives: receives.collect(),
        });
        let sends = seat.others().map(|to| (to, Seat::slice(to, down)));
        self.rounds.push(Round {
            sends: sends.collect(),
            receives: Vec::new(),
        });
    }
}

#[cfg(test)]
mod tests;

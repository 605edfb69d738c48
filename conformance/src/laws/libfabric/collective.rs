//! Groups of endpoints: sets of addresses, joins, and barriers (fi_av_set(3), fi_collective(3)).

use super::kit::*;
use super::waiting::readable;

laws! {
    sets with(&COLLECTIVE, 256): "collective.set", "fi_av_set(3)", 1,
        [av_set, av_set_union, av_set_intersect, av_set_diff, av_set_insert, av_set_remove, av_set_addr],
        "a set has the addresses of a range with a stride, of the universe, or none; union, intersection and difference follow set theory";
    set_arguments with(&COLLECTIVE, 256): "collective.set.arguments", "fi_av_set(3)", 1, [av_set, av_set_union, av_set_insert, av_set_remove, av_set_addr],
        "ranges that are none, more addresses than expected, keys, unknown flags, and addresses that are not there are refused";
    joins united(&COLLECTIVE): "collective.join", "fi_collective(3); fi_eq(3)", 3, [join_collective, eq_read, eq_sread],
        "a join ends by an event with the group and the context, when all members have joined, and not before";
    managed united(&COLLECTIVE): "collective.join.managed", "fi_collective(3)", 2, [join_collective, allreduce],
        "with membership managed by the program, a join ends without the other members";
    asleep with(&COLLECTIVE, 256): "collective.join.asleep", "fi_collective(3); fi_eq(3)", 3, [join_collective, eq_sread, control],
        "a join ends while its members only sleep: at the descriptor of the event queue, or in fi_eq_sread that began before";
    join_arguments united(&COLLECTIVE): "collective.join.arguments", "fi_collective(3); fi_cm(3)", 2, [join_collective],
        "joins without an event queue, membership, capability or address, and with unknown flags, are refused";
    subgroups united(&COLLECTIVE): "collective.join.subgroup", "fi_collective(3)", 3, [join_collective, barrier],
        "a group's address serves for joins of its members alone";
    barriers united(&COLLECTIVE): "collective.barrier", "fi_collective(3)", 4, [barrier, barrier2],
        "work that members have finished before a barrier is finished for all others after it, many times";
    left united(&COLLECTIVE): "collective.leave", "fi_collective(3); fi_cm(3)", 3, [close, barrier],
        "leaving a group ends the operations that need the member, here with FI_ECANCELED, and there with a failure; other groups go on";
}

/// A plan with collectives.
pub(super) const COLLECTIVE: Plan<'static> = Plan::DEFAULT.caps(FI_RMA | FI_ATOMIC | FI_COLLECTIVE);

/// An endpoint with an event queue, and the addresses of all ranks' endpoints.
pub(crate) struct Club<'a> {
    pub(super) job: &'a Job<'a>,
    pub(super) eq: *mut fid_eq,
    pub(crate) ep: *mut fid_ep,
    /// The addresses of the ranks' endpoints.
    pub(crate) addresses: Vec<u64>,
}

/// Attributes of a set: no members, all operations.
pub(super) const EMPTY: fi_av_set_attr = fi_av_set_attr {
    count: 0,
    start_addr: FI_ADDR_NOTAVAIL,
    end_addr: FI_ADDR_NOTAVAIL,
    stride: 0,
    comm_key_size: 0,
    comm_key: null_mut(),
    flags: 0,
};

/// Attributes of a set of a range of addresses.
fn range(start_addr: u64, end_addr: u64, stride: u64) -> fi_av_set_attr {
    fi_av_set_attr {
        start_addr,
        end_addr,
        stride,
        ..EMPTY
    }
}

/// Creates a set with these attributes.
pub(super) fn set_of(
    station: &Station,
    mut attr: fi_av_set_attr,
) -> Result<*mut fid_av_set, String> {
    Ok(open!(obj station.av, av_set(&mut attr)))
}

/// A set's address.
fn place_of(set: *mut fid_av_set) -> Result<u64, String> {
    let mut at = 0;
    ok!(obj set, addr(&mut at));
    Ok(at)
}

/// A group's address.
pub(super) fn address_of(group: *mut fid_mc) -> u64 {
    // SAFETY:
    // - a group that the law has joined and not closed.
    unsafe { (*group).fi_addr }
}

impl<'a> Club<'a> {
    pub(crate) fn open(job: &'a Job<'a>, plan: &Plan<'_>) -> Result<Club<'a>, String> {
        let eq = open!(obj job.station.fabric, eq_open(null_mut()));
        Club::open_with(job, plan, eq)
    }

    /// As [`open`](Club::open), with this event queue.
    pub(super) fn open_with(
        job: &'a Job<'a>,
        plan: &Plan<'_>,
        eq: *mut fid_eq,
    ) -> Result<Club<'a>, String> {
        let ep = job.station.endpoint(plan)?;
        ok!(fid ep, bind(eq.cast(), 0));
        ok!(fid ep, control(FI_ENABLE, null_mut()));
        Club::of(job, eq, ep)
    }

    /// With an enabled endpoint that is bound to the event queue.
    pub(super) fn of(
        job: &'a Job<'a>,
        eq: *mut fid_eq,
        ep: *mut fid_ep,
    ) -> Result<Club<'a>, String> {
        job.ctx.tell(&name_of(ep)?);
        job.meet();
        let known = (0..job.size).map(|rank| job.known(rank));
        let addresses = known.collect::<Result<_, _>>()?;
        job.meet();
        Ok(Club {
            job,
            eq,
            ep,
            addresses,
        })
    }

    /// Creates the set of these ranks, in this order.
    pub(super) fn set(&self, ranks: &[u32]) -> Result<*mut fid_av_set, String> {
        let set = set_of(&self.job.station, EMPTY)?;
        self.fill(set, ranks)?;
        Ok(set)
    }

    /// Inserts these ranks into a set.
    pub(super) fn fill(&self, set: *mut fid_av_set, ranks: &[u32]) -> Verdict {
        for_all(ranks, |rank| {
            ok!(obj set, insert(self.addresses[*rank as usize]));
            Ok(())
        })
    }

    /// All ranks.
    pub(super) fn ranks(&self) -> Vec<u32> {
        (0..self.job.size).collect()
    }

    /// Begins the join of a set's own group.
    pub(super) fn begin_own(
        &self,
        set: *mut fid_av_set,
        context: usize,
    ) -> Result<*mut fid_mc, String> {
        self.begin(set, place_of(set)?, context)
    }

    /// Begins a join. `at`: the address of a set or a group.
    pub(super) fn begin(
        &self,
        set: *mut fid_av_set,
        at: u64,
        context: usize,
    ) -> Result<*mut fid_mc, String> {
        let (at, mut group) = (fi_collective_addr { set, coll_addr: at }, null_mut());
        ok!(cm self.ep, join((&raw const at).cast(), FI_COLLECTIVE, &mut group, cx(context)));
        Ok(group)
    }

    /// Waits for the end of a join, and checks its event.
    pub(super) fn joined(&self, group: *mut fid_mc, context: usize) -> Verdict {
        let (code, event, entry) = self.event()?;
        let size = size_of::<fi_eq_entry>() as isize;
        ensure_eq!((code, event), (size, FI_JOIN_COMPLETE), "the end of a join");
        let seen = (entry.fid, entry.context.addr());
        equal!(seen, (group.cast(), context), "its group and context")
    }

    /// The next event, or -FI_EAVAIL.
    pub(super) fn event(&self) -> Result<(isize, u32, fi_eq_entry), String> {
        let mut event = 0;
        let mut entry = fi_eq_entry {
            fid: null_mut(),
            context: null_mut(),
            data: 0,
        };
        let (place, len) = ((&raw mut entry).cast(), size_of::<fi_eq_entry>());
        if self.job.rank.is_multiple_of(2) {
            let code = call!(obj self.eq, sread(&mut event, place, len, LONG, 0));
            return Ok((code, event, entry));
        }
        let mut code = AGAIN;
        until("an event", || {
            code = call!(obj self.eq, read(&mut event, place, len, 0));
            code != AGAIN
        })?;
        Ok((code, event, entry))
    }

    /// Joins the group of these ranks; the group.
    pub(crate) fn group(&self, ranks: &[u32]) -> Result<*mut fid_mc, String> {
        let set = self.set(ranks)?;
        let group = self.begin_own(set, 77)?;
        self.joined(group, 77)?;
        close(set)?;
        Ok(group)
    }

    /// The group of all ranks.
    pub(crate) fn all(&self) -> Result<*mut fid_mc, String> {
        self.group(&self.ranks())
    }

    pub(super) fn begin_barrier(&self, group: *mut fid_mc, context: usize) -> Verdict {
        let at = address_of(group);
        let post = || call!(collective self.ep, barrier(at, cx(context)));
        self.job.post(post)
    }

    /// Runs a barrier until its completion.
    pub(super) fn barrier(&self, group: *mut fid_mc) -> Verdict {
        self.begin_barrier(group, 55)?;
        let entry = self.job.tx.of(55)?;
        equal!(entry.flags, FI_COLLECTIVE, "the flags of a completion")
    }

    /// Closes the endpoint and its event queue. Peers must no longer need them.
    pub(super) fn close(self) -> Verdict {
        close(self.ep)?;
        close(self.eq)
    }
}

/// Runs the body with a [`Club`].
pub(super) fn united(
    ctx: &Ctx,
    plan: &Plan<'_>,
    body: impl FnOnce(&Club<'_>) -> Verdict,
) -> Verdict {
    with(ctx, plan, 256, |job| {
        let club = Club::open(job, plan)?;
        body(&club)?;
        job.meet();
        club.close()
    })
}

/// Fails unless `members`, and no others of `all`, are in the set. Removes members and inserts them again.
fn has(set: *mut fid_av_set, all: &[u64], members: &[u64], what: &str) -> Verdict {
    for_all(all, |address| {
        let known = call!(obj set, remove(*address)) == 0;
        let expected = members.contains(address);
        equal!(known, expected, "{what}: the member {address}")
    })?;
    for_all(members, |address| {
        ok!(obj set, insert(*address));
        Ok(())
    })
}

fn sets(job: &Job<'_>) -> Verdict {
    let station = &job.station;
    let name = station.name()?;
    let mut all = vec![job.peer(0).address];
    for _ in 1..10 {
        all.push(station.insert(&name)?);
    }
    let gone = all.remove(7);
    job.forget(gone)?;
    let a = set_of(station, range(0, 6, 2))?;
    has(a, &all, &[0, 2, 4, 6], "a range with a stride")?;
    let b = set_of(station, range(4, 9, 1))?;
    has(b, &all, &[4, 5, 6, 8, 9], "a range with a hole")?;
    let universe = fi_av_set_attr {
        flags: FI_UNIVERSE,
        ..EMPTY
    };
    let u = set_of(station, universe)?;
    has(u, &all, &all, "the universe")?;
    let empty = set_of(station, EMPTY)?;
    has(empty, &all, &[], "an empty set")?;
    ok!(obj empty, set_union(a));
    has(empty, &all, &[0, 2, 4, 6], "a union with nothing")?;
    ok!(obj empty, set_union(b));
    has(empty, &all, &[0, 2, 4, 6, 5, 8, 9], "a union")?;
    ok!(obj empty, intersect(b));
    has(empty, &all, &[4, 6, 5, 8, 9], "an intersection")?;
    ok!(obj empty, diff(a));
    has(empty, &all, &[5, 8, 9], "a difference")?;
    ok!(obj u, diff(u));
    has(u, &all, &[], "a difference with itself")?;
    ok!(obj a, set_union(a));
    has(a, &all, &[0, 2, 4, 6], "a union with itself")?;
    gives!(FI_EINVAL, obj a, insert(gone));
    let (one, other) = (place_of(a)?, place_of(b)?);
    ensure!(one != other, "two sets have the address {one:#x}");
    ensure!(!all.contains(&one), "a set has the address of an endpoint");
    gives!(FI_EBUSY, fid station.av, close());
    [a, b, u, empty].into_iter().try_for_each(close)
}

fn set_arguments(job: &Job<'_>) -> Verdict {
    let (station, own) = (&job.station, job.peer(0).address);
    const NOWHERE: u64 = FI_ADDR_NOTAVAIL;
    for (what, errno, mut attr) in rows! {
        "an unknown flag": FI_EBADFLAGS, fi_av_set_attr { flags: 1, ..EMPTY };
        "a key": FI_EOPNOTSUPP, fi_av_set_attr { comm_key_size: 4, ..EMPTY };
        "a start without an end": FI_EINVAL, range(0, NOWHERE, 0);
        "an end without a start": FI_EINVAL, range(NOWHERE, 0, 0);
        "a stride without a range": FI_EINVAL, range(NOWHERE, NOWHERE, 1);
        "no stride": FI_EINVAL, range(0, 0, 0);
        "a range that ends before it begins": FI_EINVAL, range(1, 0, 1);
        "more addresses than expected": FI_EINVAL, fi_av_set_attr { count: 2, ..range(0, 2, 1) };
        "a range without an end": FI_EINVAL, range(0, NOWHERE, 1);
    } {
        let mut set = null_mut();
        let code = call!(obj station.av, av_set(&mut attr, &mut set, null_mut()));
        ensure_eq!(code, -errno, "{what}");
    }
    gives!(FI_EINVAL, obj station.av, av_set(null_mut(), &mut null_mut(), null_mut()));
    gives!(FI_EINVAL, obj station.av, av_set(&mut { EMPTY }, null_mut(), null_mut()));
    let set = set_of(station, EMPTY)?;
    ok!(obj set, insert(own));
    gives!(FI_EINVAL, obj set, insert(own));
    gives!(FI_EINVAL, obj set, insert(own + 1000));
    gives!(FI_EINVAL, obj set, remove(own + 1000));
    gives!(FI_EINVAL, obj set, addr(null_mut()));
    gives!(FI_EINVAL, obj set, set_union(null()));
    gives!(FI_EINVAL, obj set, intersect(null()));
    gives!(FI_EINVAL, obj set, diff(null()));
    // The addresses of a map have no order.
    let map: *mut fid_av = open!(obj station.domain, av_open(&mut av_attr(FI_AV_MAP, 0)));
    gives!(FI_EINVAL, obj map, av_set(&mut range(0, 0, 1), &mut null_mut(), null_mut()));
    let of_map = open!(obj map, av_set(&mut { EMPTY }));
    gives!(FI_EINVAL, obj set, set_union(of_map));
    close(of_map)?;
    close(map)?;
    close(set)
}

fn joins(club: &Club<'_>) -> Verdict {
    let job = club.job;
    for late in 0..job.size {
        let set = club.set(&club.ranks())?;
        let mut group = null_mut();
        if job.rank != late {
            group = club.begin_own(set, 40 + late as usize)?;
            // The join keeps the members that the set had at its start.
            ok!(obj set, remove(club.addresses[0]));
        }
        job.meet();
        if job.rank != late {
            let (mut event, mut entry) = (0, [0u8; 64]);
            for _ in 0..100 {
                gives!(FI_EAGAIN, obj club.eq, read(&mut event, entry.as_mut_ptr().cast(), 64, 0));
            }
            gives!(FI_EOPBADSTATE, collective club.ep, barrier(address_of(group), cx(1)));
        }
        job.meet();
        if job.rank == late {
            group = club.begin_own(set, 40 + late as usize)?;
        }
        club.joined(group, 40 + late as usize)?;
        club.barrier(group)?;
        close(group)?;
        close(set)?;
    }
    Ok(())
}

fn asleep(job: &Job<'_>) -> Verdict {
    let begin = |club: &Club<'_>| {
        let set = club.set(&club.ranks())?;
        let group = club.begin_own(set, 5)?;
        close(set)?;
        Ok::<_, String>(group)
    };
    let end = |club: Club<'_>, group: *mut fid_mc| {
        job.meet();
        close(group)?;
        club.close()
    };

    let club = Club::open_with(job, &COLLECTIVE, super::event::open(job, FI_WAIT_FD)?)?;
    let descriptor = control(club.eq, FI_GETWAIT, -1)?;
    let group = begin(&club)?;
    ensure!(readable(descriptor, -1), "poll(2)");
    club.joined(group, 5)?;
    end(club, group)?;

    let eq = super::event::open(job, FI_WAIT_UNSPEC)?;
    let at = eq.addr();
    let wait = move || {
        let (mut event, mut entry) = (0, [0u8; size_of::<fi_eq_entry>()]);
        let (queue, place) = (at as *mut fid_eq, entry.as_mut_ptr().cast());
        let code = call!(obj queue, sread(&mut event, place, entry.len(), -1, 0));
        (code, event)
    };
    let (read, joined) = beside(wait, || {
        pause(30);
        let club = Club::open_with(job, &COLLECTIVE, eq)?;
        let group = begin(&club)?;
        Ok::<_, String>((club, group))
    })?;
    let expected = (size_of::<fi_eq_entry>() as isize, FI_JOIN_COMPLETE);
    ensure_eq!(read, expected, "the read that began before");
    let (club, group) = joined?;
    end(club, group)
}

fn managed(club: &Club<'_>) -> Verdict {
    let set = club.set(&[0, 1])?;
    for turn in 0..2 {
        if club.job.rank != turn {
            club.job.meet();
        }
        let group = club.begin(set, FI_ADDR_NOTAVAIL, 9)?;
        club.joined(group, 9)?;
        if club.job.rank == turn {
            club.job.meet();
        }
        club.barrier(group)?;
        close(group)?;
    }
    close(set)
}

fn join_arguments(club: &Club<'_>) -> Verdict {
    let job = club.job;
    let ep = club.ep;
    let (own, other) = (job.rank, 1 - job.rank);
    let set = club.set(&[own])?;
    let at = place_of(set)?;
    let of = |set, coll_addr| fi_collective_addr { set, coll_addr };
    let good = of(set.cast_const(), at);
    let place = |addr: &fi_collective_addr| std::ptr::from_ref(addr).cast::<c_void>();
    let mut group: *mut fid_mc = null_mut();
    let flags = FI_COLLECTIVE;
    gives!(FI_EINVAL, cm ep, join(null(), flags, &mut group, null_mut()));
    gives!(FI_EINVAL, cm ep, join(place(&good), flags, null_mut(), null_mut()));
    gives!(FI_EINVAL, cm ep, join(place(&of(null(), at)), flags, &mut group, null_mut()));
    gives!(FI_EINVAL, cm ep, join(place(&of(set, 0)), flags, &mut group, null_mut()));
    gives!(FI_EINVAL, cm ep, join(place(&of(set, at + 1000)), flags, &mut group, null_mut()));
    for wrong in [FI_SEND, FI_RECV, FI_MORE, 1 << 5] {
        gives!(FI_EBADFLAGS, cm ep, join(place(&good), flags | wrong, &mut group, null_mut()));
    }
    // Without FI_COLLECTIVE it is a multicast group.
    gives!(FI_ENOSYS, cm ep, join(place(&good), 0, &mut group, null_mut()));
    let others = club.set(&[other])?;
    let others_at = place_of(others)?;
    gives!(FI_EINVAL, cm ep, join(place(&of(others, others_at)), flags, &mut group, null_mut()));
    gives!(FI_EINVAL, cm ep, join(place(&of(set, others_at)), flags, &mut group, null_mut()));
    let empty = club.set(&[])?;
    gives!(FI_EINVAL, cm ep, join(place(&of(empty, at)), flags, &mut group, null_mut()));
    // The endpoint of the job has no event queue.
    gives!(FI_ENOEQ, cm job.ep, join(place(&good), flags, &mut group, null_mut()));
    ok!(cm ep, join(place(&good), flags | FI_SEND | FI_RECV, &mut group, cx(3)));
    club.joined(group, 3)?;
    close(group)?;
    [set, others, empty].into_iter().try_for_each(close)?;
    without_capability()
}

fn without_capability() -> Verdict {
    let plan = Plan::DEFAULT.caps(FI_MSG);
    let station = Station::open(&plan)?;
    let eq: *mut fid_eq = open!(obj station.fabric, eq_open(null_mut()));
    ok!(fid station.ep, bind(eq.cast(), 0));
    let own = station.insert(&station.name()?)?;
    let set = set_of(&station, EMPTY)?;
    ok!(obj set, insert(own));
    let at = fi_collective_addr {
        set,
        coll_addr: FI_ADDR_NOTAVAIL,
    };
    let place = (&raw const at).cast();
    gives!(FI_EOPNOTSUPP, cm station.ep, join(place, FI_COLLECTIVE, &mut null_mut(), null_mut()));
    gives!(FI_EOPNOTSUPP, collective station.ep, barrier(1 << 63, null_mut()));
    close(set)?;
    close(station.ep)?;
    close(eq)?;
    Station {
        ep: null_mut(),
        ..station
    }
    .close_the_rest()
}

fn subgroups(club: &Club<'_>) -> Verdict {
    let rank = club.job.rank;
    let all = club.all()?;
    if rank < 2 {
        let set = club.set(&[1, 0])?;
        let group = club.begin(set, address_of(all), 6)?;
        club.joined(group, 6)?;
        club.barrier(group)?;
        // A group of two lacks a member of the set of three.
        let three = club.set(&[0, 1, 2])?;
        let at = fi_collective_addr {
            set: three,
            coll_addr: address_of(group),
        };
        let place = (&raw const at).cast();
        gives!(FI_EINVAL, cm club.ep, join(place, FI_COLLECTIVE, &mut null_mut(), null_mut()));
        [set, three].into_iter().try_for_each(close)?;
        close(group)?;
    }
    club.barrier(all)?;
    close(all)
}

fn barriers(club: &Club<'_>) -> Verdict {
    let job = club.job;
    let group = club.all()?;
    for round in 1..=many(club.job.ctx, 10) {
        for rank in 0..job.size {
            job.write(rank, 8 * job.rank as usize, &round.to_ne_bytes())?;
        }
        if round.is_multiple_of(2) {
            club.barrier(group)?;
        } else {
            let at = address_of(group);
            job.post(|| call!(collective club.ep, barrier2(at, FI_COMPLETION, cx(8))))?;
            job.tx.of(8)?;
        }
        for rank in 0..job.size as usize {
            let seen = job.memory.get(8 * rank);
            let fits = seen == round || seen == round + 1;
            ensure!(
                fits,
                "after barrier {round}, rank {rank} has written {seen}"
            );
        }
    }
    close(group)
}

fn left(club: &Club<'_>) -> Verdict {
    let job = club.job;
    let all = club.all()?;
    let pair = match job.rank {
        2 => null_mut(),
        _ => club.group(&[0, 1])?,
    };
    let (at, root, mut word) = (address_of(all), club.addresses[0], 5u64);
    let mut broadcast = || {
        job.post(|| {
            let buffer = (&raw mut word).cast();
            call!(collective club.ep, broadcast(buffer, 1, null_mut(), at, root, UINT64, 0, cx(3)))
        })
    };
    if job.rank != 2 {
        broadcast()?;
        job.tx.is_empty()?;
    }
    job.meet();
    if job.rank == 0 {
        close(all)?;
    }
    job.meet();
    if job.rank == 2 {
        broadcast()?;
    }
    let what = "an operation after its root has left";
    let error = job.tx.fails_of(3, FI_ECANCELED, what)?;
    ensure_eq!(error.flags, FI_COLLECTIVE, "the flags");
    if job.rank == 0 {
        gives!(FI_EINVAL, collective club.ep, barrier(at, null_mut()));
    } else {
        close(all)?;
    }
    job.tx.is_empty()?;
    if !pair.is_null() {
        club.barrier(pair)?;
        close(pair)?;
    }
    Ok(())
}

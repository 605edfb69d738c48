//! Collective operations on data (fi_collective(3)).

use std::ops::Range;

use super::collective::{COLLECTIVE, Club, address_of, united};
use super::kit::*;
use super::value::{LONG_DOUBLE, OPS, Type, Value, encoded};

laws! {
    moves united(&COLLECTIVE): "collective.move", "fi_collective(3)", 4, [broadcast, alltoall, allgather, scatter, gather],
        "broadcast, all-to-all, all-gather, scatter and gather bring elements of each type to their places, from and to each root";
    reduces united(&COLLECTIVE): "collective.reduce", "fi_collective(3); fi_atomic(3) §4", 3, [allreduce, reduce, reduce_scatter],
        "reductions combine elements of each type by each operation, by the formulas of atomic operations";
    together united(&COLLECTIVE): "collective.begun", "fi_collective(3)", 4,
        [barrier, broadcast, alltoall, allreduce, allgather, reduce_scatter, reduce, scatter, gather],
        "no member completes an operation before all have begun it";
    groups united(&COLLECTIVE): "collective.groups", "fi_collective(3)", 4, [join_collective, allreduce, gather],
        "groups that share members go on side by side, whatever the order in which their members post, and members have the order of the set";
}

/// A collective operation of a group.
#[derive(Clone, Copy)]
pub(crate) struct Deed {
    /// `enum fi_collective_op`.
    pub(super) kind: c_int,
    pub(super) group: u64,
    pub(super) root: u64,
    pub(super) what: (c_int, c_int),
    pub(super) operand: *const u8,
    pub(super) result: *mut u8,
    pub(super) count: usize,
    pub(super) flags: u64,
    pub(super) context: usize,
}

/// All kinds.
pub(crate) const KINDS: Range<c_int> = FI_BARRIER..FI_GATHER + 1;

/// Names of the kinds, for messages.
pub(super) const NAMES: [&str; 9] = [
    "fi_barrier",
    "fi_broadcast",
    "fi_alltoall",
    "fi_allreduce",
    "fi_allgather",
    "fi_reduce_scatter",
    "fi_reduce",
    "fi_scatter",
    "fi_gather",
];

impl Deed {
    /// This operation with a root's address, buffers and a context.
    pub(crate) fn with<T>(
        self,
        root: u64,
        (operand, result): (*const T, *mut T),
        context: usize,
    ) -> Deed {
        Deed {
            root,
            operand: operand.cast(),
            result: result.cast(),
            context,
            ..self
        }
    }

    /// Posts the operation.
    pub(crate) fn post(&self, ep: *mut fid_ep) -> isize {
        let Deed {
            group,
            root,
            count: n,
            flags,
            what: (ty, op),
            ..
        } = *self;
        let (o, r, none) = (self.operand.cast(), self.result.cast(), null_mut());
        let context = cx(self.context);
        match self.kind {
            FI_BARRIER if flags == 0 => call!(collective ep, barrier(group, context)),
            FI_BARRIER => call!(collective ep, barrier2(group, flags, context)),
            FI_BROADCAST => {
                call!(collective ep, broadcast(r, n, none, group, root, ty, flags, context))
            }
            FI_ALLTOALL => {
                call!(collective ep, alltoall(o, n, none, r, none, group, ty, flags, context))
            }
            FI_ALLREDUCE => {
                call!(collective ep, allreduce(o, n, none, r, none, group, ty, op, flags, context))
            }
            FI_ALLGATHER => {
                call!(collective ep, allgather(o, n, none, r, none, group, ty, flags, context))
            }
            FI_REDUCE_SCATTER => {
                call!(collective ep, reduce_scatter(o, n, none, r, none, group, ty, op, flags, context))
            }
            FI_REDUCE => {
                call!(collective ep, reduce(o, n, none, r, none, group, root, ty, op, flags, context))
            }
            FI_SCATTER => {
                call!(collective ep, scatter(o, n, none, r, none, group, root, ty, flags, context))
            }
            _ => call!(collective ep, gather(o, n, none, r, none, group, root, ty, flags, context)),
        }
    }
}

/// The number of members, and of elements in a slice.
#[derive(Clone, Copy)]
struct Size {
    n: usize,
    count: usize,
}

/// For each element of a result its contributors, and the element's index in the operand of each.
type Sources = Vec<Vec<(usize, usize)>>;

/// Sources of the result of member `me`. Empty: no result.
fn sources(kind: c_int, me: usize, root: usize, Size { n, count }: Size) -> Sources {
    let (all, own) = (0..count, me * count..(me + 1) * count);
    let copied = |members: Range<usize>, elements: Range<usize>| -> Sources {
        let of = |member| elements.clone().map(move |at| vec![(member, at)]);
        members.flat_map(of).collect()
    };
    let combined = |elements: Range<usize>| -> Sources {
        let every = |at| (0..n).map(|member| (member, at)).collect();
        elements.map(every).collect()
    };
    match kind {
        FI_BROADCAST => copied(root..root + 1, all),
        FI_ALLTOALL => copied(0..n, own),
        FI_ALLREDUCE => combined(all),
        FI_ALLGATHER => copied(0..n, all),
        FI_REDUCE_SCATTER => combined(own),
        FI_REDUCE if me == root => combined(all),
        FI_SCATTER => copied(root..root + 1, own),
        FI_GATHER if me == root => copied(0..n, all),
        _ => Vec::new(),
    }
}

/// The operands of each member, the same at all ranks.
fn operands(ctx: &Ctx, ty: Type, Size { n, count }: Size, salt: u64) -> Vec<Vec<Value>> {
    let mut random = ctx.random(salt);
    let mut operand = || (0..n * count).map(|_| ty.random(&mut random)).collect();
    (0..n).map(|_| operand()).collect()
}

/// Clears the sign of zeros in an element. The sign of a zero product depends on the order in which members are combined.
fn unsigned(ty: Type, element: &[u8]) -> Vec<u8> {
    let mut bytes = element.to_vec();
    for part in bytes.chunks_mut(ty.1).filter(|_| !ty.is_integer()) {
        let (sign, rest) = part[..ty.1.min(LONG_DOUBLE)]
            .split_last_mut()
            .expect("a number");
        if *sign == 0x80 && rest.iter().all(|byte| *byte == 0) {
            *sign = 0;
        }
    }
    bytes
}

/// Guard bytes before and after a result. Operations must not change them.
const GUARD: usize = 16;
const UNTOUCHED: u8 = 0x5a;

/// Runs one operation of the group until its completion. Checks the result and the guard bytes. `members`: the ranks in the order of the set.
pub(super) fn one(club: &Club<'_>, deed: Deed, members: &[u32], root: usize, salt: u64) -> Verdict {
    let (datatype, op) = deed.what;
    let ty = Type::of(datatype);
    let size = Size {
        n: members.len(),
        count: deed.count,
    };
    let rank = club.job.rank;
    let me = members.iter().position(|member| *member == rank);
    let me = me.ok_or("no member")?;
    let values = operands(club.job.ctx, ty, size, salt);
    let mut operand = encoded(ty, &values[me]);
    let longest = size.n * size.count * ty.size();
    let mut result = vec![UNTOUCHED; longest + 2 * GUARD];
    let sources = sources(deed.kind, me, root, size);
    if deed.kind == FI_BROADCAST && me == root {
        result[GUARD..GUARD + longest].copy_from_slice(&operand);
    }
    let buffers = (operand.as_ptr(), result[GUARD..].as_mut_ptr());
    let deed = deed.with(club.addresses[members[root] as usize], buffers, 21);
    let text = format!(
        "{} of {ty:?}, {}, {} elements, root {root}",
        NAMES[deed.kind as usize],
        OPS.get(op as usize).unwrap_or(&"no operation"),
        size.count
    );
    let named = |error: String| format!("{text}: {error}");
    club.job.post(|| deed.post(club.ep)).map_err(named)?;
    // After completion the program may overwrite the operand.
    operand.fill(0xee);
    club.job.tx.of(21).map_err(named)?;
    let mut expected = vec![UNTOUCHED; result.len()];
    if deed.kind == FI_BROADCAST && me == root {
        expected[GUARD..GUARD + longest].copy_from_slice(&encoded(ty, &values[me]));
    }
    let combined = sources.iter().map(|sources| {
        let elements = sources.iter().map(|(member, at)| values[*member][*at]);
        elements.reduce(|held, other| ty.apply(op, held, other, held))
    });
    let wanted: Vec<u8> = combined
        .flatten()
        .flat_map(|value| ty.encode(value))
        .collect();
    expected[GUARD..GUARD + wanted.len()].copy_from_slice(&wanted);
    let written = GUARD..GUARD + wanted.len();
    let seen = result[written.clone()].chunks(ty.size());
    let wanted = expected[written.clone()].chunks(ty.size());
    for (nth, (seen, good)) in seen.zip(wanted).enumerate() {
        ensure!(
            ty.same(&unsigned(ty, seen), &unsigned(ty, good)),
            "{text}: element {nth} is {seen:02x?}, and should be {good:02x?} (rank {rank})"
        );
    }
    ensure!(
        result[..GUARD] == expected[..GUARD] && result[written.end..] == expected[written.end..],
        "{text}: bytes beside the result are written (rank {rank})"
    );
    Ok(())
}

/// An operation with this kind, group, type and count. Other fields are empty.
pub(crate) fn deed(kind: c_int, group: *mut fid_mc, what: (c_int, c_int), count: usize) -> Deed {
    Deed {
        kind,
        group: address_of(group),
        root: 0,
        what,
        operand: null(),
        result: null_mut(),
        count,
        flags: 0,
        context: 0,
    }
}

fn moves(club: &Club<'_>) -> Verdict {
    let group = club.all()?;
    let members = club.ranks();
    for kind in [
        FI_BROADCAST,
        FI_ALLTOALL,
        FI_ALLGATHER,
        FI_SCATTER,
        FI_GATHER,
    ] {
        for root in 0..members.len() {
            for datatype in 0..16 {
                let count = [1, 7, 300][(datatype as usize + root) % 3];
                let deed = deed(kind, group, (datatype, FI_NOOP), count);
                one(club, deed, &members, root, 100 + datatype as u64)?;
            }
        }
    }
    close(group)
}

fn reduces(club: &Club<'_>) -> Verdict {
    let group = club.all()?;
    let members = club.ranks();
    for kind in [FI_ALLREDUCE, FI_REDUCE, FI_REDUCE_SCATTER] {
        for datatype in 0..16 {
            for op in (0..=BXOR).filter(|op| Type::of(datatype).has(*op)) {
                let root = (datatype + op) as usize % members.len();
                let count = [1, 5, 40][(datatype + op) as usize % 3];
                let deed = deed(kind, group, (datatype, op), count);
                one(club, deed, &members, root, (datatype * 19 + op) as u64)?;
            }
        }
    }
    close(group)
}

fn together(club: &Club<'_>) -> Verdict {
    let job = club.job;
    let group = club.all()?;
    let members = club.ranks();
    for kind in KINDS {
        for late in 0..job.size {
            let mut buffers = [[1u64; 8]; 2];
            let [operand, result] = &mut buffers;
            let root = club.addresses[(late as usize + 1) % members.len()];
            let buffers = (operand.as_ptr(), result.as_mut_ptr());
            let deed = deed(kind, group, (UINT64, SUM), 2).with(root, buffers, 31);
            if job.rank != late {
                job.post(|| deed.post(club.ep))?;
            }
            job.meet_and_progress();
            if job.rank != late {
                let empty = job.tx.is_empty();
                empty.map_err(|text| format!("{}: {text}", NAMES[kind as usize]))?;
            }
            job.meet_and_progress();
            if job.rank == late {
                job.post(|| deed.post(club.ep))?;
            }
            job.tx.of(31)?;
        }
    }
    close(group)
}

fn groups(club: &Club<'_>) -> Verdict {
    let job = club.job;
    let sets: [&[u32]; 4] = [&[0, 1, 2, 3], &[3, 1], &[2, 0, 1], &[1, 3, 2, 0]];
    let mine: Vec<usize> = (0..4)
        .filter(|nth| sets[*nth].contains(&job.rank))
        .collect();
    let mut order = mine.clone();
    // Joins of several groups may also be in progress at the same time.
    let mut groups = [null_mut(); 4];
    let mut opened = Vec::new();
    order.rotate_left(job.rank as usize % mine.len());
    for nth in &order {
        let set = club.set(sets[*nth])?;
        groups[*nth] = club.begin_own(set, 50 + nth)?;
        opened.push(set);
    }
    for _ in &order {
        let (code, event, entry) = club.event()?;
        let found = (code > 0, event);
        ensure_eq!(found, (true, FI_JOIN_COMPLETE), "the end of a join");
        let nth = entry.context.addr() - 50;
        ensure_eq!(entry.fid, groups[nth].cast(), "the group that is joined");
    }
    opened.into_iter().try_for_each(close)?;
    for round in 0..many(club.job.ctx, 3) {
        order.rotate_left(1);
        if job.rank.is_multiple_of(2) {
            order.reverse();
        }
        // Each group has three operations in flight. Members post the groups in different orders.
        let mut results = [[0u64; 3]; 4];
        let operand = |nth: usize, turn: u64| {
            (u64::from(job.rank) + 1) * 1000 + nth as u64 * 10 + turn + round
        };
        let mut operands = [[0u64; 3]; 4];
        for turn in 0..3 {
            for nth in &order {
                operands[*nth][turn] = operand(*nth, turn as u64);
                let place = (
                    &raw const operands[*nth][turn],
                    &raw mut results[*nth][turn],
                );
                let deed = deed(FI_ALLREDUCE, groups[*nth], (UINT64, SUM), 1);
                let deed = deed.with(0, place, 60 + nth * 3 + turn);
                job.post(|| deed.post(club.ep))?;
            }
        }
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..3 * order.len() {
            seen.insert(job.tx.next()?.context());
        }
        ensure_eq!(seen.len(), 3 * order.len(), "contexts that have come");
        for nth in &order {
            for (turn, result) in (0u64..).zip(results[*nth]) {
                let ranks = sets[*nth].iter().map(|rank| u64::from(*rank) + 1);
                let each = *nth as u64 * 10 + turn + round;
                let sum: u64 = ranks.map(|rank| rank * 1000 + each).sum();
                ensure_eq!(result, sum, "the sum of group {nth}, operation {turn}");
            }
        }
    }
    for_all(mine, |nth| {
        let (members, deed) = (sets[nth], deed(FI_GATHER, groups[nth], (5, FI_NOOP), 3));
        one(club, deed, members, nth % members.len(), nth as u64)?;
        close(groups[nth])
    })
}

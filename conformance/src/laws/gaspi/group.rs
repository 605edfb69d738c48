//! §6: groups.

use super::kit::*;

laws! {
    created_empty: "group.create", "§6.3.1", 1, [gaspi_group_create, gaspi_group_size, gaspi_group_num, gaspi_group_ranks],
        "gaspi_group_create gives a group without members, one more than there were";
    ranks_are_sorted: "group.add", "§6.3.2", 4, [gaspi_group_add, gaspi_group_ranks, gaspi_group_size],
        "ranks may be added in any order; the list is ascending";
    all_is_predefined: "group.all", "§6.2.2", 4, [gaspi_group_size, gaspi_group_ranks, gaspi_barrier, gaspi_group_commit],
        "GASPI_GROUP_ALL is the whole set; with build_infrastructure it is usable at once, and committing it is no error";
    uncommitted_is_refused: "group.uncommitted", "§6.1", 2, [gaspi_group_commit, gaspi_barrier, gaspi_allreduce, gaspi_segment_create],
        "only after a successful commit a group can be used for collective operations";
    commit_synchronises: "group.commit", "§6.3.3", 4, [gaspi_group_commit] + ordering,
        "when gaspi_group_commit returns, all members have called it";
    commit_continues: "group.commit.timeout", "§6.3.3", 3, [gaspi_group_commit] + ordering,
        "after GASPI_TIMEOUT a later call completes the commit";
    names_may_differ: "group.names", "§6.1", 3, [gaspi_group_create, gaspi_group_commit, gaspi_allreduce],
        "the same group may have another name at each member";
    pairs_side_by_side: "group.subsets", "§6.1", 4, [gaspi_group_commit, gaspi_barrier, gaspi_allreduce] + ordering,
        "groups of disjoint subsets work at the same time, without regard to each other";
    overlapping: "group.overlapping", "§6.1", 4, [gaspi_group_commit, gaspi_allreduce] + ordering,
        "a process may be a member of many groups";
    subset_ignores_others: "group.others-absent", "§3.3", 3, [gaspi_barrier, gaspi_group_commit],
        "collective operations of a group need its members only";
    same_members_twice: "group.same-members", "§6.1", 3, [gaspi_group_commit, gaspi_barrier, gaspi_allreduce] + ordering,
        "two groups of the same members are two groups";
    alone: "group.of-one", "§6.1", 3, [gaspi_group_commit, gaspi_barrier, gaspi_allreduce],
        "a group of only the own rank needs no other rank";
    deleted_is_gone: "group.delete", "§6.4.1", 2, [gaspi_group_delete, gaspi_group_num],
        "a deleted group cannot be used, and its name is free again";
    delete_in_any_order: "group.delete.order", "§6.4.1", 3, [gaspi_group_delete, gaspi_barrier, gaspi_allreduce] + ordering,
        "each rank deletes its groups in a different order; the remaining groups still work";
    as_many_as_promised: "group.max", "§12.1.1", 2, [gaspi_group_max, gaspi_group_create, gaspi_group_commit, gaspi_group_num],
        "gaspi_group_max groups can be had at a time, committed and used, and not one more";
    churn: "group.churn", "§6.4.1", 3, [gaspi_group_create, gaspi_group_commit, gaspi_group_delete] + ordering,
        "groups can be made and deleted again and again, of the same and of other members";
}

fn ranks_of(group: u8) -> Result<Vec<u16>, String> {
    let size = got!(gaspi_group_size(group));
    let mut ranks = vec![0xeeee; size as usize + 1];
    ok!(gaspi_group_ranks(group, ranks.as_mut_ptr()));
    ensure_eq!(ranks.pop(), Some(0xeeee), "the entry behind the ranks");
    Ok(ranks)
}

fn created_empty(_: &Ctx) -> Verdict {
    let before = got!(gaspi_group_num());
    let (one, two) = (got!(gaspi_group_create()), got!(gaspi_group_create()));
    ensure!(one != two && one != ALL && two != ALL, "{one} and {two}");
    ensure_eq!(got!(gaspi_group_num()), before + 2, "gaspi_group_num");
    for group in [one, two] {
        ensure_eq!(ranks_of(group)?, Vec::<u16>::new(), "members when new");
    }
    Ok(())
}

fn ranks_are_sorted(_: &Ctx) -> Verdict {
    for order in [[0u16, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1], [1, 3, 0, 2]] {
        let group = got!(gaspi_group_create());
        for (i, rank) in order.iter().enumerate() {
            ok!(gaspi_group_add(group, *rank));
            let mut expected = order[..=i].to_vec();
            expected.sort();
            let added = &order[..=i];
            ensure_eq!(ranks_of(group)?, expected, "members after adding {added:?}");
        }
        ok!(gaspi_group_delete(group));
    }
    Ok(())
}

fn all_is_predefined(ctx: &Ctx) -> Verdict {
    let everybody: Vec<u16> = (0..ctx.size as u16).collect();
    ensure_eq!(ranks_of(ALL)?, everybody, "members of GASPI_GROUP_ALL");
    barrier()?;
    ok!(gaspi_group_commit(ALL, BLOCK));
    ok!(gaspi_group_commit(ALL, LONG));
    barrier()?;
    ensure_eq!(sum_of_all(1)?, u64::from(ctx.size), "members taking part");
    equal!(ranks_of(ALL)?, everybody, "members after the commit")
}

fn uncommitted_is_refused(_: &Ctx) -> Verdict {
    let group = uncommitted([0, 1])?;
    let (value, mut sum) = (1u64, 77u64);
    let (from, into) = ((&raw const value).cast(), (&raw mut sum).cast());
    for timeout in [TEST, LONG, BLOCK] {
        gives! { GASPI_ERR_INV_GROUP:
            gaspi_barrier(group, timeout);
            gaspi_allreduce(from, into, 1, 2, 5, group, timeout);
            gaspi_segment_create(0, 64, group, timeout, 0);
        }
    }
    let segments = got!(gaspi_segment_num());
    ensure_eq!((sum, segments), (77, 0), "result, segments after refusals");
    ok!(gaspi_group_commit(group, LONG));
    ok!(gaspi_barrier(group, LONG));
    ensure_eq!(
        reduced(group, SUM, 1)?,
        2,
        "the sum over the committed group"
    );
    barrier()
}

fn commit_synchronises(ctx: &Ctx) -> Verdict {
    let memory = segment(0, 64)?;
    let mut random = ctx.random(u64::from(ctx.rank));
    for round in 1..=3u64 {
        pause(random.below(3));
        count_at_all(ctx)?;
        group_of(&[0, 1, 2, 3])?;
        let (seen, all) = (memory.get(0), round * u64::from(ctx.size));
        ensure!(
            seen >= all,
            "the commit returned after {seen} of {all} calls"
        );
        barrier()?;
    }
    Ok(())
}

fn commit_continues(ctx: &Ctx) -> Verdict {
    let memory = segment(0, 8)?;
    let mut random = ctx.random(1);
    for round in 0..3u64 {
        let late = random.below(u64::from(ctx.size)) as u32;
        let patience = random.below(3);
        let group = uncommitted((0..ctx.size as u16).rev())?;
        if ctx.rank == late {
            pause(8);
            count_at_all(ctx)?;
            ok!(gaspi_group_commit(group, BLOCK));
        } else {
            repeat("gaspi_group_commit", || {
                c!(gaspi_group_commit(group, patience))
            })?;
            ensure!(memory.get(0) > round, "committed before rank {late} called");
        }
        ok!(gaspi_barrier(group, LONG));
        let sum = reduced(group, SUM, round + u64::from(ctx.rank))?;
        ensure_eq!(sum, 3 * round + 3, "the sum in round {round}");
    }
    barrier()
}

fn names_may_differ(ctx: &Ctx) -> Verdict {
    let mut spare = 0;
    for_all(0..2 * ctx.rank, |_| done!(gaspi_group_create(&mut spare)))?;
    let group = group_of(&[0, 1, 2])?;
    let names = sum_of_all(1 << (8 * u64::from(group)).min(56))?;
    ensure!(names & 0xff00 != 0, "names of the first group: {names:#x}");
    for round in 1..=3 {
        ok!(gaspi_barrier(group, LONG));
        ensure_eq!(
            reduced(group, SUM, round)?,
            3 * round,
            "the sum over {group}"
        );
    }
    ok!(gaspi_segment_create(1, 64, group, LONG, 0));
    barrier()
}

fn pairs_side_by_side(ctx: &Ctx) -> Verdict {
    let first = (ctx.rank / 2 * 2) as u16;
    let pair = group_of(&[first, first + 1])?;
    let mut random = ctx.random(u64::from(first));
    // Each pair has its own number and sequence of operations.
    for round in 0..5 + u64::from(first) * 5 {
        if random.below(2) == 0 {
            ok!(gaspi_barrier(pair, LONG));
        }
        let sum = reduced(pair, SUM, round * 10 + u64::from(ctx.rank))?;
        ensure_eq!(sum, round * 20 + 2 * u64::from(first) + 1, "sum, {round}");
    }
    barrier()
}

fn overlapping(ctx: &Ctx) -> Verdict {
    let sets: [&[u16]; 5] = [&[0, 1, 2], &[1, 2, 3], &[0, 3], &[0, 1, 2, 3], &[1, 3]];
    let me = ctx.rank as u16;
    let mut mine = Vec::new();
    for ranks in sets {
        if ranks.contains(&me) {
            mine.push((group_of(ranks)?, ranks));
        }
    }
    for round in 0..10u64 {
        for (group, ranks) in &mine {
            let expected: u64 = ranks.iter().map(|r| round + 100 * u64::from(*r)).sum();
            let sum = reduced(*group, SUM, round + 100 * u64::from(me))?;
            ensure_eq!(sum, expected, "the sum over {ranks:?} in round {round}");
            ok!(gaspi_barrier(*group, LONG));
        }
    }
    barrier()
}

fn subset_ignores_others(ctx: &Ctx) -> Verdict {
    segment(0, 8)?;
    if ctx.rank < 2 {
        let pair = group_of(&[0, 1])?;
        for_all(0..20, |_| done!(gaspi_barrier(pair, LONG)))?;
        ensure_eq!(reduced(pair, SUM, 4)?, 8, "the pair's sum");
        // The third rank waits only for this.
        ok!(gaspi_notify(0, 2, ctx.rank, 1, 0, LONG));
    } else {
        notified(0, 0)?;
        notified(0, 1)?;
    }
    barrier()
}

fn same_members_twice(ctx: &Ctx) -> Verdict {
    let (one, two) = (group_of(&[0, 1, 2])?, group_of(&[0, 1, 2])?);
    ensure!(one != two, "two groups have the name {one}");
    let me = u64::from(ctx.rank);
    for round in 0..10 {
        // Two threads use the two groups at once: a member may be ahead in one of them.
        threads(2, |i| {
            let group = [one, two][i];
            let sum = reduced(group, SUM, (i as u64 + 1) * (round + me))?;
            ensure_eq!(sum, (i as u64 + 1) * (3 * round + 3), "group {i}, {round}");
            done!(gaspi_barrier(group, LONG))
        })?;
    }
    barrier()
}

fn alone(ctx: &Ctx) -> Verdict {
    let me = ctx.rank as u16;
    let group = uncommitted([me])?;
    repeat("gaspi_group_commit", || c!(gaspi_group_commit(group, TEST)))?;
    for value in 0..5 + u64::from(me) {
        repeat("gaspi_barrier", || c!(gaspi_barrier(group, TEST)))?;
        ensure_eq!(
            reduced(group, SUM, value)?,
            value,
            "the sum over the own rank"
        );
    }
    ok!(gaspi_segment_create(0, 64, group, LONG, 0));
    ok!(gaspi_group_delete(group));
    barrier()
}

fn deleted_is_gone(_: &Ctx) -> Verdict {
    let before = got!(gaspi_group_num());
    let group = group_of(&[0, 1])?;
    ok!(gaspi_barrier(group, LONG));
    ok!(gaspi_group_delete(group));
    ensure_eq!(
        got!(gaspi_group_num()),
        before,
        "gaspi_group_num after the deletion"
    );
    gives! { GASPI_ERR_INV_GROUP:
        gaspi_barrier(group, LONG);
        gaspi_group_commit(group, LONG);
        gaspi_group_add(group, 0);
        gaspi_group_size(group, &mut 0);
        gaspi_group_ranks(group, &mut 0);
        gaspi_group_delete(group);
    }
    let again = group_of(&[0, 1])?;
    ok!(gaspi_barrier(again, LONG));
    ensure_eq!(
        reduced(again, SUM, 3)?,
        6,
        "the sum over the group made again"
    );
    barrier()
}

fn delete_in_any_order(ctx: &Ctx) -> Verdict {
    let keeper = group_of(&[0, 1, 2])?;
    let groups = (0..5).map(|_| group_of(&[0, 1, 2]));
    let mut groups: Vec<u8> = groups.collect::<Result<_, _>>()?;
    let mut random = ctx.random(u64::from(ctx.rank));
    while !groups.is_empty() {
        ok!(gaspi_barrier(keeper, LONG));
        let group = groups.swap_remove(random.below(groups.len() as u64) as usize);
        ok!(gaspi_group_delete(group));
        ensure_eq!(
            reduced(keeper, SUM, 5)?,
            15,
            "the sum over the group that stays"
        );
    }
    barrier()
}

fn as_many_as_promised(ctx: &Ctx) -> Verdict {
    let max = got!(gaspi_group_max());
    for round in 0..2 {
        let before = got!(gaspi_group_num());
        let mut made = Vec::new();
        for i in before..max {
            let mut group = 0;
            let code = c!(gaspi_group_create(&mut group));
            ensure_eq!(code, SUCCESS, "group {} of {max} in round {round}", i + 1);
            ensure!(!made.contains(&group), "the name {group} was given twice");
            for rank in 0..ctx.size as u16 {
                ok!(gaspi_group_add(group, rank));
            }
            ok!(gaspi_group_commit(group, LONG));
            made.push(group);
        }
        ensure_eq!(got!(gaspi_group_num()), max, "gaspi_group_num");
        let mut group = 0xee;
        gives!(GASPI_ERR_MANY_GRP, gaspi_group_create(&mut group));
        for (i, group) in made.iter().enumerate() {
            ensure_eq!(
                reduced(*group, SUM, i as u64)?,
                2 * i as u64,
                "sum over {group}"
            );
        }
        for_all(made, |group| done!(gaspi_group_delete(group)))?;
        ensure_eq!(
            got!(gaspi_group_num()),
            before,
            "gaspi_group_num after the deletions"
        );
    }
    barrier()
}

fn churn(ctx: &Ctx) -> Verdict {
    let me = ctx.rank as u16;
    let sets: [&[u16]; 4] = [&[0, 1, 2], &[0, 1], &[1, 2], &[0, 2]];
    let mut random = ctx.random(3);
    for round in 0..30u64 {
        let ranks = sets[random.below(4) as usize];
        if ranks.contains(&me) {
            let group = group_of(ranks)?;
            let expected: u64 = ranks.iter().map(|r| round + u64::from(*r)).sum();
            let sum = reduced(group, SUM, round + u64::from(me))?;
            ensure_eq!(sum, expected, "the sum over {ranks:?} in round {round}");
            // Other members may still be in the operation.
            ok!(gaspi_group_delete(group));
        }
    }
    barrier()
}

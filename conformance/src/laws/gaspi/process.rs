//! §5.1, §5.3, §5.4: phases, initialisation, ranks, connections.

use super::kit::*;
use crate::kit::Child;
use crate::law::without_job;

laws! {
    ranks_are_unique: "process.rank", "§5.3.3", 4, [gaspi_proc_rank, gaspi_proc_num],
        "ranks lie in [0, P), each process has its own, and P is the number of processes";
    init_means_started: "process.init", "§5.3.1", 4, [gaspi_proc_init, gaspi_state_vec_get, gaspi_barrier] + bare,
        "success of gaspi_proc_init means that all are started, and with build_infrastructure that all can communicate";
    init_continues: "process.init.timeout", "§5.3.1", 3, [gaspi_proc_init] + bare,
        "after GASPI_TIMEOUT the application is not initialised; a later call completes it";
    other_launcher: "process.init.other-launcher", "§5.3.1", 1, [gaspi_proc_init, gaspi_initialized] + bare,
        "a process of another launcher's several is no job of one: gaspi_proc_init gives GASPI_ERR_ENV";
    init_once: "process.init.twice", "§5.1", 1, [gaspi_proc_init, gaspi_initialized],
        "a second gaspi_proc_init is refused and harms nothing";
    life_cycles: "process.life-cycles", "§5.1", 3, [gaspi_proc_init, gaspi_proc_term, gaspi_initialized] + bare,
        "several life cycles in one program, each with nothing left of the one before";
    life_cycles_of_different_shape: "process.life-cycles.config", "§5.1", 2,
        [gaspi_proc_init, gaspi_proc_term, gaspi_config_set] + bare,
        "each life cycle has the configuration that was set before it";
    term_releases: "process.term", "§5.3.4", 2, [gaspi_proc_term] + bare,
        "gaspi_proc_term frees segments and groups, also those in use when it is called";
    term_after_posting: "process.term.posted", "§5.3.4", 2, [gaspi_proc_term, gaspi_write, gaspi_notify] + bare,
        "requests that were posted before gaspi_proc_term are carried out";
    term_in_a_child: "process.term.fork", "§5.3.4", 2, [gaspi_proc_term, gaspi_write_notify],
        "the child of a fork is not the process: gaspi_proc_term ends nothing there, and its end leaves the parent's communication alone";
    outside_the_working_phase: "process.phase", "§5.1", 1, [gaspi_proc_term] + bare,
        "before gaspi_proc_init and after gaspi_proc_term every procedure of the working phase gives an error";
    without_infrastructure configured(|config| config.build_infrastructure = 0): "process.no-infrastructure", "§5.4.1", 3,
        [gaspi_connect, gaspi_group_commit, gaspi_segment_register, gaspi_build_infrastructure] + bare,
        "without build_infrastructure: connect, register, commit, and everything works";
    connecting_again: "process.connect", "§5.4.1", 2, [gaspi_connect],
        "gaspi_connect to a connected rank, and to the own rank, succeeds";
    local_ranks: "process.local", "§3.2", 3, [gaspi_proc_local_rank, gaspi_proc_local_num, gaspi_proc_ping],
        "processes of one node have unique local ranks below their number, and answer pings";
}

fn term_in_a_child(ctx: &Ctx) -> Verdict {
    segment(0, 64)?;
    let other = (ctx.rank ^ 1) as u16;
    barrier()?;
    for round in 0..3 {
        let child = Child::start(&[], || {
            gives!(GASPI_ERR_NOINIT, gaspi_proc_term(LONG));
            Ok(())
        })?;
        child.succeeds("the child")?;
        ok!(gaspi_write_notify(0, 0, other, 0, 8, 8, round, 1, 0, LONG));
        flush(0)?;
        notified(0, round)?;
        barrier()?;
    }
    Ok(())
}

fn ranks_are_unique(ctx: &Ctx) -> Verdict {
    let (rank, num) = (got!(gaspi_proc_rank()), got!(gaspi_proc_num()));
    ensure_eq!(u32::from(rank), ctx.rank, "the rank");
    ensure_eq!(u32::from(num), ctx.size, "the number of processes");
    let seen = sum_of_all(1 << (8 * rank))?;
    equal!(seen, 0x0101_0101, "how often each rank is seen, in bytes")
}

fn init_means_started(ctx: &Ctx) -> Verdict {
    if ctx.rank == 2 {
        pause(40);
    }
    ok!(gaspi_proc_init(BLOCK));
    ensure_eq!(states(ctx)?, vec![0; ctx.size as usize], "the state vector");
    for rank in 0..ctx.size {
        ok!(gaspi_proc_ping(rank as u16, LONG));
    }
    // GASPI_GROUP_ALL needs no commit: programs of release 1.6 rely on it.
    ok!(gaspi_barrier(ALL, BLOCK));
    let memory = segment(0, 64)?;
    memory.set(0, u64::from(ctx.rank) + 1);
    ok!(gaspi_write_notify(0, 0, right(ctx), 0, 8, 8, 0, 1, 0, LONG));
    notified(0, 0)?;
    memory.shows(8, u64::from(left(ctx)) + 1, "what the neighbour wrote")?;
    barrier()?;
    done!(gaspi_proc_term(BLOCK))
}

fn init_continues(ctx: &Ctx) -> Verdict {
    if ctx.rank + 1 == ctx.size {
        pause(60);
    }
    let begun = now();
    let mut between = Ok(());
    let patience = [TEST, 1, 5][ctx.rank as usize % 3];
    let not_initialised = || {
        gives!(GASPI_ERR_NOINIT, gaspi_proc_rank(&mut 0));
        equal!(
            got!(gaspi_initialized()),
            0,
            "gaspi_initialized after a timeout"
        )
    };
    repeat("gaspi_proc_init", || {
        let code = c!(gaspi_proc_init(patience));
        if code == TIMEOUT && between.is_ok() {
            between = not_initialised();
            pause(1);
        }
        code
    })?;
    let ended = now();
    between?;
    let mut last = 0u64;
    post::allreduce(&raw const begun, &raw mut last, 1, 1, 5).ok(ALL, LONG)?;
    let early = last.saturating_sub(ended);
    ensure_eq!(early, 0, "nanoseconds between success and the last call");
    ensure_eq!(sum_of_all(1)?, u64::from(ctx.size), "ranks taking part");
    barrier()?;
    done!(gaspi_proc_term(LONG))
}

fn init_once(_: &Ctx) -> Verdict {
    gives!(GASPI_ERR_INITED, gaspi_proc_init(LONG));
    gives!(GASPI_ERR_INITED, gaspi_proc_init(TEST));
    ensure_eq!(got!(gaspi_initialized()), 1, "gaspi_initialized");
    barrier()
}

fn other_launcher(_: &Ctx) -> Verdict {
    without_job(|| {
        for (size, expected) in [("2", GASPI_ERR_ENV), ("1", 0)] {
            // SAFETY:
            // - as in `without_job`: no other thread reads the environment.
            unsafe { std::env::set_var("OMPI_COMM_WORLD_SIZE", size) };
            let seen = c!(gaspi_proc_init(BLOCK));
            // SAFETY:
            // - the library's threads read no environment.
            unsafe { std::env::remove_var("OMPI_COMM_WORLD_SIZE") };
            ensure_eq!(seen, expected, "gaspi_proc_init as one of {size} processes");
        }
        ensure_eq!(got!(gaspi_proc_num()), 1, "the number of processes");
        done!(gaspi_proc_term(BLOCK))
    })
}

fn life_cycles(ctx: &Ctx) -> Verdict {
    for cycle in 1..=4u64 {
        let mut initialized = 9;
        ok!(gaspi_initialized(&mut initialized));
        ensure_eq!(initialized, 0, "gaspi_initialized before cycle {cycle}");
        ok!(gaspi_proc_init(LONG));
        ok!(gaspi_initialized(&mut initialized));
        ensure_eq!(initialized, 1, "gaspi_initialized in cycle {cycle}");
        let (mut segments, mut groups, mut queues) = (9, 9, 0);
        ok!(gaspi_segment_num(&mut segments));
        ok!(gaspi_group_num(&mut groups));
        ok!(gaspi_queue_num(&mut queues));
        ensure_eq!(segments, 0, "segments at the beginning of cycle {cycle}");
        ensure!(groups <= 1, "{groups} groups at the start of {cycle}");
        ensure_eq!(queues, 8, "queues at the beginning of cycle {cycle}");

        let len = 4096 >> cycle;
        let memory = segment(3, len)?;
        memory.all(0, len, 0, "a fresh segment")?;
        none_notified(3, 0, 100)?;
        barrier()?;
        memory.set(0, cycle * 100 + u64::from(ctx.rank));
        post::write_notify(3, 0, right(ctx), 3, 8, 8, 5, cycle as u32).ok(0, LONG)?;
        ensure_eq!(notified(3, 5)?, cycle as u32, "notified in cycle {cycle}");
        let expected = cycle * 100 + u64::from(left(ctx));
        ensure_eq!(memory.get(8), expected, "the data of cycle {cycle}");
        let pair = group_of(&(0..ctx.size as u16).collect::<Vec<_>>())?;
        ok!(gaspi_barrier(pair, LONG));
        let queue = new_queue()?;
        // Left behind on purpose: a segment, a group, a queue, a notification and a request without a wait.
        ok!(gaspi_notify(3, right(ctx), 7, 1, queue, LONG));
        waited(3, 7, 1, LONG)?;
        barrier()?;
        ok!(gaspi_proc_term(LONG));
    }
    Ok(())
}

fn life_cycles_of_different_shape(_: &Ctx) -> Verdict {
    for_all([2u32, 16, 1], |queues| {
        let check = || {
            ensure_eq!(got!(gaspi_queue_num()), queues, "queues of this cycle");
            barrier()
        };
        with_config(|config| config.queue_num = queues, check)
    })
}

fn term_releases(ctx: &Ctx) -> Verdict {
    ok!(gaspi_proc_init(LONG));
    // The memory belongs to the program again after gaspi_proc_term.
    let mut own = vec![0u8; 10_000];
    ok!(gaspi_segment_use(0, own.as_mut_ptr(), 10_000, ALL, LONG, 0));
    segment(1, 1 << 20)?;
    let group = group_of(&[0, 1])?;
    ok!(gaspi_barrier(group, LONG));
    own[17] = 1 + ctx.rank as u8;
    post::write_notify(0, 17, right(ctx), 0, 5000, 1, 0, 1).ok(0, LONG)?;
    notified(0, 0)?;
    barrier()?;
    ok!(gaspi_proc_term(LONG));
    // SAFETY:
    // - in bounds. Volatile: the compiler does not see the peer's write.
    let seen = unsafe { own.as_ptr().add(5000).read_volatile() };
    ensure_eq!(u16::from(seen), left(ctx) + 1, "the peer's write to it");
    own.fill(3);
    ensure!(own.iter().all(|b| *b == 3), "memory in use stays unusable");
    gives!(GASPI_ERR_NOINIT, gaspi_proc_term(LONG));
    Ok(())
}

fn term_after_posting(ctx: &Ctx) -> Verdict {
    ok!(gaspi_proc_init(LONG));
    let len = 100_000;
    let memory = segment(0, len)?;
    barrier()?;
    if ctx.rank == 0 {
        memory.fill(0x5a);
        ok!(gaspi_write(0, 0, 1, 0, 0, len as u64, 1, LONG));
        ok!(gaspi_notify(0, 1, 9, 4, 1, LONG));
        repeat("gaspi_proc_term", || c!(gaspi_proc_term(20)))?;
    } else {
        ensure_eq!(notified(0, 9)?, 4, "the notification");
        memory.all(0, len, 0x5a, "data posted before gaspi_proc_term")?;
        ok!(gaspi_proc_term(LONG));
    }
    Ok(())
}

fn outside_the_working_phase(_: &Ctx) -> Verdict {
    nothing_but_noinit()?;
    gives!(GASPI_ERR_NOINIT, gaspi_proc_term(TEST));
    ok!(gaspi_proc_init(LONG));
    segment(0, 64)?;
    ok!(gaspi_proc_term(LONG));
    nothing_but_noinit()?;
    gives!(GASPI_ERR_NOINIT, gaspi_proc_term(BLOCK));
    Ok(())
}

fn nothing_but_noinit() -> Verdict {
    let (mut small, mut number, mut word, mut byte) = (0u16, 0u32, 0u64, 0u8);
    let mut pointer = null_mut();
    let mut local = [0u8; 64];
    let mut states = [0i32; 4];
    let (ids, offsets) = ([0u8; 2], [0u64; 2]);
    let (ids, offsets) = (ids.as_ptr(), offsets.as_ptr());
    let (send, receive) = (local.as_ptr(), local.as_mut_ptr());
    gives! { GASPI_ERR_NOINIT:
        gaspi_proc_rank(&mut small);
        gaspi_proc_num(&mut small);
        gaspi_proc_local_rank(&mut small);
        gaspi_proc_local_num(&mut small);
        gaspi_proc_incarnation(&mut number);
        gaspi_proc_ping(0, TEST);
        gaspi_proc_kill(0, TEST);
        gaspi_connect(0, TEST);
        gaspi_disconnect(0, TEST);
        gaspi_state_vec_get(states.as_mut_ptr());
        gaspi_group_create(&mut byte);
        gaspi_group_add(0, 0);
        gaspi_group_commit(0, TEST);
        gaspi_group_delete(1);
        gaspi_group_num(&mut number);
        gaspi_group_size(0, &mut number);
        gaspi_group_ranks(0, &mut small);
        gaspi_segment_alloc(0, 64, 0);
        gaspi_segment_register(0, 0, TEST);
        gaspi_segment_create(0, 64, 0, TEST, 0);
        gaspi_segment_bind(0, receive, 64, 0);
        gaspi_segment_use(0, receive, 64, 0, TEST, 0);
        gaspi_segment_delete(0);
        gaspi_segment_num(&mut number);
        gaspi_segment_list(1, &mut byte);
        gaspi_segment_ptr(0, &mut pointer);
        gaspi_segment_size(0, 0, &mut word);
        gaspi_segment_avail_local(&mut byte);
        gaspi_write(0, 0, 0, 0, 0, 8, 0, TEST);
        gaspi_read(0, 0, 0, 0, 0, 8, 0, TEST);
        gaspi_notify(0, 0, 0, 1, 0, TEST);
        gaspi_write_notify(0, 0, 0, 0, 0, 8, 0, 1, 0, TEST);
        gaspi_read_notify(0, 0, 0, 0, 0, 8, 0, 0, TEST);
        gaspi_write_list(1, ids, offsets, 0, ids, offsets, offsets, 0, TEST);
        gaspi_read_list(1, ids, offsets, 0, ids, offsets, offsets, 0, TEST);
        gaspi_write_list_notify(1, ids, offsets, 0, ids, offsets, offsets, 0, 0, 1, 0, TEST);
        gaspi_read_list_notify(1, ids, offsets, 0, ids, offsets, offsets, 0, 0, 0, TEST);
        gaspi_wait(0, TEST);
        gaspi_notify_waitsome(0, 0, 1, &mut number, TEST);
        gaspi_notify_waitsome(0, 0, 0, &mut number, TEST);
        gaspi_notify_reset(0, 0, &mut number);
        gaspi_queue_create(&mut byte, TEST);
        gaspi_queue_delete(0);
        gaspi_queue_size(0, &mut number);
        gaspi_queue_purge(0, TEST);
        gaspi_atomic_fetch_add(0, 0, 0, 1, &mut word, TEST);
        gaspi_atomic_compare_swap(0, 0, 0, 1, 1, &mut word, TEST);
        gaspi_passive_send(0, 0, 0, 8, TEST);
        gaspi_passive_receive(0, 0, &mut small, 8, TEST);
        gaspi_passive_queue_purge(TEST);
        gaspi_barrier(0, TEST);
    }
    gives! { GASPI_ERR_NOINIT:
        gaspi_allreduce(send, receive, 1, 0, 0, 0, TEST);
        gaspi_allreduce_user(send, receive, 1, 1, None, null_mut(), 0, TEST);
        gaspi_allreduce_user_17(send, receive, 1, 1, None, null_mut(), 0, TEST);
        gaspi_queue_num(&mut number);
        gaspi_queue_size_max(&mut number);
        gaspi_queue_max(&mut number);
        gaspi_group_max(&mut number);
        gaspi_segment_max(&mut number);
        gaspi_transfer_size_max(&mut word);
        gaspi_notification_num(&mut number);
        gaspi_passive_transfer_size_max(&mut word);
        gaspi_atomic_max(&mut word);
        gaspi_allreduce_buf_size(&mut word);
        gaspi_allreduce_elem_max(&mut number);
        gaspi_rw_list_elem_max(&mut number);
        gaspi_network_type(&mut number);
        gaspi_build_infrastructure(&mut number);
    }
    Ok(())
}

fn without_infrastructure(ctx: &Ctx) -> Verdict {
    let built = got!(gaspi_build_infrastructure());
    ensure_eq!(built, 0, "gaspi_build_infrastructure");
    // The group exists, but "also has to be committed" (§6.2.2).
    let size = got!(gaspi_group_size(ALL));
    ensure_eq!(size, ctx.size, "size of GASPI_GROUP_ALL");
    gives!(GASPI_ERR_INV_GROUP, gaspi_barrier(ALL, TEST));
    ok!(gaspi_segment_alloc(0, 64, 0));
    for rank in others(ctx) {
        ok!(gaspi_connect(rank, LONG));
        ok!(gaspi_segment_register(0, rank, LONG));
    }
    ok!(gaspi_group_commit(ALL, LONG));
    ok!(gaspi_barrier(ALL, LONG));
    let memory = memory(0, 64)?;
    memory.set(0, 40 + u64::from(ctx.rank));
    ok!(gaspi_write_notify(0, 0, right(ctx), 0, 8, 8, 0, 1, 0, LONG));
    notified(0, 0)?;
    memory.shows(8, 40 + u64::from(left(ctx)), "what the neighbour wrote")?;
    barrier()
}

fn connecting_again(ctx: &Ctx) -> Verdict {
    for rank in 0..ctx.size as u16 {
        ok!(gaspi_connect(rank, LONG));
        ok!(gaspi_connect(rank, TEST));
    }
    barrier()
}

fn local_ranks(ctx: &Ctx) -> Verdict {
    let (mut rank, mut num) = (u16::MAX, 0);
    ok!(gaspi_proc_local_rank(&mut rank));
    ok!(gaspi_proc_local_num(&mut num));
    ensure!(rank < num, "local rank {rank} of {num}");
    ensure!(u32::from(num) <= ctx.size, "{num} local of {}", ctx.size);
    // Each process adds its share of a node, so that the sum counts the nodes.
    const NODE: u64 = 6;
    let nodes = sum_of_all(NODE / u64::from(num))?;
    let seen = sum_of_all(1 << (8 * rank))?.to_le_bytes();
    let first = u64::from(seen[0]) * NODE;
    ensure_eq!(first, nodes, "how many have local rank 0, one on each node");
    let sorted = seen.is_sorted_by(|a, b| a >= b);
    ensure!(sorted, "nodes with each local rank: {seen:?}");
    for rank in 0..ctx.size as u16 {
        ok!(gaspi_proc_ping(rank, LONG));
    }
    barrier()
}

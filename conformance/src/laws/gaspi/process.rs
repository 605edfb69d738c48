//! §5.1, §5.3, §5.4: phases, initialisation, ranks, connections. §5.2: configuration.

use unipgas::gaspi::Config;
use unipgas::gaspi::status::Status;

use super::kit::*;
use crate::law::{Ctx, Verdict, without_job};
use crate::{ensure, ensure_eq};

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
    outside_the_working_phase: "process.phase", "§5.1", 1, [gaspi_proc_term] + bare,
        "before gaspi_proc_init and after gaspi_proc_term every procedure of the working phase gives an error";
    without_infrastructure: "process.no-infrastructure", "§5.4.1", 3,
        [gaspi_connect, gaspi_group_commit, gaspi_segment_register, gaspi_build_infrastructure] + bare,
        "without build_infrastructure: connect, register, commit, and everything works";
    connecting_again: "process.connect", "§5.4.1", 2, [gaspi_connect],
        "gaspi_connect to a connected rank, and to the own rank, succeeds";
    local_ranks: "process.local", "§3.2", 3, [gaspi_proc_local_rank, gaspi_proc_local_num, gaspi_proc_ping],
        "processes of one node have unique local ranks below their number, and answer pings";
    config_defaults: "config.defaults", "§5.2.2", 1, [gaspi_config_get] + bare,
        "gaspi_config_get gives the default configuration of release 1.6";
    config_kept: "config.read-back", "§5.2.3", 1, [gaspi_config_set, gaspi_config_get] + bare,
        "what a program sets for networks and start-up is accepted and read back, before and after initialisation";
    config_limits: "config.limits", "§5.2.1", 1, [gaspi_config_set, gaspi_config_get] + bare,
        "values out of range are refused, and leave the configuration as it was; the limits themselves are accepted";
    config_honoured: "config.honoured", "§5.2.1, §12", 2,
        [gaspi_config_set, gaspi_config_get, gaspi_group_max, gaspi_notification_num, gaspi_allreduce_elem_max, gaspi_allreduce_buf_size,
         gaspi_allreduce, gaspi_notify, gaspi_group_create, gaspi_group_commit] + bare,
        "what a program asks for and is not refused is in force: 255 groups, 2^24 notifications, reductions of a million elements";
    config_in_force: "config.in-force", "§5.2.1", 2,
        [gaspi_config_set, gaspi_queue_num, gaspi_queue_size_max, gaspi_group_max, gaspi_segment_max, gaspi_transfer_size_max,
         gaspi_notification_num, gaspi_allreduce_elem_max, gaspi_rw_list_elem_max] + bare,
        "the getters give the values that were set, and these bind";
    config_is_late: "config.late", "§5.2.3", 1, [gaspi_config_set],
        "gaspi_config_set in the working phase is refused and changes nothing";
}

fn ranks_are_unique(ctx: &Ctx) -> Verdict {
    let (mut rank, mut num) = (u16::MAX, u16::MAX);
    ok!(gaspi_proc_rank(&mut rank));
    ok!(gaspi_proc_num(&mut num));
    ensure_eq!(u32::from(rank), ctx.rank, "the rank");
    ensure_eq!(u32::from(num), ctx.size, "the number of processes");
    let seen = sum_of_all(1 << (8 * rank))?;
    ensure_eq!(
        seen,
        0x0101_0101,
        "how often each rank is there, a byte each"
    );
    Ok(())
}

fn init_means_started(ctx: &Ctx) -> Verdict {
    if ctx.rank == 2 {
        pause(40);
    }
    ok!(gaspi_proc_init(BLOCK));
    let mut states = vec![7i32; ctx.size as usize];
    ok!(gaspi_state_vec_get(states.as_mut_ptr()));
    ensure!(
        states.iter().all(|s| *s == 0),
        "states at start: {states:?}"
    );
    for rank in 0..ctx.size {
        ok!(gaspi_proc_ping(rank as u16, LONG));
    }
    // GASPI_GROUP_ALL without a commit: programs of release 1.6.
    ok!(gaspi_barrier(ALL, BLOCK));
    let memory = segment(0, 64)?;
    memory.set(0, u64::from(ctx.rank) + 1);
    ok!(gaspi_write_notify(0, 0, right(ctx), 0, 8, 8, 0, 1, 0, LONG));
    notified(0, 0)?;
    ensure_eq!(
        memory.get(8),
        u64::from(left(ctx)) + 1,
        "what the neighbour wrote"
    );
    barrier()?;
    ok!(gaspi_proc_term(BLOCK));
    Ok(())
}

fn init_continues(ctx: &Ctx) -> Verdict {
    if ctx.rank + 1 == ctx.size {
        pause(60);
    }
    let begun = now();
    let mut between = Ok(());
    let patience = [TEST, 1, 5][ctx.rank as usize % 3];
    repeat("gaspi_proc_init", || {
        let code = c!(gaspi_proc_init(patience));
        if code == TIMEOUT {
            let (mut rank, mut initialized) = (0, 9);
            let seen = c!(gaspi_proc_rank(&mut rank));
            let told = c!(gaspi_initialized(&mut initialized));
            if seen != 6 || told != SUCCESS || initialized != 0 {
                between = Err(format!(
                    "between two calls of gaspi_proc_init: gaspi_proc_rank gave {}, gaspi_initialized {initialized}",
                    code_name(seen)
                ));
            }
            pause(1);
        }
        code
    })?;
    let ended = now();
    between?;
    let mut last = 0u64;
    ok!(gaspi_allreduce(
        (&raw const begun).cast(),
        (&raw mut last).cast(),
        1,
        1,
        5,
        ALL,
        LONG
    ));
    ensure!(
        ended >= last,
        "gaspi_proc_init succeeded {} ns before the last process had called it",
        last - ended
    );
    ensure_eq!(
        sum_of_all(1)?,
        u64::from(ctx.size),
        "processes that took part"
    );
    barrier()?;
    ok!(gaspi_proc_term(LONG));
    Ok(())
}

fn init_once(_: &Ctx) -> Verdict {
    gives!(ErrInited, gaspi_proc_init(LONG));
    gives!(ErrInited, gaspi_proc_init(TEST));
    let mut initialized = 0;
    ok!(gaspi_initialized(&mut initialized));
    ensure_eq!(initialized, 1, "gaspi_initialized");
    barrier()
}

fn other_launcher(_: &Ctx) -> Verdict {
    without_job(|| {
        for (size, expected) in [("2", Status::ErrEnv as i32), ("1", 0)] {
            // SAFETY:
            // - as in `without_job`.
            unsafe { std::env::set_var("OMPI_COMM_WORLD_SIZE", size) };
            let seen = c!(gaspi_proc_init(BLOCK));
            // SAFETY:
            // - the library's threads read no environment.
            unsafe { std::env::remove_var("OMPI_COMM_WORLD_SIZE") };
            ensure_eq!(seen, expected, "gaspi_proc_init as one of {size} processes");
        }
        let mut num = 0;
        ok!(gaspi_proc_num(&mut num));
        ensure_eq!(num, 1, "the number of processes");
        ok!(gaspi_proc_term(BLOCK));
        Ok(())
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
        ensure!(
            groups <= 1,
            "{groups} groups at the beginning of cycle {cycle}"
        );
        ensure_eq!(queues, 8, "queues at the beginning of cycle {cycle}");

        let len = 4096 >> cycle;
        let memory = segment(3, len)?;
        memory.all(0, len, 0, "a fresh segment")?;
        let mut first = 0;
        gives!(Timeout, gaspi_notify_waitsome(3, 0, 100, &mut first, TEST));
        barrier()?;
        memory.set(0, cycle * 100 + u64::from(ctx.rank));
        ok!(gaspi_write_notify(
            3,
            0,
            right(ctx),
            3,
            8,
            8,
            5,
            cycle as u32,
            0,
            LONG
        ));
        ensure_eq!(
            notified(3, 5)?,
            cycle as u32,
            "the notification of cycle {cycle}"
        );
        ensure_eq!(
            memory.get(8),
            cycle * 100 + u64::from(left(ctx)),
            "the data of cycle {cycle}"
        );
        let pair = group_of(&(0..ctx.size as u16).collect::<Vec<_>>())?;
        ok!(gaspi_barrier(pair, LONG));
        let mut queue = 0;
        ok!(gaspi_queue_create(&mut queue, LONG));
        // What is left behind on purpose: a segment, a group, a queue, a notification and a request that was not waited for.
        ok!(gaspi_notify(3, right(ctx), 7, 1, queue, LONG));
        let mut seen = 0;
        ok!(gaspi_notify_waitsome(3, 7, 1, &mut seen, LONG));
        barrier()?;
        ok!(gaspi_proc_term(LONG));
    }
    Ok(())
}

fn life_cycles_of_different_shape(_: &Ctx) -> Verdict {
    for queues in [2u32, 16, 1] {
        with_config(
            |config| config.queue_num = queues,
            || {
                let mut num = 0;
                ok!(gaspi_queue_num(&mut num));
                ensure_eq!(num, queues, "queues of this life cycle");
                barrier()
            },
        )?;
    }
    Ok(())
}

fn term_releases(ctx: &Ctx) -> Verdict {
    ok!(gaspi_proc_init(LONG));
    // Memory of the program is the program's again afterwards.
    let mut own = vec![0u8; 10_000];
    ok!(gaspi_segment_use(0, own.as_mut_ptr(), 10_000, ALL, LONG, 0));
    segment(1, 1 << 20)?;
    let group = group_of(&[0, 1])?;
    ok!(gaspi_barrier(group, LONG));
    own[17] = 1 + ctx.rank as u8;
    ok!(gaspi_write_notify(
        0,
        17,
        right(ctx),
        0,
        5000,
        1,
        0,
        1,
        0,
        LONG
    ));
    notified(0, 0)?;
    barrier()?;
    ok!(gaspi_proc_term(LONG));
    // SAFETY:
    // - in bounds; volatile since the peer wrote it behind the compiler's back.
    let seen = unsafe { own.as_ptr().add(5000).read_volatile() };
    ensure_eq!(
        u16::from(seen),
        left(ctx) + 1,
        "what the peer wrote to memory in use"
    );
    own.fill(3);
    ensure!(own.iter().all(|b| *b == 3), "memory in use stays unusable");
    gives!(ErrNoinit, gaspi_proc_term(LONG));
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
    gives!(ErrNoinit, gaspi_proc_term(TEST));
    ok!(gaspi_proc_init(LONG));
    segment(0, 64)?;
    ok!(gaspi_proc_term(LONG));
    nothing_but_noinit()?;
    gives!(ErrNoinit, gaspi_proc_term(BLOCK));
    Ok(())
}

fn nothing_but_noinit() -> Verdict {
    let (mut small, mut number, mut word, mut byte) = (0u16, 0u32, 0u64, 0u8);
    let mut pointer = std::ptr::null_mut();
    let mut local = [0u8; 64];
    let mut states = [0i32; 4];
    let (ids, offsets) = ([0u8; 2], [0u64; 2]);
    let (ids, offsets) = (ids.as_ptr(), offsets.as_ptr());
    let (send, receive) = (local.as_ptr(), local.as_mut_ptr());
    gives!(ErrNoinit, gaspi_proc_rank(&mut small));
    gives!(ErrNoinit, gaspi_proc_num(&mut small));
    gives!(ErrNoinit, gaspi_proc_local_rank(&mut small));
    gives!(ErrNoinit, gaspi_proc_local_num(&mut small));
    gives!(ErrNoinit, gaspi_proc_ping(0, TEST));
    gives!(ErrNoinit, gaspi_proc_kill(0, TEST));
    gives!(ErrNoinit, gaspi_connect(0, TEST));
    gives!(ErrNoinit, gaspi_state_vec_get(states.as_mut_ptr()));
    gives!(ErrNoinit, gaspi_group_create(&mut byte));
    gives!(ErrNoinit, gaspi_group_add(0, 0));
    gives!(ErrNoinit, gaspi_group_commit(0, TEST));
    gives!(ErrNoinit, gaspi_group_delete(1));
    gives!(ErrNoinit, gaspi_group_num(&mut number));
    gives!(ErrNoinit, gaspi_group_size(0, &mut number));
    gives!(ErrNoinit, gaspi_group_ranks(0, &mut small));
    gives!(ErrNoinit, gaspi_segment_alloc(0, 64, 0));
    gives!(ErrNoinit, gaspi_segment_register(0, 0, TEST));
    gives!(ErrNoinit, gaspi_segment_create(0, 64, 0, TEST, 0));
    gives!(ErrNoinit, gaspi_segment_bind(0, receive, 64, 0));
    gives!(ErrNoinit, gaspi_segment_use(0, receive, 64, 0, TEST, 0));
    gives!(ErrNoinit, gaspi_segment_delete(0));
    gives!(ErrNoinit, gaspi_segment_num(&mut number));
    gives!(ErrNoinit, gaspi_segment_list(1, &mut byte));
    gives!(ErrNoinit, gaspi_segment_ptr(0, &mut pointer));
    gives!(ErrNoinit, gaspi_segment_size(0, 0, &mut word));
    gives!(ErrNoinit, gaspi_segment_avail_local(&mut byte));
    gives!(ErrNoinit, gaspi_write(0, 0, 0, 0, 0, 8, 0, TEST));
    gives!(ErrNoinit, gaspi_read(0, 0, 0, 0, 0, 8, 0, TEST));
    gives!(ErrNoinit, gaspi_notify(0, 0, 0, 1, 0, TEST));
    gives!(
        ErrNoinit,
        gaspi_write_notify(0, 0, 0, 0, 0, 8, 0, 1, 0, TEST)
    );
    gives!(ErrNoinit, gaspi_read_notify(0, 0, 0, 0, 0, 8, 0, 0, TEST));
    gives!(
        ErrNoinit,
        gaspi_write_list(1, ids, offsets, 0, ids, offsets, offsets, 0, TEST)
    );
    gives!(
        ErrNoinit,
        gaspi_read_list(1, ids, offsets, 0, ids, offsets, offsets, 0, TEST)
    );
    gives!(
        ErrNoinit,
        gaspi_write_list_notify(1, ids, offsets, 0, ids, offsets, offsets, 0, 0, 1, 0, TEST)
    );
    gives!(
        ErrNoinit,
        gaspi_read_list_notify(1, ids, offsets, 0, ids, offsets, offsets, 0, 0, 0, TEST)
    );
    gives!(ErrNoinit, gaspi_wait(0, TEST));
    gives!(ErrNoinit, gaspi_notify_waitsome(0, 0, 1, &mut number, TEST));
    gives!(ErrNoinit, gaspi_notify_waitsome(0, 0, 0, &mut number, TEST));
    gives!(ErrNoinit, gaspi_notify_reset(0, 0, &mut number));
    gives!(ErrNoinit, gaspi_queue_create(&mut byte, TEST));
    gives!(ErrNoinit, gaspi_queue_delete(0));
    gives!(ErrNoinit, gaspi_queue_size(0, &mut number));
    gives!(ErrNoinit, gaspi_queue_purge(0, TEST));
    gives!(
        ErrNoinit,
        gaspi_atomic_fetch_add(0, 0, 0, 1, &mut word, TEST)
    );
    gives!(
        ErrNoinit,
        gaspi_atomic_compare_swap(0, 0, 0, 1, 1, &mut word, TEST)
    );
    gives!(ErrNoinit, gaspi_barrier(0, TEST));
    gives!(ErrNoinit, gaspi_allreduce(send, receive, 1, 0, 0, 0, TEST));
    gives!(
        ErrNoinit,
        gaspi_allreduce_user(send, receive, 1, 1, None, std::ptr::null_mut(), 0, TEST)
    );
    gives!(
        ErrNoinit,
        gaspi_allreduce_user_17(send, receive, 1, 1, None, std::ptr::null_mut(), 0, TEST)
    );
    gives!(ErrNoinit, gaspi_queue_num(&mut number));
    gives!(ErrNoinit, gaspi_queue_size_max(&mut number));
    gives!(ErrNoinit, gaspi_queue_max(&mut number));
    gives!(ErrNoinit, gaspi_group_max(&mut number));
    gives!(ErrNoinit, gaspi_segment_max(&mut number));
    gives!(ErrNoinit, gaspi_transfer_size_max(&mut word));
    gives!(ErrNoinit, gaspi_notification_num(&mut number));
    gives!(ErrNoinit, gaspi_passive_transfer_size_max(&mut word));
    gives!(ErrNoinit, gaspi_atomic_max(&mut word));
    gives!(ErrNoinit, gaspi_allreduce_buf_size(&mut word));
    gives!(ErrNoinit, gaspi_allreduce_elem_max(&mut number));
    gives!(ErrNoinit, gaspi_rw_list_elem_max(&mut number));
    gives!(ErrNoinit, gaspi_network_type(&mut number));
    gives!(ErrNoinit, gaspi_build_infrastructure(&mut number));
    Ok(())
}

fn without_infrastructure(ctx: &Ctx) -> Verdict {
    with_config(
        |config| config.build_infrastructure = 0,
        || {
            let mut built = 9;
            ok!(gaspi_build_infrastructure(&mut built));
            ensure_eq!(built, 0, "gaspi_build_infrastructure");
            // The group is there, but "also has to be committed" (§6.2.2).
            let mut size = 0;
            ok!(gaspi_group_size(ALL, &mut size));
            ensure_eq!(size, ctx.size, "size of GASPI_GROUP_ALL");
            gives!(ErrInvGroup, gaspi_barrier(ALL, TEST));
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
            ensure_eq!(
                memory.get(8),
                40 + u64::from(left(ctx)),
                "what the neighbour wrote"
            );
            barrier()
        },
    )
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
    ensure!(
        u32::from(num) <= ctx.size,
        "{num} local processes of {}",
        ctx.size
    );
    let seen = sum_of_all(1 << (8 * rank))?;
    ensure_eq!(
        seen,
        0x01_0101,
        "how often each local rank of one node is there, a byte each"
    );
    for rank in 0..ctx.size as u16 {
        ok!(gaspi_proc_ping(rank, LONG));
    }
    barrier()
}

fn config_defaults(_: &Ctx) -> Verdict {
    let seen = config()?;
    let expected = [
        ("logger", u64::from(seen.logger), 1),
        ("sn_port", u64::from(seen.sn_port), 12_121),
        ("net_info", u64::from(seen.net_info), 0),
        ("sn_persistent", seen.sn_persistent as u64, 1),
        ("sn_timeout", seen.sn_timeout, 30_000),
        ("queue_size_max", u64::from(seen.queue_size_max), 1024),
        ("queue_num", u64::from(seen.queue_num), 8),
        ("group_max", u64::from(seen.group_max), 32),
        ("segment_max", u64::from(seen.segment_max), 255),
        ("transfer_size_max", seen.transfer_size_max, 1 << 30),
        ("notification_num", u64::from(seen.notification_num), 65_536),
        (
            "passive_queue_size_max",
            u64::from(seen.passive_queue_size_max),
            1024,
        ),
        (
            "passive_transfer_size_max",
            u64::from(seen.passive_transfer_size_max),
            65_535,
        ),
        ("allreduce_buf_size", seen.allreduce_buf_size, 2040),
        (
            "allreduce_elem_max",
            u64::from(seen.allreduce_elem_max),
            255,
        ),
        ("rw_list_elem_max", u64::from(seen.rw_list_elem_max), 255),
        (
            "build_infrastructure",
            u64::from(seen.build_infrastructure),
            1,
        ),
        ("user_defined", seen.user_defined as u64, 0),
    ];
    for (field, seen, expected) in expected {
        ensure_eq!(seen, expected, "default of {field}");
    }
    Ok(())
}

fn config_kept(_: &Ctx) -> Verdict {
    let before = config()?;
    let mut mark = 0u8;
    for network in 0..=5 {
        let mut set = before;
        set.network = network;
        set.dev_config.network_type = network;
        set.dev_config.netdev_id = 1;
        set.dev_config.mtu = 2048;
        set.dev_config.tcp_port = 20_000;
        set.sn_port = 1024 + network;
        set.sn_persistent = 0;
        set.sn_timeout = 5 + u64::from(network);
        set.net_info = 1;
        set.user_net = 1;
        set.logger = 0;
        set.user_defined = (&raw mut mark).cast();
        ok!(gaspi_config_set(set));
        same(&config()?, &set, "before initialisation")?;
        ok!(gaspi_proc_init(LONG));
        same(&config()?, &set, "after initialisation")?;
        let mut seen = 9;
        ok!(gaspi_network_type(&mut seen));
        ensure_eq!(seen, network, "gaspi_network_type");
        ok!(gaspi_proc_term(LONG));
        same(&config()?, &set, "after termination")?;
    }
    ok!(gaspi_config_set(before));
    Ok(())
}

fn same(seen: &Config, set: &Config, when: &str) -> Verdict {
    ensure_eq!(
        format!("{seen:?}"),
        format!("{set:?}"),
        "the configuration {when}"
    );
    Ok(())
}

fn config_limits(_: &Ctx) -> Verdict {
    type Change = fn(&mut Config);
    let before = config()?;
    let refused: [(&str, Change); 20] = [
        ("group_max 0", |c| c.group_max = 0),
        ("group_max 256", |c| c.group_max = 256),
        ("notification_num 2^24 + 1", |c| {
            c.notification_num = (1 << 24) + 1
        }),
        ("notification_num 2^32 - 1", |c| {
            c.notification_num = u32::MAX
        }),
        ("allreduce_buf_size 2041", |c| c.allreduce_buf_size = 2041),
        ("build_infrastructure 3", |c| c.build_infrastructure = 3),
        ("queue_size_max 0", |c| c.queue_size_max = 0),
        ("queue_size_max 4097", |c| c.queue_size_max = 4097),
        ("queue_num 0", |c| c.queue_num = 0),
        ("queue_num 17", |c| c.queue_num = 17),
        ("segment_max 0", |c| c.segment_max = 0),
        ("segment_max 256", |c| c.segment_max = 256),
        ("transfer_size_max 2^30 + 1", |c| {
            c.transfer_size_max = (1 << 30) + 1
        }),
        ("transfer_size_max 2^64 - 1", |c| {
            c.transfer_size_max = u64::MAX
        }),
        ("rw_list_elem_max 0", |c| c.rw_list_elem_max = 0),
        ("rw_list_elem_max 256", |c| c.rw_list_elem_max = 256),
        ("passive_transfer_size_max 65536", |c| {
            c.passive_transfer_size_max = 65_536
        }),
        ("network 6", |c| c.network = 6),
        ("network 2^32 - 1", |c| c.network = u32::MAX),
        ("queue_num 2^32 - 1", |c| c.queue_num = u32::MAX),
    ];
    for (what, change) in refused {
        let mut set = before;
        change(&mut set);
        let code = c!(gaspi_config_set(set));
        ensure_eq!(code, 5, "gaspi_config_set with {what}");
        same(&config()?, &before, "after a refused proposal")?;
    }
    for port in [0, 1023, 65_537, u32::MAX] {
        let mut set = before;
        set.sn_port = port;
        ensure!(
            is_error(c!(gaspi_config_set(set))),
            "sn_port {port} was accepted"
        );
        same(&config()?, &before, "after a refused port")?;
    }
    let accepted: [(&str, Change); 15] = [
        ("group_max 1", |c| c.group_max = 1),
        ("group_max 255", |c| c.group_max = 255),
        ("notification_num 0", |c| c.notification_num = 0),
        ("notification_num 2^24", |c| c.notification_num = 1 << 24),
        ("allreduce_elem_max 2^32 - 1", |c| {
            c.allreduce_elem_max = u32::MAX
        }),
        ("allreduce_buf_size 8", |c| c.allreduce_buf_size = 8),
        ("queue_size_max 1", |c| c.queue_size_max = 1),
        ("queue_size_max 4096", |c| c.queue_size_max = 4096),
        ("queue_num 1", |c| c.queue_num = 1),
        ("queue_num 16", |c| c.queue_num = 16),
        ("segment_max 1", |c| c.segment_max = 1),
        ("transfer_size_max 1", |c| c.transfer_size_max = 1),
        ("rw_list_elem_max 1", |c| c.rw_list_elem_max = 1),
        ("sn_port 1024", |c| c.sn_port = 1024),
        ("sn_port 65536", |c| c.sn_port = 65_536),
    ];
    for (what, change) in accepted {
        let mut set = before;
        change(&mut set);
        ensure_eq!(
            c!(gaspi_config_set(set)),
            SUCCESS,
            "gaspi_config_set with {what}"
        );
        same(&config()?, &set, "after an accepted proposal")?;
    }
    ok!(gaspi_config_set(before));
    Ok(())
}

fn config_honoured(ctx: &Ctx) -> Verdict {
    const GROUPS: u32 = 255;
    const NOTIFICATIONS: u32 = 1 << 24;
    const ELEMENTS: u32 = 1_000_000;
    let change = |config: &mut Config| {
        config.group_max = GROUPS;
        config.notification_num = NOTIFICATIONS;
        config.allreduce_elem_max = ELEMENTS;
        config.allreduce_buf_size = 24;
    };
    with_config(change, || {
        let (mut groups, mut notifications, mut elements, mut bytes) = (0, 0, 0, 0);
        ok!(gaspi_group_max(&mut groups));
        ok!(gaspi_notification_num(&mut notifications));
        ok!(gaspi_allreduce_elem_max(&mut elements));
        ok!(gaspi_allreduce_buf_size(&mut bytes));
        let config = config()?;
        for seen in [
            (groups, notifications, elements, bytes),
            (
                config.group_max,
                config.notification_num,
                config.allreduce_elem_max,
                config.allreduce_buf_size,
            ),
        ] {
            ensure_eq!(
                seen,
                (GROUPS, NOTIFICATIONS, ELEMENTS, 24),
                "what is in force"
            );
        }
        // What the getters promise can be had.
        segment(0, 8)?;
        let (to, last) = (right(ctx), NOTIFICATIONS - 1);
        ok!(gaspi_notify(0, to, last, 1, 0, LONG));
        notified(0, last)?;
        gives!(
            ErrInvNotifId,
            gaspi_notify(0, to, NOTIFICATIONS, 1, 0, LONG)
        );
        let mut id = 0;
        gives!(
            ErrInvNotifId,
            gaspi_notify_waitsome(0, NOTIFICATIONS, 1, &mut id, TEST)
        );
        let send: Vec<u64> = (0..u64::from(ELEMENTS) + 1)
            .map(|i| i + u64::from(ctx.rank))
            .collect();
        let mut receive = vec![0u64; ELEMENTS as usize + 1];
        let (from, into) = (
            send.as_ptr().cast::<u8>(),
            receive.as_mut_ptr().cast::<u8>(),
        );
        gives!(
            ErrInvNum,
            gaspi_allreduce(from, into, ELEMENTS + 1, 2, 5, ALL, LONG)
        );
        // A timeout in the middle of it loses nothing.
        let many = if ctx.backend == "chaos" {
            20_000
        } else {
            ELEMENTS
        };
        repeat("gaspi_allreduce", || {
            c!(gaspi_allreduce(from, into, many, 2, 5, ALL, 1))
        })?;
        for (nth, sum) in receive[..many as usize].iter().enumerate() {
            ensure_eq!(*sum, 2 * nth as u64 + 1, "element {nth} of the sum");
        }
        ensure_eq!(receive[many as usize], 0, "the element behind the result");
        let both = receive.as_mut_ptr().cast::<u8>();
        ok!(gaspi_allreduce(both, both, many, 1, 5, ALL, LONG));
        ensure_eq!(
            receive[many as usize - 1],
            2 * u64::from(many) - 1,
            "the last one, in place"
        );
        let mut made = vec![ALL];
        loop {
            let mut group = 0;
            match c!(gaspi_group_create(&mut group)) {
                SUCCESS => made.push(group),
                _ => break,
            }
            ok!(gaspi_group_add(group, 0));
            ok!(gaspi_group_add(group, 1));
            ok!(gaspi_group_commit(group, LONG));
        }
        ensure_eq!(made.len() as u32, GROUPS, "groups at a time");
        for group in &made {
            ok!(gaspi_barrier(*group, LONG));
        }
        for group in &made[1..] {
            ok!(gaspi_group_delete(*group));
        }
        Ok(())
    })
}

fn config_in_force(_: &Ctx) -> Verdict {
    with_config(
        |config| {
            config.queue_num = 3;
            config.queue_size_max = 5;
            config.group_max = 4;
            config.segment_max = 2;
            config.transfer_size_max = 100;
            config.notification_num = 10;
            config.allreduce_elem_max = 6;
            config.rw_list_elem_max = 3;
        },
        || {
            macro_rules! getter {
                ($($name:ident: $ty:ty = $expected:expr;)*) => {$(
                    let mut seen: $ty = 0;
                    ok!($name(&mut seen));
                    ensure_eq!(seen, $expected, stringify!($name));
                )*};
            }
            getter! {
                gaspi_queue_num: u32 = 3;
                gaspi_queue_size_max: u32 = 5;
                gaspi_group_max: u32 = 4;
                gaspi_segment_max: u32 = 2;
                gaspi_transfer_size_max: u64 = 100;
                gaspi_notification_num: u32 = 10;
                gaspi_allreduce_elem_max: u32 = 6;
                gaspi_rw_list_elem_max: u32 = 3;
            }
            segment(0, 1000)?;
            segment(1, 1000)?;
            gives!(ErrManySeg, gaspi_segment_alloc(2, 1000, 0));
            gives!(ErrInvQueue, gaspi_write(0, 0, 0, 0, 0, 8, 3, LONG));
            gives!(ErrInvCommsize, gaspi_write(0, 0, 0, 0, 0, 101, 0, LONG));
            gives!(ErrInvCommsize, gaspi_read(0, 0, 0, 0, 0, 101, 0, LONG));
            ok!(gaspi_write(0, 0, 0, 0, 100, 100, 0, LONG));
            gives!(ErrInvNotifId, gaspi_notify(0, 0, 10, 1, 0, LONG));
            let mut id = 0;
            gives!(
                ErrInvNotifId,
                gaspi_notify_waitsome(0, 10, 1, &mut id, TEST)
            );
            gives!(ErrInvNotifId, gaspi_notify_reset(0, 10, &mut id));
            let send = [1u8; 64];
            let mut receive = [0u8; 64];
            gives!(
                ErrInvNum,
                gaspi_allreduce(send.as_ptr(), receive.as_mut_ptr(), 7, 0, 5, ALL, LONG)
            );
            ok!(gaspi_allreduce(
                send.as_ptr(),
                receive.as_mut_ptr(),
                6,
                0,
                5,
                ALL,
                LONG
            ));
            let (ids, offsets, sizes) = ([0u8; 4], [0u64; 4], [8u64; 4]);
            let (ids, offsets, sizes) = (ids.as_ptr(), offsets.as_ptr(), sizes.as_ptr());
            gives!(
                ErrInvNum,
                gaspi_write_list(4, ids, offsets, 0, ids, offsets, sizes, 1, LONG)
            );
            ok!(gaspi_write_list(
                3, ids, offsets, 0, ids, offsets, sizes, 1, LONG
            ));
            flush(0)?;
            flush(1)?;
            let (mut made, mut group) = (0, 0);
            let mut num = 0;
            ok!(gaspi_group_num(&mut num));
            while c!(gaspi_group_create(&mut group)) == SUCCESS {
                made += 1;
                ensure!(made <= 4, "more than group_max groups");
            }
            ensure_eq!(num + made, 4, "groups that could be made");
            gives!(ErrManyGrp, gaspi_group_create(&mut group));
            barrier()
        },
    )
}

fn config_is_late(_: &Ctx) -> Verdict {
    let before = config()?;
    let mut other = before;
    other.queue_num = 2;
    gives!(ErrInited, gaspi_config_set(other));
    same(&config()?, &before, "in the working phase")
}

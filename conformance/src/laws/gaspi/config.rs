//! §5.2: the configuration.

use super::kit::*;

laws! {
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

fn same(seen: &gaspi_config_t, set: &gaspi_config_t, when: &str) -> Verdict {
    ensure_eq!(format!("{seen:?}"), format!("{set:?}"), "config {when}");
    Ok(())
}

fn config_limits(_: &Ctx) -> Verdict {
    type Change = fn(&mut gaspi_config_t);
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
        ensure!(is_error(c!(gaspi_config_set(set))), "sn_port {port}");
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
        ensure_eq!(c!(gaspi_config_set(set)), SUCCESS, "set with {what}");
        same(&config()?, &set, "after an accepted proposal")?;
    }
    ok!(gaspi_config_set(before));
    Ok(())
}

fn config_honoured(ctx: &Ctx) -> Verdict {
    let group_max = if ctx.is_quick() { 255 } else { 30 };
    const NOTIFICATIONS: u32 = 1 << 24;
    const ELEMENTS: u32 = 1_000_000;
    let change = |config: &mut gaspi_config_t| {
        config.group_max = group_max;
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
            ensure_eq!(seen, (group_max, NOTIFICATIONS, ELEMENTS, 24), "in force");
        }
        // The limits that the getters give are usable.
        segment(0, 8)?;
        let (to, last) = (right(ctx), NOTIFICATIONS - 1);
        ok!(gaspi_notify(0, to, last, 1, 0, LONG));
        notified(0, last)?;
        post::notify(0, to, NOTIFICATIONS, 1).gives(GASPI_ERR_INV_NOTIF_ID, 0, LONG)?;
        let mut id = 0;
        gives!(
            GASPI_ERR_INV_NOTIF_ID,
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
        post::allreduce(from, into, ELEMENTS + 1, 2, 5).gives(GASPI_ERR_INV_NUM, ALL, LONG)?;
        // A timeout in the middle of a reduction loses no element.
        let many = if ctx.is_quick() { ELEMENTS } else { 2000 };
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
        ensure_eq!(made.len() as u32, group_max, "groups at a time");
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
            gives!(GASPI_ERR_MANY_SEG, gaspi_segment_alloc(2, 1000, 0));
            gives!(GASPI_ERR_INV_QUEUE, gaspi_write(0, 0, 0, 0, 0, 8, 3, LONG));
            post::write(0, 0, 0, 0, 0, 101).gives(GASPI_ERR_INV_COMMSIZE, 0, LONG)?;
            post::read(0, 0, 0, 0, 0, 101).gives(GASPI_ERR_INV_COMMSIZE, 0, LONG)?;
            ok!(gaspi_write(0, 0, 0, 0, 100, 100, 0, LONG));
            gives!(GASPI_ERR_INV_NOTIF_ID, gaspi_notify(0, 0, 10, 1, 0, LONG));
            let mut id = 0;
            gives! { GASPI_ERR_INV_NOTIF_ID:
                gaspi_notify_waitsome(0, 10, 1, &mut id, TEST);
                gaspi_notify_reset(0, 10, &mut id);
            }
            let send = [1u8; 64];
            let mut receive = [0u8; 64];
            post::allreduce(send.as_ptr(), receive.as_mut_ptr(), 7, 0, 5).gives(
                GASPI_ERR_INV_NUM,
                ALL,
                LONG,
            )?;
            post::allreduce(send.as_ptr(), receive.as_mut_ptr(), 6, 0, 5).ok(ALL, LONG)?;
            let (ids, offsets, sizes) = ([0u8; 4], [0u64; 4], [8u64; 4]);
            let (ids, offsets, sizes) = (ids.as_ptr(), offsets.as_ptr(), sizes.as_ptr());
            post::write_list(4, ids, offsets, 0, ids, offsets, sizes).gives(
                GASPI_ERR_INV_NUM,
                1,
                LONG,
            )?;
            post::write_list(3, ids, offsets, 0, ids, offsets, sizes).ok(1, LONG)?;
            flush(0)?;
            flush(1)?;
            let (mut made, mut group) = (0, 0);
            let num = got!(gaspi_group_num());
            while c!(gaspi_group_create(&mut group)) == SUCCESS {
                made += 1;
                ensure!(made <= 4, "more than group_max groups");
            }
            ensure_eq!(num + made, 4, "groups that could be made");
            gives!(GASPI_ERR_MANY_GRP, gaspi_group_create(&mut group));
            barrier()
        },
    )
}

fn config_is_late(_: &Ctx) -> Verdict {
    let before = config()?;
    let mut other = before;
    other.queue_num = 2;
    gives!(GASPI_ERR_INITED, gaspi_config_set(other));
    same(&config()?, &before, "in the working phase")
}

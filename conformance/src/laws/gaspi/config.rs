//! §5.2: the configuration.

use super::kit::*;

laws! {
    config_defaults: "config.defaults", "§5.2.2", 1, [gaspi_config_get] + bare,
        "gaspi_config_get gives the default configuration of release 1.6";
    config_kept: "config.read-back", "§5.2.3", 1, [gaspi_config_set, gaspi_config_get] + bare,
        "settings for networks and start-up are accepted and read back, before and after initialisation";
    config_limits: "config.limits", "§5.2.1", 1, [gaspi_config_set, gaspi_config_get] + bare,
        "values out of range are refused, and leave the configuration as it was; the limits themselves are accepted";
    config_honoured: "config.honoured", "§5.2.1, §12", 2,
        [gaspi_config_set, gaspi_config_get, gaspi_group_max, gaspi_notification_num, gaspi_allreduce_elem_max, gaspi_allreduce_buf_size,
         gaspi_allreduce, gaspi_notify, gaspi_group_create, gaspi_group_commit] + bare,
        "accepted settings are in force: 255 groups, 2^24 notifications, reductions of a million elements";
    config_in_force: "config.in-force", "§5.2.1", 2,
        [gaspi_config_set, gaspi_queue_num, gaspi_queue_size_max, gaspi_group_max, gaspi_segment_max, gaspi_transfer_size_max,
         gaspi_notification_num, gaspi_allreduce_elem_max, gaspi_rw_list_elem_max] + bare,
        "the getters give the values that were set, and these bind";
    config_is_late: "config.late", "§5.2.3", 1, [gaspi_config_set],
        "gaspi_config_set in the working phase is refused and changes nothing";
}

fn config_defaults(_: &Ctx) -> Verdict {
    let seen = config()?;
    macro_rules! defaults {
        ($($field:ident = $expected:expr;)*) => {$(
            ensure_eq!(seen.$field as u64, $expected, "default of {}", stringify!($field));
        )*};
    }
    defaults! {
        logger = 1;
        sn_port = 12_121;
        net_info = 0;
        sn_persistent = 1;
        sn_timeout = 30_000;
        queue_size_max = 1024;
        queue_num = 8;
        group_max = 32;
        segment_max = 255;
        transfer_size_max = 1 << 30;
        notification_num = 65_536;
        passive_queue_size_max = 1024;
        passive_transfer_size_max = 65_535;
        allreduce_buf_size = 2040;
        allreduce_elem_max = 255;
        rw_list_elem_max = 255;
        build_infrastructure = 1;
        user_defined = 0;
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
        ensure_eq!(got!(gaspi_network_type()), network, "gaspi_network_type");
        ok!(gaspi_proc_term(LONG));
        same(&config()?, &set, "after termination")?;
    }
    done!(gaspi_config_set(before))
}

fn same(seen: &gaspi_config_t, set: &gaspi_config_t, when: &str) -> Verdict {
    equal!(format!("{seen:?}"), format!("{set:?}"), "config {when}")
}

fn config_limits(_: &Ctx) -> Verdict {
    let before = config()?;
    macro_rules! proposals {
        ($code:ident, $($field:ident = $value:expr;)*) => {$(
            let mut set = before;
            set.$field = $value;
            let (what, code) = (stringify!($field = $value), c!(gaspi_config_set(set)));
            ensure_eq!(code_name(code), code_name($code), "gaspi_config_set with {what}");
            let kept = if code == SUCCESS { set } else { before };
            same(&config()?, &kept, &format!("after the proposal {what}"))?;
        )*};
    }
    proposals! { GASPI_ERR_CONFIG,
        group_max = 0;
        group_max = 256;
        notification_num = (1 << 24) + 1;
        notification_num = u32::MAX;
        allreduce_buf_size = 2041;
        build_infrastructure = 3;
        queue_size_max = 0;
        queue_size_max = 4097;
        queue_num = 0;
        queue_num = 17;
        segment_max = 0;
        segment_max = 256;
        transfer_size_max = (1 << 30) + 1;
        transfer_size_max = u64::MAX;
        rw_list_elem_max = 0;
        rw_list_elem_max = 256;
        passive_transfer_size_max = 65_536;
        network = 6;
        network = u32::MAX;
        queue_num = u32::MAX;
    }
    for port in [0, 1023, 65_537, u32::MAX] {
        let mut set = before;
        set.sn_port = port;
        ensure!(is_error(c!(gaspi_config_set(set))), "sn_port {port}");
        same(&config()?, &before, "after a refused port")?;
    }
    proposals! { SUCCESS,
        group_max = 1;
        group_max = 255;
        notification_num = 0;
        notification_num = 1 << 24;
        allreduce_elem_max = u32::MAX;
        allreduce_buf_size = 8;
        queue_size_max = 1;
        queue_size_max = 4096;
        queue_num = 1;
        queue_num = 16;
        segment_max = 1;
        transfer_size_max = 1;
        rw_list_elem_max = 1;
        sn_port = 1024;
        sn_port = 65_536;
    }
    done!(gaspi_config_set(before))
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
        let seen = (groups, notifications, elements, bytes);
        let set = config()?;
        let sizes = (set.allreduce_elem_max, set.allreduce_buf_size);
        let read = (set.group_max, set.notification_num, sizes.0, sizes.1);
        let expected = (group_max, NOTIFICATIONS, ELEMENTS, 24);
        ensure_eq!((seen, read), (expected, expected), "in force");
        // The limits that the getters give are usable.
        segment(0, 8)?;
        let (to, last) = (right(ctx), NOTIFICATIONS - 1);
        ok!(gaspi_notify(0, to, last, 1, 0, LONG));
        notified(0, last)?;
        post::notify(0, to, NOTIFICATIONS, 1).gives(GASPI_ERR_INV_NOTIF_ID, 0, LONG)?;
        let code = waitsome(0, NOTIFICATIONS, 1, TEST);
        ensure_eq!(code, GASPI_ERR_INV_NOTIF_ID, "a wait for too large an id");
        let first = u64::from(ctx.rank);
        let send: Vec<u64> = (first..=first + u64::from(ELEMENTS)).collect();
        let mut receive = vec![0u64; ELEMENTS as usize + 1];
        let from: *const u8 = send.as_ptr().cast();
        let into: *mut u8 = receive.as_mut_ptr().cast();
        post::allreduce(from, into, ELEMENTS + 1, 2, 5).gives(GASPI_ERR_INV_NUM, ALL, LONG)?;
        // A timeout in the middle of a reduction loses no element.
        let many = if ctx.is_quick() { ELEMENTS } else { 2000 };
        let sum = post::allreduce(from, into, many, 2, 5);
        repeat("gaspi_allreduce", || sum.code(ALL, 1))?;
        for (nth, sum) in receive[..many as usize].iter().enumerate() {
            ensure_eq!(*sum, 2 * nth as u64 + 1, "element {nth} of the sum");
        }
        ensure_eq!(receive[many as usize], 0, "the element behind the result");
        let both = receive.as_mut_ptr().cast::<u8>();
        ok!(gaspi_allreduce(both, both, many, 1, 5, ALL, LONG));
        let last = receive[many as usize - 1];
        ensure_eq!(last, 2 * u64::from(many) - 1, "the last one, in place");
        let (mut made, mut group) = (vec![ALL], 0);
        while c!(gaspi_group_create(&mut group)) == SUCCESS {
            made.push(group);
            ok!(gaspi_group_add(group, 0));
            ok!(gaspi_group_add(group, 1));
            ok!(gaspi_group_commit(group, LONG));
        }
        ensure_eq!(made.len() as u32, group_max, "groups at a time");
        for_all(&made, |group| done!(gaspi_barrier(*group, LONG)))?;
        for_all(&made[1..], |group| done!(gaspi_group_delete(*group)))
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
            ensure_eq!(got!(gaspi_queue_num()), 3, "gaspi_queue_num");
            ensure_eq!(got!(gaspi_queue_size_max()), 5, "gaspi_queue_size_max");
            ensure_eq!(got!(gaspi_group_max()), 4, "gaspi_group_max");
            ensure_eq!(got!(gaspi_segment_max()), 2, "gaspi_segment_max");
            ensure_eq!(got!(gaspi_transfer_size_max()), 100, "transfer_size_max");
            ensure_eq!(got!(gaspi_notification_num()), 10, "notification_num");
            ensure_eq!(got!(gaspi_allreduce_elem_max()), 6, "allreduce_elem_max");
            ensure_eq!(got!(gaspi_rw_list_elem_max()), 3, "rw_list_elem_max");
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
            let (from, into) = (send.as_ptr(), receive.as_mut_ptr());
            post::allreduce(from, into, 7, 0, 5).gives(GASPI_ERR_INV_NUM, ALL, LONG)?;
            post::allreduce(from, into, 6, 0, 5).ok(ALL, LONG)?;
            let list = |num| post::Parts::new(0, 0, &vec![(0, 0, 8); num]);
            list(4).write(0).gives(GASPI_ERR_INV_NUM, 1, LONG)?;
            list(3).write(0).ok(1, LONG)?;
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

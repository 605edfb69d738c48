//! The calls of GASPI that are in progress when another thread ends an object or the process.

use super::kit::*;

/// The object that a call needs to the end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    Segment,
    Group,
    /// The pool of GASPI_Threads.h.
    Threads,
}

/// A call with a segment of 4096 bytes and a group of ranks 0 and 1.
pub(crate) type Wait = fn(segment: u8, group: u8) -> i32;

/// The segment that a wait creates.
pub(crate) const CREATED: u8 = 2;

operation! { nothing(_, _, _, _, _, _) { SUCCESS } }

/// Calls of rank 0 that end only after a call of rank 1.
pub(crate) const WAITS: [(&str, Needs, Wait); 12] = [
    ("gaspi_notify_waitsome of one", Needs::Segment, |id, _| {
        waitsome(id, 7, 1, BLOCK)
    }),
    ("gaspi_notify_waitsome of many", Needs::Segment, |id, _| {
        waitsome(id, 0, 1000, BLOCK)
    }),
    ("gaspi_passive_receive", Needs::Segment, |id, _| {
        received(id, 64, 8, BLOCK)
    }),
    ("gaspi_passive_send", Needs::Segment, |id, _| {
        c!(gaspi_passive_send(id, 0, 1, 8, BLOCK))
    }),
    ("gaspi_barrier", Needs::Group, |_, group| {
        c!(gaspi_barrier(group, BLOCK))
    }),
    ("gaspi_allreduce", Needs::Group, |_, group| {
        summed(group, BLOCK)
    }),
    ("gaspi_allreduce_user", Needs::Group, |_, group| {
        let (one, mut all) = (1u64, 0u64);
        let (from, to) = (&raw const one, &raw mut all);
        post::allreduce_user(from, to, 1, 8, Some(nothing), null_mut()).code(group, BLOCK)
    }),
    ("gaspi_group_commit", Needs::Group, |_, group| {
        // GASPI_GROUP_ALL is committed.
        let group = match group {
            ALL => uncommitted([0, 1]).unwrap_or(ALL),
            group => group,
        };
        c!(gaspi_group_commit(group, BLOCK))
    }),
    ("gaspi_segment_create", Needs::Group, |_, group| {
        c!(gaspi_segment_create(CREATED, 64, group, BLOCK, 0))
    }),
    (
        "gaspi_segment_use",
        Needs::Group,
        |_, group| match Memory::pages(4096) {
            Ok(pages) => c!(gaspi_segment_use(CREATED, pages.base, 64, group, BLOCK, 0)),
            Err(_) => ERROR,
        },
    ),
    ("gaspi_threads_sync_all", Needs::Group, |_, group| {
        meet(1, group)
    }),
    (
        "gaspi_threads_sync_all of two",
        Needs::Threads,
        |_, group| meet(2, group),
    ),
];

/// Meets the threads of a pool of this size. The others do not come.
fn meet(pool: u32, group: u8) -> i32 {
    let mut number = 0;
    c!(gaspi_threads_init_user(pool));
    c!(gaspi_threads_register(&mut number));
    let code = c!(gaspi_threads_sync_all(group, BLOCK));
    c!(gaspi_threads_term());
    code
}

/// A call of rank 0 with a segment of 4096 bytes at both ranks.
pub(crate) type Call = fn(segment: u8, queue: u8, timeout: u64) -> i32;

/// Calls of rank 0 that end by themselves.
pub(crate) const CALLS: [(&str, Call); 21] = [
    ("gaspi_write", |id, queue, timeout| {
        post::write(id, 0, 1, id, 64, 64).code(queue, timeout)
    }),
    ("gaspi_read", |id, queue, timeout| {
        post::read(id, 128, 1, id, 64, 200).code(queue, timeout)
    }),
    ("gaspi_notify", |id, queue, timeout| {
        post::notify(id, 1, 5, 1).code(queue, timeout)
    }),
    ("gaspi_write_notify", |id, queue, timeout| {
        post::write_notify(id, 0, 1, id, 64, 2048, 6, 1).code(queue, timeout)
    }),
    ("gaspi_read_notify", |id, queue, timeout| {
        post::read_notify(id, 128, 1, id, 64, 200, 7).code(queue, timeout)
    }),
    ("gaspi_write_list", |id, queue, timeout| {
        there(id).write(1).code(queue, timeout)
    }),
    ("gaspi_read_list", |id, queue, timeout| {
        back(id).read(1).code(queue, timeout)
    }),
    ("gaspi_write_list_notify", |id, queue, timeout| {
        there(id).write_notify(1, id, 6, 1).code(queue, timeout)
    }),
    ("gaspi_read_list_notify", |id, queue, timeout| {
        back(id).read_notify(1, id, 7).code(queue, timeout)
    }),
    ("gaspi_request_wait", |id, queue, timeout| {
        let (kind, tag) = (GASPI_OP_WRITE, 5);
        let posted = c!(gaspi_operation_submit(
            kind, tag, id, 0, 1, id, 64, 64, 0, 0, queue, timeout
        ));
        let (mut num, mut tag, mut status) = (0, 0, gaspi_status_t { error: 0 });
        posted.max(c!(gaspi_request_wait(
            queue,
            1,
            &mut num,
            &mut tag,
            &mut status,
            timeout
        )))
    }),
    ("gaspi_atomic_fetch_add", |id, _, timeout| {
        let mut old = 0;
        c!(gaspi_atomic_fetch_add(id, 3072, 1, 1, &mut old, timeout))
    }),
    ("gaspi_atomic_compare_swap", |id, _, timeout| {
        let mut old = 0;
        c!(gaspi_atomic_compare_swap(
            id, 3080, 1, 0, 1, &mut old, timeout
        ))
    }),
    ("gaspi_notify_reset", |id, _, _| {
        let (mut first, mut old) = (0, 0);
        match c!(gaspi_notify_waitsome(id, 0, 8, &mut first, TEST)) {
            TIMEOUT => c!(gaspi_notify_reset(id, 3, &mut old)),
            SUCCESS => c!(gaspi_notify_reset(id, first, &mut old)),
            code => code,
        }
    }),
    ("gaspi_segment_ptr", |id, _, _| {
        let (mut base, mut rank) = (null_mut(), 0);
        c!(gaspi_segment_ptr(id, &mut base)).max(c!(gaspi_proc_rank(&mut rank)))
    }),
    ("gaspi_wait", |_, queue, timeout| {
        c!(gaspi_wait(queue, timeout))
    }),
    ("gaspi_queue_purge", |_, queue, timeout| {
        c!(gaspi_queue_purge(queue, timeout))
    }),
    ("gaspi_connect", |_, _, timeout| {
        c!(gaspi_connect(1, timeout))
    }),
    ("gaspi_segment_register", |id, _, timeout| {
        c!(gaspi_segment_register(id, 1, timeout))
    }),
    ("gaspi_queue_create", |_, _, timeout| {
        let mut queue = 0;
        match c!(gaspi_queue_create(&mut queue, timeout)) {
            SUCCESS => c!(gaspi_queue_delete(queue)),
            code => code,
        }
    }),
    ("gaspi_segment_alloc", |_, _, _| {
        match c!(gaspi_segment_alloc(9, 4096, 0)) {
            SUCCESS => c!(gaspi_segment_delete(9)),
            code => code,
        }
    }),
    // Last: the calls above fail over a closed connection.
    ("gaspi_disconnect", |_, _, timeout| {
        match c!(gaspi_disconnect(1, timeout)) {
            SUCCESS => c!(gaspi_connect(1, timeout)),
            code => code,
        }
    }),
];

/// The parts of a list that is written.
fn there(id: u8) -> post::Parts {
    post::Parts::new(id, id, &[(0, 1024, 8), (256, 2000, 100)])
}

/// The parts of a list that is read.
fn back(id: u8) -> post::Parts {
    post::Parts::new(id, id, &[(1024, 0, 8), (2000, 256, 100)])
}

//! GASPI_Lowlevel.h: operations that carry a tag, polled as task runtimes do.

use std::collections::BTreeMap;

use super::kit::*;
use crate::kit::stop_until_killed;

laws! {
    each: "lowlevel.each", "§8.2, §8.3, §8.4", 3,
        [gaspi_operation_submit, gaspi_operation_list_submit, gaspi_operation_get_num_requests, gaspi_request_wait],
        "each operation with a tag does the same as the procedure without a tag; its tag is reported once, after its data is there";
    many: "lowlevel.many", "§8.2.3, §8.5", 3, [gaspi_operation_submit, gaspi_operation_list_submit, gaspi_request_wait],
        "several threads post hundreds of operations to several queues: a thread that polls the queues sees each tag once";
    order: "lowlevel.order", "§8.3.2", 2, [gaspi_operation_submit, gaspi_write, gaspi_notify, gaspi_request_wait] + ordering,
        "notifications overtake no write of their queue, whether either has a tag";
    places configured(|config| config.queue_size_max = DEPTH): "lowlevel.places", "§8.2.3, §8.5", 2,
        [gaspi_operation_submit, gaspi_request_wait, gaspi_wait, gaspi_queue_size, gaspi_queue_purge, gaspi_queue_delete] + bare,
        "a tag holds a place of its queue until its report; other requests are not reported; gaspi_wait waits for all and takes no report";
    blocks: "lowlevel.blocks", "§8.2.3", 2, [gaspi_operation_submit, gaspi_request_wait, gaspi_wait],
        "threads that wait for the reports of one queue share them, and none waits when no tag is left";
    refused with_segment(64): "lowlevel.refused", "§8.2, §8.4", 2,
        [gaspi_operation_submit, gaspi_operation_list_submit, gaspi_operation_get_num_requests, gaspi_request_wait],
        "null pointers, unknown operations and all arguments that the procedure without a tag refuses are refused, and leave no report";
    death: "lowlevel.death", "§5.5, §8.2.3", 3,
        [gaspi_operation_submit, gaspi_operation_list_submit, gaspi_request_wait, gaspi_state_vec_get] + needs_kill,
        "a target dies: each tag is reported once, with success for the living target, and with an error if it is posted to the dead one later";
}

/// Operations for each queue and peer.
const EACH: u32 = 45;
const QUEUES: u32 = 3;
/// Bytes of an element; a slot has two.
const BYTES: u64 = 64;
const SLOT: u64 = 2 * BYTES;

const SOURCE: u8 = 0;
const TARGET: u8 = 1;
const ROOM: u8 = 2;

const KINDS: [u32; 9] = [
    GASPI_OP_WRITE,
    GASPI_OP_READ,
    GASPI_OP_NOTIFY,
    GASPI_OP_WRITE_NOTIFY,
    GASPI_OP_READ_NOTIFY,
    GASPI_OP_WRITE_LIST,
    GASPI_OP_READ_LIST,
    GASPI_OP_WRITE_LIST_NOTIFY,
    GASPI_OP_READ_LIST_NOTIFY,
];

/// An operation between this rank and `peer`.
#[derive(Debug, Clone, Copy)]
struct Job {
    peer: u16,
    queue: u32,
    nth: u32,
}

fn slot(rank: u16, queue: u32, nth: u32) -> u32 {
    (u32::from(rank) * QUEUES + queue) * EACH + nth
}

/// The data from `from` for `to` in a slot.
fn text(from: u32, to: u32, queue: u32, nth: u32) -> u64 {
    u64::from(from) << 48 | u64::from(to) << 32 | u64::from(queue) << 16 | u64::from(nth) | 1 << 63
}

impl Job {
    fn kind(self) -> u32 {
        KINDS[self.nth as usize % KINDS.len()]
    }

    /// The slot at this rank for data to or from the peer.
    fn here(self) -> u32 {
        slot(self.peer, self.queue, self.nth)
    }

    fn tag(self) -> i64 {
        i64::from(self.here()) << 20 | 7
    }

    fn is_read(self) -> bool {
        self.kind() < GASPI_OP_WRITE
    }

    fn is_list(self) -> bool {
        let lists = [
            GASPI_OP_READ_LIST,
            GASPI_OP_READ_LIST_NOTIFY,
            GASPI_OP_WRITE_LIST,
            GASPI_OP_WRITE_LIST_NOTIFY,
        ];
        lists.contains(&self.kind())
    }

    /// The id of its notification. A read notifies this rank, other operations notify the target.
    fn notifies(self, ctx: &Ctx) -> Option<u32> {
        match self.kind() {
            GASPI_OP_READ_NOTIFY | GASPI_OP_READ_LIST_NOTIFY => Some(self.here()),
            GASPI_OP_WRITE_NOTIFY | GASPI_OP_WRITE_LIST_NOTIFY | GASPI_OP_NOTIFY => {
                Some(slot(ctx.rank as u16, self.queue, self.nth))
            }
            _ => None,
        }
    }

    fn submit(self, ctx: &Ctx, timeout: u64) -> i32 {
        let Job { peer, queue, nth } = self;
        let here = u64::from(self.here()) * SLOT;
        let there = u64::from(slot(ctx.rank as u16, queue, nth)) * SLOT;
        let (local, remote) = match self.is_read() {
            true => (ROOM, SOURCE),
            false => (SOURCE, TARGET),
        };
        let (id, value) = (self.notifies(ctx).unwrap_or(0), nth + 1);
        let (kind, tag, queue) = (self.kind(), self.tag(), queue as u8);
        if !self.is_list() {
            let (from, to) = (here, there);
            return c!(gaspi_operation_submit(
                kind, tag, local, from, peer, remote, to, SLOT, id, value, queue, timeout
            ));
        }
        let (locals, remotes, sizes) = ([local; 2], [remote; 2], [BYTES; 2]);
        let (heres, theres) = ([here + BYTES, here], [there + BYTES, there]);
        let own = if self.is_read() { ROOM } else { TARGET };
        let (locals, from) = (locals.as_ptr(), heres.as_ptr());
        let (remotes, to, sizes) = (remotes.as_ptr(), theres.as_ptr(), sizes.as_ptr());
        c!(gaspi_operation_list_submit(
            kind, tag, 2, locals, from, peer, remotes, to, sizes, own, id, value, queue, timeout
        ))
    }

    /// Its data is at this rank.
    fn check_read(self, ctx: &Ctx, room: &Memory) -> Verdict {
        let Job { peer, queue, nth } = self;
        if !self.is_read() {
            return Ok(());
        }
        let expected = text(peer.into(), ctx.rank, queue, nth);
        self.check(room, self.here(), expected)?;
        match self.notifies(ctx) {
            Some(id) => is_one(notified(ROOM, id)?),
            None => Ok(()),
        }
    }

    /// The peer's operation with the same numbers has arrived.
    fn check_write(self, ctx: &Ctx, target: &Memory) -> Verdict {
        let Job { peer, queue, nth } = self;
        if self.is_read() {
            return Ok(());
        }
        if self.notifies(ctx).is_some() {
            let value = notified(TARGET, self.here())?;
            ensure_eq!(value, nth + 1, "the value of a notification");
        }
        match self.kind() {
            GASPI_OP_NOTIFY => Ok(()),
            _ => self.check(target, self.here(), text(peer.into(), ctx.rank, queue, nth)),
        }
    }

    fn check(self, memory: &Memory, slot: u32, expected: u64) -> Verdict {
        let begin = (u64::from(slot) * SLOT) as usize;
        for at in (begin..begin + SLOT as usize).step_by(8) {
            ensure_eq!(memory.get(at), expected, "the data of {self:?}");
        }
        Ok(())
    }
}

fn is_one(value: u32) -> Verdict {
    equal!(value, 1, "the value of a reader's notification")
}

/// Creates the segments and fills the source. Gives the target and the room for reads.
fn segments(ctx: &Ctx) -> Result<(Memory, Memory), String> {
    let len = (u64::from(ctx.size * QUEUES * EACH) * SLOT) as usize;
    let source = segment(SOURCE, len)?;
    let target = segment(TARGET, len)?;
    let room = segment(ROOM, len)?;
    for job in all(ctx, 0..QUEUES) {
        let begin = (u64::from(job.here()) * SLOT) as usize;
        for at in (begin..begin + SLOT as usize).step_by(8) {
            source.set(at, text(ctx.rank, job.peer.into(), job.queue, job.nth));
        }
    }
    barrier()?;
    Ok((target, room))
}

/// All operations of these queues, to one peer after the other in turn.
fn all(ctx: &Ctx, queues: std::ops::Range<u32>) -> Vec<Job> {
    let mut jobs = Vec::new();
    for nth in 0..EACH {
        for queue in queues.clone() {
            jobs.extend(others(ctx).map(|peer| Job { peer, queue, nth }));
        }
    }
    jobs
}

const BATCH: usize = 16;

/// The reports that are there, or that arrive within the timeout.
fn reports(queue: u32, timeout: u64) -> Result<(i32, Vec<(i64, i32)>), String> {
    let (mut tags, mut statuses) = ([-1; BATCH], [gaspi_status_t { error: 77 }; BATCH]);
    let (queue, most, mut num) = (queue as u8, BATCH as u32, u32::MAX);
    let (tag, status) = (tags.as_mut_ptr(), statuses.as_mut_ptr());
    let code = c!(gaspi_request_wait(
        queue, most, &mut num, tag, status, timeout
    ));
    let valid = num <= most && (code == SUCCESS || num == 0);
    ensure!(valid, "{num} reports with {}", code_name(code));
    let found = tags.iter().zip(&statuses).take(num as usize);
    let found = found.map(|(tag, status)| (*tag, status.error));
    Ok((code, found.collect()))
}

/// Takes reports until each job is reported once. `check` gets each job and its status.
fn collect(
    queues: std::ops::Range<u32>,
    jobs: &[Job],
    timeout: u64,
    mut check: impl FnMut(Job, i32) -> Verdict,
) -> Verdict {
    let mut open: BTreeMap<i64, Job> = jobs.iter().map(|job| (job.tag(), *job)).collect();
    ensure_eq!(open.len(), jobs.len(), "tags");
    let mut looks = Looks::for_the("reports");
    while !open.is_empty() {
        let mut any = false;
        for queue in queues.clone() {
            if !open.values().any(|job| job.queue == queue) {
                continue;
            }
            let (code, reports) = reports(queue, timeout)?;
            one_of(code, &[SUCCESS, TIMEOUT], "gaspi_request_wait")?;
            for (tag, status) in reports {
                let job = open.remove(&tag);
                let job = job.ok_or_else(|| format!("tag {tag} was reported, and is not open"))?;
                ensure_eq!(job.queue, queue, "the queue that reports {job:?}");
                check(job, status)?;
                any = true;
            }
        }
        match any {
            true => looks = Looks::for_the("reports"),
            false => looks.again(),
        }
    }
    Ok(())
}

/// Fails unless the queues hold no reports and no requests.
fn nothing_left(queues: std::ops::Range<u32>) -> Verdict {
    for queue in queues {
        let left = reports(queue, LONG)?;
        ensure_eq!(left, (SUCCESS, Vec::new()), "reports of an idle queue");
        ensure_eq!(queue_size(queue as u8)?, 0, "size of an idle queue");
    }
    Ok(())
}

fn succeeded(job: Job, status: i32) -> Verdict {
    equal!(status, SUCCESS, "the status of {job:?}")
}

fn each(ctx: &Ctx) -> Verdict {
    let (target, room) = segments(ctx)?;
    let jobs: Vec<Job> = all(ctx, 0..1);
    for job in &jobs {
        let num = got!(gaspi_operation_get_num_requests(job.kind(), 2));
        ensure_eq!(num, 1, "reports of an operation");
        ensure_eq!(job.submit(ctx, LONG), SUCCESS, "{job:?}");
        let expected = (SUCCESS, vec![(job.tag(), SUCCESS)]);
        ensure_eq!(reports(job.queue, LONG)?, expected, "{job:?}");
        job.check_read(ctx, &room)?;
    }
    nothing_left(0..1)?;
    finish(ctx, &jobs, &target)
}

/// Checks the writes after a notification that follows them in each queue.
fn finish(ctx: &Ctx, jobs: &[Job], target: &Memory) -> Verdict {
    let last = ctx.size * QUEUES * EACH;
    let queues: std::collections::BTreeSet<u32> = jobs.iter().map(|job| job.queue).collect();
    for queue in &queues {
        for peer in others(ctx) {
            let id = last + ctx.rank * QUEUES + queue;
            ok!(gaspi_notify(TARGET, peer, id, 1, *queue as u8, LONG));
        }
    }
    for queue in &queues {
        for peer in others(ctx) {
            notified(TARGET, last + u32::from(peer) * QUEUES + queue)?;
        }
        flush(*queue as u8)?;
    }
    jobs.iter()
        .try_for_each(|job| job.check_write(ctx, target))?;
    barrier()
}

fn many(ctx: &Ctx) -> Verdict {
    let (target, room) = segments(ctx)?;
    let jobs = all(ctx, 0..QUEUES);
    // A thread posts to each queue; the last thread polls all queues.
    threads(QUEUES as usize + 1, |thread| {
        let thread = thread as u32;
        if thread == QUEUES {
            return collect(0..QUEUES, &jobs, TEST, |job, status| {
                succeeded(job, status)?;
                job.check_read(ctx, &room)
            });
        }
        let mine = jobs.iter().filter(|job| job.queue == thread);
        mine.clone()
            .try_for_each(|job| equal!(job.submit(ctx, LONG), SUCCESS, "{job:?}"))
    })?;
    nothing_left(0..QUEUES)?;
    finish(ctx, &jobs, &target)
}

fn order(ctx: &Ctx) -> Verdict {
    const ROUNDS: u32 = 60;
    let source = segment(SOURCE, 8 * ROUNDS as usize)?;
    let target = segment(TARGET, 8 * ROUNDS as usize)?;
    for round in 0..ROUNDS {
        source.set(8 * round as usize, u64::from(round) + 1);
    }
    barrier()?;
    let to = right(ctx);
    for round in 0..ROUNDS {
        let at = 8 * u64::from(round);
        let (tag, write, notify) = (i64::from(round) + 1, GASPI_OP_WRITE, GASPI_OP_NOTIFY);
        match round % 3 {
            0 => ok!(gaspi_write(SOURCE, at, to, TARGET, at, 8, 0, LONG)),
            _ => ok!(gaspi_operation_submit(
                write, tag, SOURCE, at, to, TARGET, at, 8, 0, 0, 0, LONG
            )),
        }
        match round % 3 {
            1 => ok!(gaspi_notify(TARGET, to, round, 1, 0, LONG)),
            _ => ok!(gaspi_operation_submit(
                notify,
                1000 + tag,
                0,
                0,
                to,
                TARGET,
                0,
                0,
                round,
                1,
                0,
                LONG
            )),
        }
    }
    for round in 0..ROUNDS {
        notified(TARGET, round)?;
        let seen = target.get(8 * round as usize);
        ensure_eq!(seen, u64::from(round) + 1, "the write before {round}");
    }
    let mut left = ROUNDS / 3 * 4;
    while left > 0 {
        let (_, reports) = reports(0, LONG)?;
        ensure!(!reports.is_empty(), "{left} reports are missing");
        left -= reports.len() as u32;
    }
    ok!(gaspi_wait(0, LONG));
    nothing_left(0..1)?;
    barrier()
}

/// A write of 8 bytes with a tag.
fn write(tag: i64, to: u16, queue: u8, timeout: u64) -> i32 {
    let write = GASPI_OP_WRITE;
    c!(gaspi_operation_submit(
        write, tag, 0, 0, to, 0, 8, 8, 0, 0, queue, timeout
    ))
}

const DEPTH: u32 = 8;

fn places(ctx: &Ctx) -> Verdict {
    segment(0, 16)?;
    barrier()?;
    let to = right(ctx);
    for tag in 1..=i64::from(DEPTH) {
        ensure_eq!(write(tag, to, 0, LONG), SUCCESS, "tag {tag}");
    }
    ensure_eq!(write(99, to, 0, LONG), QUEUE_FULL, "a tag without a place");
    ensure_eq!(queue_size(0)?, DEPTH, "size of the full queue");
    ok!(gaspi_wait(0, LONG));
    ensure_eq!(queue_size(0)?, DEPTH, "size after gaspi_wait");
    let (code, mut seen) = reports(0, TEST)?;
    seen.sort_unstable();
    let expected = (1..=i64::from(DEPTH)).map(|tag| (tag, SUCCESS)).collect();
    ensure_eq!((code, seen), (SUCCESS, expected), "the reports");
    nothing_left(0..1)?;
    // Requests without a tag, among them those with GASPI_TAG_NULL, are not reported.
    for round in 0..10 * DEPTH {
        ok!(gaspi_write(0, 0, to, 0, 8, 8, 0, LONG));
        let code = write(GASPI_TAG_NULL, to, 0, LONG);
        ensure_eq!(code, SUCCESS, "GASPI_TAG_NULL");
        ensure_eq!(write(5, to, 0, LONG), SUCCESS, "round {round}");
        let mut looks = Looks::for_the("room");
        let mut reported = 0;
        // Polls for reports make room for all requests.
        while reported == 0 || queue_size(0)? > DEPTH / 2 {
            let (_, seen) = reports(0, TEST)?;
            let right = seen.iter().all(|report| *report == (5, SUCCESS));
            ensure!(right, "reported: {seen:?}");
            reported += seen.len();
            looks.again();
        }
        ensure_eq!(reported, 1, "reports of a round");
    }
    ok!(gaspi_wait(0, LONG));
    nothing_left(0..1)?;
    // A purge drops reports.
    ensure_eq!(write(6, to, 0, LONG), SUCCESS, "a tag to be purged");
    ok!(gaspi_queue_purge(0, LONG));
    nothing_left(0..1)?;
    let queue = new_queue()?;
    ensure_eq!(write(7, to, queue, LONG), SUCCESS, "tag of a deleted queue");
    ok!(gaspi_queue_delete(queue));
    let code = reports(queue.into(), TEST)?.0;
    ensure_eq!(code, GASPI_ERR_INV_QUEUE, "reports of a deleted queue");
    let queue = new_queue()?;
    nothing_left(queue.into()..u32::from(queue) + 1)?;
    ok!(gaspi_queue_delete(queue));
    barrier()
}

fn blocks(ctx: &Ctx) -> Verdict {
    const MANY: i64 = 40;
    segment(0, 16)?;
    barrier()?;
    let to = right(ctx);
    for _ in 0..4 {
        for tag in 1..=MANY {
            ensure_eq!(write(tag, to, 0, LONG), SUCCESS, "tag {tag}");
        }
        let seen = parking_lot::Mutex::new(Vec::new());
        threads(3, |thread| {
            if thread == 2 {
                return flush(0);
            }
            loop {
                match reports(0, BLOCK)? {
                    (SUCCESS, some) if some.is_empty() => return Ok(()),
                    (SUCCESS, some) => seen.lock().extend(some),
                    (code, _) => return Err(format!("a wait gave {}", code_name(code))),
                }
            }
        })?;
        let mut seen = seen.into_inner();
        seen.sort_unstable();
        let expected: Vec<_> = (1..=MANY).map(|tag| (tag, SUCCESS)).collect();
        ensure_eq!(seen, expected, "the reports of both threads");
    }
    barrier()
}

fn refused(ctx: &Ctx, _: Memory) -> Verdict {
    let to = right(ctx);
    let (write, notify, read) = (GASPI_OP_WRITE, GASPI_OP_WRITE_NOTIFY, GASPI_OP_READ_NOTIFY);
    let (lists, reads) = (GASPI_OP_WRITE_LIST_NOTIFY, GASPI_OP_READ_LIST);
    let too_many = config()?.notification_num;
    gives! {
        gaspi_operation_submit(0, 3, 0, 0, to, 0, 0, 8, 0, 0, 0, LONG) => GASPI_ERROR;
        gaspi_operation_submit(99, 3, 0, 0, to, 0, 0, 8, 0, 0, 0, LONG) => GASPI_ERROR;
        gaspi_operation_submit(reads, 3, 0, 0, to, 0, 0, 8, 0, 0, 0, LONG) => GASPI_ERROR;
        gaspi_operation_submit(write, 3, 9, 0, to, 0, 0, 8, 0, 0, 0, LONG) => GASPI_ERR_INV_SEG;
        gaspi_operation_submit(write, 3, 0, 0, to, 9, 0, 8, 0, 0, 0, LONG) => GASPI_ERR_INV_SEG;
        gaspi_operation_submit(write, 3, 0, 60, to, 0, 0, 8, 0, 0, 0, LONG) => GASPI_ERR_INV_LOC_OFF;
        gaspi_operation_submit(write, 3, 0, 0, to, 0, 60, 8, 0, 0, 0, LONG) => GASPI_ERR_INV_REM_OFF;
        gaspi_operation_submit(write, 3, 0, 0, 999, 0, 0, 8, 0, 0, 0, LONG) => GASPI_ERR_INV_RANK;
        gaspi_operation_submit(write, 3, 0, 0, to, 0, 0, 8, 0, 0, 15, LONG) => GASPI_ERR_INV_QUEUE;
        gaspi_operation_submit(notify, 3, 0, 0, to, 0, 0, 8, 0, 0, 0, LONG) => GASPI_ERR_INV_NOTIF_VAL;
        gaspi_operation_submit(notify, 3, 0, 0, to, 0, 0, 8, too_many, 1, 0, LONG) => GASPI_ERR_INV_NOTIF_ID;
        gaspi_operation_submit(read, 3, 0, 0, to, 0, 0, 8, too_many, 1, 0, LONG) => GASPI_ERR_INV_NOTIF_ID;
        gaspi_operation_submit(GASPI_OP_NOTIFY, 3, 0, 0, to, 9, 0, 0, 0, 1, 0, LONG) => GASPI_ERR_INV_SEG;
    }
    let (id, at, size) = ([0u8; 2], [0u64, 60], [8u64; 2]);
    let (id, at, size, null) = (id.as_ptr(), at.as_ptr(), size.as_ptr(), std::ptr::null());
    // In the last list the second part is wrong.
    gives! {
        gaspi_operation_list_submit(write, 3, 1, id, at, to, id, at, size, 0, 0, 1, 0, LONG) => GASPI_ERROR;
        gaspi_operation_list_submit(lists, 3, 0, id, at, to, id, at, size, 0, 0, 1, 0, LONG) => GASPI_ERR_INV_NUM;
        gaspi_operation_list_submit(lists, 3, 256, id, at, to, id, at, size, 0, 0, 1, 0, LONG) => GASPI_ERR_INV_NUM;
        gaspi_operation_list_submit(lists, 3, 1, null, at, to, null, at, size, 0, 0, 1, 0, LONG) => GASPI_ERR_NULLPTR;
        gaspi_operation_list_submit(lists, 3, 2, id, at, to, id, at, size, 0, 0, 1, 0, LONG) => GASPI_ERR_INV_LOC_OFF;
    }
    nothing_left(0..1)?;
    let (mut num, mut tag) = (0, 0);
    let mut status = gaspi_status_t { error: 0 };
    gives! {
        gaspi_request_wait(0, 1, null_mut(), &mut tag, &mut status, TEST) => GASPI_ERR_NULLPTR;
        gaspi_request_wait(0, 1, &mut num, null_mut(), &mut status, TEST) => GASPI_ERR_NULLPTR;
        gaspi_request_wait(0, 1, &mut num, &mut tag, null_mut(), TEST) => GASPI_ERR_NULLPTR;
        gaspi_request_wait(15, 1, &mut num, &mut tag, &mut status, TEST) => GASPI_ERR_INV_QUEUE;
        gaspi_operation_get_num_requests(0, 1, &mut num) => GASPI_ERROR;
        gaspi_operation_get_num_requests(write, 1, null_mut()) => GASPI_ERR_NULLPTR;
    }
    barrier()
}

fn death(ctx: &Ctx) -> Verdict {
    let (_, room) = segments(ctx)?;
    ctx.sync();
    let victim = ctx.size - 1;
    if ctx.rank == victim {
        return stop_until_killed(ctx);
    }
    let dead = |job: &Job| u32::from(job.peer) == victim;
    let mut posted = Vec::new();
    for job in all(ctx, 0..QUEUES) {
        match job.submit(ctx, LONG) {
            SUCCESS => posted.push(job),
            // The library may have seen the death already.
            code if dead(&job) => must_fail(code, format!("{job:?}"))?,
            code => return Err(format!("{job:?} gave {}", code_name(code))),
        }
    }
    collect(0..QUEUES, &posted, BLOCK, |job, status| match dead(&job) {
        // Over shared memory the write completes at once.
        true => {
            ensure!([SUCCESS, ERROR].contains(&status), "{job:?}: {status}");
            Ok(())
        }
        false => {
            succeeded(job, status)?;
            job.check_read(ctx, &room)
        }
    })?;
    nothing_left(0..QUEUES)?;
    until_corrupt(ctx, victim)?;
    let again: Vec<Job> = all(ctx, 0..1).into_iter().filter(dead).collect();
    for job in &again {
        ensure_eq!(job.submit(ctx, LONG), SUCCESS, "{job:?} to the dead");
    }
    collect(0..1, &again, BLOCK, |job, status| {
        equal!(status, ERROR, "the status of {job:?} to the dead")
    })?;
    // The queue is still usable.
    let other = 1 - ctx.rank as u16;
    ensure_eq!(write(5, other, 0, LONG), SUCCESS, "a write to the living");
    ensure_eq!(reports(0, LONG)?, (SUCCESS, vec![(5, SUCCESS)]), "report");
    ctx.sync();
    Ok(())
}

//! §5.5, §5.3.1: processes that are killed while they are in a call, one law for each point of a run.
//!
//! All ranks do the same steps. In the law's step a process is killed, at a moment that the seed selects. The others go on until a call
//! fails. Another process takes the dead one's place, and all ranks repeat all steps from the beginning.

use std::cell::Cell;
use std::time::Duration;

use super::kit::*;
use super::replacement::{all_healthy, incarnation, together};

macro_rules! points {
    ($($name:ident: $id:literal, $clause:literal, [$($procedure:ident),*], $what:literal;)*) => {
        laws! {
            $($name: $id, $clause, 3, [$($procedure),*] + needs_kill + replaces + ordering,
                $what;)*
        }

        /// The steps of a run, in this order.
        const STEPS: &[fn(&Run<'_>) -> Step] = &[$(steps::$name),*];

        $(fn $name(ctx: &Ctx) -> Verdict {
            killed_in(ctx, steps::$name)
        })*
    };
}

points! {
    segment_alloc: "killed.segment_register", "§7.2.2, §5.5", [gaspi_segment_alloc, gaspi_segment_register],
        "a process is killed while all register segments with each other; another one takes its place, and all goes on";
    segment_create: "killed.segment_create", "§7.2.3, §5.5", [gaspi_segment_create],
        "a process is killed while all create a segment; another one takes its place, and all goes on";
    group_commit: "killed.group_commit", "§6.3.3, §5.5", [gaspi_group_create, gaspi_group_add, gaspi_group_commit],
        "a process is killed while all commit a group; another one takes its place, and all goes on";
    barriers: "killed.barrier", "§11.2.1, §5.5", [gaspi_barrier],
        "a process is killed in barriers; another one takes its place, and all goes on";
    allreduces: "killed.allreduce", "§11.3.1, §5.5", [gaspi_allreduce],
        "a process is killed in reductions of one number; another one takes its place, and all goes on";
    long_allreduces: "killed.allreduce.long", "§11.3.1, §5.5", [gaspi_allreduce],
        "a process is killed in reductions of as many numbers as there may be; another one takes its place, and all goes on";
    writes: "killed.write", "§8.2.1, §5.5", [gaspi_write, gaspi_wait],
        "a process is killed while all write to their neighbours; another one takes its place, and all goes on";
    notified_writes: "killed.write_notify", "§8.3.2, §5.5", [gaspi_write_notify, gaspi_notify_waitsome, gaspi_notify_reset],
        "a process is killed while all write to their neighbours and wait for these; another one takes its place, and all goes on";
    notifies: "killed.notify", "§8.3.2, §5.5", [gaspi_notify, gaspi_notify_waitsome],
        "a process is killed while all notify all; another one takes its place, and all goes on";
    reads: "killed.read", "§8.2.2, §5.5", [gaspi_read, gaspi_wait],
        "a process is killed while all read from their neighbours; another one takes its place, and all goes on";
    lists_written: "killed.write_list", "§8.4.2, §5.5", [gaspi_write_list],
        "a process is killed while all write lists; another one takes its place, and all goes on";
    lists_read: "killed.read_list", "§8.4.5, §5.5", [gaspi_read_list],
        "a process is killed while all read lists; another one takes its place, and all goes on";
    lists_notified: "killed.write_list_notify", "§8.4.3, §5.5", [gaspi_write_list_notify],
        "a process is killed while all write lists with a notification; another one takes its place, and all goes on";
    fetch_adds: "killed.atomic_fetch_add", "§10.2.1, §5.5", [gaspi_atomic_fetch_add],
        "a process is killed while all add to a value of each rank; another one takes its place, and all goes on";
    compare_swaps: "killed.atomic_compare_swap", "§10.2.2, §5.5", [gaspi_atomic_compare_swap],
        "a process is killed while all take and give back a lock; another one takes its place, and all goes on";
    passive: "killed.passive", "§9.2, §5.5", [gaspi_passive_send, gaspi_passive_receive],
        "a process is killed while all send passive messages to one; another one takes its place, and all goes on";
    queues: "killed.queue", "§8.5, §5.5", [gaspi_queue_create, gaspi_queue_delete],
        "a process is killed while all use queues that they create; another one takes its place, and all goes on";
    connections: "killed.connect", "§5.4, §5.5", [gaspi_connect, gaspi_disconnect],
        "a process is killed while all close connections and open them again; another one takes its place, and all goes on";
    group_delete: "killed.group_delete", "§6.4.1, §5.5", [gaspi_group_delete],
        "a process is killed while all delete a group; another one takes its place, and all goes on";
    segment_delete: "killed.segment_delete", "§7.3.1, §5.5", [gaspi_segment_delete],
        "a process is killed while all delete a segment; another one takes its place, and all goes on";
}

/// The failure of a step.
enum Fault {
    /// A call gave an error: a process has died.
    Code(&'static str, i32),
    /// A check failed.
    Wrong(String),
}

type Step = Result<(), Fault>;

impl From<String> for Fault {
    fn from(text: String) -> Fault {
        Fault::Wrong(text)
    }
}

/// Ends the step unless the call succeeds.
macro_rules! needs {
    ($name:ident($($arg:expr),* $(,)?)) => {
        succeeded(stringify!($name), c!($name($($arg),*)))?
    };
}

fn succeeded(call: &'static str, code: i32) -> Step {
    match code {
        SUCCESS => Ok(()),
        code => Err(Fault::Code(call, code)),
    }
}

struct Run<'a> {
    ctx: &'a Ctx,
    victim: u32,
    /// The number of this attempt at the steps, from 1.
    attempt: u64,
    group: Cell<Option<u8>>,
}

/// The segment that all ranks create together.
const SEGMENT: u8 = 1;
/// The segment that each rank allocates and registers with the others.
const OWN: u8 = 2;
const LEN: usize = 8192;

fn killed_in(ctx: &Ctx, point: fn(&Run<'_>) -> Step) -> Verdict {
    let mut random = ctx.random(3);
    let victim = random.below(u64::from(ctx.size)) as u32;
    let moment = Duration::from_micros(random.below(300));
    let mut run = Run {
        ctx,
        victim,
        attempt: 1 + u64::from(incarnation()?),
        group: Cell::new(None),
    };
    if run.attempt > 1 {
        together()?;
    } else {
        // All ranks meet first: a rank that starts after the death knows only the new process, and sees no death.
        ctx.sync();
    }
    loop {
        let mut ended = Ok(());
        for step in STEPS {
            let here = std::ptr::fn_addr_eq(*step, point);
            let dies = here && ctx.rank == victim && run.attempt == 1;
            ended = match dies {
                true => dies_in(&run, *step, moment),
                false => step(&run),
            };
            ended = ended.and_then(|()| all_meet());
            if ended.is_err() {
                break;
            }
        }
        match ended {
            Ok(()) => break,
            Err(Fault::Wrong(text)) => return Err(text),
            Err(Fault::Code(name, code)) => {
                must_fail(code, name)?;
                ensure!(
                    run.attempt == 1,
                    "{name} gave {} though no further rank has died",
                    code_name(code)
                );
            }
        }
        clear(&run)?;
        run.attempt += 1;
    }
    ensure_eq!(run.attempt, 2, "how often the steps were begun");
    Ok(())
}

fn all_meet() -> Step {
    needs!(gaspi_barrier(ALL, BLOCK));
    Ok(())
}

/// Does the step. Another thread kills this process during the step, or a moment later.
fn dies_in(run: &Run<'_>, step: fn(&Run<'_>) -> Step, moment: Duration) -> Step {
    let ctx = run.ctx.clone();
    std::thread::spawn(move || {
        std::thread::sleep(moment);
        ctx.dies();
    });
    let _ = step(run);
    loop {
        std::thread::park();
    }
}

/// After a death: waits for the new process, and deletes the objects that the steps have created.
fn clear(run: &Run<'_>) -> Verdict {
    all_healthy(run.ctx, &[run.victim])?;
    repeat("gaspi_queue_purge", || c!(gaspi_queue_purge(0, LONG)))?;
    repeat("gaspi_passive_queue_purge", || {
        c!(gaspi_passive_queue_purge(LONG))
    })?;
    if let Some(group) = run.group.take() {
        ok!(gaspi_group_delete(group));
    }
    for segment in [SEGMENT, OWN] {
        // The segment may not exist.
        let _ = c!(gaspi_segment_delete(segment));
    }
    for rank in others(run.ctx) {
        ok!(gaspi_connect(rank, LONG));
    }
    together()
}

mod steps {
    use super::*;

    pub fn segment_alloc(run: &Run<'_>) -> Step {
        needs!(gaspi_segment_alloc(OWN, LEN as u64, 1));
        for rank in 0..run.ctx.size as u16 {
            needs!(gaspi_segment_register(OWN, rank, BLOCK));
        }
        Ok(())
    }

    pub fn segment_create(_: &Run<'_>) -> Step {
        needs!(gaspi_segment_create(SEGMENT, LEN as u64, ALL, BLOCK, 1));
        Ok(())
    }

    pub fn group_commit(run: &Run<'_>) -> Step {
        let mut group = 0;
        needs!(gaspi_group_create(&mut group));
        run.group.set(Some(group));
        for rank in 0..run.ctx.size as u16 {
            needs!(gaspi_group_add(group, rank));
        }
        needs!(gaspi_group_commit(group, BLOCK));
        Ok(())
    }

    pub fn barriers(run: &Run<'_>) -> Step {
        let group = run.group.get().unwrap_or(ALL);
        for _ in 0..30 {
            needs!(gaspi_barrier(group, BLOCK));
        }
        Ok(())
    }

    fn reduced<const N: usize>(run: &Run<'_>) -> Step {
        for round in 1..=10u64 {
            let (send, mut sum) = ([round; N], [0u64; N]);
            let (from, into) = (send.as_ptr().cast(), sum.as_mut_ptr().cast());
            needs!(gaspi_allreduce(from, into, N as u32, 2, 5, ALL, BLOCK));
            ensure_wrong(sum == [round * u64::from(run.ctx.size); N], "the sum")?;
        }
        Ok(())
    }

    fn ensure_wrong(right: bool, what: &str) -> Step {
        match right {
            true => Ok(()),
            false => Err(Fault::Wrong(format!("{what} is wrong"))),
        }
    }

    pub fn allreduces(run: &Run<'_>) -> Step {
        reduced::<1>(run)
    }

    pub fn long_allreduces(run: &Run<'_>) -> Step {
        reduced::<255>(run)
    }

    /// The first half of the segment is the source, the second half is the target.
    const THERE: u64 = LEN as u64 / 2;

    /// Waits for a notification and resets it. Gives its value.
    fn notified(id: u32) -> Result<u32, Fault> {
        let (mut first, mut value) = (0, 0);
        needs!(gaspi_notify_waitsome(SEGMENT, id, 1, &mut first, BLOCK));
        needs!(gaspi_notify_reset(SEGMENT, first, &mut value));
        Ok(value)
    }

    fn wait() -> Step {
        needs!(gaspi_wait(0, BLOCK));
        Ok(())
    }

    pub fn writes(run: &Run<'_>) -> Step {
        let memory = memory(SEGMENT, LEN)?;
        for round in 1..=10 {
            memory.set(0, round);
            let write = post::write(SEGMENT, 0, right(run.ctx), SEGMENT, THERE, 2048);
            succeeded("gaspi_write", write.code(0, BLOCK))?;
            wait()?;
        }
        needs!(gaspi_barrier(ALL, BLOCK));
        ensure_wrong(memory.get(THERE as usize) == 10, "what was written")
    }

    pub fn notified_writes(run: &Run<'_>) -> Step {
        let memory = memory(SEGMENT, LEN)?;
        for round in 1..=10 {
            memory.set(0, round);
            let write = post::write_notify(SEGMENT, 0, right(run.ctx), SEGMENT, THERE, 1024, 5, 1);
            succeeded("gaspi_write_notify", write.code(0, BLOCK))?;
            notified(5)?;
            let come = memory.get(THERE as usize) >= round;
            ensure_wrong(come, "the data before the notification")?;
            wait()?;
            needs!(gaspi_barrier(ALL, BLOCK));
        }
        Ok(())
    }

    pub fn notifies(run: &Run<'_>) -> Step {
        for to in 0..run.ctx.size as u16 {
            needs!(gaspi_notify(SEGMENT, to, 10 + run.ctx.rank, 3, 0, BLOCK));
        }
        wait()?;
        for from in 0..run.ctx.size {
            let value = notified(10 + from)?;
            ensure_wrong(value == 3, "the value of the notification")?;
        }
        Ok(())
    }

    pub fn reads(run: &Run<'_>) -> Step {
        for _ in 0..10 {
            let read = post::read(SEGMENT, THERE, left(run.ctx), SEGMENT, 0, 2048);
            succeeded("gaspi_read", read.code(0, BLOCK))?;
            wait()?;
        }
        Ok(())
    }

    fn list(here_first: bool) -> post::Parts {
        let ordered = [(0, 8), (512, 512), (1024, 64)].map(|(at, size)| match here_first {
            true => (at, THERE + at, size),
            false => (THERE + at, at, size),
        });
        post::Parts::new(SEGMENT, SEGMENT, &ordered)
    }

    pub fn lists_written(run: &Run<'_>) -> Step {
        let (list, to) = (list(true), right(run.ctx));
        for _ in 0..10 {
            succeeded("gaspi_write_list", list.write(to).code(0, BLOCK))?;
            wait()?;
        }
        Ok(())
    }

    pub fn lists_read(run: &Run<'_>) -> Step {
        let list = list(false);
        for _ in 0..10 {
            succeeded("gaspi_read_list", list.read(left(run.ctx)).code(0, BLOCK))?;
            wait()?;
        }
        Ok(())
    }

    pub fn lists_notified(run: &Run<'_>) -> Step {
        let list = list(true);
        let posted = list.write_notify(right(run.ctx), SEGMENT, 6, 1);
        succeeded("gaspi_write_list_notify", posted.code(0, BLOCK))?;
        notified(6)?;
        wait()
    }

    pub fn fetch_adds(run: &Run<'_>) -> Step {
        let memory = memory(OWN, LEN)?;
        for _ in 0..10 {
            for to in 0..run.ctx.size as u16 {
                let mut old = 0;
                needs!(gaspi_atomic_fetch_add(OWN, 0, to, 1, &mut old, BLOCK));
            }
        }
        needs!(gaspi_barrier(ALL, BLOCK));
        let sum = 10 * u64::from(run.ctx.size);
        ensure_wrong(memory.get(0) == sum, "the sum of the additions")
    }

    pub fn compare_swaps(run: &Run<'_>) -> Step {
        let me = u64::from(run.ctx.rank) + 1;
        for _ in 0..5 {
            loop {
                let mut old = 9;
                needs!(gaspi_atomic_compare_swap(OWN, 8, 0, 0, me, &mut old, BLOCK));
                if old == 0 {
                    break;
                }
                // The lock's owner may have been killed.
                needs!(gaspi_proc_ping(run.victim as u16, BLOCK));
                std::thread::yield_now();
            }
            let mut old = 0;
            needs!(gaspi_atomic_compare_swap(OWN, 8, 0, me, 0, &mut old, BLOCK));
            ensure_wrong(old == me, "the owner of the lock")?;
        }
        Ok(())
    }

    pub fn passive(run: &Run<'_>) -> Step {
        let memory = memory(OWN, LEN)?;
        memory.set(64, run.attempt);
        if run.ctx.rank > 0 {
            loop {
                match c!(gaspi_passive_send(OWN, 64, 0, 8, 50)) {
                    SUCCESS => return Ok(()),
                    TIMEOUT => needs!(gaspi_proc_ping(run.victim as u16, BLOCK)),
                    code => return Err(Fault::Code("gaspi_passive_send", code)),
                }
            }
        }
        let mut missing = run.ctx.size - 1;
        while missing > 0 {
            let mut from = 0;
            needs!(gaspi_passive_receive(OWN, 128, &mut from, 8, BLOCK));
            // A message of an earlier attempt was sent before the death.
            if memory.get(128) == run.attempt {
                missing -= 1;
            }
        }
        Ok(())
    }

    pub fn queues(run: &Run<'_>) -> Step {
        for _ in 0..5 {
            let mut queue = 0;
            needs!(gaspi_queue_create(&mut queue, BLOCK));
            let write = post::write(SEGMENT, 0, right(run.ctx), SEGMENT, THERE, 512);
            let (code, waited) = (write.code(queue, BLOCK), c!(gaspi_wait(queue, BLOCK)));
            needs!(gaspi_queue_purge(queue, BLOCK));
            needs!(gaspi_queue_delete(queue));
            succeeded("gaspi_write", code)?;
            succeeded("gaspi_wait", waited)?;
        }
        Ok(())
    }

    pub fn connections(run: &Run<'_>) -> Step {
        needs!(gaspi_disconnect(right(run.ctx), BLOCK));
        needs!(gaspi_barrier(ALL, BLOCK));
        needs!(gaspi_connect(right(run.ctx), BLOCK));
        Ok(())
    }

    pub fn group_delete(run: &Run<'_>) -> Step {
        if let Some(group) = run.group.take() {
            needs!(gaspi_group_delete(group));
        }
        Ok(())
    }

    pub fn segment_delete(_: &Run<'_>) -> Step {
        needs!(gaspi_segment_delete(SEGMENT));
        Ok(())
    }
}

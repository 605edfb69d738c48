//! Threads that sleep until an operation of another thread of their process has ended. With UNIPGAS_TEST_SLEEPS_UNTIL_RUNG only a wake-up ends
//! a sleep: a lost wake-up is a hang.

use std::ptr::null;

use super::collective::{COLLECTIVE, Club};
use super::collective_data::{KINDS, NAMES, deed};
use super::kit::*;
use super::progress::Shared;
use super::station::{Plan, close, name_of};
use super::wait_set::{counter_attr, open, queue_attr};
use super::waiting::readable;

laws! {
    wakes with(&Plan::DEFAULT, 256): "wake.other-thread", "fi_cq(3), fi_cntr(3), fi_poll(3)", 2,
        [cq_sread, cntr_wait, trywait, wait, write, read, fetch_atomic, send, recv, inject],
        "a thread that sleeps at a queue, a counter, their descriptors or a wait set is woken by each end of an operation of another thread";
    collectives with(&COLLECTIVE, 256): "wake.collective", "fi_collective(3), fi_cq(3), fi_cntr(3), fi_poll(3)", 3,
        [cq_sread, cntr_wait, trywait, wait, barrier, broadcast, alltoall, allreduce, allgather, reduce_scatter, reduce, scatter, gather],
        "a collective operation gets on and ends while its members only sleep at a queue, a counter, their descriptors or a wait set";
}

/// An endpoint whose operations are all told by one queue and one counter.
struct Told {
    set: *mut fid_wait,
    queue: Queue,
    counter: *mut fid_cntr,
    ep: *mut fid_ep,
}

// SAFETY:
// - its objects are opened with FI_THREAD_SAFE.
unsafe impl Sync for Told {}

impl Told {
    /// `events`: null, or an event queue for joins.
    fn open(job: &Job<'_>, wait_obj: c_int, events: *mut fid_eq) -> Result<Told, String> {
        let (domain, ep) = (job.station.domain, job.station.bare()?);
        let (mut queue, mut counter, mut set) = (null_mut(), null_mut(), null_mut());
        if wait_obj == FI_WAIT_SET {
            set = open(job)?;
        }
        let mut attr = fi_cq_attr {
            wait_obj,
            ..queue_attr(set)
        };
        ok!(obj domain, cq_open(&mut attr, &mut queue, null_mut()));
        let mut attr = fi_cntr_attr {
            wait_obj,
            ..counter_attr(set)
        };
        ok!(obj domain, cntr_open(&mut attr, &mut counter, null_mut()));
        ok!(fid ep, bind(job.station.av.cast(), 0));
        if !events.is_null() {
            ok!(fid ep, bind(events.cast(), 0));
        }
        ok!(fid ep, bind(queue.cast(), FI_TRANSMIT | FI_RECV));
        ok!(fid ep, bind(counter.cast(), FI_WRITE | FI_READ | FI_SEND | FI_RECV));
        ok!(fid ep, control(FI_ENABLE, null_mut()));
        let queue = Queue(queue);
        Ok(Told {
            set,
            queue,
            counter,
            ep,
        })
    }

    fn close(self) -> Verdict {
        close(self.ep)?;
        close(self.queue.0)?;
        close(self.counter)?;
        if self.set.is_null() {
            return Ok(());
        }
        close(self.set)
    }
}

/// Sleeps until there is news after this value of the counter. Gives the number of entries that it has taken.
type Sleep = fn(&Job<'_>, &Told, u64) -> Result<usize, String>;

const WAITS: [(&str, c_int, Sleep); 5] = [
    ("fi_cq_sread", FI_WAIT_UNSPEC, |_, told, _| {
        let (mut entry, queue) = (blank(), told.queue.0);
        match call!(obj queue, sread((&raw mut entry).cast(), 1, null(), LONG)) {
            1 => Ok(1),
            AVAIL => Ok(0),
            code => Err(format!("fi_cq_sread gave {}", code_name(code))),
        }
    }),
    ("a queue's descriptor", FI_WAIT_FD, |job, told, _| {
        at_descriptor(job, told.queue.0.cast())
    }),
    ("fi_cntr_wait", FI_WAIT_UNSPEC, |_, told, before| {
        let counter = told.counter;
        let seen = call!(obj counter, wait(before + 1, LONG)) as isize;
        ensure!([0, AVAIL].contains(&seen), "fi_cntr_wait gave {seen}");
        Ok(0)
    }),
    ("a counter's descriptor", FI_WAIT_FD, |job, told, _| {
        at_descriptor(job, told.counter.cast())
    }),
    ("fi_wait", FI_WAIT_SET, |_, told, _| {
        let set = told.set;
        ok!(obj set, wait(LONG));
        Ok(0)
    }),
];

fn at_descriptor(job: &Job<'_>, object: *mut fid) -> Result<usize, String> {
    let (mut descriptor, mut list) = (-1, [object]);
    let queue = object.cast::<fid_cq>();
    // Each object begins with its fid.
    ok!(fid queue, control(FI_GETWAIT, (&raw mut descriptor).cast()));
    let code = call!(obj job.station.fabric, trywait(list.as_mut_ptr(), 1));
    ensure!(
        code as isize == AGAIN || readable(descriptor, LONG),
        "never readable"
    );
    Ok(0)
}

static ONE: u64 = 1;

/// An operation of the endpoint. Messages go to the endpoint itself.
type Event = fn(&Job<'_>, *mut fid_ep, u64, *mut c_void) -> isize;

/// Name, entries of the queue, count, and the operation.
const EVENTS: [(&str, usize, u64, Event); 6] = [
    ("fi_write", 1, 1, |job, ep, _, _| {
        let (to, at, key) = job.place(job.right(), 8);
        call!(rma ep, write((&raw const ONE).cast(), 8, null_mut(), to, at, key, cx(1)))
    }),
    ("fi_read", 1, 1, |job, ep, _, room| {
        let (to, at, key) = job.place(job.right(), 8);
        call!(rma ep, read(room, 8, null_mut(), to, at, key, cx(1)))
    }),
    ("fi_fetch_atomic", 1, 1, |job, ep, _, room| {
        let (to, at, key) = job.place(job.right(), 16);
        call!(atomic ep, readwrite((&raw const ONE).cast(), 1, null_mut(), room, null_mut(), to, at, key, UINT64, SUM, cx(1)))
    }),
    ("a failing fi_write", 1, 1, |job, ep, _, _| {
        let (to, at, key) = job.place(job.right(), 8);
        call!(rma ep, write((&raw const ONE).cast(), 8, null_mut(), to, at, key + (1 << 30), cx(1)))
    }),
    (
        "fi_send",
        2,
        2,
        |_, ep, own, _| call!(msg ep, send((&raw const ONE).cast(), 8, null_mut(), own, cx(1))),
    ),
    (
        "fi_inject",
        1,
        2,
        |_, ep, own, _| call!(msg ep, inject((&raw const ONE).cast(), 8, own)),
    ),
];

fn wakes(job: &Job<'_>) -> Verdict {
    let room = Memory::new(16);
    for (wait, wait_obj, sleep) in WAITS {
        let told = Told::open(job, wait_obj, null_mut())?;
        let own = job.station.insert(&name_of(told.ep)?)?;
        for round in 0..3 {
            for (event, entries, count, post) in EVENTS {
                let what = format!("{event}, {wait}");
                if event.contains("send") || event.contains("inject") {
                    let (ep, to) = (told.ep, room.at(8).cast());
                    ok!(msg ep, recv(to, 8, null_mut(), FI_ADDR_UNSPEC, cx(2)));
                }
                let (shared, sleeper, before) = (Shared(job), &told, value_of(told.counter));
                let all = before + errors_of(told.counter) + count;
                let taken = std::thread::scope(|scope| {
                    let shared = &shared;
                    let sleeps = scope.spawn(move || sleep(shared.0, sleeper, before));
                    pause(round);
                    job.post(|| post(job, told.ep, own, room.base.cast()))?;
                    sleeps.join().map_err(|_| format!("{what}: a panic"))?
                });
                let taken = taken.map_err(|text| format!("{what}: {text}"))?;
                let mut looks = Looks::for_the("the entries of an operation");
                for _ in taken..entries {
                    loop {
                        match told.queue.read().0 {
                            1 => break,
                            AVAIL => {
                                told.queue.take_error()?;
                                break;
                            }
                            _ => looks.again(),
                        }
                    }
                }
                // The values are read: the next sleep is for news.
                until(&format!("{what}: the counter"), || {
                    value_of(told.counter) + errors_of(told.counter) == all
                })?;
            }
        }
        told.close()?;
    }
    job.meet_and_progress();
    room.free();
    Ok(())
}

fn collectives(job: &Job<'_>) -> Verdict {
    let (operand, mut result) = ([1u64; 8], [0u64; 8]);
    for (wait, wait_obj, sleep) in WAITS {
        let eq = open!(obj job.station.fabric, eq_open(null_mut()));
        let told = Told::open(job, wait_obj, eq)?;
        let club = Club::of(job, eq, told.ep)?;
        let group = club.all()?;
        for (kind, name) in KINDS.zip(NAMES).cycle().take(NAMES.len() * 2) {
            let what = format!("{name}, {wait}");
            let root = club.addresses[kind as usize % job.size as usize];
            let buffers = (operand.as_ptr(), result.as_mut_ptr());
            let deed = deed(kind, group, (UINT64, SUM), 2).with(root, buffers, 4);
            let before = value_of(told.counter);
            pause(job.ctx.random(kind as u64).below(3));
            job.post(|| deed.post(told.ep))?;
            let mut taken = 0;
            // A sleep may end before the operation does.
            while value_of(told.counter) == before {
                taken += sleep(job, &told, before).map_err(|text| format!("{what}: {text}"))?;
            }
            ensure_eq!(errors_of(told.counter), 0, "{what}: failures");
            if taken == 0 {
                told.queue.of(4)?;
            }
        }
        job.ctx.sync_while(&mut || told.queue.progress());
        close(group)?;
        told.close()?;
        close(eq)?;
    }
    Ok(())
}

//! Wait sets (fi_poll(3)).

use super::death::survived;
use super::kit::*;
use super::srx::Own;

laws! {
    news with(&Plan::DEFAULT, 256): "wait.set", "fi_poll(3)", 2, [wait_open, wait, cq_open, cntr_open, send, recv],
        "a wait for a set ends when a message comes, and when a counter changes, for queues of any endpoint";
    local with(&Plan::DEFAULT, 256): "wait.local", "fi_poll(3)", 1, [wait, cntr_add, eq_write],
        "so it does when another thread counts, or writes an event; without either it ends with -FI_ETIMEDOUT";
    dead survived(&Plan::DEFAULT.caps(FI_MSG | FI_DIRECTED_RECV)): "wait.dead", "fi_poll(3)", 2, [wait, recv, cq_readerr] + needs_kill,
        "so it does when the peer that is waited for has died";
    refused with(&Plan::DEFAULT, 256):
        "wait.refused", "fi_poll(3), fi_cq(3), fi_cntr(3), fi_eq(3)", 1, [wait_open, cq_open, cntr_open, eq_open, cq_sread, cntr_wait, eq_sread, close],
        "an object of a wait set cannot be waited for alone, and prevents the closing of the set; unknown attributes and sets of other fabrics are refused";
    closed with(&Plan::DEFAULT, 256):
        "wait.closed", "fi_cq(3), fi_cntr(3), fi_eq(3), fi_poll(3)", 1, [close, cq_sread, cntr_wait, eq_sread, wait],
        "closing a queue, counter, event queue or set ends the wait of another thread with -FI_ECANCELED, and frees nothing before";
}

pub(crate) fn open(job: &Job<'_>) -> Result<*mut fid_wait, String> {
    let mut set = null_mut();
    let mut attr = fi_wait_attr {
        wait_obj: FI_WAIT_UNSPEC,
        flags: 0,
    };
    ok!(obj job.station.fabric, wait_open(&mut attr, &mut set));
    Ok(set)
}

pub(super) fn queue_attr(set: *mut fid_wait) -> fi_cq_attr {
    fi_cq_attr {
        wait_set: set.cast(),
        ..super::station::queue_attr(&Plan::DEFAULT.wait(FI_WAIT_SET))
    }
}

pub(super) fn counter_attr(set: *mut fid_wait) -> fi_cntr_attr {
    super::station::counter_attr(FI_WAIT_SET, set)
}

fn counter(job: &Job<'_>, set: *mut fid_wait) -> Result<*mut fid_cntr, String> {
    Ok(open!(obj job.station.domain, cntr_open(&mut counter_attr(set))))
}

fn queue(job: &Job<'_>, set: *mut fid_wait) -> Result<Queue, String> {
    let queue = open!(obj job.station.domain, cq_open(&mut queue_attr(set)));
    Ok(Queue(queue))
}

/// An endpoint with a receive queue and counter in a wait set.
struct Listener {
    set: *mut fid_wait,
    own: Own,
}

impl Listener {
    fn open(job: &Job<'_>) -> Result<Listener, String> {
        let set = open(job)?;
        let (rx, counter) = (queue(job, set)?, counter(job, set)?);
        let ep = job.station.bare()?;
        ok!(fid ep, bind(job.station.av.cast(), 0));
        ok!(fid ep, bind(job.tx.0.cast(), FI_TRANSMIT));
        ok!(fid ep, bind(rx.0.cast(), FI_RECV));
        ok!(fid ep, bind(counter.cast(), FI_RECV));
        ok!(fid ep, control(FI_ENABLE, null_mut()));
        let own = Own { ep, rx, counter };
        Ok(Listener { set, own })
    }

    fn close(self) -> Verdict {
        self.own.close()?;
        close(self.set)
    }
}

fn news(job: &Job<'_>) -> Verdict {
    let listener = Listener::open(job)?;
    job.ctx.tell(&name_of(listener.own.ep)?);
    job.meet();
    let to = job.known(job.right())?;
    let word = Buffer::new(8);
    for round in 0..3u64 {
        receive_each(None, listener.own.ep, (&word, 8), [0])?;
        job.meet();
        // The right neighbour of rank 0 waits before its message is sent.
        if job.rank == 0 {
            pause(2);
        }
        let bytes = (round + 1).to_le_bytes();
        job.post(|| inject_as(None, (job.ep, to), &bytes))?;
        let mut entry = blank();
        loop {
            ok!(obj listener.set, wait(LONG));
            if call!(obj listener.own.rx.0, read((&raw mut entry).cast(), 1)) == 1 {
                break;
            }
        }
        ensure_eq!(entry.context(), 0, "the receive");
        word.holds(0, &bytes, "the message")?;
        ensure_eq!(value_of(listener.own.counter), round + 1, "the counter");
    }
    job.meet();
    listener.close()
}

fn closed(job: &Job<'_>) -> Verdict {
    let (domain, fabric) = (job.station.domain, job.station.fabric);
    for round in 0..12u64 {
        let mut attr = super::station::queue_attr(&Plan::DEFAULT.wait(FI_WAIT_UNSPEC));
        let object: *mut fid = match round % 4 {
            0 => open!(obj domain, cq_open(&mut attr)).cast(),
            1 => job.station.counter()?.cast(),
            2 => open!(obj fabric, eq_open(null_mut())).cast(),
            _ => open(job)?.cast(),
        };
        let at = object.addr();
        let wait = move || {
            let (mut room, mut kind) = ([0u64; 16], 0);
            let room = room.as_mut_ptr().cast();
            let (queue, counter) = (at as *mut fid_cq, at as *mut fid_cntr);
            let (events, set) = (at as *mut fid_eq, at as *mut fid_wait);
            match round % 4 {
                0 => call!(obj queue, sread(room, 1, null(), -1)),
                1 => call!(obj counter, wait(1, -1)) as isize,
                2 => call!(obj events, sread(&mut kind, room, 64, -1, 0)),
                _ => call!(obj set, wait(-1)) as isize,
            }
        };
        let (code, closed) = beside(wait, || {
            // Calls after the close are undefined: the pause lets the wait begin.
            pause(40 + round);
            close(object)
        })?;
        closed?;
        ensure_eq!(code, -(FI_ECANCELED as isize), "the wait of round {round}");
    }
    Ok(())
}

fn local(job: &Job<'_>) -> Verdict {
    let set = open(job)?;
    let counter = counter(job, set)?;
    let events = super::event::open_sized(job, 0, FI_WAIT_SET, set)?;
    gives!(FI_ETIMEDOUT, obj set, wait(0));
    gives!(FI_ETIMEDOUT, obj set, wait(5));
    let (there, of_events) = (counter.addr(), events.addr());
    for counts in [true, false, true] {
        let tell = move || {
            pause(2);
            let (counter, events) = (there as *mut fid_cntr, of_events as *mut fid_eq);
            match counts {
                true => call!(obj counter, add(1)) as isize,
                false => call!(obj events, write(7, (&raw const counts).cast(), 1, 0)),
            }
        };
        let codes = beside(tell, || call!(obj set, wait(LONG)))?;
        ensure_eq!(
            codes,
            (isize::from(!counts), 0),
            "the other call, and the wait"
        );
        if !counts {
            // An unread event ends the next wait at once.
            ok!(obj set, wait(0));
            let (mut kind, mut byte) = (0, 9u8);
            let got = call!(obj events, read(&mut kind, (&raw mut byte).cast(), 1, 0));
            ensure_eq!((got, kind), (1, 7), "the event");
        }
        gives!(FI_ETIMEDOUT, obj set, wait(0));
    }
    close(events)?;
    close(counter)?;
    close(set)
}

fn dead(job: &Job<'_>) -> Verdict {
    job.meet();
    let victim = super::death::victim(job);
    if job.rank == victim {
        job.ctx.dies();
    }
    let listener = Listener::open(job)?;
    let (word, from) = (Buffer::new(8), job.peer(victim).address);
    ok!(msg listener.own.ep, recv(word.base.cast(), 8, null_mut(), from, cx(4)));
    loop {
        ok!(obj listener.set, wait(LONG));
        match listener.own.rx.read() {
            (AVAIL, _) => break,
            // The wait may end for the error counter, before the queue's entry.
            (code, _) => ensure_eq!(code, AGAIN, "reading"),
        }
    }
    ensure_eq!(
        listener.own.rx.take_error()?.err,
        FI_ECONNRESET,
        "the failure"
    );
    listener.close()?;
    Ok(())
}

fn refused(job: &Job<'_>) -> Verdict {
    let (fabric, domain, none) = (job.station.fabric, job.station.domain, null_mut());
    let mut set: *mut fid_wait = null_mut();
    gives!(FI_EINVAL, obj fabric, wait_open(null_mut(), null_mut()));
    for (wait_obj, flags, code) in [
        (FI_WAIT_UNSPEC, 1, FI_EINVAL),
        (FI_WAIT_NONE, 0, FI_EINVAL),
        (FI_WAIT_SET, 0, FI_EINVAL),
        (FI_WAIT_FD, 0, FI_ENOSYS),
        (99, 0, FI_ENOSYS),
    ] {
        let mut attr = fi_wait_attr { wait_obj, flags };
        let seen = call!(obj fabric, wait_open(&mut attr, &mut set));
        ensure_eq!(seen, -code, "wait object {wait_obj}, flags {flags}");
    }
    // Attributes are optional.
    ok!(obj fabric, wait_open(null_mut(), &mut set));
    let mut kind = control(set, FI_GETWAITOBJ, 0)?;
    ensure_eq!(kind, FI_WAIT_UNSPEC, "the object");
    gives!(FI_ENODATA, fid set, control(FI_GETWAIT, (&raw mut kind).cast()));
    gives!(FI_ENOSYS, fid set, control(9999, null_mut()));

    let (mut cq, mut cntr): (*mut fid_cq, *mut fid_cntr) = (null_mut(), null_mut());
    gives!(FI_EINVAL, obj domain, cq_open(&mut queue_attr(null_mut()), &mut cq, none));
    gives!(FI_EINVAL, obj domain, cntr_open(&mut counter_attr(null_mut()), &mut cntr, none));
    let other = Station::open(&Plan::DEFAULT)?;
    gives!(FI_EINVAL, obj other.domain, cq_open(&mut queue_attr(set), &mut cq, none));
    gives!(FI_EINVAL, obj other.domain, cntr_open(&mut counter_attr(set), &mut cntr, none));
    other.close()?;

    let (rx, counter) = (queue(job, set)?, counter(job, set)?);
    let kind = control(rx.0, FI_GETWAITOBJ, 0)?;
    ensure_eq!(kind, FI_WAIT_SET, "the queue's object");
    let mut entry = blank();
    gives!(FI_EINVAL, obj rx.0, sread((&raw mut entry).cast(), 1, null(), 0));
    gives!(FI_EINVAL, obj counter, wait(0, 0));
    gives!(FI_EBUSY, fid set, close());
    close(rx.0)?;
    gives!(FI_EBUSY, fid set, close());
    close(counter)?;
    ensure!(!set.is_null(), "the set");
    close(set)
}

//! Event queues (fi_eq(3)).

use std::time::Instant;

use super::kit::*;
use super::waiting::readable;

laws! {
    queues with(&Plan::DEFAULT, 256): "eq.events", "fi_eq(3)", 1, [eq_open, eq_write, eq_read, eq_sread, eq_strerror],
        "events that the program writes are read in order; FI_PEEK leaves them; short buffers and empty queues are refused";
    descriptors with(&Plan::DEFAULT, 256):
        "eq.descriptor", "fi_eq(3), fi_poll(3)", 1, [eq_open, eq_write, eq_read, eq_readerr, control, trywait],
        "the descriptor of a queue with FI_WAIT_FD is readable just as long as there is something to read";
    kinds with(&Plan::DEFAULT, 256): "eq.wait", "fi_eq(3)", 1, [eq_open, eq_sread, control],
        "each kind of wait object is what the queue says it is; those without a descriptor give none, and without a wait none is possible";
}

fn queues(job: &Job<'_>) -> Verdict {
    let eq: *mut fid_eq = open!(obj job.station.fabric, eq_open(null_mut()));
    let (mut event, mut buffer) = (0, [0u8; 16]);
    gives!(FI_EAGAIN, obj eq, read(&mut event, buffer.as_mut_ptr().cast(), 16, 0));
    let start = Instant::now();
    gives!(FI_EAGAIN, obj eq, sread(&mut event, buffer.as_mut_ptr().cast(), 16, 50, 0));
    took_all(start, 50)?;
    for nth in 1..4u8 {
        let bytes = [nth; 10];
        let seen = call!(obj eq, write(100 + u32::from(nth), bytes.as_ptr().cast(), 10, 0));
        ensure_eq!(seen, 10, "fi_eq_write");
    }
    gives!(FI_ETOOSMALL, obj eq, read(&mut event, buffer.as_mut_ptr().cast(), 9, 0));
    let seen = call!(obj eq, read(&mut event, buffer.as_mut_ptr().cast(), 16, FI_PEEK));
    ensure_eq!(seen, 10, "a peek");
    for nth in 1..4u8 {
        let seen = call!(obj eq, sread(&mut event, buffer.as_mut_ptr().cast(), 16, 1000, 0));
        ensure_eq!(seen, 10, "a read");
        let seen = (event, buffer[9], buffer[10]);
        ensure_eq!(seen, (100 + u32::from(nth), nth, 0), "the event");
    }
    let text = call!(obj eq, strerror(libc::EINVAL, null(), null_mut(), 0));
    ensure!(!text.is_null(), "no text");
    close(eq)
}

/// An event queue of `size` entries, to which programs may write.
pub(super) fn open_sized(
    job: &Job<'_>,
    size: usize,
    wait_obj: c_int,
    wait_set: *mut fid_wait,
) -> Result<*mut fid_eq, String> {
    let mut attr = fi_eq_attr {
        size,
        flags: FI_WRITE,
        wait_obj,
        signaling_vector: 0,
        wait_set: wait_set.cast(),
    };
    Ok(open!(obj job.station.fabric, eq_open(&mut attr)))
}

pub(crate) fn open(job: &Job<'_>, wait_obj: c_int) -> Result<*mut fid_eq, String> {
    open_sized(job, 0, wait_obj, null_mut())
}

fn descriptors(job: &Job<'_>) -> Verdict {
    let eq = open(job, FI_WAIT_FD)?;
    let descriptor = control(eq, FI_GETWAIT, -1)?;
    ensure!(descriptor > 2, "descriptor {descriptor}");
    let mut fids: [*mut fid; 1] = [eq.cast()];
    let (mut event, mut buffer) = (0, [0u8; 16]);
    for round in 0..3 {
        ensure!(!readable(descriptor, 0), "an empty queue is readable");
        ok!(obj job.station.fabric, trywait(fids.as_mut_ptr(), 1));
        for nth in 1..4 {
            let written = call!(obj eq, write(nth, [7u8; 4].as_ptr().cast(), 4, 0));
            ensure_eq!(written, 4, "fi_eq_write");
            let seen = readable(descriptor, 0);
            ensure!(seen, "a queue with {nth} events is not readable");
        }
        gives!(FI_EAGAIN, obj job.station.fabric, trywait(fids.as_mut_ptr(), 1));
        for left in (0..3).rev() {
            let code = match round {
                0 => call!(obj eq, read(&mut event, buffer.as_mut_ptr().cast(), 16, 0)),
                _ => call!(obj eq, sread(&mut event, buffer.as_mut_ptr().cast(), 16, -1, 0)),
            };
            ensure_eq!(code, 4, "a read");
            let seen = readable(descriptor, 0);
            ensure_eq!(seen, left > 0, "readable with {left} events");
        }
    }
    // The event wakes another thread.
    let (at, fd) = (eq.addr(), descriptor);
    let write = move || {
        let eq = at as *mut fid_eq;
        call!(obj eq, write(9, [7u8; 4].as_ptr().cast(), 4, 0))
    };
    let (_, woken) = beside(write, || readable(fd, -1))?;
    ensure!(woken, "poll(2)");
    close(eq)
}

fn kinds(job: &Job<'_>) -> Verdict {
    let (mut event, mut buffer) = (0, [0u8; 16]);
    for wait in [FI_WAIT_NONE, FI_WAIT_UNSPEC, FI_WAIT_YIELD, FI_WAIT_FD] {
        let eq = open(job, wait)?;
        let mut descriptor = -1;
        let kind = control(eq, FI_GETWAITOBJ, -1)?;
        ensure_eq!(kind, wait, "the wait object");
        if wait != FI_WAIT_FD {
            gives!(FI_ENODATA, fid eq, control(FI_GETWAIT, (&raw mut descriptor).cast()));
        }
        gives!(FI_EINVAL, fid eq, control(FI_GETWAITOBJ, null_mut()));
        gives!(FI_ENOSYS, fid eq, control(99, null_mut()));
        let code = call!(obj eq, sread(&mut event, buffer.as_mut_ptr().cast(), 16, 0, 0));
        let errno = [FI_EAGAIN, FI_EINVAL][usize::from(wait == FI_WAIT_NONE)];
        denied(errno, code, "a wait without a time")?;
        close(eq)?;
    }
    Ok(())
}

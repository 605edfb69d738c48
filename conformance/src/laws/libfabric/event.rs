//! Event queues (fi_eq(3)).

use std::ptr::{null, null_mut};
use std::time::{Duration, Instant};

use unipgas::libfabric::sys::*;

use super::kit::*;
use super::station::{Plan, close};
use crate::law::{Ctx, Verdict};
use crate::{ensure, ensure_eq};

laws! {
    queues: "eq.events", "fi_eq(3)", 1, [eq_open, eq_write, eq_read, eq_sread, eq_strerror],
        "events that the program writes are read in order; FI_PEEK leaves them; short buffers and empty queues are refused";
}

fn queues(ctx: &Ctx) -> Verdict {
    with(ctx, &Plan::default(), 256, |job| {
        let mut eq: *mut fid_eq = null_mut();
        ok!(obj job.station.fabric, eq_open(null_mut(), &mut eq, null_mut()));
        let (mut event, mut buffer) = (0, [0u8; 16]);
        gives!(AGAIN, obj eq, read(&mut event, buffer.as_mut_ptr().cast(), 16, 0));
        let start = Instant::now();
        gives!(AGAIN, obj eq, sread(&mut event, buffer.as_mut_ptr().cast(), 16, 50, 0));
        ensure!(
            start.elapsed() >= Duration::from_millis(50),
            "a wait of 50 ms took {:?}",
            start.elapsed()
        );
        for nth in 1..4u8 {
            let bytes = [nth; 10];
            ensure_eq!(
                call!(obj eq, write(100 + u32::from(nth), bytes.as_ptr().cast(), 10, 0)),
                10,
                "fi_eq_write"
            );
        }
        gives!(TOOSMALL, obj eq, read(&mut event, buffer.as_mut_ptr().cast(), 9, 0));
        ensure_eq!(
            call!(obj eq, read(&mut event, buffer.as_mut_ptr().cast(), 16, FI_PEEK)),
            10,
            "a peek"
        );
        for nth in 1..4u8 {
            ensure_eq!(
                call!(obj eq, sread(&mut event, buffer.as_mut_ptr().cast(), 16, 1000, 0)),
                10,
                "a read"
            );
            ensure_eq!(
                (event, buffer[9], buffer[10]),
                (100 + u32::from(nth), nth, 0),
                "the event"
            );
        }
        let text = call!(obj eq, strerror(libc::EINVAL, null(), null_mut(), 0));
        ensure!(!text.is_null(), "no text");
        close(eq)
    })
}

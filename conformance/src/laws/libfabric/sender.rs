//! Messages from senders that are not in the address vector (FI_SOURCE_ERR of fi_getinfo(3), fi_cq(3)).

use super::kit::*;

laws! {
    named heard(&Plan::DEFAULT.caps(NAMES).counters(&[FI_RECV]), 6): "cq.sender", "fi_cq(3) FI_EADDRNOTAVAIL", 2, [recv, trecv, av_insert, cq_readerr, cq_readfrom, cntr_read],
        "a message from an unknown sender is an error with the sender's name; inserted, that gives the sender of the next message";
    several heard(&Plan::DEFAULT.caps(NAMES), 1): "cq.sender.multi", "fi_cq(3), fi_msg(3)", 2, [recvmsg, cq_readerr, cq_read],
        "after such an error a separate entry returns a buffer for several messages";
    old heard(&Plan::DEFAULT.caps(NAMES).version(version(1, 4)).mr_mode(FI_MR_BASIC), 1): "cq.sender.old", "fi_cq(3) err_data_size", 2, [recv, cq_readerr],
        "programs of releases before 1.5 have no err_data_size: they get the name in a buffer of the provider";
}

/// The buffer that gets the sender's name.
#[derive(Clone, Copy, PartialEq)]
enum Buffer {
    Own(usize),
    Providers,
    /// The provider's buffer, for a program without err_data_size.
    Old,
}

const UNTOUCHED: usize = 77;

/// Waits for the error of an unknown sender. Returns the entry and the name in it.
fn error_of(job: &Job<'_>, buffer: Buffer) -> Result<(fi_cq_err_entry, Vec<u8>), String> {
    until_ok("a message of an unknown sender", || match job.rx.read() {
        (AVAIL, _) => Ok(true),
        (AGAIN, _) => Ok(false),
        (code, _) => Err(format!("fi_cq_read gave {}", code_name(code))),
    })?;
    // SAFETY:
    // - plain data, of which zeros are a value.
    let mut error: fi_cq_err_entry = unsafe { std::mem::zeroed() };
    let mut own = [0u8; 2 * NAME];
    match buffer {
        Buffer::Own(len) => {
            (error.err_data, error.err_data_size) = (own.as_mut_ptr().cast(), len);
        }
        Buffer::Providers => {}
        Buffer::Old => error.err_data_size = UNTOUCHED,
    }
    let seen = call!(obj job.rx.0, readerr(&mut error, 0));
    ensure_eq!(seen, 1, "fi_cq_readerr");
    ensure_eq!(error.err, FI_EADDRNOTAVAIL, "the error");
    let len = match buffer {
        Buffer::Old => NAME,
        _ => error.err_data_size,
    };
    // SAFETY:
    // - fi_cq(3): `len` bytes are valid, in `own` or in the provider's buffer.
    let name = unsafe { std::slice::from_raw_parts(error.err_data.cast::<u8>(), len) }.to_vec();
    Ok((error, name))
}

/// Rank 1 sends `words` words, tagged if odd. Rank 0 removes the address of rank 1 and runs `hear`.
fn heard(ctx: &Ctx, plan: &Plan<'_>, words: u64, hear: impl Fn(&Job<'_>) -> Verdict) -> Verdict {
    with(ctx, plan, 256, |job| {
        if job.rank == 1 {
            let to = (job.ep, job.peer(0).address);
            return for_all(0..words, |word| {
                let tag = (word % 2 == 1).then_some(word);
                job.done(|| send_as(tag, to, &word.to_le_bytes(), 0))
            });
        }
        job.forget(job.peer(1).address)?;
        hear(job)?;
        job.rx.is_empty()
    })
}

fn receive(job: &Job<'_>, place: &mut [u8; 8], nth: u64) -> Verdict {
    let tag = (nth % 2 == 1).then_some(nth);
    job.post(|| receive_as(tag, job.ep, &mut place[..], 1))
}

const NAMES: u64 = FI_MSG | FI_TAGGED | FI_SOURCE | FI_SOURCE_ERR | FI_MULTI_RECV;

fn named(job: &Job<'_>) -> Verdict {
    let name = job.heard(1)[..NAME].to_vec();
    let buffers = [
        Buffer::Own(2 * NAME),
        Buffer::Own(10),
        Buffer::Providers,
        Buffer::Own(NAME),
    ];
    for (nth, buffer) in (0..).zip(buffers) {
        let mut word = [99; 8];
        receive(job, &mut word, nth)?;
        let (error, said) = error_of(job, buffer)?;
        let kind = if nth % 2 == 0 { FI_MSG } else { FI_TAGGED };
        let seen = (error.op_context, error.flags, error.len);
        ensure_eq!(seen, (cx(1), kind | FI_RECV, 8), "the entry");
        ensure_eq!((u64_of(&word), error.olen), (nth, 0), "the message");
        let len = match buffer {
            Buffer::Own(len) => len.min(NAME),
            _ => NAME,
        };
        same(&said, &name[..len], "the sender's name")?;
        if len == NAME && nth == 3 {
            job.station.insert(&said)?;
        }
    }
    for nth in 4..6 {
        let mut word = [99; 8];
        receive(job, &mut word, nth)?;
        let (_, source) = job.rx.next_from()?;
        let seen = (u64_of(&word), source);
        ensure_eq!(seen, (nth, job.peer(1).address), "message and sender");
    }
    let counter = job.station.counters[0];
    let seen = (value_of(counter), errors_of(counter));
    equal!(seen, (6, 0), "receives that the counter has counted")
}

fn several(job: &Job<'_>) -> Verdict {
    let mut words = [99u64; 2];
    let part = iovec(words.as_mut_ptr(), 16);
    let least = 9usize;
    ok!(obj job.ep, setopt(FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, (&raw const least).cast(), 8));
    let msg = plain_msg(&part, FI_ADDR_UNSPEC, cx(4));
    job.post(|| call!(msg job.ep, recvmsg(&msg, FI_MULTI_RECV)))?;
    let (error, _) = error_of(job, Buffer::Providers)?;
    ensure_eq!(error.flags & FI_MULTI_RECV, 0, "the error's flags");
    ensure_eq!(error.buf, words.as_mut_ptr().cast(), "the message's place");
    let entry = job.rx.of(4)?;
    let seen = entry.flags & FI_MULTI_RECV;
    ensure_eq!(seen, FI_MULTI_RECV, "the buffer given back");
    // SAFETY:
    // - in bounds; the provider writes it through a pointer.
    let seen = unsafe { words.as_ptr().read_volatile() };
    equal!(seen, 0, "the message")
}

fn old(job: &Job<'_>) -> Verdict {
    let mut word = [99; 8];
    receive(job, &mut word, 0)?;
    let (error, said) = error_of(job, Buffer::Old)?;
    let seen = error.err_data_size;
    ensure_eq!(seen, UNTOUCHED, "the member that is not there");
    same(&said, &job.heard(1)[..NAME], "the sender's name")
}

//! Peeking at tagged messages, and claiming them (fi_tagged(3)).

use super::kit::*;
use super::tagged::{message, part, trecv, tsend};

laws! {
    peek with(&Plan::DEFAULT, 256): "tagged.peek", "fi_tagged(3)", 2, [trecvmsg, tsend, trecv],
        "FI_PEEK tells length and tag of the first matching message and leaves it there, FI_ENOMSG where there is none";
    claim with(&Plan::DEFAULT, 256): "tagged.claim", "fi_tagged(3)", 2, [trecvmsg, tsend, trecv],
        "a claimed message is kept for the receive that claims it, others pass; a discarded message is gone";
    wrong with(&Plan::DEFAULT, 256): "tagged.bad", "fi_tagged(3)", 1, [trecvmsg, tsendmsg, tinject],
        "unknown flags, flags that mean nothing together, and claims of nothing are refused";
}

/// A receive without a buffer, from any sender.
fn looking(job: &Job<'_>, wanted: (u64, u64), context: usize) -> fi_msg_tagged {
    fi_msg_tagged {
        msg_iov: null(),
        iov_count: 0,
        addr: FI_ADDR_UNSPEC,
        ..message(job, &part(&mut []), wanted, context)
    }
}

/// Peeks until a message is found.
fn found(
    job: &Job<'_>,
    wanted: (u64, u64),
    context: usize,
    flags: u64,
) -> Result<fi_cq_tagged_entry, String> {
    let msg = looking(job, wanted, context);
    super::kit::found("a message", || {
        ok!(tagged job.ep, recvmsg(&msg, FI_PEEK | flags));
        match job.rx.end()? {
            End::Success(entry) => Ok(Some(entry)),
            End::Failure(error) => {
                let seen = (error.err, error.context());
                ensure_eq!(seen, (FI_ENOMSG, context), "looking for a message");
                Ok(None)
            }
        }
    })
}

fn peek(job: &Job<'_>) -> Verdict {
    let msg = looking(job, (5, 0), 8);
    ok!(tagged job.ep, recvmsg(&msg, FI_PEEK));
    job.rx.fails(FI_ENOMSG, "looking where there is nothing")?;
    job.meet();
    let messages = [vec![1u8; 10], vec![2u8; 9000], vec![3u8; 20]];
    for (nth, (bytes, tag)) in messages.iter().zip([4, 5, 5]).enumerate() {
        tsend(job, tag, bytes, nth)?;
    }
    for _ in 0..3 {
        let entry = found(job, (5, 0), 8, 0)?;
        let seen = (entry.context(), entry.len, entry.tag);
        ensure_eq!(seen, (8, 9000, 5), "context, length and tag");
    }
    ensure_eq!(found(job, (4, 1), 8, 0)?.tag, 4, "the first that matches");
    for (tag, bytes) in [(5, &messages[1]), (5, &messages[2]), (4, &messages[0])] {
        let mut buffer = vec![0u8; 9000];
        trecv(job, &mut buffer, (tag, 0), 1)?;
        ensure_eq!(job.rx.of(1)?.len, bytes.len(), "the length");
        same(&buffer[..bytes.len()], bytes, "the message")?;
    }
    job.tx.successes(0..3)
}

fn claim(job: &Job<'_>) -> Verdict {
    let messages = [[1u8; 100], [2; 100], [3; 100]];
    for_all(&messages, |bytes| tsend(job, 5, bytes, 1))?;
    let entry = found(job, (5, 0), 30, FI_CLAIM)?;
    ensure_eq!(entry.len, 100, "the length of what is claimed");
    let entry = found(job, (5, 0), 31, FI_DISCARD)?;
    ensure_eq!(entry.len, 100, "the length of what is discarded");
    let mut buffer = [0u8; 100];
    trecv(job, &mut buffer, (5, 0), 2)?;
    job.rx.of(2)?;
    same(&buffer, &[3; 100], "the one behind both")?;
    let into = part(&mut buffer);
    let msg = fi_msg_tagged {
        addr: FI_ADDR_UNSPEC,
        ..message(job, &into, (5, 0), 30)
    };
    ok!(tagged job.ep, recvmsg(&msg, FI_CLAIM));
    job.rx.of(30)?;
    same(&buffer, &[1; 100], "the claimed message")?;
    job.tx.successes_of(1, 0..3)
}

fn wrong(job: &Job<'_>) -> Verdict {
    let mut bytes = [0u8; 64];
    let into = part(&mut bytes);
    let msg = message(job, &into, (1, 0), 2);
    gives!(FI_EBADFLAGS, tagged job.ep, recvmsg(&msg, 1 << 40));
    gives!(FI_EBADFLAGS, tagged job.ep, recvmsg(&msg, FI_DISCARD));
    gives!(FI_EBADFLAGS, tagged job.ep, recvmsg(&msg, FI_PEEK | FI_CLAIM | FI_DISCARD));
    gives!(FI_EINVAL, tagged job.ep, recvmsg(&msg, FI_CLAIM));
    gives!(FI_EBADFLAGS, tagged job.ep, sendmsg(&msg, FI_PEEK));
    gives!(FI_EINVAL, tagged job.ep, recvmsg(null(), 0));
    gives!(FI_EINVAL, tagged job.ep, sendmsg(null(), 0));
    gives!(FI_EMSGSIZE, tagged job.ep, inject(bytes.as_ptr().cast(), 1 << 20, 0, 1));
    gives!(FI_EINVAL, tagged job.ep, send(null(), 8, null_mut(), 0, 1, null_mut()));
    job.rx.is_empty()?;
    job.tx.is_empty()
}

//! §3.9: timeouts of the first contact with a live process that does not answer. The caller has not connected to it before.

use std::sync::atomic::{AtomicBool, Ordering};

use super::kit::*;
use super::silent_member::{self, TRIES};
use crate::kit::{Stopped, until};

laws! {
    posting: "stopped.first-contact", "§3.9, §8.2, §8.3.2, §8.4, §10.2", 3,
        [gaspi_write, gaspi_read, gaspi_notify, gaspi_write_notify, gaspi_write_list, gaspi_write_list_notify, gaspi_read_notify, gaspi_read_list,
         gaspi_read_list_notify, gaspi_atomic_fetch_add, gaspi_atomic_compare_swap, gaspi_passive_send, gaspi_connect, gaspi_segment_register]
        + bare + one_host,
        "a request to a stopped process without a connection is posted or times out at once; repeated, it is done once";
    short: "stopped.first-contact.short", "§3.9, §5.4, §9.2", 3,
        [gaspi_connect, gaspi_disconnect, gaspi_segment_register, gaspi_passive_send, gaspi_passive_receive, gaspi_write] + bare + one_host,
        "time-outs of some milliseconds are kept at the first contact, too";
    passive_others: "stopped.passive.others", "§3.9, §9.2", 3, [gaspi_passive_send, gaspi_passive_receive] + bare + one_host,
        "while a thread sends to a process that is stopped, without a time-out, others send to a third one, and receive from it, within theirs";
    receipts: "stopped.passive.receipts", "§9.2, §3.9", 3, [gaspi_passive_receive, gaspi_passive_send] + bare + one_host,
        "a message of a process that stops afterwards is received, or the call times out; other processes' messages are received meanwhile";
}

const PID: usize = 4088;
const LEN: usize = 65536;
const SHORT: u64 = 20;

/// Runs `work` on rank 0 while rank 2 is stopped, until `work` wakes it or ends. Rank 0 has no connection to rank 2. Rank 2 runs `before`
/// before it stops and `then` when it goes on; rank 1 runs `beside`.
fn beside_a_stranger(
    ctx: &Ctx,
    work: impl FnOnce(&Stopped, &Memory) -> Verdict,
    beside: impl FnOnce(&Memory) -> Verdict,
    before: impl FnOnce(&Memory) -> Verdict,
    then: impl FnOnce(&Memory) -> Verdict,
) -> Verdict {
    with_config(
        |config| config.build_infrastructure = 0,
        || {
            ok!(gaspi_segment_alloc(0, LEN as u64, 0));
            let memory = memory(0, LEN)?;
            let neighbours: &[u16] = match ctx.rank {
                0 => &[1],
                1 => &[0, 2],
                _ => &[0, 1],
            };
            for rank in neighbours {
                ok!(gaspi_segment_register(0, *rank, LONG));
            }
            ctx.sync();
            let tell = |to: u16| {
                let at = PID as u64;
                ok!(gaspi_write_notify(0, at, to, 0, at, 8, 0, 1, 0, LONG));
                flush(0)
            };
            match ctx.rank {
                2 => {
                    memory.set(PID, std::process::id().into());
                    tell(1)?;
                }
                1 => {
                    notified(0, 0)?;
                    tell(0)?;
                }
                _ => _ = notified(0, 0)?,
            }
            ctx.sync();
            match ctx.rank {
                0 => {
                    let last = Stopped::of(memory.get(PID))?;
                    let worked = work(&last, &memory);
                    last.wake()?;
                    worked?;
                }
                1 => beside(&memory)?,
                _ => {
                    before(&memory)?;
                    Stopped::stop()?;
                    then(&memory)?;
                }
            }
            ctx.sync();
            Ok(())
        },
    )
}

fn nothing(_: &Memory) -> Verdict {
    Ok(())
}

/// Calls each up to [`TRIES`] times. Gives the indices of calls without success. Each call may wait for `timeout`.
fn tried(calls: &mut [Call<'_>], timeout: u64) -> Result<Vec<usize>, String> {
    let mut open = Vec::new();
    for (nth, (what, call)) in calls.iter_mut().enumerate() {
        if !silent_member::tried(what, timeout, call)? {
            open.push(nth);
        }
    }
    Ok(open)
}

/// Repeats the `open` calls until they succeed.
fn finished(calls: &mut [Call<'_>], open: Vec<usize>) -> Verdict {
    for nth in open {
        let (what, call) = &mut calls[nth];
        repeat(what, call)?;
    }
    Ok(())
}

fn posting(ctx: &Ctx) -> Verdict {
    beside_a_stranger(
        ctx,
        |last, memory| {
            for word in 0..8 {
                memory.set(8 * word, 70 + word as u64);
            }
            let (mut before, mut swapped) = (9u64, 9u64);
            let (zero, sizes, at) = ([0u8; 2], [8u64; 2], |from: u64| [from, from + 8]);
            let (from, wide, into) = (at(0), at(640), at(256));
            let list = (zero.as_ptr(), from.as_ptr(), wide.as_ptr(), sizes.as_ptr());
            let read = (zero.as_ptr(), into.as_ptr(), from.as_ptr(), sizes.as_ptr());
            // Each call has its own place for its result.
            let mut calls = calls! {
                gaspi_write(0, 0, 2, 0, 512, 8, 1, TEST);
                gaspi_read(0, 128, 2, 0, 0, 8, 2, TEST);
                gaspi_notify(0, 2, 1, 1, 1, TEST);
                gaspi_write_notify(0, 8, 2, 0, 520, 8, 2, 1, 1, TEST);
                gaspi_write_list(2, list.0, list.1, 2, list.0, list.2, list.3, 1, TEST);
                gaspi_write_list_notify(2, list.0, list.1, 2, list.0, list.2, list.3, 0, 3, 1, 1, TEST);
                gaspi_read_notify(0, 136, 2, 0, 0, 8, 4, 3, TEST);
                gaspi_read_list(2, read.0, read.1, 2, read.0, read.2, read.3, 2, TEST);
                gaspi_read_list_notify(2, read.0, read.1, 2, read.0, read.2, read.3, 0, 5, 3, TEST);
                gaspi_atomic_fetch_add(0, 1024, 2, 5, &mut before, TEST);
                gaspi_atomic_compare_swap(0, 1032, 2, 0, 3, &mut swapped, TEST);
                gaspi_passive_send(0, 16, 2, 8, TEST);
                gaspi_connect(2, TEST);
                gaspi_segment_register(0, 2, TEST);
            };
            let open = tried(&mut calls, TEST)?;
            last.wake()?;
            finished(&mut calls, open)?;
            drop(calls);
            for queue in 1..4 {
                repeat("gaspi_wait", || c!(gaspi_wait(queue, TEST)))?;
            }
            notified(0, 4)?;
            notified(0, 5)?;
            ensure_eq!((before, swapped), (0, 0), "the old values");
            for (at, value) in [(128, 31), (136, 31), (256, 31), (264, 32)] {
                ensure_eq!(memory.get(at), value, "data read to {at}");
            }
            ok!(gaspi_notify(0, 2, 10, 1, 1, LONG));
            flush(1)
        },
        nothing,
        |memory| {
            memory.set(0, 31);
            memory.set(8, 32);
            Ok(())
        },
        |memory| {
            let mut from = 9;
            repeat("gaspi_passive_receive", || {
                c!(gaspi_passive_receive(0, 2048, &mut from, 8, SHORT))
            })?;
            notified(0, 10)?;
            for_all(1..4, |id| notified(0, id))?;
            let seen = [512, 520, 640, 648, 1024, 1032, 2048].map(|at| memory.get(at));
            ensure_eq!(seen, [70, 71, 70, 71, 5, 3, 72], "what has come");
            ensure_eq!(from, 0, "the sender");
            let again = c!(gaspi_passive_receive(0, 2048, &mut from, 8, SHORT));
            equal!(again, TIMEOUT, "a second receive")
        },
    )
}

fn short(ctx: &Ctx) -> Verdict {
    let mut from = 9;
    beside_a_stranger(
        ctx,
        |last, memory| {
            let received = || match c!(gaspi_passive_receive(0, 64, &mut from, 8, SHORT)) {
                TIMEOUT => SUCCESS,
                code => code,
            };
            let mut calls: Vec<Call<'_>> = vec![("gaspi_passive_receive", Box::new(received))];
            calls.extend(calls! {
                gaspi_segment_register(0, 2, SHORT);
                gaspi_connect(2, SHORT);
                gaspi_passive_send(0, 16, 2, 8, SHORT);
                gaspi_disconnect(2, SHORT);
            });
            let open = tried(&mut calls[..4], SHORT)?;
            // After the close, a message in flight to the peer may be lost.
            let closes = tried(&mut calls[4..], SHORT)?;
            last.wake()?;
            let open: Vec<usize> = open.into_iter().filter(|nth| *nth < 3).collect();
            finished(&mut calls, open)?;
            finished(&mut calls[4..], closes)?;
            let refused = c!(gaspi_write(0, 0, 2, 0, 0, 8, 1, LONG));
            must_fail(refused, "a write over a closed connection")?;
            repeat("gaspi_connect", || c!(gaspi_connect(2, SHORT)))?;
            memory.set(24, 99);
            done!(gaspi_passive_send(0, 24, 2, 8, LONG))
        },
        nothing,
        nothing,
        |memory| {
            // The first message may come or not.
            while memory.get(2048) != 99 {
                receive(0, 2048, 8)?;
            }
            Ok(())
        },
    )
}

fn passive_others(ctx: &Ctx) -> Verdict {
    const ROUNDS: u64 = 10;
    beside_a_stranger(
        ctx,
        |last, memory| {
            let begun = AtomicBool::new(false);
            threads(2, |thread| {
                if thread == 0 {
                    begun.store(true, Ordering::Release);
                    ok!(gaspi_passive_send(0, 0, 2, 8, BLOCK));
                    return Ok(());
                }
                until("the other thread", || begun.load(Ordering::Acquire))?;
                pause(20);
                for round in 0..ROUNDS {
                    memory.set(8, round);
                    let sent = repeat("gaspi_passive_send to the third", || {
                        c!(gaspi_passive_send(0, 8, 1, 8, LONG))
                    })?;
                    ensure_eq!(sent, 0, "timeouts of a send to a receiving process");
                    let from = receive(0, 16, 8)?;
                    ensure_eq!((from, memory.get(16)), (1, round), "what has come back");
                }
                last.wake()
            })
        },
        |memory| {
            for _ in 0..ROUNDS {
                receive(0, 16, 8)?;
                ok!(gaspi_passive_send(0, 16, 0, 8, LONG));
            }
            equal!(memory.get(16), ROUNDS - 1, "the last one")
        },
        nothing,
        |_| receive(0, 16, 8).map(drop),
    )
}

fn receipts(ctx: &Ctx) -> Verdict {
    // One size for each path: in a cache line, in the ring, fetched by the receiver.
    const SIZES: [u64; 3] = [8, 1000, 20_000];
    let size = SIZES[(ctx.seed % 3) as usize];
    let send = |timeout| c!(gaspi_passive_send(0, 0, 0, size, timeout));
    let mut from = 9;
    let mut receive = |timeout| c!(gaspi_passive_receive(0, 64, &mut from, 20_000, timeout));
    beside_a_stranger(
        ctx,
        |last, memory| {
            let mut got = Vec::new();
            let one = |code: i32, got: &mut Vec<u64>| {
                if code == SUCCESS {
                    got.push(memory.get(64));
                }
                one_of(code, &[SUCCESS, TIMEOUT], "gaspi_passive_receive")
            };
            let before = in_vain();
            for _ in 0..TRIES {
                one(receive(SHORT), &mut got)?;
                one(receive(TEST), &mut got)?;
            }
            let waited = (in_vain() - before).as_millis() as u64;
            ensure!(waited <= TRIES * SHORT + 500, "receives took {waited} ms");
            last.wake()?;
            let mut looks = Looks::for_the("the messages");
            while got.len() < 2 {
                one(receive(TEST), &mut got)?;
                looks.again();
            }
            got.sort_unstable();
            equal!(got, [41, 42], "messages")
        },
        |memory| {
            memory.set(0, 41);
            done!(gaspi_passive_send(0, 0, 0, 8, LONG))
        },
        |memory| {
            memory.set(0, 42);
            let sent = send(SHORT);
            equal!(sent, TIMEOUT, "a send without a receive")
        },
        |_| repeat("gaspi_passive_send", || send(SHORT)).map(drop),
    )
}

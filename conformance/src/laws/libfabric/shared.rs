//! Shared contexts (fi_stx_context, fi_srx_context of fi_endpoint(3)).

use super::death::survived;
use super::kit::*;
use super::message::pattern;
use super::srx::*;

laws! {
    messages with_shared(&Plan::DEFAULT, 3): "srx.messages", "fi_endpoint(3)", 4, [srx_context, ep_bind, recv, send, cntr_read],
        "messages of several peers to several endpoints take the receives of the shared context, each once, in order, and end at their endpoint's queue and counter";
    tagged with_shared(&Plan::DEFAULT, 2): "srx.tagged", "fi_endpoint(3), fi_tagged(3)", 2, [srx_context, trecv, tsend],
        "tagged messages take the first shared receive that fits, at any endpoint, posted before or after they come";
    looked with_shared(&Plan::DEFAULT, 2): "srx.peek", "fi_tagged(3)", 2, [srx_context, trecvmsg, tsend],
        "FI_PEEK, FI_CLAIM and FI_DISCARD find what has come to any of the endpoints";
    several with_shared(&MULTI, 2): "srx.multi", "fi_msg(3)", 2, [srx_context, recvmsg, send, setopt, getopt],
        "a shared buffer with FI_MULTI_RECV takes messages for all endpoints, and its last one gives it back, once";
    directed with_shared(&DIRECTED, 2): "srx.directed", "fi_msg(3)", 3, [srx_context, recv, send],
        "with FI_DIRECTED_RECV a shared receive takes messages of the sender it names only";
    cancelled with_shared(&Plan::DEFAULT, 2): "srx.cancel", "fi_endpoint(3)", 2, [srx_context, cancel, recv],
        "a shared receive that is cancelled ends with FI_ECANCELED and takes no message";
    raced with_shared(&Plan::DEFAULT, 2): "srx.threads", "fi_domain(3)", 2, [srx_context, recv, send, cq_read],
        "receives that one thread posts while another one takes messages from the queues are all found";
    atomics with_shared(&Plan::DEFAULT.caps(FI_TAGGED | FI_ATOMIC), 2): "srx.atomic", "fi_atomic(3)", 2, [srx_context, trecv, fetch_atomic],
        "an atomic operation on a tagged buffer finds it among the shared receives";
    dead survived(&DIRECTED): "srx.dead", "fi_cq(3)", 3, [srx_context, recv, cq_readerr] + needs_kill,
        "a shared receive from a peer that has died ends with FI_ECONNRESET";
}

const MOST: usize = 70_000;

fn messages(job: &Job<'_>, shared: Option<&Shared>, addresses: &[u64]) -> Verdict {
    const COUNT: usize = 3;
    let each = many(job.ctx, 3) as usize;
    let Some(shared) = shared else {
        // Lengths of short messages, of messages in the ring, and of fetched messages.
        let lens = [24, 500, MOST, 40, 24, 9000];
        let mut sent = Vec::new();
        for serial in 0..each {
            for nth in 0..COUNT {
                let mut bytes = pattern(serial, lens[(serial + nth) % lens.len()]);
                let head = [u64::from(job.rank), nth as u64, serial as u64];
                bytes[..24].copy_from_slice(&head.map(u64::to_le_bytes).concat());
                sent.push(bytes);
                let bytes = sent.last().ok_or("just pushed")?;
                send(job, addresses[nth], bytes)?;
            }
        }
        job.tx.successes_of(1, &sent)?;
        return job.tx.is_empty();
    };
    let senders = job.size as usize - 1;
    let total = each * COUNT * senders;
    let buffers: Vec<Buffer> = (0..total).map(|_| Buffer::new(MOST)).collect();
    let mut random = job.ctx.random(3);
    let (mut posted, mut seen) = (0, vec![None; total]);
    let mut left = total;
    let mut looks = Looks::new();
    while left > 0 {
        // Some receives are posted before their message arrives, others after it.
        for _ in 0..random.below(8) {
            if posted < total {
                shared.receive(buffers[posted].base, MOST, posted)?;
                posted += 1;
            }
        }
        for (nth, own) in shared.endpoints.iter().enumerate() {
            let (code, entry) = own.rx.read();
            if code == AGAIN {
                looks.again();
                continue;
            }
            ensure_eq!(code, 1, "a completion");
            ensure_eq!(entry.flags, FI_MSG | FI_RECV, "its flags");
            let which = entry.context();
            ensure!(which < posted, "a receive that was not posted");
            let word = |at: usize| buffers[which].get(8 * at) as usize;
            ensure_eq!(word(1), nth, "the endpoint that reports receive {which}");
            ensure!(seen[which].is_none(), "receive {which} ends twice");
            buffers[which].holds(24, &pattern(word(2), entry.len)[24..], "a message")?;
            seen[which] = Some((word(0), word(1), word(2)));
            left -= 1;
        }
    }
    // Receives match in posting order, and messages of one sender to one endpoint in sending order.
    let mut next = vec![[0; COUNT]; senders + 1];
    for (which, seen) in seen.into_iter().enumerate() {
        let (sender, nth, serial) = seen.ok_or("a receive is left")?;
        ensure_eq!(
            serial,
            next[sender][nth],
            "message in receive {which} from sender {sender} at endpoint {nth}"
        );
        next[sender][nth] += 1;
    }
    for own in &shared.endpoints {
        own.rx.is_empty()?;
        let count = value_of(own.counter);
        ensure_eq!(count, (each * senders) as u64, "what the endpoint counts");
    }
    Ok(())
}

fn tagged(job: &Job<'_>, shared: Option<&Shared>, addresses: &[u64]) -> Verdict {
    for early in [true, false] {
        let Some(shared) = shared else {
            if early {
                job.meet();
            }
            send(job, addresses[0], &[9; 8])?;
            for (to, tag) in [(0, 5), (1, 5), (1, 0x17), (0, 6)] {
                tsend(job, addresses[to], tag, &[tag as u8; 8])?;
                // One message at a time: order between endpoints is not guaranteed.
                job.tx.of(1)?;
            }
            job.tx.of(1)?;
            job.meet();
            job.meet();
            continue;
        };
        if !early {
            job.meet();
            // The messages arrive, and no receive takes them.
            for _ in 0..2000 {
                shared.progress();
            }
        }
        let buffer = Buffer::new(64);
        let wanted: [(u64, u64); 4] = [(0x10, 0xf), (6, 0), (5, 0), (5, 0)];
        for (nth, (tag, ignore)) in wanted.into_iter().enumerate() {
            let base = buffer.at(8 * nth).cast();
            ok!(tagged shared.srx, recv(base, 8, null_mut(), FI_ADDR_UNSPEC, tag, ignore, cx(nth)));
        }
        shared.receive(buffer.at(32), 8, 4)?;
        if early {
            job.meet();
        }
        let contexts = |nth: usize, count: usize| {
            let ends = (0..count).map(|_| shared.endpoints[nth].rx.next());
            let all = ends.map(|end| end.map(|entry| entry.context()));
            let mut all = all.collect::<Result<Vec<_>, _>>()?;
            all.sort_unstable();
            Ok::<_, String>(all)
        };
        let (first, second) = (contexts(0, 3)?, contexts(1, 2)?);
        let fives = match first.as_slice() {
            [1, 2, 4] => [0, 3],
            [1, 3, 4] => [0, 2],
            other => return Err(format!("endpoint 0 reports {other:?}")),
        };
        ensure_eq!(second, fives, "reports of endpoint 1");
        let expected = [[0x17; 8], [6; 8], [5; 8], [5; 8], [9; 8]].concat();
        buffer.holds(0, &expected, "the messages")?;
        if early {
            job.meet();
        }
        job.meet();
    }
    Ok(())
}

/// A tagged receive for fi_trecvmsg.
pub(super) fn message(part: &libc::iovec, tag: u64, context: usize) -> fi_msg_tagged {
    tagged_msg(part, FI_ADDR_UNSPEC, tag, cx(context))
}

fn looked(job: &Job<'_>, shared: Option<&Shared>, addresses: &[u64]) -> Verdict {
    let Some(shared) = shared else {
        for (tag, len) in [(5, 100), (6, 50), (7, 20)] {
            tsend(job, addresses[1], tag, &pattern(1, len))?;
            job.tx.of(1)?;
        }
        return Ok(());
    };
    let [first, second] = [&shared.endpoints[0], &shared.endpoints[1]];
    let buffer = Buffer::new(100);
    let part = iovec(buffer.base, 100);
    let nothing = fi_msg_tagged {
        msg_iov: null(),
        iov_count: 0,
        ..message(&part, 99, 3)
    };
    ok!(tagged shared.srx, recvmsg(&nothing, FI_PEEK));
    first.rx.fails(FI_ENOMSG, "looking for nothing")?;
    for (tag, flags, len) in [(5, 0, 100), (5, FI_CLAIM, 100), (6, FI_DISCARD, 50)] {
        let wanted = fi_msg_tagged { tag, ..nothing };
        let mut looks = Looks::for_the("a message");
        loop {
            ok!(tagged shared.srx, recvmsg(&wanted, FI_PEEK | flags));
            let (code, entry) = second.rx.read();
            if code == 1 {
                let seen = (entry.len, entry.context());
                ensure_eq!(seen, (len, 3), "what is found");
                break;
            }
            first.rx.fails(FI_ENOMSG, "looking too early")?;
            looks.again();
        }
    }
    ok!(tagged shared.srx, recvmsg(&message(&part, 5, 3), FI_CLAIM));
    ensure_eq!(second.rx.of(3)?.len, 100, "the claimed one");
    buffer.holds(0, &pattern(1, 100), "the claimed one")?;
    gives!(FI_EINVAL, tagged shared.srx, recvmsg(&message(&part, 5, 3), FI_CLAIM));
    // The next receive does not get the discarded message.
    ok!(tagged shared.srx, recv(buffer.base.cast(), 100, null_mut(), FI_ADDR_UNSPEC, 0, u64::MAX, cx(4)));
    ensure_eq!(second.rx.of(4)?.len, 20, "the one behind");
    Ok(())
}

const MULTI: Plan<'static> = Plan::DEFAULT.caps(FI_MSG | FI_MULTI_RECV);

fn several(job: &Job<'_>, shared: Option<&Shared>, addresses: &[u64]) -> Verdict {
    let Some(shared) = shared else {
        for nth in 0..6u8 {
            send(job, addresses[usize::from(nth) % 2], &[nth + 1; 64])?;
            job.tx.of(1)?;
            if nth == 2 {
                job.meet();
            }
        }
        return Ok(());
    };
    // Three messages arrive before the receive is posted, and three after.
    job.meet();
    let (least, mut seen, mut len) = (64usize, 0usize, size_of::<usize>());
    ok!(obj shared.srx, setopt(FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, (&raw const least).cast(), len));
    ok!(obj shared.srx, getopt(FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, (&raw mut seen).cast(), &mut len));
    ensure_eq!(seen, 64, "the option");
    let buffer = Buffer::new(5 * 64 + 60);
    let part = iovec(buffer.base, buffer.len);
    let msg = plain_msg(&part, FI_ADDR_UNSPEC, cx(4));
    ok!(msg shared.srx, recvmsg(&msg, FI_MULTI_RECV));
    let (mut taken, mut given_back) = ([0; 2], 0);
    let mut values = Vec::new();
    let mut looks = Looks::new();
    while given_back == 0 {
        for (nth, own) in shared.endpoints.iter().enumerate() {
            let (code, entry) = own.rx.read();
            if code != 1 {
                ensure_eq!(code, AGAIN, "reading");
                looks.again();
                continue;
            }
            ensure_eq!((entry.context(), entry.len), (4, 64), "a message");
            taken[nth] += 1;
            given_back += usize::from(entry.flags & FI_MULTI_RECV != 0);
            let at = entry.buf.addr() - buffer.base.addr();
            let value = buffer.load(at, 1)[0];
            buffer.holds(at, &[value; 64], "a message")?;
            values.push(value);
        }
    }
    let total: i32 = taken.iter().sum();
    let seen = (total, given_back);
    ensure_eq!(seen, (5, 1), "messages, and how often it was given back");
    // The remaining message goes to the next receive.
    let last = Buffer::new(64);
    shared.receive(last.base, 64, 5)?;
    let end = found("the last message", || {
        let mut ends = shared.endpoints.iter().map(|own| own.rx.read());
        Ok(ends.find(|(code, _)| *code == 1))
    })?;
    ensure_eq!(end.1.context(), 5, "its context");
    values.push(last.load(0, 1)[0]);
    values.sort_unstable();
    ensure_eq!(values, [1, 2, 3, 4, 5, 6], "the messages, each once");
    Ok(())
}

const DIRECTED: Plan<'static> = Plan::DEFAULT.caps(FI_MSG | FI_TAGGED | FI_DIRECTED_RECV);

fn directed(job: &Job<'_>, shared: Option<&Shared>, addresses: &[u64]) -> Verdict {
    let Some(shared) = shared else {
        for (nth, address) in addresses.iter().enumerate() {
            send(job, *address, &[job.rank as u8 * 10 + nth as u8; 8])?;
            job.tx.of(1)?;
        }
        return Ok(());
    };
    let buffer = Buffer::new(32);
    for (nth, sender) in [2, 1, 1, 2].into_iter().enumerate() {
        let from = job.peer(sender).address;
        ok!(msg shared.srx, recv(buffer.at(8 * nth).cast(), 8, null_mut(), from, cx(nth)));
    }
    for own in &shared.endpoints {
        own.rx.next()?;
        own.rx.next()?;
    }
    let senders = [0, 8, 16, 24].map(|at| buffer.load(at, 1)[0] / 10);
    ensure_eq!(senders, [2, 1, 1, 2], "the senders");
    gives!(FI_EINVAL, msg shared.srx, recv(null_mut(), 0, null_mut(), 99, null_mut()));
    Ok(())
}

fn cancelled(job: &Job<'_>, shared: Option<&Shared>, addresses: &[u64]) -> Verdict {
    let Some(shared) = shared else {
        job.meet();
        send(job, addresses[1], &[3; 8])?;
        return job.tx.of(1).map(drop);
    };
    let buffer = Buffer::new(16);
    shared.receive(buffer.base, 8, 6)?;
    shared.receive(buffer.at(8), 8, 7)?;
    gives!(FI_ENOENT, obj shared.srx, cancel(cx(5)));
    ok!(obj shared.srx, cancel(cx(6)));
    let error = shared.endpoints[0].rx.fails(FI_ECANCELED, "the receive")?;
    let seen = (error.context(), error.flags);
    ensure_eq!(seen, (6, FI_MSG | FI_RECV), "the failure");
    gives!(FI_ENOENT, obj shared.srx, cancel(cx(6)));
    job.meet();
    shared.endpoints[1].rx.of(7)?;
    let expected = [[0; 8], [3; 8]];
    buffer.holds(0, expected.as_flattened(), "both buffers")?;
    gives!(FI_ENOENT, obj shared.srx, cancel(cx(7)));
    shared.endpoints[0].rx.is_empty()
}

fn raced(job: &Job<'_>, shared: Option<&Shared>, addresses: &[u64]) -> Verdict {
    const COUNT: usize = 2;
    let each = many(job.ctx, 50) as usize;
    let Some(shared) = shared else {
        for serial in 0..each {
            for address in addresses {
                let word = (serial as u64 + 1).to_le_bytes();
                job.post(|| inject_as(None, (job.ep, *address), &word))?;
            }
        }
        job.meet();
        return Ok(());
    };
    let room = Buffer::new(8 * COUNT * each);
    let words = *room;
    let srx = shared.srx.addr();
    std::thread::scope(|scope| {
        let poster = scope.spawn(move || {
            let srx = srx as *mut fid_ep;
            receive_each(None, srx, (&words, 8), 0..COUNT * each)
        });
        for _ in 0..each {
            for_all(&shared.endpoints, |own| own.rx.next())?;
        }
        poster.join().map_err(|_| "the poster panics")?
    })?;
    let mut seen: Vec<_> = (0..COUNT * each).map(|nth| words.get(8 * nth)).collect();
    seen.sort_unstable();
    let expected = (0..COUNT * each).map(|nth| (nth / COUNT) as u64 + 1);
    ensure!(expected.eq(seen), "each message once");
    job.meet();
    Ok(())
}

fn atomics(job: &Job<'_>, shared: Option<&Shared>, addresses: &[u64]) -> Verdict {
    let value = Buffer::new(8);
    let Some(shared) = shared else {
        // The key carries the tag.
        let (operand, fetch) = (5u64, rma_ioc(0, 1, 9));
        let (from, mut into) = (ioc(&operand, 1), ioc(value.base, 1));
        let msg = atomic_msg(&from, addresses[1], &fetch, SUM, cx(2));
        job.told(
            2,
            || call!(atomic job.ep, readwritemsg(&msg, &mut into, null_mut(), 1, FI_TAGGED)),
        )?;
        ensure_eq!(value.get(0), 37, "the value before");
        return Ok(());
    };
    value.set(0, 37);
    ok!(tagged shared.srx, recv(value.base.cast(), 8, null_mut(), FI_ADDR_UNSPEC, 9, 0, cx(3)));
    let entry = shared.endpoints[1].rx.of(3)?;
    let flags = entry.flags;
    ensure!(flags & FI_ATOMIC != 0, "the flags: {flags:#x}");
    ensure_eq!(value.get(0), 42, "the value");
    // Rank 0 makes progress so that its answer reaches the requester.
    shared.progress();
    Ok(())
}

fn dead(job: &Job<'_>) -> Verdict {
    let shared = match job.rank {
        0 => Some(Shared::open(job, &DIRECTED, 2)?),
        _ => None,
    };
    job.meet();
    let victim = super::death::victim(job);
    if job.rank == victim {
        job.ctx.dies();
    }
    if let Some(shared) = shared {
        let buffer = Buffer::new(8);
        let from = job.peer(victim).address;
        ok!(msg shared.srx, recv(buffer.base.cast(), 8, null_mut(), from, cx(3)));
        let error = found("the failure", || {
            let mut ends = shared.endpoints.iter().map(|own| own.rx.look());
            ends.find_map(Result::transpose).transpose()
        })?;
        let End::Failure(error) = error else {
            return Err("a success".into());
        };
        let seen = (error.err, error.context());
        ensure_eq!(seen, (FI_ECONNRESET, 3), "the failure");
        shared.close()?;
    }
    Ok(())
}

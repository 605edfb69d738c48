//! Lifetimes of objects: the order of closing, and their state before they are enabled.

use super::kit::*;
use super::station::{Plan, Station, close, open_queue};
use crate::kit::library_threads;

laws! {
    busy: "lives.busy", "fi_close(3)", 1, [close, fabric, domain, av_open, cq_open, cntr_open, endpoint],
        "what others need cannot be closed (-FI_EBUSY), and can when they are gone";
    watched: "lives.watched", "fi_close(3)", 1, [close, cq_open, endpoint, trecv, tsend],
        "what the library's own thread looks after can be closed at once, one object after the other";
    one_thread: "lives.thread", "fi_domain(3): data_progress", 1, [endpoint, cq_open, tsend, trecv, mr_reg],
        "whatever gets on by itself, one thread of the library's moves it on: queues with descriptors, endpoints with automatic progress, peers' operations \
         on memory that only its owner can reach, networks";
    states: "lives.enable", "fi_endpoint(3)", 1, [enable, ep_bind, atomic, fetch_atomic, send, write],
        "before it is enabled an endpoint does nothing (-FI_EOPBADSTATE); afterwards it can be bound and enabled no more";
    counted_late: "lives.counted-late", "fi_endpoint(3), fi_cntr(3)", 1, [enable, ep_bind, cntr_read, write, read],
        "counters of an endpoint's own operations may be bound when it is enabled, as Sandia OpenSHMEM does: they count from then on, once for each \
         purpose; those of what peers do may not (-FI_EOPBADSTATE)";
    incomplete: "lives.incomplete", "fi_endpoint(3)", 1, [enable, ep_bind],
        "an endpoint without an address vector is not enabled (-FI_ENOAV), nor one without queue and counter (-FI_ENOCQ)";
    bindings: "lives.bind", "fi_endpoint(3)", 1, [ep_bind],
        "an object is bound once for each purpose; those of another domain, null, and unknown flags are refused";
    many_times: "lives.again", "fi_close(3)", 2, [fabric, domain, endpoint, close, fetch_atomic],
        "everything can be opened and closed again and again, and works each time";
    many_endpoints with(&Plan::DEFAULT, 4096): "lives.many", "fi_endpoint(3)", 2, [endpoint, enable, getname, fetch_atomic, close],
        "dozens of endpoints of one domain are each reached by their own names, and share its memory";
    shared_queue with(&Plan::DEFAULT, 256): "lives.queue", "fi_endpoint(3)", 1, [ep_bind, cq_read, atomic],
        "endpoints that share a queue are all told there";
    aliases with(&Plan::DEFAULT.selective(true), 256): "lives.alias", "fi_endpoint(3)", 2, [ep_alias, atomic, close],
        "an alias is the endpoint with other flags, and the endpoint stays when it is closed";
    pending: "lives.pending", "fi_endpoint(3)", 2, [close, atomic, recv],
        "an endpoint can be closed with receives that nobody has filled and completions that nobody has read";
    unused: "lives.unused", "fi_fabric(3)", 1, [fabric, domain, endpoint, control, getopt, setopt, eq_open],
        "what is not offered is -FI_ENOSYS in every slot of the tables, and null places are refused";
}

static ONE: u64 = 1;

fn busy(_: &Ctx) -> Verdict {
    let plan = Plan::DEFAULT.counters(&[FI_WRITE]);
    let station = Station::open(&plan)?;
    let objects: [*mut fid; 6] = [
        station.fabric.cast(),
        station.domain.cast(),
        station.av.cast(),
        station.tx.0.cast(),
        station.rx.0.cast(),
        station.counters[0].cast(),
    ];
    let try_close = |object: *mut fid| {
        // SAFETY:
        // - an object of the station.
        unsafe { ((*(*object).ops).close)(object) }
    };
    for object in objects {
        let seen = try_close(object);
        ensure_eq!(seen, -libc::EBUSY, "closing what the endpoint needs");
    }
    close(station.ep)?;
    for object in &objects[..2] {
        let seen = try_close(*object);
        ensure_eq!(seen, -libc::EBUSY, "closing what other objects need");
    }
    station.close_the_rest()
}

fn watched(ctx: &Ctx) -> Verdict {
    for nth in 0..many(ctx, 5) {
        let plan = Plan {
            progress: FI_PROGRESS_AUTO,
            wait: if nth % 2 == 0 {
                FI_WAIT_FD
            } else {
                FI_WAIT_UNSPEC
            },
            ..Plan::DEFAULT
        };
        let station = Station::open(&plan)?;
        let (to, word) = (station.insert(&station.name()?)?, Memory::new(8));
        ok!(tagged station.ep, recv(word.base.cast(), 8, null_mut(), FI_ADDR_UNSPEC, 1, 0, cx(1)));
        ok!(tagged station.ep, send([1u8; 8].as_ptr().cast(), 8, null_mut(), to, 1, cx(2)));
        station.rx.of(1)?;
        station.tx.of(2)?;
        station.close()?;
        word.free();
    }
    Ok(())
}

fn one_thread(_: &Ctx) -> Verdict {
    let plan = Plan::DEFAULT.progress(FI_PROGRESS_AUTO).wait(FI_WAIT_FD);
    let [first, second] = [Station::open(&plan)?, Station::open(&plan)?];
    // Peers cannot map shared pages: accesses to them need the library's thread as well.
    let shared = Memory::shared(1 << 16)?;
    for station in [&first, &second] {
        station.register(shared, 3)?;
        let (to, word) = (station.insert(&station.name()?)?, Memory::new(8));
        ok!(tagged station.ep, recv(word.base.cast(), 8, null_mut(), FI_ADDR_UNSPEC, 1, 0, cx(1)));
        ok!(tagged station.ep, send([1u8; 8].as_ptr().cast(), 8, null_mut(), to, 1, cx(2)));
        station.rx.of(1)?;
        station.tx.of(2)?;
    }
    // A munmap of registered memory waits for the thread unipgas-memory. That thread has no other task, and is not counted here.
    let moving = || {
        let names = library_threads().into_iter().map(|(name, _)| name);
        names
            .filter(|name| name != "unipgas-memory")
            .collect::<Vec<_>>()
    };
    // A thread sets its name shortly after its start.
    until("the library's thread", || !moving().is_empty())?;
    let ours = moving();
    ensure_eq!(ours.len(), 1, "threads, of {ours:?}");
    Ok(())
}

fn counted_late(_: &Ctx) -> Verdict {
    let plan = Plan::DEFAULT;
    let mut station = Station::open(&plan)?;
    let (ep, mut word, none) = (station.ep, 0u64, null_mut());
    let to = station.insert(&station.name()?)?;
    let memory = Memory::new(256);
    let region = station.register(memory, 3)?;
    let (at, key) = (region.base + 8, region.key);
    let write = || {
        ok!(rma ep, write((&raw const ONE).cast(), 8, none, to, at, key, none));
        station.tx.next()
    };
    write()?;
    let mut counters = [null_mut(); 2];
    for counter in &mut counters {
        ok!(obj station.domain, cntr_open(null_mut(), counter, null_mut()));
    }
    let [writes, reads] = counters;
    gives!(FI_EOPBADSTATE, fid ep, bind(writes.cast(), FI_REMOTE_WRITE));
    gives!(FI_EOPBADSTATE, fid ep, bind(writes.cast(), FI_REMOTE_READ));
    ok!(fid ep, bind(writes.cast(), FI_WRITE));
    gives!(FI_EINVAL, fid ep, bind(writes.cast(), FI_WRITE));
    write()?;
    ok!(fid ep, bind(reads.cast(), FI_READ));
    write()?;
    ok!(rma ep, read((&raw mut word).cast(), 8, none, to, at, key, none));
    station.tx.next()?;
    ensure_eq!(word, 1, "what was read");
    let counted = counters.map(value_of);
    ensure_eq!(
        counted,
        [2, 1],
        "writes and reads since the counters were bound"
    );
    close(region.mr)?;
    gives!(FI_EBUSY, fid writes, close());
    station.counters.extend(counters);
    station.close()?;
    memory.free();
    Ok(())
}

fn states(_: &Ctx) -> Verdict {
    let plan = Plan::DEFAULT;
    let mut station = Station::without_endpoint(&plan)?;
    station.ep = station.endpoint(&plan)?;
    let (ep, mut word, none) = (station.ep, 1u64, null_mut());
    let to = station.insert(&station.name()?)?;
    let (o, r) = ((&raw const word).cast(), (&raw mut word).cast());
    gives!(FI_EOPBADSTATE, atomic ep, write(o, 1, none, to, 0, 1, UINT64, SUM, none));
    gives!(FI_EOPBADSTATE, atomic ep, readwrite(o, 1, none, r, none, to, 0, 1, UINT64, SUM, none));
    gives!(FI_EOPBADSTATE, rma ep, write(o, 8, none, to, 0, 1, none));
    gives!(FI_EOPBADSTATE, msg ep, send(o, 8, none, to, none));
    gives!(FI_EOPBADSTATE, tagged ep, recv(r, 8, none, to, 1, 0, none));
    ok!(fid ep, control(FI_ENABLE, null_mut()));
    gives!(FI_EOPBADSTATE, fid ep, control(FI_ENABLE, null_mut()));
    let mut av = null_mut();
    ok!(obj station.domain, av_open(null_mut(), &mut av, null_mut()));
    gives!(FI_EOPBADSTATE, fid ep, bind(av.cast(), 0));
    close(av)?;
    let memory = Memory::new(256);
    let region = station.register(memory, 3)?;
    ok!(atomic ep, write((&raw const ONE).cast(), 1, none, to, region.base + 8, region.key, UINT64, SUM, none));
    station.tx.next()?;
    ensure_eq!(memory.get(8), 1, "the memory");
    close(region.mr)?;
    station.close()?;
    memory.free();
    Ok(())
}

fn incomplete(_: &Ctx) -> Verdict {
    let station = Station::open(&Plan::DEFAULT)?;
    let ep = station.bare()?;
    ok!(fid ep, bind(station.tx.0.cast(), FI_TRANSMIT));
    gives!(FI_ENOAV, fid ep, control(FI_ENABLE, null_mut()));
    ok!(fid ep, bind(station.av.cast(), 0));
    ok!(fid ep, control(FI_ENABLE, null_mut()));
    close(ep)?;
    let ep = station.bare()?;
    ok!(fid ep, bind(station.av.cast(), 0));
    gives!(FI_ENOCQ, fid ep, control(FI_ENABLE, null_mut()));
    close(ep)?;
    station.close()
}

fn bindings(_: &Ctx) -> Verdict {
    let (station, other) = (
        Station::open(&Plan::DEFAULT)?,
        Station::open(&Plan::DEFAULT)?,
    );
    let ep = station.bare()?;
    let queue = open_queue(station.domain, &Plan::DEFAULT)?;
    gives!(FI_EDOMAIN, fid ep, bind(other.av.cast(), 0));
    gives!(FI_EDOMAIN, fid ep, bind(other.tx.0.cast(), FI_TRANSMIT));
    gives!(FI_EINVAL, fid ep, bind(null_mut(), 0));
    gives!(FI_EINVAL, fid ep, bind(station.domain.cast(), 0));
    gives!(FI_EBADFLAGS, fid ep, bind(queue.0.cast(), 0));
    gives!(FI_EBADFLAGS, fid ep, bind(queue.0.cast(), FI_TRANSMIT | 1 << 40));
    gives!(FI_EBADFLAGS, fid ep, bind(station.av.cast(), 1));
    ok!(fid ep, bind(station.av.cast(), 0));
    gives!(FI_EINVAL, fid ep, bind(station.av.cast(), 0));
    ok!(fid ep, bind(queue.0.cast(), FI_TRANSMIT));
    gives!(FI_EINVAL, fid ep, bind(station.tx.0.cast(), FI_TRANSMIT | FI_RECV));
    ok!(fid ep, bind(queue.0.cast(), FI_RECV));
    gives!(FI_EINVAL, fid ep, bind(queue.0.cast(), FI_RECV));
    close(ep)?;
    close(queue.0)?;
    other.close()?;
    station.close()
}

fn many_times(ctx: &Ctx) -> Verdict {
    for round in 0..15 {
        with(ctx, &Plan::DEFAULT, 256, |job| {
            ensure_eq!(job.fetch(job.right(), 8, SUM, 5)?, 0, "round {round}");
            super::message::send(job, job.right(), &[3; 8], 1)?;
            let mut buffer = [0u8; 8];
            super::message::receive(job, &mut buffer, 2)?;
            job.rx.of(2)?;
            job.tx.of(1).map(drop)
        })?;
    }
    Ok(())
}

fn many_endpoints(job: &Job<'_>) -> Verdict {
    const COUNT: usize = 40;
    let mut endpoints = Vec::new();
    for _ in 0..COUNT {
        let ep = job.station.enabled(&Plan::DEFAULT)?;
        endpoints.push(ep);
    }
    let peer = job.peer(job.right());
    for (nth, ep) in endpoints.iter().enumerate() {
        // Ranks exchange one name at a time.
        job.meet();
        job.ctx.tell(&super::station::name_of(*ep)?);
        job.meet();
        let to = job
            .station
            .insert(&job.ctx.told(job.right()).unwrap_or_default())?;
        let (at, from) = (peer.base + 8 * nth as u64, endpoints[COUNT - 1 - nth]);
        job.told(nth, || call!(atomic from, write((&raw const ONE).cast(), 1, null_mut(), to, at, peer.key, UINT64, SUM, cx(nth))))?;
    }
    job.meet();
    ensure!(
        (0..COUNT).all(|nth| job.memory.get(8 * nth) == 1),
        "the memory"
    );
    endpoints.into_iter().try_for_each(close)
}

fn shared_queue(job: &Job<'_>) -> Verdict {
    let second = job.station.enabled(&Plan::DEFAULT)?;
    let (to, at, key) = job.place(0, 8);
    for (context, ep) in [(1, job.ep), (2, second)] {
        job.post(|| call!(atomic ep, write((&raw const ONE).cast(), 1, null_mut(), to, at, key, UINT64, SUM, cx(context))))?;
    }
    let both = job.tx.next()?.op_context.addr() + job.tx.next()?.op_context.addr();
    ensure_eq!(both, 3, "both contexts");
    close(second)?;
    job.fetch(0, 8, SUM, 1).map(drop)
}

fn aliases(job: &Job<'_>) -> Verdict {
    let mut alias: *mut fid = null_mut();
    let mut wanted = fi_alias {
        fid: &mut alias,
        flags: FI_TRANSMIT | FI_COMPLETION,
    };
    ok!(fid job.ep, control(FI_ALIAS, (&raw mut wanted).cast()));
    let alias: *mut fid_ep = alias.cast();
    let seen = super::station::name_of(alias)?;
    ensure_eq!(seen, job.station.name()?, "the name");
    let (to, at, key) = job.place(job.right(), 8);
    let post = |ep: *mut fid_ep, context| {
        job.post(|| call!(atomic ep, write((&raw const ONE).cast(), 1, null_mut(), to, at, key, UINT64, SUM, cx(context))))
    };
    post(alias, 4)?;
    job.tx.of(4)?;
    close(alias)?;
    post(job.ep, 5)?;
    until("the second operation", || {
        job.tx.progress();
        job.memory.get(8) == 2
    })?;
    job.tx.is_empty()
}

fn pending(ctx: &Ctx) -> Verdict {
    for _ in 0..5 {
        let job = opened(ctx, &Plan::DEFAULT, 256)?;
        let (to, at, key) = job.place(job.right(), 8);
        let mut buffers = [0u64; 20];
        for (nth, word) in buffers.iter_mut().enumerate() {
            job.post(|| call!(atomic job.ep, write((&raw const ONE).cast(), 1, null_mut(), to, at, key, UINT64, SUM, null_mut())))?;
            ok!(msg job.ep, recv((&raw mut *word).cast(), 8, null_mut(), FI_ADDR_UNSPEC, cx(nth)));
        }
        job.tx.successes(0..10)?;
        job.meet();
        // Operations in flight may still arrive: the memory stays.
        close(job.ep)?;
        job.meet();
        close(job.registered.mr)?;
        job.station.close_the_rest()?;
        ensure!(
            buffers.iter().all(|word| *word == 0),
            "a receive that nobody has filled"
        );
        ctx.sync();
    }
    Ok(())
}

fn unused(_: &Ctx) -> Verdict {
    let station = Station::open(&Plan::DEFAULT)?;
    let nosys = -(libc::ENOSYS as isize);
    // SAFETY:
    // - these entries accept any arguments.
    let codes = unsafe {
        let (fabric, domain, ep) = (
            &*(*station.fabric).ops,
            &*(*station.domain).ops,
            &*(*station.ep).cm,
        );
        let options = &*(*station.ep).ops;
        [
            (fabric.passive_ep)(),
            (domain.scalable_ep)(),
            (ep.setname)(),
            (ep.getpeer)(),
            (ep.connect)(),
            (ep.listen)(),
            (ep.accept)(),
            (ep.reject)(),
            (ep.shutdown)(),
            (options.tx_ctx)(),
            (options.rx_ctx)(),
        ]
        .map(|code| code as i32 as isize)
    };
    ensure!(
        codes.iter().all(|code| *code == nosys),
        "entries without a function: {codes:?}"
    );
    gives!(FI_ENOSYS, fid station.ep, control(9999, null_mut()));
    gives!(FI_EINVAL, fid station.ep, control(FI_SETOPSFLAG, null_mut()));
    gives!(FI_EINVAL, fid station.ep, control(FI_ALIAS, null_mut()));
    let (mut value, mut len) = (0usize, 4);
    let at = (&raw mut value).cast();
    gives!(FI_ETOOSMALL, obj station.ep, getopt(FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, at, &mut len));
    gives!(FI_ENOPROTOOPT, obj station.ep, getopt(FI_OPT_ENDPOINT, 999, at, &mut len));
    gives!(FI_ENOPROTOOPT, obj station.ep, setopt(77, FI_OPT_MIN_MULTI_RECV, at.cast_const(), 8));
    gives!(FI_EINVAL, obj station.ep, setopt(FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, std::ptr::null(), 8));
    gives!(FI_EINVAL, obj station.ep, setopt(FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, at.cast_const(), 3));
    gives!(FI_EINVAL, obj station.fabric, domain(null_mut(), &mut null_mut(), null_mut()));
    gives!(FI_EINVAL, obj station.fabric, domain(station.info.raw(), null_mut(), null_mut()));
    gives!(FI_EINVAL, obj station.domain, endpoint(null_mut(), &mut null_mut(), null_mut()));
    gives!(FI_EINVAL, obj station.domain, endpoint(station.info.raw(), null_mut(), null_mut()));
    gives!(FI_EINVAL, obj station.fabric, eq_open(null_mut(), null_mut(), null_mut()));
    station.close()
}

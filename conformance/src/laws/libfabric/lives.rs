//! Lifetimes of objects: the order of closing, and their state before they are enabled.

use super::kit::*;
use crate::kit::library_threads;

laws! {
    busy: "lives.busy", "fi_close(3)", 1, [close, fabric, domain, av_open, cq_open, cntr_open, endpoint],
        "objects in use cannot be closed (-FI_EBUSY), and can after their users";
    watched: "lives.watched", "fi_close(3)", 1, [close, cq_open, endpoint, trecv, tsend],
        "objects of the progress thread can be closed at once, one after the other";
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
        "an object is bound once for each purpose; objects of another domain, null, and unknown flags are refused";
    many_times: "lives.again", "fi_close(3)", 2, [fabric, domain, endpoint, close, fetch_atomic],
        "everything can be opened and closed again and again, and works each time";
    many_endpoints with(&Plan::DEFAULT, 4096): "lives.many", "fi_endpoint(3)", 2, [endpoint, enable, getname, fetch_atomic, close],
        "dozens of endpoints of one domain are each reached by their own names, and share its memory";
    shared_queue with(&Plan::DEFAULT, 256): "lives.queue", "fi_endpoint(3)", 1, [ep_bind, cq_read, atomic],
        "endpoints that share a queue are all told there";
    aliases with(&Plan::DEFAULT.selective(true), 256): "lives.alias", "fi_endpoint(3)", 2, [ep_alias, atomic, close],
        "an alias is the endpoint with other flags, and the endpoint stays when it is closed";
    pending: "lives.pending", "fi_endpoint(3)", 2, [close, atomic, recv],
        "an endpoint can be closed with unfilled receives and unread completions";
    unused: "lives.unused", "fi_fabric(3)", 1, [fabric, domain, endpoint, control, getopt, setopt, eq_open],
        "calls that are not offered give -FI_ENOSYS in every slot of the tables, and null pointers are refused";
}

fn busy(_: &Ctx) -> Verdict {
    let plan = Plan::DEFAULT.counters(&[FI_WRITE]);
    let station = Station::open(&plan)?;
    // Each object begins with its `fid`.
    let objects: [*mut fid_ep; 6] = [
        station.fabric.cast(),
        station.domain.cast(),
        station.av.cast(),
        station.tx.0.cast(),
        station.rx.0.cast(),
        station.counters[0].cast(),
    ];
    for object in objects {
        gives!(FI_EBUSY, fid object, close());
    }
    close(station.ep)?;
    for object in &objects[..2] {
        gives!(FI_EBUSY, fid * object, close());
    }
    station.close_the_rest()
}

fn watched(ctx: &Ctx) -> Verdict {
    for nth in 0..many(ctx, 5) {
        let wait = [FI_WAIT_FD, FI_WAIT_UNSPEC][nth as usize % 2];
        let plan = Plan::DEFAULT.progress(FI_PROGRESS_AUTO).wait(wait);
        let station = Station::open(&plan)?;
        talk_to_itself(&station)?;
        station.close()?;
    }
    Ok(())
}

/// Sends a message from the endpoint to itself.
fn talk_to_itself(station: &Station) -> Verdict {
    let to = station.insert(&station.name()?)?;
    let code = send_as(Some(1), (station.ep, to), &[1; 8], 2);
    ensure_eq!(code, 0, "fi_tsend");
    received(Some(1), (station.ep, station.rx), 8)?;
    station.tx.of(2).map(drop)
}

fn one_thread(_: &Ctx) -> Verdict {
    let plan = Plan::DEFAULT.progress(FI_PROGRESS_AUTO).wait(FI_WAIT_FD);
    let [first, second] = [Station::open(&plan)?, Station::open(&plan)?];
    // Peers cannot map shared pages: accesses to them need the library's thread as well.
    let shared = Memory::shared(1 << 16)?;
    for station in [&first, &second] {
        station.register(shared, 3)?;
        talk_to_itself(station)?;
    }
    // A munmap of registered memory waits for the thread unipgas-memory. That thread has no other task, and is not counted here.
    let moving = || {
        let mut names: Vec<_> = library_threads()
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        names.retain(|name| name != "unipgas-memory");
        names
    };
    // A thread sets its name shortly after its start.
    until("the library's thread", || !moving().is_empty())?;
    let ours = moving();
    equal!(ours.len(), 1, "threads, of {ours:?}")
}

fn counted_late(_: &Ctx) -> Verdict {
    let mut station = Station::open(&Plan::DEFAULT)?;
    let (ep, mut word) = (station.ep, 0u64);
    let to = station.insert(&station.name()?)?;
    let memory = Buffer::new(256);
    let region = station.register(*memory, 3)?;
    let words = Words::new(ep, (to, region.base + 8, region.key));
    let words = words.into(&mut word);
    let done = |operation: Operation| {
        ensure_eq!(operation(&words), 0, "posting");
        station.tx.next()
    };
    done(Words::write)?;
    let counters = [station.counter()?, station.counter()?];
    let [writes, reads] = counters;
    gives!(FI_EOPBADSTATE, fid ep, bind(writes.cast(), FI_REMOTE_WRITE));
    gives!(FI_EOPBADSTATE, fid ep, bind(writes.cast(), FI_REMOTE_READ));
    ok!(fid ep, bind(writes.cast(), FI_WRITE));
    gives!(FI_EINVAL, fid ep, bind(writes.cast(), FI_WRITE));
    done(Words::write)?;
    ok!(fid ep, bind(reads.cast(), FI_READ));
    done(Words::write)?;
    done(Words::read)?;
    ensure_eq!(current(&word), 1, "what was read");
    let counted = counters.map(value_of);
    ensure_eq!(counted, [2, 1], "writes and reads since the bindings");
    close(region.mr)?;
    gives!(FI_EBUSY, fid writes, close());
    station.counters.extend(counters);
    station.close()
}

fn states(_: &Ctx) -> Verdict {
    let plan = Plan::DEFAULT;
    let mut station = Station::without_endpoint(&plan)?;
    station.ep = station.endpoint(&plan)?;
    let (ep, mut word) = (station.ep, 1u64);
    let to = station.insert(&station.name()?)?;
    let words = Words::new(ep, (to, 0, 1)).into(&mut word);
    for operation in [
        Words::add as Operation,
        Words::fetch_add,
        Words::write,
        Words::send,
        |words| receive_as(Some(1), words.ep, &mut [0; 8], 0),
    ] {
        denied(FI_EOPBADSTATE, operation(&words), "before fi_enable")?;
    }
    ok!(fid ep, control(FI_ENABLE, null_mut()));
    gives!(FI_EOPBADSTATE, fid ep, control(FI_ENABLE, null_mut()));
    let av: *mut fid_av = open!(obj station.domain, av_open(null_mut()));
    gives!(FI_EOPBADSTATE, fid ep, bind(av.cast(), 0));
    close(av)?;
    let memory = Buffer::new(256);
    let region = station.register(*memory, 3)?;
    let words = Words::new(ep, (to, region.base + 8, region.key));
    ensure_eq!(words.add(), 0, "fi_atomic");
    station.tx.next()?;
    memory.shows(8, 1, "the memory")?;
    close(region.mr)?;
    station.close()
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
    let plan = Plan::DEFAULT;
    let (station, other) = (Station::open(&plan)?, Station::open(&plan)?);
    let ep = station.bare()?;
    let queue = open_queue(station.domain, &plan)?;
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
            job.send(job.right(), &[3; 8], 1)?;
            let mut buffer = [0u8; 8];
            job.receive(&mut buffer, 2)?;
            job.rx.of(2)?;
            job.tx.of(1).map(drop)
        })?;
    }
    Ok(())
}

fn many_endpoints(job: &Job<'_>) -> Verdict {
    const COUNT: usize = 40;
    let endpoint = |_| job.station.enabled(&Plan::DEFAULT);
    let endpoints: Vec<_> = (0..COUNT).map(endpoint).collect::<Result<_, _>>()?;
    for (nth, ep) in endpoints.iter().enumerate() {
        // Ranks exchange one name at a time.
        job.meet();
        job.ctx.tell(&name_of(*ep)?);
        job.meet();
        let to = job.known(job.right())?;
        let words = job.words(job.right(), 8 * nth).of(to).told(nth);
        job.told(nth, || words.by(endpoints[COUNT - 1 - nth]).add())?;
    }
    job.meet();
    for_all(0..COUNT, |nth| job.memory.shows(8 * nth, 1, "the memory"))?;
    endpoints.into_iter().try_for_each(close)
}

fn shared_queue(job: &Job<'_>) -> Verdict {
    let second = job.station.enabled(&Plan::DEFAULT)?;
    for (context, ep) in [(1, job.ep), (2, second)] {
        job.post(|| job.words(0, 8).by(ep).told(context).add())?;
    }
    let both = job.tx.next()?.context() + job.tx.next()?.context();
    ensure_eq!(both, 3, "both contexts");
    close(second)?;
    job.fetch(0, 8, SUM, 1).map(drop)
}

fn aliases(job: &Job<'_>) -> Verdict {
    let alias = super::alias::alias(job, FI_TRANSMIT | FI_COMPLETION)?;
    ensure_eq!(name_of(alias)?, job.station.name()?, "the name");
    let words = job.words(job.right(), 8);
    let post = |ep, context| job.post(|| words.by(ep).told(context).add());
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
        let mut buffers = [[0u8; 8]; 20];
        for (nth, buffer) in buffers.iter_mut().enumerate() {
            job.post(|| job.words(job.right(), 8).add())?;
            job.receive(buffer, nth)?;
        }
        job.tx.successes(0..10)?;
        job.meet();
        // Operations in flight may still arrive: the memory stays.
        close(job.ep)?;
        job.meet();
        close(job.registered.mr)?;
        job.station.close_the_rest()?;
        let unfilled = [[0; 8]; 20];
        ensure_eq!(current(&buffers), unfilled, "unfilled receives");
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
    let holds = codes.iter().all(|code| *code == nosys);
    ensure!(holds, "entries without a function: {codes:?}");
    gives!(FI_ENOSYS, fid station.ep, control(9999, null_mut()));
    gives!(FI_EINVAL, fid station.ep, control(FI_SETOPSFLAG, null_mut()));
    gives!(FI_EINVAL, fid station.ep, control(FI_ALIAS, null_mut()));
    let (mut value, mut len) = (0usize, 4);
    let at = (&raw mut value).cast();
    gives!(FI_ETOOSMALL, obj station.ep, getopt(FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, at, &mut len));
    gives!(FI_ENOPROTOOPT, obj station.ep, getopt(FI_OPT_ENDPOINT, 999, at, &mut len));
    gives!(FI_ENOPROTOOPT, obj station.ep, setopt(77, FI_OPT_MIN_MULTI_RECV, at.cast_const(), 8));
    gives!(FI_EINVAL, obj station.ep, setopt(FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, null(), 8));
    gives!(FI_EINVAL, obj station.ep, setopt(FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, at.cast_const(), 3));
    gives!(FI_EINVAL, obj station.fabric, domain(null_mut(), &mut null_mut(), null_mut()));
    gives!(FI_EINVAL, obj station.fabric, domain(station.info.raw(), null_mut(), null_mut()));
    gives!(FI_EINVAL, obj station.domain, endpoint(null_mut(), &mut null_mut(), null_mut()));
    gives!(FI_EINVAL, obj station.domain, endpoint(station.info.raw(), null_mut(), null_mut()));
    gives!(FI_EINVAL, obj station.fabric, eq_open(null_mut(), null_mut(), null_mut()));
    station.close()
}

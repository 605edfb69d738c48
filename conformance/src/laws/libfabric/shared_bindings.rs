//! Bindings of shared contexts, and refused bindings (fi_stx_context, fi_srx_context of fi_endpoint(3)).

use super::kit::*;
use super::library::getinfo;
use super::shared::message;
use super::srx::*;

laws! {
    left with(&Plan::DEFAULT, 256): "srx.closed", "fi_endpoint(3)", 2, [srx_context, close, recv, send],
        "an endpoint that is closed leaves the shared receives to the others";
    wrong with(&Plan::DEFAULT, 256): "srx.bad", "fi_endpoint(3)", 1, [srx_context, stx_context, ep_bind, enable, close, recv, send],
        "missing contexts, contexts of another domain or vector, and second contexts are refused; contexts in use are not closed";
    transmits with(&Plan::DEFAULT, 256): "stx.transmit", "fi_endpoint(3)", 2, [stx_context, ep_bind, send, write, cntr_read],
        "endpoints with a shared transmit context transmit, and each reports only its operations";
    offered: "srx.offer", "fi_getinfo(3)", 1, [getinfo],
        "a request for shared contexts is offered them; without it, the endpoint has private contexts";
}

fn left(job: &Job<'_>) -> Verdict {
    if job.rank > 0 {
        for _ in 0..3 {
            job.meet();
            let to = job.known(0)?;
            send(job, to, &[7; 8])?;
            job.tx.of(1)?;
            // No receive takes this second message.
            send(job, to, &[8; 8])?;
            job.tx.of(1)?;
            job.meet();
        }
        return Ok(());
    }
    let mut shared = Shared::open(job, &Plan::DEFAULT, 3)?;
    let buffer = Buffer::new(24);
    shared.receive(buffer.base, 8, 0)?;
    for nth in 0..3 {
        let own = shared.endpoints.remove(0);
        job.ctx.tell(&name_of(own.ep)?);
        job.meet();
        own.rx.of(nth)?;
        buffer.holds(8 * nth, &[7; 8], "the message")?;
        job.meet();
        for _ in 0..100 {
            own.rx.progress();
        }
        own.close()?;
        // Messages of the closed endpoint are gone. The next receive waits for the other endpoints.
        shared.receive(buffer.at(8 * (nth + 1).min(2)), 8, nth + 1)?;
    }
    close(shared.srx)
}

fn wrong(job: &Job<'_>) -> Verdict {
    let (domain, none) = (job.station.domain, null_mut());
    gives!(FI_EINVAL, obj domain, srx_ctx(null_mut(), null_mut(), none));
    gives!(FI_EINVAL, obj domain, stx_ctx(null_mut(), null_mut(), none));
    let (mut srx, mut stx): (*mut fid_ep, *mut fid_stx) = (null_mut(), null_mut());
    let mut asked = info(&Plan::DEFAULT, true, true)?;
    asked.receive().op_flags = 1 << 40;
    asked.transmit().op_flags = 1 << 40;
    gives!(FI_EINVAL, obj domain, srx_ctx(asked.receive(), &mut srx, none));
    gives!(FI_EINVAL, obj domain, stx_ctx(asked.transmit(), &mut stx, none));
    // Attributes are optional.
    ok!(obj domain, srx_ctx(null_mut(), &mut srx, none));
    ok!(obj domain, stx_ctx(null_mut(), &mut stx, none));
    gives!(FI_ENOSYS, fid stx, bind(job.rx.0.cast(), FI_TRANSMIT));
    gives!(FI_ENOSYS, fid srx, bind(job.rx.0.cast(), FI_RECV));
    gives!(FI_ENOENT, obj srx, cancel(cx(1)));
    // No endpoint is bound: no queue could report a cancellation.
    ok!(msg srx, recv(null_mut(), 0, none, FI_ADDR_UNSPEC, cx(1)));
    gives!(FI_EOPBADSTATE, obj srx, cancel(cx(1)));

    let mut own = info(&Plan::DEFAULT, false, false)?;
    let ep = bare(job, &mut own, job.station.av)?;
    gives!(FI_EINVAL, fid ep, bind(srx.cast(), 0));
    // Sandia OpenSHMEM binds a shared transmit context to an enabled endpoint that has a context, and closes the shared one first.
    ok!(fid ep, control(FI_ENABLE, null_mut()));
    ok!(fid ep, bind(stx.cast(), 0));
    close(stx)?;
    ok!(obj domain, stx_ctx(null_mut(), &mut stx, none));
    close(ep)?;

    let mut asked = info(&Plan::DEFAULT, true, true)?;
    let ep = bare(job, &mut asked, job.station.av)?;
    gives!(FI_EBADFLAGS, fid ep, bind(srx.cast(), FI_RECV));
    gives!(FI_EBADFLAGS, fid ep, bind(stx.cast(), FI_TRANSMIT));
    gives!(FI_EOPBADSTATE, fid ep, control(FI_ENABLE, null_mut()));
    ok!(fid ep, bind(srx.cast(), 0));
    gives!(FI_EINVAL, fid ep, bind(srx.cast(), 0));
    gives!(FI_EOPBADSTATE, fid ep, control(FI_ENABLE, null_mut()));
    ok!(fid ep, bind(stx.cast(), 0));
    gives!(FI_EINVAL, fid ep, bind(stx.cast(), 0));
    gives!(FI_EBUSY, fid srx, close());
    gives!(FI_EBUSY, fid stx, close());
    ok!(fid ep, control(FI_ENABLE, null_mut()));
    gives!(FI_EBUSY, fid srx, close());
    gives!(FI_EBUSY, fid stx, close());

    let mut word = 0u64;
    let base = (&raw mut word).cast();
    gives!(FI_EOPNOTSUPP, msg ep, recv(base, 8, none, FI_ADDR_UNSPEC, none));
    gives!(FI_EOPNOTSUPP, tagged ep, recv(base, 8, none, FI_ADDR_UNSPEC, 1, 0, none));
    gives!(FI_EOPNOTSUPP, msg srx, send(base.cast_const(), 8, none, 0, none));
    gives!(FI_EOPNOTSUPP, msg srx, inject(base.cast_const(), 8, 0));
    gives!(FI_EOPNOTSUPP, tagged srx, send(base.cast_const(), 8, none, 0, 1, none));
    gives!(FI_EOPNOTSUPP, tagged srx, inject(base.cast_const(), 8, 0, 1));
    gives!(FI_EINVAL, msg srx, recv(null_mut(), 8, none, FI_ADDR_UNSPEC, none));
    gives!(FI_EINVAL, msg srx, recvmsg(null(), 0));
    let part = iovec(base, 8);
    gives!(FI_EBADFLAGS, tagged srx, recvmsg(&message(&part, 1, 1), FI_TRIGGER));
    gives!(FI_EBADFLAGS, tagged srx, recvmsg(&message(&part, 1, 1), FI_DISCARD));

    // Endpoints of one shared context use the same vector.
    let av = vector(&job.station, FI_AV_TABLE, 0)?;
    let stranger = bare(job, &mut asked, av)?;
    ok!(fid stranger, bind(srx.cast(), 0));
    ok!(fid stranger, bind(stx.cast(), 0));
    gives!(FI_EINVAL, fid stranger, control(FI_ENABLE, null_mut()));
    close(stranger)?;
    close(av)?;

    let other = Station::without_endpoint(&Plan::DEFAULT)?;
    let foreign: *mut fid_ep = open!(obj other.domain, srx_ctx(null_mut()));
    let apart = bare(job, &mut asked, job.station.av)?;
    gives!(FI_EDOMAIN, fid apart, bind(foreign.cast(), 0));
    gives!(FI_EBUSY, fid other.domain, close());
    close(foreign)?;
    other.close_the_rest()?;
    close(apart)?;
    close(ep)?;
    close(srx)?;
    close(stx)
}

fn transmits(job: &Job<'_>) -> Verdict {
    const EACH: usize = 5;
    let mut asked = info(&Plan::DEFAULT, true, false)?;
    let stx: *mut fid_stx = open!(obj job.station.domain, stx_ctx(asked.transmit()));
    let mut endpoints = Vec::new();
    for _ in 0..3 {
        let ep: *mut fid_ep = open!(obj job.station.domain, endpoint(asked.raw()));
        let rx = open_queue(job.station.domain, &Plan::DEFAULT)?;
        let counter = job.station.counter()?;
        ok!(fid ep, bind(job.station.av.cast(), 0));
        ok!(fid ep, bind(rx.0.cast(), FI_TRANSMIT));
        ok!(fid ep, bind(counter.cast(), FI_SEND | FI_WRITE));
        ok!(fid ep, bind(stx.cast(), 0));
        ok!(fid ep, control(FI_ENABLE, null_mut()));
        endpoints.push(Own { ep, rx, counter });
    }
    let words = Buffer::new(8 * 3 * EACH);
    receive_each(None, job.ep, (&words, 8), 0..3 * EACH)?;
    job.meet();
    let sixes = u64::from_ne_bytes([6; 8]);
    for nth in 0..EACH {
        for (which, own) in endpoints.iter().enumerate() {
            let words = job.words(job.right(), 8 * which).by(own.ep).from(&sixes);
            let words = words.told(10 * which + nth);
            for operation in [Words::send, Words::write] {
                job.post(|| {
                    own.rx.progress();
                    operation(&words)
                })?;
                own.rx.of(10 * which + nth)?;
            }
        }
    }
    job.rx.successes(0..3 * EACH)?;
    words.holds(0, &[6; 8 * 3 * EACH], "the messages")?;
    job.meet();
    job.memory.holds(0, &[6; 24], "what was written")?;
    for own in endpoints {
        own.rx.is_empty()?;
        ensure_eq!(value_of(own.counter), 2 * EACH as u64, "its counter");
        gives!(FI_EBUSY, fid stx, close());
        own.close()?;
    }
    close(stx)
}

fn offered(_: &Ctx) -> Verdict {
    for (transmits, receives) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut info = info(&Plan::DEFAULT, transmits, receives)?;
        let count = |shared| if shared { FI_SHARED_CONTEXT } else { 1 };
        let (endpoint, domain) = (*info.endpoint(), *info.domain());
        ensure_eq!(endpoint.tx_ctx_cnt, count(transmits), "tx_ctx_cnt");
        ensure_eq!(endpoint.rx_ctx_cnt, count(receives), "rx_ctx_cnt");
        ensure!(domain.max_ep_stx_ctx > 0, "max_ep_stx_ctx");
        ensure!(domain.max_ep_srx_ctx > 0, "max_ep_srx_ctx");
        // A program may request the offered maximum.
        let mut hints = Plan::DEFAULT.hints();
        hints.domain().max_ep_stx_ctx = domain.max_ep_stx_ctx;
        hints.domain().max_ep_srx_ctx = domain.max_ep_srx_ctx;
        let holds = getinfo(Plan::DEFAULT.version, 0, Some(&hints)).is_ok();
        ensure!(holds, "the most");
        hints.domain().max_ep_srx_ctx = domain.max_ep_srx_ctx + 1;
        let code = getinfo(Plan::DEFAULT.version, 0, Some(&hints)).err();
        ensure_eq!(code, Some(-libc::ENODATA), "more than that");
    }
    Ok(())
}

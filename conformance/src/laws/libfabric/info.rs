//! Offers of the provider (fi_getinfo(3)), and its description of itself.

use std::ffi::CStr;

use super::kit::*;
use super::library::{self, Info, getinfo, getinfo_at};

laws! {
    provider: "info.provider", "fi_provider(7)", 1, [getinfo],
        "the provider has a name and versions, the same each time, in memory that libfabric may write";
    plain: "info.plain", "fi_getinfo(3)", 1, [getinfo],
        "without hints, and with empty ones, a reliable unconnected endpoint is offered that can do atomics";
    bounds: "info.bounds", "fi_getinfo(3)", 1, [getinfo],
        "nothing is written behind the structures of the version that has loaded the provider, and the provider's name is left to libfabric";
    caps: "info.caps", "fi_getinfo(3)", 1, [getinfo],
        "for each capability all that was asked for is offered, or -FI_ENODATA; unknown ones are refused";
    vectors: "info.vectors", "fi_domain(3) av_type", 1, [getinfo],
        "the type of the address vector is the one asked for; unspecified it stays so";
    refused: "info.refused", "fi_getinfo(3)", 1, [getinfo],
        "unsupported hints give -FI_ENODATA: other kinds of endpoints, providers, formats, protocols, modes, sizes";
    limits with(&Plan::DEFAULT, 64 << 10): "info.limits", "fi_getinfo(3)", 2, [getinfo, inject_write, writev],
        "sizes that are offered can be used";
    threading: "info.threading", "fi_domain(3)", 2, [getinfo, fetch_atomic],
        "every model of threading is offered as asked for, and works";
    versions: "info.versions", "fi_getinfo(3)", 2, [getinfo, fetch_atomic],
        "programs of every version of the interface from 1.0 on are served";
    node: "info.node", "fi_getinfo(3)", 1, [getinfo],
        "node and service lead to an endpoint of this machine by any of its names and addresses; other machines are -FI_ENODATA";
    own_name: "info.destination", "fi_getinfo(3)", 1, [getinfo],
        "an endpoint's name in the hints is that of the answer";
    everything: "info.caps.all", "fi_getinfo(3)", 1, [getinfo],
        "without hints, or without capabilities in them, all capabilities of the provider are returned";
    sides: "info.caps.sides", "fi_getinfo(3), fi_domain(3)", 1, [getinfo],
        "attributes requested for receives only, or for the domain, are in the answer";
}

fn provider(_: &Ctx) -> Verdict {
    let (one, two) = (library::provider(), library::provider());
    ensure_eq!(one, two, "two structures");
    // SAFETY:
    // - the provider's structure; its context belongs to the library.
    unsafe {
        let name = CStr::from_ptr((*one).name).to_bytes();
        let holds = !name.is_empty() && name.iter().all(|c| c.is_ascii_graphic() && *c != b';');
        ensure!(holds, "the name {name:?}");
        ensure!(
            (*one).fi_version >= version(1, 17),
            "version {:#x}",
            (*one).fi_version
        );
        let before = (*one).context.internal;
        (*one).context.internal = [5 as *mut _; 4];
        (*one).context.internal = before;
    }
    Ok(())
}

fn offer(hints: Option<&Info>) -> Result<Info, String> {
    getinfo(version(1, 17), 0, hints).map_err(|code| format!("fi_getinfo gave {code}"))
}

/// As [`offer`], for hints without other requests.
fn offer_for(wish: impl FnOnce(&mut Info)) -> Result<Info, String> {
    let mut hints = Info::hints();
    wish(&mut hints);
    offer(Some(&hints))
}

/// Fails unless nothing is offered for these hints.
fn refuses(hints: &Info, what: &str) -> Verdict {
    let code = getinfo(version(1, 17), 0, Some(hints)).err();
    equal!(code, Some(-libc::ENODATA), "{what}")
}

fn plain(_: &Ctx) -> Verdict {
    for hints in [None, Some(Info::hints())] {
        let mut info = offer(hints.as_ref())?;
        ensure_eq!(info.endpoint().r#type, FI_EP_RDM, "the endpoint's type");
        let caps = info.info().caps;
        let wanted = FI_ATOMIC | FI_RMA | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
        ensure_eq!(caps & wanted, wanted, "capabilities of {caps:#x}");
        let holds = info.transmit().caps & !caps == 0 && info.receive().caps & !caps == 0;
        ensure!(holds, "capabilities of one side alone");
        let seen = info.info().mode;
        ensure_eq!(seen, 0, "modes that a program would have to know");
        ensure!(
            info.transmit().inject_size >= 8 && info.transmit().size > 0 && info.receive().size > 0,
            "sizes"
        );
        let contexts = (info.endpoint().tx_ctx_cnt, info.endpoint().rx_ctx_cnt);
        ensure_eq!(contexts, (1, 1), "contexts");
        ensure!(info.endpoint().max_msg_size > 0, "max_msg_size");
        ensure!(info.info().next.is_null(), "a second offer");
    }
    Ok(())
}

fn vectors(_: &Ctx) -> Verdict {
    for wanted in [FI_AV_UNSPEC, FI_AV_MAP, FI_AV_TABLE] {
        let seen = offer_for(|h| h.domain().av_type = wanted)?.domain().av_type;
        ensure_eq!(seen, wanted, "the type of the address vector");
    }
    let seen = offer(None)?.domain().av_type;
    equal!(seen, FI_AV_UNSPEC, "the type without hints")
}

fn bounds(_: &Ctx) -> Verdict {
    let hints = Plan::DEFAULT.hints();
    for hints in [None, Some(&hints)] {
        let mut info = offer(hints)?;
        ensure!(info.is_whole(), "bytes behind a structure were written");
        let holds = info.fabric().prov_name.is_null();
        ensure!(holds, "the provider's name is libfabric's to fill in");
        let holds = !info.fabric().name.is_null() && !info.domain().name.is_null();
        ensure!(holds, "names of fabric and domain");
    }
    ensure!(hints.is_whole(), "hints were written");
    Ok(())
}

fn caps(_: &Ctx) -> Verdict {
    let calls = FI_MSG | FI_RMA | FI_TAGGED | FI_ATOMIC | FI_COLLECTIVE | FI_TRIGGER;
    let sides = FI_READ | FI_WRITE | FI_SEND | FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE;
    let more = FI_RMA_EVENT | FI_SOURCE | FI_DIRECTED_RECV | FI_MULTI_RECV;
    let known = calls | sides | more | FI_FENCE | FI_LOCAL_COMM;
    for bit in 0..64 {
        let mut hints = Info::hints();
        hints.info().caps = 1 << bit;
        match getinfo(version(1, 17), 0, Some(&hints)) {
            Ok(mut info) => {
                let offered = info.info().caps & (known | FI_REMOTE_COMM);
                ensure!(offered & 1 << bit != 0, "capability {bit}: {offered:#x}");
            }
            Err(code) => {
                ensure_eq!(code, -libc::ENODATA, "capability {bit}");
                ensure!(known & 1 << bit == 0, "capability {bit} is refused");
            }
        }
    }
    for caps in [
        FI_ATOMIC,
        FI_ATOMIC | FI_READ,
        FI_MSG | FI_ATOMIC | FI_RMA_EVENT,
        FI_TAGGED | FI_SOURCE,
        FI_TAGGED | FI_SOURCE | FI_SOURCE_ERR,
    ] {
        let offered = offer_for(|h| h.info().caps = caps)?.info().caps;
        ensure_eq!(offered & caps, caps, "capabilities");
        // Costly capabilities are offered only on request.
        let costly = more | FI_SOURCE_ERR | FI_COLLECTIVE | FI_TRIGGER;
        let seen = offered & costly & !caps;
        ensure_eq!(seen, 0, "capabilities that were not requested");
    }
    Ok(())
}

fn refused(_: &Ctx) -> Verdict {
    type Wish = (&'static str, fn(&mut Info));
    let wishes: [Wish; 29] = rows! {
        "a connected endpoint": |h| h.endpoint().r#type = 1;
        "a datagram endpoint": |h| h.endpoint().r#type = 2;
        "an unknown endpoint": |h| h.endpoint().r#type = 9;
        "a protocol": |h| h.endpoint().protocol = 3;
        "messages of any length": |h| h.endpoint().max_msg_size = usize::MAX;
        "contexts": |h| h.endpoint().tx_ctx_cnt = 5;
        "contexts for receives": |h| h.endpoint().rx_ctx_cnt = 2;
        "an authorisation key": |h| h.endpoint().auth_key_size = 8;
        "an address format": |h| h.info().addr_format = 2;
        "an inject of a megabyte": |h| h.transmit().inject_size = 1 << 20;
        "a vector of a thousand": |h| h.transmit().iov_limit = 1000;
        "a remote vector of a thousand": |h| h.transmit().rma_iov_limit = 1000;
        "unknown flags": |h| h.transmit().op_flags = 1 << 40;
        "unknown flags of receives": |h| h.receive().op_flags = FI_INJECT;
        "capabilities of one side alone": |h| (h.info().caps, h.transmit().caps) = (FI_ATOMIC, FI_MSG);
        "strict completion order": |h| h.transmit().comp_order = FI_ORDER_STRICT;
        "ordered data": |h| h.transmit().comp_order = FI_ORDER_DATA;
        "ordered data of receives": |h| h.receive().comp_order = FI_ORDER_DATA;
        "many operations": |h| h.transmit().size = 1 << 15;
        "many receives": |h| h.receive().size = 1 << 20;
        "room for unexpected messages": |h| h.receive().total_buffered_recv = 1 << 20;
        "an unknown management": |h| h.domain().resource_mgmt = 3;
        "a negative management": |h| h.domain().resource_mgmt = -1;
        "long keys": |h| h.domain().mr_key_size = 16;
        "much data": |h| h.domain().cq_data_size = 16;
        "several pieces of a region": |h| h.domain().mr_iov_limit = 4;
        "an unknown threading": |h| h.domain().threading = 99;
        "an unknown progress": |h| h.domain().data_progress = 99;
        "an unknown vector": |h| h.domain().av_type = 99;
    };
    for (what, wish) in wishes {
        let mut hints = Info::hints();
        wish(&mut hints);
        refuses(&hints, what)?;
    }
    for of_domain in [true, false] {
        let mut hints = Info::hints();
        // SAFETY:
        // - a C string; the info frees the copy.
        let other = unsafe { libc::strdup(c"another".as_ptr()) };
        match of_domain {
            true => hints.domain().name = other,
            false => hints.fabric().name = other,
        }
        refuses(&hints, "another fabric or domain")?;
        // The flag requests the provider's attributes alone: hints are ignored.
        let holds = getinfo(version(1, 17), FI_PROV_ATTR_ONLY, Some(&hints)).is_ok();
        ensure!(holds, "FI_PROV_ATTR_ONLY");
    }
    Ok(())
}

fn limits(job: &Job<'_>) -> Verdict {
    // SAFETY:
    // - fi_getinfo(3) has returned the info with its attributes.
    let transmit = unsafe { *(*job.station.info.raw()).tx_attr };
    let (to, at, key) = job.place(job.right(), 0);
    let most = transmit.inject_size;
    let bytes = vec![7u8; most + 1];
    job.post(|| call!(rma job.ep, inject(bytes.as_ptr().cast(), most, to, at, key)))?;
    gives!(FI_EMSGSIZE, rma job.ep, inject(bytes.as_ptr().cast(), most + 1, to, at, key));
    until("the injected bytes", || {
        job.tx.progress();
        job.memory.load(0, most) == bytes[..most]
    })?;
    let limit = transmit.iov_limit;
    let list: Vec<libc::iovec> = (0..=limit).map(|i| iovec(bytes[i..].as_ptr(), 1)).collect();
    job.done(|| call!(rma job.ep, writev(list.as_ptr(), null_mut(), limit, to, at + 8192, key, null_mut())))?;
    gives!(FI_EINVAL, rma job.ep, writev(list.as_ptr(), null_mut(), limit + 1, to, at + 8192, key, null_mut()));
    job.meet();
    job.memory.holds(8192, &bytes[..limit], "the pieces")?;
    job.memory.holds(8192 + limit, &[0], "what is behind them")
}

fn threading(ctx: &Ctx) -> Verdict {
    let models = [
        FI_THREAD_UNSPEC,
        FI_THREAD_SAFE,
        FI_THREAD_FID,
        FI_THREAD_DOMAIN,
    ];
    for threading in models
        .into_iter()
        .chain([FI_THREAD_COMPLETION, FI_THREAD_ENDPOINT])
    {
        with(ctx, &Plan::DEFAULT.threading(threading), 256, |job| {
            // SAFETY:
            // - fi_getinfo(3) has returned the info with its attributes.
            let offered = unsafe { (*(*job.station.info.raw()).domain_attr).threading };
            let holds = offered == threading || offered == FI_THREAD_SAFE;
            ensure!(holds, "threading {threading} became {offered}");
            for nth in 0..20 {
                ensure_eq!(job.fetch(job.right(), 8, SUM, 1)?, nth, "the sum before");
            }
            Ok(())
        })?;
    }
    Ok(())
}

fn versions(ctx: &Ctx) -> Verdict {
    let ones = [0, 4, 5, 8, 9, 13, 17, 20].map(|minor| (1, minor));
    for (major, minor) in ones.into_iter().chain([(2, 0), (2, 6)]) {
        let of_old = (major, minor) < (1, 5);
        let mr_mode = if of_old { FI_MR_BASIC } else { BASIC };
        let plan = Plan::DEFAULT.version(version(major, minor));
        with(ctx, &plan.mr_mode(mr_mode), 256, |job| {
            let seen = job.fetch(job.right(), 8, SUM, 5)?;
            equal!(seen, 0, "version {major}.{minor}")
        })?;
    }
    Ok(())
}

fn node(_: &Ctx) -> Verdict {
    let own = nodename();
    let (service, latest) = (c"a service of laws", version(1, 17));
    for node in [
        c"localhost",
        c"127.0.0.1",
        c"127.3.4.5",
        c"::1",
        c"0.0.0.0",
        own.as_c_str(),
    ] {
        for flags in [0, FI_SOURCE] {
            let found = getinfo_at(latest, [Some(node), Some(service)], flags, None);
            let mut found = found.map_err(|code| format!("node {node:?} gave {code}"))?;
            let ends = (found.end(true).len(), found.end(false).len());
            let expected = if flags == 0 { (NAME, NAME) } else { (NAME, 0) };
            let what = format!("lengths of source and destination at {node:?}");
            ensure_eq!(ends, expected, "{what}");
        }
    }
    let named = |at, flags| getinfo_at(latest, at, flags, None);
    let good = |at, flags| named(at, flags).map_err(|code| format!("{at:?}: {code}"));
    let destination = good([None, Some(service)], 0)?.end(false).len();
    ensure_eq!(destination, NAME, "a service alone as the destination");
    let source = good([Some(c"localhost"), None], FI_SOURCE)?.end(true);
    ensure_eq!(source, [0; NAME], "any endpoint of this machine");
    let nobody = good([Some(c"localhost"), None], 0)?.end(false);
    ensure!(nobody.is_empty(), "a machine alone as the destination");
    let too_long = c"a service with a name that is much too long to be the name of an endpoint";
    // 192.0.2.1 and 2001:db8::1 are reserved for documentation: no machine has them.
    for (at, flags) in [
        ([Some(c"192.0.2.1"), Some(service)], 0),
        ([Some(c"2001:db8::1"), Some(service)], FI_SOURCE),
        ([Some(c"192.0.2.1"), None], FI_SOURCE),
        ([Some(c"localhost"), Some(service)], FI_NUMERICHOST),
        ([None, Some(c"")], 0),
        ([Some(c""), Some(service)], 0),
        ([None, Some(too_long)], 0),
    ] {
        let code = named(at, flags).err();
        ensure_eq!(code, Some(-libc::ENODATA), "{at:?} with flags {flags:#x}");
    }
    Ok(())
}

fn nodename() -> std::ffi::CString {
    let mut name = [0u8; 256];
    // SAFETY:
    // - the length is in bounds; the last byte stays 0.
    unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) };
    CStr::from_bytes_until_nul(&name).unwrap_or_default().into()
}

fn everything(_: &Ctx) -> Verdict {
    let all = FI_MSG | FI_RMA | FI_TAGGED | FI_ATOMIC | FI_READ | FI_WRITE | FI_SEND | FI_RECV;
    let more = FI_REMOTE_READ | FI_REMOTE_WRITE | FI_FENCE | FI_LOCAL_COMM;
    let asked = FI_RMA_EVENT | FI_SOURCE | FI_DIRECTED_RECV | FI_MULTI_RECV;
    for hints in [None, Some(Info::hints())] {
        let mut info = offer(hints.as_ref())?;
        let caps = info.info().caps;
        let seen = caps & (all | more | asked);
        ensure_eq!(seen, all | more | asked, "capabilities");
        ensure_eq!(info.receive().caps & asked, asked, "those of receives");
    }
    Ok(())
}

fn sides(_: &Ctx) -> Verdict {
    for cap in [FI_SOURCE, FI_DIRECTED_RECV, FI_MULTI_RECV, FI_RMA_EVENT] {
        let mut info = offer_for(|h| {
            h.info().caps = FI_MSG | FI_RMA;
            h.receive().caps = FI_MSG | cap;
        })?;
        ensure!(info.receive().caps & cap != 0, "{cap:#x} of receives");
        ensure!(info.info().caps & cap != 0, "{cap:#x} of the endpoint");
    }
    for caps in [FI_MSG, 0] {
        let mut info = offer_for(|h| {
            h.info().caps = caps;
            h.domain().caps = FI_LOCAL_COMM;
        })?;
        let told = info.domain().caps;
        let seen = told & FI_LOCAL_COMM;
        ensure_eq!(seen, FI_LOCAL_COMM, "the domain's capabilities");
    }
    Ok(())
}

fn own_name(_: &Ctx) -> Verdict {
    let station = Station::open(&Plan::DEFAULT)?;
    let name = station.name()?;
    let mut hints = Info::hints();
    // SAFETY:
    // - room for the name; the info frees it.
    unsafe {
        let copy = libc::malloc(NAME).cast::<u8>();
        std::ptr::copy_nonoverlapping(name.as_ptr(), copy, NAME);
        hints.info().dest_addr = copy.cast();
        hints.info().dest_addrlen = NAME;
    }
    let mut found = offer(Some(&hints))?;
    ensure_eq!(found.end(false), name, "the destination");
    station.close()
}

//! Lookup of endpoints by node and service, and names as text (fi_getinfo(3), fi_av(3)). The node is localhost.

use std::ffi::{CString, c_char};

use super::kit::*;
use super::library::getinfo_at;

laws! {
    talk: "service.talk", "fi_getinfo(3), fi_av(3)", 2, [getinfo, getname, av_insert, av_lookup, send, recv, write] + one_host,
        "a client finds a server by its service, before or after the server has opened its endpoint; names agree on both sides";
    sources: "service.source", "fi_cq(3)", 2, [av_insertsvc, cq_readfrom] + one_host,
        "a message from an endpoint that was inserted by its service, and not talked to, comes from that address";
    taken: "service.taken", "fi_endpoint(3)", 2, [endpoint, close] + one_host,
        "one endpoint at a time is a service: another one is -FI_EADDRINUSE until it has been closed";
    any: "service.any", "fi_getinfo(3)", 2, [getinfo, endpoint, getname, close] + one_host,
        "with FI_SOURCE the service 0 is any, as with ports: many endpoints are open at once, and have names of their own";
    name: "service.name", "fi_endpoint(3), fi_av(3)", 2, [getname, av_insert, send],
        "the name of an endpoint that is a service leads to it, also from another host where another one is that service";
    again: "service.again", "fi_av(3)", 2, [endpoint, close, av_insert, av_remove] + one_host,
        "an inserted address keeps its endpoint; a later endpoint of the service is found by another insertion";
    left: "service.left", "fi_endpoint(3)", 3, [endpoint, getinfo] + needs_kill + one_host,
        "the service of a process that was killed can be taken by another one";
    texts: "av.text", "fi_getinfo(3), fi_av(3)", 2, [getinfo, getname, av_insert, av_lookup, av_straddr, tsend] + one_host,
        "with FI_ADDR_STR all names are texts, from fi_getinfo on, and several are inserted one behind the other";
}

/// A service name that no other law uses at the same time.
fn service(ctx: &Ctx) -> CString {
    if ctx.rank == 0 {
        ctx.tell(format!("law {} {}", std::process::id(), ctx.life_cycle).as_bytes());
    }
    ctx.sync();
    let service = CString::new(ctx.told(0).unwrap_or_default()).unwrap_or_default();
    ctx.sync();
    service
}

/// Opens the objects of a service's server or client, except the endpoint.
fn side(service: &CString, plan: &Plan<'_>, server: bool, format: u32) -> Result<Station, String> {
    let mut hints = plan.hints();
    hints.info().addr_format = format;
    let (node, flags) = match server {
        true => (None, FI_SOURCE),
        false => (Some(c"localhost"), 0),
    };
    let info = getinfo_at(plan.version, [node, Some(service)], flags, Some(&hints));
    let info = info.map_err(|code| format!("fi_getinfo gave {code}"))?;
    Station::of(info, plan)
}

/// Receives 8 bytes from any sender.
fn hear(station: &Station, expected: &[u8; 8]) -> Verdict {
    let seen = received(None, (station.ep, station.rx), 8)?;
    same(&seen, expected, "what was received")
}

/// Sends 8 bytes; retries until the endpoint accepts them.
fn say(station: &Station, to: u64, bytes: &[u8; 8]) -> Verdict {
    let send = || send_as(None, (station.ep, to), bytes, 1);
    post(send, || {
        station.tx.progress();
        Ok(())
    })?;
    station.tx.of(1).map(drop)
}

/// As [`say`], to the endpoint whose name a rank has published.
fn say_to(station: &Station, told: Option<Vec<u8>>, bytes: &[u8; 8]) -> Verdict {
    say(station, station.insert(&told.unwrap_or_default())?, bytes)
}

/// Opens an endpoint for the service. Returns the code, too.
fn attempt(station: &Station) -> (c_int, *mut fid_ep) {
    let mut ep = null_mut();
    let code = call!(obj station.domain, endpoint(station.info.raw(), &mut ep, null_mut()));
    (code, ep)
}

fn talk(ctx: &Ctx) -> Verdict {
    for server_first in [true, false] {
        let (service, plan) = (service(ctx), Plan::DEFAULT);
        let server = ctx.rank == 0;
        let mut station = side(&service, &plan, server, FI_FORMAT_UNSPEC)?;
        let ends = (station.info.end(true), station.info.end(false));
        let memory = Buffer::new(256);
        let registered = station.register(*memory, 7 + u64::from(ctx.rank))?;
        if server {
            ensure_eq!(ends.1.len(), 0, "the server's destination");
            if !server_first {
                ctx.sync();
            }
            station.ep = station.enabled(&plan)?;
            if server_first {
                ctx.sync();
            }
            let found = station.name()?.to_vec();
            ensure_eq!(found, ends.0, "the server's name and its source");
            let region = [registered.key, registered.base].map(u64::to_le_bytes);
            ctx.tell(&[&ends.0[..], region.as_flattened()].concat());
            ctx.sync();
            // The client sends its name.
            let name = received(None, (station.ep, station.rx), NAME)?;
            say(&station, station.insert(&name)?, b"welcome!")?;
        } else {
            station.ep = station.enabled(&plan)?;
            if server_first {
                ctx.sync();
            }
            let to = station.insert(&ends.1)?;
            let (mut seen, mut len) = ([0u8; NAME], NAME);
            ok!(obj station.av, lookup(to, seen.as_mut_ptr().cast(), &mut len));
            ensure_eq!(seen.to_vec(), ends.1, "what fi_av_lookup gives");
            let name = station.name()?;
            let send = || send_as(None, (station.ep, to), &name, 6);
            if !server_first {
                ensure_eq!(send(), AGAIN, "a message before there is a server");
                ctx.sync();
            }
            post(send, || Ok(()))?;
            station.tx.of(6)?;
            ctx.sync();
            hear(&station, b"welcome!")?;
            let told = ctx.told(0).unwrap_or_default();
            let found = told[..NAME].to_vec();
            ensure_eq!(found, ends.1, "the server's source and the destination");
            let (key, base) = (u64_of(&told[NAME..]), u64_of(&told[NAME + 8..]));
            ok!(rma station.ep, write(b"written!".as_ptr().cast(), 8, null_mut(), to, base, key, cx(9)));
            station.tx.of(9)?;
        }
        ctx.sync();
        if server {
            memory.holds(0, b"written!", "the client's data")?;
        }
        close(registered.mr)?;
        station.close()?;
        ctx.sync();
    }
    Ok(())
}

fn sources(ctx: &Ctx) -> Verdict {
    let plan = Plan::DEFAULT.caps(FI_MSG | FI_SOURCE);
    let service = service(ctx);
    let mut station = side(&service, &plan, ctx.rank == 0, FI_FORMAT_UNSPEC)?;
    station.ep = station.enabled(&plan)?;
    if ctx.rank == 1 {
        ctx.tell(&station.name()?);
    }
    ctx.sync();
    if ctx.rank == 0 {
        say_to(&station, ctx.told(1), b"who am I")?;
    } else {
        let mut address = 77;
        let (node, missing) = (c"localhost".as_ptr(), c"192.0.2.1".as_ptr());
        let av = station.av;
        let count = call!(obj av, insertsvc(node, service.as_ptr(), &mut address, 0, null_mut()));
        ensure_eq!((count, address), (1, 0), "fi_av_insertsvc");
        let mut other = 77;
        let count = call!(obj av, insertsvc(missing, service.as_ptr(), &mut other, 0, null_mut()));
        let wanted = (0, FI_ADDR_NOTAVAIL);
        ensure_eq!((count, other), wanted, "fi_av_insertsvc of another machine");
        let word = Buffer::new(8);
        receive_each(None, station.ep, (&word, 8), [0])?;
        let (_, source) = station.rx.next_from()?;
        ensure_eq!(source, address, "the message's source");
    }
    ctx.sync();
    station.close()
}

fn taken(ctx: &Ctx) -> Verdict {
    let (service, plan) = (service(ctx), Plan::DEFAULT);
    let station = side(&service, &plan, true, FI_FORMAT_UNSPEC)?;
    let refused = || -> Verdict {
        let (code, ep) = attempt(&station);
        let expected = -libc::EADDRINUSE;
        ensure_eq!(code, expected, "an endpoint for a service that is taken");
        ensure!(ep.is_null(), "an endpoint");
        Ok(())
    };
    for turn in 0..2 {
        if ctx.rank == turn {
            let ep = station.enabled(&plan)?;
            refused()?;
            ctx.sync();
            ctx.sync();
            close(ep)?;
        } else {
            ctx.sync();
            refused()?;
            ctx.sync();
        }
        ctx.sync();
    }
    station.close_the_rest()
}

fn any(ctx: &Ctx) -> Verdict {
    let (service, plan) = (c"0".to_owned(), Plan::DEFAULT);
    let mut first = side(&service, &plan, true, FI_FORMAT_UNSPEC)?;
    let mut second = side(&service, &plan, true, FI_FORMAT_UNSPEC)?;
    first.ep = first.enabled(&plan)?;
    second.ep = second.enabled(&plan)?;
    ctx.tell(&[first.name()?, second.name()?].concat());
    ctx.sync();
    let all = [0, 1].map(|rank| ctx.told(rank).unwrap_or_default());
    let names: Vec<&[u8]> = all.iter().flat_map(|two| two.chunks(NAME)).collect();
    for (at, name) in names.iter().enumerate() {
        ensure!(!names[..at].contains(name), "two endpoints have one name");
    }
    ctx.sync();
    first.close()?;
    second.close()
}

fn name(ctx: &Ctx) -> Verdict {
    let (service, plan) = (service(ctx), Plan::DEFAULT);
    let mut station = side(&service, &plan, true, FI_FORMAT_UNSPEC)?;
    if ctx.rank == 0 {
        station.ep = station.enabled(&plan)?;
        ctx.tell(&station.name()?);
        ctx.sync();
        hear(&station, b"found it")?;
    } else {
        ctx.sync();
        let (code, ep) = attempt(&station);
        if code == 0 {
            close(ep)?;
        } else {
            ensure_eq!(code, -libc::EADDRINUSE, "a second endpoint of the service");
            station.close_the_rest()?;
            station = side(&service, &plan, false, FI_FORMAT_UNSPEC)?;
        }
        station.ep = station.enabled(&plan)?;
        say_to(&station, ctx.told(0), b"found it")?;
    }
    ctx.sync();
    station.close()
}

fn again(ctx: &Ctx) -> Verdict {
    let (service, plan) = (service(ctx), Plan::DEFAULT);
    let mut station = side(&service, &plan, ctx.rank == 0, FI_FORMAT_UNSPEC)?;
    if ctx.rank == 0 {
        for round in 0..3u8 {
            station.ep = station.enabled(&plan)?;
            ctx.sync();
            hear(&station, &[round; 8])?;
            close(station.ep)?;
            ctx.sync();
            ctx.sync();
        }
        return station.close_the_rest();
    }
    station.ep = station.enabled(&plan)?;
    let name = station.info.end(false);
    for round in 0..3u8 {
        ctx.sync();
        let mut to = station.insert(&name)?;
        say(&station, to, &[round; 8])?;
        ctx.sync();
        ensure_eq!(send_as(None, (station.ep, to), &[9; 8], 1), 0, "fi_send");
        station.tx.error()?;
        ok!(obj station.av, remove(&mut to, 1, 0));
        ctx.sync();
    }
    station.close()
}

fn left(ctx: &Ctx) -> Verdict {
    let (service, plan) = (service(ctx), Plan::DEFAULT);
    let mut station = side(&service, &plan, true, FI_FORMAT_UNSPEC)?;
    if ctx.rank == 2 {
        station.ep = station.enabled(&plan)?;
        ctx.sync();
        ctx.dies();
    }
    ctx.sync();
    if ctx.rank == 0 {
        let (code, ep) = found("the service", || {
            Ok(Some(attempt(&station)).filter(|(code, _)| *code != -libc::EADDRINUSE))
        })?;
        ensure_eq!(code, 0, "an endpoint");
        close(ep)?;
    }
    station.close_the_rest()
}

fn texts(ctx: &Ctx) -> Verdict {
    let (service, plan) = (service(ctx), Plan::DEFAULT);
    let server = ctx.rank == 0;
    let mut station = side(&service, &plan, server, FI_ADDR_STR)?;
    ensure_eq!(station.info.info().addr_format, FI_ADDR_STR, "the format");
    station.ep = station.enabled(&plan)?;
    let ends = (station.info.end(true), station.info.end(false));
    let (mut name, mut len) = ([1u8; 128], 128);
    ok!(cm station.ep, getname(name.as_mut_ptr().cast(), &mut len));
    let name = &name[..len];
    let found = name.iter().position(|byte| *byte == 0);
    ensure_eq!(found, Some(len - 1), "the end of the text");
    let text = String::from_utf8_lossy(name);
    ensure!(text.starts_with("fi_unipgas://"), "{text:?}");
    if server {
        ensure_eq!(name, &ends.0[..], "the server's name and its source");
    } else {
        ensure_eq!(ends.0, b"fi_unipgas://\0", "the source of a client");
    }
    let mut short = [1 as c_char; 4];
    let mut less = short.len();
    gives!(FI_ETOOSMALL, cm station.ep, getname(short.as_mut_ptr().cast(), &mut less));
    ensure_eq!(less, len, "the length that is needed");
    ctx.tell(name);
    ctx.sync();
    let both = [0, 1].map(|rank| ctx.told(rank).unwrap_or_default());
    if !server {
        ensure_eq!(both[0], ends.1, "the server's name and the destination");
    }
    let mut addresses = [77u64; 3];
    let list = [&both[0][..], &both[1][..], b"fi_shm://7\0"].concat();
    let count = call!(obj station.av, insert(list.as_ptr().cast(), 3, addresses.as_mut_ptr(), 0, null_mut()));
    let what = "fi_av_insert of three texts, one of them another provider's";
    ensure_eq!((count, addresses[2]), (2, FI_ADDR_NOTAVAIL), "{what}");
    for (address, name) in addresses.into_iter().zip(&both) {
        let (mut seen, mut len) = ([1u8; 128], 128);
        ok!(obj station.av, lookup(address, seen.as_mut_ptr().cast(), &mut len));
        ensure_eq!(&seen[..len], &name[..], "what fi_av_lookup gives");
        let (mut text, mut len) = ([1u8; 128], 128);
        let shown = call!(obj station.av, straddr(name.as_ptr().cast(), text.as_mut_ptr().cast(), &mut len));
        ensure_eq!(shown.cast(), text.as_ptr(), "fi_av_straddr");
        ensure_eq!(&text[..len], &name[..], "what fi_av_straddr gives");
    }
    let other = addresses[1 - ctx.rank as usize];
    let code = send_as(Some(4), (station.ep, other), b"as texts", 1);
    ensure_eq!(code, 0, "fi_tsend");
    let seen = received(Some(4), (station.ep, station.rx), 8)?;
    station.tx.of(1)?;
    same(&seen, b"as texts", "the message")?;
    ctx.sync();
    station.close()
}

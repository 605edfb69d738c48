//! Address vectors and names (fi_av(3), fi_cm(3)).

use std::ffi::{CStr, c_char};

use super::kit::*;

laws! {
    tables with(&Plan::DEFAULT, 256): "av.table", "fi_av(3)", 3, [av_open, av_insert, atomic],
        "addresses of a table count from 0 in the order of insertion, over several calls";
    maps with(&Plan::DEFAULT.av_type(FI_AV_MAP), 256): "av.map", "fi_av(3)", 3, [av_open, av_insert, fetch_atomic],
        "each address of a map leads to the endpoint that was inserted for it";
    lookups with(&Plan::DEFAULT, 256): "av.lookup", "fi_av(3), fi_cm(3)", 2, [av_lookup, getname, av_straddr],
        "fi_av_lookup returns the inserted name of an address; a short buffer gets its beginning and the whole length; fi_av_straddr shows it";
    removed with(&Plan::DEFAULT, 256): "av.remove", "fi_av(3)", 2, [av_remove, av_insert, atomic],
        "an address that was removed is refused (-FI_EINVAL), others go on, and the endpoint may be inserted again";
    garbage with(&Plan::DEFAULT, 256): "av.garbage", "fi_av(3)", 1, [av_insert],
        "an insertion of several names inserts the valid ones; an invalid one gets FI_ADDR_NOTAVAIL, and its error if errors are requested";
    unknown with(&Plan::DEFAULT, 256): "av.unknown", "fi_atomic(3) §3", 1, [atomic, fetch_atomic, inject_atomic, write, read],
        "operations to an address that was never given out are refused (-FI_EINVAL)";
    twice with(&Plan::DEFAULT, 256): "av.twice", "fi_av(3)", 2, [av_insert, av_remove, fetch_atomic],
        "an endpoint that was inserted twice is reached by both addresses, and by one when the other is removed";
    lowest with(&Plan::DEFAULT.av_type(FI_AV_TABLE), 256): "av.lowest", "fi_av(3)", 1, [av_insert, av_remove],
        "in a table a name goes to the lowest index that is not in use";
    reused with(&Plan::DEFAULT, 256): "av.reuse", "fi_av(3)", 3, [av_insert, av_remove, fetch_atomic, tsend],
        "removed addresses are used again, so a vector does not grow; each leads to its newest endpoint";
    own with(&Plan::DEFAULT, 256): "av.name", "fi_cm(3)", 2, [getname, endpoint],
        "each endpoint has a unique name, known before it is enabled; a short buffer is -FI_ETOOSMALL with the length";
    events with(&Plan::DEFAULT, 256): "av.events", "fi_av(3), fi_eq(3)", 1, [av_open, av_insert, eq_open, eq_read, eq_readerr, eq_sread],
        "the event queue reports an asynchronous insertion: the number of valid names, and each invalid one";
    symmetric: "av.symmetric", "fi_av(3) fi_av_insertsym", 1, [av_insertsym, av_insertsvc, av_lookup],
        "a symmetric insertion inserts for each of consecutive nodes all consecutive services, each as fi_av_insertsvc does";
    bad with(&Plan::DEFAULT, 256): "av.bad", "fi_av(3)", 1, [av_open, av_insert, av_remove, av_lookup],
        "unknown kinds and flags, no names and no places are refused";
}

/// The names of all ranks.
fn names(job: &Job<'_>) -> Vec<u8> {
    let told = |rank| job.heard(rank)[..NAME].to_vec();
    (0..job.size).flat_map(told).collect()
}

/// Checks that each rank has added this rank's number and `more` to its element of the memory.
fn all_added(job: &Job<'_>, more: u64) -> Verdict {
    job.meet();
    for_all(0..job.size as usize, |rank| {
        let sum = u64::from(job.rank) + more;
        job.memory.shows(8 * rank, sum, "the element of a rank")
    })
}

fn tables(job: &Job<'_>) -> Verdict {
    let seen = job.peers.iter().map(|p| p.address).collect::<Vec<_>>();
    ensure_eq!(seen, vec![0, 1, 2], "addresses by one call each");
    let (names, av) = (names(job), vector(&job.station, FI_AV_TABLE, 0)?);
    let mut addresses = [99u64; 3];
    let count =
        call!(obj av, insert(names.as_ptr().cast(), 3, addresses.as_mut_ptr(), 0, null_mut()));
    ensure_eq!((count, addresses), (3, [0, 1, 2]), "three at once");
    let count = call!(obj av, insert(names.as_ptr().cast(), 2, null_mut(), 0, null_mut()));
    ensure_eq!(count, 2, "two without a place for their addresses");
    let count = call!(obj av, insert(names.as_ptr().cast(), 1, addresses.as_mut_ptr(), FI_MORE, null_mut()));
    ensure_eq!((count, addresses[0]), (1, 5), "the next one");
    close(av)?;
    for rank in 0..job.size {
        job.update(rank, 8 * job.rank as usize, SUM, u64::from(rank) + 1)?;
    }
    all_added(job, 1)
}

fn maps(job: &Job<'_>) -> Verdict {
    for rank in 0..job.size {
        ensure!(job.peer(rank).address != FI_ADDR_NOTAVAIL, "no address");
        job.fetch(rank, 8 * job.rank as usize, SUM, u64::from(rank) + 7)?;
    }
    all_added(job, 7)
}

fn lookups(job: &Job<'_>) -> Verdict {
    let names = names(job);
    for rank in 0..job.size {
        let name = &names[NAME * rank as usize..][..NAME];
        let (mut seen, mut len) = ([7u8; NAME + 8], NAME + 8);
        let address = job.peer(rank).address;
        ok!(obj job.station.av, lookup(address, seen.as_mut_ptr().cast(), &mut len));
        ensure_eq!(len, NAME, "the length of a name");
        same(&seen[..NAME], name, "the name")?;
        same(&seen[NAME..], &[7; 8], "behind it")?;
        let (mut seen, mut len) = ([7u8; 16], 8);
        ok!(obj job.station.av, lookup(address, seen.as_mut_ptr().cast(), &mut len));
        ensure_eq!(len, NAME, "the whole length");
        same(&seen[..8], &name[..8], "its beginning")?;
        same(&seen[8..], &[7; 8], "behind it")?;
        let (mut text, mut len) = ([1 as c_char; 128], 128);
        let shown =
            call!(obj job.station.av, straddr(name.as_ptr().cast(), text.as_mut_ptr(), &mut len));
        ensure_eq!(shown, text.as_ptr(), "what fi_av_straddr gives");
        let holds = len <= 128 && text[len - 1] == 0 && text[..len - 1].iter().all(|c| *c > 31);
        ensure!(holds, "the text");
        let mut short = [1 as c_char; 8];
        let mut less = 5;
        call!(obj job.station.av, straddr(name.as_ptr().cast(), short.as_mut_ptr(), &mut less));
        let found = (less, short[4], short[5]);
        ensure_eq!(found, (len, 0, 1), "a text that is cut");
    }
    let mut len = NAME;
    gives!(FI_EINVAL, obj job.station.av, lookup(77, [0u8; NAME].as_mut_ptr().cast(), &mut len));
    Ok(())
}

fn removed(job: &Job<'_>) -> Verdict {
    let rank = job.right();
    let (there, own) = (job.words(rank, 8), job.words(job.rank, 64));
    let mut address = there.place.0;
    job.done(|| there.add())?;
    for _ in 0..5 {
        job.forget(address)?;
        denied(FI_EINVAL, there.of(address).add(), "a removed address")?;
        gives!(FI_EINVAL, obj job.station.av, remove(&mut address, 1, 0));
        job.done(|| own.add())?;
        address = job.station.insert(&job.heard(rank)[..NAME])?;
        job.done(|| there.of(address).add())?;
    }
    job.meet();
    ensure_eq!(job.memory.words([8, 64]), [6, 5], "the sums");
    job.tx.is_empty()
}

fn garbage(job: &Job<'_>) -> Verdict {
    let name = job.station.name()?;
    let mut names = [name, [0; NAME], [0xff; NAME], name].concat();
    names[3 * NAME - 1] ^= 1;
    let (mut addresses, mut errors) = ([0u64; 4], [77i32; 4]);
    let av = vector(&job.station, FI_AV_TABLE, 0)?;
    let count = call!(obj av, insert(names.as_ptr().cast(), 4, addresses.as_mut_ptr(), FI_SYNC_ERR, errors.as_mut_ptr().cast()));
    ensure_eq!(count, 2, "good names");
    let seen = [addresses[1], addresses[2]];
    ensure_eq!(seen, [FI_ADDR_NOTAVAIL; 2], "addresses of bad ones");
    let holds = addresses[0] != addresses[3] && addresses[3] != FI_ADDR_NOTAVAIL;
    ensure!(holds, "addresses of good ones: {addresses:?}");
    ensure_eq!(errors, [0, libc::EINVAL, libc::EINVAL, 0], "their errors");
    let mut random = job.ctx.random(0);
    for _ in 0..300 {
        let noise = random_bytes(&mut random, NAME);
        let inserted =
            call!(obj av, insert(noise.as_ptr().cast(), 1, addresses.as_mut_ptr(), 0, null_mut()));
        ensure_eq!(inserted, 0, "noise as a name");
    }
    close(av)
}

fn unknown(job: &Job<'_>) -> Verdict {
    let mut word = 1u64;
    let words = job.words(0, 8).into(&mut word);
    for to in [1, 2, 1 << 32, FI_ADDR_UNSPEC - 1, FI_ADDR_NOTAVAIL] {
        for operation in [
            Words::add as Operation,
            Words::inject_add,
            Words::fetch_add,
            Words::write,
            Words::read,
            Words::send,
            |words| send_as(Some(3), (words.ep, words.place.0), &[1; 8], 0),
        ] {
            denied(FI_EINVAL, operation(&words.of(to)), "an address")?;
        }
    }
    job.tx.is_empty()?;
    job.memory.shows(8, 0, "the memory")
}

fn reused(job: &Job<'_>) -> Verdict {
    let names = names(job);
    let name = |rank: u32| &names[rank as usize * NAME..][..NAME];
    let first = job.station.insert(name(0))?;
    let mut address = first;
    for nth in 0..1000 {
        job.forget(address)?;
        let rank = nth % job.size;
        address = job.station.insert(name(rank))?;
        ensure_eq!(address, first, "the address");
        if nth % 50 == 0 {
            let mut before = 0u64;
            let words = job.words(rank, 8).of(address).into(&mut before);
            job.done(|| words.fetch_add())?;
            job.post(|| inject_as(Some(rank.into()), (job.ep, address), &[5; 8]))?;
        }
    }
    job.meet();
    // Each rank runs 20 operations, in rounds 0, 50, 100, and so on. The target is the round modulo the job size.
    let mine = (0..1000u32)
        .step_by(50)
        .filter(|nth| nth % job.size == job.rank)
        .count() as u32
        * job.size;
    ensure_eq!(job.memory.get(8), u64::from(mine), "the operations of all");
    for_all(0..mine, |_| {
        received(Some(job.rank.into()), (job.ep, job.rx), 8)
    })
}

fn twice(job: &Job<'_>) -> Verdict {
    let words = job.words(job.right(), 8);
    let first = words.place.0;
    let second = job.station.insert(&job.heard(job.right())[..NAME])?;
    ensure!(first != second, "one address for two insertions");
    job.done(|| words.add())?;
    job.done(|| words.of(second).add())?;
    job.forget(first)?;
    job.done(|| words.of(second).add())?;
    job.meet();
    job.memory.shows(8, 3, "the sum")
}

fn own(job: &Job<'_>) -> Verdict {
    let mut known = vec![job.station.name()?];
    for _ in 0..4 {
        let ep = job.station.endpoint(&Plan::DEFAULT.counters(&[]))?;
        let name = name_of(ep)?;
        ensure!(!known.contains(&name), "a name that another endpoint has");
        ok!(fid ep, control(FI_ENABLE, null_mut()));
        ensure_eq!(name_of(ep)?, name, "the name once enabled");
        known.push(name);
        close(ep)?;
    }
    let (mut name, mut len) = ([9u8; NAME], 10);
    gives!(FI_ETOOSMALL, cm job.ep, getname(name.as_mut_ptr().cast(), &mut len));
    ensure_eq!((len, name[10]), (NAME, 9), "length and what is behind");
    same(&name[..10], &known[0][..10], "the name's beginning")?;
    let mut none = 0;
    gives!(FI_ETOOSMALL, cm job.ep, getname(null_mut(), &mut none));
    ensure_eq!(none, NAME, "the length");
    let nowhere = null_mut();
    gives!(FI_EINVAL, cm job.ep, getname(name.as_mut_ptr().cast(), nowhere));
    let told = job.heard(job.right());
    let other = told[..NAME] != known[0][..];
    equal!(other, true, "whether another process has another name")
}

fn events(job: &Job<'_>) -> Verdict {
    let (fabric, name) = (job.station.fabric, job.station.name()?);
    let eq: *mut fid_eq = open!(obj fabric, eq_open(null_mut()));
    let av = vector(&job.station, FI_AV_TABLE, FI_COMPLETION)?;
    let names = [name, [0; NAME], name].concat();
    let mut addresses = [5u64; 3];
    let into = addresses.as_mut_ptr();
    gives!(FI_ENOEQ, obj av, insert(names.as_ptr().cast(), 3, into, 0, cx(8)));
    ok!(fid av, bind(eq.cast(), 0));
    ok!(obj av, insert(names.as_ptr().cast(), 3, into, 0, cx(8)));
    // SAFETY:
    // - plain data.
    let (mut entry, mut error): (fi_eq_entry, fi_eq_err_entry) = unsafe { std::mem::zeroed() };
    let (mut event, size) = (0, size_of::<fi_eq_entry>());
    gives!(FI_EAVAIL, obj eq, read(&mut event, (&raw mut entry).cast(), size, 0));
    let seen = call!(obj eq, readerr(&mut error, 0));
    ensure_eq!(seen, size_of::<fi_eq_err_entry>() as isize, "fi_eq_readerr");
    let seen = (error.err, error.data, error.context.addr());
    ensure_eq!(seen, (libc::EINVAL, 1, 8), "number, index and context");
    let seen = call!(obj eq, sread(&mut event, (&raw mut entry).cast(), size, 5_000, 0));
    ensure_eq!(seen, size as isize, "fi_eq_sread");
    ensure_eq!(
        (event, entry.data, entry.context.addr()),
        (FI_AV_COMPLETE, 2, 8),
        "event, good names and context"
    );
    let seen = (entry.fid, addresses[1]);
    ensure_eq!(seen, (av.cast(), FI_ADDR_NOTAVAIL), "vector and address");
    gives!(FI_EAGAIN, obj eq, read(&mut event, (&raw mut entry).cast(), size, 0));
    close(av)?;
    close(eq)
}

fn bad(job: &Job<'_>) -> Verdict {
    let domain = job.station.domain;
    let mut av = null_mut();
    let mut attr = av_attr(9, 0);
    gives!(FI_EINVAL, obj domain, av_open(&mut attr, &mut av, null_mut()));
    attr.r#type = FI_AV_TABLE;
    gives!(FI_EINVAL, obj domain, av_open(&mut attr, null_mut(), null_mut()));
    attr.flags = 1 << 40;
    gives!(FI_EBADFLAGS, obj domain, av_open(&mut attr, &mut av, null_mut()));
    ensure_eq!(av, null_mut(), "a vector");
    let (name, mut address) = (job.station.name()?, 0);
    let av = job.station.av;
    gives!(FI_EINVAL, obj av, insert(null(), 1, &mut address, 0, null_mut()));
    gives!(FI_EBADFLAGS, obj av, insert(name.as_ptr().cast(), 1, &mut address, 1 << 40, null_mut()));
    let seen = call!(obj av, insert(null(), 0, &mut address, 0, null_mut()));
    ensure_eq!(seen, 0, "no names");
    gives!(FI_EINVAL, obj av, remove(null_mut(), 1, 0));
    gives!(FI_EBADFLAGS, obj av, remove(&mut address, 1, 1 << 40));
    gives!(FI_EINVAL, obj av, lookup(0, null_mut(), null_mut()));
    Ok(())
}

fn lowest(job: &Job<'_>) -> Verdict {
    let name = job.station.name()?;
    // The own name has been inserted once already.
    for expected in 1..8u64 {
        ensure_eq!(job.station.insert(&name)?, expected, "a further index");
    }
    for_all([5u64, 2, 6, 3], |address| job.forget(address))?;
    for_all([2, 3, 5, 6, 8], |expected| {
        equal!(job.station.insert(&name)?, expected, "the lowest index")
    })
}

/// The name at an address; `None` if the address is not in the vector.
fn looked_up(av: *mut fid_av, address: u64) -> Option<[u8; NAME]> {
    let (mut name, mut len) = ([0; NAME], NAME);
    let code = call!(obj av, lookup(address, name.as_mut_ptr().cast(), &mut len));
    (code == 0).then_some(name)
}

fn symmetric(_: &Ctx) -> Verdict {
    type Names = [&'static CStr];
    let cases: [(&Names, &Names); 5] = [
        (&[c"localhost"], &[c"7000", c"7001", c"7002"]),
        (&[c"127.0.0.1", c"127.0.0.2"], &[c"name09", c"name10"]),
        (&[c"::ffff:7f00:1"], &[c"7009"]),
        // Multicast addresses: no endpoint can exist there.
        (&[c"224.0.0.255", c"224.0.1.0"], &[c"9", c"10"]),
        (&[c"localhost"], &[c"a name"]),
    ];
    let station = Station::open(&Plan::DEFAULT)?;
    for (nodes, services) in cases {
        let count = nodes.len() * services.len();
        let one_by_one = vector(&station, FI_AV_TABLE, 0)?;
        let at_once = vector(&station, FI_AV_TABLE, 0)?;
        let (mut good, mut expected, mut errnos) = (0, Vec::new(), Vec::new());
        for (node, service) in nodes
            .iter()
            .flat_map(|node| services.iter().map(move |s| (node, s)))
        {
            let (mut address, mut errno) = (7, 7);
            good += call!(obj one_by_one, insertsvc(node.as_ptr(), service.as_ptr(), &mut address, FI_SYNC_ERR, (&raw mut errno).cast()));
            expected.push(looked_up(one_by_one, address));
            errnos.push(errno);
        }
        let (mut addresses, mut errors) = (vec![7; count], vec![7i32; count]);
        let (node, service) = (nodes[0].as_ptr(), services[0].as_ptr());
        let (into, told) = (addresses.as_mut_ptr(), errors.as_mut_ptr().cast());
        let inserted = call!(obj at_once, insertsym(node, nodes.len(), service, services.len(), into, FI_SYNC_ERR, told));
        ensure_eq!(inserted, good, "addresses of {nodes:?} and {services:?}");
        let seen: Vec<_> = addresses.iter().map(|to| looked_up(at_once, *to)).collect();
        let found = (seen, errors);
        ensure_eq!(found, (expected, errnos), "{nodes:?} and {services:?}");
        close(one_by_one)?;
        close(at_once)?;
    }
    let (av, none) = (station.av, null_mut());
    let refused: [(Option<&CStr>, usize, &CStr, usize); 6] = [
        (None, 2, c"7", 1),
        (Some(c"localhost"), 2, c"7", 1),
        (Some(c"localhost"), 1, c"name", 2),
        (Some(c"localhost"), 1, c"18446744073709551615", 2),
        (Some(c"255.255.255.255"), 2, c"7", 1),
        (Some(c"127.0.0.1"), usize::MAX, c"7", 2),
    ];
    for (node, nodes, service, services) in refused {
        let (node, service) = (node.map_or(null(), CStr::as_ptr), service.as_ptr());
        gives!(FI_EINVAL, obj av, insertsym(node, nodes, service, services, null_mut(), 0, none));
    }
    let found = call!(obj av, insertsym(null(), 1, c"7".as_ptr(), 0, null_mut(), 0, none));
    ensure_eq!(found, 0, "no services");
    station.close()
}

//! Reads and writes of remote memory (fi_rma(3)), and bindings of regions (fi_mr(3)).

use super::kit::*;

laws! {
    lengths with(&Plan::DEFAULT, 2 << 20): "rma.lengths", "fi_rma(3)", 2, [write, read],
        "transfers of every length and alignment move exactly their bytes; none at all is one, too";
    vectors with(&Plan::DEFAULT, 8192): "rma.vector", "fi_rma(3)", 2, [writev, writemsg, readv, readmsg],
        "pieces of local and of remote memory may be divided differently; all bytes go where they belong";
    unequal with(&Plan::DEFAULT, 256): "rma.unequal", "fi_rma(3)", 2, [writemsg, readmsg],
        "local and remote lengths that differ are refused, as are unknown flags and no message";
    injected with(&Plan::DEFAULT, 256): "rma.inject", "fi_rma(3)", 2, [inject_write, inject_writedata, writemsg] + ordering,
        "after an inject call, or with FI_INJECT, the buffer may be used again at once";
    data with(&Plan::DEFAULT, 64 << 10): "rma.data", "fi_rma(3)", 2, [writedata, inject_writedata, writemsg] + ordering,
        "a write's data come to the target's queue when all of its bytes are there, each once; so they do without any bytes";
    regions with(&Plan::DEFAULT, 256): "mr.bind", "fi_mr(3)", 1, [mr_bind, mr_enable, mr_reg],
        "a region may be bound to an endpoint and enabled, to nothing else";
}

fn lengths(job: &Job<'_>) -> Verdict {
    let (rank, mut random) = (job.right(), job.ctx.random(job.rank.into()));
    job.memory.fill(0x55);
    job.meet();
    for len in [
        0, 1, 2, 3, 7, 8, 9, 31, 64, 65, 200, 4095, 4097, 70_001, 1_048_576,
    ] {
        let at = 64 + random.below(64) as usize;
        let bytes = random_bytes(&mut random, len);
        job.write(rank, at, &bytes)?;
        let seen = job.read(rank, at - 8, len + 16)?;
        same(&seen[..8], &[0x55; 8], "before it")?;
        same(&seen[8..8 + len], &bytes, &format!("{len} bytes"))?;
        same(&seen[8 + len..], &[0x55; 8], "behind it")?;
        job.write(rank, at, &vec![0x55; len])?;
    }
    Ok(())
}

fn local(buffer: &mut [u8], lens: &[usize]) -> Vec<libc::iovec> {
    let mut at = buffer.as_mut_ptr();
    let mut piece = |len: &usize| {
        at = at.wrapping_add(*len);
        iovec(at.wrapping_sub(*len), *len)
    };
    lens.iter().map(&mut piece).collect()
}

fn vectors(job: &Job<'_>) -> Verdict {
    let (to, at, key) = job.place(job.right(), 0);
    let mut random = job.ctx.random(job.rank.into());
    let here = [100, 0, 1, 299, 1000];
    let there = [(4000, 700), (50, 1), (800, 0), (900, 699)];
    let remote = there.map(|(offset, len)| fi_rma_iov {
        addr: at + offset,
        len,
        key,
    });
    for round in 0..4 {
        let (mut bytes, mut back) = (random_bytes(&mut random, 1400), vec![0u8; 1400]);
        let (out, into) = (local(&mut bytes, &here), local(&mut back, &[1, 1399]));
        let message = |list: &[libc::iovec], context| fi_msg_rma {
            iov_count: list.len(),
            rma_iov_count: remote.len(),
            ..rma_msg(&list[0], to, &remote[0], cx(context))
        };
        let expected = if round % 2 == 0 {
            job.told(3, || call!(rma job.ep, writemsg(&message(&out, 3), 0)))?;
            job.told(4, || call!(rma job.ep, readmsg(&message(&into, 4), 0)))?;
            job.read(job.right(), 4000, 700)?
        } else {
            job.done(|| call!(rma job.ep, writev(out.as_ptr(), null_mut(), out.len(), to, at + 100, key, cx(5))))?;
            job.done(|| call!(rma job.ep, readv(into.as_ptr(), null_mut(), into.len(), to, at + 100, key, cx(6))))?;
            job.read(job.right(), 100, 700)?
        };
        same(&back, &bytes, "what is read back")?;
        same(&expected, &bytes[..700], "the bytes at the first place")?;
    }
    Ok(())
}

fn unequal(job: &Job<'_>) -> Verdict {
    let (to, addr, key) = job.place(job.right(), 0);
    let mut bytes = [7u8; 64];
    let list = local(&mut bytes, &[64]);
    let remote = fi_rma_iov { addr, len: 65, key };
    let msg = rma_msg(&list[0], to, &remote, null_mut());
    gives!(FI_EINVAL, rma job.ep, writemsg(&msg, 0));
    gives!(FI_EINVAL, rma job.ep, readmsg(&msg, 0));
    gives!(FI_EINVAL, rma job.ep, writemsg(&fi_msg_rma { rma_iov_count: 0, ..msg }, 0));
    gives!(FI_EINVAL, rma job.ep, writemsg(null(), 0));
    gives!(FI_EBADFLAGS, rma job.ep, writemsg(&msg, 1 << 40));
    gives!(FI_EBADFLAGS, rma job.ep, readmsg(&msg, FI_REMOTE_CQ_DATA));
    gives!(FI_EINVAL, rma job.ep, write(null(), 8, null_mut(), to, addr, key, null_mut()));
    job.tx.is_empty()?;
    job.meet();
    job.memory.holds(0, &[0; 256], "the memory")
}

fn injected(job: &Job<'_>) -> Verdict {
    let (to, addr, key) = job.place(job.right(), 0);
    for nth in 1..=many(job.ctx, 6) {
        let mut words = [nth, nth + 1, nth + 2];
        let base = words.as_mut_ptr();
        job.post(|| call!(rma job.ep, inject(base.cast(), 8, to, addr, key)))?;
        job.post(|| call!(rma job.ep, injectdata(base.wrapping_add(1).cast(), 8, nth, to, addr + 8, key)))?;
        let part = iovec(base.wrapping_add(2), 8);
        let (addr, len) = (addr + 16, 8);
        let mut remote = fi_rma_iov { addr, len, key };
        let msg = rma_msg(&part, to, &remote, cx(2));
        job.post(|| call!(rma job.ep, writemsg(&msg, FI_INJECT)))?;
        words = [u64::MAX; 3];
        remote.key = 0;
        std::hint::black_box((words, remote));
        job.tx.of(2)?;
        ensure_eq!(job.rx.next()?.data, nth, "the data");
        until("all three words", || {
            job.tx.progress();
            (0..3).all(|i| job.memory.get(8 * i) == nth + i as u64)
        })?;
        job.tx.is_empty()?;
        job.meet_and_progress();
    }
    Ok(())
}

fn data(job: &Job<'_>) -> Verdict {
    let (to, addr, key) = job.place(job.right(), 0);
    let mut random = job.ctx.random(5);
    for nth in 0..many(job.ctx, 6) {
        let len = 8 * (1 + random.below(6000) as usize);
        let bytes = vec![nth as u8 + 1; len];
        let part = iovec(bytes.as_ptr(), len);
        let remote = fi_rma_iov { addr, len, key };
        let data = random.next();
        let msg = fi_msg_rma {
            data,
            ..rma_msg(&part, to, &remote, cx(2))
        };
        let alone = fi_msg_rma {
            msg_iov: null(),
            iov_count: 0,
            rma_iov: null(),
            rma_iov_count: 0,
            ..msg
        };
        job.post(|| match nth % 3 {
            2 => call!(rma job.ep, writemsg(&alone, FI_REMOTE_CQ_DATA)),
            0 => call!(rma job.ep, writedata(bytes.as_ptr().cast(), len, null_mut(), data, to, addr, key, cx(2))),
            _ => call!(rma job.ep, writemsg(&msg, FI_REMOTE_CQ_DATA)),
        })?;
        let entry = job.rx.next()?;
        let expected = (data, FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA);
        ensure_eq!((entry.data, entry.flags), expected, "data and flags");
        if nth % 3 < 2 {
            job.memory.holds(0, &bytes, "the bytes with their data")?;
        }
        job.tx.of(2)?;
        job.told(2, || call!(rma job.ep, readmsg(&alone, 0)))?;
        job.rx.is_empty()?;
        job.meet();
    }
    Ok(())
}

fn regions(job: &Job<'_>) -> Verdict {
    let (mr, ep, domain) = (job.registered.mr, job.ep, job.station.domain);
    ok!(fid mr, bind(ep.cast(), 0));
    ok!(fid mr, control(FI_ENABLE, null_mut()));
    gives!(FI_EINVAL, fid mr, bind(null_mut(), 0));
    gives!(FI_ENOSYS, fid mr, bind(domain.cast(), 0));
    equal!(job.fetch(0, 8, SUM, 1)?, 0, "the word")
}

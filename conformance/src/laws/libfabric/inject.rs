//! Injected operations.

use super::flags::One;
use super::kit::*;

laws! {
    inject with(&Plan::DEFAULT, 256): "atomic.inject", "fi_atomic(3) §4.3", 2, [inject_atomic] + ordering,
        "after fi_inject_atomic the buffer may be reused at once; no completion is reported, and the operation is done";
    inject_flag with(&Plan::DEFAULT, 256):
        "atomic.flag.inject", "fi_atomic(3) §5", 2, [atomicmsg, fetch_atomicmsg, compare_atomicmsg] + ordering,
        "with FI_INJECT all constant buffers, also the arrays of vectors, may be reused when the call returns";
    inject_size with(&Plan::DEFAULT, 64 << 10): "atomic.inject.size", "fi_atomic(3) §4.3, §5", 2, [inject_atomic, atomicmsg],
        "inject_size bytes can be injected; more are -FI_EMSGSIZE, and nothing is changed";
    always_quiet: "atomic.inject.quiet", "fi_atomic(3) §4.3", 2, [inject_atomic],
        "no completion of fi_inject_atomic, whether or not the queue was bound with FI_SELECTIVE_COMPLETION and FI_COMPLETION is set for the endpoint";
}

fn inject(job: &Job<'_>) -> Verdict {
    let count = many(job.ctx, 30);
    let words = job.words(job.right(), 8);
    let mut operand = 0u64;
    for nth in 1..=count {
        operand = nth;
        job.post(|| words.from(&operand).inject_add())?;
        operand = u64::MAX / 3;
    }
    std::hint::black_box(operand);
    until("all injected operations", || {
        job.tx.progress();
        job.memory.get(8) == count * (count + 1) / 2
    })?;
    job.meet();
    job.tx.is_empty()
}

fn inject_flag(job: &Job<'_>) -> Verdict {
    let rank = job.right();
    let mut value = 0u64;
    for nth in 1..=many(job.ctx, 10) {
        let mut add = One::new(job.place(rank, 8), SUM, nth, 0);
        job.post(|| add.write(job.ep, FI_INJECT))?;
        // After the call, the program may change everything except the results.
        add.words = [u64::MAX; 3];
        add.lists[0].count = 99;
        add.remote.key = 0;
        job.tx.next()?;
        value += nth;
        let mut fetch = One::new(job.place(rank, 8), SUM, nth, 0);
        job.post(|| fetch.fetch(job.ep, FI_INJECT))?;
        fetch.words[0] = u64::MAX;
        fetch.lists[0].count = 99;
        fetch.remote.key = 0;
        job.tx.next()?;
        ensure_eq!(fetch.result(), value, "what was fetched");
        value += nth;
        let mut swap = One::new(job.place(rank, 8), CSWAP, value + 7, value);
        job.post(|| swap.compare(job.ep, FI_INJECT))?;
        (swap.words[0], swap.words[1]) = (u64::MAX, u64::MAX);
        swap.lists[1].addr = null_mut();
        job.tx.next()?;
        ensure_eq!(swap.result(), value, "what was compared");
        value += 7;
    }
    job.meet();
    equal!(job.memory.get(8), value, "the target")
}

fn inject_size(job: &Job<'_>) -> Verdict {
    // SAFETY:
    // - fi_getinfo(3) has returned the info with its attributes.
    let most = unsafe { (*(*job.station.info.raw()).tx_attr).inject_size };
    ensure!(most >= 8, "inject_size is {most}");
    let (to, at, key) = job.place(job.right(), 0);
    let count = most / 8;
    let mut words = vec![3u64; count + 1];
    gives!(FI_EMSGSIZE, atomic job.ep, inject(words.as_ptr().cast(), count + 1, to, at, key, UINT64, SUM));
    let mut over = One::new((to, at, key), SUM, 0, 0);
    over.lists[0] = ioc(words.as_mut_ptr(), count + 1);
    over.remote.count = count + 1;
    let code = over.write(job.ep, FI_INJECT);
    denied(FI_EMSGSIZE, code, "more than inject_size")?;
    let fits = job.words(job.right(), 0).from(words.as_ptr());
    let fits = Words { count, ..fits };
    job.post(|| fits.inject_add())?;
    until("the injected elements", || {
        job.tx.progress();
        (0..count).all(|i| job.memory.get(8 * i) == 3)
    })?;
    job.memory.holds(8 * count, &[0; 8], "the element behind")?;
    job.meet();
    job.tx.is_empty()
}

fn always_quiet(ctx: &Ctx) -> Verdict {
    for (selective, op_flags) in [
        (false, 0),
        (true, 0),
        (true, FI_COMPLETION),
        (false, FI_COMPLETION),
    ] {
        let plan = Plan::DEFAULT.selective(selective).op_flags(op_flags);
        with(ctx, &plan, 256, |job| {
            let words = job.words(job.right(), 8);
            for_all(0..20, |_| job.post(|| words.inject_add()))?;
            until("the injected operations", || {
                job.tx.progress();
                job.memory.get(8) == 20
            })?;
            job.meet();
            job.tx.is_empty()
        })?;
    }
    Ok(())
}

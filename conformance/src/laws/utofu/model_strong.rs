//! §2.2.10: strong order between commands of different kinds.

use std::sync::atomic::Ordering;

use super::kit::*;

laws! {
    get_then_put with(16_384): "order.strong.get-put", "§2.2.10", 2, [get, put_piggyback8, put] + ordering,
        "a strongly ordered put writes when the get before it has read and written: then the source can be overwritten";
    put_then_get with(16_384): "order.strong.put-get", "§2.2.10", 2, [put, get] + ordering,
        "a strongly ordered get writes when the put before it has written: who sees its end here knows the put is there";
    armw_then_put with(256): "order.strong.armw-put", "§2.2.10", 2, [armw8, armw4, put_piggyback8] + ordering,
        "a strongly ordered put writes when the ARMWs before it have written";
    chain with(32_768): "order.strong.chain", "§2.2.10", 2, [put, put_stride, post_toq, prepare_put] + ordering,
        "of strongly ordered puts, posted one by one, as blocks and as a batch, whoever sees one sees all before it";
}

/// Reports to the left rank that this rank has checked the round.
fn seen(job: &Job<'_>, round: u64) -> Verdict {
    job.put8(job.left(), 0, round).ok(0, 0, 0)
}

fn get_then_put(job: &Job<'_>) -> Verdict {
    const LENGTH: usize = 3000;
    for round in 1..=40u64 {
        if job.rank == 1 {
            job.memory.fill_range(4096, LENGTH, round as u8);
        }
        job.meet();
        if job.rank == 0 {
            job.get(1, 8192, 4096, LENGTH).ok(0, 0, 0)?;
            job.put8(1, 0, round).ok(0, STRONG_ORDER, 0)?;
        } else {
            job.await_word(0, round)?;
            job.memory.fill_range(4096, LENGTH, 0xff);
            // The put follows the get in strong order, so the get has written its whole target.
            job.get(0, 8192, 8192, LENGTH).noticed(0, 0)?;
            job.memory
                .all(8192, LENGTH, round as u8, "a get before the put")?;
        }
        job.meet();
    }
    Ok(())
}

fn put_then_get(job: &Job<'_>) -> Verdict {
    const LENGTH: usize = 3000;
    for round in 1..=40u64 {
        if job.rank == 1 {
            job.memory.set(0, round);
        } else {
            job.memory.fill_range(8192, LENGTH, round as u8);
        }
        job.meet();
        if job.rank == 0 {
            job.put(1, 8192, 4096, LENGTH).ok(0, 0, 0)?;
            job.get(1, 8, 0, 8).ok(0, STRONG_ORDER, 0)?;
            job.await_word(8, round)?;
        }
        job.meet();
        if job.rank == 1 {
            job.memory
                .all(4096, LENGTH, round as u8, "a put before the get")?;
        }
        job.meet();
    }
    Ok(())
}

fn armw_then_put(job: &Job<'_>) -> Verdict {
    for round in 1..=60u64 {
        if job.rank == 0 {
            for at in [8, 16, 24] {
                match at {
                    16 => job.armw4(1, at, ADD, 1).ok(0, 0, 0)?,
                    _ => job.armw8(1, at, ADD, 1).ok(0, 0, 0)?,
                }
            }
            job.put8(1, 0, round).ok(0, STRONG_ORDER, 0)?;
            job.await_word(0, round)?;
        } else {
            job.await_word(0, round)?;
            let sums = [8, 16, 24].map(|at| job.memory.get(at));
            ensure_eq!(sums, [round; 3], "additions before the put");
            seen(job, round)?;
        }
    }
    Ok(())
}

fn chain(job: &Job<'_>) -> Verdict {
    const PUTS: usize = 12;
    const LENGTH: usize = 520;
    for round in 1..=30u64 {
        let (stride, end) = (1024, 16_384);
        if job.rank == 0 {
            job.memory.fill_range(end, LENGTH, round as u8);
            let (hdl, vcq, from) = (job.hdl, job.vcq(1), job.stadd + end as u64);
            let to = job.at(1, 1024);
            let at = |nth: usize| to + (nth * stride) as u64;
            let mut desc = [0u64; 8 * 4];
            let place = desc.as_mut_ptr().cast::<u8>();
            let mut total = 0;
            for nth in 0..4 {
                post::put(hdl, vcq, from, at(nth), LENGTH).ok(0, STRONG_ORDER, 0)?;
            }
            for nth in 4..8 {
                let size = post::put(hdl, vcq, from, at(nth), LENGTH).prepare(
                    0,
                    STRONG_ORDER,
                    place.wrapping_add(total),
                )?;
                total += size;
            }
            ok!(utofu_post_toq(hdl, place.cast(), total, null_mut()));
            for nth in 8..PUTS {
                post::put_stride(hdl, vcq, from, at(nth), LENGTH, 0, 2).ok(0, STRONG_ORDER, 0)?;
            }
            job.await_word(0, round)?;
        } else {
            let look = job.ctx.random(round).below(PUTS as u64) as usize;
            let last = &job.memory.bytes()[1024 + look * stride + LENGTH - 1];
            until("the end of a put", || {
                last.load(Ordering::Acquire) == round as u8
            })?;
            for nth in 0..=look {
                let what = format!("put {nth} when the end of {look} was seen");
                job.memory
                    .all(1024 + nth * stride, LENGTH, round as u8, &what)?;
            }
            let all = &job.memory.bytes()[1024 + (PUTS - 1) * stride + LENGTH - 1];
            until("the last put", || {
                all.load(Ordering::Acquire) == round as u8
            })?;
            seen(job, round)?;
        }
    }
    Ok(())
}

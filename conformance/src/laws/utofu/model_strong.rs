//! §2.2.10: strong order between commands of different kinds.

use super::kit::*;

laws! {
    get_then_put with(16_384): "order.strong.get-put", "§2.2.10", 2, [get, put_piggyback8, put] + ordering,
        "a strongly ordered put writes when the get before it has read and written: then the source can be overwritten";
    put_then_get with(16_384): "order.strong.put-get", "§2.2.10", 2, [put, get] + ordering,
        "a strongly ordered get writes after the put before it: its end here shows that the put is there";
    armw_then_put with(256): "order.strong.armw-put", "§2.2.10", 2, [armw8, armw4, put_piggyback8] + ordering,
        "a strongly ordered put writes when the ARMWs before it have written";
    chain with(32_768): "order.strong.chain", "§2.2.10", 2, [put, put_stride, post_toq, prepare_put] + ordering,
        "strongly ordered puts, posted one by one, as blocks and as a batch: a process that sees one sees all before it";
}

const LENGTH: usize = 3000;

fn get_then_put(job: &Job<'_>) -> Verdict {
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
    let send = |round| {
        job.armw8(1, 8, ADD, 1).ok(0, 0, 0)?;
        job.armw4(1, 16, ADD, 1).ok(0, 0, 0)?;
        job.armw8(1, 24, ADD, 1).ok(0, 0, 0)?;
        job.put8(1, 0, round).ok(0, STRONG_ORDER, 0)
    };
    job.rounds(60, send, |round| {
        job.await_word(0, round)?;
        let sums = job.memory.words([8, 16, 24]);
        equal!(sums, [round; 3], "additions before the put")
    })
}

fn chain(job: &Job<'_>) -> Verdict {
    const PUTS: usize = 12;
    const LENGTH: usize = 520;
    const STRIDE: usize = 1024;
    const SOURCE: usize = 16_384;
    let at = |nth: usize| 1024 + nth * STRIDE;
    let send = |round| {
        job.memory.fill_range(SOURCE, LENGTH, round as u8);
        let put = |nth| job.put(1, SOURCE, at(nth), LENGTH);
        for_all(0..4, |nth| put(nth).ok(0, STRONG_ORDER, 0))?;
        let mut desc = [0u64; 8 * 4];
        let place = desc.as_mut_ptr().cast::<u8>();
        let mut total = 0;
        for nth in 4..8 {
            total += put(nth).prepare(0, STRONG_ORDER, place.wrapping_add(total))?;
        }
        post::toq(job.hdl, place, total, 0)?;
        for_all(8..PUTS, |nth| {
            let twice = job.put_stride(1, SOURCE, at(nth), LENGTH, 0, 2);
            twice.ok(0, STRONG_ORDER, 0)
        })
    };
    job.rounds(30, send, |round| {
        let (look, value) = (
            job.ctx.random(round).below(PUTS as u64) as usize,
            round as u8,
        );
        job.await_byte(at(look) + LENGTH - 1, value)?;
        for nth in 0..=look {
            let what = format!("put {nth} when the end of {look} was seen");
            job.memory.all(at(nth), LENGTH, value, &what)?;
        }
        job.await_byte(at(PUTS - 1) + LENGTH - 1, value)
    })
}

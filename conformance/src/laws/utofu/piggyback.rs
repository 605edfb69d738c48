//! §2.2.3, §2.2.11, §3.7.1.5, §3.7.1.6 Put Piggyback.

use super::functions::{Call, Function, Room, right_call};
use super::kit::*;

laws! {
    piggybacks with(256): "piggyback", "§3.7.1.5", 2, [put_piggyback] + ordering,
        "0 to 32 bytes of any alignment arrive at any alignment, and nothing beside them changes";
    reusable: "piggyback.reuse", "§3.7.1.5", 2, [put_piggyback] + ordering,
        "the memory of the data can be reused when the function returns";
    eight with(256): "piggyback8", "§3.7.1.6", 2, [put_piggyback8] + ordering,
        "the less significant bits of 0 to 8 bytes are sent";
    padded with(1024): "piggyback.padding", "§2.2.11, §3.7.9.1", 2, [put_piggyback8, put_piggyback],
        "with padding and cache injection the data arrive; only their cache line may have changed beside them";
    polled with(256): "piggyback.polled", "§2.2.10", 2, [put_piggyback8] + ordering,
        "a process that polls a word in memory sees a piggyback of 8 bytes whole";
    too_long with(256): "piggyback.too-long", "§3.7.1.5, §3.7.1.6", 2, [put_piggyback, put_piggyback8, prepare_put_piggyback, prepare_put_piggyback8],
        "more than 32 bytes, and more than 8, are refused and nothing goes";
}

fn piggybacks(job: &Job<'_>) -> Verdict {
    let mut random = job.ctx.random(1);
    for length in 0..=32 {
        for to in [0usize, 1, 3, 8, 60] {
            let data = random_bytes(&mut random, 40);
            let from = random.below(8) as usize;
            job.memory.fill(0x5a);
            job.meet();
            let notice = job
                .put_piggyback(job.right(), &data[from..], 8 + to, length)
                .noticed(0, 0)?;
            ensure_eq!(notice.rmt_stadd, job.at(job.right(), 8 + to + length), "it");
            job.meet();
            let what = format!("{length} bytes to {to}");
            job.memory
                .only(0, (8 + to, &data[from..from + length]), 0x5a, &what)?;
            job.meet();
        }
    }
    Ok(())
}

fn reusable(ctx: &Ctx) -> Verdict {
    const PUTS: usize = 200;
    with(ctx, 32 * PUTS, |job| {
        let peer = job.right();
        let mut data = [0u8; 32];
        for i in 0..PUTS {
            data.fill(i as u8);
            let put = || job.put_piggyback(peer, &data, 32 * i, 32).code(0, LOCAL, 0);
            job.queue.post(put)?;
            data.fill(0xff);
        }
        job.queue.notices(0..PUTS, LCL_PUT)?;
        job.meet();
        for_all(0..PUTS, |i| {
            let what = "a piggyback with an overwritten source";
            job.memory.all(32 * i, 32, i as u8, what)
        })
    })
}

fn eight(job: &Job<'_>) -> Verdict {
    let mut random = job.ctx.random(1);
    for length in 0..=8usize {
        for to in 0..9usize {
            let data = random.next();
            job.memory.fill(0x5a);
            job.meet();
            let (vcq, at) = (job.vcq(job.right()), job.at(job.right(), 8 + to));
            post::put_piggyback8(job.hdl, vcq, data, at, length).noticed(0, 0)?;
            job.meet();
            let what = format!("{length} bytes of {data:#x} to {to}");
            job.memory
                .only(0, (8 + to, &data.to_le_bytes()[..length]), 0x5a, &what)?;
            job.meet();
        }
    }
    Ok(())
}

fn padded(job: &Job<'_>) -> Verdict {
    job.memory.fill(1);
    job.meet();
    let peer = job.right();
    let flags = LOCAL | PADDING | CACHE_INJECTION;
    job.put8(peer, 512 + 64, 77).noticed(0, flags)?;
    let data = [9u8; 32];
    job.put_piggyback(peer, &data, 512 + 128, 32)
        .noticed(0, flags | STRONG_ORDER)?;
    job.meet();
    job.memory.holds(512 + 128, &data, "32 bytes")?;
    job.memory.all(0, 512, 1, "other cache lines")?;
    job.memory.all(768, 256, 1, "other cache lines")
}

fn polled(job: &Job<'_>) -> Verdict {
    const ROUNDS: u64 = 250;
    for round in 1..=ROUNDS {
        let value = round * 0x0101_0101_0101_0101;
        if job.rank == 0 {
            job.put8(1, 8, value).noticed(0, 0)?;
            job.await_word(8, value)?;
        } else {
            let before = (round - 1) * 0x0101_0101_0101_0101;
            let mut torn = None;
            until("the value", || match job.memory.get(8) {
                seen if seen == value => true,
                seen if seen == before => false,
                seen => {
                    torn = Some(seen);
                    true
                }
            })?;
            ensure!(torn.is_none(), "{:#x} is torn", torn.unwrap_or_default());
            job.put8(0, 8, value).noticed(0, 0)?;
        }
    }
    Ok(())
}

fn too_long(job: &Job<'_>) -> Verdict {
    let (mut room, mut size) = (Room([0; 2 * DESC]), 0);
    let right = right_call(job, &mut room, &mut size);
    for (name, len) in [("utofu_put_piggyback", 33), ("utofu_put_piggyback8", 9)] {
        let function = Function::named(name);
        for form in [function.start, function.prepare] {
            code_is(form(&Call { len, ..right }), UTOFU_ERR_INVALID_SIZE, name)?;
        }
    }
    pause(2);
    job.meet();
    job.queue.has_nothing()?;
    job.memory.all(0, 256, 0, "after refusals")
}

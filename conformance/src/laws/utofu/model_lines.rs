//! §2.2.10: transfers of several cache lines without strong order. The target awaits each line by polling memory.

use std::sync::atomic::Ordering;

use super::kit::*;
use super::model_order::beside_gets;
use super::session::{Session, session};

laws! {
    of_put with(65_536): "order.lines", "§2.2.10", 2, [put] + ordering,
        "a process that sees the end of a cache line of a longer put, without strong order, sees all of that line";
    of_stride with(65_536): "order.lines.stride", "§2.2.10, §3.7.1.3", 2, [put_stride] + ordering,
        "so it is for each block of a strided put";
    of_get with(131_072): "order.lines.get", "§2.2.10", 2, [get] + ordering,
        "a thread that sees the end of a cache line of a longer get, without strong order, sees all of that line";
    of_relay session(65_536): "order.lines.session", "§2.2.8, §2.2.10", 3, [put] + ordering,
        "a process that sees the end of a cache line of a longer relayed put sees all of that line";
}

const LINE: usize = 256;

/// Offsets and lengths of transfers: whole lines, partial lines at the ends, one line and a bit.
const SHAPES: [(usize, usize); 6] = [
    (256, 4096),
    (264, 3000),
    (301, 20_001),
    (500, 300),
    (767, 258),
    (1020, 4096 * 5),
];

/// Polls the end of each line of `len` bytes at `at` until it is `value`. As soon as it is, the whole line must be.
fn lines_arrive(job: &Job<'_>, at: usize, len: usize, value: u8) -> Verdict {
    let ends = (at / LINE + 1..=(at + len).div_ceil(LINE)).map(|line| (line * LINE).min(at + len));
    let mut waiting: Vec<usize> = ends.collect();
    let mut broken = None;
    until("the ends of all lines", || {
        // Many polls: a line is incomplete only for a moment.
        for _ in 0..200 {
            waiting.retain(|end| {
                if job.memory.bytes()[end - 1].load(Ordering::Acquire) != value {
                    return true;
                }
                let begin = at.max((end - 1) / LINE * LINE);
                let line = &job.memory.bytes()[begin..*end];
                let old = line
                    .iter()
                    .rposition(|byte| byte.load(Ordering::Relaxed) != value);
                broken = broken.or(old.map(|old| (begin, *end, begin + old)));
                false
            });
            if waiting.is_empty() {
                break;
            }
        }
        waiting.is_empty() || broken.is_some()
    })?;
    ensure!(
        broken.is_none(),
        "of {len} bytes at {at} the end of a line was seen before its bytes (begin, end, byte): {broken:?}"
    );
    Ok(())
}

fn of_put(job: &Job<'_>) -> Verdict {
    let shape = |round| SHAPES[round as usize % SHAPES.len()];
    let send = |round| {
        let (at, len) = shape(round);
        job.memory.fill_range(32_768, len, round as u8);
        job.put(1, 32_768, at, len).ok(0, 0, 0)
    };
    job.rounds(60, send, |round| {
        let (at, len) = shape(round);
        lines_arrive(job, at, len, round as u8)
    })
}

fn of_stride(job: &Job<'_>) -> Verdict {
    const BLOCKS: usize = 4;
    const STRIDE: usize = 2048;
    let shape = |round| [(256, 1024), (300, 700), (511, 1500)][round as usize % 3];
    let send = |round| {
        let (at, len) = shape(round);
        job.memory.fill_range(32_768, BLOCKS * STRIDE, round as u8);
        job.put_stride(1, 32_768, at, len, STRIDE, BLOCKS)
            .ok(0, 0, 0)
    };
    job.rounds(30, send, |round| {
        let (at, len) = shape(round);
        for_all(0..BLOCKS, |block| {
            lines_arrive(job, at + block * STRIDE, len, round as u8)
        })
    })
}

fn of_get(job: &Job<'_>) -> Verdict {
    let rounds = if job.ctx.is_quick() { 300 } else { 30 };
    // The source of the gets, for each parity of the round.
    job.memory.fill_range(65_536, 32_768, 1);
    job.memory.fill_range(98_304, 32_768, 2);
    job.meet();
    if job.rank == 1 {
        // Leaves the CPU cores to the threads of rank 0.
        return Ok(());
    }
    let shape = |round: u64| SHAPES[(round / 2) as usize % SHAPES.len()];
    let get = |round| {
        let ((at, len), half) = (shape(round), round as usize % 2);
        job.get(1, at, 65_536 + 32_768 * half, len)
            .noticed(0, 0)
            .map(drop)
    };
    beside_gets(job, 32_768, rounds, get, |round| {
        let (at, len) = shape(round);
        lines_arrive(job, at, len, 1 + round as u8 % 2)
    })
}

/// 0 begins, 1 relays to 2, which polls its memory.
fn of_relay(job: &Job<'_>, session: &Session) -> Verdict {
    for round in 1..=36usize {
        let (at, len) = SHAPES[round % SHAPES.len()];
        let value = round as u8;
        if job.rank == 1 {
            job.memory.fill_range(32_768, len, value);
            session.relay(job.vcq(2), 32_768, job.at(2, at), len, 0)?;
        }
        job.meet();
        match job.rank {
            0 => session.begin(job, 1, (0, 8), 8, sps(1))?,
            2 => lines_arrive(job, at, len, value)?,
            _ => {}
        }
        job.meet();
    }
    Ok(())
}

//! Calls with arguments from a heap of strange numbers (§3.1.2.1).

use super::circuit::{NULL, free_gates, gates, poll, set_code, start};
use super::functions::{Call, Room, functions, right_call};
use super::kit::*;
use crate::law::Random;

laws! {
    anything with(8192): "bad.random", "§3.1.2.1", 2, [put, get, post_toq, set_vbg, barrier, reg_mem, dereg_mem, query_vcq_info] + ordering,
        "thousands of calls with strange numbers as arguments: codes agree with the guide, foreign memory stays unchanged";
}

/// A random number. Some are valid, or close to a valid one.
fn strange(random: &mut Random, known: &[u64]) -> u64 {
    let one = known[random.below(known.len() as u64) as usize];
    match random.below(10) {
        0 => random.next(),
        1 => 1 << random.below(64),
        2 => u64::MAX << random.below(64),
        3 => one ^ 1 << random.below(64),
        4 => one.wrapping_add(random.below(4096)).wrapping_sub(2048),
        5 => random.below(300),
        _ => one,
    }
}

/// Like [`strange`], but never an existing gate outside of `gates`: a packet to a gate of another program ends that program.
fn strange_gate(random: &mut Random, gates: &[u64]) -> u64 {
    let one = strange(random, gates);
    if vbg_info(one).is_ok() && !gates.contains(&one) {
        // A BG number that no TNI has.
        one | 63
    } else {
        one
    }
}

fn anything(job: &Job<'_>) -> Verdict {
    let mut random = job.ctx.random(u64::from(job.rank) ^ 0xbad);
    // Unregistered memory beside registered memory stays unchanged.
    let canary = Memory::new(8192);
    canary.fill(0xc5);
    let registered = job.queue.register(canary.part(4096, 256))?;
    let ids = gates::<4>(0, 0)?;
    for (nth, id) in ids.iter().enumerate() {
        job.write(job.right(), 4096 + nth * 8, *id)?;
    }
    job.meet();
    let theirs = job.memory.words([4096, 4104, 4120]);
    let session = Queue::create(TNI, SESSION_MODE)?;
    let (mut room, mut size) = (Room([0; 2 * DESC]), 0);
    let right = right_call(job, &mut room, &mut size);
    let hdls = [job.hdl as u64, session.hdl as u64, 0];
    let vcqs = [job.vcq(0), job.vcq(1), vcq_of(0, 1, 3)?, session.id];
    let stadds = [
        job.stadd,
        job.at(0, 8184),
        job.at(1, 4096),
        registered,
        registered + 255,
    ];
    let gates = [
        ids[0], ids[1], ids[2], ids[3], theirs[0], theirs[1], theirs[2], NULL,
    ];
    let alone = [0, TCQ, LOCAL, REMOTE, DELAY];
    let relays = [sps(1), sps(15) | LOCAL, STRONG_ORDER, path(3)];
    let flags = [&alone[..], &relays[..]].concat();
    let all = functions();
    let data = canary.base.wrapping_add(64);
    let known = |code: i32| return_codes().any(|(_, known)| known == code);
    for turn in 0..4000 {
        let r = &mut random;
        let call = Call {
            hdl: strange(r, &hdls) as usize,
            to: strange(r, &vcqs),
            local: strange(r, &stadds),
            remote: strange(r, &stadds),
            len: strange(r, &[0, 1, 8, 32, 4096]) as usize,
            edata: strange(r, &[0, 255]),
            flags: strange(r, &flags),
            op: strange(r, &[1, 2, 5]) as u32,
            mtu: strange(r, &[1920]) as usize,
            gap: strange(r, &[0]) as usize,
            stride: strange(r, &[8, 256]) as usize,
            blocks: strange(r, &[1, 2]) as usize,
            data,
            ..right
        };
        let function = all[r.below(all.len() as u64) as usize];
        let code = match r.below(8) {
            // A wrong program reads piggyback bytes before the length check: `data` has room for 32.
            0..4 => (function.start)(&call),
            4 => {
                let blocks = call.blocks.min(2);
                let prepared = (function.prepare)(&Call { blocks, ..call });
                if prepared == SUCCESS && r.below(2) == 0 {
                    // Flips one bit of a valid descriptor.
                    let bit = r.below(8 * DESC as u64) as usize;
                    room.0[bit / 8] ^= 1 << (bit % 8);
                }
                let descs = room.0.as_ptr().cast_mut().cast();
                match prepared {
                    SUCCESS => c!(utofu_post_toq(call.hdl, descs, size, cb(1))),
                    code => code,
                }
            }
            5 => {
                // A second signal or packet to a gate that waits ends the program: gates send none.
                let setting = utofu_vbg_setting {
                    vbg_id: strange_gate(r, &gates),
                    src_lcl_vbg_id: strange_gate(r, &gates),
                    src_rmt_vbg_id: strange_gate(r, &gates),
                    dst_lcl_vbg_id: strange_gate(r, &gates),
                    dst_rmt_vbg_id: strange_gate(r, &gates),
                    dst_path_coords: [(r.next() as u8 | 0x80).min(254), 0, 0],
                };
                let alone = |setting: utofu_vbg_setting| match setting.dst_lcl_vbg_id {
                    to if ids.contains(&to) => utofu_vbg_setting {
                        dst_lcl_vbg_id: NULL,
                        ..setting
                    },
                    _ => setting,
                };
                let first = utofu_vbg_setting {
                    vbg_id: ids[0],
                    ..setting
                };
                set_code(&[first, setting].map(alone)[..1 + r.below(2) as usize])
            }
            6 => {
                let end = strange_gate(r, &gates);
                let mut words = [1u64; 6];
                match r.below(4) {
                    0 => start(end, 0, &[]),
                    1 => {
                        let op = strange(r, &[2, 7]) as u32;
                        start(end, op, &words[..r.below(7) as usize])
                    }
                    2 => poll(end, 0, &mut []),
                    _ => poll(end, 7, &mut words),
                }
            }
            _ => {
                let (mut at, mut on, mut nth, mut extra, mut out) = ([0u8; 6], 0, 0, 0, 0u64);
                let (at, on, nth, extra) = (at.as_mut_ptr(), &mut on, &mut nth, &mut extra);
                match r.below(4) {
                    0 => c!(utofu_query_vcq_info(call.to, at, on, nth, extra)),
                    1 => c!(utofu_query_vbg_info(strange(r, &gates), at, on, nth, extra)),
                    2 => c!(utofu_query_stadd(call.to, call.op, &mut out)),
                    _ => {
                        let stadd = strange(r, &[0, registered + 1, job.stadd + 8]) & !(1 << 62);
                        // The registrations stay until the end.
                        let stays = [registered, job.stadd].contains(&stadd);
                        c!(utofu_dereg_mem(call.hdl, stadd + u64::from(stays), 0))
                    }
                }
            }
        };
        let allowed = known(code) && code != UTOFU_ERR_FATAL;
        ensure!(allowed, "turn {turn}: code {}", code_name(code));
        while job.queue.poll_tcq().0 != NOT_FOUND {}
        while job.queue.poll_mrq().0 != NOT_FOUND {}
    }
    job.meet();
    // All commands in flight have completed or failed.
    pause(20);
    while job.queue.poll_mrq().0 != NOT_FOUND {}
    job.meet();
    canary.all(0, 4096, 0xc5, "unregistered memory")?;
    canary.all(4352, 8192 - 4352, 0xc5, "unregistered memory")?;
    session.free()?;
    free_gates(&ids)?;
    job.queue.deregister(registered)
}

//! §3.1.2.1: a program when the system runs out of resources.

use super::kit::*;
use crate::kit::program;

laws! {
    no_descriptors: "memory.out-of-descriptors", "§3.1.2.1", 1, [reg_mem, reg_mem_with_stag, create_vcq, put] + bare,
        "without descriptors of files memory can be registered all the same or gives OUT_OF_RESOURCE; with them again it can";
    no_memory: "resources.out-of-memory", "§3.1.2.1", 1, [create_vcq, free_vcq, put, poll_mrq] + bare,
        "without memory for a VCQ, its creation gives OUT_OF_MEMORY; with memory again it can be created, and earlier objects still work";
    room_again: "mrq.room", "§3.7", 1, [poll_mrq, put_piggyback8, get] + bare,
        "polling until nothing is found makes room in the MRQ for as many notices again, local and remote";
}

/// Sets the soft limit of a resource of this process; returns the previous one.
fn soft_limit(what: libc::__rlimit_resource_t, allowed: u64) -> Result<u64, String> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY:
    // - `limit` is a valid place for the limits.
    let got = unsafe { libc::getrlimit(what, &mut limit) };
    ensure_eq!(got, 0, "getrlimit");
    let before = std::mem::replace(&mut limit.rlim_cur, allowed);
    // SAFETY:
    // - `limit` holds valid limits; the soft one is at most the hard one.
    let set = unsafe { libc::setrlimit(what, &limit) };
    ensure_eq!(set, 0, "setrlimit");
    Ok(before)
}

fn no_descriptors(_: &Ctx) -> Verdict {
    program(&[], "a program without descriptors", || {
        let (queue, known, from) = Queue::with_memory(4096)?;
        let before = soft_limit(libc::RLIMIT_NOFILE, 0)?;
        for round in 0..3 {
            let memory = Memory::pages(1 << 16)?;
            let mut stadds = [7u64; 2];
            let (hdl, at) = (queue.hdl, memory.base.cast());
            let [one, other] = &mut stadds;
            let codes = [
                c!(utofu_reg_mem(hdl, at, memory.len, 0, one)),
                c!(utofu_reg_mem_with_stag(hdl, at, 4096, 9, 0, other)),
            ];
            for (code, stadd) in codes.into_iter().zip(stadds) {
                let allowed = [SUCCESS, UTOFU_ERR_OUT_OF_RESOURCE];
                one_of(code, &allowed, format!("round {round}"))?;
                ensure!(code == SUCCESS || stadd == 7, "STADD {stadd:#x}");
                if code == SUCCESS {
                    queue.deregister(stadd)?;
                }
            }
            // The program can use registered memory.
            known.set(0, round + 1);
            post::put(queue.hdl, queue.id, from, from + 8, 8).noticed(0, 0)?;
            ensure_eq!(known.get(8), round + 1, "a put without descriptors");
        }
        soft_limit(libc::RLIMIT_NOFILE, before)?;
        let memory = Memory::pages(1 << 16)?;
        let stadd = queue.register(memory)?;
        queue.close(stadd)
    })
}

/// Bytes of the process's address space in use.
fn mapped() -> Result<u64, String> {
    let text = std::fs::read_to_string("/proc/self/statm").map_err(|e| e.to_string())?;
    let pages: Option<u64> = text.split(' ').next().and_then(|word| word.parse().ok());
    Ok(pages.ok_or("/proc/self/statm without a number")? * 4096)
}

fn no_memory(_: &Ctx) -> Verdict {
    // KiB that are left.
    for room in [0, 64, 256, 1024, 2048, 4096, 5120, 16_384].map(|room| room << 10) {
        let what = format!("a program with {room} bytes left");
        program(&[], &what, || {
            let (queue, memory, from) = Queue::with_memory(4096)?;
            let mut more = Vec::with_capacity(6 * 48);
            let before = soft_limit(libc::RLIMIT_AS, mapped()? + room)?;
            let mut seen = [0; 2];
            for tni in 0..6 {
                let mut hdl = 7;
                loop {
                    match c!(utofu_create_vcq(tni, 0, &mut hdl)) {
                        SUCCESS => more.push(hdl),
                        code if code == UTOFU_ERR_OUT_OF_MEMORY => break seen[0] += 1,
                        code if code == UTOFU_ERR_FULL => break seen[1] += 1,
                        code => return Err(format!("creating a VCQ gave {}", code_name(code))),
                    }
                    hdl = 7;
                }
                ensure_eq!(hdl, 7, "the handle after an error");
            }
            soft_limit(libc::RLIMIT_AS, before)?;
            memory.set(0, 3);
            post::put(queue.hdl, queue.id, from, from + 8, 8).noticed(0, 0)?;
            ensure_eq!(memory.get(8), 3, "a put when there is memory again");
            ensure!(seen[0] > 0 || room > 1 << 20, "{} in {room}", more.len());
            for hdl in more {
                ok!(utofu_free_vcq(hdl));
            }
            Queue::create(TNI + 1, 0)?.free()
        })?;
    }
    Ok(())
}

fn room_again(_: &Ctx) -> Verdict {
    const ENTRIES: u64 = 2048;
    for flags in [LOCAL, REMOTE, LOCAL | REMOTE] {
        let what = format!("a program with an MRQ of {ENTRIES} entries");
        program(&[("UTOFU_NUM_MRQ_ENTRIES", "2Ki")], &what, || {
            let queue = Queue::with_component(TNI, 0, 0)?;
            let stadd = queue.register_as(Memory::new(256), STAG)?;
            let each = if flags == LOCAL | REMOTE { 2 } else { 1 };
            for round in 0..12 {
                let commands = ENTRIES / each - round % 3 * 7;
                let (hdl, id, flags) = (queue.hdl, queue.id, flags | TCQ);
                queue.send_all(commands, |nth| match nth % 2 {
                    0 => post::put_piggyback8(hdl, id, nth, stadd, 8).code(round, flags, 0),
                    _ => post::get(hdl, id, stadd + 8, stadd, 8).code(round, flags, 0),
                })?;
                for _ in 0..commands * each {
                    ensure_eq!(queue.mrq()?.edata, round, "edata");
                }
                queue.mrq_is_empty()?;
            }
            queue.free()
        })?;
    }
    Ok(())
}

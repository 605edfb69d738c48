//! §2.2.8, §4.1.2, §4.3.1 and §6.1.4.1: processes begin and end, under any launcher, with communication in progress.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::circuit::{beside, free_gate, gates, one_barrier, set_gates};
use super::kit::*;
use crate::kit::{Child, shared_words};

laws! {
    carrier_dies: "lives.carrier-dies", "§2.2.8", 3, [put, poll_mrq, poll_tcq] + needs_kill + ordering,
        "a process is killed while its put starts another's session commands: all of them, and the commands that they start, are done in order";
    forked: "lives.fork", "§4.1.2, §6.1.4.1", 2, [create_vcq, put, poll_mrq, reg_mem, dereg_mem, barrier, alloc_vbg],
        "the child of a fork cannot use uTofu, has the memory that is not registered as its own, and its end leaves the parent's communication alone";
    exits: "lives.exit", "§3.1.2.1", 2, [put, poll_mrq] + bare,
        "a command to an ended program gives MRQ_PEER within seconds, and reaches the next program in its place";
    by_hand: "lives.by-hand", "§4.3.1", 1, [query_my_coords, construct_vcq_id, put] + bare,
        "processes that no launcher started find each other by the name of their job, at coordinates of their own, and leave no file";
    all_killed: "lives.all-killed", "§4.3.1", 1, [query_my_coords, put] + bare + ordering,
        "all processes of a job are killed at any moment: its next start works, and leaves nothing behind";
    circuits: "lives.circuit", "§2.3.2, §3.4.2.1", 1, [alloc_vbg, set_vbg, barrier, poll_barrier, construct_vcq_id, put_piggyback8] + bare,
        "a program starts in the place of an ended one, with the same VBG and VCQ: a circuit set again, and a VCQ id constructed again, reach it at once";
    launchers: "lives.launchers", "§4.3.1", 1, [query_my_coords, put] + bare,
        "with the variables that launchers leave, a process's rank says where it is";
}

/// Milliseconds after a death in which all processes must end.
const SOON: u128 = 3000;
/// Milliseconds. An operation that takes longer never ends, however slow the machine is.
const FOREVER: u128 = crate::stall::LONG.as_millis();
const PEER: i32 = UTOFU_ERR_MRQ_PEER;
const AWAY: i32 = UTOFU_ERR_NOT_AVAILABLE;

const COMMANDS: usize = 15;
const PART: usize = 192 << 10;

/// Rank 0 starts rank 1's commands. They go to rank 2's session mode VCQ and start commands that go to rank 1's other VCQ.
fn carrier_dies(ctx: &Ctx) -> Verdict {
    let plain = Queue::with_component(TNI, 0, 0)?;
    let session = Queue::create(TNI, SESSION_MODE)?;
    let memory = Memory::new(COMMANDS * PART + 4096);
    let (words, ready) = (COMMANDS * PART, COMMANDS * PART + 2048);
    let stadd = plain.register_as(memory, STAG)?;
    let inner = session.register_as(memory, STAG)?;
    ctx.sync();
    let (first, second, end) = (session.at_rank(1)?, session.at_rank(2)?, vcq_of(1, TNI, 0)?);
    for nth in 0..COMMANDS {
        match ctx.rank {
            1 => {
                memory.fill_range(nth * PART, PART, nth as u8 + 1);
                let there = stadd_of(second, STAG)? + (nth * PART) as u64;
                let (from, flags) = (inner + (nth * PART) as u64, REMOTE | sps(1));
                post::put(session.hdl, second, from, there, PART).ok(nth as u64, flags, nth)?;
            }
            2 => {
                memory.set(words + 8 * nth, nth as u64 + 1);
                let there = stadd_of(end, STAG)? + (words + 1024 + 8 * nth) as u64;
                let from = inner + (words + 8 * nth) as u64;
                post::put(session.hdl, end, from, there, 8).ok(nth as u64, REMOTE, nth)?;
            }
            _ => {}
        }
    }
    ctx.sync();
    match ctx.rank {
        0 => {
            let ctx_of_killer = ctx.clone();
            let wait = ctx.random(7).below(4000);
            std::thread::spawn(move || {
                std::thread::sleep(std::time::Duration::from_micros(wait));
                ctx_of_killer.dies()
            });
            let (from, to) = (stadd + words as u64, stadd_of(first, STAG)? + ready as u64);
            post::put(plain.hdl, first, from, to, 8).ok(0, sps(COMMANDS as u64), 0)?;
            loop {
                let _ = plain.poll_tcq();
                std::thread::yield_now();
            }
        }
        1 => {
            // If rank 0 dies before its put arrives, no command starts.
            let begun = Instant::now();
            let mut seen = 0;
            while seen < COMMANDS as u64 {
                let _ = session.poll_tcq();
                match plain.poll_mrq() {
                    (NOT_FOUND, _) => std::thread::yield_now(),
                    (SUCCESS, notice) => {
                        // Another process may repeat the last command of the killed process.
                        let again = notice.edata + 1 == seen;
                        let edata = if again { seen } else { notice.edata };
                        ensure_eq!(edata, seen, "the next command of the second relay");
                        seen += u64::from(!again);
                    }
                    (code, _) => return Err(format!("a notice gave {}", code_name(code))),
                }
                let waited = begun.elapsed().as_millis();
                if seen == 0 && waited > 3 * SOON {
                    break;
                }
                ensure!(waited < FOREVER, "{seen} of {COMMANDS} commands done");
            }
            let end = vcq_of(2, TNI, 0)?;
            let to = stadd_of(end, STAG)? + ready as u64;
            post::put_piggyback8(plain.hdl, end, 1 + seen, to, 8).ok(0, 0, 0)?;
            for nth in 0..seen {
                let at = words + 1024 + 8 * nth as usize;
                memory.shows(at, nth + 1, format!("the data of command {nth}"))?;
            }
        }
        _ => {
            until("the end of the commands", || {
                let _ = session.poll_tcq();
                memory.get(ready) != 0
            })?;
            for nth in 0..memory.get(ready) as usize - 1 {
                let what = format!("part {nth}");
                memory.all(nth * PART, PART, nth as u8 + 1, &what)?;
            }
        }
    }
    ctx.sync();
    Ok(())
}

fn forked(ctx: &Ctx) -> Verdict {
    let queue = Queue::with_component(TNI, 0, 0)?;
    // On separate pages: the child has no access to neighbours on a registered page either (§6.1.4.1).
    let (memory, was_registered) = (Memory::pages(4096)?, Memory::pages(1 << 16)?);
    let stadd = queue.register_as(memory, STAG)?;
    let vbg = got!(utofu_alloc_vbg(TNI, 1, 0));
    was_registered.fill(5);
    let taken_back = queue.register(was_registered)?;
    queue.deregister(taken_back)?;
    let peer = vcq_of(ctx.rank ^ 1, TNI, 0)?;
    let there = stadd_of(peer, STAG)?;
    ctx.sync();
    let put = |offset: u64, value: u64, flags: u64| {
        let to = there + offset;
        post::put_piggyback8(queue.hdl, peer, value, to, 8).code(value, flags, 0)
    };
    let shared = shared_words(1)?;
    for round in 1..=2u64 {
        // The child must not take this pending notice.
        ensure_eq!(put(8, round, REMOTE), SUCCESS, "a put before the fork");
        until("the peer's put", || memory.get(8) == round)?;
        let child = Child::start(&[], || {
            let (mut hdl, mut count, mut again, mut ids) = (0, 0usize, 0, [0u64; 2]);
            let (base, tail) = (was_registered.base, ids.as_mut_ptr());
            let answers = [
                c!(utofu_create_vcq(TNI, 0, &mut hdl)),
                put(8, 7, REMOTE),
                c!(utofu_nop(queue.hdl, TCQ, cb(0))),
                queue.poll_tcq().0,
                queue.poll_mrq().0,
                c!(utofu_query_num_unread_tcq(queue.hdl, &mut count)),
                c!(utofu_reg_mem(queue.hdl, base.cast(), 256, 0, &mut again)),
                c!(utofu_dereg_mem(queue.hdl, stadd, 0)),
                c!(utofu_free_vcq(queue.hdl)),
                c!(utofu_alloc_vbg(TNI, 1, 0, tail)),
                c!(utofu_barrier(vbg, 0)),
                c!(utofu_poll_barrier(vbg, 0)),
                c!(utofu_free_vbg(std::ptr::from_ref(&vbg).cast_mut(), 1)),
            ];
            for (nth, code) in answers.into_iter().enumerate() {
                ensure!(code == AWAY, "call {nth} in a child: {}", code_name(code));
            }
            was_registered.all(0, 1 << 16, 5, "memory in a child")?;
            was_registered.fill(6);
            shared[0].store(round, Ordering::Release);
            Ok(())
        })?;
        child.succeeds("the child")?;
        ensure_eq!(shared[0].load(Ordering::Acquire), round, "the child's word");
        was_registered.all(0, 1 << 16, 5, "memory that a child has written to")?;
        ctx.sync();
        // The parent's queues, memory and gates are as before; peers do not consider it dead.
        ensure_eq!(memory.get(8), round, "the put of the peer");
        let notice = queue.notice(RMT_PUT)?;
        ensure_eq!(notice.edata, round, "the peer's notice");
        queue.mrq_is_empty()?;
        pause(300);
        for _ in 0..3 {
            ensure_eq!(put(16, round, LOCAL), SUCCESS, "a put after the fork");
            queue.notice(LCL_PUT)?;
            pause(50);
        }
        until("the peer's put", || memory.get(16) == round)?;
        while queue.poll_tcq().0 == SUCCESS {}
        ctx.sync();
    }
    free_gate(vbg)?;
    queue.close(stadd)
}

fn exits(ctx: &Ctx) -> Verdict {
    if ctx.rank == 0 {
        for life in 1..=3u64 {
            let child = Child::start(&[], || {
                let queue = Queue::with_component(TNI, 0, 0)?;
                let memory = Memory::new(256);
                memory.set(0, life);
                queue.register_as(memory, STAG)?;
                // It ends without freeing any of its objects.
                until("the peer's word", || memory.get(8) == life)
            })?;
            child.succeeds(&format!("life {life}"))?;
            pause(400);
        }
    } else {
        let (queue, memory, stadd) = Queue::with_memory(256)?;
        let to = vcq_of(0, TNI, 0)?;
        let there = stadd_of(to, STAG)?;
        let look = || -> Result<i32, String> {
            post::get(queue.hdl, to, stadd, there, 8).ok(0, LOCAL, 0)?;
            let _ = queue.poll_tcq();
            Ok(queue.next_mrq()?.0)
        };
        for life in 1..=3u64 {
            until_ok("the next program", || {
                pause(1);
                Ok(look()? == SUCCESS && memory.get(0) == life)
            })?;
            memory.set(16, life);
            post::put(queue.hdl, to, stadd + 16, there + 8, 8).noticed(0, 0)?;
            until_ok("the end of the program", || {
                pause(1);
                let code = look()?;
                one_of(code, &[SUCCESS, PEER], "a get from the program")?;
                Ok(code == PEER)
            })?;
        }
    }
    ctx.sync();
    Ok(())
}

/// Variables by which launchers identify processes; an empty value counts as unset.
const NOBODY: [(&str, &str); 6] = [
    ("UNIPGAS_JOB", ""),
    ("PMIX_NAMESPACE", ""),
    ("OMPI_MCA_ess_base_jobid", ""),
    ("PMI_RANK", ""),
    ("SLURM_JOB_ID", ""),
    ("SLURM_JOBID", ""),
];

/// Memory that talking processes share with their starter.
#[derive(Clone, Copy)]
struct Board {
    /// Number of processes that have reached all others.
    met: &'static AtomicU64,
    /// Number of processes that have done all their rounds.
    done: &'static AtomicU64,
    /// No process ends before this is set.
    may_end: &'static AtomicU64,
}

impl Board {
    fn new() -> Result<Board, String> {
        let [met, done, may_end] = shared_words(3)? else {
            return Err("not three words".into());
        };
        Ok(Board { met, done, may_end })
    }

    fn clear(&self, may_end: bool) {
        self.met.store(0, Ordering::Release);
        self.done.store(0, Ordering::Release);
        self.may_end.store(may_end.into(), Ordering::Release);
    }
}

/// Finds `size` processes at the first nodes and puts to each of them, `rounds` times; takes the same number from each.
fn talk(size: u32, rounds: u64, board: Board) -> Verdict {
    let me = own_place()?;
    ensure!(me < size, "place {me} of {size} processes");
    let at = my_coords()?;
    ensure_eq!(at, coords(me)?, "coordinates of place {me}");
    let (queue, memory, _) = Queue::with_memory(256)?;
    for round in 1..=rounds {
        for rank in 0..size {
            let to = vcq_of(rank, TNI, 0)?;
            let there = stadd_of(to, STAG)? + 8 * u64::from(me);
            if round == 1 {
                queue.write_when_there(to, there, round)?;
                continue;
            }
            until_ok("a put", || {
                post::put_piggyback8(queue.hdl, to, round, there, 8).ok(0, LOCAL, 0)?;
                let _ = queue.poll_tcq();
                match queue.next_mrq()?.0 {
                    // All processes are killed, one after the other.
                    PEER if rounds == u64::MAX => pause(1),
                    code => return code_is(code, SUCCESS, "a put").map(|()| true),
                }
                Ok(false)
            })?;
        }
        for rank in 0..size as usize {
            until("everybody's word", || memory.get(8 * rank) >= round)?;
        }
        if round == 1 {
            board.met.fetch_add(1, Ordering::AcqRel);
        }
    }
    board.done.fetch_add(1, Ordering::AcqRel);
    until("the end of all", || {
        let all = board.done.load(Ordering::Acquire) == u64::from(size);
        all && board.may_end.load(Ordering::Acquire) == 1
    })
}

/// The rendezvous file that a process has open.
fn file_of(pid: i32) -> Result<String, String> {
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).map_err(|e| e.to_string())?;
    open.flatten()
        .filter_map(|entry| std::fs::read_link(entry.path()).ok())
        .map(|path| path.to_string_lossy().into_owned())
        .find(|path| path.contains("/unipgas-") && !path.contains("memfd"))
        .ok_or_else(|| format!("process {pid} has no file of a job open"))
}

/// Starts `size` processes of the job of this name without a launcher. Returns when all have met.
fn start_by_hand(
    name: &str,
    size: u32,
    rounds: u64,
    board: Board,
) -> Result<(Vec<Child>, String), String> {
    board.clear(false);
    let mut environment = NOBODY.to_vec();
    environment.push(("UNIPGAS_JOB_NAME", name));
    let children = (0..size)
        .map(|_| Child::start(&environment, || talk(size, rounds, board)))
        .collect::<Result<Vec<_>, _>>()?;
    let met = until("all processes of the job", || {
        board.met.load(Ordering::Acquire) == u64::from(size)
    });
    if let Err(why) = met {
        let mut all = why;
        for child in children {
            child.kill();
            all += &format!("; {:?}", child.end()?);
        }
        return Err(all);
    }
    let file = file_of(children[0].pid)?;
    board.may_end.store(1, Ordering::Release);
    Ok((children, file))
}

fn is_gone(file: &str) -> Verdict {
    let path = file.trim_end_matches(" (deleted)");
    let exists = std::path::Path::new(path).exists();
    ensure!(!exists, "{path} is left of a job that has ended");
    Ok(())
}

fn by_hand(ctx: &Ctx) -> Verdict {
    let board = Board::new()?;
    let name = format!("law-{}-{}", std::process::id(), ctx.seed);
    for size in [1, 2, 3, 5] {
        let (children, file) = start_by_hand(&name, size, 300, board)?;
        for child in children {
            child.succeeds(&format!("a process of {size}"))?;
        }
        is_gone(&file)?;
    }
    Ok(())
}

fn all_killed(ctx: &Ctx) -> Verdict {
    let board = Board::new()?;
    let name = format!("law-{}-{}", std::process::id(), ctx.seed);
    let mut random = ctx.random(11);
    for _ in 0..3 {
        let (children, _) = start_by_hand(&name, 3, u64::MAX, board)?;
        std::thread::sleep(std::time::Duration::from_micros(random.below(3000)));
        children.iter().for_each(Child::kill);
        for child in children {
            let (status, text) = child.end()?;
            ensure!(
                libc::WIFSIGNALED(status) && text.is_empty(),
                "a killed process: {status:#x}, {text:?}"
            );
        }
    }
    let (children, file) = start_by_hand(&name, 3, 10, board)?;
    for child in children {
        child.succeeds("a process of the last start")?;
    }
    is_gone(&file)
}

/// One side of circuits of two gates, and of puts. `own` and `peer` hold the step, the VBG and the place of each side.
fn in_circuits(rounds: RangeInclusive<u64>, own: &[AtomicU64], peer: &[AtomicU64]) -> Verdict {
    let [id] = gates(TNI, 0)?;
    let (queue, memory, _) = Queue::with_memory(256)?;
    own[1].store(id, Ordering::Release);
    own[2].store(own_place()?.into(), Ordering::Release);
    for round in rounds {
        let meet = |step: u64| {
            own[0].store(step, Ordering::Release);
            let there = || peer[0].load(Ordering::Acquire) >= step;
            until("the other side", there)
        };
        meet(4 * round)?;
        set_gates(&[beside(id, peer[1].load(Ordering::Acquire))])?;
        let to = vcq_of(peer[2].load(Ordering::Acquire) as u32, TNI, 0)?;
        meet(4 * round + 1)?;
        one_barrier(id)?;
        post::put_piggyback8(queue.hdl, to, round, stadd_of(to, STAG)?, 8).ok(0, 0, 0)?;
        until("the put", || memory.get(0) == round)?;
        meet(4 * round + 2)?;
    }
    Ok(())
}

fn circuits(ctx: &Ctx) -> Verdict {
    const LIVES: u64 = 5;
    let (stays, changes) = shared_words(6)?.split_at(3);
    let name = format!("law-{}-{}", std::process::id(), ctx.seed);
    let mut environment = NOBODY.to_vec();
    environment.push(("UNIPGAS_JOB_NAME", &name));
    let survivor = Child::start(&environment, || in_circuits(1..=LIVES, stays, changes))?;
    for life in 1..=LIVES {
        // It ends without freeing its VBG.
        let child = Child::start(&environment, || in_circuits(life..=life, changes, stays))?;
        child.succeeds(&format!("life {life}"))?;
    }
    survivor.succeeds("the process that stays")
}

fn launchers(ctx: &Ctx) -> Verdict {
    let board = Board::new()?;
    let job = format!("law-{}-{}", std::process::id(), ctx.seed);
    const SIZE: u32 = 3;
    // The variables of the job, the rank, the number of processes, and that on this host.
    const LAUNCHERS: [&str; 4] = [
        "UNIPGAS_JOB UNIPGAS_RANK UNIPGAS_SIZE UNIPGAS_SIZE",
        "PMIX_NAMESPACE PMIX_RANK OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_LOCAL_SIZE",
        "OMPI_MCA_ess_base_jobid OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_LOCAL_SIZE",
        "PMI_JOBID PMI_RANK PMI_SIZE MPI_LOCALNRANKS",
    ];
    for variables in LAUNCHERS {
        let [name, rank, size, here] = variables.split(' ').collect::<Vec<_>>()[..] else {
            return Err(format!("{variables:?} are not four"));
        };
        board.clear(true);
        let mut children = Vec::new();
        // The last rank first.
        for me in (0..SIZE).rev() {
            let (mine, all) = (me.to_string(), SIZE.to_string());
            let mut environment = NOBODY.to_vec();
            environment.extend([
                (name, job.as_str()),
                (rank, &mine),
                (size, &all),
                (here, &all),
            ]);
            children.push(Child::start(&environment, || {
                ensure_eq!(own_place()?, me, "the place of rank {me}");
                talk(SIZE, 20, board)
            })?);
        }
        for child in children {
            child.succeeds(&format!("a process with {name}"))?;
        }
    }
    Ok(())
}

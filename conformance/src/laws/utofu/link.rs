//! The link between hosts goes down during communication, or the launcher of a host is killed, and its processes with it. Operations that need the
//! other side end with the guide's codes, and the processes of one side continue.

use super::circuit::*;
use super::failure_gates::{is_barrier_error, whole_barrier};
use super::functions::{Call, Function};
use super::kit::*;
use crate::kit::{Lose, Sides};

laws! {
    commands_lose given(Sides::cut as Lose): "link.commands", "§3.1.2.1", 4,
        [put, put_piggyback8, get, armw8, cswap8, poll_mrq, dereg_mem, free_vcq] + needs_kill + needs_cut,
        "every command of each kind across a link that goes down ends, finally with MRQ_PEER; commands between processes of one host go on";
    session with(WORD + 8): "link.session", "§2.2.8, §3.1.2.1", 4, [put, post_toq, poll_mrq] + needs_kill + needs_cut,
        "a put to a session mode VCQ, and what one forwards, ends with MRQ_PEER when it has to cross a link that is down";
    barriers_lose given(Sides::cut as Lose):
        "link.barrier", "§3.8.2", 4, [barrier, poll_barrier, set_vbg, free_vbg] + needs_kill + needs_cut,
        "polling a barrier ends with an error when the link between its participants goes down; a circuit of one side's processes works";
    commands_lose given(Sides::kill_launcher as Lose): "link.launcher.commands", "§3.1.2.1", 4,
        [put, put_piggyback8, get, armw8, cswap8, poll_mrq, dereg_mem, free_vcq] + needs_kill + kills_launcher,
        "commands of each kind to processes of a killed launcher end with MRQ_PEER; processes of the other host go on, and nothing is left behind";
    barriers_lose given(Sides::kill_launcher as Lose):
        "link.launcher.barrier", "§3.8.2", 4, [barrier, poll_barrier, set_vbg, free_vbg] + needs_kill + kills_launcher,
        "polling a barrier ends with an error when the launcher of some participants is killed; a circuit of the others works";
}

const PEER: i32 = UTOFU_ERR_MRQ_PEER;

const COMMANDS: [&str; 5] = [
    "utofu_put",
    "utofu_put_piggyback8",
    "utofu_get",
    "utofu_armw8",
    "utofu_cswap8",
];

/// Commands to the next process of this side, by a separate VCQ.
struct Near<'a> {
    job: &'a Job<'a>,
    sides: Sides,
    queue: Queue,
}

/// Offset of the word that the previous process writes.
const WORD: usize = TABLE + 1024;
/// The last value of the word.
const LAST: u64 = 77;

impl<'a> Near<'a> {
    /// Also connects all ranks with each other.
    fn open(job: &'a Job<'a>) -> Result<Near<'a>, String> {
        let sides = Sides::find(job.ctx)?;
        for other in (0..job.size).filter(|other| *other != job.rank) {
            job.write(other, WORD, 1)?;
        }
        job.meet();
        let queue = Queue::with_component(TNI + 1, 0, 0)?;
        Ok(Near { job, sides, queue })
    }

    fn write(&self, value: u64) -> Verdict {
        let (next, _) = self.sides.around();
        let (to, at) = (self.job.vcq(next), self.job.at(next, WORD));
        let put = || post::put_piggyback8(self.queue.hdl, to, value, at, 8).code(0, LOCAL, 0);
        self.queue.post(put)?;
        self.queue.notice(LCL_PUT)?;
        Ok(())
    }

    fn end(self) -> Verdict {
        self.write(LAST)?;
        self.job.await_word(WORD, LAST)?;
        self.queue.free()
    }
}

fn commands_lose(ctx: &Ctx, lose: Lose) -> Verdict {
    /// Maximum in flight of one kind to one peer.
    const MOST: usize = 8;
    with(ctx, WORD + 8, |job| {
        let near = Near::open(job)?;
        let lost = near.sides.lost().to_vec();
        let functions = COMMANDS.map(Function::named);
        let to = |rank: u32, edata: usize| Call {
            len: 256,
            edata: edata as u64,
            flags: LOCAL,
            ..Call::to(job, rank)
        };
        // For each peer and kind: number in flight, and whether one has failed.
        let mut open = vec![[0usize; COMMANDS.len()]; lost.len()];
        let mut failed = vec![[false; COMMANDS.len()]; lost.len()];
        lose(&near.sides, ctx);
        let mut looks = Looks::for_the("the failure of each kind of command");
        while open.as_flattened().iter().any(|count| *count > 0)
            || failed.as_flattened().contains(&false)
        {
            for (peer, rank) in lost.iter().enumerate() {
                for (kind, function) in functions.iter().enumerate() {
                    if failed[peer][kind] || open[peer][kind] == MOST {
                        continue;
                    }
                    let code = function.post(&to(*rank, kind));
                    one_of(code, &[SUCCESS, BUSY], function.name)?;
                    open[peer][kind] += usize::from(code == SUCCESS);
                }
            }
            while job.queue.poll_tcq().0 == SUCCESS {}
            loop {
                let (code, notice) = job.queue.poll_mrq();
                if code == NOT_FOUND {
                    break;
                }
                let peer = lost.iter().position(|rank| job.vcq(*rank) == notice.vcq_id);
                let kind = notice.edata as usize;
                let place = peer.filter(|peer| kind < COMMANDS.len() && open[*peer][kind] > 0);
                let peer = place.ok_or(format!("a notice of no command: {notice:?}"))?;
                let what = format!("{} across the link", COMMANDS[kind]);
                one_of(code, &[SUCCESS, PEER], what)?;
                open[peer][kind] -= 1;
                failed[peer][kind] |= code == PEER;
            }
            near.write(2)?;
            looks.again();
        }
        drop(looks);
        // Each later command fails, with one notice.
        for rank in &lost {
            for function in &functions {
                let (name, call) = (function.name, to(*rank, 9));
                ensure_eq!(function.post(&call), SUCCESS, "{name}");
                let (code, notice) = job.queue.next_mrq()?;
                ensure_eq!(code, PEER, "{name} after the cut");
                let seen = (notice.vcq_id, notice.edata);
                ensure_eq!(seen, (call.to, 9), "notice of {name}");
            }
        }
        job.queue.mrq_is_empty()?;
        near.end()
    })
}

fn session(job: &Job<'_>) -> Verdict {
    let near = Near::open(job)?;
    let (next, _) = near.sides.around();
    let far = near.sides.lost()[0];
    let relay = Queue::create(TNI, SESSION_MODE)?;
    let inner = relay.register_as(job.memory, STAG + 1)?;
    // Each relay forwards across the link.
    for _ in 0..100 {
        let (to, at) = (job.vcq(far), job.at(far, 256));
        post::put(relay.hdl, to, inner, at, 8).ok(9, LOCAL, 0)?;
    }
    job.meet();
    let put = |rank: u32| -> Result<i32, String> {
        let to = relay.at_rank(rank)?;
        let at = stadd_of(to, STAG + 1)? + 512;
        let post = || post::put(job.hdl, to, job.stadd, at, 8).code(1, LOCAL | sps(1), 0);
        job.queue.post(post)?;
        let (code, notice) = job.queue.next_mrq()?;
        ensure_eq!(notice.vcq_id, to, "the peer of the notice");
        Ok(code)
    };
    near.sides.cut(job.ctx);
    // Puts to the relay of the other side while the link goes down, then to its other VCQ, which saves the commands of the relay.
    for_all(0..20, |_| {
        one_of(put(far)?, &[SUCCESS, PEER], "a put across the link")
    })?;
    let to = job.vcq(far);
    until_ok("a put across the link to fail", || {
        job.put8(far, 0, 1).ok(0, LOCAL, 0)?;
        let code = job.queue.next_mrq()?.0;
        job.queue.poll_tcq();
        one_of(code, &[SUCCESS, PEER], "a put across the link")?;
        Ok(code == PEER)
    })?;
    ensure_eq!(put(far)?, PEER, "a put to a relay of the other side");
    for _ in 0..20 {
        ensure_eq!(put(next)?, SUCCESS, "a put to a relay of this side");
    }
    // The first ones may have arrived.
    let forwarded = || -> Result<i32, String> {
        let (code, notice) = relay.next_mrq()?;
        ensure_eq!(notice.vcq_id, to, "the peer of what was forwarded");
        one_of(code, &[SUCCESS, PEER], "what was forwarded")?;
        Ok(code)
    };
    while forwarded()? == SUCCESS {}
    job.meet();
    relay.deregister(inner)?;
    near.end()
}

fn barriers_lose(ctx: &Ctx, lose: Lose) -> Verdict {
    with(ctx, WORD + 8, |job| {
        let near = Near::open(job)?;
        let circuit = Circuit::build(job, butterfly(4), TNI)?;
        for _ in 0..20 {
            circuit.barrier()?;
        }
        job.meet();
        lose(&near.sides, ctx);
        let end = circuit.ends()[0];
        let code = loop {
            match whole_barrier(end)? {
                SUCCESS => {}
                code => break code,
            }
        };
        ensure!(is_barrier_error(code), "a barrier gave {}", code_name(code));
        ensure!(
            whole_barrier(end)? != SUCCESS,
            "a barrier across the link succeeds"
        );
        // One gate for each of the two ranks of this side.
        let own = got!(utofu_alloc_vbg(5, 1, 0));
        ctx.tell(&u64::to_le_bytes(own));
        job.meet();
        let told = ctx.told(near.sides.around().0).unwrap_or_default();
        let other = u64::from_le_bytes(told.try_into().map_err(|_| "no VBG was told")?);
        set_gates(&[beside(own, other)])?;
        job.meet();
        for _ in 0..50 {
            let code = whole_barrier(own)?;
            ensure_eq!(code, SUCCESS, "a barrier of one side's processes");
        }
        job.meet();
        free_gate(own)?;
        near.end()
    })
}

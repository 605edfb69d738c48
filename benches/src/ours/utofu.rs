//! uTofu's functions in the shared library. Processes find each other by their coordinates.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::null_mut;

use unipgas_launcher::library::InstalledLibrary;
use unipgas_utofu_sys::{
    UTOFU_ARMW_OP_ADD, UTOFU_ERR_BUSY as BUSY, UTOFU_ERR_NOT_COMPLETED as NOT_COMPLETED,
    UTOFU_ERR_NOT_FOUND as NOT_FOUND, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE as LOCAL_NOTICE,
    UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE as REMOTE_NOTICE, UTOFU_ONESIDED_FLAG_SPS,
    UTOFU_ONESIDED_FLAG_TCQ_NOTICE as COMPLETION, UTOFU_PATH_COORD_NULL, UTOFU_VBG_ID_NULL as NULL,
    UTOFU_VCQ_FLAG_SESSION_MODE as SESSION_MODE, UtofuFunctions, utofu_mrq_notice,
    utofu_vbg_setting,
};

use super::{UserBuffer, call, ok, registration};
use crate::bare::each;
use crate::case::Case;
use crate::ctx::{BenchContext, arrived, exchanges};

const SPS_1: u64 = UTOFU_ONESIDED_FLAG_SPS(1);
const TNI: u16 = 0;
const STAG: u32 = 0;
const DATA: usize = 64 << 20;
/// The longest put.
const PIECE: usize = 8 << 20;
/// Commands posted at once.
const BATCH: usize = 32;
/// Relays of a chain.
const HOPS: usize = 6;

/// A VCQ, the VCQ of the other process, and memory at both.
pub(super) struct Utofu {
    calls: UtofuFunctions,
    vcq: usize,
    peer: u64,
    buffer: UserBuffer,
    local: u64,
    remote: u64,
    round: Cell<u64>,
}

fn coords(rank: usize) -> [u8; 6] {
    [
        0,
        0,
        0,
        (rank / 6) as u8,
        (rank / 2 % 3) as u8,
        (rank % 2) as u8,
    ]
}

/// The functions of the library.
pub fn functions(library: &InstalledLibrary) -> Result<UtofuFunctions, String> {
    // SAFETY:
    // - a library of uTofu, which stays loaded: its functions of these names have the types of the header
    let found = unsafe { UtofuFunctions::load(|name| library.symbol(name)) };
    found.map_err(super::lacks)
}

fn vcq_id(calls: &UtofuFunctions, rank: usize, cq: u16, cmp: u16) -> Result<u64, String> {
    let mut id = 0;
    call!(calls.utofu_construct_vcq_id(coords(rank).as_mut_ptr(), TNI, cq, cmp, &mut id))?;
    Ok(id)
}

/// utofu_put from a VCQ to another one.
#[inline(always)]
fn put(
    calls: &UtofuFunctions,
    (vcq, peer): (usize, u64),
    from: u64,
    to: u64,
    len: usize,
    flags: u64,
) -> i32 {
    // SAFETY:
    // - no pointers but the context
    unsafe { (calls.utofu_put)(vcq, peer, from, to, len, 0, flags, null_mut()) }
}

impl Utofu {
    /// Creates a VCQ and registers the memory of the measurements between two processes.
    pub fn new(ctx: &BenchContext, calls: UtofuFunctions) -> Result<Option<Utofu>, String> {
        if ctx.size != 2 {
            return Ok(None);
        }
        let buffer = UserBuffer::new(DATA)?;
        let (mut vcq, mut local, mut remote) = (0, 0, 0);
        let peer = vcq_id(&calls, ctx.other(), 0, 0)?;
        // The buffer stays until the VCQ is freed.
        let base = buffer.base.cast();
        call!(calls.utofu_create_vcq_with_cmp_id(TNI, 0, 0, &mut vcq))?;
        call!(calls.utofu_reg_mem_with_stag(vcq, base, DATA, STAG, 0, &mut local))?;
        call!(calls.utofu_query_stadd(peer, STAG, &mut remote))?;
        Ok(Some(Utofu {
            calls,
            vcq,
            peer,
            buffer,
            local,
            remote,
            round: Cell::new(0),
        }))
    }

    /// Makes progress for the other process, and consumes no notice.
    pub fn attend(&self) {
        let mut unread = 0;
        // SAFETY:
        // - a valid place for the number
        unsafe { (self.calls.utofu_query_num_unread_mrq)(self.vcq, &mut unread) };
    }

    /// Frees the registration and the VCQ.
    pub fn leave(self) -> Result<(), String> {
        // The buffer is freed afterwards.
        call!(self.calls.utofu_dereg_mem(self.vcq, self.local, 0))?;
        call!(self.calls.utofu_free_vcq(self.vcq))
    }

    #[inline(always)]
    fn completed(&self) -> Result<(), String> {
        loop {
            match self.poll_tcq() {
                NOT_FOUND => {}
                code => return ok("utofu_poll_tcq", code),
            }
        }
    }

    #[inline(always)]
    fn poll_tcq(&self) -> i32 {
        let mut context = null_mut();
        // SAFETY:
        // - a valid place for the result
        unsafe { (self.calls.utofu_poll_tcq)(self.vcq, 0, &mut context) }
    }

    /// Takes at most one completion, to make room in the queue.
    #[cold]
    fn make_room(&self) -> Result<(), String> {
        match self.poll_tcq() {
            NOT_FOUND => Ok(()),
            code => ok("utofu_poll_tcq", code),
        }
    }

    #[inline(always)]
    fn noticed(&self) -> Result<utofu_mrq_notice, String> {
        let mut notice = utofu_mrq_notice::default();
        loop {
            // SAFETY:
            // - a valid place for the notice
            match unsafe { (self.calls.utofu_poll_mrq)(self.vcq, 0, &mut notice) } {
                NOT_FOUND => {}
                code => return ok("utofu_poll_mrq", code).map(|()| notice),
            }
        }
    }

    #[inline(always)]
    fn posted(&self, what: &str, post: impl Fn() -> i32) -> Result<(), String> {
        let code = post();
        if code == BUSY {
            self.make_room()?;
            return ok(what, post());
        }
        ok(what, code)
    }

    #[inline(always)]
    fn put(&self, from: usize, to: usize, len: usize, flags: u64) -> Result<(), String> {
        let (from, to) = (self.local + from as u64, self.remote + to as u64);
        self.posted("utofu_put", || {
            put(&self.calls, (self.vcq, self.peer), from, to, len, flags)
        })
    }

    /// Writes a word by its descriptor.
    #[inline(always)]
    fn piggyback(&self, value: u64, at: usize) -> Result<(), String> {
        let (vcq, peer, to) = (self.vcq, self.peer, self.remote + at as u64);
        // SAFETY:
        // - no pointers but the context
        self.posted("utofu_put_piggyback8", || unsafe {
            (self.calls.utofu_put_piggyback8)(vcq, peer, value, to, 8, 0, 0, null_mut())
        })
    }
}

/// Ping-pong of utofu_put with a remote MRQ notice and utofu_poll_mrq.
pub fn put_notice(ctx: &BenchContext, case: &Case) -> Result<f64, String> {
    let utofu = ctx.ours()?.utofu()?;
    let len = case.bytes as usize;
    let at = ctx.place() * (512 << 10);
    let word = |offset: usize| utofu.buffer.base.wrapping_add(offset).cast::<u64>();
    let (source_last, last) = (word(DATA / 2 + at + len - 8), word(at + len - 8));
    ctx.sync();
    let send = |round| {
        // SAFETY:
        // - inside the buffer; the other process has received what was sent from here before
        unsafe { source_last.write(round) };
        utofu.put(DATA / 2 + at, at, len, REMOTE_NOTICE)
    };
    let receive = |round| {
        utofu.noticed()?;
        // SAFETY:
        // - inside the buffer; the notice says that the other process has written it
        arrived(unsafe { last.read_volatile() }, round)
    };
    let ns = ctx.both_ways(exchanges(case.bytes), &utofu.round, send, receive);
    ns.map(|ns| ns / 2.0)
}

/// Ping-pong of utofu_put_piggyback8, seen by polling the word.
pub fn piggyback(ctx: &BenchContext, _: &Case) -> Result<f64, String> {
    let utofu = ctx.ours()?.utofu()?;
    let at = ctx.place() * 4096 + 9 * 64;
    let mine = utofu.buffer.base.wrapping_add(at).cast::<u64>();
    ctx.sync();
    let receive = |round| {
        // SAFETY:
        // - inside the buffer, aligned
        while unsafe { mine.read_volatile() } != round {}
        Ok(())
    };
    let ns = ctx.both_ways(
        500,
        &utofu.round,
        |round| utofu.piggyback(round, at),
        receive,
    );
    ns.map(|ns| ns / 2.0)
}

/// utofu_armw8 with a local MRQ notice on a word of rank 1, one at a time.
pub fn armw8(ctx: &BenchContext, _: &Case) -> Result<f64, String> {
    let utofu = ctx.ours()?.utofu()?;
    let (calls, vcq, peer) = (&utofu.calls, utofu.vcq, utofu.peer);
    let at = utofu.remote + ctx.place() as u64 * 4096;
    let (add, notice) = (UTOFU_ARMW_OP_ADD, LOCAL_NOTICE);
    ctx.by_first(|| {
        ctx.per_step(ctx.fewer(5000), || {
            // SAFETY:
            // - no pointers but the context
            utofu.posted("utofu_armw8", || unsafe {
                (calls.utofu_armw8)(vcq, peer, add, 1, at, 0, notice, null_mut())
            })?;
            utofu.noticed().map(drop)
        })
    })
}

/// utofu_post_toq of 32 prepared puts of 8 bytes at a time.
pub fn rate(ctx: &BenchContext, _: &Case) -> Result<f64, String> {
    let utofu = ctx.ours()?.utofu()?;
    ctx.by_first(|| {
        let mut commands = vec![0u64; BATCH * 8];
        for i in 0..BATCH {
            let mut size = 0usize;
            let flags = if i + 1 == BATCH { COMPLETION } else { 0 };
            call!(utofu.calls.utofu_prepare_put(
                utofu.vcq,
                utofu.peer,
                utofu.local + (DATA / 2) as u64,
                utofu.remote + i as u64 * 64,
                8,
                0,
                flags,
                commands[i * 8..].as_mut_ptr().cast::<c_void>(),
                &mut size
            ))?;
            if size != 64 {
                return Err(format!("a descriptor of {size} bytes"));
            }
        }
        let bytes = BATCH * 64;
        let ns = ctx.per_batch(ctx.fewer(BATCH * 512), |n| {
            (0..n / BATCH).try_for_each(|_| {
                let commands = commands.as_mut_ptr().cast();
                call!(
                    utofu
                        .calls
                        .utofu_post_toq(utofu.vcq, commands, bytes, null_mut())
                )?;
                utofu.completed()
            })
        });
        ns.map(|ns| 1e3 / ns)
    })
}

/// Large puts.
pub fn bandwidth(ctx: &BenchContext, case: &Case) -> Result<f64, String> {
    let utofu = ctx.ours()?.utofu()?;
    let len = case.bytes as usize;
    ctx.by_first(|| {
        let ns = ctx.per_step(each(case.bytes), || {
            (0..len).step_by(PIECE).try_for_each(|at| {
                utofu.put(at, at, PIECE.min(len), COMPLETION)?;
                utofu.completed()
            })
        });
        ns.map(|ns| len as f64 / ns)
    })
}

/// utofu_reg_mem.
pub fn register(ctx: &BenchContext, case: &Case) -> Result<f64, String> {
    let utofu = ctx.ours()?.utofu()?;
    registration(
        ctx,
        case,
        |base, len| {
            let mut stadd = 0;
            // `registration` keeps the buffer until it has been deregistered.
            call!(
                utofu
                    .calls
                    .utofu_reg_mem(utofu.vcq, base.cast(), len, 0, &mut stadd)
            )
            .map(|()| stadd)
        },
        |stadd| call!(utofu.calls.utofu_dereg_mem(utofu.vcq, stadd, 0)),
    )
}

/// A chain of relays. A put of 8 bytes goes into a session mode VCQ of rank 1. Each VCQ of the chain passes it on to the next one. Rank 1 then sees it
/// in memory and replies. Returns ns per hop; the first put and the reply count as hops.
pub fn relay(ctx: &BenchContext, _: &Case) -> Result<f64, String> {
    const FIRST_STAG: u32 = 1;
    const WINDOW: usize = 200;
    let utofu = ctx.ours()?.utofu()?;
    let calls = &utofu.calls;
    let at = ctx.place() * 4096 + 13 * 64;
    let word = |offset: usize| utofu.buffer.base.wrapping_add(offset).cast::<u64>();
    let source = DATA / 2 + at;
    let rounds = if ctx.quick { 1000 } else { 4000 };
    let (mut chain, mut ids) = (Vec::new(), Vec::new());
    for stag in (FIRST_STAG..).take(if ctx.rank == 1 { HOPS } else { 0 }) {
        let (mut vcq, mut id, mut stadd) = (0, 0, 0);
        call!(calls.utofu_create_vcq(TNI, SESSION_MODE, &mut vcq))?;
        call!(calls.utofu_query_vcq_id(vcq, &mut id))?;
        let base = utofu.buffer.base.cast();
        call!(calls.utofu_reg_mem_with_stag(vcq, base, DATA, stag, 0, &mut stadd))?;
        chain.push((vcq, id, stadd));
        ids.push(id);
    }
    let first = *shared(ctx, &ids)[1].first().ok_or("no relay")?;
    let mut to = 0;
    call!(calls.utofu_query_stadd(first, FIRST_STAG, &mut to))?;
    let post = |round: usize| -> Result<(), String> {
        for (hop, (vcq, _, stadd)) in chain.iter().enumerate() {
            // Each relay passes its line on to the next line. The last one writes the polled word.
            let line = |hop: usize| (source + 64 * (hop + 1)) as u64;
            let (next, there, flags) = match chain.get(hop + 1) {
                Some((_, id, stadd)) => (*id, stadd + line(hop + 1), SPS_1),
                None => (vcq_id(calls, ctx.rank, 0, 0)?, utofu.local + at as u64, 0),
            };
            let code = put(calls, (*vcq, next), stadd + line(hop), there, 8, flags);
            if code == BUSY || round.is_multiple_of(256) {
                let mut context = null_mut();
                // SAFETY:
                // - a valid place for the result
                unsafe { (calls.utofu_poll_tcq)(*vcq, 0, &mut context) };
            }
            ok("utofu_put", code)?;
        }
        Ok(())
    };
    let send = |value| match ctx.rank {
        0 => {
            // SAFETY:
            // - inside the buffer, aligned; the earlier put from here has arrived
            unsafe { word(source).write(value) };
            let (from, there) = (utofu.local + source as u64, to + (source + 64) as u64);
            utofu.posted("utofu_put", || {
                put(calls, (utofu.vcq, first), from, there, 8, SPS_1)
            })
        }
        _ => utofu.piggyback(value, at),
    };
    let receive = |value| {
        // SAFETY:
        // - inside the buffer, aligned
        while unsafe { word(at).read_volatile() } != value {}
        Ok(())
    };
    let mut ns = Vec::new();
    let mut value = utofu.round.get();
    let measured = (0..rounds / WINDOW).try_for_each(|batch| {
        let relays = if ctx.rank == 1 { WINDOW } else { 0 };
        let posted = (0..relays).try_for_each(|round| post(batch * WINDOW + round));
        ctx.sync();
        posted?;
        let start = std::time::Instant::now();
        for _ in 0..WINDOW {
            value += 1;
            ctx.exchange(value, send, receive)?;
        }
        ns.push(start.elapsed().as_nanos() as f64 / WINDOW as f64);
        Ok(())
    });
    utofu.round.set(value);
    ctx.sync();
    for (vcq, _, stadd) in chain {
        call!(calls.utofu_dereg_mem(vcq, stadd, 0))?;
        call!(calls.utofu_free_vcq(vcq))?;
    }
    measured.map(|()| crate::ctx::median(&mut ns) / (HOPS + 2) as f64)
}

/// utofu_barrier of all processes, on a butterfly. The number of processes is a power of two.
pub fn barrier(ctx: &BenchContext, _: &Case) -> Result<f64, String> {
    let calls = &ctx.ours()?.one_sided()?.utofu_calls;
    let steps = ctx.size.trailing_zeros() as usize;
    let mut mine = vec![0u64; steps.max(1)];
    call!(calls.utofu_alloc_vbg(TNI, mine.len(), 0, mine.as_mut_ptr()))?;
    let all = shared(ctx, &mine);
    let theirs = |rank: usize, step: usize| all[rank][step];
    let mut settings: Vec<utofu_vbg_setting> = (0..steps)
        .map(|step| {
            let (before, after) = ((step + steps - 1) % steps, (step + 1) % steps);
            let alone = steps == 1;
            utofu_vbg_setting {
                vbg_id: mine[step],
                src_lcl_vbg_id: if alone { NULL } else { mine[before] },
                src_rmt_vbg_id: theirs(ctx.rank ^ (1 << before), before),
                dst_lcl_vbg_id: if alone { NULL } else { mine[after] },
                dst_rmt_vbg_id: theirs(ctx.rank ^ (1 << step), after),
                dst_path_coords: [UTOFU_PATH_COORD_NULL; 3],
            }
        })
        .collect();
    call!(calls.utofu_set_vbg(settings.as_mut_ptr(), settings.len()))?;
    ctx.sync();
    let us = ctx.collective(|_| {
        call!(calls.utofu_barrier(mine[0], 0))?;
        loop {
            // SAFETY:
            // - no pointers
            match unsafe { (calls.utofu_poll_barrier)(mine[0], 0) } {
                NOT_COMPLETED => {}
                code => return ok("utofu_poll_barrier", code),
            }
        }
    });
    ctx.sync();
    call!(calls.utofu_free_vbg(mine.as_mut_ptr(), mine.len()))?;
    us
}

/// Shares `ids`. Returns the ids of each process, by rank.
fn shared(ctx: &BenchContext, ids: &[u64]) -> Vec<Vec<u64>> {
    let mine: Vec<u8> = ids.iter().flat_map(|id| id.to_ne_bytes()).collect();
    let words = |bytes: Vec<u8>| {
        let (words, _) = bytes.as_chunks();
        words.iter().map(|word| u64::from_ne_bytes(*word)).collect()
    };
    ctx.share(&mine).into_iter().map(words).collect()
}

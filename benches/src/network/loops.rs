//! The cost of the provider alone: only the calls that the exchange needs, in processes that do nothing else. Both processes make progress.

use std::ffi::c_void;

use super::provider::{PeerMemory, Provider, call};
use crate::bare::each;
use crate::case::Case;
use crate::ctx::BenchContext;
use unipgas_libfabric_sys::*;

const EACH: usize = 500;
/// 8-byte writes in a batch. `WALK` is the size of their window.
const WRITES: usize = 8192;
const WALK: usize = 4096;
/// The immediate data of writes that end a batch. Barriers use 0 to 6, by step.
const END: u64 = 7;
const TAG: u64 = 0x1234;
/// Offset of the word of atomic operations.
const WORD: u64 = 8192;

pub(super) struct Pair<'a> {
    ctx: &'a BenchContext,
    provider: &'a Provider,
    far: PeerMemory,
}

impl<'a> Pair<'a> {
    pub(super) fn of(ctx: &'a BenchContext) -> Result<Self, String> {
        let provider = ctx.provider()?;
        let far = provider.far[ctx.other()];
        ctx.sync();
        Ok(Pair { ctx, provider, far })
    }

    /// fi_writedata of `len` bytes to `to`.
    #[inline(always)]
    fn write_data(&self, to: PeerMemory, len: usize, data: u64) -> Result<(), String> {
        let Pair { provider, .. } = self;
        let (from, desc) = (provider.source.base.cast(), provider.desc()[1]);
        let context = provider.context();
        // SAFETY:
        // - the objects are open
        // - the source is as long as the window, and outlives the operation
        provider.post(true, || unsafe {
            let (ep, rma) = (provider.ep, (*provider.ep).rma);
            call!(
                rma, writedata, ep, from, len, desc, data, to.peer, to.base, to.key, context
            )
        })
    }

    /// Polls until `count` writes with this data have arrived.
    #[inline(always)]
    fn await_data(&self, data: u64, count: u64) -> Result<(), String> {
        let written = &self.provider.counts.written[data as usize];
        self.provider.until(|| written.get() >= count)
    }

    /// Rank 0 writes first, and the other process replies.
    #[inline(always)]
    fn exchange(&self, len: usize, data: u64, count: u64) -> Result<(), String> {
        let send = |_| self.write_data(self.far, len, data);
        self.ctx
            .exchange(count, send, |count| self.await_data(data, count))
    }

    fn written(&self, data: u64) -> u64 {
        self.provider.counts.written[data as usize].get()
    }

    /// Rank 0 runs `batch` while rank 1 makes progress. An exchange of writes ends each batch. A batch that fails ends in the same way, for example if
    /// the provider lacks a function: rank 1 would wait forever otherwise.
    pub(super) fn alone(
        &self,
        each: usize,
        mut batch: impl FnMut(usize) -> Result<(), String>,
    ) -> Result<f64, String> {
        let mut failed = Ok(());
        let mut ends = self.written(END);
        let ns = self.ctx.per_batch(each, |n| {
            ends += 1;
            if self.ctx.rank == 0 && failed.is_ok() {
                failed = batch(n);
            }
            self.exchange(0, END, ends)?;
            self.provider.drain()
        })?;
        failed.map(|()| ns)
    }

    /// Rank 0 runs operations one at a time. `call` posts one with this context.
    fn one_by_one(&self, call: impl Fn(*mut c_void) -> isize) -> Result<f64, String> {
        self.alone(EACH, |n| {
            for _ in 0..n {
                let context = self.provider.context();
                self.provider.post(true, || call(context))?;
                self.provider.drain()?;
            }
            Ok(())
        })
    }
}

/// Ping-pong of fi_writedata and fi_cq_read. Returns ns one way.
pub fn write_data(ctx: &BenchContext, case: &Case) -> Result<f64, String> {
    let pair = Pair::of(ctx)?;
    let mut round = pair.written(0);
    let ns = ctx.per_step(EACH, || {
        round += 1;
        pair.exchange(case.bytes as usize, 0, round)
    })?;
    pair.provider.drain()?;
    Ok(ns / 2.0)
}

/// A request and its reply by fi_writedata, in ns. This is the lower bound for a remote read-modify-write if the provider has no atomic operations.
pub fn ask(ctx: &BenchContext, case: &Case) -> Result<f64, String> {
    write_data(ctx, case).map(|one_way| 2.0 * one_way)
}

/// fi_fetch_atomic of a u64, one at a time. Returns ns.
pub fn fetch_add(ctx: &BenchContext, _: &Case) -> Result<f64, String> {
    let pair = Pair::of(ctx)?;
    let (provider, far) = (pair.provider, pair.far);
    let [result, operand] = provider.desc();
    // SAFETY:
    // - both are inside the buffers, and aligned
    let (one, before) = unsafe {
        let at = WORD as usize;
        (
            provider.source.base.add(at).cast::<u64>(),
            provider.memory.base.add(at + 64).cast::<u64>(),
        )
    };
    // SAFETY:
    // - it is inside the buffer, which only this process uses
    unsafe { one.write(1) };
    pair.one_by_one(|context| {
        // SAFETY:
        // - the objects are open
        // - operand and result are in registered buffers, which outlive the operation
        unsafe {
            let (ep, atomic) = (provider.ep, (*provider.ep).atomic);
            call!(
                atomic,
                readwrite,
                ep,
                one.cast(),
                1,
                operand,
                before.cast(),
                result,
                far.peer,
                far.base + WORD,
                far.key,
                FI_UINT64,
                FI_SUM,
                context
            )
        }
    })
}

/// fi_read, one at a time. Returns ns.
pub fn read(ctx: &BenchContext, case: &Case) -> Result<f64, String> {
    let pair = Pair::of(ctx)?;
    let (provider, far, len) = (pair.provider, pair.far, case.bytes as usize);
    let desc = provider.desc()[1];
    let into = provider.source.base.cast();
    pair.one_by_one(|context| {
        // SAFETY:
        // - the objects are open
        // - the buffer is as long as the window, and outlives the operation
        unsafe {
            let (ep, rma) = (provider.ep, (*provider.ep).rma);
            call!(
                rma, read, ep, into, len, desc, far.peer, far.base, far.key, context
            )
        }
    })
}

/// fi_inject_write of 8 bytes. Returns millions per second.
pub fn rate(ctx: &BenchContext, case: &Case) -> Result<f64, String> {
    let pair = Pair::of(ctx)?;
    let (provider, far, len) = (pair.provider, pair.far, case.bytes as usize);
    let ns = pair.alone(WRITES, |n| {
        for i in 0..n {
            let to = far.base + (i * len % WALK) as u64;
            let from = provider.source.base.cast();
            // SAFETY:
            // - the objects are open
            // - the source has at least `len` bytes
            provider.post(false, || unsafe {
                let (ep, rma) = (provider.ep, (*provider.ep).rma);
                call!(rma, inject, ep, from, len, far.peer, to, far.key)
            })?;
        }
        Ok(())
    });
    ns.map(|ns| 1e3 / ns)
}

/// fi_write. Returns GB/s.
pub fn bandwidth(ctx: &BenchContext, case: &Case) -> Result<f64, String> {
    let pair = Pair::of(ctx)?;
    let (provider, far, len) = (pair.provider, pair.far, case.bytes as usize);
    let desc = provider.desc()[1];
    let ns = pair.alone(each(case.bytes), |n| {
        for _ in 0..n {
            let context = provider.context();
            let from = provider.source.base.cast();
            // SAFETY:
            // - the objects are open
            // - the source is as long as the window, and outlives the operation
            provider.post(true, || unsafe {
                let (ep, rma) = (provider.ep, (*provider.ep).rma);
                call!(
                    rma, write, ep, from, len, desc, far.peer, far.base, far.key, context
                )
            })?;
            provider.look()?;
        }
        provider.drain()
    });
    ns.map(|ns| len as f64 / ns)
}

/// A butterfly of fi_writedata without payload. Returns us.
pub fn barrier(ctx: &BenchContext, _: &Case) -> Result<f64, String> {
    let provider = ctx.provider()?;
    let steps = ctx.size.trailing_zeros() as usize;
    let far = provider.far[ctx.rank];
    let pair = Pair { ctx, provider, far };
    let mut counts: Vec<u64> = (0..steps).map(|step| pair.written(step as u64)).collect();
    // No process sends before all have read their counts.
    ctx.sync();
    let ns = ctx.per_step(EACH / 5, || {
        for (step, count) in counts.iter_mut().enumerate() {
            *count += 1;
            let to = provider.far[ctx.rank ^ (1 << step)];
            pair.write_data(to, 0, step as u64)?;
            pair.await_data(step as u64, *count)?;
        }
        Ok(())
    })?;
    provider.drain()?;
    Ok(ns / 1e3)
}

/// Ping-pong of fi_tsend and fi_trecv. Returns ns one way.
pub fn tagged(ctx: &BenchContext, case: &Case) -> Result<f64, String> {
    let pair = Pair::of(ctx)?;
    let (provider, far, len) = (pair.provider, pair.far, case.bytes as usize);
    let [into, out] = provider.desc();
    let (ep, to) = (provider.ep, provider.memory.base.cast());
    let send = |_| {
        let context = provider.context();
        let from = provider.source.base.cast();
        // SAFETY:
        // - the objects are open
        // - the source has at least `len` bytes, and outlives the operation
        provider.post(true, || unsafe {
            let peer = far.peer;
            call!((*ep).tagged, send, ep, from, len, out, peer, TAG, context)
        })
    };
    let mut round = provider.counts.received.get();
    let ns = ctx.per_step(EACH, || {
        round += 1;
        let context = provider.context();
        // SAFETY:
        // - the objects are open
        // - the buffer has at least `len` bytes, which only the provider uses until the message arrives
        provider.post(false, || unsafe {
            let any = FI_ADDR_UNSPEC;
            call!((*ep).tagged, recv, ep, to, len, into, any, TAG, 0, context)
        })?;
        let received = &provider.counts.received;
        let receive = |round| provider.until(|| received.get() == round);
        ctx.exchange(round, send, receive)
    })?;
    provider.drain()?;
    Ok(ns / 2.0)
}

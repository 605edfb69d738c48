//! Endpoints that share receives.

use super::kit::*;
use super::library::{Info, offered};

/// The endpoints of rank 0, and their shared receive context.
pub(super) struct Shared {
    pub(super) srx: *mut fid_ep,
    pub(super) endpoints: Vec<Own>,
}

pub(super) struct Own {
    pub(super) ep: *mut fid_ep,
    pub(super) rx: Queue,
    pub(super) counter: *mut fid_cntr,
}

pub(super) fn info(plan: &Plan<'_>, transmits: bool, receives: bool) -> Result<Info, String> {
    let mut hints = plan.hints();
    hints.endpoint().tx_ctx_cnt = FI_SHARED_CONTEXT * usize::from(transmits);
    hints.endpoint().rx_ctx_cnt = FI_SHARED_CONTEXT * usize::from(receives);
    offered(&hints)
}

/// An endpoint without shared contexts, not enabled.
pub(super) fn bare(job: &Job<'_>, info: &mut Info, av: *mut fid_av) -> Result<*mut fid_ep, String> {
    let ep: *mut fid_ep = open!(obj job.station.domain, endpoint(info.raw()));
    ok!(fid ep, bind(av.cast(), 0));
    ok!(fid ep, bind(job.tx.0.cast(), FI_TRANSMIT));
    Ok(ep)
}

impl Own {
    pub(super) fn close(self) -> Verdict {
        close(self.ep)?;
        close(self.rx.0)?;
        close(self.counter)
    }
}

impl Shared {
    pub(super) fn open(job: &Job<'_>, plan: &Plan<'_>, count: usize) -> Result<Shared, String> {
        let mut info = info(plan, false, true)?;
        let srx: *mut fid_ep = open!(obj job.station.domain, srx_ctx(info.receive()));
        let mut shared = Shared {
            srx,
            endpoints: Vec::new(),
        };
        for _ in 0..count {
            let ep = bare(job, &mut info, job.station.av)?;
            let rx = open_queue(job.station.domain, plan)?;
            let counter = job.station.counter()?;
            ok!(fid ep, bind(rx.0.cast(), FI_RECV));
            ok!(fid ep, bind(counter.cast(), FI_RECV));
            ok!(fid ep, bind(srx.cast(), 0));
            ok!(fid ep, control(FI_ENABLE, null_mut()));
            shared.endpoints.push(Own { ep, rx, counter });
        }
        Ok(shared)
    }

    pub(super) fn receive(&self, buffer: *mut u8, len: usize, context: usize) -> Verdict {
        ok!(msg self.srx, recv(buffer.cast(), len, null_mut(), FI_ADDR_UNSPEC, cx(context)));
        Ok(())
    }

    /// Makes progress on all endpoints.
    pub(super) fn progress(&self) {
        self.endpoints.iter().for_each(|own| own.rx.progress());
    }

    pub(super) fn close(self) -> Verdict {
        for_all(self.endpoints, Own::close)?;
        close(self.srx)
    }
}

/// Rank 0 opens endpoints that share receives, and all ranks insert their addresses. Each rank runs the body.
pub(super) fn with_shared(
    ctx: &Ctx,
    plan: &Plan<'_>,
    count: usize,
    body: impl FnOnce(&Job<'_>, Option<&Shared>, &[u64]) -> Verdict,
) -> Verdict {
    with(ctx, plan, 256, |job| {
        let shared = match job.rank {
            0 => Some(Shared::open(job, plan, count)?),
            _ => None,
        };
        let mut addresses = Vec::new();
        for nth in 0..count {
            if let Some(shared) = &shared {
                ctx.tell(&name_of(shared.endpoints[nth].ep)?);
            }
            job.meet();
            addresses.push(job.known(0)?);
            job.meet();
        }
        body(job, shared.as_ref(), &addresses)?;
        job.meet();
        shared.map_or(Ok(()), Shared::close)
    })
}

pub(super) fn send(job: &Job<'_>, to: u64, bytes: &[u8]) -> Verdict {
    job.post(|| send_as(None, (job.ep, to), bytes, 1))
}

pub(super) fn tsend(job: &Job<'_>, to: u64, tag: u64, bytes: &[u8]) -> Verdict {
    job.post(|| send_as(Some(tag), (job.ep, to), bytes, 1))
}

//! The backend's issue context: the mapped data path, and the detour for memory that only its owner maps.

use std::sync::Arc;

use unipgas_core::inbox::Record;
use unipgas_core::kernel_copy::RemoteOwner;
use unipgas_core::mapped::MappedChannel;
use unipgas_core::op::{
    AtomicRequest, Completion, Flags, GetRequest, Inbox, Notice, Outcome, PutRequest, Remote,
    ReplyBuffer,
};
use unipgas_core::transport::{Channel, check_message};
use unipgas_core::{AtomicOp, AtomicType, Error, RemoteRegion, Result, Rights};

use crate::agent::{self, late::Late};
use crate::registration::RegistrationState;
use crate::transport::PeerTable;

/// An issue context. Only [awaited](Flags::AWAITED) operations are ever pending. Program order satisfies all other flags.
pub(crate) struct ShmChannel {
    peers: Arc<PeerTable>,
    /// The registrations of this process. While it waits for another agent, it executes requests to these registrations.
    home: Arc<RegistrationState>,
    late: Late,
}

impl ShmChannel {
    pub fn new(peers: Arc<PeerTable>, home: Arc<RegistrationState>) -> Self {
        let late = Late::default();
        ShmChannel { peers, home, late }
    }

    /// Calls `copy` with the process that has the memory.
    #[cold]
    fn by_kernel(
        &self,
        region: &RemoteRegion,
        copy: impl FnOnce(RemoteOwner<'_>) -> Result<()>,
    ) -> Result<Outcome> {
        let peer = self.peers.get(region.parts().peer)?;
        copy(RemoteOwner {
            pid: peer.pid(),
            otherwise: &|piece, there, direction, forbidden| {
                peer.copy_by_file(piece, there, direction, forbidden)
            },
        })?;
        Ok(Outcome::Complete)
    }

    #[cold]
    fn private_notify(&self, notice: Notice<'_>) -> Result<Outcome> {
        let value = notice.value;
        let request = AtomicRequest {
            op: AtomicOp::Write,
            ty: AtomicType::U32,
            count: 1,
            operand: (&raw const value).cast(),
            compare: std::ptr::null(),
            result: std::ptr::null_mut(),
        };
        notice
            .slot
            .region
            .check(notice.slot.offset, 4, Rights::WRITE)?;
        let peer = self.peers.get(notice.slot.region.parts().peer)?;
        // SAFETY:
        // - the operand is a local.
        unsafe { agent::perform(&self.home, &peer, notice.slot, &request)? };
        ring(notice.slot.region);
        Ok(Outcome::Complete)
    }

    /// # Safety
    /// As [`Channel::put`].
    unsafe fn put_notify(
        &self,
        put: &PutRequest<'_>,
        notice: Notice<'_>,
        flags: Flags,
        context: u64,
    ) -> Result<Outcome> {
        let Remote { region, offset } = notice.slot;
        if mapped(put.dst.region) && mapped(region) {
            // SAFETY:
            // - contract of this call.
            return unsafe { MappedChannel.put(put, flags, context) };
        }
        // A put with a refused notice must not write its data.
        region.check(offset, 4, Rights::WRITE)?;
        let parts = region.parts();
        let home = if parts.base.is_null() {
            parts.detail[0] as usize
        } else {
            parts.base.addr()
        };
        if !(home + offset).is_multiple_of(4) {
            return Err(Error::Misaligned(4));
        }
        let data = PutRequest::new(put.src, put.dst, put.len);
        // SAFETY:
        // - contract of this call.
        unsafe { self.put(&data, flags & Flags::LINES, context)? };
        self.notify(notice, flags, context)
    }
}

fn ring(region: &RemoteRegion) {
    if let Some(bell) = region.bell() {
        bell.ring_if_heard();
    }
}

#[inline(always)]
fn mapped(region: &RemoteRegion) -> bool {
    !region.parts().base.is_null()
}

impl Channel for ShmChannel {
    unsafe fn put(&self, put: &PutRequest<'_>, flags: Flags, context: u64) -> Result<Outcome> {
        let PutRequest { src, dst, len, .. } = *put;
        if let Some(notice) = put.notice {
            // SAFETY:
            // - contract of this call.
            return unsafe { self.put_notify(put, notice, flags, context) };
        }
        if mapped(dst.region) {
            // SAFETY:
            // - contract of this call.
            return unsafe { MappedChannel.put(put, flags, context) };
        }
        // SAFETY:
        // - contract of this call.
        self.by_kernel(dst.region, |owner| unsafe {
            owner.put(src, dst, len, flags)
        })
    }

    unsafe fn get(&self, get: &GetRequest<'_>, flags: Flags, context: u64) -> Result<Outcome> {
        let GetRequest { dst, src, len } = *get;
        if mapped(src.region) {
            // SAFETY:
            // - contract of this call.
            return unsafe { MappedChannel.get(get, flags, context) };
        }
        // SAFETY:
        // - contract of this call.
        self.by_kernel(src.region, |owner| unsafe {
            owner.get(dst, src, len, flags)
        })
    }

    fn notify(&self, notice: Notice<'_>, flags: Flags, context: u64) -> Result<Outcome> {
        if mapped(notice.slot.region) {
            return MappedChannel.notify(notice, flags, context);
        }
        self.private_notify(notice)
    }

    unsafe fn atomic(
        &self,
        dst: Remote<'_>,
        request: &AtomicRequest,
        _: u64,
        flags: Flags,
        context: u64,
    ) -> Result<Outcome> {
        if mapped(dst.region) {
            // SAFETY:
            // - contract of this call.
            return unsafe { MappedChannel.atomic(dst, request, 0, flags, context) };
        }
        // Under the element locks this process can execute the operation; the owner's threads are not needed.
        if dst.region.parts().rights.contains(Rights::EXCLUSIVE) {
            // SAFETY:
            // - contract of this call.
            return self.by_kernel(dst.region, |owner| unsafe {
                owner.atomic(dst, request, flags)
            });
        }
        let len = request.count.saturating_mul(request.ty.size());
        dst.region.check(dst.offset, len, Rights::ATOMIC)?;
        let peer = self.peers.get(dst.region.parts().peer)?;
        if flags.contains(Flags::AWAITED) && request.count == 1 {
            // SAFETY:
            // - contract of this call.
            return unsafe {
                agent::perform_late(&self.home, &peer, dst, request, context, &self.late)
            };
        }
        // SAFETY:
        // - contract of this call.
        unsafe { agent::perform(&self.home, &peer, dst, request)? };
        if flags.contains(Flags::WAKE) {
            ring(dst.region);
        }
        Ok(Outcome::Complete)
    }

    fn deliver(
        &self,
        inbox: Inbox<'_>,
        record: Record,
        flags: Flags,
        context: u64,
    ) -> Result<Outcome> {
        if mapped(inbox.first) {
            return MappedChannel.deliver(inbox, record, flags, context);
        }
        Err(Error::InvalidArgument(
            "an inbox must be allocated by the library".into(),
        ))
    }

    fn active_message(
        &self,
        to: Remote<'_>,
        message: &[u8],
        reply: ReplyBuffer,
        flags: Flags,
        context: u64,
    ) -> Result<Outcome> {
        check_message(to, message)?;
        let peer = self.peers.get(to.region.parts().peer)?;
        if flags.contains(Flags::AWAITED) {
            return self
                .late
                .send(&self.home, &peer, to, (message, reply), context);
        }
        agent::send(&self.home, &peer, to, message, reply)?;
        Ok(Outcome::Complete)
    }

    fn poll(&self, sink: &mut dyn FnMut(Completion)) {
        agent::serve(&self.home);
        self.late.poll(sink);
    }

    fn pending(&self) -> usize {
        self.late.pending()
    }
}

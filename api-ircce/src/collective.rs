//! Multicast, broadcast and reductions (manual §5.3, §6.4, §9.11, §9.12).

use unipgas_core::Deadline;
use unipgas_core::combine::{Combination, ElementType, combine};
use unipgas_core::message::{Envelope, Mode, Multicast, Needs, Pattern, Received};

use crate::comm::{Comm, Communicator};
use crate::message::{Buffer, COLLECTIVE, MULTICAST, MessageSource};
use crate::process::Ue;
use crate::status::{ErrorCode, Failure, Result};

/// `RCCE_TYPE_BASE`. The other types follow it.
const TYPES: i32 = 63_636_363;
/// `RCCE_OP_BASE`. The other operations follow it.
const OPS: i32 = 23_232_323;

/// A reduction: the operation and the type of the elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reduction {
    /// The operation.
    pub how: Combination,
    /// The type.
    pub element: ElementType,
}

impl Reduction {
    /// Converts the C values. Errors: [`ErrorCode::IllegalOp`] is checked first, then [`ErrorCode::IllegalType`].
    pub fn from_c(ty: i32, op: i32) -> Result<Self> {
        let place = |value: i32, base: i32| usize::try_from(value.wrapping_sub(base)).ok();
        let how = [
            Combination::Sum,
            Combination::Min,
            Combination::Max,
            Combination::Product,
        ];
        let element = [
            ElementType::I32,
            ElementType::I64,
            ElementType::F32,
            ElementType::F64,
        ];
        Ok(Reduction {
            how: *place(op, OPS)
                .and_then(|nth| how.get(nth))
                .ok_or(ErrorCode::IllegalOp)?,
            element: *place(ty, TYPES)
                .and_then(|nth| element.get(nth))
                .ok_or(ErrorCode::IllegalType)?,
        })
    }
}

impl Ue {
    /// Sends to all other UEs, which call [`Ue::multicast_receive`] (`iRCCE_msend`). Returns when the caller may change the data.
    pub fn multicast_send(&self, data: &[u8]) -> Result<()> {
        // SAFETY:
        // - the bytes are a slice.
        unsafe { self.multicast_from((data.as_ptr(), data.len())) }
    }

    /// # Safety
    /// The bytes are readable, and unchanged during the call.
    pub(crate) unsafe fn multicast_from(&self, bytes: (*const u8, usize)) -> Result<()> {
        let others: Vec<u32> = (0..self.num()).filter(|id| *id != self.id()).collect();
        let envelope = Envelope {
            context: MULTICAST,
            ..Envelope::default()
        };
        // SAFETY:
        // - contract of this call: the bytes are readable and unchanged during the call.
        unsafe { self.send_to_all(&others, envelope, bytes) }
    }

    /// # Safety
    /// As `multicast_from`.
    unsafe fn send_to_all(
        &self,
        to: &[u32],
        envelope: Envelope,
        bytes: (*const u8, usize),
    ) -> Result<()> {
        if !self.has_messages_under_way() {
            let messenger = &self.messages.messenger;
            // SAFETY:
            // - contract of this call: the bytes are readable and unchanged during the call.
            return unsafe { messenger.send_to_all(to, envelope, bytes, Deadline::Never) }
                .map_err(Failure::Engine);
        }
        let engine = self.world().engine();
        let sent = self
            .wait_pushing(Needs::Ranks(to), |mailbox| {
                let to = to.iter().copied();
                // SAFETY:
                // - contract of this call: the bytes stay valid during the call. Each send with a ticket ends or is abandoned below.
                let sent = unsafe { mailbox.send_to_all(engine, to, envelope, bytes) };
                (sent != Ok(Multicast::NoRoom)).then_some(sent)
            })?
            .map_err(Failure::Engine)?;
        let Multicast::Exposed(tickets) = sent else {
            return Ok(());
        };
        let mut result = Ok(());
        for ticket in tickets {
            if result.is_ok() {
                result = match self
                    .wait_pushing(Needs::Ranks(to), |mailbox| mailbox.test_send(ticket))
                {
                    Ok(sent) => {
                        result = sent.map_err(Failure::Engine);
                        continue;
                    }
                    Err(failure) => Err(failure),
                };
            }
            self.messages.messenger.abandon_send(ticket);
        }
        result
    }

    /// Receives a multicast of `source` (`iRCCE_mrecv`). Errors: as for [`Ue::receive`].
    pub fn multicast_receive(&self, buffer: &mut [u8], source: MessageSource) -> Result<Received> {
        let (ptr, capacity) = (buffer.as_mut_ptr(), buffer.len());
        // SAFETY:
        // - the bytes are a slice.
        unsafe { self.receive_into(Buffer { ptr, capacity }, source, MULTICAST) }
    }

    /// Copies the data of member `root` to all members (`RCCE_bcast`). Errors: [`ErrorCode::CommUndefined`]; [`ErrorCode::Id`] if `root` is not a member;
    /// [`ErrorCode::MessageLength`] if this buffer is shorter than the root's data.
    pub fn broadcast(&self, data: &mut [u8], root: u32, comm: &Comm) -> Result<()> {
        // SAFETY:
        // - the bytes are a slice.
        unsafe { self.broadcast_from((data.as_mut_ptr(), data.len()), root, comm) }
    }

    /// # Safety
    /// The bytes are valid, and this call has exclusive access to them.
    pub(crate) unsafe fn broadcast_from(
        &self,
        (data, len): (*mut u8, usize),
        root: u32,
        comm: &Comm,
    ) -> Result<()> {
        let communicator = self.communicator(comm)?;
        let members = communicator.members();
        let source = *members.get(root as usize).ok_or(ErrorCode::Id)?;
        let envelope = about(communicator);
        if root == communicator.rank() {
            let others: Vec<u32> = members
                .iter()
                .copied()
                .filter(|id| *id != self.id())
                .collect();
            // SAFETY:
            // - contract of this call: the bytes are valid, and no other thread changes them.
            return unsafe { self.send_to_all(&others, envelope, (data, len)) };
        }
        // SAFETY:
        // - contract of this call: the bytes are valid, with exclusive access.
        unsafe { self.receive_part(source, envelope, (data, len)) }
    }

    /// # Safety
    /// The buffer is valid for writes during the call.
    unsafe fn receive_part(
        &self,
        source: u32,
        envelope: Envelope,
        place: (*mut u8, usize),
    ) -> Result<()> {
        let pattern = Pattern {
            source: Some(source),
            context: envelope.context,
            tag: envelope.tag,
            ignore: 0,
        };
        // SAFETY:
        // - contract of this call: the buffer is valid for writes.
        let received = unsafe { self.receive_as(place, pattern) }?;
        if received.len > place.1 {
            return Err(ErrorCode::MessageLength.into());
        }
        Ok(())
    }

    /// Combines the members' elements (`RCCE_reduce`): first the elements of member `root`, then the others in member order. Only the root writes `result`.
    /// Errors: as for [`Ue::broadcast`]; [`ErrorCode::MessageLength`] if the root's `result` is shorter than `data`.
    pub fn reduce(
        &self,
        data: &[u8],
        result: &mut [u8],
        reduction: Reduction,
        root: u32,
        comm: &Comm,
    ) -> Result<()> {
        let communicator = self.communicator(comm)?;
        let members = communicator.members();
        let target = *members.get(root as usize).ok_or(ErrorCode::Id)?;
        let envelope = about(communicator);
        if root != communicator.rank() {
            let bytes = (data.as_ptr(), data.len());
            // SAFETY:
            // - the bytes are a slice.
            return unsafe { self.send_as(bytes, target, envelope, Mode::Buffered) };
        }
        let result = result
            .get_mut(..data.len())
            .ok_or(ErrorCode::MessageLength)?;
        result.copy_from_slice(data);
        let mut part = vec![0; data.len()];
        for source in members.iter().copied().filter(|id| *id != self.id()) {
            // SAFETY:
            // - the buffer is a vector.
            unsafe { self.receive_part(source, envelope, (part.as_mut_ptr(), part.len())) }?;
            combine(reduction.how, reduction.element, result, &part);
        }
        Ok(())
    }

    /// As [`Ue::reduce`] with the first member as root, and with the result at all members (`RCCE_allreduce`).
    pub fn all_reduce(
        &self,
        data: &[u8],
        result: &mut [u8],
        reduction: Reduction,
        comm: &Comm,
    ) -> Result<()> {
        self.reduce(data, result, reduction, 0, comm)?;
        let result = result
            .get_mut(..data.len())
            .ok_or(ErrorCode::MessageLength)?;
        self.broadcast(result, 0, comm)
    }
}

fn about(communicator: &Communicator) -> Envelope {
    Envelope {
        context: COLLECTIVE,
        tag: u64::from(communicator.number()),
        extra: 0,
    }
}

//! Atomic operations by active messages, for networks without them. The initiator packs an operation into a message. The owner's handler executes it by the
//! same code as peers that map the memory, so all operations on a region exclude each other.
//!
//! Each region has one handler for these messages and for the program's messages. An envelope gives the kind of each message.

use std::any::Any;
use std::sync::Arc;

use bytemuck::{Pod, Zeroable, bytes_of};
use parking_lot::RwLock;

use super::registered::change;
use super::wire::Elements;
use crate::atomic::AtomicForm;
use crate::op::{AtomicRequest, Flags, Remote};
use crate::region::{RemoteParts, RemoteRegion};
use crate::transport::{Handler, LONGEST_MESSAGE, Transport};
use crate::{AtomicOp, AtomicType, Error, Rights};

/// Bytes of the envelope.
pub const ENVELOPE: usize = size_of::<Envelope>();

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Envelope {
    kind: u8,
    op: u8,
    ty: u8,
    fetch: u8,
    flags: u16,
    count: u16,
}

const PROGRAMS: u8 = 0;
const ATOMIC: u8 = 1;

/// Refusal: the region has no handler for the program's messages.
const NOBODY: u32 = u32::MAX;
const STALE: u32 = 1;
const DENIED: u32 = 2;
const UNSUPPORTED: u32 = 3;
const TIMEOUT: u32 = 4;
/// Plus the alignment.
const MISALIGNED: u32 = 1 << 8;

/// A message of the program, in its envelope.
pub(crate) fn programs(message: &[u8]) -> Vec<u8> {
    let envelope = Envelope {
        kind: PROGRAMS,
        ..Envelope::zeroed()
    };
    [bytes_of(&envelope), message].concat()
}

/// The error of a refused message of the program.
pub(crate) fn programs_error(refusal: u32) -> Error {
    match refusal {
        NOBODY => Error::Unsupported,
        why => Error::Refused(why),
    }
}

fn reads_operand(op: AtomicOp) -> bool {
    op != AtomicOp::Read
}

fn reads_comparand(op: AtomicOp) -> bool {
    op.form() == AtomicForm::Compare
}

/// The most elements that one message carries.
pub(crate) fn most(op: AtomicOp, ty: AtomicType) -> usize {
    let arrays = usize::from(reads_operand(op)) + usize::from(reads_comparand(op));
    let each = ty.size() * arrays.max(1);
    (LONGEST_MESSAGE - ENVELOPE) / each
}

/// The message of an atomic operation on at most [`most`] elements.
///
/// # Safety
/// Operand and comparand have `request.count` valid elements, if the operation reads them.
pub(crate) unsafe fn atomic(request: &AtomicRequest, flags: Flags) -> Vec<u8> {
    let AtomicRequest {
        op,
        ty,
        count,
        operand,
        compare,
        result,
    } = *request;
    let envelope = Envelope {
        kind: ATOMIC,
        op: op as u8,
        ty: ty as u8,
        fetch: u8::from(!result.is_null()),
        flags: flags.bits() as u16,
        count: count as u16,
    };
    let arrays = [(operand, reads_operand(op)), (compare, reads_comparand(op))];
    let len = count * ty.size();
    let mut message = Vec::with_capacity(ENVELOPE + arrays.len() * len);
    message.extend_from_slice(bytes_of(&envelope));
    for (array, _) in arrays.into_iter().filter(|(_, read)| *read) {
        // SAFETY:
        // - contract of this call: `count` elements, which are `len` bytes, are valid.
        message.extend_from_slice(unsafe { std::slice::from_raw_parts(array, len) });
    }
    message
}

/// The error of a refused atomic operation.
pub(crate) fn atomic_error(refusal: u32) -> Error {
    match refusal {
        STALE | NOBODY => Error::StaleRegion,
        DENIED => Error::AccessDenied,
        TIMEOUT => Error::Timeout,
        MISALIGNED.. => Error::Misaligned((refusal - MISALIGNED) as usize),
        _ => Error::Unsupported,
    }
}

fn refusal(error: &Error) -> u32 {
    match error {
        Error::AccessDenied => DENIED,
        Error::Misaligned(to) => MISALIGNED + *to as u32,
        Error::Timeout => TIMEOUT,
        Error::Unsupported => UNSUPPORTED,
        // The initiator has checked the bounds, so an error here means that the region has changed.
        _ => STALE,
    }
}

/// Handles the messages for a region of this process.
pub(crate) struct Serving {
    region: RemoteRegion,
    /// Handler of the program's messages.
    programs: RwLock<Option<Arc<dyn Handler>>>,
}

impl Serving {
    /// For `len` bytes at `base`, with the locks and the bell of `first`.
    ///
    /// # Safety
    /// The bytes are valid as long as messages come.
    pub(crate) unsafe fn new(
        base: *mut u8,
        len: usize,
        rights: Rights,
        first: &Arc<dyn Transport>,
    ) -> Self {
        let parts = RemoteParts::here(base, len, rights, first.bell(), first.locks());
        let alive: Arc<dyn Any + Send + Sync> = Arc::new(first.clone());
        Serving {
            // SAFETY:
            // - contract of this call: the bytes are valid. `alive` keeps the transport, which owns bell and locks.
            region: unsafe { RemoteRegion::new(parts, alive) },
            programs: RwLock::default(),
        }
    }

    /// Sets the handler of the program's messages.
    pub(crate) fn set_programs(&self, handler: Arc<dyn Handler>) {
        *self.programs.write() = Some(handler);
    }
}

impl Handler for Serving {
    fn handle(
        &self,
        offset: usize,
        message: &[u8],
        reply: &mut Vec<u8>,
    ) -> std::result::Result<(), u32> {
        let (envelope, bytes) = message.split_at_checked(ENVELOPE).ok_or(UNSUPPORTED)?;
        let envelope: Envelope = bytemuck::pod_read_unaligned(envelope);
        let at = self.region.at(offset);
        let answer = match envelope.kind {
            PROGRAMS => {
                let may = self.region.check(offset, 0, Rights::WRITE);
                may.map_err(|error| refusal(&error))?;
                let handler = self.programs.read().clone();
                return handler.ok_or(NOBODY)?.handle(offset, bytes, reply);
            }
            ATOMIC => carry_out(at, &envelope, bytes),
            _ => Err(Error::Unsupported),
        };
        reply.extend_from_slice(&answer.map_err(|error| refusal(&error))?);
        Ok(())
    }

    fn is_plain(&self, message: &[u8]) -> bool {
        match message.split_at_checked(ENVELOPE) {
            Some((envelope, bytes)) if envelope.first() == Some(&PROGRAMS) => {
                let programs = self.programs.try_read();
                let known = programs.and_then(|programs| programs.clone());
                known.is_some_and(|handler| handler.is_plain(bytes))
            }
            _ => true,
        }
    }
}

/// Another process wrote the message. This call checks all of it.
fn carry_out(at: Remote<'_>, envelope: &Envelope, bytes: &[u8]) -> crate::Result<Vec<u8>> {
    let op = AtomicOp::ALL.get(usize::from(envelope.op)).copied();
    let ty = AtomicType::ALL.get(usize::from(envelope.ty)).copied();
    let (op, ty) = op.zip(ty).ok_or(Error::Unsupported)?;
    let len = usize::from(envelope.count) * ty.size();
    let split = if reads_operand(op) { len } else { 0 };
    let (operand, compare) = bytes.split_at_checked(split).ok_or(Error::Unsupported)?;
    let elements = Elements {
        op,
        ty,
        count: envelope.count.into(),
        operand,
        compare,
        fetch: envelope.fetch != 0,
    };
    change(
        at,
        &elements,
        Flags::from_bits_truncate(envelope.flags.into()),
    )
}

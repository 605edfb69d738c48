//! The slow path of a command. It looks up and checks everything, and returns the reason of a failure.

use std::sync::atomic::Ordering;

use super::command::{Command, CommandFlags, CommandKind, Rmw};
use super::fast_path::change;
use super::issue::Port;
use super::keys::Reach;
use super::last::Cut;
use super::notice::{Fault, NoticeKind, PortNotice};
use super::remote::RemotePort;
use super::trigger;
use unipgas_base::lines::last_word;
use unipgas_base::{AtomicOp, AtomicType, Error, Result, Rights, prefetch, tell_refusal};
use unipgas_engine::inbox::Record;
use unipgas_engine::mapped;
use unipgas_engine::op::{AtomicRequest, Flags, Local, Outcome, Remote};
use unipgas_engine::transport::LONGEST_MESSAGE;

/// A command failed, before or after it was sent.
pub(super) enum Failed {
    Send(Fault),
    After(Fault),
}

/// Operations that move a command's data.
#[derive(Default)]
pub(super) struct Moving {
    /// Number of operations with a completion to come.
    pub under_way: u8,
    /// The notice for the target, delivered after the data. `None` if an operation delivers both.
    pub record: Option<Record>,
}

impl From<Fault> for Failed {
    fn from(fault: Fault) -> Self {
        Failed::After(fault)
    }
}

impl Port {
    /// The fault of a command for an error of the engine. If memory is stale, its owner may have ended.
    #[cold]
    pub(super) fn why(&self, command: &Command, error: Error) -> Fault {
        if error != Error::StaleRegion {
            return fault(error);
        }
        match self.network.port(command.place(), command.port()) {
            Ok(target) => self.network.blame(target, Reach::Key),
            Err(fault) => fault,
        }
    }

    #[inline(always)]
    pub(super) fn arrived(&self, command: &Command, target: &RemotePort) {
        if command.triggers() {
            match target.arrivals() {
                None => trigger::arrive(&self.network, target, command.steps()),
                Some(to) => self.tell_arrival(to, command.steps()),
            }
        }
    }

    /// Starts the command's data transfer with operations of this `context`. `moving` counts operations in flight, even after an error.
    #[inline(always)]
    pub(super) fn carry(
        &self,
        command: &Command,
        context: u64,
        before: &mut u64,
        moving: &mut Moving,
    ) -> Result<Option<&RemotePort>, Failed> {
        let under_way = &mut moving.under_way;
        let len = command.len();
        let flags = if command.flags().contains(CommandFlags::ORDERED) {
            Flags::ORDERED
        } else {
            Flags::empty()
        };
        let kind = command.kind().ok_or(Failed::Send(Fault::Other))?;
        match kind {
            CommandKind::Put | CommandKind::Inline => {
                let (source, taken) = if kind == CommandKind::Put {
                    let local = self.keys.local(command.local(), len, false);
                    let local = local.map_err(|reach| Failed::Send(reach.at_send()))?;
                    (local, Flags::empty())
                } else {
                    let carried = Local {
                        ptr: command.data.as_ptr().cast::<u8>().cast_mut(),
                        desc: 0,
                    };
                    (carried, Flags::INLINE)
                };
                let target = self.network.port(command.place(), command.port())?;
                let to = self.at(target, command, len, Rights::WRITE)?;
                if command.flags().contains(CommandFlags::REMOTE_NOTICE) {
                    prefetch::for_store(address(to) as *const u8);
                    target.prefetch_inbox();
                }
                // SAFETY:
                // - registered memory: the owner releases its key after the completion. Or bytes of the command, which the call reads before it returns.
                let put = unsafe {
                    if let Some(record) = moving.record
                        && let Some(put) =
                            self.put_and_tell(source, (target, to), len, record, flags, context)
                    {
                        moving.record = None;
                        put.map(|outcome| *under_way += u8::from(outcome == Outcome::Pending))
                    } else {
                        self.put_end_last((source, taken), to, len, flags, context, under_way)
                    }
                };
                put.map_err(|error| self.why(command, error))?;
                Ok(Some(target))
            }
            CommandKind::Get => {
                let target = self.network.port(command.place(), command.port())?;
                let from = self.at(target, command, len, Rights::READ)?;
                let local = self
                    .keys
                    .local(command.local(), len, true)
                    .map_err(|reach| reach.at_return())?;
                // SAFETY:
                // - registered memory, as above.
                let get =
                    unsafe { self.get_end_last((local, from, len), flags, context, under_way) };
                get.map_err(|error| self.why(command, error))?;
                Ok(Some(target))
            }
            CommandKind::Atomic4 | CommandKind::Atomic8 => {
                let wide = kind == CommandKind::Atomic8;
                let target = self.network.port(command.place(), command.port())?;
                let at = self.at(target, command, if wide { 8 } else { 4 }, Rights::ATOMIC)?;
                let rmw = command.rmw().ok_or(Failed::Send(Fault::Other))?;
                let outcome = self
                    .change(rmw, wide, at, command, flags, context, before)
                    .map_err(|error| self.why(command, error))?;
                *under_way += u8::from(outcome == Outcome::Pending);
                Ok(Some(target))
            }
            CommandKind::Nop => Ok(None),
        }
    }

    /// A short put together with its notice, if the network offers it. `None`: nothing has been sent.
    ///
    /// # Safety
    /// `len` bytes at `source` are valid.
    #[cold]
    unsafe fn put_and_tell(
        &self,
        source: Local,
        (target, to): (&RemotePort, Remote<'_>),
        len: usize,
        record: Record,
        flags: Flags,
        context: u64,
    ) -> Option<Result<Outcome>> {
        if !to.region.is_asynchronous() || len > LONGEST_MESSAGE {
            return None;
        }
        let lines = match last_word(address(to), len) < len {
            true => Flags::LINES,
            false => Flags::empty(),
        };
        let (inbox, flags) = (target.inbox(), flags | lines);
        // SAFETY:
        // - contract of this call: the bytes are readable.
        let put = unsafe {
            let endpoint = &self.endpoint;
            endpoint.put_deliver(source, to, len, inbox, record, flags, context)
        };
        match put {
            Err(Error::Unsupported) => None,
            put => Some(put),
        }
    }

    /// A put after which the end of each line, or of all data, becomes visible last ([`last`](super::last)). `taken` holds flags that apply to the source:
    /// `INLINE` if it is valid only during the call.
    ///
    /// # Safety
    /// As [`Endpoint::put`](unipgas_engine::Endpoint::put).
    #[inline(always)]
    unsafe fn put_end_last(
        &self,
        (source, taken): (Local, Flags),
        to: Remote<'_>,
        len: usize,
        flags: Flags,
        context: u64,
        under_way: &mut u8,
    ) -> Result<()> {
        let mut put = |source: Local, to: Remote<'_>, len: usize, flags: Flags| {
            // SAFETY:
            // - contract of this call, for a part of the bytes. Or the word below, which `INLINE` reads before the call returns.
            let outcome = unsafe { self.endpoint.put(source, to, len, flags, context) }?;
            *under_way += u8::from(outcome == Outcome::Pending);
            Ok(())
        };
        if !to.region.is_asynchronous() {
            return put(source, to, len, flags | Flags::LINES | Flags::INLINE);
        }
        let cut = Cut::of(address(to), len, flags.contains(Flags::ORDERED));
        let _together = (cut.last > 0).then(|| self.endpoint.together(to.region));
        // The ranges may overlap, so the end is read before the first write.
        let mut word = [0u8; 8];
        // SAFETY:
        // - `last` is at most 8 and at most `len`; contract of this call: the `len` bytes are valid.
        unsafe {
            source
                .ptr
                .add(cut.first)
                .copy_to_nonoverlapping(word.as_mut_ptr(), cut.last);
        }
        put(source, to, cut.first, flags | cut.lines | taken)?;
        if cut.last == 0 {
            return Ok(());
        }
        let end = Remote {
            region: to.region,
            offset: to.offset + cut.first,
        };
        let source = Local {
            ptr: word.as_mut_ptr(),
            desc: 0,
        };
        put(
            source,
            end,
            cut.last,
            flags | Flags::ORDERED | Flags::INLINE,
        )
    }

    /// A get with the same visibility, since another thread may poll the destination.
    ///
    /// # Safety
    /// As [`Endpoint::get`](unipgas_engine::Endpoint::get).
    #[inline(always)]
    unsafe fn get_end_last(
        &self,
        (local, from, len): (Local, Remote<'_>, usize),
        flags: Flags,
        context: u64,
        under_way: &mut u8,
    ) -> Result<()> {
        let mut get = |local: Local, from: Remote<'_>, len: usize, flags: Flags| {
            // SAFETY:
            // - contract of this call, for a part of the bytes.
            let outcome = unsafe { self.endpoint.get(local, from, len, flags, context) }?;
            *under_way += u8::from(outcome == Outcome::Pending);
            Ok(())
        };
        if !from.region.is_asynchronous() {
            return get(local, from, len, flags | Flags::LINES);
        }
        let cut = Cut::of(local.ptr.addr(), len, flags.contains(Flags::ORDERED));
        let _together = (cut.last > 0).then(|| self.endpoint.together(from.region));
        get(local, from, cut.first, flags | cut.lines)?;
        if cut.last == 0 {
            return Ok(());
        }
        let end = Remote {
            region: from.region,
            offset: from.offset + cut.first,
        };
        let local = Local {
            ptr: local.ptr.wrapping_add(cut.first),
            desc: local.desc,
        };
        get(local, end, cut.last, flags | Flags::ORDERED)
    }

    #[inline(always)]
    pub(super) fn at<'a>(
        &self,
        target: &'a RemotePort,
        command: &Command,
        len: usize,
        need: Rights,
    ) -> Result<Remote<'a>, Fault> {
        target
            .at(&self.network, command.remote(), len, need)
            .map_err(|reach: Reach| self.network.blame(target, reach))
    }

    #[inline(always)]
    #[allow(clippy::too_many_arguments, reason = "the parts of one operation")]
    pub(super) fn change(
        &self,
        rmw: Rmw,
        wide: bool,
        at: Remote<'_>,
        command: &Command,
        flags: Flags,
        context: u64,
        before: &mut u64,
    ) -> Result<Outcome> {
        let [operand, compare, ..] = command.data;
        if !at.region.is_direct() {
            return self.change_afar(rmw, wide, at, command, flags, context, before);
        }
        use Ordering::{AcqRel, Acquire};
        *before = if wide {
            change(mapped::value(at)?, rmw, operand, compare)
        } else {
            let (operand, compare) = (operand as u32, compare as u32);
            let word = mapped::value32(at)?;
            u64::from(match rmw {
                Rmw::Swap => word.swap(operand, AcqRel),
                Rmw::Add => word.fetch_add(operand, AcqRel),
                Rmw::Xor => word.fetch_xor(operand, AcqRel),
                Rmw::And => word.fetch_and(operand, AcqRel),
                Rmw::Or => word.fetch_or(operand, AcqRel),
                Rmw::CompareSwap => {
                    let (Ok(seen) | Err(seen)) =
                        word.compare_exchange(compare, operand, AcqRel, Acquire);
                    seen
                }
            })
        };
        Ok(Outcome::Complete)
    }

    #[cold]
    #[allow(clippy::too_many_arguments, reason = "the parts of one operation")]
    pub(super) fn change_afar(
        &self,
        rmw: Rmw,
        wide: bool,
        at: Remote<'_>,
        command: &Command,
        flags: Flags,
        context: u64,
        before: &mut u64,
    ) -> Result<Outcome> {
        let size = if wide { 8 } else { 4 };
        if !at.offset_is_multiple_of(size) {
            return Err(Error::Misaligned(size));
        }
        *before = 0;
        let request = AtomicRequest {
            op: match rmw {
                Rmw::Swap => AtomicOp::Write,
                Rmw::Add => AtomicOp::Sum,
                Rmw::Xor => AtomicOp::Bxor,
                Rmw::And => AtomicOp::Band,
                Rmw::Or => AtomicOp::Bor,
                Rmw::CompareSwap => AtomicOp::Cswap,
            },
            ty: if wide {
                AtomicType::U64
            } else {
                AtomicType::U32
            },
            count: 1,
            // Little-endian: the low half of a word is its first four bytes.
            operand: (&raw const command.data[0]).cast(),
            compare: (&raw const command.data[1]).cast(),
            result: std::ptr::from_mut(before).cast(),
        };
        // SAFETY:
        // - the call reads operand and comparand before it returns. `before` is part of the flight, which lives until the operation ends; or the operation
        //   completes in the call.
        unsafe { self.endpoint.atomic(at, &request, flags, context) }
    }

    pub(super) fn remote_notice(&self, command: &Command) -> PortNotice {
        PortNotice {
            peer: self.options.id,
            ..notice(command, true, 0)
        }
    }
}

/// The mapped address, or an address with the same alignment.
#[inline(always)]
pub(super) fn address(at: Remote<'_>) -> usize {
    at.region.parts().base.addr().wrapping_add(at.offset)
}

/// The notice of a command for the target (`remote`), or for the sender.
#[inline(always)]
pub(super) fn notice(command: &Command, remote: bool, before: u64) -> PortNotice {
    let len = command.len() as u64;
    let (kind, value, end) = match command.kind() {
        Some(CommandKind::Get) if remote => (
            NoticeKind::RemoteGet,
            command.data[0].wrapping_add(len),
            len,
        ),
        Some(CommandKind::Get) => (NoticeKind::LocalGet, command.data[0].wrapping_add(len), len),
        Some(CommandKind::Atomic4 | CommandKind::Atomic8) if remote => {
            (NoticeKind::RemoteAtomic, 0, 0)
        }
        Some(CommandKind::Atomic4 | CommandKind::Atomic8) => (NoticeKind::LocalAtomic, before, 0),
        _ if remote => (NoticeKind::RemotePut, 0, len),
        _ => (NoticeKind::LocalPut, 0, len),
    };
    PortNotice {
        kind,
        fault: None,
        edata: command.edata(),
        peer: command.peer,
        value,
        remote: command.remote.wrapping_add(end),
    }
}

#[inline(always)]
pub(super) fn local_notice(command: &Command, before: u64, fault: Option<Fault>) -> PortNotice {
    PortNotice {
        fault,
        ..notice(command, false, before)
    }
}

#[cold]
fn fault(error: Error) -> Fault {
    tell_refusal(&error);
    match error {
        Error::PeerDead | Error::RankDead(_) => Fault::Peer,
        Error::StaleRegion => Fault::RemoteKey,
        Error::OutOfBounds { .. } => Fault::RemoteLength,
        Error::AccessDenied | Error::Misaligned(_) => Fault::RemoteMemory,
        _ => Fault::Other,
    }
}

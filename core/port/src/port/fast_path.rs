//! The fast path of a command. The target is known, and its memory is mapped and accessible. Loads, stores and atomic instructions complete the command in the
//! call. All other commands take the slow path ([`Port::post`]), which also finds the reason of a failure.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

use super::carry::address;
use super::command::{Command, CommandFlags, CommandKind, Rmw};
use super::issue::{Port, Queues};
use super::keys::ShortKey;
use super::notice::{NoticeKind, PortNotice};
use super::remote::RemotePort;
use unipgas_base::{Result, Rights, prefetch};
use unipgas_engine::mapped;
use unipgas_engine::op::Remote;
use unipgas_engine::region::RemoteRegion;

/// Target and options of a command.
#[derive(Clone, Copy)]
pub struct Aim<'a> {
    /// The target's port.
    pub target: &'a RemotePort,
    /// The target's name in notices.
    pub peer: u64,
    /// Address at the target.
    pub key: ShortKey,
    /// Options.
    pub flags: CommandFlags,
    /// The byte in its notices.
    pub edata: u8,
}

impl Aim<'_> {
    #[inline(always)]
    fn region(&self) -> Option<&RemoteRegion> {
        self.target.region_fast(self.key)
    }

    #[inline(always)]
    fn at<'r>(&self, region: &'r RemoteRegion) -> Remote<'r> {
        Remote {
            region,
            offset: self.key.offset(),
        }
    }

    /// Prefetches the line of the data together with the line of the target's notice.
    #[inline(always)]
    fn prepare(&self, region: &RemoteRegion) {
        if self.flags.contains(CommandFlags::REMOTE_NOTICE) {
            prefetch::for_store(address(self.at(region)) as *const u8);
            self.target.prefetch_inbox();
        }
    }
}

impl Port {
    /// Whether no earlier command has to go first, and there is room for one more.
    #[inline(always)]
    fn is_free(&self, queues: &Queues) -> bool {
        queues.fast & queues.delayed.is_empty() & self.counts.has_room(1)
    }

    /// Carries out a stored command, if it is a put that completes in the call.
    #[inline(always)]
    pub(super) fn post_fast(
        &self,
        queues: &mut Queues,
        command: &Command,
        context: u64,
    ) -> Option<Result<()>> {
        let kind = command.kind()?;
        if !matches!(kind, CommandKind::Put | CommandKind::Inline) | (command.steps() != 0) {
            return None;
        }
        let aim = Aim {
            target: self.network.port_fast(command.place(), command.port())?,
            peer: command.peer,
            key: command.remote(),
            flags: command.flags(),
            edata: command.edata(),
        };
        if kind == CommandKind::Put {
            return self.put_key_fast(queues, &aim, command.local(), command.len(), context);
        }
        // SAFETY:
        // - the bytes of the command; `is_valid` has checked the length.
        unsafe {
            self.put_fast(
                queues,
                &aim,
                command.data.as_ptr().cast(),
                command.len(),
                context,
            )
        }
    }

    /// Puts `len` bytes from `source`. `None`: nothing was done. Errors: [`Error::InboxFull`](unipgas_base::Error::InboxFull), as for [`Port::post`].
    ///
    /// # Safety
    /// `len` bytes at `source` are valid.
    #[inline(always)]
    pub unsafe fn put_fast(
        &self,
        queues: &mut Queues,
        aim: &Aim<'_>,
        source: *const u8,
        len: usize,
        context: u64,
    ) -> Option<Result<()>> {
        let region = aim.region()?;
        if !self.is_free(queues) {
            return None;
        }
        aim.prepare(region);
        let to = aim.at(region);
        // SAFETY:
        // - contract of this call: the bytes are readable.
        if !unsafe { mapped::put_lines_fast(source, to, len) } {
            return None;
        }
        self.counts.moved(len);
        let end = aim.key.0.wrapping_add(len as u64);
        let kinds = (NoticeKind::RemotePut, NoticeKind::LocalPut);
        Some(self.tell_both(queues, aim, kinds, 0, end, context))
    }

    /// Puts a word of 8 bytes to an aligned address, at the lowest cost. `None` and errors: as for [`Port::put_fast`].
    #[inline(always)]
    pub fn put_word_fast(
        &self,
        queues: &mut Queues,
        aim: &Aim<'_>,
        word: u64,
        context: u64,
    ) -> Option<Result<()>> {
        let region = aim.region()?;
        if !self.is_free(queues) {
            return None;
        }
        aim.prepare(region);
        if !mapped::put_word_fast(word, aim.at(region)) {
            return None;
        }
        self.counts.moved(size_of::<u64>());
        let end = aim.key.0.wrapping_add(8);
        let kinds = (NoticeKind::RemotePut, NoticeKind::LocalPut);
        Some(self.tell_both(queues, aim, kinds, 0, end, context))
    }

    /// Puts `len` bytes of registered memory. `None` and errors: as for [`Port::put_fast`].
    #[inline(always)]
    pub fn put_key_fast(
        &self,
        queues: &mut Queues,
        aim: &Aim<'_>,
        source: ShortKey,
        len: usize,
        context: u64,
    ) -> Option<Result<()>> {
        let local = self.keys.local(source, len, false).ok()?;
        // SAFETY:
        // - registered memory; the program releases it after the completion.
        unsafe { self.put_fast(queues, aim, local.ptr, len, context) }
    }

    /// Atomic operation on a word of 8 bytes. `None` and errors: as for [`Port::put_fast`].
    #[inline(always)]
    pub fn change_fast(
        &self,
        queues: &mut Queues,
        aim: &Aim<'_>,
        rmw: Rmw,
        [operand, compare]: [u64; 2],
        context: u64,
    ) -> Option<Result<()>> {
        let region = aim.region()?;
        if !(self.is_free(queues) & region.is_open(aim.key.offset(), 8, Rights::ATOMIC)) {
            return None;
        }
        let word = mapped::value(aim.at(region)).ok()?;
        aim.prepare(region);
        let before = change(word, rmw, operand, compare);
        self.counts.moved(size_of::<u64>());
        let kinds = (NoticeKind::RemoteAtomic, NoticeKind::LocalAtomic);
        Some(self.tell_both(queues, aim, kinds, before, aim.key.0, context))
    }

    #[inline(always)]
    fn tell_both(
        &self,
        queues: &mut Queues,
        aim: &Aim<'_>,
        (theirs, ours): (NoticeKind, NoticeKind),
        before: u64,
        remote: u64,
        context: u64,
    ) -> Result<()> {
        let wanted = aim.flags.contains(CommandFlags::COMPLETION);
        queues.completions.push(&self.counts, context, wanted, None);
        if self.liveness.is_due() {
            self.network.look();
        }
        let notice = PortNotice {
            kind: theirs,
            fault: None,
            edata: aim.edata,
            peer: self.options.id,
            value: 0,
            remote,
        };
        if aim.flags.contains(CommandFlags::REMOTE_NOTICE) {
            self.tell_mapped(aim.target, notice);
        }
        if aim.flags.contains(CommandFlags::LOCAL_NOTICE) {
            return queues.note(PortNotice {
                kind: ours,
                peer: aim.peer,
                value: before,
                ..notice
            });
        }
        Ok(())
    }

    /// Delivers a notice, by stores if the target's inbox is mapped.
    #[inline(always)]
    pub(super) fn tell_mapped(&self, target: &RemotePort, notice: PortNotice) {
        if !target.has_mapped_inbox() {
            self.network.tell(target, notice);
        } else if !target.push(notice) {
            target.overflowed();
        }
    }
}

/// Atomic operation; returns the previous value. Compares the frequent operations first: a jump table costs more than the operation.
#[inline(always)]
pub(super) fn change(word: &AtomicU64, rmw: Rmw, operand: u64, compare: u64) -> u64 {
    if rmw == Rmw::Add {
        word.fetch_add(operand, AcqRel)
    } else if rmw == Rmw::CompareSwap {
        let (Ok(seen) | Err(seen)) = word.compare_exchange(compare, operand, AcqRel, Acquire);
        seen
    } else {
        change_otherwise(word, rmw, operand)
    }
}

#[inline(never)]
fn change_otherwise(word: &AtomicU64, rmw: Rmw, operand: u64) -> u64 {
    match rmw {
        Rmw::Swap => word.swap(operand, AcqRel),
        Rmw::Xor => word.fetch_xor(operand, AcqRel),
        Rmw::And => word.fetch_and(operand, AcqRel),
        Rmw::Or => word.fetch_or(operand, AcqRel),
        Rmw::Add | Rmw::CompareSwap => unreachable!("done by `change`"),
    }
}

//! The short way of a command: everything is known, mapped and allowed, and the command is done by loads, stores and atomic
//! instructions before the call returns. Whatever is not so takes the long way ([`Port::post`]), which also finds out why.

use std::sync::atomic::Ordering::{AcqRel, Acquire};

use super::command::{Command, CommandFlags, CommandKind, Rmw};
use super::issue::{Port, Queues, local_notice};
use super::remote::RemotePort;
use crate::mapped;
use crate::op::{Local, Remote};
use crate::region::Rights;
use crate::{Error, Result};

impl Port {
    /// [`Port::post`], made for calls whose kind of command is known at compile time.
    #[inline(always)]
    pub fn post_now(&self, queues: &mut Queues, command: Command, context: u64) -> Result<()> {
        if !self.direct | self.options.session | !queues.delayed.is_empty() | (command.steps() != 0)
            || !self.counts.has_room(1)
        {
            return self.post(queues, &command, context);
        }
        let mut before = 0;
        let Some(target) = self.now(&command, &mut before) else {
            return self.post(queues, &command, context);
        };
        let flags = command.flags();
        let wanted = flags.contains(CommandFlags::COMPLETION);
        queues.completions.push(&self.counts, context, wanted, None);
        if flags.contains(CommandFlags::REMOTE_NOTICE) {
            self.tell_mapped(target, self.remote_notice(&command));
        }
        if flags.contains(CommandFlags::LOCAL_NOTICE) {
            return queues.note(local_notice(&command, before, None));
        }
        Ok(())
    }

    /// Carries the command out, if that is simple; else nothing has happened.
    #[inline(always)]
    fn now(&self, command: &Command, before: &mut u64) -> Option<&RemotePort> {
        let kind = command.kind()?;
        let len = match kind {
            CommandKind::Atomic4 => 4,
            CommandKind::Atomic8 => 8,
            _ => command.len(),
        };
        let target = self.network.port_at_hand(command.place(), command.port())?;
        let region = target.region_at_hand(command.remote())?;
        let at = Remote {
            region,
            offset: command.remote().offset(),
        };
        match kind {
            CommandKind::Put | CommandKind::Inline => {
                let source = if kind == CommandKind::Put {
                    self.keys.local(command.local(), len, false).ok()?
                } else {
                    Local {
                        ptr: command.data.as_ptr().cast::<u8>().cast_mut(),
                        desc: 0,
                    }
                };
                if command.flags().contains(CommandFlags::REMOTE_NOTICE) {
                    target.writer.as_ref()?.prefetch();
                }
                // SAFETY:
                // - registered memory, which the program releases after the completion, or bytes of the command.
                unsafe { mapped::put_at_once(source, at, len) }.then_some(target)
            }
            CommandKind::Get => {
                let local = self.keys.local(command.local(), len, true).ok()?;
                // SAFETY:
                // - as above.
                unsafe { mapped::get_at_once(local, at, len) }.then_some(target)
            }
            CommandKind::Atomic8 => {
                if !region.is_open(at.offset, 8, Rights::ATOMIC) {
                    return None;
                }
                let word = mapped::value(at).ok()?;
                let [operand, compare, ..] = command.data;
                *before = match command.rmw()? {
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
                };
                Some(target)
            }
            CommandKind::Atomic4 | CommandKind::Nop => None,
        }
    }

    /// Delivers a notice where the target's inbox is mapped, and otherwise too.
    #[inline(always)]
    pub(super) fn tell_mapped(&self, target: &RemotePort, notice: super::PortNotice) {
        match &target.writer {
            Some(writer) => {
                if target.push(writer, notice) == Err(Error::InboxFull) {
                    target.overflowed();
                }
            }
            None => self.network.tell(target, notice),
        }
    }
}

//! Commands: what is posted to a port, in the form in which a program may keep it and another process may carry it out.

use bytemuck::{Pod, Zeroable};

use super::keys::ShortKey;

/// What a command does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum CommandKind {
    /// Writes registered memory of this process to that of another one.
    Put = 1,
    /// Writes up to 32 bytes that the command carries.
    Inline = 2,
    /// Reads registered memory of another process into that of this one.
    Get = 3,
    /// Changes a word of 4 bytes.
    Atomic4 = 4,
    /// Changes a word of 8 bytes.
    Atomic8 = 5,
    /// Nothing, in its turn.
    Nop = 6,
}

/// How a word is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Rmw {
    /// To the operand.
    Swap = 1,
    /// By adding the operand; wraps.
    Add = 2,
    /// By exclusive or.
    Xor = 3,
    /// By and.
    And = 4,
    /// By or.
    Or = 5,
    /// To the operand, if it equals the comparand.
    CompareSwap = 6,
}

bitflags::bitflags! {
    /// What a command asks for beside its effect.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct CommandFlags: u8 {
        /// A completion for its poster when its source may be reused.
        const COMPLETION = 1;
        /// A notice for its poster when its effect is there.
        const LOCAL_NOTICE = 2;
        /// A notice for the target when its effect is there.
        const REMOTE_NOTICE = 4;
        /// Its accesses come after those of earlier commands of the port to the same peer.
        const ORDERED = 8;
    }
}

/// One command: 64 bytes without pointers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct Command {
    kind: u8,
    rmw: u8,
    /// The byte that notices carry.
    pub edata: u8,
    flags: u8,
    /// How many commands its arrival triggers at a session port.
    pub steps: u8,
    pad: u8,
    /// The target's index among the ports of its process.
    pub port: u16,
    /// Bytes to transfer.
    pub len: u32,
    /// The target's place.
    pub place: u16,
    /// Which port it was made for: its index.
    pub owner: u16,
    /// The target as the program names it.
    pub peer: u64,
    /// Where at the target ([`ShortKey`]).
    pub remote: u64,
    /// Put and get: where here ([`ShortKey`]). Inline: the bytes. Atomics: operand and comparand.
    pub data: [u64; 4],
}

const _: () = assert!(size_of::<Command>() == Command::SIZE);

impl Command {
    /// Bytes of a command.
    pub const SIZE: usize = 64;

    /// A command without data; the caller fills in what its kind needs.
    #[inline(always)]
    pub fn new(kind: CommandKind, flags: CommandFlags) -> Self {
        Command {
            kind: kind as u8,
            rmw: 0,
            edata: 0,
            flags: flags.bits(),
            steps: 0,
            pad: 0,
            port: 0,
            len: 0,
            place: 0,
            owner: 0,
            peer: 0,
            remote: 0,
            data: [0; 4],
        }
    }

    /// What it does; `None` for bytes that are no command.
    #[inline(always)]
    pub fn kind(&self) -> Option<CommandKind> {
        Some(match self.kind {
            1 => CommandKind::Put,
            2 => CommandKind::Inline,
            3 => CommandKind::Get,
            4 => CommandKind::Atomic4,
            5 => CommandKind::Atomic8,
            6 => CommandKind::Nop,
            _ => return None,
        })
    }

    /// How an atomic changes its word.
    #[inline(always)]
    pub fn rmw(&self) -> Option<Rmw> {
        Some(match self.rmw {
            1 => Rmw::Swap,
            2 => Rmw::Add,
            3 => Rmw::Xor,
            4 => Rmw::And,
            5 => Rmw::Or,
            6 => Rmw::CompareSwap,
            _ => return None,
        })
    }

    /// Makes it an atomic of this kind.
    #[inline(always)]
    pub fn set_rmw(&mut self, rmw: Rmw) {
        self.rmw = rmw as u8;
    }

    /// What it asks for.
    #[inline(always)]
    pub fn flags(&self) -> CommandFlags {
        CommandFlags::from_bits_truncate(self.flags)
    }

    /// Where at the target.
    #[inline(always)]
    pub fn remote(&self) -> ShortKey {
        ShortKey(self.remote)
    }

    /// Where here.
    #[inline(always)]
    pub fn local(&self) -> ShortKey {
        ShortKey(self.data[0])
    }

    /// Whether any port could carry it out: kind, operation and lengths fit together.
    #[inline]
    pub fn is_valid(&self) -> bool {
        match self.kind() {
            None => false,
            Some(CommandKind::Inline) => self.len as usize <= size_of_val(&self.data),
            Some(CommandKind::Atomic4 | CommandKind::Atomic8) => self.rmw().is_some(),
            Some(_) => true,
        }
    }

    pub(super) fn to_words(self) -> [u64; 8] {
        bytemuck::cast(self)
    }

    pub(super) fn from_words(words: [u64; 8]) -> Self {
        bytemuck::cast(words)
    }
}

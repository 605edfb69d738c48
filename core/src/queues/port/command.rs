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

/// One command: 64 bytes without pointers. Whole words only: a word that was stored in parts is slow to load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct Command {
    /// Kind, rmw, edata, flags, steps (a byte each), 8 bits free, target's port (16 bits).
    head: u64,
    /// Bytes to transfer (32 bits), target's place (16), port that it was made for (16).
    to: u64,
    /// The target as the program names it.
    pub peer: u64,
    /// Where at the target ([`ShortKey`]).
    pub remote: u64,
    /// Put and get: where here ([`ShortKey`]). Inline: the bytes. Atomics: operand and comparand.
    pub data: [u64; 4],
}

const _: () = assert!(size_of::<Command>() == Command::SIZE);

/// The parts of a command that are not addresses.
#[derive(Debug, Clone, Copy)]
pub struct Parts {
    /// What it does.
    pub kind: CommandKind,
    /// How an atomic changes its word.
    pub rmw: Option<Rmw>,
    /// What it asks for.
    pub flags: CommandFlags,
    /// The byte that notices carry.
    pub edata: u8,
    /// How many commands its arrival triggers at a session port.
    pub steps: u8,
    /// The target's place.
    pub place: u16,
    /// The target's index among the ports of its process.
    pub port: u16,
    /// Which port it is made for: its index.
    pub owner: u16,
    /// Bytes to transfer.
    pub len: u32,
}

impl Command {
    /// Bytes of a command.
    pub const SIZE: usize = 64;

    /// A command of these parts, to `remote` at the port that the program calls `peer`.
    #[inline(always)]
    pub fn new(parts: Parts, peer: u64, remote: u64, data: [u64; 4]) -> Self {
        let rmw = match parts.rmw {
            None => 0,
            Some(rmw) => rmw as u64,
        };
        Command {
            head: parts.kind as u64
                | rmw << 8
                | u64::from(parts.edata) << 16
                | u64::from(parts.flags.bits()) << 24
                | u64::from(parts.steps) << 32
                | u64::from(parts.port) << 48,
            to: u64::from(parts.len) | u64::from(parts.place) << 32 | u64::from(parts.owner) << 48,
            peer,
            remote,
            data,
        }
    }

    /// What it does; `None` for bytes that are no command.
    #[inline(always)]
    pub fn kind(&self) -> Option<CommandKind> {
        Some(match self.head as u8 {
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
        Some(match (self.head >> 8) as u8 {
            1 => Rmw::Swap,
            2 => Rmw::Add,
            3 => Rmw::Xor,
            4 => Rmw::And,
            5 => Rmw::Or,
            6 => Rmw::CompareSwap,
            _ => return None,
        })
    }

    /// The byte that notices carry.
    #[inline(always)]
    pub fn edata(&self) -> u8 {
        (self.head >> 16) as u8
    }

    /// What it asks for.
    #[inline(always)]
    pub fn flags(&self) -> CommandFlags {
        CommandFlags::from_bits_truncate((self.head >> 24) as u8)
    }

    /// The same, with its accesses after those of earlier commands.
    pub(super) fn in_order(mut self) -> Self {
        self.head |= u64::from(CommandFlags::ORDERED.bits()) << 24;
        self
    }

    /// How many commands its arrival triggers at a session port.
    #[inline(always)]
    pub fn steps(&self) -> u8 {
        (self.head >> 32) as u8
    }

    /// Whether its arrival triggers any.
    #[inline(always)]
    pub(super) fn triggers(&self) -> bool {
        self.steps() > 0 && self.kind() == Some(CommandKind::Put)
    }

    /// The target's index among the ports of its process.
    #[inline(always)]
    pub fn port(&self) -> u16 {
        (self.head >> 48) as u16
    }

    /// Bytes to transfer.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.to as u32 as usize
    }

    /// Bytes that are written or read.
    #[inline]
    pub(super) fn moves(&self) -> usize {
        match self.kind() {
            Some(CommandKind::Atomic4) => 4,
            Some(CommandKind::Atomic8) => 8,
            Some(CommandKind::Nop) | None => 0,
            Some(CommandKind::Put | CommandKind::Inline | CommandKind::Get) => self.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The target's place.
    #[inline(always)]
    pub fn place(&self) -> u16 {
        (self.to >> 32) as u16
    }

    /// Which port it was made for: its index.
    #[inline(always)]
    pub fn owner(&self) -> u16 {
        (self.to >> 48) as u16
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
            Some(CommandKind::Inline) => self.len() <= size_of_val(&self.data),
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

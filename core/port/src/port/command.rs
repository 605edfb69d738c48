//! Commands in their stored form. A program may keep them, and another process may carry them out.

use bytemuck::{Pod, Zeroable};

use super::keys::ShortKey;

/// Operation of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum CommandKind {
    /// Writes registered memory of this process to registered memory of a peer.
    Put = 1,
    /// Writes up to 32 bytes, which the command contains.
    Inline = 2,
    /// Reads registered memory of a peer into registered memory of this process.
    Get = 3,
    /// Atomic operation on a word of 4 bytes.
    Atomic4 = 4,
    /// Atomic operation on a word of 8 bytes.
    Atomic8 = 5,
    /// No operation. It takes its place in the order.
    Nop = 6,
}

/// Atomic operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Rmw {
    /// Stores the operand.
    Swap = 1,
    /// Adds the operand; wraps.
    Add = 2,
    /// Exclusive or with the operand.
    Xor = 3,
    /// Bitwise and with the operand.
    And = 4,
    /// Bitwise or with the operand.
    Or = 5,
    /// Stores the operand, if the word equals the comparand.
    CompareSwap = 6,
}

bitflags::bitflags! {
    /// Options of a command.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct CommandFlags: u8 {
        /// Completion for the sender, when the source may be reused.
        const COMPLETION = 1;
        /// Notice for the sender, when the data is visible at its destination.
        const LOCAL_NOTICE = 2;
        /// Notice for the target, when the data is visible at its destination.
        const REMOTE_NOTICE = 4;
        /// Its accesses follow the accesses of earlier commands of the port to the same peer.
        const ORDERED = 8;
    }
}

/// A command: 64 bytes without pointers. All fields are whole words: a load of a word that was stored in parts is slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct Command {
    /// Kind, rmw, edata, flags, steps (8 bits each), 8 bits unused, target's port (16 bits).
    head: u64,
    /// Bytes to transfer (32 bits), target's place (16), sender's port (16).
    to: u64,
    /// The target, as the program names it.
    pub peer: u64,
    /// Address at the target ([`ShortKey`]).
    pub remote: u64,
    /// Put and get: local address ([`ShortKey`]). Inline: the bytes. Atomics: operand and comparand.
    pub data: [u64; 4],
}

const _: () = assert!(size_of::<Command>() == Command::SIZE);

/// The fields of a command, without addresses.
#[derive(Debug, Clone, Copy)]
pub struct Parts {
    /// Operation.
    pub kind: CommandKind,
    /// Atomic operation, if the command is atomic.
    pub rmw: Option<Rmw>,
    /// Options.
    pub flags: CommandFlags,
    /// The byte in its notices.
    pub edata: u8,
    /// Number of commands that its arrival triggers at a session port.
    pub steps: u8,
    /// The target's place.
    pub place: u16,
    /// Index of the target's port in its process.
    pub port: u16,
    /// Index of the port that posts it.
    pub owner: u16,
    /// Bytes to transfer.
    pub len: u32,
}

impl Command {
    /// Size of a command in bytes.
    pub const SIZE: usize = 64;

    /// A command for address `remote` of the port that the program names `peer`.
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

    /// Operation. `None`: the bytes are not a command.
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

    /// Atomic operation, if the command is atomic.
    #[inline(always)]
    pub(crate) fn rmw(&self) -> Option<Rmw> {
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

    /// The byte in its notices.
    #[inline(always)]
    pub(crate) fn edata(&self) -> u8 {
        (self.head >> 16) as u8
    }

    /// Options.
    #[inline(always)]
    pub fn flags(&self) -> CommandFlags {
        CommandFlags::from_bits_truncate((self.head >> 24) as u8)
    }

    /// The same command with [`CommandFlags::ORDERED`].
    pub(super) fn in_order(mut self) -> Self {
        self.head |= u64::from(CommandFlags::ORDERED.bits()) << 24;
        self
    }

    /// Number of commands that its arrival triggers at a session port.
    #[inline(always)]
    pub(crate) fn steps(&self) -> u8 {
        (self.head >> 32) as u8
    }

    /// Whether its arrival triggers commands.
    #[inline(always)]
    pub(super) fn triggers(&self) -> bool {
        self.steps() > 0 && self.kind() == Some(CommandKind::Put)
    }

    /// Index of the target's port in its process.
    #[inline(always)]
    pub fn port(&self) -> u16 {
        (self.head >> 48) as u16
    }

    /// Bytes to transfer.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.to as u32 as usize
    }

    /// Bytes written or read.
    #[inline]
    pub(super) fn moves(&self) -> usize {
        match self.kind() {
            Some(CommandKind::Atomic4) => 4,
            Some(CommandKind::Atomic8) => 8,
            Some(CommandKind::Nop) | None => 0,
            Some(CommandKind::Put | CommandKind::Inline | CommandKind::Get) => self.len(),
        }
    }

    /// Whether the length is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The target's place.
    #[inline(always)]
    pub fn place(&self) -> u16 {
        (self.to >> 32) as u16
    }

    /// Index of the port that posts it.
    #[inline(always)]
    pub fn owner(&self) -> u16 {
        (self.to >> 48) as u16
    }

    /// Address at the target.
    #[inline(always)]
    pub(crate) fn remote(&self) -> ShortKey {
        ShortKey(self.remote)
    }

    /// Local address.
    #[inline(always)]
    pub(crate) fn local(&self) -> ShortKey {
        ShortKey(self.data[0])
    }

    /// Whether kind, operation and lengths are consistent.
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

//! Notices of a port: about its own operations, and about operations of peers on its memory.

use unipgas_base::word_ring::WordRing;
use unipgas_engine::inbox::Record;

/// Operation of a notice, and the side that gets the notice (uTofu guide §3.7.8.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum NoticeKind {
    /// A put of this port is complete.
    LocalPut = 0,
    /// A put of a peer has arrived.
    RemotePut = 1,
    /// A get of this port is complete.
    LocalGet = 2,
    /// A get of a peer has read memory.
    RemoteGet = 3,
    /// An atomic operation of this port is complete.
    LocalAtomic = 4,
    /// An atomic operation of a peer has changed memory.
    RemoteAtomic = 5,
}

impl NoticeKind {
    fn from_bits(bits: u8) -> Self {
        match bits {
            0 => NoticeKind::LocalPut,
            1 => NoticeKind::RemotePut,
            2 => NoticeKind::LocalGet,
            3 => NoticeKind::RemoteGet,
            4 => NoticeKind::LocalAtomic,
            _ => NoticeKind::RemoteAtomic,
        }
    }
}

/// Reason why a command failed. If the failure came before the transfer, nothing was written. If it came later (the peer died, or its key was released), a part
/// may have been written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Fault {
    /// The registration of the source does not allow reads.
    SendMemory = 1,
    /// The source key is not registered.
    SendKey = 2,
    /// The range exceeds the registered source memory.
    SendLength = 3,
    /// The peer has ended, or has no such port (yet).
    Peer = 4,
    /// The registration of the destination does not allow writes.
    LocalMemory = 5,
    /// The destination key of a get is not registered.
    LocalKey = 6,
    /// The range exceeds the registered destination memory of a get.
    LocalLength = 7,
    /// The peer's registration does not allow the access, or the address is misaligned.
    RemoteMemory = 8,
    /// The peer's key is not registered.
    RemoteKey = 9,
    /// The range exceeds the peer's registered memory.
    RemoteLength = 10,
    /// Another reason.
    Other = 11,
}

impl Fault {
    pub(crate) fn from_bits(bits: u8) -> Option<Self> {
        Some(match bits {
            0 => return None,
            1 => Fault::SendMemory,
            2 => Fault::SendKey,
            3 => Fault::SendLength,
            4 => Fault::Peer,
            5 => Fault::LocalMemory,
            6 => Fault::LocalKey,
            7 => Fault::LocalLength,
            8 => Fault::RemoteMemory,
            9 => Fault::RemoteKey,
            10 => Fault::RemoteLength,
            _ => Fault::Other,
        })
    }
}

/// A notice (uTofu guide §3.7.6.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortNotice {
    /// Operation and side.
    pub kind: NoticeKind,
    /// Reason, if the operation failed.
    pub fault: Option<Fault>,
    /// The byte of the command.
    pub edata: u8,
    /// The other port: the name in the command, or the name that the peer gave itself.
    pub peer: u64,
    /// For [`NoticeKind::LocalAtomic`], the previous value. For gets, the end of the data at the initiator.
    pub value: u64,
    /// End of the data at the target. For atomics, the beginning.
    pub remote: u64,
}

/// Notices in the order of arrival. All fields are whole words: a load of a word that was stored in parts is slow.
#[derive(Default)]
pub(super) struct Notices(WordRing<4>);

impl Notices {
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    #[inline(always)]
    pub fn push(&mut self, notice: PortNotice) {
        self.0.push(notice.pack());
    }

    /// Loads the words one by one: a load of two words stalls until the stores of both are complete.
    #[inline(always)]
    pub(crate) fn pop(&mut self) -> Option<PortNotice> {
        let [head, peer, value, remote] = self.0.pop()?;
        let [kind, fault, edata, ..] = head.to_le_bytes();
        Some(PortNotice {
            kind: NoticeKind::from_bits(kind),
            fault: Fault::from_bits(fault),
            edata,
            peer: *peer,
            value: *value,
            remote: *remote,
        })
    }
}

impl PortNotice {
    #[inline(always)]
    fn pack(self) -> [u64; 4] {
        let fault = match self.fault {
            None => 0,
            Some(fault) => fault as u64,
        };
        let head = self.kind as u64 | fault << 8 | u64::from(self.edata) << 16;
        [head, self.peer, self.value, self.remote]
    }

    #[inline(always)]
    pub(super) fn to_record(self) -> Record {
        let fault = self.fault.map_or(0, |fault| fault as u8);
        Record {
            source: self.peer,
            kind: u32::from_le_bytes([self.kind as u8, fault, self.edata, 0]),
            len: 0,
            value: self.value,
            offset: self.remote,
        }
    }

    #[inline(always)]
    pub(super) fn from_record(record: &Record) -> Self {
        let [kind, fault, edata, _] = record.kind.to_le_bytes();
        PortNotice {
            kind: NoticeKind::from_bits(kind),
            fault: Fault::from_bits(fault),
            edata,
            peer: record.source,
            value: record.value,
            remote: record.offset,
        }
    }
}

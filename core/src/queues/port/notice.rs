//! What a port learns of operations: of its own ones, and of those of others at its memory.

use crate::inbox::Record;

/// Which operation a notice is about, and which side of it the notice went to (uTofu guide §3.7.8.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum NoticeKind {
    /// An own put is complete.
    LocalPut = 0,
    /// Somebody's put has arrived.
    RemotePut = 1,
    /// An own get is complete.
    LocalGet = 2,
    /// Somebody's get has read.
    RemoteGet = 3,
    /// An own atomic operation is complete.
    LocalAtomic = 4,
    /// Somebody's atomic operation has changed memory.
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

/// Why a command was not carried out. Nothing was written then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Fault {
    /// The own memory cannot be read: its registration does not allow that.
    SendMemory = 1,
    /// The own key names no registered memory.
    SendKey = 2,
    /// The range leaves the own registered memory.
    SendLength = 3,
    /// The peer has gone, or has no such port (yet).
    Peer = 4,
    /// The own memory cannot be written.
    LocalMemory = 5,
    /// As [`Fault::SendKey`], found when data came back.
    LocalKey = 6,
    /// As [`Fault::SendLength`], found when data came back.
    LocalLength = 7,
    /// The peer's registration does not allow the access, or the place is not aligned as it needs.
    RemoteMemory = 8,
    /// The peer's key names no registered memory.
    RemoteKey = 9,
    /// The range leaves the peer's registered memory.
    RemoteLength = 10,
    /// Anything else.
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

/// One notice (uTofu guide §3.7.6.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortNotice {
    /// What it is about.
    pub kind: NoticeKind,
    /// Why the operation failed, if it did.
    pub fault: Option<Fault>,
    /// The byte given with the command.
    pub edata: u8,
    /// The other port: what the command named it, or what it names itself.
    pub peer: u64,
    /// The previous value, for [`NoticeKind::LocalAtomic`]; else where the data ends at the initiator, for gets.
    pub value: u64,
    /// Where the data ends (begins, for atomics) at the target.
    pub remote: u64,
}

/// A notice as it waits in the port's own queue: whole words, since a word that was stored in parts is slow to load.
#[derive(Debug, Clone, Copy, Default)]
struct Packed([u64; 4]);

impl Packed {
    /// Takes the words one by one: two at once would be loaded before they are stored.
    #[inline(always)]
    fn open(waiting: &Self) -> PortNotice {
        let [head, peer, value, remote] = &waiting.0;
        let [kind, fault, edata, ..] = head.to_le_bytes();
        PortNotice {
            kind: NoticeKind::from_bits(kind),
            fault: Fault::from_bits(fault),
            edata,
            peer: *peer,
            value: *value,
            remote: *remote,
        }
    }
}

/// Notices in the order of arrival. Its calls are inlined, which those of `VecDeque` need not be.
#[derive(Default)]
pub(super) struct Notices {
    /// As many as a power of two, or none.
    ring: Vec<Packed>,
    first: usize,
    len: usize,
}

impl Notices {
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    #[inline(always)]
    pub fn push(&mut self, notice: PortNotice) {
        if self.len == self.ring.len() {
            self.grow();
        }
        let mask = self.ring.len() - 1;
        self.ring[self.first.wrapping_add(self.len) & mask] = notice.pack();
        self.len += 1;
    }

    #[inline(always)]
    pub fn pop(&mut self) -> Option<PortNotice> {
        if self.len == 0 {
            return None;
        }
        let mask = self.ring.len() - 1;
        let notice = Packed::open(&self.ring[self.first & mask]);
        self.first = self.first.wrapping_add(1);
        self.len -= 1;
        Some(notice)
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        if let Some(mask) = self.ring.len().checked_sub(1) {
            self.ring.rotate_left(self.first & mask);
        }
        self.first = 0;
        let more = (2 * self.ring.len()).max(16);
        self.ring.resize(more, Packed::default());
    }
}

impl PortNotice {
    #[inline(always)]
    fn pack(self) -> Packed {
        let fault = match self.fault {
            None => 0,
            Some(fault) => fault as u64,
        };
        let head = self.kind as u64 | fault << 8 | u64::from(self.edata) << 16;
        Packed([head, self.peer, self.value, self.remote])
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_keep_their_order_while_their_ring_grows() {
        let mut notices = Notices::default();
        let (mut next, mut taken) = (0, 0);
        for round in 0..100 {
            for _ in 0..round {
                notices.push(PortNotice {
                    kind: NoticeKind::LocalPut,
                    fault: None,
                    edata: 0,
                    peer: next,
                    value: 0,
                    remote: 0,
                });
                next += 1;
            }
            for _ in 0..round / 2 {
                let notice = notices.pop().expect("a notice");
                assert_eq!(notice.peer, taken);
                taken += 1;
            }
            assert_eq!(notices.len() as u64, next - taken);
        }
        while let Some(notice) = notices.pop() {
            assert_eq!(notice.peer, taken);
            taken += 1;
        }
        assert_eq!(taken, next);
    }
}

//! Notices of a port: about its own operations, and about operations of peers on its memory.

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

/// A notice in the port's own queue. All fields are whole words: a load of a word that was stored in parts is slow.
#[derive(Debug, Clone, Copy, Default)]
struct Packed([u64; 4]);

impl Packed {
    /// Loads the words one by one: a load of two words stalls until the stores of both are complete.
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

/// Notices in order of arrival. Unlike in `VecDeque`, all calls are inlined.
#[derive(Default)]
pub(super) struct Notices {
    /// The length is a power of two, or 0.
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
    pub(crate) fn pop(&mut self) -> Option<PortNotice> {
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

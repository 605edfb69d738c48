//! A node of the network with a channel and memory, and its links to other nodes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use unipgas_core::op::{AtomicRequest, Completion, GetRequest, Notice, PutRequest, UnsignaledPut};
use unipgas_core::region::Memory;
use unipgas_core::registry::Opening;
use unipgas_core::streams::StreamTransport;
use unipgas_core::transport::{Channel, Life, Peer, Transport};
use unipgas_core::{
    AtomicOp, AtomicType, Deadline, Flags, Local, Outcome, Remote, RemoteRegion, Result, Rights,
};
use unipgas_verbs::Verbs;

use crate::device;
use crate::process::{Other, OtherProcesses, ProcessPipe};

/// Bytes of a node's memory.
pub const LEN: usize = 1 << 16;

pub(crate) struct Node {
    pub channel: Box<dyn Channel>,
    pub memory: Box<dyn Memory>,
    pub transport: StreamTransport<Verbs>,
}

/// Another process, and its memory.
pub(crate) struct PeerLink {
    pub peer: Arc<dyn Peer>,
    pub region: RemoteRegion,
}

pub fn open() -> StreamTransport<Verbs> {
    device::load();
    Verbs::from_env(&Opening::on_one_host(2)).unwrap()
}

impl Node {
    pub fn open() -> Node {
        Node::with(Rights::FULL)
    }

    /// A node with memory that peers access with these rights.
    pub fn with(rights: Rights) -> Node {
        let transport = open();
        Node {
            channel: transport.open_channel().unwrap(),
            memory: transport.allocate(LEN, rights).unwrap(),
            transport,
        }
    }

    /// The name by which another process finds the node and its memory.
    pub fn name(&self) -> Vec<u8> {
        let mut name = self.memory.key();
        name.extend(self.transport.address());
        name
    }

    /// Connects to the node with this name. Errors: as `Transport::connect` and `Peer::import`.
    pub fn try_find(&self, name: &[u8]) -> Result<PeerLink> {
        let (key, address) = name.split_at(8);
        let peer = self.transport.connect(address)?;
        let region = peer.import(key, Deadline::Never)?;
        Ok(PeerLink { peer, region })
    }

    pub fn find(&self, name: &[u8]) -> PeerLink {
        self.try_find(name).unwrap()
    }

    pub fn know(&self, other: &Node) -> PeerLink {
        self.find(&other.name())
    }
    /// Starts another process, which joins.
    pub fn meet(&self, others: &OtherProcesses) -> (PeerLink, Other) {
        let mut other = others.begin(&[]);
        let link = self.find(&other.wire.hear());
        other.wire.say(&self.name());
        (link, other)
    }

    /// A node in a process that [`meet`](Node::meet) has started, and a link to the first node.
    pub fn join(wire: &mut ProcessPipe) -> (Node, PeerLink) {
        let node = Node::open();
        wire.say(&node.name());
        let link = node.find(&wire.hear());
        (node, link)
    }

    /// An address in its memory, for operations of this node.
    pub fn local(&self, offset: usize) -> Local {
        Local {
            ptr: self.memory.base().wrapping_add(offset),
            desc: self.memory.desc(),
        }
    }

    /// A word of 8 bytes of its memory.
    pub fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset + 8 <= LEN && offset.is_multiple_of(8));
        // SAFETY:
        // - the word is within the memory and aligned; only atomic operations and the device access it.
        unsafe { AtomicU64::from_ptr(self.memory.base().wrapping_add(offset).cast()) }
    }

    /// The value of a notice.
    pub fn notice(&self, offset: usize) -> u32 {
        assert!(offset + 4 <= LEN && offset.is_multiple_of(4));
        // SAFETY:
        // - as for `word`.
        let word = unsafe { AtomicU32::from_ptr(self.memory.base().wrapping_add(offset).cast()) };
        word.load(Ordering::Acquire)
    }

    /// Waits until the notice has at least this value.
    pub fn await_notice(&self, offset: usize, value: u32) {
        until(&self.transport, || self.notice(offset) >= value);
    }

    /// Takes the completions.
    pub fn ends(&self) -> Vec<Completion> {
        let mut ends = Vec::new();
        self.channel.poll(&mut |end| ends.push(end));
        ends
    }

    /// Waits until all posted operations have ended, and returns the failed ones.
    pub fn settle(&self) -> Vec<Completion> {
        let mut failed = Vec::new();
        while self.channel.pending() > 0 || self.channel.quick_pending() > 0 {
            self.channel.poll(&mut |end| {
                if end.result.is_err() {
                    failed.push(end);
                }
            });
            std::thread::yield_now();
        }
        failed
    }

    /// Writes from this node's memory to the memory of the peer.
    pub fn put(
        &self,
        to: &PeerLink,
        from: usize,
        at: usize,
        len: usize,
        flags: Flags,
    ) -> Result<Outcome> {
        assert!(from + len <= LEN);
        // SAFETY:
        // - the range is within the memory, which exists until all operations have ended.
        unsafe {
            self.channel.put(
                &PutRequest::new(self.local(from), remote(to, at), len),
                flags,
                1,
            )
        }
    }

    /// Reads from the memory of the peer to this node's memory.
    pub fn get(&self, from: &PeerLink, at: usize, into: usize, len: usize) -> Result<Outcome> {
        assert!(into + len <= LEN);
        // SAFETY:
        // - as for `put`.
        unsafe {
            let (into, from) = (self.local(into), remote(from, at));
            self.channel
                .get(&GetRequest::new(into, from, len), Flags::empty(), 1)
        }
    }

    /// Adds to a word of 8 bytes. The old value is stored in this node's memory.
    pub fn add(&self, to: &PeerLink, at: usize, into: usize, value: u64) -> Result<Outcome> {
        let local = self.local(into);
        let request = AtomicRequest {
            op: AtomicOp::Sum,
            ty: AtomicType::U64,
            count: 1,
            operand: (&raw const value).cast(),
            compare: std::ptr::null(),
            result: local.ptr,
        };
        // SAFETY:
        // - the operand is read within the call; for the result, as for `put`.
        unsafe {
            self.channel
                .atomic(remote(to, at), &request, local.desc, Flags::empty(), 1)
        }
    }

    /// Writes 8 bytes and a notice.
    pub fn tell(
        &self,
        to: &PeerLink,
        at: usize,
        slot: usize,
        value: u32,
        flags: Flags,
    ) -> Result<Outcome> {
        let bytes = u64::from(value).to_ne_bytes();
        let src = Local::unregistered(bytes.as_ptr());
        let notice = Notice {
            slot: remote(to, slot),
            value,
        };
        let flags = flags | Flags::INLINE;
        // SAFETY:
        // - the bytes are read within the call.
        unsafe {
            self.channel.put(
                &PutRequest::new(src, remote(to, at), 8).with(notice),
                flags,
                7,
            )
        }
    }

    /// As [`tell`](Node::tell), by `put_unsignaled`. False: there is no room now.
    pub fn tell_quickly(&self, to: &PeerLink, at: usize, slot: usize, value: u32) -> bool {
        let bytes = u64::from(value).to_ne_bytes();
        let notice = Notice {
            slot: remote(to, slot),
            value,
        };
        // SAFETY:
        // - the bytes are valid, and are read within the call.
        unsafe {
            self.channel.put_unsignaled(&UnsignaledPut {
                src: bytes.as_ptr(),
                len: 8,
                dst: remote(to, at),
                notice: Some(notice),
            })
        }
    }

    /// Repeats the operation while there is no room for it, and returns its result.
    pub fn insist(&self, mut post: impl FnMut() -> Result<Outcome>) -> Result<Outcome> {
        loop {
            match post() {
                Err(unipgas_core::Error::NotNow) => {
                    self.ends();
                    std::thread::yield_now();
                }
                other => return other,
            }
        }
    }

    /// Checks that a put arrives and that a get reads it back. No other operation may write there.
    pub fn works(&self, with: &PeerLink) {
        let (from, at, back) = (0x8000, 0x8008, 0x8010);
        let next = self.word(from).load(Ordering::Relaxed) + 1;
        self.word(from).store(next, Ordering::Relaxed);
        self.put(with, from, at, 8, Flags::empty()).unwrap();
        assert_eq!(self.settle(), []);
        self.get(with, at, back, 8).unwrap();
        assert_eq!(self.settle(), []);
        assert_eq!(self.word(back).load(Ordering::Relaxed), next);
        assert_eq!(with.peer.life(), Life::Alive);
    }
}

pub fn remote(link: &PeerLink, offset: usize) -> Remote<'_> {
    link.region.at(offset)
}

/// Waits, and makes progress.
pub fn until(transport: &StreamTransport<Verbs>, mut done: impl FnMut() -> bool) {
    while !done() {
        transport.progress();
        std::thread::yield_now();
    }
}

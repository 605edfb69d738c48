//! The smallest backend: several "processes" in one process, usually one for each thread. Tests of the layers above [`transport`](crate::transport) use it,
//! since it starts nothing. It also shows how to write a backend.

mod gates;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock};

use crate::atomic::ElementLocks;
use crate::bell::Bell;
use crate::bundle::Tag;
use crate::circuit::GateNetwork;
use crate::mapped::MappedChannel;
use crate::op::{Flags, Outcome, Remote, ReplyBuffer};
use crate::region::{Memory, RemoteParts, RemoteRegion};
use crate::transport::{
    Capabilities, Channel, Handler, Life, Limits, Peer, Transport, check_message,
};
use crate::{Deadline, Error, Result, Rights, transport::no_user_memory};

use gates::LoopbackGates;

const PAGE: usize = 4096;

/// A network inside this process. The memory is freed when the network, and all objects made from it, are dropped.
#[derive(Default)]
pub struct LoopbackNet {
    nodes: Mutex<Vec<Weak<Node>>>,
    gates: Option<Arc<LoopbackGates>>,
}

impl LoopbackNet {
    /// A network with barrier gates.
    pub fn with_gates() -> Self {
        LoopbackNet {
            gates: Some(Arc::default()),
            ..LoopbackNet::default()
        }
    }
}

/// A process's place in the network.
struct Node {
    bell: Bell,
    locks: ElementLocks,
    gone: AtomicBool,
    regions: Mutex<Vec<Arc<Block>>>,
}

/// The memory of one region, kept while any object may reach it.
struct Block {
    base: *mut u8,
    len: usize,
    rights: Rights,
    owned: bool,
    /// 1 while registered.
    generation: AtomicU32,
    /// Takes messages while the region is registered.
    handler: RwLock<Option<Arc<dyn Handler>>>,
}

// SAFETY:
// - the memory behind `base` is meant to be shared. All accesses to it are atomics and raw copies.
unsafe impl Send for Block {}
// SAFETY:
// - as for Send. The other fields are atomics, a lock, or immutable.
unsafe impl Sync for Block {}

impl Drop for Block {
    fn drop(&mut self) {
        if self.owned {
            // SAFETY:
            // - allocated in `allocate` with this layout, as the engine refuses 0 bytes. Freed once.
            unsafe { std::alloc::dealloc(self.base, layout(self.len)) };
        }
    }
}

fn layout(len: usize) -> std::alloc::Layout {
    std::alloc::Layout::from_size_align(len.next_multiple_of(PAGE), PAGE)
        .expect("checked by allocate")
}

struct Registration {
    node: Arc<Node>,
    block: Arc<Block>,
    index: u32,
}

impl Memory for Registration {
    fn base(&self) -> *mut u8 {
        self.block.base
    }
    fn len(&self) -> usize {
        self.block.len
    }
    fn key(&self) -> Vec<u8> {
        self.index.to_le_bytes().to_vec()
    }
    fn handle_by(&self, handler: Arc<dyn Handler>) -> Result<()> {
        *self.block.handler.write() = Some(handler);
        Ok(())
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.block.generation.store(0, Ordering::SeqCst);
        let handler = self.block.handler.write().take();
        drop(handler);
        let _ = &self.node;
    }
}

/// The transport of one process.
pub struct Loopback {
    net: Arc<LoopbackNet>,
    node: Arc<Node>,
    index: u32,
}

impl Loopback {
    /// Joins `net`.
    pub fn join(net: &Arc<LoopbackNet>) -> Self {
        let node = Arc::new(Node {
            bell: Bell::default(),
            locks: ElementLocks::new(),
            gone: AtomicBool::new(false),
            regions: Mutex::new(Vec::new()),
        });
        let mut nodes = net.nodes.lock();
        nodes.push(Arc::downgrade(&node));
        Loopback {
            net: net.clone(),
            index: nodes.len() as u32 - 1,
            node,
        }
    }

    fn enrol(&self, block: Block) -> Box<dyn Memory> {
        let block = Arc::new(block);
        let mut regions = self.node.regions.lock();
        regions.push(block.clone());
        Box::new(Registration {
            node: self.node.clone(),
            block,
            index: regions.len() as u32 - 1,
        })
    }
}

impl Transport for Loopback {
    fn name(&self) -> &'static str {
        "loopback"
    }

    fn tag(&self) -> Tag {
        Tag::LOOPBACK
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            asynchronous: false,
            registers_user_memory: true,
            maps: true,
            direct: true,
            device_atomics_only: false,
            limits: Limits::NONE,
        }
    }

    fn address(&self) -> Vec<u8> {
        self.index.to_le_bytes().to_vec()
    }

    fn connect_within(&self, address: &[u8], _: Deadline) -> Result<Arc<dyn Peer>> {
        let index = parse(address)?;
        let nodes = self.net.nodes.lock();
        let node = nodes
            .get(index as usize)
            .ok_or_else(|| Error::Unreachable(format!("no loopback process {index}")))?
            .upgrade()
            .ok_or(Error::PeerDead)?;
        Ok(Arc::new(Neighbour { node, index }))
    }

    fn allocate(&self, len: usize, rights: Rights) -> Result<Box<dyn Memory>> {
        if len > isize::MAX as usize / 2 {
            return Err(Error::Exhausted(format!("memory for {len} bytes")));
        }
        // SAFETY:
        // - the layout is not empty: the length is at least 1, and is rounded up to a page.
        let base = unsafe { std::alloc::alloc_zeroed(layout(len.max(1))) };
        if base.is_null() {
            return Err(Error::Exhausted(format!("memory for {len} bytes")));
        }
        Ok(self.enrol(Block {
            base,
            len,
            rights,
            owned: true,
            generation: AtomicU32::new(1),
            handler: RwLock::default(),
        }))
    }

    unsafe fn register(
        &self,
        base: *mut u8,
        len: usize,
        rights: Rights,
    ) -> Result<Box<dyn Memory>> {
        if rights.contains(Rights::BY_ADDRESS) {
            return Err(no_user_memory("loopback"));
        }
        Ok(self.enrol(Block {
            base,
            len,
            rights,
            owned: false,
            generation: AtomicU32::new(1),
            handler: RwLock::default(),
        }))
    }

    fn open_channel(&self) -> Result<Box<dyn Channel>> {
        Ok(Box::new(Endpoint {
            net: self.net.clone(),
        }))
    }

    fn bell(&self) -> &Bell {
        &self.node.bell
    }

    fn locks(&self) -> &ElementLocks {
        &self.node.locks
    }

    fn gates(&self) -> Option<&dyn GateNetwork> {
        self.net
            .gates
            .as_ref()
            .map(|gates| gates as &dyn GateNetwork)
    }

    fn leave(&self) {
        self.node.gone.store(true, Ordering::Release);
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        self.leave();
    }
}

/// An issue context. All operations but messages go through mapped memory.
struct Endpoint {
    net: Arc<LoopbackNet>,
}

impl Endpoint {
    fn block(&self, region: &RemoteRegion) -> Option<Arc<Block>> {
        let parts = region.parts();
        let node = self.net.nodes.lock().get(parts.peer as usize)?.upgrade()?;
        let regions = node.regions.lock();
        regions.get(parts.detail[0] as usize).cloned()
    }
}

impl Channel for Endpoint {
    fn below(&self) -> Result<&dyn Channel> {
        Ok(&MappedChannel)
    }

    /// Runs the handler in the sender's thread.
    fn active_message(
        &self,
        to: Remote<'_>,
        message: &[u8],
        reply: ReplyBuffer,
        _flags: Flags,
        _context: u64,
    ) -> Result<Outcome> {
        check_message(to, message)?;
        let block = self.block(to.region).ok_or(Error::PeerDead)?;
        let handler = block.handler.read();
        let handler = handler.as_ref().ok_or(Error::Unsupported)?;
        let mut answer = Vec::new();
        handler
            .handle(to.offset, message, &mut answer)
            .map_err(Error::Refused)?;
        reply.take(&answer);
        Ok(Outcome::Complete)
    }
}

/// Another process, seen as a peer.
struct Neighbour {
    node: Arc<Node>,
    index: u32,
}

impl Peer for Neighbour {
    fn import(&self, key: &[u8], _: Deadline) -> Result<RemoteRegion> {
        let regions = self.node.regions.lock();
        let index = parse(key)?;
        let block = regions.get(index as usize).ok_or(Error::StaleRegion)?;
        if block.generation.load(Ordering::Acquire) != 1 {
            return Err(Error::StaleRegion);
        }
        let parts = RemoteParts {
            base: block.base,
            len: block.len,
            generation: &block.generation,
            expected: 1,
            rights: block.rights,
            bell: &self.node.bell,
            locks: &self.node.locks,
            peer: self.index,
            detail: [u64::from(index), 0, 0, 0],
        };
        let alive: Arc<(Arc<Block>, Arc<Node>)> = Arc::new((block.clone(), self.node.clone()));
        // SAFETY:
        // - `alive` keeps the block (memory and generation) and the node (bell, locks).
        Ok(unsafe { RemoteRegion::new(parts, alive) })
    }

    fn life(&self) -> Life {
        if self.node.gone.load(Ordering::Acquire) {
            Life::Left
        } else {
            Life::Alive
        }
    }
}

fn parse(bytes: &[u8]) -> Result<u32> {
    bytes
        .try_into()
        .map(u32::from_le_bytes)
        .map_err(|_| Error::Unreachable("not a loopback address or key".into()))
}

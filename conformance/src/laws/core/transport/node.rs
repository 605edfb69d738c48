//! A process with the objects of a backend. It accounts for every operation.

use std::cell::Cell;
use std::sync::Arc;

use unipgas_core::loopback::Loopback;
use unipgas_core::op::{GetRequest, PutRequest};
use unipgas_core::region::Memory as Registration;
use unipgas_core::registry::{Opening, open_from_env};
use unipgas_core::transport::{Channel, Limits, Peer, Transport};
use unipgas_core::{
    AtomicOp, AtomicRequest, AtomicType, Deadline, Error, Flags, Local, Notice, Outcome, Remote,
    RemoteRegion, Result, Rights,
};

use super::super::rank::{Says, remote, update};
use crate::kit::Memory;
use crate::law::{Ctx, Verdict};
use crate::stall::Looks;

/// Drop order: registrations go before the transport.
pub(super) struct Node<'a> {
    pub(super) ctx: &'a Ctx,
    pub(super) channel: Box<dyn Channel>,
    /// Indexed by rank; `None` for this rank.
    pub(super) peers: Vec<Option<Arc<dyn Peer>>>,
    /// The imported data of each rank.
    pub(super) data: Vec<Option<RemoteRegion>>,
    /// Memory that peers reach.
    pub(super) memory: Box<dyn Registration>,
    /// Source and destination of this rank's operations.
    pub(super) scratch: Box<dyn Registration>,
    /// Registered room for results of atomic operations.
    results: Box<dyn Registration>,
    pub(super) transport: Arc<dyn Transport>,
    context: Cell<u64>,
    /// The error of an operation that completed before its drain.
    failed: Cell<Option<Error>>,
}

/// Runs the body on connected processes. Each has `len` bytes of zeros that all may reach. No process leaves before all have finished.
pub(super) fn on_nodes(ctx: &Ctx, len: usize, body: impl FnOnce(&Node<'_>) -> Verdict) -> Verdict {
    let node = Node::open(ctx, len)?;
    body(&node)?;
    ctx.sync();
    node.transport.leave();
    Ok(())
}

impl<'a> Node<'a> {
    pub(super) fn open(ctx: &'a Ctx, len: usize) -> std::result::Result<Node<'a>, String> {
        let transport: Arc<dyn Transport> = match ctx.place.net() {
            Some(net) => Arc::new(Loopback::join(net)),
            None => {
                let opening = Opening::on_one_host(ctx.size as usize);
                open_from_env(&opening)
                    .says("opening the backend")?
                    .remove(0)
            }
        };
        ctx.tell(&transport.address());
        ctx.sync();
        let connect = |rank: u32| {
            let address = ctx.told(rank).unwrap_or_default();
            let connect = || transport.connect(&address).says("connect");
            (rank != ctx.rank).then(connect).transpose()
        };
        let peers = (0..ctx.size)
            .map(connect)
            .collect::<std::result::Result<_, _>>()?;
        ctx.sync();
        let mut node = Node {
            ctx,
            channel: transport.open_channel().says("open_channel")?,
            peers,
            data: Vec::new(),
            memory: transport
                .allocate(len, Rights::FULL)
                .says("allocate the data")?,
            scratch: transport
                .allocate(len.max(4096), Rights::FULL)
                .says("allocate the source")?,
            results: transport
                .allocate(4096, Rights::empty())
                .says("allocate room for results")?,
            transport,
            context: Cell::new(1),
            failed: Cell::new(None),
        };
        node.data = node.offer(node.memory.as_ref())?;
        Ok(node)
    }

    /// Offers memory to all ranks and imports theirs. All ranks call this together.
    pub(super) fn offer(
        &self,
        memory: &dyn Registration,
    ) -> std::result::Result<Vec<Option<RemoteRegion>>, String> {
        self.ctx.tell(&memory.key());
        self.ctx.sync();
        let import = |(rank, peer): (u32, &Option<Arc<dyn Peer>>)| {
            let import = |peer: &Arc<dyn Peer>| {
                let key = self.ctx.told(rank).unwrap_or_default();
                peer.import(&key, Deadline::Never).says("import")
            };
            peer.as_ref().map(import).transpose()
        };
        let regions = (0..).zip(&self.peers).map(import).collect();
        self.ctx.sync();
        regions
    }

    /// The next rank.
    pub(super) fn right(&self) -> usize {
        ((self.ctx.rank + 1) % self.ctx.size) as usize
    }

    /// The previous rank.
    pub(super) fn left(&self) -> usize {
        ((self.ctx.rank + self.ctx.size - 1) % self.ctx.size) as usize
    }

    /// An offset in the data of another rank.
    pub(super) fn at(&self, rank: usize, offset: usize) -> Remote<'_> {
        let region = self.data[rank].as_ref().expect("another rank");
        remote(region, offset)
    }

    /// This rank's data, as peers write them.
    pub(super) fn own(&self) -> Memory {
        view(self.memory.as_ref())
    }

    /// Bytes of the source.
    pub(super) fn source(&self) -> Memory {
        view(self.scratch.as_ref())
    }

    /// An offset in the source.
    pub(super) fn local(&self, offset: usize) -> Local {
        Local {
            ptr: self.source().at(offset),
            desc: self.scratch.desc(),
        }
    }

    /// The network puts with a notice to the next rank. Otherwise such a put is refused.
    pub(super) fn notifies(&self) -> bool {
        let slot = self.at(self.right(), 0);
        self.channel.notifies(&Notice { slot, value: 1 })
    }

    /// A fresh context.
    fn next_context(&self) -> u64 {
        self.context.replace(self.context.get() + 1)
    }

    /// Carries out an operation with no other one in progress. The inner result is the operation's, the outer error one of accounting.
    pub(super) fn end(
        &self,
        post: impl FnOnce(&dyn Channel, u64) -> Result<Outcome>,
    ) -> std::result::Result<Result<()>, String> {
        let channel = self.channel.as_ref();
        let (context, mut ended) = (self.next_context(), None);
        crate::ensure_eq!(channel.pending(), 0, "operations pending before one");
        match post(channel, context) {
            Err(error) => ended = Some(Err(error)),
            Ok(Outcome::Complete) => ended = Some(Ok(())),
            Ok(Outcome::Pending) => {
                crate::ensure!(
                    self.transport.capabilities().asynchronous,
                    "an operation is pending, and the backend is not asynchronous"
                );
                crate::ensure_eq!(channel.pending(), 1, "operations pending during one");
                let mut looks = Looks::for_the("the end of an operation");
                let mut strange = None;
                while ended.is_none() && strange.is_none() {
                    channel.poll(&mut |completion| {
                        if completion.context == context && ended.is_none() {
                            ended = Some(completion.result);
                        } else {
                            strange = Some(completion);
                        }
                    });
                    looks.again();
                }
                crate::ensure!(strange.is_none(), "a completion of nothing: {strange:?}");
            }
        }
        crate::ensure_eq!(channel.pending(), 0, "operations pending after one");
        let mut more = None;
        channel.poll(&mut |completion| more = Some(completion));
        crate::ensure!(more.is_none(), "a second completion: {more:?}");
        ended.ok_or_else(|| "no end".into())
    }

    /// As [`Node::end`], for an operation that must succeed.
    pub(super) fn done(
        &self,
        what: &str,
        post: impl FnOnce(&dyn Channel, u64) -> Result<Outcome>,
    ) -> Verdict {
        self.end(post)?.says(what)
    }

    /// Begins an operation, to be followed by [`Node::drain`].
    pub(super) fn begin(
        &self,
        what: &str,
        post: impl Fn(&dyn Channel, u64) -> Result<Outcome>,
    ) -> Verdict {
        let context = self.next_context();
        let mut looks = Looks::for_the("a place in the channel");
        loop {
            match post(self.channel.as_ref(), context) {
                Err(Error::NotNow) => self.poll(),
                outcome => return outcome.says(what).map(drop),
            }
            looks.again();
        }
    }

    /// Takes completions and keeps an error for the next [`Node::drain`].
    fn poll(&self) {
        self.channel.poll(&mut |completion| {
            if let Err(error) = completion.result {
                self.failed.set(Some(error));
            }
        });
    }

    /// The declared limits of the backend.
    pub(super) fn limits(&self) -> Limits {
        self.transport.capabilities().limits
    }

    /// Waits for all operations, which must succeed. The completions must equal the pending operations in number.
    pub(super) fn drain(&self) -> Verdict {
        let mut looks = Looks::for_the("the end of all operations");
        let (mut left, mut failed) = (self.channel.pending(), self.failed.take());
        while left > 0 {
            self.channel.poll(&mut |completion| {
                left = left.wrapping_sub(1);
                if let Err(error) = completion.result {
                    failed = Some(error);
                }
            });
            crate::ensure_eq!(self.channel.pending(), left, "operations left");
            looks.again();
        }
        failed.map_or(Ok(()), |error| Err(format!("an operation failed: {error}")))
    }

    /// Puts `len` bytes of the source at `from`.
    pub(super) fn put(&self, from: usize, dst: Remote<'_>, len: usize, flags: Flags) -> Verdict {
        self.try_put(from, dst, len, flags)?.says("put")
    }

    /// As [`Node::put`], for a put that may be refused.
    pub(super) fn try_put(
        &self,
        from: usize,
        dst: Remote<'_>,
        len: usize,
        flags: Flags,
    ) -> std::result::Result<Result<()>, String> {
        let put = PutRequest::new(self.local(from), dst, len);
        // SAFETY:
        // - in bounds of the source, which outlives operations, or refused; the call waits for completion.
        self.end(|channel, context| unsafe { channel.put(&put, flags, context) })
    }

    /// Begins a put of `len` bytes of the source at `from`, which change after a drain, or at once if the put is an inline one.
    pub(super) fn begin_put(
        &self,
        from: usize,
        dst: Remote<'_>,
        len: usize,
        flags: Flags,
    ) -> Verdict {
        let put = PutRequest::new(self.local(from), dst, len);
        // SAFETY:
        // - in bounds of the source, which outlives operations.
        self.begin("put", |channel, context| unsafe {
            channel.put(&put, flags, context)
        })
    }

    /// Gets `len` bytes.
    pub(super) fn get(&self, src: Remote<'_>, len: usize) -> std::result::Result<Vec<u8>, String> {
        let get = GetRequest::new(self.local(0), src, len);
        // SAFETY:
        // - as for `put`.
        self.done("get", |channel, context| unsafe {
            channel.get(&get, Flags::empty(), context)
        })?;
        Ok(self.source().load(0, len))
    }

    /// Sets a word.
    pub(super) fn notify(&self, slot: Remote<'_>, value: u32, flags: Flags) -> Verdict {
        self.done("notify", |channel, context| {
            channel.notify(Notice { slot, value }, flags, context)
        })
    }

    /// Carries out an atomic operation through the registered room for results.
    pub(super) fn atomic(
        &self,
        dst: Remote<'_>,
        request: &AtomicRequest,
    ) -> std::result::Result<Result<()>, String> {
        let len = request.ty.size() * request.count;
        let (mut registered, users) = (*request, request.result);
        if !users.is_null() {
            let room = view(self.results.as_ref()).at(0);
            // SAFETY:
            // - results of laws are a few elements and fit.
            unsafe { users.copy_to_nonoverlapping(room, len) };
            registered.result = room;
        }
        // SAFETY:
        // - laws pass pointers to `count` elements, which outlive the operation.
        let ended = self.end(|channel, context| unsafe {
            let (desc, none) = (self.results.desc(), Flags::empty());
            channel.atomic(dst, &registered, desc, none, context)
        })?;
        if !users.is_null() {
            // SAFETY:
            // - as above; the operation is complete.
            unsafe { registered.result.copy_to_nonoverlapping(users, len) };
        }
        Ok(ended)
    }

    /// Adds to a u64 and returns its value before.
    pub(super) fn add(&self, dst: Remote<'_>, value: u64) -> std::result::Result<u64, String> {
        let mut before = 0u64;
        let request = AtomicRequest {
            result: (&raw mut before).cast(),
            ..update(AtomicOp::Sum, AtomicType::U64, 1, &raw const value)
        };
        self.atomic(dst, &request)?.says("fetch-add")?;
        // SAFETY:
        // - a plain local; the operation has written it through a pointer.
        Ok(unsafe { (&raw const before).read_volatile() })
    }
}

/// Registered memory as peers may change it.
pub(super) fn view(memory: &dyn Registration) -> Memory {
    Memory {
        base: memory.base(),
        len: memory.len(),
    }
}

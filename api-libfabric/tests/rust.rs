//! The objects of the Rust interface, over the loopback and over chaos, with several simulated processes in one.

use std::sync::Arc;
use std::time::Duration;

use unipgas_chaos::{Chaos, ChaosConfig};
use unipgas_core::loopback::{Loopback, LoopbackNet};
use unipgas_core::transport::Transport;
use unipgas_core::{Deadline, Engine};
use unipgas_libfabric::atomics::{AtomicOperands, Family};
use unipgas_libfabric::completion::Wait;
use unipgas_libfabric::endpoint::PostOptions;
use unipgas_libfabric::messages::MatchTag;
use unipgas_libfabric::operation::CounterEvent;
use unipgas_libfabric::rma::{LocalRange, RemotePart, RmaKind};
use unipgas_libfabric::sys::*;
use unipgas_libfabric::{
    AddressVector, Called, CompletionQueue, Counter, CqEntry, Domain, DomainOptions, Endpoint,
    EndpointOptions, Errno, MemoryRegion,
};

struct Node {
    domain: Arc<Domain>,
    av: Arc<AddressVector>,
    queue: Arc<CompletionQueue>,
    remote: Arc<Counter>,
    endpoint: Arc<Endpoint>,
}

fn late() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

impl Node {
    fn new(net: &Arc<LoopbackNet>, chaos: Option<u64>, options: DomainOptions) -> Node {
        let transport: Arc<dyn Transport> = Arc::new(Loopback::join(net));
        let transport = match chaos {
            Some(seed) => {
                Arc::new(Chaos::wrap(transport, ChaosConfig::seeded(seed))) as Arc<dyn Transport>
            }
            None => transport,
        };
        let engine = Arc::new(Engine::new(vec![transport]).unwrap());
        let domain = Domain::on(engine, options).unwrap();
        let av = Arc::new(AddressVector::new(&domain));
        let queue = CompletionQueue::new(&domain, 0, Wait::Call).unwrap();
        let remote = Counter::new(&domain);
        let options = EndpointOptions {
            caps: FI_RMA | FI_ATOMIC | FI_MSG | FI_TAGGED | FI_SOURCE | FI_RMA_EVENT,
            order: FI_ORDER_STRICT,
            ..EndpointOptions::default()
        };
        let endpoint = Endpoint::new(&domain, options).unwrap();
        assert_eq!(endpoint.enable(), Err(Errno::NOAV));
        endpoint.bind_av(&av).unwrap();
        assert_eq!(endpoint.enable(), Err(Errno::NOCQ));
        endpoint.bind_queue(&queue, true, true, false).unwrap();
        assert_eq!(
            endpoint.bind_queue(&queue, true, false, false),
            Err(Errno::INVAL)
        );
        endpoint
            .bind_counter(&remote, CounterEvent::RemoteWrite)
            .unwrap();
        endpoint.enable().unwrap();
        Node {
            domain,
            av,
            queue,
            remote,
            endpoint,
        }
    }

    fn knows(&self, other: &Node) -> u64 {
        self.av
            .insert(Called::from_bytes(other.endpoint.called().as_bytes()).unwrap())
    }

    fn next(&self) -> CqEntry {
        let mut entry = None;
        let read = self.queue.wait(1, 1, late(), |next| entry = Some(*next));
        assert_eq!(read, Ok(1), "{:?}", self.queue.read_failure());
        entry.expect("just read")
    }

    fn failure(&self) -> Errno {
        assert_eq!(self.queue.wait(1, 1, late(), |_| ()), Err(Errno::AVAIL));
        self.queue.read_failure().unwrap().errno
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.endpoint.detach();
    }
}

fn part<T>(values: &mut [T]) -> LocalRange {
    LocalRange {
        ptr: values.as_mut_ptr().cast(),
        len: size_of_val(values),
    }
}

fn with_context(context: usize) -> PostOptions {
    PostOptions {
        context,
        ..PostOptions::default()
    }
}

fn on_each(what: impl Fn(Node, Node)) {
    let kinds = [
        DomainOptions::default(),
        DomainOptions {
            virtual_addresses: true,
            own_keys: true,
            ..DomainOptions::default()
        },
        DomainOptions {
            automatic: true,
            ..DomainOptions::default()
        },
    ];
    for options in kinds {
        for chaos in [None, Some(1), Some(2)] {
            let net = Arc::new(LoopbackNet::default());
            let node = || Node::new(&net, chaos, options);
            what(node(), node());
        }
    }
}

#[test]
fn remote_memory() {
    on_each(|mine, yours| {
        let to = mine.knows(&yours);
        yours.knows(&mine);
        let mut memory = vec![0u64; 512];
        let base = memory.as_mut_ptr().cast();
        let access = FI_REMOTE_READ | FI_REMOTE_WRITE;
        // SAFETY:
        // - the vector outlives the registration, and its buffer does not move.
        let region =
            unsafe { MemoryRegion::register(&yours.domain, base, 4096, access, 5) }.unwrap();
        let start = if yours.domain.options().virtual_addresses {
            base as u64
        } else {
            0
        };
        let at = |offset: u64, len| RemotePart {
            address: start + offset,
            len,
            key: region.key(),
        };
        let mut values: Vec<u64> = (0..64).collect();
        let posting = PostOptions {
            data: Some(77),
            ..with_context(1)
        };
        let mut fetched = [0u64; 64];
        let mut before = [0u64; 2];
        let mut one = [1u64; 2];
        let elements = |values: &mut [u64]| {
            [LocalRange {
                len: values.len(),
                ..part(values)
            }]
        };
        let (operand, result) = (elements(&mut one), elements(&mut before));
        let transfer = |direction, local, posting: &PostOptions| {
            // SAFETY:
            // - the buffers stay as they are until the operations have ended.
            unsafe { (mine.endpoint).transfer(direction, &[local], &[at(1024, 512)], to, posting) }
                .unwrap();
            assert_eq!(mine.next().context, posting.context);
        };
        let add = |family, result, remote, context| {
            let operands = AtomicOperands {
                operand: &operand,
                compare: &[],
                result,
                remote: &[remote],
            };
            let (sum, posting) = ((FI_UINT64, FI_SUM), with_context(context));
            // SAFETY:
            // - as above.
            unsafe { (mine.endpoint).atomic(family, sum, &operands, to, &posting) }.unwrap();
        };
        transfer(RmaKind::Write, part(&mut values), &posting);
        transfer(RmaKind::Read, part(&mut fetched), &with_context(2));
        add(Family::Fetch, &result[..], at(1024 + 8, 2), 3);
        assert_eq!(mine.next().context, 3);
        add(Family::Base, &[], at(1024 + 8, 2), 4);
        assert_eq!(mine.next().context, 4);
        add(Family::Base, &[], at(4096 - 8, 2), 5);
        assert_eq!(mine.failure(), Errno::ACCES);
        assert_eq!(values, fetched);
        assert_eq!(before, [1, 2]);
        // The counter counts the write with data and the atomic write. Fetches count as reads.
        yours.remote.wait(2, late()).unwrap();
        let notice = yours.next();
        assert_eq!((notice.data, notice.len), (77, 512));
        assert_eq!(notice.flags, FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA);
        drop(region);
        assert_eq!(memory[128..132], [0, 3, 4, 3]);
    });
}

#[test]
fn messages_to_and_fro() {
    on_each(|mine, yours| {
        let (to, back) = (mine.knows(&yours), yours.knows(&mine));
        let tag = MatchTag {
            tag: Some(9),
            ignore: 0,
        };
        for len in [0usize, 5, 3000, 100_000] {
            let mut out: Vec<u8> = (0..len).map(|at| at as u8).collect();
            let mut here = vec![0u8; len + 1];
            let receive = |node: &Node, tag, place, from, context| {
                // SAFETY:
                // - the buffers stay as they are until the operations have ended.
                unsafe { (node.endpoint).receive(tag, &[place], from, &with_context(context)) }
                    .unwrap();
            };
            let send = |node: &Node, tag, place, to, context| {
                // SAFETY:
                // - as above.
                unsafe { (node.endpoint).send(tag, &[place], to, &with_context(context)) }.unwrap();
            };
            receive(&yours, tag, part(&mut here), FI_ADDR_UNSPEC, 6);
            send(&mine, tag, part(&mut out), to, 7);
            let got = yours.next();
            assert_eq!(
                (got.context, got.len, got.tag, got.source),
                (6, len, 9, back)
            );
            assert_eq!(mine.next().context, 7);
            assert_eq!(here[..len], out[..]);
            receive(&mine, MatchTag::NONE, part(&mut out), to, 8);
            send(&yours, MatchTag::NONE, part(&mut here[..len]), back, 9);
            assert_eq!((mine.next().context, yours.next().context), (8, 9));
        }
        assert_eq!(mine.endpoint.cancel(99), Err(Errno::NOENT));
    });
}

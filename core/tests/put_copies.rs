//! Puts of a port on a network: the network takes the bytes from registered memory, and the port copies at most a word of each put.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use unipgas_core::bell::Bell;
use unipgas_core::bundle::Tag;
use unipgas_core::loopback::{Loopback, LoopbackNet};
use unipgas_core::op::{Flags, Outcome, PutRequest};
use unipgas_core::port::{
    Command, CommandFlags, CommandKind, Parts, Port, PortDirectory, PortNetwork, PortOptions,
};
use unipgas_core::region::Memory;
use unipgas_core::rendezvous::{JobName, Layout, Rendezvous};
use unipgas_core::transport::{Capabilities, Channel, Peer, Transport};
use unipgas_core::{Deadline, Engine, Result, Rights};

/// The loopback as a network: operations may end later. It counts the bytes that it takes within a call.
struct Counting {
    inner: Loopback,
    taken: Arc<AtomicUsize>,
}

impl Transport for Counting {
    fn name(&self) -> &'static str {
        "counting"
    }

    fn tag(&self) -> Tag {
        self.inner.tag()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            asynchronous: true,
            direct: false,
            ..self.inner.capabilities()
        }
    }

    fn address(&self) -> Vec<u8> {
        self.inner.address()
    }

    fn connect_within(&self, address: &[u8], deadline: Deadline) -> Result<Arc<dyn Peer>> {
        self.inner.connect_within(address, deadline)
    }

    fn allocate(&self, len: usize, rights: Rights) -> Result<Box<dyn Memory>> {
        self.inner.allocate(len, rights)
    }

    unsafe fn register(
        &self,
        base: *mut u8,
        len: usize,
        rights: Rights,
    ) -> Result<Box<dyn Memory>> {
        // SAFETY:
        // - contract of this call.
        unsafe { self.inner.register(base, len, rights) }
    }

    fn open_channel(&self) -> Result<Box<dyn Channel>> {
        Ok(Box::new(CountingChannel {
            inner: self.inner.open_channel()?,
            taken: self.taken.clone(),
        }))
    }

    fn bell(&self) -> &Bell {
        self.inner.bell()
    }
    fn locks(&self) -> &unipgas_core::atomic::ElementLocks {
        self.inner.locks()
    }
}

struct CountingChannel {
    inner: Box<dyn Channel>,
    taken: Arc<AtomicUsize>,
}

impl Channel for CountingChannel {
    fn below(&self) -> Result<&dyn Channel> {
        Ok(&*self.inner)
    }

    unsafe fn put(&self, put: &PutRequest<'_>, flags: Flags, context: u64) -> Result<Outcome> {
        if flags.contains(Flags::INLINE) {
            self.taken.fetch_add(put.len, Ordering::Relaxed);
        }
        // SAFETY:
        // - contract of this call.
        unsafe { self.inner.put(put, flags, context) }
    }
}

/// A directory for the rendezvous file.
struct Directory(std::path::PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_word_of_each_put_is_copied_at_most() {
    const LEN: usize = 1 << 20;
    let name = format!("unipgas-put-copies-{}", std::process::id());
    let path = Directory(std::env::temp_dir().join(name));
    std::fs::create_dir(&path.0).unwrap();
    let taken = Arc::new(AtomicUsize::new(0));
    let transport = Counting {
        inner: Loopback::join(&Arc::new(LoopbackNet::default())),
        taken: taken.clone(),
    };
    let engine = Engine::new(vec![Arc::new(transport)]).unwrap();
    let layout = Layout {
        places: 64,
        places_per_group: 64,
        words_per_group: 1,
        properties: [0; 64],
    };
    let job = JobName::by_hand("put-copies");
    let rendezvous = Rendezvous::join_in(&path.0, &job, &layout).unwrap();
    let place = rendezvous.take_place(None).unwrap() as u16;
    let directory = Arc::new(PortDirectory::new(&engine).unwrap());
    let address = engine.address().unwrap();
    rendezvous.publish(&address, &directory.key()).unwrap();
    let network = Arc::new(PortNetwork::new(engine, rendezvous).unwrap());
    let options = PortOptions {
        id: 1,
        index: 0,
        session: false,
        shared: true,
        inbox: 1024,
    };
    let port = Port::open(&network, &directory, options).unwrap();
    let mut source: Vec<u8> = (0..LEN).map(|at| (at % 251) as u8).collect();
    let mut target = vec![0u8; LEN];
    // SAFETY:
    // - both stay as long as the port.
    let (from, to) = unsafe {
        (
            port.register(source.as_mut_ptr(), LEN, Rights::FULL)
                .unwrap(),
            port.register(target.as_mut_ptr(), LEN, Rights::FULL)
                .unwrap(),
        )
    };
    for ordered in [CommandFlags::empty(), CommandFlags::ORDERED] {
        for len in [1, 8, 100, 256, 5000, LEN] {
            taken.store(0, Ordering::Relaxed);
            let parts = Parts {
                kind: CommandKind::Put,
                rmw: None,
                flags: CommandFlags::COMPLETION | ordered,
                edata: 0,
                steps: 0,
                place,
                port: 0,
                owner: 0,
                len: len as u32,
            };
            let command = Command::new(parts, 1, to.0, [from.0, 0, 0, 0]);
            // SAFETY:
            // - the port was opened for several threads.
            let mut queues = unsafe { port.hold() };
            port.post(&mut queues, &command, 7).unwrap();
            let completed = std::iter::repeat_with(|| port.poll_completion(&mut queues))
                .find_map(|completed| completed)
                .unwrap();
            assert_eq!((completed.context, completed.fault), (7, None));
            let copied = taken.load(Ordering::Relaxed);
            assert!(copied <= 8, "{copied} of {len} bytes were copied");
        }
    }
    assert!(source == target);
    port.close();
}

//! Ports with memory that peers have corrupted.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::command::{Command, CommandFlags, CommandKind, Parts, Rmw};
use super::directory::{GATES, PortDirectory, entry};
use super::issue::{Port, PortOptions};
use super::keys::{RESERVED_KEYS, ShortKey};
use super::neighbour::PortNetwork;
use super::remote::PLAIN_LEN;
use super::trigger::{self, HEADER_LEN, TRIGGERED};
use crate::gate::{self, Gate, Payload};
use unipgas_base::cache::PAIR;
use unipgas_base::calls::Call;
use unipgas_base::fenced::{Fenced, Patch};
use unipgas_base::{Result, Rights};
use unipgas_engine::Engine;
use unipgas_engine::Region;
use unipgas_engine::directory::RegionEntry;
use unipgas_engine::loopback::{Loopback, LoopbackNet};
use unipgas_job::rendezvous::{JobName, Layout, PROPERTIES_LEN, Rendezvous};

const SESSION: u16 = 0;
const PLAIN: u16 = 1;
const INBOX: usize = 16;
/// Size of each registered memory in bytes.
const LEN: usize = 256;
/// Reserved key of each port's memory.
const KEY: u32 = 3;
const GATE_COUNT: usize = 3;

/// A process connected to itself: a session port, a plain port, gates, and regions that are not valid tables.
struct Process {
    network: Arc<PortNetwork>,
    directory: Arc<PortDirectory>,
    session: Arc<Port>,
    plain: Arc<Port>,
    gates: Region,
    /// A region that is too short for a table, and a misaligned region.
    odd: [Region; 2],
    _folder: Folder,
}

/// Directory of the rendezvous file.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let nth = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("unipgas-test-ports-{}-{nth}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).expect("a folder");
        Folder(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Memory that outlives the process.
struct Memory {
    mine: [Fenced; 2],
    odd: Vec<u64>,
}

impl Memory {
    fn new() -> Self {
        Memory {
            mine: [Fenced::new(LEN), Fenced::new(LEN)],
            odd: vec![0; PLAIN_LEN / 8 + 8],
        }
    }
}

impl Process {
    fn new(memory: &mut Memory) -> Result<Self> {
        let net = Arc::new(LoopbackNet::default());
        let engine = Engine::new(vec![Arc::new(Loopback::join(&net))])?;
        let folder = Folder::new();
        let layout = Layout {
            places: 2,
            places_per_group: 1,
            words_per_group: 1,
            properties: [0; PROPERTIES_LEN],
        };
        let job = Rendezvous::join_in(&folder.0, &JobName::by_hand("fuzz"), &layout)?;
        job.take_place(Some(0))?;
        let directory = Arc::new(PortDirectory::new(&engine)?);
        job.publish(&engine.address()?, &directory.key())?;
        let gates = engine.allocate(GATE_COUNT * size_of::<Gate>(), Rights::FULL)?;
        directory.list_gates(&gates.key())?;
        let odd = memory.odd.as_mut_ptr().cast::<u8>();
        // SAFETY:
        // - valid bytes, and they outlive the process.
        let odd = unsafe {
            [
                engine.register(odd, 64, Rights::FULL)?,
                engine.register(odd.wrapping_add(8), PLAIN_LEN, Rights::FULL)?,
            ]
        };
        let network = Arc::new(PortNetwork::new(engine, job)?);
        let port = |index: u16| {
            let options = PortOptions {
                id: 70 + u64::from(index),
                index,
                session: index == SESSION,
                shared: false,
                inbox: INBOX,
            };
            Port::open(&network, &directory, options)
        };
        let (session, plain) = (port(SESSION)?, port(PLAIN)?);
        for (port, memory) in [&session, &plain].into_iter().zip(&mut memory.mine) {
            let (base, len) = (memory.base(), memory.len());
            // SAFETY:
            // - the memory outlives the port.
            unsafe { port.register_reserved(base, len, KEY, Rights::FULL) }?;
        }
        // The misaligned region has the contents of a table.
        let (from, to) = (session.table.base(), odd[1].base());
        // SAFETY:
        // - both regions are longer than a header.
        unsafe { to.copy_from_nonoverlapping(from, HEADER_LEN) };
        Ok(Process {
            session,
            plain,
            gates,
            directory,
            network,
            odd,
            _folder: folder,
        })
    }

    /// Part `number` of the memory that peers write to.
    fn area(&self, number: u8) -> (*mut u8, usize) {
        let keys = super::keys::entry(KEY as usize);
        let (region, first) = match number % 8 {
            0 => (&self.session.table, 0),
            1 => (&self.session.table, PLAIN_LEN.next_multiple_of(PAIR)),
            2 => (&self.session.table, keys),
            3 => (&self.plain.table, keys),
            4 => (&self.session.inbox, 0),
            5 => (self.directory.region(), entry(0)),
            6 => (self.directory.region(), entry(GATES)),
            _ => (&self.gates, 0),
        };
        (region.base().wrapping_add(first), region.len() - first)
    }

    fn posts(&self, port: &Port, command: &Command) {
        let _call = Call::begin(|| {});
        // SAFETY:
        // - only this thread uses the port.
        let mut queues = unsafe { port.hold() };
        let _ = port.post(&mut queues, command, 5);
    }

    /// Uses all corrupt memory.
    fn goes_on(&self) {
        let [put, get, add] = commands();
        for command in [&put, &get, &add] {
            self.posts(&self.plain, command);
        }
        for _ in 0..3 {
            self.posts(&self.session, &to(PLAIN, CommandKind::Put, 0));
        }
        let _call = Call::begin(|| {});
        for (index, port) in [(SESSION, &self.session), (PLAIN, &self.plain)] {
            // SAFETY:
            // - only this thread uses the port.
            let mut queues = unsafe { port.hold() };
            if let Some(shared) = port.share(&queues, 0, index) {
                trigger::advance(&self.network, &shared);
            }
            let completed = std::iter::from_fn(|| port.poll_completion(&mut queues));
            assert!(completed.count() <= TRIGGERED);
            for _ in 0..2 * INBOX {
                let _ = port.poll_notice(&mut queues);
            }
            let _ = (port.unread(), port.unread_notices(&mut queues));
        }
        for place in 0..3 {
            for index in 0..=GATE_COUNT {
                // SAFETY:
                // - within a call.
                let (gate, known) = unsafe {
                    let network = &self.network;
                    (
                        network.gate(place, index),
                        network.gate_neighbours(place, index),
                    )
                };
                assert!(known.is_ok_and(|known| known.len() <= 4) || gate.is_err() || place > 0);
                if let Ok(gate) = gate {
                    let _ = gate::poll(gate, &mut Payload::default());
                }
            }
        }
    }
}

fn to(port: u16, kind: CommandKind, steps: u8) -> Command {
    let atomic = matches!(kind, CommandKind::Atomic4 | CommandKind::Atomic8);
    let parts = Parts {
        kind,
        rmw: atomic.then_some(Rmw::Add),
        flags: CommandFlags::all(),
        edata: 7,
        steps,
        place: 0,
        port,
        owner: 1 - port,
        len: 40,
    };
    let remote = ShortKey::reserved(port, KEY).0 + 16;
    let local = ShortKey::reserved(1 - port, KEY).0;
    Command::new(parts, 9, remote, [local, 2, 3, 4])
}

/// Commands of the plain port. The first command lets two commands of the session port start.
fn commands() -> [Command; 3] {
    let kinds = [
        (CommandKind::Put, 2),
        (CommandKind::Get, 0),
        (CommandKind::Atomic8, 0),
    ];
    kinds.map(|(kind, steps)| to(SESSION, kind, steps))
}

/// Input: whether ports are looked up before the corruption (1 byte). Then patches.
pub(crate) fn ports(bytes: &[u8]) {
    let Some((order, patches)) = bytes.split_first() else {
        return;
    };
    let mut memory = Memory::new();
    let process = Process::new(&mut memory).expect("ports");
    if order.is_multiple_of(2) {
        process.goes_on();
    }
    for patch in Patch::all(patches) {
        let (base, len) = process.area(patch.area);
        // SAFETY:
        // - a part of a region; only this thread uses it.
        unsafe { patch.apply(base, len) };
    }
    process.goes_on();
    drop(process);
    memory.mine.iter_mut().for_each(Fenced::check);
}

pub(crate) fn all_ports() -> Vec<Vec<u8>> {
    let mut memory = Memory::new();
    let process = Process::new(&mut memory).expect("ports");
    // With waiting commands and notices.
    for _ in 0..4 {
        process.posts(&process.session, &to(PLAIN, CommandKind::Put, 1));
    }
    process.posts(&process.plain, &commands()[1]);
    let record = |area: u8, offset: usize, len: usize| {
        // SAFETY:
        // - within the region; only this thread uses it.
        unsafe { Patch::of(area, process.area(area).0, offset, len) }
    };
    let records = |area: u8, len: usize| -> Vec<u8> {
        (0..len)
            .step_by(64)
            .flat_map(|at| record(area, at, 64))
            .collect()
    };
    // Lists regions that are neither a table nor gates.
    let listed = |area: u8, region: &Region| {
        let wrong = RegionEntry::new(&region.key(), &process.plain.inbox.key());
        let (bytes, half) = (bytemuck::bytes_of(&wrong).as_ptr(), size_of_val(&wrong) / 2);
        // SAFETY:
        // - two halves of the entry.
        [0, half]
            .map(|at| unsafe { Patch::of(area, bytes, at, half) })
            .concat()
    };
    let [short, askew] = &process.odd;
    let line = PAIR.max(unipgas_base::cache::LINE);
    let all = [
        records(0, HEADER_LEN.min(512)),
        records(1, 2 * line),
        [record(2, 0, 136), record(3, 0, 136)].concat(),
        records(4, 4 * line),
        [record(5, 0, 132), record(5, 132, 132)].concat(),
        record(6, 0, 136),
        listed(5, short),
        listed(5, askew),
        listed(6, askew),
        records(7, 256),
    ];
    let orders = [0u8, 1].into_iter();
    orders
        .flat_map(|order| all.iter().map(move |one| [&[order][..], one].concat()))
        .collect()
}

/// The key is in the range of [`RESERVED_KEYS`].
const _: () = assert!(KEY < RESERVED_KEYS);

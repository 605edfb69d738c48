//! Barrier gates of a process that peers do not map. Inputs come as active messages, which are stored at once. This process executes relays that become ready,
//! when the program or the driver polls, and sends their outputs as messages.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use crossbeam::queue::SegQueue;
use parking_lot::Mutex;

use super::neighbour::PortNetwork;
use crate::gate::{self, Gate, LONGEST_PACKET, Packet, Ready, Resolve, Sender};
use unipgas_base::driver::{self, Driven, Driver, Waits};
use unipgas_base::reclaimer::ReaderEpoch;
use unipgas_base::{Deadline, Error, Result};
use unipgas_engine::Region;
use unipgas_engine::agent::ENVELOPE;
use unipgas_engine::endpoint::Endpoint;
use unipgas_engine::op::{Flags, Outcome, Remote, ReplyBuffer};
use unipgas_engine::transport::{Handler, LONGEST_MESSAGE};

const _: () = assert!(LONGEST_PACKET <= LONGEST_MESSAGE - ENVELOPE);

/// Outputs of a gate.
const OUTPUTS: usize = 2;

/// Lookup of gate names, as an interface defines them.
pub trait GateNames: Send + Sync + 'static {
    /// Place of the gate's process, and index of the gate there. `None`: no gate has the name. Must not wait.
    fn find(&self, name: u64) -> Option<(u16, usize)>;
}

/// The gates of this process, and the packets that they have sent.
pub struct Gates<N> {
    network: Arc<PortNetwork>,
    names: N,
    place: u16,
    /// An array of gates, with static lifetime.
    own: &'static [Gate],
    endpoint: Endpoint,
    /// Relays to be executed.
    ready: SegQueue<Ready>,
    /// Held by the thread that executes relays.
    executing: Mutex<()>,
    turns: Arc<ReaderEpoch>,
    sent: Mutex<Sent>,
    /// Relays wait for a poll; the driver counts them as pending.
    roused: AtomicBool,
    driver: Arc<Driver>,
}

/// Packets in flight, by number.
#[derive(Default)]
struct Sent {
    next: u64,
    senders: BTreeMap<u64, Sender>,
}

/// Reasons for the refusal of packets.
#[derive(Clone, Copy)]
enum Refusal {
    Malformed = 1,
    Unknown,
    NotConfigured,
    NotTheSource,
    Overrun,
    Other,
}

impl From<gate::Error> for Refusal {
    fn from(error: gate::Error) -> Self {
        match error {
            gate::Error::NotConfigured => Refusal::NotConfigured,
            gate::Error::NotTheSource => Refusal::NotTheSource,
            gate::Error::Overrun => Refusal::Overrun,
            _ => Refusal::Other,
        }
    }
}

impl<N: GateNames> Gates<N> {
    /// Opens the gates in `region`. Peers know a gate by its index in it. Errors: as [`Engine::endpoint`](unipgas_engine::Engine::endpoint) and [`Region::handle_by`];
    /// [`Error::Os`].
    pub fn open(
        network: &Arc<PortNetwork>,
        names: N,
        region: &'static Region,
    ) -> Result<Arc<Self>> {
        let place = network.own_place()?;
        let count = region.len() / size_of::<Gate>();
        let gates = Arc::new(Gates {
            network: network.clone(),
            names,
            place,
            // SAFETY:
            // - the region is page-aligned and has static lifetime. Gates consist of atomics, so any bytes are valid.
            own: unsafe { std::slice::from_raw_parts(region.base().cast(), count) },
            endpoint: network.engine().endpoint(u32::MAX)?,
            ready: SegQueue::new(),
            executing: Mutex::new(()),
            turns: network.turns(),
            sent: Mutex::default(),
            roused: AtomicBool::new(false),
            driver: Driver::of_this_process()?,
        });
        network.set_own_gates(gates.own);
        region.handle_by(gates.clone())?;
        let driven: Weak<dyn Driven> = Arc::downgrade(&gates) as Weak<dyn Driven>;
        gates.driver.enrol(driven, Waits::Maybe);
        Ok(gates)
    }

    /// The gate with this name, if it is a gate of this process. Does not wait.
    fn own(&self, name: u64) -> Option<&'static Gate> {
        let (place, index) = self.names.find(name)?;
        (place == self.place).then(|| self.own.get(index)).flatten()
    }

    /// See [`Resolve::send`].
    ///
    /// # Safety
    /// As for [`PortNetwork::gate`].
    pub unsafe fn send(&self, packet: &Packet, sender: Sender) -> Result<()> {
        let (place, index) = self.names.find(packet.gate).ok_or(Error::StaleRegion)?;
        // SAFETY:
        // - contract of this call, as for `PortNetwork::gate`.
        let gates = unsafe { self.network.gates(place) }?;
        let to = Remote {
            region: &gates.region,
            offset: index * size_of::<Gate>(),
        };
        let number = {
            let mut sent = self.sent.lock();
            sent.next += 1;
            let number = sent.next;
            sent.senders.insert(number, sender);
            number
        };
        self.driver.more_in_time();
        let message = packet.encode();
        let outcome =
            self.endpoint
                .active_message(to, &message, ReplyBuffer::NONE, Flags::ORDERED, number);
        if !matches!(outcome, Ok(Outcome::Pending)) {
            self.sent.lock().senders.remove(&number);
            self.driver.fewer(1);
        }
        outcome.map(drop)
    }

    /// Executes ready relays, and takes the results of packets.
    pub fn look(&self) {
        if self.roused.swap(false, Ordering::AcqRel) {
            self.driver.fewer(1);
        }
        while !self.ready.is_empty()
            && let Some(executing) = self.executing.try_lock()
        {
            self.execute();
            // A thread that found the lock taken may have pushed a relay since, so check again.
            drop(executing);
        }
        self.endpoint.poll(&mut |completion| {
            let number = completion.context;
            let sender = self.sent.lock().senders.get(&number).copied();
            let Some(sender) = sender else { return };
            if completion.result.is_err()
                && let Some(gate) = self.own(sender.name)
            {
                gate::lose_output(gate, &sender);
            }
            // Removed last: a thread that sees no packet in flight also sees the result.
            self.sent.lock().senders.remove(&number);
            self.driver.fewer(1);
        });
    }

    /// As [`look`](Gates::look), for a thread that waits. Serves peers, too.
    pub fn progress(&self) {
        self.network.engine().progress();
        self.look();
    }

    fn execute(&self) {
        let circuit = Circuit { gates: self };
        while let Some(ready) = self.ready.pop() {
            if let Some(gate) = self.own(ready.name) {
                gate::execute(gate, ready, &circuit);
            }
        }
    }

    /// Waits until the gate has fewer packets in flight than outputs. So it detects lost outputs early. Programs of peers take no part in this.
    pub fn settle(&self, name: u64) {
        self.until(|sent| {
            let senders = sent.senders.values();
            senders.filter(|sender| sender.name == name).count() < OUTPUTS
        });
    }

    /// Executes the relays that are ready. Then waits until all packets sent so far have arrived or are lost.
    pub fn drain(&self) {
        self.look();
        // Waits for another thread that may be about to send.
        drop(self.executing.lock());
        let last = self.sent.lock().next;
        self.until(|sent| {
            sent.senders
                .first_key_value()
                .is_none_or(|(n, _)| *n > last)
        });
    }

    fn until(&self, done: impl Fn(&Sent) -> bool) {
        if done(&self.sent.lock()) {
            return;
        }
        // The network ends packets to dead peers, so this wait returns no error.
        let _ = self
            .network
            .engine()
            .wait_for(Deadline::Never, &mut || Ok(()), || {
                self.look();
                done(&self.sent.lock()).then_some(())
            });
    }
}

impl<N: GateNames> Handler for Gates<N> {
    fn handle(
        &self,
        _offset: usize,
        message: &[u8],
        _reply: &mut Vec<u8>,
    ) -> std::result::Result<(), u32> {
        let take = || {
            let packet = Packet::decode(message).ok_or(Refusal::Malformed)?;
            let gate = self.own(packet.gate).ok_or(Refusal::Unknown)?;
            Ok(gate::arrive(gate, &packet)?)
        };
        let ready = take().map_err(|refusal: Refusal| refusal as u32)?;
        if let Some(ready) = ready {
            self.ready.push(ready);
            match driver::is_this_thread() {
                // Only the driver thread will poll soon.
                true => self.driver.more(),
                false => self.driver.more_in_time(),
            }
            if self.roused.swap(true, Ordering::AcqRel) {
                self.driver.fewer(1);
            }
        }
        Ok(())
    }

    fn is_plain(&self, _message: &[u8]) -> bool {
        true
    }
}

impl<N: GateNames> Driven for Gates<N> {
    fn drive(&self) {
        self.look();
    }
}

/// The gates that a relay of this process sends to.
struct Circuit<'a, N> {
    gates: &'a Gates<N>,
}

impl<N: GateNames> Resolve for Circuit<'_, N> {
    fn gate(&self, name: u64) -> Result<&Gate> {
        let (place, index) = self.gates.names.find(name).ok_or(Error::StaleRegion)?;
        match place == self.gates.place {
            true => self.gates.own.get(index).ok_or(Error::StaleRegion),
            false => Err(Error::Unsupported),
        }
    }

    fn send(&self, packet: &Packet, sender: Sender) -> Result<()> {
        // SAFETY:
        // - the call is between `begin` and `end`, which count the turn.
        unsafe { self.gates.send(packet, sender) }
    }

    /// The caller holds the lock for executing.
    fn begin(&self) {
        self.gates.turns.begin();
    }

    fn end(&self) {
        self.gates.turns.end();
    }

    fn wake(&self, _name: u64) {}
}

//! Two processes over the loopback: one with chaos that issues, one without that owns the target.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use unipgas_chaos::{Chaos, ChaosConfig};
use unipgas_core::loopback::{Loopback, LoopbackNet};
use unipgas_core::op::{Completion, Flags, Notice, Outcome, Remote};
use unipgas_core::transport::Transport;
use unipgas_core::{Endpoint, Engine, Region, RemoteRegion, Result, Rights};

pub(crate) struct Rig {
    pub endpoint: Endpoint,
    pub issuer: Engine,
    pub owner: Engine,
    pub local: Region,
    pub target: Option<Region>,
    pub remote: RemoteRegion,
}

/// Chaos around the loopback, `layers` times: with two the backend below is asynchronous itself.
fn chaotic(net: &Arc<LoopbackNet>, config: ChaosConfig, layers: usize) -> Engine {
    let mut transport: Arc<dyn Transport> = Arc::new(Loopback::join(net));
    for layer in 0..layers {
        let seed = config.seed.wrapping_add(layer as u64);
        let config = ChaosConfig {
            seed,
            ..config.clone()
        };
        transport = Arc::new(Chaos::wrap(transport, config));
    }
    Engine::new(vec![transport]).unwrap()
}

impl Rig {
    pub fn new(config: ChaosConfig, layers: usize, len: usize) -> Rig {
        let net = Arc::new(LoopbackNet::default());
        let issuer = chaotic(&net, config, layers);
        let owner = Engine::new(vec![Arc::new(Loopback::join(&net))]).unwrap();
        let target = owner.allocate(len, Rights::FULL).unwrap();
        Rig {
            endpoint: issuer.endpoint(4096).unwrap(),
            local: issuer.allocate(len.max(1 << 16), Rights::FULL).unwrap(),
            remote: import(&issuer, &owner, &target),
            target: Some(target),
            issuer,
            owner,
        }
    }

    pub fn at(&self, offset: usize) -> Remote<'_> {
        self.remote.at(offset)
    }

    pub fn put(
        &self,
        from: usize,
        to: usize,
        len: usize,
        flags: Flags,
        context: u64,
    ) -> Result<Outcome> {
        let src = self.local.local(from, len)?;
        // SAFETY:
        // - memory of a region that outlives the endpoint's operations: the rig is drained before it is dropped.
        unsafe { self.endpoint.put(src, self.at(to), len, flags, context) }
    }

    pub fn notify(&self, at: usize, value: u32, flags: Flags, context: u64) -> Result<Outcome> {
        let slot = self.at(at);
        self.endpoint.notify(Notice { slot, value }, flags, context)
    }

    pub fn put_notify(
        &self,
        from: usize,
        to: usize,
        len: usize,
        word: (usize, u32),
        flags: Flags,
        context: u64,
    ) -> Result<Outcome> {
        let src = self.local.local(from, len)?;
        let notice = Notice {
            slot: self.at(word.0),
            value: word.1,
        };
        // SAFETY:
        // - as for `put`.
        unsafe {
            self.endpoint
                .put_notify(src, self.at(to), len, notice, flags, context)
        }
    }

    pub fn word(&self, at: usize) -> u32 {
        let target = self.target.as_ref().unwrap();
        target.word(at).unwrap().load(Ordering::Acquire)
    }

    pub fn bytes(&self, at: usize, len: usize) -> Vec<u8> {
        read(self.target.as_ref().unwrap(), at, len)
    }

    pub fn fill(&self, at: usize, bytes: &[u8]) {
        write(&self.local, at, bytes);
    }

    /// Imports another region of the owner.
    pub fn import(&self, region: &Region) -> RemoteRegion {
        import(&self.issuer, &self.owner, region)
    }

    /// Polls until no operation is pending. Returns the completions.
    pub fn drain(&self) -> Vec<Completion> {
        let mut ended = Vec::new();
        eventually("the operations end", || {
            self.endpoint.poll(&mut |c| ended.push(c));
            self.endpoint.pending() == 0
        });
        ended
    }
}

pub fn import(issuer: &Engine, owner: &Engine, region: &Region) -> RemoteRegion {
    let connection = issuer.connect(&owner.address().unwrap()).unwrap();
    connection.import(&region.key()).unwrap()
}

/// `flags` where the condition holds.
pub fn flags_if(condition: bool, flags: Flags) -> Flags {
    if condition { flags } else { Flags::empty() }
}

pub fn read(region: &Region, at: usize, len: usize) -> Vec<u8> {
    let from = region.local(at, len).unwrap().ptr;
    // SAFETY:
    // - in bounds; volatile, since others write meanwhile.
    (0..len)
        .map(|i| unsafe { from.add(i).read_volatile() })
        .collect()
}

pub fn write(region: &Region, at: usize, bytes: &[u8]) {
    let to = region.local(at, bytes.len()).unwrap().ptr;
    for (i, byte) in bytes.iter().enumerate() {
        // SAFETY:
        // - in bounds; volatile, since others read meanwhile.
        unsafe { to.add(i).write_volatile(*byte) };
    }
}

pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(300), "never: {what}");
        std::thread::yield_now();
    }
}

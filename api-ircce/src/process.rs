//! A unit of execution (UE), from `RCCE_init` to `RCCE_finalize`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use parking_lot::Mutex;
use unipgas_core::job::Job;
use unipgas_core::liveness_timer::LivenessTimer;
use unipgas_core::message::Needs;
use unipgas_core::published::PublishedRegions;
use unipgas_core::registry::{Opening, open_from_env};
use unipgas_core::transport::Life;
use unipgas_core::{
    Deadline, Endpoint, Engine, Error, Region, Remote, RemoteRegion, Rights, World,
};

use crate::air::Registers;
use crate::comm::{Communicators, Everybody, MAX_UES};
use crate::extents::Extents;
use crate::launch::LaunchSettings;
use crate::looks::Looks;
use crate::message::Messages;
use crate::mpb::MPB;
use crate::power::Power;
use crate::shared::Shared;
use crate::status::{ErrorCode, Failure, Result};

/// The name of each UE's region. It has the control words, then the MPB.
const REGION: &str = "rcce";

/// A running UE. The C interface has one for the process; Rust programs own theirs. Any thread may make any call.
pub struct Ue {
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) mpb: Mutex<Extents>,
    pub(crate) mpb_len: usize,
    pub(crate) shared: Shared,
    pub(crate) communicators: Communicators,
    pub(crate) registers: Registers,
    pub(crate) messages: Messages,
    pub(crate) power: Mutex<Power>,
    peers: Arc<PublishedRegions>,
    mine: Region,
    cores: [i32; MAX_UES],
    pub(crate) looks: Looks,
    /// Whether [`finish`](Ue::finish) has begun: other UEs may leave, and calls of other threads fail.
    finishing: AtomicBool,
    liveness: LivenessTimer,
    world: Arc<World>,
}

impl Ue {
    /// Joins the job of the environment, and waits for its other processes. Without a job, this process is a job of one. `cores`: a core for each UE, or
    /// empty.
    ///
    /// Errors: [`ErrorCode::NumUes`] for more than 48 processes; [`Failure::Engine`].
    pub fn start(wishes: &LaunchSettings, cores: &[i32]) -> Result<Self> {
        let job = Job::from_env()?;
        let size = job.size() as usize;
        if size > MAX_UES {
            return Err(ErrorCode::NumUes.into());
        }
        if !wishes.cores.is_empty() && wishes.cores.len() != size {
            return Err(Error::InvalidArgument(format!(
                "UNIPGAS_RCCE_CORES names {} cores, but the job has {size} UEs",
                wishes.cores.len()
            ))
            .into());
        }
        let engine = Engine::new(open_from_env(&Opening::of(&job))?)?;
        let world = Arc::new(World::join(engine, job)?);
        Ue::among(world.clone(), wishes, cores).map_err(|failure| match failure {
            Failure::Engine(error) => Failure::Engine(world.name_the_gone(0..world.size(), error)),
            other => other,
        })
    }

    /// Publishes this UE's memory, and waits for the other UEs.
    fn among(world: Arc<World>, wishes: &LaunchSettings, cores: &[i32]) -> Result<Self> {
        let engine = world.engine();
        let mine = engine.allocate(MPB + wishes.mpb, Rights::FULL)?;
        world.publish_region(REGION, &mine.key())?;
        let shared = Shared::publish(&world, wishes.low)?;
        let messages = Messages::new(&world)?;
        let everybody = Everybody::begin(&world)?;
        world.meet(Deadline::Never)?;
        let peers = Arc::new(PublishedRegions::new(&world, REGION));
        let mut numbered = std::array::from_fn(|nth| nth as i32);
        numbered[..cores.len().min(MAX_UES)].copy_from_slice(&cores[..cores.len().min(MAX_UES)]);
        Ok(Ue {
            endpoint: engine.endpoint(u32::MAX)?.named("MPBs"),
            mpb: Mutex::new(Extents::new(wishes.mpb)),
            mpb_len: wishes.mpb,
            shared,
            communicators: Communicators::new(everybody)?,
            registers: Registers::new(&world, &peers)?,
            messages,
            power: Mutex::new(Power::default()),
            peers,
            mine,
            cores: numbered,
            looks: Looks::new(&world),
            finishing: AtomicBool::new(false),
            liveness: LivenessTimer::default(),
            world,
        })
    }

    /// `RCCE_ue`: this UE's number.
    #[inline]
    pub fn id(&self) -> u32 {
        self.world.rank()
    }

    /// `RCCE_num_ues`.
    #[inline]
    pub fn num(&self) -> u32 {
        self.world.size()
    }

    /// `RC_COREID`: the core of each UE, ascending.
    pub fn cores(&self) -> &[i32; MAX_UES] {
        &self.cores
    }

    /// The engine's view of the job.
    #[inline]
    pub fn world(&self) -> &Arc<World> {
        &self.world
    }

    /// `RCCE_finalize`: waits for the other UEs, then leaves the job. It does not wait for UEs that have left without it. After an error the UE has not left:
    /// when its process ends, the others see a death.
    pub fn finalize(self) -> Result<()> {
        self.finish()
    }

    pub(crate) fn finish(&self) -> Result<()> {
        self.finishing.store(true, Ordering::Release);
        let ended = |error: &Failure| match error {
            Failure::Engine(Error::RankDead(id)) => self.world.life(*id) == Life::Left,
            _ => false,
        };
        let waited = match self.barrier(&self.comm_world()) {
            Err(error) if !ended(&error) => Err(error),
            _ => Ok(()),
        };
        self.world.engine().end_waits(true);
        // A UE that leaves after a death would look to the others as if all had met.
        if waited.is_ok() {
            let _ = self.world.leave();
        }
        waited
    }

    pub(crate) fn is_finishing(&self) -> bool {
        self.finishing.load(Ordering::Acquire)
    }

    /// Checks that UE `id` exists. Errors: [`ErrorCode::Id`].
    #[inline(always)]
    pub(crate) fn exists(&self, id: u32) -> Result<()> {
        if id < self.num() {
            Ok(())
        } else {
            Err(Failure::Code(ErrorCode::Id))
        }
    }

    /// The region of UE `id`, looked up at the first use. Errors: [`ErrorCode::Id`]; [`Failure::Engine`] if the UE has died or left before.
    #[inline(always)]
    pub(crate) fn peer(&self, id: u32) -> Result<&RemoteRegion> {
        self.peers.get(id).map_err(|error| self.unfound(id, error))
    }

    #[cold]
    fn unfound(&self, id: u32, error: Error) -> Failure {
        match self.exists(id) {
            Ok(()) => self.blame(id, error),
            Err(no_such_ue) => no_such_ue,
        }
    }

    /// A word of this UE's region. Other UEs write it by notices.
    #[inline(always)]
    pub(crate) fn word(&self, offset: usize) -> Result<&AtomicU32> {
        self.mine.word(offset).map_err(Failure::Engine)
    }

    /// The first byte of this UE's region.
    #[inline(always)]
    pub(crate) fn base(&self) -> *mut u8 {
        self.mine.base()
    }

    /// Waits until `poll` returns a value, and makes progress on messages meanwhile. Any other UE may cause the value. Errors: [`Error::RankDead`] if a UE
    /// has died, or no other UE is left.
    #[inline]
    pub(crate) fn wait<T>(&self, poll: impl FnMut() -> Option<T>) -> Result<T> {
        if self.has_messages_under_way() {
            return self.wait_beside(Needs::Anyone, poll);
        }
        let mut alone = None;
        self.world
            .engine()
            .wait_for(
                Deadline::Never,
                &mut || self.world.check_company(&mut alone),
                poll,
            )
            .map_err(Failure::Engine)
    }

    /// Checks at intervals whether a UE has died. Mapped memory outlives its UE, so accesses to it do not fail. Errors: [`Error::RankDead`].
    #[inline(always)]
    pub(crate) fn reached(&self) -> Result<()> {
        if self.liveness.is_due() {
            self.world.check_anyone()?;
        }
        Ok(())
    }

    /// As [`reached`](Ue::reached), and also counts the access and its bytes.
    #[inline(always)]
    pub(crate) fn accessed(&self, bytes: usize) -> Result<()> {
        if self.endpoint.count(bytes) {
            self.world.check_anyone()?;
        }
        Ok(())
    }

    /// Waits for completion of all posted operations, then counts an access with `bytes`. RCCE's calls are complete when they return.
    #[cold]
    pub(crate) fn settle(&self, id: u32, bytes: usize) -> Result<()> {
        // No operation may use the caller's memory after the return. Each operation completes, also if the peer has died.
        self.endpoint
            .drain(
                self.world.engine(),
                Deadline::Never,
                &mut self.world.watch_lives(),
            )
            .map_err(|error| {
                self.endpoint.purge();
                self.blame(id, error)
            })?;
        self.accessed(bytes)
    }

    /// Converts an error of an access to UE `id`. Errors of a missing peer become [`Error::RankDead`].
    #[cold]
    pub(crate) fn blame(&self, id: u32, error: Error) -> Failure {
        Failure::Engine(match error {
            // The memory of a UE ends only with its process.
            Error::PeerDead | Error::StaleRegion => {
                let _ = self.world.lives_now(id);
                Error::RankDead(id)
            }
            other => other,
        })
    }

    /// The control word of UE `id` at `offset`.
    #[inline]
    pub(crate) fn control(&self, id: u32, offset: usize) -> Result<Remote<'_>> {
        Ok(self.peer(id)?.at(offset))
    }
}

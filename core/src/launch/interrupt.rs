//! An interrupt signal for the process of a rank. On this host the bootstrap sends it; to another one goes an active message, and the process
//! there interrupts itself, so that what it has installed for that signal runs as with a signal from outside.

use std::sync::Arc;

use crate::bootstrap::Bootstrap;
use crate::engine::Engine;
use crate::job::Job;
use crate::op::{Flags, Outcome, Remote, Reply};
use crate::region::{Region, Rights};
use crate::transport::{Handler, Life};
use crate::world::World;
use crate::{Deadline, Error, Result};

/// What the place of the messages is published as.
const NAME: &str = "interrupt";
/// The message.
const INTERRUPT: &[u8] = b"interrupt";
/// The handler's refusals: it is no such message; the signal cannot be sent.
const NO_SUCH: u32 = 1;
const CANNOT: u32 = 2;

/// Takes the message.
struct Interrupted(Arc<dyn Bootstrap>);

impl Handler for Interrupted {
    fn handle(
        &self,
        _: usize,
        message: &[u8],
        _reply: &mut Vec<u8>,
    ) -> std::result::Result<(), u32> {
        if message != INTERRUPT {
            return Err(NO_SUCH);
        }
        self.0.end(self.0.rank()).map_err(|_| CANNOT)
    }
}

/// Tells the ranks of other hosts, if there are any, where this process takes the message.
pub(crate) fn listen(engine: &Engine, job: &Job, life_cycle: u32) -> Result<Option<Region>> {
    if !job.bootstrap().spans_hosts() {
        return Ok(None);
    }
    // Nothing is ever written there, but who may not write may send no message.
    let region = engine.allocate(64, Rights::WRITE)?;
    region.handle_from_afar(Arc::new(Interrupted(job.shared_bootstrap().clone())))?;
    job.publish(NAME, life_cycle, region.key().as_bytes())?;
    Ok(Some(region))
}

impl World {
    /// Interrupts the process of `rank` and waits until it has ended. One that goes on nevertheless is interrupted again by the next call.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for the own rank, and for one that the job does not have; [`Error::Timeout`]: it has not ended yet;
    /// [`Error::Unreachable`], [`Error::Refused`] where the signal cannot be sent.
    pub fn end(&self, rank: u32, deadline: Deadline) -> Result<()> {
        if rank == self.rank() || rank >= self.size() {
            return Err(Error::InvalidArgument(format!(
                "rank {rank} is not another rank of this job"
            )));
        }
        if self.lives_now(rank) == Life::Alive {
            let bootstrap = self.job().bootstrap();
            if bootstrap.shares_host(rank) {
                bootstrap.end(rank)?;
            } else {
                self.interrupt_afar(rank, deadline)?;
            }
        }
        self.engine().wait(deadline, &mut || Ok(()), || {
            Ok((self.lives_now(rank) != Life::Alive).then_some(()))
        })
    }

    fn interrupt_afar(&self, rank: u32, deadline: Deadline) -> Result<()> {
        match self.told(rank, deadline) {
            // Whoever ends at once does not answer.
            Err(Error::PeerDead | Error::RankDead(_)) => Ok(()),
            other => other,
        }
    }

    fn told(&self, rank: u32, deadline: Deadline) -> Result<()> {
        let region = self.published_region(rank, NAME)?;
        let endpoint = self.engine().endpoint(1)?;
        let to = Remote {
            region: &region,
            offset: 0,
        };
        if endpoint.active_message(to, INTERRUPT, Reply::NONE, Flags::empty(), 0)?
            == Outcome::Complete
        {
            return Ok(());
        }
        let mut lives = || match self.lives_now(rank) {
            Life::Alive => Ok(()),
            Life::Left | Life::Dead => Err(Error::RankDead(rank)),
        };
        endpoint.drain(self.engine(), deadline, &mut lives)
    }
}

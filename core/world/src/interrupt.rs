//! An interrupt signal for the process of a rank. The bootstrap sends it on this host. For another host, an active message asks the process there to
//! interrupt itself. Its handlers for the signal run as for a signal from outside.

use std::sync::Arc;

use crate::world::World;
use unipgas_base::{Deadline, Error, Result, Rights};
use unipgas_engine::Region;
use unipgas_engine::engine::Engine;
use unipgas_engine::op::{Flags, Outcome, ReplyBuffer};
use unipgas_engine::transport::{Handler, Life};
use unipgas_job::bootstrap::Bootstrap;
use unipgas_job::job::Job;

/// Published name of the region for the messages.
const NAME: &str = "interrupt";
/// The message.
const INTERRUPT: &[u8] = b"interrupt";
/// Refusals of the handler: the message is unknown; the signal cannot be sent.
const NO_SUCH: u32 = 1;
const CANNOT: u32 = 2;

/// Handles the message.
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

/// Publishes the region for the message, if the job has several hosts.
pub(crate) fn listen(engine: &Engine, job: &Job, life_cycle: u32) -> Result<Option<Region>> {
    if !job.bootstrap().spans_hosts() {
        return Ok(None);
    }
    // Peers never write there, but an active message needs the right to write.
    let region = engine.allocate(64, Rights::WRITE)?;
    region.handle_from_afar(Arc::new(Interrupted(job.shared_bootstrap().clone())))?;
    job.publish(NAME, life_cycle, region.key().as_bytes())?;
    Ok(Some(region))
}

impl World {
    /// Interrupts the process of `rank`, and waits until it has ended. The next call interrupts a process that still runs again.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for the own rank, or if the job has no such rank. [`Error::Timeout`] if it has not ended yet. [`Error::Unreachable`],
    /// [`Error::Refused`] if the signal cannot be sent.
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
            // A process that ends at once does not answer.
            Err(Error::PeerDead | Error::RankDead(_)) => Ok(()),
            other => other,
        }
    }

    fn told(&self, rank: u32, deadline: Deadline) -> Result<()> {
        let region = self.published_region(rank, NAME)?;
        let endpoint = self.engine().endpoint(1)?;
        let to = region.at(0);
        if endpoint.active_message(to, INTERRUPT, ReplyBuffer::NONE, Flags::empty(), 0)?
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

//! Triggered commands of ports whose memory peers do not map (uTofu guide §2.2.8): arrivals come as active messages, which only count
//! the steps that they allow; the owner's process issues the commands itself, as it does all others, when the program or the driver looks.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::command::Command;
use super::issue::{Port, Queues};
use crate::Result;
use crate::driver::Driver;
use crate::op::{Flags, Remote, Reply};
use crate::transport::Handler;

/// What arrivals have done to a port.
pub(super) struct Arrivals {
    /// Steps so far.
    allowed: AtomicU64,
    /// Somebody is to look; counted as under way.
    roused: AtomicBool,
    driver: Arc<Driver>,
}

/// The first byte of the only message that there is; then come the steps.
const ARRIVAL: u8 = 1;
/// The context of what no flight waits for.
const NO_FLIGHT: u64 = 0;
/// Why another one is refused.
const UNKNOWN: u32 = 1;

impl Arrivals {
    pub fn new(driver: &Arc<Driver>) -> Arc<Self> {
        Arc::new(Arrivals {
            allowed: AtomicU64::new(0),
            roused: AtomicBool::new(false),
            driver: driver.clone(),
        })
    }

    /// Whether something has come that nobody has looked at.
    pub fn are_new(&self) -> bool {
        self.roused.load(Ordering::Acquire)
    }

    /// Steps that have been allowed so far.
    fn look(&self) -> u64 {
        if self.roused.swap(false, Ordering::AcqRel) {
            self.driver.fewer(1);
        }
        self.allowed.load(Ordering::Acquire)
    }
}

impl Handler for Arrivals {
    fn handle(
        &self,
        _offset: usize,
        message: &[u8],
        _reply: &mut Vec<u8>,
    ) -> std::result::Result<(), u32> {
        let [ARRIVAL, steps] = *message else {
            return Err(UNKNOWN);
        };
        self.allowed.fetch_add(steps.into(), Ordering::AcqRel);
        self.driver.more();
        if self.roused.swap(true, Ordering::AcqRel) {
            self.driver.fewer(1);
        }
        Ok(())
    }

    fn is_plain(&self, _message: &[u8]) -> bool {
        true
    }
}

impl Drop for Arrivals {
    fn drop(&mut self) {
        self.look();
    }
}

/// Commands that wait for steps.
#[derive(Default)]
pub(super) struct Held {
    commands: VecDeque<(Command, u64)>,
    started: u64,
}

impl Held {
    pub fn len(&self) -> usize {
        self.commands.len()
    }

    pub fn push(&mut self, command: Command, context: u64) {
        self.commands.push_back((command, context));
    }
}

impl Port {
    /// Lets commands of the port at `to` start, after what this one has sent there. If it has gone meanwhile, nobody misses that.
    #[cold]
    pub(super) fn tell_arrival(&self, to: Remote<'_>, steps: u8) {
        let message = [ARRIVAL, steps];
        let _ = self
            .endpoint
            .active_message(to, &message, Reply::NONE, Flags::ORDERED, NO_FLIGHT);
    }

    /// Issues what may start.
    pub(super) fn start_held(&self, queues: &mut Queues) -> Result<()> {
        let Some(arrivals) = &self.arrivals else {
            return Ok(());
        };
        let allowed = arrivals.look();
        while queues.held.started < allowed
            && let Some((command, context)) = queues.held.commands.pop_front()
        {
            queues.held.started += 1;
            // What steps start has its effects one after the other, as where whoever brings them waits for each.
            self.issue(queues, &command.in_order(), context)?;
        }
        Ok(())
    }
}

//! Triggered commands of ports that peers do not map (uTofu guide §2.2.8). Arrivals come as active messages, which only count the allowed steps. The owner's
//! process issues the commands like all others, when the program or the driver polls.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::command::Command;
use super::issue::{Port, Queues};
use unipgas_base::Result;
use unipgas_base::driver::Driver;
use unipgas_engine::op::{Flags, Remote, ReplyBuffer};
use unipgas_engine::transport::Handler;

/// Arrivals at a port.
pub(super) struct Arrivals {
    /// Number of steps so far.
    allowed: AtomicU64,
    /// Arrivals wait for a poll; the driver counts them as pending.
    roused: AtomicBool,
    driver: Arc<Driver>,
}

/// First byte of the only message; the number of steps follows.
const ARRIVAL: u8 = 1;
/// Context of operations without a flight.
const NO_FLIGHT: u64 = 0;
/// Refusal of other messages.
const UNKNOWN: u32 = 1;

impl Arrivals {
    pub(crate) fn new(driver: &Arc<Driver>) -> Arc<Self> {
        Arc::new(Arrivals {
            allowed: AtomicU64::new(0),
            roused: AtomicBool::new(false),
            driver: driver.clone(),
        })
    }

    /// Whether arrivals wait for a poll.
    pub(crate) fn are_new(&self) -> bool {
        self.roused.load(Ordering::Acquire)
    }

    /// Number of steps allowed so far. Acknowledges the arrivals.
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
pub(super) struct WaitingCommands {
    commands: VecDeque<(Command, u64)>,
    started: u64,
}

impl WaitingCommands {
    pub fn len(&self) -> usize {
        self.commands.len()
    }

    pub fn push(&mut self, command: Command, context: u64) {
        self.commands.push_back((command, context));
    }
}

impl Port {
    /// Lets commands of the port at `to` start, after earlier operations of this port to it. A failure is ignored: the target has ended.
    #[cold]
    pub(super) fn tell_arrival(&self, to: Remote<'_>, steps: u8) {
        let message = [ARRIVAL, steps];
        let _ = self.endpoint.active_message(
            to,
            &message,
            ReplyBuffer::NONE,
            Flags::ORDERED,
            NO_FLIGHT,
        );
    }

    /// Issues the commands that may start.
    pub(super) fn start_held(&self, queues: &mut Queues) -> Result<()> {
        let Some(arrivals) = &self.arrivals else {
            return Ok(());
        };
        let allowed = arrivals.look();
        while queues.held.started < allowed
            && let Some((command, context)) = queues.held.commands.pop_front()
        {
            queues.held.started += 1;
            // Steps start commands in order, as if each command waited for the last one.
            self.issue(queues, &command.in_order(), context)?;
        }
        Ok(())
    }
}

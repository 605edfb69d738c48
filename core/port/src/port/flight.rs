//! Commands in flight, on ports that can have them. They end in posting order, for any order of their data. So notices and completions need no other
//! ordering.

use std::sync::atomic::Ordering;

use super::carry::{Failed, Moving, local_notice};
use super::command::{Command, CommandFlags, CommandKind};
use super::issue::{Port, Queues};
use super::notice::Fault;
use unipgas_base::{Error, Result};
use unipgas_engine::op::{Flags, Outcome};

pub(super) struct Flight {
    command: Command,
    context: u64,
    stage: Stage,
    /// Number of operations in flight, for data or notice; and the fault of an ended operation.
    under_way: u8,
    fault: Option<Fault>,
    /// Its notice is sent after its data has moved.
    untold: bool,
    /// Destination of the previous value.
    before: Box<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Moving,
    Moved,
    /// The notice is in flight.
    Telling,
    Told,
    NotSent(Fault),
    Failed(Fault),
}

impl Flight {
    /// Ends the stage `Moving`, if no operation is in flight.
    fn end_moving(&mut self) {
        if self.under_way == 0 {
            self.stage = self.fault.map_or(Stage::Moved, Stage::Failed);
        }
    }
}

impl Queues {
    /// Places of the targets of commands in flight.
    pub(super) fn awaited(&self) -> Vec<u32> {
        let places = self
            .flights
            .iter()
            .map(|flight| flight.command.place().into());
        let mut places: Vec<u32> = places.collect();
        places.sort_unstable();
        places.dedup();
        places
    }
}

impl Port {
    #[cold]
    pub(super) fn fly(&self, queues: &mut Queues, command: &Command, context: u64) -> Result<()> {
        if let Some(driver) = &self.driver {
            driver.more_in_time();
        }
        let number = queues.first_flight + queues.flights.len() as u64;
        let tells = command.flags().contains(CommandFlags::REMOTE_NOTICE);
        let puts = matches!(command.kind(), Some(CommandKind::Put | CommandKind::Inline));
        // The notice follows the data at once, unless it would overtake earlier notices.
        let at_once = tells && puts && queues.untold == 0;
        let untold = tells && !at_once;
        queues.fast = false;
        queues.untold += usize::from(untold);
        queues.flights.push_back(Flight {
            command: *command,
            context,
            stage: Stage::Moving,
            under_way: 0,
            fault: None,
            untold,
            before: Box::new(0),
        });
        let flight = queues.flights.back_mut().expect("just pushed");
        let mut moving = Moving {
            under_way: 0,
            record: at_once.then(|| self.remote_notice(command).to_record()),
        };
        let carried = self.carry(command, number + 1, &mut flight.before, &mut moving);
        if let (Ok(Some(target)), Some(record)) = (&carried, moving.record) {
            match self
                .endpoint
                .deliver(target.inbox(), record, Flags::ORDERED, number + 1)
            {
                Ok(Outcome::Pending) => moving.under_way += 1,
                Ok(Outcome::Complete) | Err(Error::InboxFull) => {}
                Err(error) => flight.fault = Some(self.why(command, error)),
            }
        }
        flight.under_way = moving.under_way;
        match carried {
            Ok(_) => flight.end_moving(),
            Err(Failed::Send(fault)) => flight.stage = Stage::NotSent(fault),
            Err(Failed::After(fault)) => {
                flight.fault = Some(fault);
                flight.end_moving();
            }
        }
        self.land(queues)
    }

    #[cold]
    pub(super) fn progress(&self, queues: &mut Queues) {
        if self.endpoint.pending() == 0 {
            // Operations of peers also need progress.
            self.network.engine().progress();
        }
        let (flights, first) = (&mut queues.flights, queues.first_flight);
        self.endpoint.poll(&mut |completion| {
            // Arrival messages have no flight. A lost one is ignored.
            let nth = completion.context.wrapping_sub(1 + first) as usize;
            let Some(flight) = flights.get_mut(nth) else {
                return;
            };
            flight.stage = match (flight.stage, completion.result) {
                // A full inbox is an error of its owner. The overflow word reports it there.
                (Stage::Moving, result) => {
                    flight.under_way -= 1;
                    if let Err(error) = result
                        && error != Error::InboxFull
                    {
                        flight.fault = Some(self.why(&flight.command, error));
                    }
                    flight.end_moving();
                    return;
                }
                (Stage::Telling, Ok(()) | Err(Error::InboxFull)) => Stage::Told,
                (_, Err(error)) => Stage::Failed(self.why(&flight.command, error)),
                (stage, Ok(())) => stage,
            };
        });
        if self
            .land(queues)
            .and_then(|()| self.start_held(queues))
            .is_err()
        {
            self.header().overflow.store(1, Ordering::Release);
        }
        self.count(queues);
    }

    /// Ends the oldest commands that are complete.
    pub(super) fn land(&self, queues: &mut Queues) -> Result<()> {
        while let Some(flight) = queues.flights.front_mut() {
            let command = flight.command;
            match flight.stage {
                Stage::Moving | Stage::Telling => return Ok(()),
                Stage::Moved if flight.untold => {
                    flight.untold = false;
                    queues.untold -= 1;
                    flight.stage = self.tell_later(&command, queues.first_flight + 1);
                    continue;
                }
                Stage::Moved => {
                    flight.stage = Stage::Told;
                    continue;
                }
                Stage::Told | Stage::NotSent(_) | Stage::Failed(_) => {}
            }
            let flight = queues.flights.pop_front().expect("just seen");
            queues.first_flight += 1;
            queues.untold -= usize::from(flight.untold);
            if let Some(driver) = &self.driver {
                driver.fewer(1);
            }
            let wanted = command.flags().contains(CommandFlags::COMPLETION);
            match flight.stage {
                Stage::NotSent(fault) => {
                    queues.fail(&self.counts, &command, flight.context, Failed::Send(fault))?;
                }
                Stage::Failed(fault) => {
                    queues.fail(&self.counts, &command, flight.context, Failed::After(fault))?;
                }
                _ => {
                    queues
                        .completions
                        .push(&self.counts, flight.context, wanted, None);
                    if command.kind() == Some(CommandKind::Nop) {
                        continue;
                    }
                    if let Ok(target) = self.network.port(command.place(), command.port()) {
                        self.arrived(&command, target);
                    }
                    if command.flags().contains(CommandFlags::LOCAL_NOTICE) {
                        queues.note(local_notice(&command, *flight.before, None))?;
                    }
                }
            }
        }
        queues.fast = !self.options.session;
        Ok(())
    }

    pub(super) fn tell_later(&self, command: &Command, number: u64) -> Stage {
        if command.kind() == Some(CommandKind::Nop) {
            return Stage::Told;
        }
        let target = match self.network.port(command.place(), command.port()) {
            Ok(target) => target,
            Err(fault) => return Stage::Failed(fault),
        };
        let record = self.remote_notice(command).to_record();
        match self
            .endpoint
            .deliver(target.inbox(), record, Flags::ORDERED, number)
        {
            Ok(Outcome::Complete) | Err(Error::InboxFull) => Stage::Told,
            Ok(Outcome::Pending) => Stage::Telling,
            Err(error) => Stage::Failed(self.why(command, error)),
        }
    }
}

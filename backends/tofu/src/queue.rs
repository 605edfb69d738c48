//! Operations in flight on a VCQ: flows to targets, and remains of lost targets.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use unipgas_core::Error;
use unipgas_utofu_sys::*;

use crate::edata::NoticeOwner;
use crate::lanes::PendingWork;
use crate::net::PeerVcq;
use crate::vcq::{PollResult, RawVcq, is_told};

/// Maximum wait for notices of a lost VCQ.
const HAUNTS: Duration = Duration::from_secs(5);

/// Operations in flight to one target.
#[derive(Default)]
pub(crate) struct Flow {
    /// Work with local notices. The number: all descriptors up to it complete with the work; 0: none is known to.
    pub ends: VecDeque<(PendingWork, u64)>,
    /// Work of failed descriptors: as many as failed, the oldest first. A failure does not identify its descriptor.
    failed: Vec<PendingWork>,
    /// Descriptors posted so far.
    pub posted: u64,
    /// All descriptors up to this one have completed.
    pub ended: u64,
    /// A notice is due for all descriptors up to this one.
    pub told: u64,
    /// The last unsignaled write.
    pub unsignaled: u64,
}

/// Operations that were in flight to a target at its loss. The network may use their memory until notices, or errors, account for all of them.
struct Ghost {
    target: u32,
    vcq: utofu_vcq_id_t,
    /// Notices due, and notices due of greetings and answers, which have the peer's EDATA.
    to_come: usize,
    greetings: usize,
    until: Instant,
    kept: Vec<PendingWork>,
}

/// Result of a poll.
pub(crate) enum QueueEvent {
    /// Data of a descriptor: the TNI has read its source, or it failed with this code.
    Read(usize, Option<i32>),
    /// A notice; with a code if it reports a failure.
    Notice(utofu_mrq_notice, Option<i32>),
    /// Memory of a lost target that the network no longer uses.
    Over(Vec<PendingWork>),
    /// The VCQ is unusable.
    Broken(Error),
}

/// Operations in flight on a lane: flows, indexed by target number.
#[derive(Default)]
pub(crate) struct FlightQueue {
    flows: Vec<Flow>,
    ghosts: Vec<Ghost>,
    told: VecDeque<QueueEvent>,
    /// Local notices due.
    pub expects: usize,
}

/// Whether a notice belongs to an operation of this process.
pub fn is_local(notice: &utofu_mrq_notice) -> bool {
    matches!(
        notice.notice_type,
        UTOFU_MRQ_TYPE_LCL_PUT | UTOFU_MRQ_TYPE_LCL_GET | UTOFU_MRQ_TYPE_LCL_ARMW
    )
}

impl FlightQueue {
    /// The flow to a target.
    pub fn flow(&mut self, to: &PeerVcq) -> &mut Flow {
        let at = to.number as usize;
        if self.flows.len() <= at {
            self.flows.resize_with(at + 1, Flow::default);
        }
        &mut self.flows[at]
    }

    /// The flow to the target with this number, if it exists.
    pub fn known(&mut self, target: u32) -> Option<&mut Flow> {
        self.flows.get_mut(target as usize)
    }

    /// Whether all descriptors up to this number have completed.
    pub fn reached(&mut self, to: &PeerVcq, number: u64) -> bool {
        self.flow(to).ended >= number
    }

    /// Whether their completion is known, or a notice is due.
    pub fn knows_of_end(&mut self, to: &PeerVcq, number: u64) -> bool {
        let flow = self.flow(to);
        flow.ended.max(flow.told) >= number
    }

    /// Completes the oldest work of a target.
    pub fn end(&mut self, target: u32) -> Option<PendingWork> {
        let flow = self.flows.get_mut(target as usize)?;
        let (ends, covers) = flow.ends.pop_front()?;
        flow.ended = flow.ended.max(covers);
        self.expects -= 1;
        Some(ends)
    }

    /// Fails the oldest work of a target. The failed descriptor itself is unknown.
    pub fn fail(&mut self, target: u32) {
        if let Some(flow) = self.flows.get_mut(target as usize)
            && let Some((ends, _)) = flow.ends.pop_front()
        {
            flow.failed.push(ends);
            self.expects -= 1;
        }
    }

    /// Loses the target. Returns the work to drop now. A ghost keeps memory that the network may use.
    pub fn lose(&mut self, target: &PeerVcq) -> Vec<PendingWork> {
        let flow = self.flows.get_mut(target.number as usize);
        let Flow { ends, failed, .. } = flow.map(std::mem::take).unwrap_or_default();
        let (all, is_greeting) = (ends.len(), |(ends, _): &&(PendingWork, u64)| {
            ends.is_of_greeting()
        });
        let greetings = ends.iter().filter(is_greeting).count();
        let to_come = all - greetings;
        let all = ends.into_iter().map(|(ends, _)| ends).chain(failed);
        if to_come + greetings == 0 {
            return all.collect();
        }
        let (kept, over) = all.partition(PendingWork::has_memory);
        self.ghosts.push(Ghost {
            target: target.number,
            vcq: target.vcq,
            to_come,
            greetings,
            until: Instant::now() + HAUNTS,
            kept,
        });
        over
    }

    /// Whether the network may still use memory of operations to lost targets.
    pub fn is_haunted(&self) -> bool {
        !self.ghosts.is_empty()
    }

    /// Counts an event for the ghost that it belongs to. `left`: the count of a matching ghost. False: no ghost matches.
    fn appeases(&mut self, left: impl Fn(&mut Ghost) -> Option<&mut usize>) -> bool {
        let mut of_ghosts = self.ghosts.iter_mut().enumerate();
        let found =
            of_ghosts.find_map(|(at, ghost)| Some((at, left(ghost).filter(|left| **left > 0)?)));
        let Some((at, left)) = found else {
            return false;
        };
        *left -= 1;
        self.expects -= 1;
        if self.ghosts[at].to_come + self.ghosts[at].greetings == 0 {
            let ghost = self.ghosts.remove(at);
            self.told.push_back(QueueEvent::Over(ghost.kept));
        }
        true
    }

    /// Gives up ghosts after their timeout.
    fn expire(&mut self) {
        if self.ghosts.is_empty() {
            return;
        }
        let now = Instant::now();
        while let Some(at) = self.ghosts.iter().position(|ghost| ghost.until < now) {
            let ghost = self.ghosts.remove(at);
            self.expects -= ghost.to_come + ghost.greetings;
            self.told.push_back(QueueEvent::Over(ghost.kept));
        }
    }

    /// Polls until there are no events. [`next`](FlightQueue::next) returns them, except events of ghosts.
    pub fn collect(&mut self, vcq: &RawVcq) {
        loop {
            match vcq.poll_tcq() {
                PollResult::Nothing => break,
                PollResult::Success(data) => self.told.push_back(QueueEvent::Read(data, None)),
                PollResult::Failure(data, code) => {
                    let appeased = self.appeases(|ghost| {
                        let is_its = is_told(data) == Some(ghost.target);
                        is_its.then_some(match ghost.to_come {
                            0 => &mut ghost.greetings,
                            _ => &mut ghost.to_come,
                        })
                    });
                    if !appeased {
                        self.told.push_back(QueueEvent::Read(data, Some(code)));
                    }
                }
                PollResult::Broken(why) => {
                    self.told.push_back(QueueEvent::Broken(why));
                    break;
                }
            }
        }
        loop {
            let (notice, failed) = match vcq.poll_mrq() {
                PollResult::Nothing => break,
                PollResult::Success(notice) => (notice, None),
                PollResult::Failure(notice, code) => (notice, Some(code)),
                PollResult::Broken(why) => {
                    self.told.push_back(QueueEvent::Broken(why));
                    break;
                }
            };
            let appeased = is_local(&notice)
                && self.appeases(|ghost| match ghost.vcq == notice.vcq_id {
                    false => None,
                    true if notice.is_told(ghost.target) => Some(&mut ghost.to_come),
                    true => (notice.is_of_greeting(ghost.target)).then_some(&mut ghost.greetings),
                });
            if !appeased {
                self.told.push_back(QueueEvent::Notice(notice, failed));
            }
        }
        self.expire();
    }

    /// The next event, in order of arrival.
    pub fn next(&mut self) -> Option<QueueEvent> {
        self.told.pop_front()
    }
}

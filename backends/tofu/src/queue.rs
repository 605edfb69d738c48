//! What is under way by a VCQ: flows to targets, and what a lost target leaves behind.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use unipgas_core::Error;
use unipgas_utofu_sys::*;

use crate::edata::Whose;
use crate::lanes::Ends;
use crate::net::Target;
use crate::vcq::{Found, Vcq, is_told};

/// Nobody waits longer for notices of a VCQ that is lost.
const HAUNTS: Duration = Duration::from_secs(5);

/// What is under way to one VCQ.
#[derive(Default)]
pub struct Flow {
    /// Each with the number up to which all have ended then, if that is known.
    pub ends: VecDeque<(Ends, u64)>,
    /// What was to end, as it was posted, of so many that have failed.
    failed: Vec<Ends>,
    /// Descriptors that there ever were.
    pub posted: u64,
    /// All up to this one have ended.
    pub ended: u64,
    /// The end of all up to this one will be told.
    pub told: u64,
    /// The last one of whose end nobody is told by itself.
    pub quick: u64,
}

/// What was under way to a target when it was lost. The network reads and writes its memory until notices have told of all ends, or of errors.
struct Ghost {
    target: u32,
    vcq: utofu_vcq_id_t,
    /// Notices to come, and those of greetings and of answers to them, whose EDATA is the peer's.
    to_come: usize,
    greetings: usize,
    until: Instant,
    kept: Vec<Ends>,
}

/// What polls have found.
pub enum Told {
    /// Data of a descriptor whose bytes have been read, or which has failed, and why.
    Read(usize, Option<i32>),
    /// A notice; of something that has failed, with the code.
    Notice(utofu_mrq_notice, Option<i32>),
    /// What has ended with a lost target.
    Over(Vec<Ends>),
    /// The VCQ can be used no more.
    Broken(Error),
}

/// What is under way by a lane: flows, by the numbers of targets.
#[derive(Default)]
pub struct Queue {
    flows: Vec<Flow>,
    ghosts: Vec<Ghost>,
    told: VecDeque<Told>,
    /// Local notices that are to come.
    pub expects: usize,
}

/// Whether a notice is of what this process has posted.
pub fn is_local(notice: &utofu_mrq_notice) -> bool {
    matches!(
        notice.notice_type,
        UTOFU_MRQ_TYPE_LCL_PUT | UTOFU_MRQ_TYPE_LCL_GET | UTOFU_MRQ_TYPE_LCL_ARMW
    )
}

impl Queue {
    /// That to a target.
    pub fn flow(&mut self, to: &Target) -> &mut Flow {
        let at = to.number as usize;
        if self.flows.len() <= at {
            self.flows.resize_with(at + 1, Flow::default);
        }
        &mut self.flows[at]
    }

    /// That to the target with this number, if there ever was anything.
    pub fn known(&mut self, target: u32) -> Option<&mut Flow> {
        self.flows.get_mut(target as usize)
    }

    /// Whether all up to this number have ended at a target.
    pub fn has_ended(&mut self, to: &Target, number: u64) -> bool {
        self.flow(to).ended >= number
    }

    /// Whether that is known, or will be told.
    pub fn knows_of_end(&mut self, to: &Target, number: u64) -> bool {
        let flow = self.flow(to);
        flow.ended.max(flow.told) >= number
    }

    /// The next one that has ended there.
    pub fn end(&mut self, target: u32) -> Option<Ends> {
        let flow = self.flows.get_mut(target as usize)?;
        let (ends, covers) = flow.ends.pop_front()?;
        flow.ended = flow.ended.max(covers);
        self.expects -= 1;
        Some(ends)
    }

    /// One of those there has failed; which one, nobody knows.
    pub fn fail(&mut self, target: u32) {
        if let Some(flow) = self.flows.get_mut(target as usize)
            && let Some((ends, _)) = flow.ends.pop_front()
        {
            flow.failed.push(ends);
            self.expects -= 1;
        }
    }

    /// The target is lost: gives what nobody has to keep.
    pub fn lose(&mut self, target: &Target) -> Vec<Ends> {
        let flow = self.flows.get_mut(target.number as usize);
        let Flow { ends, failed, .. } = flow.map(std::mem::take).unwrap_or_default();
        let (all, is_greeting) = (ends.len(), |(ends, _): &&(Ends, u64)| ends.is_of_greeting());
        let greetings = ends.iter().filter(is_greeting).count();
        let to_come = all - greetings;
        let all = ends.into_iter().map(|(ends, _)| ends).chain(failed);
        if to_come + greetings == 0 {
            return all.collect();
        }
        let (kept, over) = all.partition(Ends::has_memory);
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

    /// Whether the network may still use memory for what went to lost targets.
    pub fn is_haunted(&self) -> bool {
        !self.ghosts.is_empty()
    }

    /// One of those that were to come for a ghost has come. `left`: how many more, of a ghost whose it is. False: there is no such ghost.
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
            self.told.push_back(Told::Over(ghost.kept));
        }
        true
    }

    /// Ghosts of which nothing comes any more.
    fn expire(&mut self) {
        if self.ghosts.is_empty() {
            return;
        }
        let now = Instant::now();
        while let Some(at) = self.ghosts.iter().position(|ghost| ghost.until < now) {
            let ghost = self.ghosts.remove(at);
            self.expects -= ghost.to_come + ghost.greetings;
            self.told.push_back(Told::Over(ghost.kept));
        }
    }

    /// Polls until nothing comes. What is found waits for [`next`](Queue::next); ghosts take what is theirs.
    pub fn collect(&mut self, vcq: &Vcq) {
        loop {
            match vcq.poll_tcq() {
                Found::Nothing => break,
                Found::Success(data) => self.told.push_back(Told::Read(data, None)),
                Found::Failure(data, code) => {
                    let appeased = self.appeases(|ghost| {
                        let is_its = is_told(data) == Some(ghost.target);
                        is_its.then_some(match ghost.to_come {
                            0 => &mut ghost.greetings,
                            _ => &mut ghost.to_come,
                        })
                    });
                    if !appeased {
                        self.told.push_back(Told::Read(data, Some(code)));
                    }
                }
                Found::Broken(why) => {
                    self.told.push_back(Told::Broken(why));
                    break;
                }
            }
        }
        loop {
            let (notice, failed) = match vcq.poll_mrq() {
                Found::Nothing => break,
                Found::Success(notice) => (notice, None),
                Found::Failure(notice, code) => (notice, Some(code)),
                Found::Broken(why) => {
                    self.told.push_back(Told::Broken(why));
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
                self.told.push_back(Told::Notice(notice, failed));
            }
        }
        self.expire();
    }

    /// What has been found, in its order.
    pub fn next(&mut self) -> Option<Told> {
        self.told.pop_front()
    }
}

//! Peers' VCQs, and how they are lost.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use slab::Slab;
use unipgas_core::streams::Stream;
use unipgas_core::streams::greeting::SECRET;
use unipgas_core::{Error, Result};
use unipgas_utofu_sys::*;

use super::Net;
use crate::address::Address;
use crate::conversation::Conversation;
use crate::greeting::{TAG, places};
use crate::vcq;

/// Errors about a process may come so late that another one has its VCQ.
const LATE: Duration = Duration::from_secs(5);
/// Not an error of the network's: another process is there.
const LAST_WORD: i32 = 0;

/// A VCQ of a peer's.
pub struct Target {
    /// As this process numbers it.
    pub number: u32,
    /// Its ID, as notices name it.
    pub vcq: u64,
    /// The same with the path that operations take.
    pub route: u64,
    /// The STADD of its desk.
    pub(super) desk: u64,
    /// Of its process, once that is known: another one may get a VCQ whose process has died.
    secret: OnceLock<[u8; SECRET]>,
    /// Another process had it before, until when errors may be about that one.
    follows: Option<Instant>,
    lost: AtomicBool,
}

impl Target {
    /// Nothing reaches it any more.
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// The secret of the process that has it, once that is known.
    pub fn process(&self) -> Option<&[u8; SECRET]> {
        self.secret.get()
    }

    /// Whether this is the VCQ of the process with this secret, as far as is known.
    pub(super) fn is_of(&self, secret: [u8; SECRET]) -> bool {
        *self.secret.get_or_init(|| secret) == secret
    }

    /// Something to write to, where nobody reads.
    pub(super) fn sink(&self) -> u64 {
        self.desk + places::sink()
    }
}

#[derive(Default)]
pub(super) struct Targets {
    pub(super) numbers: HashMap<u64, u32>,
    /// VCQs whose processes have died.
    pub(super) lost: HashSet<u64>,
    pub(super) all: Slab<Arc<Target>>,
}

impl Net {
    /// The peer's VCQ with this ID. Errors: [`Error::Os`].
    pub(super) fn target(&self, vcq: u64) -> Result<Arc<Target>> {
        if let Some(known) = self.known(vcq) {
            return Ok(known);
        }
        let own = &self.lanes.first().vcq;
        let (desk, route) = (own.tagged(vcq, TAG)?, own.route(vcq)?);
        let mut targets = self.targets.write();
        if let Some(known) = targets.find(vcq) {
            return Ok(known.clone());
        }
        let again = targets.lost.contains(&vcq);
        let entry = targets.all.vacant_entry();
        let new = Arc::new(Target {
            number: entry.key() as u32,
            vcq,
            route,
            desk,
            secret: OnceLock::new(),
            follows: again.then(|| Instant::now() + LATE),
            lost: AtomicBool::new(false),
        });
        entry.insert(new.clone());
        targets.numbers.insert(vcq, new.number);
        Ok(new)
    }

    /// That of the process with this address. What is known of another one with this VCQ is over. Errors: [`Error::Os`].
    pub(super) fn target_of(&self, address: &Address) -> Result<Arc<Target>> {
        loop {
            let target = self.target(address.vcq)?;
            if target.is_of(address.secret) {
                return Ok(target);
            }
            self.declare_dead(&target);
        }
    }

    pub(super) fn known(&self, vcq: u64) -> Option<Arc<Target>> {
        self.targets.read().find(vcq).cloned()
    }

    pub(super) fn numbered(&self, number: u32) -> Option<Arc<Target>> {
        self.targets.read().all.get(number as usize).cloned()
    }

    /// Where a VCQ is, for people.
    pub fn place(&self, vcq: u64) -> String {
        self.lanes.first().vcq.place(vcq)
    }

    /// Whether an error that tells of this VCQ may be about the process that had it before.
    pub(super) fn is_late(&self, target: &Arc<Target>) -> bool {
        let follows = target.follows.is_some_and(|until| Instant::now() < until);
        let all = || self.all().into_iter();
        follows && all().all(|one| !Arc::ptr_eq(&one.target, target) || !one.is_open())
    }

    /// Others have seen that the process which has this VCQ died: what comes from it late is not of one that has come after it.
    pub fn declare_dead(&self, target: &Arc<Target>) {
        if let Some(secret) = target.process() {
            self.departed.add(*secret, false, Error::PeerDead);
        }
        self.lose(target, LAST_WORD);
    }

    /// Tells of an error that none of this process's operations has.
    pub(super) fn tell_of(&self, error: &Error) {
        if let Error::Os(why) = error {
            unipgas_core::tell_refusal(&Error::Os(format!("tofu: {why}")));
        }
    }

    /// This process can use its VCQs no more: whatever is under way ends, and nothing more goes.
    pub(super) fn breaks(&self, why: Error) {
        self.tell_of(&why);
        if self.broken.set(why).is_err() {
            return;
        }
        let all: Vec<_> = (self.targets.read().all.iter())
            .map(|(_, target)| target.clone())
            .collect();
        all.iter().for_each(|target| self.give_up(target));
    }

    /// Something for this VCQ has failed on this side. The peer may live, and wait for it: so it is told that the streams end.
    pub(super) fn give_up(&self, target: &Arc<Target>) {
        self.say_farewell(target);
        self.lose(target, LAST_WORD);
    }

    pub(super) fn say_farewell(&self, target: &Arc<Target>) {
        let with_it = |one: &Arc<Conversation>| Arc::ptr_eq(&one.target, target);
        for one in self.all().iter().filter(|one| with_it(one)) {
            one.close();
        }
    }

    /// Nothing reaches this VCQ any more.
    pub(super) fn lose(&self, target: &Arc<Target>, code: i32) {
        if code != LAST_WORD && self.is_late(target) {
            // Nothing depends on it yet but greetings, which are said again.
            for lane in self.lanes.iter() {
                drop(lane.forget(target));
            }
            return;
        }
        // Also where the peer is to blame: it may live, and wait for this process.
        if code != LAST_WORD && !target.is_lost() {
            self.say_farewell(target);
        }
        if target.lost.swap(true, Ordering::AcqRel) {
            return;
        }
        if code != LAST_WORD {
            let (place, name) = (self.place(target.vcq), vcq::name(code));
            let why = format!("what goes to {place} fails: {name}");
            match is_of_this_side(code) {
                true => self.tell_of(&Error::Os(why)),
                false => tracing::debug!("tofu: {why}"),
            }
        }
        let mut targets = self.targets.write();
        targets.numbers.remove(&target.vcq);
        targets.lost.insert(target.vcq);
        drop(targets);
        for one in self.all() {
            if Arc::ptr_eq(&one.target, target) {
                if !one.is_open() {
                    one.is_refused(Error::PeerDead);
                }
                one.fail();
                self.call(&one);
            }
        }
        for card in self.cards.lock().iter_mut() {
            let of_it = |number: u32| {
                let one = self.find(number);
                one.is_none_or(|one| Arc::ptr_eq(&one.target, target))
            };
            if card.is_some_and(of_it) {
                *card = None;
            }
        }
        // Who waits for what is under way there learns it when its stream ends.
        for lane in self.lanes.iter() {
            drop(lane.forget(target));
        }
        self.owner.wake();
    }
}

/// Whether the error says nothing of the peer, which may well live.
fn is_of_this_side(code: i32) -> bool {
    let local = [
        UTOFU_ERR_MRQ_LCL_MEMORY,
        UTOFU_ERR_MRQ_LCL_STADD,
        UTOFU_ERR_MRQ_LCL_LENGTH,
    ];
    (UTOFU_ERR_TCQ_LENGTH..=UTOFU_ERR_TCQ_OTHER).contains(&code) || local.contains(&code)
}

impl Targets {
    pub(super) fn find(&self, vcq: u64) -> Option<&Arc<Target>> {
        let number = *self.numbers.get(&vcq)?;
        self.all.get(number as usize)
    }
}

/// What descriptors have that names their target where they fail: all but messages, which have a number of their own.
pub fn data_of(to: &Target) -> usize {
    (to.number as usize) << 2 | 1
}

//! Peers' VCQs, and their loss.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use slab::Slab;
use unipgas_core::streams::Stream;
use unipgas_core::streams::greeting::SECRET;
use unipgas_core::{Error, Result};
use unipgas_utofu_sys::*;

use super::TofuNet;
use crate::address::TofuAddress;
use crate::conversation::TofuStream;
use crate::greeting::{TAG, places};
use crate::vcq;

/// Errors of an earlier process may arrive this late, after another process got its VCQ.
const LATE: Duration = Duration::from_secs(5);
/// Not a network error: the process is dead, or the caller has already closed its streams.
const LAST_WORD: i32 = 0;

/// A VCQ of a peer.
pub(crate) struct PeerVcq {
    /// Its number in this process.
    pub number: u32,
    /// Its ID in notices.
    pub vcq: u64,
    /// Its ID with a path, for operations.
    pub route: u64,
    /// The STADD of its desk.
    pub(super) desk: u64,
    /// Secret of its process, once known. After the death of that process, another process may get the VCQ.
    secret: OnceLock<[u8; SECRET]>,
    /// Set if another process had the VCQ before: errors up to this time may be about that process.
    follows: Option<Instant>,
    lost: AtomicBool,
}

impl PeerVcq {
    /// Whether no operation can reach it any more.
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// Secret of its process, once known.
    pub fn process(&self) -> Option<&[u8; SECRET]> {
        self.secret.get()
    }

    /// Whether it belongs to the process with this secret. An unknown owner becomes that process.
    pub(super) fn is_of(&self, secret: [u8; SECRET]) -> bool {
        *self.secret.get_or_init(|| secret) == secret
    }

    /// STADD of memory for ignored writes.
    pub(super) fn sink(&self) -> u64 {
        self.desk + places::sink()
    }
}

#[derive(Default)]
pub(super) struct Targets {
    pub(super) numbers: HashMap<u64, u32>,
    /// VCQs of dead processes.
    pub(super) lost: HashSet<u64>,
    pub(super) all: Slab<Arc<PeerVcq>>,
}

impl TofuNet {
    /// The target of this VCQ. Errors: [`Error::Os`].
    pub(super) fn target(&self, vcq: u64) -> Result<Arc<PeerVcq>> {
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
        let new = Arc::new(PeerVcq {
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

    /// The target of the process with this address. A target of another process with the same VCQ is declared dead. Errors: [`Error::Os`].
    pub(super) fn target_of(&self, address: &TofuAddress) -> Result<Arc<PeerVcq>> {
        loop {
            let target = self.target(address.vcq)?;
            if target.is_of(address.secret) {
                return Ok(target);
            }
            self.declare_dead(&target);
        }
    }

    pub(super) fn known(&self, vcq: u64) -> Option<Arc<PeerVcq>> {
        self.targets.read().find(vcq).cloned()
    }

    pub(super) fn numbered(&self, number: u32) -> Option<Arc<PeerVcq>> {
        self.targets.read().all.get(number as usize).cloned()
    }

    /// Location of a VCQ, for people.
    pub fn place(&self, vcq: u64) -> String {
        self.lanes.first().vcq.place(vcq)
    }

    /// Whether an error of this VCQ may be about its earlier process.
    pub(super) fn is_late(&self, target: &Arc<PeerVcq>) -> bool {
        let follows = target.follows.is_some_and(|until| Instant::now() < until);
        let all = || self.all().into_iter();
        follows && all().all(|one| !Arc::ptr_eq(&one.target, target) || !one.is_open())
    }

    /// Another source reports the death of the target's process. Late messages then cannot count for its successor.
    pub fn declare_dead(&self, target: &Arc<PeerVcq>) {
        if let Some(secret) = target.process() {
            self.departed.add(*secret, false, Error::PeerDead);
        }
        self.lose(target, LAST_WORD);
    }

    /// Reports an error that no operation of a caller carries.
    pub(super) fn tell_of(&self, error: &Error) {
        if let Error::Os(why) = error {
            unipgas_core::tell_refusal(&Error::Os(format!("tofu: {why}")));
        }
    }

    /// The VCQs of this process are unusable: operations in flight end, and new ones fail.
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

    /// An operation for this VCQ has failed on this side. The peer may live and wait for it, so its streams are closed first.
    pub(super) fn give_up(&self, target: &Arc<PeerVcq>) {
        self.say_farewell(target);
        self.lose(target, LAST_WORD);
    }

    pub(super) fn say_farewell(&self, target: &Arc<PeerVcq>) {
        let with_it = |one: &Arc<TofuStream>| Arc::ptr_eq(&one.target, target);
        for one in self.all().iter().filter(|one| with_it(one)) {
            one.close();
        }
    }

    /// Loses this VCQ: no operation can reach it any more.
    pub(super) fn lose(&self, target: &Arc<PeerVcq>, code: i32) {
        if code != LAST_WORD && self.is_late(target) {
            // Only greetings depend on it yet, and they are repeated.
            for lane in self.lanes.iter() {
                drop(lane.forget(target));
            }
            return;
        }
        // Also if the peer is to blame: it may live, and wait for this process.
        if code != LAST_WORD && !target.is_lost() {
            self.say_farewell(target);
        }
        if target.lost.swap(true, Ordering::AcqRel) {
            return;
        }
        if code != LAST_WORD {
            let (place, name) = (self.place(target.vcq), vcq::name(code));
            let why = format!("commands to {place} fail: {name}");
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
                    one.on_refused(Error::PeerDead);
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
        // Waiters for these operations learn of the loss by the end of their stream.
        for lane in self.lanes.iter() {
            drop(lane.forget(target));
        }
        self.owner.wake();
    }
}

/// Whether the error is local, so that the peer may live.
fn is_of_this_side(code: i32) -> bool {
    let local = [
        UTOFU_ERR_MRQ_LCL_MEMORY,
        UTOFU_ERR_MRQ_LCL_STADD,
        UTOFU_ERR_MRQ_LCL_LENGTH,
    ];
    (UTOFU_ERR_TCQ_LENGTH..=UTOFU_ERR_TCQ_OTHER).contains(&code) || local.contains(&code)
}

impl Targets {
    pub(super) fn find(&self, vcq: u64) -> Option<&Arc<PeerVcq>> {
        let number = *self.numbers.get(&vcq)?;
        self.all.get(number as usize)
    }
}

/// Data of a descriptor: its target, for a failure. Messages have a number of their own instead.
pub fn data_of(to: &PeerVcq) -> usize {
    (to.number as usize) << 2 | 1
}

//! What the device has been asked to do: numbers that stay what they are on a slow machine.

use std::iter::Sum;
use std::ops::Add;
use std::sync::Weak;

use parking_lot::Mutex;

use crate::net::Net;

/// Of one connection, or of all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls that post.
    pub doorbells: u64,
    /// Work requests.
    pub requests: u64,
    /// Of these the ones whose end the device tells.
    pub told: u64,
    /// Ends, messages and notices that have been taken from completion queues.
    pub completions: u64,
}

impl Add for Counts {
    type Output = Counts;

    fn add(self, other: Counts) -> Counts {
        Counts {
            doorbells: self.doorbells + other.doorbells,
            requests: self.requests + other.requests,
            told: self.told + other.told,
            completions: self.completions + other.completions,
        }
    }
}

impl Sum for Counts {
    fn sum<I: Iterator<Item = Counts>>(all: I) -> Counts {
        all.fold(Counts::default(), Add::add)
    }
}

static NET: Mutex<Weak<Net>> = Mutex::new(Weak::new());

/// The process's place in the network is this one.
pub(crate) fn count(net: &Weak<Net>) {
    *NET.lock() = net.clone();
}

/// What this process's place in the network has done until now; `None`: it has none.
pub fn of_this_process() -> Option<Counts> {
    let net = NET.lock().upgrade()?;
    Some(net.counts())
}

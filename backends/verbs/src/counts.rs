//! What the device has been asked to do: numbers that stay what they are on a slow machine.

use std::iter::Sum;
use std::ops::Add;
use std::sync::{Arc, Weak};

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

/// A process that uses several interfaces has several.
static NETS: Mutex<Vec<Weak<Net>>> = Mutex::new(Vec::new());

fn nets() -> Vec<Arc<Net>> {
    NETS.lock().iter().filter_map(Weak::upgrade).collect()
}

/// The process has this place in the network.
pub(crate) fn count(net: &Weak<Net>) {
    let mut nets = NETS.lock();
    nets.retain(|net| net.strong_count() > 0);
    nets.push(net.clone());
}

/// The device of this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// As in /sys/class/infiniband.
    pub name: String,
    /// It is no adapter: its times are those of the processor.
    pub is_software: bool,
}

/// What this process uses; `None`: it has no place in the network.
pub fn device() -> Option<Named> {
    let name = nets().first()?.device.context.name.clone();
    // What is no hardware has no parent there.
    let place = std::fs::canonicalize(format!("/sys/class/infiniband/{name}"));
    let is_software = place.is_ok_and(|place| place.starts_with("/sys/devices/virtual"));
    let is_fake = !std::path::Path::new("/sys/class/infiniband")
        .join(&name)
        .exists();
    Some(Named {
        name,
        is_software: is_software || is_fake,
    })
}

/// What has been done for this process until now.
pub fn of_this_process() -> Counts {
    nets().iter().map(|net| net.counts()).sum()
}

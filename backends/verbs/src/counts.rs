//! Counters of device work: numbers that do not depend on the speed of the machine.

use std::iter::Sum;
use std::ops::Add;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::net::Net;

/// Counters of one connection, or of all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls that post work requests.
    pub doorbells: u64,
    /// Posted work requests.
    pub requests: u64,
    /// Signaled work requests.
    pub told: u64,
    /// Entries of completion queues: completions of sends, and received messages and notices.
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

/// Several if the process uses several interfaces.
static NETS: Mutex<Vec<Weak<Net>>> = Mutex::new(Vec::new());

fn nets() -> Vec<Arc<Net>> {
    NETS.lock().iter().filter_map(Weak::upgrade).collect()
}

/// Registers a network of this process.
pub(crate) fn count(net: &Weak<Net>) {
    let mut nets = NETS.lock();
    nets.retain(|net| net.strong_count() > 0);
    nets.push(net.clone());
}

/// A device of this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// Its name in /sys/class/infiniband.
    pub name: String,
    /// The device is software: its times depend on the processor.
    pub is_software: bool,
}

/// The device of this process. `None`: it uses none.
pub fn device() -> Option<Named> {
    let name = nets().first()?.device.context.name.clone();
    // Software devices have no hardware parent in sysfs.
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

/// Counters of this process so far.
pub fn of_this_process() -> Counts {
    nets().iter().map(|net| net.counts()).sum()
}

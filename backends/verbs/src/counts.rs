//! Counters of device work: numbers that do not depend on the speed of the machine.

use std::iter::Sum;
use std::ops::Add;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::net::VerbsNet;

/// Counters of one connection, or of all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ConnectionCounters {
    /// Calls that post work requests.
    pub doorbells: u64,
    /// Posted work requests.
    pub requests: u64,
    /// Signaled work requests.
    pub told: u64,
    /// Entries of completion queues: completions of sends, and received messages and notices.
    pub completions: u64,
}

impl Add for ConnectionCounters {
    type Output = ConnectionCounters;

    fn add(self, other: ConnectionCounters) -> ConnectionCounters {
        ConnectionCounters {
            doorbells: self.doorbells + other.doorbells,
            requests: self.requests + other.requests,
            told: self.told + other.told,
            completions: self.completions + other.completions,
        }
    }
}

impl Sum for ConnectionCounters {
    fn sum<I: Iterator<Item = ConnectionCounters>>(all: I) -> ConnectionCounters {
        all.fold(ConnectionCounters::default(), Add::add)
    }
}

/// Several if the process uses several interfaces.
static NETS: Mutex<Vec<Weak<VerbsNet>>> = Mutex::new(Vec::new());

fn nets() -> Vec<Arc<VerbsNet>> {
    NETS.lock().iter().filter_map(Weak::upgrade).collect()
}

/// Registers a network of this process.
pub(crate) fn count(net: &Weak<VerbsNet>) {
    let mut nets = NETS.lock();
    nets.retain(|net| net.strong_count() > 0);
    nets.push(net.clone());
}

/// A device of this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its name in /sys/class/infiniband.
    pub name: String,
    /// The device is software: its times depend on the processor.
    pub is_software: bool,
}

/// The device of this process. `None`: it uses none.
pub fn device() -> Option<DeviceInfo> {
    let name = nets().first()?.device.context.name.clone();
    // Software devices have no hardware parent in sysfs.
    let place = std::fs::canonicalize(format!("/sys/class/infiniband/{name}"));
    let is_software = place.is_ok_and(|place| place.starts_with("/sys/devices/virtual"));
    let is_fake = !std::path::Path::new("/sys/class/infiniband")
        .join(&name)
        .exists();
    Some(DeviceInfo {
        name,
        is_software: is_software || is_fake,
    })
}

/// Counters of this process so far.
pub fn of_this_process() -> ConnectionCounters {
    nets().iter().map(|net| net.counts()).sum()
}

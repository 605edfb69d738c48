//! Alarms: a ring of a process's [bell](crate::bell) wakes its progress thread, which sleeps on file descriptors.
//!
//! A bell wakes threads that sleep on its word, and knows no descriptors. Each process that can ring a bell therefore registers an alarm for the progress
//! thread of its owner. This includes the owner and each peer that has mapped the bell. A ring looks the alarm up only if that thread sleeps.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::bell::Bell;
use crate::process;

/// Wakes the progress thread of a bell's owner.
pub trait Alarm: Send + Sync {
    /// Wakes the thread. A failure only costs time: the thread polls after each `SLICE`.
    fn sound(&self);
}

/// Alarms by the address of the bell in this process. A ring sounds the last alarm of a bell.
static KNOWN: RwLock<BTreeMap<usize, Vec<Arc<dyn Alarm>>>> = RwLock::new(BTreeMap::new());

/// As long as this exists, rings of a bell also reach the progress thread of its owner.
pub struct Connected {
    bell: usize,
    alarm: Arc<dyn Alarm>,
    process: u32,
}

impl Connected {
    /// Rings of `bell`, at its address in this process, sound `alarm`.
    pub fn new(bell: *const Bell, alarm: Arc<dyn Alarm>) -> Self {
        let bell = bell.addr();
        let mut known = KNOWN.write();
        known.entry(bell).or_default().push(alarm.clone());
        Connected {
            bell,
            alarm,
            process: process::id(),
        }
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        if self.process != process::id() {
            // In the child of a fork, the lock may stay held for ever.
            return;
        }
        let mut known = KNOWN.write();
        if let Some(alarms) = known.get_mut(&self.bell) {
            let this = alarms.iter().position(|a| Arc::ptr_eq(a, &self.alarm));
            if let Some(this) = this {
                alarms.remove(this);
            }
            if alarms.is_empty() {
                known.remove(&self.bell);
            }
        }
    }
}

/// Wakes the progress thread of the owner of `bell`.
pub(crate) fn sound(bell: &Bell) {
    let address = std::ptr::from_ref(bell).addr();
    let alarm = {
        let known = KNOWN.read();
        known
            .get(&address)
            .and_then(|alarms| alarms.last().cloned())
    };
    if let Some(alarm) = alarm {
        alarm.sound();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[derive(Default)]
    struct Counting(AtomicUsize);

    impl Alarm for Counting {
        fn sound(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_ring_sounds_the_alarm_once_for_each_sleep() {
        let bell = Bell::default();
        let counting = Arc::new(Counting::default());
        let count = || counting.0.load(Ordering::Relaxed);
        let connected = Connected::new(&raw const bell, counting.clone());
        bell.ring_if_heard();
        assert_eq!(count(), 0, "no thread sleeps");
        bell.arm();
        bell.ring_if_heard();
        bell.ring_if_heard();
        assert_eq!(count(), 1, "no wake of an awake thread");
        bell.disarm();
        bell.arm();
        bell.ring();
        assert_eq!(count(), 2);
        bell.disarm();
        bell.ring();
        assert_eq!(count(), 2);
        drop(connected);
        bell.arm();
        bell.ring();
        bell.disarm();
        assert_eq!(count(), 2);
        assert_eq!(bell.sleepers(), 0);
    }
}

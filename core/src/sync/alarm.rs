//! Alarms: what wakes a progress thread that sleeps at file descriptors when one of its process's [bells](crate::bell) is rung.
//!
//! A bell wakes threads that sleep at its word, and knows no descriptors. So whoever can ring a bell says here how its owner's progress
//! thread is reached: the owner itself, and every peer that has mapped the bell. Whoever rings looks it up only if that thread sleeps.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::bell::Bell;
use crate::process;

/// How the progress thread of a bell's owner is woken.
pub trait Alarm: Send + Sync {
    /// Wakes it. A failure costs time only: the thread looks by itself after each [`SLICE`](crate::bell::SLICE).
    fn sound(&self);
}

/// By the address of the bell, here: the latest one counts.
static KNOWN: RwLock<BTreeMap<usize, Vec<Arc<dyn Alarm>>>> = RwLock::new(BTreeMap::new());

/// As long as this lives, rings of a bell reach the progress thread of its owner, too.
pub struct Connected {
    bell: usize,
    alarm: Arc<dyn Alarm>,
    process: u32,
}

impl Connected {
    /// Rings of `bell`, here, sound `alarm`.
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
            // In the child of a fork the lock may be held for ever.
            return;
        }
        let mut known = KNOWN.write();
        if let Some(alarms) = known.get_mut(&self.bell) {
            let this = alarms.iter().position(|a| Arc::ptr_eq(a, &self.alarm));
            if let Some(this) = this {
                alarms.swap_remove(this);
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
        assert_eq!(count(), 0, "nobody sleeps");
        bell.arm();
        bell.ring_if_heard();
        bell.ring_if_heard();
        assert_eq!(count(), 1, "who is awake is not woken");
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

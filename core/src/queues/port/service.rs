//! Operations on behalf of the engine itself: waited for, whatever the backend.

use crate::endpoint::Endpoint;
use crate::engine::Engine;
use crate::inbox::Record;
use crate::op::{Flags, Inbox, Outcome, Remote};
use crate::region::{Region, Rights};
use crate::{Deadline, Result, driver, mapped};
use parking_lot::Mutex;
use std::sync::atomic::Ordering;

/// Bytes that pass through at a time where neither end is mapped here.
const BOUNCE: usize = 64 << 10;

/// An endpoint and a buffer of this process.
pub struct Service {
    endpoint: Endpoint,
    bounce: Mutex<Region>,
}

impl Service {
    /// For `engine`. Errors: those of [`Engine::allocate`].
    pub fn new(engine: &Engine) -> Result<Self> {
        Ok(Service {
            endpoint: engine.endpoint(u32::MAX)?,
            bounce: Mutex::new(engine.allocate(BOUNCE, Rights::READ)?),
        })
    }

    fn settled(&self, engine: &Engine, outcome: Result<Outcome>) -> Result<()> {
        if outcome? == Outcome::Pending {
            let result = self.endpoint.drain(engine, Deadline::Never, &mut || Ok(()));
            self.endpoint.purge();
            result?;
        }
        Ok(())
    }

    /// Reads `into.len()` bytes (at most [`BOUNCE`]). Words that others change meanwhile, by atomics, are not torn where they are mapped here,
    /// and come in one order with what [`compare_swap`](Service::compare_swap) changes.
    pub fn read(&self, engine: &Engine, from: Remote<'_>, into: &mut [u8]) -> Result<()> {
        if let Some(words) = mapped::words(from, into.len(), Rights::READ)? {
            for (word, into) in words.iter().zip(into.chunks_exact_mut(size_of::<u64>())) {
                into.copy_from_slice(&word.load(Ordering::SeqCst).to_ne_bytes());
            }
            return Ok(());
        }
        let bounce = driver::lock(&self.bounce);
        let local = bounce.local(0, into.len())?;
        // SAFETY:
        // - the bounce buffer outlives the wait, and the lock keeps others off it.
        let outcome = unsafe {
            self.endpoint
                .get(local, from, into.len(), Flags::empty(), 0)
        };
        self.settled(engine, outcome)?;
        // SAFETY:
        // - `into.len()` bytes of the buffer, checked by `local`; nobody else writes them now.
        unsafe { std::ptr::copy_nonoverlapping(local.ptr, into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    /// Writes bytes (at most [`BOUNCE`]), likewise.
    pub fn write(&self, engine: &Engine, from: &[u8], to: Remote<'_>) -> Result<()> {
        if let Some(words) = mapped::words(to, from.len(), Rights::WRITE)? {
            for (word, from) in words.iter().zip(from.chunks_exact(size_of::<u64>())) {
                let value = u64::from_ne_bytes(from.try_into().expect("8 bytes"));
                word.store(value, Ordering::Release);
            }
            return Ok(());
        }
        let bounce = driver::lock(&self.bounce);
        let local = bounce.local(0, from.len())?;
        // SAFETY:
        // - `from.len()` bytes of the buffer, checked by `local`, which the lock keeps others off, and which outlives the wait.
        let outcome = unsafe {
            std::ptr::copy_nonoverlapping(from.as_ptr(), local.ptr, from.len());
            self.endpoint.put(local, to, from.len(), Flags::empty(), 0)
        };
        self.settled(engine, outcome)
    }

    /// Replaces the u64 at `at` by `value` if it equals `expected`; gives what was there before.
    pub fn compare_swap(
        &self,
        engine: &Engine,
        at: Remote<'_>,
        expected: u64,
        value: u64,
    ) -> Result<u64> {
        // Its wait takes the end of any operation of the endpoint for its own.
        let _alone = driver::lock(&self.bounce);
        self.endpoint.compare_swap(engine, at, expected, value)
    }

    /// Copies between memory of two other processes, in ascending pieces, each as `flags` say.
    pub fn relay(
        &self,
        engine: &Engine,
        from: Remote<'_>,
        to: Remote<'_>,
        len: usize,
        flags: Flags,
    ) -> Result<()> {
        from.region.check(from.offset, len, Rights::READ)?;
        to.region.check(to.offset, len, Rights::WRITE)?;
        let bounce = driver::lock(&self.bounce);
        let mapped = from.region.is_direct();
        let mut done = 0;
        loop {
            let piece = if mapped {
                len
            } else {
                (len - done).min(BOUNCE)
            };
            let to = Remote {
                region: to.region,
                offset: to.offset + done,
            };
            // SAFETY:
            // - mapped: the source was checked above, and lives as long as its region is borrowed; else the bounce buffer, which
            //   outlives the waits and is under the lock.
            unsafe {
                let source = if mapped {
                    crate::op::Local {
                        ptr: from.region.parts().base.wrapping_add(from.offset),
                        desc: 0,
                    }
                } else {
                    let local = bounce.local(0, piece)?;
                    let from = Remote {
                        region: from.region,
                        offset: from.offset + done,
                    };
                    let outcome = self.endpoint.get(local, from, piece, Flags::empty(), 0);
                    self.settled(engine, outcome)?;
                    local
                };
                let outcome = self.endpoint.put(source, to, piece, flags, 0);
                self.settled(engine, outcome)?;
            }
            done += piece;
            if done >= len {
                return Ok(());
            }
        }
    }

    /// Delivers a record.
    pub fn deliver(&self, engine: &Engine, inbox: Inbox<'_>, record: Record) -> Result<()> {
        let outcome = self.endpoint.deliver(inbox, record, Flags::empty(), 0);
        self.settled(engine, outcome)
    }
}

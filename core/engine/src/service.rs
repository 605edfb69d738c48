//! Blocking operations of the engine itself, for all backends.

use std::sync::atomic::Ordering;

use crate::endpoint::Endpoint;
use crate::engine::Engine;
use crate::inbox::Record;
use crate::op::{Flags, Inbox, Local, Remote};
use crate::{Deadline, Result, Rights, mapped};

/// Bytes copied at a time if neither side is mapped here.
const PIECE: usize = 64 << 10;

/// An endpoint for these operations. A wait for one peer does not delay operations to other peers.
pub struct Service(Endpoint);

impl Service {
    /// An endpoint of `engine`. Errors: as [`Engine::endpoint`].
    pub fn new(engine: &Engine) -> Result<Self> {
        engine.endpoint(u32::MAX).map(Service)
    }

    /// Reads `into.len()` bytes. If the memory is mapped here, words that atomics change meanwhile are not torn. Their loads are in one order with
    /// [`compare_swap`](Service::compare_swap).
    pub fn read(&self, engine: &Engine, from: Remote<'_>, into: &mut [u8]) -> Result<()> {
        if let Some(words) = mapped::words(from, into.len(), Rights::READ)? {
            for (word, into) in words.iter().zip(into.chunks_exact_mut(size_of::<u64>())) {
                into.copy_from_slice(&word.load(Ordering::SeqCst).to_ne_bytes());
            }
            return Ok(());
        }
        self.0.read(engine, from, into, Deadline::Never)
    }

    /// Writes bytes. If the memory is mapped here, words are not torn.
    pub fn write(&self, engine: &Engine, from: &[u8], to: Remote<'_>) -> Result<()> {
        if let Some(words) = mapped::words(to, from.len(), Rights::WRITE)? {
            for (word, from) in words.iter().zip(from.chunks_exact(size_of::<u64>())) {
                let value = u64::from_ne_bytes(from.try_into().expect("8 bytes"));
                word.store(value, Ordering::Release);
            }
            return Ok(());
        }
        self.0
            .write(engine, from, to, Flags::empty(), Deadline::Never)
    }

    /// Replaces the u64 at `at` by `value` if it equals `expected`. Returns the previous value.
    pub fn compare_swap(
        &self,
        engine: &Engine,
        at: Remote<'_>,
        expected: u64,
        value: u64,
    ) -> Result<u64> {
        self.0.compare_swap(engine, at, expected, value)
    }

    /// Copies between the memory of two other processes, in ascending pieces with `flags`.
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
        if from.region.is_direct() {
            let source = Local::unregistered(from.region.parts().base.wrapping_add(from.offset));
            // SAFETY:
            // - the source was checked above, and is valid while its region is borrowed.
            return unsafe { self.0.put_and_wait(engine, source, to, len, flags) };
        }
        let mut piece = vec![0; len.min(PIECE)];
        for done in (0..len).step_by(PIECE) {
            let at = |end: Remote<'_>| end.offset + done;
            let piece = &mut piece[..(len - done).min(PIECE)];
            let (region, offset) = (from.region, at(from));
            self.0
                .read(engine, Remote { region, offset }, piece, Deadline::Never)?;
            let (region, offset) = (to.region, at(to));
            let to = Remote { region, offset };
            self.0.write(engine, piece, to, flags, Deadline::Never)?;
        }
        Ok(())
    }

    /// Delivers a record.
    pub fn deliver(&self, engine: &Engine, inbox: Inbox<'_>, record: Record) -> Result<()> {
        self.0.deliver_and_wait(engine, inbox, record)
    }
}

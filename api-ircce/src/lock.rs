//! Locks (`RCCE_acquire_lock`): one word at each UE, with the holder's number and a bit for each waiter.

use unipgas_core::{Deadline, Error, Flags, Notice, Remote};

use crate::mpb::local;
use crate::process::Ue;
use crate::status::{Failure, Result};

/// Offset of the lock. Lowest byte: the holder's number + 1, or 0 if the lock is free. Above it: a bit for each waiting UE.
const LOCK: usize = 0;
/// Offset of the word for notices of free locks. A notice wakes this UE, which then retries; the value is not read.
const NEWS: usize = 128;
const HOLDER: u64 = 0xff;

fn waiting(id: u32) -> u64 {
    1 << (8 + id)
}

/// The next waiter after `id` in cyclic order, so that each waiter has its turn.
fn next_after(id: u32, word: u64) -> Option<u32> {
    let waiters = word >> 8;
    let later = waiters & (u64::MAX << (id + 1));
    let chosen = if later != 0 { later } else { waiters };
    (chosen != 0).then(|| chosen.trailing_zeros())
}

impl Ue {
    fn lock_word(&self, id: u32) -> Result<u64> {
        let mut word = 0u64;
        let from = self.control(id, LOCK)?;
        // SAFETY:
        // - `word` has 8 bytes, and `fetch` is complete when it returns.
        unsafe { self.fetch(local((&raw mut word).cast()), from, 8, id) }?;
        Ok(word)
    }

    fn swap_lock_word(&self, id: u32, from: u64, to: u64) -> Result<bool> {
        let at = self.control(id, LOCK)?;
        let found = self
            .endpoint
            .compare_swap(self.world().engine(), at, from, to);
        Ok(found.map_err(|error| self.blame(id, error))? == from)
    }

    /// Waits for the lock at UE `id`, and takes it. Errors: [`ErrorCode::Id`](crate::ErrorCode::Id); [`Failure::Engine`] if that UE or the holder dies.
    pub fn acquire_lock(&self, id: u32) -> Result<()> {
        self.exists(id)?;
        let me = self.id();
        // `None`: the word has the bit of this UE, so the release of the lock wakes it.
        let attempt = || -> Result<Option<()>> {
            loop {
                let word = self.lock_word(id)?;
                let waits = word & waiting(me) != 0;
                if word & HOLDER == 0 {
                    let mine = (word & !waiting(me)) | u64::from(me + 1);
                    if self.swap_lock_word(id, word, mine)? {
                        if waits {
                            // Other threads of this UE may sleep and rely on the bit.
                            self.world().engine().ring();
                        }
                        return Ok(Some(()));
                    }
                } else if waits || self.swap_lock_word(id, word, word | waiting(me))? {
                    return Ok(None);
                }
            }
        };
        let mut since = None;
        let mut check = || {
            let holder = match self.lock_word(id) {
                Ok(word) => (word & HOLDER) as u32,
                Err(Failure::Engine(error)) => return Err(error),
                Err(_) => 0,
            };
            match holder.checked_sub(1).filter(|holder| *holder < self.num()) {
                Some(holder) => self.world().check_ranks(&[id, holder], &mut since),
                None => self.world().check_ranks(&[id], &mut since),
            }
        };
        self.world()
            .engine()
            .wait_for(Deadline::Never, &mut check, || {
                // The holder may wait for one of these messages.
                if self.has_messages_under_way()
                    && let Err(failure) = self.move_messages_on()
                {
                    return Some(Err(failure));
                }
                attempt().transpose()
            })?
    }

    /// Releases the lock at UE `id`, also if another UE holds it. Errors: [`ErrorCode::Id`](crate::ErrorCode::Id).
    pub fn release_lock(&self, id: u32) -> Result<()> {
        self.exists(id)?;
        let word = loop {
            let word = self.lock_word(id)?;
            if self.swap_lock_word(id, word, word & !HOLDER)? {
                break word;
            }
        };
        match next_after(self.id(), word).filter(|next| *next < self.num()) {
            Some(next) => self.tell(next),
            None => Ok(()),
        }
    }

    fn tell(&self, id: u32) -> Result<()> {
        let Remote { region, offset } = self.control(id, NEWS)?;
        let notice = Notice {
            slot: Remote { region, offset },
            value: self.id() + 1,
        };
        if self.endpoint.fast_path().notify(notice) {
            return Ok(());
        }
        match self.endpoint.notify(notice, Flags::empty(), 0) {
            // The lock is free, also if the waiter has died.
            Err(Error::PeerDead | Error::StaleRegion) => Ok(()),
            Err(error) => Err(error.into()),
            Ok(_) => self.settle(id, 4).or(Ok(())),
        }
    }

    /// Whether a UE holds the lock at UE `id`. Errors: [`ErrorCode::Id`](crate::ErrorCode::Id).
    pub fn is_locked(&self, id: u32) -> Result<bool> {
        Ok(self.lock_word(id)? & HOLDER != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_wait_take_turns() {
        let word = waiting(0) | waiting(3) | waiting(47) | 5;
        assert_eq!(next_after(0, word), Some(3));
        assert_eq!(next_after(3, word), Some(47));
        assert_eq!(next_after(47, word), Some(0));
        assert_eq!(next_after(10, 7), None);
        assert_eq!(next_after(0, waiting(0)), Some(0));
    }
}

//! What has been posted in the issue contexts of this process, and what is under way there: written down where others read it, when a wait begins to sleep and at
//! looks at the lives of peers. Contexts count for themselves, in words that posting changes anyway.

use std::ptr::NonNull;

use parking_lot::Mutex;

use crate::sync::tally::{self, Account};
use crate::transport::Channel;

/// What an issue context has posted so far, as far as several threads do not post there at once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Issued {
    /// Operations.
    pub operations: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Issued {
    /// Since `base`.
    fn since(&self, base: &Issued) -> Issued {
        Issued {
            operations: self.operations.saturating_sub(base.operations),
            bytes: self.bytes.saturating_sub(base.bytes),
        }
    }
}

/// An issue context that is listed.
pub trait Issues: Send + Sync {
    /// What it has posted.
    fn issued(&self) -> Issued;
    /// Operations under way.
    fn pending(&self) -> usize;
}

struct Known {
    context: NonNull<dyn Issues>,
    /// What it had posted when it got its name.
    base: Issued,
    /// None where there is no room for it.
    account: Option<Account>,
}

// SAFETY:
// - contexts may be asked from any thread, and are there as long as they are known.
unsafe impl Send for Known {}

impl Known {
    fn context(&self) -> &dyn Issues {
        // SAFETY:
        // - it is there as long as it is known.
        unsafe { self.context.as_ref() }
    }

    fn issued(&self) -> Issued {
        self.context().issued().since(&self.base)
    }
}

static KNOWN: Mutex<Vec<Known>> = Mutex::new(Vec::new());

/// Has the context asked until this is dropped, where the process tells what it does. In the child of a fork nothing is asked, nor locked.
#[derive(Debug)]
pub struct Listing(Option<NonNull<()>>);

// SAFETY:
// - an address, which is only compared.
unsafe impl Send for Listing {}
// SAFETY:
// - as for Send.
unsafe impl Sync for Listing {}

impl Listing {
    /// Lists what is posted there under a name, of at most 16 bytes, for who looks at the process from the outside.
    ///
    /// # Safety
    /// The context stays where it is until this is dropped.
    pub unsafe fn new(context: &(dyn Issues + 'static), name: &str) -> Self {
        if !tally::is_told() {
            return Listing(None);
        }
        let known = Known {
            context: NonNull::from(context),
            base: Issued::default(),
            account: Account::named(name),
        };
        let listing = Listing(Some(known.context.cast()));
        KNOWN.lock().push(known);
        listing
    }

    /// Gives `change` what is known, and where the context is in it, if it is.
    fn with(&self, change: impl FnOnce(&mut Vec<Known>, usize)) {
        let Some(context) = self.0.filter(|_| tally::is_told()) else {
            return;
        };
        let mut known = KNOWN.lock();
        let found = known.iter().position(|one| one.context.cast() == context);
        if let Some(at) = found {
            change(&mut known, at);
        }
    }

    /// What is posted from now on goes under another name.
    pub fn rename(&self, name: &str) {
        self.with(|known, at| {
            let known = &mut known[at];
            let done = known.issued();
            tally::ended(done.operations, done.bytes);
            known.base.operations += done.operations;
            known.base.bytes += done.bytes;
            if let Some(account) = &known.account {
                account.rename(name);
            }
        });
    }

    /// It posts nothing more, and has posted this.
    pub fn ends(&self, issued: Issued) {
        self.with(|known, at| {
            let done = issued.since(&known.swap_remove(at).base);
            tally::ended(done.operations, done.bytes);
        });
    }
}

impl Drop for Listing {
    fn drop(&mut self) {
        self.with(|known, at| drop(known.swap_remove(at)));
    }
}

/// Writes down what has been posted, unless another thread does; the operations of those issue contexts that are there now.
#[cold]
pub fn look() -> Option<u64> {
    if !tally::is_told() {
        return None;
    }
    let known = KNOWN.try_lock()?;
    let mut all = 0u64;
    let mut others = Issued::default();
    for one in &*known {
        let issued = one.issued();
        all = all.wrapping_add(issued.operations);
        match &one.account {
            Some(account) => account.tell(issued.operations, issued.bytes),
            None => {
                others.operations += issued.operations;
                others.bytes += issued.bytes;
            }
        }
    }
    tally::of_others(others.operations, others.bytes);
    Some(all)
}

/// Writes down what is under way as well, for a wait that is a long one.
#[cold]
pub(crate) fn look_closely() {
    look();
    if !tally::is_told() {
        return;
    }
    let Some(known) = KNOWN.try_lock() else {
        return;
    };
    for one in &*known {
        if let Some(account) = &one.account {
            account.tell_pending(one.context().pending());
        }
    }
}

/// Operations under way; of quick ones only to how many peers there are some.
pub(super) fn pending(channels: &[Box<dyn Channel>]) -> usize {
    let of_one = |channel: &dyn Channel| channel.pending() + channel.quick_pending();
    channels.iter().map(|channel| of_one(&**channel)).sum()
}

//! Totals of the issue contexts of this process, and their operations in flight. They are published where other processes read them, when a wait begins to
//! sleep and at liveness checks. Contexts count for themselves, in words that a post changes anyway.

use std::ptr::NonNull;

use parking_lot::Mutex;

use crate::sync::counters::{self, Account};

/// Totals of an issue context. They may miss operations if several threads post at once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IssueTotals {
    /// Operations.
    pub operations: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl IssueTotals {
    /// The difference to `base`.
    fn since(&self, base: &IssueTotals) -> IssueTotals {
        IssueTotals {
            operations: self.operations.saturating_sub(base.operations),
            bytes: self.bytes.saturating_sub(base.bytes),
        }
    }
}

/// An issue context in the list.
pub trait Issues: Send + Sync {
    /// Its totals.
    fn issued(&self) -> IssueTotals;
    /// Operations in flight.
    fn pending(&self) -> usize;
}

struct Known {
    context: NonNull<dyn Issues>,
    /// Its totals when it got its name.
    base: IssueTotals,
    /// `None`: the table has no room for it.
    account: Option<Account>,
}

// SAFETY:
// - `Issues` is Sync. Contract of `Listing::new`: the context stays in place while it is known.
unsafe impl Send for Known {}

impl Known {
    fn context(&self) -> &dyn Issues {
        // SAFETY:
        // - contract of `Listing::new`: the context stays in place while it is known.
        unsafe { self.context.as_ref() }
    }

    fn issued(&self) -> IssueTotals {
        self.context().issued().since(&self.base)
    }
}

static KNOWN: Mutex<Vec<Known>> = Mutex::new(Vec::new());

/// Keeps an issue context in the list, if the process publishes its totals. The drop removes it. A child of a fork publishes nothing, and takes no lock.
#[derive(Debug)]
pub struct Listing(Option<NonNull<()>>);

// SAFETY:
// - the address is only compared.
unsafe impl Send for Listing {}
// SAFETY:
// - as for Send.
unsafe impl Sync for Listing {}

impl Listing {
    /// Lists the context under `name`, of at most 16 bytes, for observers outside the process.
    ///
    /// # Safety
    /// The context stays in place until the result is dropped.
    pub unsafe fn new(context: &(dyn Issues + 'static), name: &str) -> Self {
        if !counters::is_told() {
            return Listing(None);
        }
        let known = Known {
            context: NonNull::from(context),
            base: IssueTotals::default(),
            account: Account::named(name),
        };
        let listing = Listing(Some(known.context.cast()));
        KNOWN.lock().push(known);
        listing
    }

    /// Calls `change` with the list, and the position of the context, if it is listed.
    fn with(&self, change: impl FnOnce(&mut Vec<Known>, usize)) {
        let Some(context) = self.0.filter(|_| counters::is_told()) else {
            return;
        };
        let mut known = KNOWN.lock();
        let found = known.iter().position(|one| one.context.cast() == context);
        if let Some(at) = found {
            change(&mut known, at);
        }
    }

    /// Lists later operations under another name.
    pub fn rename(&self, name: &str) {
        self.with(|known, at| {
            let known = &mut known[at];
            let done = known.issued();
            counters::ended(done.operations, done.bytes);
            known.base.operations += done.operations;
            known.base.bytes += done.bytes;
            if let Some(account) = &known.account {
                account.rename(name);
            }
        });
    }

    /// Removes a context that posts no more. `issued`: its final totals.
    pub fn ends(&self, issued: IssueTotals) {
        self.with(|known, at| {
            let done = issued.since(&known.swap_remove(at).base);
            counters::ended(done.operations, done.bytes);
        });
    }
}

impl Drop for Listing {
    fn drop(&mut self) {
        self.with(|known, at| drop(known.swap_remove(at)));
    }
}

/// Publishes the totals, unless another thread does. Returns the operations of all present contexts.
#[cold]
pub fn look() -> Option<u64> {
    if !counters::is_told() {
        return None;
    }
    let known = KNOWN.try_lock()?;
    let mut all = 0u64;
    let mut others = IssueTotals::default();
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
    counters::of_others(others.operations, others.bytes);
    Some(all)
}

/// Also publishes the operations in flight. For a long wait.
#[cold]
pub(crate) fn look_closely() {
    look();
    if !counters::is_told() {
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

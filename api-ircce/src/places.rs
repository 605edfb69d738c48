//! What the requests of a scope are kept in: places that they do not leave, as the library writes what has become of them there.

use std::cell::RefCell;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use crate::process::Ue;
use crate::request::{Handle, RecvRequest, SendRequest};
use crate::status::{Code, Result, SUCCESS};

/// The requests of a scope.
pub struct Requests<'ue> {
    pub ue: &'ue Ue,
    pub sends: RefCell<Places<SendRequest>>,
    pub receives: RefCell<Places<RecvRequest>>,
}

/// Where a request is, and its number among the places.
pub struct Place<T> {
    pub at: NonNull<T>,
    number: usize,
}

impl<T> Clone for Place<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Place<T> {}

/// Requests that stay where they are, and serve one message after the other.
pub struct Places<T> {
    all: Vec<(NonNull<T>, bool)>,
    free: Vec<usize>,
}

impl<T> Places<T> {
    pub fn new() -> Self {
        Places {
            all: Vec::new(),
            free: Vec::new(),
        }
    }

    /// A place with a request of zeroes.
    pub fn take(&mut self) -> Place<T> {
        let number = self.free.pop().unwrap_or_else(|| {
            let made = Box::new(MaybeUninit::<T>::uninit());
            let at = NonNull::from(Box::leak(made)).cast();
            self.all.push((at, false));
            self.all.len() - 1
        });
        let (at, taken) = &mut self.all[number];
        *taken = true;
        // SAFETY:
        // - made above, and given to nobody; requests are integers and pointers, for which zeroes are good.
        unsafe { at.write_bytes(0, 1) };
        Place { at: *at, number }
    }

    pub fn give_back(&mut self, place: Place<T>) {
        self.all[place.number].1 = false;
        self.free.push(place.number);
    }

    /// Those that have been taken and not given back.
    pub fn left(&self) -> impl Iterator<Item = Place<T>> {
        let taken = self.all.iter().enumerate().filter(|(_, (_, taken))| *taken);
        taken.map(|(number, (at, _))| Place { at: *at, number })
    }
}

impl<T> Drop for Places<T> {
    fn drop(&mut self) {
        for (at, _) in &self.all {
            // SAFETY:
            // - made by `Box::leak` as a `MaybeUninit<T>`, which is laid out as T; requests need no drop.
            // - a scope ends after its requests, so that nothing in the library leads here.
            drop(unsafe { Box::from_raw(at.cast::<MaybeUninit<T>>().as_ptr()) });
        }
    }
}

impl Place<SendRequest> {
    pub fn handle(self) -> Handle {
        Handle::Send(self.at.as_ptr())
    }
}

impl Place<RecvRequest> {
    pub fn handle(self) -> Handle {
        Handle::Receive(self.at.as_ptr())
    }
}

/// A request's code as a result.
pub fn outcome(status: i32) -> Result<()> {
    match status {
        SUCCESS => Ok(()),
        code if code == Code::MessageLength as i32 => Err(Code::MessageLength.into()),
        _ => Err(Code::General.into()),
    }
}

impl<'ue> Requests<'ue> {
    /// None yet.
    pub fn new(ue: &'ue Ue) -> Self {
        Requests {
            ue,
            sends: RefCell::new(Places::new()),
            receives: RefCell::new(Places::new()),
        }
    }

    /// Those that nobody has waited for.
    pub fn left(&self) -> Vec<Handle> {
        let (sends, receives) = (self.sends.borrow(), self.receives.borrow());
        let sends = sends.left().map(|place| place.handle());
        sends
            .chain(receives.left().map(|place| place.handle()))
            .collect()
    }

    /// Ends all that are left: those that can be withdrawn so, if `withdraw` says that; the others by waiting for them, or, where that
    /// fails, as they are. Errors: the first one.
    pub fn end(&self, withdraw: bool) -> Result<()> {
        let mut left = self.left();
        if withdraw {
            // SAFETY:
            // - here and below: places that are taken are valid.
            left.retain(|handle| !unsafe { self.ue.withdraw(*handle) });
        }
        let mut result = Ok(());
        for handle in left {
            // SAFETY:
            // - as above.
            let ended = match unsafe { self.ue.wait_for(handle) } {
                Ok(status) => outcome(status),
                Err(failure) => {
                    // SAFETY:
                    // - as above.
                    unsafe { self.ue.abandon(handle) };
                    Err(failure)
                }
            };
            result = result.and(ended);
        }
        result
    }
}

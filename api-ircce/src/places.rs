//! Storage for the requests of a scope. The library writes to a request until it has ended, so its address stays the same.

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

/// Address of a request, and its index in [`Places`].
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

/// Requests with fixed addresses. A free request is reused.
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

    /// Takes a place, and zeroes its request.
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
        // - `at` comes from `Box::leak`, and the place was free. Requests consist of integers and pointers, so zeroes are valid.
        unsafe { at.write_bytes(0, 1) };
        Place { at: *at, number }
    }

    pub fn give_back(&mut self, place: Place<T>) {
        self.all[place.number].1 = false;
        self.free.push(place.number);
    }

    /// Places that are taken.
    pub fn left(&self) -> impl Iterator<Item = Place<T>> {
        let taken = self.all.iter().enumerate().filter(|(_, (_, taken))| *taken);
        taken.map(|(number, (at, _))| Place { at: *at, number })
    }
}

impl<T> Drop for Places<T> {
    fn drop(&mut self) {
        for (at, _) in &self.all {
            // SAFETY:
            // - the pointer comes from `Box::leak` of a `MaybeUninit<T>`, with the layout of T. Requests need no drop.
            // - a scope ends after its requests, so the library has no pointer to them.
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

/// Converts the code of an ended request to a result.
pub fn outcome(status: i32) -> Result<()> {
    match status {
        SUCCESS => Ok(()),
        code if code == Code::MessageLength as i32 => Err(Code::MessageLength.into()),
        _ => Err(Code::General.into()),
    }
}

impl<'ue> Requests<'ue> {
    /// Starts without requests.
    pub fn new(ue: &'ue Ue) -> Self {
        Requests {
            ue,
            sends: RefCell::new(Places::new()),
            receives: RefCell::new(Places::new()),
        }
    }

    /// Handles of the taken places.
    pub fn left(&self) -> Vec<Handle> {
        let (sends, receives) = (self.sends.borrow(), self.receives.borrow());
        let sends = sends.left().map(|place| place.handle());
        sends
            .chain(receives.left().map(|place| place.handle()))
            .collect()
    }

    /// Ends all requests that are left. With `withdraw`, it withdraws each request that it can. It waits for the others, and abandons a request if its wait
    /// fails. Errors: the first error.
    pub fn end(&self, withdraw: bool) -> Result<()> {
        let mut left = self.left();
        if withdraw {
            // SAFETY:
            // - the request of a taken place is valid.
            left.retain(|handle| !unsafe { self.ue.withdraw(*handle) });
        }
        let mut result = Ok(());
        for handle in left {
            // SAFETY:
            // - the request of a taken place is valid.
            let ended = match unsafe { self.ue.wait_for(handle) } {
                Ok(status) => outcome(status),
                Err(failure) => {
                    // SAFETY:
                    // - the request of a taken place is valid.
                    unsafe { self.ue.abandon(handle) };
                    Err(failure)
                }
            };
            result = result.and(ended);
        }
        result
    }
}

//! Storage for the requests of a scope. The library writes to a request until it has ended, so its address stays the same.

use std::cell::RefCell;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use crate::process::Ue;
use crate::request::{Handle, RecvRequest, SendRequest};
use crate::status::{ErrorCode, Result, SUCCESS};

/// The requests of a scope.
pub(crate) struct ScopeRequests<'ue> {
    pub ue: &'ue Ue,
    pub sends: RefCell<RequestPool<SendRequest>>,
    pub receives: RefCell<RequestPool<RecvRequest>>,
}

/// Address of a request, and its index in [`RequestPool`].
pub(crate) struct RequestSlot<T> {
    pub at: NonNull<T>,
    number: usize,
}

impl<T> Clone for RequestSlot<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for RequestSlot<T> {}

/// Requests with fixed addresses. A free request is reused.
pub(crate) struct RequestPool<T> {
    all: Vec<(NonNull<T>, bool)>,
    free: Vec<usize>,
}

impl<T> RequestPool<T> {
    pub fn new() -> Self {
        RequestPool {
            all: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Takes a place, and zeroes its request.
    pub fn take(&mut self) -> RequestSlot<T> {
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
        RequestSlot { at: *at, number }
    }

    pub fn give_back(&mut self, place: RequestSlot<T>) {
        self.all[place.number].1 = false;
        self.free.push(place.number);
    }

    /// Places that are taken.
    pub fn left(&self) -> impl Iterator<Item = RequestSlot<T>> {
        let taken = self.all.iter().enumerate().filter(|(_, (_, taken))| *taken);
        taken.map(|(number, (at, _))| RequestSlot { at: *at, number })
    }
}

impl<T> Drop for RequestPool<T> {
    fn drop(&mut self) {
        for (at, _) in &self.all {
            // SAFETY:
            // - the pointer comes from `Box::leak` of a `MaybeUninit<T>`, with the layout of T. Requests need no drop.
            // - a scope ends after its requests, so the library has no pointer to them.
            drop(unsafe { Box::from_raw(at.cast::<MaybeUninit<T>>().as_ptr()) });
        }
    }
}

impl RequestSlot<SendRequest> {
    pub fn handle(self) -> Handle {
        Handle::Send(self.at.as_ptr())
    }
}

impl RequestSlot<RecvRequest> {
    pub fn handle(self) -> Handle {
        Handle::Receive(self.at.as_ptr())
    }
}

/// Converts the code of an ended request to a result.
pub fn outcome(status: i32) -> Result<()> {
    match status {
        SUCCESS => Ok(()),
        code if code == ErrorCode::MessageLength as i32 => Err(ErrorCode::MessageLength.into()),
        _ => Err(ErrorCode::General.into()),
    }
}

impl<'ue> ScopeRequests<'ue> {
    /// Starts without requests.
    pub fn new(ue: &'ue Ue) -> Self {
        ScopeRequests {
            ue,
            sends: RefCell::new(RequestPool::new()),
            receives: RefCell::new(RequestPool::new()),
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

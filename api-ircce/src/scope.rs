//! Non-blocking messages in Rust: requests that use the memory of their surroundings, inside of a scope that outlives none of it
//! (manual §3, §4.2, §6).
//!
//! As threads of [`std::thread::scope`] do, requests borrow until the scope has ended, and it does not end before they have. So a request
//! may be forgotten, and a closure may panic: no buffer is used that is not there any more.

use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::message::{Buffer, Source};
use crate::places::{Place, Requests, outcome};
use crate::process::Ue;
use crate::request::{Handle, PENDING, RecvRequest, SendRequest, State, size};
use crate::status::{Failure, Result};

/// Where requests are made; see [`Ue::scope`]. A thread has scopes of its own.
pub struct Scope<'scope, 'env: 'scope> {
    requests: Requests<'env>,
    /// Neither lifetime may be taken for a shorter one: what is borrowed for a scope is borrowed for all of it.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

/// A send under way. Dropped or forgotten, it is waited for at the end of its scope.
#[must_use = "the end of the scope waits for it otherwise"]
pub struct Sending<'scope> {
    requests: &'scope Requests<'scope>,
    place: Place<SendRequest>,
}

/// A receive under way. Dropped or forgotten, it is waited for at the end of its scope.
#[must_use = "the end of the scope waits for it otherwise"]
pub struct Receiving<'scope> {
    requests: &'scope Requests<'scope>,
    place: Place<RecvRequest>,
    buffer: Buffer,
    lent: PhantomData<&'scope mut [u8]>,
}

/// A message that has been received.
#[derive(Debug)]
pub struct Message<'scope> {
    /// Who sent it (`iRCCE_get_source`).
    pub source: u32,
    /// Its length in bytes (`iRCCE_get_size`): not more than the buffer's.
    pub len: usize,
    /// The buffer, given back.
    pub buffer: &'scope mut [u8],
}

impl Message<'_> {
    /// The bytes of the message.
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[..self.len]
    }
}

/// What is known of a request (`iRCCE_get_status`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It waits for earlier ones (`iRCCE_RESERVED`), and can be cancelled.
    Reserved,
    /// It has begun (`iRCCE_PENDING`).
    Pending,
    /// It has ended.
    Ended,
}

/// Ends the process when it is dropped.
struct Abort;

impl Drop for Abort {
    fn drop(&mut self) {
        std::process::abort();
    }
}

impl Ue {
    /// Runs `work`, which makes requests by the scope that it is given, and waits until all of them have ended, whatever `work` has done
    /// with them. Buffers are borrowed until then; a receive that is waited for before gives its own back.
    ///
    /// Where `work` returns an error or panics, receives are taken back that no message has been found for, and so are sends that have not
    /// begun. A long message that has been offered is still waited for until the other side takes it (manual §4.2), or ends.
    ///
    /// ```no_run
    /// # use unipgas_ircce::{Failure, Ue};
    /// # fn exchange(ue: &Ue) -> Result<(), Failure> {
    /// let partner = ue.id() ^ 1;
    /// let (ping, mut pong) = ([7; 1000], [0; 1000]);
    /// ue.scope(|s| {
    ///     let send = s.isend(&ping, partner)?;
    ///     let receive = s.irecv(&mut pong, Some(partner))?;
    ///     // Computations, and now and then:
    ///     ue.push_sends()?;
    ///     let message = receive.wait()?;
    ///     assert_eq!((message.source, message.bytes()), (partner, &[7; 1000][..]));
    ///     send.wait()
    /// })
    /// # }
    /// ```
    ///
    /// While a request is open its buffer cannot be touched:
    ///
    /// ```compile_fail,E0506
    /// # use unipgas_ircce::{Failure, Ue};
    /// # fn wrong(ue: &Ue) -> Result<(), Failure> {
    /// let mut ping = [7; 1000];
    /// ue.scope(|s| {
    ///     let send = s.isend(&ping, 1)?;
    ///     ping[0] = 8;
    ///     send.wait()
    /// })
    /// # }
    /// ```
    ///
    /// ```compile_fail,E0503
    /// # use unipgas_ircce::{Failure, Ue};
    /// # fn wrong(ue: &Ue) -> Result<(), Failure> {
    /// let mut pong = [0; 1000];
    /// ue.scope(|s| {
    ///     let receive = s.irecv(&mut pong, Some(1))?;
    ///     let early = pong[0] + 1;
    ///     receive.wait().map(|_| early)
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// nor may it end before the scope does, or the request leave it:
    ///
    /// ```compile_fail,E0597
    /// # use unipgas_ircce::{Failure, Ue};
    /// # fn wrong(ue: &Ue) -> Result<(), Failure> {
    /// ue.scope(|s| {
    ///     let mut pong = [0; 1000];
    ///     s.irecv(&mut pong, Some(1))?.wait().map(|_| ())
    /// })
    /// # }
    /// ```
    ///
    /// ```compile_fail
    /// # use unipgas_ircce::{Failure, Ue};
    /// # fn wrong(ue: &Ue) -> Result<(), Failure> {
    /// let mut pong = [0; 1000];
    /// let open = ue.scope(|s| s.irecv(&mut pong, Some(1)))?;
    /// # drop(open);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Errors: those of `work`; else of the first request, among those that `work` has not waited for, that failed.
    pub fn scope<'env, T, E: From<Failure>>(
        &'env self,
        work: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> Result<T, E>,
    ) -> Result<T, E> {
        let scope = Scope {
            requests: Requests::new(self),
            scope: PhantomData,
            env: PhantomData,
        };
        // Whatever is left inconsistent by a panic is seen by nobody: it goes on below.
        let done = catch_unwind(AssertUnwindSafe(|| work(&scope)));
        let ended = {
            // A panic of the library's own must not get past requests that are still open.
            let bomb = Abort;
            let ended = scope.requests.end(!matches!(done, Ok(Ok(_))));
            std::mem::forget(bomb);
            ended
        };
        match done {
            Ok(done) => done.and_then(|value| ended.map(|()| value).map_err(E::from)),
            Err(panic) => resume_unwind(panic),
        }
    }

    /// Moves this UE's open sends on (`iRCCE_isend_push`); gives whether any are left. Errors: [`Failure::Engine`].
    pub fn push_sends(&self) -> Result<bool> {
        Ok(matches!(self.push_all(true)?, State::Open(_)))
    }

    /// Moves this UE's open receives on (`iRCCE_irecv_push`); gives whether any are left. Errors: [`Failure::Engine`].
    pub fn push_receives(&self) -> Result<bool> {
        Ok(matches!(self.push_all(false)?, State::Open(_)))
    }
}

impl<'scope> Scope<'scope, '_> {
    /// Begins to send to UE `dest` (`iRCCE_issend`); sends of a UE go one after the other. Errors: [`Code::Id`](crate::Code::Id); [`Failure::Engine`].
    pub fn isend(&'scope self, data: &'scope [u8], dest: u32) -> Result<Sending<'scope>> {
        let requests = &self.requests;
        let place = requests.sends.borrow_mut().take();
        let dest = i32::try_from(dest).unwrap_or(-1);
        // SAFETY:
        // - the place is taken until the request has ended or is abandoned, at the end of the scope at the latest.
        // - the bytes are borrowed for longer, and shared, so that nobody changes them.
        let begun = unsafe {
            let bytes = (data.as_ptr(), data.len());
            requests.ue.isend(bytes, dest, place.at.as_ptr())
        };
        match begun {
            Ok(_) => Ok(Sending { requests, place }),
            Err(failure) => {
                // SAFETY:
                // - as above.
                unsafe { requests.ue.abandon(place.handle()) };
                requests.sends.borrow_mut().give_back(place);
                Err(failure)
            }
        }
    }

    /// Begins to receive a message of any length up to the buffer's (`iRCCE_isrecv`) from `source`, or from anyone. Receives that name the
    /// sender come before those that do not. Errors: [`Code::Id`](crate::Code::Id); [`Failure::Engine`].
    pub fn irecv(
        &'scope self,
        buffer: &'scope mut [u8],
        source: Source,
    ) -> Result<Receiving<'scope>> {
        let requests = &self.requests;
        let place = requests.receives.borrow_mut().take();
        let buffer = Buffer {
            ptr: buffer.as_mut_ptr(),
            capacity: buffer.len(),
        };
        // SAFETY:
        // - the place as in `isend`.
        // - the buffer is borrowed for longer, and given to nobody else before the request has ended.
        let begun = unsafe { requests.ue.irecv(buffer, source, place.at.as_ptr()) };
        match begun {
            Ok(_) => Ok(Receiving {
                requests,
                place,
                buffer,
                lent: PhantomData,
            }),
            Err(failure) => {
                // SAFETY:
                // - as above.
                unsafe { requests.ue.abandon(place.handle()) };
                requests.receives.borrow_mut().give_back(place);
                Err(failure)
            }
        }
    }

    /// An empty list of requests (`iRCCE_init_wait_list`).
    pub fn wait_list(&'scope self) -> crate::WaitList<'scope> {
        crate::WaitList::new(&self.requests)
    }

    /// Waits for all requests of the scope that nobody has waited for. Errors: of the first that failed.
    pub fn wait_all(&'scope self) -> Result<()> {
        let mut result = Ok(());
        for handle in self.requests.left() {
            // SAFETY:
            // - a place that is taken.
            result = result.and(outcome(unsafe { self.requests.ue.wait_for(handle) }?));
        }
        result
    }
}

macro_rules! both {
    ($($name:ident)*) => {$(
        impl $name<'_> {
            /// Moves this request on, and no other (`iRCCE_isend_test`, `iRCCE_irecv_test`); gives whether it has ended. Errors:
            /// [`Failure::Engine`].
            pub fn test(&self) -> Result<bool> {
                // SAFETY:
                // - the place is taken as long as this is here.
                let state = unsafe { self.requests.ue.test(self.handle()) }?;
                Ok(matches!(state, State::Ended(_)))
            }

            /// What is known of it, without moving anything on (`iRCCE_get_status`).
            pub fn status(&self) -> Status {
                match self.state() {
                    State::Ended(_) => Status::Ended,
                    State::Open(PENDING) => Status::Pending,
                    State::Open(_) => Status::Reserved,
                }
            }

            pub(crate) fn handle(&self) -> Handle {
                self.place.handle()
            }

            pub(crate) fn state(&self) -> State {
                // SAFETY:
                // - as above.
                unsafe { self.requests.ue.status(self.handle()) }
            }
        }
    )*};
}

both! { Sending Receiving }

impl<'scope> Sending<'scope> {
    /// The receiver (`iRCCE_get_dest`).
    pub fn dest(&self) -> u32 {
        // SAFETY:
        // - the place is taken as long as this is here, and the number is written once, before.
        unsafe { (*self.place.at.as_ptr()).dest() as u32 }
    }

    /// Waits until the message has been received, and moves everything on meanwhile (`iRCCE_isend_wait`). Errors: [`Failure::Engine`].
    pub fn wait(self) -> Result<()> {
        // SAFETY:
        // - as above.
        let status = unsafe { self.requests.ue.wait_for(self.handle()) }?;
        self.ended(status)
    }

    /// Takes it back, which is possible while it is [`Status::Reserved`] (`iRCCE_isend_cancel`); else gives the request.
    pub fn cancel(self) -> Result<(), Sending<'scope>> {
        // SAFETY:
        // - as above.
        if !unsafe { self.requests.ue.cancel(self.handle()) }.1 {
            return Err(self);
        }
        self.requests.sends.borrow_mut().give_back(self.place);
        Ok(())
    }

    /// The request has ended with this code.
    pub(crate) fn ended(self, status: i32) -> Result<()> {
        self.requests.sends.borrow_mut().give_back(self.place);
        outcome(status)
    }
}

impl<'scope> Receiving<'scope> {
    /// Waits for the message, and moves everything on meanwhile (`iRCCE_irecv_wait`). Errors: [`Code::MessageLength`](crate::Code::MessageLength) if it was longer than
    /// the buffer, which the scope then keeps: the rest is lost; [`Failure::Engine`].
    pub fn wait(self) -> Result<Message<'scope>> {
        // SAFETY:
        // - the place is taken as long as this is here.
        let status = unsafe { self.requests.ue.wait_for(self.handle()) }?;
        self.ended(status)
    }

    /// Takes it back, which is possible while no message has been found for it and it is [`Status::Reserved`] (`iRCCE_irecv_cancel`):
    /// gives the buffer. Else gives the request.
    pub fn cancel(self) -> Result<&'scope mut [u8], Receiving<'scope>> {
        // SAFETY:
        // - as above.
        if !unsafe { self.requests.ue.cancel(self.handle()) }.1 {
            return Err(self);
        }
        Ok(self.give_back())
    }

    /// The request has ended with this code.
    pub(crate) fn ended(self, status: i32) -> Result<Message<'scope>> {
        let request = self.place.at.as_ptr();
        // SAFETY:
        // - as above; the request has ended, so that nobody writes it any more.
        let (source, len) = unsafe { ((*request).source() as u32, size(self.handle()) as usize) };
        let buffer = self.give_back();
        outcome(status)?;
        Ok(Message {
            source,
            len,
            buffer,
        })
    }

    /// The request has ended.
    fn give_back(self) -> &'scope mut [u8] {
        self.requests.receives.borrow_mut().give_back(self.place);
        // SAFETY:
        // - what was lent to `irecv` for as long, and that nothing else leads to any more.
        unsafe { std::slice::from_raw_parts_mut(self.buffer.ptr, self.buffer.capacity) }
    }
}

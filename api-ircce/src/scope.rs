//! Nonblocking messages in Rust: requests of a scope borrow buffers that outlive the scope (manual §3, §4.2, §6).
//!
//! As with threads of [`std::thread::scope`], requests borrow until the end of the scope, and the scope ends after its requests. So a program may forget a
//! request, and a closure may panic: the library never uses a freed buffer.

use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::message::{Buffer, MessageSource};
use crate::places::{RequestSlot, ScopeRequests, outcome};
use crate::process::Ue;
use crate::request::{Handle, PENDING, RecvRequest, SendRequest, State, size};
use crate::status::{Failure, Result};

/// Creates requests; see [`Ue::scope`]. A scope belongs to one thread.
pub struct RequestScope<'scope, 'env: 'scope> {
    requests: ScopeRequests<'env>,
    /// Both lifetimes are invariant: a buffer is borrowed until the end of the scope.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

/// A send in progress. If it is dropped or forgotten, the end of its scope waits for it.
#[must_use = "the end of the scope waits for it otherwise"]
pub struct Sending<'scope> {
    requests: &'scope ScopeRequests<'scope>,
    place: RequestSlot<SendRequest>,
}

/// A receive in progress. If it is dropped or forgotten, the end of its scope waits for it.
#[must_use = "the end of the scope waits for it otherwise"]
pub struct Receiving<'scope> {
    requests: &'scope ScopeRequests<'scope>,
    place: RequestSlot<RecvRequest>,
    buffer: Buffer,
    lent: PhantomData<&'scope mut [u8]>,
}

/// A message that has been received.
#[derive(Debug)]
pub struct Message<'scope> {
    /// The sender (`iRCCE_get_source`).
    pub source: u32,
    /// Its length in bytes (`iRCCE_get_size`), at most the buffer's length.
    pub len: usize,
    /// The buffer of the receive.
    pub buffer: &'scope mut [u8],
}

impl Message<'_> {
    /// The bytes of the message.
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[..self.len]
    }
}

/// The status of a request (`iRCCE_get_status`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestStatus {
    /// It waits for earlier requests (`iRCCE_RESERVED`), and can be cancelled.
    Reserved,
    /// It is in progress (`iRCCE_PENDING`).
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
    /// Runs `work`, which creates requests by the scope, then waits until all these requests have ended. They borrow their buffers until then. A receive
    /// returns its buffer when `work` waits for it.
    ///
    /// If `work` returns an error or panics, the scope withdraws receives without a message, and sends that have not started or no longer need their bytes.
    /// It still waits for an offered long message until the receiver has it (manual §4.2), or the receiver ends.
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
    /// A program cannot access the buffer of an open request:
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
    /// The buffer must outlive the scope, and the request cannot leave the scope:
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
    /// Errors: the error of `work`; else the first error of a request that `work` has not waited for.
    pub fn scope<'env, T, E: From<Failure>>(
        &'env self,
        work: impl for<'scope> FnOnce(&'scope RequestScope<'scope, 'env>) -> Result<T, E>,
    ) -> Result<T, E> {
        let scope = RequestScope {
            requests: ScopeRequests::new(self),
            scope: PhantomData,
            env: PhantomData,
        };
        // Unwind safe: the panic resumes below. Until then, no code sees data of `work`.
        let done = catch_unwind(AssertUnwindSafe(|| work(&scope)));
        let ended = {
            // A panic of the library must not unwind past open requests.
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

    /// Makes progress (`iRCCE_isend_push`). Returns whether sends of this UE are open. Errors: [`Failure::Engine`].
    pub fn push_sends(&self) -> Result<bool> {
        Ok(matches!(self.push_all(true)?, State::Open(_)))
    }

    /// Makes progress (`iRCCE_irecv_push`). Returns whether receives of this UE are open. Errors: [`Failure::Engine`].
    pub fn push_receives(&self) -> Result<bool> {
        Ok(matches!(self.push_all(false)?, State::Open(_)))
    }
}

impl<'scope> RequestScope<'scope, '_> {
    /// Starts a send to UE `dest` (`iRCCE_issend`). Sends of a UE run one after the other. Errors: [`ErrorCode::Id`](crate::ErrorCode::Id); [`Failure::Engine`].
    pub fn isend(&'scope self, data: &'scope [u8], dest: u32) -> Result<Sending<'scope>> {
        let requests = &self.requests;
        let place = requests.sends.borrow_mut().take();
        let dest = i32::try_from(dest).unwrap_or(-1);
        // SAFETY:
        // - the place stays taken until the request has ended or is abandoned, at the latest at the end of the scope.
        // - `data` is a shared borrow for longer than that, so the bytes do not change.
        let begun = unsafe {
            let bytes = (data.as_ptr(), data.len());
            requests.ue.isend(bytes, dest, place.at.as_ptr())
        };
        match begun {
            Ok(_) => Ok(Sending { requests, place }),
            Err(failure) => {
                // SAFETY:
                // - the place is taken, so its request is valid.
                unsafe { requests.ue.abandon(place.handle()) };
                requests.sends.borrow_mut().give_back(place);
                Err(failure)
            }
        }
    }

    /// Posts a receive (`iRCCE_isrecv`) from `source`. `None`: any UE. The message may be as long as the buffer. Receives that name the source match before
    /// receives that do not. Errors: [`ErrorCode::Id`](crate::ErrorCode::Id); [`Failure::Engine`].
    pub fn irecv(
        &'scope self,
        buffer: &'scope mut [u8],
        source: MessageSource,
    ) -> Result<Receiving<'scope>> {
        let requests = &self.requests;
        let place = requests.receives.borrow_mut().take();
        let buffer = Buffer {
            ptr: buffer.as_mut_ptr(),
            capacity: buffer.len(),
        };
        // SAFETY:
        // - the place stays taken until the request has ended or is abandoned, at the latest at the end of the scope.
        // - `buffer` is an exclusive borrow for longer than that. `Receiving` returns it only after the request has ended.
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
                // - the place is taken, so its request is valid.
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

    /// Waits for all requests of the scope that have not been waited for. Errors: the first error.
    pub fn wait_all(&'scope self) -> Result<()> {
        let mut result = Ok(());
        for handle in self.requests.left() {
            // SAFETY:
            // - `left` returns taken places, so the request is valid.
            result = result.and(outcome(unsafe { self.requests.ue.wait_for(handle) }?));
        }
        result
    }
}

macro_rules! both {
    ($($name:ident)*) => {$(
        impl $name<'_> {
            /// Makes progress on this request and on no other one (`iRCCE_isend_test`, `iRCCE_irecv_test`). Returns whether it has ended. Errors:
            /// [`Failure::Engine`].
            pub fn test(&self) -> Result<bool> {
                // SAFETY:
                // - the place is taken while self exists.
                let state = unsafe { self.requests.ue.test(self.handle()) }?;
                Ok(matches!(state, State::Ended(_)))
            }

            /// The status, without progress (`iRCCE_get_status`).
            pub fn status(&self) -> RequestStatus {
                match self.state() {
                    State::Ended(_) => RequestStatus::Ended,
                    State::Open(PENDING) => RequestStatus::Pending,
                    State::Open(_) => RequestStatus::Reserved,
                }
            }

            pub(crate) fn handle(&self) -> Handle {
                self.place.handle()
            }

            pub(crate) fn state(&self) -> State {
                // SAFETY:
                // - the place is taken while self exists.
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
        // - the place is taken while self exists. `isend` wrote the number, and no other thread changes it.
        unsafe { (*self.place.at.as_ptr()).dest() as u32 }
    }

    /// Waits until the receiver has the message, and makes progress on all requests meanwhile (`iRCCE_isend_wait`). Errors: [`Failure::Engine`].
    pub fn wait(self) -> Result<()> {
        // SAFETY:
        // - the place is taken while self exists.
        let status = unsafe { self.requests.ue.wait_for(self.handle()) }?;
        self.ended(status)
    }

    /// Cancels the send if it is [`RequestStatus::Reserved`] (`iRCCE_isend_cancel`). Otherwise returns the request.
    pub fn cancel(self) -> Result<(), Sending<'scope>> {
        // SAFETY:
        // - the place is taken while self exists.
        if !unsafe { self.requests.ue.cancel(self.handle()) }.1 {
            return Err(self);
        }
        self.requests.sends.borrow_mut().give_back(self.place);
        Ok(())
    }

    /// Frees the place of a request that has ended with this code.
    pub(crate) fn ended(self, status: i32) -> Result<()> {
        self.requests.sends.borrow_mut().give_back(self.place);
        outcome(status)
    }
}

impl<'scope> Receiving<'scope> {
    /// Waits for the message, and makes progress on all requests meanwhile (`iRCCE_irecv_wait`). Errors: [`ErrorCode::MessageLength`](crate::ErrorCode::MessageLength)
    /// if the message is longer than the buffer; [`Failure::Engine`]. After an error the rest of the message is lost, and the buffer stays borrowed until the
    /// end of the scope.
    pub fn wait(self) -> Result<Message<'scope>> {
        // SAFETY:
        // - the place is taken while self exists.
        let status = unsafe { self.requests.ue.wait_for(self.handle()) }?;
        self.ended(status)
    }

    /// Cancels the receive if it is [`RequestStatus::Reserved`] (`iRCCE_irecv_cancel`), and returns the buffer. Otherwise returns the request.
    pub fn cancel(self) -> Result<&'scope mut [u8], Receiving<'scope>> {
        // SAFETY:
        // - the place is taken while self exists.
        if !unsafe { self.requests.ue.cancel(self.handle()) }.1 {
            return Err(self);
        }
        Ok(self.give_back())
    }

    /// Frees the place of a request that has ended with this code.
    pub(crate) fn ended(self, status: i32) -> Result<Message<'scope>> {
        let request = self.place.at.as_ptr();
        // SAFETY:
        // - the place is taken while self exists. The request has ended, so no other thread writes to it.
        let (source, len) = unsafe { ((*request).source() as u32, size(self.handle()) as usize) };
        let buffer = self.give_back();
        outcome(status)?;
        Ok(Message {
            source,
            len,
            buffer,
        })
    }

    /// Frees the place of an ended request, and returns the buffer.
    fn give_back(self) -> &'scope mut [u8] {
        self.requests.receives.borrow_mut().give_back(self.place);
        // SAFETY:
        // - the pointer comes from the exclusive borrow of `irecv`, and the library has no other pointer to the buffer.
        unsafe { std::slice::from_raw_parts_mut(self.buffer.ptr, self.buffer.capacity) }
    }
}

//! §9.7: wait lists, which belong to the program.

use std::ptr::null_mut;

use libc::c_int;

use super::{functions, put_if_wanted};
use crate::environment::current;
use crate::request::{Handle, PENDING, RecvRequest, SendRequest, State};
use crate::status::{Code, Failure, Result, SUCCESS};

/// `iRCCE_WAIT_LIST`.
#[repr(C)]
#[derive(Debug)]
pub struct WaitList {
    first: *mut Member,
    last: *mut Member,
}

struct Member {
    handle: Handle,
    next: *mut Member,
}

impl WaitList {
    fn add(&mut self, handle: Handle) {
        let member = Box::into_raw(Box::new(Member {
            handle,
            next: null_mut(),
        }));
        if self.first.is_null() {
            self.first = member;
        } else {
            // SAFETY:
            // - the list is not empty, so its last member was made here and has not been taken out.
            unsafe { (*self.last).next = member };
        }
        self.last = member;
    }

    /// Takes out the first member that `wanted` says so of.
    fn take(&mut self, mut wanted: impl FnMut(Handle) -> bool) -> Option<Handle> {
        let (mut before, mut at): (*mut Member, *mut Member) = (null_mut(), self.first);
        // SAFETY:
        // - members were made by `add` and are freed only when they are taken out.
        while let Some(member) = unsafe { at.as_ref() } {
            if wanted(member.handle) {
                let next = member.next;
                // SAFETY:
                // - made by `Box::into_raw`; nothing leads to it any more after the two assignments below.
                let handle = unsafe { Box::from_raw(at) }.handle;
                // SAFETY:
                // - null, or the member before, which is still there.
                match unsafe { before.as_mut() } {
                    Some(before) => before.next = next,
                    None => self.first = next,
                }
                if next.is_null() {
                    self.last = before;
                }
                return Some(handle);
            }
            (before, at) = (at, member.next);
        }
        None
    }

    fn is_empty(&self) -> bool {
        self.first.is_null()
    }
}

/// The list behind a pointer. Errors: [`Code::General`] for null.
///
/// # Safety
/// Null or valid, and initialised.
unsafe fn list<'a>(list: *mut WaitList) -> Result<&'a mut WaitList> {
    // SAFETY:
    // - the caller's word.
    unsafe { list.as_mut() }.ok_or(Failure::Code(Code::General))
}

/// Takes out the first that has ended, and gives its status.
fn take_ended(
    list: &mut WaitList,
    state: &mut dyn FnMut(Handle) -> State,
) -> Option<(Handle, c_int)> {
    let mut status = SUCCESS;
    let found = list.take(|handle| match state(handle) {
        State::Ended(code) => {
            status = code;
            true
        }
        State::Open(_) => false,
    });
    found.map(|handle| (handle, status))
}

/// Moves everything on, and takes out the first that has ended.
fn take_ended_now(list: &mut WaitList) -> Result<Option<(Handle, c_int)>> {
    let ue = current()?;
    ue.move_messages_on()?;
    // SAFETY:
    // - the program keeps requests in a list until they have ended.
    let mut state = |handle| unsafe { ue.status(handle) };
    Ok(take_ended(list, &mut state))
}

/// # Safety
/// The places are null or valid for writes.
unsafe fn tell_which(
    found: Option<Handle>,
    send: *mut *mut SendRequest,
    receive: *mut *mut RecvRequest,
) {
    let (sent, received) = match found {
        Some(Handle::Send(request)) => (request, null_mut()),
        Some(Handle::Receive(request)) => (null_mut(), request),
        None => (null_mut(), null_mut()),
    };
    // SAFETY:
    // - the caller's word.
    unsafe {
        put_if_wanted(send, sent);
        put_if_wanted(receive, received);
    }
}

functions! {
    fn [Comm] iRCCE_test_all(wait_list: *mut WaitList, flag: *mut c_int) {
        // SAFETY:
        // - null or valid, by the C contract.
        let list = unsafe { list(wait_list) }?;
        let mut worst = SUCCESS;
        while let Some((_, status)) = take_ended_now(list)? {
            if worst == SUCCESS {
                worst = status;
            }
        }
        let done = list.is_empty();
        // SAFETY:
        // - null or valid, by the C contract.
        unsafe { put_if_wanted(flag, c_int::from(done)) };
        if !done {
            current()?.looked()?;
        }
        Ok(if done { worst } else { PENDING })
    }

    fn [Comm] iRCCE_wait_all(wait_list: *mut WaitList) {
        // SAFETY:
        // - null or valid, by the C contract.
        let list = unsafe { list(wait_list) }?;
        let ue = current()?;
        let mut worst = SUCCESS;
        while let Some(handle) = list.take(|_| true) {
            // SAFETY:
            // - the program keeps requests in a list until they have ended.
            let status = unsafe { ue.wait_for(handle) }?;
            if worst == SUCCESS {
                worst = status;
            }
        }
        Ok(worst)
    }

    fn [Comm] iRCCE_test_any(
        wait_list: *mut WaitList, send: *mut *mut SendRequest, receive: *mut *mut RecvRequest,
    ) {
        // SAFETY:
        // - null or valid, by the C contract.
        let found = take_ended_now(unsafe { list(wait_list) }?)?;
        // SAFETY:
        // - as above.
        unsafe { tell_which(found.map(|found| found.0), send, receive) };
        if found.is_none() {
            current()?.looked()?;
        }
        Ok(found.map_or(PENDING, |found| found.1))
    }

    fn [Comm] iRCCE_wait_any(
        wait_list: *mut WaitList, send: *mut *mut SendRequest, receive: *mut *mut RecvRequest,
    ) {
        // SAFETY:
        // - null or valid, by the C contract.
        let list = unsafe { list(wait_list) }?;
        let found = if list.is_empty() {
            None
        } else {
            // SAFETY:
            // - the program keeps requests in a list until they have ended.
            Some(unsafe { current()?.wait_any(|state| take_ended(list, state)) }?)
        };
        // SAFETY:
        // - null or valid, by the C contract.
        unsafe { tell_which(found.map(|found| found.0), send, receive) };
        Ok(found.map_or(SUCCESS, |found| found.1))
    }
}

/// Runs a body that returns nothing.
macro_rules! procedures {
    ($(fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $body:block)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) {
            $crate::ffi::other(unipgas_core::prototype!($name($($arg: $ty),*)), (), || $body)
        }
    )*};
}

procedures! {
    fn iRCCE_init_wait_list(wait_list: *mut WaitList) {
        if !wait_list.is_null() {
            // SAFETY:
            // - not null, so valid by the C contract.
            unsafe { wait_list.write(WaitList { first: null_mut(), last: null_mut() }) };
        }
        Ok(())
    }

    fn iRCCE_add_to_wait_list(
        wait_list: *mut WaitList, send: *mut SendRequest, receive: *mut RecvRequest,
    ) {
        // SAFETY:
        // - null or valid, by the C contract.
        let list = unsafe { list(wait_list) }?;
        if !send.is_null() {
            list.add(Handle::Send(send));
        }
        if !receive.is_null() {
            list.add(Handle::Receive(receive));
        }
        Ok(())
    }

    fn iRCCE_add_send_to_wait_list(wait_list: *mut WaitList, request: *mut SendRequest) {
        // SAFETY:
        // - the same contract.
        unsafe { iRCCE_add_to_wait_list(wait_list, request, null_mut()) };
        Ok(())
    }

    fn iRCCE_add_recv_to_wait_list(wait_list: *mut WaitList, request: *mut RecvRequest) {
        // SAFETY:
        // - the same contract.
        unsafe { iRCCE_add_to_wait_list(wait_list, null_mut(), request) };
        Ok(())
    }
}

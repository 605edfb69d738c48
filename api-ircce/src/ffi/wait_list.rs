//! Wait lists (manual §9.7). The program owns them.

use std::ptr::null_mut;

use libc::c_int;

use super::{functions, put_if_wanted};
use crate::environment::current;
use crate::request::{Handle, PENDING, RecvRequest, SendRequest, State};
use crate::status::{ErrorCode, Failure, Result, SUCCESS};

/// `iRCCE_WAIT_LIST`.
#[repr(C)]
#[derive(Debug)]
pub struct CWaitList {
    first: *mut Member,
    last: *mut Member,
}

struct Member {
    handle: Handle,
    next: *mut Member,
}

impl CWaitList {
    fn add(&mut self, handle: Handle) {
        let member = Box::into_raw(Box::new(Member {
            handle,
            next: null_mut(),
        }));
        if self.first.is_null() {
            self.first = member;
        } else {
            // SAFETY:
            // - the list is not empty, so `last` was allocated here and is still in the list.
            unsafe { (*self.last).next = member };
        }
        self.last = member;
    }

    /// Removes the first member for which `wanted` is true.
    fn take(&mut self, mut wanted: impl FnMut(Handle) -> bool) -> Option<Handle> {
        let (mut before, mut at): (*mut Member, *mut Member) = (null_mut(), self.first);
        // SAFETY:
        // - `add` allocated the members, and only removal frees them.
        while let Some(member) = unsafe { at.as_ref() } {
            if wanted(member.handle) {
                let next = member.next;
                // SAFETY:
                // - the pointer comes from `Box::into_raw` in `add`. The two assignments below remove the last references to the member.
                let handle = unsafe { Box::from_raw(at) }.handle;
                // SAFETY:
                // - `before` is null or the previous member, which is still in the list.
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

/// The list behind a pointer. Errors: [`ErrorCode::General`] for null.
///
/// # Safety
/// The pointer is null, or refers to an initialised list.
unsafe fn list<'a>(list: *mut CWaitList) -> Result<&'a mut CWaitList> {
    // SAFETY:
    // - contract of this call: the pointer is null or valid.
    unsafe { list.as_mut() }.ok_or(Failure::Code(ErrorCode::General))
}

/// Removes the first request that has ended, and returns it with its status.
fn take_ended(
    list: &mut CWaitList,
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

/// Makes progress, then as [`take_ended`].
fn take_ended_now(list: &mut CWaitList) -> Result<Option<(Handle, c_int)>> {
    let ue = current()?;
    ue.move_messages_on()?;
    // SAFETY:
    // - C contract: the program keeps the requests of a list valid until they have ended.
    let mut state = |handle| unsafe { ue.status(handle) };
    Ok(take_ended(list, &mut state))
}

/// # Safety
/// The pointers are null or valid for writes.
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
    // - contract of this call: the pointers are null or valid for writes.
    unsafe {
        put_if_wanted(send, sent);
        put_if_wanted(receive, received);
    }
}

functions! {
    fn [Comm] iRCCE_test_all(wait_list: *mut CWaitList, flag: *mut c_int) {
        // SAFETY:
        // - C contract: each pointer is null or valid.
        let list = unsafe { list(wait_list) }?;
        let mut worst = SUCCESS;
        while let Some((_, status)) = take_ended_now(list)? {
            if worst == SUCCESS {
                worst = status;
            }
        }
        let done = list.is_empty();
        // SAFETY:
        // - C contract: each pointer is null or valid.
        unsafe { put_if_wanted(flag, c_int::from(done)) };
        if !done {
            current()?.looked()?;
        }
        Ok(if done { worst } else { PENDING })
    }

    fn [Comm] iRCCE_wait_all(wait_list: *mut CWaitList) {
        // SAFETY:
        // - C contract: each pointer is null or valid.
        let list = unsafe { list(wait_list) }?;
        let ue = current()?;
        let mut worst = SUCCESS;
        while let Some(handle) = list.take(|_| true) {
            // SAFETY:
            // - C contract: the program keeps the requests of a list valid until they have ended.
            let status = unsafe { ue.wait_for(handle) }?;
            if worst == SUCCESS {
                worst = status;
            }
        }
        Ok(worst)
    }

    fn [Comm] iRCCE_test_any(
        wait_list: *mut CWaitList, send: *mut *mut SendRequest, receive: *mut *mut RecvRequest,
    ) {
        // SAFETY:
        // - C contract: each pointer is null or valid.
        let found = take_ended_now(unsafe { list(wait_list) }?)?;
        // SAFETY:
        // - C contract: each pointer is null or valid.
        unsafe { tell_which(found.map(|found| found.0), send, receive) };
        if found.is_none() {
            current()?.looked()?;
        }
        Ok(found.map_or(PENDING, |found| found.1))
    }

    fn [Comm] iRCCE_wait_any(
        wait_list: *mut CWaitList, send: *mut *mut SendRequest, receive: *mut *mut RecvRequest,
    ) {
        // SAFETY:
        // - C contract: each pointer is null or valid.
        let list = unsafe { list(wait_list) }?;
        let found = if list.is_empty() {
            None
        } else {
            // SAFETY:
            // - C contract: the program keeps the requests of a list valid until they have ended.
            Some(unsafe { current()?.wait_any(|state| take_ended(list, state)) }?)
        };
        // SAFETY:
        // - C contract: each pointer is null or valid.
        unsafe { tell_which(found.map(|found| found.0), send, receive) };
        Ok(found.map_or(SUCCESS, |found| found.1))
    }
}

/// Defines C functions without a return value.
macro_rules! procedures {
    ($(fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $body:block)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) {
            $crate::ffi::other(unipgas_core::prototype!($name($($arg: $ty),*)), (), || $body)
        }
    )*};
}

procedures! {
    fn iRCCE_init_wait_list(wait_list: *mut CWaitList) {
        if !wait_list.is_null() {
            // SAFETY:
            // - C contract: the list is valid, since it is not null.
            unsafe { wait_list.write(CWaitList { first: null_mut(), last: null_mut() }) };
        }
        Ok(())
    }

    fn iRCCE_add_to_wait_list(
        wait_list: *mut CWaitList, send: *mut SendRequest, receive: *mut RecvRequest,
    ) {
        // SAFETY:
        // - C contract: each pointer is null or valid.
        let list = unsafe { list(wait_list) }?;
        if !send.is_null() {
            list.add(Handle::Send(send));
        }
        if !receive.is_null() {
            list.add(Handle::Receive(receive));
        }
        Ok(())
    }

    fn iRCCE_add_send_to_wait_list(wait_list: *mut CWaitList, request: *mut SendRequest) {
        // SAFETY:
        // - C contract: each pointer is null or valid, as `iRCCE_add_to_wait_list` requires.
        unsafe { iRCCE_add_to_wait_list(wait_list, request, null_mut()) };
        Ok(())
    }

    fn iRCCE_add_recv_to_wait_list(wait_list: *mut CWaitList, request: *mut RecvRequest) {
        // SAFETY:
        // - C contract: each pointer is null or valid, as `iRCCE_add_to_wait_list` requires.
        unsafe { iRCCE_add_to_wait_list(wait_list, null_mut(), request) };
        Ok(())
    }
}

//! Messages and requests (manual §9.2 to §9.4, §9.6, §9.8), and RCCE's send and receive.

use std::ptr::null_mut;

use libc::{c_char, c_int, size_t, ssize_t};

use super::flag::pointed;
use super::{functions, others, put, put_if_wanted};
use crate::environment::current;
use crate::message::{Buffer, Length, MessageSource, POINT_TO_POINT};
use crate::request::{
    Common, Handle, NOT_ENQUEUED, RecvRequest, SendRequest, size as request_size,
};
use crate::status::{ErrorCode, Result, SUCCESS};
use crate::through_mpb::Channel;

/// Converts `iRCCE_ANY_SOURCE` or the number of a UE. Errors: [`ErrorCode::Id`].
pub(super) fn source(id: c_int) -> Result<MessageSource> {
    match id {
        -1 => Ok(None),
        id => u32::try_from(id)
            .map(Some)
            .map_err(|_| ErrorCode::Id.into()),
    }
}

/// Converts `iRCCE_ANY_LENGTH` or a number of bytes. Other negative numbers mean 0 bytes, as in iRCCE 2.0.
pub(super) fn length(length: ssize_t) -> Length {
    match length {
        -1 => Length::Any,
        length => Length::Bytes(usize::try_from(length).unwrap_or(0)),
    }
}

/// A buffer of `capacity` bytes (`usize::MAX`: unknown) for a message of that length. Errors: [`ErrorCode::General`] if `buffer` is null and the message may have
/// bytes.
pub(super) fn room(buffer: *mut c_char, length: Length, capacity: size_t) -> Result<Buffer> {
    let wanted = match length {
        Length::Any => capacity,
        Length::Bytes(bytes) => bytes.min(capacity),
    };
    if buffer.is_null() && wanted > 0 {
        return Err(ErrorCode::General.into());
    }
    Ok(Buffer {
        ptr: buffer.cast(),
        capacity: wanted,
    })
}

/// Errors: [`ErrorCode::General`] if `data` is null and `len` is above 0.
pub(super) fn bytes(data: *const c_char, len: usize) -> Result<(*const u8, usize)> {
    if data.is_null() && len > 0 {
        return Err(ErrorCode::General.into());
    }
    Ok((data.cast(), len))
}

const UNKNOWN: size_t = size_t::MAX;

/// Fills a send request that has nothing to send, and has ended.
///
/// # Safety
/// The request is null or valid for a write.
unsafe fn ended_send(request: *mut SendRequest, data: *mut c_char, dest: c_int) {
    let ended = SendRequest::new(Common::ended(data.cast(), dest));
    // SAFETY:
    // - contract of this call: `request` is null or valid for a write.
    unsafe { put_if_wanted(request, ended) };
}

/// Fills a receive request that has nothing to receive, and has ended.
///
/// # Safety
/// As [`ended_send`].
unsafe fn ended_receive(request: *mut RecvRequest, buffer: *mut c_char, source: c_int) {
    let ended = RecvRequest::new(Common::ended(buffer.cast(), source));
    // SAFETY:
    // - contract of this call: `request` is null or valid for a write.
    unsafe { put_if_wanted(request, ended) };
}

/// # Safety
/// The request is null or valid, and the bytes are valid. Both stay valid until the request has ended.
unsafe fn isend(
    data: *mut c_char,
    len: usize,
    dest: c_int,
    request: *mut SendRequest,
) -> Result<c_int> {
    let ue = current()?;
    let bytes = bytes(data, len)?;
    // SAFETY:
    // - contract of this call: the request and the bytes stay valid until the request has ended.
    unsafe {
        if request.is_null() {
            ue.check_id(dest)?;
            ue.send_from(bytes, dest as u32)?;
            return Ok(SUCCESS);
        }
        ended_send(request, data, dest);
        ue.isend(bytes, dest, request).map(|state| state.answer().0)
    }
}

/// # Safety
/// As [`isend`], with a buffer that is valid for writes.
unsafe fn irecv(buffer: Buffer, from: MessageSource, request: *mut RecvRequest) -> Result<c_int> {
    let ue = current()?;
    // SAFETY:
    // - contract of this call: the request and the buffer stay valid until the request has ended.
    unsafe {
        if request.is_null() {
            ue.receive_into(buffer, from, POINT_TO_POINT)?;
            return Ok(SUCCESS);
        }
        ended_receive(
            request,
            buffer.ptr.cast(),
            from.map_or(-1, |from| from as c_int),
        );
        ue.irecv(buffer, from, request)
            .map(|state| state.answer().0)
    }
}

/// Tests the request, or makes progress on all of its kind if it is null. Sets `flag` if it has ended, or if none is open.
///
/// # Safety
/// Each pointer is null or valid.
unsafe fn test(request: Handle, flag: *mut c_int) -> Result<c_int> {
    let ue = current()?;
    // SAFETY:
    // - contract of this call: each pointer is null or valid.
    unsafe {
        let state = match request.is_null() {
            true => ue.push_all(request.is_send())?,
            false => ue.test(request)?,
        };
        let (code, ended) = state.answer();
        put_if_wanted(flag, c_int::from(ended));
        Ok(code)
    }
}

/// Waits for the request, or for all of its kind if it is null.
///
/// # Safety
/// The request is null or valid.
unsafe fn wait(request: Handle) -> Result<c_int> {
    let ue = current()?;
    if request.is_null() {
        return ue.wait_all(request.is_send()).map(|()| SUCCESS);
    }
    // SAFETY:
    // - contract of this call: the request is valid, since it is not null.
    unsafe { ue.wait_for(request) }
}

/// Cancels the request, and sets `flag` if it is cancelled.
///
/// # Safety
/// Each pointer is null or valid.
unsafe fn cancel(request: Handle, flag: *mut c_int) -> Result<c_int> {
    // SAFETY:
    // - contract of this call: each pointer is null or valid.
    unsafe {
        put_if_wanted(flag, 0);
        if request.is_null() {
            return Ok(NOT_ENQUEUED);
        }
        let (code, gone) = current()?.cancel(request);
        put_if_wanted(flag, c_int::from(gone));
        Ok(code)
    }
}

functions! {
    fn [Comm] iRCCE_isend(data: *mut c_char, len: ssize_t, dest: c_int, request: *mut SendRequest) {
        if len <= 0 {
            current()?.check_id(dest)?;
            // SAFETY:
            // - C contract: each pointer is null or valid.
            unsafe { ended_send(request, data, dest) };
            return Ok(SUCCESS);
        }
        // SAFETY:
        // - C contract: the request and the bytes stay valid until the request has ended.
        unsafe { isend(data, len as usize, dest, request) }
    }

    fn [Comm] iRCCE_issend(data: *mut c_char, len: ssize_t, dest: c_int, request: *mut SendRequest) {
        // SAFETY:
        // - C contract: the request and the bytes stay valid until the request has ended.
        unsafe { isend(data, usize::try_from(len).unwrap_or(0), dest, request) }
    }

    fn [Comm] iRCCE_isend_test(request: *mut SendRequest, flag: *mut c_int) {
        // SAFETY:
        // - C contract: each pointer is null or valid.
        unsafe { test(Handle::Send(request), flag) }
    }

    fn [Comm] iRCCE_isend_wait(request: *mut SendRequest) {
        // SAFETY:
        // - C contract: each pointer is null or valid.
        unsafe { wait(Handle::Send(request)) }
    }

    fn [Comm] iRCCE_isend_push() {
        Ok(current()?.push_all(true)?.answer().0)
    }

    fn [Comm] iRCCE_isend_cancel(request: *mut SendRequest, flag: *mut c_int) {
        // SAFETY:
        // - C contract: each pointer is null or valid.
        unsafe { cancel(Handle::Send(request), flag) }
    }

    fn [Comm] iRCCE_irecv_within(
        buffer: *mut c_char, len: ssize_t, from: c_int, request: *mut RecvRequest, capacity: size_t,
    ) {
        let len = length(len);
        let from = source(from)?;
        if len == Length::Bytes(0) {
            if let Some(from) = from {
                current()?.check_id(from as c_int)?;
            }
            // SAFETY:
            // - C contract: each pointer is null or valid.
            unsafe { ended_receive(request, buffer, from.map_or(-1, |from| from as c_int)) };
            return Ok(SUCCESS);
        }
        // SAFETY:
        // - C contract: the request and the bytes stay valid until the request has ended.
        unsafe { irecv(room(buffer, len, capacity)?, from, request) }
    }

    fn [Comm] iRCCE_isrecv_within(
        buffer: *mut c_char, len: ssize_t, from: c_int, request: *mut RecvRequest, capacity: size_t,
    ) {
        // SAFETY:
        // - C contract: the request and the bytes stay valid until the request has ended.
        unsafe { irecv(room(buffer, length(len), capacity)?, source(from)?, request) }
    }

    fn [Comm] iRCCE_irecv(buffer: *mut c_char, len: ssize_t, from: c_int, request: *mut RecvRequest) {
        // SAFETY:
        // - both functions have the same C contract.
        Ok(unsafe { iRCCE_irecv_within(buffer, len, from, request, UNKNOWN) })
    }

    fn [Comm] iRCCE_isrecv(buffer: *mut c_char, len: ssize_t, from: c_int, request: *mut RecvRequest) {
        // SAFETY:
        // - both functions have the same C contract.
        Ok(unsafe { iRCCE_isrecv_within(buffer, len, from, request, UNKNOWN) })
    }

    fn [Comm] iRCCE_irecv_test(request: *mut RecvRequest, flag: *mut c_int) {
        // SAFETY:
        // - C contract: each pointer is null or valid.
        unsafe { test(Handle::Receive(request), flag) }
    }

    fn [Comm] iRCCE_irecv_wait(request: *mut RecvRequest) {
        // SAFETY:
        // - C contract: each pointer is null or valid.
        unsafe { wait(Handle::Receive(request)) }
    }

    fn [Comm] iRCCE_irecv_push() {
        Ok(current()?.push_all(false)?.answer().0)
    }

    fn [Comm] iRCCE_irecv_cancel(request: *mut RecvRequest, flag: *mut c_int) {
        // SAFETY:
        // - C contract: each pointer is null or valid.
        unsafe { cancel(Handle::Receive(request), flag) }
    }

    fn [Comm] iRCCE_ssend(data: *mut c_char, len: ssize_t, dest: c_int) {
        let ue = current()?;
        let dest = ue.check_id(dest)?;
        let bytes = bytes(data, usize::try_from(len).unwrap_or(0))?;
        // SAFETY:
        // - C contract: the bytes and the results are valid during the call.
        unsafe { ue.send_from(bytes, dest) }
    }

    fn [Comm] iRCCE_srecv_within(buffer: *mut c_char, len: ssize_t, from: c_int, capacity: size_t) {
        let (room, from) = (room(buffer, length(len), capacity)?, source(from)?);
        // SAFETY:
        // - C contract: the bytes and the results are valid during the call.
        unsafe { current()?.receive_into(room, from, POINT_TO_POINT) }.map(|_| ())
    }

    fn [Comm] iRCCE_srecv(buffer: *mut c_char, len: ssize_t, from: c_int) {
        // SAFETY:
        // - both functions have the same C contract.
        Ok(unsafe { iRCCE_srecv_within(buffer, len, from, UNKNOWN) })
    }

    // The header of version 1 declares these functions. In the header of version 2 they are macros.
    fn [Comm] iRCCE_send(data: *mut c_char, len: ssize_t, dest: c_int) {
        // SAFETY:
        // - both functions have the same C contract.
        Ok(unsafe { iRCCE_ssend(data, len, dest) })
    }

    fn [Comm] iRCCE_recv(buffer: *mut c_char, len: ssize_t, from: c_int) {
        // SAFETY:
        // - both functions have the same C contract.
        Ok(unsafe { iRCCE_srecv(buffer, len, from) })
    }

    fn [Comm] iRCCE_recv_test(buffer: *mut c_char, len: ssize_t, from: c_int, test: *mut c_int) {
        // SAFETY:
        // - both functions have the same C contract.
        Ok(unsafe { iRCCE_srecv_test(buffer, len, from, test) })
    }

    fn [Comm] iRCCE_srecv_test(buffer: *mut c_char, len: ssize_t, from: c_int, test: *mut c_int) {
        let (room, from) = (room(buffer, length(len), UNKNOWN)?, source(from)?);
        // SAFETY:
        // - C contract: the bytes and the results are valid during the call.
        unsafe {
            put(test, 0)?;
            if current()?.try_receive_into(room, from)?.is_some() {
                put(test, 1)?;
            }
            Ok(())
        }
    }

    fn [Comm] iRCCE_probe(from: c_int, rank: *mut c_int) {
        let found = current()?.probe(source(from)?)?;
        // SAFETY:
        // - C contract: each pointer is null or valid.
        unsafe { put_if_wanted(rank, found.source as c_int) };
        Ok(())
    }

    fn [Comm] iRCCE_iprobe(from: c_int, rank: *mut c_int, flag: *mut c_int) {
        let found = current()?.try_probe(source(from)?)?;
        // SAFETY:
        // - C contract: each pointer is null or valid.
        unsafe {
            put_if_wanted(flag, c_int::from(found.is_some()));
            if let Some(found) = found {
                put_if_wanted(rank, found.source as c_int);
            }
        }
        Ok(())
    }

    fn [Comm] RCCE_send(data: *mut c_char, size: size_t, dest: c_int) {
        let ue = current()?;
        let dest = ue.check_id(dest)?;
        if size == 0 {
            return Ok(());
        }
        // SAFETY:
        // - C contract: the bytes and the results are valid during the call.
        unsafe { ue.send_from(bytes(data, size)?, dest) }
    }

    fn [Comm] RCCE_recv(buffer: *mut c_char, size: size_t, from: c_int) {
        let ue = current()?;
        let from = ue.check_id(from)?;
        if size == 0 {
            return Ok(());
        }
        let room = room(buffer, Length::Bytes(size), UNKNOWN)?;
        // SAFETY:
        // - C contract: the bytes and the results are valid during the call.
        unsafe { ue.receive_into(room, Some(from), POINT_TO_POINT) }.map(|_| ())
    }

    fn [Comm] RCCE_recv_test(buffer: *mut c_char, size: size_t, from: c_int, test: *mut c_int) {
        let ue = current()?;
        let from = ue.check_id(from)?;
        let room = room(buffer, Length::Bytes(size), UNKNOWN)?;
        // SAFETY:
        // - C contract: the bytes and the results are valid during the call.
        unsafe {
            put(test, 1)?;
            if size > 0 && ue.try_receive_into(room, Some(from))?.is_none() {
                put(test, 0)?;
            }
        }
        Ok(())
    }
}

/// The window and flags of a GORY message. Errors: [`ErrorCode::Target`], [`ErrorCode::FlagUndefined`], [`ErrorCode::FlagNotInCommBuffer`].
///
/// # Safety
/// The flags are null or valid.
unsafe fn channel(
    window: *mut u8,
    chunk: size_t,
    ready: *const *mut c_int,
    sent: *const *mut c_int,
) -> Result<Channel> {
    let ue = current()?;
    // SAFETY:
    // - contract of this call: the flags are null or valid.
    unsafe {
        Ok(Channel {
            window: ue.place(window).ok_or(ErrorCode::Target)?,
            chunk,
            ready: pointed(ue, ready)?,
            sent: pointed(ue, sent)?,
        })
    }
}

functions! {
    fn [Comm] RCCE_send_gory(
        data: *mut c_char, window: *mut u8, chunk: size_t, ready: *mut *mut c_int, sent: *mut *mut c_int,
        size: size_t, dest: c_int,
    ) {
        let ue = current()?;
        let dest = ue.check_id(dest)?;
        // SAFETY:
        // - C contract: the bytes and the results are valid during the call.
        unsafe { ue.send_through(&channel(window, chunk, ready, sent)?, bytes(data, size)?, dest) }
    }

    fn [Comm] RCCE_recv_gory(
        buffer: *mut c_char, window: *mut u8, chunk: size_t, ready: *mut *mut c_int, sent: *mut *mut c_int,
        size: size_t, from: c_int,
    ) {
        let ue = current()?;
        let from = ue.check_id(from)?;
        let place = (bytes(buffer, size)?.0.cast_mut(), size);
        // SAFETY:
        // - C contract: the bytes and the results are valid during the call.
        unsafe { ue.receive_through(&channel(window, chunk, ready, sent)?, place, from) }
    }

    fn [Comm] RCCE_recv_test_gory(
        buffer: *mut c_char, window: *mut u8, chunk: size_t, ready: *mut *mut c_int, sent: *mut *mut c_int,
        size: size_t, from: c_int, test: *mut c_int,
    ) {
        let ue = current()?;
        let from = ue.check_id(from)?;
        let place = (bytes(buffer, size)?.0.cast_mut(), size);
        // SAFETY:
        // - C contract: the bytes and the results are valid during the call.
        unsafe {
            put(test, 0)?;
            let channel = channel(window, chunk, ready, sent)?;
            put(test, c_int::from(ue.try_receive_through(&channel, place, from)?))
        }
    }
}

others! {
    fn iRCCE_get_dest(request: *mut SendRequest) -> c_int, or -1; {
        // SAFETY:
        // - C contract: each pointer is null or valid.
        Ok(unsafe { request.as_ref() }.map_or(-1, |request| request.dest()))
    }

    fn iRCCE_get_source(request: *mut RecvRequest) -> c_int, or -1; {
        // SAFETY:
        // - C contract: each pointer is null or valid.
        Ok(match unsafe { request.as_ref() } {
            Some(request) => request.source(),
            None => current()?.last_source().map_or(-1, |source| source as c_int),
        })
    }

    fn iRCCE_get_size(send: *mut SendRequest, receive: *mut RecvRequest) -> c_int, or -1; {
        let size = match (send.is_null(), receive.is_null()) {
            (true, true) => current()?.last_len().map_or(-1, |len| len as i64),
            // SAFETY:
            // - C contract: the request is valid, since it is not null.
            (false, true) => unsafe { request_size(Handle::Send(send)) },
            // SAFETY:
            // - C contract: the request is valid, since it is not null.
            (true, false) => unsafe { request_size(Handle::Receive(receive)) },
            (false, false) => -1,
        };
        Ok(c_int::try_from(size).unwrap_or(c_int::MAX))
    }

    fn iRCCE_get_length() -> c_int, or -1; {
        // SAFETY:
        // - both pointers are null, which the function accepts.
        Ok(unsafe { iRCCE_get_size(null_mut(), null_mut()) })
    }

    fn iRCCE_get_status(send: *mut SendRequest, receive: *mut RecvRequest) -> c_int, or -1; {
        let handle = match (send.is_null(), receive.is_null()) {
            (false, true) => Handle::Send(send),
            (true, false) => Handle::Receive(receive),
            _ => return Ok(-1),
        };
        // SAFETY:
        // - C contract: the request is valid, since it is not null.
        Ok(unsafe { current()?.status(handle) }.answer().0)
    }
}

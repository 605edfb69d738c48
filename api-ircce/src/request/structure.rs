//! The C structures of requests.
//!
//! Some programs have their own iRCCE.h, of version 1 or 2. So the library writes only within the length of the version 1 structures, and stores peer and
//! size at the offsets of both versions.

use std::ptr::null_mut;

use super::{Handle, PENDING};
use crate::status::SUCCESS;

/// The common fields of both structures. Fields with the same meaning as in iRCCE.h have the same names.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Common {
    /// The program's bytes.
    privbuf: *mut u8,
    combuf: *mut u8,
    /// Id of the entry in `Pending`, while the request is open (`chunk`).
    pub id: u64,
    /// The status, once the request has ended (`ready`).
    pub status: i32,
    _ready: i32,
    _sent: u64,
    /// The requested size in bytes, then the size of the message.
    pub size: i64,
    /// The receiver or the sender. -1: any sender, not known yet.
    peer: i32,
    _sync: i32,
    _wsize: u64,
    size_of_version_2: i64,
    peer_of_version_2: i32,
    _nbytes: i32,
    _bufptr: u64,
    _label: i32,
    finished: i32,
}

impl Common {
    /// An open request.
    pub fn begun(id: u64, buffer: *mut u8, size: i64, peer: i32) -> Self {
        Common {
            privbuf: buffer,
            combuf: null_mut(),
            id,
            status: PENDING,
            _ready: 0,
            _sent: 0,
            size,
            peer,
            _sync: 0,
            _wsize: 0,
            size_of_version_2: size,
            peer_of_version_2: peer,
            _nbytes: 0,
            _bufptr: 0,
            _label: 0,
            finished: 0,
        }
    }

    /// An ended request without bytes.
    pub fn ended(buffer: *mut u8, peer: i32) -> Self {
        let mut common = Common::begun(0, buffer, 0, peer);
        common.end(SUCCESS);
        common
    }

    pub fn end(&mut self, status: i32) {
        self.status = status;
        self.finished = 1;
    }

    /// Stores the sender and the length of a received message.
    pub fn received(&mut self, source: i32, size: i64) {
        (self.peer, self.peer_of_version_2) = (source, source);
        (self.size, self.size_of_version_2) = (size, size);
    }

    pub fn peer(&self) -> i32 {
        self.peer
    }
}

/// `iRCCE_SEND_REQUEST`, as far as this library uses it.
#[repr(C)]
#[derive(Debug)]
pub struct SendRequest {
    pub(crate) common: Common,
    _next: u64,
}

/// `iRCCE_RECV_REQUEST`, as far as this library uses it.
#[repr(C)]
#[derive(Debug)]
pub struct RecvRequest {
    pub(crate) common: Common,
    _started: u64,
    _next: u64,
}

const _: () = assert!(size_of::<SendRequest>() == 104 && size_of::<RecvRequest>() == 112);
const _: () = {
    use std::mem::offset_of;
    assert!(offset_of!(Common, size) == 40 && offset_of!(Common, peer) == 48);
    assert!(offset_of!(Common, size_of_version_2) == 64);
    assert!(offset_of!(Common, peer_of_version_2) == 72);
    assert!(offset_of!(Common, finished) == 92);
};

impl SendRequest {
    pub(crate) fn new(common: Common) -> Self {
        SendRequest { common, _next: 0 }
    }

    /// The receiver.
    pub fn dest(&self) -> i32 {
        self.common.peer()
    }

    /// The program's bytes.
    pub fn privbuf(&self) -> *mut u8 {
        self.common.privbuf
    }

    /// Whether it has ended.
    pub fn finished(&self) -> bool {
        self.common.finished != 0
    }
}

impl RecvRequest {
    pub(crate) fn new(common: Common) -> Self {
        RecvRequest {
            common,
            _started: 0,
            _next: 0,
        }
    }

    /// The sender. -1: any sender, not known yet.
    pub fn source(&self) -> i32 {
        self.common.peer()
    }

    /// Whether it has ended.
    pub fn finished(&self) -> bool {
        self.common.finished != 0
    }
}

impl Handle {
    pub(crate) fn is_send(self) -> bool {
        matches!(self, Handle::Send(_))
    }

    pub(crate) fn is_null(self) -> bool {
        match self {
            Handle::Send(request) => request.is_null(),
            Handle::Receive(request) => request.is_null(),
        }
    }

    /// # Safety
    /// The pointer is valid, and not null.
    pub(crate) unsafe fn common(self) -> *mut Common {
        // SAFETY:
        // - contract of this call: the pointer is valid.
        unsafe {
            match self {
                Handle::Send(request) => &raw mut (*request).common,
                Handle::Receive(request) => &raw mut (*request).common,
            }
        }
    }
}

//! Completion queues.

use std::ffi::{c_char, c_int, c_void};
use std::mem::offset_of;
use std::sync::Arc;

use parking_lot::Mutex;

use super::domain::DomainObject;
use super::naming::Format;
use super::{Object, code, control_waits, deadline, fid_of, fid_ops, given, no_bind, number, put};
use crate::completion::{CompletionQueue, CqEntry, CqErrorEntry, Wait};
use crate::name::Called;
use crate::status::{Errno, Result};
use crate::sys::*;

pub(super) struct QueuePart {
    pub queue: Arc<CompletionQueue>,
    /// Bytes of an entry, which is a prefix of `fi_cq_tagged_entry`.
    entry: usize,
    /// The wait's condition is a number of entries.
    threshold: bool,
    wait: c_int,
    format: Format,
    /// The program's fi_cq_err_entry has the member `err_data_size`, the size of the program's buffer.
    sizes_error_data: bool,
    /// Data of the last error, for programs without a buffer.
    error_data: Mutex<Vec<u8>>,
}

pub(super) type QueueObject = Object<fid_cq, QueuePart>;

const _: () = assert!(
    offset_of!(CqEntry, context) == offset_of!(fi_cq_tagged_entry, op_context)
        && offset_of!(CqEntry, flags) == offset_of!(fi_cq_tagged_entry, flags)
        && offset_of!(CqEntry, len) == offset_of!(fi_cq_tagged_entry, len)
        && offset_of!(CqEntry, buffer) == offset_of!(fi_cq_tagged_entry, buf)
        && offset_of!(CqEntry, data) == offset_of!(fi_cq_tagged_entry, data)
        && offset_of!(CqEntry, tag) == offset_of!(fi_cq_tagged_entry, tag)
);

static FID: fi_ops = fid_ops(close, no_bind, control);

static OPS: fi_ops_cq = fi_ops_cq {
    size: size_of::<fi_ops_cq>(),
    read,
    readfrom,
    readerr,
    sread,
    sreadfrom,
    signal,
    strerror,
};

pub(super) unsafe extern "C" fn open_queue(
    domain: *mut fid_domain,
    attr: *mut fi_cq_attr,
    queue: *mut *mut fid_cq,
    context: *mut c_void,
) -> c_int {
    code(|| {
        given(queue)?;
        // SAFETY:
        // - libfabric's contract: a domain of this provider, and attributes or null.
        let (domain, attr) = unsafe { (DomainObject::at(domain)?, attr.as_ref()) };
        let attr = attr.ok_or(Errno::INVAL)?;
        // The shorter formats are prefixes of the longest.
        let entry = match attr.format {
            FI_CQ_FORMAT_UNSPEC | FI_CQ_FORMAT_CONTEXT => 8,
            FI_CQ_FORMAT_MSG => 24,
            FI_CQ_FORMAT_DATA => 40,
            FI_CQ_FORMAT_TAGGED => 48,
            _ => return Err(Errno::INVAL),
        };
        let wait = match attr.wait_obj {
            FI_WAIT_NONE => Wait::None,
            FI_WAIT_UNSPEC | FI_WAIT_YIELD => Wait::Call,
            FI_WAIT_FD => Wait::Descriptor,
            FI_WAIT_SET => Wait::Set,
            _ => return Err(Errno::NOSYS),
        };
        let threshold = match attr.wait_cond {
            FI_CQ_COND_NONE => false,
            FI_CQ_COND_THRESHOLD => true,
            _ => return Err(Errno::INVAL),
        };
        let set = match wait {
            // SAFETY:
            // - libfabric's contract: a wait set of this provider, or null.
            Wait::Set => Some(unsafe { super::wait::set(attr.wait_set, &domain.inner.fabric) }?),
            _ => None,
        };
        let part = QueuePart {
            queue: CompletionQueue::new(&domain.inner.domain, attr.size, wait)?,
            entry,
            threshold,
            wait: attr.wait_obj,
            format: domain.inner.format,
            sizes_error_data: domain.inner.fabric.version >= version(1, 5),
            error_data: Mutex::default(),
        };
        let raw = fid_cq {
            fid: fid_of(FI_CLASS_CQ, context, &FID),
            ops: &OPS,
        };
        if let Some(set) = set {
            set.add(&part.queue);
        }
        // SAFETY:
        // - libfabric's contract: the place is not null, so it is valid for a write.
        unsafe { put(queue, Object::create(raw, part)) }
    })
}

entries! { code -> c_int;
    fn close(fid: *mut fid) = QueueObject::close_apart(fid, |part| part.queue.domain(), |part| part.queue.close());
    fn control(fid: *mut fid, command: c_int, arg: *mut c_void) = {
        let part = &QueueObject::at(fid)?.inner;
        control_waits((command, arg), part.queue.descriptor(), part.wait)
    };
    fn signal(queue: *mut fid_cq) = {
        QueueObject::at(queue)?.inner.queue.interrupt();
        Ok(())
    };
}

/// Writes entries and their sources to the program's buffers.
struct Sink {
    at: *mut u8,
    len: usize,
    sources: *mut u64,
}

impl Sink {
    /// # Safety
    /// The buffers have room for one more entry, and for one more source unless `sources` is null.
    #[inline(always)]
    unsafe fn take(&mut self, entry: &CqEntry) {
        let words = std::ptr::from_ref(entry).cast::<u64>();
        // SAFETY:
        // - contract of this call: the buffers have room. The `len` bytes are a prefix of the entry.
        unsafe {
            // Word by word, as the entry was written shortly before: wider loads would wait until the stores have reached the cache.
            let copy = |nth: usize| {
                let word = words.add(nth).read_volatile();
                self.at.cast::<u64>().add(nth).write_unaligned(word);
            };
            copy(0);
            if self.len > 8 {
                (1..3).for_each(copy);
            }
            if self.len > 24 {
                (3..5).for_each(copy);
            }
            if self.len > 40 {
                copy(5);
            }
            self.at = self.at.add(self.len);
            if !self.sources.is_null() {
                self.sources.write_unaligned(entry.source);
                self.sources = self.sources.add(1);
            }
        }
    }
}

/// # Safety
/// The arguments are valid as in fi_cq_readfrom(3).
#[inline(always)]
unsafe fn read_some(
    queue: *mut fid_cq,
    buffer: *mut c_void,
    count: usize,
    sources: *mut u64,
) -> Result<usize> {
    // SAFETY:
    // - only completion queues have this table. Contract of this call: buffers for `count` entries.
    unsafe {
        let part = &QueueObject::at(queue)?.inner;
        if count > 0 {
            given(buffer)?;
        }
        let mut sink = Sink {
            at: buffer.cast(),
            len: part.entry,
            sources,
        };
        part.queue.read(count, |entry| sink.take(entry))
    }
}

/// # Safety
/// The arguments are valid as in fi_cq_sreadfrom(3).
unsafe fn wait_for_some(
    queue: *mut fid_cq,
    buffer: *mut c_void,
    count: usize,
    sources: *mut u64,
    condition: *const c_void,
    timeout: c_int,
) -> Result<usize> {
    // SAFETY:
    // - only completion queues have this table. Contract of this call: buffers for `count` entries. The condition is a number, not a pointer.
    unsafe {
        let part = &QueueObject::at(queue)?.inner;
        if count > 0 {
            given(buffer)?;
        }
        let least = if part.threshold { condition.addr() } else { 1 };
        let mut sink = Sink {
            at: buffer.cast(),
            len: part.entry,
            sources,
        };
        let take = |entry: &CqEntry| sink.take(entry);
        part.queue.wait(count, least, deadline(timeout), take)
    }
}

entries! { number -> isize;
    fn read(queue: *mut fid_cq, buffer: *mut c_void, count: usize) = read_some(queue, buffer, count, std::ptr::null_mut());
    fn readfrom(queue: *mut fid_cq, buffer: *mut c_void, count: usize, sources: *mut u64)
        = read_some(queue, buffer, count, sources);
    fn sread(queue: *mut fid_cq, buffer: *mut c_void, count: usize, condition: *const c_void, timeout: c_int)
        = wait_for_some(queue, buffer, count, std::ptr::null_mut(), condition, timeout);
    fn sreadfrom(
        queue: *mut fid_cq, buffer: *mut c_void, count: usize, sources: *mut u64, condition: *const c_void, timeout: c_int,
    ) = wait_for_some(queue, buffer, count, sources, condition, timeout);
}

unsafe extern "C" fn readerr(
    queue: *mut fid_cq,
    entry: *mut fi_cq_err_entry,
    _flags: u64,
) -> isize {
    number(|| {
        given(entry)?;
        // SAFETY:
        // - only completion queues have this table. libfabric's contract: `entry` is valid for reads and writes.
        unsafe {
            let part = &QueueObject::at(queue)?.inner;
            let failure = part.queue.read_failure()?;
            (*entry).op_context = failure.entry.context as *mut c_void;
            (*entry).flags = failure.entry.flags;
            (*entry).len = failure.entry.len;
            (*entry).buf = failure.entry.buffer as *mut c_void;
            (*entry).data = failure.entry.data;
            (*entry).tag = failure.entry.tag;
            (*entry).olen = failure.excess;
            (*entry).err = failure.errno.0;
            (*entry).prov_errno = failure.errno.0;
            part.give_error_data(&failure, entry);
        }
        Ok(1)
    })
}

impl QueuePart {
    /// Returns the sender's name in the program's buffer. Without one, a buffer of the queue holds the name until another name is returned.
    ///
    /// # Safety
    /// `entry` is valid as in fi_cq(3). Before version 1.5 it lacks the last member.
    unsafe fn give_error_data(&self, failure: &CqErrorEntry, entry: *mut fi_cq_err_entry) {
        let name = (failure.sender).map(|name| self.format.write(&Called::Name(name)));
        let name = name.unwrap_or_default();
        // SAFETY:
        // - contract of this call. With `sizes_error_data`, the last member exists and gives the length of the program's buffer.
        unsafe {
            let room = if self.sizes_error_data {
                (*entry).err_data_size
            } else {
                0
            };
            let mut given = name.len();
            if room > 0 && !(*entry).err_data.is_null() {
                given = given.min(room);
                std::ptr::copy_nonoverlapping(name.as_ptr(), (*entry).err_data.cast(), given);
            } else if !name.is_empty() {
                let mut kept = self.error_data.lock();
                *kept = name;
                (*entry).err_data = kept.as_mut_ptr().cast();
            }
            if self.sizes_error_data {
                (*entry).err_data_size = given;
            }
        }
    }
}

unsafe extern "C" fn strerror(
    _queue: *mut fid_cq,
    errno: c_int,
    _data: *const c_void,
    buffer: *mut c_char,
    len: usize,
) -> *const c_char {
    // SAFETY:
    // - libfabric's contract: a buffer of `len` bytes, or null.
    unsafe { text(errno, buffer, len) }
}

/// The text of an error number. A copy goes to the buffer unless it is null.
///
/// # Safety
/// `buffer` is null or has `len` bytes.
pub(super) unsafe fn text(errno: c_int, buffer: *mut c_char, len: usize) -> *const c_char {
    let text = Errno(errno.saturating_abs()).text();
    if !buffer.is_null() && len > 0 {
        let fits = text.count_bytes().min(len - 1);
        // SAFETY:
        // - contract of this call: `len` bytes. The copy leaves room for its zero.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr(), buffer, fits);
            buffer.add(fits).write(0);
        }
    }
    text.as_ptr()
}

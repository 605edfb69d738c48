//! Completion queues.

use std::ffi::{c_char, c_int, c_void};
use std::mem::offset_of;
use std::sync::Arc;

use parking_lot::Mutex;

use super::domain::DomainObject;
use super::naming::Format;
use super::{Object, code, deadline, fid_of, fid_ops, given, is_free, no_bind, number, put};
use crate::completion::{CompletionQueue, Entry, Failure, Wait};
use crate::name::Called;
use crate::status::{Errno, Result};
use crate::sys::*;

pub(super) struct QueuePart {
    pub queue: Arc<CompletionQueue>,
    /// Bytes of an entry: a prefix of `fi_cq_tagged_entry`.
    entry: usize,
    /// The wait's condition is a number of entries.
    threshold: bool,
    wait: c_int,
    format: Format,
    /// fi_cq_err_entry has a member for the size of a buffer of the program.
    sizes_error_data: bool,
    /// Data of the last error, for programs without such a buffer.
    error_data: Mutex<Vec<u8>>,
}

pub(super) type QueueObject = Object<fid_cq, QueuePart>;

const _: () = assert!(
    offset_of!(Entry, context) == offset_of!(fi_cq_tagged_entry, op_context)
        && offset_of!(Entry, flags) == offset_of!(fi_cq_tagged_entry, flags)
        && offset_of!(Entry, len) == offset_of!(fi_cq_tagged_entry, len)
        && offset_of!(Entry, buffer) == offset_of!(fi_cq_tagged_entry, buf)
        && offset_of!(Entry, data) == offset_of!(fi_cq_tagged_entry, data)
        && offset_of!(Entry, tag) == offset_of!(fi_cq_tagged_entry, tag)
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
        // - a domain of ours and attributes, by the interface.
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
            // - a wait set of ours, or null, by the interface.
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
            set.add_queue(&part.queue);
        }
        // SAFETY:
        // - not null, so a place for a pointer.
        unsafe { put(queue, Object::create(raw, part)) }
    })
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    code(|| {
        // SAFETY:
        // - a completion queue, by the table that this function is in.
        let object = unsafe { QueueObject::at(fid) }?;
        if !object.inner.queue.attached.is_empty() {
            return Err(Errno::BUSY);
        }
        let queue = &object.inner.queue;
        let domain = queue.domain().clone();
        domain.watcher().apart(|| {
            if !is_free(queue) {
                return Err(Errno::BUSY);
            }
            queue.waiters.end(|| domain.engine().ring());
            // SAFETY:
            // - nobody has it any more but the caller, who gives it up.
            unsafe { QueueObject::destroy(fid) };
            Ok(())
        })
    })
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
    code(|| {
        // SAFETY:
        // - a completion queue, by the table; what the argument leads to is for the command.
        unsafe {
            let part = &QueueObject::at(fid)?.inner;
            match command {
                FI_GETWAIT => {
                    let descriptor = part.queue.descriptor().ok_or(Errno::NODATA)?;
                    put(arg.cast::<c_int>(), descriptor)
                }
                FI_GETWAITOBJ => put(arg.cast::<c_int>(), part.wait),
                _ => Err(Errno::NOSYS),
            }
        }
    })
}

/// Writes entries one after the other, and their sources.
struct Sink {
    at: *mut u8,
    len: usize,
    sources: *mut u64,
}

impl Sink {
    /// # Safety
    /// There is room for one more entry, and one more source unless that is null.
    #[inline(always)]
    unsafe fn take(&mut self, entry: &Entry) {
        let words = std::ptr::from_ref(entry).cast::<u64>();
        // SAFETY:
        // - the caller's word; what is asked for is a prefix of the entry.
        unsafe {
            // Word by word, as it was written a moment ago: wider loads would wait until that has reached the cache.
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
/// The arguments of fi_cq_readfrom(3).
#[inline(always)]
unsafe fn read_some(
    queue: *mut fid_cq,
    buffer: *mut c_void,
    count: usize,
    sources: *mut u64,
) -> Result<usize> {
    // SAFETY:
    // - a completion queue, by the table, and the caller's buffers for `count` entries.
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

unsafe extern "C" fn read(queue: *mut fid_cq, buffer: *mut c_void, count: usize) -> isize {
    // SAFETY:
    // - our caller's arguments.
    number(|| unsafe { read_some(queue, buffer, count, std::ptr::null_mut()) })
}

unsafe extern "C" fn readfrom(
    queue: *mut fid_cq,
    buffer: *mut c_void,
    count: usize,
    sources: *mut u64,
) -> isize {
    // SAFETY:
    // - our caller's arguments.
    number(|| unsafe { read_some(queue, buffer, count, sources) })
}

/// # Safety
/// The arguments of fi_cq_sreadfrom(3).
unsafe fn wait_for_some(
    queue: *mut fid_cq,
    buffer: *mut c_void,
    count: usize,
    sources: *mut u64,
    condition: *const c_void,
    timeout: c_int,
) -> Result<usize> {
    // SAFETY:
    // - a completion queue, by the table, and the caller's buffers for `count` entries; the condition is the number itself.
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
        let take = |entry: &Entry| sink.take(entry);
        part.queue.wait(count, least, deadline(timeout), take)
    }
}

unsafe extern "C" fn sread(
    queue: *mut fid_cq,
    buffer: *mut c_void,
    count: usize,
    condition: *const c_void,
    timeout: c_int,
) -> isize {
    let sources = std::ptr::null_mut();
    // SAFETY:
    // - our caller's arguments.
    number(|| unsafe { wait_for_some(queue, buffer, count, sources, condition, timeout) })
}

unsafe extern "C" fn sreadfrom(
    queue: *mut fid_cq,
    buffer: *mut c_void,
    count: usize,
    sources: *mut u64,
    condition: *const c_void,
    timeout: c_int,
) -> isize {
    // SAFETY:
    // - our caller's arguments.
    number(|| unsafe { wait_for_some(queue, buffer, count, sources, condition, timeout) })
}

unsafe extern "C" fn readerr(
    queue: *mut fid_cq,
    entry: *mut fi_cq_err_entry,
    _flags: u64,
) -> isize {
    number(|| {
        given(entry)?;
        // SAFETY:
        // - a completion queue, by the table, and a place for an entry, by the interface.
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
    /// Gives the name of the sender where the program wants it: in its own buffer, or in one of the queue until the next failure is read.
    ///
    /// # Safety
    /// An entry as fi_cq(3) has it, without the last member in releases before 1.5.
    unsafe fn give_error_data(&self, failure: &Failure, entry: *mut fi_cq_err_entry) {
        let name = (failure.sender).map(|name| self.format.write(&Called::Name(name)));
        let name = name.unwrap_or_default();
        // SAFETY:
        // - the caller's contract: the last member is there, and says how long the program's buffer is.
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

unsafe extern "C" fn signal(queue: *mut fid_cq) -> c_int {
    code(|| {
        // SAFETY:
        // - a completion queue, by the table.
        unsafe { QueueObject::at(queue) }?.inner.queue.interrupt();
        Ok(())
    })
}

unsafe extern "C" fn strerror(
    _queue: *mut fid_cq,
    errno: c_int,
    _data: *const c_void,
    buffer: *mut c_char,
    len: usize,
) -> *const c_char {
    // SAFETY:
    // - the caller's buffer with its length.
    unsafe { text(errno, buffer, len) }
}

/// What an error number means; also in the buffer, if there is one.
///
/// # Safety
/// `buffer` is null or has `len` bytes.
pub(super) unsafe fn text(errno: c_int, buffer: *mut c_char, len: usize) -> *const c_char {
    let text = Errno(errno.saturating_abs()).text();
    if !buffer.is_null() && len > 0 {
        let fits = text.count_bytes().min(len - 1);
        // SAFETY:
        // - the caller's word; room for the end as well.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr(), buffer, fits);
            buffer.add(fits).write(0);
        }
    }
    text.as_ptr()
}

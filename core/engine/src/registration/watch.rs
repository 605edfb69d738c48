//! Watches pages that the program unmaps, moves or gives back while a network has them registered.
//!
//! The kernel reports through a userfaultfd. Any user may open a userfaultfd that serves no faults of the kernel; this one serves no faults. A thread that
//! unmaps watched memory waits until the listener, a thread of the library, has read the event. The listener takes no lock and allocates nothing, so a thread
//! that unmaps while it holds a lock cannot block it. Another thread may map a range again between the unmapping and the event. [`Watch::is_settled`] asks
//! the kernel whether such an event is outstanding.
//!
//! Only private memory without a file is watched: for other kinds, the kernel does not report all changes.

use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;

use crate::descriptor::above;
use crate::user_memory::maps::{FileNames, Maps, cover};
use crate::userfaultfd::{FaultKinds, Features, Userfaultfd};
use crate::{own_thread, process};

/// Ranges that a process can watch at a time.
const SLOTS: usize = 512;
/// Polls of [`Watch::is_settled`] before it gives up.
const LOOKS: u32 = 200;

const EVENT_REMAP: u8 = 0x14;
const EVENT_REMOVE: u8 = 0x15;
const EVENT_UNMAP: u8 = 0x16;

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Message {
    event: u8,
    reserved: [u8; 7],
    /// EVENT_REMAP: old address, new address, length. Else: begin, end.
    what: [u64; 3],
}

/// A range. State: free, whole, or broken.
#[derive(Default)]
struct Slot {
    state: AtomicU32,
    start: AtomicUsize,
    end: AtomicUsize,
}

const FREE: u32 = 0;
const WHOLE: u32 = 1;
const BROKEN: u32 = 2;

struct Shared {
    events: Userfaultfd,
    alarm: OwnedFd,
    stop: AtomicBool,
    /// The thread may have read an event that it has not noted yet.
    noting: AtomicBool,
    slots: Box<[Slot]>,
    /// Held to add or remove a range.
    change: Mutex<()>,
}

/// Name of the listener thread. Callers of munmap or mremap wait for this thread. Code that stops threads must let it run, also the listener of another copy
/// of this library.
pub const LISTENER: &str = "unipgas-memory";

/// The watch of this process.
pub(super) struct Watch {
    shared: Arc<Shared>,
    process: u32,
    thread: Option<JoinHandle<()>>,
}

/// A watched range. Its drop ends the watch.
pub(super) struct Watched {
    watch: Arc<Watch>,
    slot: usize,
}

/// The descriptor. The child of a fork closes it: a thread that unmaps waits for a reader as long as any process has the descriptor open.
static DESCRIPTOR: AtomicI32 = AtomicI32::new(-1);

extern "C" fn close_in_child() {
    let number = DESCRIPTOR.swap(-1, Ordering::Relaxed);
    if number >= 0 {
        // SAFETY:
        // - runs in the child of a fork, which does not use the descriptor. Its owner belongs to the parent's process, and the child never drops it.
        unsafe { libc::close(number) };
    }
}

static CURRENT: Mutex<Weak<Watch>> = Mutex::new(Weak::new());

impl Watch {
    /// The watch of this process. `None`: the kernel does not permit or support it.
    pub(crate) fn of_this_process() -> Option<Arc<Watch>> {
        let mut current = CURRENT.lock();
        if let Some(watch) = current.upgrade() {
            return watch.is_here().then_some(watch);
        }
        let watch = Arc::new(Watch::start().ok()?);
        *current = Arc::downgrade(&watch);
        Some(watch)
    }

    fn start() -> Result<Watch, Errno> {
        static REGISTERED: Mutex<bool> = Mutex::new(false);
        let mut registered = REGISTERED.lock();
        if !*registered {
            // SAFETY:
            // - the handler only changes an atomic and closes a descriptor.
            let failed = unsafe { libc::pthread_atfork(None, None, Some(close_in_child)) };
            if failed != 0 {
                return Err(Errno::NOMEM);
            }
            *registered = true;
        }
        let events = open()?;
        let alarm = above(|| eventfd(0, EventfdFlags::CLOEXEC))?;
        DESCRIPTOR.store(events.as_fd().as_raw_fd(), Ordering::Relaxed);
        let shared = Arc::new(Shared {
            events,
            alarm,
            stop: AtomicBool::new(false),
            noting: AtomicBool::new(false),
            slots: (0..SLOTS).map(|_| Slot::default()).collect(),
            change: Mutex::new(()),
        });
        let listening = shared.clone();
        let (named, is_named) = std::sync::mpsc::channel();
        let thread = own_thread::start(LISTENER, move || {
            let _ = named.send(());
            listening.listen();
        });
        let thread = thread.map_err(|_| Errno::AGAIN)?;
        // An adoption stops all threads without this name. A new thread gets its name late, and a stopped listener would be a deadlock.
        let _ = is_named.recv();
        Ok(Watch {
            shared,
            process: process::id(),
            thread: Some(thread),
        })
    }

    /// False in the child of a fork: the kernel reports nothing to it.
    fn is_here(&self) -> bool {
        self.process == process::id()
    }

    /// Starts to watch `range`, which consists of whole pages. `None`: it is not private memory throughout, another userfaultfd has it, or too many ranges
    /// are watched.
    pub(crate) fn over(self: &Arc<Self>, range: &Range<usize>) -> Option<Watched> {
        if !self.is_here() {
            return None;
        }
        let mappings = Maps::open().ok()?.within(range, FileNames::Unread).ok()?;
        let private = |mapping: &crate::user_memory::maps::MemoryMapping| {
            mapping.inode == 0 && !mapping.is_shared()
        };
        if !cover(&mappings, range) || !mappings.iter().all(private) {
            return None;
        }
        let _change = self.shared.change.lock();
        let slots = &self.shared.slots;
        let free = |slot: &Slot| slot.state.load(Ordering::Relaxed) == FREE;
        let slot = slots.iter().position(free)?;
        slots[slot].start.store(range.start, Ordering::Relaxed);
        slots[slot].end.store(range.end, Ordering::Relaxed);
        // Before the kernel sends events, so that the first event is noted.
        slots[slot].state.store(WHOLE, Ordering::Release);
        // The watch protects no pages.
        if self
            .shared
            .events
            .register(range, FaultKinds::Protected)
            .is_err()
        {
            slots[slot].state.store(FREE, Ordering::Release);
            self.shared.forget(range);
            return None;
        }
        Some(Watched {
            watch: self.clone(),
            slot,
        })
    }

    /// Whether all ranges that were unmapped before this call are noted. Otherwise a range may be mapped again already. Waits briefly for that.
    pub(crate) fn is_settled(&self) -> bool {
        for _ in 0..LOOKS {
            if !self.shared.is_changing() {
                // The kernel's answer comes before the read of `noting`.
                fence(Ordering::SeqCst);
                if !self.shared.noting.load(Ordering::SeqCst) {
                    return true;
                }
            }
            std::thread::yield_now();
        }
        false
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if !self.is_here() {
            // The thread belongs to the parent. The descriptor is closed, and its number may be in use again.
            std::mem::forget(self.shared.clone());
            std::mem::forget(self.thread.take());
            return;
        }
        // Before the close: afterwards the number may be in use again. Another watch may have begun.
        let number = self.shared.events.as_fd().as_raw_fd();
        let _ = DESCRIPTOR.compare_exchange(number, -1, Ordering::Relaxed, Ordering::Relaxed);
        self.shared.stop.store(true, Ordering::Release);
        let _ = rustix::io::write(&self.shared.alarm, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Watched {
    /// Whether no page of the range is noted as gone ([`Watch::is_settled`]).
    #[inline]
    pub(crate) fn is_whole(&self) -> bool {
        self.watch.shared.slots[self.slot]
            .state
            .load(Ordering::Acquire)
            == WHOLE
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if !self.watch.is_here() {
            return;
        }
        let shared = &self.watch.shared;
        let _change = shared.change.lock();
        let slot = &shared.slots[self.slot];
        let range = slot.start.load(Ordering::Relaxed)..slot.end.load(Ordering::Relaxed);
        slot.state.store(FREE, Ordering::Release);
        shared.forget(&range);
    }
}

impl Shared {
    fn listen(&self) {
        loop {
            let mut ready = [
                PollFd::new(&self.events, PollFlags::IN),
                PollFd::new(&self.alarm, PollFlags::IN),
            ];
            if poll(&mut ready, None).is_err() {
                continue;
            }
            self.noting.store(true, Ordering::SeqCst);
            self.note();
            self.noting.store(false, Ordering::SeqCst);
            // All watched ranges have ended before. The last owner closes the descriptor.
            if self.stop.load(Ordering::Acquire) {
                return;
            }
        }
    }

    fn note(&self) {
        let mut messages = [bytemuck::Zeroable::zeroed(); 8];
        while let Ok(len) = rustix::io::read(
            &self.events,
            bytemuck::cast_slice_mut::<Message, u8>(&mut messages),
        ) {
            let count = len / size_of::<Message>();
            if count == 0 {
                return;
            }
            for message in &messages[..count] {
                let [start, second, third] = message.what.map(|word| word as usize);
                match message.event {
                    EVENT_UNMAP | EVENT_REMOVE => self.mark_gone(start, second),
                    EVENT_REMAP => {
                        self.mark_gone(start, start.saturating_add(third));
                        // The watch has moved with the pages.
                        let moved = second..second.saturating_add(third);
                        let _ = self.events.unregister(&moved);
                    }
                    _ => {}
                }
            }
        }
    }

    fn mark_gone(&self, start: usize, end: usize) {
        for slot in &self.slots {
            if slot.state.load(Ordering::Acquire) == WHOLE
                && slot.start.load(Ordering::Relaxed) < end
                && start < slot.end.load(Ordering::Relaxed)
            {
                // The range may have been released meanwhile.
                let _ = slot.state.compare_exchange(
                    WHOLE,
                    BROKEN,
                    Ordering::Release,
                    Ordering::Relaxed,
                );
            }
        }
    }

    /// Whether a thread unmaps, moves or gives back watched pages, and its event is unread. The kernel tests this before the arguments, which request
    /// nothing.
    fn is_changing(&self) -> bool {
        self.events.unprotect(&(0..0)) == Err(Errno::AGAIN)
    }

    /// Ends the watch of the parts that no other range covers. Each mapping is unregistered separately: a call fails at a mapping that is not watched.
    fn forget(&self, range: &Range<usize>) {
        let mut at = range.start;
        while at < range.end {
            let watched = self
                .slots
                .iter()
                .filter(|slot| slot.state.load(Ordering::Relaxed) != FREE);
            let ends = |slot: &Slot| slot.end.load(Ordering::Relaxed);
            let starts = |slot: &Slot| slot.start.load(Ordering::Relaxed);
            let covered = watched
                .clone()
                .filter(|slot| starts(slot) <= at && at < ends(slot));
            if let Some(end) = covered.map(ends).max() {
                at = end;
                continue;
            }
            let next = watched.map(starts).filter(|start| *start > at).min();
            let end = next.unwrap_or(range.end).min(range.end);
            let mappings = Maps::open().and_then(|maps| maps.within(&(at..end), FileNames::Unread));
            for mapping in mappings.unwrap_or_default() {
                let part = mapping.range.start.max(at)..mapping.range.end.min(end);
                let _ = self.events.unregister(&part);
            }
            at = end;
        }
    }
}

fn open() -> Result<Userfaultfd, Errno> {
    let events = Userfaultfd::of_user_code()?;
    let wanted =
        Features::WP | Features::EVENT_REMAP | Features::EVENT_REMOVE | Features::EVENT_UNMAP;
    events.handshake(wanted)?;
    Ok(events)
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use std::os::unix::thread::JoinHandleExt;

    use super::*;

    /// An adoption stops all threads without this name.
    #[test]
    fn the_listener_has_its_name_before_memory_is_watched() {
        for _ in 0..50 {
            let Some(watch) = Watch::of_this_process() else {
                return;
            };
            let thread = watch.thread.as_ref().expect("it listens");
            let mut name = [0u8; 16];
            // SAFETY:
            // - the thread is not joined, and the buffer has the greatest length of a name.
            let failed = unsafe {
                let thread = thread.as_pthread_t() as libc::pthread_t;
                libc::pthread_getname_np(thread, name.as_mut_ptr().cast(), name.len())
            };
            assert_eq!(failed, 0);
            let name = std::ffi::CStr::from_bytes_until_nul(&name).expect("a name");
            assert_eq!(name.to_str(), Ok(LISTENER));
        }
    }
}

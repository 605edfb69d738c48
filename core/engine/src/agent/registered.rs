//! Registered memory, by the numbers that peers use for it, and the operations on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;

use super::wire::{Answer, Carried, Elements, Request};
use crate::atomic::{AtomicForm, ElementLocks};
use crate::bell::Bell;
use crate::kernel_copy::RemoteOwner;
use crate::mapped::{MappedChannel, move_bytes};
use crate::op::{AtomicRequest, Flags, GetRequest, Inbox, Local, Notice, PutRequest, Remote};
use crate::region::{RemoteParts, RemoteRegion, check_range};
use crate::transport::{Channel, Handler, Transport, check_message};
use crate::{AtomicOp, Error, Result, Rights};

/// A place in the registered memory of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct RegisteredPlace {
    /// Number of the registration.
    pub slot: u32,
    /// Number of registrations of the slot, up to and including this one.
    pub generation: u32,
    /// Offset in bytes.
    pub offset: u64,
}

/// The memory that requests of peers can reach.
pub struct Registered {
    shared: Arc<Shared>,
    slots: RwLock<Vec<Slot>>,
}

/// Objects that the regions need while an operation uses a region.
enum Shared {
    Own(Box<Own>),
    /// The process's first transport. Its peers reach the same memory, and all threads wait at its bell.
    Of(Arc<dyn Transport>),
}

struct Own {
    bell: Bell,
    locks: ElementLocks,
}

impl Shared {
    fn bell(&self) -> &Bell {
        match self {
            Shared::Own(own) => &own.bell,
            Shared::Of(first) => first.bell(),
        }
    }

    fn locks(&self) -> &ElementLocks {
        match self {
            Shared::Own(own) => &own.locks,
            Shared::Of(first) => first.locks(),
        }
    }
}

#[derive(Default)]
struct Slot {
    generation: u32,
    region: Option<RemoteRegion>,
    /// Sent to importers, after length and rights.
    told: Vec<u8>,
    /// A peer has imported it, and must learn of its close.
    imported: AtomicBool,
    handler: Option<Arc<dyn Handler>>,
}

impl Registered {
    /// For the only transport of the process, or for one `beside` its first.
    pub fn new(beside: Option<Arc<dyn Transport>>) -> Self {
        let own = || {
            Shared::Own(Box::new(Own {
                bell: Bell::default(),
                locks: ElementLocks::new(),
            }))
        };
        Registered {
            shared: Arc::new(beside.map_or_else(own, Shared::Of)),
            slots: RwLock::default(),
        }
    }

    /// Locks of operations on elements that no CPU changes atomically.
    pub fn locks(&self) -> &ElementLocks {
        self.shared.locks()
    }

    /// Rung after a request has changed memory that this process may wait for.
    pub fn bell(&self) -> &Bell {
        self.shared.bell()
    }

    /// Lets peers reach `len` bytes at `base`. Returns the place of the first byte. Importers get the length (8 bytes), the rights (4), then `told`.
    ///
    /// # Safety
    /// The bytes are valid until [`close`](Registered::close).
    pub unsafe fn open(
        &self,
        base: *mut u8,
        len: usize,
        rights: Rights,
        told: Vec<u8>,
    ) -> RegisteredPlace {
        let shared = &self.shared;
        let parts = RemoteParts::here(base, len, rights, shared.bell(), shared.locks());
        // SAFETY:
        // - contract of this call: the bytes are valid until `close`, which removes the region.
        // - the region holds `shared`, which owns bell and locks.
        let region = unsafe { RemoteRegion::new(parts, self.shared.clone()) };
        let mut slots = self.slots.write();
        let free = slots.iter().position(|slot| slot.region.is_none());
        let number = free.unwrap_or_else(|| {
            slots.push(Slot::default());
            slots.len() - 1
        });
        let slot = &mut slots[number];
        slot.generation += 1;
        slot.region = Some(region);
        slot.told = told;
        slot.imported = AtomicBool::new(false);
        slot.handler = None;
        RegisteredPlace {
            slot: number as u32,
            generation: slot.generation,
            offset: 0,
        }
    }

    /// Sets the handler of the messages for the region at `place`.
    pub fn handle_by(&self, place: RegisteredPlace, handler: Arc<dyn Handler>) {
        let mut slots = self.slots.write();
        if let Some(slot) = slots.get_mut(place.slot as usize)
            && slot.generation == place.generation
        {
            slot.handler = Some(handler);
        }
    }

    /// After the return, no request reaches the memory or its handler. True: peers have imported it.
    pub fn close(&self, place: RegisteredPlace) -> bool {
        let mut slots = self.slots.write();
        let (handler, imported) = match slots.get_mut(place.slot as usize) {
            Some(slot) if slot.generation == place.generation => {
                slot.region = None;
                (slot.handler.take(), *slot.imported.get_mut())
            }
            _ => (None, false),
        };
        // The handler may own regions, and their close needs the lock.
        drop(slots);
        drop(handler);
        imported
    }

    /// Whether `place` is in a current registration of this process that contains these bytes.
    pub fn covers(&self, place: RegisteredPlace, ptr: *const u8, len: usize) -> bool {
        let slots = self.slots.read();
        find(&slots, place).is_ok_and(|found| {
            let parts = found.region.parts();
            let offset = ptr.addr().wrapping_sub(parts.detail[0] as usize);
            check_range(offset, len, parts.len).is_ok()
        })
    }

    /// Whether any waiting thread may execute the request ([`Handler::is_plain`]).
    pub fn is_plain(&self, request: &Request<'_>) -> bool {
        let Request::Message { to, bytes } = *request else {
            return true;
        };
        let slots = self.slots.read();
        let handler = slots
            .get(to.slot as usize)
            .and_then(|slot| slot.handler.as_ref());
        handler.is_none_or(|handler| handler.is_plain(bytes))
    }

    /// Executes a request.
    pub fn serve(&self, request: &Request<'_>) -> Answer {
        let slots = self.slots.read();
        match carry_out(&slots, request) {
            Ok(bytes) => Answer::Done(bytes),
            Err(error) => Answer::Failed((&error).into()),
        }
    }
}

/// Writes the bytes that a get has read to their destination, as `flags` of the get require.
///
/// # Safety
/// `bytes.len()` bytes at `into` are valid for writes.
pub unsafe fn land(bytes: &[u8], into: *mut u8, flags: Flags) {
    // SAFETY:
    // - contract of this call: the destination is valid. The source is a slice.
    unsafe { move_bytes(bytes.as_ptr(), into, bytes.len(), flags) };
}

fn find(slots: &[Slot], place: RegisteredPlace) -> Result<Remote<'_>> {
    let slot = slots.get(place.slot as usize).ok_or(Error::StaleRegion)?;
    let region = slot.region.as_ref().ok_or(Error::StaleRegion)?;
    if slot.generation != place.generation {
        return Err(Error::StaleRegion);
    }
    let offset = usize::try_from(place.offset).map_err(|_| Error::StaleRegion)?;
    Ok(Remote { region, offset })
}

/// As [`find`], for memory that must be mapped.
fn find_mapped(slots: &[Slot], place: RegisteredPlace) -> Result<Remote<'_>> {
    let found = find(slots, place)?;
    match found.region.is_by_address() {
        true => Err(Error::AccessDenied),
        false => Ok(found),
    }
}

/// # Safety
/// As [`Channel::put`], for `dst`.
unsafe fn put(bytes: &[u8], dst: Remote<'_>, flags: Flags) -> Result<()> {
    let (src, len) = (local(bytes.as_ptr()), bytes.len());
    // SAFETY:
    // - contract of this call: the destination stays registered. The source is a slice.
    unsafe {
        match dst.region.is_by_address() {
            true => RemoteOwner::here().put(src, dst, len, flags),
            false => MappedChannel
                .put(&PutRequest::new(src, dst, len), flags, 0)
                .map(drop),
        }
    }
}

fn local(bytes: *const u8) -> Local {
    Local::unregistered(bytes.cast_mut())
}

/// Returns the bytes of the answer after success.
fn carry_out(slots: &[Slot], request: &Request<'_>) -> Result<Vec<u8>> {
    match *request {
        Request::Put {
            to,
            bytes,
            flags,
            notice: None,
        } => put_in(slots, Carried { to, bytes, flags })?,
        Request::Put {
            to,
            bytes,
            flags,
            notice: Some((slot, value)),
        } => {
            let (slot, dst) = (find_mapped(slots, slot)?, find_mapped(slots, to)?);
            let (src, notice) = (local(bytes.as_ptr()), Notice { slot, value });
            // SAFETY:
            // - the source is a slice. The destination stays registered while the slots are locked.
            unsafe {
                let put = PutRequest::new(src, dst, bytes.len()).with(notice);
                MappedChannel.put(&put, flags, 0)
            }?;
        }
        Request::Notify { slot, value } => {
            let slot = find_mapped(slots, slot)?;
            MappedChannel.notify(Notice { slot, value }, Flags::empty(), 0)?;
        }
        Request::Get { from, len, flags } => return get(find(slots, from)?, len, flags),
        Request::Atomic {
            to,
            ref elements,
            flags,
        } => return change(find(slots, to)?, elements, flags),
        Request::Deliver {
            put,
            first,
            second,
            overflow,
            record,
            chained: _,
        } => {
            let mapped = |place| find_mapped(slots, place);
            let inbox = Inbox {
                first: mapped(first)?.region,
                second: second.map(mapped).transpose()?.map(|second| second.region),
                overflow: overflow.map(mapped).transpose()?,
            };
            put.map_or(Ok(()), |carried| put_in(slots, carried))?;
            MappedChannel.deliver(inbox, record, Flags::empty(), 0)?;
        }
        Request::Message { to, bytes } => return handle(slots, to, bytes),
        Request::Import { place } => return import(slots, place),
        Request::Forgotten { .. } => {}
    }
    Ok(Vec::new())
}

fn put_in(slots: &[Slot], Carried { to, bytes, flags }: Carried<'_>) -> Result<()> {
    let dst = find(slots, to)?;
    // SAFETY:
    // - the destination is registered, and stays registered while the slots are locked.
    unsafe { put(bytes, dst, flags) }
}

/// Reads memory that stays registered during the call.
fn get(src: Remote<'_>, len: u64, flags: Flags) -> Result<Vec<u8>> {
    let len = usize::try_from(len).map_err(|_| Error::StaleRegion)?;
    // The peer chooses the size of the allocation, so the check precedes it.
    check_range(src.offset, len, src.region.len())?;
    let mut bytes = vec![0; len];
    let into = local(bytes.as_mut_ptr());
    // SAFETY:
    // - the destination is a vector of `len` bytes. The source stays registered while the slots are locked.
    unsafe {
        match src.region.is_by_address() {
            true => RemoteOwner::here().get(into, src, len, flags)?,
            false => _ = MappedChannel.get(&GetRequest::new(into, src, len), flags, 0)?,
        }
    }
    Ok(bytes)
}

/// Gives a message to the handler of the region. Returns its reply.
fn handle(slots: &[Slot], to: RegisteredPlace, bytes: &[u8]) -> Result<Vec<u8>> {
    let at = find(slots, to)?;
    check_message(at, bytes)?;
    let handler = slots[to.slot as usize].handler.as_ref();
    let mut reply = Vec::new();
    handler
        .ok_or(Error::Unsupported)?
        .handle(at.offset, bytes, &mut reply)
        .map_err(Error::Refused)?;
    Ok(reply)
}

fn import(slots: &[Slot], place: RegisteredPlace) -> Result<Vec<u8>> {
    let parts = find(slots, place)?.region.parts();
    let slot = &slots[place.slot as usize];
    // The slots are locked, so a close sees this store.
    slot.imported.store(true, Ordering::Relaxed);
    let len = (parts.len as u64).to_le_bytes();
    let rights = parts.rights.bits().to_le_bytes();
    Ok([&len[..], &rights, &slot.told].concat())
}

pub(super) fn change(dst: Remote<'_>, elements: &Elements<'_>, flags: Flags) -> Result<Vec<u8>> {
    let Elements {
        op,
        ty,
        count,
        operand,
        compare,
        fetch,
    } = *elements;
    let len = ty.size() * count as usize;
    // The peer chooses the size of the allocation, so the check precedes it.
    check_range(dst.offset, len, dst.region.len())?;
    let needs_operand = op != AtomicOp::Read;
    let needs_compare = op.form() == AtomicForm::Compare;
    if (needs_operand && operand.len() != len) || (needs_compare && compare.len() != len) {
        return Err(Error::Unsupported);
    }
    let mut before = vec![0u8; if fetch { len } else { 0 }];
    let request = AtomicRequest {
        op,
        ty,
        count: count as usize,
        operand: operand.as_ptr(),
        compare: compare.as_ptr(),
        result: match fetch {
            true => before.as_mut_ptr(),
            false => std::ptr::null_mut(),
        },
    };
    // SAFETY:
    // - operand, comparand and result have `count` elements if the operation uses them (tested above).
    // - the target is registered, and stays registered during the call.
    unsafe {
        match dst.region.is_by_address() {
            true => RemoteOwner::here().atomic(dst, &request, flags)?,
            false => _ = MappedChannel.atomic(dst, &request, 0, flags, 0)?,
        }
    }
    Ok(before)
}

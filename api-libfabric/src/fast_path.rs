//! The fast path: operations on one piece of a peer's memory that are complete when the call returns. All other calls take
//! the slow path, which also reports invalid arguments.

use unipgas_core::atomic::{AtomicForm, defined};
use unipgas_core::operations::Target as _;
use unipgas_core::{AtomicOp, AtomicRequest, AtomicType, Local};

use crate::atomics::{Family, MOST_BYTES, TYPES};
use crate::endpoint::{Endpoint, INJECT_SIZE, PostOptions};
use crate::operation::{Report, Reports};
use crate::rma::{LONGEST, LocalRange, RemotePart, RmaKind};
use crate::status::Result;
use crate::sys::{
    FI_COMPLETION, FI_DELIVERY_COMPLETE, FI_INJECT, FI_INJECT_COMPLETE, FI_MORE,
    FI_TRANSMIT_COMPLETE,
};

/// Flags that have no effect on operations that complete at once.
const SIMPLE: u64 = FI_COMPLETION
    | FI_MORE
    | FI_INJECT
    | FI_INJECT_COMPLETE
    | FI_TRANSMIT_COMPLETE
    | FI_DELIVERY_COMPLETE;

/// For each family and type: a bit for each operation that every machine supports.
const DEFINED: [[u32; TYPES.len()]; 3] = [
    defined_for(Family::Base),
    defined_for(Family::Fetch),
    defined_for(Family::Compare),
];

const fn defined_for(family: Family) -> [u32; TYPES.len()] {
    let mut masks = [0; TYPES.len()];
    let mut ty = 0;
    while ty < TYPES.len() {
        let mut op = 0;
        while op < AtomicOp::ALL.len() {
            let this = AtomicOp::ALL[op];
            let usable = matches!(
                (family, this.form()),
                (Family::Base, AtomicForm::Update)
                    | (Family::Fetch, AtomicForm::Update | AtomicForm::FetchOnly)
                    | (Family::Compare, AtomicForm::Compare)
            );
            if usable && TYPES[ty].size() <= 8 && defined(this, TYPES[ty]) {
                masks[ty] |= 1 << op;
            }
            op += 1;
        }
        ty += 1;
    }
    masks
}

/// An atomic operation on consecutive elements.
pub(crate) struct Elements {
    pub family: Family,
    /// `enum fi_datatype`, `enum fi_op`.
    pub what: (i32, i32),
    pub operand: *const u8,
    pub compare: *const u8,
    pub result: *mut u8,
    /// The target's memory.
    pub remote: RemotePart,
}

impl Reports {
    /// Whether the operation's success is wanted. `None`: the queue is full, or the operation has flags of the slow path.
    #[inline(always)]
    fn admits(&self, posting: &PostOptions) -> Option<bool> {
        let wanted = !posting.quiet & (!self.selective[0] | (posting.flags & FI_COMPLETION != 0));
        let room = match &self.transmit {
            Some(queue) if wanted => !queue.is_full(),
            _ => true,
        };
        (room & (posting.flags & !SIMPLE == 0)).then_some(wanted)
    }
}

impl Endpoint {
    /// Carries out an atomic operation at once. `None`: no effect, the caller takes the slow path. Errors: as for [`Endpoint::atomic`].
    ///
    /// # Safety
    /// As for [`Endpoint::atomic`].
    #[inline(always)]
    pub(crate) unsafe fn atomic_fast(
        &self,
        elements: &Elements,
        to: u64,
        posting: &PostOptions,
    ) -> Option<Result<()>> {
        let Elements {
            family,
            what: (datatype, op),
            operand,
            compare,
            result,
            remote,
        } = *elements;
        let defined = DEFINED[family as usize].get(datatype as usize)?;
        let known = (op as usize) < AtomicOp::ALL.len();
        if !known || defined >> op & 1 == 0 {
            return None;
        }
        let (ty, op) = (TYPES[datatype as usize], AtomicOp::ALL[op as usize]);
        let missing = (operand.is_null() & (op != AtomicOp::Read))
            | (compare.is_null() & (family == Family::Compare))
            | (result.is_null() & (family != Family::Base));
        let inline = posting.quiet | (posting.flags & FI_INJECT != 0);
        let most = if inline { INJECT_SIZE } else { MOST_BYTES };
        let size = ty.size();
        if missing | (remote.len == 0) | (remote.len > most / size) {
            return None;
        }
        let (reports, mut state) = self.live().ok()?;
        let wanted = reports.admits(posting)?;
        let access = family.access(op);
        let len = remote.len * size;
        let (channel, target) = state.target_fast(to, len)?;
        let Some(place) = target.place_fast(remote.key, remote.address, len, access) else {
            return state.not_done();
        };
        let request = AtomicRequest {
            op,
            ty,
            count: remote.len,
            operand,
            compare,
            result,
        };
        // SAFETY:
        // - contract of this call: the arrays have `count` elements. The needed arrays are not null, as checked above.
        let Some(done) = (unsafe { channel.fast_path().atomic(place, &request) }) else {
            return state.not_done();
        };
        let (flags, counted) = family.completion();
        let report = Report {
            context: posting.context,
            work: 0,
            flags,
            wanted,
            counted,
        };
        Some(match done {
            Ok(()) => {
                reports.succeed(&report);
                Ok(())
            }
            Err(error) => reports.fail(&report, target.why(error)),
        })
    }

    /// Transfers one piece of memory at once. `None`: no effect, the caller takes the slow path.
    ///
    /// # Safety
    /// As for [`Endpoint::transfer`].
    #[inline(always)]
    pub(crate) unsafe fn transfer_fast(
        &self,
        direction: RmaKind,
        (local, remote): (&LocalRange, &RemotePart),
        to: u64,
        posting: &PostOptions,
    ) -> Option<()> {
        let inline = posting.quiet | (posting.flags & FI_INJECT != 0);
        let most = if inline { INJECT_SIZE } else { LONGEST };
        let len = local.len;
        let wrong = local.ptr.is_null() | (len == 0) | (len > most) | (remote.len != len);
        if wrong | posting.data.is_some() | (posting.work != 0) {
            return None;
        }
        let (reports, mut state) = self.live().ok()?;
        let wanted = reports.admits(posting)?;
        let (channel, target) = state.target_fast(to, len)?;
        let (flags, counted) = direction.completion();
        let access = direction.access();
        let Some(there) = target.place_fast(remote.key, remote.address, len, access) else {
            return state.not_done();
        };
        let here = Local {
            ptr: local.ptr,
            desc: 0,
        };
        let now = channel.fast_path();
        // SAFETY:
        // - contract of this call: the local bytes are valid.
        let done = unsafe {
            match direction {
                RmaKind::Read => now.get(here, there, len),
                // Programs rely on more order than they request.
                RmaKind::Write => now.put_in_order(here, there, len),
            }
        };
        if !done {
            return state.not_done();
        }
        reports.succeed(&Report {
            context: posting.context,
            work: 0,
            flags,
            wanted,
            counted,
        });
        Some(())
    }
}

const _: () = assert!(AtomicOp::ALL.len() <= 32 && AtomicType::ALL.len() == TYPES.len());

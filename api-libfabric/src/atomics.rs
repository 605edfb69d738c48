//! Remote atomic functions (fi_atomic(3)).

use unipgas_core::atomic::{AtomicForm, supported};
use unipgas_core::operations::Target as _;
use unipgas_core::{AtomicOp, AtomicRequest, AtomicType, Flags, Outcome};

use crate::domain::Domain;
use crate::endpoint::{Endpoint, INJECT_SIZE, IOV_LIMIT, PostOptions};
use crate::operation::CounterEvent;
use crate::rma::{LocalRange, RemotePart, TRANSMIT_FLAGS, Walk, total};
use crate::state::{Job, Parts, Via};
use crate::status::{Errno, Result};
use crate::sys::{
    FI_ATOMIC, FI_INJECT, FI_MORE, FI_READ, FI_REMOTE_CQ_DATA, FI_REMOTE_READ, FI_REMOTE_WRITE,
    FI_WRITE,
};
use crate::target::Target;

/// Maximum bytes of one call.
pub const MOST_BYTES: usize = 1 << 20;

/// `enum fi_datatype`, in its order.
pub(crate) const TYPES: [AtomicType; 16] = [
    AtomicType::I8,
    AtomicType::U8,
    AtomicType::I16,
    AtomicType::U16,
    AtomicType::I32,
    AtomicType::U32,
    AtomicType::I64,
    AtomicType::U64,
    AtomicType::F32,
    AtomicType::F64,
    AtomicType::ComplexF32,
    AtomicType::ComplexF64,
    AtomicType::LongDouble,
    AtomicType::ComplexLongDouble,
    AtomicType::I128,
    AtomicType::U128,
];

/// The family of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// fi_atomic and its variants.
    Base,
    /// fi_fetch_atomic and its variants.
    Fetch,
    /// fi_compare_atomic and its variants.
    Compare,
}

impl Family {
    /// Flags of the completion, and the counter that counts it.
    #[inline(always)]
    pub(crate) fn completion(self) -> (u64, CounterEvent) {
        match self {
            Family::Base => (FI_ATOMIC | FI_WRITE, CounterEvent::Write),
            Family::Fetch | Family::Compare => (FI_ATOMIC | FI_READ, CounterEvent::Read),
        }
    }

    /// The necessary rights.
    #[inline(always)]
    pub(crate) fn access(self, op: AtomicOp) -> u64 {
        match self {
            _ if op == AtomicOp::Read => FI_REMOTE_READ,
            Family::Base => FI_REMOTE_WRITE,
            Family::Fetch | Family::Compare => FI_REMOTE_READ | FI_REMOTE_WRITE,
        }
    }
}

/// A type and an operation that a family of calls supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Valid {
    /// The type.
    pub ty: AtomicType,
    /// The operation.
    pub op: AtomicOp,
    /// Maximum elements of one call.
    pub count: usize,
}

/// Translates `enum fi_datatype` and `enum fi_op`. Errors: [`Errno::OPNOTSUPP`] if the family does not support the pair.
#[inline]
pub fn valid(family: Family, datatype: i32, op: i32) -> Result<Valid> {
    let ty = usize::try_from(datatype)
        .ok()
        .and_then(|index| TYPES.get(index));
    // `AtomicOp::ALL` has the order of `enum fi_op`.
    let op = usize::try_from(op)
        .ok()
        .and_then(|index| AtomicOp::ALL.get(index));
    let (Some(&ty), Some(&op)) = (ty, op) else {
        return Err(Errno::OPNOTSUPP);
    };
    let usable = match family {
        Family::Base => op.form() == AtomicForm::Update,
        Family::Fetch => op.form() != AtomicForm::Compare,
        Family::Compare => op.form() == AtomicForm::Compare,
    };
    if usable && supported(op, ty) {
        Ok(Valid {
            ty,
            op,
            count: MOST_BYTES / ty.size(),
        })
    } else {
        Err(Errno::OPNOTSUPP)
    }
}

/// Number of pairs of a type and an operation that a family supports.
pub fn kinds(family: Family) -> usize {
    let all = |count: usize| (0..).take(count);
    let pairs = all(TYPES.len()).flat_map(|ty| all(AtomicOp::ALL.len()).map(move |op| (ty, op)));
    pairs
        .filter(|(ty, op)| valid(family, *ty, *op).is_ok())
        .count()
}

/// The memory of an atomic operation. Lengths count elements. Lists that the operation does not use are empty.
#[derive(Debug, Clone, Copy, Default)]
pub struct AtomicOperands<'a> {
    /// Operands.
    pub operand: &'a [LocalRange],
    /// Comparands.
    pub compare: &'a [LocalRange],
    /// Destination of the previous values.
    pub result: &'a [LocalRange],
    /// The targets.
    pub remote: &'a [RemotePart],
}

/// Properties of a call with valid arguments.
pub(crate) struct Checked {
    pub valid: Valid,
    /// Elements of all parts together.
    pub count: usize,
    /// Whether the operation uses operands, comparands and results.
    pub needed: [bool; 3],
    /// The caller may reuse operands and comparands when the call returns.
    pub inline: bool,
}

/// Checks the arguments. Errors: as for [`Endpoint::atomic`], without [`Errno::AGAIN`].
#[inline]
pub(crate) fn check(
    family: Family,
    (datatype, op): (i32, i32),
    operands: &AtomicOperands<'_>,
    posting: &PostOptions,
) -> Result<Checked> {
    let valid = valid(family, datatype, op)?;
    let AtomicOperands {
        operand,
        compare,
        result,
        remote,
    } = *operands;
    if posting.flags & !(TRANSMIT_FLAGS & !FI_REMOTE_CQ_DATA) != 0 {
        return Err(Errno::BADFLAGS);
    }
    let lists = [operand, compare, result];
    if remote.len() > IOV_LIMIT || lists.iter().any(|list| list.len() > IOV_LIMIT) {
        return Err(Errno::INVAL);
    }
    let inline = posting.quiet || posting.flags & FI_INJECT != 0;
    let count = total(remote.iter().map(|part| part.len), valid.count)?;
    if inline && count * valid.ty.size() > INJECT_SIZE {
        return Err(Errno::MSGSIZE);
    }
    let needed = [
        valid.op != AtomicOp::Read,
        family == Family::Compare,
        family != Family::Base,
    ];
    for (list, needed) in lists.iter().zip(needed) {
        let short = total(list.iter().map(|part| part.len), usize::MAX)? != count;
        if needed && (short || list.iter().any(|part| part.len > 0 && part.ptr.is_null())) {
            return Err(Errno::INVAL);
        }
    }
    if count == 0 {
        return Err(Errno::INVAL);
    }
    Ok(Checked {
        valid,
        count,
        needed,
        inline,
    })
}

impl Endpoint {
    /// Operates atomically on each element of a peer's memory. The completion queue or counter reports the result. Errors:
    /// [`Errno::OPNOTSUPP`], [`Errno::MSGSIZE`] for too many elements, [`Errno::INVAL`], [`Errno::AGAIN`], [`Errno::BADFLAGS`].
    ///
    /// # Safety
    /// Operands and comparands are readable until the call returns. Results are valid for writes until the operation is complete.
    #[inline]
    pub unsafe fn atomic(
        &self,
        family: Family,
        (datatype, op): (i32, i32),
        operands: &AtomicOperands<'_>,
        to: u64,
        posting: &PostOptions,
    ) -> Result<()> {
        let checked = check(family, (datatype, op), operands, posting)?;
        let (ty, op) = (checked.valid.ty, checked.valid.op);
        let (reports, mut state) = self.live()?;
        let state = &mut *state;
        let admitted = self.admit(reports, state, to, posting)?;
        let mut vector = Vector {
            ty,
            op,
            lists: [operands.operand, operands.compare, operands.result],
            needed: checked.needed,
            remote: operands.remote,
            access: family.access(op),
            flags: admitted.flags,
            walk: Walk::new(),
        };
        vector.flags.set(Flags::INLINE, checked.inline);
        let job = Job {
            to,
            report: posting.report(family.completion(), admitted.wanted),
            notice: None,
            several: !vector.is_single(),
            more: posting.flags & FI_MORE != 0,
            bytes: checked.count * ty.size(),
        };
        state.run(reports, job, vector)
    }
}

/// An operation of [`Endpoint::atomic`]. The contract of that call holds for the lists.
struct Vector<'a> {
    ty: AtomicType,
    op: AtomicOp,
    /// Operands, comparands and results.
    lists: [&'a [LocalRange]; 3],
    needed: [bool; 3],
    remote: &'a [RemotePart],
    access: u64,
    flags: Flags,
    walk: Walk<4>,
}

impl Vector<'_> {
    fn is_single(&self) -> bool {
        self.remote.len() == 1 && self.lists.iter().all(|list| list.len() <= 1)
    }
}

impl Parts for Vector<'_> {
    fn check(&self, domain: &Domain, target: &mut Target) -> Result<()> {
        // The post of a single part checks it.
        if self.is_single() {
            return Ok(());
        }
        for part in self.remote {
            let len = part.len * self.ty.size();
            let place = target.place(domain, part.key, part.address, len, self.access)?;
            if !place.offset_is_multiple_of(self.ty.alignment()) {
                return Err(Errno::INVAL);
            }
        }
        Ok(())
    }

    fn post_next(&mut self, via: Via<'_>, target: &mut Target) -> Result<Option<Outcome>> {
        // A list that is not needed never limits the length.
        let lens = |list: usize, item: usize| match list {
            0 => self.remote.get(item).map(|part| part.len),
            _ if !self.needed[list - 1] => Some(usize::MAX),
            _ => self.lists[list - 1].get(item).map(|part| part.len),
        };
        let Some((at, count)) = self.walk.next(lens) else {
            return Ok(None);
        };
        let size = self.ty.size();
        let local = |list: usize| match self.needed[list] {
            true => {
                let (item, done) = at[list + 1];
                self.lists[list][item].ptr.wrapping_add(done * size)
            }
            false => std::ptr::null_mut(),
        };
        let request = AtomicRequest {
            op: self.op,
            ty: self.ty,
            count,
            operand: local(0),
            compare: local(1),
            result: local(2),
        };
        let (item, done) = at[0];
        let part = &self.remote[item];
        let address = part.address.wrapping_add((done * size) as u64);
        let place = target.place(via.domain, part.key, address, count * size, self.access)?;
        // SAFETY:
        // - contract of `Endpoint::atomic`: each needed list is valid. `walk` keeps `count` elements within the current items.
        // - lists that are not needed are null.
        let outcome = unsafe { (via.channel).atomic(place, &request, self.flags, via.context) };
        outcome.map(Some).map_err(|error| target.why(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_defined_is_valid() {
        let count = |family, types: std::ops::Range<i32>| {
            let pairs = types.flat_map(|ty| (0..19).map(move |op| (ty, op)));
            pairs
                .filter(|(ty, op)| valid(family, *ty, *op).is_ok())
                .count()
        };
        assert_eq!(count(Family::Base, 0..14), 130);
        assert_eq!(count(Family::Fetch, 0..14), 144);
        assert_eq!(count(Family::Compare, 0..14), 80);
        assert_eq!(count(Family::Base, 14..16), 22);
        assert_eq!(count(Family::Fetch, 14..16), 24);
        assert_eq!(count(Family::Compare, 14..16), 14);
        for (ty, op) in [(-1, 2), (16, 2), (256, 2), (7, -1), (7, 19), (7, 256)] {
            assert_eq!(valid(Family::Base, ty, op), Err(Errno::OPNOTSUPP));
        }
    }
}

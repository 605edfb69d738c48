//! Posts descriptors to the TOQ, and gives prepared ones to the program.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::ops::Range;

use unipgas_utofu_sys::*;

use crate::counts::{self, Most};
use crate::faults;
use crate::flight::{Descriptor, DescriptorKind, InjectedFailure};
use crate::library::{Double, UtofuResult, outcome};
use crate::operation::OperationArguments;
use crate::rules::broken;
use crate::vcqs::{StaddEntry, VcqCall};

/// Maximum length of a descriptor, in words.
const DESC_WORDS: usize = 8;
const WORD: usize = size_of::<u64>();

/// Context of a post.
struct Post<'a> {
    double: &'static Double,
    call: &'a str,
    inside: &'a VcqCall,
    cbdata: *mut c_void,
}

impl Post<'_> {
    /// Posts `parts` by `all`. If some of them are to fail, posts only the others; `bytes` returns the descriptors of all.
    fn post(
        &self,
        parts: &[Descriptor],
        all: impl FnOnce() -> c_int,
        bytes: impl FnOnce() -> Result<Vec<u64>, c_int>,
    ) -> UtofuResult {
        let Post { double, call, .. } = *self;
        let vcq = self.inside.vcq();
        let mut queues = self.inside.queues();
        queues.check_mrq(double, call, vcq)?;
        for part in parts {
            self.check_local(part, &queues.of(vcq).registered);
        }
        if queues.unread() + parts.len() > double.config.toq {
            counts::full();
            return Err(UTOFU_ERR_BUSY);
        }
        let failures: Vec<Option<InjectedFailure>> =
            parts.iter().map(|part| self.failure(part)).collect();
        if failures.iter().all(Option::is_none) {
            outcome(all())?;
        } else {
            let bytes = bytes()?;
            let each = (bytes.len() / parts.len()).max(1);
            let kept = bytes.chunks(each).zip(&failures);
            let kept = kept.filter(|(_, failure)| failure.is_none());
            let mut kept: Vec<u64> = kept.flat_map(|(words, _)| words).copied().collect();
            if !kept.is_empty() {
                let (first, size) = (kept.as_mut_ptr().cast(), kept.len() * WORD);
                // SAFETY:
                // - the VCQ exists, the descriptors are prepared with it, and this thread is in a call on it.
                outcome(unsafe {
                    (double.real.utofu_post_toq)(vcq.handle, first, size, self.cbdata)
                })?;
            }
        }
        let flights = &mut queues.of(vcq).flights;
        for (part, failure) in parts.iter().zip(failures) {
            flights.post(*part, self.cbdata.expose_provenance(), failure);
        }
        counts::at_least(Most::LocalNotices, flights.noticed());
        counts::at_least(Most::Toq, queues.unread());
        Ok(())
    }

    fn failure(&self, part: &Descriptor) -> Option<InjectedFailure> {
        let config = &self.double.config;
        let tcq = faults::next(&config.tcq_faults).map(InjectedFailure::Tcq);
        let mrq = match part.kind {
            DescriptorKind::Nop => None,
            _ => faults::next(&config.mrq_faults).map(InjectedFailure::Mrq),
        };
        tcq.or(mrq)
    }

    fn check_local(&self, part: &Descriptor, registered: &BTreeMap<utofu_stadd_t, StaddEntry>) {
        if !matches!(part.kind, DescriptorKind::Put | DescriptorKind::Get)
            || !self.double.config.strict_stadds
        {
            return;
        }
        let end = |first: &utofu_stadd_t, length: usize| first + length as u64;
        let within = registered
            .range(..=part.local)
            .next_back()
            .is_some_and(|(first, memory)| {
                part.local
                    .checked_add(part.length as u64)
                    .is_some_and(|last| last <= end(first, memory.length))
            });
        if !within {
            broken(
                self.call,
                format_args!(
                    "{} bytes at local STADD {:#x} are not registered on this VCQ",
                    part.length, part.local
                ),
            );
        }
    }
}

/// A start function. `start` is the library's function, and `prepare` its counterpart that prepares.
pub fn start(
    double: &'static Double,
    call: &str,
    handle: utofu_vcq_hdl_t,
    cbdata: *mut c_void,
    operation: &OperationArguments,
    start: impl FnOnce() -> c_int,
    prepare: impl FnOnce(*mut c_void, *mut usize) -> c_int,
) -> UtofuResult {
    let inside = VcqCall::new(double, call, handle);
    counts::flags(operation.flags);
    operation.check(&double.config, call, inside.vcq().session)?;
    operation.check_word(double, call);
    let bytes = || {
        let mut words = vec![0u64; operation.number() * DESC_WORDS];
        let mut size = 0;
        outcome(prepare(words.as_mut_ptr().cast(), &mut size))?;
        words.truncate(size / WORD);
        Ok(words)
    };
    let post = Post {
        double,
        call,
        inside: &inside,
        cbdata,
    };
    post.post(&operation.parts(double), start, bytes)
}

/// A preparation function.
///
/// # Safety
/// `desc` and `size` are the pointers that `prepare` writes to.
pub unsafe fn prepare(
    double: &'static Double,
    call: &str,
    handle: utofu_vcq_hdl_t,
    (desc, size): (*mut c_void, *mut usize),
    operation: &OperationArguments,
    prepare: impl FnOnce() -> c_int,
) -> UtofuResult {
    let inside = VcqCall::new(double, call, handle);
    counts::flags(operation.flags);
    operation.check(&double.config, call, inside.vcq().session)?;
    operation.check_word(double, call);
    let mut queues = inside.queues();
    outcome(prepare())?;
    // SAFETY:
    // - the library has written `size` bytes at `desc`.
    let bytes = unsafe { std::slice::from_raw_parts(desc.cast::<u64>(), *size / WORD) };
    let parts = operation.parts(double);
    let prepared = &mut queues.of(inside.vcq()).prepared;
    for (words, part) in bytes.chunks((bytes.len() / parts.len()).max(1)).zip(parts) {
        prepared.insert(words.to_vec(), part);
    }
    Ok(())
}

/// `utofu_post_toq`.
///
/// # Safety
/// `desc` has `size` bytes, or `size` is 0.
pub unsafe fn post_toq(
    double: &'static Double,
    handle: utofu_vcq_hdl_t,
    desc: *mut c_void,
    size: usize,
    cbdata: *mut c_void,
) -> UtofuResult {
    const CALL: &str = "utofu_post_toq";
    let inside = VcqCall::new(double, CALL, handle);
    let words: &[u64] = match size {
        0 => &[],
        _ if desc.is_null() || !desc.cast::<u64>().is_aligned() => {
            return Err(UTOFU_ERR_INVALID_POINTER);
        }
        // SAFETY:
        // - not null and aligned; contract of this function: `desc` has `size` bytes.
        _ => unsafe { std::slice::from_raw_parts(desc.cast(), size / WORD) },
    };
    let found: Vec<(Range<usize>, Descriptor)> = {
        let mut queues = inside.queues();
        let prepared = &queues.of(inside.vcq()).prepared;
        let mut found = Vec::new();
        let mut at = 0;
        while at < words.len() || !size.is_multiple_of(WORD) {
            let most = DESC_WORDS.min(words.len() - at);
            let next = (1..=most).find_map(|length| {
                let range = at..at + length;
                Some((range.clone(), *prepared.get(&words[range])?))
            });
            let Some(next) = next else {
                broken(
                    CALL,
                    format_args!(
                        "what begins at byte {} of the descriptors was not prepared with this VCQ",
                        at * WORD
                    ),
                );
            };
            at = next.0.end;
            found.push(next);
        }
        found
    };
    let parts: Vec<Descriptor> = found.iter().map(|(_, part)| *part).collect();
    let post = Post {
        double,
        call: CALL,
        inside: &inside,
        cbdata,
    };
    let all = || {
        // SAFETY:
        // - contract of this function: `desc` has `size` bytes.
        unsafe { (double.real.utofu_post_toq)(handle, desc, size, cbdata) }
    };
    if parts.is_empty() {
        let _queues = inside.queues();
        return outcome(all());
    }
    post.post(&parts, all, || Ok(words.to_vec()))
}

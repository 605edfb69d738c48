//! Vectors: the calls with a v, and with msg.

use std::ffi::c_int;
use std::ptr::{null, null_mut};

use unipgas::libfabric::sys::*;

use super::kit::*;
use super::station::Plan;
use super::value::{FAMILIES, Family};
use crate::ensure_eq;
use crate::law::{Ctx, Random, Verdict};

laws! {
    vectors: "atomic.vector", "fi_atomic(3) §4.3, §4.4, §4.5", 2, [atomicv, fetch_atomicv, compare_atomicv],
        "however operands, comparands and results are divided into vectors, the elements are those of the call without";
    messages: "atomic.msg", "fi_atomic(3) §4.3, §4.4, §4.5", 2, [atomicmsg, fetch_atomicmsg, compare_atomicmsg],
        "the calls with msg do the same on several pieces of remote memory, under keys of their own";
    most: "atomic.vector.limit", "fi_atomic(3) §3", 2, [atomicv, atomicmsg, fetch_atomicmsg],
        "vectors may have as many entries as iov_limit and rma_iov_limit say; more are refused";
    unequal: "atomic.vector.unequal", "fi_atomic(3) §3", 2, [atomicv, fetch_atomicv, compare_atomicv, fetch_atomicmsg],
        "vectors of different numbers of elements are refused, and change nothing";
    reads: "atomic.read", "fi_atomic(3) §4.4", 2, [fetch_atomic, fetch_atomicv, fetch_atomicmsg],
        "of FI_ATOMIC_READ the operand is ignored, and may be NULL";
    all_or_nothing: "atomic.msg.partial", "fi_atomic(3) §7", 2, [atomicmsg, fetch_atomicmsg],
        "an operation of which one piece of remote memory is refused changes none of the others";
}

const COUNT: usize = 12;

/// `COUNT` u64 divided into up to 8 pieces, some of them empty; their lengths.
fn division(random: &mut Random) -> Vec<usize> {
    let mut left = COUNT;
    let mut pieces = Vec::new();
    while left > 0 && pieces.len() < 7 {
        let piece = random.below(left.min(5) as u64 + 1) as usize;
        pieces.push(piece);
        left -= piece;
    }
    pieces.push(left);
    pieces
}

/// The pieces of a buffer, back to front in memory so that they do not lie in a row; and the buffer's elements in their order.
struct Pieces {
    words: Vec<u64>,
    list: Vec<fi_ioc>,
}

impl Pieces {
    fn of(values: &[u64], division: &[usize]) -> Pieces {
        let mut pieces = Pieces {
            words: vec![0; COUNT],
            list: Vec::new(),
        };
        let (mut done, mut end) = (0, COUNT);
        for len in division {
            end -= len;
            pieces.words[end..end + len].copy_from_slice(&values[done..done + len]);
            done += len;
            pieces.list.push(fi_ioc {
                addr: pieces.words[end..].as_mut_ptr().cast(),
                count: *len,
            });
        }
        pieces
    }

    /// Reads the elements in the order of the pieces.
    fn values(&self, division: &[usize]) -> Vec<u64> {
        let mut end = COUNT;
        let mut values = Vec::new();
        for len in division {
            end -= len;
            for i in end..end + len {
                // SAFETY:
                // - in bounds; written through the pointers of the list.
                values.push(unsafe { self.words.as_ptr().add(i).read_volatile() });
            }
        }
        values
    }
}

/// What is before, the operands, the comparands.
fn values(random: &mut Random) -> [Vec<u64>; 3] {
    let before: Vec<u64> = (0..COUNT).map(|_| random.next()).collect();
    let operand = (0..COUNT).map(|_| random.next()).collect();
    let compare = before.iter().map(|v| v + random.below(2)).collect();
    [before, operand, compare]
}

fn bytes(values: &[u64]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

fn op(family: Family) -> c_int {
    if family == Family::Compare {
        CSWAP
    } else {
        SUM
    }
}

fn after(family: Family, before: u64, operand: u64, compare: u64) -> u64 {
    match family {
        Family::Compare if before == compare => operand,
        Family::Compare => before,
        _ => before.wrapping_add(operand),
    }
}

fn expected(family: Family, [before, operand, compare]: &[Vec<u64>; 3]) -> Vec<u64> {
    let all = before.iter().zip(operand).zip(compare);
    all.map(|((b, o), c)| after(family, *b, *o, *c)).collect()
}

fn vectors(ctx: &Ctx) -> Verdict {
    with(ctx, &Plan::default(), 1024, |job| {
        let (rank, mut random) = (job.right(), ctx.random(job.rank.into()));
        let (to, at, key) = job.place(rank, 64);
        for _ in 0..20 {
            for family in FAMILIES {
                let all = values(&mut random);
                job.write(rank, 64, &bytes(&all[0]))?;
                let (a, b, c) = (
                    division(&mut random),
                    division(&mut random),
                    division(&mut random),
                );
                let (operand, compare) = (Pieces::of(&all[1], &a), Pieces::of(&all[2], &b));
                let mut result = Pieces::of(&[0; COUNT], &c);
                let (oi, ci, ri) = (
                    operand.list.as_ptr(),
                    compare.list.as_ptr(),
                    result.list.as_mut_ptr(),
                );
                let (none, op) = (null_mut(), op(family));
                job.done(|| match family {
                    Family::Base => call!(atomic job.ep, writev(oi, none, a.len(), to, at, key, UINT64, op, cx(5))),
                    Family::Fetch => call!(atomic job.ep, readwritev(oi, none, a.len(), ri, none, c.len(), to, at, key, UINT64, op, cx(5))),
                    Family::Compare => call!(atomic job.ep, compwritev(oi, none, a.len(), ci, none, b.len(), ri, none, c.len(), to, at, key, UINT64, op, cx(5))),
                })?;
                same(
                    &job.read(rank, 64, 8 * COUNT)?,
                    &bytes(&expected(family, &all)),
                    "the target",
                )?;
                if family != Family::Base {
                    ensure_eq!(result.values(&c), all[0], "{family:?}: the results");
                }
            }
        }
        Ok(())
    })
}

fn messages(ctx: &Ctx) -> Verdict {
    with(ctx, &Plan::default(), 1024, |job| {
        // A second region, under a key of its own.
        let second = Memory::new(1024);
        let registered = job.station.register(second, 100 + u64::from(job.rank))?;
        job.meet();
        job.ctx.tell(&bytes(&[registered.key, registered.base]));
        job.meet();
        let rank = job.right();
        let told = ctx.told(rank).unwrap_or_default();
        let word = |at: usize| u64::from_le_bytes(told[at..at + 8].try_into().expect("8 bytes"));
        let (other_key, other_base) = (word(0), word(8));
        let (to, at, key) = job.place(rank, 64);
        let mut random = ctx.random(job.rank.into());
        for _ in 0..20 {
            for family in FAMILIES {
                let all = values(&mut random);
                let (a, b, c, d) = (
                    division(&mut random),
                    division(&mut random),
                    division(&mut random),
                    division(&mut random),
                );
                let (operand, compare) = (Pieces::of(&all[1], &a), Pieces::of(&all[2], &b));
                let mut result = Pieces::of(&[0; COUNT], &c);
                let mut done = 0;
                let mut remote = Vec::new();
                for (nth, len) in d.iter().enumerate() {
                    let (addr, key) = match nth % 2 {
                        0 => (at + 8 * done as u64, key),
                        _ => (other_base + 256 + 8 * done as u64, other_key),
                    };
                    remote.push(fi_rma_ioc {
                        addr,
                        count: *len,
                        key,
                    });
                    let start = bytes(&all[0][done..done + len]);
                    job.done(|| call!(rma job.ep, write(start.as_ptr().cast(), start.len(), null_mut(), to, addr, key, null_mut())))?;
                    done += len;
                }
                let msg = fi_msg_atomic {
                    msg_iov: operand.list.as_ptr(),
                    desc: null_mut(),
                    iov_count: a.len(),
                    addr: to,
                    rma_iov: remote.as_ptr(),
                    rma_iov_count: remote.len(),
                    datatype: UINT64,
                    op: op(family),
                    context: cx(77),
                    data: 0,
                };
                let (ci, ri, none) = (compare.list.as_ptr(), result.list.as_mut_ptr(), null_mut());
                let entry = job.done(|| match family {
                    Family::Base => call!(atomic job.ep, writemsg(&msg, 0)),
                    Family::Fetch => call!(atomic job.ep, readwritemsg(&msg, ri, none, c.len(), 0)),
                    Family::Compare => call!(atomic job.ep, compwritemsg(&msg, ci, none, b.len(), ri, none, c.len(), 0)),
                })?;
                ensure_eq!(entry.op_context.addr(), 77, "the context");
                let mut seen = Vec::new();
                for place in &remote {
                    let mut piece = vec![0u8; 8 * place.count];
                    job.done(|| call!(rma job.ep, read(piece.as_mut_ptr().cast(), piece.len(), null_mut(), to, place.addr, place.key, null_mut())))?;
                    seen.extend(piece);
                }
                same(&seen, &bytes(&expected(family, &all)), "the target")?;
                if family != Family::Base {
                    ensure_eq!(result.values(&c), all[0], "{family:?}: the results");
                }
            }
        }
        job.meet();
        super::station::close(registered.mr)?;
        second.free();
        Ok(())
    })
}

fn most(ctx: &Ctx) -> Verdict {
    with(ctx, &Plan::default(), 1024, |job| {
        // SAFETY:
        // - what getinfo gave.
        let (limit, remote_limit) = unsafe {
            let transmit = &*(*job.station.info.raw()).tx_attr;
            (transmit.iov_limit, transmit.rma_iov_limit)
        };
        let (to, at, key) = job.place(job.right(), 0);
        let mut one = 1u64;
        let piece = fi_ioc {
            addr: (&raw mut one).cast(),
            count: 1,
        };
        let (list, none) = (vec![piece; limit.max(remote_limit) + 1], null_mut());
        job.done(|| call!(atomic job.ep, writev(list.as_ptr(), none, limit, to, at, key, UINT64, SUM, null_mut())))?;
        gives!(INVAL, atomic job.ep, writev(list.as_ptr(), none, limit + 1, to, at, key, UINT64, SUM, null_mut()));
        let remote: Vec<fi_rma_ioc> = (0..=remote_limit as u64)
            .map(|i| fi_rma_ioc {
                addr: at + 8 * i,
                count: 1,
                key,
            })
            .collect();
        let msg = |count| fi_msg_atomic {
            msg_iov: list.as_ptr(),
            desc: none,
            iov_count: count,
            addr: to,
            rma_iov: remote.as_ptr(),
            rma_iov_count: count,
            datatype: UINT64,
            op: SUM,
            context: null_mut(),
            data: 0,
        };
        let (fits, over) = (
            msg(limit.min(remote_limit)),
            msg(limit.max(remote_limit) + 1),
        );
        job.done(|| call!(atomic job.ep, writemsg(&fits, 0)))?;
        gives!(INVAL, atomic job.ep, writemsg(&over, 0));
        let mut results = vec![0u64; limit + 1];
        let mut result: Vec<fi_ioc> = results
            .iter_mut()
            .map(|w| fi_ioc {
                addr: (&raw mut *w).cast(),
                count: 1,
            })
            .collect();
        gives!(INVAL, atomic job.ep, readwritemsg(&over, result.as_mut_ptr(), none, limit + 1, 0));
        job.meet();
        ensure_eq!(job.memory.get(0), 2, "the first element");
        ensure_eq!(job.memory.get(8 * limit), 0, "the element behind the limit");
        job.tx.is_empty()
    })
}

fn unequal(ctx: &Ctx) -> Verdict {
    with(ctx, &Plan::default(), 256, |job| {
        let (to, at, key) = job.place(job.right(), 0);
        let mut words = [1u64; 4];
        let base = words.as_mut_ptr();
        let list = |count| fi_ioc {
            addr: base.cast(),
            count,
        };
        let (one, mut two, none) = (list(1), list(2), null_mut());
        gives!(INVAL, atomic job.ep, readwritev(&one, none, 1, &mut two, none, 1, to, at, key, UINT64, SUM, null_mut()));
        gives!(INVAL, atomic job.ep, compwritev(&one, none, 1, &two, none, 1, &mut { list(1) }, none, 1, to, at, key, UINT64, CSWAP, null_mut()));
        gives!(INVAL, atomic job.ep, compwritev(&two, none, 1, &two, none, 1, &mut { list(1) }, none, 1, to, at, key, UINT64, CSWAP, null_mut()));
        gives!(INVAL, atomic job.ep, writev(&list(0), none, 1, to, at, key, UINT64, SUM, null_mut()));
        gives!(INVAL, atomic job.ep, writev(null(), none, 0, to, at, key, UINT64, SUM, null_mut()));
        let remote = fi_rma_ioc {
            addr: at,
            count: 3,
            key,
        };
        let msg = fi_msg_atomic {
            msg_iov: &two,
            desc: none,
            iov_count: 1,
            addr: to,
            rma_iov: &remote,
            rma_iov_count: 1,
            datatype: UINT64,
            op: SUM,
            context: null_mut(),
            data: 0,
        };
        gives!(INVAL, atomic job.ep, writemsg(&msg, 0));
        gives!(INVAL, atomic job.ep, readwritemsg(&msg, &mut { list(3) }, none, 1, 0));
        job.meet();
        job.memory.holds(0, &[0; 64], "the memory")?;
        job.tx.is_empty()
    })
}

fn reads(ctx: &Ctx) -> Verdict {
    with(ctx, &Plan::default(), 256, |job| {
        job.memory.set(8, 40 + u64::from(job.rank));
        job.meet();
        let (to, at, key) = job.place(job.right(), 8);
        let expected = 40 + u64::from(job.right());
        let none = null_mut();
        let nones = null_mut();
        let mut seen = [0u64; 3];
        let place = |nth: usize, seen: &mut [u64; 3]| fi_ioc {
            addr: (&raw mut seen[nth]).cast(),
            count: 1,
        };
        let (first, mut second, mut third) = (
            (&raw mut seen[0]).cast(),
            place(1, &mut seen),
            place(2, &mut seen),
        );
        job.done(|| call!(atomic job.ep, readwrite(null(), 1, none, first, none, to, at, key, UINT64, READ, none)))?;
        job.done(|| call!(atomic job.ep, readwritev(null(), nones, 0, &mut second, nones, 1, to, at, key, UINT64, READ, none)))?;
        let remote = fi_rma_ioc {
            addr: at,
            count: 1,
            key,
        };
        let msg = fi_msg_atomic {
            msg_iov: null(),
            desc: nones,
            iov_count: 0,
            addr: to,
            rma_iov: &remote,
            rma_iov_count: 1,
            datatype: UINT64,
            op: READ,
            context: none,
            data: 0,
        };
        job.done(|| call!(atomic job.ep, readwritemsg(&msg, &mut third, nones, 1, 0)))?;
        ensure_eq!(seen, [expected; 3], "what was read");
        job.meet();
        ensure_eq!(job.memory.get(8), 40 + u64::from(job.rank), "the target");
        Ok(())
    })
}

fn all_or_nothing(ctx: &Ctx) -> Verdict {
    with(ctx, &Plan::default(), 256, |job| {
        let (to, at, key) = job.place(job.right(), 0);
        let mut words = [5u64; 3];
        let operand = fi_ioc {
            addr: words.as_mut_ptr().cast(),
            count: 3,
        };
        let good = fi_rma_ioc {
            addr: at,
            count: 1,
            key,
        };
        for bad in [
            fi_rma_ioc {
                key: key + 999,
                ..good
            },
            fi_rma_ioc {
                addr: at + 256,
                ..good
            },
            fi_rma_ioc {
                addr: at + 4,
                ..good
            },
        ] {
            let remote = [
                good,
                fi_rma_ioc {
                    addr: at + 8,
                    ..good
                },
                bad,
            ];
            let msg = fi_msg_atomic {
                msg_iov: &operand,
                desc: null_mut(),
                iov_count: 1,
                addr: to,
                rma_iov: remote.as_ptr(),
                rma_iov_count: 3,
                datatype: UINT64,
                op: SUM,
                context: cx(3),
                data: 0,
            };
            let mut results = [0u64; 3];
            let mut result = fi_ioc {
                addr: results.as_mut_ptr().cast(),
                count: 3,
            };
            job.post(|| call!(atomic job.ep, writemsg(&msg, 0)))?;
            ensure_eq!(job.tx.error()?.op_context.addr(), 3, "the context");
            job.post(|| call!(atomic job.ep, readwritemsg(&msg, &mut result, null_mut(), 1, 0)))?;
            ensure_eq!(job.tx.error()?.op_context.addr(), 3, "the context");
            ensure_eq!(results, [0; 3], "the results");
        }
        job.meet();
        job.memory.holds(0, &[0; 256], "the memory")
    })
}

//! Vectors: the calls with `v`, and with `msg`.

use super::kit::*;
use super::value::{FAMILIES, Family};
use crate::law::Random;

laws! {
    vectors in_modes(1024): "atomic.vector", "fi_atomic(3) §4.3, §4.4, §4.5", 2, [atomicv, fetch_atomicv, compare_atomicv],
        "for each division of operands, comparands and results into vectors, the elements equal those of the call without vectors";
    messages in_modes(1024): "atomic.msg", "fi_atomic(3) §4.3, §4.4, §4.5", 2, [atomicmsg, fetch_atomicmsg, compare_atomicmsg],
        "the calls with msg do the same on several pieces of remote memory, under keys of their own";
}

const COUNT: usize = 12;

/// Lengths of up to 8 pieces, some empty, that divide `COUNT` u64.
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

/// A buffer and the list of its pieces. The pieces lie back to front, so they are not contiguous.
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
            let piece = pieces.words[end..].as_mut_ptr();
            pieces.list.push(ioc(piece, *len));
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
                // - in bounds; the provider writes it through the pointers of the list.
                values.push(unsafe { self.words.as_ptr().add(i).read_volatile() });
            }
        }
        values
    }
}

/// Previous values, operands and comparands.
fn values(random: &mut Random) -> [Vec<u64>; 3] {
    let before: Vec<u64> = (0..COUNT).map(|_| random.next()).collect();
    let operand = (0..COUNT).map(|_| random.next()).collect();
    let compare = before.iter().map(|v| v + random.below(2)).collect();
    [before, operand, compare]
}

fn bytes(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

/// An operation of the family.
pub(super) fn op(family: Family) -> c_int {
    match family {
        Family::Compare => CSWAP,
        _ => SUM,
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

fn vectors(job: &Job<'_>) -> Verdict {
    let (rank, mut random) = (job.right(), job.ctx.random(job.rank.into()));
    let (to, at, key) = job.place(rank, 64);
    for _ in 0..20 {
        for family in FAMILIES {
            let all = values(&mut random);
            job.write(rank, 64, &bytes(&all[0]))?;
            let [a, b, c] = [(); 3].map(|()| division(&mut random));
            let (operand, compare) = (Pieces::of(&all[1], &a), Pieces::of(&all[2], &b));
            let mut result = Pieces::of(&[0; COUNT], &c);
            let [oi, ci] = [&operand, &compare].map(|pieces| pieces.list.as_ptr());
            let ri = result.list.as_mut_ptr();
            let (none, op) = (null_mut(), op(family));
            job.done(|| match family {
                Family::Base => call!(atomic job.ep, writev(oi, none, a.len(), to, at, key, UINT64, op, cx(5))),
                Family::Fetch => call!(atomic job.ep, readwritev(oi, none, a.len(), ri, none, c.len(), to, at, key, UINT64, op, cx(5))),
                Family::Compare => call!(atomic job.ep, compwritev(oi, none, a.len(), ci, none, b.len(), ri, none, c.len(), to, at, key, UINT64, op, cx(5))),
            })?;
            let seen = job.read(rank, 64, 8 * COUNT)?;
            same(&seen, &bytes(&expected(family, &all)), "the target")?;
            if family != Family::Base {
                ensure_eq!(result.values(&c), all[0], "{family:?}: the results");
            }
        }
    }
    Ok(())
}

fn messages(job: &Job<'_>) -> Verdict {
    // A second region, with a different key.
    let second = Buffer::new(1024);
    let registered = job.station.register(*second, 100 + u64::from(job.rank))?;
    let (other_key, other_base) = super::memory::exchanged(job, registered);
    let rank = job.right();
    let (to, at, key) = job.place(rank, 64);
    let mut random = job.ctx.random(job.rank.into());
    for _ in 0..20 {
        for family in FAMILIES {
            let all = values(&mut random);
            let [a, b, c, d] = [(); 4].map(|()| division(&mut random));
            let (operand, compare) = (Pieces::of(&all[1], &a), Pieces::of(&all[2], &b));
            let mut result = Pieces::of(&[0; COUNT], &c);
            let mut done = 0;
            let mut remote = Vec::new();
            for (nth, len) in d.iter().enumerate() {
                let (addr, key) = match nth % 2 {
                    0 => (at + 8 * done as u64, key),
                    _ => (other_base + 256 + 8 * done as u64, other_key),
                };
                remote.push(rma_ioc(addr, *len, key));
                let words = Words {
                    count: *len,
                    ..Words::new(job.ep, (to, addr, key))
                };
                job.done(|| words.from(all[0][done..].as_ptr()).write())?;
                done += len;
            }
            let msg = atomic_list(&operand.list, to, &remote, op(family), cx(77));
            let (ci, ri, none) = (compare.list.as_ptr(), result.list.as_mut_ptr(), null_mut());
            let entry = job.done(|| match family {
                Family::Base => call!(atomic job.ep, writemsg(&msg, 0)),
                Family::Fetch => call!(atomic job.ep, readwritemsg(&msg, ri, none, c.len(), 0)),
                Family::Compare => call!(atomic job.ep, compwritemsg(&msg, ci, none, b.len(), ri, none, c.len(), 0)),
            })?;
            ensure_eq!(entry.context(), 77, "the context");
            let mut seen = Vec::new();
            for place in &remote {
                let mut piece = vec![0u64; place.count];
                let words = Words {
                    count: place.count,
                    ..Words::new(job.ep, (to, place.addr, place.key))
                };
                job.done(|| words.into(piece.as_mut_ptr()).read())?;
                seen.extend(bytes(&piece));
            }
            same(&seen, &bytes(&expected(family, &all)), "the target")?;
            if family != Family::Base {
                ensure_eq!(result.values(&c), all[0], "{family:?}: the results");
            }
        }
    }
    job.meet();
    close(registered.mr)
}

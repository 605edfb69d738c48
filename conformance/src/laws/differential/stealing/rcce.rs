use std::ffi::c_int;

use super::*;
use crate::laws::rcce::kit::*;

/// Task numbers come from atomic increment registers, their purpose. The other counter is a word of an MPB, under a lock.
struct Mpb {
    registers: Vec<usize>,
    area: *mut u8,
}

impl Pool for Mpb {
    fn add(&mut self, rank: u32, at: usize, value: u64) -> Result<u64, String> {
        if at == NEXT {
            let mut before: c_int = -7;
            let register = self.registers[rank as usize] as *const _;
            ok!(iRCCE_atomic_inc(register, &mut before));
            return Ok(before as u64);
        }
        let (mut word, ue) = (0u64, rank as c_int);
        let (own, there) = ((&raw mut word).cast(), self.area.wrapping_add(at));
        ok!(RCCE_acquire_lock(ue));
        ok!(RCCE_get(own, there, 8, ue));
        let before = word;
        word += value;
        let own = (&raw mut word).cast();
        ok!(RCCE_put(there, own, 8, ue));
        ok!(RCCE_release_lock(ue));
        Ok(before)
    }

    fn deliver(&mut self, task: Task, result: &[u8]) -> Verdict {
        let there = self.area.wrapping_add(task.at());
        let own = result.as_ptr().cast_mut();
        ok!(RCCE_put(there, own, RESULT as c_int, task.home as c_int));
        Ok(())
    }

    fn finish(&mut self, _: &[usize]) -> Verdict {
        // A UE's puts are complete before it enters the barrier.
        barrier()
    }
}

pub(super) fn run(ctx: &Ctx) -> Left {
    let (me, len) = (ctx.rank as c_int, memory(ctx));
    let registers = (0..ctx.size).map(|_| {
        let mut register = std::ptr::null();
        ok!(iRCCE_atomic_alloc(&mut register));
        Ok(register as usize)
    });
    let mut pool = Mpb {
        registers: registers.collect::<Result<_, String>>()?,
        area: c!(iRCCE_malloc(len)),
    };
    crate::ensure!(!pool.area.is_null(), "no room in the MPB");
    let mut left = vec![0u8; len];
    ok!(RCCE_put(pool.area, left.as_mut_ptr(), len as c_int, me));
    barrier()?;
    work(ctx, &mut pool)?;
    ok!(RCCE_get(left.as_mut_ptr(), pool.area, len as c_int, me));
    let mut next: c_int = -7;
    let own = pool.registers[ctx.rank as usize] as *const _;
    ok!(iRCCE_atomic_read(own, &mut next));
    left[NEXT..NEXT + 8].copy_from_slice(&bytes_of(&[next as u64]));
    barrier()?;
    Ok(left)
}

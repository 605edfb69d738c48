//! §11.4: reductions by operations of the program.

use std::ffi::c_void;

use super::collective::patience;
use super::kit::*;

laws! {
    users_operation given(false): "allreduce_user.seven", "§11.4.1", 4, [gaspi_allreduce_user, gaspi_reduce_operation] + ordering,
        "the operation of the program, with number and size of elements as release 1.6 has it; the state is passed on";
    users_operation given(true): "allreduce_user.five", "§11.4.2", 4, [gaspi_allreduce_user, gaspi_allreduce_user_17, gaspi_reduce_operation] + ordering,
        "the operation of the program in the form of the text: two operands and a result, one element at a time";
    users_operation_continues: "allreduce_user.timeout", "§11.4.1", 3, [gaspi_allreduce_user] + ordering,
        "a user's reduction that timed out is continued by the next call";
    users_buffer: "allreduce_user.buf-size", "§11.4.1", 2, [gaspi_allreduce_user, gaspi_allreduce_buf_size],
        "the data may be as large as gaspi_allreduce_buf_size, and not larger";
    users_error: "allreduce_user.error", "§11.4.2", 2, [gaspi_allreduce_user],
        "an operation that returns an error makes the reduction return one";
}

/// The state of a callback: its call and error counts, and the arguments that it expects.
#[repr(C)]
struct State {
    magic: u64,
    calls: u64,
    wrong: u64,
    num: u32,
    bytes: u64,
}

const MAGIC: u64 = 0x5eed_5eed_1234_5678;

fn state(num: u32, bytes: u64) -> State {
    let (magic, calls, wrong) = (MAGIC, 0, 0);
    State {
        magic,
        calls,
        wrong,
        num,
        bytes,
    }
}

// Elements of two words: the maximum of the first, the exclusive-or of the second.
operation! { mixed(one, two, result, state, num, bytes) {
    // SAFETY:
    // - contract of the callback: each pointer leads to `num` elements of `bytes` bytes; `state` is the `State` that the law has passed.
    unsafe {
        let state = &mut *state.cast::<State>();
        state.calls += 1;
        if state.magic != MAGIC || num != state.num || bytes != state.bytes {
            state.wrong += 1;
            return -1;
        }
        let (one, two, result) = (one.cast::<u64>(), two.cast::<u64>(), result.cast::<u64>());
        for i in (0..2 * num as usize).step_by(2) {
            let (a, b) = (one.add(i).read_unaligned(), two.add(i).read_unaligned());
            result.add(i).write_unaligned(a.max(b));
            let (a, b) = (one.add(i + 1).read_unaligned(), two.add(i + 1).read_unaligned());
            result.add(i + 1).write_unaligned(a ^ b);
        }
    }
    0
} }

extern "C" fn mixed_17(
    one: *const u8,
    two: *const u8,
    result: *mut u8,
    state: *mut c_void,
    timeout: u64,
) -> i32 {
    // SAFETY:
    // - contract of the callback: each pointer leads to one element; `state` is the `State` that the law has passed.
    unsafe {
        let known = (*state.cast::<State>()).num;
        (*state.cast::<State>()).num = 1;
        let (one, two) = (one.cast_mut(), two.cast_mut());
        let code = mixed(one, two, result, state, 1, 16, timeout);
        (*state.cast::<State>()).num = known;
        code
    }
}

fn elements(ctx: &Ctx, rank: u32, num: usize, round: u64) -> Vec<[u64; 2]> {
    let mut random = ctx.random(500 + round * 10 + u64::from(rank));
    (0..num).map(|_| [random.next(), random.next()]).collect()
}

fn mixed_of_all(ctx: &Ctx, num: usize, round: u64) -> Vec<[u64; 2]> {
    let mut all = elements(ctx, 0, num, round);
    for rank in 1..ctx.size {
        for (held, other) in all.iter_mut().zip(elements(ctx, rank, num, round)) {
            *held = [held[0].max(other[0]), held[1] ^ other[1]];
        }
    }
    all
}

fn users_operation(ctx: &Ctx, release_17: bool) -> Verdict {
    for (round, num) in [1usize, 3, 127].into_iter().enumerate() {
        let round = round as u64;
        let send = elements(ctx, ctx.rank, num, round);
        let mut receive = vec![[0u64; 2]; num];
        let mut state = state(num as u32, 16);
        let (from, into) = (send.as_ptr().cast(), receive.as_mut_ptr().cast());
        let (n, place) = (num as u32, (&raw mut state).cast());
        match release_17 {
            true => ok!(gaspi_allreduce_user_17(
                from,
                into,
                n,
                16,
                Some(mixed_17),
                place,
                ALL,
                LONG
            )),
            false => ok!(gaspi_allreduce_user(
                from,
                into,
                n,
                16,
                Some(mixed),
                place,
                ALL,
                LONG
            )),
        }
        ensure_eq!(state.wrong, 0, "calls with wrong number, size or state");
        let (calls, whole) = (state.calls, state.calls.is_multiple_of(num as u64));
        ensure!(!release_17 || whole, "{calls} calls for {num} elements");
        ensure_eq!(receive, mixed_of_all(ctx, num, round), "{num} elements");
    }
    Ok(())
}

fn users_operation_continues(ctx: &Ctx) -> Verdict {
    let mut random = ctx.random(u64::from(ctx.rank));
    for round in 0..8u64 {
        let send = elements(ctx, ctx.rank, 5, round);
        let mut receive = vec![[0u64; 2]; 5];
        let mut state = state(5, 16);
        let (from, into, place) = (send.as_ptr(), receive.as_mut_ptr(), (&raw mut state).cast());
        let mix = post::allreduce_user(from, into, 5, 16, Some(mixed), place);
        repeat("gaspi_allreduce_user", || {
            mix.code(ALL, patience(&mut random))
        })?;
        ensure_eq!(receive, mixed_of_all(ctx, 5, round), "the result, {round}");
    }
    Ok(())
}

// The byte-wise maximum.
operation! { greatest(one, two, result, _, num, bytes) {
    for i in 0..num as usize * bytes as usize {
        // SAFETY:
        // - contract of the callback: each pointer leads to `num` elements of `bytes` bytes.
        unsafe { result.add(i).write((*one.add(i)).max(*two.add(i))) };
    }
    0
} }

fn users_buffer(ctx: &Ctx) -> Verdict {
    let most = got!(gaspi_allreduce_buf_size());
    let len = most as usize;
    let nothing = null_mut();
    for (num, bytes) in [(1, most), (most, 1), (most / 8, 8)] {
        let send = vec![ctx.rank as u8 + 3; len];
        let mut receive = vec![0u8; len];
        let (from, into, n) = (send.as_ptr(), receive.as_mut_ptr(), num as u32);
        post::allreduce_user(from, into, n, bytes, Some(greatest), nothing).ok(ALL, LONG)?;
        let (used, behind) = receive.split_at((num * bytes) as usize);
        let what = format!("of {num} elements of {bytes} bytes");
        ensure!(used.iter().all(|b| *b == 4), "the greatest {what}");
        ensure!(behind.iter().all(|b| *b == 0), "bytes behind those {what}");
    }
    let (send, mut receive) = (vec![1u8; len + 8], vec![0u8; len + 8]);
    for (num, bytes) in [
        (1, most + 1),
        (most as u32 + 1, 1),
        (2, most),
        (u32::MAX, u64::MAX),
        (u32::MAX, 1 << 33),
    ] {
        let (from, into) = (send.as_ptr(), receive.as_mut_ptr());
        let reduction = post::allreduce_user(from, into, num, bytes, Some(greatest), nothing);
        reduction.gives(GASPI_ERR_INV_SIZE, ALL, LONG)?;
    }
    ensure!(receive.iter().all(|b| *b == 0), "a refused call wrote");
    barrier()
}

operation! { refuse(_, _, _, _, _, _) { ERROR } }

fn users_error(_: &Ctx) -> Verdict {
    let pair = group_of(&[0, 1])?;
    let (send, mut receive) = ([1u8; 8], [0u8; 8]);
    let (from, into) = (send.as_ptr(), receive.as_mut_ptr());
    let reduction = post::allreduce_user(from, into, 1, 8, Some(refuse), null_mut());
    must_fail(
        reduction.code(pair, LONG),
        "a reduction with a failed operation",
    )?;
    // The failure does not affect other groups.
    barrier()?;
    equal!(sum_of_all(1)?, 2, "a sum over another group")
}

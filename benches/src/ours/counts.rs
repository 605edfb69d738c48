//! What an RDMA device is asked to do for an operation: numbers that a slow machine does not change.

use unipgas_gaspi::ffi;
use unipgas_verbs::counts;

use crate::ctx::Ctx;

const BLOCK: u64 = u64::MAX;
const SEGMENT: u8 = 0;
const QUEUE: u8 = 0;
const ALL: u8 = unipgas_gaspi::GROUP_ALL;
/// Operations of a kind.
const MANY: usize = 512;
/// Parts of a list.
const LIST: usize = 16;
/// They are waited for after so many.
const TOGETHER: usize = 64;

fn ok(what: &str, code: i32) -> Result<(), String> {
    match code {
        0 => Ok(()),
        code => Err(format!("{what} returned {code}")),
    }
}

/// Counts by all processes, if they use a device; rank 0 tells.
pub fn say(ctx: &Ctx) -> Result<(), String> {
    let Some(device) = counts::device() else {
        return Ok(());
    };
    if ctx.rank == 0 {
        let kind = if device.is_software {
            "software"
        } else {
            "hardware"
        };
        ctx.say(&format!("@ {} {kind}", device.name));
    }
    let to = 1;
    // SAFETY:
    // - no pointers, or the place of a result.
    unsafe {
        let wait = |nth: usize| match nth % TOGETHER == TOGETHER - 1 {
            true => ok("gaspi_wait", ffi::gaspi_wait(QUEUE, BLOCK)),
            false => Ok(()),
        };
        if ctx.size == 2 {
            by_one(ctx, "8-byte put", |nth| {
                let code = ffi::gaspi_write(SEGMENT, 0, to, SEGMENT, 0, 8, QUEUE, BLOCK);
                ok("gaspi_write", code).and_then(|()| wait(nth))
            })?;
            by_one(ctx, "8-byte put, notice", |nth| {
                let code =
                    ffi::gaspi_write_notify(SEGMENT, 0, to, SEGMENT, 0, 8, 3, 1, QUEUE, BLOCK);
                ok("gaspi_write_notify", code).and_then(|()| wait(nth))
            })?;
            let segments = [SEGMENT; LIST];
            let places: [u64; LIST] = std::array::from_fn(|nth| 64 * nth as u64);
            let sizes = [8u64; LIST];
            by_one(ctx, "list of 16 8-byte puts", |_| {
                let (from, to_them) = (segments.as_ptr().cast_mut(), segments.as_ptr().cast_mut());
                let (at, len) = (places.as_ptr().cast_mut(), sizes.as_ptr().cast_mut());
                let number = LIST as u32;
                let code =
                    ffi::gaspi_write_list(number, from, at, to, to_them, at, len, QUEUE, BLOCK);
                ok("gaspi_write_list", code)?;
                ok("gaspi_wait", ffi::gaspi_wait(QUEUE, BLOCK))
            })?;
            by_one(ctx, "4-KiB get", |nth| {
                let code = ffi::gaspi_read(SEGMENT, 0, to, SEGMENT, 0, 4096, QUEUE, BLOCK);
                ok("gaspi_read", code).and_then(|()| wait(nth))
            })?;
            by_one(ctx, "fetch-add", |_| {
                let mut old = 0;
                let code = ffi::gaspi_atomic_fetch_add(SEGMENT, 8, to, 1, &raw mut old, BLOCK);
                ok("gaspi_atomic_fetch_add", code)
            })?;
        }
        let what = format!("barrier of {}", ctx.size);
        count(ctx, &what, |_| {
            ok("gaspi_barrier", ffi::gaspi_barrier(ALL, BLOCK))
        })
    }
}

/// Rank 0 does it, the others wait.
fn by_one(
    ctx: &Ctx,
    what: &str,
    mut run: impl FnMut(usize) -> Result<(), String>,
) -> Result<(), String> {
    count(ctx, what, |nth| match ctx.rank {
        0 => run(nth),
        _ => Ok(()),
    })
}

fn count(
    ctx: &Ctx,
    what: &str,
    mut run: impl FnMut(usize) -> Result<(), String>,
) -> Result<(), String> {
    // Connections, and what is found at the first time.
    (0..TOGETHER).try_for_each(&mut run)?;
    ctx.sync();
    let before = counts::of_this_process();
    (0..MANY).try_for_each(&mut run)?;
    let after = counts::of_this_process();
    ctx.sync();
    if ctx.rank == 0 {
        let each = |after: u64, before: u64| (after - before) as f64 / MANY as f64;
        ctx.say(&format!(
            "# {what}: {} {} {} {}",
            each(after.doorbells, before.doorbells),
            each(after.requests, before.requests),
            each(after.told, before.told),
            each(after.completions, before.completions)
        ));
    }
    Ok(())
}

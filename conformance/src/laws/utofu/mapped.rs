//! §3.6: the memory of a process that it can register.

use super::kit::*;
use crate::laws::no_memory;

laws! {
    not_accessible: "bad.memory", "§3.6, §3.1.2.1", 1, [reg_mem, reg_mem_with_stag],
        "memory that is not mapped throughout, or not readable, or (unless registered read-only) not writable, gives INVALID_ADDRESS";
    of_any_kind: "memory.kinds", "§3.6, §3.6.2.1", 1, [reg_mem, put],
        "memory of the stack, the heap and the program's data can be registered, and shared memory; constants and code read-only";
}

const PAGE: usize = 4096;

/// Four pages with the rights that `rights` names; pages without rights are unmapped.
fn pages(rights: [Option<i32>; 4]) -> Result<*mut u8, String> {
    let memory = Memory::pages(4 * PAGE)?;
    for (nth, rights) in rights.into_iter().enumerate() {
        let page = memory.base.wrapping_add(nth * PAGE).cast();
        // SAFETY:
        // - own pages without a user.
        let changed = unsafe {
            match rights {
                Some(rights) => libc::mprotect(page, PAGE, rights),
                None => libc::munmap(page, PAGE),
            }
        };
        ensure_eq!(changed, 0, "changing a page");
    }
    Ok(memory.base)
}

fn not_accessible(_: &Ctx) -> Verdict {
    let queue = Queue::with_component(TNI, 0, 0)?;
    let all = Some(libc::PROT_READ | libc::PROT_WRITE);
    let (readable, none) = (Some(libc::PROT_READ), Some(libc::PROT_NONE));
    let holes = pages([all, None, all, all])?;
    let guarded = pages([all, none, all, all])?;
    let constant = pages([all, readable, all, all])?;
    let nowhere = std::ptr::without_provenance_mut::<u8>;
    // Address, length, and whether read-only registration succeeds.
    for (nth, (base, len, reads)) in [
        (holes, 2 * PAGE, false),
        (holes, 4 * PAGE, false),
        (holes.wrapping_add(PAGE), 1, false),
        (holes.wrapping_add(PAGE - 256), 512, false),
        (guarded, 4 * PAGE, false),
        (guarded.wrapping_add(PAGE), PAGE, false),
        (constant, 4 * PAGE, true),
        (constant.wrapping_add(PAGE), 256, true),
        (nowhere(PAGE), 256, false),
        (nowhere(0xffff_8000_0000_0000), 256, false),
    ]
    .into_iter()
    .chain(
        no_memory()
            .filter(|(base, len)| base.addr().is_multiple_of(256) && *len <= 1 << 40)
            // A range that wraps around has a wrong size.
            .filter(|(base, len)| base.addr().checked_add(len + 255).is_some())
            .map(|(base, len)| (base, len, false)),
    )
    .enumerate()
    {
        let mut stadd = 7;
        let (hdl, at, whole) = (queue.hdl, base.cast(), len.next_multiple_of(256));
        let expected = UTOFU_ERR_INVALID_ADDRESS;
        let code = c!(utofu_reg_mem(hdl, at, len, 0, &mut stadd));
        code_is(code, expected, format!("range {nth}"))?;
        let code = c!(utofu_reg_mem_with_stag(hdl, at, whole, 9, 0, &mut stadd));
        code_is(code, expected, format!("range {nth} with a STag"))?;
        ensure_eq!(stadd, 7, "the STADD of range {nth}");
        let code = c!(utofu_reg_mem(hdl, at, len, 1, &mut stadd));
        let expected = if reads { SUCCESS } else { expected };
        code_is(code, expected, format!("range {nth}, read-only"))?;
        if reads {
            queue.deregister(stadd)?;
        }
    }
    // The pages beside them can be registered; a refused call keeps no page.
    let beside = Memory {
        base: holes,
        len: PAGE,
    };
    for stadd in [queue.register(beside)?, queue.register_as(beside, 9)?] {
        queue.deregister(stadd)?;
    }
    queue.free()
}

static CONSTANT: [u8; 512] = [0x5a; 512];
static mut DATA: [u8; 512] = [1; 512];

fn of_any_kind(_: &Ctx) -> Verdict {
    let queue = Queue::with_component(TNI, 0, 0)?;
    let mut stack = [2u8; 512];
    let shared = crate::kit::shared_words(64)?;
    let heap = Memory::new(512);
    let code = not_accessible as *const () as *mut u8;
    // Address, and whether it is writable.
    let kinds = [
        ("the stack", stack.as_mut_ptr(), true),
        ("the program's data", (&raw mut DATA).cast(), true),
        ("shared memory", shared.as_ptr().cast_mut().cast(), true),
        ("the heap", heap.base, true),
        ("constants", CONSTANT.as_ptr().cast_mut(), false),
        ("code", code, false),
    ];
    for (name, base, writable) in kinds {
        for (other_name, other, other_writable) in kinds {
            if !other_writable || name == other_name {
                continue;
            }
            let (mut from, mut to) = (0, 0);
            let flags = u64::from(!writable);
            ok!(utofu_reg_mem(queue.hdl, base.cast(), 64, flags, &mut from));
            ok!(utofu_reg_mem(queue.hdl, other.cast(), 64, 0, &mut to));
            post::put(queue.hdl, queue.id, from, to, 64).noticed(0, 0)?;
            let read = |base: *mut u8| {
                // SAFETY:
                // - 64 readable bytes of this process; no thread changes them now.
                unsafe { std::slice::from_raw_parts(base.cast_const(), 64).to_vec() }
            };
            ensure_eq!(read(other), read(base), "from {name} to {other_name}");
            queue.deregister(from)?;
            queue.deregister(to)?;
        }
    }
    queue.tcq_is_empty()?;
    heap.free();
    queue.free()
}

//! Requests to valgrind, by its special sequence of instructions.

const RUNNING_ON_VALGRIND: u64 = 0x1001;
const STACK_REGISTER: u64 = 0x1501;

/// Whether the program runs on valgrind. valgrind supports no tasks beside threads (it ends the program) and has less address space.
pub(crate) fn on_valgrind() -> bool {
    request([RUNNING_ON_VALGRIND, 0, 0, 0, 0, 0]) != 0
}

/// Registers the memory between these addresses as a stack, so that valgrind accepts a switch of stacks.
pub(super) fn register_stack(start: usize, end: usize) {
    request([STACK_REGISTER, start as u64, end as u64, 0, 0, 0]);
}

#[cfg(target_arch = "x86_64")]
fn request(words: [u64; 6]) -> u64 {
    let mut answer = 0u64;
    // SAFETY:
    // - does nothing on a processor: four rotations, by 128 bits together, and an exchange of a register with itself. valgrind knows the
    //   sequence, reads the six words and changes rdx alone
    unsafe {
        core::arch::asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            in("rdi") 0,
            in("rax") words.as_ptr(),
            inlateout("rdx") answer,
        );
    }
    answer
}

#[cfg(not(target_arch = "x86_64"))]
fn request(_: [u64; 6]) -> u64 {
    0
}

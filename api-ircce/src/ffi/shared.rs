//! Shared memory.

use std::ptr::{NonNull, null_mut};

use super::{functions, others, put_if_wanted};
use crate::environment::current;
use crate::status::Result;

others! {
    fn RCCE_shmalloc(size: usize) -> *mut u8, or null_mut(); {
        Ok(current()?.shmalloc(size).map_or(null_mut(), NonNull::as_ptr))
    }

    fn RCCE_shmalloc_request(size: usize, chunk: *mut usize) -> *mut u8, or null_mut(); {
        let found = current()?.shmalloc_request(size);
        let (memory, size) = found.map_or((null_mut(), 0), |(memory, size)| (memory.as_ptr(), size));
        // SAFETY:
        // - C contract: `chunk` is null or valid.
        unsafe { put_if_wanted(chunk, size) };
        Ok(memory)
    }

    fn RCCE_shmalloc_init(memory: *mut u8, size: usize) -> (), or (); {
        if let Some(memory) = NonNull::new(memory) {
            current()?.shmalloc_from(memory, size);
        }
        Ok(())
    }

    fn RCCE_shfree(address: *mut u8) -> (), or (); {
        current()?.shfree(address);
        Ok(())
    }

    fn RCCE_shflush() -> (), or (); {
        flush()
    }

    fn RC_cache_invalidate() -> (), or (); {
        flush()
    }
}

functions! {
    fn [Comm] RCCE_DCMflush() {
        flush()
    }
}

/// A flush counts as a poll. Programs flush in loops that wait for writes of other UEs to shared memory.
fn flush() -> Result<()> {
    let ue = current()?;
    ue.fence();
    ue.looked()
}

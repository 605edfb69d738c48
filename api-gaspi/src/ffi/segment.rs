//! §7: segments.

use super::{given, procedures, put};
use crate::environment::process;
use crate::status::Status;

procedures! {
    fn gaspi_segment_alloc | pgaspi_segment_alloc(id: u8, size: u64, _policy: u32) with process {
        process()?.segment_alloc(id, size)
    }

    fn gaspi_segment_register | pgaspi_segment_register(id: u8, rank: u16, timeout: u64) with process {
        process()?.segment_register(id, rank, timeout)
    }

    fn gaspi_segment_create | pgaspi_segment_create(
        id: u8, size: u64, group: u8, timeout: u64, _policy: u32,
    ) with process {
        process()?.segment_create(id, size, group, timeout)
    }

    fn gaspi_segment_bind | pgaspi_segment_bind(
        id: u8, pointer: *mut u8, size: u64, _description: i32,
    ) with process {
        // SAFETY:
        // - C contract: the program keeps the memory until it deletes the segment (§7.2.4).
        unsafe { process()?.segment_bind(id, pointer, size) }
    }

    fn gaspi_segment_use | pgaspi_segment_use(
        id: u8, pointer: *mut u8, size: u64, group: u8, timeout: u64, _description: i32,
    ) with process {
        // SAFETY:
        // - as for gaspi_segment_bind.
        unsafe { process()?.segment_use(id, pointer, size, group, timeout) }
    }

    fn gaspi_segment_delete | pgaspi_segment_delete(id: u8) with process {
        process()?.segment_delete(id)
    }

    fn gaspi_segment_num | pgaspi_segment_num(num: *mut u32) with process {
        // SAFETY:
        // - null or valid, by the C contract.
        unsafe { put(num, process()?.segment_num()) }
    }

    fn gaspi_segment_list | pgaspi_segment_list(num: u32, ids: *mut u8) with process {
        given(ids)?;
        let all = process()?.segment_list();
        if num as usize > all.len() {
            return Err(Status::ErrInvNum);
        }
        for (i, id) in all.into_iter().take(num as usize).enumerate() {
            // SAFETY:
            // - C contract: `ids` has room for `num` entries.
            unsafe { ids.add(i).write(id) };
        }
        Ok(())
    }

    fn gaspi_segment_ptr | pgaspi_segment_ptr(id: u8, pointer: *mut *mut u8) with process {
        // SAFETY:
        // - null or valid, by the C contract.
        unsafe { put(pointer, process()?.segment_ptr(id)?) }
    }

    fn gaspi_segment_size | pgaspi_segment_size(id: u8, rank: u16, size: *mut u64) with process {
        given(size)?;
        // SAFETY:
        // - not null, so valid by the C contract.
        unsafe { put(size, process()?.segment_size(id, rank)?) }
    }

    fn gaspi_segment_avail_local | pgaspi_segment_avail_local(id: *mut u8) with process {
        // SAFETY:
        // - null or valid, by the C contract.
        unsafe { put(id, process()?.segment_avail()?) }
    }
}

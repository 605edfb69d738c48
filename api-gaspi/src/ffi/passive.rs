//! §9: passive communication.

use super::{given, procedures};
use crate::environment::process;
use crate::passive::Bytes;

procedures! {
    fn gaspi_passive_send | pgaspi_passive_send(
        segment: u8, offset: u64, rank: u16, size: u64, timeout: u64,
    ) with process moves Sent(rank, size) {
        process()?.passive_send(Bytes { segment, offset, size }, rank, timeout)
    }

    fn gaspi_passive_receive | pgaspi_passive_receive(
        segment: u8, offset: u64, rank: *mut u16, size: u64, timeout: u64,
    ) with process {
        given(rank)?;
        let sender = process()?.passive_receive(Bytes { segment, offset, size }, timeout)?;
        // SAFETY:
        // - not null, so valid by the C contract.
        unsafe { rank.write(sender) };
        Ok(())
    }

    fn gaspi_passive_queue_purge | pgaspi_passive_queue_purge(_timeout: u64) with process {
        process()?.passive_queue_purge();
        Ok(())
    }
}

//! [`GaspiProcess`](unipgas::gaspi::GaspiProcess), which takes slices where C has pointers and numbers.

use unipgas::gaspi::ffi::{gaspi_proc_init, gaspi_proc_term};
use unipgas::gaspi::{
    Datatype, GROUP_ALL, ReductionOperation, Result, Status, current as gaspi_current,
};

/// Milliseconds that no test waits.
const LONG: u64 = 200_000;

pub fn refused() -> Result<()> {
    // SAFETY:
    // - takes a number.
    assert_eq!(unsafe { gaspi_proc_init(LONG) }, 0);
    let gaspi = gaspi_current()?;
    let cases = [
        (8, 7, 1, Status::ErrInvSize),
        (7, 8, 1, Status::ErrInvSize),
        (0, 0, 0, Status::ErrInvNum),
    ];
    for (sent, received, num, expected) in cases {
        let (send, mut receive) = (vec![0; sent], vec![0; received]);
        let (sum, datatype) = (ReductionOperation::Sum, Datatype::Ulong);
        let seen = gaspi.allreduce(&send, &mut receive, num, sum, datatype, GROUP_ALL, LONG);
        assert_eq!(seen, Err(expected), "{sent} and {received} bytes");
    }
    gaspi.barrier(GROUP_ALL, LONG)?;
    drop(gaspi);
    // SAFETY:
    // - takes a number; no thread uses the process.
    assert_eq!(unsafe { gaspi_proc_term(LONG) }, 0);
    Ok(())
}

//! Functions under `fjmpi/mpi-ext.h`: the places of MPI ranks in the network. Only the header uses MPI's types, so this file needs no MPI.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::slice;

use parking_lot::Once;

use crate::logical::Logical;
use crate::process::{UtofuProcess, current};

const INVALID_COMM: i32 = 1001;
const INVALID_RANK: i32 = 1003;
const INVALID_VIEW: i32 = 1004;
const INVALID_DIMS: i32 = 1005;
const INVALID_COORDS: i32 = 1006;
const INVALID_POINTER: i32 = 1007;

/// Views: kinds of coordinates.
const LOGICAL: i32 = 0;
const TOFU_SYS: i32 = 1;
const TOFU_REL: i32 = 2;

/// `FJMPI_SUCCESS`, or `FJMPI_ERR_TOPOLOGY_*`.
type Answer = Result<(), i32>;

fn answer(function: impl FnOnce() -> Answer) -> i32 {
    match catch_unwind(AssertUnwindSafe(function)) {
        Ok(Ok(())) => 0,
        Ok(Err(code)) => code,
        Err(_) => INVALID_COMM,
    }
}

/// The process, its logical coordinates and the number of ranks. Errors: [`INVALID_RANK`]; [`INVALID_COMM`] if the network
/// is not available, or its places are not the MPI ranks.
fn process(me: i32, size: i32) -> Result<(&'static UtofuProcess, Logical, u32), i32> {
    let process = current().map_err(|_| INVALID_COMM)?;
    let (me, size) = match (u32::try_from(me), u32::try_from(size)) {
        (Ok(me), Ok(size)) if me < size => (me, size),
        _ => return Err(INVALID_RANK),
    };
    let most = process.shape().nodes() * process.processes_per_node();
    if process.place() != me || size > most {
        static TOLD: Once = Once::new();
        TOLD.call_once(|| {
            eprintln!(
                "utofu: rank {me} of {size} of MPI_COMM_WORLD has place {} of {most} in the network: start the program by mpirun or srun",
                process.place()
            );
        });
        return Err(INVALID_COMM);
    }
    let nodes = size.div_ceil(process.processes_per_node());
    Ok((process, Logical::new(*process.shape(), nodes), size))
}

fn given<T>(place: *const T) -> Answer {
    if place.is_null() {
        Err(INVALID_POINTER)
    } else {
        Ok(())
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn unipgas_fjmpi_shape(
    me: i32,
    size: i32,
    dimension: *mut i32,
    shape: *mut i32,
) -> i32 {
    answer(|| {
        given(dimension)?;
        given(shape)?;
        let (_, logical, _) = process(me, size)?;
        let lengths = logical.lengths();
        let mut all = [0; 3];
        for (place, length) in all.iter_mut().zip(&lengths) {
            *place = *length as i32;
        }
        // SAFETY:
        // - not null, so valid by the C contract: one number, and three.
        unsafe {
            dimension.write(lengths.len() as i32);
            shape.cast::<[i32; 3]>().write(all);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn unipgas_fjmpi_coords(
    me: i32,
    size: i32,
    rank: i32,
    view: i32,
    maxdims: i32,
    coords: *mut i32,
) -> i32 {
    answer(|| {
        given(coords)?;
        let (process, logical, size) = process(me, size)?;
        let rank = u32::try_from(rank).map_err(|_| INVALID_RANK)?;
        if rank >= size {
            return Err(INVALID_RANK);
        }
        let node = rank / process.processes_per_node();
        let at = match view {
            LOGICAL => logical.coords(node),
            TOFU_SYS | TOFU_REL => process.shape().coords(node).map(u32::from).to_vec(),
            _ => return Err(INVALID_VIEW),
        };
        if usize::try_from(maxdims).map_err(|_| INVALID_DIMS)? < at.len() {
            return Err(INVALID_DIMS);
        }
        // SAFETY:
        // - not null, so `maxdims` numbers by the C contract.
        let places = unsafe { slice::from_raw_parts_mut(coords, at.len()) };
        for (place, at) in places.iter_mut().zip(at) {
            *place = at as i32;
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn unipgas_fjmpi_ranks(
    me: i32,
    size: i32,
    view: i32,
    coords: *const i32,
    first: *mut i32,
    number: *mut i32,
) -> i32 {
    answer(|| {
        given(coords)?;
        given(first)?;
        given(number)?;
        let (process, logical, size) = process(me, size)?;
        let dimensions = match view {
            LOGICAL => logical.lengths().len(),
            TOFU_SYS | TOFU_REL => 6,
            _ => return Err(INVALID_VIEW),
        };
        // SAFETY:
        // - not null, so `dimensions` numbers by the C contract.
        let at: Option<Vec<u32>> = unsafe { slice::from_raw_parts(coords, dimensions) }
            .iter()
            .map(|at| u32::try_from(*at).ok())
            .collect();
        let node = at.and_then(|at| match view {
            LOGICAL => logical.node(&at),
            _ => {
                let bytes: Option<Vec<u8>> = at.iter().map(|at| u8::try_from(*at).ok()).collect();
                process.shape().node(&bytes?.try_into().ok()?)
            }
        });
        let node = node.ok_or(INVALID_COORDS)?;
        let begin = (node * process.processes_per_node()).min(size);
        let end = (begin + process.processes_per_node()).min(size);
        // SAFETY:
        // - not null, so valid by the C contract.
        unsafe {
            first.write(begin as i32);
            number.write((end - begin) as i32);
        }
        Ok(())
    })
}

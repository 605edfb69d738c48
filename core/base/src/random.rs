//! Random bytes of the kernel.

use crate::{Error, Result};

/// Unpredictable bytes for secrets, ids and seeds. Errors: [`Error::Os`].
pub fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| Error::os("getrandom", error))?;
    Ok(bytes)
}

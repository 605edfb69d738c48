//! What is said first on a stream: only those are served who have the address of the process, and with it its secret.

use crate::{Error, Result};

/// Bytes of a secret.
pub const SECRET: usize = 16;
/// The most bytes of an address, and as many as it takes in a greeting, filled with zeros.
pub const ADDRESS: usize = 96;
/// What is spoken on streams, the requests of the agent included: it goes up with each change.
pub const VERSION: u8 = b'3';
const MAGIC: [u8; 8] = [b'u', b'n', b'i', b'p', b'g', b'a', b's', VERSION];
/// Bytes of a greeting.
pub const HELLO: usize = MAGIC.len() + SECRET + ADDRESS;

/// The address of a process, filled with zeros.
pub type Who = [u8; ADDRESS];

/// What is sent first to whoever has this secret, by who listens at `own` himself.
pub fn greeting(secret: &[u8; SECRET], own: &[u8]) -> [u8; HELLO] {
    let mut bytes = [0; HELLO];
    let parts = [&MAGIC[..], secret, own];
    for (byte, said) in bytes.iter_mut().zip(parts.into_iter().flatten()) {
        *byte = *said;
    }
    bytes
}

/// Where whoever sends this greeting listens; `None`: he does not know the secret.
pub fn greeted(said: &[u8; HELLO], secret: &[u8; SECRET]) -> Option<Who> {
    let (said, own) = said.split_last_chunk::<ADDRESS>()?;
    let right = greeting(secret, &[]);
    // In the same time, whatever is wrong.
    let wrong = said.iter().zip(&right).fold(0, |all, (a, b)| all | (a ^ b));
    (wrong == 0).then_some(*own)
}

/// The version that is spoken by whoever sends this greeting, if it is another one.
pub fn other_version(said: &[u8; HELLO]) -> Option<char> {
    let (version, name) = MAGIC.split_last()?;
    let theirs = said[name.len()];
    (said.starts_with(name) && theirs != *version).then_some(theirs.into())
}

/// An address as it stands in a greeting; something else where it is none.
pub fn padded(address: &[u8]) -> Who {
    let mut bytes = [0; ADDRESS];
    for (byte, said) in bytes.iter_mut().zip(address) {
        *byte = *said;
    }
    bytes
}

/// Bytes that nobody guesses: for secrets. Errors: [`Error::Os`].
pub fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| Error::os("getrandom", error))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_knows_the_secret_says_where_he_listens() {
        let own = [7; ADDRESS - 1];
        let mut said = greeting(&[3; SECRET], &own);
        assert_eq!(greeted(&said, &[3; SECRET]), Some(padded(&own)));
        assert_eq!(greeted(&said, &[4; SECRET]), None);
        for at in 0..HELLO - ADDRESS {
            said[at] ^= 1;
            assert_eq!(greeted(&said, &[3; SECRET]), None, "{at}");
            let other = (at == MAGIC.len() - 1).then_some(char::from(VERSION ^ 1));
            assert_eq!(other_version(&said), other, "{at}");
            said[at] ^= 1;
        }
    }
}

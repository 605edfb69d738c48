//! Registered memory: its registration with the provider, and its description for peers.

use std::sync::Arc;

use unipgas_core::region::RemoteRegion;
use unipgas_core::streams::OwnPart;
use unipgas_core::{Error, Result, Rights};

use crate::fabric::RemoteLocation;
use crate::names;
use crate::net::{OfiNet, key};
use crate::word::{self, Numbered};

/// Registers memory with the provider. Errors: [`Error::Exhausted`], [`Error::Unreachable`], [`Error::Os`].
///
/// # Safety
/// `len` bytes at `base` are valid until the returned part is dropped.
pub unsafe fn register(
    net: &Arc<OfiNet>,
    base: *mut u8,
    len: usize,
    rights: Rights,
) -> Result<OwnPart> {
    let traits = &net.fabric.traits;
    let remote = rights.intersects(Rights::READ | Rights::WRITE);
    if !remote && !traits.local {
        return Ok(OwnPart::default());
    }
    // A random key, which other processes cannot guess.
    let wanted = if traits.own_keys {
        0
    } else {
        key()? >> (64 - traits.key_bits)
    };
    // SAFETY:
    // - contract of this function.
    let registration = unsafe { net.fabric.register(base, len, rights, wanted) }?;
    let begin = match traits.addresses {
        true => base.expose_provenance() as u64,
        false => 0,
    };
    let mut told = registration.key().to_le_bytes().to_vec();
    told.extend(begin.to_le_bytes());
    told.extend(net.landing.told());
    let notified = rights.contains(Rights::WRITE) && traits.data >= size_of::<u64>();
    let numbered = match notified {
        // SAFETY:
        // - contract of this function.
        true => unsafe { net.words.number(base, len) },
        false => None,
    };
    let operand = match traits.local {
        true => {
            let entered =
                net.operands
                    .enter(base, len, registration.desc().expose_provenance() as u64);
            Some(entered.ok_or_else(|| Error::Exhausted("registrations".into()))?)
        }
        false => None,
    };
    let first = numbered.as_ref().map_or(word::NONE, Numbered::first);
    told.extend(first.to_le_bytes());
    Ok(OwnPart {
        told,
        desc: operand.as_ref().map_or(0, |operand| operand.name),
        // In this order: the operand ends before its registration, and the domain closes last.
        keeps: Some(Box::new((operand, numbered, registration, net.clone()))),
    })
}

/// Reads the owner's bytes about a region: key, begin, and the owner's tag with the number of the first word. Notes the owner's landing. Errors:
/// [`Error::StaleRegion`].
pub fn imported(net: &OfiNet, told: &[u8], tag: u32) -> Result<[u64; 3]> {
    if told.is_empty() {
        // The provider does not access this region.
        return Ok([0, 0, tag.into()]);
    }
    let ([key, begin, landing_key, address], first) = said(told)?;
    let landing = RemoteLocation {
        peer: names::number(tag),
        address,
        key: landing_key,
    };
    net.landings.write().insert(tag, landing);
    Ok([key, begin, u64::from(first) << 32 | u64::from(tag)])
}

/// Parses the owner's bytes: key and begin of the region, key and address of the landing, number of the first word. Errors: [`Error::StaleRegion`].
pub(crate) fn said(told: &[u8]) -> Result<([u64; 4], u32)> {
    let words: &[u8; 36] = told.try_into().map_err(|_| Error::StaleRegion)?;
    let word = |nth: usize| u64::from_le_bytes(std::array::from_fn(|at| words[8 * nth + at]));
    let first = u32::from_le_bytes(std::array::from_fn(|nth| words[32 + nth]));
    Ok((std::array::from_fn(word), first))
}

/// The owner's number of the first word, or [`word::NONE`].
pub fn first_word(region: &RemoteRegion) -> u32 {
    (region.parts().detail[3] >> 32) as u32
}

/// The tag of the owner.
pub fn owner(region: &RemoteRegion) -> u32 {
    region.parts().detail[3] as u32
}

/// The provider's address of `offset` in a peer's region.
pub fn far(region: &RemoteRegion, offset: usize) -> RemoteLocation {
    let [_, key, begin, _] = region.parts().detail;
    RemoteLocation {
        peer: names::number(owner(region)),
        address: begin.wrapping_add(offset as u64),
        key,
    }
}

//! One-sided communication: the arguments of an operation, and the rules for them.

use std::ffi::c_ulong;

use unipgas_utofu_sys::*;

use crate::config::Config;
use crate::flight::{Descriptor, DescriptorKind};
use crate::library::{Double, UtofuResult};
use crate::rules::broken;
use crate::vcqs::address;

/// Longest piggyback, in bytes.
const PIGGYBACK: usize = 32;
const MAX_MTU: usize = 1920;
const MAX_GAP: usize = 255;
const MAX_EDATA: u64 = 0xff;

const FLAGS: c_ulong = UTOFU_ONESIDED_FLAG_STRONG_ORDER
    | UTOFU_ONESIDED_FLAG_PACKET_RESPONSE
    | UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE
    | UTOFU_ONESIDED_FLAG_PADDING
    | UTOFU_ONESIDED_FLAG_CACHE_INJECTION
    | UTOFU_ONESIDED_FLAG_DELAY_START
    | UTOFU_ONESIDED_FLAG_TCQ_NOTICE
    | UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE
    | UTOFU_ONESIDED_SPS_MASK
    | UTOFU_ONESIDED_PATH_MASK;

/// Arguments of a start or preparation function.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OperationArguments {
    pub kind: DescriptorKind,
    pub vcq_id: utofu_vcq_id_t,
    pub local: utofu_stadd_t,
    pub remote: utofu_stadd_t,
    pub length: usize,
    pub edata: u64,
    pub flags: c_ulong,
    /// Longest piggyback, or bytes of a word of ARMW.
    pub most: usize,
    /// Distance of the blocks in bytes, and their number.
    pub blocks: Option<(usize, usize)>,
    /// MTU and gap.
    pub packets: Option<(usize, usize)>,
}

impl OperationArguments {
    pub const NONE: OperationArguments = OperationArguments {
        kind: DescriptorKind::Nop,
        vcq_id: 0,
        local: 0,
        remote: 0,
        length: 0,
        edata: 0,
        flags: 0,
        most: PIGGYBACK,
        blocks: None,
        packets: None,
    };

    pub fn number(&self) -> usize {
        self.blocks.map_or(1, |(_, number)| number)
    }

    /// Errors: the codes of arguments (guide §3.1.2.1).
    pub fn check(&self, config: &Config, call: &str, session: bool) -> UtofuResult {
        let padded = self.flags & UTOFU_ONESIDED_FLAG_PADDING != 0;
        if self.flags & !FLAGS != 0 || padded && self.kind != DescriptorKind::Piggyback {
            return Err(UTOFU_ERR_INVALID_FLAGS);
        }
        let longest = match self.kind {
            DescriptorKind::Piggyback => self.most,
            _ => config.putget,
        };
        if self.length > longest {
            return Err(UTOFU_ERR_INVALID_SIZE);
        }
        if self.edata > MAX_EDATA {
            return Err(UTOFU_ERR_INVALID_EDATA);
        }
        if let Some((mtu, gap)) = self.packets {
            if mtu == 0 || mtu > MAX_MTU {
                return Err(UTOFU_ERR_INVALID_SIZE);
            }
            if gap > MAX_GAP {
                return Err(UTOFU_ERR_INVALID_ARG);
            }
        }
        if self.kind == DescriptorKind::Armw && !config.armw {
            return Err(UTOFU_ERR_NOT_SUPPORTED);
        }
        if let Some((stride, number)) = self.blocks {
            if number == 0 || number > config.toq {
                return Err(UTOFU_ERR_INVALID_NUMBER);
            }
            let ordered = self.flags & UTOFU_ONESIDED_FLAG_STRONG_ORDER != 0;
            if number > 1 && stride < self.length && !ordered {
                broken(
                    call,
                    format_args!(
                        "blocks of {} bytes, {stride} bytes apart, are written over each other in no order",
                        self.length
                    ),
                );
            }
        }
        self.check_mode(call, session);
        Ok(())
    }

    /// Checks the rules of session mode (guide §2.2.8.1).
    fn check_mode(&self, call: &str, session: bool) {
        if sps_of(self.flags) != 0 && self.kind != DescriptorKind::Put {
            broken(
                call,
                "only a put that is no piggyback can have a session progress step",
            );
        }
        if session && !matches!(self.kind, DescriptorKind::Put | DescriptorKind::Nop) {
            broken(call, "a VCQ of session mode takes put and NOP alone");
        }
    }

    /// Checks the alignment of an ARMW word of this process.
    pub fn check_word(&self, double: &Double, call: &str) {
        if self.kind == DescriptorKind::Armw
            && let Some(address) = address(double, self.vcq_id, self.remote)
            && !address.is_multiple_of(self.most)
        {
            broken(
                call,
                format_args!(
                    "the word at {address:#x} is not aligned to {} bytes",
                    self.most
                ),
            );
        }
    }

    /// The descriptors of the operation.
    pub fn parts(&self, double: &Double) -> Vec<Descriptor> {
        let stride = self.blocks.map_or(0, |(stride, _)| stride as u64);
        let peer = match self.kind {
            DescriptorKind::Nop => 0,
            _ => double.plain(self.vcq_id),
        };
        let part = |block: u64| Descriptor {
            kind: self.kind,
            remote_id: self.vcq_id,
            peer,
            flags: self.flags,
            edata: self.edata,
            local: self.local.wrapping_add(block * stride),
            remote: self.remote.wrapping_add(block * stride),
            length: self.length,
        };
        (0..self.number() as u64).map(part).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(settings: &str, operation: OperationArguments) -> UtofuResult {
        operation.check(&Config::parse(settings).unwrap(), "test", false)
    }

    fn of(kind: DescriptorKind, length: usize) -> OperationArguments {
        OperationArguments {
            kind,
            length,
            ..OperationArguments::NONE
        }
    }

    /// The double checks the limits itself, before the library.
    #[test]
    fn limits_are_looked_at_here() {
        use DescriptorKind::{Armw, Get, Piggyback, Put};
        let size = Err(UTOFU_ERR_INVALID_SIZE);
        let number = Err(UTOFU_ERR_INVALID_NUMBER);
        let with = |kind, change: fn(&mut OperationArguments)| {
            let mut operation = of(kind, 8);
            change(&mut operation);
            operation
        };
        for (settings, operation, expected) in [
            ("", of(Put, (1 << 24) - 1), Ok(())),
            ("", of(Put, 1 << 24), size),
            ("", of(Get, (1 << 24) - 1), Ok(())),
            ("", of(Get, 1 << 24), size),
            ("", of(Piggyback, 32), Ok(())),
            ("", of(Piggyback, 33), size),
            ("", with(Piggyback, |of| of.most = 8), Ok(())),
            ("", with(Piggyback, |of| of.most = 7), size),
            ("", with(Put, |of| of.edata = 255), Ok(())),
            (
                "",
                with(Put, |of| of.edata = 256),
                Err(UTOFU_ERR_INVALID_EDATA),
            ),
            (
                "",
                with(Piggyback, |of| of.flags = UTOFU_ONESIDED_FLAG_PADDING),
                Ok(()),
            ),
            ("", with(Get, |of| of.packets = Some((1, 0))), Ok(())),
            ("", with(Get, |of| of.packets = Some((1920, 255))), Ok(())),
            ("", with(Get, |of| of.packets = Some((0, 0))), size),
            ("", with(Get, |of| of.packets = Some((1921, 0))), size),
            (
                "",
                with(Get, |of| of.packets = Some((1920, 256))),
                Err(UTOFU_ERR_INVALID_ARG),
            ),
            ("", with(Put, |of| of.blocks = Some((8, 0))), number),
            ("", with(Put, |of| of.blocks = Some((8, 4096))), Ok(())),
            ("", with(Put, |of| of.blocks = Some((8, 4097))), number),
            ("toq=2", with(Put, |of| of.blocks = Some((8, 3))), number),
            ("", of(Armw, 0), Ok(())),
            ("armw=0", of(Armw, 0), Err(UTOFU_ERR_NOT_SUPPORTED)),
        ] {
            assert_eq!(
                answer(settings, operation),
                expected,
                "{settings} {operation:?}"
            );
        }
        for bit in 0..c_ulong::BITS {
            let mut put = of(Put, 8);
            put.flags = 1 << bit;
            let expected = match bit {
                0..=2 | 5 | 8 | 14 | 15 | 24..=35 => Ok(()),
                _ => Err(UTOFU_ERR_INVALID_FLAGS),
            };
            assert_eq!(answer("", put), expected, "bit {bit}");
        }
    }
}

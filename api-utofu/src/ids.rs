//! VCQ ids and VBG ids (64 bits) and path ids (8 bits) of guide §3.1.1.
//!
//! - VCQ id: bits 0-2 component, 3-6 CQ, 7-9 TNI, 10-17 Z, 18-25 Y, 26-33 X, 34 C, 35-36 B, 37 A. The default path has bits 40 C, 41-42 B, 43 A.
//!   Bits 60-63 are 0101, the others are 0.
//! - VBG id: bits 0-5 BG, 32-39 X, 40-47 Y, 48-55 Z, 56 A, 57-58 B, 59 C, 61-63 TNI, the others are 0. This is the layout of the machines of the guide:
//!   programs take VBG ids apart and build others.

use crate::caps::{CMP_IDS, CQS, TNIS, VBGS};
use crate::shape::Coords;

const VCQ: u64 = 0b0101 << 60;
const VBG: u64 = 0b111 << 61 | 0x0fff_ffff << 32 | 0x3f;
const PATH: u64 = 0b1111 << 40;
const WHERE: u64 = (1 << 38) - 1;

#[inline(always)]
const fn unit_bits(unit: [u8; 3]) -> u64 {
    (unit[2] as u64) | (unit[1] as u64) << 1 | (unit[0] as u64) << 3
}

#[inline(always)]
const fn bits_unit(bits: u64) -> [u8; 3] {
    [
        (bits >> 3 & 1) as u8,
        (bits >> 1 & 3) as u8,
        (bits & 1) as u8,
    ]
}

#[inline(always)]
const fn place(coords: &Coords) -> u64 {
    (coords[2] as u64) << 10
        | (coords[1] as u64) << 18
        | (coords[0] as u64) << 26
        | unit_bits([coords[3], coords[4], coords[5]]) << 34
}

#[inline(always)]
const fn coords(id: u64) -> Coords {
    let unit = bits_unit(id >> 34);
    [
        (id >> 26) as u8,
        (id >> 18) as u8,
        (id >> 10) as u8,
        unit[0],
        unit[1],
        unit[2],
    ]
}

/// `utofu_vcq_id_t` of a VCQ that could exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct VcqId(u64);

impl VcqId {
    /// The VCQ of component `cmp` on CQ `cq` of TNI `tni` of the node at `at`. All of them are in range. The default path is the node's own A, B, C.
    #[inline]
    pub fn new(at: &Coords, tni: u16, cq: u16, cmp: u16) -> Self {
        let path = unit_bits([at[3], at[4], at[5]]);
        VcqId(
            VCQ | path << 40
                | place(at)
                | u64::from(tni) << 7
                | u64::from(cq) << 3
                | u64::from(cmp),
        )
    }

    /// `None`: the number is not a VCQ id.
    #[inline(always)]
    pub fn from_bits(bits: u64) -> Option<Self> {
        let id = VcqId(bits);
        (bits & !(WHERE | PATH) == VCQ && id.tni() < TNIS && id.cq() < CQS).then_some(id)
    }

    /// The number.
    #[inline(always)]
    pub fn bits(self) -> u64 {
        self.0
    }

    /// The bits that identify the VCQ. Ids of one VCQ with different paths have the same identity.
    #[inline(always)]
    pub fn identity(self) -> u64 {
        self.0 & WHERE
    }

    /// The number with the node's own A, B, C as path. Notices have this form (guide §3.7.6.1).
    #[inline(always)]
    pub fn plain(self) -> u64 {
        self.0 & !PATH | (self.0 >> 34 & 0b1111) << 40
    }

    /// Coordinates of the node.
    #[inline(always)]
    pub fn coords(self) -> Coords {
        coords(self.0)
    }

    /// TNI.
    #[inline(always)]
    pub fn tni(self) -> u16 {
        (self.0 >> 7 & 7) as u16
    }

    /// CQ.
    #[inline(always)]
    pub fn cq(self) -> u16 {
        (self.0 >> 3 & 15) as u16
    }

    /// Component.
    #[inline(always)]
    pub fn cmp(self) -> u16 {
        (self.0 & 7) as u16
    }

    /// The index among the ports of its process.
    #[inline(always)]
    pub fn port(self) -> u16 {
        (self.0 & 0x3ff) as u16
    }

    /// Default path.
    pub fn path(self) -> [u8; 3] {
        bits_unit(self.0 >> 40)
    }

    /// The same VCQ with another default path.
    pub fn with_path(self, path: [u8; 3]) -> Self {
        VcqId(self.0 & !PATH | unit_bits(path) << 40)
    }
}

/// `utofu_vbg_id_t` of a VBG that could exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct VbgId(u64);

impl VbgId {
    /// BG `bg` of TNI `tni` of the node at `at`. All of them are in range.
    pub fn new(at: &Coords, tni: u16, bg: u16) -> Self {
        let [x, y, z, a, b, c] = at.map(u64::from);
        let place = x | y << 8 | z << 16 | a << 24 | b << 25 | c << 27;
        VbgId(u64::from(tni) << 61 | place << 32 | u64::from(bg))
    }

    /// `None`: the number is not a VBG id.
    #[inline(always)]
    pub fn from_bits(bits: u64) -> Option<Self> {
        let id = VbgId(bits);
        (bits & !VBG == 0 && id.tni() < TNIS && id.bg() < VBGS).then_some(id)
    }

    /// The number.
    #[inline(always)]
    pub fn bits(self) -> u64 {
        self.0
    }

    /// Coordinates of the node.
    #[inline(always)]
    pub fn coords(self) -> Coords {
        let place = self.0 >> 32;
        [
            place as u8,
            (place >> 8) as u8,
            (place >> 16) as u8,
            (place >> 24 & 1) as u8,
            (place >> 25 & 3) as u8,
            (place >> 27 & 1) as u8,
        ]
    }

    /// TNI.
    #[inline(always)]
    pub fn tni(self) -> u16 {
        (self.0 >> 61) as u16
    }

    /// BG.
    #[inline(always)]
    pub fn bg(self) -> u16 {
        (self.0 & 63) as u16
    }
}

/// The id of a path through these coordinates. It is never 0, which means "no path given" in flags.
pub fn path_id(path: [u8; 3]) -> u8 {
    1 + (path[0] * 3 + path[1]) * 2 + path[2]
}

/// The coordinates of a path. `None`: the number is not a path id.
pub fn path_coords(id: u8) -> Option<[u8; 3]> {
    let index = id.checked_sub(1).filter(|index| *index < 12)?;
    Some([index / 6, index / 2 % 3, index % 2])
}

const _: () = assert!(
    // No number is both a VCQ id and a VBG id.
    VCQ & !VBG != 0
        && CMP_IDS == 8
        && (TNIS as usize - 1) << 7 | (CQS as usize - 1) << 3 | 7 < unipgas_core::port::PORTS
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_say_where_they_are() {
        let at = [255, 254, 3, 1, 2, 1];
        for (tni, cq, cmp) in [(0, 0, 0), (5, 8, 7), (3, 4, 5)] {
            let id = VcqId::new(&at, tni, cq, cmp);
            assert_eq!(VcqId::from_bits(id.bits()), Some(id));
            assert_eq!(
                (id.coords(), id.tni(), id.cq(), id.cmp()),
                (at, tni, cq, cmp)
            );
            assert_eq!(id.path(), [1, 2, 1]);
            let other = id.with_path([0, 1, 0]);
            assert_eq!(other.path(), [0, 1, 0]);
            assert_ne!(other, id);
            assert_eq!(
                (other.identity(), other.plain()),
                (id.identity(), id.bits())
            );
            assert_eq!(VbgId::from_bits(id.bits()), None);
        }
        let id = VbgId::new(&at, 5, 47);
        assert_eq!(VbgId::from_bits(id.bits()), Some(id));
        assert_eq!((id.coords(), id.tni(), id.bg()), (at, 5, 47));
        assert_eq!(VcqId::from_bits(id.bits()), None);
        assert_eq!(id.bits(), 5 << 61 | 0xd03_feff << 32 | 47);
        assert_eq!(VbgId::new(&[0; 6], 0, 0).bits(), 0);
        for wrong in [48, 6 << 61, 1 << 6, 1 << 31, 1 << 60, u64::MAX] {
            assert_eq!(VbgId::from_bits(wrong), None, "{wrong:x}");
        }
        for wrong in [0, u64::MAX, 1, VCQ | 6 << 7, VCQ | 9 << 3, VCQ | 1 << 50] {
            assert_eq!(VcqId::from_bits(wrong), None, "{wrong:x}");
        }
    }

    #[test]
    fn twelve_paths_have_ids() {
        let mut seen = Vec::new();
        for a in 0..2 {
            for b in 0..3 {
                for c in 0..2 {
                    let id = path_id([a, b, c]);
                    assert_eq!(path_coords(id), Some([a, b, c]));
                    seen.push(id);
                }
            }
        }
        assert_eq!(seen, (1..=12).collect::<Vec<_>>());
        assert_eq!((path_coords(0), path_coords(13)), (None, None));
    }
}

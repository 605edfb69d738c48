//! What becomes of bytes that make sense, drawn from a seed.

/// The longest that is made.
const LONGEST: usize = 16 << 10;
/// The most changes at once.
const CHANGES: u64 = 6;
/// Numbers at which arithmetic goes wrong.
const NUMBERS: [u64; 14] = [
    0,
    1,
    2,
    7,
    0x7f,
    0xff,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
    1 << 32,
    0x7fff_ffff_ffff_ffff,
    u64::MAX - 7,
    u64::MAX,
];

/// Numbers drawn from a seed (splitmix64).
pub(crate) struct FuzzRandom(u64);

impl FuzzRandom {
    /// Those of a name.
    pub fn of(name: &str) -> Self {
        let step = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        FuzzRandom(name.bytes().fold(0xcbf2_9ce4_8422_2325, step))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// One of those below `end`; 0 where there is none.
    fn below(&mut self, end: usize) -> usize {
        match end {
            0 => 0,
            end => (self.next() % end as u64) as usize,
        }
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

/// One of the seeds with a few changes, or bytes of no sense at all.
pub fn mutated(seeds: &[Vec<u8>], random: &mut FuzzRandom) -> Vec<u8> {
    if random.below(32) == 0 {
        let len = random.below(512);
        return random.bytes(len);
    }
    let mut bytes = seeds[random.below(seeds.len())].clone();
    for _ in 0..=random.next() % CHANGES {
        change(&mut bytes, seeds, random);
    }
    bytes.truncate(LONGEST);
    bytes
}

fn change(bytes: &mut Vec<u8>, seeds: &[Vec<u8>], random: &mut FuzzRandom) {
    let len = bytes.len();
    let at = random.below(len);
    match random.below(9) {
        0 if len > 0 => bytes[at] ^= 1 << random.below(8),
        1 if len > 0 => bytes[at] = random.next() as u8,
        2 | 3 => overwrite(bytes, at, random),
        4 => bytes.truncate(at),
        5 => {
            let more = random.below(16);
            let new = random.bytes(more);
            bytes.splice(at..at, new);
        }
        // Parts go, come twice, or come from another one.
        6 => {
            let end = at + random.below((len - at).min(64) + 1);
            bytes.drain(at..end);
        }
        7 => {
            let end = at + random.below(len - at + 1);
            let again = bytes[at..end].to_vec();
            bytes.extend(again);
        }
        _ => {
            let other = &seeds[random.below(seeds.len())];
            let from = random.below(other.len());
            bytes.truncate(at);
            bytes.extend(&other[from..]);
        }
    }
}

/// A number in the place of one of 1, 2, 4 or 8 bytes, aligned mostly.
fn overwrite(bytes: &mut [u8], at: usize, random: &mut FuzzRandom) {
    let size = 1 << random.below(4);
    let at = match random.below(4) {
        0 => at,
        _ => at / size * size,
    };
    let number = NUMBERS[random.below(NUMBERS.len())];
    let number = match random.below(4) {
        0 => number.wrapping_add(random.next() % 9).wrapping_sub(4),
        _ => number,
    };
    for (place, byte) in bytes.iter_mut().skip(at).zip(&number.to_le_bytes()[..size]) {
        *place = *byte;
    }
}

//! A small seeded source of randomness, and mutations that know what hurts a parser.

/// xorshift64*.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 8
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }

    pub(crate) fn bytes(&mut self, at_most: u64) -> Vec<u8> {
        (0..self.below(at_most + 1))
            .map(|_| self.next() as u8)
            .collect()
    }

    /// One to four changes: bytes, huge lengths, cuts, insertions, repetitions.
    pub(crate) fn mutated(&mut self, original: &[u8]) -> Vec<u8> {
        const LENGTHS: [&[u8]; 9] = [
            &[0x7f, 0xff, 0xff, 0xff],
            &[0xff, 0xff, 0xff, 0xff],
            &[0x80, 0, 0, 0],
            &[0, 0xff, 0xff, 0xff],
            &[0xff, 0xff, 0xff, 0xff, 0x0f],
            &[0xff, 0xff, 0xff, 0xff, 0x7f],
            &[0x80, 0x80, 0x80, 0x80, 0x80, 1],
            &[0x7f, 0xff],
            &[0xff, 0xfe],
        ];
        let mut bytes = original.to_vec();
        for _ in 0..1 + self.below(4) {
            let at = self.below(bytes.len() as u64 + 1) as usize;
            match self.below(6) {
                0 if at < bytes.len() => bytes[at] = self.next() as u8,
                1 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
                2 => {
                    let length = *self.pick(&LENGTHS);
                    let end = (at + length.len()).min(bytes.len());
                    bytes.splice(at..end, length.iter().copied());
                }
                3 => bytes.truncate(at),
                4 => {
                    let insert = self.bytes(8);
                    bytes.splice(at..at, insert);
                }
                _ => {
                    let repeated = bytes[at..].to_vec();
                    bytes.extend(repeated);
                    bytes.truncate(1 << 16);
                }
            }
        }
        bytes
    }
}

//! A seeded generator (splitmix64): the only source of chance in the simulated host.
//!
//! It must not know what its numbers decide.

/// A deterministic stream of numbers.
#[derive(Clone, Debug)]
pub(super) struct Random {
    state: u64,
}

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    pub(super) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number from 0 to `most`, both included.
    pub(super) fn up_to(&mut self, most: u64) -> u64 {
        let number = self.next();
        most.checked_add(1).map_or(number, |range| number % range)
    }

    /// Whether something that happens `per_mille` times in a thousand happens now. Draws nothing for 0, so that a
    /// fault that is switched off does not disturb the others.
    pub(super) fn happens(&mut self, per_mille: u32) -> bool {
        per_mille > 0 && self.up_to(999) < u64::from(per_mille)
    }
}

//! The simulator's dice.

/// A small generator (SplitMix64): every seed starts a run of its own.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Less than `bound`; zero if that is zero.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 {
            return 0;
        }
        // The high half of a product: no division, a bias of at most 2⁻⁶⁴ per value.
        let product = u128::from(self.next()) * u128::from(bound);
        u64::try_from(product >> 64).unwrap_or_default()
    }

    /// True in `share` of all throws.
    pub(super) fn hits(&mut self, share: f64) -> bool {
        // 53 bits are what an f64 holds.
        0.0 < share && ((self.next() >> 11) as f64) < share * (1_u64 << 53) as f64
    }
}

/// Spreads the bits of `value`; no two values meet.
pub(super) fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

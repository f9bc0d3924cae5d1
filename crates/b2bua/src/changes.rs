//! What has to be stored elsewhere before messages may leave.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use failover::Slot;
use failover::replica::Key;

/// The records that changed and were not reported yet.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Whether anybody wants to know.
    is_on: bool,
    pending: BTreeMap<Key, (Slot, bool)>,
}

impl Changes {
    pub(crate) fn new(is_on: bool) -> Self {
        Self { is_on, pending: BTreeMap::new() }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Notes that a record is another one now, or gone.
    pub(crate) fn note(&mut self, slot: Slot, key: Key, barrier: bool) {
        if self.is_on {
            self.pending.entry(key).or_insert((slot, false)).1 |= barrier;
        }
    }

    pub(crate) fn pop(&mut self) -> Option<(Key, Slot, bool)> {
        self.pending.pop_first().map(|(key, (slot, barrier))| (key, slot, barrier))
    }

    /// Drops what is not to be reported any more.
    pub(crate) fn retain(&mut self, keep: impl Fn(Slot) -> bool) {
        self.pending.retain(|_, (slot, _)| keep(*slot));
    }
}

/// Returns a hash by which a record is known to be the same as before, in this process.
///
/// It is taken after everything that happens to a call, so it is a quick one. One field that differs
/// always shows; who could make several differ so that they do not, would hurt his own call alone.
pub(crate) fn fingerprint(value: &impl Hash) -> u64 {
    let mut hasher = Folded(0);
    value.hash(&mut hasher);
    hasher.finish()
}

/// Takes in up to 32 bytes at a time.
struct Folded(u64);

impl Folded {
    /// The golden ratio, made odd: each step can be undone, so that nothing is lost.
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    /// Four more of no shape, odd too.
    const FACTORS: [u64; 4] = [
        0xff51_afd7_ed55_8ccd,
        0xc4ce_b9fe_1a85_ec53,
        0xbf58_476d_1ce4_e5b9,
        0x94d0_49bb_1331_11eb,
    ];
}

impl Hasher for Folded {
    fn write(&mut self, bytes: &[u8]) {
        let word = |word: &[u8]| u64::from_le_bytes(word.try_into().expect("a chunk of eight"));
        let mut fours = bytes.chunks_exact(32);
        for four in &mut fours {
            // Odd factors, so that each word counts; and none has to wait for another.
            let products = four.chunks_exact(8).zip(Self::FACTORS);
            let sum = products.fold(0, |sum: u64, (one, factor)| {
                sum.wrapping_add(word(one).wrapping_mul(factor))
            });
            self.write_u64(sum);
        }
        let mut words = fours.remainder().chunks_exact(8);
        for one in &mut words {
            self.write_u64(word(one));
        }
        let mut last = [0; 8];
        last[..words.remainder().len()].copy_from_slice(words.remainder());
        self.write_u64(u64::from_le_bytes(last));
    }

    fn write_u8(&mut self, value: u8) {
        self.write_u64(u64::from(value));
    }

    fn write_u16(&mut self, value: u16) {
        self.write_u64(u64::from(value));
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(29) ^ value).wrapping_mul(Self::FACTOR);
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn one_byte_that_differs_always_shows(
            mut bytes in proptest::collection::vec(any::<u8>(), 1..200), at: usize, by in 1..=u8::MAX,
        ) {
            let before = fingerprint(&(1_u8, &bytes, 7_u64));
            let at = at % bytes.len();
            bytes[at] ^= by;
            prop_assert_ne!(fingerprint(&(1_u8, &bytes, 7_u64)), before);
        }
    }
}

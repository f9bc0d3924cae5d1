//! What has to be stored elsewhere before messages may leave.

use std::hash::{Hash, Hasher};

use failover::Slot;
use failover::replica::Key;

/// The records that changed and were not reported yet.
///
/// They are one or two after most messages, and thousands after the death of a mediagate: a list, which is
/// put in order when the first is asked for.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Whether anybody wants to know.
    is_on: bool,
    /// The last comes first once they are in order.
    pending: Vec<Changed>,
    is_ordered: bool,
}

/// A record that changed, and whether anything must wait until that is known elsewhere.
#[derive(Debug)]
struct Changed {
    key: Key,
    slot: Slot,
    barrier: bool,
}

impl Changes {
    pub(crate) fn new(is_on: bool) -> Self {
        Self { is_on, pending: Vec::new(), is_ordered: true }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Notes that a record is another one now, or gone.
    pub(crate) fn note(&mut self, slot: Slot, key: Key, barrier: bool) {
        if self.is_on {
            self.is_ordered = self.pending.is_empty();
            self.pending.push(Changed { key, slot, barrier });
        }
    }

    /// Returns the next record in the order of their names, each once.
    pub(crate) fn pop(&mut self) -> Option<(Key, Slot, bool)> {
        if !self.is_ordered {
            self.is_ordered = true;
            self.pending.sort_by(|one, other| other.key.cmp(&one.key));
            self.pending.dedup_by(|again, one| {
                let is_same = again.key == one.key;
                one.barrier |= is_same && again.barrier;
                is_same
            });
        }
        self.pending.pop().map(|changed| (changed.key, changed.slot, changed.barrier))
    }

    /// Drops what is not to be reported any more.
    pub(crate) fn retain(&mut self, keep: impl Fn(Slot) -> bool) {
        self.pending.retain(|changed| keep(changed.slot));
    }
}

/// What is known of a record as it was reported last. A fingerprint costs about as much as the report that
/// it saves: it is not taken of what is likely to be followed by a barrier before it is compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Reported {
    /// With a barrier, or not at all: the next change is news.
    #[default]
    News,
    /// Once since.
    Once,
    /// More often: this was its fingerprint.
    As(u64),
}

impl Reported {
    /// Returns what is known after the next report, which is none when it is the same.
    pub(crate) fn next(self, record: &impl Hash) -> Self {
        match self {
            Self::News => Self::Once,
            Self::Once | Self::As(_) => Self::As(fingerprint(record)),
        }
    }
}

/// Returns a hash by which a record is known to be the same as before, in this process.
///
/// It is taken after everything that happens to a call, so it is a quick one. One field that differs
/// always shows; who could make several differ so that they do not, would hurt his own call alone.
fn fingerprint(value: &impl Hash) -> u64 {
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

    #[test]
    fn a_record_that_changed_twice_is_reported_once_and_the_lowest_name_first() {
        let key = |call| Key::Call(failover::CallId(call));
        let mut changes = Changes::new(true);
        for (call, barrier) in [(3, false), (1, false), (3, true), (2, false), (3, false)] {
            changes.note(Slot(7), key(call), barrier);
        }

        let reported: Vec<_> = std::iter::from_fn(|| changes.pop()).collect();

        let expected = [(1, false), (2, false), (3, true)];
        assert_eq!(reported, expected.map(|(call, barrier)| (key(call), Slot(7), barrier)));
    }

    #[test]
    fn what_changes_between_two_reports_is_put_in_its_place() {
        let key = |call| Key::Call(failover::CallId(call));
        let mut changes = Changes::new(true);
        [4, 2].into_iter().for_each(|call| changes.note(Slot(7), key(call), false));
        assert_eq!(changes.pop(), Some((key(2), Slot(7), false)));

        [1, 4].into_iter().for_each(|call| changes.note(Slot(7), key(call), true));

        let rest: Vec<_> = std::iter::from_fn(|| changes.pop()).collect();
        assert_eq!(rest, [(key(1), Slot(7), true), (key(4), Slot(7), true)]);
    }

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

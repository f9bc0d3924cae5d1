use serde::{Deserialize, Serialize};

use super::Slot;

/// Any of the 256 slots: how slots are named together, in 32 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SlotSet([u64; 4]);

impl SlotSet {
    /// No slot.
    pub const EMPTY: Self = Self([0; 4]);

    /// Every slot.
    pub const ALL: Self = Self([u64::MAX; 4]);

    /// Adds `slot`.
    pub fn insert(&mut self, slot: Slot) {
        let (word, bit) = place(slot);
        self.0[word] |= bit;
    }

    /// Takes `slot` out.
    pub fn remove(&mut self, slot: Slot) {
        let (word, bit) = place(slot);
        self.0[word] &= !bit;
    }

    /// Returns whether `slot` is one of them.
    pub fn contains(&self, slot: Slot) -> bool {
        let (word, bit) = place(slot);
        self.0[word] & bit != 0
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        *self == Self::EMPTY
    }

    /// Returns how many there are.
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Returns whether every one of them is in `other` too.
    pub fn is_subset(&self, other: Self) -> bool {
        self.without(other).is_empty()
    }

    /// Returns those in either.
    #[must_use]
    pub fn union(&self, other: Self) -> Self {
        Self(std::array::from_fn(|word| self.0[word] | other.0[word]))
    }

    /// Returns those in both.
    #[must_use]
    pub fn intersection(&self, other: Self) -> Self {
        Self(std::array::from_fn(|word| self.0[word] & other.0[word]))
    }

    /// Returns those that are not in `other`.
    #[must_use]
    pub fn without(&self, other: Self) -> Self {
        Self(std::array::from_fn(|word| self.0[word] & !other.0[word]))
    }

    /// Returns them in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = Slot> + use<> {
        (0_u8..).zip(self.0).flat_map(|(word, mut bits)| {
            std::iter::from_fn(move || {
                let bit = u8::try_from(bits.trailing_zeros()).ok().filter(|bit| *bit < 64)?;
                bits &= bits - 1;
                Some(Slot(64 * word + bit))
            })
        })
    }

    /// Returns the set as its datagram carries it.
    pub(crate) fn words(&self) -> [u64; 4] {
        self.0
    }

    /// Returns the set that a datagram carried.
    pub(crate) fn of_words(words: [u64; 4]) -> Self {
        Self(words)
    }
}

impl FromIterator<Slot> for SlotSet {
    fn from_iter<I: IntoIterator<Item = Slot>>(slots: I) -> Self {
        let mut set = Self::EMPTY;
        slots.into_iter().for_each(|slot| set.insert(slot));
        set
    }
}

fn place(slot: Slot) -> (usize, u64) {
    (usize::from(slot.0 / 64), 1 << (slot.0 % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_was_put_in_and_nothing_else() {
        let mut set: SlotSet = [0, 63, 64, 200, 255].map(Slot).into_iter().collect();

        assert_eq!(set.iter().map(|slot| slot.0).collect::<Vec<_>>(), [0, 63, 64, 200, 255]);
        set.remove(Slot(64));
        assert_eq!(set.len(), 4);
        assert!(!set.contains(Slot(64)) && set.contains(Slot(63)));
        assert!(set.is_subset(SlotSet::ALL) && !SlotSet::ALL.is_subset(set));
        assert_eq!(SlotSet::ALL.without(set).union(set), SlotSet::ALL);
        assert_eq!(SlotSet::ALL.without(set).intersection(set), SlotSet::EMPTY);
    }
}

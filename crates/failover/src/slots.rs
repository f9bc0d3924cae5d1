//! Who owns which part of a segment's SIP state.
//!
//! The state of a segment is cut into [`SLOTS`] slots. A slot has one owner, at most one standby and
//! an epoch. [`SlotMap`] is all that a gate knows about b2bs.

mod set;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::NodeId;
pub use set::SlotSet;

/// The number of slots of a segment.
pub const SLOTS: usize = 256;

/// One of the 256 parts of a segment's SIP state. Printed as two lower-case hex digits.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Slot(pub u8);

/// The reign of one owner over a slot. A later owner has a higher one; zero is before the first.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Epoch(pub u32);

/// Who answers for a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reign {
    /// The b2b that owns the slot.
    pub owner: NodeId,
    /// The b2b that holds a copy of the slot's records and takes over from the owner.
    pub standby: Option<NodeId>,
    /// Since which change of owner.
    pub epoch: Epoch,
}

/// Slot → owner, standby, epoch. A slot without an entry has no owner that anyone knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Run>", into = "Vec<Run>")]
pub struct SlotMap(Box<[Option<Reign>; SLOTS]>);

impl SlotMap {
    /// Returns a map in which no slot has an owner.
    pub fn empty() -> Self {
        Self(Box::new([None; SLOTS]))
    }

    /// Returns a map in which every slot has the same owner, standby and epoch.
    pub fn whole(reign: Reign) -> Self {
        Self(Box::new([Some(reign); SLOTS]))
    }

    /// Gives `slot` to `reign`, whatever the map said before.
    pub fn set(&mut self, slot: Slot, reign: Reign) {
        self.0[usize::from(slot.0)] = Some(reign);
    }

    /// Takes from what `from` says every slot that it knows better: at a higher epoch, or, from the
    /// owner itself, with another standby. Returns whether anything changed.
    pub fn learn(&mut self, from: NodeId, said: &Self) -> bool {
        let mut changed = false;
        for (ours, theirs) in self.0.iter_mut().zip(said.0.iter()) {
            let Some(theirs) = theirs else { continue };
            let newer = ours.is_none_or(|ours| {
                ours.epoch < theirs.epoch
                    || (ours.epoch == theirs.epoch
                        && ours.owner == theirs.owner
                        && from == theirs.owner
                        && ours.standby != theirs.standby)
            });
            if newer {
                *ours = Some(*theirs);
                changed = true;
            }
        }
        changed
    }

    /// Returns who answers for `slot`.
    pub fn get(&self, slot: Slot) -> Option<Reign> {
        self.0[usize::from(slot.0)]
    }

    /// Returns every slot that has an owner, in ascending order.
    pub fn reigns(&self) -> impl Iterator<Item = (Slot, Reign)> + '_ {
        (0..=u8::MAX).map(Slot).filter_map(|slot| Some((slot, self.get(slot)?)))
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x}", self.0)
    }
}

/// Slots that follow each other and have the same reign: how a map travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Run {
    first: u8,
    last: u8,
    reign: Reign,
}

impl From<SlotMap> for Vec<Run> {
    fn from(map: SlotMap) -> Self {
        let mut runs: Self = Self::new();
        for (slot, reign) in map.reigns() {
            match runs.last_mut() {
                Some(run) if run.reign == reign && run.last.checked_add(1) == Some(slot.0) => {
                    run.last = slot.0;
                }
                _ => runs.push(Run { first: slot.0, last: slot.0, reign }),
            }
        }
        runs
    }
}

impl TryFrom<Vec<Run>> for SlotMap {
    type Error = SlotMapError;

    fn try_from(runs: Vec<Run>) -> Result<Self, Self::Error> {
        let mut map = Self::empty();
        let mut next = 0;
        for Run { first, last, reign } in runs {
            if last < first || u16::from(first) < next {
                return Err(SlotMapError);
            }
            next = u16::from(last) + 1;
            (first..=last).for_each(|slot| map.set(Slot(slot), reign));
        }
        Ok(map)
    }
}

/// The peer sent a slot map whose runs overlap or go backwards; nothing was taken from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("runs of slots overlap or go backwards")]
pub struct SlotMapError;

#[cfg(test)]
mod tests {
    use super::*;

    const SLOT: Slot = Slot(0x2a);

    #[test]
    fn a_map_travels_in_runs_and_arrives_as_it_was() {
        let mut map = SlotMap::whole(reign(1, 7));
        map.set(Slot(0), reign(2, 8));
        map.set(Slot(255), reign(2, 9));
        map.set(SLOT, reign(2, 9));

        let runs = Vec::from(map.clone());

        assert_eq!(runs.len(), 5);
        assert_eq!(SlotMap::try_from(runs), Ok(map));
        assert_eq!(SlotMap::try_from(Vec::new()), Ok(SlotMap::empty()));
    }

    #[test]
    fn runs_that_overlap_are_refused() {
        let runs = vec![
            Run { first: 0, last: 9, reign: reign(1, 1) },
            Run { first: 9, last: 255, reign: reign(2, 1) },
        ];

        assert_eq!(SlotMap::try_from(runs), Err(SlotMapError));
    }

    #[test]
    fn a_higher_epoch_wins_whoever_is_told_last() {
        let (old, new) = (SlotMap::whole(reign(1, 1)), SlotMap::whole(reign(2, 2)));

        let mut map = old.clone();
        assert!(map.learn(NodeId(9), &new));
        assert!(!map.learn(NodeId(1), &old));
        assert_eq!(map, new);
    }

    #[test]
    fn a_new_standby_is_taken_from_the_owner_alone() {
        let mut map = SlotMap::whole(reign(1, 1));
        let said = SlotMap::whole(Reign { standby: Some(NodeId(2)), ..reign(1, 1) });

        assert!(!map.learn(NodeId(9), &said));
        assert!(map.learn(NodeId(1), &said));
        assert!(!map.learn(NodeId(2), &SlotMap::whole(Reign { owner: NodeId(2), ..reign(1, 1) })));
        assert_eq!(map, said);
    }

    fn reign(owner: u16, epoch: u32) -> Reign {
        Reign { owner: NodeId(owner), standby: None, epoch: Epoch(epoch) }
    }
}

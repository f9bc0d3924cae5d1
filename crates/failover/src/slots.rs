//! Who owns which part of a segment's SIP state, and what a gate promised about it.
//!
//! The state of a segment is cut into [`SLOTS`] slots. A slot has one owner, at most one standby and
//! an epoch. [`SlotMap`] is all that a gate knows about b2bs; [`Promises`] is how gates fence an
//! owner off: a gate takes frames of a slot only at the highest epoch it has promised.

use std::fmt;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::NodeId;

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

    /// Takes from `other` every slot that it knows better: at a higher epoch, or with another
    /// standby at the same epoch and owner. Returns whether anything changed.
    pub fn merge(&mut self, other: &Self) -> bool {
        let mut changed = false;
        for (ours, theirs) in self.0.iter_mut().zip(other.0.iter()) {
            let Some(theirs) = theirs else { continue };
            let newer = ours.is_none_or(|ours| {
                ours.epoch < theirs.epoch
                    || (ours.epoch == theirs.epoch
                        && ours.owner == theirs.owner
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

/// What a gate has promised about every slot.
///
/// A gate that starts takes frames of no slot for [`STARTING`]; then those of the highest epoch that
/// any b2b or gate it reached has named.
#[derive(Clone, Debug)]
pub struct Promises {
    opens_at: Instant,
    promised: Box<[Epoch; SLOTS]>,
}

impl Promises {
    /// Returns the promises of a gate that starts at `now`: none.
    pub fn new(now: Instant) -> Self {
        Self { opens_at: now + STARTING, promised: Box::new([Epoch(0); SLOTS]) }
    }

    /// Takes in what a b2b or another gate holds to be true. The highest epoch named binds: it was
    /// promised by whoever was reached when this gate was not.
    pub fn name(&mut self, map: &SlotMap) {
        for (slot, reign) in map.reigns() {
            let promised = &mut self.promised[usize::from(slot.0)];
            *promised = (*promised).max(reign.epoch);
        }
    }

    /// Promises `bid.epoch` of `slot`, after which nothing of a lower epoch passes.
    ///
    /// # Errors
    /// Says why the bid failed; nothing has changed then. The bidder asks again while its reason holds.
    pub fn promise(&mut self, now: Instant, slot: Slot, bid: Bid) -> Result<(), PromiseError> {
        if now < self.opens_at {
            return Err(PromiseError::Starting);
        }
        let promised = &mut self.promised[usize::from(slot.0)];
        if bid.epoch <= *promised {
            return Err(PromiseError::Stale { promised: *promised });
        }
        let owner_gone =
            bid.proof || bid.owner_heard_at.is_none_or(|heard_at| heard_at + OWNER_SILENCE <= now);
        if !owner_gone {
            return Err(PromiseError::OwnerHeard);
        }
        *promised = bid.epoch;
        Ok(())
    }

    /// Returns whether a frame of `slot` sent at `epoch` passes.
    pub fn accepts(&self, now: Instant, slot: Slot, epoch: Epoch) -> bool {
        self.opens_at <= now && epoch != Epoch(0) && self.promised(slot) == epoch
    }

    /// Returns the highest epoch promised of `slot`; zero when none was.
    pub fn promised(&self, slot: Slot) -> Epoch {
        self.promised[usize::from(slot.0)]
    }
}

/// What a standby puts forward when it asks a gate for the next epoch of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bid {
    /// The epoch asked for.
    pub epoch: Epoch,
    /// Whether the owner's death is proven, so that nobody has to wait for its silence.
    pub proof: bool,
    /// When this gate last heard the present owner; `None` if never in its life.
    pub owner_heard_at: Option<Instant>,
}

/// Why a gate did not promise. Nobody is at fault; nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PromiseError {
    /// The gate has just started and does not know yet what others promised.
    #[error("the gate has just started")]
    Starting,
    /// A higher epoch, or this one, is promised already.
    #[error("epoch {} is promised already", .promised.0)]
    Stale {
        /// The highest epoch promised.
        promised: Epoch,
    },
    /// This gate heard the owner not long ago, and its death is not proven.
    #[error("the owner was heard")]
    OwnerHeard,
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

/// How long a gate that starts listens before it takes frames.
pub const STARTING: Duration = Duration::from_millis(300);

/// How long an owner must have been silent at a gate before the gate promises its slots to another.
pub const OWNER_SILENCE: Duration = Duration::from_millis(150);

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
        assert!(map.merge(&new));
        assert!(!map.merge(&old));
        assert_eq!(map, new);
    }

    #[test]
    fn a_new_standby_of_the_same_owner_is_taken_without_a_new_epoch() {
        let mut map = SlotMap::whole(reign(1, 1));

        assert!(map.merge(&SlotMap::whole(Reign { standby: Some(NodeId(2)), ..reign(1, 1) })));
        assert!(!map.merge(&SlotMap::whole(Reign { standby: Some(NodeId(3)), ..reign(2, 1) })));
        assert_eq!(map.get(SLOT), Some(Reign { standby: Some(NodeId(2)), ..reign(1, 1) }));
    }

    #[test]
    fn a_gate_that_starts_takes_no_frame_for_300_ms_and_then_only_the_highest_epoch_named() {
        let now = start();
        let mut promises = Promises::new(now);
        promises.name(&SlotMap::whole(reign(1, 3)));
        promises.name(&SlotMap::whole(reign(2, 4)));
        promises.name(&SlotMap::whole(reign(1, 3)));

        assert!(!promises.accepts(now + ms(299), SLOT, Epoch(4)));
        assert!(promises.accepts(now + ms(300), SLOT, Epoch(4)));
        assert!(!promises.accepts(now + ms(300), SLOT, Epoch(3)));
        assert!(!promises.accepts(now + ms(300), SLOT, Epoch(5)));
    }

    #[test]
    fn a_slot_that_nobody_named_takes_no_frame() {
        let now = start();

        assert!(!Promises::new(now).accepts(now + ms(300), SLOT, Epoch(0)));
    }

    #[test]
    fn an_owner_heard_not_long_ago_keeps_its_slot_unless_its_death_is_proven() {
        let now = start() + ms(1000);
        let mut promises = Promises::new(start());
        promises.name(&SlotMap::whole(reign(1, 3)));
        let bid = Bid { epoch: Epoch(4), proof: false, owner_heard_at: Some(now - ms(149)) };

        assert_eq!(promises.promise(now, SLOT, bid), Err(PromiseError::OwnerHeard));
        assert!(promises.accepts(now, SLOT, Epoch(3)));
        assert_eq!(promises.promise(now + ms(1), SLOT, bid), Ok(()));
        assert!(!promises.accepts(now + ms(1), SLOT, Epoch(3)));
        assert_eq!(
            promises.promise(
                now,
                SLOT,
                Bid { epoch: Epoch(5), proof: true, owner_heard_at: Some(now) }
            ),
            Ok(())
        );
    }

    #[test]
    fn an_epoch_is_promised_once() {
        let now = start() + ms(1000);
        let mut promises = Promises::new(start());
        let bid = Bid { epoch: Epoch(4), proof: true, owner_heard_at: None };

        assert_eq!(promises.promise(start(), SLOT, bid), Err(PromiseError::Starting));
        assert_eq!(promises.promise(now, SLOT, bid), Ok(()));
        assert_eq!(
            promises.promise(now, SLOT, bid),
            Err(PromiseError::Stale { promised: Epoch(4) })
        );
    }

    fn reign(owner: u16, epoch: u32) -> Reign {
        Reign { owner: NodeId(owner), standby: None, epoch: Epoch(epoch) }
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[expect(clippy::disallowed_methods, reason = "an origin for the test")]
    fn start() -> Instant {
        use std::sync::OnceLock;
        static START: OnceLock<Instant> = OnceLock::new();
        *START.get_or_init(Instant::now)
    }
}

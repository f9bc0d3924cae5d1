//! The side of a gate or a witness: what it has promised about every slot.
//!
//! Every SIP byte passes a gate, so gates are the fence: a gate takes frames of a slot only at the
//! highest epoch it has promised. A b2b takes a slot with the promises of a majority of the voters,
//! and an owner acts only while enough voters answer its pulses that no majority can have promised
//! its slots to another: see [`ownership`](crate::ownership).

mod promise;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::ownership::LEASE;
use crate::pulse::{Pulse, PulseBack, Standing};
use crate::slots::{SLOTS, SlotSet};
use crate::{Boot, Epoch, NodeId, Slot, SlotMap};
pub use promise::Promise;

/// From a b2b to every voter: it wants slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bid {
    /// The bidder.
    pub node: NodeId,
    /// Its boot.
    pub boot: Boot,
    /// The bidder's own number of this question; comes back in the [`Vote`].
    pub round: u64,
    /// Whether this only asks what the answer would be. A bid that failed leaves gates that promised
    /// and owners that they fence off, so nobody bids without having asked.
    pub trial: bool,
    /// What it wants.
    pub slots: SlotSet,
    /// At which epoch.
    pub epoch: Epoch,
    /// The highest epoch that the bidder knows of every one of the slots: who knows less than the
    /// voter must learn first.
    pub known: Epoch,
    /// Whom it takes the slots to belong to.
    pub owner: Option<NodeId>,
    /// Why that owner need not be asked.
    pub gone: Gone,
}

/// Why an owner loses its slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Gone {
    /// It is not heard.
    Silent,
    /// The death of this boot, and so of all before it, is proven.
    Dead(Boot),
    /// It gave away what it owned at this epoch.
    Yields(Epoch),
}

/// The answer to a [`Bid`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vote {
    /// The bid's round.
    pub round: u64,
    /// What the voter says to all the slots together.
    pub answer: Answer,
}

/// What a voter says to a bid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// It promises, or would.
    Granted,
    /// It has just started and does not know yet what others promised.
    Starting,
    /// An epoch that the bidder does not know, or does not exceed, is promised of some slot.
    Stale {
        /// The highest of these.
        promised: Epoch,
    },
    /// Somebody holds one of the slots and was heard, in milliseconds before this answer.
    Heard {
        /// How long ago.
        ms: u16,
    },
    /// A later boot of the bidder was heard: two processes run under one identity.
    Replaced,
}

/// The promises of one voter. See the [module](self).
///
/// A voter that starts promises nothing, takes no frame and answers no pulse for [`SILENCE`]; then it
/// goes by the highest epochs that it was told meanwhile.
#[derive(Clone, Debug)]
pub struct Voter {
    node: NodeId,
    boot: Boot,
    opens_at: Instant,
    /// When it was last told anything. After a gap it may have been suspended, and must not take its
    /// own silence for that of others.
    told_at: Instant,
    /// Nothing before this counts as silence.
    window_from: Instant,
    /// The latest boot heard of each b2b.
    boots: BTreeMap<NodeId, Boot>,
    /// What each b2b's pulses said.
    pulses: BTreeMap<NodeId, Said>,
    promises: Box<[Promise; SLOTS]>,
    map: SlotMap,
}

/// What the last pulse of a b2b said, and when it came.
#[derive(Clone, Copy, Debug)]
struct Said {
    at: Instant,
    /// It hears nothing of this voter.
    deaf: bool,
    /// Since when all of them have said that it has no lease.
    mute_since: Option<Instant>,
}

impl Voter {
    /// Returns a voter that starts at `now` and has promised nothing.
    pub fn new(now: Instant, node: NodeId, boot: Boot) -> Self {
        Self {
            node,
            boot,
            opens_at: now + SILENCE,
            told_at: now,
            window_from: now,
            boots: BTreeMap::new(),
            pulses: BTreeMap::new(),
            promises: Box::new([Promise::default(); SLOTS]),
            map: SlotMap::empty(),
        }
    }

    /// Takes in what a b2b or another voter holds to be true. The highest epoch named binds: it was
    /// promised by whoever was reached when this voter was not.
    pub fn name(&mut self, now: Instant, from: NodeId, map: &SlotMap) {
        self.note(now);
        for (slot, reign) in map.reigns() {
            self.promises[usize::from(slot.0)].name(now, reign.owner, reign.epoch);
        }
        self.map.learn(from, map);
    }

    /// Answers a pulse.
    pub fn pulse(&mut self, now: Instant, pulse: &Pulse) -> PulseBack {
        self.note(now);
        let standing = self.standing(now, pulse);
        PulseBack { standing, ..pulse.back(self.node, self.boot) }
    }

    /// Answers a bid. A promise takes the slots from everybody else: nothing of a lower epoch passes.
    pub fn bid(&mut self, now: Instant, bid: &Bid) -> Vote {
        self.note(now);
        let answer = self.answer(now, bid);
        if answer == Answer::Granted && !bid.trial {
            for slot in bid.slots.iter() {
                self.promises[usize::from(slot.0)].promise(now, bid);
            }
        }
        Vote { round: bid.round, answer }
    }

    /// Returns whether a frame of `slot` sent at `epoch` passes.
    pub fn accepts(&self, now: Instant, slot: Slot, epoch: Epoch) -> bool {
        self.opens_at <= now && self.promises[usize::from(slot.0)].passes(now, epoch)
    }

    /// Returns whether a pulse of `b2b` came lately and it hears this voter, or none came ever: frames
    /// to one that fell silent, or is deaf, may not arrive, whatever its link says.
    pub fn reaches(&self, now: Instant, b2b: NodeId) -> bool {
        self.pulses.get(&b2b).is_none_or(|said| now < said.at + LEASE && !said.deaf)
    }

    /// Returns whether the pulses of `b2b` have said for [`MUTE`] that it has no lease: it lives, and
    /// nothing that it is asked will be answered soon.
    pub fn is_mute(&self, now: Instant, b2b: NodeId) -> bool {
        let since = self.pulses.get(&b2b).and_then(|said| said.mute_since);
        since.is_some_and(|since| since + MUTE <= now)
    }

    /// Returns the owners this voter was told of.
    pub fn map(&self) -> &SlotMap {
        &self.map
    }

    /// Returns the highest epoch promised of `slot` or named; zero when there is none.
    pub fn promised(&self, slot: Slot) -> Epoch {
        self.promises[usize::from(slot.0)].epoch()
    }

    fn note(&mut self, now: Instant) {
        if self.told_at + GAP < now {
            self.window_from = now;
        }
        self.told_at = self.told_at.max(now);
    }

    fn standing(&mut self, now: Instant, pulse: &Pulse) -> Standing {
        if !self.hear(pulse.node, pulse.boot) {
            return Standing::Replaced;
        }
        let before = self.pulses.get(&pulse.node).and_then(|said| said.mute_since);
        let mute_since = (!pulse.holds).then_some(before.unwrap_or(now));
        self.pulses.insert(pulse.node, Said { at: now, deaf: pulse.deaf, mute_since });
        let (mut lapsed, mut waits, mut fenced) = (false, now < self.opens_at, None);
        for claim in &pulse.claims {
            for slot in claim.slots.iter() {
                let promise = &mut self.promises[usize::from(slot.0)];
                match promise.claim(now, pulse, claim.epoch) {
                    Standing::Lapsed => lapsed = true,
                    Standing::Fenced { promised } => fenced = fenced.max(Some(promised)),
                    Standing::Starting => waits = true,
                    Standing::Passes | Standing::Replaced => {}
                }
            }
        }
        if waits {
            Standing::Starting
        } else if let Some(promised) = fenced {
            Standing::Fenced { promised }
        } else if lapsed {
            Standing::Lapsed
        } else {
            Standing::Passes
        }
    }

    fn answer(&mut self, now: Instant, bid: &Bid) -> Answer {
        if !self.hear(bid.node, bid.boot) {
            return Answer::Replaced;
        }
        if now < self.opens_at {
            return Answer::Starting;
        }
        let asked = || bid.slots.iter().map(|slot| &self.promises[usize::from(slot.0)]);
        let promised = asked().map(|promise| promise.epoch()).max().unwrap_or_default();
        if bid.epoch <= promised || bid.known < promised {
            return Answer::Stale { promised };
        }
        let kept = |promise: &Promise| promise.kept_for(now, self.window_from, bid, &self.boots);
        match asked().filter_map(kept).max() {
            Some(left) => {
                let ms = SILENCE.saturating_sub(left).as_millis();
                Answer::Heard { ms: u16::try_from(ms).unwrap_or(u16::MAX) }
            }
            None => Answer::Granted,
        }
    }

    /// Notes that this boot of a b2b lives; returns whether a later one is known.
    fn hear(&mut self, node: NodeId, boot: Boot) -> bool {
        match self.boots.get(&node) {
            Some(known) if *known == boot => true,
            Some(known) if boot < *known => false,
            None if self.boots.len() == B2BS_MAX => false,
            Some(_) | None => {
                self.boots.insert(node, boot);
                self.promises.iter_mut().for_each(|promise| promise.outlive(node, boot));
                true
            }
        }
    }
}

/// How long the holder of a slot must have been silent at a voter before the slot is promised to
/// another without proof or consent: twice the lease, so that clocks may differ. A voter that starts
/// listens for as long.
pub const SILENCE: Duration = Duration::from_millis(300);

/// How long a b2b says that it has no lease before it is not asked for more. A pause costs it one or two
/// pulses, and who cannot get its lease back has lost its slots to its standby by then, if that can.
pub const MUTE: Duration = Duration::from_secs(1);

/// After such a gap between two calls a voter does not know who was silent: it, or they.
const GAP: Duration = Duration::from_millis(150);

/// B2bs of one segment that a voter listens to.
const B2BS_MAX: usize = 256;

#[cfg(test)]
mod tests;

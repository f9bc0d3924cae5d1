//! Which segments get a share: the hot ones, and a cold one while a hot one that it covers is away.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::Segment;

/// A cold segment: it votes like any other, and gets a share only while a hot one is away.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cold {
    /// The hot segments that it stands in for; `None` is all of them.
    pub covers: Option<BTreeSet<Segment>>,
    /// Whether another segment, on this one's side of the network, must miss the hot one too. It
    /// keeps a cold segment that is cut off alone from handing out the limits a second time.
    pub witness: bool,
}

/// What the coordinator knows of the cold segments.
#[derive(Clone, Debug)]
pub(crate) struct Sites {
    cold: BTreeMap<Segment, Cold>,
    hot: BTreeSet<Segment>,
    stability: Duration,
    /// Cold segments that have a share.
    active: BTreeSet<Segment>,
    /// What the hot segments are known to do in this epoch.
    serving: BTreeMap<Segment, bool>,
    /// Since when all that an active cold segment covers has served.
    calm_since: BTreeMap<Segment, Instant>,
}

impl Sites {
    pub(crate) fn new(stability: Duration) -> Self {
        Self {
            cold: BTreeMap::new(),
            hot: BTreeSet::new(),
            stability,
            active: BTreeSet::new(),
            serving: BTreeMap::new(),
            calm_since: BTreeMap::new(),
        }
    }

    /// Takes the configuration; every segment of `all` that is not cold is hot.
    pub(crate) fn configure(&mut self, all: &BTreeSet<Segment>, cold: BTreeMap<Segment, Cold>) {
        self.hot = all.iter().copied().filter(|segment| !cold.contains_key(segment)).collect();
        self.active.retain(|segment| cold.contains_key(segment));
        self.calm_since.retain(|segment, _| cold.contains_key(segment));
        self.cold = cold;
    }

    /// A new epoch begins: who serves in it is yet to be seen.
    pub(crate) fn begin(&mut self) {
        self.serving.clear();
        self.calm_since.clear();
    }

    pub(crate) fn set_serving(&mut self, segment: Segment, serving: bool) {
        self.serving.insert(segment, serving);
    }

    /// Takes over what the coordinator of the followed epoch decided.
    pub(crate) fn adopt(&mut self, active: &BTreeSet<Segment>) {
        self.active = self.cold.keys().copied().filter(|cold| active.contains(cold)).collect();
    }

    /// Takes over what another coordinator, which has come into the island, had decided for its own.
    pub(crate) fn keep(&mut self, active: &BTreeSet<Segment>) {
        self.active.extend(self.cold.keys().copied().filter(|cold| active.contains(cold)));
    }

    /// Decides anew for the segments of a mandate; returns those of them that get a share.
    pub(crate) fn decide(
        &mut self,
        now: Instant,
        members: &BTreeSet<Segment>,
    ) -> BTreeSet<Segment> {
        for (segment, cold) in &self.cold {
            let covers = cold.covers.as_ref().unwrap_or(&self.hot);
            let mut covers = covers.intersection(&self.hot).peekable();
            let witnessed = !cold.witness || members.iter().any(|other| other != segment);
            let (mut needed, mut calm) = (false, covers.peek().is_some());
            for hot in covers {
                let serving = self.serving.get(hot).filter(|_| members.contains(hot));
                needed |= if members.contains(hot) { serving == Some(&false) } else { witnessed };
                calm &= serving == Some(&true);
            }
            // One that is away was not missed: what its own island gave it, it says at its return.
            if needed && members.contains(segment) {
                self.active.insert(*segment);
            }
            if !calm || !self.active.contains(segment) {
                self.calm_since.remove(segment);
            } else if *self.calm_since.entry(*segment).or_insert(now) + self.stability <= now {
                self.active.remove(segment);
                self.calm_since.remove(segment);
            }
        }
        let shares =
            |segment: &Segment| !self.cold.contains_key(segment) || self.active.contains(segment);
        members.iter().copied().filter(shares).collect()
    }

    /// Returns when a cold segment will have been needless for long enough.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        self.calm_since.values().min().map(|since| *since + self.stability)
    }
}

#[cfg(test)]
mod tests;

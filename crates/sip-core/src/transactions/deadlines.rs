//! The one index of all deadlines.

use std::collections::BTreeSet;
use std::time::Instant;

/// Which slot is due when. Each slot stands here at most once.
pub(super) struct Deadlines {
    entries: BTreeSet<(Instant, u32)>,
}

impl Deadlines {
    pub(super) fn new() -> Self {
        Self { entries: BTreeSet::new() }
    }

    /// Moves `slot` from one deadline to another.
    pub(super) fn rearm(&mut self, slot: u32, from: Option<Instant>, to: Option<Instant>) {
        if from == to {
            return;
        }
        if let Some(from) = from {
            self.entries.remove(&(from, slot));
        }
        if let Some(to) = to {
            self.entries.insert((to, slot));
        }
    }

    /// Returns the slot with the earliest deadline that is not after `now`.
    pub(super) fn due(&self, now: Instant) -> Option<u32> {
        self.entries.first().filter(|(at, _)| *at <= now).map(|(_, slot)| *slot)
    }

    pub(super) fn first(&self) -> Option<Instant> {
        self.entries.first().map(|(at, _)| *at)
    }
}

//! Calls that no grant covers: a part of a cluster that must not grow does not grow by them.

use super::Member;
use crate::{Call, Counter};

impl Member {
    /// Notes a call that was counted whatever the limits say.
    pub(super) fn pass(&mut self, call: Call) {
        for node in self.document.tree().path(call.node) {
            for counter in [Counter::Calls, call.direction.counter()] {
                let Some(place) = self.document.place(node, counter) else { continue };
                let view = self.ledger.view(node, counter);
                if view.share.is_some_and(|share| share < view.used) {
                    *self.beyond.entry(place).or_default() += 1;
                }
            }
        }
    }

    /// Returns what of a counter is held because it was granted: its cap, or the calls above that which it
    /// still had when it shrank.
    pub(super) fn granted(&self, place: u32) -> u32 {
        let beyond = self.beyond.get(&place).copied().unwrap_or(0);
        self.held(place).held.saturating_sub(beyond).max(self.share(place))
    }

    /// A call has ended, or the cap has grown: what is used within the cap is covered.
    pub(super) fn cover(&mut self, place: u32) {
        if let Some(beyond) = self.beyond.get(&place) {
            let least = self.above(place).min(*beyond);
            self.set_beyond(place, least);
        }
    }

    /// Nobody can tell any more what the calls above the cap were let in by.
    pub(super) fn uncover(&mut self, place: u32) {
        let above = self.above(place);
        self.set_beyond(place, above);
    }

    /// Does so for every counter.
    pub(super) fn uncover_all(&mut self) {
        self.beyond.clear();
        for place in (0..).take(self.document.counters().len()) {
            self.uncover(place);
        }
    }

    fn above(&self, place: u32) -> u32 {
        self.held(place).held - self.share(place)
    }

    fn set_beyond(&mut self, place: u32, beyond: u32) {
        if beyond == 0 {
            self.beyond.remove(&place);
        } else {
            self.beyond.insert(place, beyond);
        }
    }
}

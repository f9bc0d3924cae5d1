//! What the lines of use add up to, for whoever reads them.

use std::collections::BTreeMap;

use election::Segment;
use quota_split::Counter;
use rm::cluster::UsageEvent;

use super::world::LIMITED;

/// By segment: whose lines count, and what they say of each of [`LIMITED`].
#[derive(Debug, Default)]
pub(super) struct Lines(BTreeMap<Segment, (usize, [u32; 5])>);

impl Lines {
    /// Adds up as a reader of the lines does: those of another node than began last are passed over.
    pub(super) fn hear(&mut self, at: usize, segment: Segment, event: &UsageEvent) {
        match event {
            UsageEvent::Begun { .. } => {
                self.0.insert(segment, (at, [0; 5]));
            }
            UsageEvent::Changed { document, node, counter: Counter::Calls, used, .. } => {
                let name = &document.tree().node(*node).name;
                let index = LIMITED.iter().position(|limited| limited == name);
                let told = self.0.get_mut(&segment).filter(|(begun, _)| *begun == at);
                if let Some((index, (_, told))) = index.zip(told) {
                    told[index] = *used;
                }
            }
            UsageEvent::Changed { .. } => {}
        }
    }

    /// Returns what calls of a segment count at each of [`LIMITED`], as its lines tell.
    pub(super) fn of(&self, segment: Segment) -> [u32; 5] {
        self.0.get(&segment).map_or([0; 5], |(_, told)| *told)
    }
}

//! What is told about the use of counters: at most one event a counter and second.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use quota_split::{Call, Counter, Document, Ledger, NodeId};

/// The use of one counter has changed within the last second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsageEvent {
    /// Where, in the tree of the last plan.
    pub node: NodeId,
    /// Which counter there.
    pub counter: Counter,
    /// How many calls of this segment count there now.
    pub used: u32,
    /// The most that counted there within that second.
    pub peak: u32,
}

/// Counters that changed, and the most that each had since it was last told of.
#[derive(Clone, Debug, Default)]
pub(super) struct Usage {
    peaks: BTreeMap<(NodeId, Counter), u32>,
    tell_at: Option<Instant>,
}

impl Usage {
    /// Notes that `call` counts, or is about to count no more.
    pub(super) fn note(&mut self, now: Instant, document: &Document, ledger: &Ledger, call: Call) {
        for node in document.tree().path(call.node) {
            for counter in [Counter::Calls, call.direction.counter()] {
                let peak = self.peaks.entry((node, counter)).or_insert(0);
                *peak = ledger.view(node, counter).used.max(*peak);
            }
        }
        self.tell_at.get_or_insert(now + Duration::from_secs(1));
    }

    /// Returns what is due to be told.
    pub(super) fn take(&mut self, now: Instant, ledger: Option<&Ledger>) -> Vec<UsageEvent> {
        if self.tell_at.is_none_or(|at| now < at) {
            return Vec::new();
        }
        self.tell_at = None;
        let peaks = std::mem::take(&mut self.peaks);
        let Some(ledger) = ledger else { return Vec::new() };
        let event = |((node, counter), peak)| {
            let used = ledger.view(node, counter).used;
            UsageEvent { node, counter, used, peak: used.max(peak) }
        };
        peaks.into_iter().map(event).collect()
    }

    /// Forgets everything: nodes have other numbers now, or nothing is counted here.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.tell_at
    }
}

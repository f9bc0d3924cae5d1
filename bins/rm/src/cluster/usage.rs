//! What is told about the use of counters: at most one event a counter and second.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quota_split::handover::Member;
use quota_split::{Call, Counter, Document, Drift, NodeId};

/// The use of one counter has changed within the last second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageEvent {
    /// What numbers the node.
    pub document: Arc<Document>,
    /// Where.
    pub node: NodeId,
    /// Which counter there.
    pub counter: Counter,
    /// How many calls of this segment count there now.
    pub used: u32,
    /// The most that counted there since it was last told of.
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
    pub(super) fn note(&mut self, now: Instant, member: &Member, call: Call) {
        for node in member.document().tree().path(call.node) {
            for counter in [Counter::Calls, call.direction.counter()] {
                let peak = self.peaks.entry((node, counter)).or_insert(0);
                *peak = member.ledger().view(node, counter).used.max(*peak);
            }
        }
        self.tell_at.get_or_insert(now + PERIOD);
    }

    /// Notes counters that became something else at once.
    pub(super) fn recount(&mut self, now: Instant, drifts: &[Drift]) {
        for drift in drifts {
            let peak = self.peaks.entry((drift.node, drift.counter)).or_insert(0);
            *peak = drift.is.max(*peak);
            self.tell_at.get_or_insert(now + PERIOD);
        }
    }

    /// Returns what is due to be told.
    pub(super) fn take(&mut self, now: Instant, member: Option<&Member>) -> Vec<UsageEvent> {
        if self.tell_at.is_none_or(|at| now < at) {
            return Vec::new();
        }
        self.flush(member)
    }

    /// Returns all that is still to be told, since nodes get other numbers or the counting ends here.
    pub(super) fn flush(&mut self, member: Option<&Member>) -> Vec<UsageEvent> {
        self.tell_at = None;
        let peaks = std::mem::take(&mut self.peaks);
        let Some(member) = member else { return Vec::new() };
        let event = |((node, counter), peak): ((NodeId, Counter), u32)| {
            let used = member.ledger().view(node, counter).used;
            let document = Arc::clone(member.document());
            UsageEvent { document, node, counter, used, peak: used.max(peak) }
        };
        peaks.into_iter().map(event).collect()
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.tell_at
    }
}

/// A counter is told of this often at the most.
const PERIOD: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;

//! What is told about the use of counters: at most one event a counter and second.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quota_split::handover::Member;
use quota_split::{Call, Counter, Document, Drift, NodeId};

/// What is told about the use of a segment's counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UsageEvent {
    /// This node counts the segment's calls from now on: until something else is told, all counters are
    /// zero, whatever was told by whom before. What the node tells from now on holds, and nothing that
    /// another one of the segment tells, before that one begins.
    Begun {
        /// What is counted by.
        document: Arc<Document>,
    },
    /// The use of one counter has changed within the last second.
    Changed {
        /// What numbers the node.
        document: Arc<Document>,
        /// Where.
        node: NodeId,
        /// Which counter there.
        counter: Counter,
        /// How many calls of this segment count there now.
        used: u32,
        /// The most that counted there since it was last told of.
        peak: u32,
    },
}

/// Counters that changed, and the most that each had since it was last told of.
#[derive(Clone, Debug, Default)]
pub(super) struct Usage {
    peaks: BTreeMap<(NodeId, Counter), u32>,
    /// Whether it is still to be told that this node counts.
    begun: bool,
    tell_at: Option<Instant>,
}

impl Usage {
    /// This node counts from now on: all that was told before is void, and what there is, is told.
    pub(super) fn begin(&mut self, now: Instant, member: &Member) {
        self.begun = true;
        for (node, _) in member.document().tree().iter() {
            for counter in [Counter::Calls, Counter::Inbound, Counter::Outbound] {
                let used = member.ledger().view(node, counter).used;
                if 0 < used {
                    let peak = self.peaks.entry((node, counter)).or_insert(0);
                    *peak = used.max(*peak);
                }
            }
        }
        self.tell_at.get_or_insert(now + PERIOD);
    }

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
        let begun = std::mem::take(&mut self.begun);
        let Some(member) = member else { return Vec::new() };
        let begun = begun.then(|| UsageEvent::Begun { document: Arc::clone(member.document()) });
        let event = |((node, counter), peak): ((NodeId, Counter), u32)| {
            let used = member.ledger().view(node, counter).used;
            let document = Arc::clone(member.document());
            UsageEvent::Changed { document, node, counter, used, peak: used.max(peak) }
        };
        begun.into_iter().chain(peaks.into_iter().map(event)).collect()
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.tell_at
    }
}

/// A counter is told of this often at the most.
const PERIOD: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;

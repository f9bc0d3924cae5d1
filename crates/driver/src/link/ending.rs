//! Why connections end: counted, and logged without letting a peer fill the log.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use crate::frame::Fault;
use crate::metrics::Metrics;
use crate::node::NodeId;
use crate::tls::HandshakeFault;
use crate::tls::wire::ReadError;

/// The same refusal of the same node is logged once in this time.
const LOG_PERIOD: Duration = Duration::from_secs(60);

/// Why a connection ends.
#[derive(Debug, thiserror::Error)]
pub(super) enum Ending {
    #[error(transparent)]
    Fault(#[from] Fault),
    #[error(transparent)]
    Handshake(#[from] HandshakeFault),
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("the peer closed")]
    Closed,
    #[error("no greeting in time")]
    Late,
    #[error("no greeting, and others wait")]
    Crowded,
    #[error("a newer link of this peer")]
    Replaced,
}

impl Ending {
    /// Its name in the metrics, if it is a fault.
    pub(super) fn label(&self) -> Option<&'static str> {
        match self {
            Self::Fault(fault) => Some(fault.label()),
            Self::Handshake(fault) => Some(fault.label()),
            Self::Late => Some("late"),
            Self::Crowded => Some("crowded"),
            Self::Io(_) | Self::Closed | Self::Replaced => None,
        }
    }

    /// Whether an operator has to do something, or somebody tries what he may not.
    pub(super) fn alarms(&self) -> bool {
        match self {
            Self::Handshake(fault) => fault.alarms(),
            Self::Fault(fault) => fault.alarms(),
            Self::Io(_) | Self::Closed | Self::Late | Self::Crowded | Self::Replaced => false,
        }
    }
}

impl From<ReadError> for Ending {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Io(error) => Self::Io(error),
            ReadError::Tls(fault) => Self::Handshake(fault),
        }
    }
}

/// What went wrong so far.
#[derive(Default)]
pub(super) struct Faults {
    counts: BTreeMap<&'static str, u64>,
    logged: BTreeMap<(&'static str, Option<NodeId>), Logged>,
}

struct Logged {
    at: Instant,
    since: u64,
}

impl Faults {
    pub(super) fn count(&mut self, ending: &Ending) {
        if let Some(label) = ending.label() {
            *self.counts.entry(label).or_default() += 1;
        }
    }

    /// Returns how many of its kind were not logged before, if the refusal is to be logged at `now`.
    /// `peer` is whom we dialled, so that strangers take no room.
    pub(super) fn logs(
        &mut self,
        now: Instant,
        ending: &Ending,
        peer: Option<NodeId>,
    ) -> Option<u64> {
        let key = (ending.label().unwrap_or("other"), peer);
        let logged = self.logged.get_mut(&key);
        if let Some(logged) = logged.filter(|logged| now < logged.at + LOG_PERIOD) {
            logged.since += 1;
            return None;
        }
        let before = self.logged.insert(key, Logged { at: now, since: 0 });
        Some(before.map_or(0, |logged| logged.since))
    }

    pub(super) fn metrics(&self, out: &mut Metrics) {
        let (name, help) =
            ("driver_link_faults_total", "Connections ended for a fault of the peer.");
        for (why, count) in &self.counts {
            out.counter(name, help, &[("why", why)], *count);
        }
    }

    #[cfg(test)]
    pub(super) fn total(&self) -> u64 {
        self.counts.values().sum()
    }

    #[cfg(test)]
    pub(super) fn of(&self, why: &str) -> u64 {
        self.counts.get(why).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::clock;

    #[test]
    fn the_same_refusal_is_logged_once_a_minute_and_counted_always() {
        let (start, node) = (clock(), Some(NodeId(7)));
        let mut faults = Faults::default();
        for _ in 0..9 {
            faults.count(&Ending::Late);
        }
        assert_eq!(faults.logs(start, &Ending::Late, node), Some(0));
        assert_eq!(faults.logs(start, &Ending::Late, node), None);
        assert_eq!(faults.logs(start, &Ending::Late, None), Some(0), "of another");
        assert_eq!(faults.logs(start, &Ending::Crowded, node), Some(0), "another");
        assert_eq!(faults.logs(start + LOG_PERIOD, &Ending::Late, node), Some(1));
        assert_eq!(faults.of("late"), 9);
    }
}

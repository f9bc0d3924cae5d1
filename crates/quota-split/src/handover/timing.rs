//! How long things take between sites.

use std::time::Duration;

/// The periods of coordinators and members; all nodes must have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Timing {
    /// What was not answered is sent again after this.
    pub resend: Duration,
    /// Shares that fell are reported within this.
    pub report: Duration,
    /// Idle parts return to the pool this often.
    pub tick: Duration,
    /// How long a call waits for a borrowed unit.
    pub hold: Duration,
    /// How long no call waits for a counter that was used up everywhere, unless something is found before.
    pub hint: Duration,
    /// How long limits under a weight majority may be used without word from the coordinator.
    pub lease: Duration,
    /// How long after an island formed the last lease elsewhere may have been granted: until every
    /// coordinator there has seen the cut.
    pub detection: Duration,
    /// An idle counter drifts back to its targets after this.
    pub idle: Duration,
}

impl Timing {
    /// Values for sites that lie far apart.
    pub const WAN: Self = Self {
        resend: Duration::from_secs(1),
        report: Duration::from_millis(100),
        tick: Duration::from_secs(1),
        hold: Duration::from_millis(300),
        hint: Duration::from_secs(1),
        lease: Duration::from_secs(10),
        detection: Duration::from_secs(8),
        idle: Duration::from_secs(60),
    };

    /// Returns how long a majority waits before it takes the others' shares: their leases, a tenth
    /// more for clocks that differ, and what it may take them to see the cut.
    pub fn majority_wait(&self) -> Duration {
        self.lease + self.lease / 10 + self.detection
    }
}

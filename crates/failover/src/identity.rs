//! Names of nodes, boots, calls and points in time that outlive a process.

use std::fmt;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// A node of the segment, as its configuration numbers it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct NodeId(pub u16);

/// One life of a process: a later start of the same node has a higher number.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Boot(pub u64);

/// A call of two legs, unique in the segment.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct CallId(pub u64);

/// A wall-clock time in milliseconds since 1970-01-01 UTC.
///
/// Deadlines in a record are kept so, because an [`Instant`] means nothing in another process.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct UnixMs(pub u64);

/// One moment read on both clocks, with which the times of a record and of a machine are converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// The moment on the monotonic clock.
    pub instant: Instant,
    /// The same moment on the wall clock.
    pub unix_ms: UnixMs,
}

impl Clock {
    /// Returns the wall-clock time of `at`; zero for what lies before 1970.
    pub fn unix_at(&self, at: Instant) -> UnixMs {
        let base = self.unix_ms.0;
        let ms = if at < self.instant {
            base.saturating_sub(millis(self.instant - at))
        } else {
            base.saturating_add(millis(at - self.instant))
        };
        UnixMs(ms)
    }

    /// Returns the monotonic time of `at`; the clock's own moment for a time that cannot be expressed.
    pub fn instant_at(&self, at: UnixMs) -> Instant {
        let base = self.unix_ms.0;
        let instant = if at.0 < base {
            self.instant.checked_sub(Duration::from_millis(base - at.0))
        } else {
            self.instant.checked_add(Duration::from_millis(at.0 - base))
        };
        instant.unwrap_or(self.instant)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Boot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Returns whole milliseconds; a span of half a billion years counts as that.
fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_survives_the_way_through_the_wall_clock() {
        #[expect(clippy::disallowed_methods, reason = "an origin for the test")]
        let origin = Instant::now();
        let clock = Clock {
            instant: origin + Duration::from_secs(100),
            unix_ms: UnixMs(1_700_000_000_000),
        };

        for ms in [0, 1, 99_999, 100_000, 100_001, 4_000_000] {
            let at = origin + Duration::from_millis(ms);
            assert_eq!(clock.instant_at(clock.unix_at(at)), at);
        }
        assert_eq!(clock.unix_at(origin), UnixMs(1_699_999_900_000));
    }
}

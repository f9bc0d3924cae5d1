//! How long things take.

use std::num::NonZeroU32;
use std::time::Duration;

/// The periods of an election; the same at every node of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Timing {
    period: Duration,
    silence: Duration,
    timeout: Duration,
    stability: Duration,
}

/// Periods that do not fit together. Nothing was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TimingError {
    /// Heartbeats without a pause would never end.
    #[error("the heartbeat period is zero")]
    ZeroPeriod,
    /// One lost or late heartbeat would break a link.
    #[error("fewer than two heartbeats may be missed")]
    TooFewMisses,
    /// A candidate would declare victory over nodes that it has not yet missed.
    #[error("the election timeout is shorter than the silence that breaks a link")]
    ShortTimeout,
    /// A returning node could be voted for before the old coordinator had its say.
    #[error("the stability time is shorter than the election timeout")]
    ShortStability,
}

impl Timing {
    /// Checks the periods: heartbeats every `period`; a link is down after `misses_max` periods of
    /// silence; an election is won after `timeout` of silence; who comes back is taken in, and who
    /// starts may campaign, after `stability`.
    ///
    /// # Errors
    ///
    /// Returns the first pair that does not fit.
    pub fn new(
        period: Duration,
        misses_max: NonZeroU32,
        timeout: Duration,
        stability: Duration,
    ) -> Result<Self, TimingError> {
        let silence = period.saturating_mul(misses_max.get());
        if period.is_zero() {
            Err(TimingError::ZeroPeriod)
        } else if misses_max.get() < 2 {
            Err(TimingError::TooFewMisses)
        } else if timeout < silence {
            Err(TimingError::ShortTimeout)
        } else if stability < timeout {
            Err(TimingError::ShortStability)
        } else {
            Ok(Self { period, silence, timeout, stability })
        }
    }

    /// Returns the time between two heartbeats.
    pub fn period(&self) -> Duration {
        self.period
    }

    /// Returns the silence after which a link counts as down.
    pub fn silence(&self) -> Duration {
        self.silence
    }

    /// Returns how long a candidate waits for answers.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Returns how long a newcomer must have been there before it changes anything.
    pub fn stability(&self) -> Duration {
        self.stability
    }

    /// Returns how long a node waits for the result of an election that a lower one must win.
    pub(crate) fn patience(&self) -> Duration {
        2 * self.timeout
    }

    /// Returns how long a node waits that hears others who do not hear it.
    pub(crate) fn away(&self) -> Duration {
        2 * self.period
    }

    /// Returns the time between two floods of an unchanged link state.
    pub(crate) fn refresh(&self) -> Duration {
        10 * self.period
    }
}

/// The document's timeout of 5 s; heartbeats every second, three of which may be missed; 6 s of
/// stability.
impl Default for Timing {
    fn default() -> Self {
        Self {
            period: Duration::from_secs(1),
            silence: Duration::from_secs(3),
            timeout: Duration::from_secs(5),
            stability: Duration::from_secs(6),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_that_contradict_each_other_are_refused() {
        let timing = |period, misses, timeout, stability| {
            let misses = NonZeroU32::new(misses).unwrap();
            Timing::new(
                Duration::from_millis(period),
                misses,
                Duration::from_millis(timeout),
                Duration::from_millis(stability),
            )
        };

        assert_eq!(timing(1000, 3, 5000, 6000), Ok(Timing::default()));
        assert_eq!(timing(0, 3, 5000, 6000), Err(TimingError::ZeroPeriod));
        assert_eq!(timing(1000, 1, 5000, 6000), Err(TimingError::TooFewMisses));
        assert_eq!(timing(1000, 6, 5000, 6000), Err(TimingError::ShortTimeout));
        assert_eq!(timing(1000, 3, 5000, 4999), Err(TimingError::ShortStability));
    }
}

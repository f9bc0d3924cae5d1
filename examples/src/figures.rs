//! Samples and their percentiles.

use std::time::Duration;

use serde::{Serialize, Serializer};

/// Durations of one kind, such as the voice gaps of an outage.
#[derive(Clone, Debug, Default)]
pub struct Figures(Vec<Duration>);

impl FromIterator<Duration> for Figures {
    fn from_iter<I: IntoIterator<Item = Duration>>(samples: I) -> Self {
        Self(samples.into_iter().collect())
    }
}

impl Figures {
    /// Takes a sample in.
    pub fn push(&mut self, sample: Duration) {
        self.0.push(sample);
    }

    /// Takes all samples of another in.
    pub fn extend(&mut self, other: &Self) {
        self.0.extend_from_slice(&other.0);
    }

    /// Returns how many samples there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns the smallest sample that at least `percent` of all do not
    /// exceed; `None` without samples.
    pub fn percentile(&self, percent: usize) -> Option<Duration> {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let rank = (sorted.len() * percent).div_ceil(100).max(1);
        sorted.get(rank - 1).copied()
    }

    /// Returns the longest; `None` without samples.
    pub fn max(&self) -> Option<Duration> {
        self.0.iter().max().copied()
    }

    /// Returns a percentile in milliseconds as text, `-` without samples.
    pub fn text(&self, percent: usize) -> String {
        millis_text(self.percentile(percent))
    }
}

/// Returns milliseconds as text, `-` for none.
pub fn millis_text(span: Option<Duration>) -> String {
    span.map_or_else(|| "-".to_owned(), |span| format!("{:.1}", millis(span)))
}

/// Returns a span in milliseconds.
pub fn millis(span: Duration) -> f64 {
    span.as_secs_f64() * 1e3
}

#[derive(Serialize)]
struct Summary {
    count: usize,
    p50_ms: Option<f64>,
    p95_ms: Option<f64>,
    p99_ms: Option<f64>,
    max_ms: Option<f64>,
}

impl Serialize for Figures {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let at = |percent| self.percentile(percent).map(millis);
        Summary {
            count: self.count(),
            p50_ms: at(50),
            p95_ms: at(95),
            p99_ms: at(99),
            max_ms: self.max().map(millis),
        }
        .serialize(serializer)
    }
}

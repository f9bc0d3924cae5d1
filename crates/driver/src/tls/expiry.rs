//! When certificates end, and who is told.

use std::path::{Path, PathBuf};

use rustls::pki_types::CertificateDer;

use crate::metrics::Metrics;

/// A certificate that has no longer than this is told every day.
pub(crate) const WARN_DAYS: i64 = 30;
const DAY_MS: u64 = 86_400_000;

/// The end of one certificate of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Expiry {
    pub(crate) path: PathBuf,
    /// Its place in the file, from 1.
    pub(crate) number: usize,
    /// Its last moment, in milliseconds since 1970.
    pub(crate) until_ms: u64,
}

impl Expiry {
    /// The ends of a file's certificates. One that cannot be read is left out.
    pub(super) fn of(path: &Path, certificates: &[CertificateDer<'_>]) -> Vec<Self> {
        let numbered = (1..).zip(certificates);
        numbered.filter_map(|(number, one)| Self::at(path, number, one)).collect()
    }

    pub(super) fn at(path: &Path, number: usize, one: &CertificateDer<'_>) -> Option<Self> {
        let (_, parsed) = x509_parser::parse_x509_certificate(one).ok()?;
        let seconds = u64::try_from(parsed.validity().not_after.timestamp()).unwrap_or(0);
        Some(Self { path: path.to_owned(), number, until_ms: seconds.saturating_mul(1000) })
    }

    /// Adds how many days are left to figures.
    pub(crate) fn metrics(
        &self,
        unix_ms: u64,
        name: &'static str,
        help: &'static str,
        out: &mut Metrics,
    ) {
        let (file, number) = (self.path.display().to_string(), self.number.to_string());
        let days = i32::try_from(self.days_left(unix_ms)).unwrap_or(i32::MAX);
        out.gauge(name, help, &[("file", &file), ("number", &number)], f64::from(days));
    }

    /// Whole days that are left at `unix_ms`; less than zero once it has expired.
    pub(crate) fn days_left(&self, unix_ms: u64) -> i64 {
        let left = i128::from(self.until_ms) - i128::from(unix_ms);
        i64::try_from(left.div_euclid(i128::from(DAY_MS))).unwrap_or(i64::MAX)
    }
}

/// Tells of certificates that end soon, once a day.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    told_at: Option<u64>,
}

impl Watch {
    /// Returns which of the certificates are to be told of at `unix_ms`: at the first time, and
    /// then when a day has passed or the clock was set back.
    pub(crate) fn due<'a>(&mut self, unix_ms: u64, all: &'a [Expiry]) -> Vec<&'a Expiry> {
        let day = self.told_at.is_none_or(|at| !(at..at + DAY_MS).contains(&unix_ms));
        if !day {
            return Vec::new();
        }
        self.told_at = Some(unix_ms);
        all.iter().filter(|one| one.days_left(unix_ms) < WARN_DAYS).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends_on(day: u64) -> Expiry {
        Expiry { path: "node.pem".into(), number: 1, until_ms: day * DAY_MS }
    }

    #[test]
    fn a_certificate_is_told_of_from_thirty_days_before_its_end_once_a_day() {
        let all = [ends_on(100), ends_on(400)];
        let mut watch = Watch::default();
        assert!(watch.due(70 * DAY_MS, &all).is_empty());
        assert!(watch.due(70 * DAY_MS + 1, &all).is_empty(), "told today already");
        assert_eq!(watch.due(71 * DAY_MS, &all), [&all[0]]);
        assert!(watch.due(72 * DAY_MS - 1, &all).is_empty());
        assert_eq!(watch.due(72 * DAY_MS, &all), [&all[0]]);
        assert_eq!(watch.due(130 * DAY_MS, &all), [&all[0]], "it goes on after the end");
    }

    #[test]
    fn a_process_that_starts_late_is_told_at_once() {
        let all = [ends_on(100)];
        assert_eq!(Watch::default().due(99 * DAY_MS, &all), [&all[0]]);
        assert_eq!((all[0].days_left(99 * DAY_MS), all[0].days_left(100 * DAY_MS + 1)), (1, -1));
    }

    #[test]
    fn a_clock_that_is_set_back_silences_nothing() {
        let all = [ends_on(100)];
        let mut watch = Watch::default();
        assert_eq!(watch.due(90 * DAY_MS, &all).len(), 1);
        assert_eq!(watch.due(80 * DAY_MS, &all).len(), 1);
    }
}

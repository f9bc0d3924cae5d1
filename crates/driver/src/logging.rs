//! Log lines on standard error.

use std::io::{IsTerminal as _, stderr};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use crate::config::Table;

/// What is logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// A level (`info`), or levels per target (`info,driver=debug`).
    pub filter: String,
}

impl LogConfig {
    /// Reads the key `level` of the table, if it is there.
    pub fn read(table: &Table<'_>) -> Option<Self> {
        let what = "a level, such as \"info\", or levels by target, \"info,driver=debug\"";
        table.key("level").parsed(what, Self::parse)
    }

    /// Reads a level, or levels per target with commas between; `None` when a part is neither.
    #[must_use]
    pub fn parse(filter: &str) -> Option<Self> {
        // To the filter, a level with a slip in it would be a target, and all else would be silent.
        let sound = |part: &str| part.contains('=') || part.parse::<LevelFilter>().is_ok();
        let sound = filter.split(',').all(|part| !part.is_empty() && sound(part));
        (sound && EnvFilter::builder().parse(filter).is_ok())
            .then(|| Self { filter: filter.to_owned() })
    }
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { filter: "info".into() }
    }
}

/// Logs to standard error from now on; the first call of a process counts.
///
/// What cannot be read in the filter is left out of it. Lines that cannot be written, since the disk
/// is full or the reader gone, are lost: nothing ends for them.
pub fn logging(config: &LogConfig) {
    let filter = EnvFilter::builder()
        .with_default_directive(LevelFilter::INFO.into())
        .parse_lossy(&config.filter);
    // It fails only if the process logs already.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(stderr)
        .with_ansi(stderr().is_terminal())
        // It would be said on standard error too, and panic when that fails.
        .log_internal_errors(false)
        .try_init();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_levels_and_targets_with_levels() {
        for sound in ["info", "off", "info,driver=debug", "rm=trace,media::worker=warn"] {
            assert_eq!(LogConfig::parse(sound), Some(LogConfig { filter: sound.into() }));
        }
        for faulty in ["", "debgu", "info,", "info,driver", "driver=loud", "="] {
            assert_eq!(LogConfig::parse(faulty), None, "{faulty}");
        }
    }
}

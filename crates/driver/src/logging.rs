//! Log lines on standard error.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::cell::Cell;
use std::io::{self, IsTerminal as _, stderr};
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};

use nix::sys::signal::{SigSet, SigmaskHow};
use tracing::{info, warn};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use crate::config::Table;
use crate::receipt::Receipt;
use lines::{Line, Lines};

mod lines;

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
/// What cannot be read in the filter is left out of it. Lines are written by a thread of their own:
/// nothing waits for who reads them, and nothing ends when they cannot be written. At most a megabyte
/// of them waits; what is lost is counted (`driver_log_lines_lost_total`) and told of as soon as lines
/// are written again. A panic is a line, too.
pub fn logging(config: &LogConfig) {
    let filter = EnvFilter::builder()
        .with_default_directive(LevelFilter::INFO.into())
        .parse_lossy(&config.filter);
    let started = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| Line(&LINES))
        .with_ansi(stderr().is_terminal())
        // It would be said on standard error too, and panic when that fails.
        .log_internal_errors(false)
        .try_init();
    // It fails only if the process logs already.
    if started.is_ok() && start_writing().is_ok() {
        panic::set_hook(Box::new(tell_panic));
    }
}

/// Waits until what was logged is written, half a second at most. The end of [`run`](crate::run()) does
/// it; a process that ends otherwise does it itself.
pub fn flush_log() {
    LINES.flush();
}

/// Logs a line for which somebody waits.
pub(crate) fn write_line(line: &str, receipt: Receipt) {
    lines::with_receipt(receipt, || info!(target: "journal", "{line}"));
}

/// Returns how many lines were lost, since nobody read them or they could not be written.
pub(crate) fn lines_lost() -> u64 {
    LINES.lost()
}

/// Writes words to standard error that are no event of the log, after those that are.
pub(crate) fn say(words: &str) {
    Line(&LINES).say(words);
    flush_log();
}

/// Runs what may panic on what it finds; that is no line of the log.
pub(crate) fn expecting_panics<T>(work: impl FnOnce() -> T) -> Option<T> {
    let before = EXPECTS_PANICS.replace(true);
    let done = panic::catch_unwind(AssertUnwindSafe(work));
    EXPECTS_PANICS.set(before);
    done.ok()
}

/// Starts the thread that writes lines. No signal ends it, and none is its to take: a file that may not
/// grow is an error like any other.
fn start_writing() -> io::Result<()> {
    let mask = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
    let write = || LINES.write(stderr(), |lines| warn!(lines, "lines of the log were lost"));
    let started = std::thread::Builder::new().name("log".into()).spawn(write);
    mask.thread_set_mask()?;
    started?;
    LINES.open();
    Ok(())
}

fn tell_panic(panic: &PanicHookInfo<'_>) {
    if EXPECTS_PANICS.get() {
        return;
    }
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("unnamed");
    let calls = Backtrace::capture();
    if calls.status() == BacktraceStatus::Captured {
        say(&format!("thread '{name}' {panic}\n{calls}"));
    } else {
        say(&format!("thread '{name}' {panic}"));
    }
}

static LINES: Lines = Lines::new();

thread_local! {
    static EXPECTS_PANICS: Cell<bool> = const { Cell::new(false) };
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

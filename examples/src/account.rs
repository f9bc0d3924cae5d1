//! What the example tells its user, while it runs and at the end.

use std::time::{Duration, Instant};

use serde::Serialize;

/// A readable account: on standard output, or on standard error beside JSON.
#[derive(Debug)]
pub struct Account {
    start: Instant,
    json: bool,
}

impl Account {
    /// Begins to count the time.
    pub fn new(json: bool) -> Self {
        Self { start: clock(), json }
    }

    /// Tells what has just happened.
    pub fn say(&self, text: &str) {
        let at = clock().saturating_duration_since(self.start).as_secs_f64();
        self.line(&format!("{at:7.2} s  {text}"));
    }

    /// Prints the table.
    pub fn table(&self, table: &str) {
        self.line("");
        self.line(table);
    }

    /// Prints the one JSON object.
    ///
    /// # Errors
    /// When it cannot be written as JSON.
    pub fn json(&self, report: &impl Serialize) -> anyhow::Result<()> {
        let text = serde_json::to_string(report)?;
        out(&text);
        Ok(())
    }

    fn line(&self, text: &str) {
        if self.json { err(text) } else { out(text) }
    }
}

#[expect(clippy::print_stdout, reason = "this is what the command is for")]
fn out(text: &str) {
    println!("{text}");
}

#[expect(clippy::print_stderr, reason = "standard output is for the JSON object")]
fn err(text: &str) {
    eprintln!("{text}");
}

/// The time; the phones' clock too.
#[expect(clippy::disallowed_methods, reason = "the example measures real processes")]
pub fn clock() -> Instant {
    Instant::now()
}

/// Waits.
#[expect(clippy::disallowed_methods, reason = "the example measures real processes")]
pub fn pause(span: Duration) {
    std::thread::sleep(span);
}

/// Waits until `at`.
pub fn pause_until(at: Instant) {
    pause(at.saturating_duration_since(clock()));
}

/// Asks every 10 ms until `done` says so or `span` is over; returns whether
/// it did.
pub fn wait_for(span: Duration, mut done: impl FnMut() -> bool) -> bool {
    let until = clock() + span;
    loop {
        if done() {
            return true;
        }
        if until <= clock() {
            return false;
        }
        pause(Duration::from_millis(10));
    }
}

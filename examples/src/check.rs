//! What must hold, and whether it did.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::figures::millis;

/// One target and what was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// What was measured.
    pub name: String,
    /// What came out.
    pub measured: String,
    /// What may come out at most, or must at least.
    pub limit: String,
    /// Whether it did.
    pub is_met: bool,
}

impl Check {
    /// Something must have happened within a time.
    pub fn within(name: &str, measured: Option<Duration>, limit: Duration) -> Self {
        Self {
            name: name.to_owned(),
            measured: measured
                .map_or_else(|| "none".to_owned(), |span| format!("{:.1} ms", millis(span))),
            limit: format!("{:.0} ms", millis(limit)),
            is_met: measured.is_some_and(|span| span <= limit),
        }
    }

    /// A count must not be above a limit.
    pub fn at_most(name: &str, measured: u64, limit: u64) -> Self {
        Self::compared(name, &measured, &limit, measured <= limit)
    }

    /// A count must not be below a limit.
    pub fn at_least(name: &str, measured: u64, limit: u64) -> Self {
        Self::compared(name, &measured, &limit, limit <= measured)
    }

    /// Two values, and whether they are as they must be.
    pub fn compared<T: fmt::Display>(name: &str, measured: &T, limit: &T, is_met: bool) -> Self {
        let (measured, limit) = (measured.to_string(), limit.to_string());
        Self { name: name.to_owned(), measured, limit, is_met }
    }
}

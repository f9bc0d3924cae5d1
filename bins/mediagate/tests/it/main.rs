//! The gateway as its peers see it.
#![expect(clippy::unwrap_used, reason = "the lint allows it only inside test functions")]

mod golden;
mod process;
mod simulated;

//! Models of the library's rules.

#![expect(clippy::unwrap_used, reason = "helpers of tests unwrap too")]

mod ownership;

//! What users of the crate see.

#![allow(missing_docs, reason = "tests")]

mod ladders;
mod losses;

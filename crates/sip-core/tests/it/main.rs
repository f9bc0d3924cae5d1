//! What users of the crate see.

#![allow(missing_docs, reason = "tests")]

mod ladders;
mod losses;
mod rfc4475;
mod rfc5118;
mod sample;

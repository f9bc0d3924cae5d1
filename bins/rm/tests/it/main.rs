//! What users of `holdline-rm` see, and the repository's own rules.

#![expect(clippy::unwrap_used, reason = "a test stops at what it did not foresee")]

mod cluster;
mod cluster_frames;
mod config;
mod frames;
mod limits;
mod process;
mod readme;
mod segments;
mod streams;
mod tidy;

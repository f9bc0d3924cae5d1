//! What users of `holdline-rm` see, and the repository's own rules.

mod cluster;
mod config;
mod frames;
mod process;
mod tidy;

//! What users of `holdline-rm` see, and the repository's own rules.

mod cluster;
mod process;
mod tidy;

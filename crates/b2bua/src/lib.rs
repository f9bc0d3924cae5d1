#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod frame;

pub use failover::{Flow, Transport};

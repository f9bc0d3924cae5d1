#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod identity;

pub use identity::{Boot, CallId, Clock, NodeId, UnixMs};

#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod flow;
mod identity;

pub use flow::{Flow, Transport};
pub use identity::{Boot, CallId, Clock, NodeId, UnixMs};

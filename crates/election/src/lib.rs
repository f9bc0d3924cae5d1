#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod identity;
pub mod message;
mod timing;

pub use identity::{Epoch, Life, Mandate, NodeId, Segment, Stored, segments, speakers};
pub use message::Frame;
pub use timing::{Timing, TimingError};

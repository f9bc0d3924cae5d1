#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod bully;
mod detector;
mod elector;
mod identity;
mod links;
pub mod message;
mod rival;
mod routes;
mod rules;
mod sites;
mod timing;

pub use elector::{Config, Elector, Input, Output};
pub use identity::{Epoch, Life, Mandate, NodeId, Segment, Speaker, Stored, segments};
pub use message::Frame;
pub use sites::Cold;
pub use timing::{Timing, TimingError};

#[cfg(test)]
mod tests;

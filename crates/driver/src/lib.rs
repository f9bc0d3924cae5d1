#![doc = include_str!("../README.md")]

pub mod codec;
pub mod frame;
mod metrics;
mod node;

pub use metrics::Metrics;
pub use node::{BindError, Class, Input, Node, NodeId, Output, SocketId, Start, StopReason};

//! The node and the configuration of `holdline-mediagate`.

mod config;
mod metrics;
mod node;
mod plant;

pub use config::{Config, Forwarding};
pub use node::Mediagate;

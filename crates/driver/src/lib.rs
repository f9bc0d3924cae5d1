#![doc = include_str!("../README.md")]

pub mod codec;
pub mod config;
pub mod frame;
pub mod golden;
pub mod http;
mod journal;
mod link;
mod logging;
mod metrics;
mod mmsg;
mod node;
pub mod notes;
pub mod numbers;
mod patience;
mod program;
mod queue;
mod receipt;
mod run;
pub mod sim;
mod sockets;
pub mod spool;
pub mod store;
mod stream;
mod sys;
pub mod tls;

pub use link::{Dial, LinksConfig, LinksError, Security};
pub use logging::{LogConfig, flush_log, logging};
pub use metrics::Metrics;
pub use node::{
    BindError, Body, Class, ConnectionId, Input, Node, NodeId, Output, Reply, Request, SocketId,
    Start, StopReason, Verb,
};
pub use program::{Apply, Program};
pub use run::{RunConfig, RunError, run};
pub use stream::StreamLimits;
pub use sys::realtime;

#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod admission;
mod b2b;
mod call;
mod changes;
mod config;
mod core;
pub mod frame;
pub mod gate;
mod graves;
mod io;
mod long;
mod message;
mod registrar;
mod routing;
mod sdp;
mod shortage;
pub mod slot;
mod timer;

pub use b2b::{B2b, Figures};
pub use config::{Config, Route, Trunk};
pub use core::Counters;
pub use failover::record::{Value, ValueRef};
pub use failover::replica::Key;
pub use failover::{Cause, Charge, Detail, Epoch, Flow, Latched, Place, Slot, Transport};
pub use io::{
    Event, Input, Listener, MediaCall, MediaCommand, MediaEvent, MediaLeg, NotPlaced, Output,
    Wanted,
};

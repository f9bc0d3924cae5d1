#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod config;
pub mod frame;
pub mod gate;
mod io;
pub mod slot;

pub use config::{Config, Route};
pub use failover::{Epoch, Flow, Latched, Place, Slot, Transport};
pub use io::{
    Cause, Detail, Event, Input, Listener, MediaCall, MediaCommand, MediaEvent, MediaLeg,
    NotPlaced, Output, Wanted,
};

#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod flow;
mod identity;
pub mod slots;

pub use flow::{Flow, Transport};
pub use identity::{Boot, CallId, Clock, NodeId, UnixMs};
pub use slots::{Epoch, Slot, SlotMap};
mod place;

pub use flow::{Flow, Transport};
pub use identity::{Boot, CallId, Clock, NodeId, UnixMs};
pub use place::{Latched, Place};

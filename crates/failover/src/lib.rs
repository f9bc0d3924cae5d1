#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod admission;
mod binding;
pub mod controller;
mod detail;
pub mod detector;
mod flow;
mod identity;
pub mod moves;
pub mod ownership;
pub mod pacing;
mod place;
pub mod pulse;
pub mod record;
pub mod replica;
pub mod slots;
mod tombstone;
pub mod verdicts;
pub mod voter;

pub use admission::{Admission, Charge};
pub use binding::{Aor, Binding};
pub use detail::{Cause, Detail};
pub use flow::{Flow, Transport};
pub use identity::{Boot, CallId, Clock, NodeId, UnixMs};
pub use place::{Latched, Place};
pub use record::CallRecord;
pub use slots::{Epoch, Slot, SlotMap, SlotSet};
pub use tombstone::{EndedLeg, Tombstone};

#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod cut;
mod ear;
mod fleet;
mod journal;
mod manners;
mod offer;
mod phone;
pub mod program;
mod random;
pub mod scenario;
pub mod seeds;
mod sip;
mod studio;
mod voice;

/// How values become bytes, for tests of crates that may not import `driver`.
pub use driver::codec;
pub use ear::{Ear, Heard, LATE};
pub use fleet::{Config, Fleet, Speech};
pub use journal::{Ended, Entry, Event, Fault, Journal, PhoneId, What};
pub use manners::{AnswersFrom, Incoming, Manners, Reinvite, SameVersion, SpeaksFrom};
pub use offer::{Codec, DIGITS, Direction, PCMA, PCMU};
pub use phone::{Command, State};
pub use studio::{Pace, Studio, StudioError, drops_at};
pub use voice::{PACKET_LEN, PERIOD};

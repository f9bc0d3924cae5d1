#![doc = include_str!("../README.md")]

pub mod beat;
mod frame;
mod latch;
mod lessee;
mod lessor;
mod network;
mod relay;
mod rtp;
mod sys;
mod watch;
mod worker;

pub use frame::{
    BLOCK_LEGS, BLOCK_PORTS, Block, CallId, Close, Command, Digest, DigestDiffers, FailReason,
    Failed, Frame, Inherit, Latched, LatchedSource, Lease, Leased, LegSpec, Missing, Notice, Open,
    Return, Silent, Sync, Update, Welcome,
};
pub use lessee::{Lessee, LesseeInput, LesseeOutput, Ports, QUARANTINE};
pub use lessor::{GONE_MAX, Lessor, LessorConfig, LessorInput, LessorOutput, Peer};
pub use network::{Network, NetworkError};
pub use relay::{Counters, Forward, Relay, RelayConfig, RelayOutput};
pub use sys::files_max;
pub use worker::{Full, WorkerCommand, WorkerFigures, Workers, WorkersConfig};

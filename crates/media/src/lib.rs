#![doc = include_str!("../README.md")]

pub mod beat;
mod frame;
mod lessee;

pub use frame::{
    BLOCK_LEGS, BLOCK_PORTS, Block, CallId, Close, Command, Digest, DigestDiffers, FailReason,
    Failed, Frame, Latched, LatchedSource, Lease, Leased, LegSpec, Missing, Notice, Open, Return,
    Silent, Sync, Update, Welcome,
};
pub use lessee::{Lessee, LesseeInput, LesseeOutput, Ports, QUARANTINE};

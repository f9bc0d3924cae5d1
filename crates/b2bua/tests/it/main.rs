//! The call machine as phones, gates and mediagates see it.

#![expect(clippy::unwrap_used, reason = "a test stops at what it did not foresee")]

mod admission;
mod calls;
mod chaos;
mod flows;
mod forks;
mod holds;
mod ladders;
mod long;
mod observer;
mod phone;
mod script;
mod storage;
mod survival;
mod takeover;
mod timers;
mod world;

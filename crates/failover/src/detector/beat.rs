//! What mediagates say of themselves.

use crate::{Boot, NodeId};

/// What a worker of a mediagate says 100 times a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beat {
    /// The gateway.
    pub gateway: NodeId,
    /// Its boot.
    pub boot: Boot,
    /// Which of its workers, from 0.
    pub worker: u16,
    /// How many workers it has.
    pub workers: u16,
    /// Counts the beats of this worker and wraps; a beat that another overtook is not heard.
    pub seq: u32,
    /// Whether the worker runs in a real-time class.
    pub realtime: bool,
    /// Whether the gateway wants new calls only when no other lives.
    pub standby: bool,
    /// Whether the gateway wants no new calls at all.
    pub draining: bool,
    /// Legs the gateway carries.
    pub legs: u32,
    /// Legs it can carry.
    pub legs_max: u32,
}

/// A gateway that takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Living {
    /// The gateway.
    pub gateway: NodeId,
    /// Its boot.
    pub boot: Boot,
    /// Whether it wants new calls only when no other lives.
    pub standby: bool,
    /// Whether it wants no new calls at all.
    pub draining: bool,
    /// Legs it carries.
    pub legs: u32,
    /// Legs it can carry.
    pub legs_max: u32,
}

//! Whole clusters in one thread, under a seed.

mod cold;
mod faults;
mod invariants;
mod left_out;
mod model;
mod random;
mod scenarios;
mod seeds;
mod world;

use std::time::Instant;

use crate::{NodeId, Segment};

pub(crate) fn node(segment: u16, rm: u8) -> NodeId {
    NodeId { segment: Segment(segment), rm }
}

#[expect(clippy::disallowed_methods, reason = "an origin for virtual time")]
pub(crate) fn origin() -> Instant {
    Instant::now()
}

//! What several tests share.

use std::time::Instant;

use crate::{NodeId, Segment};

pub(crate) fn node(segment: u16, rm: u8) -> NodeId {
    NodeId { segment: Segment(segment), rm }
}

#[expect(clippy::disallowed_methods, reason = "an origin for virtual time")]
pub(crate) fn origin() -> Instant {
    Instant::now()
}

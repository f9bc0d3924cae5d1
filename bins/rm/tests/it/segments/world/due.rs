//! What is to happen, in the order of time.

use std::cmp::{Ordering, Reverse};

use super::{Event, Ms};

/// An event, when it happens, and its number.
pub(super) struct Due {
    pub(super) at: Reverse<(Ms, u64)>,
    pub(super) event: Box<Event>,
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> Ordering {
        self.at.cmp(&other.at)
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl Eq for Due {}

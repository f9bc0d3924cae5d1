//! How a call was let in: what it counts against, and where.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// How a call was let in; all empty where nobody counts calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Admission {
    /// What it counts against in this segment, until it ends.
    pub charge: Option<Charge>,
    /// The call was sent on to another segment, which counts it: what that one is told, as the value
    /// of a header; empty otherwise.
    pub shared: Bytes,
}

/// What a call counts against.
///
/// It has names and no numbers, so that it outlives a change of the tenants.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Charge {
    /// The profile it counts at, and at every tenant above; a tenant for a call without a profile.
    pub profile: Bytes,
    /// The tenant of that profile, for who sends the bill.
    pub tenant: Bytes,
    /// It goes out to a gateway; otherwise it came in.
    pub outbound: bool,
    /// The highest burst level that it reached: 1, 2 or 3.
    pub level: u8,
    /// It was let in whatever the limits say, as emergency calls are.
    pub exempt: bool,
}

impl Admission {
    /// Returns whether there is nothing to keep.
    pub fn is_empty(&self) -> bool {
        self.charge.is_none() && self.shared.is_empty()
    }

    /// Returns about how many bytes it takes when it is written, never fewer.
    pub(crate) fn len_bound(&self) -> usize {
        let charge = self.charge.as_ref().map_or(0, Charge::len_bound);
        8 + charge + self.shared.len()
    }
}

impl Charge {
    /// Returns about how many bytes it takes when it is written, never fewer.
    pub(crate) fn len_bound(&self) -> usize {
        16 + self.profile.len() + self.tenant.len()
    }
}

//! What is left of an ended call.

use serde::{Deserialize, Serialize};

use crate::{CallId, Detail, Slot, UnixMs};

/// Answers the late messages of a call whose dialogs are over on both sides.
///
/// It holds numbers only once the call's detail is written down, so that many calls that end cost
/// little. Nothing is ever sent because of a tombstone but answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tombstone {
    /// The call that ended.
    pub call: CallId,
    /// Where it lived.
    pub slot: Slot,
    /// When it is forgotten.
    pub until: UnixMs,
    /// The caller's dialog, then the callee's.
    pub legs: [EndedLeg; 2],
    /// What is still to be written down of the call. Left out of the serialized form: see
    /// [`ValueRef::detail`](crate::record::ValueRef::detail).
    #[serde(skip)]
    pub detail: Option<Box<Detail>>,
}

/// A dialog that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedLeg {
    /// The random part of our tag.
    pub local_tag: u64,
    /// A hash of the Call-ID and the peer's tag: whose messages are answered.
    pub peer: u64,
}

//! What is written down of a call that ended.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{CallId, Charge, Slot, UnixMs};

/// The call detail record.
///
/// It stands in the [`CallRecord`](crate::CallRecord) of the ended call, or in its
/// [`Tombstone`](crate::Tombstone), until it was written down, so that the next owner does what this
/// one could not. It is written at least once: an owner that dies between the writing and the news of
/// it leaves a second copy, equal in every field. Who reads details drops those of a
/// [`call`](Self::call) that it has.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Detail {
    /// The slot it lived in.
    pub slot: Slot,
    /// The call: no two have the same.
    pub call: CallId,
    /// Call-ID of the caller's dialog.
    pub call_id: Bytes,
    /// The caller's address, as in its From.
    pub from: Bytes,
    /// The address called, as in the first Request-URI.
    pub to: Bytes,
    /// When the INVITE came.
    pub started_at: UnixMs,
    /// When the callee answered.
    pub answered_at: Option<UnixMs>,
    /// When the first message that ended it came or went.
    pub ended_at: UnixMs,
    /// What ended it.
    pub cause: Cause,
    /// How often its media moved to another gateway.
    pub moves: u16,
    /// What it counted against.
    pub charge: Option<Charge>,
}

/// What ended a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Cause {
    /// The caller hung up, before or after the answer.
    Caller,
    /// The callee hung up.
    Callee,
    /// The call was refused with this status.
    Refused(u16),
    /// Nobody answered in time.
    NoAnswer,
    /// It lasted as long as a call may.
    TooLong,
    /// A leg sent no RTP although it should.
    MediaTimeout,
    /// A leg's phone was gone: it knew the dialog no more or answered nothing.
    LegLost,
}

impl Detail {
    /// Returns about how many bytes it takes when it is written, never fewer.
    pub(crate) fn len_bound(&self) -> usize {
        let charge = self.charge.as_ref().map_or(0, Charge::len_bound);
        88 + self.call_id.len() + self.from.len() + self.to.len() + charge
    }
}

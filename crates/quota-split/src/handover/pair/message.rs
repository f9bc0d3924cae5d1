//! What the two nodes of a segment tell each other.

use serde::{Deserialize, Serialize};

use super::Denial;
use crate::handover::{Bases, MemberChange, MemberState};
use crate::{Admission, Call, CallId, Direction, Document, Full, NodeId, Refusal};

/// Between the two nodes of a segment, over a link that keeps the order. Nodes of the tree have names
/// here, since the two may have different documents for a while.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PairMessage {
    /// From the speaker: what to go on with in its stead.
    State {
        /// Rises with each state of one connection.
        serial: u64,
        /// The state.
        state: Box<MemberState>,
    },
    /// From the speaker, each period: the state of this number is still the last one.
    Current {
        /// The number.
        serial: u64,
    },
    /// The state of this number is held.
    Stored {
        /// The number.
        serial: u64,
    },
    /// The state that is current, or that would be gone on with, never came.
    Missing,
    /// To the speaker: counts this call.
    Ask {
        /// The call.
        call: Told,
        /// Whether it passes every limit.
        exempt: bool,
    },
    /// The speaker borrows a unit for this call; the answer follows.
    Waits {
        /// The call.
        call: u64,
    },
    /// What became of a call.
    Answer {
        /// The call.
        call: u64,
        /// Whether it is counted.
        verdict: Result<Granted, Denied>,
    },
    /// To the speaker: a call that was asked for has ended.
    Release {
        /// The call.
        call: u64,
    },
    /// From the speaker: say which calls the receiver carries.
    List,
    /// To the speaker: all calls that the sender carries, some at a time.
    Calls {
        /// The calls.
        calls: Vec<Told>,
        /// Whether these still wait for an answer: they count only if they are counted already.
        pending: bool,
        /// Whether these are the last ones.
        last: bool,
    },
    /// From a speaker that is about to leave, and lets nothing in meanwhile: speak in its place, with
    /// the state of this number.
    HandOver {
        /// The number.
        serial: u64,
    },
    /// To a speaker that wants to leave: the sender leaves, too.
    Declined,
    /// From the speaker: what is other than in the state of the number before.
    Change {
        /// The number of the state that this makes of it.
        serial: u64,
        /// What is other.
        change: MemberChange,
    },
    /// From the speaker, before the state that it belongs to: by which weights it tells majorities.
    Bases(Bases),
}

/// A call and where it counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// Its number.
    pub call: u64,
    /// The name of its profile, or of its tenant when it has none.
    pub node: String,
    /// Which way it goes.
    pub direction: Direction,
}

/// An [`Admission`] with names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Granted {
    /// The burst level.
    pub level: u8,
    /// The first node whose soft limit it passes.
    pub over: Option<String>,
    /// Whether it had been counted before.
    pub again: bool,
}

/// A [`Denial`] with names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Denied {
    /// As [`Refusal`].
    Full {
        /// The node that is full.
        node: String,
        /// What is full there.
        what: Full,
        /// The limit over all segments.
        limit: u32,
        /// The segment's part.
        share: u32,
        /// How much of it is used.
        used: u32,
        /// What the others were last known to use.
        elsewhere: Option<u32>,
    },
    /// Nobody can count it now.
    Unheard,
    /// The speaker's document has no such node.
    Unknown,
}

/// The calls of one list take no more bytes, unless it is a single one.
pub(super) const TOLD_LEN_MAX: usize = 64 << 10;

impl Told {
    /// Returns a number of bytes that it takes at the most, however it is written.
    pub(super) fn len_max(&self) -> usize {
        self.node.len() + 24
    }

    pub(super) fn new(document: &Document, call: Call) -> Self {
        let node = document.tree().node(call.node).name.clone();
        Self { call: call.id.0, node, direction: call.direction }
    }

    /// Returns the call in the terms of `document`; `None` where that lacks the node.
    pub(super) fn call(&self, document: &Document) -> Option<Call> {
        let node = document.tree().find(&self.node)?;
        Some(Call { id: CallId(self.call), node, direction: self.direction })
    }
}

/// Writes a verdict with names.
pub(super) fn told(
    document: &Document,
    verdict: Result<Admission, Denial>,
) -> Result<Granted, Denied> {
    let name = |node: NodeId| document.tree().node(node).name.clone();
    match verdict {
        Ok(Admission { level, over, again }) => Ok(Granted { level, over: over.map(name), again }),
        Err(Denial::Full(Refusal { node, what, limit, share, used, elsewhere })) => {
            Err(Denied::Full { node: name(node), what, limit, share, used, elsewhere })
        }
        Err(Denial::Unheard) => Err(Denied::Unheard),
        Err(Denial::Unknown) => Err(Denied::Unknown),
    }
}

/// Reads a verdict about `call`; a node that is not known here is taken for the call's own.
pub(super) fn heard(
    document: &Document,
    call: Call,
    verdict: Result<Granted, Denied>,
) -> Result<Admission, Denial> {
    let node = |name: &str| document.tree().find(name).unwrap_or(call.node);
    match verdict {
        Ok(Granted { level, over, again }) => {
            Ok(Admission { level, over: over.as_deref().map(node), again })
        }
        Err(Denied::Full { node: name, what, limit, share, used, elsewhere }) => {
            let node = node(&name);
            Err(Denial::Full(Refusal { node, what, limit, share, used, elsewhere }))
        }
        Err(Denied::Unheard) => Err(Denial::Unheard),
        Err(Denied::Unknown) => Err(Denial::Unknown),
    }
}

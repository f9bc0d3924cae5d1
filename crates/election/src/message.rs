//! What nodes send each other.
//!
//! Each struct is one kind of frame and is frozen once released: a changed shape is a new struct
//! under a new kind. [`Frame`] only says which kind it is and never travels itself.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::{Epoch, Life, Mandate, NodeId, Segment};

/// Nodes that one frame may name, and that one node may know. Frames that name more are ignored.
pub const NODES_MAX: usize = 256;

/// Link states in one frame; a longer list is sent in several.
pub const LINK_STATES_MAX: usize = 32;

/// One frame to or from a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// To every configured peer, each period and when the set of heard peers changes.
    Heartbeat(Heartbeat),
    /// Flooded when one changes; all of them to a neighbour that knows others.
    LinkStates(LinkStates),
    /// Asks whether somebody lower is there.
    Election(Addressed<Election>),
    /// Answers an election.
    Answer(Addressed<Answer>),
    /// Declares a coordinator.
    Victory(Addressed<Victory>),
    /// Refuses a victory.
    Nack(Addressed<Nack>),
}

/// The sender lives. Its id is that of the link on which this came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// The sender's life.
    pub life: Life,
    /// Counts the sender's heartbeats; a late one is ignored.
    pub seq: u64,
    /// The peers that the sender hears. A link is up only where both ends are heard.
    pub heard: BTreeSet<NodeId>,
    /// Digest of the link states that the sender knows.
    pub digest: u64,
}

/// What some nodes say about themselves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkStates(pub Vec<LinkState>);

/// What one node says about itself, told on by all.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LinkState {
    /// Who says it.
    pub origin: NodeId,
    /// In which life.
    pub life: Life,
    /// Counts what it said in this life.
    pub version: u64,
    /// Its links that are up.
    pub neighbours: BTreeSet<NodeId>,
    /// Whether it may win an election and be a member.
    pub electable: bool,
    /// The highest epoch it promised.
    pub promised: Option<Epoch>,
    /// The division that it leads, also while it campaigns for the next.
    pub leads: Option<Mandate>,
    /// The segments that get a share of what it leads, once it has decided that.
    pub shares: Option<BTreeSet<Segment>>,
    /// Set while it speaks for its segment: whoever of a segment has the greatest number does.
    pub turn: Option<u64>,
}

/// A message to one node, told on by those between when there is no link.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Addressed<T> {
    /// Who sent it, to whom.
    pub envelope: Envelope,
    /// What it says.
    pub body: T,
}

/// From whom to whom a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Envelope {
    /// The sender.
    pub origin: NodeId,
    /// The sender's life; messages of earlier lives are dropped.
    pub life: Life,
    /// Counts the sender's messages; one that was seen before is dropped.
    pub seq: u64,
    /// The receiver.
    pub to: NodeId,
}

/// The sender is a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Election {
    /// Names the campaign; the answer repeats it.
    pub nonce: u64,
}

/// What a candidate is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Answer {
    /// The campaign that is answered.
    pub nonce: u64,
    /// The highest epoch that the sender promised.
    pub promised: Option<Epoch>,
    /// Whether the sender stands before the candidate and may win itself.
    pub lower: bool,
}

/// The sender has won.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Victory(pub Mandate);

/// The sender has promised a higher epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Nack {
    /// The epoch that is refused.
    pub epoch: Epoch,
    /// The epoch that is promised.
    pub promised: Epoch,
}

/// Terms, starts and versions above this are not believed: a node that declared an epoch each millisecond
/// would take thousands of years to get there. Of one that was believed nobody could say more any more.
const TERM_MAX: u64 = 1 << 48;

impl Frame {
    /// Returns whether this names no more nodes, and no higher terms, than it may.
    pub(crate) fn is_sound(&self) -> bool {
        match self {
            Self::Heartbeat(beat) => beat.heard.len() <= NODES_MAX && beat.life.is_sound(),
            Self::LinkStates(LinkStates(states)) => {
                states.len() <= LINK_STATES_MAX && states.iter().all(LinkState::is_sound)
            }
            Self::Election(election) => election.envelope.life.is_sound(),
            Self::Answer(Addressed { envelope, body }) => {
                envelope.life.is_sound() && body.promised.is_none_or(Epoch::is_sound)
            }
            Self::Victory(Addressed { envelope, body: Victory(mandate) }) => {
                mandate.is_sound()
                    && mandate.epoch.coordinator == envelope.origin
                    && envelope.life.is_sound()
            }
            Self::Nack(Addressed { envelope, body: Nack { epoch, promised } }) => {
                envelope.life.is_sound() && epoch.is_sound() && promised.is_sound()
            }
        }
    }
}

impl LinkState {
    /// Returns what a node says before it has said anything.
    pub(crate) fn empty(origin: NodeId, life: Life) -> Self {
        Self {
            origin,
            life,
            version: 0,
            neighbours: BTreeSet::new(),
            electable: false,
            promised: None,
            leads: None,
            shares: None,
            turn: None,
        }
    }

    fn is_sound(&self) -> bool {
        let leads = self.leads.as_ref();
        self.life.is_sound()
            && self.version <= TERM_MAX
            && self.neighbours.len() <= NODES_MAX
            && self.shares.as_ref().is_none_or(|shares| shares.len() <= NODES_MAX)
            && self.turn.is_none_or(|turn| turn <= TERM_MAX)
            && self.promised.is_none_or(Epoch::is_sound)
            && leads.is_none_or(|leads| leads.is_sound() && leads.epoch.coordinator == self.origin)
    }
}

impl Mandate {
    fn is_sound(&self) -> bool {
        self.members.len() <= NODES_MAX && self.epoch.is_sound()
    }
}

impl Epoch {
    fn is_sound(self) -> bool {
        self.term <= TERM_MAX && self.life.is_sound()
    }
}

impl Life {
    fn is_sound(self) -> bool {
        self.incarnation <= TERM_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_could_say_more_than_is_not_believed() {
        let origin = NodeId { segment: Segment(1), rm: 1 };
        let life = |incarnation| Life { incarnation, instance: 1 };
        let says = |incarnation, version| {
            let state = LinkState { version, ..LinkState::empty(origin, life(incarnation)) };
            Frame::LinkStates(LinkStates(vec![state])).is_sound()
        };
        let beats = |incarnation| {
            let (heard, life) = (BTreeSet::new(), life(incarnation));
            Frame::Heartbeat(Heartbeat { life, seq: 1, heard, digest: 0 }).is_sound()
        };
        let refuses = |told, of| {
            let epoch = |life| Epoch { term: 1, coordinator: origin, life };
            let envelope = Envelope { origin, life: life(told), seq: 1, to: origin };
            let body = Nack { epoch: epoch(life(1)), promised: epoch(life(of)) };
            Frame::Nack(Addressed { envelope, body }).is_sound()
        };

        assert!(says(7, 9) && beats(7) && refuses(7, 7));
        assert!(!says(u64::MAX, 9), "a life that no later one could follow");
        assert!(!says(7, u64::MAX), "the last thing that it could ever say of itself");
        assert!(!beats(u64::MAX) && !refuses(u64::MAX, 7) && !refuses(7, u64::MAX));
    }
}

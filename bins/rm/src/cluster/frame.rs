//! What nodes of a cluster send each other, and what they keep on disk.

use bytes::Bytes;
use election::message::{Addressed, Answer, Election, Heartbeat, LinkStates, Nack, Victory};
use election::{NodeId, Stored};
use quota_split::handover::{PairMessage, Stamp, ToCoordinator, ToMember};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::frames::Frame;

/// One frame to or from another node of the cluster, over the link of class `Control`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterFrame {
    /// Of the election.
    Election(election::Frame),
    /// From a coordinator to a segment's speaker, told on by nodes between.
    ToMember(Routed<ToMember>),
    /// From a segment's speaker to a coordinator, told on by nodes between.
    ToCoordinator(Routed<ToCoordinator>),
    /// Between the two nodes of a segment.
    Pair(PairMessage),
}

/// A message that nodes between tell on where there is no link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Routed<T> {
    /// The sender.
    pub origin: NodeId,
    /// The receiver.
    pub to: NodeId,
    /// How often it may still be told on.
    pub hops: u8,
    /// What it says.
    pub body: T,
}

/// What a node must find again after a restart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// Of the election.
    pub election: Stored,
    /// The highest division that its segment promised, as far as it knew.
    pub promised: Option<Stamp>,
}

impl Frame for Heartbeat {
    const KIND: u16 = 0x0401;
}
impl Frame for LinkStates {
    const KIND: u16 = 0x0402;
}
impl Frame for Addressed<Election> {
    const KIND: u16 = 0x0403;
}
impl Frame for Addressed<Answer> {
    const KIND: u16 = 0x0404;
}
impl Frame for Addressed<Victory> {
    const KIND: u16 = 0x0405;
}
impl Frame for Addressed<Nack> {
    const KIND: u16 = 0x0406;
}
impl Frame for Routed<ToMember> {
    const KIND: u16 = 0x0411;
}
impl Frame for Routed<ToCoordinator> {
    const KIND: u16 = 0x0412;
}
impl Frame for PairMessage {
    const KIND: u16 = 0x0421;
}
impl Frame for Kept {
    const KIND: u16 = 0x0480;
}

impl ClusterFrame {
    /// Returns its kind and payload.
    pub fn encode(&self) -> (u16, Bytes) {
        fn of<F: Frame>(frame: &F) -> (u16, Bytes) {
            (F::KIND, driver::codec::encode(frame))
        }
        match self {
            Self::Election(election::Frame::Heartbeat(frame)) => of(frame),
            Self::Election(election::Frame::LinkStates(frame)) => of(frame),
            Self::Election(election::Frame::Election(frame)) => of(frame),
            Self::Election(election::Frame::Answer(frame)) => of(frame),
            Self::Election(election::Frame::Victory(frame)) => of(frame),
            Self::Election(election::Frame::Nack(frame)) => of(frame),
            Self::ToMember(frame) => of(frame),
            Self::ToCoordinator(frame) => of(frame),
            Self::Pair(frame) => of(frame),
        }
    }

    /// Reads a frame; `None` for another kind, or one that is malformed.
    pub fn decode(kind: u16, payload: &[u8]) -> Option<Self> {
        fn read<F: DeserializeOwned>(payload: &[u8]) -> Option<F> {
            driver::codec::decode(payload).ok()
        }
        use election::Frame as Of;
        Some(match kind {
            Heartbeat::KIND => Self::Election(Of::Heartbeat(read(payload)?)),
            LinkStates::KIND => Self::Election(Of::LinkStates(read(payload)?)),
            <Addressed<Election>>::KIND => Self::Election(Of::Election(read(payload)?)),
            <Addressed<Answer>>::KIND => Self::Election(Of::Answer(read(payload)?)),
            <Addressed<Victory>>::KIND => Self::Election(Of::Victory(read(payload)?)),
            <Addressed<Nack>>::KIND => Self::Election(Of::Nack(read(payload)?)),
            <Routed<ToMember>>::KIND => Self::ToMember(read(payload)?),
            <Routed<ToCoordinator>>::KIND => Self::ToCoordinator(read(payload)?),
            PairMessage::KIND => Self::Pair(read(payload)?),
            _ => return None,
        })
    }
}

impl Kept {
    pub(super) fn encode(&self) -> Bytes {
        [&Self::KIND.to_be_bytes(), &driver::codec::encode(self)[..]].concat().into()
    }

    /// Reads what [`encode`](Self::encode) wrote; `None` for anything else.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first_chunk()?;
        (u16::from_be_bytes(*kind) == Self::KIND)
            .then(|| driver::codec::decode(rest).ok())
            .flatten()
    }
}

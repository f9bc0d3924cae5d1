//! What nodes of a cluster send each other, and what they keep on disk.

use bytes::Bytes;
use election::message::{Addressed, Answer, Election, Heartbeat, LinkStates, Nack, Victory};
use election::{NodeId, Stored};
use quota_split::handover::{
    Ask, Bases, Grow, PairMessage, Promise, Stamp, ToCoordinator, ToMember,
};
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
    /// A part of one of these that is too long for a frame.
    Piece(Piece),
    /// How far such a one has come.
    Pieces(PiecesTaken),
}

/// A part of what is too long for one frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// What it is a part of.
    pub transfer: Transfer,
    /// The kind of the whole.
    pub kind: u16,
    /// The length of the whole, in bytes.
    pub len: u32,
    /// The digest of the whole.
    pub digest: u64,
    /// Where this part begins, in bytes.
    pub offset: u32,
    /// The part.
    pub bytes: Vec<u8>,
}

/// How much of something has come, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PiecesTaken {
    /// Of what.
    pub transfer: Transfer,
    /// In bytes.
    pub taken: u32,
}

/// The number of something that travels in pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transfer {
    /// Drawn at random for each start of the sender.
    pub life: u64,
    /// Rises within a life.
    pub number: u64,
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// Of the election.
    pub election: Stored,
    /// The highest division that its segment promised, as far as it knew.
    pub promised: Option<Stamp>,
    /// By which weights its segment told majorities, as far as it knew.
    pub bases: Bases,
}

/// What releases before [`Kept::bases`] wrote. They told majorities by the document that they had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptV1 {
    /// As in [`Kept`].
    pub election: Stored,
    /// As in [`Kept`].
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
impl Frame for Piece {
    const KIND: u16 = 0x0422;
}
impl Frame for PiecesTaken {
    const KIND: u16 = 0x0423;
}
impl Frame for KeptV1 {
    const KIND: u16 = 0x0480;
}
impl Frame for Kept {
    const KIND: u16 = 0x0481;
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
            Self::Piece(frame) => of(frame),
            Self::Pieces(frame) => of(frame),
        }
    }

    /// Returns a number of bytes that its payload does not pass, without writing it; zero for what is
    /// always short. Of what a pair says only a state may be long: nothing else may be overtaken.
    pub(super) fn len_max(&self) -> usize {
        const HEAD: usize = 256;
        const NUMBER: usize = 5;
        // A name has a length before it and at most three numbers behind it.
        let named = |name: &str| name.len() + 8 * NUMBER;
        let numbers = match self {
            Self::ToMember(Routed { body: ToMember::Prepare(prepare), .. }) => {
                let parts = 4 * NUMBER * prepare.recipe.parts.len();
                let column = prepare.column.as_ref().map_or(0, |column| {
                    let cells = column.cells.iter().map(|cell| named(&cell.node));
                    cells.chain(column.parts.iter().map(|part| named(&part.node))).sum()
                });
                return HEAD + parts + column;
            }
            Self::ToMember(Routed { body: ToMember::Grow(Grow { cells, .. }), .. })
            | Self::ToMember(Routed { body: ToMember::Elsewhere { cells, .. }, .. })
            | Self::ToCoordinator(Routed {
                body:
                    ToCoordinator::Promise(Promise { held: cells, .. })
                    | ToCoordinator::Ask(Ask { cells, .. }),
                ..
            }) => 2 * cells.len(),
            Self::ToCoordinator(Routed { body: ToCoordinator::Report(report), .. }) => {
                3 * report.cells.len()
            }
            Self::Pair(PairMessage::State { state, .. }) => state.numbers(),
            Self::ToMember(_)
            | Self::ToCoordinator(_)
            | Self::Pair(_)
            | Self::Election(_)
            | Self::Piece(_)
            | Self::Pieces(_) => return 0,
        };
        HEAD + NUMBER * numbers
    }

    /// Reads what came in pieces; `None` for what never does, or is malformed.
    pub(super) fn decode_long(kind: u16, payload: &[u8]) -> Option<Self> {
        fn read<F: DeserializeOwned>(payload: &[u8]) -> Option<F> {
            driver::codec::decode_long(payload).ok()
        }
        Some(match kind {
            <Routed<ToMember>>::KIND => Self::ToMember(read(payload)?),
            <Routed<ToCoordinator>>::KIND => Self::ToCoordinator(read(payload)?),
            PairMessage::KIND => Self::Pair(read(payload)?),
            _ => return None,
        })
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
            Piece::KIND => Self::Piece(read(payload)?),
            PiecesTaken::KIND => Self::Pieces(read(payload)?),
            _ => return None,
        })
    }
}

impl Kept {
    pub(super) fn encode(&self) -> Bytes {
        [&Self::KIND.to_be_bytes(), &driver::codec::encode(self)[..]].concat().into()
    }

    /// Reads what [`encode`](Self::encode) wrote, or a release before; `None` for anything else.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first_chunk()?;
        match u16::from_be_bytes(*kind) {
            Self::KIND => driver::codec::decode(rest).ok(),
            KeptV1::KIND => {
                driver::codec::decode(rest).ok().map(|KeptV1 { election, promised }| Self {
                    election,
                    promised,
                    bases: Bases::default(),
                })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_release_before_majorities_were_kept_has_written_is_found_again() {
        let election = Stored { incarnation: 4, promised: None };
        let before = KeptV1 { election, promised: Some(Stamp::default()) };
        let bytes = [&KeptV1::KIND.to_be_bytes(), &driver::codec::encode(&before)[..]].concat();

        let kept = Kept::decode(&bytes).unwrap();
        assert_eq!((kept.election, kept.promised), (before.election, before.promised));
        assert!(kept.bases.is_empty());
        assert_eq!(Kept::decode(&kept.encode()), Some(kept));
        assert_eq!(Kept::decode(&[4, 0x79, 0]), None);
    }

    /// Every look at a majority walks all of them.
    #[test]
    fn more_weights_than_are_ever_kept_are_not_read_from_a_partner_or_the_disk() {
        type Weights = Vec<Vec<(u32, u32)>>;
        let weights = |documents, segments| -> Weights {
            vec![(1..=segments).map(|id| (id, 100)).collect(); documents]
        };
        let (kind, empty) = ClusterFrame::Pair(PairMessage::Bases(Bases::default())).encode();
        let told = |weights: &Weights| {
            let bases = driver::codec::encode(&(weights, false, Some(7_u64)));
            ClusterFrame::decode(kind, &[&empty[..1], &bases[..]].concat())
        };
        let kept = |weights: &Weights| {
            let kept = (Stored::default(), None::<Stamp>, (weights, false, Some(7_u64)));
            Kept::decode(&[&Kept::KIND.to_be_bytes(), &driver::codec::encode(&kept)[..]].concat())
        };

        let most = weights(8, 256);
        let Some(ClusterFrame::Pair(PairMessage::Bases(bases))) = told(&most) else {
            panic!("so many are kept")
        };
        assert_eq!(bases.weights(), most);
        assert_eq!(kept(&most).unwrap().bases, bases);
        for more in [weights(9, 1), weights(1, 257)] {
            assert_eq!((told(&more), kept(&more)), (None, None));
        }
    }
}

//! What is too long for one frame travels in pieces: a column in words, or a pair's state, has a line for
//! every limit of the document.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;
use driver::codec::LONG_MAX;
use election::NodeId;
use quota_split::handover::{PairMessage, ToCoordinator, ToMember};

use super::document::digest;
use super::frame::{ClusterFrame, Piece, PiecesTaken, Transfer};

#[cfg(test)]
mod tests;

/// Frames on their way to and from each peer, piece by piece.
///
/// To each peer one is on its way at a time, so that no heartbeat waits behind more than [`WINDOW`]
/// pieces; one of the same matter that waits gives way to a newer one. What is lost is sent again for a
/// while, then it is dropped as on a bad network: everything that matters is repeated by who said it.
#[derive(Debug)]
pub(super) struct Pieces {
    /// The longest part of a frame.
    len: usize,
    life: u64,
    made: u64,
    leaving: BTreeMap<NodeId, Leaving>,
    coming: BTreeMap<NodeId, Coming>,
    /// To whom what must be sent.
    sends: VecDeque<(NodeId, ClusterFrame)>,
}

/// What a piece made whole.
#[derive(Debug)]
pub(super) enum Came {
    Nothing,
    Frame(ClusterFrame),
    /// What came is not what was sent, or nothing that travels so.
    Garbled,
}

#[derive(Debug)]
struct Leaving {
    frame: ClusterFrame,
    transfer: Transfer,
    kind: u16,
    digest: u64,
    bytes: Bytes,
    /// How much the peer has, and up to where it was sent.
    taken: usize,
    sent: usize,
    resend_at: Instant,
    tries: u32,
    waiting: VecDeque<ClusterFrame>,
}

#[derive(Debug)]
struct Coming {
    transfer: Transfer,
    bytes: Vec<u8>,
    done: bool,
}

/// The longest part of a frame that one frame carries, in bytes.
pub const PIECE_LEN: usize = 32 << 10;

/// Pieces that are sent before the first of them is known to have come.
const WINDOW: usize = 4;

/// What was sent and is not known to have come is sent again after this.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often the same is sent in vain.
const TRIES: u32 = 5;

/// Frames that wait for their turn to one peer.
const WAITING_MAX: usize = 16;

impl Pieces {
    /// `life` must be drawn at random for each start.
    pub(super) fn new(len: usize, life: u64) -> Self {
        let (leaving, coming) = (BTreeMap::new(), BTreeMap::new());
        Self { len, life, made: 0, leaving, coming, sends: VecDeque::new() }
    }

    /// Returns what to send at once, whole; nothing where it goes in pieces.
    pub(super) fn send(
        &mut self,
        now: Instant,
        to: NodeId,
        frame: ClusterFrame,
    ) -> Option<ClusterFrame> {
        if matches!(frame, ClusterFrame::Pair(PairMessage::Current { .. })) {
            // Not before the peer has what that says is current.
            let here = |leaving: &Leaving| {
                let frames = [&leaving.frame].into_iter().chain(&leaving.waiting);
                frames.into_iter().any(is_state)
            };
            return (!self.leaving.get(&to).is_some_and(here)).then_some(frame);
        }
        let whole_max = WINDOW * self.len;
        if frame.len_max() <= whole_max {
            return Some(frame);
        }
        if let Some(leaving) = self.leaving.get_mut(&to) {
            leaving.wait(frame);
            return None;
        }
        let (kind, bytes) = frame.encode();
        if bytes.len() <= whole_max {
            return Some(frame);
        }
        self.begin(now, to, frame, kind, bytes, VecDeque::new());
        None
    }

    /// Takes in a piece.
    pub(super) fn take(&mut self, from: NodeId, piece: Piece) -> Came {
        let Piece { transfer, kind, len, digest: of_all, offset, bytes } = piece;
        let (len, offset) = (len as usize, offset as usize);
        let sound = !bytes.is_empty() && bytes.len() <= PIECE_LEN && len <= LONG_MAX;
        if !sound || len < offset + bytes.len() {
            return Came::Garbled;
        }
        let coming = self.coming.get(&from);
        let older = coming.is_some_and(|coming| transfer.is_before(coming.transfer));
        if older {
            return Came::Nothing;
        }
        if coming.is_none_or(|coming| coming.transfer != transfer) {
            let coming = Coming { transfer, bytes: Vec::new(), done: false };
            self.coming.insert(from, coming);
        }
        let Some(coming) = self.coming.get_mut(&from) else { return Came::Nothing };
        if !coming.done && offset == coming.bytes.len() {
            coming.bytes.extend_from_slice(&bytes);
        }
        let whole = !coming.done && coming.bytes.len() == len;
        let taken = if coming.done { len } else { coming.bytes.len() };
        let taken = PiecesTaken { transfer, taken: u32::try_from(taken).unwrap_or(u32::MAX) };
        self.sends.push_back((from, ClusterFrame::Pieces(taken)));
        if !whole {
            return Came::Nothing;
        }
        coming.done = true;
        let bytes = std::mem::take(&mut coming.bytes);
        let frame =
            if digest(&bytes) == of_all { ClusterFrame::decode_long(kind, &bytes) } else { None };
        frame.map_or(Came::Garbled, Came::Frame)
    }

    /// Takes in how much a peer has.
    pub(super) fn taken(&mut self, now: Instant, from: NodeId, taken: PiecesTaken) {
        let Some(leaving) = self.leaving.get_mut(&from) else { return };
        let PiecesTaken { transfer, taken } = taken;
        let taken = taken as usize;
        if transfer != leaving.transfer || leaving.bytes.len() < taken || taken == leaving.taken {
            return;
        }
        if taken == leaving.bytes.len() {
            return self.next(now, from);
        }
        if taken < leaving.taken && taken != 0 {
            return;
        }
        // A peer that has nothing has lost what it had.
        (leaving.taken, leaving.tries) = (taken, if taken == 0 { leaving.tries } else { 0 });
        leaving.sent = if taken == 0 { 0 } else { leaving.sent.max(taken) };
        leaving.resend_at = now + PATIENCE;
        self.push(from);
    }

    /// The link to a peer has ended, and what was on its way with it.
    pub(super) fn unlink(&mut self, peer: NodeId) {
        self.leaving.remove(&peer);
        self.coming.remove(&peer);
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        let late = self.leaving.iter().filter(|(_, leaving)| leaving.resend_at <= now);
        let late: Vec<NodeId> = late.map(|(to, _)| *to).collect();
        for to in late {
            let Some(leaving) = self.leaving.get_mut(&to) else { continue };
            leaving.tries += 1;
            if TRIES <= leaving.tries {
                self.next(now, to);
                continue;
            }
            leaving.sent = leaving.taken;
            leaving.resend_at = now + PATIENCE;
            self.push(to);
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.leaving.values().map(|leaving| leaving.resend_at).min()
    }

    pub(super) fn poll_send(&mut self) -> Option<(NodeId, ClusterFrame)> {
        self.sends.pop_front()
    }

    /// Goes on with what waits.
    fn next(&mut self, now: Instant, to: NodeId) {
        let Some(mut last) = self.leaving.remove(&to) else { return };
        while let Some(frame) = last.waiting.pop_front() {
            let (kind, bytes) = frame.encode();
            if WINDOW * self.len < bytes.len() {
                return self.begin(now, to, frame, kind, bytes, last.waiting);
            }
            self.sends.push_back((to, frame));
        }
    }

    fn begin(
        &mut self,
        now: Instant,
        to: NodeId,
        frame: ClusterFrame,
        kind: u16,
        bytes: Bytes,
        waiting: VecDeque<ClusterFrame>,
    ) {
        if LONG_MAX < bytes.len() {
            // No document is so long that this could be.
            return;
        }
        self.made += 1;
        let transfer = Transfer { life: self.life, number: self.made };
        let (digest, resend_at) = (digest(&bytes), now + PATIENCE);
        let (taken, sent, tries) = (0, 0, 0);
        self.leaving.insert(
            to,
            Leaving {
                frame,
                transfer,
                kind,
                digest,
                bytes,
                taken,
                sent,
                resend_at,
                tries,
                waiting,
            },
        );
        self.push(to);
    }

    /// Sends as much as may be on its way.
    fn push(&mut self, to: NodeId) {
        let Some(leaving) = self.leaving.get_mut(&to) else { return };
        let until = (leaving.taken + WINDOW * self.len).min(leaving.bytes.len());
        while leaving.sent < until {
            let end = (leaving.sent + self.len).min(until);
            let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
            let piece = Piece {
                transfer: leaving.transfer,
                kind: leaving.kind,
                len: number(leaving.bytes.len()),
                digest: leaving.digest,
                offset: number(leaving.sent),
                bytes: leaving.bytes[leaving.sent..end].to_vec(),
            };
            leaving.sent = end;
            self.sends.push_back((to, ClusterFrame::Piece(piece)));
        }
    }
}

impl Leaving {
    fn wait(&mut self, frame: ClusterFrame) {
        if self.waiting.is_empty() && self.frame == frame {
            return;
        }
        let same = |other: &&mut ClusterFrame| is_of_matter(other, &frame);
        if let Some(older) = self.waiting.iter_mut().find(same) {
            *older = frame;
        } else if self.waiting.len() < WAITING_MAX {
            self.waiting.push_back(frame);
        }
    }
}

impl Transfer {
    /// Returns whether it was begun earlier, as far as that can be told.
    fn is_before(self, other: Self) -> bool {
        self.life == other.life && self.number < other.number
    }
}

fn is_state(frame: &ClusterFrame) -> bool {
    matches!(frame, ClusterFrame::Pair(PairMessage::State { .. }))
}

/// Returns whether who has the newer one needs the older no more.
fn is_of_matter(older: &ClusterFrame, newer: &ClusterFrame) -> bool {
    match (older, newer) {
        (ClusterFrame::ToMember(a), ClusterFrame::ToMember(b)) => {
            let grows = matches!((&a.body, &b.body), (ToMember::Grow(_), ToMember::Grow(_)));
            let asks = matches!((&a.body, &b.body), (ToMember::Prepare(_), ToMember::Prepare(_)));
            (a.origin, a.to) == (b.origin, b.to) && (grows || asks)
        }
        (ClusterFrame::ToCoordinator(a), ClusterFrame::ToCoordinator(b)) => {
            let same = matches!(
                (&a.body, &b.body),
                (ToCoordinator::Promise(_), ToCoordinator::Promise(_))
            );
            (a.origin, a.to) == (b.origin, b.to) && same
        }
        (a, b) => is_state(a) && is_state(b),
    }
}

//! The record of a call: all that another process needs to go on with it.

mod session;
mod times;

use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sip_core::dialog::Dialog;

use crate::moves::Move;
use crate::{
    Admission, Binding, CallId, Detail, Epoch, Flow, Latched, Place, Slot, Tombstone, UnixMs,
};

pub use session::{Session, Side, Terms};

/// One call of two legs. The call machine holds this value and nothing that does not follow from it.
///
/// Deadlines are wall-clock times, so that a rebuild restarts none. Transactions other than INVITE
/// are not here: the peer's own retransmission carries its request over a rebuild, and ours is sent
/// anew.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CallRecord {
    /// Names the call between our nodes.
    pub call: CallId,
    /// Where the call lives; its tags and branches say the same.
    pub slot: Slot,
    /// The epoch of the slot in which the record was last written.
    pub epoch: Epoch,
    /// How far the call has come.
    pub phase: Phase,
    /// When the INVITE came.
    pub started_at: UnixMs,
    /// When the callee answered.
    pub answered_at: Option<UnixMs>,
    /// The end of ringing, or of the longest time a call may last.
    pub ends_at: UnixMs,
    /// The Request-URI of the caller's INVITE.
    pub called: Bytes,
    /// The Max-Forwards of the INVITEs to the callee.
    pub max_forwards: u8,
    /// The caller's leg, then the callee's.
    pub legs: [Leg; 2],
    /// Where the call may go when the present target fails.
    pub targets: Vec<Target>,
    /// Where the media is.
    pub holder: Option<Place>,
    /// Where the media goes when the holder dies.
    pub standby: Option<Place>,
    /// How often the media moved.
    pub moves: u16,
    /// How the call was let in. The serialized form leaves it out, since it is frozen: who writes a
    /// record keeps [`ValueRef::admission`] beside it.
    #[serde(skip)]
    pub admission: Admission,
    /// What is to be written down of the call that ended; `None` before, and once that was done. Left
    /// out of the serialized form too: see [`ValueRef::detail`].
    #[serde(skip)]
    pub detail: Option<Box<Detail>>,
    /// Where else the callee is rung. Left out of the serialized form too: see [`ValueRef::fork`].
    #[serde(skip)]
    pub fork: Option<Box<Fork>>,
}

/// A callee that is rung at several places at once. The leg itself stands for one of them, and for the one
/// that has accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Fork {
    /// The others; of those that lost, until they have said so.
    pub branches: Vec<Branch>,
    /// The best refusal so far (RFC 3261 §16.7); 0 before the first.
    pub refused: u16,
}

/// One more place at which a callee is rung, with the Call-ID, tag and offer of the leg.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Branch {
    /// The INVITE that went there; its CSeq is no other's of the leg.
    pub invite: ClientInvite,
    /// Where that is.
    pub target: Target,
    /// Our address there.
    pub contact: SocketAddr,
}

/// How far a call has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Phase {
    /// Ports are asked for; nothing was said to the callee.
    Placing,
    /// The callee is being called.
    Calling,
    /// The callee has answered.
    Talking,
    /// The call has ended. What is kept answers late requests and finishes what is open.
    Ended {
        /// When the record is forgotten.
        until: UnixMs,
    },
}

/// Where an INVITE may go.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Target {
    /// The Request-URI.
    pub uri: Bytes,
    /// The Route headers, each in angle brackets.
    pub routes: Vec<Bytes>,
    /// The way there.
    pub flow: Flow,
    /// A registered phone, not a trunk.
    pub registered: bool,
}

/// One party of a call.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Leg {
    /// The SIP dialog. The callee's has no remote tag before its answer.
    pub dialog: Dialog,
    /// How the dialog stands.
    pub state: LegState,
    /// The way to the phone.
    pub flow: Flow,
    /// Our address there: in Contact, Via and o=.
    pub contact: SocketAddr,
    /// A registered phone, not a trunk.
    pub registered: bool,
    /// We made the Call-ID.
    pub owns_call_id: bool,
    /// No request had a higher CSeq yet. A rebuild goes on above it, so a number is never used twice
    /// although not each of them is stored.
    pub cseq_ceiling: u32,
    /// Our RTP address towards the phone at the newest holder, living or not.
    pub rtp: Option<SocketAddr>,
    /// What the phone knows of our SDP.
    pub identity: SdpIdentity,
    /// The last SDP of the phone that took effect; empty before the first.
    pub received: Bytes,
    /// Who sends, as the phone itself wants it: what the other side's holds do not let it say in
    /// [`Leg::received`] is kept from before.
    pub wish: Direction,
    /// The last SDP sent to the phone that took effect.
    pub agreed: Option<SentSdp>,
    /// An offer of the phone that has no answer yet; empty when there is none.
    pub offer_in: Bytes,
    /// An offer to the phone that has no answer yet.
    pub offer_out: Option<SentSdp>,
    /// The phone may not know what the other side knows: an exchange was cut off, or the record is old.
    pub resync: bool,
    /// INVITEs of the phone that are not answered and acknowledged.
    pub incoming: Vec<ServerInvite>,
    /// INVITEs to the phone that are not over.
    pub outgoing: Vec<ClientInvite>,
    /// Tags of other branches of a fork that answered too late and were ended.
    pub shed: Vec<Bytes>,
    /// The tag that an SDP in a provisional answer came with.
    pub early_tag: Bytes,
    /// How far the phone has followed its media.
    pub moving: Move,
    /// The source of the phone's media.
    pub latched: Option<Latched>,
    /// The session timer. Left out of the serialized form, since that is frozen: see
    /// [`ValueRef::sessions`].
    #[serde(skip)]
    pub session: Session,
}

/// How the dialog of a leg stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LegState {
    /// Not answered.
    Early,
    /// Answered.
    Confirmed,
    /// Our BYE is on its way. A rebuild sends it anew.
    Leaving,
    /// Nothing more is said on this dialog.
    Gone,
}

/// The o= line of all SDP that a leg is sent: only the version changes, and only with the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SdpIdentity {
    /// The session id.
    pub id: u64,
    /// The address that stands there for the life of the leg.
    pub address: IpAddr,
    /// The version of the last SDP sent.
    pub version: u64,
    /// A hash of the last SDP sent; 0 before the first.
    pub digest: u64,
}

/// An SDP sent to a leg, stored as edits of one that was received.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SentSdp {
    /// What was edited.
    pub base: Base,
    /// Our RTP address in it.
    pub address: SocketAddr,
    /// The formats left in the audio line, as numbers; empty when all were.
    pub formats: Vec<u8>,
    /// The direction, where it is not that of the base.
    pub direction: Option<Direction>,
    /// The version in its o= line.
    pub version: u64,
}

/// The SDP that was edited.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Base {
    /// The other leg's [`Leg::received`].
    Peer,
    /// The other leg's [`Leg::offer_in`].
    PeerOffer,
    /// One that no leg holds any more.
    Own(Bytes),
}

/// Who sends, as the party says it that the SDP comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Direction {
    /// Both ways.
    #[default]
    SendRecv,
    /// From it only.
    SendOnly,
    /// To it only.
    RecvOnly,
    /// Nobody.
    Inactive,
}

/// An INVITE of a phone: what its answers need.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ServerInvite {
    /// Its CSeq number.
    pub cseq: u32,
    /// Its Via values.
    pub vias: Vec<Bytes>,
    /// Its Record-Route values.
    pub record_routes: Vec<Bytes>,
    /// Where its newest copy came from.
    pub flow: Flow,
    /// When it came.
    pub came_at: UnixMs,
    /// It is the caller's first one: its To had no tag.
    pub initial: bool,
    /// It carried an offer; otherwise our 2xx does, and the ACK the answer.
    pub offered: bool,
    /// It was sent on to the other leg.
    pub relayed: bool,
    /// What was answered.
    pub state: ServerState,
}

/// What an INVITE of a phone was answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ServerState {
    /// Nothing, or a provisional answer.
    Proceeding {
        /// The last one; 0 for none.
        status: u16,
        /// It carried the leg's agreed SDP.
        sdp: bool,
    },
    /// A 2xx that waits for its ACK.
    Accepted {
        /// When the ACK counts as lost.
        until: UnixMs,
    },
    /// A refusal that waits for its ACK.
    Refused {
        /// Its status.
        status: u16,
        /// Its Retry-After in seconds.
        retry_after: Option<u32>,
        /// When the ACK counts as lost.
        until: UnixMs,
    },
}

/// An INVITE to a phone: what its ACK, its CANCEL and its retransmission need.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ClientInvite {
    /// Its CSeq number.
    pub cseq: u32,
    /// The random part of its branch.
    pub branch: u64,
    /// Why it was sent.
    pub purpose: Purpose,
    /// When it was sent.
    pub sent_at: UnixMs,
    /// It carried [`Leg::offer_out`]; otherwise the 2xx carries the offer, and our ACK the answer.
    pub offered: bool,
    /// What came back.
    pub state: ClientState,
    /// When it is cancelled if it is still open.
    pub cancel_at: Option<UnixMs>,
    /// Our CANCEL went out, or goes with the first provisional answer.
    pub cancelled: bool,
}

/// Why an INVITE was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Purpose {
    /// To call the callee.
    Call,
    /// To pass on what the other leg asked for.
    Relay,
    /// To tell a new media address.
    Move,
}

/// What came back for an INVITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ClientState {
    /// Nothing yet.
    Calling,
    /// A provisional answer.
    Proceeding,
    /// A 2xx.
    Accepted {
        /// Until when copies of it may come.
        until: UnixMs,
        /// The ACK went out.
        acked: bool,
    },
}

/// What is kept for a slot outside the process that owns it: at its standby, and on disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Value {
    /// A call that is not over.
    Call(Box<CallRecord>),
    /// What is left of one that is.
    Ended(Tombstone),
    /// The contacts of an address of record.
    Bindings(Vec<Binding>),
}

impl Value {
    /// Returns the same value, borrowed.
    pub fn as_ref(&self) -> ValueRef<'_> {
        match self {
            Self::Call(record) => ValueRef::Call(record),
            Self::Ended(stone) => ValueRef::Ended(stone),
            Self::Bindings(bindings) => ValueRef::Bindings(bindings),
        }
    }

    /// Puts back what was kept beside the serialized form.
    #[must_use]
    pub fn with_detail(mut self, detail: Detail) -> Self {
        match &mut self {
            Self::Call(record) => record.detail = Some(Box::new(detail)),
            Self::Ended(stone) => stone.detail = Some(Box::new(detail)),
            Self::Bindings(_) => {}
        }
        self
    }

    /// Puts back what was kept beside the serialized form.
    #[must_use]
    pub fn with_fork(mut self, fork: Fork) -> Self {
        if let Self::Call(record) = &mut self {
            record.fork = Some(Box::new(fork));
        }
        self
    }

    /// Puts back what was kept beside the serialized form.
    #[must_use]
    pub fn with_admission(mut self, admission: Admission) -> Self {
        if let Self::Call(record) = &mut self {
            record.admission = admission;
        }
        self
    }
}

/// A [`Value`] where it lies, to be written without a copy: its bytes are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum ValueRef<'a> {
    /// A call that is not over.
    Call(&'a CallRecord),
    /// What is left of one that is.
    Ended(&'a Tombstone),
    /// The contacts of an address of record.
    Bindings(&'a [Binding]),
}

impl<'a> ValueRef<'a> {
    /// Returns how the call was let in, where there is something to keep: the serialized form has it
    /// not.
    pub fn admission(self) -> Option<&'a Admission> {
        match self {
            Self::Call(record) => Some(&record.admission).filter(|admission| !admission.is_empty()),
            Self::Ended(_) | Self::Bindings(_) => None,
        }
    }

    /// Returns where else a callee is rung: the serialized form has it not.
    pub fn fork(self) -> Option<&'a Fork> {
        match self {
            Self::Call(record) => record.fork.as_deref(),
            Self::Ended(_) | Self::Bindings(_) => None,
        }
    }

    /// Returns what is still to be written down of a call that ended: the serialized form has it not.
    pub fn detail(self) -> Option<&'a Detail> {
        match self {
            Self::Call(record) => record.detail.as_deref(),
            Self::Ended(stone) => stone.detail.as_deref(),
            Self::Bindings(_) => None,
        }
    }
}

/// A longer record is kept nowhere else: its call is served, and lost with its process.
pub const RECORD_LEN_MAX: usize = 32 * 1024;

impl CallRecord {
    /// Returns about how many bytes the record takes when it is written, never fewer.
    pub fn len_bound(&self) -> usize {
        let targets: usize = self.targets.iter().map(Target::len_bound).sum();
        let legs: usize = self.legs.iter().map(Leg::len_bound).sum();
        let detail = self.detail.as_ref().map_or(0, |detail| detail.len_bound());
        let branches = self.fork.iter().flat_map(|fork| &fork.branches);
        let fork: usize = branches.map(|branch| 96 + branch.target.len_bound()).sum();
        256 + self.called.len() + targets + legs + self.admission.len_bound() + detail + fork
    }

    /// Returns the callee's leg as it is on a branch.
    pub fn leg_on(&self, branch: &Branch) -> Leg {
        let mut leg = self.legs[1].clone();
        leg.place(branch.target.clone(), branch.contact);
        leg
    }

    /// Returns whether the call has ended.
    pub fn is_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended { .. })
    }

    /// Returns the SDP that `sent`, which went to `leg`, was made of.
    pub fn base<'a>(&'a self, leg: usize, sent: &'a SentSdp) -> &'a Bytes {
        match &sent.base {
            Base::Peer => &self.legs[1 - leg].received,
            Base::PeerOffer => &self.legs[1 - leg].offer_in,
            Base::Own(bytes) => bytes,
        }
    }

    /// Has both phones asked whether they still have the call: it may have ended or changed without
    /// this record. An INVITE that repeats what they agreed on asks it (RFC 3261 §14.1). Its CSeq is
    /// above any that was used meanwhile.
    pub fn doubt(&mut self) {
        for leg in &mut self.legs {
            leg.resync |= leg.state == LegState::Confirmed;
            let used = leg.cseq_ceiling.max(leg.dialog.local_cseq);
            leg.cseq_ceiling = used.saturating_add(CSEQS_UNKNOWN);
        }
    }

    /// Returns whether `leg` was told another media address than where its media is.
    pub fn is_stale(&self, leg: usize) -> bool {
        let Some(holder) = self.holder else { return false };
        let told = self.legs[leg].agreed.as_ref();
        self.legs[leg].resync || told.is_some_and(|told| told.address != holder.rtp(leg))
    }
}

/// No leg uses so many CSeq numbers while nobody keeps its record.
const CSEQS_UNKNOWN: u32 = 1000;

/// What the length of a byte string takes at most.
const LEN: usize = 5;

fn len_of(strings: &[Bytes]) -> usize {
    strings.iter().map(|string| LEN + string.len()).sum()
}

impl Target {
    fn len_bound(&self) -> usize {
        64 + self.uri.len() + len_of(&self.routes)
    }
}

impl SentSdp {
    fn len_bound(&self) -> usize {
        let base = match &self.base {
            Base::Peer | Base::PeerOffer => 0,
            Base::Own(bytes) => bytes.len(),
        };
        48 + base + self.formats.len()
    }
}

impl Leg {
    /// Puts a leg that is not answered at another place; returns where it was.
    pub fn place(&mut self, target: Target, contact: SocketAddr) -> (Target, SocketAddr) {
        let Target { uri, routes, flow, registered } = target;
        let dialog = &mut self.dialog;
        // RFC 3261 §12.1.2.
        dialog.secure = uri.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"sips:"));
        let before = Target {
            uri: std::mem::replace(&mut dialog.remote_target, uri),
            routes: std::mem::replace(&mut dialog.route_set, routes),
            flow: std::mem::replace(&mut self.flow, flow),
            registered: std::mem::replace(&mut self.registered, registered),
        };
        (before, std::mem::replace(&mut self.contact, contact))
    }

    fn len_bound(&self) -> usize {
        let dialog = &self.dialog;
        let names = [&dialog.call_id, &dialog.local_tag, &dialog.remote_tag, &dialog.local];
        let dialog_len: usize = names.iter().map(|name| name.len()).sum::<usize>()
            + dialog.remote.len()
            + dialog.remote_target.len()
            + len_of(&dialog.route_set);
        let sdps = self.received.len() + self.offer_in.len();
        let sent = [&self.agreed, &self.offer_out];
        let sent: usize = sent.into_iter().flatten().map(SentSdp::len_bound).sum();
        let incoming = self
            .incoming
            .iter()
            .map(|invite| 128 + len_of(&invite.vias) + len_of(&invite.record_routes));
        560 + dialog_len
            + sdps
            + sent
            + incoming.sum::<usize>()
            + 64 * self.outgoing.len()
            + len_of(&self.shed)
            + self.early_tag.len()
    }

    /// Returns whether RFC 3261 §14.1 lets us send an INVITE on the leg's dialog: no INVITE
    /// transaction of either direction is open, and no 2xx lacks its ACK.
    pub fn is_free(&self) -> bool {
        self.incoming.is_empty()
            && self.outgoing.iter().all(|invite| match invite.state {
                ClientState::Calling | ClientState::Proceeding => false,
                ClientState::Accepted { acked, .. } => acked,
            })
    }
}

impl Direction {
    /// Returns who sends, given whether the party does and whether it wants to receive.
    pub fn new(sends: bool, receives: bool) -> Self {
        match (sends, receives) {
            (true, true) => Self::SendRecv,
            (true, false) => Self::SendOnly,
            (false, true) => Self::RecvOnly,
            (false, false) => Self::Inactive,
        }
    }

    /// Returns whether the party sends.
    pub fn sends(self) -> bool {
        matches!(self, Self::SendRecv | Self::SendOnly)
    }

    /// Returns whether the party wants to receive.
    pub fn receives(self) -> bool {
        matches!(self, Self::SendRecv | Self::RecvOnly)
    }

    /// Returns the same as the other party says it.
    #[must_use]
    pub fn mirrored(self) -> Self {
        Self::new(self.receives(), self.sends())
    }

    /// Returns the direction after an answer of the same party to an offer that let it choose what
    /// `allowed` has: the rest it could not say.
    #[must_use]
    pub fn answered(self, allowed: Self, answer: Self) -> Self {
        let sends = if allowed.sends() { answer.sends() } else { self.sends() };
        let receives = if allowed.receives() { answer.receives() } else { self.receives() };
        Self::new(sends, receives)
    }

    /// Returns what both directions allow.
    #[must_use]
    pub fn narrowed(self, other: Self) -> Self {
        Self::new(self.sends() && other.sends(), self.receives() && other.receives())
    }
}

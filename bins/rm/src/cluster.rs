//! Many segments as one: routes between the election, the division of limits and the pair.
//!
//! Every node of a cluster has a [`Cluster`]. It says who coordinates, what part of each limit this
//! segment has, and lets calls in. The rules stand in the crates `election` and `quota-split`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use election::{Elector, Mandate, NodeId, Segment, Speaker};
use quota_split::handover::{
    self, Bases, Coordinator, CoordinatorInput, Denial, Pair, PairConfig, PairInput, Stamp,
};
use quota_split::{Admission, Call, CallId, Document, Drift, Refusal, SegmentId};

pub use document::{Claim, ClusterDocument, SegmentPlan};
pub use documents::Documents;
pub use frame::{ClusterFrame, Kept, KeptV1, Piece, PiecesTaken, Routed, Transfer};
pub use pieces::PIECE_LEN;
pub use plan::{Plan, Share};
pub use usage::UsageEvent;
#[cfg(test)]
pub(crate) use view::MADE;
pub use view::{ClusterView, CounterView, SegmentView, TenantView};

use disk::Disk;
use pieces::Pieces;
use usage::Usage;

mod disk;
pub mod document;
pub mod documents;
mod frame;
mod pieces;
mod plan;
mod settle;
mod usage;
mod view;

/// One node's part in a cluster of segments.
pub struct Cluster {
    config: Config,
    plan: Arc<Plan>,
    elector: Elector,
    coordinator: Coordinator,
    pair: Pair,
    disk: Disk<(NodeId, handover::ToCoordinator)>,
    found: Kept,
    speakers: BTreeMap<Segment, Speaker>,
    present: BTreeSet<NodeId>,
    linked: BTreeSet<NodeId>,
    /// The division that is led or followed, and the segments that get a share of it.
    followed: Option<(Mandate, BTreeSet<Segment>)>,
    /// Since when.
    followed_at: Instant,
    /// Who speaks for each of its members, `None` where nobody does: whoever speaks next costs a division.
    divided_for: Vec<Option<Speaker>>,
    /// Who said that its segment takes no new calls any more.
    draining: BTreeMap<Segment, Speaker>,
    passive: bool,
    withdrawn: bool,
    /// The last refusal at each node.
    refusals: BTreeMap<quota_split::NodeId, Refusal>,
    usage: Usage,
    pieces: Pieces,
    alarms: BTreeSet<Alarm>,
    /// Whether [`Output::NeedLive`] waits for its answer. Nothing goes on before: a call that is let in
    /// now would be missing there.
    counting: bool,
    outputs: VecDeque<Output>,
    /// When something is due: asked far more often than it changes.
    due_at: Option<Instant>,
}

/// Who this node is, and with whom it talks.
#[derive(Clone, Debug)]
pub struct Config {
    /// This node: its segment and its number there.
    pub id: NodeId,
    /// Every other node of the cluster.
    pub peers: BTreeSet<NodeId>,
    /// How long elections take; the same at every node.
    pub timing: election::Timing,
    /// How long divisions take; the same at every node.
    pub handover: handover::Timing,
    /// The longest part of a frame that is sent at once, in bytes; at most, and usually,
    /// [`PIECE_LEN`]. What is more than four times as long travels in pieces.
    pub piece_len: usize,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// The link to a peer came up or went down. Frames of one connection never arrive on the next.
    Link {
        /// The peer.
        node: NodeId,
        /// Whether it is up.
        up: bool,
    },
    /// A frame came on the link to a peer.
    Frame {
        /// Whose link it is.
        from: NodeId,
        /// What came.
        frame: ClusterFrame,
    },
    /// What [`Output::Persist`] of this number asked for, and all before it, is on disk.
    Persisted(u64),
    /// The cluster has another plan. Nodes of its tree have other numbers from now on.
    Plan(Arc<Plan>),
    /// Another number of nodes: every node but this one.
    Peers(BTreeSet<NodeId>),
    /// Wants a call let in; [`Output::Decided`] follows.
    Admit {
        /// The call, by a number that no other call of the segment has.
        call: Call,
        /// Whether it passes every limit (emergency).
        exempt: bool,
    },
    /// A call has ended, whatever ended it, decided or not. No decision about it follows.
    Release(CallId),
    /// The answer to [`Output::NeedLive`].
    Live(Vec<Call>),
    /// The partner can send no SIP any more, proven by the gates that gave its slots to this node:
    /// this node speaks for the segment, sooner than the partner's silence would tell.
    Fenced,
    /// This node is about to leave: its partner shall speak for the segment, as soon as it can. Where
    /// there is none the segment gets no share any more.
    Leave,
    /// An operator wants the counters compared with the calls that live.
    Audit,
    /// Some of what [`Output::Usage`] told is lost: a node that counts begins again to tell it.
    UsageLost,
}

/// What it asks of its owner, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Write this to disk, durably, in the place of what is there, then answer with
    /// [`Input::Persisted`]. Much waits for it, heartbeats included; decisions about calls do not.
    Persist {
        /// The number to answer with.
        serial: u64,
        /// What [`Cluster::new`] is given at the next start.
        bytes: Bytes,
    },
    /// Send a frame to a peer; one that cannot be sent now is dropped.
    Send {
        /// The peer.
        to: NodeId,
        /// The frame.
        frame: ClusterFrame,
    },
    /// A call is decided.
    Decided {
        /// The call.
        call: CallId,
        /// How it is let in, or why it is not.
        verdict: Result<Admission, Why>,
    },
    /// Answer at once, before any other input, with [`Input::Live`]: all calls of this node that were
    /// let in, those in set-up included. Nothing else comes out before.
    NeedLive {
        /// Whether calls count too that this node only holds copies of.
        copied: bool,
    },
    /// Whether this segment is passive: it refuses or forwards every new call.
    Passive(bool),
    /// Every member of a division that this node leads has promised it.
    Divided {
        /// Its number.
        stamp: Stamp,
        /// Its members.
        members: BTreeSet<Segment>,
    },
    /// An operator must know; once for each cause.
    Alarm(Alarm),
    /// Counters were wrong and have been set right.
    Drifted(Vec<Drift>),
    /// The use of a counter has changed, or who counts.
    Usage(UsageEvent),
}

/// Why a call is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Why {
    /// It does not fit into a limit.
    #[error(transparent)]
    Full(Refusal),
    /// The segment is passive: its calls belong elsewhere.
    #[error("this segment is passive")]
    Passive,
    /// The node that counts the segment's calls does not answer, or is not known.
    #[error("nobody counts the calls of this segment now")]
    Unheard,
    /// The node that counts the segment's calls has another document.
    #[error("the speaker of this segment has another document, without this profile")]
    Unknown,
    /// Another process has this node's id and the better right to it.
    #[error("another process has the id of this node")]
    Withdrawn,
    /// This process counts no call any more, and ends after the last one.
    #[error("this node drains")]
    Drains,
}

/// What an operator must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Alarm {
    /// This segment has another document than the coordinator, which sends it its shares in words.
    DocumentDiffers(Segment),
    /// This segment computed other shares from the same document.
    DigestDiffers(Segment),
    /// The weights of all members that get a share are zero: those get equal parts.
    WeightsZero,
    /// Another living process has this node's id; whether this one has withdrawn for good.
    Duplicate {
        /// Whether it has.
        withdrawn: bool,
    },
    /// The partner is gone or does not hold the segment's state.
    Alone,
    /// No coordinator was heard for a lease: limits under a weight majority are closed.
    Lapsed,
    /// What the disk held could not be read.
    Unreadable,
    /// A frame named a sender, a receiver or a division that it cannot be about.
    Misdirected(NodeId),
    /// What came in pieces from this node is not what it sent.
    Garbled(NodeId),
    /// This node says again what belongs to a division that is over since long, or somebody on the way
    /// does. It was not taken in.
    Stale(NodeId),
}

impl Cluster {
    /// Starts a life. `kept` is what the last [`Output::Persist`] of the life before wrote, `None` if
    /// there was none. `instance` must be drawn at random for each start.
    pub fn new(
        config: Config,
        plan: Arc<Plan>,
        kept: Option<&[u8]>,
        instance: u128,
        now: Instant,
    ) -> Self {
        let Config { id, timing, handover, .. } = config;
        let found = kept.map(Kept::decode);
        let is_unreadable = found == Some(None);
        let kept = found.flatten();
        let elector = Elector::new(
            election::Config { id, peers: config.peers.clone(), cold: plan.cold(), timing },
            kept.as_ref().map(|kept| kept.election),
            instance,
            now,
        );
        let pair = PairConfig {
            segment: SegmentId(u32::from(id.segment.0)),
            paired: config.partner().is_some(),
            timing: handover,
            period: timing.period(),
            patience: 2 * (timing.silence() + timing.period()),
            answer: ANSWER,
        };
        let promised = kept.as_ref().and_then(|kept| kept.promised);
        let kept = kept.unwrap_or_default();
        let [low, life] = seeds(instance);
        let mut cluster = Self {
            elector,
            coordinator: Coordinator::new(handover, plan.eager, Arc::clone(&plan.division)),
            pair: Pair::new(pair, Arc::clone(&plan.division), promised, low),
            disk: Disk::new(Kept { promised, bases: kept.bases.clone(), ..Kept::default() }),
            found: kept,
            speakers: BTreeMap::new(),
            present: BTreeSet::new(),
            linked: BTreeSet::new(),
            followed: None,
            followed_at: now,
            divided_for: Vec::new(),
            draining: BTreeMap::new(),
            passive: plan.is_cold(id.segment),
            withdrawn: false,
            refusals: BTreeMap::new(),
            usage: Usage::default(),
            pieces: Pieces::new(config.piece_len.clamp(1, PIECE_LEN), life),
            alarms: BTreeSet::new(),
            counting: false,
            outputs: VecDeque::new(),
            due_at: None,
            config,
            plan,
        };
        cluster.pair.bind(cluster.found.bases.clone());
        cluster.begin_bases();
        cluster.outputs.push_back(Output::Passive(cluster.passive));
        if is_unreadable {
            cluster.alarm(Alarm::Unreadable);
        }
        cluster.settle(now);
        cluster
    }

    /// Takes in what happened at `now`.
    pub fn handle_input(&mut self, now: Instant, input: Input) {
        match input {
            Input::Link { node, up } => {
                if up {
                    self.linked.insert(node);
                } else {
                    self.linked.remove(&node);
                }
                self.pieces.unlink(node);
                self.look_at_partner(now);
            }
            Input::Frame { from, frame } => self.receive(now, from, frame),
            Input::Persisted(serial) => {
                if let Some(serial) = self.disk.persisted(serial) {
                    self.elector.handle_input(now, election::Input::Persisted(serial));
                }
            }
            Input::Plan(plan) => self.set_plan(now, plan),
            Input::Peers(peers) => {
                let before = std::mem::replace(&mut self.config.peers, peers);
                self.look_for_partner(now, &before);
                self.configure(now);
            }
            Input::Admit { call, exempt } => self.admit(now, call, exempt),
            Input::Release(call) => {
                self.note_end(now, call);
                self.pair.release(now, call);
            }
            Input::Live(calls) => {
                self.counting = false;
                self.pair.handle_input(now, PairInput::Live(calls));
            }
            Input::Fenced => {
                // Both may have counted, apart from each other.
                self.begin_usage(now);
                self.elector.handle_input(now, election::Input::Fenced);
            }
            Input::Leave => self.pair.handle_input(now, PairInput::Leave),
            Input::Audit => self.pair.handle_input(now, PairInput::Audit),
            Input::UsageLost => self.begin_usage(now),
        }
        self.settle(now);
    }

    /// Does whatever is due at `now`; does nothing when nothing is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.due_at.is_none_or(|due_at| now < due_at) {
            return;
        }
        self.elector.handle_timeout(now);
        self.coordinator.handle_timeout(now);
        self.pair.handle_timeout(now);
        self.pieces.handle_timeout(now);
        let events = self.usage.take(now, self.pair.member());
        self.outputs.extend(events.into_iter().map(Output::Usage));
        self.settle(now);
    }

    /// Returns the next thing to do. Drain until `None` after every other call.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) is next needed.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.due_at
    }

    /// Returns whether this node counts the calls of its segment while its partner could.
    pub fn holds_part(&self) -> bool {
        let linked = self.config.partner().is_some_and(|partner| self.linked.contains(&partner));
        linked && self.pair.member().is_some()
    }

    fn admit(&mut self, now: Instant, call: Call, exempt: bool) {
        let why = match () {
            () if self.withdrawn => Why::Withdrawn,
            () if self.passive && !exempt => Why::Passive,
            () => return self.pair.request(now, call, exempt),
        };
        self.outputs.push_back(Output::Decided { call: call.id, verdict: Err(why) });
    }

    fn set_plan(&mut self, now: Instant, plan: Arc<Plan>) {
        let document: Arc<Document> = Arc::clone(&plan.division);
        self.plan = plan;
        self.begin_bases();
        self.flush_usage();
        self.refusals.clear();
        self.alarms.clear();
        let told =
            CoordinatorInput::Document { document: Arc::clone(&document), eager: self.plan.eager };
        self.coordinator.handle_input(now, told);
        self.pair.handle_input(now, PairInput::Document(document));
        self.configure(now);
        self.look_at_shares();
        self.lead_again(now);
    }

    /// Who has nothing else tells majorities by its first document.
    fn begin_bases(&mut self) {
        if self.pair.bases().is_empty() && !self.plan.segments.is_empty() {
            self.pair.bind(Bases::new(self.plan.usual()));
        }
    }

    fn configure(&mut self, now: Instant) {
        let (peers, cold) = (self.config.peers.clone(), self.plan.cold());
        self.elector.handle_input(now, election::Input::Configured { peers, cold });
    }

    /// Notes the use of what a call counts at that is about to count no more.
    fn note_end(&mut self, now: Instant, call: CallId) {
        if let (Some(member), Some(call)) = (self.pair.member(), self.pair.call(call)) {
            self.usage.note(now, member, call);
        }
    }

    /// Tells all that counts anew, while this node counts.
    fn begin_usage(&mut self, now: Instant) {
        if let Some(member) = self.pair.member() {
            self.usage.begin(now, member);
        }
    }

    fn flush_usage(&mut self) {
        let events = self.usage.flush(self.pair.member());
        self.outputs.extend(events.into_iter().map(Output::Usage));
    }

    /// Files may name the other node of this segment later, or no longer.
    fn look_for_partner(&mut self, now: Instant, before: &BTreeSet<NodeId>) {
        let partner = self.config.partner();
        if partner != self.config.partner_among(before) {
            self.pair.handle_input(now, PairInput::Paired(false));
            self.pair.handle_input(now, PairInput::Paired(partner.is_some()));
            self.look_at_partner(now);
        }
    }

    fn look_at_partner(&mut self, now: Instant) {
        let Some(partner) = self.config.partner() else { return };
        let linked = self.linked.contains(&partner);
        let present = self.present.contains(&partner);
        self.pair.handle_input(now, PairInput::Other { linked, present });
    }

    fn alarm(&mut self, alarm: Alarm) {
        if self.alarms.insert(alarm) {
            self.outputs.push_back(Output::Alarm(alarm));
        }
    }
}

impl Config {
    /// Returns the other node of this segment.
    fn partner(&self) -> Option<NodeId> {
        self.partner_among(&self.peers)
    }

    fn partner_among(&self, peers: &BTreeSet<NodeId>) -> Option<NodeId> {
        peers.iter().copied().find(|peer| peer.segment == self.id.segment)
    }
}

impl From<handover::Alarm> for Alarm {
    fn from(alarm: handover::Alarm) -> Self {
        let segment = |id: SegmentId| Segment(u16::try_from(id.0).unwrap_or(u16::MAX));
        match alarm {
            handover::Alarm::DocumentDiffers(id) => Self::DocumentDiffers(segment(id)),
            handover::Alarm::DigestDiffers(id) => Self::DigestDiffers(segment(id)),
            handover::Alarm::WeightsZero => Self::WeightsZero,
        }
    }
}

impl From<Denial> for Why {
    fn from(denial: Denial) -> Self {
        match denial {
            Denial::Full(refusal) => Self::Full(refusal),
            Denial::Unknown => Self::Unknown,
            Denial::Unheard | _ => Self::Unheard,
        }
    }
}

fn seeds(instance: u128) -> [u64; 2] {
    let bytes = instance.to_le_bytes();
    let half =
        |at: usize| bytes[at..at + 8].iter().fold(0, |value, byte| value << 8 | u64::from(*byte));
    [half(0), half(8)]
}

/// How long a call waits for the answer of the segment's other node.
const ANSWER: Duration = Duration::from_millis(150);

//! This process as a node of a cluster of segments: it knows the document, asks whether calls may be,
//! and where else they may go.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use b2bua::Input;
use driver::notes::{Found, Notes};
use driver::{Class, Output, Reply, Start};
use election::Segment;
use failover::{CallId, NodeId};
use quota_split::handover::Timing;
use quota_split::{Call, Document, Method, Tree};
use serde_json::json;
use tracing::{error, info, warn};

use crate::b2b_role::B2bRole;
use crate::cluster::documents::{self, DocumentFrame, Documents, Reader};
use crate::cluster::{self, Alarm, Claim, Cluster, ClusterDocument, ClusterFrame, Plan};
use crate::config::{ClusterConfig, Config};
use admission::Asked;
use usage::UsageSpool;

mod admission;
mod api;
pub(crate) use api::nothing;
mod figures;
mod usage;

/// The names of the small files in the folder of the store.
pub(crate) const NOTES: [&str; 2] = [PROMISED, DOCUMENT];
const PROMISED: &str = "promised";
const DOCUMENT: &str = "document";

/// The node of the cluster that this process is.
pub(crate) struct Membership {
    own: election::NodeId,
    /// Every node of the cluster that this one has a link to.
    members: BTreeMap<NodeId, election::NodeId>,
    pub(crate) cluster: Cluster,
    documents: Documents,
    reader: Reader,
    notes: Option<Notes>,
    /// What this node's own file says of it.
    claim: OwnClaim,
    /// The routes of this node's own file, which come before those of the document.
    routes: Vec<b2bua::Route>,
    /// Calls about which nothing is decided.
    asks: BTreeMap<CallId, Asked>,
    passive: bool,
    /// Where changes of use go; nowhere in a simulation.
    usage: Option<UsageSpool>,
    /// The wall clock at an instant.
    wall: (Instant, u64),
    /// The segments that take calls, as of then.
    takers: Option<(Instant, BTreeSet<Segment>)>,
    /// When refusals that anybody can bring about are told of again, by what they are for.
    complaints: BTreeMap<&'static str, Instant>,
    /// Takeovers of slots that the cluster was told of.
    takeovers: u64,
    /// Until when this process, which leaves, waits for its partner to speak for the segment.
    waits_until: Option<Instant>,
    counters: Counters,
}

/// What this node's own file says of it.
#[derive(Debug)]
struct OwnClaim {
    node: NodeId,
    site: String,
    advertised: Vec<SocketAddr>,
}

/// Counts since the start.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    admitted: u64,
    /// Refusals by what was violated.
    refused: BTreeMap<&'static str, u64>,
    /// Calls sent on to another segment.
    shared: u64,
    alarms: BTreeMap<&'static str, u64>,
    drifts: u64,
}

impl Counters {
    fn alarm(&mut self, name: &'static str) {
        *self.alarms.entry(name).or_default() += 1;
    }
}

impl Membership {
    /// Returns the node that `config` describes, with what an earlier life of it wrote.
    pub(crate) fn new(
        config: &Config,
        part: &ClusterConfig,
        start: &Start,
        notes: Option<(Notes, Found)>,
    ) -> Self {
        let (notes, found) =
            notes.map_or((None, Found::new()), |(notes, found)| (Some(notes), found));
        let stored = found.get(DOCUMENT).map(|bytes| &bytes[..]);
        let first = part.document.as_deref().cloned();
        let members: BTreeMap<NodeId, election::NodeId> =
            config.peers.iter().filter_map(|peer| Some((peer.node, peer.member?))).collect();
        let who = documents::Config {
            node: config.node,
            id: part.id,
            site: part.site.clone(),
            members: members.clone(),
        };
        let documents = Documents::new(who, stored, first);
        let settings = cluster::Config {
            id: part.id,
            peers: members.values().copied().collect(),
            timing: part.timing,
            handover: Timing::WAN,
            piece_len: cluster::PIECE_LEN,
        };
        let plan = documents.current().map_or_else(no_plan, |document| Plan::from(&**document));
        let instance = u128::from(start.seed) << 64 | u128::from(start.boot);
        let kept = found.get(PROMISED).map(|bytes| &bytes[..]);
        let cluster = Cluster::new(settings, Arc::new(plan), kept, instance, start.instant);
        let on_disk = notes.as_ref().is_some_and(|notes| !notes.is_simulated());
        let reader = Reader::new(on_disk.then(|| start.waker.clone()));
        if notes.is_none() {
            warn!("nothing that this node promises outlives it: it has no store");
        }
        let claim = OwnClaim {
            node: config.node,
            site: part.site.clone(),
            advertised: config.listeners.iter().map(|one| one.advertise).collect(),
        };
        let membership = Self {
            own: part.id,
            members,
            cluster,
            documents,
            reader,
            notes,
            claim,
            routes: config.b2b.routes.clone(),
            asks: BTreeMap::new(),
            passive: false,
            usage: config
                .store
                .as_deref()
                .filter(|_| on_disk)
                .and_then(|folder| usage::open(start.instant, folder, part.id, start.boot)),
            wall: (start.instant, start.unix_ms),
            takers: None,
            complaints: BTreeMap::new(),
            takeovers: 0,
            waits_until: None,
            counters: Counters::default(),
        };
        if let Some(document) = membership.documents.current() {
            membership.compare(document);
        }
        membership
    }

    /// Says what in a document does not fit this node's own file, or is probably not meant.
    fn compare(&self, document: &ClusterDocument) {
        for misfit in self.misfits(document) {
            warn!(version = document.version, "{misfit}");
        }
        for warning in &document.warnings {
            warn!(version = document.version, line = warning.line, "{}", warning.text);
        }
    }

    /// Returns what in a document does not fit this node's own file.
    fn misfits(&self, document: &ClusterDocument) -> Vec<String> {
        let peers: Vec<_> = self.members.iter().map(|(peer, member)| (*peer, *member)).collect();
        let OwnClaim { node, site, advertised } = &self.claim;
        let (id, node, peers) = (self.own, *node, &peers[..]);
        document.misfits(&Claim { id, node, site, advertised, peers })
    }

    /// Returns where calls go to who is not registered.
    pub(crate) fn routes(&self) -> Vec<b2bua::Route> {
        let shared = self.documents.current().map(|document| document.routes_of(self.own.segment));
        self.routes.iter().cloned().chain(shared.unwrap_or_default()).collect()
    }

    /// The control link to a peer came up or went down.
    pub(crate) fn link(&mut self, now: Instant, peer: NodeId, up: bool) {
        let Some(&node) = self.members.get(&peer) else { return };
        self.documents.handle_input(now, documents::Input::Link { peer, up });
        self.cluster.handle_input(now, cluster::Input::Link { node, up });
    }

    /// A frame came from a peer.
    pub(crate) fn frame(
        &mut self,
        now: Instant,
        peer: NodeId,
        kind: u16,
        payload: &[u8],
    ) -> Option<()> {
        let from = *self.members.get(&peer)?;
        if let Some(frame) = DocumentFrame::decode(kind, payload) {
            self.documents.handle_input(now, documents::Input::Frame { peer, frame });
        } else {
            let frame = ClusterFrame::decode(kind, payload)?;
            self.cluster.handle_input(now, cluster::Input::Frame { from, frame });
        }
        Some(())
    }

    /// A call ended, or needs no decision any more.
    pub(crate) fn release(&mut self, now: Instant, call: CallId) {
        self.asks.remove(&call);
        let call = quota_split::CallId(call.0);
        self.cluster.handle_input(now, cluster::Input::Release(call));
    }

    /// Slots of another b2b are ours: it has sent its last message. `takeovers` is how often that was.
    pub(crate) fn took_over(&mut self, now: Instant, takeovers: u64) {
        if self.takeovers < takeovers {
            self.takeovers = takeovers;
            self.cluster.handle_input(now, cluster::Input::Fenced);
        }
    }

    /// This process drains.
    pub(crate) fn leave(&mut self, now: Instant) {
        self.waits_until.get_or_insert(now + LEAVES_WITHIN);
        self.cluster.handle_input(now, cluster::Input::Leave);
    }

    /// Returns whether nothing of the segment is lost when this process ends.
    pub(crate) fn may_leave(&self) -> bool {
        !self.cluster.holds_part() || self.waits_until.is_none()
    }

    /// Calls came back with their records: they are counted if they are not.
    pub(crate) fn audit(&mut self, now: Instant) {
        self.cluster.handle_input(now, cluster::Input::Audit);
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.documents.handle_timeout(now);
        if self.usage.as_mut().is_some_and(|usage| usage.has_lost(now)) {
            self.cluster.handle_input(now, cluster::Input::UsageLost);
        }
        self.cluster.handle_timeout(now);
        if self.waits_until.is_some_and(|until| until <= now) {
            self.waits_until = None;
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let usage = self.usage.as_ref().map(UsageSpool::poll_timeout);
        let at =
            [self.documents.poll_timeout(), self.cluster.poll_timeout(), self.waits_until, usage];
        at.into_iter().flatten().min()
    }

    /// Carries out what the machines ask for; returns whether there was anything.
    pub(crate) fn drain(
        &mut self,
        now: Instant,
        role: &mut B2bRole,
        out: &mut VecDeque<Output>,
    ) -> bool {
        let mut busy = false;
        while let Some((name, serial)) = self.notes.as_mut().and_then(Notes::poll) {
            busy = true;
            self.written(now, name, serial);
        }
        while let Some(read) = self.reader.poll() {
            busy = true;
            self.documents.handle_input(now, read);
        }
        while let Some(output) = self.documents.poll_output() {
            busy = true;
            self.carry_document(now, output, role, out);
        }
        while let Some(output) = self.cluster.poll_output() {
            busy = true;
            self.carry(now, output, role, out);
        }
        busy
    }

    fn written(&mut self, now: Instant, name: &str, serial: u64) {
        if name == DOCUMENT {
            self.documents.handle_input(now, documents::Input::Persisted(serial));
        } else {
            self.cluster.handle_input(now, cluster::Input::Persisted(serial));
        }
    }

    /// Without a store everything is as if it were written: who has none was told so.
    fn write(&mut self, now: Instant, name: &'static str, serial: u64, bytes: bytes::Bytes) {
        match &mut self.notes {
            Some(notes) => notes.write(name, serial, bytes),
            None => self.written(now, name, serial),
        }
    }

    fn carry_document(
        &mut self,
        now: Instant,
        output: documents::Output,
        role: &mut B2bRole,
        out: &mut VecDeque<Output>,
    ) {
        use documents::Output as From;
        match output {
            From::Send { peer, frame } => out.push_back(send(peer, frame.encode())),
            From::Read { serial, bytes } => self.reader.read(serial, bytes),
            From::Persist { serial, bytes } => self.write(now, DOCUMENT, serial, bytes),
            From::Document(document) => {
                info!(version = document.version, "the cluster has this document from now on");
                role.b2b.handle_input(now, Input::Routes(self.routes()));
                self.compare(&document);
                // What has been decided is about nodes as they were numbered until now.
                while let Some(output) = self.cluster.poll_output() {
                    self.carry(now, output, role, out);
                }
                let plan = Arc::new(Plan::from(&*document));
                self.asks.values_mut().for_each(|asked| asked.move_to(&document));
                self.cluster.handle_input(now, cluster::Input::Plan(plan));
            }
            From::Answered { id, answer } => {
                let reply = match answer {
                    Ok(version) => {
                        let misfits = |document: &ClusterDocument| self.misfits(document);
                        let document = self.documents.current().map(Arc::as_ref);
                        let warnings = document.map(misfits).unwrap_or_default();
                        let answer = json!({ "version": version, "warnings": warnings });
                        Reply { status: 200, body: format!("{answer}\n").into() }
                    }
                    Err(error) => {
                        Reply { status: error.status(), body: format!("{error}\n").into() }
                    }
                };
                out.push_back(Output::Reply { id, reply });
            }
            From::Alarm(alarm) => {
                error!(%alarm, "the cluster's document");
                self.counters.alarm("document");
            }
        }
    }

    fn carry(
        &mut self,
        now: Instant,
        output: cluster::Output,
        role: &mut B2bRole,
        out: &mut VecDeque<Output>,
    ) {
        use cluster::Output as From;
        match output {
            From::Persist { serial, bytes } => self.write(now, PROMISED, serial, bytes),
            From::Send { to, frame } => {
                let peer = self.members.iter().find(|(_, member)| **member == to);
                out.extend(peer.map(|(peer, _)| send(*peer, frame.encode())));
            }
            From::Decided { call, verdict } => self.decided(now, CallId(call.0), verdict, role),
            From::NeedLive { copied } => {
                let calls = self.live(role, copied);
                self.cluster.handle_input(now, cluster::Input::Live(calls));
            }
            From::Passive(passive) => {
                if passive != self.passive {
                    let text = if passive { "takes no calls" } else { "takes calls" };
                    info!(segment = %self.own.segment, "this segment {text} from now on");
                }
                self.passive = passive;
            }
            From::Divided { stamp, members } => {
                let members: Vec<u16> = members.iter().map(|segment| segment.0).collect();
                info!(?stamp, ?members, "the limits are divided");
            }
            From::Alarm(alarm) => {
                let name = alarm_name(alarm);
                error!(alarm = name, what = ?alarm, "the cluster needs somebody to look");
                self.counters.alarm(name);
            }
            From::Drifted(drifts) => {
                warn!(count = drifts.len(), first = ?drifts.first(), "counters were set right");
                self.counters.drifts += drifts.len() as u64;
            }
            From::Usage(event) => self.keep_usage(now, event),
        }
    }

    /// Returns the calls of this node that were let in; `copied`: and those of others whose records it
    /// holds.
    fn live(&self, role: &B2bRole, copied: bool) -> Vec<Call> {
        let Some(document) = self.documents.current() else { return Vec::new() };
        let tree = document.tree();
        let find = |name: &[u8]| tree.find(std::str::from_utf8(name).ok()?);
        let call = |id: CallId, charge: &b2bua::Charge| {
            let direction = admission::direction(charge.outbound);
            // A document without its profile still counts it at its tenant.
            let node = find(&charge.profile).or_else(|| find(&charge.tenant))?;
            Some(Call { id: quota_split::CallId(id.0), node, direction })
        };
        let mut calls: BTreeMap<CallId, Call> = BTreeMap::new();
        let copied = copied.then(|| role.copied_calls()).into_iter().flatten();
        for record in copied.chain(role.coming_calls()).filter(|record| !record.is_ended()) {
            let charge = record.admission.charge.as_ref();
            calls.extend(charge.and_then(|charge| Some((record.call, call(record.call, charge)?))));
        }
        calls.extend(role.b2b.charges().filter_map(|(id, charge)| Some((id, call(id, charge)?))));
        calls.into_values().collect()
    }
}

fn send(peer: NodeId, (kind, payload): (u16, bytes::Bytes)) -> Output {
    Output::Frame { peer: driver::NodeId(peer.0), class: Class::Control, kind, payload }
}

/// A partner that cannot speak for the segment within this is not waited for.
const LEAVES_WITHIN: Duration = Duration::from_secs(3);

/// What is divided before there is a document: nothing.
fn no_plan() -> Plan {
    let tree = Tree::new(Vec::new()).expect("a tree may be empty");
    let division = Arc::new(Document::new(0, tree, Method::default()));
    Plan { division, eager: false, segments: BTreeMap::new() }
}

fn alarm_name(alarm: Alarm) -> &'static str {
    match alarm {
        Alarm::DocumentDiffers(_) => "document_differs",
        Alarm::DigestDiffers(_) => "digest_differs",
        Alarm::WeightsZero => "weights_zero",
        Alarm::Duplicate { .. } => "duplicate",
        Alarm::Alone => "alone",
        Alarm::Lapsed => "lapsed",
        Alarm::Unreadable => "unreadable",
        Alarm::Misdirected(_) => "misdirected",
        Alarm::Garbled(_) => "garbled",
        Alarm::Stale(_) => "stale",
    }
}

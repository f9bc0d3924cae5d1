//! A document so large that what is said about all of its limits passes what one frame may carry.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use driver::frame::PAYLOAD_MAX;
use election::{NodeId, Segment};
use quota_split::handover::{
    Epoch, Grow, Held, PairMessage, Report, Stamp, Timing, ToCoordinator, ToMember,
};
use quota_split::{Document, Kind, Limits, Method, Tree};
use rm::cluster::{
    Alarm, Cluster, ClusterFrame, Config, Input, Output, PIECE_LEN, Piece, Plan, Routed, TenantView,
};
use rm::frames::Frame as _;

use super::world::{now, share};

const PROFILES: u32 = 150_000;
const LIMIT: u32 = 70_000;

const COORDINATOR: NodeId = NodeId { segment: Segment(1), rm: 1 };
const SPEAKER: NodeId = NodeId { segment: Segment(2), rm: 1 };
const PARTNER: NodeId = NodeId { segment: Segment(2), rm: 2 };

#[test]
fn shares_in_words_and_states_of_150_000_profiles_arrive_in_pieces() {
    let mut world = World::new();

    world.run_until(20, |world| world.caps(SPEAKER) == Some([LIMIT / 2; 2]));

    world.run_until(10, |world| world.alarms.contains(&Alarm::DocumentDiffers(Segment(2))));
    assert!(world.kinds.contains(&0x0411) && world.kinds.contains(&PairMessage::KIND));
    // From now on the partner holds all that; with it, it goes on where its peer ends.
    world.run_until(10, |world| world.stored);
    world.kill(SPEAKER);
    world.run_until(10, |world| world.caps(PARTNER).is_some());
    assert_eq!(world.caps(PARTNER), Some([LIMIT / 2; 2]));
}

#[test]
fn a_piece_from_a_node_of_another_cluster_is_refused_and_told() {
    let mut world = World::new();
    let stranger = NodeId { segment: Segment(9), rm: 1 };
    let transfer = rm::cluster::Transfer { life: 1, number: 1 };
    let piece = Piece { transfer, kind: 0x0411, len: 1, digest: 0, offset: 0, bytes: vec![0] };

    let frame = ClusterFrame::Piece(piece);
    world.feed(SPEAKER, Input::Frame { from: stranger, frame });

    assert!(world.alarms.contains(&Alarm::Misdirected(stranger)));
    assert_eq!(world.sent_to(stranger), 0, "nor is it answered");
}

/// Of a division that is over: it changes nothing, and is told of once none of it can be on its way.
#[test]
fn what_is_said_again_of_an_older_division_changes_no_counter_and_is_told() {
    let mut world = World::of(2);
    world.run_until(30, |world| world.caps(SPEAKER) == Some([LIMIT / 2; 2]));
    let epoch = world.nodes[&SPEAKER].view().mandate.unwrap().epoch;
    let election::Life { incarnation, instance } = epoch.life;
    let older = Epoch { term: epoch.term - 1, rank: !(1 << 8 | 1), incarnation, instance };
    let stamp = Stamp { epoch: older, round: 1 };
    let grow = Grow { stamp, seq: 1000, rest: false, cells: vec![(0, LIMIT), (1, LIMIT)] };
    let body = ToMember::Grow(grow);
    let grow = ClusterFrame::ToMember(Routed { origin: COORDINATOR, to: SPEAKER, hops: 1, body });
    let held = Held { counter: 0, held: 0, used: 0 };
    let report = Report { stamp, number: 1000, applied: 1000, cells: vec![held] };
    let body = ToCoordinator::Report(report);
    let report =
        ClusterFrame::ToCoordinator(Routed { origin: SPEAKER, to: COORDINATOR, hops: 1, body });
    let repeat = |world: &mut World| {
        world.feed(SPEAKER, Input::Frame { from: COORDINATOR, frame: grow.clone() });
        world.feed(COORDINATOR, Input::Frame { from: SPEAKER, frame: report.clone() });
        world.run_for(Duration::from_secs(1));
    };
    let figures = |world: &World| {
        let rows = |id| {
            let rows = world.nodes[&id].tenants_from(0);
            rows.map(|row: TenantView<'_>| row.counters).collect::<Vec<_>>()
        };
        [rows(COORDINATOR), rows(SPEAKER)]
    };
    // Of the other document it is told late, and once.
    world.run_until(10, |world| world.alarms.contains(&Alarm::DocumentDiffers(Segment(2))));
    let before = figures(&world);
    world.alarms.clear();

    repeat(&mut world);
    assert_eq!((figures(&world), world.alarms.len()), (before.clone(), 0), "still under way");
    world.run_for(Duration::from_secs(10));
    repeat(&mut world);

    assert_eq!(figures(&world), before);
    let told = [COORDINATOR, SPEAKER].map(Alarm::Stale);
    assert_eq!(world.alarms, told.into());
}

struct World {
    profiles: u32,
    now: Instant,
    nodes: BTreeMap<NodeId, Cluster>,
    events: BTreeMap<(Instant, u64), (NodeId, Input)>,
    made: u64,
    alarms: BTreeSet<Alarm>,
    /// The kinds of what came in pieces.
    kinds: BTreeSet<u16>,
    sent: BTreeMap<NodeId, usize>,
    /// Whether the partner has said that it holds the last state.
    stored: bool,
}

impl World {
    /// The second segment has not got the newest document.
    fn new() -> Self {
        Self::of(PROFILES)
    }

    /// The same, with so many profiles.
    fn of(profiles: u32) -> Self {
        let plans = [1, 2].map(|version| Arc::new(large_plan(version, profiles)));
        let now = now();
        let ids = [COORDINATOR, SPEAKER, PARTNER];
        let node = |id: NodeId| {
            let peers = ids.into_iter().filter(|peer| *peer != id).collect();
            let (timing, handover) = (election::Timing::default(), Timing::WAN);
            let config = Config { id, peers, timing, handover, piece_len: PIECE_LEN };
            let plan = &plans[usize::from(id == COORDINATOR)];
            let instance = u128::from(id.rm) << 64 | u128::from(id.segment.0);
            (id, Cluster::new(config, Arc::clone(plan), None, instance, now))
        };
        let nodes: BTreeMap<NodeId, Cluster> = ids.into_iter().map(node).collect();
        let mut world = Self {
            profiles,
            now,
            nodes,
            events: BTreeMap::new(),
            made: 0,
            alarms: BTreeSet::new(),
            kinds: BTreeSet::new(),
            sent: BTreeMap::new(),
            stored: false,
        };
        for id in ids {
            for node in ids.into_iter().filter(|node| *node != id) {
                world.feed(id, Input::Link { node, up: true });
            }
        }
        world
    }

    fn run_until(&mut self, seconds: u32, done: impl Fn(&Self) -> bool) {
        for _ in 0..4 * seconds {
            if done(self) {
                return;
            }
            self.run_for(Duration::from_millis(250));
        }
        panic!("not within {seconds} s; alarms: {:?}", self.alarms);
    }

    fn run_for(&mut self, span: Duration) {
        let until = self.now + span;
        loop {
            let due = |(id, node): (&NodeId, &Cluster)| Some((node.poll_timeout()?, *id));
            let timeout = self.nodes.iter().filter_map(due).min();
            let event = self.events.first_key_value().map(|((at, _), _)| *at);
            match (timeout, event) {
                (Some((at, id)), event) if at <= until && event.is_none_or(|event| at <= event) => {
                    self.now = self.now.max(at);
                    let now = self.now;
                    self.nodes.get_mut(&id).unwrap().handle_timeout(now);
                    self.drain(id);
                }
                (_, Some(at)) if at <= until => {
                    let (_, (id, input)) = self.events.pop_first().unwrap();
                    self.now = self.now.max(at);
                    self.feed(id, input);
                }
                _ => break,
            }
        }
        self.now = until;
    }

    fn feed(&mut self, id: NodeId, input: Input) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        node.handle_input(self.now, input);
        self.drain(id);
    }

    fn drain(&mut self, id: NodeId) {
        while let Some(output) = self.nodes.get_mut(&id).and_then(Cluster::poll_output) {
            match output {
                Output::Persist { serial, .. } => {
                    self.post(Duration::from_millis(1), id, Input::Persisted(serial));
                }
                Output::Send { to, frame } => self.transmit(id, to, &frame),
                Output::NeedLive { .. } => {
                    let now = self.now;
                    let live = Input::Live(Vec::new());
                    self.nodes.get_mut(&id).unwrap().handle_input(now, live);
                }
                Output::Alarm(alarm) => {
                    self.alarms.insert(alarm);
                }
                Output::Decided { .. }
                | Output::Passive(_)
                | Output::Divided { .. }
                | Output::Drifted(_)
                | Output::Usage(_) => {}
            }
        }
    }

    fn transmit(&mut self, from: NodeId, to: NodeId, frame: &ClusterFrame) {
        let (kind, payload) = frame.encode();
        assert!(payload.len() <= PAYLOAD_MAX, "{} bytes of {kind:#06x}", payload.len());
        let frame = ClusterFrame::decode(kind, &payload).unwrap();
        *self.sent.entry(to).or_default() += 1;
        match &frame {
            ClusterFrame::Piece(piece) => {
                self.kinds.insert(piece.kind);
                self.stored &= piece.kind != PairMessage::KIND;
            }
            ClusterFrame::Pair(PairMessage::Stored { .. }) => self.stored = true,
            ClusterFrame::Election(_)
            | ClusterFrame::ToMember(_)
            | ClusterFrame::ToCoordinator(_)
            | ClusterFrame::Pair(_)
            | ClusterFrame::Pieces(_) => {}
        }
        self.post(Duration::from_millis(40), to, Input::Frame { from, frame });
    }

    fn kill(&mut self, id: NodeId) {
        self.nodes.remove(&id);
        for peer in self.nodes.keys().copied().collect::<Vec<_>>() {
            self.feed(peer, Input::Link { node: id, up: false });
        }
    }

    fn post(&mut self, after: Duration, id: NodeId, input: Input) {
        self.made += 1;
        self.events.insert((self.now + after, self.made), (id, input));
    }

    fn sent_to(&self, id: NodeId) -> usize {
        self.sent.get(&id).copied().unwrap_or(0)
    }

    /// Returns what the first and the last profile may have here; `None` where nobody counts.
    fn caps(&self, id: NodeId) -> Option<[u32; 2]> {
        let node = &self.nodes[&id];
        let cap = |tenant: Option<TenantView<'_>>| tenant?.counters[0].cap;
        let last = self.profiles as usize;
        Some([cap(node.tenants_from(1).next())?, cap(node.tenants_from(last).next())?])
    }
}

fn large_plan(version: u64, profiles: u32) -> Plan {
    let top = quota_split::Node { name: "top".into(), ..quota_split::Node::default() };
    let profile = |number: u32| quota_split::Node {
        name: format!("profile-{number}"),
        parent: Some("top".into()),
        kind: Kind::Profile,
        limits: Limits { calls: Some(LIMIT), ..Limits::default() },
        ..quota_split::Node::default()
    };
    let tree = Tree::new([top].into_iter().chain((0..profiles).map(profile)).collect());
    let division = Arc::new(Document::new(version, tree.unwrap(), Method::Dhondt));
    let segments = [(Segment(1), share(1, false)), (Segment(2), share(1, false))].into();
    Plan { division, eager: false, segments }
}

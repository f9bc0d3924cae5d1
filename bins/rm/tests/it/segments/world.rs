//! Nodes, their disks, their calls and the network between them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use election::{NodeId, Segment};
use quota_split::handover::Timing;
use quota_split::{Call, CallId, Direction, Tree};
use rm::cluster::{Cluster, ClusterFrame, Config, Input, Output, PIECE_LEN, Plan};

use super::joins::Absent;
use super::judge::Judge;

pub(super) use calls::{Calls, Live};
use due::Due;
use plans::PROFILES;
pub(super) use plans::{Dice, LIMITED, PLACES, nothing, plan, plan_lending, share};

mod calls;
mod due;
mod network;
mod plans;

/// Milliseconds since the start of the world.
pub(super) type Ms = u64;

pub(super) struct World {
    pub(super) now: Ms,
    origin: Instant,
    pub(super) dice: Dice,
    /// Loses, repeats and reorders what is no talk of a pair.
    pub(super) bad: bool,
    /// The longest part of a frame that is sent at once.
    pub(super) piece_len: usize,
    pub(super) plan: Arc<Plan>,
    pub(super) nodes: Vec<Node>,
    pub(super) cuts: BTreeSet<(usize, usize)>,
    pub(super) kind: Kind,
    /// Segments that are to join, or are being taken out.
    pub(super) absent: BTreeMap<Segment, Absent>,
    /// Whose nodes the files name.
    pub(super) known: BTreeSet<NodeId>,
    /// When the last process starts or ends of those that were told to.
    pub(super) busy_until: Ms,
    /// Until when no report of a node arrives.
    pub(super) muted: BTreeMap<usize, Ms>,
    pub(super) calls: Calls,
    pub(super) arrivals: bool,
    /// Whether calls end.
    pub(super) hangs: bool,
    /// Whether some calls pass every limit.
    pub(super) exempts: bool,
    events: BinaryHeap<Due>,
    made: u64,
    fifo: BTreeMap<(usize, usize), Ms>,
    /// When a heartbeat was last lost on its way.
    lost: BTreeMap<(usize, usize), Ms>,
    calls_made: u64,
    pub(super) judge: Judge,
}

pub(super) struct Node {
    pub(super) id: NodeId,
    pub(super) partner: Option<usize>,
    /// Whether it is to run.
    pub(super) enrolled: bool,
    /// Whom it has links to, where they have one to it.
    pub(super) peers: BTreeSet<NodeId>,
    pub(super) cluster: Option<Cluster>,
    pub(super) life: u64,
    /// The life in which it was told to leave, and from then on takes no new calls.
    pub(super) leaves_in: Option<u64>,
    pub(super) paused_at: Option<Ms>,
    /// How far its clock is behind, since it stood still.
    behind: Ms,
    held: Vec<Event>,
    wake_at: Option<Ms>,
    pub(super) disk: Option<Vec<u8>>,
    written_at: Ms,
    pub(super) disk_hangs: bool,
    hung: Vec<(u64, Vec<u8>)>,
    pub(super) plan: Arc<Plan>,
    asked: BTreeMap<CallId, (Call, bool)>,
    /// Until then no call comes here: its slots are elsewhere.
    pub(super) idle_until: Ms,
    /// The connection to the partner, by number; `None` while there is none.
    pub(super) connection: Option<u64>,
    connections: u64,
    /// When this end hears that the last connection has ended.
    parted_at: Ms,
    /// With whom it was in an island when it last died.
    died_among: Vec<usize>,
}

/// What may happen in a world; each kind has what the one before has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    First,
    /// Documents go only where links lead, and what else few worlds have.
    Wide,
    /// Segments join, and are taken out.
    Joining,
}

#[derive(Clone, Debug)]
pub(super) enum Event {
    Deliver { to: usize, from: NodeId, frame: ClusterFrame, connection: Option<u64> },
    Wake { node: usize, life: u64 },
    Written { node: usize, life: u64, serial: u64, bytes: Vec<u8> },
    Resume { node: usize, clock_ran: bool },
    Arrive { node: usize },
    Hang { call: CallId },
    Plan { node: usize, plan: Arc<Plan> },
    Link { node: usize, life: u64, up: bool },
    Relink { node: usize },
    Fence { node: usize, victim: usize, life: u64, told: bool },
    Peers { node: usize },
    Start { node: usize },
    Stop { node: usize, forgotten: bool },
}

impl World {
    pub(super) fn new(seed: u64, ids: &[NodeId], plan: Arc<Plan>) -> Self {
        let partner =
            |id: &NodeId| ids.iter().position(|it| it.segment == id.segment && it.rm != id.rm);
        let peers = |id: NodeId| ids.iter().copied().filter(move |peer| *peer != id).collect();
        let node = |id: &NodeId| Node::new(*id, partner(id), peers(*id), &plan);
        let mut world = Self {
            now: 0,
            origin: now(),
            dice: Dice::new(seed),
            bad: false,
            piece_len: PIECE_LEN,
            nodes: ids.iter().map(node).collect(),
            judge: Judge::new(&plan, ids),
            cuts: BTreeSet::new(),
            kind: Kind::First,
            absent: BTreeMap::new(),
            known: ids.iter().copied().collect(),
            busy_until: 0,
            muted: BTreeMap::new(),
            calls: Calls::new(plan.division.tree()),
            arrivals: true,
            hangs: true,
            exempts: true,
            events: BinaryHeap::new(),
            made: 0,
            fifo: BTreeMap::new(),
            lost: BTreeMap::new(),
            calls_made: 0,
            plan,
        };
        for node in 0..ids.len() {
            let at = world.dice.range(0, 400);
            world.post(at, Event::Arrive { node });
        }
        world
    }

    /// Whether segments come and go.
    pub(super) fn joins(&self) -> bool {
        self.kind == Kind::Joining
    }

    pub(super) fn start(&mut self, at: usize) {
        let instance = u128::from(self.dice.next()) << 64 | u128::from(self.dice.next());
        let id = self.nodes[at].id;
        self.nodes[at].peers = self.peers(id);
        let config = Config {
            id,
            peers: self.nodes[at].peers.clone(),
            timing: election::Timing::default(),
            handover: Timing::WAN,
            piece_len: self.piece_len,
        };
        let now = self.instant(at);
        let node = &mut self.nodes[at];
        node.life += 1;
        if !self.kind.is_wide() {
            node.plan = Arc::clone(&self.plan);
        }
        (node.behind, node.paused_at, node.wake_at) = (0, None, None);
        (node.disk_hangs, node.idle_until) = (false, self.now + 1_000);
        node.hung.clear();
        node.held.clear();
        let plan = Arc::clone(&node.plan);
        node.cluster = Some(Cluster::new(config, plan, node.disk.as_deref(), instance, now));
        self.judge.started(at, self.nodes[at].disk.is_some());
        self.relink_soon(at, 50, 500);
        self.topology();
        self.drain(at);
    }

    /// Ends a process. Its partner has its calls a while later; without one they end.
    pub(super) fn crash(&mut self, at: usize) {
        let island = self.islands().into_iter().find(|island| island.contains(&at));
        let node = &mut self.nodes[at];
        node.died_among = island.unwrap_or_default();
        node.cluster = None;
        node.paused_at = None;
        node.asked.clear();
        let young = self.now.saturating_sub(50);
        self.calls.retain(|live| live.owner != at || live.since <= young);
        self.disconnect(at, 1, 50);
        self.judge.crashed(at);
        self.fence(at);
        self.topology();
    }

    /// Stops a process; its clock may stand still too, as a virtual machine's does.
    pub(super) fn pause(&mut self, at: usize, span: Ms, clock_ran: bool) {
        self.nodes[at].paused_at = Some(self.now);
        self.post(self.now + span, Event::Resume { node: at, clock_ran });
        if 400 < span {
            self.fence(at);
            self.nodes[at].idle_until = self.now + span + 8_000;
        }
        if 3_000 < span {
            self.disconnect(at, 2_000, 3_000);
        }
        self.topology();
    }

    /// Gives everybody another plan, to some of them late; in a wide world a node, which tells the others.
    pub(super) fn change(&mut self, at: usize, plan: Plan) {
        self.plan = Arc::new(plan);
        self.judge.changed(&self.plan);
        if self.kind.is_wide() {
            let plan = Arc::clone(&self.plan);
            return self.post(self.now, Event::Plan { node: at, plan });
        }
        for node in 0..self.nodes.len() {
            let late = self.dice.hits(20);
            let after = if late { self.dice.range(3_000, 9_000) } else { self.dice.range(10, 500) };
            let plan = Arc::clone(&self.plan);
            self.post(self.now + after, Event::Plan { node, plan });
        }
    }

    /// Lets the writes end that hang.
    pub(super) fn release_disk(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        node.disk_hangs = false;
        let life = node.life;
        for (serial, bytes) in std::mem::take(&mut node.hung) {
            self.write(at, life, serial, bytes);
        }
        self.topology();
    }

    pub(super) fn run_for(&mut self, span: Ms) {
        let until = self.now + span;
        while let Some(&Due { at: Reverse((at, _)), .. }) = self.events.peek() {
            if until < at || self.judge.fault.is_some() {
                break;
            }
            let Some(Due { event, .. }) = self.events.pop() else { break };
            self.now = at;
            self.happen(*event);
            if self.absent.keys().any(|segment| !self.plan.segments.contains_key(segment)) {
                self.judge.watch_outside(&self.plan, &self.nodes, &self.calls);
            }
            self.judge.watch_calls(self.now, &self.calls);
        }
        self.now = until;
    }

    fn happen(&mut self, event: Event) {
        let at = match &event {
            Event::Resume { node, clock_ran } => return self.resume(*node, *clock_ran),
            Event::Relink { node } => return self.relink(*node),
            Event::Fence { node, victim, life, told } => {
                return self.take_slots(*node, *victim, *life, *told);
            }
            Event::Start { node } => return self.enrol(*node),
            Event::Stop { node, forgotten } => return self.stop(*node, *forgotten),
            Event::Hang { .. } if !self.hangs => return self.post(self.now + 1_000, event),
            Event::Hang { call } => match self.calls.get(*call) {
                // Nobody hears of its end before its slot is taken.
                Some(live) if self.nodes[live.owner].cluster.is_none() => {
                    return self.post(self.now + 500, event);
                }
                Some(live) => live.owner,
                None => return self.withdraw(*call),
            },
            Event::Deliver { to, .. } => *to,
            Event::Wake { node, .. }
            | Event::Written { node, .. }
            | Event::Arrive { node }
            | Event::Peers { node }
            | Event::Plan { node, .. }
            | Event::Link { node, .. } => *node,
        };
        if self.nodes[at].paused_at.is_some() && !matches!(event, Event::Arrive { .. }) {
            return self.nodes[at].held.push(event);
        }
        self.happen_at(at, event);
    }

    fn happen_at(&mut self, at: usize, event: Event) {
        let now = self.instant(at);
        if let Event::Arrive { node } = event {
            let after = self.dice.range(50, 400);
            self.post(self.now + after, Event::Arrive { node });
        }
        if let Event::Peers { node } = event {
            return self.meet(node);
        }
        let node = &mut self.nodes[at];
        let life = node.life;
        let Some(cluster) = node.cluster.as_mut() else { return };
        let input = match event {
            Event::Deliver { connection, .. }
                if connection.is_some_and(|it| Some(it) != node.connection) =>
            {
                return;
            }
            // The link has ended meanwhile.
            Event::Deliver { from, .. } if !node.peers.contains(&from) => return,
            Event::Deliver { from, frame, .. } => Input::Frame { from, frame },
            Event::Wake { life: of, .. } if of == life => {
                node.wake_at = None;
                cluster.handle_timeout(now);
                let due = cluster.poll_timeout();
                assert!(due.is_none_or(|due| now < due), "a handled timeout is due again");
                return self.drain(at);
            }
            Event::Written { life: of, serial, bytes, .. } if of == life => {
                self.judge.written(at, &bytes);
                node.disk = Some(bytes);
                Input::Persisted(serial)
            }
            Event::Hang { call } => {
                self.calls.remove(call);
                Input::Release(call)
            }
            Event::Plan { plan, .. } => {
                if plan.division.version() <= node.plan.division.version() {
                    return;
                }
                node.plan = Arc::clone(&plan);
                self.spread();
                Input::Plan(plan)
            }
            Event::Link { life: of, up, .. } if of == life => {
                let peer = node.partner.map(|partner| self.nodes[partner].id);
                let Some(peer) = peer else { return };
                Input::Link { node: peer, up }
            }
            Event::Arrive { .. } => match self.arrive(at) {
                Some(input) => input,
                None => return,
            },
            Event::Wake { .. }
            | Event::Written { .. }
            | Event::Link { .. }
            | Event::Resume { .. }
            | Event::Relink { .. }
            | Event::Fence { .. }
            | Event::Peers { .. }
            | Event::Start { .. }
            | Event::Stop { .. } => return,
        };
        self.feed(at, input);
    }

    pub(super) fn feed(&mut self, at: usize, input: Input) {
        let now = self.instant(at);
        let Some(cluster) = self.nodes[at].cluster.as_mut() else { return };
        // Most frames are of elections: what they change in shares is seen at the next event.
        if let Input::Frame { frame, .. } = &input {
            self.judge.traffic.hears(at, frame);
        }
        let is_election = matches!(&input, Input::Frame { frame: ClusterFrame::Election(_), .. });
        cluster.handle_input(now, input);
        if is_election {
            self.obey(at);
        } else {
            self.drain(at);
        }
    }

    fn arrive(&mut self, at: usize) -> Option<Input> {
        let node = &self.nodes[at];
        if !self.arrivals || self.now < node.idle_until || node.paused_at.is_some() {
            return None;
        }
        self.calls_made += 1;
        let id = CallId(self.calls_made);
        let profile = self.dice.pick(&PROFILES);
        let direction = if self.dice.hits(50) { Direction::Inbound } else { Direction::Outbound };
        let node = self.nodes[at].tree().find(profile)?;
        let exempt = self.dice.hits(2) && self.exempts;
        let call = Call { id, node, direction };
        self.nodes[at].asked.insert(id, (call, exempt));
        self.judge.traffic.asks(at);
        if exempt {
            self.judge.exempt.insert(id);
        }
        let hold = if self.dice.hits(5) { 60 } else { self.dice.range(500, 9_000) };
        self.post(self.now + hold, Event::Hang { call: id });
        Some(Input::Admit { call, exempt })
    }

    /// The caller gives up before anything was decided.
    fn withdraw(&mut self, call: CallId) {
        let asker = (0..self.nodes.len()).find(|at| self.nodes[*at].asked.contains_key(&call));
        let Some(at) = asker else { return };
        if self.nodes[at].paused_at.is_some() {
            return self.nodes[at].held.push(Event::Hang { call });
        }
        self.nodes[at].asked.remove(&call);
        self.feed(at, Input::Release(call));
    }

    fn resume(&mut self, at: usize, clock_ran: bool) {
        let Some(since) = self.nodes[at].paused_at.take() else { return };
        if !clock_ran {
            self.nodes[at].behind += self.now - since;
        }
        self.nodes[at].wake_at = None;
        self.topology();
        self.relink_soon(at, 50, 1_000);
        // The clock strikes before the mail is read.
        let held = std::mem::take(&mut self.nodes[at].held);
        let (wakes, rest): (Vec<Event>, Vec<Event>) =
            held.into_iter().partition(|event| matches!(event, Event::Wake { .. }));
        for event in wakes.into_iter().chain(rest) {
            self.happen(event);
        }
        self.drain(at);
    }

    /// Does what a node asks for, and looks at its shares.
    fn drain(&mut self, at: usize) {
        self.obey(at);
        self.judge.watch_cells(self.now, at, &self.nodes);
    }

    /// Does what a node asks for.
    fn obey(&mut self, at: usize) {
        let segment = self.nodes[at].id.segment;
        while let Some(cluster) = self.nodes[at].cluster.as_mut() {
            let Some(output) = cluster.poll_output() else { break };
            self.judge.saw(self.now, at, segment, &output);
            match output {
                Output::Persist { serial, bytes } => {
                    let life = self.nodes[at].life;
                    self.write(at, life, serial, bytes.to_vec());
                }
                Output::Send { to, frame } => self.transmit(at, to, &frame),
                Output::Decided { call, verdict } => {
                    let Some((call, exempt)) = self.nodes[at].asked.remove(&call) else {
                        self.judge.fail(self.now, format!("{call:?} is decided and was not asked"));
                        continue;
                    };
                    if verdict.is_ok() {
                        let live = Live { call, owner: at, exempt, since: self.now };
                        self.calls.insert(live);
                    }
                }
                Output::NeedLive { copied } => {
                    let next = self.nodes[at].cluster.as_mut().and_then(Cluster::poll_output);
                    if let Some(next) = next {
                        let text = format!("node {at} goes on before it is answered: {next:?}");
                        self.judge.fail(self.now, text);
                    }
                    let partner = self.nodes[at].partner.filter(|_| copied);
                    // What a call counts at is told by name: who has no document knows none.
                    let knows = !self.nodes[at].plan.segments.is_empty();
                    let here =
                        |live: &&Live| knows && (live.owner == at || Some(live.owner) == partner);
                    let live = self.calls.iter().filter(here).map(|live| live.call).collect();
                    self.feed_silently(at, Input::Live(live));
                }
                Output::Divided { stamp, .. } => {
                    self.judge.divided(self.now, at, stamp, &self.calls);
                }
                Output::Passive(_) | Output::Alarm(_) | Output::Drifted(_) | Output::Usage(_) => {}
            }
        }
        self.judge.watch_node(self.now, at, &self.nodes);
        self.wake_later(at);
    }

    fn feed_silently(&mut self, at: usize, input: Input) {
        let now = self.instant(at);
        if let Some(cluster) = self.nodes[at].cluster.as_mut() {
            cluster.handle_input(now, input);
        }
    }

    fn wake_later(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        let Some(due) = node.cluster.as_ref().and_then(Cluster::poll_timeout) else { return };
        let due = due.saturating_duration_since(self.origin);
        // Rounded up: a node never wakes before it is due.
        let due = u64::try_from(due.as_micros().div_ceil(1000)).unwrap() + node.behind;
        let due = due.max(self.now);
        if node.wake_at.is_none_or(|wake_at| due < wake_at) {
            node.wake_at = Some(due);
            let life = node.life;
            self.post(due, Event::Wake { node: at, life });
        }
    }

    fn write(&mut self, at: usize, life: u64, serial: u64, bytes: Vec<u8>) {
        if self.nodes[at].disk_hangs {
            self.judge.traffic.hangs(at);
            self.nodes[at].hung.push((serial, bytes));
            return self.topology();
        }
        // One write after the other.
        let due = (self.now + self.dice.range(1, 15)).max(self.nodes[at].written_at);
        self.nodes[at].written_at = due;
        self.post(due, Event::Written { node: at, life, serial, bytes });
    }

    fn instant(&self, at: usize) -> Instant {
        self.origin + Duration::from_millis(self.now - self.nodes[at].behind)
    }

    pub(super) fn post(&mut self, at: Ms, event: Event) {
        self.made += 1;
        self.events.push(Due { at: Reverse((at, self.made)), event: Box::new(event) });
    }
}

impl Kind {
    pub(super) fn is_wide(self) -> bool {
        match self {
            Self::First => false,
            Self::Wide | Self::Joining => true,
        }
    }
}

impl Node {
    fn new(id: NodeId, partner: Option<usize>, peers: BTreeSet<NodeId>, plan: &Arc<Plan>) -> Self {
        Self {
            id,
            partner,
            enrolled: true,
            peers,
            cluster: None,
            life: 0,
            leaves_in: None,
            paused_at: None,
            behind: 0,
            held: Vec::new(),
            wake_at: None,
            disk: None,
            written_at: 0,
            disk_hangs: false,
            hung: Vec::new(),
            plan: Arc::clone(plan),
            asked: BTreeMap::new(),
            idle_until: 0,
            connection: None,
            connections: 0,
            parted_at: 0,
            died_among: Vec::new(),
        }
    }

    /// Returns the tenants, whose shape no plan changes.
    pub(super) fn tree(&self) -> &Tree {
        self.plan.division.tree()
    }

    pub(super) fn works(&self) -> bool {
        self.cluster.is_some() && self.paused_at.is_none() && self.hung.is_empty()
    }
}

#[expect(clippy::disallowed_methods, reason = "an origin for virtual time")]
pub(super) fn now() -> Instant {
    Instant::now()
}

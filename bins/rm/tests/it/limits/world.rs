//! Two segments of one cluster, with phones that call through either.
//!
//! The first has a gate, two b2bs and a controller, each in its own process; in the second one process
//! does everything. The called phones are trunks: every node has a route to each.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use b2bua::{Route, Transport};
use bytes::Bytes;
use driver::notes::{MemoryNotes, Notes};
use driver::store::{MemoryDisk, Store};
use driver::{Class, Input, Metrics, Node, NodeId, Output, Reply, Request, StopReason, Verb};
use election::Segment;
use mediagate::{Forwarding, Mediagate};
use rm::cluster::ClusterDocument;
use rm::{ClusterConfig, ListenerConfig, Peer, PeerRoles, Rm, Roles};
use serde_json::Value;
use testkit::scenario::Scenario;
use testkit::{Command, PhoneId};

use crate::cluster::next::Next;

pub(crate) const GATE: NodeId = NodeId(10);
pub(crate) const FIRST: NodeId = NodeId(11);
pub(crate) const SECOND: NodeId = NodeId(12);
const CONTROLLER: NodeId = NodeId(13);
/// The mediagates of the first segment.
pub(crate) const MEDIAGATE: NodeId = NodeId(31);
pub(crate) const STANDBY_MEDIAGATE: NodeId = NodeId(32);
/// The only node of the second segment.
pub(crate) const OTHER: NodeId = NodeId(21);

/// Calls that the phones can make at a time.
const CALLS: u32 = 16;

pub(crate) enum Server {
    Rm(Box<Rm>),
    Next(Next),
    Mediagate(Box<Mediagate>),
}

pub(crate) struct World {
    pub(crate) scenario: Scenario<Server>,
    asked: u64,
    /// Which nodes start in the next version.
    upgraded: Arc<Mutex<BTreeSet<NodeId>>>,
}

impl World {
    /// Builds both segments, with this document at every node, and waits until they let calls in.
    pub(crate) fn new(seed: u64, document: &str) -> Self {
        let mut world = Self::starting(seed, document);
        world.run(Duration::from_secs(12));
        world
    }

    /// Builds both segments, all of whose nodes start now.
    pub(crate) fn starting(seed: u64, document: &str) -> Self {
        Self::build(seed, Some(&Arc::new(ClusterDocument::parse(document).unwrap())))
    }

    /// Builds both segments, whose nodes were never given a document.
    pub(crate) fn without_document(seed: u64) -> Self {
        let mut world = Self::build(seed, None);
        world.run(Duration::from_secs(12));
        world
    }

    fn build(seed: u64, document: Option<&Arc<ClusterDocument>>) -> Self {
        crate::cluster::details::install();
        let phones = testkit::Config {
            phones: 2 * CALLS,
            sip_sockets: 2 * u16::try_from(CALLS).unwrap(),
            ..testkit::Config::new(phones_ip())
        };
        let mut scenario = Scenario::new(seed, driver::sim::Config::default(), phones.clone());
        let routes: Vec<Route> = (CALLS..2 * CALLS)
            .map(PhoneId)
            .map(|phone| Route {
                prefix: phones.user(phone).into_bytes(),
                targets: vec![phones.sip_addr(phone).into()],
            })
            .collect();
        let upgraded = Arc::new(Mutex::new(BTreeSet::new()));
        for mut config in nodes(document) {
            config.b2b.routes.clone_from(&routes);
            let dial: Vec<(NodeId, Class)> = config
                .run()
                .links
                .dial
                .iter()
                .flat_map(|dial| dial.classes.iter().map(|class| (dial.peer, *class)))
                .collect();
            let (pad, disk) = (MemoryNotes::default(), MemoryDisk::default());
            let (id, address) = (NodeId(config.node.0), config.address);
            let next = Arc::clone(&upgraded);
            scenario.add(id, address, &dial, move |start| {
                let notes = config.cluster.is_some().then(|| Notes::memory(&pad));
                let store = (id == OTHER).then(|| Store::memory(&disk));
                let rm = Rm::with_stores(&config, &start, store, notes);
                let is_next = next.lock().unwrap().contains(&id);
                if is_next { Server::Next(Next::new(rm)) } else { Server::Rm(Box::new(rm)) }
            });
        }
        for (id, ip) in MEDIAGATES {
            let ip = IpAddr::from(ip);
            let config = mediagate::Config {
                forwarding: Forwarding::Inline,
                ..mediagate::Config::new(NodeId(id), ip, 7131, 7231)
            };
            scenario.add(NodeId(id), ip, &[], move |start| {
                Server::Mediagate(Box::new(Mediagate::new(&config, start)))
            });
        }
        Self { scenario, asked: 0, upgraded }
    }

    pub(crate) fn run(&mut self, span: Duration) {
        self.scenario.sim().run_for(span);
    }

    /// Kills every process, and starts them all a second later.
    pub(crate) fn restart_everything(&mut self) {
        let nodes = parts().into_iter().map(|part| part.0);
        let nodes: Vec<_> = nodes.chain(MEDIAGATES.map(|(id, _)| NodeId(id))).collect();
        nodes.iter().for_each(|node| self.scenario.sim().crash(*node));
        self.run(Duration::from_secs(1));
        nodes.iter().for_each(|node| self.scenario.sim().restart(*node));
    }

    /// Lets a node drain, and starts it again in the next version.
    pub(crate) fn upgrade(&mut self, node: NodeId) {
        self.upgraded.lock().unwrap().insert(node);
        self.scenario.sim().tell(node, Input::Drain);
        self.run(Duration::from_secs(4));
        assert_eq!(self.scenario.sim().stopped(node), Some(&StopReason::Drained));
        self.scenario.sim().restart(node);
        self.run(Duration::from_secs(12));
    }

    /// Begins the call with this number through a segment; returns its phones.
    pub(crate) fn call(&mut self, number: u32, segment: u8) -> (PhoneId, PhoneId) {
        self.call_with(number, segment, "")
    }

    /// Does as [`World::call`], with parameters of the Request-URI.
    pub(crate) fn call_with(
        &mut self,
        number: u32,
        segment: u8,
        params: &str,
    ) -> (PhoneId, PhoneId) {
        let (from, to) = (PhoneId(number), PhoneId(CALLS + number));
        let user = self.scenario.fleet().config().user(to);
        let to_uri = format!("sip:{user}@10.0.{segment}.1:5060{params}");
        self.scenario.plan(Duration::ZERO, from, Command::Call { to: to_uri });
        (from, to)
    }

    /// Makes these calls through a segment; returns how many stand two seconds later.
    pub(crate) fn calls(&mut self, numbers: std::ops::Range<u32>, segment: u8) -> usize {
        let calls: Vec<_> =
            numbers.map(|number| (self.call(number, segment), self.run(MS_20)).0).collect();
        self.run(Duration::from_secs(2));
        calls.iter().filter(|call| self.scenario.not_talking(&[**call]).is_empty()).count()
    }

    /// Ends every call.
    pub(crate) fn hang_up(&mut self) {
        for phone in (0..CALLS).map(PhoneId) {
            self.scenario.plan(Duration::ZERO, phone, Command::Hangup);
        }
        self.run(Duration::from_secs(3));
    }

    /// Asks a node over HTTP.
    pub(crate) fn ask(&mut self, node: NodeId, verb: Verb, path: &str, body: &str) -> Reply {
        self.asked += 1;
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let (path, query) = (path.to_owned(), query.to_owned());
        let body = Bytes::copy_from_slice(body.as_bytes());
        let id = self.asked;
        let now = self.scenario.sim().ask(node, id, Request { verb, path, query, body });
        now.unwrap_or_else(|| {
            self.run(Duration::from_millis(100));
            self.scenario.sim().take_reply(node, id).expect("it is answered soon")
        })
    }

    pub(crate) fn json(&mut self, node: NodeId, path: &str) -> Value {
        let reply = self.ask(node, Verb::Get, path, "");
        assert_eq!(reply.status, 200, "{:?}", reply.body);
        serde_json::from_str(&reply.body.into_text()).unwrap()
    }

    /// Returns how many calls a segment counts at a tenant or profile.
    pub(crate) fn used(&mut self, segment: u8, tenant: &str) -> u64 {
        self.counter(segment, tenant, "use")
    }

    /// Returns a value of the counter of calls of a tenant or profile.
    pub(crate) fn counter(&mut self, segment: u8, tenant: &str, what: &str) -> u64 {
        let nodes: &[NodeId] = if segment == 1 { &[FIRST, SECOND] } else { &[OTHER] };
        let running: Vec<NodeId> =
            nodes.iter().copied().filter(|node| self.scenario.server(*node).is_some()).collect();
        for node in running {
            let page = self.json(node, "tenants");
            let rows = page["tenants"].as_array().unwrap();
            if let Some(row) = rows.iter().find(|row| row["name"] == tenant) {
                return row["counters"][0][what].as_u64().unwrap();
            }
        }
        panic!("nobody counts in segment {segment}")
    }

    /// Returns who counts the calls of the first segment, and its partner.
    pub(crate) fn speaker(&mut self) -> (NodeId, NodeId) {
        let view = self.json(FIRST, "cluster");
        match view["segments"]["1"]["speaker"].as_str() {
            Some("1/1") => (FIRST, SECOND),
            Some("1/2") => (SECOND, FIRST),
            other => panic!("no speaker: {other:?}"),
        }
    }

    /// Returns how many calls the b2bs hold.
    pub(crate) fn live(&self) -> usize {
        let b2bs = [FIRST, SECOND, OTHER].into_iter();
        let b2bs = b2bs.filter_map(|id| match self.scenario.server(id)? {
            Server::Rm(rm) => rm.b2b(),
            Server::Next(next) => next.rm.b2b(),
            Server::Mediagate(_) => None,
        });
        b2bs.map(|b2b| b2b.figures().calls).sum()
    }

    /// Returns a figure of a node with its labels, zero when it has none.
    pub(crate) fn figure(&self, node: NodeId, name: &str) -> u64 {
        let Some(server) = self.scenario.server(node) else { return 0 };
        let mut metrics = Metrics::default();
        server.metrics(&mut metrics);
        let text = metrics.text();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map_or(0, |value| value.parse().expect("a whole number"))
    }

    /// Checks that nothing is left: no call, and no counter that is not zero.
    pub(crate) fn assert_nothing_counts(&mut self, tenant: &str) {
        self.scenario.assert_idle();
        let used = [self.used(1, tenant), self.used(2, tenant)];
        assert_eq!((self.live(), used), (0, [0, 0]), "{}", self.scenario);
        for node in [FIRST, SECOND, OTHER] {
            assert_eq!(self.figure(node, "rm_cluster_drifts_total"), 0);
            assert_eq!(self.figure(node, "rm_cluster_underflows_total"), 0);
        }
    }
}

impl Node for Server {
    fn handle_input(&mut self, now: Instant, input: Input) {
        match self {
            Self::Rm(node) => node.handle_input(now, input),
            Self::Next(node) => node.handle_input(now, input),
            Self::Mediagate(node) => node.handle_input(now, input),
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        match self {
            Self::Rm(node) => node.handle_timeout(now),
            Self::Next(node) => node.handle_timeout(now),
            Self::Mediagate(node) => node.handle_timeout(now),
        }
    }

    fn end_turn(&mut self, now: Instant) {
        match self {
            Self::Rm(node) => node.end_turn(now),
            Self::Next(node) => node.end_turn(now),
            Self::Mediagate(node) => node.end_turn(now),
        }
    }

    fn poll_output(&mut self) -> Option<Output> {
        match self {
            Self::Rm(node) => node.poll_output(),
            Self::Next(node) => node.poll_output(),
            Self::Mediagate(node) => node.poll_output(),
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Self::Rm(node) => node.poll_timeout(),
            Self::Next(node) => node.poll_timeout(),
            Self::Mediagate(node) => node.poll_timeout(),
        }
    }

    fn metrics(&self, out: &mut Metrics) {
        match self {
            Self::Rm(node) => node.metrics(out),
            Self::Next(node) => node.metrics(out),
            Self::Mediagate(node) => node.metrics(out),
        }
    }
}

/// A process of `rm`: its id, segment, host, roles, and number in its segment.
type Part = (NodeId, u8, u8, Roles, Option<u8>);

fn parts() -> Vec<Part> {
    let gate = Roles { gate: true, ..Roles::default() };
    let b2b = Roles { b2b: true, ..Roles::default() };
    let controller = Roles { controller: true, ..Roles::default() };
    let all = Roles { gate: true, b2b: true, controller: true };
    vec![
        (GATE, 1, 1, gate, None),
        (FIRST, 1, 2, b2b, Some(1)),
        (SECOND, 1, 6, b2b, Some(2)),
        (CONTROLLER, 1, 4, controller, None),
        (OTHER, 2, 1, all, Some(1)),
    ]
}

/// Ids and addresses.
const MEDIAGATES: [(u16, [u8; 4]); 3] =
    [(31, [10, 0, 1, 3]), (32, [10, 0, 1, 5]), (41, [10, 0, 2, 3])];

fn nodes(document: Option<&Arc<ClusterDocument>>) -> Vec<rm::Config> {
    parts().into_iter().map(|part| node(part, document)).collect()
}

fn node(
    (id, segment, host, roles, rm): Part,
    document: Option<&Arc<ClusterDocument>>,
) -> rm::Config {
    let member = |segment: u8, rm: u8| election::NodeId { segment: Segment(segment.into()), rm };
    let mut config = rm::Config::new(failover::NodeId(id.0), ip(segment, host));
    config.host = format!("server{host}");
    config.roles = roles;
    config.slot_key = 0x68f4_a1d2_c07b_935e;
    config.witness = (segment == 1).then_some(failover::NodeId(CONTROLLER.0));
    config.links = Some(SocketAddr::new(config.address, 7101));
    config.trusted = vec!["10.0.0.0/8".parse().unwrap()];
    config.cluster = rm.map(|rm| ClusterConfig {
        id: member(segment, rm),
        site: site(segment).to_owned(),
        document: document.cloned(),
        timing: election::Timing::default(),
    });
    for (other, of, host, roles, rm) in parts().into_iter().filter(|other| other.0 != id) {
        let is_near = of == segment;
        if !is_near && (rm.is_none() || config.cluster.is_none()) {
            continue;
        }
        let Roles { gate, b2b, controller } = if is_near { roles } else { Roles::default() };
        let roles = PeerRoles { gate, b2b, controller, mediagate: false };
        let links = Some(SocketAddr::new(ip(of, host), 7101));
        let mut peer = Peer::new(failover::NodeId(other.0), roles, links);
        peer.member = rm.map(|rm| member(of, rm));
        config.peers.push(peer);
    }
    let near = MEDIAGATES.iter().filter(|(_, ip)| ip[2] == segment);
    config.peers.extend(near.map(|&(id, ip)| {
        let roles = PeerRoles { mediagate: true, ..PeerRoles::default() };
        Peer::new(failover::NodeId(id), roles, Some(SocketAddr::new(ip.into(), 7101)))
    }));
    if roles.gate {
        let listen = SocketAddr::new(config.address, 5060);
        let transport = Transport::Udp;
        config.listeners = vec![ListenerConfig { transport, listen, advertise: listen, tls: None }];
    }
    config
}

fn site(segment: u8) -> &'static str {
    if segment == 1 { "london" } else { "paris" }
}

fn ip(segment: u8, host: u8) -> IpAddr {
    IpAddr::from([10, 0, segment, host])
}

fn phones_ip() -> IpAddr {
    IpAddr::from([10, 0, 9, 9])
}

const MS_20: Duration = Duration::from_millis(20);

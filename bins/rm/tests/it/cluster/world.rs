//! A cluster of `rm` and `mediagate` nodes with phones, in the simulator.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use b2bua::Transport;
use driver::store::{MemoryDisk, Store};
use driver::tls::SipTls;
use driver::{Class, Input, Metrics, Node, NodeId, Output, StopReason};
use mediagate::{Forwarding, Mediagate};
use rm::{ListenerConfig, Peer, PeerRoles, Rm, Roles};
use testkit::scenario::Scenario;
use testkit::{Command, PhoneId};

use super::emitters::{Emitters, Watched};
use super::next::Next;

/// The gate.
pub(crate) const GATE: NodeId = NodeId(11);
/// The b2b; with [`Layout::One`] every role of `rm`.
pub(crate) const B2B: NodeId = NodeId(12);
/// The second gate, with [`Layout::Pair`]; every role of the second server with [`Layout::Two`].
pub(crate) const OTHER_GATE: NodeId = NodeId(14);
/// The second b2b; the same node as [`OTHER_GATE`] with [`Layout::Two`].
pub(crate) const OTHER_B2B: NodeId = NodeId(15);
/// The controller, and the witness where there is one.
pub(crate) const CONTROLLER: NodeId = NodeId(13);
/// The third gate, with [`Layout::Gates`].
pub(crate) const THIRD_GATE: NodeId = NodeId(16);
/// The third b2b, with [`Layout::Trio`].
pub(crate) const THIRD_B2B: NodeId = NodeId(17);
/// The mediagate that gets the calls.
pub(crate) const FIRST_MEDIAGATE: NodeId = NodeId(31);
/// The mediagate that stands by.
pub(crate) const OTHER_MEDIAGATE: NodeId = NodeId(32);

/// Which roles share a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Gate, b2b and controller in one.
    One,
    /// Each in its own.
    Three,
    /// Two gates and two b2bs, each in its own; the controller is the witness.
    Pair,
    /// The same with a third gate.
    Gates,
    /// The same as [`Layout::Pair`] with a third b2b; all but the first stand by.
    Trio,
    /// Two servers with every role, [`B2B`] and [`OTHER_B2B`]; the controller is the witness.
    Two,
}

/// All b2bs of any layout.
const B2BS: [NodeId; 3] = [B2B, OTHER_B2B, THIRD_B2B];

/// Any node of the cluster.
pub(crate) enum Server {
    /// Signalling.
    Rm(Box<Watched>),
    /// Signalling of the next version.
    Next(Next),
    /// Media.
    Mediagate(Box<Mediagate>),
}

/// What a cluster has that not each has.
pub(crate) struct Setup {
    pub(crate) layout: Layout,
    /// What the b2b keeps its records on.
    pub(crate) disk: Option<MemoryDisk>,
    /// How many phones, the first ones, speak SIP over connections.
    pub(crate) streams: u32,
    /// With what TLS.
    pub(crate) tls: Option<SipTls>,
    /// The phones at another gate than the first.
    pub(crate) elsewhere: BTreeMap<PhoneId, NodeId>,
    /// How many addresses the phones share.
    pub(crate) hops: u16,
    pub(crate) ip: fn(u8) -> IpAddr,
    /// The ports of each mediagate.
    pub(crate) ports: RangeInclusive<u16>,
    /// What is changed in the configuration of each `rm`.
    pub(crate) tune: fn(&mut rm::Config),
    /// What every `rm` draws from, as no two processes should.
    pub(crate) one_seed: Option<u64>,
}

impl Setup {
    pub(crate) fn new(layout: Layout) -> Self {
        Self {
            layout,
            disk: None,
            streams: 0,
            tls: None,
            elsewhere: BTreeMap::new(),
            // Each has an address of its own, as behind no two phones stands one next hop.
            hops: 10,
            ip,
            ports: 10_000..=32_767,
            tune: |_| (),
            one_seed: None,
        }
    }
}

/// A cluster with phones.
pub(crate) struct World {
    layout: Layout,
    pub(crate) scenario: Scenario<Server>,
    /// Nodes that start in the next version from now on.
    upgraded: Arc<Mutex<BTreeSet<NodeId>>>,
    pub(crate) emitters: Emitters,
}

impl World {
    /// Builds a cluster with ten phones.
    pub(crate) fn new(seed: u64, layout: Layout) -> Self {
        Self::build(seed, Setup::new(layout))
    }

    /// Builds a cluster whose b2b keeps its records on a disk.
    pub(crate) fn with_disk(seed: u64, layout: Layout, disk: Option<&MemoryDisk>) -> Self {
        Self::build(seed, Setup { disk: disk.cloned(), ..Setup::new(layout) })
    }

    /// Builds a cluster whose first phones speak SIP over connections.
    pub(crate) fn with_streams(seed: u64, layout: Layout, streams: u32) -> Self {
        Self::build(seed, Setup { streams, ..Setup::new(layout) })
    }

    /// The same with TLS on these connections.
    pub(crate) fn with_tls(seed: u64, layout: Layout, streams: u32, tls: SipTls) -> Self {
        Self::build(seed, Setup { streams, tls: Some(tls), ..Setup::new(layout) })
    }

    /// The same with IPv6 everywhere.
    pub(crate) fn with_ipv6(seed: u64, layout: Layout, streams: u32) -> Self {
        let ip = |host| IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, u16::from(host)]);
        Self::build(seed, Setup { streams, ip, ..Setup::new(layout) })
    }

    /// Builds a cluster with ten phones.
    pub(crate) fn build(seed: u64, setup: Setup) -> Self {
        super::details::install();
        let Setup { layout, disk, streams, tls, elsewhere, hops, ip, ports, tune, one_seed } =
            setup;
        let gate_at = |gate| SocketAddr::new(ip(host_number(layout, gate)), 5060);
        let phones = testkit::Config {
            phones: 10,
            sip_sockets: hops,
            streams,
            tls: tls.clone(),
            server: Some(SocketAddr::new(ip(1), 5060)),
            servers: elsewhere.iter().map(|(phone, gate)| (*phone, gate_at(*gate))).collect(),
            ..testkit::Config::new(ip(9))
        };
        let emitters = Emitters::default();
        let upgraded = Arc::new(Mutex::new(BTreeSet::new()));
        let mut scenario = Scenario::new(seed, driver::sim::Config::default(), phones);
        for mut config in signalling(layout, ip) {
            config.listeners.extend(secure(&config, tls.as_ref()));
            tune(&mut config);
            let dial: Vec<(NodeId, Class)> = config
                .run()
                .links
                .dial
                .iter()
                .flat_map(|dial| dial.classes.iter().map(|class| (dial.peer, *class)))
                .collect();
            let disk = disk.clone().filter(|_| config.roles.b2b);
            let emitters = emitters.clone();
            let (id, upgraded) = (NodeId(config.node.0), Arc::clone(&upgraded));
            scenario.add(id, config.address, &dial, move |mut start| {
                start.seed = one_seed.unwrap_or(start.seed);
                let store = disk.as_ref().map(Store::memory);
                let rm = Rm::with_store(&config, &start, store);
                let is_next = upgraded.lock().unwrap().contains(&id);
                if is_next {
                    return Server::Next(Next::new(rm));
                }
                let b2bs = B2BS.map(|b2b| failover::NodeId(b2b.0));
                let life = (failover::NodeId(id.0), failover::Boot(start.boot));
                let watched = Watched::new(rm, life, b2bs, emitters.clone());
                Server::Rm(Box::new(watched))
            });
        }
        for (id, host) in [(FIRST_MEDIAGATE, 3), (OTHER_MEDIAGATE, 5)] {
            let config = mediagate::Config {
                forwarding: Forwarding::Inline,
                standby: id == OTHER_MEDIAGATE,
                ports: ports.clone(),
                ..mediagate::Config::new(id, ip(host), 7131, 7231)
            };
            scenario.add(id, ip(host), &[], move |start| {
                Server::Mediagate(Box::new(Mediagate::new(&config, start)))
            });
        }
        Self { layout, scenario, upgraded, emitters }
    }

    /// Waits until the cluster can carry calls, and registers every phone.
    pub(crate) fn start(&mut self) {
        self.run(Duration::from_millis(2500));
        self.scenario.register_all();
    }

    /// Lets a node drain, and starts it again in this version or the next one.
    pub(crate) fn replace(&mut self, node: NodeId, by_the_next: bool) {
        let mut upgraded = self.upgraded.lock().unwrap();
        if by_the_next {
            upgraded.insert(node);
        } else {
            upgraded.remove(&node);
        }
        drop(upgraded);
        self.scenario.sim().tell(node, Input::Drain);
        self.run(Duration::from_secs(1));
        assert_eq!(self.scenario.sim().stopped(node), Some(&StopReason::Drained));
        self.scenario.sim().restart(node);
        self.run(Duration::from_secs(3));
    }

    /// Lets one phone call another now.
    pub(crate) fn call(&mut self, from: PhoneId, to: PhoneId) -> (PhoneId, PhoneId) {
        self.scenario.call(Duration::ZERO, from, to);
        (from, to)
    }

    /// Lets a phone hang up now.
    pub(crate) fn hang_up(&mut self, phone: PhoneId) {
        self.scenario.plan(Duration::ZERO, phone, Command::Hangup);
    }

    /// Lets time pass.
    pub(crate) fn run(&mut self, span: Duration) {
        self.scenario.sim().run_for(span);
    }

    /// Returns whether every call has a standby mediagate.
    pub(crate) fn has_standby(&self) -> bool {
        let mut records = self.b2bs().flat_map(|(_, b2b)| b2b.records());
        records.all(|record| record.standby.is_some())
    }

    /// Returns how many calls the b2bs hold.
    pub(crate) fn live_calls(&self) -> usize {
        self.b2bs().map(|(_, b2b)| b2b.figures().calls).sum()
    }

    /// Returns the mediagates and ports that two calls name, as holder or standby.
    pub(crate) fn ports_of_two(&self) -> Vec<(u16, u16)> {
        let (mut named, mut of_two) = (BTreeSet::new(), Vec::new());
        for record in self.b2bs().flat_map(|(_, b2b)| b2b.records()) {
            for place in record.holder.iter().chain(&record.standby) {
                let ports = place.ports.map(|port| (place.gateway.0, port));
                of_two.extend(ports.into_iter().filter(|port| !named.insert(*port)));
            }
        }
        of_two
    }

    /// Returns the names of the calls that the b2bs hold.
    pub(crate) fn calls(&self) -> Vec<String> {
        let records = self.b2bs().flat_map(|(_, b2b)| b2b.records());
        let live = records.filter(|record| !record.is_ended());
        live.map(|record| record.call.to_string()).collect()
    }

    /// Returns the lines that the b2bs have written.
    pub(crate) fn lines(&self) -> impl Iterator<Item = &String> {
        let nodes = nodes(self.layout).into_iter().filter(|id| B2BS.contains(id));
        nodes.flat_map(|id| self.scenario.lines(id))
    }

    /// Returns who holds the only call there is.
    pub(crate) fn owner(&self) -> Option<NodeId> {
        let mut owners = self.b2bs().filter(|(_, b2b)| 0 < b2b.figures().calls);
        owners.next().map(|(id, _)| id).filter(|_| owners.next().is_none())
    }

    /// Returns how many slots are owned, those of two owners twice.
    pub(crate) fn slots(&self) -> usize {
        let b2bs: Vec<NodeId> = self.b2bs().map(|(id, _)| id).collect();
        let slots = b2bs.into_iter().map(|id| self.figure(id, "rm_slots")).sum::<u64>();
        usize::try_from(slots).expect("there are few")
    }

    /// Returns the b2bs that run.
    fn b2bs(&self) -> impl Iterator<Item = (NodeId, &b2bua::B2b)> {
        let nodes = nodes(self.layout).into_iter().filter(|id| B2BS.contains(id));
        nodes.filter_map(|id| match self.scenario.server(id)? {
            Server::Rm(watched) => Some((id, watched.rm.b2b()?)),
            Server::Next(next) => Some((id, next.rm.b2b()?)),
            Server::Mediagate(_) => None,
        })
    }

    /// Returns a figure of a node; zero when it does not run.
    pub(crate) fn figure(&self, node: NodeId, name: &str) -> u64 {
        let Some(server) = self.scenario.server(node) else { return 0 };
        let mut metrics = Metrics::default();
        server.metrics(&mut metrics);
        let text = metrics.text();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.expect("the node has it").parse().expect("a whole number")
    }

    /// Returns how many legs a mediagate has open.
    pub(crate) fn open_legs(&self, mediagate: NodeId) -> usize {
        usize::try_from(self.figure(mediagate, "mediagate_legs")).expect("there are few")
    }
}

/// The nodes of the cluster.
pub(crate) fn nodes(layout: Layout) -> Vec<NodeId> {
    match layout {
        Layout::One => vec![B2B, FIRST_MEDIAGATE, OTHER_MEDIAGATE],
        Layout::Three => vec![GATE, B2B, CONTROLLER, FIRST_MEDIAGATE, OTHER_MEDIAGATE],
        Layout::Pair => {
            vec![GATE, OTHER_GATE, B2B, OTHER_B2B, CONTROLLER, FIRST_MEDIAGATE, OTHER_MEDIAGATE]
        }
        Layout::Gates => [nodes(Layout::Pair), vec![THIRD_GATE]].concat(),
        Layout::Trio => [nodes(Layout::Pair), vec![THIRD_B2B]].concat(),
        Layout::Two => vec![B2B, OTHER_B2B, CONTROLLER, FIRST_MEDIAGATE, OTHER_MEDIAGATE],
    }
}

/// The host of a node.
pub(crate) fn host(layout: Layout, node: NodeId) -> IpAddr {
    ip(host_number(layout, node))
}

fn host_number(layout: Layout, node: NodeId) -> u8 {
    match (layout, node) {
        (_, GATE) | (Layout::One | Layout::Two, B2B) => 1,
        (_, B2B) => 2,
        (_, FIRST_MEDIAGATE) => 3,
        (_, CONTROLLER) => 4,
        (_, OTHER_B2B) => 6,
        (_, OTHER_GATE) => 7,
        (_, THIRD_GATE) => 8,
        (_, THIRD_B2B) => 10,
        (_, _) => 5,
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

/// The `rm` processes of a layout.
fn signalling(layout: Layout, ip: fn(u8) -> IpAddr) -> Vec<rm::Config> {
    let gate = Roles { gate: true, ..Roles::default() };
    let b2b = Roles { b2b: true, ..Roles::default() };
    let controller = Roles { controller: true, ..Roles::default() };
    let all = Roles { gate: true, b2b: true, controller: true };
    let pair =
        [(GATE, gate), (B2B, b2b), (CONTROLLER, controller), (OTHER_B2B, b2b), (OTHER_GATE, gate)];
    let parts = match layout {
        Layout::One => vec![(B2B, all)],
        Layout::Three => vec![(GATE, gate), (B2B, b2b), (CONTROLLER, controller)],
        Layout::Pair => pair.to_vec(),
        Layout::Gates => pair.into_iter().chain([(THIRD_GATE, gate)]).collect(),
        Layout::Trio => pair.into_iter().chain([(THIRD_B2B, b2b)]).collect(),
        Layout::Two => vec![(B2B, all), (OTHER_B2B, all), (CONTROLLER, controller)],
    };
    let parts: Vec<(NodeId, u8, Roles)> =
        parts.into_iter().map(|(id, roles)| (id, host_number(layout, id), roles)).collect();
    let has_witness = !matches!(layout, Layout::One | Layout::Three);
    let peers: Vec<(NodeId, u8, PeerRoles)> =
        parts
            .iter()
            .map(|&(id, host, Roles { gate, b2b, controller })| {
                (id, host, PeerRoles { gate, b2b, controller, mediagate: false })
            })
            .chain([(FIRST_MEDIAGATE, 3), (OTHER_MEDIAGATE, 5)].map(|(id, host)| {
                (id, host, PeerRoles { mediagate: true, ..PeerRoles::default() })
            }))
            .collect();
    parts
        .iter()
        .map(|&(id, host, roles)| {
            let mut config = rm::Config::new(failover::NodeId(id.0), ip(host));
            config.host = format!("server{host}");
            config.roles = roles;
            config.slot_key = 0x68f4_a1d2_c07b_935e;
            config.witness = has_witness.then_some(failover::NodeId(CONTROLLER.0));
            config.links = Some(SocketAddr::new(ip(host), 7101));
            config.trusted = ["10.0.0.0/8", "fd00::/8"].map(|net| net.parse().unwrap()).to_vec();
            config.peers = peers
                .iter()
                .filter(|(peer, ..)| *peer != id)
                .map(|&(peer, host, roles)| {
                    let links = Some(SocketAddr::new(ip(host), 7101));
                    Peer::new(failover::NodeId(peer.0), roles, links)
                })
                .collect();
            if layout == Layout::Trio {
                config.standby = id != B2B;
                for peer in config.peers.iter_mut().filter(|peer| peer.roles.b2b) {
                    peer.standby = peer.node.0 != B2B.0;
                }
            }
            if roles.gate {
                let listen = SocketAddr::new(ip(host), 5060);
                let listener =
                    |transport| ListenerConfig { transport, listen, advertise: listen, tls: None };
                config.listeners = [Transport::Udp, Transport::Tcp].map(listener).to_vec();
            }
            config
        })
        .collect()
}

/// Returns the listener for TLS of a gate, one port above the others.
fn secure(config: &rm::Config, tls: Option<&SipTls>) -> Option<ListenerConfig> {
    let mut listen = config.listeners.first()?.listen;
    listen.set_port(listen.port() + 1);
    let tls = Some(tls?.clone());
    Some(ListenerConfig { transport: Transport::Tls, listen, advertise: listen, tls })
}

fn ip(host: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, host])
}

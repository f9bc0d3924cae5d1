//! A cluster of `rm` and `mediagate` nodes with phones, in the simulator.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use b2bua::Transport;
use driver::{Class, Input, Metrics, Node, NodeId, Output};
use mediagate::{Forwarding, Mediagate};
use rm::{ListenerConfig, Peer, PeerRoles, Rm, Roles};
use testkit::scenario::Scenario;
use testkit::{Command, PhoneId};

/// The gate.
pub(crate) const GATE: NodeId = NodeId(11);
/// The b2b; with [`Layout::One`] every role of `rm`.
pub(crate) const B2B: NodeId = NodeId(12);
/// The controller.
pub(crate) const CONTROLLER: NodeId = NodeId(13);
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
}

/// Any node of the cluster.
pub(crate) enum Server {
    /// Signalling.
    Rm(Box<Rm>),
    /// Media.
    Mediagate(Box<Mediagate>),
}

/// A cluster with phones.
pub(crate) struct World {
    pub(crate) scenario: Scenario<Server>,
}

impl World {
    /// Builds a cluster with ten phones.
    pub(crate) fn new(seed: u64, layout: Layout) -> Self {
        let phones = testkit::Config {
            phones: 10,
            // Each has an address of its own, as behind no two phones stands one next hop.
            sip_sockets: 10,
            server: Some(SocketAddr::new(ip(1), 5060)),
            ..testkit::Config::new(ip(9))
        };
        let mut scenario = Scenario::new(seed, driver::sim::Config::default(), phones);
        for config in signalling(layout) {
            let dial: Vec<(NodeId, Class)> = config
                .run()
                .links
                .dial
                .iter()
                .flat_map(|dial| dial.classes.iter().map(|class| (dial.peer, *class)))
                .collect();
            scenario.add(NodeId(config.node.0), config.address, &dial, move |start| {
                Server::Rm(Box::new(Rm::new(&config, &start)))
            });
        }
        for (id, host) in [(FIRST_MEDIAGATE, 3), (OTHER_MEDIAGATE, 5)] {
            let config = mediagate::Config {
                forwarding: Forwarding::Inline,
                standby: id == OTHER_MEDIAGATE,
                ..mediagate::Config::new(id, ip(host), 7131, 7231)
            };
            scenario.add(id, ip(host), &[], move |start| {
                Server::Mediagate(Box::new(Mediagate::new(&config, start)))
            });
        }
        Self { scenario }
    }

    /// Waits until the cluster can carry calls, and registers every phone.
    pub(crate) fn start(&mut self) {
        self.run(Duration::from_millis(2500));
        self.scenario.register_all();
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

    /// Returns whether every call that the b2b holds has a standby.
    pub(crate) fn has_standby(&self) -> bool {
        match self.scenario.server(B2B) {
            Some(Server::Rm(rm)) => {
                rm.b2b().is_some_and(|b2b| b2b.records().all(|record| record.standby.is_some()))
            }
            Some(Server::Mediagate(_)) | None => false,
        }
    }

    /// Returns how many calls the b2b holds.
    pub(crate) fn live_calls(&self) -> usize {
        match self.scenario.server(B2B) {
            Some(Server::Rm(rm)) => rm.b2b().map_or(0, |b2b| b2b.figures().calls),
            Some(Server::Mediagate(_)) | None => 0,
        }
    }

    /// Returns how many legs a mediagate has open.
    pub(crate) fn open_legs(&self, mediagate: NodeId) -> usize {
        let Some(server) = self.scenario.server(mediagate) else { return 0 };
        let mut metrics = Metrics::default();
        server.metrics(&mut metrics);
        let text = metrics.text();
        let legs = text.lines().find_map(|line| line.strip_prefix("mediagate_legs "));
        legs.expect("a mediagate says so").parse().expect("a whole number")
    }
}

/// The nodes of the cluster.
pub(crate) fn nodes(layout: Layout) -> Vec<NodeId> {
    match layout {
        Layout::One => vec![B2B, FIRST_MEDIAGATE, OTHER_MEDIAGATE],
        Layout::Three => vec![GATE, B2B, CONTROLLER, FIRST_MEDIAGATE, OTHER_MEDIAGATE],
    }
}

/// The host of a mediagate or of the controller with [`Layout::Three`].
pub(crate) fn host(node: NodeId) -> IpAddr {
    match node {
        FIRST_MEDIAGATE => ip(3),
        CONTROLLER => ip(4),
        _ => ip(5),
    }
}

impl Node for Server {
    fn handle_input(&mut self, now: Instant, input: Input) {
        match self {
            Self::Rm(node) => node.handle_input(now, input),
            Self::Mediagate(node) => node.handle_input(now, input),
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        match self {
            Self::Rm(node) => node.handle_timeout(now),
            Self::Mediagate(node) => node.handle_timeout(now),
        }
    }

    fn poll_output(&mut self) -> Option<Output> {
        match self {
            Self::Rm(node) => node.poll_output(),
            Self::Mediagate(node) => node.poll_output(),
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Self::Rm(node) => node.poll_timeout(),
            Self::Mediagate(node) => node.poll_timeout(),
        }
    }

    fn metrics(&self, out: &mut Metrics) {
        match self {
            Self::Rm(node) => node.metrics(out),
            Self::Mediagate(node) => node.metrics(out),
        }
    }
}

/// The `rm` processes of a layout.
fn signalling(layout: Layout) -> Vec<rm::Config> {
    let gate = Roles { gate: true, ..Roles::default() };
    let b2b = Roles { b2b: true, ..Roles::default() };
    let controller = Roles { controller: true, ..Roles::default() };
    let all = Roles { gate: true, b2b: true, controller: true };
    let parts = match layout {
        Layout::One => vec![(B2B, 1, all)],
        Layout::Three => vec![(GATE, 1, gate), (B2B, 2, b2b), (CONTROLLER, 4, controller)],
    };
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
            config.links = Some(SocketAddr::new(ip(host), 7101));
            config.trusted = vec!["10.0.0.0/8".parse().unwrap()];
            config.peers = peers
                .iter()
                .filter(|(peer, ..)| *peer != id)
                .map(|&(peer, host, roles)| {
                    let links = Some(SocketAddr::new(ip(host), 7101));
                    Peer::new(failover::NodeId(peer.0), roles, links)
                })
                .collect();
            if roles.gate {
                let listen = SocketAddr::new(ip(host), 5060);
                let transport = Transport::Udp;
                config.listeners = vec![ListenerConfig { transport, listen, advertise: listen }];
            }
            config
        })
        .collect()
}

fn ip(host: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, host])
}

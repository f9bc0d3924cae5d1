//! What an operator decides about one process of `holdline-rm`.

mod file;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use b2bua::gate::{Limits, Network};
use b2bua::slot::SlotHash;
use b2bua::{Listener, Transport};
use driver::http::Token;
use driver::tls::SipTls;
use driver::{Class, Dial, LinksConfig, LogConfig, RunConfig, Security, StreamLimits};
use failover::ownership::{self, Member};
use failover::{Boot, Clock, NodeId};

pub(crate) use file::trunk;

use crate::cluster::ClusterDocument;

/// The configuration of one process, whether it comes from a file or from a program that holds an
/// [`Rm`](crate::Rm).
#[derive(Clone, Debug)]
pub struct Config {
    /// Unique in the segment.
    pub node: NodeId,
    /// What dies together with this process: a call's media should not be where its signalling is.
    pub host: String,
    /// Every socket that this process opens towards other nodes is bound to this address.
    pub address: IpAddr,
    /// Whether to try for a real-time class.
    pub realtime: bool,
    /// What this process does.
    pub roles: Roles,
    /// Where other nodes dial this one.
    pub links: Option<SocketAddr>,
    /// What protects the links.
    pub security: Security,
    /// Where `/healthz` and `/metrics` are served.
    pub http: Option<SocketAddr>,
    /// What who gives orders over HTTP must know.
    pub token: Option<Token>,
    /// The folder of what outlives the process: its numbers, details of its calls, and records if this
    /// is the only b2b.
    pub store: Option<PathBuf>,
    /// What is logged.
    pub log: LogConfig,
    /// Every other node that this one talks to.
    pub peers: Vec<Peer>,
    /// Key of the hash that finds the slot of a message without a tag of ours; the same at every node
    /// of the segment.
    pub slot_key: u64,
    /// The name of the segment, which tells its stored records from those of others.
    pub segment: String,
    /// The node that votes on the ownership of slots as each gate does: this one or a peer, of any role.
    pub witness: Option<NodeId>,
    /// The role gate: its sockets towards phones and trunks.
    pub listeners: Vec<ListenerConfig>,
    /// The role gate: what peers may do with the connections of each of them.
    pub streams: StreamLimits,
    /// The role gate: who may register and call, beside loopback.
    pub trusted: Vec<Network>,
    /// The role gate: what others may send.
    pub limits: Limits,
    /// The role b2b.
    pub b2b: b2bua::Config,
    /// The role b2b: takes slots only from another that is gone.
    pub standby: bool,
    /// The role b2b: this node's part in a cluster of segments. Without one no call is counted.
    pub cluster: Option<ClusterConfig>,
}

/// A node's part in a cluster of segments.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// Its segment and its number there.
    pub id: election::NodeId,
    /// Where the segment stands, as the document says too.
    pub site: String,
    /// The document to begin with, unless the store has one of this version or a higher one.
    pub document: Option<Arc<ClusterDocument>>,
    /// How long elections take; the same at every node of the cluster.
    pub timing: election::Timing,
}

/// The roles of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Roles {
    /// Owns the sockets towards phones and trunks.
    pub gate: bool,
    /// Owns calls and registrations.
    pub b2b: bool,
    /// Hears the mediagates.
    pub controller: bool,
}

/// Another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its id.
    pub node: NodeId,
    /// What it does.
    pub roles: PeerRoles,
    /// Where others dial it, and where it hears pulses.
    pub links: Option<SocketAddr>,
    /// What dies together with it: copies of its calls should be elsewhere.
    pub host: String,
    /// As [`Config::standby`] says there.
    pub standby: bool,
    /// Its segment and its number there, if it counts calls too. One of another segment has no roles
    /// here.
    pub member: Option<election::NodeId>,
}

impl Peer {
    /// A node on a host of its own.
    pub fn new(node: NodeId, roles: PeerRoles, links: Option<SocketAddr>) -> Self {
        Self { node, roles, links, host: node.to_string(), standby: false, member: None }
    }
}

/// The roles of another node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerRoles {
    /// Owns sockets towards phones and trunks.
    pub gate: bool,
    /// Owns calls and registrations.
    pub b2b: bool,
    /// Hears the mediagates.
    pub controller: bool,
    /// Forwards media.
    pub mediagate: bool,
}

/// One socket towards phones and trunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerConfig {
    /// What it carries.
    pub transport: Transport,
    /// The local address.
    pub listen: SocketAddr,
    /// The address that peers reach it at: stands in Contact and Via.
    pub advertise: SocketAddr,
    /// What is shown and asked for; with [`Transport::Tls`] alone, which opens no socket without it.
    pub tls: Option<SipTls>,
}

impl Config {
    /// A process that has `address` for everything and does nothing yet.
    pub fn new(node: NodeId, address: IpAddr) -> Self {
        Self {
            node,
            host: node.to_string(),
            address,
            realtime: true,
            roles: Roles::default(),
            links: None,
            security: if address.is_loopback() { Security::Plaintext } else { Security::default() },
            http: None,
            token: None,
            store: None,
            log: LogConfig::default(),
            peers: Vec::new(),
            slot_key: 0,
            segment: String::new(),
            witness: None,
            listeners: Vec::new(),
            streams: StreamLimits::default(),
            trusted: Vec::new(),
            limits: Limits::default(),
            b2b: b2bua::Config::default(),
            standby: false,
            cluster: None,
        }
    }

    /// How the process is run.
    pub fn run(&self) -> RunConfig {
        let names = [
            (self.roles.gate, "gate"),
            (self.roles.b2b, "b2b"),
            (self.roles.controller, "controller"),
        ];
        let names: Vec<&str> =
            names.into_iter().filter(|(on, _)| *on).map(|(_, name)| name).collect();
        RunConfig {
            node: driver::NodeId(self.node.0),
            role: names.join("+"),
            links: LinksConfig {
                listen: self.links,
                local: Some(self.address),
                dial: self.dials(),
                peers: Some(self.known_peers()),
                security: self.security.clone(),
            },
            http: self.http,
            token: self.token.clone(),
            api: true,
            numbers: self.store.as_ref().map(|folder| folder.join("numbers")),
            journal: self.store.as_ref().map(|folder| folder.join("details")),
            realtime: self.realtime,
        }
    }

    /// The b2b dials everybody it needs; of two b2bs, of two gates without one, and of two segments'
    /// nodes, the lower id.
    fn dials(&self) -> Vec<Dial> {
        let dial = |peer: &Peer| {
            let classes = self.classes(peer);
            let is_ours = match (self.roles.b2b, peer.roles.b2b) {
                _ if self.is_foreign(peer) => self.node < peer.node,
                (true, true) | (false, false) => self.node < peer.node,
                (ours, _) => ours,
            };
            let addr = peer.links.filter(|_| is_ours && !classes.is_empty())?;
            Some(Dial { peer: driver::NodeId(peer.node.0), addr, classes })
        };
        self.peers.iter().filter_map(dial).collect()
    }

    /// The links that this node and a peer have.
    fn classes(&self, peer: &Peer) -> Vec<Class> {
        if self.is_foreign(peer) {
            return vec![Class::Control];
        }
        let (own, other) = (self.roles, peer.roles);
        let alike = (own.b2b && other.b2b) || (own.gate && other.gate);
        let other_votes = other.gate || self.witness == Some(peer.node);
        let own_votes = own.gate || self.witness == Some(self.node);
        let control = own.b2b && (other.controller || other_votes)
            || other.b2b && (own.controller || own_votes);
        let calls = own.b2b && (other.gate || other.mediagate) || other.b2b && own.gate;
        [
            (alike || control, Class::Control),
            (alike || calls, Class::Calls),
            (own.b2b && other.b2b, Class::Bulk),
        ]
        .into_iter()
        .filter_map(|(has, class)| has.then_some(class))
        .collect()
    }

    /// Who may dial this node, and from where as far as the file says so.
    fn known_peers(&self) -> BTreeMap<driver::NodeId, Option<IpAddr>> {
        let known =
            |peer: &Peer| (driver::NodeId(peer.node.0), peer.links.as_ref().map(SocketAddr::ip));
        self.peers.iter().map(known).collect()
    }

    /// Whether a peer is of another segment.
    pub(crate) fn is_foreign(&self, peer: &Peer) -> bool {
        let own = self.cluster.as_ref();
        let both = own.zip(peer.member);
        both.is_some_and(|(own, member)| own.id.segment != member.segment)
    }

    /// The mediagates among the peers.
    pub(crate) fn mediagates(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.peers.iter().filter(|peer| peer.roles.mediagate).map(|peer| peer.node)
    }

    /// The listeners with their numbers.
    pub(crate) fn numbered_listeners(&self) -> Vec<Listener> {
        let numbered = (0..=u8::MAX).zip(&self.listeners);
        let listener = |(id, one): (u8, &ListenerConfig)| Listener {
            id,
            transport: one.transport,
            advertise: one.advertise,
        };
        numbered.map(listener).collect()
    }

    /// Whether another b2b can go on with the calls of this one.
    pub(crate) fn has_other_b2b(&self) -> bool {
        self.peers.iter().any(|peer| peer.roles.b2b)
    }

    /// The file of the records that a restart of the only b2b finds.
    pub(crate) fn records(&self) -> Option<PathBuf> {
        let folder = self.store.as_ref().filter(|_| self.roles.b2b && !self.has_other_b2b())?;
        Some(folder.join("records"))
    }

    /// What a b2b knows of its segment.
    pub(crate) fn ownership(&self, boot: Boot, clock: Clock) -> ownership::Config {
        let gates = self.peers.iter().filter(|peer| peer.roles.gate).map(|peer| peer.node);
        let own = Member { standby: self.standby, host: self.host.clone() };
        let others = self.peers.iter().filter(|peer| peer.roles.b2b);
        let others = others
            .map(|peer| (peer.node, Member { standby: peer.standby, host: peer.host.clone() }));
        ownership::Config {
            node: self.node,
            boot,
            clock,
            gates: gates.chain(self.roles.gate.then_some(self.node)).collect(),
            witness: self.witness,
            b2bs: others.chain([(self.node, own)]).collect(),
        }
    }

    /// The configuration of the gate.
    pub(crate) fn gate(&self, boot: Boot) -> b2bua::gate::Config {
        b2bua::gate::Config {
            id: self.node,
            boot,
            listeners: self.numbered_listeners(),
            trusted: self.trusted.clone(),
            limits: self.limits,
            slots: SlotHash::new(self.slot_key),
        }
    }
}

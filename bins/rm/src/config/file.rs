//! The file behind a [`Config`].

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use b2bua::gate::Network;
use driver::config::{Faults, Key, Table, read};
use driver::http::Token;
use driver::{LogConfig, Security};
use failover::NodeId;

use super::{Config, Peer, PeerRoles, Roles};

mod members;
mod sockets;

pub(crate) use sockets::trunk;

impl Config {
    /// Reads the text of a file.
    ///
    /// # Errors
    /// Everything that is wrong in it, with lines and remedies.
    pub fn parse(text: &str) -> Result<Self, Faults> {
        read(text, |root| {
            let mut config = Self::new(NodeId(0), IpAddr::V4(Ipv4Addr::LOCALHOST));
            let (node, links) = (root.table("node"), root.table("links"));
            let all_roles_are_known = read_node(&node, &mut config);
            let own = driver::NodeId(config.node.0);
            let security = Security::read(&links, &root.table("tls"), own);
            read_links(&links, security.as_ref(), &mut config);
            read_http(&root.table("http"), &mut config);
            let store = root.table("store");
            read_store(&store, &mut config);
            config.log = LogConfig::read(&root.table("log")).unwrap_or(config.log);
            let segment = root.table("segment");
            read_segment(&segment, &mut config);
            members::read(&segment, &root.table("cluster"), &store, &mut config);
            read_peers(&root.tables("peer"), security.as_ref(), &mut config);
            config.security = security.unwrap_or_default();
            if !all_roles_are_known {
                // One is misspelt, and any of what follows may belong to it.
                config.roles = Roles { gate: true, b2b: true, controller: true };
            }
            let listeners = root.tables("listener");
            sockets::read_listeners(&listeners, &mut config);
            sockets::read_streams(&root.table("streams"), &mut config);
            read_gate(&root.table("gate"), &mut config);
            read_b2b(&root.table("b2b"), &mut config);
            sockets::read_routes(&root.tables("route"), &mut config);
            if all_roles_are_known {
                check_roles(&node, &links, &config, !listeners.is_empty());
                check_segment(&segment, &links, &config);
                members::check(&segment, &config);
            }
            Some(config)
        })
    }
}

/// The name of a role, and what takes it on.
type Choice<T> = (&'static str, fn(&mut T));

/// Returns whether every role that the file names is one, and it names any.
fn read_node(node: &Table<'_>, config: &mut Config) -> bool {
    let id = node.key("id").required("an id of its own, 1 to 65535").integer(1..=u16::MAX);
    config.node = NodeId(id.unwrap_or(0));
    config.host = node.key("host").string().unwrap_or_else(|| config.node.to_string());
    config.address = node.key("address").own_ip().unwrap_or(config.address);
    config.realtime = node.key("realtime").boolean().unwrap_or(true);
    let choices: [Choice<Roles>; 3] = [
        ("gate", |roles| roles.gate = true),
        ("b2b", |roles| roles.b2b = true),
        ("controller", |roles| roles.controller = true),
    ];
    let some = "one or more of \"gate\", \"b2b\", \"controller\"";
    let key = node.key("roles").required(some).not_empty(some);
    let mut all_are_known = true;
    let roles = key.list(|role| {
        let role = role.choice(&choices);
        all_are_known &= role.is_some();
        role
    });
    all_are_known &= roles.as_ref().is_none_or(|roles| !roles.is_empty());
    for take in roles.unwrap_or_default() {
        take(&mut config.roles);
    }
    all_are_known
}

fn read_links(links: &Table<'_>, security: Option<&Security>, config: &mut Config) {
    config.links = links.key("listen").own_addr();
    if let Some(addr) = config.links {
        Security::check(security, &links.key("listen"), addr);
    }
}

fn read_http(http: &Table<'_>, config: &mut Config) {
    config.token = Token::of(http);
    config.http = http.key("listen").own_addr();
    if let Some(addr) = config.http
        && config.links == Some(addr)
    {
        http.key("listen").fault(format!("is {addr}, which [links] has"));
    }
}

fn read_segment(segment: &Table<'_>, config: &mut Config) {
    let key = segment.key("key").parsed("16 hex digits, the same at every node", |text| {
        (text.len() == 16).then(|| u64::from_str_radix(text, 16).ok()).flatten()
    });
    config.slot_key = key.unwrap_or(0);
    config.segment = segment.key("name").string().unwrap_or_default();
    if driver::store::CLUSTER_MAX < config.segment.len() {
        segment.key("name").fault(format!("is longer than {} bytes", driver::store::CLUSTER_MAX));
    }
    config.witness = segment.key("witness").integer(1..=u16::MAX).map(NodeId);
}

/// Gates and b2bs that hash with different keys are no segment, nor are b2bs between which nobody can
/// decide.
fn check_segment(segment: &Table<'_>, links: &Table<'_>, config: &Config) {
    let Roles { gate, b2b, .. } = config.roles;
    let having =
        |role: fn(&PeerRoles) -> bool| config.peers.iter().filter(move |one| role(&one.roles));
    if let Some(peer) = having(|roles| roles.gate || roles.b2b).next()
        && (gate || b2b)
        && !segment.key("key").is_present()
    {
        segment.fault(format!(
            "`key` in [segment] is missing: node {} has to hash with the same one; \
             write 16 random hex digits, the same at every gate and b2b",
            peer.node
        ));
    }
    if let Some(witness) = config.witness
        && witness != config.node
        && !config.peers.iter().any(|peer| peer.node == witness && !peer.roles.mediagate)
    {
        let key = segment.key("witness");
        key.fault(format!("is {witness}: neither this node nor a [[peer]] that is no mediagate"));
    }
    let Some(other) = having(|roles| roles.b2b).next().filter(|_| b2b) else { return };
    let gates = having(|roles| roles.gate).map(|peer| peer.node);
    let voters: BTreeSet<NodeId> =
        gates.chain(gate.then_some(config.node)).chain(config.witness).collect();
    if voters.len() == 2 {
        let why = "with two gates and two b2bs a third node has to say who goes on when they lose \
                   each other; name one that dies with neither";
        match config.witness {
            Some(gate) => {
                let witness = segment.key("witness");
                witness.fault(format!("is {gate}, a gate, which votes anyway: {why}"));
            }
            None => segment.fault(format!("`witness` in [segment] is missing: {why}")),
        }
    }
    if config.links.is_none() {
        let other = other.node;
        links.key("listen").fault(format!("is missing: b2b {other} sends its pulses there"));
    }
}

fn read_peers(peers: &[Table<'_>], security: Option<&Security>, config: &mut Config) {
    let mut ids = BTreeSet::from([config.node]);
    for peer in peers {
        let id = peer.key("id").required("the peer's id, 1 to 65535").integer(1..=u16::MAX);
        let member = members::of_peer(peer, config);
        let is_foreign = members::is_foreign(member, config);
        let roles = if is_foreign { PeerRoles::default() } else { read_peer_roles(peer) };
        let b2bs = config.peers.iter().filter(|one| one.roles.b2b).count();
        if roles.b2b && B2BS_MAX <= b2bs + usize::from(config.roles.b2b) {
            peer.key("roles").fault(
                "has \"b2b\", as two other nodes have: a segment has one or two b2bs, \
                 what one knows is copied to the other",
            );
        }
        let links = peer.key("link").remote();
        let is_dialled = match id {
            Some(id) if is_foreign => config.node < NodeId(id),
            _ => config.roles.b2b || config.roles.gate && roles.gate,
        };
        if is_dialled && !peer.key("link").is_present() {
            peer.fault("is dialled: say where, as `link = \"ADDRESS:PORT\"`");
        }
        if let Some(addr) = links
            && is_dialled
        {
            Security::check(security, &peer.key("link"), addr);
            check_link(&peer.key("link"), addr, config);
        }
        let Some(id) = id else { continue };
        if !ids.insert(NodeId(id)) {
            peer.key("id").fault(format!("is {id}, which is taken: each node has its own"));
        }
        let mut one = Peer::new(NodeId(id), roles, links);
        one.host = peer.key("host").string().unwrap_or(one.host);
        one.standby = peer.key("standby").boolean().unwrap_or(false);
        if one.standby && !roles.b2b {
            peer.key("standby").fault("belongs to peers with the role \"b2b\"");
        }
        one.member = members::of_b2b(peer, member, roles, config);
        config.peers.push(one);
    }
}

fn read_peer_roles(peer: &Table<'_>) -> PeerRoles {
    let mut roles = PeerRoles::default();
    let choices: [Choice<PeerRoles>; 4] = [
        ("gate", |roles| roles.gate = true),
        ("b2b", |roles| roles.b2b = true),
        ("controller", |roles| roles.controller = true),
        ("mediagate", |roles| roles.mediagate = true),
    ];
    let some = "one or more of \"gate\", \"b2b\", \"controller\", \"mediagate\"";
    let key = peer.key("roles").required(some).not_empty(some);
    for take in key.list(|role| role.choice(&choices)).unwrap_or_default() {
        take(&mut roles);
    }
    roles
}

fn read_gate(gate: &Table<'_>, config: &mut Config) {
    let network = |key: Key<'_>| {
        key.parsed("a network, such as \"192.168.1.0/24\"", |text| text.parse::<Network>().ok())
    };
    config.trusted = gate.key("trusted").list(network).unwrap_or_default();
    let limits = &mut config.limits;
    if let Some(rate) = gate.key("source_rate").integer(1..=1_000_000) {
        limits.per_second = rate;
    }
    if let Some(burst) = gate.key("source_burst").integer(1..=1_000_000) {
        limits.burst = burst;
    }
    if let Some(strikes) = gate.key("strikes").integer(1..=1_000_000) {
        limits.strikes_max = strikes;
    }
    if let Some(ban) = gate.key("ban").seconds(Duration::from_secs(1)..=Duration::from_secs(86_400))
    {
        limits.ban = ban;
    }
    if gate.is_present() && !config.roles.gate {
        gate.fault("this table belongs to the role \"gate\", which this node has not");
    }
}

fn read_sessions(b2b: &Table<'_>, config: &mut Config) {
    let settings = &mut config.b2b;
    let seconds = b2b.key("min_se").integer(90..=86_400_u32);
    settings.min_se = seconds.unwrap_or(settings.min_se);
    let expires = b2b.key("session_expires").integer(0..=86_400_u32);
    settings.session_expires = expires.unwrap_or(settings.session_expires);
    let (min, longest) = (settings.min_se, settings.session_expires);
    if longest == 0 || min <= longest {
        return;
    }
    if expires.is_some() {
        b2b.key("session_expires").fault(format!(
            "is {longest}, less than `min_se`, {min}: no session may be so short; 0 turns timers off"
        ));
    } else if seconds.is_some() {
        b2b.key("min_se").fault(format!(
            "is {min}, more than {longest}, which `session_expires` is where the file does not say: \
             set that too, or let sessions be shorter"
        ));
    }
}

fn read_store(store: &Table<'_>, config: &mut Config) {
    config.store = store.key("path").folder();
    let Some(folder) = &config.store else { return };
    for (name, what) in [
        ("details", "a folder"),
        ("usage", "a folder"),
        ("numbers", "a file"),
        ("records", "a file"),
    ] {
        let path = folder.join(name);
        if path.exists() && path.is_dir() != (what == "a folder") {
            let path = path.display();
            store
                .key("path")
                .fault(format!("is a folder where {path} is not {what}: move it away"));
        }
    }
}

fn read_b2b(b2b: &Table<'_>, config: &mut Config) {
    let day = Duration::from_secs(86_400);
    if let Some(ring) =
        b2b.key("ring_timeout").seconds(Duration::from_secs(1)..=Duration::from_secs(3600))
    {
        config.b2b.ring = ring;
    }
    if let Some(call) = b2b.key("call_max").seconds(Duration::from_secs(1)..=7 * day) {
        config.b2b.call = call;
    }
    read_sessions(b2b, config);
    if let Some(calls) = b2b.key("calls").integer(1..=1_000_000_u32) {
        config.b2b.calls_max = usize::try_from(calls).unwrap_or(usize::MAX);
    }
    if let Some(seconds) = b2b.key("expires_min").integer(1..=86_400_u32) {
        config.b2b.expires_min = seconds;
    }
    if let Some(seconds) = b2b.key("expires_max").integer(1..=86_400_u32) {
        config.b2b.expires_max = seconds;
    }
    config.standby = b2b.key("standby").boolean().unwrap_or(false);
    let settings = &mut config.b2b;
    settings.expires_default = settings
        .expires_default
        .clamp(settings.expires_min.min(settings.expires_max), settings.expires_max);
    if settings.expires_max < settings.expires_min {
        b2b.key("expires_max").fault("is less than `expires_min`");
    }
    if b2b.is_present() && !config.roles.b2b {
        b2b.fault("this table belongs to the role \"b2b\", which this node has not");
    }
}

/// Two nodes cannot listen at one place, and a link has one family.
fn check_link(key: &Key<'_>, addr: SocketAddr, config: &Config) {
    let mut others = config.peers.iter().filter_map(|peer| peer.links).chain(config.links);
    if others.any(|other| other == addr) {
        key.fault(format!("is {addr}, where another node listens"));
    } else if addr.is_ipv4() != config.address.is_ipv4() {
        let from = config.address;
        key.fault(format!("is {addr}, which cannot be dialled from `address` in [node], {from}"));
    }
}

/// A role that waits for a peer that the file does not name would wait for ever.
fn check_roles(node: &Table<'_>, links: &Table<'_>, config: &Config, listens: bool) {
    let Roles { gate, b2b, controller } = config.roles;
    let has = |role: fn(&PeerRoles) -> bool| config.peers.iter().any(|peer| role(&peer.roles));
    let roles = node.key("roles");
    if gate && !listens {
        roles.fault("has \"gate\", which needs a socket: write a [[listener]]");
    }
    if (gate || controller) && !b2b && !has(|roles| roles.b2b) {
        roles.fault("needs a b2b to talk to: write a [[peer]] with `roles = [\"b2b\"]`");
    }
    if b2b && !gate && !has(|roles| roles.gate) {
        roles.fault("has \"b2b\", which needs a gate: write a [[peer]] with `roles = [\"gate\"]`");
    }
    if b2b && !has(|roles| roles.mediagate) {
        roles.fault(
            "has \"b2b\", which needs a mediagate: write a [[peer]] with `roles = [\"mediagate\"]`",
        );
    }
    if b2b && !controller && !has(|roles| roles.controller) {
        roles.fault(
            "has \"b2b\", which needs a controller: add the role or write a [[peer]] that has it",
        );
    }
    if !b2b && config.links.is_none() {
        links.key("listen").fault("is missing: the b2b dials this node there");
    }
}

/// A slot has an owner and a standby, and the binding of a phone is copied to one other b2b.
const B2BS_MAX: usize = 2;

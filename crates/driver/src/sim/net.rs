//! Hosts, paths and datagrams.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;

use super::{Binding, Event, Sim, Watch, nanos};
use crate::node::{BindError, Input, Node, NodeId, SocketId};

/// What a paused process's sockets hold, in bytes, as the kernel counts them.
const INBOX_LEN_MAX: usize = 4 << 20;
/// What a datagram costs there beside its bytes.
const DATAGRAM_COST: usize = 768;
/// The first port that a socket gets which asks for none.
const EPHEMERAL_FIRST: u16 = 32768;

/// How the network carries from one node to another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Path {
    /// What everything takes at least.
    pub delay: Duration,
    /// What a datagram or frame may take longer, without overtaking.
    pub jitter: Duration,
    /// The share of datagrams that are lost. Frames are late instead.
    pub loss: f64,
    /// The share of datagrams that arrive twice.
    pub duplicate: f64,
    /// The share of datagrams that later ones may overtake.
    pub reorder: f64,
}

impl Default for Path {
    /// A good local network: 200 µs, nothing lost.
    fn default() -> Self {
        Self {
            delay: Duration::from_micros(150),
            jitter: Duration::from_micros(50),
            loss: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
        }
    }
}

/// A path, and what is going on there.
#[derive(Clone, Copy)]
pub(super) struct Route {
    pub(super) path: Path,
    pub(super) is_cut: bool,
    /// When the last datagram arrives; later ones do not overtake it.
    last_at: u64,
}

impl<N: Node> Sim<N> {
    /// Sets the path from `from` to `to`.
    pub fn set_path(&mut self, from: NodeId, to: NodeId, path: Path) {
        let (from, to) = (self.place(from), self.place(to));
        self.routes[from][to].path = path;
    }

    /// Gives an address to a node, and takes it from the one that has it. Its
    /// sockets there fall silent.
    pub fn give_address(&mut self, ip: IpAddr, to: NodeId) {
        let to = self.place(to);
        for (node, slot) in self.nodes.iter_mut().enumerate() {
            slot.ips.retain(|&known| known != ip || node == to);
        }
        self.bound.retain(|addr, &mut (node, _)| addr.ip() != ip || node == to);
        if !self.nodes[to].ips.contains(&ip) {
            self.nodes[to].ips.push(ip);
        }
    }

    /// Makes room for the routes of a node that was just added.
    pub(super) fn add_routes(&mut self, node: usize) {
        let route = Route { path: self.config.path, is_cut: false, last_at: 0 };
        for routes in &mut self.routes {
            routes.push(route);
        }
        self.routes.push(vec![route; node + 1]);
    }

    pub(super) fn bind(
        &mut self,
        node: usize,
        socket: SocketId,
        local: SocketAddr,
        peer: Option<SocketAddr>,
    ) -> Result<SocketAddr, BindError> {
        let slot = &self.nodes[node];
        if slot.sockets.contains_key(&socket) {
            return Err(BindError::InUse);
        }
        let ip =
            if local.ip().is_unspecified() { slot.ips.first().copied() } else { Some(local.ip()) };
        let Some(ip) = ip.filter(|ip| slot.ips.contains(ip)) else {
            return Err(BindError::NotHere);
        };
        let local = match local.port() {
            0 => self.free_port(node, ip)?,
            port => SocketAddr::new(ip, port),
        };
        if self.bound.contains_key(&local) {
            return Err(BindError::InUse);
        }
        self.bound.insert(local, (node, socket));
        self.nodes[node].sockets.insert(socket, Binding { local, peer });
        Ok(local)
    }

    fn free_port(&mut self, node: usize, ip: IpAddr) -> Result<SocketAddr, BindError> {
        for _ in EPHEMERAL_FIRST..=u16::MAX {
            let slot = &mut self.nodes[node];
            let local = SocketAddr::new(ip, EPHEMERAL_FIRST + slot.port_next);
            slot.port_next = (slot.port_next + 1) % (u16::MAX - EPHEMERAL_FIRST);
            if !self.bound.contains_key(&local) {
                return Ok(local);
            }
        }
        Err(BindError::InUse)
    }

    pub(super) fn unbind(&mut self, node: usize, socket: SocketId) {
        if let Some(binding) = self.nodes[node].sockets.remove(&socket)
            && self.bound.get(&binding.local) == Some(&(node, socket))
        {
            self.bound.remove(&binding.local);
        }
    }

    /// Sends a datagram.
    pub(super) fn datagram(&mut self, node: usize, socket: SocketId, to: SocketAddr, bytes: Bytes) {
        let slot = &self.nodes[node];
        let Some(binding) = slot.sockets.get(&socket) else { return };
        let (from, to) = (binding.local, binding.peer.unwrap_or(to));
        let Some(receiver) = self.host(to) else { return };
        let route = self.routes[node][receiver];
        if route.is_cut || slot.host_is_down || self.random.hits(route.path.loss) {
            return;
        }
        let event = |bytes| Event::Datagram { sender: node, socket, from, to, bytes };
        if self.random.hits(route.path.duplicate) {
            let at = self.datagram_at(node, receiver);
            self.calendar.schedule(at, event(bytes.clone()));
        }
        let at = self.datagram_at(node, receiver);
        self.calendar.schedule(at, event(bytes));
    }

    /// Draws when a datagram that leaves now arrives.
    fn datagram_at(&mut self, from: usize, to: usize) -> u64 {
        let route = &mut self.routes[from][to];
        let path = route.path;
        let at = self.now + nanos(path.delay) + self.random.below(nanos(path.jitter));
        if self.random.hits(path.reorder) {
            // Held up somewhere; it holds up no other.
            return at + self.random.below(4 * nanos(path.delay + path.jitter));
        }
        route.last_at = route.last_at.max(at);
        route.last_at
    }

    /// A datagram has come through the network.
    pub(super) fn datagram_arrives(
        &mut self,
        sender: usize,
        socket: SocketId,
        from: SocketAddr,
        to: SocketAddr,
        bytes: Bytes,
        watch: Watch<'_>,
    ) -> bool {
        let Some(host) = self.host(to).filter(|&host| !self.nodes[host].host_is_down) else {
            return false;
        };
        let listening = self.bound.get(&to).copied().filter(|&(node, socket)| {
            let binding = self.nodes[node].sockets.get(&socket);
            binding.is_some_and(|binding| binding.peer.is_none_or(|peer| peer == from))
        });
        let Some((node, receiving)) = listening else {
            self.refuse(sender, socket, host, to);
            return false;
        };
        let slot = &mut self.nodes[node];
        if slot.is_paused {
            let cost = bytes.len() + DATAGRAM_COST;
            if slot.inbox_len + cost <= INBOX_LEN_MAX {
                slot.inbox_len += cost;
                slot.inbox.push_back(Event::Datagram { sender, socket, from, to, bytes });
            }
            return false;
        }
        self.deliver(node, Input::Datagram { socket: receiving, from, bytes }, watch)
    }

    /// A living host says that nobody listens at `to`; only a connected
    /// socket hears it.
    fn refuse(&mut self, sender: usize, socket: SocketId, host: usize, to: SocketAddr) {
        let route = self.routes[host][sender];
        let binding = self.nodes[sender].sockets.get(&socket);
        if binding.and_then(|binding| binding.peer) != Some(to)
            || route.is_cut
            || self.random.hits(route.path.loss)
        {
            return;
        }
        let at = self.datagram_at(host, sender);
        self.tell_later(sender, at, Input::Refused { socket });
    }

    /// Returns the node that has this socket, or else one on the host that
    /// has this address.
    fn host(&self, addr: SocketAddr) -> Option<usize> {
        match self.bound.get(&addr) {
            Some(&(node, _)) => Some(node),
            None => self.nodes.iter().position(|slot| slot.ips.contains(&addr.ip())),
        }
    }
}

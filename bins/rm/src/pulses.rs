//! The sockets over which b2bs keep their slots.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use bytes::Bytes;
use driver::{Output, SocketId};
use failover::NodeId;
use failover::pulse::{Datagram, Pulse, PulseBack};

use crate::config::Config;

/// One socket at which pulses are heard, and one for each node that gets ours, connected, so that a
/// refusal says who is gone.
#[derive(Debug)]
pub(crate) struct Pulses {
    first: SocketId,
    listen: Option<SocketAddr>,
    peers: BTreeMap<NodeId, (SocketId, SocketAddr)>,
}

impl Pulses {
    /// Opens the sockets, numbered from `first` on: a b2b sends to every other b2b and to whoever
    /// votes, and those answer.
    pub(crate) fn new(config: &Config, first: SocketId, outputs: &mut VecDeque<Output>) -> Self {
        let is_asked = config.peers.iter().any(|peer| peer.roles.b2b);
        let listen = config.links.filter(|_| is_asked);
        if let Some(local) = listen {
            outputs.push_back(Output::Bind { socket: first, local, peer: None });
        }
        let asked = config.peers.iter().filter(|peer| {
            let votes = peer.roles.gate || config.witness == Some(peer.node);
            config.roles.b2b && (peer.roles.b2b || votes)
        });
        let mut peers = BTreeMap::new();
        for (number, (node, addr)) in
            (first.0 + 1..).zip(asked.filter_map(|peer| Some((peer.node, peer.links?))))
        {
            let (socket, local) = (SocketId(number), SocketAddr::new(config.address, 0));
            outputs.push_back(Output::Bind { socket, local, peer: Some(addr) });
            peers.insert(node, (socket, addr));
        }
        Self { first, listen, peers }
    }

    /// Returns whether this is one of the sockets.
    pub(crate) fn has(&self, socket: SocketId) -> bool {
        socket == self.first || self.peer(socket).is_some()
    }

    /// Returns where pulses are heard, if this is the socket.
    pub(crate) fn listens(&self, socket: SocketId) -> Option<SocketAddr> {
        self.listen.filter(|_| socket == self.first)
    }

    /// Returns to whom the socket is connected.
    pub(crate) fn peer(&self, socket: SocketId) -> Option<NodeId> {
        self.peers.iter().find(|(_, (known, _))| *known == socket).map(|(node, _)| *node)
    }

    /// Reads what came over a socket; `None` for what does not belong there.
    pub(crate) fn read(&self, socket: SocketId, bytes: &[u8]) -> Option<Datagram> {
        let peer = self.peer(socket);
        Datagram::decode(bytes).filter(|datagram| match datagram {
            Datagram::Pulse(_) => socket == self.first,
            Datagram::Back(back) => peer == Some(back.node),
        })
    }

    /// Sends a pulse.
    pub(crate) fn send(&self, to: NodeId, pulse: &Pulse, outputs: &mut VecDeque<Output>) {
        let Some((socket, addr)) = self.peers.get(&to) else { return };
        let bytes = Bytes::from(pulse.encode());
        outputs.push_back(Output::Datagram { socket: *socket, to: *addr, bytes });
    }

    /// Answers a pulse.
    pub(crate) fn answer(&self, to: SocketAddr, back: PulseBack, outputs: &mut VecDeque<Output>) {
        let bytes = Bytes::from(back.encode());
        outputs.push_back(Output::Datagram { socket: self.first, to, bytes });
    }
}

//! Where a SIP message came from, and where the next one to that peer goes.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::{Boot, NodeId};

/// The way between a gate and a peer: one remote address at one listener, or one connection.
///
/// A flow is named by the gate's boot too: what a gate knew about connections ends with the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Flow {
    /// The gate that owns the socket.
    pub gate: NodeId,
    /// The gate's boot when the flow was named.
    pub boot: Boot,
    /// The gate's listener; its advertised address stands in the Contact of the leg.
    pub listener: u8,
    /// What carries the messages.
    pub transport: Transport,
    /// The connection of a stream transport; 0 for datagrams.
    pub connection: u32,
    /// The peer's address. For a datagram that came in: where its answers go (RFC 3581 §4).
    pub remote: SocketAddr,
}

/// What carries SIP messages.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum Transport {
    /// Datagrams; requests are retransmitted.
    #[default]
    Udp,
    /// A plain stream.
    Tcp,
    /// A TLS stream.
    Tls,
}

impl Transport {
    /// Returns the name as it stands in a Via header.
    pub fn name(self) -> &'static str {
        match self {
            Self::Udp => "UDP",
            Self::Tcp => "TCP",
            Self::Tls => "TLS",
        }
    }

    /// Returns the port where SIP is spoken over it when nobody says otherwise (RFC 3261 §19.1.2).
    pub fn port(self) -> u16 {
        match self {
            Self::Udp | Self::Tcp => 5060,
            Self::Tls => 5061,
        }
    }

    /// Returns whether the transport itself repeats what was lost.
    pub fn is_reliable(self) -> bool {
        match self {
            Self::Udp => false,
            Self::Tcp | Self::Tls => true,
        }
    }
}

//! Where the media of a call is, and where it would go next.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use crate::{Boot, NodeId};

/// Ports for both legs of a call at one mediagate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Place {
    /// The mediagate.
    pub gateway: NodeId,
    /// Its boot: ports of an earlier life are void.
    pub boot: Boot,
    /// The address that phones are told.
    pub address: IpAddr,
    /// The RTP ports of caller and callee; RTCP is one above.
    pub ports: [u16; 2],
}

impl Place {
    /// Returns the RTP address that the phone of `leg` is told.
    pub fn rtp(&self, leg: usize) -> SocketAddr {
        SocketAddr::new(self.address, self.ports[leg & 1])
    }
}

/// The source that a mediagate has locked a leg to; a hint for the one that takes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Latched {
    /// Where the leg's RTP comes from.
    pub addr: SocketAddr,
    /// Its synchronisation source.
    pub ssrc: u32,
    /// A sequence number seen lately.
    pub seq: u16,
}

//! The sockets over which this process hears the mediagates.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use driver::{Output, SocketId};
use failover::{Boot, NodeId, detector};
use media::beat::{Beat, Hear};

/// One socket per mediagate, connected to its beat address, so that a refusal says who is gone.
#[derive(Debug)]
pub(crate) struct Beats {
    own: u16,
    address: IpAddr,
    realtime: bool,
    next_socket: u32,
    sockets: BTreeMap<NodeId, (SocketId, SocketAddr)>,
    gateways: BTreeMap<SocketId, NodeId>,
}

impl Beats {
    /// Returns no socket yet. Numbers from `first_socket` on are used.
    pub(crate) fn new(own: u16, address: IpAddr, realtime: bool, first_socket: u32) -> Self {
        let (sockets, gateways) = (BTreeMap::new(), BTreeMap::new());
        Self { own, address, realtime, next_socket: first_socket, sockets, gateways }
    }

    /// Connects a socket to the beat address of `gateway`, unless there is one.
    pub(crate) fn watch(
        &mut self,
        gateway: NodeId,
        beat: SocketAddr,
        outputs: &mut VecDeque<Output>,
    ) {
        match self.sockets.get(&gateway) {
            Some((_, known)) if *known == beat => return,
            Some((socket, _)) => {
                self.gateways.remove(socket);
                outputs.push_back(Output::Unbind { socket: *socket });
            }
            None => {}
        }
        let socket = SocketId(self.next_socket);
        self.next_socket += 1;
        self.sockets.insert(gateway, (socket, beat));
        self.gateways.insert(socket, gateway);
        let local = SocketAddr::new(self.address, 0);
        outputs.push_back(Output::Bind { socket, local, peer: Some(beat) });
    }

    /// Asks `gateway` for beats.
    pub(crate) fn ask(&self, gateway: NodeId, outputs: &mut VecDeque<Output>) {
        let Some((socket, to)) = self.sockets.get(&gateway) else { return };
        let hear = Hear { hearer: self.own, realtime: self.realtime };
        let bytes = Bytes::copy_from_slice(&hear.encode());
        outputs.push_back(Output::Datagram { socket: *socket, to: *to, bytes });
    }

    /// Returns whose socket this is.
    pub(crate) fn gateway(&self, socket: SocketId) -> Option<NodeId> {
        self.gateways.get(&socket).copied()
    }

    /// Reads what came over the socket of `gateway`; `None` for what is no beat of it.
    pub(crate) fn read(gateway: NodeId, bytes: &[u8]) -> Option<detector::Beat> {
        let beat = Beat::decode(bytes)?;
        (beat.gateway == gateway.0).then_some(detector::Beat {
            gateway,
            boot: Boot(beat.boot),
            worker: beat.worker,
            workers: beat.workers,
            seq: beat.seq,
            realtime: beat.realtime,
            standby: beat.standby,
            draining: beat.draining,
            legs: beat.legs,
            legs_max: beat.legs_max,
        })
    }
}

/// `failover` judges by periods that `media` keeps, and neither sees the other.
const _: () = {
    let (judged, kept) = (detector::BEAT_PERIOD, media::beat::BEAT_PERIOD);
    assert!(judged.as_nanos() == kept.as_nanos());
    let (asked, heard) = (detector::HEAR_PERIOD, media::beat::HEAR_EXPIRY);
    assert!(2 * asked.as_nanos() <= heard.as_nanos());
};

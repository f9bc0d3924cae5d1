//! What comes in: frames and datagrams, to the role that each is for.

use std::net::SocketAddr;
use std::time::Instant;

use b2bua::frame::{SipIn, SipOut};
use b2bua::{Listener, gate};
use bytes::Bytes;
use driver::{Output, SocketId, StopReason};
use failover::controller::{self, Ask, Gateways, Here, Introduce, Verdict};
use failover::replica::{Ack, Batch};
use failover::voter::{Bid, Vote};
use failover::{Boot, NodeId, SlotMap, verdicts};
use tracing::warn;

use super::Rm;
use crate::beats::Beats;
use crate::frames::{Frame, GateHello, WallClock};

impl Rm {
    pub(super) fn datagram(
        &mut self,
        now: Instant,
        socket: SocketId,
        from: SocketAddr,
        bytes: Bytes,
    ) {
        if self.pulses.has(socket) {
            if self.pulse(now, socket, from, &bytes).is_none() {
                self.malformed += 1;
            }
        } else if let Some(gateway) = self.beats.gateway(socket) {
            let Some(beat) = Beats::read(gateway, &bytes) else {
                self.malformed += 1;
                return;
            };
            if let Some(role) = &mut self.b2b {
                role.verdicts.handle_input(now, verdicts::Input::Beat(beat));
            }
            if let Some(controller) = &mut self.controller {
                controller.handle_input(now, controller::Input::Beat(beat));
            }
        } else {
            self.tell_gate(now, socket, |listener| gate::Input::Datagram { listener, from, bytes });
        }
    }

    /// Tells the gate what happened to one of its listeners.
    pub(super) fn tell_gate(
        &mut self,
        now: Instant,
        socket: SocketId,
        input: impl FnOnce(u8) -> gate::Input,
    ) {
        if let (Some(gate), Ok(listener)) = (&mut self.gate, u8::try_from(socket.0)) {
            gate.handle_input(now, input(listener));
        }
    }

    pub(super) fn refused(&mut self, now: Instant, socket: SocketId) {
        if let Some(peer) = self.pulses.peer(socket) {
            self.pulse_refused(now, peer);
        }
        let Some(gateway) = self.beats.gateway(socket) else { return };
        if let Some(role) = &mut self.b2b {
            role.verdicts.handle_input(now, verdicts::Input::Refused(gateway));
        }
        if let Some(controller) = &mut self.controller {
            controller.handle_input(now, controller::Input::Refused(gateway));
        }
    }

    pub(super) fn bind_failed(&mut self, socket: SocketId, error: driver::BindError) {
        let place = usize::try_from(socket.0).ok();
        if let Some(local) = place.and_then(|place| self.locals.get(place)) {
            let reason = format!("cannot listen for SIP on {local}: {error}");
            self.outputs.push_back(Output::Stop(StopReason::Failed(reason)));
        } else if let Some(local) = self.pulses.listens(socket) {
            let reason = format!("cannot hear pulses on UDP {local}: {error}");
            self.outputs.push_back(Output::Stop(StopReason::Failed(reason)));
        } else {
            warn!(%error, "no socket to hear another node");
        }
    }

    /// Hands a frame to the role that it is for. What no role of ours takes, or comes from a peer whose
    /// role does not send it, is counted.
    pub(super) fn frame(&mut self, now: Instant, peer: NodeId, kind: u16, payload: Bytes) {
        let roles = self.peers.get(&peer).map(|peer| peer.roles).unwrap_or_default();
        let votes = roles.gate || self.witness_id == Some(peer);
        let taken = match kind {
            CLUSTER_KINDS_FIRST..=CLUSTER_KINDS_LAST => {
                let membership = self.membership.as_mut();
                membership.and_then(|membership| membership.frame(now, peer, kind, &payload))
            }
            SipIn::KIND if roles.gate || roles.b2b => self.sip_in(now, peer, payload),
            GateHello::KIND if roles.gate => self.gate_hello(now, peer, &payload),
            SipOut::KIND if roles.b2b || roles.gate => self.sip_out(now, peer, payload),
            SlotMap::KIND if roles.b2b || votes => self.map_frame(now, peer, &payload),
            Batch::KIND | Ack::KIND | WallClock::KIND if roles.b2b => {
                self.copies_frame(now, peer, kind, &payload)
            }
            Bid::KIND if roles.b2b => self.bid_frame(now, peer, &payload),
            Vote::KIND if votes => self.vote_frame(now, peer, &payload),
            Introduce::KIND | Ask::KIND if roles.b2b => {
                self.controller_frame(now, peer, kind, &payload)
            }
            Here::KIND | Gateways::KIND | Verdict::KIND if roles.controller => {
                self.verdict_frame(now, peer, kind, &payload)
            }
            _ if roles.mediagate => self.mediagate_frame(now, peer, kind, &payload),
            _ => None,
        };
        if taken.is_none() {
            self.malformed += 1;
        }
    }

    fn sip_in(&mut self, now: Instant, peer: NodeId, payload: Bytes) -> Option<()> {
        let frame = SipIn::decode(payload).ok()?;
        match &mut self.b2b {
            Some(role) if !frame.is_returned() => {
                role.came_by(now, frame.flow.gate, peer);
                role.sip(now, frame);
            }
            Some(_) | None => {
                self.gate.as_mut()?.handle_input(now, gate::Input::Relay { from: peer, frame });
            }
        }
        Some(())
    }

    fn sip_out(&mut self, now: Instant, peer: NodeId, payload: Bytes) -> Option<()> {
        let gate = self.gate.as_mut()?;
        let frame = SipOut::decode(payload).ok()?;
        gate.handle_input(now, gate::Input::Sip { from: peer, frame });
        Some(())
    }

    fn gate_hello(&mut self, now: Instant, peer: NodeId, payload: &[u8]) -> Option<()> {
        let role = self.b2b.as_mut()?;
        let hello: GateHello = driver::codec::decode(payload).ok()?;
        let listeners = hello.listeners.into_iter().zip(0..=u8::MAX);
        let listeners =
            listeners.map(|((transport, advertise), id)| Listener { id, transport, advertise });
        let up = b2bua::Input::GateUp {
            gate: peer,
            boot: Boot(hello.boot),
            listeners: listeners.collect(),
        };
        role.b2b.handle_input(now, up);
        Some(())
    }

    fn copies_frame(
        &mut self,
        now: Instant,
        peer: NodeId,
        kind: u16,
        payload: &[u8],
    ) -> Option<()> {
        let role = self.b2b.as_mut()?;
        let taken = match kind {
            Batch::KIND => role.batch(peer, payload, &mut self.outputs),
            WallClock::KIND => role.wall_clock(now, peer, payload),
            _ => role.ack(now, peer, payload),
        };
        taken.then_some(())
    }

    fn controller_frame(
        &mut self,
        now: Instant,
        peer: NodeId,
        kind: u16,
        payload: &[u8],
    ) -> Option<()> {
        let controller = self.controller.as_mut()?;
        if kind == Ask::KIND {
            let ask: Ask = driver::codec::decode(payload).ok()?;
            controller.handle_input(now, controller::Input::Asked { b2b: peer, ask });
        } else {
            let introduce: Introduce = driver::codec::decode(payload).ok()?;
            self.beats.watch(introduce.gateway, introduce.beat, &mut self.outputs);
            controller.handle_input(now, controller::Input::Introduced(introduce));
        }
        Some(())
    }

    fn verdict_frame(
        &mut self,
        now: Instant,
        peer: NodeId,
        kind: u16,
        payload: &[u8],
    ) -> Option<()> {
        let role = self.b2b.as_mut()?;
        let input = match kind {
            Here::KIND => {
                let Here = driver::codec::decode(payload).ok()?;
                verdicts::Input::Here(peer)
            }
            Gateways::KIND => verdicts::Input::Gateways(peer, driver::codec::decode(payload).ok()?),
            _ => verdicts::Input::Verdict(peer, driver::codec::decode(payload).ok()?),
        };
        role.verdicts.handle_input(now, input);
        Some(())
    }

    fn mediagate_frame(
        &mut self,
        now: Instant,
        peer: NodeId,
        kind: u16,
        payload: &[u8],
    ) -> Option<()> {
        let role = self.b2b.as_mut().filter(|role| role.mediagates.knows(peer))?;
        let notice = crate::frames::notice(kind, payload)?;
        role.notice(now, peer, notice, &mut self.beats, &mut self.outputs);
        Some(())
    }
}

/// The kinds of frames between the nodes of a cluster of segments.
const CLUSTER_KINDS_FIRST: u16 = 0x0400;
const CLUSTER_KINDS_LAST: u16 = 0x04ff;

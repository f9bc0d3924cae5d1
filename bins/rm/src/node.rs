//! The process: routes the output of one machine into the input of another.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use b2bua::frame::{SipIn, SipOut};
use b2bua::gate::{self, Gate};
use b2bua::{B2b, Listener};
use bytes::Bytes;
use driver::{Class, Input, Metrics, Node, Output, SocketId, Start, StopReason};
use failover::controller::{self, Ask, Controller, Gateways, Here, Introduce, Verdict};
use failover::verdicts::{self, Verdicts};
use failover::{Boot, Clock, Epoch, NodeId, SlotMap, UnixMs};
use tracing::{info, warn};

use crate::b2b_role::{B2bRole, Wish};
use crate::beats::Beats;
use crate::config::{Config, PeerRoles};
use crate::figures;
use crate::frames::{Frame, GateHello, send};
use crate::mediagates::Mediagates;

/// `holdline-rm`: any set of the roles gate, b2b and controller in one process.
pub struct Rm {
    id: NodeId,
    boot: Boot,
    /// The last `now`, for the figures.
    now: Instant,
    peers: BTreeMap<NodeId, PeerRoles>,
    listeners: Vec<Listener>,
    /// Listeners that are not open yet.
    unopened: usize,
    gate: Option<Gate>,
    b2b: Option<B2bRole>,
    controller: Option<Controller>,
    beats: Beats,
    slots: SlotMap,
    draining: bool,
    malformed: u64,
    outputs: VecDeque<Output>,
}

impl Rm {
    /// Returns the process that `config` describes.
    pub fn new(config: &Config, start: &Start) -> Self {
        let (id, now) = (config.node, start.instant);
        let boot = Boot(start.boot);
        let clock = Clock { instant: now, unix_ms: UnixMs(start.unix_ms) };
        // Grows over restarts as long as the clock is not set back by more than the process lived.
        let epoch = Epoch(u32::try_from(start.unix_ms / 1000).unwrap_or(u32::MAX));
        let slots = if config.roles.b2b {
            SlotMap::whole(failover::slots::Reign { owner: id, standby: None, epoch })
        } else {
            SlotMap::empty()
        };
        let b2b = config.roles.b2b.then(|| {
            let b2b = B2b::new(config.b2b.clone(), id, clock, start.seed);
            let verdicts = Verdicts::new(now, start.realtime);
            let ids = config.mediagates();
            let mediagates = Mediagates::new(now, &config.host, ids, None);
            B2bRole::new(id, b2b, verdicts, mediagates)
        });
        let listeners = config.numbered_listeners();
        let mut rm = Self {
            id,
            boot,
            now,
            peers: config.peers.iter().map(|peer| (peer.node, peer.roles)).collect(),
            unopened: listeners.len(),
            gate: config.roles.gate.then(|| Gate::new(now, config.gate(boot), start.seed)),
            b2b,
            controller: config.roles.controller.then(|| Controller::new(now, start.realtime)),
            beats: Beats::new(id.0, config.address, start.realtime, BEAT_SOCKETS),
            slots,
            draining: false,
            malformed: 0,
            outputs: VecDeque::new(),
            listeners,
        };
        for (listener, one) in rm.listeners.iter().zip(&config.listeners) {
            let socket = SocketId(u32::from(listener.id));
            rm.outputs.push_back(Output::Bind { socket, local: one.listen, peer: None });
        }
        rm.introduce_roles(now);
        rm.settle(now);
        rm
    }

    /// Returns whether every listener is open.
    pub fn is_open(&self) -> bool {
        self.unopened == 0
    }

    /// Returns the call machine, for figures and checks.
    pub fn b2b(&self) -> Option<&B2b> {
        self.b2b.as_ref().map(|role| &role.b2b)
    }

    /// Lets the roles of this process know each other.
    fn introduce_roles(&mut self, now: Instant) {
        if let Some(role) = &mut self.b2b {
            for (slot, reign) in self.slots.reigns() {
                let owned = b2bua::Input::Owned { slot, epoch: reign.epoch };
                role.b2b.handle_input(now, owned);
            }
            if self.gate.is_some() {
                let listeners = self.listeners.clone();
                let up = b2bua::Input::GateUp { gate: self.id, boot: self.boot, listeners };
                role.b2b.handle_input(now, up);
            }
            if let Some(controller) = &mut self.controller {
                controller.handle_input(now, controller::Input::B2bUp(self.id));
                role.controller_up(now, self.id, &mut self.outputs);
            }
            if let Some(gate) = &mut self.gate {
                gate.handle_input(now, gate::Input::B2bUp(self.id));
                let map = self.slots.clone();
                gate.handle_input(now, gate::Input::Slots { from: self.id, map });
            }
        }
    }

    fn link_up(&mut self, now: Instant, peer: NodeId, class: Class) {
        let Some(roles) = self.peers.get(&peer).copied() else { return };
        let to = driver::NodeId(peer.0);
        match class {
            Class::Calls => {
                if roles.b2b
                    && let Some(gate) = &mut self.gate
                {
                    let listeners = self.listeners.iter();
                    let listeners = listeners.map(|one| (one.transport, one.advertise)).collect();
                    let hello = GateHello { boot: self.boot.0, listeners };
                    self.outputs.push_back(send(to, class, &hello));
                    gate.handle_input(now, gate::Input::B2bUp(peer));
                }
                if roles.gate && self.b2b.is_some() {
                    self.outputs.push_back(send(to, class, &self.slots));
                }
                if let Some(role) = &mut self.b2b {
                    role.mediagates.link_up(peer);
                }
            }
            Class::Control => {
                if roles.b2b
                    && let Some(controller) = &mut self.controller
                {
                    controller.handle_input(now, controller::Input::B2bUp(peer));
                }
                if roles.controller
                    && let Some(role) = &mut self.b2b
                {
                    role.controller_up(now, peer, &mut self.outputs);
                }
            }
            Class::Bulk => {}
        }
    }

    fn link_down(&mut self, now: Instant, peer: NodeId, class: Class) {
        let Some(roles) = self.peers.get(&peer).copied() else { return };
        match class {
            Class::Calls => {
                if roles.b2b
                    && let Some(gate) = &mut self.gate
                {
                    gate.handle_input(now, gate::Input::B2bDown(peer));
                }
                let Some(role) = &mut self.b2b else { return };
                if roles.gate {
                    role.b2b.handle_input(now, b2bua::Input::GateDown { gate: peer });
                }
                if roles.mediagate {
                    role.mediagates.link_down(now, peer);
                    role.verdicts.handle_input(now, verdicts::Input::LinkDown(peer));
                    if let Some(controller) = &mut self.controller {
                        controller.handle_input(now, controller::Input::LinkLost(peer));
                    }
                }
            }
            Class::Control => {
                if roles.b2b
                    && let Some(controller) = &mut self.controller
                {
                    controller.handle_input(now, controller::Input::B2bDown(peer));
                }
                if roles.controller
                    && let Some(role) = &mut self.b2b
                {
                    role.controller_down(now, peer);
                }
            }
            Class::Bulk => {}
        }
    }

    fn datagram(
        &mut self,
        now: Instant,
        socket: SocketId,
        from: std::net::SocketAddr,
        bytes: Bytes,
    ) {
        if let Some(gateway) = self.beats.gateway(socket) {
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
        } else if let (Some(gate), Ok(listener)) = (&mut self.gate, u8::try_from(socket.0)) {
            gate.handle_input(now, gate::Input::Datagram { listener, from, bytes });
        }
    }

    fn refused(&mut self, now: Instant, socket: SocketId) {
        let Some(gateway) = self.beats.gateway(socket) else { return };
        if let Some(role) = &mut self.b2b {
            role.verdicts.handle_input(now, verdicts::Input::Refused(gateway));
        }
        if let Some(controller) = &mut self.controller {
            controller.handle_input(now, controller::Input::Refused(gateway));
        }
    }

    fn bind_failed(&mut self, socket: SocketId, error: driver::BindError) {
        let listener = self.listeners.iter().find(|one| u32::from(one.id) == socket.0);
        if let Some(listener) = listener {
            let reason = format!("listener {}: {error}", listener.advertise);
            self.outputs.push_back(Output::Stop(StopReason::Failed(reason)));
        } else {
            warn!(%error, "no socket to hear a mediagate");
        }
    }

    /// Hands a frame to the role that it is for. What no role of ours takes, or comes from a peer whose
    /// role does not send it, is counted.
    fn frame(&mut self, now: Instant, peer: NodeId, kind: u16, payload: Bytes) {
        let roles = self.peers.get(&peer).copied().unwrap_or_default();
        let taken = match kind {
            SipIn::KIND if roles.gate => self.sip_in(now, payload),
            GateHello::KIND if roles.gate => self.gate_hello(now, peer, &payload),
            SipOut::KIND if roles.b2b => self.sip_out(now, peer, payload),
            SlotMap::KIND if roles.b2b => self.slot_map(now, peer, &payload),
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

    fn sip_in(&mut self, now: Instant, payload: Bytes) -> Option<()> {
        let role = self.b2b.as_mut()?;
        role.b2b.handle_input(now, b2bua::Input::Sip(SipIn::decode(payload).ok()?));
        Some(())
    }

    fn sip_out(&mut self, now: Instant, peer: NodeId, payload: Bytes) -> Option<()> {
        let gate = self.gate.as_mut()?;
        let frame = SipOut::decode(payload).ok()?;
        gate.handle_input(now, gate::Input::Sip { b2b: peer, frame });
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

    fn slot_map(&mut self, now: Instant, peer: NodeId, payload: &[u8]) -> Option<()> {
        let map: SlotMap = driver::codec::decode(payload).ok()?;
        self.gate.as_mut()?.handle_input(now, gate::Input::Slots { from: peer, map });
        Some(())
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

    /// Carries every output to where it is taken in, until nothing moves any more.
    fn settle(&mut self, now: Instant) {
        loop {
            let mut busy = self.drain_controller(now);
            if let Some(role) = &mut self.b2b {
                busy |= role.drain(now, &self.beats, &mut self.outputs);
            }
            while let Some(wish) = self.b2b.as_mut().and_then(|role| role.wishes.pop_front()) {
                busy = true;
                self.grant(now, wish);
            }
            busy |= self.drain_gate(now);
            if !busy {
                break;
            }
        }
        let drained = self.b2b.as_ref().is_none_or(|role| role.b2b.is_drained());
        if self.draining && drained {
            self.draining = false;
            self.outputs.push_back(Output::Stop(StopReason::Drained));
        }
    }

    fn grant(&mut self, now: Instant, wish: Wish) {
        match wish {
            Wish::Sip(message) if message.flow.gate == self.id => {
                if let Some(gate) = &mut self.gate {
                    gate.handle_input(now, gate::Input::Sip { b2b: self.id, frame: message });
                }
            }
            Wish::Sip(message) => self.outputs.push_back(Output::Frame {
                peer: driver::NodeId(message.flow.gate.0),
                class: Class::Calls,
                kind: SipOut::KIND,
                payload: message.encode(),
            }),
            Wish::Introduce(introduce) => {
                if let Some(controller) = &mut self.controller {
                    controller.handle_input(now, controller::Input::Introduced(introduce));
                }
            }
            Wish::Ask(ask) => {
                if let Some(controller) = &mut self.controller {
                    controller.handle_input(now, controller::Input::Asked { b2b: self.id, ask });
                }
            }
        }
    }

    fn drain_gate(&mut self, now: Instant) -> bool {
        let mut busy = false;
        while let Some(output) = self.gate.as_mut().and_then(Gate::poll_output) {
            busy = true;
            match output {
                gate::Output::Datagram { listener, to, bytes } => {
                    let socket = SocketId(u32::from(listener));
                    self.outputs.push_back(Output::Datagram { socket, to, bytes });
                }
                gate::Output::Sip { b2b, frame } if b2b == self.id => {
                    if let Some(role) = &mut self.b2b {
                        role.b2b.handle_input(now, b2bua::Input::Sip(frame));
                    }
                }
                gate::Output::Sip { b2b, frame } => self.outputs.push_back(Output::Frame {
                    peer: driver::NodeId(b2b.0),
                    class: Class::Calls,
                    kind: SipIn::KIND,
                    payload: frame.encode(),
                }),
            }
        }
        busy
    }

    fn drain_controller(&mut self, now: Instant) -> bool {
        let mut busy = false;
        while let Some(output) = self.controller.as_mut().and_then(Controller::poll_output) {
            busy = true;
            match output {
                controller::Output::Hear { gateway, .. } => {
                    self.beats.ask(gateway, &mut self.outputs);
                }
                controller::Output::Verdict { b2b, verdict } => {
                    let input = verdicts::Input::Verdict(self.id, verdict);
                    self.tell_b2b(now, b2b, input, &verdict);
                }
                controller::Output::Publish { b2b, gateways } => {
                    let input = verdicts::Input::Gateways(self.id, gateways.clone());
                    self.tell_b2b(now, b2b, input, &gateways);
                }
                controller::Output::Here { b2b } => {
                    self.tell_b2b(now, b2b, verdicts::Input::Here(self.id), &Here);
                }
            }
        }
        busy
    }

    fn tell_b2b<F: Frame>(&mut self, now: Instant, b2b: NodeId, input: verdicts::Input, frame: &F) {
        if b2b != self.id {
            self.outputs.push_back(send(driver::NodeId(b2b.0), Class::Control, frame));
        } else if let Some(role) = &mut self.b2b {
            role.verdicts.handle_input(now, input);
        }
    }

    fn drain_calls(&mut self, now: Instant) {
        info!("no new calls from now on; ends when the last call has ended");
        self.draining = true;
        if let Some(role) = &mut self.b2b {
            role.b2b.handle_input(now, b2bua::Input::Drain);
        }
    }
}

impl Node for Rm {
    fn handle_input(&mut self, now: Instant, input: Input) {
        self.now = now;
        match input {
            Input::Bound { socket, local } => {
                if socket.0 < BEAT_SOCKETS {
                    self.unopened -= 1;
                    info!(%local, "listening for SIP");
                }
            }
            Input::BindFailed { socket, error } => self.bind_failed(socket, error),
            Input::Datagram { socket, from, bytes } => self.datagram(now, socket, from, bytes),
            Input::Refused { socket } => self.refused(now, socket),
            Input::LinkUp { peer, class, .. } => self.link_up(now, NodeId(peer.0), class),
            Input::LinkDown { peer, class } => {
                warn!(peer = peer.0, ?class, "link is down");
                self.link_down(now, NodeId(peer.0), class);
            }
            Input::Frame { peer, kind, payload, .. } => {
                self.frame(now, NodeId(peer.0), kind, payload);
            }
            Input::Congested { peer, class: Class::Calls, on } => {
                if let Some(gate) = &mut self.gate {
                    gate.handle_input(now, gate::Input::Congested(NodeId(peer.0), on));
                }
            }
            Input::Congested { .. } | Input::Woken => {}
            Input::Drain => self.drain_calls(now),
            Input::Reload => warn!("nothing of this configuration can change while it runs"),
        }
        self.settle(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        if let Some(role) = &mut self.b2b {
            role.b2b.handle_timeout(now);
            role.verdicts.handle_timeout(now);
            role.mediagates.handle_timeout(now);
        }
        if let Some(controller) = &mut self.controller {
            controller.handle_timeout(now);
        }
        self.settle(now);
    }

    fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let b2b = self.b2b.as_ref();
        [
            b2b.and_then(|role| role.b2b.poll_timeout()),
            b2b.and_then(|role| role.verdicts.poll_timeout()),
            b2b.and_then(|role| role.mediagates.poll_timeout()),
            self.controller.as_ref().and_then(Controller::poll_timeout),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn metrics(&self, out: &mut Metrics) {
        let help = "Frames that no role of this process could take.";
        out.counter("rm_frames_dropped_total", help, &[], self.malformed);
        if let Some(gate) = &self.gate {
            figures::gate(gate, out);
        }
        if let Some(role) = &self.b2b {
            figures::b2b(role, self.now, out);
        }
        if let Some(controller) = &self.controller {
            figures::detector("controller", &controller.counters(), out);
        }
    }
}

/// Sockets from this number on hear mediagates; those below are listeners.
const BEAT_SOCKETS: u32 = 0x1_0000;

#[cfg(test)]
mod tests;

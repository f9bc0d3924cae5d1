//! The process: routes the output of one machine into the input of another.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Instant;

use b2bua::gate::{self, Gate};
use b2bua::{B2b, Listener};
use driver::{Class, Input, Metrics, Node, Output, SocketId, Start};
use failover::controller::{self, Controller};
use failover::verdicts::Verdicts;
use failover::{Boot, Clock, Epoch, NodeId, SlotMap, UnixMs};
use tracing::{info, warn};

use crate::b2b_role::B2bRole;
use crate::beats::Beats;
use crate::config::{Config, PeerRoles};
use crate::figures;
use crate::mediagates::Mediagates;

mod inbox;
mod links;
mod settle;

/// `holdline-rm`: any set of the roles gate, b2b and controller in one process.
pub struct Rm {
    id: NodeId,
    boot: Boot,
    /// The last `now`, for the figures.
    now: Instant,
    peers: BTreeMap<NodeId, PeerRoles>,
    listeners: Vec<Listener>,
    /// Their local addresses, in the same order.
    locals: Vec<SocketAddr>,
    /// Listeners that are not open yet.
    unopened: usize,
    gate: Option<Gate>,
    b2b: Option<B2bRole>,
    controller: Option<Controller>,
    /// Other gates whose links are up.
    gates_up: BTreeSet<NodeId>,
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
            locals: config.listeners.iter().map(|one| one.listen).collect(),
            unopened: listeners.len(),
            gate: config.roles.gate.then(|| Gate::new(now, config.gate(boot), start.seed)),
            b2b,
            controller: config.roles.controller.then(|| Controller::new(now, start.realtime)),
            gates_up: BTreeSet::new(),
            beats: Beats::new(id.0, config.address, start.realtime, BEAT_SOCKETS),
            slots,
            draining: false,
            malformed: 0,
            outputs: VecDeque::new(),
            listeners,
        };
        for (socket, local) in (0..).map(SocketId).zip(rm.locals.clone()) {
            rm.outputs.push_back(Output::Bind { socket, local, peer: None });
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
            Input::LinkUp { peer, class, .. } => self.link(now, NodeId(peer.0), class, true),
            Input::LinkDown { peer, class } => self.link(now, NodeId(peer.0), class, false),
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

    fn unready(&self) -> Option<&'static str> {
        if self.draining {
            return Some("draining");
        }
        if !self.is_open() {
            return Some("a listener is not open");
        }
        let role = self.b2b.as_ref()?;
        if !role.mediagates.is_any_there() {
            Some("no mediagate is there")
        } else if role.b2b.figures().gates == 0 {
            Some("no gate is there")
        } else {
            None
        }
    }
}

/// Sockets from this number on hear mediagates; those below are listeners.
const BEAT_SOCKETS: u32 = 0x1_0000;

#[cfg(test)]
mod tests;

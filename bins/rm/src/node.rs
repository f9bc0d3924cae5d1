//! The process: routes the output of one machine into the input of another.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Instant;

use b2bua::gate::{self, Gate};
use b2bua::{B2b, Listener, Transport};
use driver::notes::{Found, Notes};
use driver::store::{Loaded, Store};
use driver::{Class, Input, Metrics, Node, Output, SocketId, Start, StopReason};
use failover::controller::{self, Controller};
use failover::ownership::{self, Ownership};
use failover::slots::Reign;
use failover::verdicts::Verdicts;
use failover::voter::Voter;
use failover::{Boot, Clock, Epoch, NodeId, Slot, UnixMs};
use tracing::{info, warn};

use crate::b2b_role::B2bRole;
use crate::beats::Beats;
use crate::config::{Config, Peer};
use crate::figures;
use crate::kept::Kept;
use crate::mediagates::Mediagates;
use crate::membership::{self, Membership};
use crate::pulses::Pulses;

mod api;
mod inbox;
mod links;
mod reign;
mod settle;

/// `holdline-rm`: any set of the roles gate, b2b and controller in one process.
pub struct Rm {
    id: NodeId,
    boot: Boot,
    /// The last `now`, for the figures: also of a node that nothing reaches.
    now: Instant,
    peers: BTreeMap<NodeId, Peer>,
    /// Who votes and is no gate.
    witness_id: Option<NodeId>,
    listeners: Vec<Listener>,
    /// Their local addresses, in the same order.
    locals: Vec<SocketAddr>,
    /// Listeners that are not open yet.
    unopened: usize,
    gate: Option<Gate>,
    /// The vote of a node that is no gate.
    witness: Option<Voter>,
    b2b: Option<B2bRole>,
    /// Decides about calls, where limits are known.
    membership: Option<Membership>,
    controller: Option<Controller>,
    /// Other gates whose links are up.
    gates_up: BTreeSet<NodeId>,
    beats: Beats,
    pulses: Pulses,
    draining: bool,
    stopped: bool,
    malformed: u64,
    outputs: VecDeque<Output>,
}

impl Rm {
    /// Returns the process that `config` describes, with its store. One that cannot be opened stops
    /// it at once.
    pub fn new(config: &Config, start: &Start) -> Self {
        match stores(config, start) {
            Ok((store, notes)) => Self::with_stores(config, start, store, notes),
            Err(error) => {
                let mut rm = Self::with_stores(config, start, None, None);
                rm.outputs.push_back(Output::Stop(StopReason::Failed(error)));
                rm
            }
        }
    }

    /// Returns the process that `config` describes, with a store that is open already.
    pub fn with_store(config: &Config, start: &Start, store: Option<(Store, Loaded)>) -> Self {
        Self::with_stores(config, start, store, None)
    }

    /// Returns the process that `config` describes, with its records and its small files.
    pub fn with_stores(
        config: &Config,
        start: &Start,
        store: Option<(Store, Loaded)>,
        notes: Option<(Notes, Found)>,
    ) -> Self {
        let (id, now) = (config.node, start.instant);
        let boot = Boot(start.boot);
        let cluster = config.cluster.as_ref().filter(|_| config.roles.b2b);
        let membership = cluster.map(|part| Membership::new(config, part, start, notes));
        let b2b = config.roles.b2b.then(|| b2b_role(config, start, store, membership.as_ref()));
        let listeners = config.numbered_listeners();
        let is_witness = config.witness == Some(id) && !config.roles.gate;
        let mut outputs = VecDeque::new();
        for (socket, one) in (0..).map(SocketId).zip(&config.listeners) {
            let (local, limits, tls) = (one.listen, config.streams, one.tls.clone());
            outputs.push_back(match one.transport {
                Transport::Udp => Output::Bind { socket, local, peer: None },
                Transport::Tcp => Output::Listen { socket, local, limits, tls: None },
                Transport::Tls if tls.is_some() => Output::Listen { socket, local, limits, tls },
                Transport::Tls => {
                    let reason = format!("no certificate for SIP over TLS on {local}");
                    Output::Stop(StopReason::Failed(reason))
                }
            });
        }
        let mut rm = Self {
            id,
            boot,
            now,
            peers: config.peers.iter().map(|peer| (peer.node, peer.clone())).collect(),
            witness_id: config.witness,
            locals: config.listeners.iter().map(|one| one.listen).collect(),
            unopened: listeners.len(),
            gate: config.roles.gate.then(|| Gate::new(now, config.gate(boot), start.seed)),
            witness: is_witness.then(|| Voter::new(now, id, boot)),
            b2b,
            membership,
            controller: config.roles.controller.then(|| Controller::new(now, start.realtime)),
            gates_up: BTreeSet::new(),
            beats: Beats::new(id.0, config.address, start.realtime, BEAT_SOCKETS),
            pulses: Pulses::new(config, PULSE_SOCKETS, &mut outputs),
            draining: false,
            stopped: false,
            malformed: 0,
            outputs,
            listeners,
        };
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

    /// Returns who owns a slot as this process knows it, for figures and checks.
    pub fn reign(&self, slot: Slot) -> Option<Reign> {
        self.b2b.as_ref()?.ownership.map().get(slot)
    }

    /// Lets the roles of this process know each other.
    fn introduce_roles(&mut self, now: Instant) {
        if let Some(role) = &mut self.b2b {
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
            }
        }
    }

    fn drain_calls(&mut self, now: Instant) {
        self.draining = true;
        if self.gate.is_some() && self.peers.values().any(|peer| peer.roles.b2b) {
            info!(
                "phones signal through the gate of this process: it stays until it is told a second time"
            );
        }
        if let Some(role) = &mut self.b2b {
            role.drain_slots(now);
        }
        if let Some(membership) = &mut self.membership {
            membership.leave(now);
        }
    }
}

impl Node for Rm {
    fn handle_input(&mut self, now: Instant, input: Input) {
        self.now = now;
        self.keep_lease(now);
        match input {
            Input::Bound { socket, local } => {
                if socket < PULSE_SOCKETS {
                    self.unopened -= 1;
                    let listener = usize::try_from(socket.0).ok();
                    let listener = listener.and_then(|place| self.listeners.get(place));
                    let transport = listener.map_or("", |listener| listener.transport.name());
                    info!(%local, transport, "listening for SIP");
                }
            }
            Input::BindFailed { socket, error } => self.bind_failed(socket, error),
            Input::Datagram { socket, from, bytes } => self.datagram(now, socket, from, bytes),
            Input::Message { socket, connection, from, message } => {
                self.tell_gate(now, socket, |listener| {
                    let connection = connection.0;
                    gate::Input::Message { listener, connection, from, message }
                });
            }
            Input::Unsent { socket, to, bytes } => {
                self.tell_gate(now, socket, |listener| gate::Input::Unsent { listener, to, bytes });
            }
            Input::Refused { socket } => self.refused(now, socket),
            Input::LinkUp { peer, class, boot } => {
                self.link(now, NodeId(peer.0), class, Some(Boot(boot)));
            }
            Input::LinkDown { peer, class } => self.link(now, NodeId(peer.0), class, None),
            Input::Frame { peer, kind, payload, .. } => {
                self.frame(now, NodeId(peer.0), kind, payload);
            }
            Input::Congested { peer, class: Class::Calls, on } => {
                if let Some(gate) = &mut self.gate {
                    gate.handle_input(now, gate::Input::Congested(NodeId(peer.0), on));
                }
            }
            Input::Request { id, request } => self.asked(now, id, &request),
            Input::Written { number } => {
                if let Some(role) = &mut self.b2b {
                    role.written(now, number);
                }
            }
            Input::Unwritten { number } => {
                if let Some(role) = &mut self.b2b {
                    role.unwritten(now, number);
                }
            }
            Input::Congested { .. } | Input::Woken => {}
            Input::Drain => self.drain_calls(now),
            Input::Reload => warn!("nothing of this configuration can change while it runs"),
        }
        self.settle(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        self.keep_lease(now);
        if let Some(role) = &mut self.b2b {
            role.b2b.handle_timeout(now);
            role.verdicts.handle_timeout(now);
        }
        if let Some(membership) = &mut self.membership {
            membership.handle_timeout(now);
        }
        if let Some(controller) = &mut self.controller {
            controller.handle_timeout(now);
        }
        if let Some(gate) = &mut self.gate {
            gate.handle_timeout(now);
        }
        self.settle(now);
        // Behind what the others led to, of which a mediagate is told how much it is.
        if let Some(role) = &mut self.b2b
            && role.mediagates.poll_timeout().is_some_and(|at| at <= now)
        {
            role.serve_mediagates(now);
            self.settle(now);
        }
        // Last, so that what the others led to leaves in the same frame.
        if let Some(role) = &mut self.b2b
            && role.replicator.poll_timeout().is_some_and(|at| at <= now)
        {
            role.replicator.handle_timeout(now);
            self.settle(now);
        }
    }

    fn end_turn(&mut self, now: Instant) {
        while self.b2b.as_mut().is_some_and(|role| role.end_turn(now)) {
            self.settle(now);
        }
    }

    fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let b2b = self.b2b.as_ref();
        [
            b2b.and_then(|role| role.b2b.poll_timeout()),
            b2b.and_then(|role| role.ownership.poll_timeout()),
            b2b.and_then(|role| role.replicator.poll_timeout()),
            b2b.and_then(|role| role.verdicts.poll_timeout()),
            b2b.and_then(|role| role.mediagates.poll_timeout()),
            b2b.and_then(|role| role.details.poll_timeout()),
            b2b.and_then(|role| role.gives_until),
            b2b.and_then(B2bRole::restoring_at),
            b2b.and_then(B2bRole::lingers_until),
            self.membership.as_ref().and_then(Membership::poll_timeout),
            self.controller.as_ref().and_then(Controller::poll_timeout),
            self.gate.as_ref().and_then(Gate::poll_timeout),
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
        if let Some(membership) = &self.membership {
            membership.metrics(out);
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
        } else if role.ownership.map().reigns().next().is_none() {
            Some("nobody owns calls")
        } else {
            None
        }
    }
}

/// What outlives the process: records of calls, and small files.
type Stores = (Option<(Store, Loaded)>, Option<(Notes, Found)>);

fn stores(config: &Config, start: &Start) -> Result<Stores, String> {
    let store = config.records().map(|path| Store::open(&path, &config.segment)).transpose();
    let store = store.map_err(|error| error.to_string())?;
    let folder = config.store.as_ref().filter(|_| config.cluster.is_some());
    let notes = folder.map(|folder| Notes::open(folder, &membership::NOTES, start.waker.clone()));
    let notes = notes.transpose().map_err(|error| format!("the store cannot be read: {error}"))?;
    Ok((store, notes))
}

fn b2b_role(
    config: &Config,
    start: &Start,
    store: Option<(Store, Loaded)>,
    membership: Option<&Membership>,
) -> B2bRole {
    let (id, now, boot) = (config.node, start.instant, Boot(start.boot));
    let clock = Clock { instant: now, unix_ms: UnixMs(start.unix_ms) };
    let settings = b2bua::Config {
        stores: config.has_other_b2b() || store.is_some(),
        admits: membership.is_some(),
        routes: membership.map_or_else(|| config.b2b.routes.clone(), Membership::routes),
        ..config.b2b.clone()
    };
    let b2b = B2b::new(settings, id, clock, start.seed);
    let verdicts = Verdicts::new(now, start.realtime);
    let ids = config.mediagates();
    let mediagates = Mediagates::new(now, &config.host, ids);
    let mut ownership = Ownership::new(now, config.ownership(boot, clock));
    let used = Epoch(start.epoch.saturating_sub(1));
    ownership.handle_input(now, ownership::Input::Stored(used));
    let mut role = B2bRole::new(id, (boot, clock), b2b, ownership, verdicts, mediagates);
    role.kept = store.map(Kept::new);
    role.details.has_files = config.store.is_some();
    role
}

/// Sockets from this number on carry pulses; those below are listeners.
const PULSE_SOCKETS: SocketId = SocketId(0x1000);

/// Sockets from this number on hear mediagates.
const BEAT_SOCKETS: u32 = 0x1_0000;

#[cfg(test)]
mod tests;

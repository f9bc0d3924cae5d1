//! The gate: everything between a socket and the owner of a message's slot.
//!
//! A gate checks, limits and stamps what peers send, and hands whole messages to the b2b that owns
//! their slot; it sends what b2bs hand to it, while they own the slot. It keeps no dialog and resends
//! nothing; what belongs to a call, came over a connection and finds nobody to take it, waits for up to 32 s:
//! that is its only deadline. An owner that it cannot reach, whose pulses no longer come or say that
//! nothing of the gate comes there, it reaches through another node, and it does the same for other
//! gates and b2bs, once per message; what it cannot hand on to the owner it gives back to that gate,
//! which then takes another way. What it refuses, it answers statelessly, with a tag that starts
//! with `-`: the ACK to such an answer ends here.

mod answer;
mod passed;
mod request;
mod sources;
mod stream;
mod waiting;
mod ways;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use bytes::Bytes;
use failover::voter::Voter;
use failover::{Boot, NodeId, Slot, SlotMap};
use sip_core::{Message, Method, Verdict};

use crate::frame::{SipIn, SipOut};
use crate::slot::{self, SlotHash};
use crate::{Flow, Listener};
use answer::Answers;
use passed::Passed;
use request::{Arrival, Request};
use sources::{Admission, Sources};
pub use sources::{Limits, Network, NetworkError};
use waiting::Waiting;
use ways::{Hop, Ways};

/// What an operator decides about a gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The gate's node id.
    pub id: NodeId,
    /// The gate's boot.
    pub boot: Boot,
    /// The sockets towards peers.
    pub listeners: Vec<Listener>,
    /// Who may register and call, beside loopback. No limit and no ban applies to their messages; their
    /// connections are limited as everybody's.
    pub trusted: Vec<Network>,
    /// What others may send.
    pub limits: Limits,
    /// The segment's hash of messages without a tag of ours.
    pub slots: SlotHash,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A datagram came in.
    Datagram {
        /// The listener, as numbered in [`Listener::id`].
        listener: u8,
        /// Its source.
        from: SocketAddr,
        /// Its payload.
        bytes: Bytes,
    },
    /// A message came in over a connection.
    Message {
        /// The listener, as numbered in [`Listener::id`].
        listener: u8,
        /// The connection, as numbered in [`Flow::connection`].
        connection: u32,
        /// The peer's end of it.
        from: SocketAddr,
        /// The message.
        message: Box<Message>,
    },
    /// No connection took what an [`Output::Stream`] was to say.
    Unsent {
        /// The listener.
        listener: u8,
        /// Where it was to go.
        to: SocketAddr,
        /// The message.
        bytes: Bytes,
    },
    /// A b2b wants a message sent, by this gate or by another that it cannot reach.
    Sip {
        /// Who says so: a b2b, or a gate for one.
        from: NodeId,
        /// The frame.
        frame: SipOut,
    },
    /// Another gate cannot reach the owner of a message, or gives one of this gate back.
    Relay {
        /// Which gate.
        from: NodeId,
        /// The frame.
        frame: SipIn,
    },
    /// A b2b, or another gate, names the owners and epochs it knows.
    Slots {
        /// Who does.
        from: NodeId,
        /// What it knows.
        map: SlotMap,
    },
    /// The link to a b2b came up.
    B2bUp(NodeId),
    /// The link to a b2b ended.
    B2bDown(NodeId),
    /// The link to another gate came up.
    GateUp(NodeId),
    /// The link to another gate ended.
    GateDown(NodeId),
    /// Messages to this b2b wait for more than 100 ms, or no longer.
    Congested(NodeId, bool),
}

/// What is to be done, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send the datagram.
    Datagram {
        /// From this listener.
        listener: u8,
        /// To this address.
        to: SocketAddr,
        /// The payload.
        bytes: Bytes,
    },
    /// Say the message over a connection, and tell with [`Input::Unsent`] if there is none to take it.
    Stream {
        /// Of this listener.
        listener: u8,
        /// Over this one as long as it stands; 0 is none.
        connection: u32,
        /// Else over one with this peer, which is made if there is none; with port 0 over no other.
        to: SocketAddr,
        /// The message.
        bytes: Bytes,
    },
    /// Hand the message to the b2b, or to a gate that hands it to one, or back to its gate.
    Sip {
        /// Who gets it.
        to: NodeId,
        /// The frame.
        frame: SipIn,
    },
    /// Hand a b2b's message to the gate of its flow.
    Relay {
        /// The gate.
        gate: NodeId,
        /// The frame.
        frame: SipOut,
    },
}

/// What became of messages; all counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Datagrams, and messages over connections, that came in.
    pub received: u64,
    /// Of these, line breaks that only keep a NAT's binding open.
    pub keepalives: u64,
    /// No SIP: dropped.
    pub malformed: u64,
    /// Bad responses, bad ACKs and what cannot be answered: dropped.
    pub discarded: u64,
    /// Bad requests, answered 400, 416, 501 or 505.
    pub rejected: u64,
    /// Responses to nothing of ours: dropped.
    pub stray: u64,
    /// ACKs to the gate's own answers: they end here.
    pub acknowledged: u64,
    /// REGISTER and INVITE of strangers, answered 403.
    pub strangers: u64,
    /// Dropped because the source sent too much.
    pub limited: u64,
    /// Dropped because the source is banned.
    pub banned: u64,
    /// Bans begun.
    pub bans: u64,
    /// New requests answered 503 because their b2b is congested, has had no lease for long, or none is up.
    pub overloaded: u64,
    /// Messages that found nobody to take them: dropped. The senders of datagrams repeat them; who asked
    /// over a connection, for nothing that is known, or while too much waited, is answered 503.
    pub unowned: u64,
    /// Handed to a b2b.
    pub passed: u64,
    /// Of these, handed to another node than the owner, which could not be reached.
    pub detoured: u64,
    /// Handed on for another gate, or to another for a b2b.
    pub relayed: u64,
    /// Given back to another gate: the owner cannot be reached from here either.
    pub returned: u64,
    /// Sent for a b2b.
    pub sent: u64,
    /// Messages for b2bs, and answers of the gate itself, that no connection took. Requests of b2bs were
    /// refused in their peers' place.
    pub unsent: u64,
    /// ACKs of b2bs to such refusals: they end here.
    pub ended: u64,
    /// Not sent: the b2b does not own the slot in the epoch promised.
    pub fenced: u64,
    /// Not sent: the flow is not, or no longer, of this gate.
    pub stale_flows: u64,
}

/// One gate. See the [module](self).
#[derive(Debug)]
pub struct Gate {
    config: Config,
    voter: Voter,
    /// Until when those who may own what new requests are of may still be on their way.
    wakes_until: Instant,
    b2bs: BTreeMap<NodeId, B2b>,
    /// Other gates that can be reached.
    gates: BTreeSet<NodeId>,
    ways: Ways,
    sources: Sources,
    passed: Passed,
    waiting: Waiting,
    answers: Answers,
    counters: Counters,
    outputs: VecDeque<Output>,
}

#[derive(Clone, Copy, Debug)]
struct B2b {
    is_up: bool,
    is_congested: bool,
}

/// How long after its start a gate refuses no new request over UDP for want of an owner: it may be a copy of
/// one whose call comes back with the b2b, and is repeated (RFC 3261 §17.1.1.2).
const WAKING: Duration = Duration::from_secs(2);

impl Gate {
    /// Returns a gate that starts at `now` and knows no b2b. `seed` must be random and differ per
    /// start.
    pub fn new(now: Instant, config: Config, seed: u64) -> Self {
        Self {
            voter: Voter::new(now, config.id, config.boot),
            wakes_until: now + WAKING,
            b2bs: BTreeMap::new(),
            gates: BTreeSet::new(),
            ways: Ways::default(),
            sources: Sources::new(config.limits, seed),
            passed: Passed::new(now, seed),
            waiting: Waiting::default(),
            answers: Answers::new(seed),
            counters: Counters::default(),
            outputs: VecDeque::new(),
            config,
        }
    }

    /// Takes in what happened at `now`. Nothing a peer sends leads to more than one output.
    pub fn handle_input(&mut self, now: Instant, input: Input) {
        match input {
            Input::Datagram { listener, from, bytes } => {
                self.handle_datagram(now, listener, from, bytes);
            }
            Input::Message { listener, connection, from, message } => {
                self.handle_stream(now, listener, connection, from, &message);
            }
            Input::Unsent { listener, to, bytes } => self.unsent(now, listener, to, bytes),
            Input::Sip { from, frame } => self.send(now, from, frame),
            Input::Relay { from, frame } => self.relay(now, from, frame),
            Input::GateUp(gate) => {
                self.gates.insert(gate);
                self.look_for_takers(now);
            }
            Input::GateDown(gate) => {
                self.gates.remove(&gate);
            }
            Input::Slots { from, map } => {
                self.voter.name(now, from, &map);
                self.look_for_takers(now);
            }
            Input::B2bUp(b2b) => {
                self.b2bs.insert(b2b, B2b { is_up: true, is_congested: false });
                self.look_for_takers(now);
            }
            Input::B2bDown(b2b) => {
                if let Some(b2b) = self.b2bs.get_mut(&b2b) {
                    b2b.is_up = false;
                    b2b.is_congested = false;
                }
            }
            Input::Congested(b2b, on) => {
                if let Some(b2b) = self.b2bs.get_mut(&b2b) {
                    b2b.is_congested = on;
                }
            }
        }
    }

    /// Returns the next thing to do. Drain until `None` after every other call.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Returns the gate's vote: by it a b2b comes to own slots, and keeps them.
    pub fn voter(&mut self) -> &mut Voter {
        &mut self.voter
    }

    /// Returns the owners and epochs this gate knows, for a b2b or gate that starts.
    pub fn slots(&self) -> &SlotMap {
        self.voter.map()
    }

    /// Returns the gate's listeners.
    pub fn listeners(&self) -> &[Listener] {
        &self.config.listeners
    }

    /// Returns what was counted since the start.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    fn send(&mut self, now: Instant, from: NodeId, frame: SipOut) {
        let SipOut { slot, epoch, flow, .. } = frame;
        if !self.voter.accepts(now, slot, epoch) {
            self.counters.fenced += 1;
        } else if from != flow.gate
            && self.gates.contains(&flow.gate)
            && !self.gates.contains(&from)
        {
            self.counters.relayed += 1;
            self.outputs.push_back(Output::Relay { gate: flow.gate, frame });
        } else if flow.gate != self.config.id || !self.has_socket(&flow) {
            self.counters.stale_flows += 1;
        } else {
            if let Some(b2b) = self.owner(slot).filter(|_| self.is_way(from)) {
                self.ways.open(now, from, b2b);
            }
            self.say(&flow, frame.bytes);
        }
    }

    fn handle_datagram(&mut self, now: Instant, listener: u8, from: SocketAddr, bytes: Bytes) {
        let Some(listener) = self.listener(listener) else { return };
        if bytes.iter().all(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
            self.counters.received += 1;
            self.counters.keepalives += 1;
            return;
        }
        let arrival = Arrival { listener, connection: 0, from };
        match Message::parse(bytes) {
            Ok(message) => self.handle_message(now, arrival, &message),
            Err(_) => {
                self.counters.received += 1;
                self.counters.malformed += 1;
                self.strike(now, from.ip(), self.is_trusted(from.ip()));
            }
        }
    }

    fn handle_message(&mut self, now: Instant, arrival: Arrival, message: &Message) {
        self.counters.received += 1;
        let from = arrival.from;
        let is_trusted = self.is_trusted(from.ip());
        let named = slot::named(message);
        if !is_trusted {
            match self.sources.admit(now, from.ip(), named.is_some()) {
                Admission::Pass => {}
                Admission::Limited => {
                    self.counters.limited += 1;
                    self.strike(now, from.ip(), is_trusted);
                    return;
                }
                Admission::Banned => {
                    self.counters.banned += 1;
                    return;
                }
            }
        }
        if message.verdict() == Verdict::Discard {
            self.counters.discarded += 1;
            self.strike(now, from.ip(), is_trusted);
        } else if message.is_request() {
            let via = message.via();
            self.handle_request(now, &Request { message, via, arrival, is_trusted, named });
        } else if let Some(slot) = named {
            let (flow, bytes) = (self.flow(arrival, from), message.bytes().clone());
            self.pass_or_wait(now, SipIn { slot, hops: 0, flow, bytes }, true);
        } else {
            self.counters.stray += 1;
            self.strike(now, from.ip(), is_trusted);
        }
    }

    fn handle_request(&mut self, now: Instant, request: &Request<'_>) {
        let message = request.message;
        let method = message.method();
        if let Some(status) = request.fault() {
            self.strike(now, request.arrival.from.ip(), request.is_trusted);
            if method == Method::Ack {
                self.counters.discarded += 1;
            } else {
                self.counters.rejected += 1;
                self.answer(request, status);
            }
            return;
        }
        if method == Method::Ack && message.to_tag().is_some_and(answer::is_own_tag) {
            self.counters.acknowledged += 1;
            return;
        }
        if !request.is_trusted && request.asks_for_service() {
            self.counters.strangers += 1;
            self.strike(now, request.arrival.from.ip(), request.is_trusted);
            self.answer(request, 403);
            return;
        }
        let is_new =
            method == Method::Register || (method == Method::Invite && request.named.is_none());
        let slot = request.named.unwrap_or_else(|| self.config.slots.of_unnamed(message));
        let repeats_itself = !request.arrival.listener.transport.is_reliable();
        if is_new {
            let hop = self.next_hop(now, slot);
            if hop.is_none() && repeats_itself && now < self.wakes_until {
                self.counters.unowned += 1;
                return;
            }
            let is_busy = hop.is_none_or(|hop| hop.is_congested);
            // A copy of a request that its b2b is at work on must not be answered twice.
            if is_busy && !self.passed.contains(now, message) {
                self.counters.overloaded += 1;
                self.answer(request, 503);
                return;
            }
            self.passed.note(now, message);
        }
        let (flow, bytes) = (self.flow(request.arrival, request.remote()), request.stamped());
        let frame = SipIn { slot, hops: 0, flow, bytes };
        let is_taken = self.pass_or_wait(now, frame, request.named.is_some());
        if !is_taken && !repeats_itself && method != Method::Ack {
            self.answer(request, 503);
        }
    }

    /// Hands the message on, or keeps what belongs to a call and is said once until somebody takes it.
    /// Returns false when there is nobody.
    fn pass_or_wait(&mut self, now: Instant, frame: SipIn, is_named: bool) -> bool {
        let is_once = is_named && frame.flow.transport.is_reliable();
        if is_once && self.must_wait(now, frame.slot) {
            self.wait(now, frame)
        } else {
            self.pass(now, frame)
        }
    }

    /// Hands the message to the owner of its slot, or to another node when the owner cannot be reached.
    /// Returns false when there is nobody to take it.
    fn pass(&mut self, now: Instant, frame: SipIn) -> bool {
        let handed = self.hand(now, frame);
        match handed {
            Some(is_owner) => {
                self.counters.passed += 1;
                self.counters.detoured += u64::from(!is_owner);
            }
            None => self.counters.unowned += 1,
        }
        handed.is_some()
    }

    /// Hands it to a node, if there is one; returns whether that owns the slot.
    fn hand(&mut self, now: Instant, frame: SipIn) -> Option<bool> {
        let Hop { to, hops, is_owner, .. } = self.next_hop(now, frame.slot)?;
        // It rises, so that gates that all give it back do so only a few times.
        let hops = if hops == 0 { 0 } else { frame.hops.saturating_add(1) };
        self.outputs.push_back(Output::Sip { to, frame: SipIn { hops, ..frame } });
        Some(is_owner)
    }

    fn answer(&mut self, request: &Request<'_>, status: u16) {
        let stamped = match Message::parse(request.stamped()) {
            Ok(stamped) => stamped,
            Err(_) => request.message.clone(),
        };
        let bytes = self.answers.answer(&stamped, status);
        self.put(&self.flow(request.arrival, request.remote()), bytes);
    }

    /// Names the flow on which something came and is answered.
    fn flow(&self, arrival: Arrival, remote: SocketAddr) -> Flow {
        let Arrival { listener: Listener { id: listener, transport, .. }, connection, .. } =
            arrival;
        let (gate, boot) = (self.config.id, self.config.boot);
        Flow { gate, boot, listener, transport, connection, remote }
    }

    fn strike(&mut self, now: Instant, source: IpAddr, is_trusted: bool) {
        if !is_trusted && self.sources.strike(now, source) {
            self.counters.bans += 1;
        }
    }

    fn owner(&self, slot: Slot) -> Option<NodeId> {
        self.voter.map().get(slot).map(|reign| reign.owner)
    }

    fn listener(&self, id: u8) -> Option<Listener> {
        self.config.listeners.iter().find(|listener| listener.id == id).copied()
    }

    fn is_trusted(&self, source: IpAddr) -> bool {
        source.to_canonical().is_loopback()
            || self.config.trusted.iter().any(|network| network.contains(source))
    }
}

#[cfg(test)]
mod tests;

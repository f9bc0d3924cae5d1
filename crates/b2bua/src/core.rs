//! What all calls of a b2b share.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use failover::pacing::{self, Pacer};
use failover::{Boot, CallId, Clock, Epoch, Flow, NodeId, Place, Slot, Transport, UnixMs};
use sip_core::transactions::{self, ClientKey, ServerKey, Transactions};
use sip_core::{Message, Name, Writer};

use crate::changes::Changes;
use crate::config::Config;
use crate::frame::SipOut;
use crate::io::{Event, Listener, Output};
use crate::long::LongRequests;
use crate::message;
use crate::shortage::Shortage;
use crate::slot::Naming;

/// The way of a message: the flow, and the slot it is fenced by.
pub(crate) type Way = (Flow, Slot);

/// What all calls of a b2b share: tables, transactions, the clock of the present turn.
pub(crate) struct Core {
    pub(crate) config: Config,
    pub(crate) clock: Clock,
    /// The present turn's time on both clocks.
    pub(crate) now: Instant,
    pub(crate) unix: UnixMs,
    pub(crate) names: Naming,
    pub(crate) transactions: Transactions<Way>,
    pub(crate) outputs: VecDeque<Output>,
    pub(crate) pacer: Pacer,
    pub(crate) gates: BTreeMap<NodeId, Gate>,
    /// The slot of the message that is being handled: tags of answers outside dialogs name it.
    pub(crate) slot: Slot,
    /// How many nodes passed that message on before.
    pub(crate) hops: u8,
    pub(crate) draining: bool,
    /// Calls that have not ended.
    pub(crate) live: usize,
    /// Those of them that count against something.
    pub(crate) charged: usize,
    /// Calls with a record that is too long to be kept elsewhere.
    pub(crate) unprotected: usize,
    pub(crate) counters: Counters,
    /// Epoch 0: another b2b owns the slot.
    epochs: Box<[Epoch; 256]>,
    pub(crate) changes: Changes,
    /// By the random part of the local tag.
    tags: BTreeMap<u64, LegId>,
    clients: BTreeMap<ClientKey, ClientUse>,
    servers: BTreeMap<ServerKey, InviteId>,
    deadlines: BTreeSet<(Instant, CallId)>,
    held: BTreeMap<(NodeId, Boot), BTreeSet<CallId>>,
    /// The last boot of each mediagate that died.
    dead: BTreeMap<NodeId, Boot>,
    pub(crate) shortage: Shortage,
    pub(crate) long: LongRequests,
}

/// A gate as it introduced itself.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    pub(crate) boot: Boot,
    pub(crate) listeners: Vec<Listener>,
    pub(crate) is_up: bool,
}

/// A leg of a call: 0 is the caller's, 1 the callee's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LegId {
    pub(crate) call: CallId,
    pub(crate) leg: usize,
}

/// An INVITE of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InviteId {
    pub(crate) leg: LegId,
    pub(crate) cseq: u32,
}

/// What a client transaction is for.
#[derive(Clone, Debug)]
pub(crate) enum ClientUse {
    Invite(InviteId),
    Bye(LegId),
    /// An UPDATE that refreshes the session.
    Update(LegId),
    /// Passes a request of the other leg on; its answer goes back the same way.
    Pass(ServerKey, Box<Message>),
}

/// Figures since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Calls that got as far as a record.
    pub calls: u64,
    /// Calls that were answered.
    pub answered: u64,
    /// New calls refused for want of ports, room or because we drain.
    pub refused: u64,
    /// New calls about which somebody decided that they may not be, or decided nothing.
    pub not_admitted: u64,
    /// Media moves of calls.
    pub moves: u64,
    /// Re-INVITEs sent because media moved.
    pub move_invites: u64,
    /// Legs left as they are because their phone would not move.
    pub apart: u64,
    /// Legs whose phone accepted a move twice and was not heard.
    pub unheard: u64,
    /// Messages that could not be read or belong to nothing.
    pub discarded: u64,
    /// REGISTER requests that were granted.
    pub registers: u64,
    /// Tombstones that went before their time, as there were too many: late messages of those calls are
    /// answered as if there had been none.
    pub forgotten: u64,
    /// Answers to INVITEs that an owner before us sent and no record tells of.
    pub strays: u64,
}

impl Core {
    pub(crate) fn new(config: Config, clock: Clock, seed: u64) -> Self {
        let transactions = transactions::Config {
            t1: config.t1,
            // The 100 follows the record, not the clock.
            trying_after: None,
            transactions_max: config.calls_max.saturating_mul(6).max(64),
            t2: Duration::from_secs(4),
            t4: Duration::from_secs(5),
        };
        let pacer = pacing::Config { in_flight_max: config.moves_max, ..pacing::Config::default() };
        let mut names = Naming::new(seed);
        Self {
            now: clock.instant,
            unix: clock.unix_ms,
            transactions: Transactions::new(transactions, names.random()),
            names,
            outputs: VecDeque::new(),
            pacer: Pacer::new(pacer),
            gates: BTreeMap::new(),
            slot: Slot::default(),
            hops: 0,
            draining: false,
            live: 0,
            charged: 0,
            unprotected: 0,
            counters: Counters::default(),
            epochs: Box::new([Epoch::default(); 256]),
            changes: Changes::new(config.stores),
            tags: BTreeMap::new(),
            clients: BTreeMap::new(),
            servers: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            held: BTreeMap::new(),
            dead: BTreeMap::new(),
            shortage: Shortage::default(),
            long: LongRequests::default(),
            config,
            clock,
        }
    }

    /// Begins a turn.
    pub(crate) fn set_time(&mut self, now: Instant) {
        self.now = now;
        self.unix = self.clock.unix_at(now);
    }

    /// Returns the wall-clock time `span` from now.
    pub(crate) fn after(&self, span: Duration) -> UnixMs {
        self.clock.unix_at(self.now + span)
    }

    /// Returns how long a final answer to an INVITE waits for its ACK, and a 2xx for its copies.
    pub(crate) fn patience(&self) -> Duration {
        64 * self.config.t1
    }

    /// Returns the epoch in which we own the slot.
    pub(crate) fn epoch(&self, slot: Slot) -> Epoch {
        self.epochs[usize::from(slot.0)]
    }

    /// Returns whether the slot is ours.
    pub(crate) fn owns(&self, slot: Slot) -> bool {
        self.epoch(slot) != Epoch::default()
    }

    /// Returns the first slot of ours, and whether all are.
    pub(crate) fn owned(&self) -> (Option<Slot>, bool) {
        let first = (0..=u8::MAX).map(Slot).find(|slot| self.owns(*slot));
        (first, !self.epochs.contains(&Epoch::default()))
    }

    pub(crate) fn set_epoch(&mut self, slot: Slot, epoch: Epoch) {
        self.epochs[usize::from(slot.0)] = epoch;
    }

    /// Returns our address at the listener of a flow.
    pub(crate) fn advertised(&self, flow: &Flow) -> Option<SocketAddr> {
        let gate = self.gates.get(&flow.gate)?;
        let listener = gate.listeners.iter().find(|listener| listener.id == flow.listener)?;
        Some(listener.advertise)
    }

    /// Returns the listener for another transport beside that of a flow: for TCP at the same address and
    /// port, for TLS, which has its own port, at the same address. Nothing leaves TLS.
    pub(crate) fn beside(&self, flow: &Flow, transport: Transport) -> Option<u8> {
        let listeners = &self.gates.get(&flow.gate)?.listeners;
        let own = listeners.iter().find(|own| own.id == flow.listener)?;
        let beside = |it: &&Listener| {
            it.transport == transport
                && match transport {
                    Transport::Udp => false,
                    Transport::Tcp => it.advertise == own.advertise,
                    Transport::Tls => it.advertise.ip() == own.advertise.ip(),
                }
        };
        let beside = listeners.iter().find(beside).map(|listener| listener.id);
        beside.filter(|_| own.transport != Transport::Tls)
    }

    /// Returns the Via value of a new request that goes there; `None` when the gate is unknown.
    pub(crate) fn via(&mut self, (flow, slot): &Way) -> Option<Vec<u8>> {
        let addr = self.advertised(flow)?;
        Some(message::via_at(addr, flow.transport, &self.names.branch(*slot)))
    }

    /// Sends a message that no transaction repeats.
    pub(crate) fn send(&mut self, (mut flow, slot): Way, bytes: Bytes) {
        if let Some(gate) = self.gates.get(&flow.gate)
            && !flow.transport.is_reliable()
        {
            // Datagrams need no state of the gate, so its restart does not end the flow.
            flow.boot = gate.boot;
        }
        let epoch = self.epoch(slot);
        if !self.owns(slot) {
            return;
        }
        self.outputs.push_back(Output::Sip(SipOut { slot, epoch, flow, bytes }));
    }

    /// Answers a request; `add` puts in what the status needs.
    pub(crate) fn answer_with(
        &mut self,
        key: ServerKey,
        request: &Message,
        status: u16,
        add: impl FnOnce(Writer) -> Writer,
    ) {
        let tag = match request.to_tag() {
            Some(_) => None,
            None => Some(self.names.tag(self.slot)),
        };
        let reason = message::reason(status);
        let writer = Writer::answer(request, status, reason, tag.as_deref().map(str::as_bytes));
        let writer = match status {
            405 | 501 => writer.header(Name::ALLOW, message::ALLOW),
            415 => writer.header(Name::ACCEPT, message::SDP),
            _ => writer,
        };
        self.respond(key, &add(writer).finish());
    }

    /// Answers a request with nothing but a status.
    pub(crate) fn answer(&mut self, key: ServerKey, request: &Message, status: u16) {
        self.answer_with(key, request, status, |writer| writer);
    }

    /// Answers a request whose session would be shorter than `min`.
    pub(crate) fn answer_short(&mut self, key: ServerKey, request: &Message, min: u32) {
        self.answer_with(key, request, 422, |answer| answer.number(Name::MIN_SE, min));
    }

    /// Refuses a request for a while.
    pub(crate) fn put_off(&mut self, key: ServerKey, request: &Message, status: u16) {
        let seconds = self.random_seconds();
        self.answer_with(key, request, status, |writer| writer.number(Name::RETRY_AFTER, seconds));
    }

    /// Draws a Retry-After from 1 to 5 seconds, so that those put off do not come back at once.
    pub(crate) fn random_seconds(&mut self) -> u32 {
        1 + u32::try_from(self.names.random() % 5).unwrap_or(0)
    }

    /// Answers a request without a transaction; a copy of it is answered anew.
    pub(crate) fn answer_outside(&mut self, way: Way, request: &Message, status: u16) {
        if request.method() == sip_core::Method::Ack {
            return;
        }
        let tag = self.names.tag(way.1);
        let writer = Writer::answer(request, status, message::reason(status), Some(tag.as_bytes()));
        let writer = match status {
            503 => writer.number(Name::RETRY_AFTER, self.random_seconds()),
            _ => writer,
        };
        self.send(way, writer.finish().bytes().clone());
    }

    pub(crate) fn respond(&mut self, key: ServerKey, answer: &Message) {
        // The transaction may have ended meanwhile: then its client is gone too.
        let _ = self.transactions.respond(self.now, key, answer);
    }

    pub(crate) fn event(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }

    pub(crate) fn set_tag(&mut self, tag: &[u8], leg: LegId) {
        if let Some(key) = tag_key(tag) {
            self.tags.insert(key, leg);
        }
    }

    pub(crate) fn clear_tag(&mut self, tag: &[u8]) {
        if let Some(key) = tag_key(tag) {
            self.tags.remove(&key);
        }
    }

    /// Returns the leg whose dialog has this local tag.
    pub(crate) fn leg_of(&self, tag: &[u8]) -> Option<LegId> {
        self.tags.get(&tag_key(tag)?).copied()
    }

    pub(crate) fn set_client(&mut self, key: ClientKey, user: ClientUse) {
        self.clients.insert(key, user);
    }

    pub(crate) fn client(&self, key: ClientKey) -> Option<&ClientUse> {
        self.clients.get(&key)
    }

    pub(crate) fn clear_client(&mut self, key: ClientKey) -> Option<ClientUse> {
        self.long.forget(key);
        self.clients.remove(&key)
    }

    /// Drops the transactions of slots that are not ours any more.
    pub(crate) fn drop_lost(&mut self) {
        let epochs = &self.epochs;
        let owned = |slot: Slot| epochs[usize::from(slot.0)] != Epoch::default();
        self.transactions.retain(|(_, slot)| owned(*slot));
        self.changes.retain(owned);
        let transactions = &self.transactions;
        self.clients.retain(|key, _| transactions.has_client(*key));
        self.long.retain(|key| transactions.has_client(key));
    }

    pub(crate) fn set_server(&mut self, key: ServerKey, invite: InviteId) {
        self.servers.insert(key, invite);
    }

    pub(crate) fn server(&self, key: ServerKey) -> Option<InviteId> {
        self.servers.get(&key).copied()
    }

    pub(crate) fn clear_server(&mut self, key: ServerKey) {
        self.servers.remove(&key);
    }

    /// Moves a call's deadline from `armed` to `at`.
    pub(crate) fn arm(&mut self, call: CallId, armed: &mut Option<Instant>, at: Option<Instant>) {
        if *armed == at {
            return;
        }
        if let Some(old) = armed.take() {
            self.deadlines.remove(&(old, call));
        }
        if let Some(at) = at {
            self.deadlines.insert((at, call));
        }
        *armed = at;
    }

    /// Returns a call whose deadline has come.
    pub(crate) fn due(&self) -> Option<CallId> {
        let &(at, call) = self.deadlines.first()?;
        (at <= self.now).then_some(call)
    }

    pub(crate) fn first_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|&(at, _)| at)
    }

    /// Notes that a call has ports at a place.
    pub(crate) fn hold(&mut self, call: CallId, place: &Place) {
        self.held.entry((place.gateway, place.boot)).or_default().insert(call);
    }

    /// Notes that a call has ports there no more.
    pub(crate) fn release(&mut self, call: CallId, place: &Place) {
        let key = (place.gateway, place.boot);
        if let Some(calls) = self.held.get_mut(&key) {
            calls.remove(&call);
            if calls.is_empty() {
                self.held.remove(&key);
            }
        }
    }

    /// Notes the death of a mediagate's boot.
    pub(crate) fn set_dead(&mut self, gateway: NodeId, boot: Boot) {
        let last = self.dead.entry(gateway).or_insert(boot);
        *last = boot.max(*last);
    }

    /// Returns whether that boot of a mediagate is dead.
    pub(crate) fn is_dead(&self, gateway: NodeId, boot: Boot) -> bool {
        self.dead.get(&gateway).is_some_and(|last| boot <= *last)
    }

    /// Returns the calls that have ports at a gateway, as holder or standby.
    pub(crate) fn held_at(&self, gateway: NodeId, boot: Boot) -> Vec<CallId> {
        self.held.get(&(gateway, boot)).into_iter().flatten().copied().collect()
    }
}

/// Returns the random part of a tag of ours.
pub(crate) fn tag_key(tag: &[u8]) -> Option<u64> {
    crate::slot::of_tag(tag)?;
    let digits = std::str::from_utf8(tag.get(2..)?).ok()?;
    u64::from_str_radix(digits, 16).ok()
}

//! The b2b: owner of transactions, dialogs, calls and bindings.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::time::{Duration, Instant};

use failover::record::Phase;
use failover::replica::Key;
use failover::{
    Admission, Aor, Binding, Boot, CallId, CallRecord, Charge, Clock, NodeId, Place, Slot,
};
use sip_core::transactions::{self, ClientKey, ServerKey};
use sip_core::{Message, Method, Name, Scheme, Uri, Verdict, Writer};

use crate::call::{Call, Proposal, answer_options};
use crate::config::Config;
use crate::core::{ClientUse, Core, Counters, Gate, Way};
use crate::frame::SipIn;
use crate::graves::Graves;
use crate::io::{Input, MediaCommand, MediaEvent, Output};
use crate::message;
use crate::registrar::Registrar;
use crate::timer;

mod admitting;
mod storage;
mod stray;

/// The heart of the signalling: answers phones as a back-to-back user agent and registrar.
///
/// It is told which messages came through the gates and what became of mediagates, and says which
/// messages go out and what mediagates are to do. Everything about a call that outlives a turn
/// stands in its [`CallRecord`].
pub struct B2b {
    core: Core,
    calls: BTreeMap<CallId, Box<Call>>,
    /// The slot of each.
    slots: BTreeSet<(Slot, CallId)>,
    /// Calls that have to take over a later epoch of their slot.
    entering: storage::Entering,
    /// INVITEs about which somebody has to decide.
    admissions: admitting::Queue,
    graves: Graves,
    registrar: Registrar,
    /// Ports of calls that another b2b has now, and when they may be used again.
    lost: VecDeque<(Instant, Place)>,
    /// Gates whose link came up, and when they take what is said again.
    returned: BTreeMap<NodeId, Instant>,
}

/// Figures of the moment, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Calls that have not ended.
    pub calls: usize,
    /// Gates that can be reached.
    pub gates: usize,
    /// Calls that are over and whose late messages are still answered.
    pub tombstones: usize,
    /// Calls whose records are too long to be kept elsewhere: they end with this process.
    pub unprotected: usize,
    /// Addresses of record with a binding.
    pub aors: usize,
    /// Media-move INVITEs that are open.
    pub moves_in_flight: usize,
    /// Counts since the start.
    pub counters: Counters,
}

impl fmt::Debug for B2b {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("B2b").field("figures", &self.figures()).finish_non_exhaustive()
    }
}

impl B2b {
    /// Returns a b2b without calls and bindings. `seed` must be random and differ per start: tags,
    /// branches and ids follow from it.
    pub fn new(config: Config, node: NodeId, clock: Clock, seed: u64) -> Self {
        // Two nodes with one seed by accident still make different names.
        let seed = seed ^ u64::from(node.0).rotate_left(48);
        let graves = Graves::new(config.tombstones_max);
        Self {
            core: Core::new(config, clock, seed),
            calls: BTreeMap::new(),
            slots: BTreeSet::new(),
            entering: storage::Entering::default(),
            admissions: admitting::Queue::default(),
            graves,
            registrar: Registrar::default(),
            lost: VecDeque::new(),
            returned: BTreeMap::new(),
        }
    }

    /// Takes in what happened at `now`.
    pub fn handle_input(&mut self, now: Instant, input: Input) {
        self.core.set_time(now);
        match input {
            Input::GateUp { gate, boot, listeners } => {
                self.core.gates.insert(gate, Gate { boot, listeners, is_up: true });
                self.returned.insert(gate, now + FENCE);
            }
            // Its listeners are remembered: datagrams need no state of the gate.
            Input::GateDown { gate } => {
                if let Some(gate) = self.core.gates.get_mut(&gate) {
                    gate.is_up = false;
                }
            }
            Input::Sip(sip) => self.handle_sip(&sip),
            Input::Owned { slot, epoch } => self.own(slot, epoch),
            Input::Lost { slots } => self.lose(&slots),
            Input::Admitted { call, charge, elsewhere } => {
                self.admitted(call, charge, elsewhere);
            }
            Input::NotAdmitted { call, refused } => self.not_admitted(call, &refused),
            Input::Routes(routes) => self.core.config.routes = routes,
            Input::Placed { call, holder, standby } => {
                if self.calls.contains_key(&call) {
                    self.with_call(call, |call, core| call.placed(core, holder, standby));
                } else {
                    let places = holder.into_iter().chain(standby);
                    self.core.outputs.extend(places.map(Output::Freed));
                }
            }
            // Whatever the reason, the call waits or is refused alike.
            Input::NotPlaced { call, why: _ } => match self.calls.get_mut(&call) {
                // It goes on as it is, and asks again.
                Some(call) if call.record.phase != Phase::Placing => {
                    call.not_placed(&mut self.core);
                }
                Some(_) | None => self.with_call(call, Call::not_placed),
            },
            Input::Media { gateway, boot, event } => self.handle_media(gateway, boot, event),
            Input::GatewayDead { gateway, boot } => self.handle_death(gateway, boot),
            Input::Written { call } => self.written(call),
            Input::Drain => self.core.draining = true,
        }
        self.pump();
    }

    /// Does whatever is due at `now`; does nothing when nothing is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.core.set_time(now);
        self.core.transactions.handle_timeout(now);
        self.pump();
        self.end_waiting(now);
        // Were a deadline ever left unhandled, messages would still be taken in between.
        for _ in 0..DUE_MAX {
            let Some(call) = self.core.due() else { break };
            self.with_call(call, |call, core| call.handle_timeout(core));
        }
        while let Some((slot, call)) = self.graves.due(self.core.unix) {
            self.graves.remove(call);
            self.core.changes.note(slot, Key::Call(call), false);
        }
        for call in self.core.shortage.round(now) {
            if let Some(call) = self.calls.get_mut(&call) {
                call.ask_for_ports(&mut self.core);
            }
        }
        self.core.pacer.handle_timeout(now);
        self.registrar.handle_timeout(&mut self.core);
        self.free_lost(now);
        self.say_again(now);
        self.enter_some(now);
        self.pump();
    }

    /// Returns the next thing to do. Drain until `None` after every other call; answer
    /// [`Output::Place`] before going on.
    pub fn poll_output(&mut self) -> Option<Output> {
        if let Some((key, slot, barrier)) = self.core.changes.pop() {
            return Some(Output::Stored { slot, key, barrier });
        }
        self.core.outputs.pop_front()
    }

    /// Returns when [`B2b::handle_timeout`] is next needed.
    pub fn poll_timeout(&self) -> Option<Instant> {
        [
            self.core.transactions.poll_timeout(),
            self.core.first_deadline(),
            self.admissions.poll_timeout(),
            self.lost.front().map(|(at, _)| *at),
            self.returned.values().min().copied(),
            self.entering.poll_timeout(),
            self.graves.first_until().map(|until| self.core.clock.instant_at(until)),
            self.core.shortage.round_at(),
            self.core.pacer.poll_timeout(),
            self.registrar.poll_timeout(&self.core),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Returns the records of all calls that are not over, in the order of their ids.
    pub fn records(&self) -> impl Iterator<Item = &CallRecord> {
        self.calls.values().map(|call| &call.record)
    }

    /// Returns the calls that count against something and have not ended, in the order of their ids.
    pub fn charges(&self) -> impl Iterator<Item = (CallId, &Charge)> {
        let living = self.records().filter(|record| !record.is_ended());
        living.filter_map(|record| Some((record.call, record.admission.charge.as_ref()?)))
    }

    /// Returns all bindings.
    pub fn bindings(&self) -> impl Iterator<Item = (&Aor, &Binding)> {
        self.registrar.bindings()
    }

    /// Returns the command that opens a call at its present holder, for a mediagate that lost it.
    pub fn media_call(&self, call: CallId) -> Option<(NodeId, Boot, MediaCommand)> {
        self.calls.get(&call)?.open_command(&self.core)
    }

    /// Returns whether the last call of a b2b that drains has ended.
    pub fn is_drained(&self) -> bool {
        self.core.draining && self.core.live == 0 && self.admissions.len() == 0
    }

    /// Returns the figures of the moment.
    pub fn figures(&self) -> Figures {
        Figures {
            calls: self.core.live,
            gates: self.core.gates.values().filter(|gate| gate.is_up).count(),
            tombstones: self.graves.len(),
            unprotected: self.core.unprotected,
            aors: self.registrar.len(),
            moves_in_flight: self.core.pacer.in_flight(),
            counters: self.core.counters,
        }
    }

    /// Lets something happen to a call, and then what follows from its new state.
    fn with_call(&mut self, id: CallId, act: impl FnOnce(&mut Call, &mut Core)) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        act(call, &mut self.core);
        let over = call.settle(&mut self.core);
        call.report(&mut self.core, over);
        if over {
            let stone = call.tombstone(&self.core);
            call.forget(&mut self.core);
            self.take_call(id);
            if let Some(stone) = stone {
                self.bury(stone);
            }
        }
    }

    /// Moves what the transactions and the windows let out, until there is nothing more.
    fn pump(&mut self) {
        loop {
            while let Some(output) = self.core.transactions.poll_output() {
                self.handle_transaction(output);
            }
            let Some((call, leg)) = self.core.pacer.next(self.core.now) else { return };
            self.with_call(call, |call, core| call.move_leg(core, usize::from(leg)));
            if !self.calls.contains_key(&call) {
                let now = self.core.now;
                self.core.pacer.finish(now, (call, leg), failover::pacing::Outcome::Other);
            }
        }
    }

    fn handle_sip(&mut self, sip: &SipIn) {
        let Ok(message) = Message::parse(sip.bytes.clone()) else {
            self.core.counters.discarded += 1;
            return;
        };
        let Some(slot) = self.slot_of(sip, &message) else { return };
        let way = (sip.flow, slot);
        self.core.slot = slot;
        self.core.hops = sip.hops;
        match message.verdict() {
            Verdict::Ok => {}
            Verdict::Answer(status) => {
                self.core.counters.discarded += 1;
                return self.core.answer_outside(way, &message, status);
            }
            Verdict::Discard => {
                self.core.counters.discarded += 1;
                return;
            }
        }
        if self.is_stray(&message) {
            return self.handle_stray(way, &message);
        }
        let reliable = sip.flow.transport.is_reliable();
        let input = transactions::Input::Message { flow: way, reliable, message };
        self.core.transactions.handle_input(self.core.now, input);
    }

    fn handle_transaction(&mut self, output: transactions::Output<Way>) {
        use transactions::Output as From;
        match output {
            From::Send { flow, bytes } => self.core.send(flow, bytes),
            From::Request { key, flow, message, cancels, merged } => {
                if merged {
                    return self.core.answer(key, &message, 482);
                }
                self.handle_request(key, flow, &message, cancels);
            }
            From::Ack { message, .. } => {
                let leg = self.core.leg_of(message.to_tag().unwrap_or_default());
                let Some(leg) = leg else { return };
                self.with_call(leg.call, |call, core| call.acked(core, leg.leg, &message));
            }
            From::Response { key, flow, message } => self.handle_response(key, flow, &message),
            From::TimedOut { key } => self.handle_silence(key),
            From::Acknowledged { key } => {
                let Some(invite) = self.core.server(key) else { return };
                self.with_call(invite.leg.call, |call, core| call.refusal_acked(core, invite));
            }
            From::Unacknowledged { key } => {
                let Some(invite) = self.core.server(key) else { return };
                self.with_call(invite.leg.call, |call, core| call.unacknowledged(core, invite));
            }
            From::Overload { flow, message } => {
                self.core.counters.refused += 1;
                self.core.answer_outside(flow, &message, 503);
            }
        }
    }

    fn handle_request(
        &mut self,
        key: ServerKey,
        way: Way,
        request: &Message,
        cancels: Option<ServerKey>,
    ) {
        if request.method() == Method::Cancel {
            return self.handle_cancel(key, way, request, cancels);
        }
        let timers = timer::is_on(&self.core.config);
        let lacks = |tag: &&[u8]| !(timers && tag.eq_ignore_ascii_case(timer::TAG));
        if request.elements(Name::REQUIRE).any(|tag| lacks(&tag)) {
            return self.core.answer_with(key, request, 420, |mut answer| {
                for tag in request.elements(Name::REQUIRE).filter(lacks) {
                    answer = answer.header(Name::UNSUPPORTED, tag);
                }
                answer
            });
        }
        if let Some(tag) = request.to_tag() {
            let Some(leg) = self.core.leg_of(tag) else {
                return self.graves.answer(&mut self.core, key, request);
            };
            return self.with_call(leg.call, |call, core| {
                call.requested(core, leg.leg, key, way, request);
            });
        }
        match request.method() {
            Method::Invite => self.handle_invite(key, way, request),
            Method::Register => self.registrar.register(&mut self.core, key, way, request),
            Method::Options => answer_options(&mut self.core, key, request),
            Method::Bye | Method::Update | Method::Prack | Method::Info => {
                self.core.answer(key, request, 481);
            }
            Method::Ack
            | Method::Cancel
            | Method::Message
            | Method::Notify
            | Method::Publish
            | Method::Refer
            | Method::Subscribe => self.core.answer(key, request, 405),
            Method::Other(_) => self.core.answer(key, request, 501),
        }
    }

    fn handle_cancel(
        &mut self,
        key: ServerKey,
        way: Way,
        cancel: &Message,
        cancels: Option<ServerKey>,
    ) {
        let Some(cancelled) = cancels else {
            return self.stray_cancel(key, way, cancel);
        };
        if self.cancel_waiting(key, cancel, cancelled) {
            return;
        }
        let invite = self.core.server(cancelled);
        // RFC 3261 §9.2: the same To tag as in the answers to the INVITE.
        let tag = invite.and_then(|invite| {
            let call = self.calls.get(&invite.leg.call)?;
            Some(call.record.legs[invite.leg.leg].dialog.local_tag.clone())
        });
        let answer = Writer::answer(cancel, 200, message::reason(200), tag.as_deref());
        self.core.respond(key, &answer.finish());
        if let Some(invite) = invite {
            self.with_call(invite.leg.call, |call, core| call.cancelled(core, invite));
        }
    }

    fn handle_invite(&mut self, key: ServerKey, way: Way, invite: &Message) {
        let is_full = self.core.config.calls_max <= self.core.live + self.admissions.len();
        if is_full || self.core.draining && !self.sends_on() {
            self.core.counters.refused += 1;
            return self.core.put_off(key, invite, 503);
        }
        if invite.max_forwards() == Some(0) {
            return self.core.answer(key, invite, 483);
        }
        if self.is_loop(invite) {
            return self.core.answer(key, invite, 482);
        }
        let uri = invite.request_uri().map(Uri::parse);
        let Some(Ok(uri)) =
            uri.filter(|uri| uri.as_ref().is_ok_and(|uri| !matches!(uri.scheme(), Scheme::Other)))
        else {
            return self.core.answer(key, invite, 416);
        };
        let proposal = match Proposal::new(&self.core, &self.registrar, way.0, invite, &uri) {
            Ok(proposal) => proposal,
            Err(422) => {
                let min = timer::shortest(&self.core.config);
                return self.core.answer_short(key, invite, min);
            }
            Err(status) => return self.core.answer(key, invite, status),
        };
        let id = CallId(self.core.names.random());
        if self.core.config.admits {
            return self.ask(id, key, way, (invite, &uri), proposal);
        }
        let admission = Admission::default();
        match Call::invited(&mut self.core, (id, admission), key, way, invite, proposal) {
            Ok(call) => self.insert_call(call),
            Err(status) => self.core.answer(key, invite, status),
        }
    }

    /// Whether new calls may go elsewhere while this process drains: as long as calls that count here
    /// keep it, since what it sends on keeps it as well.
    fn sends_on(&self) -> bool {
        debug_assert_eq!(self.core.charged, self.charges().count(), "each is counted once");
        self.core.config.admits && 0 < self.core.charged
    }

    fn insert_call(&mut self, call: Box<Call>) {
        let id = call.id();
        self.put_call(call);
        self.with_call(id, |_, _| {});
    }

    /// A call that we sent out and that comes back for the same address goes round in circles. One
    /// that comes back for another address has only been forwarded (RFC 3261 §16.3).
    fn is_loop(&self, invite: &Message) -> bool {
        let Some(id) = message::call_of(invite.call_id()) else { return false };
        self.calls.get(&id).is_some_and(|call| {
            let sent = &call.record.legs[1].dialog;
            let branches = call.record.fork.iter().flat_map(|fork| &fork.branches);
            let branches = branches.map(|branch| &branch.target.uri);
            let mut targets = std::iter::once(&sent.remote_target).chain(branches);
            let user = |uri| Uri::parse(uri).ok().and_then(|uri| uri.user());
            let asked = user(invite.request_uri().unwrap_or_default());
            sent.call_id == invite.call_id() && targets.any(|target| user(target) == asked)
        })
    }

    fn handle_response(&mut self, key: ClientKey, way: Way, response: &Message) {
        let status = response.status().unwrap_or(0);
        let is_final = 200 <= status;
        if let Some(again) = self.core.send_again(key, &way.0) {
            if let Some(&ClientUse::Invite(invite)) = self.core.client(again) {
                self.with_call(invite.leg.call, |call, core| call.sent_again(core, invite, again));
            }
            return;
        }
        match self.core.client(key) {
            Some(&ClientUse::Invite(invite)) => self.with_call(invite.leg.call, |call, core| {
                call.invite_answered(core, invite, response);
            }),
            Some(ClientUse::Bye(_) | ClientUse::Update(_) | ClientUse::Pass(..)) if is_final => {
                self.finish_request(key, status, Some(response));
            }
            None if response.method() == Method::Invite && (200..300).contains(&status) => {
                self.graves.accepted(&mut self.core, way, response);
            }
            Some(ClientUse::Bye(_) | ClientUse::Update(_) | ClientUse::Pass(..)) | None => {}
        }
    }

    fn handle_silence(&mut self, key: ClientKey) {
        match self.core.client(key) {
            Some(&ClientUse::Invite(invite)) => self.with_call(invite.leg.call, |call, core| {
                call.invite_timed_out(core, invite);
            }),
            Some(ClientUse::Bye(_) | ClientUse::Update(_) | ClientUse::Pass(..)) => {
                self.finish_request(key, 408, None);
            }
            None => {}
        }
    }

    /// A request of ours other than INVITE has its final answer, or will get none.
    fn finish_request(&mut self, key: ClientKey, status: u16, response: Option<&Message>) {
        match self.core.clear_client(key) {
            Some(ClientUse::Bye(leg)) => {
                self.with_call(leg.call, |call, _| call.bye_answered(leg));
            }
            Some(ClientUse::Update(leg)) => self.with_call(leg.call, |call, core| {
                call.update_answered(core, leg.leg, status, response);
            }),
            Some(ClientUse::Pass(server, request)) if status != 408 => {
                self.core.answer_with(server, &request, status, |answer| {
                    let Some(response) = response else { return answer };
                    match response.body() {
                        [] => answer,
                        body => answer.body(
                            response.content_type().unwrap_or(b"application/octet-stream"),
                            response.bytes().slice_ref(body),
                        ),
                    }
                });
            }
            // RFC 4320 §4.2: the asker has timed out by itself.
            Some(ClientUse::Pass(..) | ClientUse::Invite(_)) | None => {}
        }
    }

    /// Says again what was on its way through gates that can be reached again: it is lost with the link,
    /// and over a connection of a phone no timer repeats it.
    fn say_again(&mut self, now: Instant) {
        let transactions = &mut self.core.transactions;
        self.returned.retain(|gate, at| {
            if *at <= now {
                transactions.repeat(now, |(flow, _)| flow.gate == *gate);
            }
            now < *at
        });
    }

    fn handle_media(&mut self, gateway: NodeId, boot: Boot, event: MediaEvent) {
        match event {
            MediaEvent::Failed { call, .. } => {
                self.with_call(call, |call, core| call.open_failed(core, gateway, boot));
            }
            MediaEvent::Latched { call, leg, latched, .. } => {
                self.with_call(call, |call, _| {
                    if call.is_open_at(gateway, boot) {
                        call.latched(leg, latched);
                    }
                });
            }
            MediaEvent::Silent { call, .. } => self.with_call(call, |call, core| {
                if call.is_open_at(gateway, boot) {
                    call.fell_silent(core);
                }
            }),
        }
    }

    /// Every standby hears of its calls before any phone does; then the phones of those who talk.
    fn handle_death(&mut self, gateway: NodeId, boot: Boot) {
        self.core.set_dead(gateway, boot);
        let ids = self.core.held_at(gateway, boot);
        let mut by_urgency = Vec::with_capacity(ids.len());
        for id in ids {
            if let Some(call) = self.calls.get_mut(&id) {
                call.gateway_died(&mut self.core, gateway, boot);
                by_urgency.push((call.urgency(), id));
            }
        }
        by_urgency.sort_unstable();
        for &(_, id) in &by_urgency {
            self.with_call(id, |_, _| {});
        }
        self.pump();
        for &(_, id) in &by_urgency {
            self.with_call(id, |call, core| call.replace_ports(core));
        }
    }
}

/// A gate that starts, or hears of a higher epoch, takes no frame for half of this.
const FENCE: Duration = Duration::from_millis(600);

/// More deadlines than come due at once.
const DUE_MAX: usize = 1 << 16;

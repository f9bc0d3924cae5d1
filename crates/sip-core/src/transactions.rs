//! The transaction layer of RFC 3261 §17 with RFC 6026 and RFC 4320.
//!
//! One [`Transactions`] value holds every transaction of a node: both kinds
//! of client, both kinds of server. It is told which messages arrived and
//! what its owner wants to say, and it answers with messages to send, with
//! the messages its owner must see, and with what ran out of time.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::{Message, Method};
use client::Client;
use client_invite::{Cancellable, ClientInvite, Held};
use deadlines::Deadlines;
use entry::{Entry, Expired, Machine, Turn};
use identity::{AckParts, COOKIE, Hashing, Identity, IdentityState};
use slab::Slab;

pub use errors::{CancelError, RequestError, RespondError};
pub use restore::{Answer, OpenClientInvite, OpenServerInvite, Phase, RestoreError};

mod arrival;
mod client;
mod client_invite;
mod deadlines;
mod derived;
mod entry;
mod errors;
mod identity;
mod restore;
mod server;
mod server_invite;
mod slab;

/// Every transaction of a node, client and server.
///
/// `F` names a flow: whatever the owner needs to reach the peer that a
/// message came from, such as a socket and an address, or a connection. It is
/// cloned once for each message to send.
///
/// Matching follows RFC 3261 §17.1.3 and §17.2.3: requests by branch, sent-by
/// and method, responses by branch and method, and requests of RFC 2543 peers
/// by Request-URI, tags, Call-ID, CSeq and topmost Via. Look-ups go by a
/// 128-bit hash keyed with the seed, so a peer cannot choose collisions.
pub struct Transactions<F> {
    config: Config,
    hashing: Hashing,
    slab: Slab<Entry<F>>,
    index: HashMap<Identity, u32, IdentityState>,
    deadlines: Deadlines,
    outputs: VecDeque<Output<F>>,
    counters: Counters,
}

/// Timer values and bounds of the transaction layer.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// T1: the estimate of a round trip. 500 ms by RFC 3261.
    pub t1: Duration,
    /// T2: the longest wait between two copies of a request other than INVITE
    /// and of an answer to INVITE. 4 s by RFC 3261.
    pub t2: Duration,
    /// T4: how long a message may stay in the network. 5 s by RFC 3261.
    pub t4: Duration,
    /// When an INVITE that the owner has not answered yet is answered with
    /// 100. RFC 3261 §17.2.1 asks for 200 ms. `None` leaves the 100 to the
    /// owner, for one that must store something before its peer falls silent.
    pub trying_after: Option<Duration>,
    /// Transactions held at most. One eighth is kept for requests inside
    /// dialogs, for CANCEL, and for the owner's own requests.
    pub transactions_max: usize,
}

/// What happened in the network.
#[derive(Clone, Debug)]
pub enum Input<F> {
    /// A message arrived whose syntax the owner accepts.
    Message {
        /// Where it came from.
        flow: F,
        /// Whether that transport delivers by itself: anything but UDP.
        reliable: bool,
        /// The message, with `received` and `rport` already in its Via.
        message: Message,
    },
}

/// What the owner must do, in order.
#[derive(Clone, Debug)]
pub enum Output<F> {
    /// Send these bytes.
    Send {
        /// Where to.
        flow: F,
        /// One whole message.
        bytes: Bytes,
    },
    /// A new request arrived, never an ACK. It must be answered with
    /// [`Transactions::respond`].
    Request {
        /// Names the server transaction.
        key: ServerKey,
        /// Where the request came from.
        flow: F,
        /// The request.
        message: Message,
        /// For a CANCEL: the INVITE that it cancels, when that is known here.
        /// The owner answers the CANCEL with 200, or with 481 when this is
        /// `None`, and an INVITE that is still open with 487.
        cancels: Option<ServerKey>,
        /// The same request has already arrived on another path
        /// (RFC 3261 §8.2.2.2). A user agent answers this one with 482; a
        /// proxy ignores the mark.
        merged: bool,
    },
    /// An ACK arrived that is not the end of a refusal: one for a 2xx, each
    /// copy of it, or a stray one.
    Ack {
        /// Where it came from.
        flow: F,
        /// The ACK.
        message: Message,
        /// The INVITE whose 2xx it acknowledges; `None` when that is unknown
        /// or was ended long ago.
        key: Option<ServerKey>,
    },
    /// The refusal of an INVITE was acknowledged, for the first time. An owner
    /// that wants to send an INVITE inside the same dialog has waited for this
    /// (RFC 3261 §14.1).
    Acknowledged {
        /// Names the server transaction.
        key: ServerKey,
    },
    /// A response arrived. Of an INVITE's 2xx every copy is shown, also those
    /// of other branches of a fork, since only the owner can send their ACK.
    /// Of other final responses copies are not shown.
    Response {
        /// Names the client transaction.
        key: ClientKey,
        /// Where the response came from.
        flow: F,
        /// The response.
        message: Message,
    },
    /// No final response came in time (timers B and F, or 64 T1 after a
    /// CANCEL). The transaction is gone; it counts as answered with 408.
    TimedOut {
        /// Names the client transaction.
        key: ClientKey,
    },
    /// The final answer to an INVITE was not acknowledged within 64 T1. After
    /// a 2xx the owner ends the dialog with BYE. The transaction is gone.
    Unacknowledged {
        /// Names the server transaction.
        key: ServerKey,
    },
    /// A new request found the table full and was forgotten at once. The
    /// owner may answer it with 503 outside any transaction, or say nothing.
    Overload {
        /// Where it came from.
        flow: F,
        /// The request.
        message: Message,
    },
}

/// Names a client transaction. Never used again after it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientKey(slab::Key);

/// Names a server transaction. Never used again after it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerKey(slab::Key);

/// What was dropped without an output, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Copies of requests that were absorbed.
    pub request_copies: u64,
    /// Responses that belong to no transaction, or to one that has its final
    /// response.
    pub responses_discarded: u64,
    /// Messages without what matching needs: Via, Call-ID or CSeq.
    pub unmatchable: u64,
    /// Requests that found the table full.
    pub overloads: u64,
}

impl<F: Clone> Transactions<F> {
    /// Starts without a transaction. `seed` keys the look-up table and must be
    /// unknown to peers.
    #[must_use]
    pub fn new(config: Config, seed: u64) -> Self {
        Self {
            config,
            hashing: Hashing::new(seed),
            slab: Slab::new(),
            index: HashMap::with_hasher(IdentityState),
            deadlines: Deadlines::new(),
            outputs: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    /// Takes in what arrived at `now`.
    pub fn handle_input(&mut self, now: Instant, input: Input<F>) {
        let Input::Message { flow, reliable, message } = input;
        if message.is_request() {
            self.handle_request(now, flow, reliable, message);
        } else {
            self.handle_response(now, flow, message);
        }
    }

    /// Does whatever is due at `now`; does nothing when nothing is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(slot) = self.deadlines.due(now) {
            let key = self.slab.key(slot).expect("a slot with a deadline holds a transaction");
            match self.turn(now, slot, |machine, turn| machine.handle_timeout(turn)) {
                Expired::Nothing => {}
                Expired::Unanswered => {
                    self.outputs.push_back(Output::TimedOut { key: ClientKey(key) });
                }
                Expired::Unacknowledged => {
                    self.outputs.push_back(Output::Unacknowledged { key: ServerKey(key) });
                }
            }
        }
    }

    /// Returns the next thing to do. Drain until `None` after every other call.
    pub fn poll_output(&mut self) -> Option<Output<F>> {
        self.outputs.pop_front()
    }

    /// Returns when `handle_timeout` is next needed.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.deadlines.first()
    }

    /// Sends a request and waits for its responses. Its topmost Via must have
    /// a branch that no other living transaction has. An ACK is not sent this
    /// way: it has no transaction.
    ///
    /// # Errors
    ///
    /// See [`RequestError`].
    pub fn request(
        &mut self,
        now: Instant,
        flow: F,
        reliable: bool,
        message: &Message,
    ) -> Result<ClientKey, RequestError> {
        let method = message.method();
        if !message.is_request() || method == Method::Ack {
            return Err(RequestError::NotARequest);
        }
        let identity = self.client_identity(message).ok_or(RequestError::NoBranch)?;
        if self.index.contains_key(&identity) {
            return Err(RequestError::BranchInUse);
        }
        if self.is_full() {
            return Err(RequestError::Full);
        }
        let request = message.bytes().clone();
        let mut turn = self.first_turn(now, &flow, reliable);
        let machine = if method == Method::Invite {
            Machine::ClientInvite(ClientInvite::new(&mut turn, request))
        } else {
            Machine::Client(Client::new(&mut turn, request))
        };
        Ok(ClientKey(self.insert(now, Entry::new(flow, reliable, machine, identity))))
    }

    /// Answers a request on the flow on which its newest copy came. A 2xx to
    /// INVITE is repeated until its ACK, any other final answer to INVITE as
    /// its transport needs.
    ///
    /// # Errors
    ///
    /// See [`RespondError`].
    pub fn respond(
        &mut self,
        now: Instant,
        key: ServerKey,
        message: &Message,
    ) -> Result<(), RespondError> {
        let status = message.status().ok_or(RespondError::NotAResponse)?;
        let entry = self.slab.get_mut(key.0).ok_or(RespondError::Ended)?;
        let (machine, mut turn) = entry.split(now, &self.config, &mut self.outputs);
        let answer = message.bytes().clone();
        match machine {
            Machine::ServerInvite(invite) => invite.respond(&mut turn, status, answer)?,
            Machine::Server(server) => server.respond(&mut turn, status, answer)?,
            Machine::ClientInvite(_) | Machine::Client(_) => return Err(RespondError::Ended),
        }
        let invite = matches!(entry.machine, Machine::ServerInvite(_));
        if invite && 200 <= status && entry.ack.is_none() {
            entry.ack = AckParts::read(message).map(|parts| self.hashing.ack(&parts));
            if let Some(ack) = entry.ack {
                let slot = self.index.entry(ack).or_insert(key.0.slot);
                // Only an RFC 2543 client looks for a refusal this way, and a
                // refused copy of a call must not hide the accepted one.
                if status < 300 {
                    *slot = key.0.slot;
                }
            }
        }
        self.settle(now, key.0.slot);
        Ok(())
    }

    /// Cancels an INVITE. The CANCEL goes out at once, or with the first
    /// provisional response (RFC 3261 §9.1), and never when a final response
    /// comes first. The INVITE still gets its final response, or times out
    /// 64 T1 after the CANCEL. Returns the key of the CANCEL.
    ///
    /// # Errors
    ///
    /// See [`CancelError`].
    pub fn cancel(&mut self, now: Instant, key: ClientKey) -> Result<ClientKey, CancelError> {
        let full = self.is_full();
        let entry = self.slab.get(key.0).ok_or(CancelError::Ended)?;
        let Machine::ClientInvite(invite) = &entry.machine else {
            return Err(CancelError::NotInvite);
        };
        match invite.cancellable() {
            Cancellable::Yes if full => return Err(CancelError::Full),
            Cancellable::Yes => {}
            Cancellable::Already => return Err(CancelError::Cancelling),
            Cancellable::Answered => return Err(CancelError::Answered),
        }
        let request = derived::cancel(invite.request()).ok_or(CancelError::Ended)?;
        let identity = self.client_identity(&request).ok_or(CancelError::Ended)?;
        let machine = Machine::Client(Client::held(request.bytes().clone()));
        let held = Entry::new(entry.flow.clone(), entry.reliable, machine, identity);
        let cancel = ClientKey(self.insert(now, held));
        if let Some(Machine::ClientInvite(invite)) = self.slab.get_mut(key.0).map(Entry::machine) {
            invite.hold(cancel);
        }
        self.settle(now, key.0.slot);
        Ok(cancel)
    }

    /// Forgets a request: it is not sent again, and nothing more is said of
    /// it, whatever its peer answers. Does nothing when it ended before.
    pub fn abandon(&mut self, key: ClientKey) {
        if self.slab.get(key.0).is_some() {
            self.remove(key.0.slot);
        }
    }

    /// Sends an INVITE no more and goes on waiting for its answer as before, as when its dialog has
    /// ended (RFC 3261 §15). Does nothing to other requests.
    pub fn hush(&mut self, now: Instant, key: ClientKey) {
        if let Some(Machine::ClientInvite(invite)) = self.slab.get_mut(key.0).map(Entry::machine) {
            invite.hush();
            self.settle(now, key.0.slot);
        }
    }

    /// Sends again what waits for its peer over flows that deliver by themselves, since no timer does
    /// it there: a request without its answer, the answer to an INVITE without the ACK of a refusal.
    /// For flows that `lost` something on its way; a peer that has it all takes it for a copy.
    pub fn repeat(&mut self, now: Instant, lost: impl Fn(&F) -> bool) {
        for slot in self.slab.filled(|entry| entry.reliable && lost(&entry.flow)) {
            self.turn(now, slot, |machine, turn| machine.repeat(turn));
        }
    }

    /// Forgets a request without an answer: its next copy comes as new. Does
    /// nothing when it ended before.
    pub fn dismiss(&mut self, key: ServerKey) {
        if self.slab.get(key.0).is_some() {
            self.remove(key.0.slot);
        }
    }

    /// Forgets every transaction whose flow does not satisfy `keep`; nothing
    /// more is sent or said of them.
    pub fn retain(&mut self, keep: impl Fn(&F) -> bool) {
        for slot in self.slab.filled(|entry| !keep(&entry.flow)) {
            self.remove(slot);
        }
    }

    /// Returns whether a request of ours is still known.
    #[must_use]
    pub fn has_client(&self, key: ClientKey) -> bool {
        self.slab.get(key.0).is_some()
    }

    /// Returns whether a response belongs to a request of ours that is still known. Any other is
    /// discarded by [`Transactions::handle_input`]; the 2xx of an INVITE that another process sent
    /// may need its ACK all the same.
    #[must_use]
    pub fn expects(&self, response: &Message) -> bool {
        let identity = self.client_identity(response);
        identity.is_some_and(|identity| self.index.contains_key(&identity))
    }

    /// Returns how many transactions are alive.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slab.len()
    }

    /// Returns whether no transaction is alive.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slab.len() == 0
    }

    /// Returns what was dropped since the start.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Puts a new transaction into every table.
    fn insert(&mut self, now: Instant, entry: Entry<F>) -> slab::Key {
        let identities = [Some(entry.identity), entry.merged, entry.ack];
        let key = self.slab.insert(entry);
        for identity in identities.into_iter().flatten() {
            self.index.insert(identity, key.slot);
        }
        self.settle(now, key.slot);
        key
    }

    /// Takes a transaction out of every table, and the CANCEL that it holds.
    fn remove(&mut self, slot: u32) {
        let Some(entry) = self.slab.remove(slot) else { return };
        self.deadlines.rearm(slot, entry.armed, None);
        for identity in [Some(entry.identity), entry.merged, entry.ack].into_iter().flatten() {
            if self.index.get(&identity) == Some(&slot) {
                self.index.remove(&identity);
            }
        }
        if let Some(cancel) = entry.machine.held() {
            self.abandon(cancel);
        }
    }

    /// Lets the machine in `slot` work.
    fn turn<R>(
        &mut self,
        now: Instant,
        slot: u32,
        work: impl FnOnce(&mut Machine, &mut Turn<'_, F>) -> R,
    ) -> R {
        let entry = self.slab.at_mut(slot).expect("the index names living transactions");
        let (machine, mut turn) = entry.split(now, &self.config, &mut self.outputs);
        let result = work(machine, &mut turn);
        self.settle(now, slot);
        result
    }

    /// Follows what a turn did to a machine: its deadline, its end, its CANCEL.
    fn settle(&mut self, now: Instant, slot: u32) {
        let Some(entry) = self.slab.at_mut(slot) else { return };
        let held = entry.machine.release(now + self.config.lifetime());
        if entry.machine.is_terminated() {
            self.remove(slot);
        } else {
            let deadline = entry.machine.deadline();
            self.deadlines.rearm(slot, entry.armed, deadline);
            entry.armed = deadline;
        }
        match held {
            Held::Nothing => {}
            Held::Drop(cancel) => self.abandon(cancel),
            Held::Start(cancel) if self.slab.get(cancel.0).is_none() => {}
            Held::Start(cancel) => self.turn(now, cancel.0.slot, |machine, turn| {
                if let Machine::Client(client) = machine {
                    client.start(turn);
                }
            }),
        }
    }

    /// What a machine sees that is not in the table yet.
    fn first_turn<'a>(&'a mut self, now: Instant, flow: &'a F, reliable: bool) -> Turn<'a, F> {
        Turn { now, config: &self.config, flow, reliable, outputs: &mut self.outputs }
    }

    fn client_identity(&self, message: &Message) -> Option<Identity> {
        let branch = message.branch()?;
        let method = message.cseq()?.method;
        branch.starts_with(COOKIE).then(|| self.hashing.client(branch, method))
    }

    fn is_full(&self) -> bool {
        self.config.transactions_max <= self.slab.len()
    }
}

#[cfg(test)]
mod tests;

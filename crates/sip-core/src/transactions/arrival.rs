//! What is done with a message that arrived.

use std::time::Instant;

use super::entry::{Entry, Machine};
use super::identity::ServerParts;
use super::server::Server;
use super::server_invite::{Acknowledged, ServerInvite};
use super::{ClientKey, Output, ServerKey, Transactions};
use crate::{Message, Method};

impl<F: Clone> Transactions<F> {
    pub(super) fn handle_request(
        &mut self,
        now: Instant,
        flow: F,
        reliable: bool,
        message: Message,
    ) {
        let Some(parts) = ServerParts::read(&message) else {
            self.counters.unmatchable += 1;
            return;
        };
        if message.method() == Method::Ack {
            let invite = self.find_invite(&parts).or_else(|| self.find_acknowledged(&parts));
            return self.handle_ack(now, flow, message, invite);
        }
        let identity = self.hashing.server(&parts);
        if let Some(&slot) = self.index.get(&identity) {
            return self.handle_copy(now, slot, flow, reliable);
        }
        let is_new = parts.to_tag.is_empty() && message.method() != Method::Cancel;
        if self.limit(is_new) <= self.len() {
            self.counters.overloads += 1;
            self.outputs.push_back(Output::Overload { flow, message });
            return;
        }
        // A CANCEL has the CSeq number of its INVITE on every path.
        let merged = is_new.then(|| self.hashing.merged(&parts));
        let is_merged = merged.is_some_and(|merged| self.index.contains_key(&merged));
        let cancels =
            if message.method() == Method::Cancel { self.find_invite(&parts) } else { None };
        let bytes = message.bytes().clone();
        let turn = self.first_turn(now, &flow, reliable);
        let machine = if message.method() == Method::Invite {
            Machine::ServerInvite(ServerInvite::new(&turn, bytes))
        } else {
            Machine::Server(Server::new(&turn, bytes))
        };
        let mut entry = Entry::new(flow.clone(), reliable, machine, identity);
        entry.merged = merged.filter(|_| !is_merged);
        let key = ServerKey(self.insert(now, entry));
        self.outputs.push_back(Output::Request { key, flow, message, cancels, merged: is_merged });
    }

    pub(super) fn handle_response(&mut self, now: Instant, flow: F, message: Message) {
        let (Some(identity), Some(status)) = (self.client_identity(&message), message.status())
        else {
            self.counters.unmatchable += 1;
            return;
        };
        let Some(&slot) = self.index.get(&identity) else {
            self.counters.responses_discarded += 1;
            return;
        };
        let key = self.slab.key(slot).expect("the index names living transactions");
        let is_shown = self.turn(now, slot, |machine, turn| match machine {
            Machine::ClientInvite(invite) => invite.handle_response(turn, &message, status),
            Machine::Client(client) => client.handle_response(turn, status),
            Machine::ServerInvite(_) | Machine::Server(_) => false,
        });
        if is_shown {
            self.outputs.push_back(Output::Response { key: ClientKey(key), flow, message });
        } else {
            self.counters.responses_discarded += 1;
        }
    }

    fn handle_copy(&mut self, now: Instant, slot: u32, flow: F, reliable: bool) {
        self.counters.request_copies += 1;
        let entry = self.slab.at_mut(slot).expect("the index names living transactions");
        (entry.flow, entry.reliable) = (flow, reliable);
        self.turn(now, slot, |machine, turn| match machine {
            Machine::ServerInvite(invite) => invite.handle_copy(turn),
            Machine::Server(server) => server.handle_copy(turn),
            Machine::ClientInvite(_) | Machine::Client(_) => {}
        });
    }

    fn handle_ack(&mut self, now: Instant, flow: F, message: Message, key: Option<ServerKey>) {
        let Some(key) = key else {
            self.outputs.push_back(Output::Ack { flow, message, key: None });
            return;
        };
        let acknowledged = self.turn(now, key.0.slot, |machine, turn| match machine {
            Machine::ServerInvite(invite) => invite.handle_ack(turn),
            Machine::ClientInvite(_) | Machine::Client(_) | Machine::Server(_) => {
                Acknowledged::Nothing
            }
        });
        match acknowledged {
            Acknowledged::Nothing => {}
            Acknowledged::Refusal => self.outputs.push_back(Output::Acknowledged { key }),
            Acknowledged::Success => {
                self.outputs.push_back(Output::Ack { flow, message, key: Some(key) });
            }
        }
    }

    /// Finds the INVITE that an ACK or a CANCEL belongs to by its branch.
    fn find_invite(&self, parts: &ServerParts<'_>) -> Option<ServerKey> {
        let slot = self.index.get(&self.hashing.server(&parts.of_invite()))?;
        self.slab.key(*slot).map(ServerKey)
    }

    /// Finds the INVITE that was answered with 2xx, whose ACK has a branch of
    /// its own, or whose client is of RFC 2543.
    fn find_acknowledged(&self, parts: &ServerParts<'_>) -> Option<ServerKey> {
        let slot = self.index.get(&self.hashing.ack(&parts.ack()))?;
        self.slab.key(*slot).map(ServerKey)
    }

    /// New work must leave room for what ends or changes calls that live.
    fn limit(&self, is_new: bool) -> usize {
        let all = self.config.transactions_max;
        if is_new { all - all / 8 } else { all }
    }
}

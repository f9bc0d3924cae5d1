//! What a gate says and hears over connections.
//!
//! A flow of a stream names its connection, and in `remote` where a new one is made once that is gone
//! (RFC 3261 §18.2.2, §18.1.1). A request that no connection takes is answered here in its peer's
//! place: its b2b goes on as after any refusal (RFC 3261 §8.1.3.1).

use std::net::SocketAddr;
use std::time::Instant;

use bytes::Bytes;
use failover::Flow;
use sip_core::{Message, Method};

use super::request::Arrival;
use super::{Gate, Output};
use crate::frame::SipIn;
use crate::slot;

impl Gate {
    /// Takes in a message that came over a connection.
    pub(super) fn handle_stream(
        &mut self,
        now: Instant,
        listener: u8,
        connection: u32,
        from: SocketAddr,
        message: &Message,
    ) {
        if let Some(listener) = self.listener(listener) {
            self.handle_message(now, Arrival { listener, connection, from }, message);
        }
    }

    /// Returns whether this gate has the socket of a flow. What it knew of datagrams did not end with an
    /// earlier life, but a b2b that names that life does not know how this one is.
    pub(super) fn has_socket(&self, flow: &Flow) -> bool {
        let is_its = self.listener(flow.listener).map(|it| it.transport) == Some(flow.transport);
        is_its && (flow.transport.is_reliable() || flow.boot == self.config.boot)
    }

    /// Sends a message of a b2b.
    pub(super) fn say(&mut self, flow: &Flow, bytes: Bytes) {
        if flow.transport.is_reliable() && self.is_answered_here(&bytes) {
            self.counters.ended += 1;
            return;
        }
        self.counters.sent += 1;
        self.put(flow, bytes);
    }

    /// Hands a message to the socket of a flow.
    pub(super) fn put(&mut self, flow: &Flow, bytes: Bytes) {
        let (listener, to) = (flow.listener, flow.remote);
        self.outputs.push_back(if flow.transport.is_reliable() {
            // The connections of an earlier life are gone, and others have their numbers.
            let connection = if flow.boot == self.config.boot { flow.connection } else { 0 };
            Output::Stream { listener, connection, to, bytes }
        } else {
            Output::Datagram { listener, to, bytes }
        });
    }

    /// Takes in that no connection took a message: a request is refused in its peer's place, with 430
    /// where there was none to be made (RFC 5626 §5.3.1), else with 503 as RFC 3261 §8.1.3.1 has it.
    pub(super) fn unsent(&mut self, now: Instant, listener: u8, to: SocketAddr, bytes: Bytes) {
        self.counters.unsent += 1;
        let (Some(listener), Ok(request)) = (self.listener(listener), Message::parse(bytes)) else {
            return;
        };
        if !request.is_request() || request.method() == Method::Ack {
            return;
        }
        let Some(slot) = request.branch().and_then(slot::of_branch) else { return };
        let status = if to.port() == 0 { 430 } else { 503 };
        let answer = self.answers.answer(&request, status);
        // It comes over no connection, which tells its b2b who made it. Without a node that takes it the
        // b2b's own timer ends the transaction.
        let flow = self.flow(Arrival { listener, connection: 0, from: to }, to);
        let _ = self.hand(now, SipIn { slot, hops: 0, flow, bytes: answer });
    }

    /// Whether this is the ACK to what this gate said in a peer's place. A tag of a peer may look like ours.
    fn is_answered_here(&self, bytes: &Bytes) -> bool {
        bytes.starts_with(b"ACK ")
            && Message::parse(bytes.clone()).is_ok_and(|ack| self.answers.gave_tag_of(&ack))
    }
}

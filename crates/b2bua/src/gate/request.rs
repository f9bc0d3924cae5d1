//! A request as it came to a gate.

use std::net::SocketAddr;

use bytes::Bytes;
use failover::{Slot, Transport};
use sip_core::{Edit, Message, Method, Verdict, Via};

use crate::Listener;
use crate::slot;

/// How a message came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) listener: Listener,
    /// 0 for a datagram.
    pub(super) connection: u32,
    pub(super) from: SocketAddr,
}

/// A request, and what is known of how it came.
pub(super) struct Request<'a> {
    pub(super) message: &'a Message,
    pub(super) via: Option<Via<'a>>,
    pub(super) arrival: Arrival,
    pub(super) is_trusted: bool,
    /// The slot that something of ours in it names.
    pub(super) named: Option<Slot>,
}

impl Request<'_> {
    /// Returns where its answers go: to the source, at the port it asked for (RFC 3581 §4), else the
    /// one that its Via names (RFC 3261 §18.2.2). Of a connection that is where they go once it is
    /// gone: nowhere, which port 0 says, when a NAT seems to stand between.
    pub(super) fn remote(&self) -> SocketAddr {
        let from = self.arrival.from;
        let transport = self.arrival.listener.transport;
        let sent_by = |via: &Via<'_>| {
            via.port().filter(|port| *port != 0).unwrap_or_else(|| transport.port())
        };
        if transport.is_reliable() {
            let via = self.via.as_ref();
            let via = via.filter(|via| via.host().ip().is_none_or(|ip| ip == from.ip()));
            return SocketAddr::new(from.ip(), via.map_or(0, sent_by));
        }
        let port = match &self.via {
            Some(via) if via.param(b"rport").is_none() => sent_by(via),
            Some(_) | None => from.port(),
        };
        SocketAddr::new(from.ip(), port)
    }

    /// Returns the request with its source noted in the top Via, where that says anything new.
    pub(super) fn stamped(&self) -> Bytes {
        let from = self.arrival.from;
        let says_it = self.via.is_some_and(|via| {
            via.param(b"rport").is_none()
                && via.param(b"received").is_none()
                && via.host().ip() == Some(from.ip())
        });
        if says_it {
            self.message.bytes().clone()
        } else {
            Edit::new(self.message).via_received(from.ip(), from.port()).finish()
        }
    }

    /// Returns whether it would register somebody or begin a call. A tag of our shape in To excuses
    /// an INVITE, which without its dialog is answered 481; in Replaces it excuses nothing.
    pub(super) fn asks_for_service(&self) -> bool {
        let tag = self.message.to_tag().unwrap_or_default();
        let method = self.message.method();
        method == Method::Register || (method == Method::Invite && slot::of_tag(tag).is_none())
    }

    /// Returns the status that answers what is wrong with it.
    pub(super) fn fault(&self) -> Option<u16> {
        match self.message.verdict() {
            Verdict::Answer(status) => Some(status),
            Verdict::Ok | Verdict::Discard => {
                let uri = self.message.request_uri()?;
                let scheme = &uri[..uri.iter().position(|byte| *byte == b':')?];
                let known = |name: &&[u8]| name.eq_ignore_ascii_case(scheme);
                if !SCHEMES.iter().any(known) {
                    return Some(416);
                }
                // RFC 3261 §26.2.2: every hop of such a request has TLS.
                let insecure = self.arrival.listener.transport != Transport::Tls;
                (insecure && scheme.eq_ignore_ascii_case(b"sips")).then_some(403)
            }
        }
    }
}

/// Schemes of a Request-URI that a b2b can do something with; others are answered 416.
const SCHEMES: [&[u8]; 3] = [b"sip", b"sips", b"tel"];

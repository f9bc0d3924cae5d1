//! Requests that are too long for a datagram (RFC 3261 §18.1.1).
//!
//! They go by TCP where the next hop is no registered phone, which has one way to be reached, and names
//! the address that they go to; and by datagram all the same once no connection is made. What is known
//! of that is kept nowhere else: the next owner of the slot sends by datagram, whose copies of the
//! request a peer knows by their branch (RFC 3261 §17.2.3).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use failover::{Flow, Transport};
use sip_core::transactions::{ClientKey, RequestError};
use sip_core::{Edit, Message, Name, NameAddr, Uri};

use crate::core::{Core, Way};

/// What went by TCP for its length.
#[derive(Debug, Default)]
pub(crate) struct LongRequests {
    /// Those without any answer, as they go by datagram.
    unanswered: BTreeMap<ClientKey, (Way, Message)>,
    /// With whom no connection was made, and until when none is tried.
    without: BTreeMap<SocketAddr, Instant>,
}

impl LongRequests {
    pub(crate) fn forget(&mut self, key: ClientKey) {
        self.unanswered.remove(&key);
    }

    pub(crate) fn retain(&mut self, keep: impl Fn(ClientKey) -> bool) {
        self.unanswered.retain(|key, _| keep(*key));
    }

    fn is_without(&self, now: Instant, remote: SocketAddr) -> bool {
        self.without.get(&remote).is_some_and(|until| now < *until)
    }

    fn note_without(&mut self, now: Instant, remote: SocketAddr) {
        self.without.retain(|_, until| now < *until);
        if WITHOUT_MAX <= self.without.len() {
            self.without.clear();
        }
        self.without.insert(remote, now + WITHOUT);
    }
}

impl Core {
    /// Begins the transaction of a request, which is written as for a datagram where `way` is one.
    ///
    /// # Errors
    /// When there is no room for it.
    pub(crate) fn request(
        &mut self,
        way: Way,
        registered: bool,
        message: &Message,
    ) -> Result<ClientKey, RequestError> {
        let stream = self.stream_for(&way.0, message).filter(|_| !registered);
        let Some((flow, by_stream)) = stream.and_then(|flow| Some((flow, by_tcp(message)?))) else {
            let reliable = way.0.transport.is_reliable();
            return self.transactions.request(self.now, way, reliable, message);
        };
        let key = self.transactions.request(self.now, (flow, way.1), true, &by_stream)?;
        self.long.unanswered.insert(key, (way, message.clone()));
        Ok(key)
    }

    /// Takes in that an answer to a request of ours came on `flow`. If no connection brought it, for there
    /// is none, sends the request by datagram and returns its new transaction.
    pub(crate) fn send_again(&mut self, key: ClientKey, flow: &Flow) -> Option<ClientKey> {
        let (way, message) = self.long.unanswered.remove(&key)?;
        if !flow.transport.is_reliable() || flow.connection != 0 {
            return None;
        }
        self.long.note_without(self.now, way.0.remote);
        // Its branch is free then.
        self.transactions.abandon(key);
        let again = self.transactions.request(self.now, way, false, &message).ok()?;
        let user = self.clear_client(key)?;
        self.set_client(again, user);
        Some(again)
    }

    /// Returns the way by which a request goes that is too long for the datagrams of `flow`.
    fn stream_for(&self, flow: &Flow, message: &Message) -> Option<Flow> {
        let is_long = DATAGRAM_LEN_MAX < message.bytes().len() && flow.transport == Transport::Udp;
        if !is_long || self.long.is_without(self.now, flow.remote) || !names(message, flow.remote) {
            return None;
        }
        let listener = self.beside(flow, Transport::Tcp)?;
        Some(Flow { transport: Transport::Tcp, listener, connection: 0, ..*flow })
    }
}

/// Returns whether the next hop of a request names this address, and no transport.
fn names(message: &Message, remote: SocketAddr) -> bool {
    let route = message.elements(Name::ROUTE).next().map(NameAddr::parse);
    let uri = match &route {
        Some(Ok(route)) => route.parsed_uri().ok(),
        Some(Err(_)) => None,
        None => message.request_uri().and_then(|uri| Uri::parse(uri).ok()),
    };
    uri.is_some_and(|uri| {
        let ip = uri.host().and_then(|host| host.ip());
        let port = uri.port().unwrap_or(SIP_PORT);
        ip == Some(remote.ip()) && port == remote.port() && uri.param(b"transport").is_none()
    })
}

/// Returns a request with TCP in its Via.
fn by_tcp(message: &Message) -> Option<Message> {
    let via = message.header(Name::VIA)?.strip_prefix(b"SIP/2.0/UDP ")?;
    let via = [b"SIP/2.0/TCP ", via].concat();
    let bytes: Bytes = Edit::new(message).pop_via().push_via(via).finish();
    Message::parse(bytes).ok()
}

/// RFC 3261 §18.1.1: what a path carries whose MTU is not known.
const DATAGRAM_LEN_MAX: usize = 1300;
/// How long nobody tries to connect again.
const WITHOUT: Duration = Duration::from_secs(600);
const WITHOUT_MAX: usize = 256;
const SIP_PORT: u16 = 5060;

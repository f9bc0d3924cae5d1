//! `stateless_proxy LISTEN NEXT`: RFC 3261 §16.11 over UDP; NEXT gets what names no address.

use std::error::Error;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::{SocketAddr, UdpSocket};

use bytes::Bytes;
use sip_core::{Edit, Message, Method, Name, Uri, Verdict, Via, Writer, reason_phrase};

fn main() -> Result<(), Box<dyn Error>> {
    let [listen, next] = &std::env::args().skip(1).collect::<Vec<_>>()[..] else {
        return Err("usage: stateless_proxy LISTEN NEXT".into());
    };
    let (socket, next) = (UdpSocket::bind(listen)?, next.parse()?);
    let proxy = Proxy { address: socket.local_addr()?, next };
    let mut buffer = [0; 65_535];
    loop {
        let (len, from) = socket.recv_from(&mut buffer)?;
        if let Some((bytes, to)) = proxy.handle(from, Bytes::copy_from_slice(&buffer[..len])) {
            let _ = socket.send_to(&bytes, to); // What is lost will come again.
        }
    }
}

pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    pub(crate) next: SocketAddr,
}

impl Proxy {
    pub(crate) fn handle(&self, from: SocketAddr, bytes: Bytes) -> Option<(Bytes, SocketAddr)> {
        let message = Message::parse(bytes).ok()?;
        match (message.verdict(), message.max_forwards()) {
            (Verdict::Discard, _) => None,
            (Verdict::Ok, _) if !message.is_request() => self.pass_back(&message),
            (Verdict::Ok, Some(0)) => refuse(&message, from, 483),
            (Verdict::Ok, hops) => Some(self.forward(&message, from, hops.unwrap_or(71) - 1)),
            (Verdict::Answer(status), _) => refuse(&message, from, status),
        }
    }

    fn forward(&self, request: &Message, from: SocketAddr, hops: u32) -> (Bytes, SocketAddr) {
        // A copy must get the branch of the first one, and a CANCEL or the ACK
        // of a refusal that of its INVITE: only what they share goes in.
        let mut hash = DefaultHasher::new();
        (request.branch(), request.call_id(), request.cseq().map(|cseq| cseq.number))
            .hash(&mut hash);
        let via = format!("SIP/2.0/UDP {};branch=z9hG4bK{:016x}", self.address, hash.finish());
        let mut edit = Edit::new(request).via_received(from.ip(), from.port()).push_via(via);
        edit = edit.set(Name::MAX_FORWARDS, hops.to_string());
        let mut routes = request.routes().map(|route| address(route.uri())).peekable();
        if routes.next_if_eq(&Some(self.address)).is_some() {
            edit = edit.pop(Name::ROUTE);
        }
        let to = routes.next().unwrap_or_else(|| address(request.request_uri()?));
        (edit.finish(), to.unwrap_or(self.next))
    }

    fn pass_back(&self, response: &Message) -> Option<(Bytes, SocketAddr)> {
        response.via().filter(|via| sent_by(via) == Some(self.address))?;
        let to = response.vias().nth(1).as_ref().and_then(sent_by)?;
        Some((Edit::new(response).pop_via().finish(), to))
    }
}

fn refuse(request: &Message, to: SocketAddr, status: u16) -> Option<(Bytes, SocketAddr)> {
    let phrase = reason_phrase(status).as_bytes();
    let answer = Writer::answer(request, status, phrase, Some(b"stateless")).finish();
    (request.method() != Method::Ack).then(|| (answer.bytes().clone(), to))
}

fn address(uri: &[u8]) -> Option<SocketAddr> {
    let uri = Uri::parse(uri).ok()?;
    Some(SocketAddr::new(uri.host()?.ip()?, uri.port().unwrap_or(5060)))
}

fn sent_by(via: &Via<'_>) -> Option<SocketAddr> {
    let port = via.rport().flatten().or_else(|| via.port()).unwrap_or(5060);
    Some(SocketAddr::new(via.received().or_else(|| via.host().ip())?, port))
}

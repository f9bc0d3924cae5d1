//! Where requests inside a dialog go.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use failover::record::Leg;
use failover::{Flow, Transport};
use sip_core::{Message, Scheme, Uri};

use crate::core::Core;

/// Returns the way of the next request to a leg whose peer was last heard on `source`.
///
/// The remote target counts, or the first of the route set (RFC 3261 §12.2.1.1), but not when the peer
/// seems to be behind a NAT: then its Contact names an address that only it knows, and what reached it
/// before is kept. `honest` says that the peer names the address it sends from.
pub(super) fn flow(core: &Core, leg: &Leg, source: Flow, honest: bool) -> Flow {
    let Ok(uri) = Uri::parse(leg.dialog.next_hop()) else { return source };
    towards(core, &uri, source, honest || !leg.dialog.route_set.is_empty())
}

/// Returns the way to a URI of a peer that was last heard on `source`. One with another address is
/// believed only if `far` says so. A connection with the host of that address is kept, and the address
/// is where the next one is made.
pub(crate) fn towards(core: &Core, uri: &Uri<'_>, source: Flow, far: bool) -> Flow {
    let Some(ip) = uri.host().and_then(|host| host.ip()) else { return source };
    let near = ip == source.remote.ip();
    let beside = wanted(uri).filter(|transport| *transport != source.transport);
    let beside = beside.and_then(|transport| Some((transport, core.beside(&source, transport)?)));
    let transport = beside.map_or(source.transport, |(transport, _)| transport);
    let remote = SocketAddr::new(ip, uri.port().unwrap_or_else(|| transport.port()));
    if !(near || far) || !is_one_host(remote) || ip.is_ipv4() != source.remote.is_ipv4() {
        return source;
    }
    let connection = if near { source.connection } else { 0 };
    let flow = Flow { remote, connection, ..source };
    match beside {
        Some((transport, listener)) => Flow { transport, listener, connection: 0, ..flow },
        None => flow,
    }
}

/// Returns the stream that a URI asks for.
fn wanted(uri: &Uri<'_>) -> Option<Transport> {
    let transport = uri.param(b"transport").unwrap_or_default();
    if uri.scheme() == Scheme::Sips || transport.eq_ignore_ascii_case(b"tls") {
        return Some(Transport::Tls);
    }
    transport.eq_ignore_ascii_case(b"tcp").then_some(Transport::Tcp)
}

/// Returns whether the peer that sent a request names the address it sends from.
pub(super) fn is_honest(leg: &Leg, request: &Message, source: &Flow) -> bool {
    let host = request.via().and_then(|via| via.host().ip());
    !leg.registered && host == Some(source.remote.ip())
}

/// Returns whether a message can go there, and to one host only.
fn is_one_host(addr: SocketAddr) -> bool {
    let ip = addr.ip();
    addr.port() != 0
        && !ip.is_unspecified()
        && !ip.is_multicast()
        && ip != IpAddr::V4(Ipv4Addr::BROADCAST)
}

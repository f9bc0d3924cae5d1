//! Where requests inside a dialog go.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use failover::Flow;
use failover::record::Leg;
use sip_core::{Message, Uri};

/// Returns the way of the next request to a leg whose peer was last heard on `source`.
///
/// A stream is kept. With datagrams the remote target counts, or the first of the route set
/// (RFC 3261 §12.2.1.1), but not when the peer seems to be behind a NAT: then its Contact names an
/// address that only it knows, and what reached it before is kept. `honest` says that the peer
/// names the address it sends from.
pub(super) fn flow(leg: &Leg, source: Flow, honest: bool) -> Flow {
    if source.transport.is_reliable() {
        return source;
    }
    let Ok(uri) = Uri::parse(leg.dialog.next_hop()) else { return source };
    let Some(ip) = uri.host().and_then(|host| host.ip()) else { return source };
    let follows = ip == source.remote.ip() || honest || !leg.dialog.route_set.is_empty();
    let remote = SocketAddr::new(ip, uri.port().unwrap_or(SIP_PORT));
    if !follows || !is_one_host(remote) || ip.is_ipv4() != source.remote.is_ipv4() {
        return source;
    }
    Flow { remote, ..source }
}

/// Returns whether the peer that sent a request names the address it sends from.
pub(super) fn is_honest(leg: &Leg, request: &Message, source: &Flow) -> bool {
    let host = request.via().and_then(|via| via.host().ip());
    !leg.registered && host == Some(source.remote.ip())
}

/// Returns whether a datagram can go there, and to one host only.
fn is_one_host(addr: SocketAddr) -> bool {
    let ip = addr.ip();
    addr.port() != 0
        && !ip.is_unspecified()
        && !ip.is_multicast()
        && ip != IpAddr::V4(Ipv4Addr::BROADCAST)
}

const SIP_PORT: u16 = 5060;

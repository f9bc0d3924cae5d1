//! Where a call goes: to the phones of a registered user, else where its prefix leads.

use bytes::Bytes;
use failover::record::Target;
use failover::{Aor, Flow, Transport};
use sip_core::{Scheme, Uri};

use crate::config::Trunk;
use crate::core::Core;
use crate::registrar::Registrar;

/// Returns where a call to `uri` may go, in order; nothing when nobody has that address.
pub(crate) fn targets(
    core: &Core,
    registrar: &Registrar,
    uri: &Uri<'_>,
    from: Flow,
) -> Vec<Target> {
    let bound = registrar.targets(core, &address(uri));
    if !bound.is_empty() {
        return bound;
    }
    let user = uri.user().unwrap_or_default();
    let route = core.config.routes.iter().find(|route| user.starts_with(&route.prefix));
    let targets = route.map(|route| &route.targets[..]).unwrap_or_default();
    trunks(core, uri, targets.iter().copied(), from)
}

/// Returns these trunks as the targets of a call to `uri`; without those that the gate of the caller
/// has no socket for.
pub(crate) fn trunks(
    core: &Core,
    uri: &Uri<'_>,
    targets: impl Iterator<Item = Trunk>,
    from: Flow,
) -> Vec<Target> {
    targets.filter_map(|target| trunk(core, uri, target, from)).collect()
}

/// Returns those of the targets of a call to `uri` that it may go to: a SIPS URI is reached over TLS, and
/// who calls one reaches nothing else (RFC 3261 §26.2.2, RFC 5630 §3.1.3).
pub(crate) fn fitting(uri: &Uri<'_>, mut targets: Vec<Target>) -> Vec<Target> {
    let is_asked = uri.scheme() == Scheme::Sips;
    targets.retain(|target| match is_secure(&target.uri) {
        true => target.flow.transport == Transport::Tls,
        false => !is_asked,
    });
    targets
}

/// Whether a URI is a SIPS URI.
pub(crate) fn is_secure(uri: &[u8]) -> bool {
    Uri::parse(uri).is_ok_and(|uri| uri.scheme() == Scheme::Sips)
}

/// Calls to a trunk leave by the gate the caller came to.
fn trunk(core: &Core, called: &Uri<'_>, trunk: Trunk, from: Flow) -> Option<Target> {
    let user = called.user().unwrap_or_default();
    let is_secure = trunk.transport == Transport::Tls && called.scheme() == Scheme::Sips;
    let Trunk { addr: target, transport } = trunk;
    let listeners = &core.gates.get(&from.gate)?.listeners;
    let fits = |listener: &&crate::io::Listener| {
        listener.transport == transport && listener.advertise.is_ipv4() == target.is_ipv4()
    };
    let its = listeners.iter().filter(fits).find(|listener| listener.id == from.listener);
    let listener = its.or_else(|| listeners.iter().find(fits))?.id;
    let mut uri = Vec::with_capacity(64);
    uri.extend_from_slice(if is_secure { b"sips:" } else { b"sip:" });
    if !user.is_empty() {
        uri.extend_from_slice(user);
        uri.push(b'@');
    }
    uri.extend_from_slice(target.to_string().as_bytes());
    match transport {
        Transport::Tls if is_secure => {}
        Transport::Udp => {}
        Transport::Tcp => uri.extend_from_slice(b";transport=tcp"),
        Transport::Tls => uri.extend_from_slice(b";transport=tls"),
    }
    Some(Target {
        uri: Bytes::from(uri),
        routes: Vec::new(),
        flow: Flow {
            gate: from.gate,
            boot: from.boot,
            listener,
            transport,
            connection: 0,
            remote: target,
        },
        registered: false,
    })
}

/// Returns the address of record that a URI names. An IP address is no domain.
pub(crate) fn address(uri: &Uri<'_>) -> Aor {
    let domain = uri.host().filter(|host| host.ip().is_none());
    let domain = domain.map(|host| Bytes::from(host.name().to_ascii_lowercase()));
    let domain = domain.unwrap_or_default();
    let user = uri.user_unescaped().unwrap_or_default();
    Aor { user: Bytes::copy_from_slice(&user), domain }
}

#[cfg(test)]
mod tests {
    use failover::{Boot, NodeId};

    use super::*;

    fn target(uri: &'static str, transport: Transport) -> Target {
        let remote = "192.0.2.1:5061".parse().unwrap();
        let (gate, boot) = (NodeId(1), Boot(1));
        let flow = Flow { gate, boot, listener: 0, transport, connection: 0, remote };
        Target { uri: Bytes::from_static(uri.as_bytes()), routes: vec![], flow, registered: true }
    }

    #[test]
    fn a_sips_call_reaches_sips_targets_over_tls_alone_and_another_also_what_it_may() {
        let targets = vec![
            target("sip:a@192.0.2.1", Transport::Udp),
            target("sip:a@192.0.2.1;transport=tls", Transport::Tls),
            target("sips:a@192.0.2.1", Transport::Tls),
            // Registered by a phone that does not do what it says.
            target("sips:a@192.0.2.1", Transport::Tcp),
        ];
        let fit = |uri: &str| fitting(&Uri::parse(uri.as_bytes()).unwrap(), targets.clone());
        assert_eq!(fit("sips:a@example.com"), targets[2..3]);
        assert_eq!(fit("sip:a@example.com"), targets[..3]);
        assert_eq!(fit("tel:+3312345"), targets[..3]);
    }
}

//! The sockets towards phones and trunks, and what is reached through them.

use std::net::SocketAddr;
use std::time::Duration;

use b2bua::{Route, Transport, Trunk};
use driver::config::{Key, Table, is_one_host};
use driver::tls::SipTls;

use crate::config::{Config, ListenerConfig};

const TRANSPORTS: [(&str, Transport); 3] =
    [("udp", Transport::Udp), ("tcp", Transport::Tcp), ("tls", Transport::Tls)];

pub(super) fn read_listeners(listeners: &[Table<'_>], config: &mut Config) {
    let mut taken: Vec<ListenerConfig> = Vec::new();
    for listener in listeners {
        let transport = listener.key("transport").choice(&TRANSPORTS).unwrap_or(Transport::Udp);
        let key = listener.key("listen");
        let key = key.required("the address of a SIP socket, such as \"127.0.0.1:5060\"");
        let listen = key.own_addr();
        let advertise = listener.key("advertise").addr();
        let tls = match transport {
            Transport::Tls => SipTls::read(listener),
            Transport::Udp | Transport::Tcp => {
                SipTls::forbid(listener);
                None
            }
        };
        let Some(listen) = listen else { continue };
        let clash = taken.iter().find(|other| {
            kind(other.transport) == kind(transport) && overlap(other.listen, listen)
        });
        if let Some(ListenerConfig { listen: other, .. }) = clash {
            let text = format!("is {listen}, where another listener has {other}");
            listener.key("listen").fault(text);
        }
        let advertise = advertise.unwrap_or(listen);
        if advertise.port() == 0
            || !is_one_host(advertise.ip())
            || advertise.is_ipv4() != listen.is_ipv4()
        {
            listener.fault("say in `advertise` at which address and port phones reach this");
        } else if clash.is_none()
            && taken.iter().any(|it| it.transport == transport && it.advertise == advertise)
        {
            listener.fault(format!("is advertised as {advertise}, as another listener is"));
        }
        taken.push(ListenerConfig { transport, listen, advertise, tls });
    }
    config.listeners = taken;
    if let Some(first) = listeners.first()
        && !config.roles.gate
    {
        first.fault("listeners belong to the role \"gate\", which this node has not");
    }
    if usize::from(u8::MAX) < listeners.len() {
        listeners[usize::from(u8::MAX)].fault("a gate has 255 listeners at most");
    }
}

/// Reads what peers may do with connections.
pub(super) fn read_streams(streams: &Table<'_>, config: &mut Config) {
    let limits = &mut config.streams;
    let count = |key: &'static str, least: u32, most: u32| {
        let value = streams.key(key).integer(least..=most);
        value.map(|value| usize::try_from(value).unwrap_or(usize::MAX))
    };
    let span = |key: &'static str, most: u64| {
        streams.key(key).seconds(Duration::from_millis(100)..=Duration::from_secs(most))
    };
    for (limit, value) in [
        (&mut limits.connections_max, count("connections", 1, 1_000_000)),
        (&mut limits.per_source_max, count("connections_per_source", 1, 1_000_000)),
        (&mut limits.message_len_max, count("message_size", 1024, 65_535)),
        (&mut limits.unsent_len_max, count("unsent", 65_536, 1 << 24)),
    ] {
        *limit = value.unwrap_or(*limit);
    }
    for (limit, value) in [
        (&mut limits.message_time_max, span("message_time", 600)),
        (&mut limits.idle_max, span("idle", 7 * 86_400)),
        (&mut limits.connect_time_max, span("connect_time", 60)),
    ] {
        *limit = value.unwrap_or(*limit);
    }
    if streams.is_present() && !config.listeners.iter().any(|one| one.transport.is_reliable()) {
        streams.fault(
            "limits connections, for which there is no [[listener]] with `transport = \"tcp\"` or \"tls\"",
        );
    }
}

pub(super) fn read_routes(routes: &[Table<'_>], config: &mut Config) {
    for route in routes {
        let prefix = route.key("prefix").string().unwrap_or_default();
        let key = route.key("targets").required("one or more addresses with ports");
        let targets: Vec<Trunk> = key.list(trunk).unwrap_or_default();
        if targets.is_empty() {
            route.fault("a route needs at least one target");
        }
        for target in &targets {
            check_target(route, *target, config);
        }
        let prefix = prefix.into_bytes();
        if let Some(first) = config.b2b.routes.iter().find(|one| prefix.starts_with(&one.prefix)) {
            let first = String::from_utf8_lossy(&first.prefix);
            route.fault(format!("is never taken: the one for \"{first}\" stands before it"));
        }
        config.b2b.routes.push(Route { prefix, targets });
    }
    if let Some(first) = routes.first()
        && !config.roles.b2b
    {
        first.fault("routes belong to the role \"b2b\", which this node has not");
    }
}

/// A call to an address of ours would come back, and one to another family or over another transport has
/// no socket to leave by.
fn check_target(route: &Table<'_>, trunk: Trunk, config: &Config) {
    let Trunk { addr: target, transport } = trunk;
    let listeners = &config.listeners;
    let fits = |one: &ListenerConfig| {
        one.transport == transport && one.listen.is_ipv4() == target.is_ipv4()
    };
    if listeners
        .iter()
        .any(|one| one.transport == transport && (one.advertise == target || one.listen == target))
    {
        route.fault(format!("leads to {target}, which is a listener of this gate"));
    } else if !listeners.is_empty() && !listeners.iter().any(fits) {
        let name = transport.name();
        route.fault(format!(
            "leads to {target}, for which no [[listener]] has {name} and an address"
        ));
    } else if transport == Transport::Tls
        && listeners.iter().filter(|one| fits(one)).any(|one| !connects(one))
    {
        route.fault(format!(
            "leads to {target} over TLS: name in the [[listener]] the `authority` that its \
             certificate is from"
        ));
    }
}

/// Whether a listener can make connections, as far as its files could be read.
fn connects(one: &ListenerConfig) -> bool {
    one.tls.as_ref().is_none_or(SipTls::connects)
}

/// Reads where calls go: an address, and behind it `;transport=tcp` or `tls` if that carries them.
pub(crate) fn trunk(key: Key<'_>) -> Option<Trunk> {
    let what = "the address and port of one host, such as \"192.0.2.1:5060\" or \
                \"192.0.2.1:5060;transport=tcp\"";
    key.parsed(what, |text| {
        let (addr, transport) = text.split_once(";transport=").unwrap_or((text, "udp"));
        let known = TRANSPORTS.iter().find(|(name, _)| *name == transport)?;
        let addr: SocketAddr = addr.parse().ok()?;
        let is_there = addr.port() != 0 && is_one_host(addr.ip());
        is_there.then_some(Trunk { addr, transport: known.1 })
    })
}

/// Whether a transport has sockets for connections; those with and without TLS have ports in common.
fn kind(transport: Transport) -> bool {
    transport.is_reliable()
}

/// Returns whether the second of two sockets could not be opened.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    one.port() == other.port()
        && one.is_ipv4() == other.is_ipv4()
        && (one.ip() == other.ip() || one.ip().is_unspecified() || other.ip().is_unspecified())
}

//! What an operator decides about a media gateway.

mod file;

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::Duration;

use driver::http::Token;
use driver::{LinksConfig, LogConfig, NodeId, RunConfig, Security};
use media::Network;

/// The configuration of one media gateway, whether it comes from a file or from a program that holds a gateway.
#[derive(Clone, Debug)]
pub struct Config {
    /// Unique in the cluster.
    pub node: NodeId,
    /// What dies together with this gateway: a call's media should not be where its signalling is.
    pub host: String,
    /// Tries for a real-time class, for the forwarding threads and for the loop.
    pub realtime: bool,
    /// Where b2bs dial this gateway; `None` if it is only built to be driven by hand.
    pub links: Option<SocketAddr>,
    /// What protects the links.
    pub security: Security,
    /// Where `/healthz` and `/metrics` are served.
    pub http: Option<SocketAddr>,
    /// What who gives orders over HTTP must know.
    pub token: Option<Token>,
    /// What is logged.
    pub log: LogConfig,
    /// Where hearers ask for beats, and whence those come.
    pub beat: SocketAddr,
    /// Who may hear beats.
    pub hearers: Vec<Network>,
    /// The address to which the media sockets are bound.
    pub listen: IpAddr,
    /// The address that phones are told.
    pub advertise: IpAddr,
    /// The ports of all calls. Each leg takes two.
    pub ports: RangeInclusive<u16>,
    /// Forwarding threads.
    pub workers: u16,
    /// Takes new calls only when no gateway without this mark lives.
    pub standby: bool,
    /// A phone that should send and does not for this long is reported.
    pub silence_max: Duration,
    /// Who forwards.
    pub forwarding: Forwarding,
}

/// Who forwards the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forwarding {
    /// Threads of their own, with sockets of their own. A worker that hangs ends the process.
    Threads,
    /// The node itself, by [`driver::Output`]s: for the simulator, which has no threads.
    Inline,
}

impl Config {
    /// A gateway that has `address` for everything, and else what a file would leave out.
    pub fn new(node: NodeId, address: IpAddr, links: u16, beat: u16) -> Self {
        Self {
            node,
            host: node.to_string(),
            realtime: true,
            links: Some(SocketAddr::new(address, links)),
            security: if address.is_loopback() { Security::Plaintext } else { Security::default() },
            http: None,
            token: None,
            log: LogConfig::default(),
            beat: SocketAddr::new(address, beat),
            hearers: private_networks(),
            listen: address,
            advertise: address,
            ports: PORTS,
            workers: 1,
            standby: false,
            silence_max: SILENCE_MAX,
            forwarding: Forwarding::Threads,
        }
    }

    /// How the process is run.
    pub fn run(&self) -> RunConfig {
        RunConfig {
            node: self.node,
            role: "mediagate".into(),
            links: LinksConfig {
                listen: self.links,
                local: None,
                dial: Vec::new(),
                peers: None,
                security: self.security.clone(),
            },
            http: self.http,
            token: self.token.clone(),
            api: false,
            numbers: None,
            journal: None,
            realtime: self.realtime,
        }
    }
}

/// Below the kernel's ephemeral ports, which other programs get.
pub(crate) const PORTS: RangeInclusive<u16> = 10_000..=32_767;

/// A minute, as relays commonly have it.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(60);

/// Loopback, RFC 1918, RFC 6598, RFC 4193 and link-local networks.
pub(crate) fn private_networks() -> Vec<Network> {
    let networks = [
        "127.0.0.0/8",
        "10.0.0.0/8",
        "172.16.0.0/12",
        "192.168.0.0/16",
        "100.64.0.0/10",
        "169.254.0.0/16",
        "::1",
        "fc00::/7",
        "fe80::/10",
    ];
    networks.iter().map(|text| text.parse().expect("these are networks")).collect()
}

#[cfg(test)]
mod tests;

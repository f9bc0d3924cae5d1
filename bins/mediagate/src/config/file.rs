//! The file behind a [`Config`].

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use driver::config::{Faults, Table, is_one_host, read};
use driver::http::Token;
use driver::{LogConfig, NodeId, Security};
use media::BLOCK_PORTS;

use super::Config;

impl Config {
    /// Reads the text of a file.
    ///
    /// # Errors
    /// Everything that is wrong in it, with lines and remedies.
    pub fn parse(text: &str) -> Result<Self, Faults> {
        read(text, |root| {
            let mut config = Self::new(NodeId(0), IpAddr::V4(Ipv4Addr::LOCALHOST), 0, 0);
            let address = read_node(&root.table("node"), &mut config);
            read_links(&root.table("links"), &root.table("tls"), &mut config);
            read_http(&root.table("http"), &mut config);
            config.log = LogConfig::read(&root.table("log")).unwrap_or(config.log);
            let media = root.table("media");
            read_media(&media, address, &mut config);
            read_beat(&root.table("beat"), &mut config);
            Some(config)
        })
    }
}

/// Returns the node's address, which stands in for others that the file leaves out.
fn read_node(node: &Table<'_>, config: &mut Config) -> Option<IpAddr> {
    let id = node.key("id").required("an id of its own, 1 to 65535").integer(1..=u16::MAX);
    config.node = NodeId(id.unwrap_or(0));
    config.host = node.key("host").string().unwrap_or_else(|| config.node.to_string());
    config.realtime = node.key("realtime").boolean().unwrap_or(true);
    node.key("address").own_ip()
}

fn read_links(links: &Table<'_>, tls: &Table<'_>, config: &mut Config) {
    let listen = links.key("listen").required("where b2bs reach this gateway");
    config.links = listen.own_addr();
    let security = Security::read(links, tls, config.node);
    if let Some(addr) = config.links {
        Security::check(security.as_ref(), &links.key("listen"), addr);
    }
    config.security = security.unwrap_or_default();
}

fn read_http(http: &Table<'_>, config: &mut Config) {
    config.token = Token::of(http);
    config.http = http.key("listen").own_addr();
    if config.http.is_some() && config.http == config.links {
        http.key("listen").fault("is also where links are listened for: use another port");
    }
}

fn read_media(media: &Table<'_>, address: Option<IpAddr>, config: &mut Config) {
    let listen = media.key("listen");
    let listen = if address.is_none() {
        listen.required("the address of the media sockets, or `address` in [node]")
    } else {
        listen
    };
    config.listen = listen.own_ip().or(address).unwrap_or(config.listen);
    config.advertise = media.key("advertise").ip().unwrap_or(config.listen);
    if !is_one_host(config.advertise) || config.advertise.is_ipv4() != config.listen.is_ipv4() {
        media.key("advertise").fault(format!(
            "is {}; use an address of the same family as {}, at which phones reach it",
            config.advertise, config.listen
        ));
    }
    config.workers = media.key("workers").integer(1..=WORKERS_MAX).unwrap_or(config.workers);
    config.ports = media.key("ports").ports().unwrap_or_else(|| config.ports.clone());
    let ports_min = usize::from(BLOCK_PORTS) * usize::from(config.workers);
    if config.ports.len() < ports_min + config.ports.len() % 2 {
        let (workers, count) = (config.workers, config.ports.len());
        media.key("ports").fault(format!(
            "has {count} ports; {workers} workers need {ports_min}, from an even one on"
        ));
    }
    config.standby = media.key("standby").boolean().unwrap_or(false);
    let range = Duration::from_secs(5)..=Duration::from_secs(86_400);
    let silence_max = media.key("silence_max").seconds(range);
    config.silence_max = silence_max.unwrap_or(config.silence_max);
}

fn read_beat(beat: &Table<'_>, config: &mut Config) {
    let listen = beat.key("listen").required("where controllers and b2bs ask for beats");
    if let Some(addr) = listen.own_addr() {
        config.beat = addr;
        if config.ports.contains(&addr.port()) && addr.ip() == config.listen {
            let (first, last) = (config.ports.start(), config.ports.end());
            beat.key("listen").fault(format!(
                "lies among the media ports {first}-{last} of the same address: use another port"
            ));
        }
    }
    let trusted = beat.key("trusted").list(|network| {
        network.parsed("a network, such as \"10.0.0.0/8\"", |text| text.parse().ok())
    });
    config.hearers = trusted.unwrap_or_else(|| std::mem::take(&mut config.hearers));
}

/// More threads than any machine that forwards has cores.
const WORKERS_MAX: u16 = 256;

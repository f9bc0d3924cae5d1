//! Which servers there are, what runs on each, and what each process is told.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::Path;

use clap::ValueEnum;
use examples::process::{Process, Program};
use serde::Serialize;

use crate::survive::args::Role;

/// How the roles are spread over servers; each is a process of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Layout {
    /// gate and standby b2b; b2b and standby gate; mediagate and standby
    /// controller; controller and standby mediagate.
    Four,
    /// Every role on both, and a witness elsewhere.
    Two,
    /// Everything on one.
    One,
}

/// A process of the layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Server {
    /// The number of the process, unique in the segment.
    id: u16,
    role: Role,
    /// The last byte of its address.
    host: u8,
    /// Whether it stands by for another, where its role knows that.
    standby: bool,
}

/// Where phones register and call.
pub(crate) const GATE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, 1), 5060);

/// Above so many calls two mediagates would pass their file limit when one dies.
const TWO_MEDIAGATES_CALLS_MAX: u32 = 1000;

impl Layout {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Four => "four servers",
            Self::Two => "two servers and a witness",
            Self::One => "one server",
        }
    }

    /// Returns the processes for so many calls, in the order of their start.
    pub(crate) fn servers(self, calls: u32) -> Vec<Server> {
        use Role::{B2b, Controller, Gate, Mediagate};
        let (active, standby) = (
            |id, role, host| Server { id, role, host, standby: false },
            |id, role, host| Server { id, role, host, standby: true },
        );
        let mut servers = match self {
            Self::Four => vec![
                active(31, Mediagate, 3),
                standby(41, Mediagate, 4),
                active(3, Controller, 4),
                standby(4, Controller, 3),
                active(1, Gate, 1),
                standby(6, Gate, 2),
                active(2, B2b, 2),
                standby(5, B2b, 1),
            ],
            Self::Two => vec![
                active(31, Mediagate, 1),
                active(41, Mediagate, 2),
                active(3, Controller, 1),
                active(4, Controller, 2),
                active(7, Controller, 3),
                active(1, Gate, 1),
                active(6, Gate, 2),
                active(2, B2b, 1),
                active(5, B2b, 2),
            ],
            Self::One => vec![
                active(31, Mediagate, 1),
                active(3, Controller, 1),
                active(1, Gate, 1),
                active(2, B2b, 1),
            ],
        };
        if TWO_MEDIAGATES_CALLS_MAX < calls {
            servers.extend([active(51, Mediagate, 5), active(61, Mediagate, 6)]);
        }
        servers
    }

    /// Returns the node that votes beside the gates.
    fn witness(self) -> Option<u16> {
        match self {
            Self::Four => Some(3),
            Self::Two => Some(7),
            Self::One => None,
        }
    }
}

/// What all processes are told alike.
#[derive(Clone, Debug)]
pub(crate) struct Terms<'a> {
    pub(crate) layout: Layout,
    pub(crate) all: &'a [Server],
    pub(crate) realtime: bool,
    /// Whether most phones never say anything, for which their calls must not end.
    pub(crate) some_are_mute: bool,
    /// Where processes keep what must outlive them.
    pub(crate) dir: &'a Path,
}

impl Server {
    pub(crate) fn ip(self) -> Ipv4Addr {
        Ipv4Addr::new(127, 0, 0, self.host)
    }

    pub(crate) fn role(self) -> Role {
        self.role
    }

    pub(crate) fn id(self) -> u16 {
        self.id
    }

    pub(crate) fn is_mediagate(self) -> bool {
        self.role == Role::Mediagate
    }

    fn address(self, port: u16) -> SocketAddr {
        SocketAddr::from((self.ip(), port + self.id))
    }

    fn link(self) -> SocketAddr {
        self.address(7100)
    }

    fn beat(self) -> SocketAddr {
        self.address(7200)
    }

    /// Returns the configuration file.
    pub(crate) fn config(self, terms: &Terms<'_>) -> String {
        let (id, host, ip, realtime) = (self.id, self.host, self.ip(), terms.realtime);
        let (link, http) = (self.link(), self.http());
        let mut text = format!(
            "[links]\nlisten = \"{link}\"\nplaintext = true\n\n[http]\nlisten = \"{http}\"\n\n\
             [log]\nlevel = \"info\"\n\n[node]\nid = {id}\nhost = \"server{host}\"\n\
             address = \"{ip}\"\nrealtime = {realtime}\n"
        );
        if !self.is_mediagate() {
            text += &format!("roles = [\"{}\"]\n", self.role.name());
            text += "\n[segment]\nkey = \"68f4a1d2c07b935e\"\n";
            let votes_or_asks = |witness: &u16| self.role == Role::B2b || self.id == *witness;
            if let Some(witness) = terms.layout.witness().filter(votes_or_asks) {
                text += &format!("witness = {witness}\n");
            }
        }
        text += &self.role_keys(terms);
        let peers = terms.all.iter().filter(|peer| self.talks_to(**peer));
        text + &peers.map(|peer| peer.as_peer()).collect::<String>()
    }

    /// Returns what only a process of this role is told.
    fn role_keys(self, terms: &Terms<'_>) -> String {
        let ip = self.ip();
        match self.role {
            Role::Gate => {
                let listen = SocketAddrV4::new(ip, GATE.port());
                format!(
                    "\n[[listener]]\ntransport = \"udp\"\nlisten = \"{listen}\"\n\
                     advertise = \"{listen}\"\n"
                )
            }
            Role::Mediagate => {
                let (beat, standby) = (self.beat(), self.standby);
                let silence_max = if terms.some_are_mute { 3600 } else { 60 };
                format!(
                    "\n[beat]\nlisten = \"{beat}\"\n\n[media]\nlisten = \"{ip}\"\n\
                     ports = \"10000-32767\"\nworkers = 1\nstandby = {standby}\n\
                     silence_max = {silence_max}\n"
                )
            }
            Role::B2b => {
                let store = terms.dir.join("store");
                let keeps = terms.layout == Layout::One;
                let store = keeps.then(|| format!("\n[store]\npath = \"{}\"\n", store.display()));
                let standby = self.standby;
                format!("\n[b2b]\nstandby = {standby}\n{}", store.unwrap_or_default())
            }
            Role::Controller => String::new(),
        }
    }

    /// Returns whether the two know each other: every link has a b2b at one
    /// end, but that gates reach each other, and controllers hear the beats of
    /// the mediagates.
    fn talks_to(self, peer: Self) -> bool {
        match self.role {
            _ if peer == self => false,
            Role::B2b => true,
            Role::Gate => matches!(peer.role, Role::B2b | Role::Gate),
            Role::Controller => matches!(peer.role, Role::B2b | Role::Mediagate),
            Role::Mediagate => false,
        }
    }

    fn as_peer(self) -> String {
        let (id, role, link) = (self.id, self.role.name(), self.link());
        let mut text = format!("\n[[peer]]\nid = {id}\nroles = [\"{role}\"]\nlink = \"{link}\"\n");
        if self.role == Role::B2b {
            text += &format!("host = \"server{}\"\nstandby = {}\n", self.host, self.standby);
        }
        text
    }
}

impl Process for Server {
    fn name(self) -> String {
        format!("{}-{}", self.role.name(), self.id)
    }

    fn program(self) -> Program {
        if self.is_mediagate() { Program::Mediagate } else { Program::Rm }
    }

    fn http(self) -> SocketAddr {
        self.address(7300)
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.role.name(), self.ip())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_process_of_every_layout_understands_its_file() {
        for &layout in Layout::value_variants() {
            let all = layout.servers(TWO_MEDIAGATES_CALLS_MAX + 1);
            let dir = Path::new("anywhere");
            let terms = Terms { layout, all: &all, realtime: true, some_are_mute: true, dir };
            for server in &all {
                let text = server.config(&terms);
                let faults = if server.is_mediagate() {
                    mediagate::Config::parse(&text).err()
                } else {
                    rm::Config::parse(&text).err()
                };
                assert_eq!(faults, None, "{server}:\n{text}");
            }
        }
    }
}

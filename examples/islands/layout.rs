//! Three segments, what runs in each, and what each process is told.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::Path;

use examples::process::{Process, Program};

use crate::islands::tree;

/// Segments, each with an index from 0 here and a number from 1 in the cluster.
pub(crate) const SEGMENTS: usize = 3;
/// Where each stands.
const SITES: [&str; SEGMENTS] = ["london", "paris", "rome"];

/// Where processes hear each other.
pub(crate) const LINK: u16 = 7100;
const BEAT: u16 = 7200;
const HTTP: u16 = 7300;
const SIP: u16 = 5060;

/// A process of the layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// The number of its segment in the cluster.
    number: u8,
    role: Role,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Mediagate,
    /// The gate, and the controller.
    Gate,
    /// One of a pair.
    Rm(u8),
}

const ROLES: [Role; 4] = [Role::Mediagate, Role::Gate, Role::Rm(1), Role::Rm(2)];

/// Returns the processes of a segment, in the order of their start.
pub(crate) fn parts(segment: usize) -> [Part; 4] {
    let number = u8::try_from(segment + 1).unwrap_or(u8::MAX);
    ROLES.map(|role| Part { number, role })
}

/// Returns the pair of a segment.
pub(crate) fn pair(segment: usize) -> [Part; 2] {
    let [_, _, first, second] = parts(segment);
    [first, second]
}

/// Returns where the phones of a segment are.
pub(crate) fn phones_ip(segment: usize) -> Ipv4Addr {
    let [_, gate, ..] = parts(segment);
    Ipv4Addr::new(127, 0, gate.number, 9)
}

/// Returns where the phones of a segment call.
pub(crate) fn gate(segment: usize) -> SocketAddr {
    let [_, gate, ..] = parts(segment);
    SocketAddr::from((gate.ip(), SIP))
}

/// What a version of the cluster document says of segments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Version {
    pub(crate) number: u64,
    pub(crate) weights: [u32; SEGMENTS],
    /// Whether the third segment is cold.
    pub(crate) cold: bool,
}

/// The first version.
pub(crate) const FIRST: Version = Version { number: 1, weights: [100; SEGMENTS], cold: false };

impl Version {
    /// Returns the text of the cluster document.
    pub(crate) fn document(self) -> String {
        let mut text = format!("version = {}\n", self.number);
        for (segment, (site, weight)) in SITES.into_iter().zip(self.weights).enumerate() {
            let mode = if self.cold && segment == 2 { "cold" } else { "hot" };
            let [first, second] = pair(segment).map(Part::id);
            text += &format!(
                "\n[[segment]]\nid = {}\nsite = \"{site}\"\nweight = {weight}\nmode = \"{mode}\"\n\
                 sip = [\"{}\"]\nnodes = [{{ rm = 1, id = {first} }}, {{ rm = 2, id = {second} }}]\n",
                segment + 1,
                gate(segment),
            );
        }
        text + &tree::as_toml()
    }
}

/// The files that all RMs share, and the folder of those that they do not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Files<'a> {
    pub(crate) dir: &'a Path,
    pub(crate) document: &'a Path,
    pub(crate) token: &'a Path,
}

impl Part {
    /// The index of its segment.
    pub(crate) fn segment(self) -> usize {
        usize::from(self.number) - 1
    }

    /// As RMs are called in what they tell.
    pub(crate) fn member(self) -> String {
        match self.role {
            Role::Rm(rm) => format!("{}/{rm}", self.number),
            Role::Mediagate | Role::Gate => String::new(),
        }
    }

    pub(crate) fn ip(self) -> Ipv4Addr {
        Ipv4Addr::new(127, 0, self.number, self.host())
    }

    /// The last byte of its address.
    fn host(self) -> u8 {
        match self.role {
            Role::Gate => 1,
            Role::Rm(rm) => 1 + rm,
            Role::Mediagate => 4,
        }
    }

    /// Unique in the cluster.
    fn id(self) -> u16 {
        10 * u16::from(self.number) + u16::from(self.host())
    }

    fn roles(self) -> &'static str {
        match self.role {
            Role::Gate => "[\"gate\", \"controller\"]",
            Role::Rm(_) => "[\"b2b\"]",
            Role::Mediagate => "[\"mediagate\"]",
        }
    }

    /// Returns the configuration file.
    pub(crate) fn config(self, files: &Files<'_>) -> String {
        let (id, ip, number, host) = (self.id(), self.ip(), self.number, self.host());
        let http = self.http();
        let mut text = format!(
            "[node]\nid = {id}\nhost = \"server{number}{host}\"\naddress = \"{ip}\"\nrealtime = false\n"
        );
        if self.role != Role::Mediagate {
            text += &format!("roles = {}\n", self.roles());
        }
        text += &format!(
            "\n[links]\nlisten = \"{ip}:{LINK}\"\nplaintext = true\n\n[log]\nlevel = \"info\"\n\n\
             [http]\nlisten = \"{http}\"\n"
        );
        text += &self.role_keys(files);
        let peers = (0..SEGMENTS).flat_map(parts).filter(|peer| self.talks_to(*peer));
        text + &peers.map(|peer| self.peer(peer)).collect::<String>()
    }

    /// Returns what only a process of this role is told.
    fn role_keys(self, files: &Files<'_>) -> String {
        let (ip, number) = (self.ip(), self.number);
        let key = "key = \"68f4a1d2c07b935e\"";
        match self.role {
            Role::Gate => {
                let listen = SocketAddrV4::new(ip, SIP);
                format!(
                    "\n[segment]\n{key}\n\n[[listener]]\ntransport = \"udp\"\nlisten = \"{listen}\"\n"
                )
            }
            Role::Mediagate => format!(
                "\n[beat]\nlisten = \"{ip}:{BEAT}\"\n\n[media]\nlisten = \"{ip}\"\n\
                 ports = \"10000-32767\"\nworkers = 1\nsilence_max = 3600\n"
            ),
            Role::Rm(rm) => {
                let (site, phones) = (SITES[self.segment()], phones_ip(self.segment()));
                let store = files.dir.join(format!("{}-store", self.name()));
                let (store, token) = (store.display(), files.token.display());
                let document = files.document.display();
                format!(
                    "token = \"{token}\"\n\n[segment]\n{key}\nname = \"{site}\"\nid = {number}\n\
                     site = \"{site}\"\nrm = {rm}\n\n[cluster]\ndocument = \"{document}\"\n\n\
                     [store]\npath = \"{store}\"\n\n\
                     [[route]]\nprefix = \"\"\ntargets = [\"{phones}:{SIP}\"]\n"
                )
            }
        }
    }

    /// Returns whether the two know each other: all of a segment but its mediagate, and all RMs.
    fn talks_to(self, peer: Self) -> bool {
        match (self.role, peer.role) {
            _ if self == peer => false,
            (Role::Rm(_), Role::Rm(_)) => true,
            (Role::Rm(_) | Role::Gate, _) => self.number == peer.number,
            (Role::Mediagate, _) => false,
        }
    }

    fn peer(self, peer: Self) -> String {
        let (id, ip) = (peer.id(), peer.ip());
        let mut text = format!("\n[[peer]]\nid = {id}\nlink = \"{ip}:{LINK}\"\n");
        if peer.number == self.number {
            text += &format!(
                "roles = {}\nhost = \"server{}{}\"\n",
                peer.roles(),
                peer.number,
                peer.host()
            );
        }
        match (self.role, peer.role) {
            (Role::Rm(_), Role::Rm(rm)) => {
                text + &format!("segment = {}\nrm = {rm}\n", peer.number)
            }
            _ => text,
        }
    }
}

impl Process for Part {
    fn name(self) -> String {
        let number = self.number;
        match self.role {
            Role::Mediagate => format!("mediagate-{number}"),
            Role::Gate => format!("gate-{number}"),
            Role::Rm(rm) => format!("rm-{number}-{rm}"),
        }
    }

    fn program(self) -> Program {
        if self.role == Role::Mediagate { Program::Mediagate } else { Program::Rm }
    }

    fn http(self) -> SocketAddr {
        SocketAddr::from((self.ip(), HTTP))
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.name(), self.ip())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use rm::cluster::ClusterDocument;

    use super::*;

    #[test]
    fn every_process_understands_its_file() {
        let dir = std::env::temp_dir().join(format!("islands-layout-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let (document, token) = (dir.join("cluster.toml"), dir.join("token"));
        fs::write(&document, FIRST.document()).unwrap();
        fs::write(&token, "a-word-of-this-test").unwrap();
        fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
        let files = Files { dir: &dir, document: &document, token: &token };

        for part in (0..SEGMENTS).flat_map(parts) {
            let text = part.config(&files);
            let faults = match part.program() {
                Program::Mediagate => mediagate::Config::parse(&text).err(),
                Program::Rm => rm::Config::parse(&text).err(),
            };
            assert_eq!(faults, None, "{part}:\n{text}");
        }
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn the_cluster_document_is_without_a_fault_or_warning() {
        for cold in [false, true] {
            let text = Version { number: 2, weights: [300, 100, 50], cold }.document();
            let document =
                ClusterDocument::parse(&text).unwrap_or_else(|faults| panic!("{faults}"));
            assert_eq!(document.warnings, []);
        }
    }
}

//! How a node is linked to others, as an operator decides it.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use crate::config::{Key, Table};
use crate::node::{Class, NodeId};
use crate::run::unix_ms;
use crate::tls::{Tls, TlsFile, TlsFiles};

/// How a node is linked to others.
#[derive(Clone, Debug, Default)]
pub struct LinksConfig {
    /// Where others dial this node; `None` if nobody does.
    pub listen: Option<SocketAddr>,
    /// The source address of links that this node dials.
    pub local: Option<IpAddr>,
    /// Whom this node dials. If two nodes dial each other, the link of the
    /// one with the lower id stands.
    pub dial: Vec<Dial>,
    /// Who may dial this node and, where an address is given, from where.
    /// `None` lets everybody in. Without TLS an id is only said.
    pub peers: Option<BTreeMap<NodeId, Option<IpAddr>>>,
    /// What protects the links.
    pub security: Security,
}

/// What protects the links of a node.
#[derive(Clone, Debug, Default)]
pub enum Security {
    /// Nothing is decided: no link is made.
    #[default]
    Undecided,
    /// Nothing; links are between loopback addresses only.
    Plaintext,
    /// Both ends show a certificate, and nothing is read of one without.
    Tls(Tls),
}

/// A node to keep links to.
#[derive(Clone, Debug)]
pub struct Dial {
    /// Who is expected there; another is refused.
    pub peer: NodeId,
    /// Where it listens.
    pub addr: SocketAddr,
    /// Which links to keep.
    pub classes: Vec<Class>,
}

/// Why links could not be set up. The configuration is at fault, or the
/// address is taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinksError {
    /// A link needs TLS.
    #[error("links of {0} need TLS; between loopback addresses they can be `Security::Plaintext`")]
    NeedsTls(SocketAddr),
    /// A node that dials itself.
    #[error("node {0} is told to dial itself")]
    DialsItself(NodeId),
    /// The listener could not be opened.
    #[error("cannot listen for links on {addr}")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The thread of the handshakes could not be started.
    #[error("cannot start the thread of the handshakes")]
    Thread(#[source] io::Error),
}

impl LinksConfig {
    pub(super) fn check(&self, node: NodeId) -> Result<(), LinksError> {
        if let Some(dial) = self.dial.iter().find(|dial| dial.peer == node) {
            return Err(LinksError::DialsItself(dial.peer));
        }
        let local = self.local.map(|ip| SocketAddr::new(ip, 0)).filter(|_| !self.dial.is_empty());
        let addrs = self.dial.iter().map(|dial| dial.addr).chain(self.listen).chain(local);
        match addrs.into_iter().find(|addr| !self.security.covers(*addr)) {
            Some(addr) => Err(LinksError::NeedsTls(addr)),
            None => Ok(()),
        }
    }
}

impl Security {
    /// Reads `plaintext` of the table `links` and the files that the table `tls` names, which must be
    /// of `node`. What is wrong is a fault, and then `None` is returned.
    pub fn read(links: &Table<'_>, tls: &Table<'_>, node: NodeId) -> Option<Self> {
        let plaintext = links.key("plaintext").boolean().unwrap_or(false);
        let file = |key, what| tls.key(key).required(what).string().map(PathBuf::from);
        if !tls.is_present() {
            return Some(if plaintext { Self::Plaintext } else { Self::Undecided });
        }
        if plaintext {
            links.key("plaintext").fault("is true although [tls] is there: take one of them away");
        }
        let authority = file("authority", "the file of the authority's certificate");
        let certificate = file("certificate", "the file of this node's certificate");
        let key = file("key", "the file of its private key");
        let files = TlsFiles { authority: authority?, certificate: certificate?, key: key? };
        if node == NodeId(0) {
            // Whose certificate it should be is not known.
            return None;
        }
        match Tls::load(&files, node, unix_ms()) {
            Ok(loaded) => (!plaintext).then_some(Self::Tls(loaded)),
            Err(errors) => {
                for error in errors {
                    let key = match error.file {
                        TlsFile::Authority | TlsFile::Clients => "authority",
                        TlsFile::Certificate => "certificate",
                        TlsFile::Key => "key",
                    };
                    tls.key(key).fault(format!("is of no use: {error}"));
                }
                None
            }
        }
    }

    /// Makes it a fault of `key` if no link of `addr` can be made. A security whose own faults were
    /// told already is `None` and finds nothing.
    pub fn check(security: Option<&Self>, key: &Key<'_>, addr: SocketAddr) {
        if security.is_some_and(|security| !security.covers(addr)) {
            key.fault(
                "needs TLS: write [tls], with files that the command `certificates` makes; \
                 between loopback addresses `plaintext = true` in [links] does",
            );
        }
    }

    fn covers(&self, addr: SocketAddr) -> bool {
        match self {
            Self::Undecided => false,
            Self::Plaintext => addr.ip().is_loopback(),
            Self::Tls(_) => true,
        }
    }
}

//! Who a node is, on its links and towards phones: certificates, and the authorities that it believes.
//!
//! On links a node's certificate has its id as a DNS name among the subject's alternative names: node 7 is
//! `node-7.holdline`. Any authority can issue it, for client and server authentication both;
//! [`authority`] makes one for tests and small clusters.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::ServerCertVerifier as _;
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::TLS13;
use rustls::{ClientConfig, ClientConnection, Connection, Error, ServerConfig, ServerConnection};

use self::handshakes::Credentials;
use crate::node::NodeId;

pub mod authority;
pub(crate) mod command;
mod expiry;
mod fault;
mod files;
pub(crate) mod handshakes;
mod sip;
#[cfg(test)]
pub(crate) use files::pem;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod wire;

pub(crate) use expiry::{Expiry, Watch};
pub use fault::CertificateFault;
pub(crate) use fault::HandshakeFault;
pub use sip::{Domain, DomainError, SipTls, SipTlsFiles};

/// The files that say who a node is and whom it believes, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificates of the authorities that peers may be from; two while one replaces the other.
    pub authority: PathBuf,
    /// The node's certificate, and after it those between it and the authority.
    pub certificate: PathBuf,
    /// The private key of that certificate, which not everybody may read.
    pub key: PathBuf,
}

/// What a node shows on its links and asks of its peers: files that were read and checked.
#[derive(Clone)]
pub struct Tls {
    files: TlsFiles,
    node: NodeId,
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    expiries: Vec<Expiry>,
}

/// What is wrong with a file. Who wrote or named it is at fault.
#[derive(Debug, thiserror::Error)]
#[error("{} {kind}", path.display())]
pub struct TlsError {
    /// Which of the files.
    pub file: TlsFile,
    /// Where it is.
    pub path: PathBuf,
    /// What is wrong.
    pub kind: TlsErrorKind,
}

/// One of the [`TlsFiles`] or [`SipTlsFiles`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsFile {
    /// The authorities of peers; of SIP, of those whom we connect to.
    Authority,
    /// The authorities of those who connect to us.
    Clients,
    /// The own certificate.
    Certificate,
    /// Its key.
    Key,
}

/// What can be wrong with a file of certificates or a key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsErrorKind {
    /// It cannot be read.
    #[error("cannot be read: {0}")]
    Read(io::Error),
    /// It holds nothing of the kind that it should, or something damaged.
    #[error("holds no {0} in PEM form")]
    Empty(&'static str),
    /// Everybody on the host can read the key.
    #[error("can be read by everybody: take the right away with chmod o-r")]
    Public,
    /// The key is of a kind that cannot be used.
    #[error("holds a key that cannot be used: make one of ECDSA P-256 or P-384, Ed25519 or RSA")]
    KeyKind,
    /// The key belongs to another certificate.
    #[error("is not the key of the certificate: name two files that were made together")]
    KeyMismatch,
    /// Peers would refuse it.
    #[error("{0}")]
    Certificate(CertificateFault),
}

/// Returns the name of a node in its certificate, such as `node-7.holdline`.
pub fn name(node: NodeId) -> String {
    format!("node-{node}.holdline")
}

/// Checks that a certificate is one of `node`.
pub(crate) fn check_name(
    certificate: &CertificateDer<'_>,
    node: NodeId,
) -> Result<(), CertificateFault> {
    let parsed = ParsedCertificate::try_from(certificate);
    let checked =
        parsed.and_then(|parsed| rustls::client::verify_server_name(&parsed, &server_name(node)));
    checked.map_err(|error| CertificateFault::of(&error))
}

impl Tls {
    /// Reads the files of `node` and checks them as its peers will, at `unix_ms` milliseconds
    /// since 1970.
    ///
    /// # Errors
    /// What is wrong with the files; at least one thing.
    pub fn load(files: &TlsFiles, node: NodeId, unix_ms: u64) -> Result<Self, Vec<TlsError>> {
        let authorities = files::authorities(&files.authority, unix_ms);
        let chain = files::certificates(&files.certificate);
        let chain = chain.map_err(|kind| files.error(TlsFile::Certificate, kind));
        let key = files::key(&files.key).map_err(|kind| files.error(TlsFile::Key, kind));
        let authorities = authorities.map_err(|kind| files.error(TlsFile::Authority, kind));
        let (authorities, chain, key) = match (authorities, chain, key) {
            (Ok(authorities), Ok(chain), Ok(key)) => (authorities, chain, key),
            (authorities, chain, key) => {
                let errors = [authorities.err(), chain.err(), key.err()];
                return Err(errors.into_iter().flatten().collect());
            }
        };
        let expiries = [(&files.authority, &authorities), (&files.certificate, &chain)];
        let expiries = expiries.into_iter().flat_map(|(path, list)| Expiry::of(path, list));
        let expiries = expiries.collect();
        let parts = Parts::new(&authorities, chain, key);
        let parts = parts.map_err(|(file, kind)| vec![files.error(file, kind)])?;
        parts.check(node, unix_ms).map_err(|fault| {
            vec![files.error(TlsFile::Certificate, TlsErrorKind::Certificate(fault))]
        })?;
        let (client, server) = parts.configs();
        Ok(Self { files: files.clone(), node, client, server, expiries })
    }
}

impl Credentials for Tls {
    /// Who was dialled; `None` if the connection came in.
    type Peer = Option<NodeId>;

    fn begin(&self, peer: &Option<NodeId>) -> Result<Connection, Error> {
        match peer {
            Some(peer) => ClientConnection::new(self.client.clone(), server_name(*peer))
                .map(Connection::Client),
            None => ServerConnection::new(self.server.clone()).map(Connection::Server),
        }
    }

    fn reload(&self, unix_ms: u64) -> Result<Self, Vec<TlsError>> {
        Self::load(&self.files, self.node, unix_ms)
    }

    fn expiries(&self) -> &[Expiry] {
        &self.expiries
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("node", &self.node).field("files", &self.files).finish()
    }
}

impl TlsFiles {
    fn error(&self, file: TlsFile, kind: TlsErrorKind) -> TlsError {
        let path = match file {
            TlsFile::Authority | TlsFile::Clients => &self.authority,
            TlsFile::Certificate => &self.certificate,
            TlsFile::Key => &self.key,
        };
        TlsError { file, path: path.clone(), kind }
    }
}

/// What both ends of a link are configured from.
struct Parts {
    provider: Arc<CryptoProvider>,
    certified: Arc<CertifiedKey>,
    servers: Arc<WebPkiServerVerifier>,
    clients: Arc<dyn ClientCertVerifier>,
}

impl Parts {
    fn new(
        authorities: &[CertificateDer<'static>],
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Self, (TlsFile, TlsErrorKind)> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let certified = files::certified(&provider, chain, key)?;
        let no_roots =
            |_| (TlsFile::Authority, TlsErrorKind::Certificate(CertificateFault::Unsound));
        let roots = files::roots(authorities);
        let servers = WebPkiServerVerifier::builder_with_provider(roots.clone(), provider.clone());
        let servers = servers.build().map_err(no_roots)?;
        let clients = WebPkiClientVerifier::builder_with_provider(roots, provider.clone());
        let clients = clients.build().map_err(no_roots)?;
        Ok(Self { provider, certified, servers, clients })
    }

    /// Checks the own certificate as peers at either end will.
    fn check(&self, node: NodeId, unix_ms: u64) -> Result<(), CertificateFault> {
        let now = UnixTime::since_unix_epoch(Duration::from_millis(unix_ms));
        let Some((own, between)) = self.certified.cert.split_first() else {
            return Err(CertificateFault::Unsound);
        };
        let dialled = self.servers.verify_server_cert(own, between, &server_name(node), &[], now);
        let dialling = self.clients.verify_client_cert(own, between, now);
        let both = dialled.map(drop).and_then(|()| dialling.map(drop));
        both.map_err(|error| CertificateFault::of(&error))
    }

    fn configs(self) -> (Arc<ClientConfig>, Arc<ServerConfig>) {
        let versions = "ring has what TLS 1.3 needs";
        let resolver = Arc::new(SingleCertAndKey::from(self.certified));
        let mut client = ClientConfig::builder_with_provider(self.provider.clone())
            .with_protocol_versions(&[&TLS13])
            .expect(versions)
            .with_webpki_verifier(self.servers)
            .with_client_cert_resolver(resolver.clone());
        // Every connection shows its certificate anew: what was resumed could outlive it.
        client.resumption = Resumption::disabled();
        let mut server = ServerConfig::builder_with_provider(self.provider)
            .with_protocol_versions(&[&TLS13])
            .expect(versions)
            .with_client_cert_verifier(self.clients)
            .with_cert_resolver(resolver);
        server.send_tls13_tickets = 0;
        (Arc::new(client), Arc::new(server))
    }
}

fn server_name(node: NodeId) -> ServerName<'static> {
    ServerName::try_from(name(node)).expect("letters, digits and hyphens are a DNS name")
}

//! Who a listener for SIP over TLS is, and whom it believes.
//!
//! Whoever we connect to must show a certificate that names the domain which is expected at that address,
//! or else the address (RFC 5922 §7). Only names of the subject's alternative names count, and none with a
//! wildcard.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::ServerName;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoClientAuth, NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, Connection, Error, ServerConfig, ServerConnection};

use self::next_hop::NextHop;
use super::handshakes::Credentials;
use super::{CertificateFault, Expiry, TlsError, TlsErrorKind, TlsFile, files};

mod next_hop;
mod read;

/// The files of a listener for SIP over TLS, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SipTlsFiles {
    /// What peers are shown, whoever made the connection, and after it the certificates between it and
    /// their authority.
    pub certificate: PathBuf,
    /// The private key of that certificate, which not everybody may read.
    pub key: PathBuf,
    /// The authorities of those whom we connect to; without any we connect to nobody.
    pub authority: Option<PathBuf>,
    /// The authorities of those who connect to us; without any nobody is asked for a certificate.
    pub clients: Option<PathBuf>,
}

/// What a listener for SIP over TLS shows and asks for: files that were read and checked.
#[derive(Clone)]
pub struct SipTls(Arc<Loaded>);

struct Loaded {
    files: SipTlsFiles,
    domains: BTreeMap<SocketAddr, Domain>,
    client: Option<Arc<ClientConfig>>,
    server: Arc<ServerConfig>,
    expiries: Vec<Expiry>,
}

/// A name that a certificate may have: that of a host or domain, or an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain(ServerName<'static>);

/// The text is no name of a host. Who wrote it is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not the name of a host or domain")]
pub struct DomainError;

impl FromStr for Domain {
    type Err = DomainError;

    fn from_str(text: &str) -> Result<Self, DomainError> {
        ServerName::try_from(text.to_owned()).map(Self).map_err(|_| DomainError)
    }
}

impl Domain {
    pub(crate) fn is_address(&self) -> bool {
        matches!(self.0, ServerName::IpAddress(_))
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.to_str())
    }
}

impl SipTls {
    /// Reads the files and checks them at `unix_ms` milliseconds since 1970. `domains` says who is
    /// expected at an address; anybody else must have that address in the certificate.
    ///
    /// # Errors
    /// What is wrong with the files; at least one thing.
    pub fn load(
        files: SipTlsFiles,
        domains: BTreeMap<SocketAddr, Domain>,
        unix_ms: u64,
    ) -> Result<Self, Vec<TlsError>> {
        let chain = checked(TlsFile::Certificate, &files.certificate, files::certificates);
        let key = checked(TlsFile::Key, &files.key, files::key);
        let believed = |file, path: &Option<PathBuf>| {
            let read = |path: &Path| files::authorities(path, unix_ms);
            path.as_ref().map(|path| checked(file, path, read)).transpose()
        };
        let authority = believed(TlsFile::Authority, &files.authority);
        let clients = believed(TlsFile::Clients, &files.clients);
        let (chain, key, authority, clients) = match (chain, key, authority, clients) {
            (Ok(chain), Ok(key), Ok(authority), Ok(clients)) => (chain, key, authority, clients),
            (chain, key, authority, clients) => {
                let errors = [chain.err(), key.err(), authority.err(), clients.err()];
                return Err(errors.into_iter().flatten().collect());
            }
        };
        let lists = [(&files.authority, &authority), (&files.clients, &clients)].into_iter();
        let lists = lists.filter_map(|(path, list)| Some((path.as_ref()?, list.as_ref()?)));
        let lists = lists.chain([(&files.certificate, &chain)]);
        let expiries = lists.flat_map(|(path, list)| Expiry::of(path, list)).collect();
        let error = |(file, kind)| {
            let path = match file {
                TlsFile::Authority => files.authority.as_ref(),
                TlsFile::Clients => files.clients.as_ref(),
                TlsFile::Certificate => Some(&files.certificate),
                TlsFile::Key => Some(&files.key),
            };
            vec![TlsError { file, path: path.cloned().unwrap_or_default(), kind }]
        };
        let unsound = |file, fault| error((file, TlsErrorKind::Certificate(fault)));
        let own = chain.first().ok_or(CertificateFault::Unsound);
        let own = own.and_then(|own| files::in_its_time(own, unix_ms));
        own.map_err(|fault| unsound(TlsFile::Certificate, fault))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let certified = files::certified(&provider, chain, key).map_err(error)?;
        let clients: Arc<dyn ClientCertVerifier> = match clients {
            None => Arc::new(NoClientAuth),
            Some(list) => {
                WebPkiClientVerifier::builder_with_provider(files::roots(&list), provider.clone())
                    .build()
                    .map_err(|_| unsound(TlsFile::Clients, CertificateFault::Unsound))?
            }
        };
        let next_hops = authority.map(|list| NextHop::new(files::roots(&list), &provider));
        let client = next_hops.map(|verifier| client(&provider, certified.clone(), verifier));
        let server = server(provider, certified, clients);
        Ok(Self(Arc::new(Loaded { files, domains, client, server, expiries })))
    }

    /// Whether connections can be made: an authority is named.
    pub fn connects(&self) -> bool {
        self.0.client.is_some()
    }
}

impl Credentials for SipTls {
    /// Where we connect to; `None` if the peer did.
    type Peer = Option<SocketAddr>;

    fn begin(&self, peer: &Option<SocketAddr>) -> Result<Connection, Error> {
        let Some(addr) = peer else {
            return ServerConnection::new(self.0.server.clone()).map(Connection::Server);
        };
        let client = self.0.client.clone();
        let client = client.ok_or_else(|| Error::General("no authority is believed".into()))?;
        let name = self.0.domains.get(addr).map(|domain| domain.0.clone());
        let name = name.unwrap_or_else(|| ServerName::IpAddress(addr.ip().into()));
        ClientConnection::new(client, name).map(Connection::Client)
    }

    fn reload(&self, unix_ms: u64) -> Result<Self, Vec<TlsError>> {
        Self::load(self.0.files.clone(), self.0.domains.clone(), unix_ms)
    }

    fn expiries(&self) -> &[Expiry] {
        &self.0.expiries
    }
}

impl fmt::Debug for SipTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Loaded { files, domains, .. } = &*self.0;
        f.debug_struct("SipTls").field("files", files).field("domains", domains).finish()
    }
}

/// By what was asked for: the files may have changed meanwhile.
impl PartialEq for SipTls {
    fn eq(&self, other: &Self) -> bool {
        self.0.files == other.0.files && self.0.domains == other.0.domains
    }
}

impl Eq for SipTls {}

fn checked<T>(
    file: TlsFile,
    path: &Path,
    read: impl Fn(&Path) -> Result<T, TlsErrorKind>,
) -> Result<T, TlsError> {
    read(path).map_err(|kind| TlsError { file, path: path.to_owned(), kind })
}

fn client(
    provider: &Arc<CryptoProvider>,
    certified: Arc<CertifiedKey>,
    next_hops: NextHop,
) -> Arc<ClientConfig> {
    let mut client = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13, &TLS12])
        .expect(VERSIONS)
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(next_hops))
        .with_client_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
    // Every connection shows its certificate anew: what was resumed could outlive it.
    client.resumption = Resumption::disabled();
    Arc::new(client)
}

fn server(
    provider: Arc<CryptoProvider>,
    certified: Arc<CertifiedKey>,
    clients: Arc<dyn ClientCertVerifier>,
) -> Arc<ServerConfig> {
    let mut server = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13, &TLS12])
        .expect(VERSIONS)
        .with_client_cert_verifier(clients)
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
    server.send_tls13_tickets = 0;
    server.session_storage = Arc::new(NoServerSessionStorage {});
    Arc::new(server)
}

const VERSIONS: &str = "ring has what TLS 1.2 and 1.3 need";

#[cfg(test)]
mod tests;

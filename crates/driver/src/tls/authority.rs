//! An authority of one's own, for tests and clusters too small to have one.

use std::collections::BTreeSet;
use std::error::Error;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData as _, SanType,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use time::{Duration, OffsetDateTime};

use super::{Domain, SipTlsFiles, TlsFiles, name};
use crate::node::NodeId;

/// How long a node's certificate holds unless told otherwise, in days.
pub const DAYS: u32 = 365;
/// The longest that it may hold, and how long an authority does, in days.
pub const DAYS_MAX: u32 = 3650;

/// Why certificates were not made. Nothing was written but what the message names.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IssueError {
    /// A file or the folder cannot be read or written.
    #[error("{}", path.display())]
    File {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A node has files already. Nothing was written.
    #[error("{} is there already: take it away to issue another", .0.display())]
    Taken(PathBuf),
    /// One of the authority's two files is there without the other. Nothing was written.
    #[error("{} is missing beside the other file of the authority", .0.display())]
    Half(PathBuf),
    /// The authority's files are of no use. Nothing was written.
    #[error("the authority in {} cannot be used", path.display())]
    Authority {
        /// Where it is.
        path: PathBuf,
        /// Why.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The system has no random numbers, or the time is beyond what a certificate can say.
    #[error("no certificate can be made")]
    Make(#[source] rcgen::Error),
}

/// Returns where [`issue`] puts the files of a node.
pub fn files(folder: &Path, node: NodeId) -> TlsFiles {
    TlsFiles {
        authority: folder.join(AUTHORITY),
        certificate: folder.join(format!("node-{node}.pem")),
        key: folder.join(format!("node-{node}.key")),
    }
}

/// Returns where [`issue_sip`] puts the files of a domain. They ask nobody for a certificate.
pub fn sip_files(folder: &Path, domain: &Domain) -> SipTlsFiles {
    SipTlsFiles {
        certificate: folder.join(format!("sip-{domain}.pem")),
        key: folder.join(format!("sip-{domain}.key")),
        authority: Some(folder.join(AUTHORITY)),
        clients: None,
    }
}

/// Issues certificates for `days` days from `unix_ms` on, milliseconds since 1970, by the authority in
/// `folder`; makes that if there is none. Keys can be read by their owner only. No file is overwritten.
///
/// # Errors
/// When a file is in the way, cannot be read or cannot be written.
pub fn issue(
    folder: &Path,
    nodes: &[NodeId],
    days: u32,
    unix_ms: u64,
) -> Result<Vec<TlsFiles>, IssueError> {
    let nodes: BTreeSet<NodeId> = nodes.iter().copied().collect();
    let all: Vec<TlsFiles> = nodes.iter().map(|&node| files(folder, node)).collect();
    let wanted = nodes.into_iter().zip(&all).map(|(node, files)| Wanted {
        name: name(node),
        alternatives: CertificateParams::new([name(node)]),
        certificate: &files.certificate,
        key: &files.key,
    });
    issue_all(folder, wanted.collect(), days, unix_ms)?;
    Ok(all)
}

/// Does the same for listeners of SIP over TLS: a certificate has the domain as a SIP URI and as a DNS
/// name (RFC 5922 §4), or the address.
///
/// # Errors
/// As [`issue`].
pub fn issue_sip(
    folder: &Path,
    domains: &[Domain],
    days: u32,
    unix_ms: u64,
) -> Result<Vec<SipTlsFiles>, IssueError> {
    let all: Vec<SipTlsFiles> = domains.iter().map(|domain| sip_files(folder, domain)).collect();
    let wanted = domains.iter().zip(&all).map(|(domain, files)| Wanted {
        name: domain.to_string(),
        alternatives: alternatives(domain),
        certificate: &files.certificate,
        key: &files.key,
    });
    issue_all(folder, wanted.collect(), days, unix_ms)?;
    Ok(all)
}

/// A certificate that is to be issued.
struct Wanted<'a> {
    name: String,
    alternatives: Result<CertificateParams, rcgen::Error>,
    certificate: &'a Path,
    key: &'a Path,
}

fn issue_all(
    folder: &Path,
    wanted: Vec<Wanted<'_>>,
    days: u32,
    unix_ms: u64,
) -> Result<(), IssueError> {
    let taken = wanted.iter().flat_map(|one| [one.certificate, one.key]).find(|path| path.exists());
    if let Some(taken) = taken {
        return Err(IssueError::Taken(taken.to_owned()));
    }
    let at = i64::try_from(unix_ms / 1000).ok();
    let now = at.and_then(|at| OffsetDateTime::from_unix_timestamp(at).ok());
    let now = now.ok_or(IssueError::Make(rcgen::Error::Time))?;
    let authority = Authority::open(folder, now)?;
    let until = authority.until.min(now + Duration::days(days.into()));
    for Wanted { name, alternatives, certificate, key: key_path } in wanted {
        let key = KeyPair::generate().map_err(IssueError::Make)?;
        let params = params(alternatives.map_err(IssueError::Make)?, name, now, until);
        let made = params.signed_by(&key, &authority.issuer).map_err(IssueError::Make)?;
        write(key_path, &key.serialize_pem(), SECRET)?;
        write(certificate, &made.pem(), OPEN)?;
    }
    Ok(())
}

fn alternatives(domain: &Domain) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new([domain.to_string()])?;
    if !domain.is_address() {
        params.subject_alt_names.push(SanType::URI(format!("sip:{domain}").try_into()?));
    }
    Ok(params)
}

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    until: OffsetDateTime,
}

impl Authority {
    /// Reads the authority of a folder, or makes it.
    fn open(folder: &Path, now: OffsetDateTime) -> Result<Self, IssueError> {
        let (pem, key) = (folder.join(AUTHORITY), folder.join(AUTHORITY_KEY));
        match (pem.exists(), key.exists()) {
            (true, true) => Self::read(&pem, &key),
            (false, false) => Self::make(folder, &pem, &key, now),
            (false, true) => Err(IssueError::Half(pem)),
            (true, false) => Err(IssueError::Half(key)),
        }
    }

    fn read(pem: &Path, key: &Path) -> Result<Self, IssueError> {
        let read = |path: &Path| {
            std::fs::read_to_string(path)
                .map_err(|source| IssueError::File { path: path.to_owned(), source })
        };
        let (text, key) = (read(pem)?, read(key)?);
        let used = || -> Result<Self, Box<dyn Error + Send + Sync>> {
            let certificate = CertificateDer::from_pem_slice(text.as_bytes())?;
            let (_, parsed) = x509_parser::parse_x509_certificate(&certificate)?;
            let until = parsed.validity().not_after.to_datetime();
            let key = KeyPair::from_pem(&key)?;
            if key.subject_public_key_info() != parsed.public_key().raw {
                return Err("its key is of another one".into());
            }
            Ok(Self { issuer: Issuer::from_ca_cert_der(&certificate, key)?, until })
        };
        used().map_err(|source| IssueError::Authority { path: pem.to_owned(), source })
    }

    fn make(
        folder: &Path,
        pem: &Path,
        key_path: &Path,
        now: OffsetDateTime,
    ) -> Result<Self, IssueError> {
        let key = KeyPair::generate().map_err(IssueError::Make)?;
        let mut params = CertificateParams::default();
        // Two authorities are told apart by their names: this one's has a part of its key.
        let key_id: String =
            key.public_key_raw()[1..9].iter().map(|b| format!("{b:02x}")).collect();
        params.distinguished_name.push(DnType::CommonName, format!("Holdline authority {key_id}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.not_before = now - SLACK;
        params.not_after = now + Duration::days(DAYS_MAX.into());
        let certificate = params.self_signed(&key).map_err(IssueError::Make)?;
        std::fs::create_dir_all(folder)
            .map_err(|source| IssueError::File { path: folder.to_owned(), source })?;
        write(key_path, &key.serialize_pem(), SECRET)?;
        write(pem, &certificate.pem(), OPEN)?;
        Ok(Self { until: params.not_after, issuer: Issuer::new(params, key) })
    }
}

fn params(
    mut params: CertificateParams,
    name: String,
    now: OffsetDateTime,
    until: OffsetDateTime,
) -> CertificateParams {
    params.distinguished_name.push(DnType::CommonName, name);
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params.not_before = now - SLACK;
    params.not_after = until;
    params
}

/// Writes a new file.
fn write(path: &Path, text: &str, mode: u32) -> Result<(), IssueError> {
    let written = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    written().map_err(|source| IssueError::File { path: path.to_owned(), source })
}

const AUTHORITY: &str = "ca.pem";
const AUTHORITY_KEY: &str = "ca.key";
const SECRET: u32 = 0o600;
const OPEN: u32 = 0o644;
/// Clocks of nodes may be behind.
const SLACK: Duration = Duration::hours(1);

//! Reading certificates and keys.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys, RootCertStore};

use super::{CertificateFault, Expiry, TlsErrorKind, TlsFile};

/// Reads the authorities that have not expired.
pub(super) fn authorities(
    path: &Path,
    unix_ms: u64,
) -> Result<Vec<CertificateDer<'static>>, TlsErrorKind> {
    let all = certificates(path)?;
    let (mut kept, mut days) = (Vec::new(), u64::MAX);
    for one in all {
        let expiry = Expiry::at(path, 1, &one);
        let expiry = expiry.ok_or(TlsErrorKind::Certificate(CertificateFault::Unsound))?;
        match u64::try_from(expiry.days_left(unix_ms)) {
            Ok(_) => kept.push(one),
            Err(_) => days = days.min(expiry.days_left(unix_ms).unsigned_abs()),
        }
    }
    if kept.is_empty() {
        return Err(TlsErrorKind::Certificate(CertificateFault::Expired { days }));
    }
    Ok(kept)
}

pub(super) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsErrorKind> {
    let bytes = std::fs::read(path).map_err(TlsErrorKind::Read)?;
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    read.ok().filter(|list| !list.is_empty()).ok_or(TlsErrorKind::Empty("certificate"))
}

pub(super) fn key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsErrorKind> {
    let meta = std::fs::metadata(path).map_err(TlsErrorKind::Read)?;
    if meta.mode() & 0o004 != 0 {
        return Err(TlsErrorKind::Public);
    }
    let bytes = std::fs::read(path).map_err(TlsErrorKind::Read)?;
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|_| TlsErrorKind::Empty("private key"))
}

/// Joins a certificate and its key.
pub(super) fn certified(
    provider: &CryptoProvider,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<Arc<CertifiedKey>, (TlsFile, TlsErrorKind)> {
    let key = provider.key_provider.load_private_key(key);
    let key = key.map_err(|_| (TlsFile::Key, TlsErrorKind::KeyKind))?;
    let certified = CertifiedKey::new(chain, key);
    match certified.keys_match() {
        Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(Arc::new(certified)),
        Err(Error::InconsistentKeys(_)) => Err((TlsFile::Key, TlsErrorKind::KeyMismatch)),
        Err(_) => {
            let kind = TlsErrorKind::Certificate(CertificateFault::Unsound);
            Err((TlsFile::Certificate, kind))
        }
    }
}

pub(super) fn roots(authorities: &[CertificateDer<'static>]) -> Arc<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(authorities.iter().cloned());
    Arc::new(roots)
}

/// Checks that a certificate holds at `unix_ms`, whoever issued it.
pub(super) fn in_its_time(one: &CertificateDer<'_>, unix_ms: u64) -> Result<(), CertificateFault> {
    let parsed = x509_parser::parse_x509_certificate(one);
    let (_, parsed) = parsed.map_err(|_| CertificateFault::Unsound)?;
    let seconds = i64::try_from(unix_ms / 1000).unwrap_or(i64::MAX);
    let validity = parsed.validity();
    let over = seconds.saturating_sub(validity.not_after.timestamp());
    if seconds < validity.not_before.timestamp() {
        return Err(CertificateFault::NotYetValid);
    }
    match u64::try_from(over) {
        Ok(over) if 0 < over => Err(CertificateFault::Expired { days: over.div_ceil(86_400) }),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// The certificates and the key of a file that has either.
#[cfg(test)]
pub(crate) fn pem(path: &Path) -> (Vec<CertificateDer<'static>>, Option<PrivateKeyDer<'static>>) {
    (certificates(path).unwrap_or_default(), key(path).ok())
}

//! Whether the next hop is who it should be.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, IpAddr, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use sip_core::{Scheme, Uri};
use x509_parser::extensions::GeneralName;

/// Checks the certificate of whom we connect to.
#[derive(Debug)]
pub(super) struct NextHop {
    roots: Arc<RootCertStore>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl NextHop {
    pub(super) fn new(roots: Arc<RootCertStore>, provider: &CryptoProvider) -> Self {
        Self { roots, algorithms: provider.signature_verification_algorithms }
    }
}

impl ServerCertVerifier for NextHop {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let parsed = ParsedCertificate::try_from(own)?;
        let algorithms = self.algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&parsed, &self.roots, between, now, algorithms)?;
        check_names(own, name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, own, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, own, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Checks that a certificate names `name`, by RFC 5922 §7.1 and §7.2.
pub(super) fn check_names(own: &[u8], name: &ServerName<'_>) -> Result<(), Error> {
    let unsound = || Error::InvalidCertificate(CertificateError::BadEncoding);
    let (_, parsed) = x509_parser::parse_x509_certificate(own).map_err(|_| unsound())?;
    let names = parsed.subject_alternative_name().map_err(|_| unsound())?;
    let names = names.map(|names| &names.value.general_names[..]).unwrap_or_default();
    if names.iter().any(|one| is_same(one, name)) {
        return Ok(());
    }
    let presented = names.iter().map(ToString::to_string).collect();
    let expected = name.to_owned();
    let error = CertificateError::NotValidForNameContext { expected, presented };
    Err(Error::InvalidCertificate(error))
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the libraries add kinds as they like")]
fn is_same(one: &GeneralName<'_>, name: &ServerName<'_>) -> bool {
    match one {
        GeneralName::DNSName(domain) => is_domain(domain, name),
        GeneralName::URI(uri) => Uri::parse(uri.as_bytes()).is_ok_and(|uri| {
            // Neither one of another scheme nor a user's says anything about the domain.
            let host = uri.host().filter(|_| uri.scheme() == Scheme::Sip && uri.user().is_none());
            let host = host.map(|host| std::str::from_utf8(host.name()).unwrap_or_default());
            host.is_some_and(|host| is_domain(host, name))
        }),
        GeneralName::IPAddress(octets) => match name {
            ServerName::IpAddress(IpAddr::V4(ip)) => *octets == ip.as_ref(),
            ServerName::IpAddress(IpAddr::V6(ip)) => *octets == ip.as_ref(),
            _ => false,
        },
        _ => false,
    }
}

/// Whether both are the same domain; a wildcard is no domain.
fn is_domain(domain: &str, name: &ServerName<'_>) -> bool {
    let ServerName::DnsName(name) = name else { return false };
    let bare = |text: &str| text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    bare(domain) == bare(name.as_ref())
}

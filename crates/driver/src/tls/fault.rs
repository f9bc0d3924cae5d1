//! Why a certificate or a handshake is refused.

use std::io;

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};

/// Why a certificate is not believed, in words that follow "the certificate".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CertificateFault {
    /// Its time is over.
    #[error("expired {days} days ago: issue another")]
    Expired {
        /// Begun days since then.
        days: u64,
    },
    /// Its time has not come.
    #[error("is not valid yet: check the clocks")]
    NotYetValid,
    /// It is one of another node.
    #[error("names {names}, not {expected}")]
    WrongNode {
        /// The name that it should have.
        expected: String,
        /// The names that it has, made harmless.
        names: String,
    },
    /// No authority that is believed has issued it.
    #[error("is from an unknown authority")]
    UnknownAuthority,
    /// It may not be used at both ends of a link.
    #[error("lacks a usage: issue it for client and server authentication both")]
    Usage,
    /// It cannot be read or has a wrong signature.
    #[error("is damaged, or forged in the name of an authority")]
    Unsound,
}

impl CertificateFault {
    /// Says what a verifier found.
    pub(crate) fn of(error: &Error) -> Self {
        let Error::InvalidCertificate(error) = error else { return Self::Unsound };
        #[expect(clippy::wildcard_enum_match_arm, reason = "the library adds kinds as it likes")]
        match error {
            CertificateError::Expired => Self::Expired { days: 1 },
            CertificateError::ExpiredContext { time, not_after } => {
                let seconds = time.as_secs().saturating_sub(not_after.as_secs());
                Self::Expired { days: seconds.div_ceil(DAY) }
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                Self::NotYetValid
            }
            CertificateError::NotValidForNameContext { expected, presented } => Self::WrongNode {
                expected: expected.to_str().into_owned(),
                names: names(presented),
            },
            CertificateError::UnknownIssuer => Self::UnknownAuthority,
            CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
                Self::Usage
            }
            _ => Self::Unsound,
        }
    }

    /// Its name in the metrics.
    pub(crate) fn label(&self) -> &'static str {
        match self {
            Self::Expired { .. } => "certificate_expired",
            Self::NotYetValid => "certificate_not_yet_valid",
            Self::WrongNode { .. } => "certificate_of_another_node",
            Self::UnknownAuthority => "certificate_of_unknown_authority",
            Self::Usage => "certificate_usage",
            Self::Unsound => "certificate_damaged",
        }
    }
}

/// Why a handshake failed.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum HandshakeFault {
    #[error("the peer's certificate {0}")]
    Certificate(CertificateFault),
    #[error("the peer shows no certificate")]
    NoCertificate,
    #[error("the peer speaks without TLS where it is asked for")]
    Plaintext,
    #[error("the peer refuses our certificate or TLS: {0:?}")]
    Refused(AlertDescription),
    #[error("the peer has no TLS that fits ours")]
    Incompatible,
    #[error("the peer breaks the protocol of TLS: {0}")]
    Protocol(Error),
    #[error("the handshake is longer than any should be")]
    TooLong,
    #[error("the handshake takes too long")]
    Late,
    #[error("the peer closed during the handshake")]
    Closed,
    #[error("the connection failed during the handshake: {0}")]
    Failed(io::ErrorKind),
}

impl HandshakeFault {
    /// Says what TLS found.
    pub(crate) fn of(error: Error) -> Self {
        #[expect(clippy::wildcard_enum_match_arm, reason = "the library adds kinds as it likes")]
        match error {
            Error::InvalidCertificate(_) => Self::Certificate(CertificateFault::of(&error)),
            Error::NoCertificatesPresented => Self::NoCertificate,
            Error::InvalidMessage(
                InvalidMessage::InvalidContentType | InvalidMessage::UnknownProtocolVersion,
            ) => Self::Plaintext,
            Error::AlertReceived(alert) => Self::Refused(alert),
            Error::PeerIncompatible(_) => Self::Incompatible,
            other => Self::Protocol(other),
        }
    }

    /// Whether an operator has to do something.
    pub(crate) fn alarms(&self) -> bool {
        match self {
            Self::Certificate(_)
            | Self::NoCertificate
            | Self::Plaintext
            | Self::Refused(_)
            | Self::Incompatible => true,
            Self::Protocol(_) | Self::TooLong | Self::Late | Self::Closed | Self::Failed(_) => {
                false
            }
        }
    }

    /// Its name in the metrics.
    pub(crate) fn label(&self) -> &'static str {
        match self {
            Self::Certificate(fault) => fault.label(),
            Self::NoCertificate => "no_certificate",
            Self::Plaintext => "plaintext",
            Self::Refused(_) => "refused_by_peer",
            Self::Incompatible => "tls_incompatible",
            Self::Protocol(_) => "tls_protocol",
            Self::TooLong => "handshake_too_long",
            Self::Late => "handshake_slow",
            Self::Closed => "handshake_closed",
            Self::Failed(_) => "handshake_failed",
        }
    }
}

/// The names of a certificate, for people.
fn names(presented: &[String]) -> String {
    let name = |text: &String| {
        let inner = text.strip_prefix("DnsName(\"").and_then(|rest| rest.strip_suffix("\")"));
        inner.unwrap_or(text).escape_default().to_string()
    };
    let names: Vec<String> = presented.iter().take(NAMES_MAX).map(name).collect();
    if names.is_empty() { "nobody".into() } else { names.join(", ") }
}

/// How many names are told.
const NAMES_MAX: usize = 8;
/// In seconds.
const DAY: u64 = 86_400;

//! Values of headers that are neither addresses nor Vias.

use std::borrow::Cow;

use crate::Method;
use crate::lex;
use crate::params::{Malformed, Params};

mod accept;
mod dialog_id;
mod diversion;
mod event;
mod rack;
mod refer_to;
mod retry_after;

pub use accept::MediaRange;
pub use dialog_id::{Join, Replaces};
pub use diversion::Diversion;
pub use event::{Event, SubscriptionState};
pub use rack::RAck;
pub(crate) use rack::rseq;
pub use refer_to::ReferTo;
pub use retry_after::RetryAfter;

/// Number and method of a request (RFC 3261 §20.16).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CSeq<'a> {
    /// The sequence number, below 2^31.
    pub number: u32,
    /// The method.
    pub method: Method<'a>,
}

impl<'a> CSeq<'a> {
    /// Reads a CSeq value.
    ///
    /// # Errors
    /// It is not a number below 2^31 (RFC 3261 §8.1.1.5), white space, and a token.
    pub fn parse(value: &'a [u8]) -> Result<Self, Malformed> {
        let (digits, rest) = lex::split_while(value, |b| b.is_ascii_digit());
        let number = lex::number(digits).filter(|&n| n < 1 << 31).ok_or(Malformed)?;
        let method = lex::trim_start(rest);
        if method.len() == rest.len() || !lex::is_token(method) {
            return Err(Malformed);
        }
        Ok(Self { number, method: Method::new(method) })
    }
}

/// Why a request or response was sent (RFC 3326).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reason<'a> {
    /// The protocol whose cause this is: `SIP`, `Q.850`.
    pub protocol: &'a [u8],
    /// All parameters.
    pub params: Params<'a>,
}

impl<'a> Reason<'a> {
    /// Reads one element of a Reason header.
    ///
    /// # Errors
    /// The protocol is no token.
    pub fn parse(element: &'a [u8]) -> Result<Self, Malformed> {
        let (protocol, params) = head_and_params(element);
        if lex::is_token(protocol) { Ok(Self { protocol, params }) } else { Err(Malformed) }
    }

    /// Returns the cause number.
    #[must_use]
    pub fn cause(&self) -> Option<u32> {
        self.params.get(b"cause").and_then(lex::number)
    }

    /// Returns the text without quotes.
    #[must_use]
    pub fn text(&self) -> Option<Cow<'a, [u8]>> {
        self.params.get(b"text").map(lex::unquote)
    }
}

/// Who refreshes a session (RFC 4028 §4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refresher {
    /// The side that sent the request.
    Uac,
    /// The side that answered it.
    Uas,
}

impl Refresher {
    /// Returns the text of the parameter's value.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Uac => "uac",
            Self::Uas => "uas",
        }
    }
}

/// How long a session lives without a refresh (RFC 4028 §4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionExpires {
    /// Seconds.
    pub interval: u32,
    /// Who refreshes, when that is said.
    pub refresher: Option<Refresher>,
}

impl SessionExpires {
    /// Reads a Session-Expires value.
    ///
    /// # Errors
    /// It does not begin with a number.
    pub fn parse(value: &[u8]) -> Result<Self, Malformed> {
        let (digits, params) = head_and_params(value);
        let interval = lex::seconds(digits).ok_or(Malformed)?;
        let refresher = match params.get(b"refresher") {
            Some(who) if who.eq_ignore_ascii_case(b"uac") => Some(Refresher::Uac),
            Some(who) if who.eq_ignore_ascii_case(b"uas") => Some(Refresher::Uas),
            _ => None,
        };
        Ok(Self { interval, refresher })
    }
}

/// Reads a Max-Forwards value, a number from 0 to 255 (RFC 3261 §20.22).
pub(crate) fn hops(value: &[u8]) -> Option<u32> {
    lex::number(value).filter(|hops| *hops < 256)
}

/// Reads the number that a value begins with, before parameters or a comment:
/// Retry-After (RFC 3261 §20.33), Min-SE (RFC 4028 §5). Too many seconds are
/// as many as fit.
pub(crate) fn leading_seconds(value: &[u8]) -> Option<u32> {
    let (digits, rest) = lex::split_while(value, |b| b.is_ascii_digit());
    match lex::trim_start(rest).first() {
        None | Some(b';' | b'(') => lex::seconds(digits),
        Some(_) => None,
    }
}

fn head_and_params(value: &[u8]) -> (&[u8], Params<'_>) {
    let at = memchr::memchr(b';', value).unwrap_or(value.len());
    (lex::trim_end(&value[..at]), Params::new(&value[at..]))
}

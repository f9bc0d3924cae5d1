//! Values of headers that are neither addresses nor Vias.

use std::borrow::Cow;

use crate::Method;
use crate::lex;
use crate::params::{Malformed, Params};

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

/// The dialog that an INVITE is to replace (RFC 3891 §6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replaces<'a> {
    /// Its Call-ID.
    pub call_id: &'a [u8],
    /// Its tag at the receiver of this INVITE.
    pub to_tag: &'a [u8],
    /// Its tag at the other side.
    pub from_tag: &'a [u8],
    /// True when only an early dialog may be replaced.
    pub early_only: bool,
}

impl<'a> Replaces<'a> {
    /// Reads a Replaces, Join or Target-Dialog value.
    ///
    /// # Errors
    /// The Call-ID or one of the tags is missing or stands twice.
    pub fn parse(value: &'a [u8]) -> Result<Self, Malformed> {
        let (call_id, mut params) = head_and_params(value);
        let (mut to_tag, mut from_tag, mut early_only) = (None, None, false);
        while let Some(param) = params.take()? {
            let slot = match param.name {
                name if name.eq_ignore_ascii_case(b"to-tag") => &mut to_tag,
                name if name.eq_ignore_ascii_case(b"from-tag") => &mut from_tag,
                name => {
                    early_only |= name.eq_ignore_ascii_case(b"early-only");
                    continue;
                }
            };
            if slot.replace(param.value.ok_or(Malformed)?).is_some() {
                return Err(Malformed);
            }
        }
        let (Some(to_tag), Some(from_tag)) = (to_tag, from_tag) else { return Err(Malformed) };
        if call_id.is_empty() || !lex::is_visible(call_id) {
            return Err(Malformed);
        }
        Ok(Self { call_id, to_tag, from_tag, early_only })
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
